// SPDX-License-Identifier: Apache-2.0
/* embedded_rest.c -- when checkpoints begin, what goes into them, and what their end changes.
 *
 *     SNAPPING   looks at what has changed, some of it in a turn of the loop
 *        | has seen all of it, the journal has all of it on the disk, and it is settled: the tape
 *        | holds what is not
 *     RESTING    on the lane (rest.h)            -- if the journal fails, it is not even tried
 *        | done, or failed
 *     ENDING     streams and documents are settled, or taken back; some in a turn
 *        | all of them
 *     FREEING    its memory, which may be much, on the lane
 *
 * Which of these it is shows in what its job calls next. */
#include "base/err.h"
#include "base/mem.h"
#include "store/catalog/extent.h"
#include "store/embedded/embedded_core.h"
#include "store/embedded/merge.h"
#include "store/embedded/record.h"

#include <stdlib.h>

#define RETRY_MS 1000
#define TIDY_MS  200 /* between checkpoints that are there for the sake of the disk */

struct checkpoint {
    struct job job;
    struct store_call call; /* that waits for the journal */
    struct embedded *embedded;
    struct rest rest;
    struct link unseen, unseen_docs; /* that are still to go into it, as they are: by `dirty` */
    uint64_t bytes;                  /* of unrested events in it */
    uint64_t index_bytes;            /* behind it, that hold something */
    size_t ended_streams, ended_docs, ended_removed; /* so many of each, at the end */
    size_t ended_pieces;                             /* of the next stream */
};

/* Also if nothing is left of what the journal has got: it is to be released. */
bool embedded_anything_to_rest(const struct embedded *e)
{
    return !list_empty(&e->dirty) || !list_empty(&e->dirty_docs) || e->removed.n > 0 || e->untidy ||
           journal_uncut(e->journal) > 0;
}

/* ---- the snapshot ----
 *
 * It is of one moment, that of the journal's cut. There may be many streams and documents in it, so
 * they are looked at some at a time; one that is about to change meanwhile is looked at before it
 * does. */

/* What a turn of the loop may take is counted in extents; so much of something else takes as long
 * as one. */
#define DOC_BYTES 4096 /* copied */
#define PRODUCERS 8    /* walked over, or marked */

static void snap_pieces(struct checkpoint *c, struct rest_stream *rs, struct stream *s)
{
    tape_seal(&s->tape);
    rs->pieces = arena_alloc(&c->rest.arena, s->tape.n * sizeof *rs->pieces);
    rs->n_pieces = s->tape.n;
    for (uint32_t i = 0; i < s->tape.n; i++)
        rs->pieces[i].extent = extent_ref(tape_extent(&s->tape, i, &rs->pieces[i].end));
}

static size_t count_dirty(const struct map *producers)
{
    size_t n = 0, at = 0;
    for (struct producer *p; (p = map_next(producers, &at)) != NULL;)
        n += p->dirty;
    return n;
}

static void snap_producers(struct checkpoint *c, struct rest_stream *rs, struct stream *s)
{
    size_t n = s->producers == NULL ? 0 : count_dirty(s->producers), at = 0;
    if (n == 0)
        return;
    rs->producers = arena_alloc(&c->rest.arena, n * sizeof *rs->producers);
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
    rs->span_ms = catalog_age_step(&e->catalog, s);
    if (rs->span_ms > MERGE_SPAN_MS)
        rs->span_ms = MERGE_SPAN_MS;
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

static void snap_doc(struct checkpoint *c, struct doc *d)
{
    struct rest *r = &c->rest;
    list_remove(&d->dirty);
    r->docs[r->n_docs++] = (struct rest_doc){d->key, arena_dup(&r->arena, d->value), d->version, d};
}

void embedded_before_docs(struct embedded *e, const struct doc_put *docs, size_t n)
{
    struct checkpoint *c = e->checkpoint;
    for (size_t i = 0; c != NULL && i < n && !list_empty(&c->unseen_docs); i++) {
        struct doc *d = map_get(&e->catalog.docs, docs[i].key);
        if (d != NULL && !list_empty(&d->dirty) && d->dirty_turn != e->dirty_turn)
            snap_doc(c, d);
    }
}

static size_t snap_cost(const struct stream *s)
{
    return 1 + s->tape.n + (s->producers == NULL ? 0 : s->producers->n / PRODUCERS);
}

/* One that costs much is alone, or the last of many. false: there are more. */
static bool go_on_snapping(struct checkpoint *c, size_t budget)
{
    size_t done = 0;
    while (!list_empty(&c->unseen) && done < budget) {
        struct stream *s = list_item(c->unseen.next, struct stream, dirty);
        done += snap_cost(s);
        snap_next(c, s);
    }
    while (!list_empty(&c->unseen_docs) && done < budget) {
        struct doc *d = list_item(c->unseen_docs.next, struct doc, dirty);
        done += 1 + d->value.n / DOC_BYTES;
        snap_doc(c, d);
    }
    return list_empty(&c->unseen) && list_empty(&c->unseen_docs);
}

/* Of the moment; it has seen nothing yet. */
static struct checkpoint *begin_snapshot(struct embedded *e, uint64_t batch)
{
    struct checkpoint *c = mem_zalloc(sizeof *c);
    struct rest *r = &c->rest;
    c->embedded = e;
    c->bytes = e->unrested;
    c->index_bytes = e->index_bytes;
    r->vfs = e->vfs;
    r->index = e->index;
    r->limits = e->config.rest;
    r->pace = e->pace.pause == NULL ? NULL : &e->pace;
    r->meta = e->meta;
    r->meta.batch = batch;
    r->meta.lives = e->snapped = e->catalog.lives;
    r->meta.wall_ms = catalog_wall_ms(&e->catalog);
    r->removed = e->removed.items;
    r->n_removed = e->removed.n;
    e->removed = (struct lives){0};
    r->streams = arena_alloc(&r->arena, e->n_dirty * sizeof *r->streams);
    r->docs = arena_alloc(&r->arena, e->n_dirty_docs * sizeof *r->docs);
    list_init(&c->unseen);
    list_init(&c->unseen_docs);
    list_splice(&c->unseen, &e->dirty);
    list_splice(&c->unseen_docs, &e->dirty_docs);
    e->n_dirty = e->n_dirty_docs = 0;
    e->dirty_turn = !e->dirty_turn;
    return c;
}

/* ---- its end ----
 *
 * It has come to rest, or to nothing: then all of it is still to be done. Either way streams and
 * documents hear of it some at a time, so that nobody waits for the loop long. Until one has, it
 * has in memory what rests already, as it had while the checkpoint ran; or it is not dirty although
 * it has to be, and nobody asks for that before the end. */

static void embedded_rest_settle(struct embedded *e, const struct checkpoint *c)
{
    const struct rest *r = &c->rest;
    e->meta = r->meta;
    e->index_bytes = c->index_bytes;
    e->segment_bytes += r->segment_bytes + r->reserve_bytes;
    e->segment_bytes -= r->dead_bytes + e->reserve_bytes;
    e->reserve_bytes = r->reserve_bytes;
    e->untidy = r->untidy;
    e->rewritten += r->rewritten;
    e->merged += r->merged;
}

static void begin_end(struct checkpoint *c)
{
    if (c->rest.err == 0)
        embedded_rest_settle(c->embedded, c);
    else
        c->embedded->untidy = false; /* it is seen again after the next one that succeeds */
}

/* Extents of it that the index has. What takes their place in the cache costs as much as they do:
 * behind a large one each may push out very many. Returns what it took of the budget. */
static size_t end_pieces(struct checkpoint *c, const struct rest_stream *rs, size_t budget)
{
    struct stream *s = rs->stream;
    bool rests = c->rest.err == 0 && !s->removed;
    size_t i = c->ended_pieces, done = 0;
    for (; i < rs->n_pieces && done < budget; i++, done++) {
        if (rests)
            done += cache_put(&c->embedded->cache, s->life, rs->pieces[i].extent);
        extent_unref(rs->pieces[i].extent);
    }
    if (rests && i > c->ended_pieces)
        tape_drop(&s->tape, rs->pieces[i - 1].end);
    c->ended_pieces = i;
    return done;
}

static void take_back(struct embedded *e, const struct rest_stream *rs)
{
    struct stream *s = rs->stream;
    embedded_mark_dirty(e, s);
    for (size_t i = 0; s->producers != NULL && i < rs->n_producers; i++) {
        struct producer *p = map_get(s->producers, rs->producers[i].id);
        if (p != NULL)
            p->dirty = true;
    }
}

static void end_stream(struct checkpoint *c, const struct rest_stream *rs)
{
    struct stream *s = rs->stream;
    if (!s->removed && c->rest.err == 0)
        tape_drop(&s->tape, rs->tail);
    else if (!s->removed)
        take_back(c->embedded, rs);
    stream_unpin(s);
}

/* What this took of the budget. */
static size_t end_some(struct checkpoint *c, size_t budget)
{
    const struct rest_stream *rs = &c->rest.streams[c->ended_streams];
    size_t done = end_pieces(c, rs, budget);
    if (c->ended_pieces < rs->n_pieces)
        return done;
    end_stream(c, rs);
    c->ended_pieces = 0;
    c->ended_streams++;
    return done + 1 + rs->n_producers / PRODUCERS;
}

/* Only a checkpoint lets go of a document: it was there all the time. */
static void end_doc(struct checkpoint *c, struct doc *d)
{
    if (c->rest.err != 0)
        embedded_mark_doc(c->embedded, d);
    else if (d->value.p == NULL && list_empty(&d->dirty))
        catalog_forget_doc(&c->embedded->catalog, d);
}

/* false: there is more to let go of. */
static bool go_on_ending(struct checkpoint *c, size_t budget)
{
    const struct rest *r = &c->rest;
    size_t done = 0, removed = r->err == 0 ? 0 : r->n_removed;
    while (c->ended_streams < r->n_streams && done < budget)
        done += end_some(c, budget - done);
    for (; c->ended_docs < r->n_docs && done < budget; done++)
        end_doc(c, r->docs[c->ended_docs++].doc);
    for (; c->ended_removed < removed && done < budget; done++)
        lives_add(&c->embedded->removed, r->removed[c->ended_removed++]);
    return done < budget;
}

static void free_rest(struct rest *r)
{
    arena_deinit(&r->arena);
    free(r->removed);
}

/* ---- beside traffic ---- */

static int embedded_rest_by_life(const void *a, const void *b)
{
    uint64_t x = ((const struct rest_stream *)a)->life, y = ((const struct rest_stream *)b)->life;
    return (x > y) - (x < y);
}

/* Blocking. By life: a stream before the forks of it. */
static void bring_to_rest(struct checkpoint *c)
{
    struct rest *r = &c->rest;
    if (r->n_streams > 1)
        qsort(r->streams, r->n_streams, sizeof *r->streams, embedded_rest_by_life);
    rest_run(r);
    rest_remove_dead(r);
    struct index_size size;
    if (index_size(r->index, &size) == 0)
        c->index_bytes = size.bytes;
}

static void embedded_rest_run_checkpoint(struct job *j)
{
    bring_to_rest(container_of(j, struct checkpoint, job));
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

static void embedded_rest_free_run(struct job *j)
{
    free_rest(&container_of(j, struct checkpoint, job)->rest);
}

static void embedded_rest_on_freed(struct job *j)
{
    struct checkpoint *c = container_of(j, struct checkpoint, job);
    struct embedded *e = c->embedded;
    bool ok = c->rest.err == 0;
    e->checkpoint = NULL;
    e->rest_failed = !ok;
    if (ok) {
        e->unrested -= c->bytes;
        journal_release(e->journal, c->rest.meta.batch);
    }
    free(c);
    schedule_next(e, ok);
    embedded_check_stopped(e);
}

static void embedded_rest_on_ending(struct job *j)
{
    struct checkpoint *c = container_of(j, struct checkpoint, job);
    struct embedded *e = c->embedded;
    sched_work(e->store.sched, "checkpoint");
    if (!go_on_ending(c, slice(e))) {
        await_lane(c, embedded_rest_on_ending);
        return;
    }
    c->job = (struct job){.run = embedded_rest_free_run, .done = embedded_rest_on_freed};
    lane_submit(e->lanes.rest, &c->job);
}

static void embedded_rest_on_checkpoint_done(struct job *j)
{
    begin_end(container_of(j, struct checkpoint, job));
    embedded_rest_on_ending(j);
}

static void embedded_rest_on_batches_durable(struct store_call *call)
{
    struct checkpoint *c = container_of(call, struct checkpoint, call);
    if (call->result != 0) {
        c->rest.err = call->result; /* what is not durable must not come to rest */
        embedded_rest_on_checkpoint_done(&c->job);
        return;
    }
    c->job =
        (struct job){.run = embedded_rest_run_checkpoint, .done = embedded_rest_on_checkpoint_done};
    lane_submit(c->embedded->lanes.rest, &c->job);
}

static void embedded_rest_on_snapping(struct job *j)
{
    struct checkpoint *c = container_of(j, struct checkpoint, job);
    struct embedded *e = c->embedded;
    sched_work(e->store.sched, "checkpoint");
    if (!go_on_snapping(c, slice(e)))
        await_lane(c, embedded_rest_on_snapping);
    else
        embedded_finish_after(e, &c->call, NULL, c->rest.meta.batch - 1);
}

static void start_checkpoint(struct embedded *e)
{
    e->cut = journal_cut(e->journal);
    struct checkpoint *c = e->checkpoint = begin_snapshot(e, e->cut);
    c->call = (struct store_call){.store = &e->store, .finish = embedded_rest_on_batches_durable};
    atomic_store(&e->pace.hurry, e->stage != EMBEDDED_RUNNING);
    embedded_rest_on_snapping(&c->job);
}

void embedded_rest_start(struct embedded *e)
{
    if (e->checkpoint == NULL && e->stage == EMBEDDED_RUNNING && embedded_anything_to_rest(e) &&
        journal_error(e->journal) == 0)
        start_checkpoint(e);
}

/* Events, which are in memory until they rest, or anything, which is in the journal: as much as is
 * enough for a checkpoint has come since the last one began, or a part of that. */
static bool has_come(const struct embedded *e, uint64_t part)
{
    uint64_t events = e->unrested - (e->checkpoint == NULL ? 0 : e->checkpoint->bytes);
    return events >= e->config.checkpoint_bytes / part ||
           journal_uncut(e->journal) >= e->config.journal_max / 2 / part;
}

void embedded_rest_look(struct embedded *e)
{
    if (e->checkpoint == NULL && !e->rest_failed && has_come(e, 1))
        embedded_rest_start(e);
    else if (e->checkpoint != NULL && has_come(e, 2))
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
    go_on_snapping(c, SIZE_MAX);
    c->rest.pace = NULL; /* everybody waits for it */
    c->rest.limits.merge_bytes = 0;
    bring_to_rest(c);
    int err = c->rest.err;
    begin_end(c);
    go_on_ending(c, SIZE_MAX);
    if (err == 0)
        e->unrested -= c->bytes;
    free_rest(&c->rest);
    free(c);
    return err;
}

uint64_t embedded_merged(const struct store *s)
{
    return container_of(s, const struct embedded, store)->merged;
}

uint64_t embedded_rewritten(const struct store *s)
{
    return container_of(s, const struct embedded, store)->rewritten;
}
