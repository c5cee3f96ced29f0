// SPDX-License-Identifier: Apache-2.0
/* embedded_rest.c -- when checkpoints begin, what goes into them, and what their end changes. */
#include "base/err.h"
#include "base/mem.h"
#include "store/catalog/extent.h"
#include "store/embedded/embedded_core.h"
#include "store/embedded/record.h"

#include <stdlib.h>

#define RETRY_MS 1000
#define TIDY_MS  200 /* between checkpoints that are there for the sake of the disk */

struct checkpoint {
    struct job job;
    struct journal_waiter waiter;
    struct embedded *embedded;
    struct rest rest;
    struct link unseen; /* streams that are still to go into it, as they are: by their `dirty` */
    uint64_t bytes;     /* of unrested events in it */
    size_t settled_streams, settled_docs; /* so many of each, at the end */
};

bool embedded_anything_to_rest(const struct embedded *e)
{
    return !list_empty(&e->dirty) || !list_empty(&e->dirty_docs) || e->removed.n > 0 || e->untidy;
}

/* ---- the snapshot ----
 *
 * It is of one moment, that of the journal's cut. There may be many streams in it, so they are
 * looked at some at a time; one that is about to change meanwhile is looked at before it does. */

static void snap_pieces(struct checkpoint *c, struct rest_stream *rs, struct stream *s)
{
    tape_seal(&s->tape);
    rs->pieces = arena_alloc(&c->rest.arena, s->tape.n * sizeof *rs->pieces);
    rs->n_pieces = s->tape.n;
    for (uint32_t i = 0; i < s->tape.n; i++)
        rs->pieces[i].extent = extent_ref(tape_extent(&s->tape, i, &rs->pieces[i].end));
}

static void snap_producers(struct checkpoint *c, struct rest_stream *rs, struct stream *s)
{
    if (s->producers == NULL)
        return;
    rs->producers = arena_alloc(&c->rest.arena, s->producers->n * sizeof *rs->producers);
    size_t at = 0;
    for (struct producer *p; (p = map_next(s->producers, &at)) != NULL;) {
        if (!p->dirty)
            continue;
        p->dirty = false;
        rs->producers[rs->n_producers++] = (struct producer_claim){
            arena_dup(&c->rest.arena, str_of(p->id, p->n)), p->state.epoch, p->state.seq};
    }
}

static void snap_stream(struct checkpoint *c, struct rest_stream *rs, struct stream *s)
{
    struct embedded *e = c->embedded;
    *rs = (struct rest_stream){.life = s->life, .stream = s, .tail = s->tape.tail};
    s->pins++;
    row_put(&e->scratch, s);
    rs->row = arena_dup(&c->rest.arena, buf_str(&e->scratch));
    e->scratch.n = 0;
    rs->first = stream_needed_from(s);
    rs->upto = stream_needed_upto(s);
    snap_pieces(c, rs, s);
    if (!s->deleted)
        snap_producers(c, rs, s);
}

static void snap_next(struct checkpoint *c, struct stream *s)
{
    list_remove(&s->dirty);
    snap_stream(c, &c->rest.streams[c->rest.n_streams++], s);
}

void embedded_before_change(struct embedded *e, struct stream *s)
{
    if (!list_empty(&s->dirty) && s->dirty_turn != e->dirty_turn)
        snap_next(e->checkpoint, s);
}

/* false: there are more. */
static bool snap_streams(struct checkpoint *c, size_t budget)
{
    for (size_t done = 0; !list_empty(&c->unseen);) {
        struct stream *s = list_item(c->unseen.next, struct stream, dirty);
        if (done >= budget)
            return false;
        done += 1 + s->tape.n;
        snap_next(c, s);
    }
    return true;
}

static size_t embedded_rest_count(const struct link *list)
{
    size_t n = 0;
    list_each (l, list)
        n++;
    return n;
}

static void snap_docs(struct checkpoint *c)
{
    struct embedded *e = c->embedded;
    struct rest *r = &c->rest;
    r->docs = arena_alloc(&r->arena, embedded_rest_count(&e->dirty_docs) * sizeof *r->docs);
    while (!list_empty(&e->dirty_docs)) {
        struct doc *d = list_item(e->dirty_docs.next, struct doc, dirty);
        list_remove(&d->dirty);
        r->docs[r->n_docs++] = (struct rest_doc){arena_dup(&r->arena, d->key),
                                                 arena_dup(&r->arena, d->value), d->version};
    }
}

/* All but the streams. */
static struct checkpoint *begin_snapshot(struct embedded *e, uint64_t batch)
{
    struct checkpoint *c = mem_zalloc(sizeof *c);
    struct rest *r = &c->rest;
    c->embedded = e;
    c->bytes = e->unrested;
    r->vfs = e->vfs;
    r->index = e->index;
    r->limits = e->config.rest;
    r->pace = e->pace.pause == NULL ? NULL : &e->pace;
    r->meta = e->meta;
    r->meta.batch = batch;
    r->meta.lives = e->catalog.lives;
    r->meta.wall_ms = catalog_wall_ms(&e->catalog);
    r->removed = arena_alloc(&r->arena, e->removed.n * sizeof *r->removed);
    r->n_removed = e->removed.n;
    for (size_t i = 0; i < e->removed.n; i++)
        r->removed[i] = e->removed.items[i];
    e->removed.n = 0;
    r->streams = arena_alloc(&r->arena, e->n_dirty * sizeof *r->streams);
    list_init(&c->unseen);
    list_splice(&c->unseen, &e->dirty);
    e->n_dirty = 0;
    e->dirty_turn = !e->dirty_turn;
    snap_docs(c);
    return c;
}

/* ---- its end ----
 *
 * Extents are released some at a time, so that nobody waits for the loop long. Until that has been
 * done with a stream it has in memory what rests already, as it had while the checkpoint ran. */

/* It came to nothing: all of it is still to be done. */
static void embedded_rest_take_back(struct embedded *e, struct checkpoint *c)
{
    struct rest *r = &c->rest;
    for (size_t i = 0; i < r->n_streams; i++) {
        struct stream *s = r->streams[i].stream;
        if (!s->removed)
            embedded_mark_dirty(e, s);
        if (s->producers != NULL && !s->removed)
            for (size_t k = 0; k < r->streams[i].n_producers; k++) {
                struct producer *p = map_get(s->producers, r->streams[i].producers[k].id);
                if (p != NULL)
                    p->dirty = true;
            }
    }
    for (size_t i = 0; i < r->n_docs; i++)
        embedded_mark_docs(e, &(struct doc_put){.key = r->docs[i].key}, 1);
    for (size_t i = 0; i < r->n_removed; i++)
        lives_add(&e->removed, r->removed[i]);
}

static void embedded_rest_settle(struct embedded *e, struct rest *r)
{
    e->meta = r->meta;
    e->segment_bytes += r->segment_bytes + r->reserve_bytes;
    e->segment_bytes -= r->dead_bytes + e->reserve_bytes;
    e->reserve_bytes = r->reserve_bytes;
    e->untidy = r->untidy;
    e->rewritten += r->rewritten;
}

static void settle_stream(struct embedded *e, const struct rest_stream *rs)
{
    struct stream *s = rs->stream;
    if (s->removed)
        return;
    tape_drop(&s->tape, rs->tail);
    for (size_t i = 0; i < rs->n_pieces; i++)
        cache_put(&e->cache, s->life, rs->pieces[i].extent);
}

static void embedded_rest_release_stream(struct checkpoint *c, const struct rest_stream *rs)
{
    if (c->rest.err == 0)
        settle_stream(c->embedded, rs);
    for (size_t i = 0; i < rs->n_pieces; i++)
        extent_unref(rs->pieces[i].extent);
    stream_unpin(rs->stream);
}

static void forget_doc(struct checkpoint *c, const struct rest_doc *rd)
{
    struct embedded *e = c->embedded;
    struct doc *d = c->rest.err == 0 ? map_get(&e->catalog.docs, rd->key) : NULL;
    if (d != NULL && d->value.p == NULL && list_empty(&d->dirty))
        catalog_forget_doc(&e->catalog, d);
}

static void begin_end(struct checkpoint *c)
{
    struct embedded *e = c->embedded;
    if (c->rest.err == 0) {
        embedded_rest_settle(e, &c->rest);
        return;
    }
    e->untidy = false; /* it is seen again after the next one that succeeds */
    embedded_rest_take_back(e, c);
}

/* false: there is more to let go of. */
static bool go_on_ending(struct checkpoint *c, size_t budget)
{
    struct rest *r = &c->rest;
    size_t done = 0;
    for (; c->settled_streams < r->n_streams && done < budget; c->settled_streams++) {
        embedded_rest_release_stream(c, &r->streams[c->settled_streams]);
        done += 1 + r->streams[c->settled_streams].n_pieces;
    }
    for (; c->settled_docs < r->n_docs && done < budget; c->settled_docs++, done++)
        forget_doc(c, &r->docs[c->settled_docs]);
    return done < budget;
}

static void end_checkpoint(struct checkpoint *c)
{
    if (c->rest.err == 0)
        c->embedded->unrested -= c->bytes;
    arena_deinit(&c->rest.arena);
    free(c);
}

/* ---- beside traffic ---- */

static int embedded_rest_by_life(const void *a, const void *b)
{
    uint64_t x = ((const struct rest_stream *)a)->life, y = ((const struct rest_stream *)b)->life;
    return (x > y) - (x < y);
}

/* Blocking. By life: a stream before the forks of it. */
static void bring_to_rest(struct rest *r)
{
    if (r->n_streams > 1)
        qsort(r->streams, r->n_streams, sizeof *r->streams, embedded_rest_by_life);
    rest_run(r);
    rest_remove_dead(r);
}

static void embedded_rest_run_checkpoint(struct job *j)
{
    bring_to_rest(&container_of(j, struct checkpoint, job)->rest);
}

/* In a turn of the loop. While it stops, nobody is kept waiting. */
static size_t slice(const struct embedded *e)
{
    return e->stage == EMBEDDED_RUNNING ? e->config.rest_slice : SIZE_MAX;
}

/* The lane has nothing to do; but the loop goes on meanwhile. */
static void embedded_rest_run_nothing(struct job *j)
{
}

static void await_lane(struct checkpoint *c, void (*done)(struct job *j))
{
    c->job = (struct job){.run = embedded_rest_run_nothing, .done = done};
    lane_submit(c->embedded->lanes.rest, &c->job);
}

static void schedule_next(struct embedded *e, bool ok)
{
    if (e->stage == EMBEDDED_RUNNING)
        sched_start(e->store.sched, &e->checkpoint_timer,
                    !ok         ? RETRY_MS
                    : e->untidy ? TIDY_MS
                                : e->config.checkpoint_age_ms);
}

static void embedded_rest_on_ending(struct job *j)
{
    struct checkpoint *c = container_of(j, struct checkpoint, job);
    struct embedded *e = c->embedded;
    uint64_t batch = c->rest.meta.batch;
    bool ok = c->rest.err == 0;
    if (!go_on_ending(c, slice(e))) {
        await_lane(c, embedded_rest_on_ending);
        return;
    }
    e->checkpoint = NULL;
    end_checkpoint(c);
    if (ok)
        journal_release(e->journal, batch);
    schedule_next(e, ok);
    embedded_check_stopped(e);
}

static void embedded_rest_on_checkpoint_done(struct job *j)
{
    begin_end(container_of(j, struct checkpoint, job));
    embedded_rest_on_ending(j);
}

static void embedded_rest_on_batches_durable(struct journal_waiter *w, int err)
{
    struct checkpoint *c = container_of(w, struct checkpoint, waiter);
    struct embedded *e = c->embedded;
    if (err == 0) {
        c->job = (struct job){.run = embedded_rest_run_checkpoint,
                              .done = embedded_rest_on_checkpoint_done};
        lane_submit(e->lanes.rest, &c->job);
        return;
    }
    c->rest.err = err; /* what is not durable must not come to rest */
    e->checkpoint = NULL;
    begin_end(c);
    go_on_ending(c, SIZE_MAX);
    end_checkpoint(c);
    embedded_check_stopped(e);
}

static void embedded_rest_on_snapping(struct job *j)
{
    struct checkpoint *c = container_of(j, struct checkpoint, job);
    struct embedded *e = c->embedded;
    if (!snap_streams(c, slice(e)))
        await_lane(c, embedded_rest_on_snapping);
    else if (c->rest.meta.batch - 1 <= journal_durable(e->journal))
        embedded_rest_on_batches_durable(&c->waiter, 0);
    else
        journal_wait(e->journal, c->rest.meta.batch - 1, &c->waiter);
}

static void start_checkpoint(struct embedded *e)
{
    struct checkpoint *c = e->checkpoint = begin_snapshot(e, journal_cut(e->journal));
    c->waiter.done = embedded_rest_on_batches_durable;
    atomic_store(&e->pace.hurry, e->stage != EMBEDDED_RUNNING);
    embedded_rest_on_snapping(&c->job);
}

void embedded_rest_start(struct embedded *e)
{
    if (e->checkpoint == NULL && e->stage == EMBEDDED_RUNNING && embedded_anything_to_rest(e) &&
        journal_error(e->journal) == 0)
        start_checkpoint(e);
}

void embedded_rest_look(struct embedded *e)
{
    uint64_t enough = e->config.checkpoint_bytes;
    if (e->unrested >= enough)
        embedded_rest_start(e);
    if (e->checkpoint != NULL && e->unrested - e->checkpoint->bytes > enough / 2)
        atomic_store(&e->pace.hurry, true);
}

void embedded_rest_stop(struct embedded *e)
{
    timer_stop(&e->checkpoint_timer);
    atomic_store(&e->pace.hurry, true);
}

void embedded_rest_last(struct embedded *e)
{
    e->untidy = false; /* nobody waits for that */
    if (e->config.rest_at_stop && e->unrested <= e->config.checkpoint_bytes &&
        embedded_anything_to_rest(e) && journal_error(e->journal) == 0)
        start_checkpoint(e);
}

static void embedded_rest_on_timer(struct timer *t)
{
    struct embedded *e = container_of(t, struct embedded, checkpoint_timer);
    embedded_rest_start(e);
    if (e->checkpoint == NULL)
        sched_start(e->store.sched, &e->checkpoint_timer, e->config.checkpoint_age_ms);
}

void embedded_rest_init(struct embedded *e)
{
    e->pace.pause = e->config.pause;
    timer_init(&e->checkpoint_timer, embedded_rest_on_timer);
    sched_start(e->store.sched, &e->checkpoint_timer, e->config.checkpoint_age_ms);
}

int embedded_rest_now(struct embedded *e, uint64_t batch)
{
    struct checkpoint *c = begin_snapshot(e, batch);
    snap_streams(c, SIZE_MAX);
    c->rest.pace = NULL; /* everybody waits for it */
    bring_to_rest(&c->rest);
    int err = c->rest.err;
    begin_end(c);
    go_on_ending(c, SIZE_MAX);
    end_checkpoint(c);
    return err;
}

uint64_t embedded_rewritten(const struct store *s)
{
    return container_of(s, const struct embedded, store)->rewritten;
}
