// SPDX-License-Identifier: Apache-2.0
/* sched.h -- deferred calls, timers and the time, apart from any event loop.
 *
 * net/loop.c drives one from libuv; tests drive one by hand with a clock of their own, which makes
 * them deterministic. One thread only.
 *
 * Order of a turn: I/O that was put off; timers that are due; tasks in the order they were posted,
 * tasks posted by them included, until none is left; then the flush tasks (one write per connection
 * for all that the turn produced); and again while a list has something. Background tasks run when
 * there is nothing else to do, one at a time.
 *
 * Budget: a driver that has I/O to look after sets clock_ns, and then a turn ends when its time is
 * used. Each list keeps the rest in its order for the next turn; the driver polls in between,
 * without sleeping. So nobody may count on a task being run before the next I/O or before a close
 * callback, and what takes long is a task that does a piece of it, 1 ms at most, and posts itself
 * again: chains that do so share the loop fairly. Of a turn
 *
 *     I/O          has SCHED_IO_US from its first callback on; the rest is put off (sched_io)
 *     tasks        have SCHED_TASKS_US, timers included, with their flushes in between
 *     flushes      have SCHED_FLUSH_US more
 *     background   has SCHED_BACKGROUND_US, so that I/O never waits long for it
 *
 * and each of the four has at least a piece, so that none starves. Whatever is called once the time
 * is used is waited for: the clock is looked at after each piece that has a name of its own
 * (sched_work) or has turned out to be a large one (sched_look_soon), and after every SCHED_LOOK
 * others. Without clock_ns all of this is off, and a turn
 * ends when nothing is left. */
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

#define SCHED_SLOTS         1024 /* of the timer wheel */
#define SCHED_TICK_MS       16

#define SCHED_IO_US         1000
#define SCHED_TASKS_US      500
#define SCHED_FLUSH_US      500
#define SCHED_BACKGROUND_US 250
#define SCHED_PIECE_US      1000
#define SCHED_LOOK          8  /* pieces without a name */
#define SCHED_FLUSHES       64 /* are enough to be run before the next task */

struct sched {
    uint64_t now_ms; /* monotonic, of this turn */
    int64_t wall_ms; /* Unix time, of this turn; never orders anything */
    struct link io, tasks, flushes, background;
    struct link slots[SCHED_SLOTS];
    struct link visited, passed; /* of the slot at `tick`: to be looked at; due in a later round */
    uint64_t tick;               /* wheel position: every timer due before it has fired */
    uint32_t n_spread;           /* delays that were spread */
    uint64_t wake_tick; /* no slot before it holds a timer that is due; UINT64_MAX: none runs */
    /* For a driver whose callbacks run before the turn that their round ends with: what now_ms is
     * about to be. Delays count from there, however long it slept. NULL: now_ms is right. */
    uint64_t (*awake_ms)(const struct sched *s);
    /* Time that only grows, for the budget. NULL: there is none. */
    uint64_t (*clock_ns)(void);
    uint64_t turn_ns, looked_ns;  /* when this turn began, 0: it has not; the last look */
    uint32_t unlooked, n_flushes; /* pieces until the next look; flushes that wait, at most */
    const char *work;             /* what is being done */
    const char *longest;          /* what took the longest at a stretch in this turn ... */
    uint64_t longest_ns;          /* ... and how long; 0: nothing was looked at */
};

void sched_init(struct sched *s, uint64_t now_ms, int64_t wall_ms);

void task_init(struct task *t, void (*run)(struct task *t));
void timer_init(struct timer *t, void (*fire)(struct timer *t));

/* Runs later, in this turn if it has the time, never from within this call. Already posted: nothing
 * happens. */
void sched_post(struct sched *s, struct task *t);
void sched_post_flush(struct sched *s, struct task *t);
/* For work that can wait: sweeps, snapshots, whatever nobody waits for. A piece each time. */
void sched_post_background(struct sched *s, struct task *t);
/* For an I/O callback that sched_io has put off. */
void sched_post_io(struct sched *s, struct task *t);
void task_cancel(struct task *t);

/* Fires once, not before delay_ms have passed and at most about a tick later. Running: restarts.
 * Timers of one tick fire in the order they were started, those of an earlier tick before those of
 * a later one; after a sleep of more than a wheel's round no order is kept. */
void sched_start(struct sched *s, struct timer *t, uint64_t delay_ms);
void timer_stop(struct timer *t);

/* At most delay_ms and at least nine tenths of it, another time each time: for timers that very
 * many start at once, so that they do not all fire at once. Small delays stay as they are. */
uint64_t sched_spread(struct sched *s, uint64_t delay_ms);

static inline bool timer_running(const struct timer *t)
{
    return !list_empty(&t->link);
}

/* Sets the time, fires what is due and runs tasks: all, or what the budget allows. A driver with a
 * budget calls sched_look before. */
void sched_turn(struct sched *s, uint64_t now_ms, int64_t wall_ms);

/* Runs tasks of all lists until there are none, whatever the budget says. */
void sched_drain(struct sched *s);

/* Milliseconds until sched_turn has a timer to look at; UINT64_MAX when there is none. Changes
 * only when a timer is started or a turn taken. */
uint64_t sched_wait_ms(const struct sched *s);

/* What the clocks say in an I/O callback, which runs before the turn that its round ends with:
 * now_ms and wall_ms may be from before a long sleep there. */
static inline uint64_t sched_awake_ms(const struct sched *s)
{
    return s->awake_ms != NULL ? s->awake_ms(s) : s->now_ms;
}
static inline int64_t sched_awake_wall_ms(const struct sched *s)
{
    return s->wall_ms + (int64_t)(sched_awake_ms(s) - s->now_ms);
}

/* Does it have something to do now? */
bool sched_is_busy(const struct sched *s);

/* ---- the budget, and who used it ---- */

/* Says what is being done, for a piece that may take long; `name` is static, and one of few. The
 * next piece starts without a name again. */
static inline void sched_work(struct sched *s, const char *name)
{
    s->work = name;
}

/* For a piece that goes through items of which some take long: has it had its millisecond? It looks
 * at the clock, so it is asked after every few items. */
static inline bool sched_is_long(const struct sched *s)
{
    return s->clock_ns != NULL && s->clock_ns() - s->looked_ns >= SCHED_PIECE_US * 1000u;
}

/* This piece has much to do, as an answer of a megabyte that is sent: the clock is looked at behind
 * it, so that few of its kind do not use up the time of many. */
static inline void sched_look_soon(struct sched *s)
{
    s->unlooked = 1;
}

/* For the driver's callbacks, each time: one of them begins. True: I/O has had its share of this
 * turn, or others wait already, and whoever can wait should (sched_post_io). */
bool sched_io(struct sched *s);

/* Looks at the clock, and notes who took the time since the last look. Begins a turn. */
uint64_t sched_look(struct sched *s);

/* Has anything been done since the last look? */
static inline bool sched_has_worked(const struct sched *s)
{
    return s->unlooked < SCHED_LOOK;
}

/* The driver goes to poll. How long the turn took, from its first look to its last. s->longest can
 * be read until the next one. */
uint64_t sched_end_turn(struct sched *s);

#endif
