// SPDX-License-Identifier: Apache-2.0
#include "engine/writer.h"
#include "base/err.h"

#define RETRY_MIN_MS    50
#define RETRY_DOUBLINGS 5 /* to 1.6 s */

static void on_retry(struct timer *t);

void writer_init(struct writer *w, uint64_t patience_ms, void (*done)(struct writer *w, int err))
{
    *w = (struct writer){.patience_ms = patience_ms, .done = done};
    timer_init(&w->retry, on_retry);
}

/* To close a stream that is closed is no failure, whoever did it. */
static bool may_come_twice(const struct store_write *w)
{
    return w->close && w->data.n == 0 && w->create == NULL && w->n_docs == 0;
}

static void set_claim(struct writer *w)
{
    static const char hex[] = "0123456789abcdef";
    struct store *s = w->store;
    w->write.claim = (struct producer_claim){0};
    if (s->author == 0 || may_come_twice(&w->write))
        return;
    for (size_t i = 0; i < sizeof w->id; i++)
        w->id[i] = hex[s->author >> (60 - 4 * i) & 15];
    w->write.claim =
        (struct producer_claim){.id = str_of(w->id, sizeof w->id), .epoch = ++s->claimed};
}

static void send(struct writer *w)
{
    w->under_way = true;
    w->write.producer = (struct producer_state){0};
    store_write(w->store, &w->write);
}

static void on_retry(struct timer *t)
{
    send(container_of(t, struct writer, retry));
}

/* Doubled each time; the time since the first failure bounds them all. */
static bool try_again(struct writer *w)
{
    struct sched *sched = w->store->sched;
    if (w->tries == 0)
        w->trouble_ms = sched->now_ms;
    if (w->stopped || sched->now_ms - w->trouble_ms >= w->patience_ms)
        return false;
    unsigned doublings = w->tries < RETRY_DOUBLINGS ? w->tries : RETRY_DOUBLINGS;
    w->tries++;
    w->write.again = true;
    sched_start(sched, &w->retry, (uint64_t)RETRY_MIN_MS << doublings);
    return true;
}

/* Somebody has closed the stream since; but before that it took this. */
static bool was_taken(const struct store_write *w)
{
    return w->again && w->claim.id.n > 0 && w->producer.epoch == w->claim.epoch;
}

static void on_written(struct store_write *write, int err)
{
    struct writer *w = container_of(write, struct writer, write);
    w->under_way = false;
    bool waits = ERR_IS_PASSING(err) || (err == ERR_FULL && w->waits_for_room);
    if (waits && try_again(w))
        return;
    if (err == ERR_LIMIT && write->create == NULL && write->claim.id.n > 0) {
        write->claim = (struct producer_claim){0}; /* too many processes have claimed it before */
        send(w);
        return;
    }
    if (err == ERR_CLOSED && was_taken(write))
        err = 0;
    if (err == 0) {
        write->duplicate = false;
        w->tries = 0;
    }
    w->busy = false;
    w->done(w, err);
}

void writer_start(struct writer *w, struct store *store)
{
    w->store = store;
    w->busy = true;
    w->stopped = false;
    w->write.again = false;
    w->write.done = on_written;
    set_claim(w);
    send(w);
}

bool writer_stop(struct writer *w)
{
    w->stopped = true;
    if (timer_running(&w->retry)) {
        timer_stop(&w->retry);
        w->busy = false;
    }
    return w->busy;
}
