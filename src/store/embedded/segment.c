// SPDX-License-Identifier: Apache-2.0
/* segment.c -- writing segments. segment_read.c reads them, segment_format.c knows the bytes. The
 * format:
 *
 *     file   | head | item | item | ... | footer | trailer |
 *
 * An item is a block or a note. Nothing stands between items, and nothing is aligned. Numbers are
 * little-endian. The id is the number in the file's name; it is never given twice.
 *
 *     head      0  8  "tmsegmt\n"
 *               8  4  version, 1
 *              12  4  0
 *              16  8  id
 *              24  8  salt: random, seed of the footer's and the trailer's sums
 *              32  8  XXH3-64 of bytes 0-31
 *
 *     block     0  4  "tmk\n"; a block of another layout would begin otherwise
 *               4  4  m, the number of marks (events), at least 1
 *               8  4  n, the number of bytes, at least 1
 *              12  4  0
 *              16  8  life of the stream
 *              24  8  position of the first byte
 *              32  8  ordinal of the first event
 *              40  8  time of the first append, Unix milliseconds
 *              48  8  time of the last append
 *              56 4m  marks: where each event ends; the top bit: its append ends there too
 *                  n  the events
 *                  8  XXH3-64 of all of the block before it, seed: id
 *
 *     note      0  4  "tmn\n"
 *               4  4  n, at most SEGMENT_NOTE_MAX
 *               8  n  the note
 *                  8  XXH3-64 of all of the note before it, seed: id
 *
 *     footer          for each item in the order of the file, as pack.h has it:
 *                     a block: m, n, life, position, ordinal, first time, last time
 *                     a note: 0, n
 *
 *     trailer   0  8  offset of the footer, which ends where the trailer begins
 *               8  8  XXH3-64 of the footer, seed: salt
 *              16  8  XXH3-64 of bytes 0-15, seed: salt
 *              24  8  "tmsegend"
 *
 * The footer does not repeat what follows from it: the first item begins behind the head, each
 * next one behind the one before, and the last ends where the footer begins. So every byte of the
 * file is under some sum or compared with a constant.
 *
 * The sum of a block covers its life and position, and by its seed the segment it belongs to: a
 * block that a disk wrote to the wrong place, or did not write over an older one, is not taken for
 * another. The salt keeps events that look like a trailer from ending a file that was cut off
 * there. Notes are items of their own and no part of the footer, so that the footer stays small
 * enough to be kept in memory while the segment is written, and so that the notes are found even if
 * the footer is not. */
#include "store/embedded/segment.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/rand.h"
#include "store/catalog/extent.h"
#include "store/embedded/pace.h"
#include "store/embedded/segment_format.h"
#include "store/embedded/vfs.h"

#include <stdlib.h>
#include <xxhash.h>

#define BUFFER_BYTES  PACE_STEP_BYTES
#define DIRECT_BYTES  PACE_STEP_BYTES /* from here on, copying costs more than another write */
#define MARKS_AT_ONCE 1024

struct segment_writer {
    struct vfs *vfs;
    struct file *file;
    uint64_t id, salt;
    struct pace *pace; /* NULL: as fast as it goes */
    uint64_t written;  /* bytes of the file that have been given to the vfs */
    uint64_t stepped;  /* those that have been written back */
    size_t n;          /* bytes in the buffer */
    struct buf footer; /* of the items so far */
    XXH3_state_t *sum; /* of the item that is being written */
    int err;           /* the first; nothing is written after it */
    bool named;        /* it has its own name, and not that of one being written */
    bool finished;
    char buffer[BUFFER_BYTES];
};

/* ---- bytes ---- */

/* Writes what is in the buffer and, behind it, n bytes from elsewhere. */
static void flush_with(struct segment_writer *w, const char *p, size_t n)
{
    struct iovec pieces[] = {{w->buffer, w->n}, {(void *)p, n}};
    uint64_t began_ns = pace_begin(w->pace);
    if (w->err == 0 && w->n + n > 0)
        w->err = vfs_writev(w->file, w->written, pieces, n > 0 ? 2 : 1);
    if (w->err == 0)
        w->written += w->n + n;
    w->n = 0;
    if (w->err != 0 || w->pace == NULL || w->written - w->stepped < PACE_STEP_BYTES)
        return;
    w->err = vfs_write_back(w->file, w->stepped, w->written - w->stepped);
    w->stepped = w->written;
    pace_rest(w->pace, began_ns);
}

static void segment_put(struct segment_writer *w, const char *p, size_t n)
{
    while (n >= DIRECT_BYTES) {
        size_t some = n < PACE_STEP_BYTES ? n : PACE_STEP_BYTES;
        flush_with(w, p, some);
        p += some;
        n -= some;
    }
    while (n > 0) {
        size_t room = BUFFER_BYTES - w->n, some = n < room ? n : room;
        memcpy(w->buffer + w->n, p, some);
        w->n += some;
        p += some;
        n -= some;
        if (w->n == BUFFER_BYTES)
            flush_with(w, NULL, 0);
    }
}

static uint64_t position(const struct segment_writer *w)
{
    return w->written + w->n;
}

/* ---- items ---- */

static void put_summed(struct segment_writer *w, const char *p, size_t n)
{
    XXH3_64bits_update(w->sum, p, n);
    segment_put(w, p, n);
}

static void begin_item(struct segment_writer *w, const struct segment_item *item)
{
    char head[SEGMENT_BLOCK_HEAD];
    segment_item_write(head, item);
    XXH3_64bits_reset_withSeed(w->sum, w->id);
    put_summed(w, head, segment_item_head(item));
}

static int end_item(struct segment_writer *w, const struct segment_item *item)
{
    char sum[SEGMENT_SUM];
    le_put_u64(sum, XXH3_64bits_digest(w->sum));
    segment_put(w, sum, sizeof sum);
    segment_footer_put(&w->footer, item);
    return w->err;
}

static void put_marks(struct segment_writer *w, const struct extent *c)
{
    char some[MARKS_AT_ONCE * SEGMENT_MARK];
    uint32_t last = 0;
    for (uint32_t i = 0; i < c->n_marks;) {
        size_t n = 0;
        for (; n < sizeof some && i < c->n_marks; n += SEGMENT_MARK, i++) {
            must(MARK_END(c->marks[i]) >= last); /* or nobody could read it back */
            last = MARK_END(c->marks[i]);
            le_put_u32(some + n, c->marks[i]);
        }
        put_summed(w, some, n);
    }
    must(last == c->bytes->n);
}

int segment_add(struct segment_writer *w, uint64_t life, const struct extent *c,
                struct block_info *out)
{
    struct segment_item item = {
        .offset = position(w),
        .marks = c->n_marks,
        .n = c->bytes->n,
        .life = life,
        .first = c->first,
        .ordinal = c->ordinal,
        .oldest_ms = c->oldest_ms,
        .newest_ms = c->newest_ms,
    };
    must(!w->finished && item.marks > 0 && item.n > 0);
    if (w->err != 0)
        return w->err;
    if (segment_item_bytes(&item) > SEGMENT_BLOCK_MAX)
        return ERR_TOO_LARGE;
    begin_item(w, &item);
    put_marks(w, c);
    put_summed(w, c->bytes->bytes, c->bytes->n);
    int err = end_item(w, &item);
    if (err != 0)
        return err;
    *out = (struct block_info){
        .life = life,
        .first = c->first,
        .end = extent_end(c),
        .ordinal = c->ordinal,
        .events = c->n_marks,
        .oldest_ms = c->oldest_ms,
        .newest_ms = c->newest_ms,
        .place = {w->id, item.offset, (uint32_t)segment_item_bytes(&item)},
    };
    return 0;
}

int segment_add_note(struct segment_writer *w, struct str note)
{
    must(!w->finished && note.n <= SEGMENT_NOTE_MAX);
    struct segment_item item = {.offset = position(w), .n = (uint32_t)note.n};
    if (w->err != 0)
        return w->err;
    begin_item(w, &item);
    put_summed(w, note.p, note.n);
    return end_item(w, &item);
}

/* ---- the file ---- */

static int create_file(struct vfs *v, const char *name, struct file **out)
{
    int err = vfs_open(v, name, VFS_CREATE, out);
    if (err != ERR_NOT_FOUND)
        return err;
    err = vfs_make_dir(v, SEGMENT_DIR);
    if (err == 0)
        err = vfs_sync_dir(v, "");
    return err == 0 || err == ERR_EXISTS ? vfs_open(v, name, VFS_CREATE, out) : err;
}

static bool is_there(struct vfs *v, uint64_t id)
{
    char name[SEGMENT_NAME_MAX];
    struct file *f;
    segment_name(id, name);
    if (vfs_open(v, name, VFS_READ, &f) != 0)
        return false;
    vfs_close(f);
    return true;
}

int segment_create(struct vfs *v, uint64_t id, struct segment_writer **out)
{
    char name[SEGMENT_NAME_MAX], head[SEGMENT_FILE_HEAD];
    struct file *file;
    if (is_there(v, id))
        return ERR_EXISTS;
    segment_new_name(id, name);
    int err = create_file(v, name, &file);
    if (err == ERR_EXISTS && (err = vfs_remove(v, name)) == 0) /* what a crash has left */
        err = create_file(v, name, &file);
    if (err != 0)
        return err;
    struct segment_writer *w = mem_alloc(sizeof *w);
    w->vfs = v;
    w->file = file;
    w->id = id;
    w->salt = rand_u64();
    w->pace = NULL;
    w->written = w->stepped = w->n = 0;
    w->footer = (struct buf){0};
    w->sum = XXH3_createState();
    w->err = 0;
    w->named = w->finished = false;
    must(w->sum != NULL); /* out of memory */
    segment_head_write(head, id, w->salt);
    segment_put(w, head, sizeof head);
    *out = w;
    return 0;
}

void segment_set_pace(struct segment_writer *w, struct pace *pace)
{
    w->pace = pace;
}

/* Everything in it is on the disk: only then does it get its name. */
static int give_name(struct segment_writer *w)
{
    char made[SEGMENT_NAME_MAX], name[SEGMENT_NAME_MAX];
    segment_new_name(w->id, made);
    segment_name(w->id, name);
    int err = vfs_rename(w->vfs, made, name);
    w->named = err == 0;
    return err == 0 ? vfs_sync_dir(w->vfs, SEGMENT_DIR) : err;
}

int segment_finish(struct segment_writer *w, uint64_t *file_bytes)
{
    char trailer[SEGMENT_TRAILER];
    must(!w->finished);
    segment_trailer_write(trailer, w->salt, position(w), buf_str(&w->footer));
    segment_put(w, w->footer.p, w->footer.n);
    segment_put(w, trailer, sizeof trailer);
    flush_with(w, NULL, 0);
    if (w->err == 0)
        w->err = vfs_sync(w->file);
    if (w->err == 0)
        w->err = give_name(w);
    if (w->err != 0)
        return w->err;
    w->finished = true;
    *file_bytes = w->written;
    return 0;
}

static void remove_unfinished(struct segment_writer *w)
{
    char made[SEGMENT_NAME_MAX];
    segment_new_name(w->id, made);
    if (w->named)
        segment_remove(w->vfs, w->id);
    else
        vfs_remove(w->vfs, made); /* or the next attempt does */
}

void segment_close(struct segment_writer *w)
{
    if (w == NULL)
        return;
    vfs_close(w->file);
    if (!w->finished)
        remove_unfinished(w);
    buf_deinit(&w->footer);
    XXH3_freeState(w->sum);
    free(w);
}

/* ---- all segments ---- */

int segment_size(struct vfs *v, uint64_t id, uint64_t *bytes)
{
    char name[SEGMENT_NAME_MAX];
    struct file *f;
    segment_name(id, name);
    int err = vfs_open(v, name, VFS_READ, &f);
    if (err != 0)
        return err;
    err = vfs_size(f, bytes);
    vfs_close(f);
    return err;
}

int segment_remove(struct vfs *v, uint64_t id)
{
    char name[SEGMENT_NAME_MAX];
    segment_name(id, name);
    return vfs_remove(v, name);
}

static int segment_list_one(void *ctx, const char *name)
{
    uint64_t id;
    if (segment_name_parse(name, &id))
        buf_put(ctx, str_of((const char *)&id, sizeof id));
    return 0;
}

static int segment_compare_ids(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

int segment_list(struct vfs *v, uint64_t **ids, size_t *n)
{
    struct buf found = {0};
    int err = vfs_list(v, SEGMENT_DIR, segment_list_one, &found);
    if (err != 0 && err != ERR_NOT_FOUND) {
        buf_deinit(&found);
        return err;
    }
    *ids = (uint64_t *)(void *)found.p;
    *n = found.n / sizeof **ids;
    if (*n > 0)
        qsort(*ids, *n, sizeof **ids, segment_compare_ids);
    return 0;
}
