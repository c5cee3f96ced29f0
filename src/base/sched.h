// SPDX-License-Identifier: Apache-2.0
/* sched.h -- deferred calls, timers and the time, apart from any event loop.
 *
 * net/loop.c drives one from libuv; tests drive one by hand with a clock of their own, which makes
 * them deterministic. One thread only.
 *
 * Order of a turn: tasks in the order they were posted, tasks posted by them included, until none
 * is left; then the flush tasks (one write per connection for all that the turn produced); and
 * again while either list has something. */
#ifndef BASE_SCHED_H
#define BASE_SCHED_H

#include "base/list.h"

#include <stdint.h>

struct task {
    struct link link; /* task_init first */
    void (*run)(struct task *t);
};

struct timer {
    struct link link; /* timer_init first */
    uint64_t due_ms;
    void (*fire)(struct timer *t);
};

#define SCHED_SLOTS   1024 /* of the timer wheel */
#define SCHED_TICK_MS 16

struct sched {
    uint64_t now_ms; /* monotonic, of this turn */
    int64_t wall_ms; /* Unix time, of this turn; never orders anything */
    struct link tasks, flushes;
    struct link slots[SCHED_SLOTS];
    uint64_t tick;      /* wheel position: every timer due before it has fired */
    uint64_t wake_tick; /* no slot before it holds a timer that is due; UINT64_MAX: none runs */
    /* For a driver whose callbacks run before the turn that their round ends with: what now_ms is
     * about to be. Delays count from there, however long it slept. NULL: now_ms is right. */
    uint64_t (*awake_ms)(const struct sched *s);
};

void sched_init(struct sched *s, uint64_t now_ms, int64_t wall_ms);

void task_init(struct task *t, void (*run)(struct task *t));
void timer_init(struct timer *t, void (*fire)(struct timer *t));

/* Runs later in this turn, never from within this call. Already posted: nothing happens. */
void sched_post(struct sched *s, struct task *t);
void sched_post_flush(struct sched *s, struct task *t);
void task_cancel(struct task *t);

/* Fires once, not before delay_ms have passed and at most about a tick later. Running: restarts.
 * Timers of one tick fire in the order they were started, those of an earlier tick before those of
 * a later one; after a sleep of more than a wheel's round no order is kept. */
void sched_start(struct sched *s, struct timer *t, uint64_t delay_ms);
void timer_stop(struct timer *t);

static inline bool timer_running(const struct timer *t)
{
    return !list_empty(&t->link);
}

/* Sets the time, fires what is due, runs all tasks. */
void sched_turn(struct sched *s, uint64_t now_ms, int64_t wall_ms);

/* Runs tasks and flushes until there are none. */
void sched_drain(struct sched *s);

/* Milliseconds until sched_turn has a timer to look at; UINT64_MAX when there is none. Changes
 * only when a timer is started or a turn taken. */
uint64_t sched_wait_ms(const struct sched *s);

#endif
