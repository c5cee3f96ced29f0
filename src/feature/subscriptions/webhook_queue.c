// SPDX-License-Identifier: Apache-2.0
#include "feature/subscriptions/webhook_queue.h"
#include "base/mem.h"
#include "base/must.h"

#include <stdlib.h>

struct webhook_receiver {
    struct link link; /* in a lane, or among the idle */
    struct link waiting;
    size_t n_running;
    enum webhook_pace pace;
    size_t n;
    char name[];
};

static struct str webhook_receiver_name(const struct webhook_receiver *r)
{
    return str_of(r->name, r->n);
}

static bool webhook_receiver_idle(const struct webhook_receiver *r)
{
    return r->n_running == 0 && list_empty(&r->waiting);
}

static void webhook_receiver_free(struct webhook_queue *q, struct webhook_receiver *r)
{
    list_remove(&r->link);
    map_remove(&q->receivers, webhook_receiver_name(r));
    q->n_idle--;
    free(r);
}

/* At the end of the list that it belongs to by now. */
static void webhook_receiver_place(struct webhook_queue *q, struct webhook_receiver *r)
{
    struct webhook_lane *lane = &q->lanes[r->pace];
    list_remove(&r->link);
    if (!list_empty(&r->waiting)) {
        if (r->n_running < WEBHOOK_DELIVERIES_MAX)
            list_push(r->n_running == 0 ? &lane->free : &lane->busy, &r->link);
    } else if (r->n_running == 0) {
        list_push(&q->idle, &r->link);
        if (++q->n_idle > WEBHOOK_RECEIVERS_MAX)
            webhook_receiver_free(q, list_item(q->idle.next, struct webhook_receiver, link));
    }
}

static struct webhook_receiver *webhook_receiver_of(struct webhook_queue *q, struct str name)
{
    struct webhook_receiver *r = map_get(&q->receivers, name);
    if (r != NULL) {
        q->n_idle -= webhook_receiver_idle(r);
        return r;
    }
    r = mem_zalloc(sizeof *r + name.n);
    r->n = name.n;
    memcpy(r->name, name.p, name.n);
    list_init(&r->link);
    list_init(&r->waiting);
    map_put(&q->receivers, webhook_receiver_name(r), r);
    return r;
}

void webhook_queue_init(struct webhook_queue *q)
{
    *q = (struct webhook_queue){0};
    map_init(&q->receivers);
    list_init(&q->idle);
    for (size_t i = 0; i < WEBHOOK_PACES; i++) {
        list_init(&q->lanes[i].free);
        list_init(&q->lanes[i].busy);
    }
}

void webhook_queue_deinit(struct webhook_queue *q)
{
    must(q->n_waiting == 0 && q->n_running == 0);
    list_each_safe (l, &q->idle)
        webhook_receiver_free(q, list_item(l, struct webhook_receiver, link));
    map_deinit(&q->receivers);
}

void webhook_queue_put(struct webhook_queue *q, struct webhook_turn *t, struct str receiver)
{
    t->receiver = webhook_receiver_of(q, receiver);
    bool first = list_empty(&t->receiver->waiting);
    list_push(&t->receiver->waiting, &t->link);
    q->n_waiting++;
    if (first)
        webhook_receiver_place(q, t->receiver);
}

void webhook_queue_remove(struct webhook_queue *q, struct webhook_turn *t)
{
    list_remove(&t->link);
    q->n_waiting--;
    if (list_empty(&t->receiver->waiting))
        webhook_receiver_place(q, t->receiver);
}

/* The receiver whose turn it is; NULL: none, or there is no place. */
static struct webhook_receiver *webhook_lane_next(const struct webhook_lane *lane)
{
    const struct link *from = NULL;
    if (!list_empty(&lane->free) && lane->n_running < WEBHOOK_DELIVERIES_MAX + WEBHOOK_SPARE)
        from = &lane->free;
    else if (!list_empty(&lane->busy) && lane->n_running < WEBHOOK_DELIVERIES_MAX)
        from = &lane->busy;
    return from == NULL ? NULL : list_item(from->next, struct webhook_receiver, link);
}

static void webhook_turn_take_place(struct webhook_queue *q, struct webhook_turn *t,
                                    enum webhook_pace place)
{
    t->place = place;
    q->lanes[place].n_running++;
}

struct webhook_turn *webhook_queue_next(struct webhook_queue *q)
{
    for (size_t i = 0; i < WEBHOOK_PACES; i++) {
        struct webhook_receiver *r = webhook_lane_next(&q->lanes[i]);
        if (r == NULL)
            continue;
        struct webhook_turn *t = list_item(r->waiting.next, struct webhook_turn, link);
        list_remove(&t->link);
        webhook_turn_take_place(q, t, r->pace);
        r->n_running++;
        q->n_running++;
        q->n_waiting--;
        webhook_receiver_place(q, r);
        return t;
    }
    return NULL;
}

static void webhook_receiver_set_pace(struct webhook_queue *q, struct webhook_receiver *r,
                                      enum webhook_pace pace)
{
    if (r->pace == pace)
        return;
    r->pace = pace;
    webhook_receiver_place(q, r);
}

bool webhook_queue_overdue(struct webhook_queue *q, struct webhook_turn *t)
{
    struct webhook_lane *now = &q->lanes[t->place];
    webhook_receiver_set_pace(q, t->receiver, WEBHOOK_SLOW);
    if (t->place == WEBHOOK_SLOW)
        return true;
    if (q->lanes[WEBHOOK_SLOW].n_running < WEBHOOK_DELIVERIES_MAX + WEBHOOK_SPARE) {
        now->n_running--;
        webhook_turn_take_place(q, t, WEBHOOK_SLOW);
        return true;
    }
    return list_empty(&now->free) && list_empty(&now->busy);
}

void webhook_queue_end(struct webhook_queue *q, struct webhook_turn *t, uint64_t took_ms)
{
    struct webhook_receiver *r = t->receiver;
    q->lanes[t->place].n_running--;
    q->n_running--;
    r->n_running--;
    if (took_ms != WEBHOOK_NOT_ASKED)
        r->pace = took_ms < WEBHOOK_QUICK_MS ? WEBHOOK_QUICK : WEBHOOK_SLOW;
    webhook_receiver_place(q, r);
}
