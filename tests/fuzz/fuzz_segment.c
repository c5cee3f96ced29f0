// SPDX-License-Identifier: Apache-2.0
/* fuzz_segment.c -- segments out of hostile bytes.
 *
 * It stops on anything the sanitizers see, on memory taken that the file could not fill, on a block
 * told of that does not lie in the file or that does not read back, and on a chunk whose marks do
 * not fit it, on a note that is not the same when it is packed again. Most inputs get their
 * checksums put right first, or nothing would pass them.
 *
 * Input: a byte of flags, 4 bytes of offset and 4 of length for a read of its own, the file. */
#include "base/err.h"
#include "base/mem.h"
#include "store/catalog/extent.h"
#include "store/embedded/note.h"
#include "store/embedded/segment.h"
#include "store/embedded/segment_format.h"
#include "store/embedded/vfs.h"

#include <sanitizer/allocator_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define ID         12
#define INPUT_HEAD 9
#define SLACK      (512u * 1024) /* what may be taken for any file: a note, a window, a state */

enum { FLAG_VERIFY = 1, FLAG_SALVAGE = 2, FLAG_AS_IS = 4, FLAG_NO_FOOTER = 8 };

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_segment: %s\n", what);
    abort();
}

/* ---- a disk with one file on it ---- */

struct disk {
    struct vfs vfs;
    struct file file;
    const char *bytes;
    size_t n;
    bool verify;
    size_t damages;
};

static int disk_open(struct vfs *v, const char *name, enum vfs_open how, struct file **out)
{
    struct disk *d = container_of(v, struct disk, vfs);
    check(how == VFS_READ && strcmp(name, "segments/00000012.s") == 0, "another file");
    *out = &d->file;
    return 0;
}

static void disk_close(struct file *f)
{
}

static int disk_read(struct file *f, uint64_t offset, void *into, size_t n, size_t *got)
{
    struct disk *d = container_of(f, struct disk, file);
    *got = offset >= d->n ? 0 : d->n - offset < n ? d->n - (size_t)offset : n;
    if (*got > 0)
        memcpy(into, d->bytes + offset, *got);
    return 0;
}

static int disk_size(struct file *f, uint64_t *out)
{
    *out = container_of(f, struct disk, file)->n;
    return 0;
}

static const struct vfs_ops disk_ops = {
    .open = disk_open, .close = disk_close, .read = disk_read, .size = disk_size};

/* ---- memory ---- */

static size_t allowance = SIZE_MAX; /* the fuzzer itself takes what it likes */

static void on_malloc(const volatile void *p, size_t n)
{
    check(n <= allowance, "more memory than the file could fill");
}

static void on_free(const volatile void *p)
{
}

/* ---- checksums put right ---- */

static size_t mend_items(char *file, size_t n)
{
    size_t at = SEGMENT_FILE_HEAD;
    struct segment_item item = {0};
    while (at < n && segment_item_read(file + at, n - at, &item) == 0 &&
           segment_item_bytes(&item) <= n - at) {
        size_t size = (size_t)segment_item_bytes(&item) - SEGMENT_SUM;
        le_put_u64(file + at + size, XXH3_64bits_withSeed(file + at, size, ID));
        at += size + SEGMENT_SUM;
    }
    return at;
}

/* What stands between the items and the trailer is taken for the footer. */
static void mend(char *file, size_t n, uint8_t flags)
{
    const uint64_t salt = 7;
    if (n < SEGMENT_FILE_HEAD + SEGMENT_TRAILER)
        return;
    size_t end = n - SEGMENT_TRAILER, footer = mend_items(file, end);
    segment_head_write(file, ID, salt);
    if (!(flags & FLAG_NO_FOOTER))
        segment_trailer_write(file + end, salt, footer, str_of(file + footer, end - footer));
}

/* ---- what comes out ---- */

static void check_chunk(struct extent *c)
{
    check(c->n_marks > 0 && c->bytes->n > 0, "an empty chunk");
    check(c->marks[c->n_marks - 1] == (c->bytes->n | MARK_APPEND_END), "a chunk without an end");
    uint64_t middle = c->first + c->bytes->n / 2, to = 0;
    uint32_t mark = extent_mark_after(c, middle);
    check(mark < c->n_marks && MARK_END(c->marks[mark]) > c->bytes->n / 2, "a mark too early");
    extent_is_boundary(c, middle);
    extent_advance(c, extent_end(c), c->first, 1, true, &to);
    check(to <= extent_end(c), "an event beyond the chunk");
}

static int on_block(void *ctx, const struct block_info *b)
{
    struct disk *d = ctx;
    struct extent *c;
    check(b->place.segment == ID && b->place.offset >= SEGMENT_FILE_HEAD &&
              b->place.offset + b->place.bytes <= d->n && b->first < b->end && b->events > 0,
          "a block that cannot be");
    int err = segment_read(&d->vfs, b->life, b->first, b->place, &c);
    check(err == 0 || (err == ERR_CORRUPT && !d->verify), "a block that cannot be read back");
    if (err != 0)
        return 0;
    check_chunk(c);
    check(extent_end(c) == b->end || !d->verify, "a block with another end");
    extent_unref(c);
    return 0;
}

/* A note that is taken can be packed again, and is the same then. */
static void check_note(struct str bytes)
{
    struct note n, again;
    struct buf first = {0}, second = {0};
    int err = note_unpack(bytes, &n);
    check(err == 0 || err == ERR_CORRUPT, "another error of a note");
    if (err != 0)
        return;
    note_pack(&first, &n);
    check(note_unpack(buf_str(&first), &again) == 0 && again.type == n.type, "a note taken once");
    note_pack(&second, &again);
    check(str_eq(buf_str(&first), buf_str(&second)), "a note that is not what it was");
    check(first.n <= bytes.n, "a note that grows"); /* numbers have one shortest form */
    buf_deinit(&first);
    buf_deinit(&second);
}

static int on_note(void *ctx, struct str note)
{
    struct disk *d = ctx;
    check(note.n <= SEGMENT_NOTE_MAX && note.n <= d->n, "a note that cannot be");
    check_note(note);
    return note.n > 0 && note.p[0] == '!' && note.p[note.n - 1] == '!' ? ERR_CANCELLED : 0;
}

static void on_damage(void *ctx, uint64_t segment, uint64_t offset, const char *what)
{
    struct disk *d = ctx;
    check(segment == ID && offset <= d->n && what != NULL, "damage nowhere");
    d->damages++;
}

static void scan_all(struct disk *d, uint8_t flags)
{
    struct segment_scan s = {.verify = flags & FLAG_VERIFY,
                             .salvage = flags & FLAG_SALVAGE,
                             .ctx = d,
                             .block = on_block,
                             .note = on_note,
                             .damaged = on_damage};
    d->verify = s.verify;
    if (s.salvage) { /* what is salvaged is always verified, so look first whether it will be */
        struct segment_scan look = {0};
        d->verify |= segment_scan(&d->vfs, ID, &look) == ERR_CORRUPT;
        check(!look.salvaged, "salvaged unasked");
    }
    int err = segment_scan(&d->vfs, ID, &s);
    check(err == 0 || err == ERR_CANCELLED || err == ERR_VERSION ||
              (err == ERR_CORRUPT && !s.salvage),
          "another error");
    check(err == 0 || err == ERR_CANCELLED || d->damages > 0, "damage untold");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static bool hooked;
    if (!hooked)
        hooked = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) > 0;
    if (n < INPUT_HEAD)
        return 0;
    size_t size = n - INPUT_HEAD;
    char *file = mem_alloc(size + 1);
    memcpy(file, data + INPUT_HEAD, size);
    if (!(data[0] & FLAG_AS_IS))
        mend(file, size, data[0]);
    struct disk d = {.vfs = {&disk_ops}, .bytes = file, .n = size};
    d.file.vfs = &d.vfs;
    allowance = 2 * size + SLACK;
    if (size <= SEGMENT_NOTE_MAX)
        check_note(str_of((const char *)data + INPUT_HEAD, size)); /* as if all of it were one */
    scan_all(&d, data[0]);
    struct place place = {ID, le_get_u32((const char *)data + 1),
                          le_get_u32((const char *)data + 5)};
    struct extent *c;
    if (segment_read(&d.vfs, 1, 0, place, &c) == 0) {
        check_chunk(c);
        extent_unref(c);
    }
    allowance = SIZE_MAX;
    free(file);
    return 0;
}
