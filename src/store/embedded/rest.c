// SPDX-License-Identifier: Apache-2.0
#include "store/embedded/rest.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/catalog/extent.h"
#include "store/embedded/merge.h"
#include "store/embedded/note.h"
#include "store/embedded/pace.h"
#include "store/embedded/reserve.h"
#include "store/embedded/rewrite.h"
#include "store/embedded/segment.h"
#include "store/embedded/segment_format.h"
#include "store/embedded/vfs.h"

#include <stdlib.h>

#define MERGE_BYTES_A_STREAM 512
#define BASE_BYTES_A_FILE    65536 /* a large base is not written for the sake of a few files */

/* ---- what the segments look like ---- */

struct survey {
    const struct index_meta *meta;
    uint64_t kept;       /* segments that are there for their notes alone */
    uint64_t kept_bytes; /* that the notes keep, in those and in sparse ones, beyond their own */
    uint64_t largest;    /* bytes of a file */
    struct buf sparse;   /* ids of those that may be rewritten */
};

static int rest_survey_segment(void *ctx, const struct index_segment *s)
{
    struct survey *v = ctx;
    if (s->bytes > v->largest)
        v->largest = s->bytes;
    if (s->live_rows > 0 && !rewrite_is_due(s))
        return 0;
    if (s->id >= v->meta->base) {
        v->kept += s->id > v->meta->base && s->live_rows == 0;
        v->kept_bytes += s->bytes - s->live_bytes;
    } else if (s->live_rows > 0) {
        buf_put(&v->sparse, str_of((const char *)&s->id, sizeof s->id));
    }
    return 0;
}

static int survey(const struct rest *r, struct survey *v)
{
    struct index_load load = {.ctx = v, .segment = rest_survey_segment};
    struct index_meta meta;
    uint64_t notes = r->meta.base_bytes + r->meta.note_bytes;
    *v = (struct survey){.meta = &r->meta};
    int err = index_load(r->index, &load, &meta);
    v->kept_bytes -= v->kept_bytes < notes ? v->kept_bytes : notes;
    return err;
}

static bool is_base_due(const struct rest *r, const struct survey *v)
{
    uint64_t enough = 2 * r->meta.base_bytes + r->limits.base_bytes;
    uint64_t files = r->limits.base_files + r->meta.base_bytes / BASE_BYTES_A_FILE;
    return r->meta.base == 0 || r->meta.note_bytes > enough || v->kept_bytes > enough ||
           v->kept > files;
}

/* A row of a block that is now in this checkpoint's segment. */
struct moved {
    uint64_t life;
    struct block_info block;
};

/* What one checkpoint is made with. */
struct making {
    struct rest *rest;
    struct index_write *index;
    struct segment_writer *segment;
    struct buf note;         /* that is being written */
    uint64_t note_bytes;     /* of those so far */
    struct survey found;     /* before it */
    struct buf moved;        /* of struct moved */
    struct buf merged;       /* the same, in place of several */
    uint64_t rows, began_ns; /* so far; the last ones */
    bool base;               /* the notes are to tell of everything, at the end */
    bool modest;             /* no more is done than has to be */
};

/* ---- notes ---- */

#define ROWS_AT_ONCE 64

/* Rows take no disk yet, but the processor. */
static void pace_row(struct making *m)
{
    if (m->rows++ % ROWS_AT_ONCE > 0)
        return;
    if (m->rows > 1)
        pace_rest(m->rest->pace, m->began_ns);
    m->began_ns = pace_begin(m->rest->pace);
}

static int write_note(struct making *m, const struct note *n)
{
    m->note.n = 0;
    pace_row(m);
    note_pack(&m->note, n);
    if (n->type != NOTE_META)
        m->note_bytes += NOTE_SPACE(m->note.n);
    return segment_add_note(m->segment, buf_str(&m->note));
}

/* Every change goes through here: into the index, and into the notes. */
static int change(struct making *m, const struct note *n)
{
    if (m->base)
        pace_row(m); /* here, and not where they are written */
    int err = note_apply(m->index, n);
    return err != 0 || m->base ? err : write_note(m, n);
}

/* ---- a base ---- */

static int rest_tell_stream(void *ctx, uint64_t life, struct str row)
{
    return write_note(ctx, &(struct note){.type = NOTE_STREAM, .life = life, .row = row});
}

static int rest_tell_block(void *ctx, uint64_t life, const struct block_info *b)
{
    return write_note(ctx, &(struct note){.type = NOTE_BLOCK, .life = life, .block = *b});
}

static int rest_tell_producer(void *ctx, uint64_t life, const struct producer_claim *p)
{
    return write_note(ctx, &(struct note){.type = NOTE_PRODUCER, .life = life, .producer = *p});
}

static int rest_tell_doc(void *ctx, struct str key, uint64_t version, struct str value)
{
    return write_note(
        ctx, &(struct note){.type = NOTE_DOC, .key = key, .version = version, .value = value});
}

/* All that is in the index, with what this checkpoint has changed. */
static int tell_everything(struct making *m)
{
    struct index_load all = {.ctx = m,
                             .stream = rest_tell_stream,
                             .block = rest_tell_block,
                             .producer = rest_tell_producer,
                             .doc = rest_tell_doc};
    int err = write_note(m, &(struct note){.type = NOTE_BASE});
    return err == 0 ? index_load_written(m->index, &all) : err;
}

/* ---- rewriting ---- */

static void rest_keep_moved(void *ctx, uint64_t life, const struct block_info *b)
{
    struct making *m = ctx;
    struct moved row = {life, *b};
    buf_put(&m->moved, str_of((const char *)&row, sizeof row));
}

static int rewrite_sparse(struct making *m)
{
    struct rest *r = m->rest;
    const uint64_t *ids = (const uint64_t *)(const void *)m->found.sparse.p;
    struct shelf shelf; /* the blocks of one stand one behind the other */
    struct rewrite w = {.vfs = &shelf.vfs,
                        .index = r->index,
                        .to = m->segment,
                        .budget = r->limits.rewrite_bytes,
                        .moved = rest_keep_moved,
                        .ctx = m};
    int err = 0;
    shelf_init(&shelf, r->vfs);
    for (size_t i = 0; i < m->found.sparse.n / sizeof *ids && w.budget > 0 && err == 0; i++)
        err = rewrite_segment(&w, ids[i]);
    shelf_deinit(&shelf);
    r->rewritten = w.blocks;
    return err;
}

/* ---- merging ---- */

static void rest_keep_merged(void *ctx, uint64_t life, const struct block_info *b)
{
    struct making *m = ctx;
    struct moved row = {life, *b};
    buf_put(&m->merged, str_of((const char *)&row, sizeof row));
}

/* It has a small block now, and will have others. */
static bool is_small(const struct rest_stream *s)
{
    return s->n_pieces > 0 && s->upto == UINT64_MAX &&
           s->pieces[s->n_pieces - 1].extent->bytes->n < MERGE_BYTES / 2;
}

/* Any of the streams comes first: whose turn never came would never be merged. Then they go by
 * life, as their blocks stand in the segments. When somebody waits, that is the end of it. */
static int merge_streams(struct making *m, struct merge *g)
{
    struct rest *r = m->rest;
    uint64_t from = r->meta.next_segment * 0x9e3779b97f4a7c15;
    int err = 0;
    for (size_t i = 0; i < r->n_streams && g->budget > 0 && err == 0; i++) {
        const struct rest_stream *s = &r->streams[(from % r->n_streams + i) % r->n_streams];
        if (r->pace != NULL && atomic_load(&r->pace->hurry))
            break;
        if (is_small(s))
            err = merge_stream(g, s->life, s->first, s->span_ms);
    }
    r->merged = g->blocks;
    return err;
}

/* As much again as the streams' own rows and small blocks cost: with less, the more streams there
 * are, the more small blocks would be left of each. */
static uint64_t merge_budget(const struct making *m)
{
    uint64_t bytes = m->rest->limits.merge_bytes;
    return m->modest || bytes == 0 ? 0 : bytes + MERGE_BYTES_A_STREAM * m->rest->n_streams;
}

static int merge_small(struct making *m)
{
    struct merge g = {.index = m->rest->index,
                      .to = m->segment,
                      .budget = merge_budget(m),
                      .fan = m->rest->limits.merge_fan,
                      .merged = rest_keep_merged,
                      .ctx = m};
    merge_init(&g, m->rest->vfs);
    int err = merge_streams(m, &g);
    merge_deinit(&g);
    return err;
}

/* Before anything else is changed: what is trimmed or removed by this checkpoint must not come back
 * by a row that was read before. One that was merged may have been moved too, and was not then. */
static int change_places(struct making *m)
{
    const struct buf *all[] = {&m->moved, &m->merged};
    int err = 0;
    for (size_t k = 0; k < 2; k++) {
        const struct moved *rows = (const struct moved *)(const void *)all[k]->p;
        enum note_type type = k == 0 ? NOTE_BLOCK : NOTE_MERGE;
        for (size_t i = 0; i < all[k]->n / sizeof *rows && err == 0; i++)
            err = change(
                m, &(struct note){.type = type, .life = rows[i].life, .block = rows[i].block});
    }
    return err;
}

/* ---- events ---- */

static int write_pieces(struct making *m, struct rest_stream *s)
{
    int err = 0;
    for (size_t i = 0; i < s->n_pieces && err == 0; i++)
        err = segment_add(m->segment, s->life, s->pieces[i].extent, &s->pieces[i].info);
    return err;
}

static int write_events(struct making *m)
{
    const struct rest *r = m->rest;
    int err = 0;
    for (size_t i = 0; i < r->n_streams && err == 0; i++)
        err = write_pieces(m, &r->streams[i]);
    return err;
}

/* ---- changes ---- */

static int change_pieces(struct making *m, const struct rest_stream *s)
{
    int err = 0;
    for (size_t i = 0; i < s->n_pieces && err == 0; i++) {
        struct note n = {.type = NOTE_BLOCK, .life = s->life, .block = s->pieces[i].info};
        n.block.end = s->pieces[i].end;
        err = change(m, &n);
    }
    return err;
}

static int change_stream(struct making *m, const struct rest_stream *s)
{
    int err = change(m, &(struct note){.type = NOTE_STREAM, .life = s->life, .row = s->row});
    if (err == 0)
        err = change_pieces(m, s);
    if (err == 0 && s->upto < UINT64_MAX)
        err = change(m, &(struct note){.type = NOTE_CUT, .life = s->life, .pos = s->upto});
    if (err == 0 && s->first > 0)
        err = change(m, &(struct note){.type = NOTE_TRIM, .life = s->life, .pos = s->first});
    for (size_t i = 0; i < s->n_producers && err == 0; i++)
        err = change(
            m, &(struct note){.type = NOTE_PRODUCER, .life = s->life, .producer = s->producers[i]});
    return err;
}

static int change_streams(struct making *m)
{
    const struct rest *r = m->rest;
    int err = 0;
    for (size_t i = 0; i < r->n_streams && err == 0; i++)
        err = change_stream(m, &r->streams[i]);
    for (size_t i = 0; i < r->n_removed && err == 0; i++)
        err = change(m, &(struct note){.type = NOTE_GONE, .life = r->removed[i]});
    return err;
}

static int change_docs(struct making *m)
{
    const struct rest *r = m->rest;
    int err = 0;
    for (size_t i = 0; i < r->n_docs && err == 0; i++) {
        const struct rest_doc *d = &r->docs[i];
        struct note n = {.type = d->value.p == NULL ? NOTE_DOC_GONE : NOTE_DOC,
                         .key = d->key,
                         .version = d->version,
                         .value = d->value};
        err = change(m, &n);
    }
    return err;
}

static int change_meta(struct making *m)
{
    struct note n = {.type = NOTE_META, .meta = m->rest->meta};
    uint64_t id = n.meta.next_segment++;
    if (m->base) {
        n.meta.base = id;
        n.meta.base_bytes = m->note_bytes;
        n.meta.note_bytes = 0;
    } else {
        n.meta.note_bytes += m->note_bytes;
    }
    int err = note_apply(m->index, &n);
    if (err == 0)
        err = write_note(m, &n);
    if (err == 0)
        m->rest->meta = n.meta;
    return err;
}

static int change_all(struct making *m)
{
    int err = change_places(m);
    if (err == 0)
        err = change_streams(m);
    if (err == 0)
        err = change_docs(m);
    if (err == 0 && m->base)
        err = tell_everything(m);
    return err == 0 ? change_meta(m) : err;
}

/* ---- the checkpoint ---- */

static int rest_note_dead(void *ctx, uint64_t id)
{
    struct rest *r = ctx;
    r->dead = mem_grow(r->dead, r->n_dead, &r->cap_dead, sizeof *r->dead);
    r->dead[r->n_dead++] = id;
    return 0;
}

/* A file with that name is of an attempt that came to nothing: the index knows of no such segment,
 * and it has not failed, or it would not let itself be written. */
static int create_segment(struct making *m)
{
    const struct rest *r = m->rest;
    int err = segment_create(r->vfs, r->meta.next_segment, &m->segment);
    if (err == ERR_EXISTS && (err = segment_remove(r->vfs, r->meta.next_segment)) == 0)
        err = segment_create(r->vfs, r->meta.next_segment, &m->segment);
    if (err == 0)
        segment_set_pace(m->segment, r->pace);
    return err;
}

static int finish_segment(struct making *m, uint64_t id)
{
    struct rest *r = m->rest;
    int err = segment_finish(m->segment, &r->segment_bytes);
    if (err == 0)
        err = index_add_segment(m->index, id, r->segment_bytes);
    if (err == 0)
        err = index_dead_segments(m->index, r->meta.base, rest_note_dead, r);
    return err;
}

static int make_checkpoint(struct making *m)
{
    struct rest *r = m->rest;
    uint64_t id = r->meta.next_segment;
    int err = index_begin(r->index, &m->index);
    if (err == 0)
        err = create_segment(m);
    if (err == 0)
        err = write_events(m);
    if (err == 0)
        err = merge_small(m);
    if (err == 0)
        err = rewrite_sparse(m);
    if (err == 0)
        err = change_all(m);
    if (err == 0)
        err = finish_segment(m, id);
    if (err != 0)
        return err;
    err = index_commit(m->index);
    m->index = NULL;
    if (err == ERR_FULL)
        segment_remove(r->vfs, id); /* after another error nobody knows whether it is needed */
    return err;
}

/* modest: only what has to be. Says whether it was. */
static int attempt(struct rest *r, bool *modest)
{
    struct making m = {.rest = r, .modest = *modest};
    const struct index_meta before = r->meta;
    r->n_dead = 0;
    int err = survey(r, &m.found);
    m.base = r->meta.base == 0 || (!*modest && is_base_due(r, &m.found));
    if (*modest)
        m.found.sparse.n = 0;
    *modest = (!m.base || r->meta.base == 0) && m.found.sparse.n == 0;
    if (err == 0)
        err = make_checkpoint(&m);
    *modest = *modest && r->merged == 0;
    if (err != 0)
        r->meta = before;
    r->is_base = m.base;
    r->untidy = m.found.sparse.n == 0 || r->rewritten > 0; /* otherwise another is of no use */
    index_abort(m.index);
    segment_close(m.segment);
    buf_deinit(&m.note);
    buf_deinit(&m.found.sparse);
    buf_deinit(&m.moved);
    buf_deinit(&m.merged);
    return err;
}

/* With the reserve a base can be written, and a segment rewritten: until then dead files stay. */
static uint64_t reserve_wanted(const struct rest *r, const struct survey *v)
{
    uint64_t want = r->limits.reserve_bytes, need = v->largest / 3;
    if (need > r->limits.rewrite_bytes)
        need = r->limits.rewrite_bytes;
    if (need < r->meta.base_bytes + r->meta.note_bytes)
        need = r->meta.base_bytes + r->meta.note_bytes;
    while (want > 0 && want < need)
        want *= 2;
    return want;
}

/* What the next one could do. */
static void look_ahead(struct rest *r, bool tight)
{
    struct survey v;
    int err = survey(r, &v);
    bool base = !r->is_base && is_base_due(r, &v), sparse = v.sparse.n > 0 && r->untidy;
    r->untidy = err == 0 && !tight && (base || sparse);
    r->reserve_wanted = reserve_wanted(r, &v);
    buf_deinit(&v.sparse);
}

void rest_run(struct rest *r)
{
    bool modest = false, tight = false;
    r->err = attempt(r, &modest);
    if (r->err == ERR_FULL && reserve_release(r->vfs)) {
        modest = false;
        r->err = attempt(r, &modest);
    }
    if (r->err == ERR_FULL && !modest) {
        modest = tight = true;
        r->err = attempt(r, &modest);
    }
    if (r->err == 0)
        look_ahead(r, tight);
}

void rest_remove_dead(struct rest *r)
{
    for (size_t i = 0; r->err == 0 && i < r->n_dead; i++) {
        uint64_t bytes = 0;
        int err = segment_size(r->vfs, r->dead[i], &bytes);
        if (segment_remove(r->vfs, r->dead[i]) == 0 && err == 0) /* or at the next start */
            r->dead_bytes += bytes;
    }
    if (r->err == 0)
        r->reserve_bytes = reserve_acquire(r->vfs, r->reserve_wanted);
    free(r->dead);
    r->dead = NULL;
    r->n_dead = r->cap_dead = 0;
}
