// SPDX-License-Identifier: Apache-2.0
#include "store/embedded/rebuild.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/catalog/extent.h"
#include "store/embedded/note.h"
#include "store/embedded/segment.h"
#include "store/embedded/segment_format.h"
#include "store/embedded/vfs.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ENOUGH    1 /* stops a scan: no error */
#define PATH_SIZE 4096

struct builder {
    struct vfs *vfs;
    struct index *index;
    struct rebuild *r;
    struct index_meta meta; /* of what has been applied */
    uint64_t *ids;          /* of the segments that the index does not know, in order */
    size_t n_ids;
    uint64_t base; /* the one to begin with; 0: what the index has */
};

/* ---- damage ---- */

/* Counts something that is lost. The result is for those who need it: 0 if they do without. */
static int __attribute__((format(printf, 2, 3)))
rebuild_lose(struct rebuild *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (r->damaged++ == 0)
        vsnprintf(r->damage, sizeof r->damage, fmt, ap);
    va_end(ap);
    return r->salvage ? 0 : ERR_CORRUPT;
}

/* ---- looking at a segment ---- */

struct segment_survey {
    bool base;  /* it begins with BASE */
    bool whole; /* and ends with META */
    uint64_t notes;
};

static int rebuild_look_at_note(void *ctx, struct str bytes)
{
    struct segment_survey *l = ctx;
    struct note n;
    if (note_unpack(bytes, &n) != 0)
        return 0;
    if (l->notes++ == 0)
        l->base = n.type == NOTE_BASE;
    l->whole = n.type == NOTE_META;
    return 0;
}

static int rebuild_look_at_first(void *ctx, struct str bytes)
{
    rebuild_look_at_note(ctx, bytes);
    return ENOUGH;
}

/* With a footer it is whole; without, it depends on how far one gets. */
static int rebuild_look_at(struct vfs *v, uint64_t id, struct segment_survey *l)
{
    struct segment_scan first = {.ctx = l, .note = rebuild_look_at_first};
    struct segment_scan all = {.salvage = true, .ctx = l, .note = rebuild_look_at_note};
    *l = (struct segment_survey){0};
    int err = segment_scan(v, id, &first);
    if (err == ERR_CORRUPT)
        return segment_scan(v, id, &all);
    l->whole = true;
    return err == ENOUGH ? 0 : err;
}

/* ---- applying one ---- */

struct applying {
    struct builder *builder;
    struct index_write *write;
    uint64_t id, note_bytes;
    bool base;
};

static int apply_meta(struct applying *a, struct note *n)
{
    struct index_meta *m = &a->builder->meta;
    n->meta.base = a->base ? a->id : m->base;
    n->meta.base_bytes = a->base ? a->note_bytes : m->base_bytes;
    n->meta.note_bytes = a->base ? 0 : m->note_bytes + a->note_bytes;
    *m = n->meta;
    return note_apply(a->write, n);
}

static int rebuild_apply_note(void *ctx, struct str bytes)
{
    struct applying *a = ctx;
    struct note n;
    if (note_unpack(bytes, &n) != 0)
        return rebuild_lose(a->builder->r, "segment %" PRIu64 " has a note that makes no sense",
                            a->id);
    if (n.type == NOTE_META)
        return apply_meta(a, &n);
    a->note_bytes += NOTE_SPACE(bytes.n);
    if (n.type == NOTE_BASE && !a->base)
        return 0; /* it is damaged: what it does not tell of was there before it */
    return note_apply(a->write, &n);
}

static void rebuild_tell_damage(void *ctx, uint64_t segment, uint64_t offset, const char *what)
{
    struct applying *a = ctx;
    rebuild_lose(a->builder->r, "segment %" PRIu64 ", byte %" PRIu64 ": %s", segment, offset, what);
}

static int apply_notes(struct applying *a)
{
    struct builder *b = a->builder;
    uint64_t bytes = 0, damaged = b->r->damaged;
    struct segment_scan scan = {
        .salvage = true, .ctx = a, .note = rebuild_apply_note, .damaged = rebuild_tell_damage};
    int err = segment_scan(b->vfs, a->id, &scan);
    if (err == 0 && b->r->damaged > damaged && !b->r->salvage)
        err = ERR_CORRUPT;
    if (err == 0)
        err = segment_size(b->vfs, a->id, &bytes);
    return err == 0 ? index_add_segment(a->write, a->id, bytes) : err;
}

/* One checkpoint, one transaction. */
static int rebuild_apply(struct builder *b, uint64_t id)
{
    struct applying a = {.builder = b, .id = id, .base = id == b->base};
    int err = index_begin(b->index, &a.write);
    if (err != 0)
        return err;
    err = apply_notes(&a);
    if (err != 0) {
        index_abort(a.write);
        return err;
    }
    b->meta.next_segment = id + 1; /* META says so too, if it is there */
    index_put_meta(a.write, &b->meta);
    b->r->checkpoints++;
    return index_commit(a.write);
}

/* ---- all of them ---- */

/* The newest base, or the first segment that the index does not know. */
static int find_start(struct builder *b, size_t *start)
{
    struct segment_survey l;
    for (*start = b->n_ids; *start > 0;) {
        uint64_t id = b->ids[--*start];
        int err = rebuild_look_at(b->vfs, id, &l);
        if (err == 0 && l.base && l.whole)
            b->base = id;
        if (err != 0 || b->base > 0)
            return err;
    }
    if (b->meta.base > 0)
        return 0; /* and the index has all that comes before these */
    return rebuild_lose(b->r, "no segment tells of all there was before segment %" PRIu64,
                        b->ids[0]);
}

static int apply_all(struct builder *b, size_t start)
{
    int err = 0;
    for (size_t i = start; i < b->n_ids && err == 0; i++) {
        uint64_t id = b->ids[i], due = id == b->base ? id : b->meta.next_segment;
        if (id != due)
            err = rebuild_lose(b->r, "segment %" PRIu64 " is missing", due);
        if (err == 0)
            err = rebuild_apply(b, id);
    }
    return err;
}

static int list_unknown(struct builder *b)
{
    size_t n, known = 0;
    int err = segment_list(b->vfs, &b->ids, &n);
    if (err != 0)
        return err;
    while (known < n && b->ids[known] < b->meta.next_segment)
        known++;
    b->n_ids = n - known;
    if (known > 0)
        memmove(b->ids, b->ids + known, b->n_ids * sizeof *b->ids);
    return 0;
}

/* ---- the rows of segments ---- */

static int rebuild_keep_row(void *ctx, const struct index_segment *s)
{
    buf_put(ctx, str_of((const char *)s, sizeof *s));
    return 0;
}

/* An array, which is the caller's. */
static int load_rows(struct index *i, struct index_segment **out, size_t *n)
{
    struct buf rows = {0};
    struct index_load load = {.ctx = &rows, .segment = rebuild_keep_row};
    struct index_meta meta;
    int err = index_load(i, &load, &meta);
    *out = (struct index_segment *)(void *)rows.p;
    *n = rows.n / sizeof **out;
    return err;
}

static int rebuild_no_file(void *ctx, uint64_t id)
{
    return 0; /* is removed here; what nobody knows goes when the store is opened */
}

/* After a base the index does not know how large those before it are. */
static int write_sizes(struct builder *b, struct index_write *w, const struct index_segment *rows,
                       size_t n)
{
    int err = 0;
    for (size_t i = 0; i < n && err == 0; i++) {
        uint64_t bytes = 0;
        if (rows[i].bytes > 0)
            continue;
        err = segment_size(b->vfs, rows[i].id, &bytes);
        err = err == ERR_NOT_FOUND ? 0 : err == 0 ? index_add_segment(w, rows[i].id, bytes) : err;
    }
    return err == 0 ? index_dead_segments(w, b->meta.base, rebuild_no_file, NULL) : err;
}

static int settle_segments(struct builder *b)
{
    struct index_segment *rows;
    struct index_write *w = NULL;
    size_t n;
    int err = load_rows(b->index, &rows, &n);
    if (err == 0)
        err = index_begin(b->index, &w);
    if (err == 0)
        err = write_sizes(b, w, rows, n);
    free(rows);
    if (err == 0)
        return index_commit(w);
    index_abort(w);
    return err;
}

static int catch_up(struct builder *b)
{
    struct index_load nothing = {0};
    size_t start = 0;
    int err = index_load(b->index, &nothing, &b->meta);
    if (err == 0)
        err = list_unknown(b);
    if (err == 0 && b->n_ids > 0)
        err = vfs_sync_dir(b->vfs, SEGMENT_DIR); /* the last name may be in memory only */
    if (err == 0 && b->n_ids > 0)
        err = find_start(b, &start);
    if (err == 0)
        err = apply_all(b, start);
    if (err == 0 && b->r->checkpoints > 0)
        err = settle_segments(b);
    free(b->ids);
    return err;
}

int index_catch_up(struct vfs *v, struct index *i, struct rebuild *r)
{
    struct builder b = {.vfs = v, .index = i, .r = r};
    *r = (struct rebuild){0};
    return catch_up(&b);
}

/* ---- from nothing ---- */

struct checking {
    struct builder *builder;
    struct place last;
    bool sound;
};

/* Rows that tell of the same block follow one another. */
static int rebuild_check_block(void *ctx, uint64_t life, const struct block_info *b)
{
    struct checking *c = ctx;
    struct extent *extent = NULL;
    if (b->place.segment != c->last.segment || b->place.offset != c->last.offset)
        c->sound = segment_read(c->builder->vfs, b->life, b->first, b->place, &extent) == 0;
    c->last = b->place;
    extent_unref(extent);
    if (!c->sound)
        rebuild_lose(c->builder->r, "segment %" PRIu64 ", byte %" PRIu64 ": a block cannot be read",
                     b->place.segment, b->place.offset);
    return 0;
}

static int check_segment(struct builder *b, const struct index_segment *s)
{
    struct segment_scan footer = {0};
    struct checking c = {.builder = b};
    int err = segment_scan(b->vfs, s->id, &footer);
    if (err == 0)
        return 0;
    if (err == ERR_NOT_FOUND)
        rebuild_lose(b->r, "segment %" PRIu64 " is missing", s->id);
    return index_segment_blocks(b->index, s->id, rebuild_check_block, &c);
}

/* What cannot be read is counted; its rows stay, for nothing else tells what was there. */
static int check_segments(struct builder *b)
{
    struct index_segment *rows;
    size_t n;
    int err = load_rows(b->index, &rows, &n);
    for (size_t i = 0; i < n && err == 0; i++)
        err = check_segment(b, &rows[i]);
    free(rows);
    return err;
}

static int rebuild_count_stream(void *ctx, uint64_t life, struct str row)
{
    ((struct rebuild *)ctx)->streams++;
    return 0;
}

static int rebuild_count_block(void *ctx, uint64_t life, const struct block_info *b)
{
    ((struct rebuild *)ctx)->blocks++;
    return 0;
}

static int rebuild_count_producer(void *ctx, uint64_t life, const struct producer_claim *p)
{
    ((struct rebuild *)ctx)->producers++;
    return 0;
}

static int rebuild_count_doc(void *ctx, struct str key, uint64_t version, struct str value)
{
    ((struct rebuild *)ctx)->docs++;
    return 0;
}

static int count_all(struct builder *b)
{
    struct index_load all = {.ctx = b->r,
                             .stream = rebuild_count_stream,
                             .block = rebuild_count_block,
                             .producer = rebuild_count_producer,
                             .doc = rebuild_count_doc};
    struct index_meta meta;
    return index_load(b->index, &all, &meta);
}

/* A store in which nothing has come to rest: the journal's first batch is the first of all. */
static int begin_at_one(struct builder *b)
{
    struct index_write *w;
    int err = index_begin(b->index, &w);
    if (err != 0)
        return err;
    b->meta.batch = 1;
    index_put_meta(w, &b->meta);
    return index_commit(w);
}

static int build(struct builder *b)
{
    int err = catch_up(b);
    if (err == 0 && b->meta.batch == 0)
        err = begin_at_one(b);
    if (err == 0)
        err = check_segments(b);
    return err == 0 ? count_all(b) : err;
}

static int build_at(struct vfs *v, const char *path, bool sync, struct rebuild *r, char *why,
                    size_t size)
{
    struct builder b = {.vfs = v, .r = r, .index = index_open(path, sync, why, size)};
    if (b.index == NULL)
        return ERR_IO;
    int err = build(&b);
    index_close(b.index);
    if (err != 0)
        snprintf(why, size, "the index cannot be made again from the segments: %s",
                 r->damage[0] != '\0' ? r->damage : err_text(err));
    return err;
}

int index_rebuild(struct vfs *v, const char *path, bool sync, struct rebuild *r, char *why,
                  size_t size)
{
    char made[PATH_SIZE], lock[PATH_SIZE];
    *r = (struct rebuild){.salvage = r->salvage};
    if (snprintf(made, sizeof made, "%s.new", path) >= PATH_SIZE ||
        snprintf(lock, sizeof lock, "%s-lock", made) >= PATH_SIZE) {
        snprintf(why, size, "the path of the index is too long");
        return ERR_IO;
    }
    unlink(made); /* what a crash has left */
    int err = build_at(v, made, sync, r, why, size);
    unlink(lock);
    if (err == 0 && index_rename(made, path, sync) != 0) {
        snprintf(why, size, "the index that was made again cannot get its name, %s", path);
        err = ERR_IO;
    }
    if (err != 0)
        unlink(made);
    return err;
}
