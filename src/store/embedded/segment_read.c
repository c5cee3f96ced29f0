// SPDX-License-Identifier: Apache-2.0
/* segment_read.c -- reading segments: one block, or all that is in one. segment.c draws the format.
 *
 * Everything is read with the vfs and never mapped: an I/O error is then an error and not a signal.
 * A length is held against its limit and against the size of the file before memory is taken for
 * it, and nothing that has failed its sum is given to anybody. */
#include "store/embedded/segment.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "store/catalog/extent.h"
#include "store/embedded/segment_format.h"
#include "store/embedded/vfs.h"

#include <stdlib.h>
#include <xxhash.h>

/* The first read of an item takes up to this, so that small ones need no second. */
#define WINDOW_BYTES 4096

/* Bytes of one item, from its beginning on. */
struct source {
    struct file *file;
    uint64_t at;  /* next byte to be taken */
    uint64_t end; /* of the item, as far as known; never read beyond */
    size_t from, n;
    char window[WINDOW_BYTES];
};

static int source_open(struct source *s, struct file *file, uint64_t offset, uint64_t end)
{
    s->file = file;
    s->at = offset;
    s->end = end;
    s->from = 0;
    s->n = end - offset < WINDOW_BYTES ? (size_t)(end - offset) : WINDOW_BYTES;
    return vfs_read_all(file, offset, s->window, s->n);
}

static int source_take(struct source *s, void *into, size_t n)
{
    size_t here = s->n - s->from < n ? s->n - s->from : n;
    if (n > s->end - s->at)
        return ERR_CORRUPT;
    memcpy(into, s->window + s->from, here);
    s->from += here;
    int err = here == n ? 0 : vfs_read_all(s->file, s->at + here, (char *)into + here, n - here);
    s->at += n;
    return err;
}

/* Opens the source where a head must stand, and takes it. */
static int open_item(struct source *s, struct file *file, uint64_t offset, uint64_t end,
                     struct segment_item *item)
{
    int err = source_open(s, file, offset, end);
    item->offset = offset;
    if (err == 0)
        err = segment_item_read(s->window, s->n, item);
    if (err != 0)
        return err;
    s->from = segment_item_head(item);
    s->at += s->from;
    return 0;
}

/* ---- sums ---- */

static uint64_t sum_of(uint64_t id, const struct str *parts, size_t n)
{
    XXH3_state_t *state = XXH3_createState();
    must(state != NULL); /* out of memory */
    XXH3_64bits_reset_withSeed(state, id);
    for (size_t i = 0; i < n; i++)
        XXH3_64bits_update(state, parts[i].p, parts[i].n);
    uint64_t sum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return sum;
}

/* ---- blocks ---- */

/* From the disk's numbers to ours. They have passed their sum; but one who wrote other bytes with
 * a right sum must not make us read beyond the extent. */
static bool settle_marks(uint32_t *marks, uint32_t count, uint32_t n)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < count; i++) {
        marks[i] = le_get_u32((const char *)&marks[i]);
        if (MARK_END(marks[i]) < last)
            return false;
        last = MARK_END(marks[i]);
    }
    return marks[count - 1] == (n | MARK_APPEND_END);
}

/* Fills the extent with what stands behind the head and checks it. The sum is read with the events,
 * into the room behind them. */
static int segment_read_fill(struct source *s, uint64_t id, const struct segment_item *item,
                             struct extent *c)
{
    size_t marks_bytes = (size_t)item->marks * SEGMENT_MARK;
    int err = source_take(s, c->marks, marks_bytes);
    if (err == 0)
        err = source_take(s, c->bytes->bytes, (size_t)item->n + SEGMENT_SUM);
    if (err != 0)
        return err;
    const struct str parts[] = {
        {s->window, SEGMENT_BLOCK_HEAD},
        {(const char *)c->marks, marks_bytes},
        {c->bytes->bytes, item->n},
    };
    if (sum_of(id, parts, 3) != le_get_u64(c->bytes->bytes + item->n) ||
        !settle_marks(c->marks, item->marks, item->n))
        return ERR_CORRUPT;
    return 0;
}

static struct extent *extent_for(const struct segment_item *item)
{
    struct extent *c = extent_new(item->first, item->ordinal, item->n + SEGMENT_SUM);
    c->marks = mem_alloc(item->marks * sizeof *c->marks);
    c->n_marks = c->cap_marks = item->marks;
    c->oldest_ms = item->oldest_ms;
    c->newest_ms = item->newest_ms;
    c->bytes->n = c->bytes->cap = item->n;
    return c;
}

/* The block whose head was taken. */
static int take_block(struct source *s, uint64_t id, const struct segment_item *item,
                      struct extent **out)
{
    if (item->marks == 0 || segment_item_bytes(item) > s->end - item->offset)
        return ERR_CORRUPT;
    struct extent *c = extent_for(item);
    int err = segment_read_fill(s, id, item, c);
    if (err == 0)
        *out = c;
    else
        extent_unref(c);
    return err;
}

/* Whether the file reaches that far; nothing is allocated for what it cannot hold. */
static int check_end(struct file *f, uint64_t offset, uint64_t bytes)
{
    uint64_t size = 0;
    int err = vfs_size(f, &size);
    if (err != 0)
        return err;
    return offset <= size && bytes <= size - offset ? 0 : ERR_CORRUPT;
}

static int segment_read_at(struct file *f, uint64_t life, uint64_t first, struct place place,
                           struct extent **out)
{
    struct source s;
    struct segment_item item;
    struct extent *c;
    int err = check_end(f, place.offset, place.bytes);
    if (err == 0)
        err = open_item(&s, f, place.offset, place.offset + place.bytes, &item);
    if (err == 0)
        err = take_block(&s, place.segment, &item, &c);
    if (err != 0)
        return err;
    if (item.life != life || item.first != first || segment_item_bytes(&item) != place.bytes) {
        extent_unref(c);
        return ERR_CORRUPT;
    }
    *out = c;
    return 0;
}

static int open_segment(struct vfs *v, uint64_t id, struct file **out)
{
    char name[SEGMENT_NAME_MAX];
    segment_name(id, name);
    return vfs_open(v, name, VFS_READ, out);
}

int segment_read(struct vfs *v, uint64_t life, uint64_t first, struct place place,
                 struct extent **out)
{
    struct file *f;
    int err = open_segment(v, place.segment, &f);
    if (err != 0)
        return err;
    err = segment_read_at(f, life, first, place, out);
    vfs_close(f);
    return err;
}

/* ---- all of a segment ---- */

struct walk {
    struct segment_scan *scan;
    struct file *file;
    uint64_t id, size;
    struct buf footer;
    uint64_t footer_at;
    struct buf note; /* and its sum */
};

static void tell_damage(struct walk *w, uint64_t offset, const char *what)
{
    if (w->scan->damaged != NULL)
        w->scan->damaged(w->scan->ctx, w->id, offset, what);
}

static int tell_block(struct walk *w, const struct segment_item *item)
{
    struct block_info b = {
        .life = item->life,
        .first = item->first,
        .end = item->first + item->n,
        .ordinal = item->ordinal,
        .events = item->marks,
        .oldest_ms = item->oldest_ms,
        .newest_ms = item->newest_ms,
        .place = {w->id, item->offset, (uint32_t)segment_item_bytes(item)},
    };
    return w->scan->block == NULL ? 0 : w->scan->block(w->scan->ctx, &b);
}

static int tell_note(struct walk *w, const struct segment_item *item)
{
    struct str note = {w->note.p, item->n};
    return w->scan->note == NULL ? 0 : w->scan->note(w->scan->ctx, note);
}

/* Into w->note. */
static int take_note(struct walk *w, struct source *s, const struct segment_item *item)
{
    size_t n = (size_t)item->n + SEGMENT_SUM;
    if (n > s->end - s->at)
        return ERR_CORRUPT;
    w->note.n = 0;
    int err = source_take(s, buf_reserve(&w->note, n), n);
    if (err != 0)
        return err;
    const struct str parts[] = {{s->window, SEGMENT_NOTE_HEAD}, {w->note.p, item->n}};
    return sum_of(w->id, parts, 2) == le_get_u64(w->note.p + item->n) ? 0 : ERR_CORRUPT;
}

/* Reads and checks the item that begins there and ends not behind `end`. The note is kept, the
 * events of a block are let go of. */
static int read_item(struct walk *w, uint64_t offset, uint64_t end, struct segment_item *item)
{
    struct source s;
    struct extent *c = NULL;
    int err = open_item(&s, w->file, offset, end, item);
    if (err == 0)
        err = item->marks == 0 ? take_note(w, &s, item) : take_block(&s, w->id, item, &c);
    extent_unref(c);
    return err;
}

static int tell_item(struct walk *w, const struct segment_item *item)
{
    return item->marks == 0 ? tell_note(w, item) : tell_block(w, item);
}

/* ---- by the footer ---- */

static int segment_read_head(struct walk *w, uint64_t *salt)
{
    char head[SEGMENT_FILE_HEAD];
    int err = vfs_read_all(w->file, 0, head, sizeof head);
    return err != 0 ? err : segment_head_read(head, w->id, salt);
}

/* Whether the footer is well formed and its items fill the file from the head on. */
static int check_footer(struct walk *w)
{
    struct unpack u = {.rest = buf_str(&w->footer)};
    uint64_t offset = SEGMENT_FILE_HEAD;
    struct segment_item item;
    int more;
    while ((more = segment_footer_next(&u, &offset, &item)) > 0)
        ;
    return more == 0 && offset != w->footer_at ? ERR_CORRUPT : more;
}

static int load_footer(struct walk *w)
{
    char at[SEGMENT_TRAILER];
    struct segment_trailer trailer;
    uint64_t salt;
    int err = segment_read_head(w, &salt);
    if (err != 0)
        return err;
    if (w->size < SEGMENT_FILE_HEAD + SEGMENT_TRAILER)
        return ERR_CORRUPT;
    uint64_t end = w->size - SEGMENT_TRAILER;
    err = vfs_read_all(w->file, end, at, sizeof at);
    if (err == 0)
        err = segment_trailer_read(at, salt, &trailer);
    if (err != 0)
        return err;
    if (trailer.footer < SEGMENT_FILE_HEAD || trailer.footer > end)
        return ERR_CORRUPT;
    size_t n = (size_t)(end - trailer.footer);
    err = vfs_read_all(w->file, trailer.footer, buf_reserve(&w->footer, n), n);
    if (err != 0)
        return err;
    w->footer.n = n;
    w->footer_at = trailer.footer;
    return segment_footer_verify(buf_str(&w->footer), salt, &trailer) ? check_footer(w)
                                                                      : ERR_CORRUPT;
}

/* 0: it is what the footer says. Reports what is not. */
static int check_item(struct walk *w, const struct segment_item *listed)
{
    struct segment_item found;
    uint64_t end = listed->offset + segment_item_bytes(listed);
    int err = read_item(w, listed->offset, end, &found);
    if (err == 0 && !segment_item_equal(listed, &found))
        err = ERR_CORRUPT;
    if (err == ERR_CORRUPT)
        tell_damage(w, listed->offset,
                    listed->marks == 0 ? "a note failed its checksum"
                                       : "a block failed its checksum");
    else if (err != 0)
        tell_damage(w, listed->offset, "cannot be read");
    return err;
}

static int visit(struct walk *w, const struct segment_item *item)
{
    bool is_read = w->scan->verify || (item->marks == 0 && w->scan->note != NULL);
    return is_read && check_item(w, item) != 0 ? 0 : tell_item(w, item);
}

static int walk_footer(struct walk *w, bool notes)
{
    struct unpack u = {.rest = buf_str(&w->footer)};
    uint64_t offset = SEGMENT_FILE_HEAD;
    struct segment_item item;
    int err = 0;
    while (err == 0 && segment_footer_next(&u, &offset, &item) > 0)
        if ((item.marks == 0) == notes)
            err = visit(w, &item);
    return err;
}

/* ---- without it ---- */

/* The lengths in a head are trusted only as far as the sum behind it holds, so the walk ends where
 * the first does not. */
static int salvage(struct walk *w)
{
    for (uint64_t offset = SEGMENT_FILE_HEAD; offset < w->size;) {
        struct segment_item item;
        int err = read_item(w, offset, w->size, &item);
        if (err == ERR_CORRUPT) {
            tell_damage(w, offset, "nothing that verifies from here on");
            return 0;
        }
        if (err == 0)
            err = tell_item(w, &item);
        if (err != 0)
            return err;
        offset += segment_item_bytes(&item);
    }
    return 0;
}

static int walk(struct walk *w)
{
    int err = vfs_size(w->file, &w->size);
    if (err == 0)
        err = load_footer(w);
    if (err == ERR_VERSION)
        tell_damage(w, 0, "written by a later version");
    if (err == ERR_CORRUPT) {
        tell_damage(w, w->size, "no valid footer");
        w->scan->salvaged = w->scan->salvage;
        return w->scan->salvage ? salvage(w) : err;
    }
    if (err == 0)
        err = walk_footer(w, false);
    return err == 0 ? walk_footer(w, true) : err;
}

int segment_scan(struct vfs *v, uint64_t id, struct segment_scan *scan)
{
    struct file *f;
    scan->salvaged = false;
    int err = open_segment(v, id, &f);
    if (err != 0)
        return err;
    struct walk *w = mem_zalloc(sizeof *w);
    w->scan = scan;
    w->file = f;
    w->id = id;
    err = walk(w);
    buf_deinit(&w->footer);
    buf_deinit(&w->note);
    free(w);
    vfs_close(f);
    return err;
}
