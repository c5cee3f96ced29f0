// SPDX-License-Identifier: Apache-2.0
/* webhook_queue.h -- which delivery is next, so that slow receivers delay nobody but themselves.
 *
 * A *receiver* is the host and port of a webhook. Receivers are told apart by how long they took
 * the last time, and each pace has places of its own:
 *
 *     UNKNOWN --within WEBHOOK_QUICK_MS--> QUICK
 *     UNKNOWN --longer-------------------> SLOW     QUICK <--> SLOW, in the same way
 *
 * Of those with the same pace, receivers that have nothing under way go first, and then they take
 * turns. The last places of a pace are for the former alone: one receiver cannot take them all.
 *
 * A delivery that takes longer than WEBHOOK_QUICK_MS moves to a place for slow ones. If there is
 * none, and others wait for its place, it must be given up and tried again later.
 *
 * Memory is bounded by the number of subscriptions, each of which has one delivery at a time. */
#ifndef FEATURE_SUBSCRIPTIONS_WEBHOOK_QUEUE_H
#define FEATURE_SUBSCRIPTIONS_WEBHOOK_QUEUE_H

#include "base/list.h"
#include "base/map.h"

#define WEBHOOK_QUICK_MS       2000
#define WEBHOOK_DELIVERIES_MAX 64    /* at once, of one pace, and of one receiver */
#define WEBHOOK_SPARE          32    /* more, of receivers that have none under way */
#define WEBHOOK_RECEIVERS_MAX  10000 /* that are remembered while nothing is to be delivered */

enum webhook_pace { WEBHOOK_UNKNOWN, WEBHOOK_QUICK, WEBHOOK_SLOW, WEBHOOK_PACES };

struct webhook_receiver;

/* One delivery; the caller embeds it. */
struct webhook_turn {
    struct link link; /* while it waits; list_init first */
    struct webhook_receiver *receiver;
    enum webhook_pace place; /* while it is under way: whose place it has */
};

struct webhook_queue {
    struct map receivers; /* by name */
    struct link idle;     /* receivers with nothing to deliver, longest idle first */
    size_t n_idle, n_waiting, n_running;
    struct webhook_lane {
        struct link free, busy; /* receivers that wait, with nothing and something under way */
        size_t n_running;
    } lanes[WEBHOOK_PACES];
};

void webhook_queue_init(struct webhook_queue *q);
void webhook_queue_deinit(struct webhook_queue *q); /* nothing waits or is under way */

/* It waits from now on. */
void webhook_queue_put(struct webhook_queue *q, struct webhook_turn *t, struct str receiver);
/* It waits no more. */
void webhook_queue_remove(struct webhook_queue *q, struct webhook_turn *t);

/* One that waits and may begin: it is under way from now on. NULL: none. */
struct webhook_turn *webhook_queue_next(struct webhook_queue *q);

/* It has been under way for WEBHOOK_QUICK_MS, or as long again. False: it must be given up. */
bool webhook_queue_overdue(struct webhook_queue *q, struct webhook_turn *t);

/* It is under way no more. took_ms: what the receiver took, which sets its pace. */
#define WEBHOOK_NOT_ASKED UINT64_MAX
void webhook_queue_end(struct webhook_queue *q, struct webhook_turn *t, uint64_t took_ms);

#endif
