// SPDX-License-Identifier: Apache-2.0
/* embedded_call.c -- how an operation waits: for the batch that makes its answer true, or, in
 * order, for room in the journal. */
#include "base/err.h"
#include "base/must.h"
#include "store/embedded/embedded_core.h"
#include "store/embedded/record.h"

#include <stdlib.h>

#define RETRY_MS         10
#define DELETE_RESERVE   (64 * 1024) /* room in the journal that data leaves for deletes, at most */
#define REMOVALS_AT_ONCE 1024
#define DOC_SLACK        64 /* a number in it may have got a digit more */
#define CALLS_UNLOOKED   8  /* that are answered between two looks at the clock */

/* ---- for a batch ---- */

static void embedded_complete(struct store_call *c)
{
    struct stream *s = c->stream;
    store_count(c->store, c->result);
    c->finish(c); /* c may be gone then */
    if (s != NULL)
        stream_unpin(s);
}

/* After n calls. What follows an answer may take long: the next step of a session, say. */
static bool slice_is_over(const struct embedded *e, uint32_t n)
{
    return n == e->config.call_slice ||
           (n > 0 && n % CALLS_UNLOOKED == 0 && sched_is_long(e->store.sched));
}

/* A batch may hold tens of thousands of calls: some of them, and then others have their turn. */
static void embedded_complete_some(struct embedded *e)
{
    for (uint32_t n = 0; !slice_is_over(e, n) && !list_empty(&e->completing); n++) {
        struct store_call *c = list_item(e->completing.next, struct store_call, link);
        list_remove(&c->link);
        if (c->batch > journal_durable(e->journal)) {
            c->result = journal_error(e->journal);
            must(c->result != 0);
        }
        embedded_complete(c);
    }
    if (list_empty(&e->completing))
        return;
    sched_work(e->store.sched, "answers");
    sched_post(e->store.sched, &e->complete);
}

static void embedded_run_complete(struct task *t)
{
    struct embedded *e = container_of(t, struct embedded, complete);
    sched_work(e->store.sched, "answers");
    embedded_complete_some(e);
    embedded_check_closed(e);
}

static void embedded_on_batch(struct journal_waiter *w, int err)
{
    struct batch_calls *b = container_of(w, struct batch_calls, waiter);
    struct embedded *e = b->embedded;
    if (err != 0 && !e->told_failure && e->config.failed != NULL)
        e->config.failed(e->config.failed_ctx, err);
    e->told_failure = e->told_failure || err != 0;
    list_splice(&e->completing, &b->calls);
    embedded_complete_some(e);
    embedded_retry_stalled(e);
}

bool embedded_has_to_wait(struct embedded *e, uint64_t batch)
{
    return batch > journal_durable(e->journal) || !list_empty(&e->completing);
}

void embedded_finish_after(struct embedded *e, struct store_call *c, struct stream *s,
                           uint64_t batch)
{
    c->batch = batch;
    c->stream = s;
    if (s != NULL)
        s->pins++;
    list_init(&c->link);
    if (!embedded_has_to_wait(e, batch)) {
        embedded_complete(c);
    } else if (batch <= journal_durable(e->journal)) {
        list_push(&e->completing, &c->link); /* its answer may come from those before it */
    } else {
        struct batch_calls *b = &e->batches[batch % JOURNAL_BATCHES];
        list_push(&b->calls, &c->link);
        if (list_empty(&b->waiter.link))
            journal_wait(e->journal, batch, &b->waiter);
    }
}

uint64_t embedded_put_record(struct embedded *e)
{
    uint64_t batch = journal_put(e->journal, buf_str(&e->scratch), NULL);
    e->scratch.n = 0;
    return batch;
}

/* ---- for room ---- */

/* Small files are a test's. */
size_t embedded_reserve(const struct embedded *e)
{
    uint64_t part = e->config.journal.file_bytes / 16;
    return part < DELETE_RESERVE ? (size_t)part : DELETE_RESERVE;
}

/* Checkpoints do not keep up. */
static bool is_behind(const struct embedded *e, enum room what)
{
    return (what == ROOM_EVENTS && e->unrested > e->config.unrested_max) ||
           (what >= ROOM_CHANGE && journal_bytes(e->journal) > e->config.journal_max);
}

static uint64_t disk_bytes(const struct embedded *e)
{
    return e->segment_bytes + e->index_bytes + journal_file_bytes(e->journal);
}

int embedded_check_room(struct embedded *e, size_t n, enum room what)
{
    if (is_behind(e, what))
        return ERR_BUSY;
    if (what >= ROOM_DOCS && e->config.disk_cap > 0 && disk_bytes(e) + n > e->config.disk_cap)
        return ERR_FULL;
    return journal_room(e->journal, n + (what == ROOM_EVENTS ? embedded_reserve(e) : 0));
}

/* A document that is put again with about as many bytes takes no more of the disk. */
enum room embedded_room_of_docs(struct embedded *e, const struct doc_put *docs, size_t n)
{
    size_t before = 0, after = 0, put = 0;
    for (size_t i = 0; i < n; i++) {
        const struct doc *d = map_get(&e->catalog.docs, docs[i].key);
        before += d == NULL || d->value.p == NULL ? 0 : d->key.n + d->value.n;
        after += docs[i].value.p == NULL ? 0 : docs[i].key.n + docs[i].value.n;
        put += docs[i].value.p != NULL;
    }
    return put == 0 ? ROOM_LESS : after > before + DOC_SLACK ? ROOM_DOCS : ROOM_CHANGE;
}

void embedded_retry_soon(struct embedded *e)
{
    sched_start(e->store.sched, &e->retry, RETRY_MS);
}

static void run_later(struct embedded *e, struct store_call *c)
{
    list_push(&e->stalled, &c->link);
    embedded_retry_soon(e);
}

bool embedded_stall(struct embedded *e, struct store_call *c, int err)
{
    if (err != ERR_BUSY || is_behind(e, ROOM_EVENTS))
        return false;
    run_later(e, c);
    return true;
}

bool embedded_must_queue(struct embedded *e, struct store_call *c)
{
    list_init(&c->link);
    if (e->retrying || list_empty(&e->stalled))
        return false;
    list_push(&e->stalled, &c->link);
    return true;
}

bool embedded_record_removals(struct embedded *e)
{
    size_t n = 0;
    if (e->stage >= EMBEDDED_CLOSING)
        return true;
    while (n < e->unrecorded.n && n < REMOVALS_AT_ONCE &&
           journal_room(e->journal, RECORD_SMALL_MAX) == 0) {
        record_put_remove(&e->scratch, e->unrecorded.items[n++]);
        e->removed_batch = embedded_put_record(e);
    }
    e->unrecorded.n -= n;
    if (n > 0)
        memmove(e->unrecorded.items, e->unrecorded.items + n,
                e->unrecorded.n * sizeof *e->unrecorded.items);
    int room = e->unrecorded.n == 0 ? ERR_FULL : journal_room(e->journal, RECORD_SMALL_MAX);
    return room != 0 && room != ERR_BUSY;
}

bool embedded_stall_unrecorded(struct embedded *e, struct store_call *c)
{
    if (embedded_record_removals(e))
        return false;
    run_later(e, c);
    return true;
}

void embedded_retry_stalled(struct embedded *e)
{
    embedded_record_removals(e);
    struct link now;
    list_init(&now);
    list_splice(&now, &e->stalled);
    e->retrying = true;
    for (uint32_t n = 0; !slice_is_over(e, n) && !list_empty(&now) && list_empty(&e->stalled);
         n++) {
        struct store_call *c = list_item(now.next, struct store_call, link);
        list_remove(&c->link);
        c->task.run(&c->task);
    }
    e->retrying = false;
    if (list_empty(&e->stalled) && !list_empty(&now))
        sched_post(e->store.sched, &e->rerun);
    list_splice(&e->stalled, &now);
    embedded_check_stopped(e);
}

static void embedded_run_stalled(struct task *t)
{
    struct embedded *e = container_of(t, struct embedded, rerun);
    sched_work(e->store.sched, "stalled writes");
    embedded_retry_stalled(e);
}

static void embedded_on_retry(struct timer *t)
{
    struct embedded *e = container_of(t, struct embedded, retry);
    embedded_retry_stalled(e);
    if (e->unrecorded.n > 0 && e->stage == EMBEDDED_RUNNING)
        embedded_retry_soon(e);
}

void embedded_answer_absent(struct embedded *e, struct store_call *c, int err)
{
    if (embedded_stall_unrecorded(e, c))
        return;
    c->result = err;
    embedded_finish_after(e, c, NULL, e->removed_batch);
}

/* ---- all of it ---- */

void embedded_call_init(struct embedded *e)
{
    for (size_t i = 0; i < JOURNAL_BATCHES; i++) {
        struct batch_calls *b = &e->batches[i];
        b->embedded = e;
        b->waiter.done = embedded_on_batch;
        list_init(&b->waiter.link);
        list_init(&b->calls);
    }
    list_init(&e->completing);
    list_init(&e->stalled);
    task_init(&e->complete, embedded_run_complete);
    task_init(&e->rerun, embedded_run_stalled);
    timer_init(&e->retry, embedded_on_retry);
}

void embedded_call_deinit(struct embedded *e)
{
    for (size_t i = 0; i < JOURNAL_BATCHES; i++)
        must(list_empty(&e->batches[i].calls));
    must(list_empty(&e->completing) && list_empty(&e->stalled));
    task_cancel(&e->complete);
    task_cancel(&e->rerun);
    timer_stop(&e->retry);
}
