// SPDX-License-Identifier: Apache-2.0
/* embedded_read.c -- reads: from the tape, from the cache, or by a lane from the segments. */
#include "base/err.h"
#include "base/mem.h"
#include "store/catalog/extent.h"
#include "store/content.h"
#include "store/embedded/embedded_core.h"
#include "store/embedded/shelf.h"

#include <stdlib.h>

#define MOVES_MAX  5    /* of a block while one read looks for it; more are no coincidence */
#define BLOCKS_MAX 1024 /* of one answer */

/* Blocks of one stream from a position on, loaded by the read lane. */
struct load {
    struct job job;
    struct embedded *embedded;
    /* in */
    struct origin lives[READ_SLICES]; /* where to look, up to where, one after the other */
    uint32_t n_lives;
    uint64_t pos, limit;
    size_t max_bytes;
    /* out */
    struct extent *extents[READ_SLICES];
    uint64_t ends[READ_SLICES], written_for[READ_SLICES];
    uint32_t n;
    int err;
    void (*done)(struct load *l);
    struct shelf *shelf; /* the lane's, while it runs */
};

static void open_shelf(struct load *l, struct shelf *s)
{
    shelf_init(s, l->embedded->vfs);
    l->shelf = s;
}

/* The block that holds this position; it ends where it ends for the stream. */
static int find_block(const struct load *l, uint64_t pos, struct block_info *b)
{
    uint32_t i = 0;
    while (i < l->n_lives && pos >= l->lives[i].upto)
        i++;
    if (i == l->n_lives)
        return ERR_NOT_FOUND;
    int err = index_find(l->embedded->index, l->lives[i].life, pos, b);
    if (err == 0 && b->end > l->lives[i].upto)
        b->end = l->lives[i].upto; /* its source goes on there */
    return err;
}

/* It may move to another segment between the look at the index and that into the file. */
static int read_block(struct load *l, uint64_t pos, struct block_info *b, struct extent **out)
{
    int err = ERR_NOT_FOUND;
    for (int tries = 0; tries < MOVES_MAX && err == ERR_NOT_FOUND; tries++) {
        err = find_block(l, pos, b);
        if (err != 0)
            break;
        err = segment_read(&l->shelf->vfs, b->life, b->first, b->place, out);
    }
    return err == ERR_NOT_FOUND ? ERR_CORRUPT : err; /* it must be somewhere */
}

static void keep_extent(struct load *l, struct extent *c, uint64_t end, uint64_t written_for)
{
    l->extents[l->n] = c;
    l->ends[l->n] = end;
    l->written_for[l->n++] = written_for;
}

static int load_block(struct load *l, uint64_t pos)
{
    struct block_info b;
    struct extent *c;
    int err = read_block(l, pos, &b, &c);
    if (err == 0)
        keep_extent(l, c, b.end, b.life);
    return err;
}

/* ---- several ----
 *
 * An answer has room for few slices. Small blocks that follow one another become one extent, so
 * that it has as many bytes of a stream which was written a little at a time. */

struct run {
    struct buf parts; /* of extents */
    size_t n, bytes;
    uint64_t life, end;
};

static void close_run(struct load *l, struct run *r)
{
    struct extent **parts = (struct extent **)(void *)r->parts.p;
    if (r->n == 0)
        return;
    struct extent *c = r->n == 1 ? extent_ref(parts[0]) : extent_join(parts, r->n);
    for (size_t i = 0; i < r->n; i++)
        extent_unref(parts[i]);
    keep_extent(l, c, r->end, r->life);
    r->parts.n = r->n = r->bytes = 0;
}

/* None but the last has a part that the stream does not have. */
static bool goes_on(const struct run *r, const struct extent *c, uint64_t life)
{
    const struct extent *const *parts = (const struct extent *const *)(const void *)r->parts.p;
    return r->n > 0 && r->life == life && extent_end(parts[r->n - 1]) == c->first &&
           r->end == c->first && extent_can_join(parts[r->n - 1], r->bytes, c);
}

static void add_to_run(struct run *r, struct extent *c, const struct block_info *b)
{
    buf_put(&r->parts, str_of((const char *)&c, sizeof(struct extent *)));
    r->n++;
    r->bytes += c->bytes->n;
    r->life = b->life;
    r->end = b->end;
}

/* What comes from this position on, behind what there is; one block in any case. */
static void load_on(struct load *l, uint64_t pos)
{
    struct run run = {0};
    for (uint32_t blocks = l->n;
         blocks == 0 || (pos < l->limit && blocks < BLOCKS_MAX && pos - l->pos < l->max_bytes);
         blocks++) {
        struct block_info b;
        struct extent *c;
        l->err = read_block(l, pos, &b, &c);
        if (l->err != 0)
            break;
        if (!goes_on(&run, c, b.life)) {
            close_run(l, &run);
            if (l->n == READ_SLICES) {
                extent_unref(c);
                break;
            }
        }
        add_to_run(&run, c, &b);
        pos = b.end;
    }
    close_run(l, &run);
    buf_deinit(&run.parts);
    if (l->n > 0)
        l->err = 0; /* the rest is told when it is asked for */
}

static void embedded_read_run_load(struct job *j)
{
    struct load *l = container_of(j, struct load, job);
    struct shelf shelf;
    open_shelf(l, &shelf);
    load_on(l, l->pos);
    shelf_deinit(&shelf);
}

/* Nothing of it has to be kept, as far as its row tells. */
static bool may_go(const struct block_info *b, const struct keep *k)
{
    return b->end < k->tail && (keep_is_over(k, b->newest_ms) || b->end <= k->pos ||
                                b->ordinal + b->events <= k->event);
}

/* The first block that may hold something which has to be kept. */
static int load_kept(struct load *l, const struct keep *k, uint64_t at)
{
    struct block_info b;
    int err;
    while ((err = find_block(l, at, &b)) == 0 && may_go(&b, k) && b.end < l->limit)
        at = b.end;
    return err == 0 ? load_block(l, at) : err;
}

/* Where what has to be kept begins. The rows tell, but for blocks that a fork has only a part of.
 */
static int seek(struct load *l, uint64_t at, const struct keep *k, uint64_t *pos, uint64_t *event)
{
    for (;;) {
        int err = load_kept(l, k, at);
        if (err != 0)
            return err;
        at = l->ends[0];
        *pos = extent_keep_from(l->extents[0], at, k, event);
        if (*pos < at || at >= l->limit)
            return 0;
        extent_unref(l->extents[--l->n]);
    }
}

static void embedded_read_on_loaded(struct job *j)
{
    struct load *l = container_of(j, struct load, job);
    struct embedded *e = l->embedded;
    for (uint32_t i = 0; i < l->n; i++)
        cache_put(&e->cache, l->written_for[i], l->extents[i]);
    l->done(l);
    for (uint32_t i = 0; i < l->n; i++)
        extent_unref(l->extents[i]);
    free(l);
    e->reads--;
    embedded_check_stopped(e);
}

/* What rests from a position on, as far as that goes: a read takes no more of them. */
static void list_lives(struct load *l, const struct stream *s, uint64_t pos)
{
    for (l->limit = pos; l->n_lives < READ_SLICES;) {
        struct span span = stream_span(s, l->limit);
        uint64_t held = span.owner->tape.first;
        if (l->limit >= held)
            return;
        l->limit = held < span.upto ? held : span.upto;
        l->lives[l->n_lives++] = (struct origin){span.owner->life, l->limit};
    }
}

static void start_load(struct embedded *e, struct load *l, const struct stream *s, uint64_t pos,
                       void (*run)(struct job *j))
{
    l->job = (struct job){.run = run, .done = embedded_read_on_loaded};
    l->embedded = e;
    l->pos = pos;
    list_lives(l, s, pos);
    e->reads++;
    lane_submit(e->lanes.read, &l->job);
}

/* ---- read ---- */

struct read_load {
    struct load load;
    struct store_read *read;
    struct stream *stream; /* pinned: the answer lends its texts */
};

/* What of an extent a read takes: whole events from r->next on, and where that ends. */
static bool embedded_read_take_extent(struct store_read *r, const struct extent *c, uint64_t end,
                                      uint64_t start)
{
    if (r->n_slices == 0)
        r->ordinal = c->ordinal + extent_mark_after(c, start);
    size_t left = r->max_bytes - (size_t)(r->next - start);
    uint64_t upto = end;
    if (upto - r->next > left) {
        uint32_t first = extent_mark_after(c, r->next),
                 behind = extent_mark_after(c, r->next + left);
        upto = c->first + MARK_END(c->marks[behind > first ? behind - 1 : first]);
        if (upto > end)
            upto = end;
        if (r->n_slices > 0 && upto - r->next > left)
            return false;
    }
    r->slices[r->n_slices] = slice_of(c->bytes, r->next - c->first, upto - c->first);
    block_ref(r->slices[r->n_slices++].owner);
    uint32_t mark = extent_mark_after(c, upto - 1);
    r->last = c->first + (mark == 0 ? 0 : MARK_END(c->marks[mark - 1]));
    r->last_ordinal = c->ordinal + mark;
    r->next = upto;
    return upto == end && r->next - start < r->max_bytes && r->n_slices < READ_SLICES;
}

/* Where the block begins that an event is in: it is of the first of the lives. */
static uint64_t find_event(const struct load *l, uint64_t event)
{
    struct block_info b;
    int err =
        index_find_event(l->embedded->index, l->lives[0].life, l->pos, l->lives[0].upto, event, &b);
    return err == 0 && b.first > l->pos ? b.first : l->pos;
}

/* By its ordinal: finds where that event begins, and reads on from there. */
static void embedded_read_run_seek(struct job *j)
{
    struct load *l = container_of(j, struct load, job);
    struct store_read *r = container_of(l, struct read_load, load)->read;
    struct keep keep = {.event = r->event, .ms = INT64_MIN, .tail = UINT64_MAX};
    uint64_t ignored;
    struct shelf shelf;
    open_shelf(l, &shelf);
    l->err = seek(l, find_event(l, r->event), &keep, &r->start, &ignored);
    if (l->err == 0) {
        l->pos = r->start;
        load_on(l, l->ends[0]);
    }
    shelf_deinit(&shelf);
}

static int gap(struct store_read *r, const struct stream *s, enum gap_reason reason)
{
    r->gap =
        (struct gap){.requested = r->at, .earliest = {s->life, s->settled_first}, .reason = reason};
    return ERR_GAP;
}

/* Where the rested events end, those in memory follow in the same answer. */
static void embedded_read_on(const struct stream *s, struct store_read *r)
{
    size_t had = (size_t)(r->next - r->start);
    if (s->removed || s->deleted || r->next >= r->info.tail || had >= r->max_bytes ||
        r->n_slices == READ_SLICES || !stream_holds(s, r->next))
        return;
    r->n_slices +=
        stream_read_held(s, r->next, r->info.tail, r->max_bytes - had, r->slices + r->n_slices,
                         READ_SLICES - r->n_slices, &r->next, &r->last);
    if (r->next > r->start + had)
        r->last_ordinal = stream_ordinal(s, r->last);
}

static void embedded_read_on_read_loaded(struct load *l)
{
    struct read_load *rl = container_of(l, struct read_load, load);
    struct store_read *r = rl->read;
    struct stream *s = rl->stream;
    int err = l->err;
    if (err != 0 && (s->removed || s->deleted)) /* its blocks went while they were looked for */
        err = s->deleted ? ERR_DELETED : ERR_NOT_FOUND;
    else if (err != 0 && r->start < s->settled_first)
        err = gap(r, s, GAP_TRIMMED);
    r->next = r->last = r->start;
    if (err == 0 && !extent_is_boundary(l->extents[0], r->start))
        err = ERR_OFFSET;
    for (uint32_t i = 0; err == 0 && i < l->n; i++)
        if (!embedded_read_take_extent(r, l->extents[i], l->ends[i], r->start))
            break;
    if (err == 0)
        embedded_read_on(s, r);
    if (err == ERR_NOT_FOUND || err == ERR_DELETED)
        embedded_answer_absent(l->embedded, &r->call, err);
    else
        r->done(r, err);
    stream_unpin(s);
}

/* A reader that goes on from extent to extent finds the next one here. */
static bool read_cached(struct embedded *e, const struct stream *s, struct store_read *r)
{
    uint64_t start = r->start;
    r->next = r->last = start;
    while (r->n_slices < READ_SLICES) {
        uint64_t held = stream_span(s, r->next).owner->tape.first;
        struct origin writer = stream_writer(s, r->next);
        size_t left = r->max_bytes - (size_t)(r->next - start);
        struct extent *c = r->next < held ? cache_get(&e->cache, writer.life, r->next, left) : NULL;
        if (c == NULL)
            break;
        uint64_t end = extent_end(c);
        if (end > writer.upto) /* the source went on where this stream branched off */
            end = writer.upto;
        if (end > held)
            end = held;
        if (!embedded_read_take_extent(r, c, end, start))
            break;
    }
    return r->n_slices > 0;
}

static void load_rested(struct embedded *e, struct stream *s, struct store_read *r,
                        void (*run)(struct job *j))
{
    struct read_load *rl = mem_zalloc(sizeof *rl);
    rl->read = r;
    rl->load.max_bytes = r->max_bytes;
    rl->load.done = embedded_read_on_read_loaded;
    rl->stream = s;
    s->pins++;
    start_load(e, &rl->load, s, r->start, run);
}

static void read_rested(struct embedded *e, struct stream *s, struct store_read *r)
{
    if (read_cached(e, s, r)) {
        embedded_read_on(s, r);
        r->done(r, 0);
        return;
    }
    load_rested(e, s, r, embedded_read_run_load);
}

static void embedded_finish_read(struct store_call *c)
{
    struct store_read *r = container_of(c, struct store_read, call);
    r->done(r, c->result);
}

static void embedded_run_read(struct task *t)
{
    struct store_read *r = container_of(t, struct store_read, call.task);
    struct embedded *e = embedded_of(r->call.store);
    struct stream *s;
    sched_work(e->store.sched, "read");
    int err = catalog_find(&e->catalog, r->name, &s);
    if (err == 0 && !s->settled)
        err = ERR_NOT_FOUND;
    if (err != 0) {
        embedded_answer_absent(e, &r->call, err);
        return;
    }
    r->info = stream_info_of(s);
    if (r->touch)
        stream_touch(&e->catalog, s);
    r->start = r->from == READ_TAIL ? s->settled_tail : s->settled_first;
    enum gap_reason reason;
    if (r->from == READ_AT)
        err = stream_resolve(s, r->at, &r->start, &reason);
    if (r->from == READ_EVENT)
        err = stream_seek(s, r->event, &r->start, &reason);
    if (err == STREAM_LOOK) {
        load_rested(e, s, r, embedded_read_run_seek);
        return;
    }
    if (err != 0)
        err = gap(r, s, reason);
    if (err == 0 && !stream_holds(s, r->start)) {
        read_rested(e, s, r);
        return;
    }
    r->done(r, err != 0 ? err : stream_fill_read(s, r));
}

void embedded_read(struct store *s, struct store_read *r)
{
    r->n_slices = 0;
    r->call.finish = embedded_finish_read;
    store_post(s, &r->call, embedded_run_read);
}

/* ---- placing a fork ---- */

struct fork_position_load {
    struct load load;
    struct fork_position *place;
    bool events;
    void (*done)(void *ctx);
    void *ctx;
};

static void embedded_read_on_fork_position(struct load *l)
{
    struct fork_position_load *pl = container_of(l, struct fork_position_load, load);
    struct fork_position *p = pl->place;
    p->err = l->err;
    if (p->err == 0) {
        const struct extent *c = l->extents[0];
        if (!extent_is_boundary(c, p->anchor))
            p->err = ERR_FORK_OFFSET;
        else if (p->sub > 0)
            p->err = extent_advance(c, l->ends[0], p->anchor, p->sub, pl->events, &p->at);
        else
            p->at = p->anchor;
        if (p->err == 0)
            p->events =
                c->ordinal + extent_mark_after(c, p->at) + (extent_is_boundary(c, p->at) ? 0 : 1);
    }
    pl->done(pl->ctx);
}

void embedded_find_fork_position(struct embedded *e, struct stream *source,
                                 struct fork_position *place, void (*done)(void *ctx), void *ctx)
{
    struct fork_position_load *pl = mem_zalloc(sizeof *pl);
    pl->place = place;
    pl->events = content_kind(source->content_type) == CONTENT_JSON;
    pl->done = done;
    pl->ctx = ctx;
    pl->load.max_bytes = 1;
    pl->load.done = embedded_read_on_fork_position;
    start_load(e, &pl->load, source, place->anchor, embedded_read_run_load);
}

/* ---- looking for how far to trim ---- */

struct look_load {
    struct load load;
    struct keep_lookup *look;
    void (*done)(struct embedded *e, struct keep_lookup *look);
};

static void embedded_read_run_look(struct job *j)
{
    struct load *l = container_of(j, struct load, job);
    struct keep_lookup *look = container_of(l, struct look_load, load)->look;
    struct shelf shelf;
    open_shelf(l, &shelf);
    l->err = seek(l, l->pos, &look->keep, &look->first, &look->event);
    if (l->err == 0)
        look->front_ms = l->extents[0]->newest_ms;
    shelf_deinit(&shelf);
}

static void embedded_read_on_looked(struct load *l)
{
    struct look_load *ll = container_of(l, struct look_load, load);
    ll->look->err = l->err;
    ll->done(l->embedded, ll->look);
}

void embedded_look(struct embedded *e, struct keep_lookup *look,
                   void (*done)(struct embedded *e, struct keep_lookup *look))
{
    struct look_load *ll = mem_zalloc(sizeof *ll);
    ll->look = look;
    ll->done = done;
    ll->load.done = embedded_read_on_looked;
    start_load(e, &ll->load, look->stream, look->stream->first, embedded_read_run_look);
}
