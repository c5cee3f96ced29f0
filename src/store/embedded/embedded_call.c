// SPDX-License-Identifier: Apache-2.0
/* embedded_call.c -- how an operation waits: for the batch that makes its answer true, or, in
 * order, for room in the journal. */
#include "base/err.h"
#include "base/mem.h"
#include "store/embedded/embedded_core.h"
#include "store/embedded/record.h"

#include <stdlib.h>

#define RETRY_MS       10
#define DELETE_RESERVE (64 * 1024) /* room in the journal that data leaves for deletes, at most */

/* ---- for a batch ---- */

struct batch_waiter {
    struct journal_waiter waiter;
    struct embedded *embedded;
    uint64_t batch;
};

static void embedded_complete(struct store_call *c)
{
    struct stream *s = c->stream;
    store_count(c->store, c->result);
    c->finish(c); /* c may be gone then */
    if (s != NULL)
        stream_unpin(s);
}

static void embedded_on_batch(struct journal_waiter *jw, int err)
{
    struct batch_waiter *bw = container_of(jw, struct batch_waiter, waiter);
    struct embedded *e = bw->embedded;
    if (err != 0 && !e->told_failure && e->config.failed != NULL)
        e->config.failed(e->config.failed_ctx, err);
    e->told_failure = e->told_failure || err != 0;
    while (!list_empty(&e->waiting)) {
        struct store_call *c = list_item(e->waiting.next, struct store_call, link);
        if (c->batch > bw->batch)
            break;
        list_remove(&c->link);
        if (err != 0)
            c->result = err;
        embedded_complete(c);
    }
    free(bw);
    embedded_retry_stalled(e);
}

void embedded_finish_after(struct embedded *e, struct store_call *c, struct stream *s,
                           uint64_t batch)
{
    c->batch = batch;
    c->stream = s;
    if (s != NULL)
        s->pins++;
    list_init(&c->link);
    if (batch <= journal_durable(e->journal)) {
        embedded_complete(c);
        return;
    }
    /* A failed or duplicate write may wait for an older batch than the last call does. */
    struct link *before = &e->waiting;
    while (before->prev != &e->waiting &&
           list_item(before->prev, struct store_call, link)->batch > batch)
        before = before->prev;
    list_push(before, &c->link);
    if (batch <= e->awaited && journal_error(e->journal) == 0)
        return; /* with an error those who waited have been told already */
    e->awaited = batch;
    struct batch_waiter *bw = mem_alloc(sizeof *bw);
    *bw = (struct batch_waiter){{.done = embedded_on_batch}, e, batch};
    journal_wait(e->journal, batch, &bw->waiter);
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

int embedded_check_room(struct embedded *e, size_t n, bool data)
{
    if (data && e->unrested > e->config.unrested_max)
        return ERR_BUSY;
    if (data && e->config.disk_cap > 0 &&
        e->segment_bytes + journal_file_bytes(e->journal) + n > e->config.disk_cap)
        return ERR_FULL;
    return journal_room(e->journal, n + (data ? embedded_reserve(e) : 0));
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
    if (err != ERR_BUSY || e->unrested > e->config.unrested_max)
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
    if (e->stage == EMBEDDED_CLOSING)
        return true;
    while (n < e->unrecorded.n && journal_room(e->journal, RECORD_SMALL_MAX) == 0) {
        record_put_remove(&e->scratch, e->unrecorded.items[n++]);
        e->removed_batch = embedded_put_record(e);
    }
    e->unrecorded.n -= n;
    if (n > 0)
        memmove(e->unrecorded.items, e->unrecorded.items + n,
                e->unrecorded.n * sizeof *e->unrecorded.items);
    return e->unrecorded.n == 0 || journal_room(e->journal, RECORD_SMALL_MAX) != ERR_BUSY;
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
    while (!list_empty(&now) && list_empty(&e->stalled)) {
        struct store_call *c = list_item(now.next, struct store_call, link);
        list_remove(&c->link);
        c->task.run(&c->task);
    }
    e->retrying = false;
    list_splice(&e->stalled, &now);
    embedded_check_stopped(e);
}

void embedded_on_retry(struct timer *t)
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
