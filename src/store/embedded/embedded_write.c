// SPDX-License-Identifier: Apache-2.0
/* embedded_write.c -- what changes something: writes, removes and documents. Each is judged against
 * all that has been applied before, applied, and put into the journal as one record. */
#include "base/err.h"
#include "base/mem.h"
#include "store/catalog/verdict.h"
#include "store/embedded/embedded_core.h"
#include "store/embedded/record.h"

#include <stdlib.h>

#define NEEDS_FORK_POSITION 1000 /* private verdict: the fork point must be looked up first */

/* ---- write ---- */

struct fork_wait {
    struct store_write *write;
    struct fork_position place;
};

/* An upper bound of the record's size. The length of an event takes a byte, or up to five if there
 * are 128 bytes of it. */
size_t embedded_record_bound(const struct embedded *e, const struct store_write *w)
{
    size_t n = 4096 + w->name.n + w->n_events + w->data.n / 128 * 4;
    if (!e->large.in_parts)
        n += w->data.n;
    for (size_t i = 0; i < w->n_docs; i++)
        n += w->docs[i].key.n + w->docs[i].value.n + 32;
    return n;
}

static void embedded_finish_write(struct store_call *c)
{
    struct store_write *w = container_of(c, struct store_write, call);
    w->done(w, c->result);
}

static void embedded_finish_applied(struct store_call *c)
{
    struct store_write *w = container_of(c, struct store_write, call);
    struct embedded *e = embedded_of(c->store);
    if (c->result == 0)
        catalog_settle(&e->catalog, c->stream, &w->info);
    w->done(w, c->result);
}

/* Copying large data would hold the loop: the journal writes it from where it lies. Of what is less
 * a batch takes several. */
#define INLAY_MIN (2u * 1024 * 1024)

static uint64_t embedded_put_write(struct embedded *e, const struct stream *s,
                                   const struct store_write *w, const struct judgement *j,
                                   int64_t now_ms)
{
    if (e->large.in_parts) {
        record_put_in_parts(&e->scratch, s, w, j, now_ms);
        return embedded_put_record(e);
    }
    if (w->block != NULL)
        sched_look_soon(e->store.sched); /* there is much to copy */
    if (w->block == NULL || w->block->n < INLAY_MIN) {
        record_put_write(&e->scratch, s, w, j, now_ms);
        return embedded_put_record(e);
    }
    size_t at = record_put_around(&e->scratch, s, w, j, now_ms);
    uint64_t batch = journal_put_around(e->journal, buf_str(&e->scratch), at, w->block);
    e->scratch.n = 0;
    return batch;
}

static void embedded_apply(struct embedded *e, struct store_write *w, const struct judgement *j)
{
    int64_t now_ms = catalog_wall_ms(&e->catalog);
    if (j->stream != NULL)
        embedded_before_change(e, j->stream);
    embedded_before_docs(e, w->docs, w->n_docs);
    struct stream *s = catalog_apply(&e->catalog, w, j);
    s->last_batch = embedded_put_write(e, s, w, j, now_ms);
    if (w->n_docs > 0)
        e->docs_batch = s->last_batch;
    e->unrested += w->data.n;
    embedded_mark_dirty(e, s);
    embedded_mark_docs(e, w->docs, w->n_docs);
    if (!w->call.trimmed && w->data.n > 0)
        embedded_trim(&e->catalog, s);
    w->call.result = 0;
    w->call.finish = embedded_finish_applied;
    embedded_finish_after(e, &w->call, s, s->last_batch);
    embedded_rest_look(e);
}

static int embedded_use_fork_position(void *ctx, struct judgement *j)
{
    struct fork_position *p = ctx;
    if (!p->known || p->source_life != j->source->life || p->anchor != j->fork_anchor)
        return NEEDS_FORK_POSITION;
    j->fork_at = p->at;
    j->fork_events = p->events;
    return p->err;
}

static void embedded_judge(struct embedded *e, struct store_write *w, struct fork_position *place);

static void embedded_on_fork_placed(void *ctx)
{
    struct fork_wait *f = ctx;
    f->place.known = true;
    embedded_judge(embedded_of(f->write->call.store), f->write, &f->place);
    free(f);
}

static void look_up_fork(struct embedded *e, struct store_write *w, const struct judgement *j)
{
    struct fork_wait *f = mem_zalloc(sizeof *f);
    f->write = w;
    f->place = (struct fork_position){
        .source_life = j->source->life, .anchor = j->fork_anchor, .sub = w->create->fork_sub};
    embedded_find_fork_position(e, j->source, &f->place, embedded_on_fork_placed, f);
}

/* The batch without which the answer could have been another. */
static uint64_t batch_behind(const struct embedded *e, const struct judgement *j, int err)
{
    uint64_t batch = j->stream != NULL ? j->stream->last_batch : e->removed_batch;
    if (j->source != NULL && j->source->last_batch > batch)
        batch = j->source->last_batch;
    return err == ERR_VERSION && e->docs_batch > batch ? e->docs_batch : batch;
}

/* The answer says that a stream is not there. */
static bool is_absence(int err)
{
    return err == ERR_NOT_FOUND || err == ERR_DELETED || err == ERR_FORK_SOURCE ||
           err == ERR_FORK_DELETED;
}

static enum room room_of(struct embedded *e, const struct store_write *w)
{
    return w->data.n > 0 || w->create != NULL ? ROOM_EVENTS
                                              : embedded_room_of_docs(e, w->docs, w->n_docs);
}

static void embedded_judge(struct embedded *e, struct store_write *w, struct fork_position *place)
{
    struct judgement j;
    struct fork_position none = {0};
    int v = catalog_judge(&e->catalog, w, &j, embedded_use_fork_position,
                          place != NULL ? place : &none);
    if (v == NEEDS_FORK_POSITION) {
        look_up_fork(e, w, &j);
        return;
    }
    if (v == VERDICT_APPLY) {
        int err = embedded_check_room(e, embedded_record_bound(e, w), room_of(e, w));
        if (err == 0) {
            embedded_apply(e, w, &j);
            return;
        }
        if (embedded_stall(e, &w->call, err))
            return;
        v = err;
    }
    if (is_absence(v) && embedded_stall_unrecorded(e, &w->call))
        return;
    if (w->duplicate)
        stream_touch(&e->catalog, j.stream);
    w->call.result = v > 0 ? 0 : v;
    w->call.finish = embedded_finish_write;
    embedded_finish_after(e, &w->call, j.stream, batch_behind(e, &j, v));
}

static void embedded_run_write(struct task *t)
{
    struct store_write *w = container_of(t, struct store_write, call.task);
    struct embedded *e = embedded_of(w->call.store);
    if (!embedded_must_queue(e, &w->call) && !embedded_large_take(e, w))
        embedded_judge(e, w, NULL);
}

int embedded_judge_only(struct embedded *e, struct store_write *w)
{
    struct judgement j;
    struct fork_position none = {0};
    return catalog_judge(&e->catalog, w, &j, embedded_use_fork_position, &none);
}

static void embedded_run_write_whole(struct task *t)
{
    struct store_write *w = container_of(t, struct store_write, call.task);
    embedded_judge(embedded_of(w->call.store), w, NULL);
}

/* If it has to wait for room, it is not put in parts once more. */
void embedded_write_now(struct embedded *e, struct store_write *w)
{
    w->call.task.run = embedded_run_write_whole;
    embedded_judge(e, w, NULL);
}

void embedded_write(struct store *s, struct store_write *w)
{
    w->created = w->duplicate = false;
    store_post(s, &w->call, embedded_run_write);
}

/* ---- remove ---- */

/* The catalog takes a stream away: asked for, expired, or because its last fork is gone. */
void embedded_on_removing(struct catalog *c, struct stream *s)
{
    struct embedded *e = container_of(c, struct embedded, catalog);
    bool again = s->deleted; /* its name goes now; the rest has gone before */
    embedded_before_change(e, s);
    list_remove(&s->dirty);
    if (s->family != NULL)
        embedded_mark_dirty(e, s);
    else if (s->life <= e->snapped)
        lives_add(&e->removed, s->life); /* others are in no index */
    if (e->recovery != NULL && s->family == NULL)
        embedded_recover_forget(e->recovery, s->life);
    if (e->recovery != NULL || again)
        return;
    if (journal_room(e->journal, RECORD_SMALL_MAX) != 0) {
        /* Until it is written down, an expired stream is there after a crash, and expires again. */
        lives_add(&e->unrecorded, s->life);
        embedded_retry_soon(e);
        return;
    }
    record_put_remove(&e->scratch, s->life);
    s->last_batch = e->removed_batch = embedded_put_record(e);
}

/* What it keeps for its forks is less at the next checkpoint. */
void embedded_on_shrinking(struct catalog *c, struct stream *s)
{
    struct embedded *e = container_of(c, struct embedded, catalog);
    embedded_before_change(e, s);
    embedded_mark_dirty(e, s);
}

static void embedded_finish_remove(struct store_call *c)
{
    struct store_remove *r = container_of(c, struct store_remove, call);
    r->done(r, c->result);
}

static void embedded_run_remove(struct task *t)
{
    struct store_remove *r = container_of(t, struct store_remove, call.task);
    struct embedded *e = embedded_of(r->call.store);
    struct stream *s = NULL;
    if (embedded_must_queue(e, &r->call))
        return;
    int err = catalog_find(&e->catalog, r->name, &s);
    if (err == 0)
        err = embedded_check_room(e, RECORD_SMALL_MAX, ROOM_LESS);
    if (embedded_stall(e, &r->call, err) ||
        (is_absence(err) && embedded_stall_unrecorded(e, &r->call)))
        return;
    uint64_t batch = e->removed_batch;
    if (err == 0) {
        s->pins++;
        catalog_remove(&e->catalog, s);
        batch = s->last_batch;
        stream_unpin(s);
    }
    r->call.result = err;
    r->call.finish = embedded_finish_remove;
    embedded_finish_after(e, &r->call, NULL, batch);
    embedded_rest_look(e);
}

void embedded_remove(struct store *s, struct store_remove *r)
{
    store_post(s, &r->call, embedded_run_remove);
}

/* ---- documents ---- */

static void embedded_finish_put(struct store_call *c)
{
    struct store_put *p = container_of(c, struct store_put, call);
    p->done(p, c->result);
}

static void embedded_run_put(struct task *t)
{
    struct store_put *p = container_of(t, struct store_put, call.task);
    struct embedded *e = embedded_of(p->call.store);
    size_t n = 64;
    for (size_t i = 0; i < p->n_docs; i++)
        n += p->docs[i].key.n + p->docs[i].value.n + 32;
    if (embedded_must_queue(e, &p->call))
        return;
    int err = catalog_check_docs(&e->catalog, p->docs, p->n_docs);
    if (err == 0)
        err = embedded_check_room(e, n, embedded_room_of_docs(e, p->docs, p->n_docs));
    if (embedded_stall(e, &p->call, err))
        return;
    if (err == 0) {
        embedded_before_docs(e, p->docs, p->n_docs);
        catalog_put_docs(&e->catalog, p->docs, p->n_docs);
        embedded_mark_docs(e, p->docs, p->n_docs);
        record_put_docs(&e->scratch, p->docs, p->n_docs);
        e->docs_batch = embedded_put_record(e);
    }
    p->call.result = err;
    p->call.finish = embedded_finish_put;
    embedded_finish_after(e, &p->call, NULL, e->docs_batch);
    embedded_rest_look(e);
}

void embedded_put(struct store *s, struct store_put *p)
{
    store_post(s, &p->call, embedded_run_put);
}
