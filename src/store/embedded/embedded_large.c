// SPDX-License-Identifier: Apache-2.0
/* embedded_large.c -- large appends, whose data goes into the journal in parts.
 *
 * As one record, 60 MB would have everybody wait until they are written, and before that for a file
 * of the journal that has the room. So the data is put in parts, each in another batch, with what
 * others write beside it; then the write is judged again, and a small record applies it. A crash
 * before that leaves parts that mean nothing.
 *
 *     waiting --room--> putting parts --all there--> judged, applied or refused
 *                ^           |
 *                `-----------' a checkpoint came between: replay would not see all parts
 *
 * If that happens again, when the store stops, or when there is no room for long, the write is done
 * as any other, in one record. One is under way at a time; others wait for it, and small writes for
 * none of them. It begins only when what has not come to rest leaves room for small ones. Those
 * that wait for room do so together: when one has waited in vain, the next does not wait as long
 * again. */
#include "base/err.h"
#include "store/catalog/verdict.h"
#include "store/embedded/embedded_core.h"
#include "store/embedded/record.h"

#define TRIES_MAX   2
#define RETRY_MS    10
#define RETRIES_MAX 1000
#define SMALL_PART  8 /* of a file, that parts leave */

static struct store_write *first_write(struct embedded *e)
{
    struct store_call *c = list_item(e->large.writes.next, struct store_call, link);
    return container_of(c, struct store_write, call);
}

static void embedded_large_step(struct embedded *e);

static void large_begin(struct embedded *e)
{
    e->large.at = 0;
    e->large.tries = 0;
    embedded_large_step(e);
}

/* The rest of it is as with any other write. */
static void large_finish(struct embedded *e, bool in_parts)
{
    struct store_write *w = first_write(e);
    list_remove(&w->call.link);
    e->large.in_parts = in_parts;
    embedded_write_now(e, w);
    e->large.in_parts = false;
    if (in_parts)
        e->large.retries = 0;
    if (!list_empty(&e->large.writes))
        large_begin(e);
    else
        embedded_check_stopped(e);
}

/* Others may wait for the same batch, and are not told yet: nothing is applied before they are. */
static void embedded_large_on_part(struct journal_waiter *w, int err)
{
    struct embedded *e = container_of(w, struct embedded, large.waiter);
    sched_post(e->store.sched, &e->large.go_on);
}

static void embedded_large_go_on(struct task *t)
{
    struct embedded *e = container_of(t, struct embedded, large.go_on);
    sched_work(e->store.sched, "large append");
    e->large.waiting = false;
    embedded_large_step(e);
}

static void embedded_large_on_retry(struct timer *t)
{
    embedded_large_step(container_of(t, struct embedded, large.retry));
}

static void put_part(struct embedded *e, struct str bytes)
{
    struct large *l = &e->large;
    record_put_part(&e->scratch, l->at, bytes);
    uint64_t batch = embedded_put_record(e);
    if (l->at == 0)
        l->first = batch;
    l->at += bytes.n;
    l->waiting = true;
    journal_wait(e->journal, batch, &l->waiter);
}

/* An eighth of what may wait for a checkpoint is for small writes. */
static bool leaves_room(uint64_t there, size_t n, uint64_t most)
{
    return there == 0 || there + n <= most - most / 8;
}

static bool is_crowded(struct embedded *e, size_t n)
{
    if (leaves_room(e->unrested, n, e->config.unrested_max) &&
        leaves_room(journal_bytes(e->journal), n, e->config.journal_max))
        return false;
    if (!e->rest_failed)
        embedded_rest_start(e);
    return true;
}

/* Parts may come faster than files for them are made ready. The rest of the last file is for small
 * writes: only the parts wait. */
static int room_for(struct embedded *e, size_t n, size_t all)
{
    if (!list_empty(&e->stalled) || (e->large.at == 0 && is_crowded(e, all)))
        return ERR_BUSY;
    return embedded_check_room(e, n + e->config.journal.file_bytes / SMALL_PART, ROOM_EVENTS);
}

static void embedded_large_step(struct embedded *e)
{
    struct large *l = &e->large;
    const struct store_write *w = first_write(e);
    if (l->at == w->data.n && l->first < e->cut) {
        l->tries++;
        l->at = 0;
    }
    if (e->stage != EMBEDDED_RUNNING || journal_error(e->journal) != 0 || l->tries == TRIES_MAX ||
        l->retries > RETRIES_MAX) {
        large_finish(e, false);
        return;
    }
    size_t left = w->data.n - l->at;
    size_t n = left < e->config.part_bytes ? left : e->config.part_bytes;
    l->in_parts = true;
    size_t bound = left > 0 ? RECORD_PART_HEAD + n : embedded_record_bound(e, w);
    l->in_parts = false;
    int err = room_for(e, bound, w->data.n);
    if (err == ERR_BUSY) {
        l->retries++;
        sched_start(e->store.sched, &l->retry, RETRY_MS);
    } else if (err != 0 || left == 0) {
        large_finish(e, err == 0);
    } else {
        put_part(e, str_of(w->data.p + l->at, n));
    }
}

bool embedded_large_take(struct embedded *e, struct store_write *w)
{
    if (w->block == NULL || w->block->n < e->config.large_bytes || e->stage != EMBEDDED_RUNNING ||
        embedded_judge_only(e, w) != VERDICT_APPLY)
        return false;
    bool alone = list_empty(&e->large.writes);
    list_push(&e->large.writes, &w->call.link);
    if (alone) {
        e->large.retries = 0;
        large_begin(e);
    }
    return true;
}

void embedded_large_init(struct embedded *e)
{
    list_init(&e->large.writes);
    list_init(&e->large.waiter.link);
    e->large.waiter.done = embedded_large_on_part;
    task_init(&e->large.go_on, embedded_large_go_on);
    timer_init(&e->large.retry, embedded_large_on_retry);
}

/* Those that wait for room do so no more; a part that is being written is waited for. */
void embedded_large_stop(struct embedded *e)
{
    timer_stop(&e->large.retry);
    if (!list_empty(&e->large.writes) && !e->large.waiting)
        embedded_large_step(e);
}
