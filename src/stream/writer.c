// SPDX-License-Identifier: Apache-2.0
#include "stream/writer.h"
#include "base/backoff.h"
#include "base/err.h"
#include "base/hex.h"

#define RETRY_MIN_MS 50
#define RETRY_MAX_MS 1600

static void writer_on_retry(struct timer *t);

void writer_init(struct writer *w, uint64_t retry_for_ms, void (*done)(struct writer *w, int err))
{
    *w = (struct writer){.retry_for_ms = retry_for_ms, .done = done};
    timer_init(&w->retry, writer_on_retry);
}

/* To close a stream that is closed is no failure, whoever did it. */
static bool may_come_twice(const struct store_write *w)
{
    return w->close && w->data.n == 0 && w->create == NULL && w->n_docs == 0;
}

static void set_claim(struct writer *w)
{
    struct store *s = w->store;
    if (s->author == 0 || w->write.claim.id.n > 0 || may_come_twice(&w->write))
        return;
    hex_encode_u64(s->author, w->id);
    w->write.claim =
        (struct producer_claim){.id = str_of(w->id, sizeof w->id), .epoch = ++s->claimed};
}

static void send(struct writer *w)
{
    w->write.producer = (struct producer_state){0};
    store_write(w->store, &w->write);
}

static void writer_on_retry(struct timer *t)
{
    send(container_of(t, struct writer, retry));
}

/* Doubled each time; the time since the first failure bounds them all. */
static bool writer_try_again(struct writer *w)
{
    struct sched *sched = w->store->sched;
    if (w->tries == 0)
        w->trouble_ms = sched->now_ms;
    if (w->stopped || sched->now_ms - w->trouble_ms >= w->retry_for_ms)
        return false;
    w->write.again = true;
    sched_start(sched, &w->retry, backoff_ms(RETRY_MIN_MS, RETRY_MAX_MS, ++w->tries));
    return true;
}

static bool is_claimed(const struct writer *w)
{
    return w->write.claim.id.p == w->id;
}

/* Somebody has closed the stream since; but before that it took this. */
static bool was_taken(const struct writer *w)
{
    return is_claimed(w) && w->write.producer.epoch == w->write.claim.epoch;
}

/* What came back is how the stream is now, maybe with what others have written since. */
static void look_back(struct writer *w)
{
    struct store_write *write = &w->write;
    uint64_t events = w->events + (write->data.n > 0 ? write->n_events : 0);
    write->duplicate = false;
    if (!write->if_match || write->info.events == events)
        return; /* the tail may be further on than its bytes: Redis jumps */
    w->followed = true;
    write->info.events = events;
    write->info.tail = write->match.pos + write->data.n;
}

static void writer_on_written(struct store_write *write, int err)
{
    struct writer *w = container_of(write, struct writer, write);
    bool waits = ERR_IS_PASSING(err) || (err == ERR_FULL && w->waits_for_room);
    if (waits && writer_try_again(w))
        return;
    if (err == ERR_LIMIT && write->create == NULL && is_claimed(w)) {
        write->claim = (struct producer_claim){0}; /* too many processes have claimed it before */
        send(w);
        return;
    }
    bool taken = err == ERR_CLOSED && was_taken(w);
    if (taken)
        err = 0;
    if (!waits) /* a refusal is an answer, too */
        w->tries = 0;
    if (is_claimed(w) && (taken || write->duplicate))
        look_back(w);
    w->busy = false;
    w->done(w, err);
}

void writer_start(struct writer *w, struct store *store)
{
    w->store = store;
    w->busy = true;
    w->stopped = w->followed = false;
    w->write.again = false;
    w->write.done = writer_on_written;
    set_claim(w);
    send(w);
}

void writer_retry_now(struct writer *w)
{
    if (timer_running(&w->retry))
        sched_start(w->store->sched, &w->retry, 0);
}

bool writer_stop(struct writer *w)
{
    bool waited = timer_running(&w->retry);
    w->stopped = true;
    timer_stop(&w->retry);
    w->busy = w->busy && !waited;
    return waited;
}
