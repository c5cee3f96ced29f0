// SPDX-License-Identifier: Apache-2.0
/* embedded_rest.c -- when checkpoints begin, what goes into them, and what their end changes. */
#include "base/err.h"
#include "base/mem.h"
#include "store/chunk.h"
#include "store/embedded_core.h"
#include "store/record.h"

#include <stdlib.h>

#define RETRY_MS 1000
#define TIDY_MS  200 /* between checkpoints that are there for the sake of the disk */

struct checkpoint {
    struct job job;
    struct journal_waiter waiter;
    struct embedded *embedded;
    struct rest rest;
    uint64_t bytes; /* of unrested events in it */
};

bool embedded_anything_to_rest(const struct embedded *e)
{
    return !list_empty(&e->dirty) || !list_empty(&e->dirty_docs) || e->removed.n > 0 || e->untidy;
}

/* ---- the snapshot ---- */

static void snap_pieces(struct checkpoint *c, struct rest_stream *rs, struct stream *s)
{
    tape_seal(&s->tape);
    rs->pieces = arena_alloc(&c->rest.arena, s->tape.n * sizeof *rs->pieces);
    rs->n_pieces = s->tape.n;
    for (uint32_t i = 0; i < s->tape.n; i++)
        rs->pieces[i].chunk = chunk_ref(tape_chunk(&s->tape, i, &rs->pieces[i].end));
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
    rs->drop_blocks = s->deleted;
    if (s->deleted)
        return;
    rs->first = s->first;
    if (stream_rest_life(s) != s->life) {
        uint64_t shared = stream_origin(s, stream_rest_life(s))->upto;
        rs->copy_from = stream_rest_life(s);
        rs->copy_upto = s->tape.first < shared ? s->tape.first : shared; /* trimmed beyond it */
    }
    snap_pieces(c, rs, s);
    snap_producers(c, rs, s);
}

static size_t count(const struct link *list)
{
    size_t n = 0;
    list_each (l, list)
        n++;
    return n;
}

static int by_life(const void *a, const void *b)
{
    uint64_t x = ((const struct rest_stream *)a)->life, y = ((const struct rest_stream *)b)->life;
    return (x > y) - (x < y);
}

/* By life: a stream before the forks of it. */
static void snap_streams(struct checkpoint *c)
{
    struct embedded *e = c->embedded;
    struct rest *r = &c->rest;
    r->streams = arena_alloc(&r->arena, count(&e->dirty) * sizeof *r->streams);
    while (!list_empty(&e->dirty)) {
        struct stream *s = list_item(e->dirty.next, struct stream, dirty);
        list_remove(&s->dirty);
        snap_stream(c, &r->streams[r->n_streams++], s);
    }
    if (r->n_streams > 1)
        qsort(r->streams, r->n_streams, sizeof *r->streams, by_life);
}

static void snap_docs(struct checkpoint *c)
{
    struct embedded *e = c->embedded;
    struct rest *r = &c->rest;
    r->docs = arena_alloc(&r->arena, count(&e->dirty_docs) * sizeof *r->docs);
    while (!list_empty(&e->dirty_docs)) {
        struct doc *d = list_item(e->dirty_docs.next, struct doc, dirty);
        list_remove(&d->dirty);
        r->docs[r->n_docs++] = (struct rest_doc){arena_dup(&r->arena, d->key),
                                                 arena_dup(&r->arena, d->value), d->version};
    }
}

static struct checkpoint *snapshot(struct embedded *e, uint64_t batch)
{
    struct checkpoint *c = mem_zalloc(sizeof *c);
    struct rest *r = &c->rest;
    c->embedded = e;
    c->bytes = e->unrested;
    r->vfs = e->vfs;
    r->index = e->index;
    r->limits = e->config.rest;
    r->meta = e->meta;
    r->meta.batch = batch;
    r->meta.lives = e->catalog.lives;
    r->meta.wall_ms = catalog_wall_ms(&e->catalog);
    r->removed = arena_alloc(&r->arena, e->removed.n * sizeof *r->removed);
    r->n_removed = e->removed.n;
    for (size_t i = 0; i < e->removed.n; i++)
        r->removed[i] = e->removed.items[i];
    e->removed.n = 0;
    snap_streams(c);
    snap_docs(c);
    return c;
}

/* ---- its end ---- */

static void settle_stream(struct embedded *e, struct rest_stream *rs)
{
    struct stream *s = rs->stream;
    if (s->removed || rs->drop_blocks)
        return;
    if (s->fork != NULL)
        s->fork->rest_life = s->life;
    if (!s->deleted) {
        tape_drop(&s->tape, rs->tail);
        for (size_t i = 0; i < rs->n_pieces; i++)
            cache_put(&e->cache, stream_writer(s, rs->pieces[i].chunk->first).life,
                      rs->pieces[i].chunk);
    }
}

/* Forks that were made meanwhile looked for their past where their source had its own; now that the
 * source has rows under its own life, those may be the only ones left. */
static void follow_sources(struct embedded *e)
{
    list_each (l, &e->dirty) {
        struct stream *s = list_item(l, struct stream, dirty);
        const struct stream *at = s;
        while (stream_rest_life(at) != at->life && at->fork->source != NULL)
            at = at->fork->source;
        if (s->fork != NULL)
            s->fork->rest_life = stream_rest_life(at);
    }
}

/* It came to nothing: all of it is still to be done. */
static void take_back(struct embedded *e, struct checkpoint *c)
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

static void forget_docs(struct embedded *e, struct rest *r)
{
    for (size_t i = 0; i < r->n_docs; i++) {
        struct doc *d = map_get(&e->catalog.docs, r->docs[i].key);
        if (d != NULL && d->value.p == NULL && list_empty(&d->dirty))
            catalog_forget_doc(&e->catalog, d);
    }
}

static void end_checkpoint(struct checkpoint *c)
{
    struct embedded *e = c->embedded;
    struct rest *r = &c->rest;
    if (r->err == 0) {
        for (size_t i = 0; i < r->n_streams; i++)
            settle_stream(e, &r->streams[i]);
        follow_sources(e);
        forget_docs(e, r);
        e->unrested -= c->bytes;
        e->meta = r->meta;
        e->segment_bytes += r->segment_bytes + r->reserve_bytes;
        e->segment_bytes -= r->dead_bytes + e->reserve_bytes;
        e->reserve_bytes = r->reserve_bytes;
        e->untidy = r->untidy;
        e->rewritten += r->rewritten;
    } else {
        e->untidy = false; /* it is seen again after the next one that succeeds */
        take_back(e, c);
    }
    for (size_t i = 0; i < r->n_streams; i++) {
        for (size_t k = 0; k < r->streams[i].n_pieces; k++)
            chunk_unref(r->streams[i].pieces[k].chunk);
        stream_unpin(r->streams[i].stream);
    }
    arena_deinit(&r->arena);
    free(c);
}

/* ---- beside traffic ---- */

static void run_checkpoint(struct job *j)
{
    struct checkpoint *c = container_of(j, struct checkpoint, job);
    rest_run(&c->rest);
    rest_remove_dead(&c->rest);
}

static void on_checkpoint_done(struct job *j)
{
    struct checkpoint *c = container_of(j, struct checkpoint, job);
    struct embedded *e = c->embedded;
    uint64_t batch = c->rest.meta.batch;
    bool ok = c->rest.err == 0;
    e->checkpoint = NULL;
    end_checkpoint(c);
    if (ok)
        journal_release(e->journal, batch);
    if (!e->stopping)
        sched_start(e->store.sched, &e->checkpoint_timer,
                    !ok         ? RETRY_MS
                    : e->untidy ? TIDY_MS
                                : e->config.checkpoint_age_ms);
    embedded_check_stopped(e);
}

static void on_batches_durable(struct journal_waiter *w, int err)
{
    struct checkpoint *c = container_of(w, struct checkpoint, waiter);
    struct embedded *e = c->embedded;
    if (err == 0) {
        c->job = (struct job){.run = run_checkpoint, .done = on_checkpoint_done};
        lane_submit(e->lanes.rest, &c->job);
        return;
    }
    c->rest.err = err; /* what is not durable must not come to rest */
    e->checkpoint = NULL;
    end_checkpoint(c);
    embedded_check_stopped(e);
}

void embedded_rest_start(struct embedded *e)
{
    if (e->checkpoint != NULL || e->stopping || !embedded_anything_to_rest(e) ||
        journal_error(e->journal) != 0)
        return;
    uint64_t batch = journal_cut(e->journal);
    struct checkpoint *c = e->checkpoint = snapshot(e, batch);
    c->waiter.done = on_batches_durable;
    if (batch - 1 <= journal_durable(e->journal))
        on_batches_durable(&c->waiter, 0);
    else
        journal_wait(e->journal, batch - 1, &c->waiter);
}

static void on_timer(struct timer *t)
{
    struct embedded *e = container_of(t, struct embedded, checkpoint_timer);
    embedded_rest_start(e);
    if (e->checkpoint == NULL)
        sched_start(e->store.sched, &e->checkpoint_timer, e->config.checkpoint_age_ms);
}

void embedded_rest_init(struct embedded *e)
{
    timer_init(&e->checkpoint_timer, on_timer);
    sched_start(e->store.sched, &e->checkpoint_timer, e->config.checkpoint_age_ms);
}

int embedded_rest_now(struct embedded *e, uint64_t batch)
{
    struct checkpoint *c = snapshot(e, batch);
    rest_run(&c->rest);
    rest_remove_dead(&c->rest);
    int err = c->rest.err;
    end_checkpoint(c);
    return err;
}

uint64_t embedded_rewritten(const struct store *s)
{
    return container_of(s, const struct embedded, store)->rewritten;
}
