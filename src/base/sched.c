// SPDX-License-Identifier: Apache-2.0
#include "base/sched.h"

/* A hashed wheel: a timer sits in slot (due tick mod slots). A slot may also hold timers of later
 * rounds, which are passed over; no timer outlives its due tick in the wheel. */

#define DUE_MAX (UINT64_MAX / SCHED_TICK_MS * SCHED_TICK_MS)

void sched_init(struct sched *s, uint64_t now_ms, int64_t wall_ms)
{
    *s = (struct sched){.now_ms = now_ms,
                        .wall_ms = wall_ms,
                        .tick = now_ms / SCHED_TICK_MS,
                        .wake_tick = UINT64_MAX};
    list_init(&s->tasks);
    list_init(&s->flushes);
    for (int i = 0; i < SCHED_SLOTS; i++)
        list_init(&s->slots[i]);
}

void task_init(struct task *t, void (*run)(struct task *t))
{
    list_init(&t->link);
    t->run = run;
}

void timer_init(struct timer *t, void (*fire)(struct timer *t))
{
    list_init(&t->link);
    t->due_ms = 0;
    t->fire = fire;
}

void sched_post(struct sched *s, struct task *t)
{
    if (list_empty(&t->link))
        list_push(&s->tasks, &t->link);
}

void sched_post_flush(struct sched *s, struct task *t)
{
    if (list_empty(&t->link))
        list_push(&s->flushes, &t->link);
}

void task_cancel(struct task *t)
{
    list_remove(&t->link);
}

/* Rounded up, so that a timer never fires early. */
static uint64_t due_tick(const struct timer *t)
{
    return t->due_ms / SCHED_TICK_MS + (t->due_ms % SCHED_TICK_MS != 0);
}

void sched_start(struct sched *s, struct timer *t, uint64_t delay_ms)
{
    uint64_t now_ms = s->now_ms;
    timer_stop(t);
    if (s->awake_ms != NULL && s->awake_ms(s) > now_ms)
        now_ms = s->awake_ms(s);
    /* A delay from a setting may be huge, and a sum that wrapped would fire at once. */
    t->due_ms = delay_ms < DUE_MAX - now_ms ? now_ms + delay_ms : DUE_MAX;
    uint64_t tick = due_tick(t);
    if (tick <= s->tick) /* that slot may have been visited in this turn */
        tick = s->tick + 1;
    list_push(&s->slots[tick % SCHED_SLOTS], &t->link);
    if (tick < s->wake_tick)
        s->wake_tick = tick;
}

/* The wheel may wake once for a timer that was stopped; it then finds the next one. */
void timer_stop(struct timer *t)
{
    list_remove(&t->link);
}

static void fire_slot(struct sched *s, struct link *slot)
{
    /* Taken off the wheel first: a callback may start or stop any timer, this slot's included. */
    struct link due;
    list_init(&due);
    list_each_safe (l, slot) {
        if (list_item(l, struct timer, link)->due_ms > s->now_ms)
            continue;
        list_remove(l);
        list_push(&due, l);
    }
    while (!list_empty(&due)) {
        struct timer *t = list_item(due.next, struct timer, link);
        timer_stop(t);
        t->fire(t);
    }
}

/* The first slot from here on that holds anything, if only a timer of a later round. */
static uint64_t next_wake(const struct sched *s)
{
    for (uint64_t tick = s->tick + 1; tick <= s->tick + SCHED_SLOTS; tick++)
        if (!list_empty(&s->slots[tick % SCHED_SLOTS]))
            return tick;
    return UINT64_MAX;
}

static void fire_due(struct sched *s)
{
    uint64_t last = s->now_ms / SCHED_TICK_MS;
    /* After a long sleep one round visits every slot; more would visit them again for nothing. */
    if (last - s->tick >= SCHED_SLOTS)
        s->tick = last - (SCHED_SLOTS - 1);
    for (; s->tick <= last; s->tick++)
        fire_slot(s, &s->slots[s->tick % SCHED_SLOTS]);
    s->tick = last;
    s->wake_tick = next_wake(s);
}

static void sched_run_list(struct link *list)
{
    while (!list_empty(list)) {
        struct task *t = list_item(list->next, struct task, link);
        list_remove(&t->link);
        t->run(t);
    }
}

void sched_drain(struct sched *s)
{
    while (!list_empty(&s->tasks) || !list_empty(&s->flushes)) {
        sched_run_list(&s->tasks);
        sched_run_list(&s->flushes);
    }
}

void sched_turn(struct sched *s, uint64_t now_ms, int64_t wall_ms)
{
    if (now_ms > s->now_ms)
        s->now_ms = now_ms;
    s->wall_ms = wall_ms;
    if (s->now_ms / SCHED_TICK_MS >= s->wake_tick)
        fire_due(s);
    sched_drain(s);
}

uint64_t sched_wait_ms(const struct sched *s)
{
    if (s->wake_tick == UINT64_MAX)
        return UINT64_MAX;
    uint64_t at_ms = s->wake_tick * SCHED_TICK_MS;
    return at_ms > s->now_ms ? at_ms - s->now_ms : 0;
}
