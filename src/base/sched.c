// SPDX-License-Identifier: Apache-2.0
#include "base/sched.h"

/* A hashed wheel: a timer sits in slot (due tick mod slots). A slot may also hold timers of later
 * rounds, which are passed over; no timer outlives its due tick in the wheel. */

#define DUE_MAX (UINT64_MAX / SCHED_TICK_MS * SCHED_TICK_MS)

#define US      1000u /* in nanoseconds */

/* What a piece is called that has no name of its own; told apart by their addresses. */
static const char sched_io_piece[] = "io", sched_timer_piece[] = "timer",
                  sched_task_piece[] = "task", sched_flush_piece[] = "flush",
                  sched_background_piece[] = "background";

void sched_init(struct sched *s, uint64_t now_ms, int64_t wall_ms)
{
    *s = (struct sched){.now_ms = now_ms,
                        .wall_ms = wall_ms,
                        .tick = now_ms / SCHED_TICK_MS,
                        .wake_tick = UINT64_MAX,
                        .unlooked = SCHED_LOOK,
                        .work = sched_task_piece,
                        .longest = sched_task_piece};
    list_init(&s->io);
    list_init(&s->tasks);
    list_init(&s->flushes);
    list_init(&s->background);
    list_init(&s->visited);
    list_init(&s->passed);
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
    if (!list_empty(&t->link))
        return;
    list_push(&s->flushes, &t->link);
    s->n_flushes++;
}

void sched_post_background(struct sched *s, struct task *t)
{
    if (list_empty(&t->link))
        list_push(&s->background, &t->link);
}

void sched_post_io(struct sched *s, struct task *t)
{
    if (list_empty(&t->link))
        list_push(&s->io, &t->link);
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

/* Multiples of the golden ratio, whose fractions are even however many there are. */
uint64_t sched_spread(struct sched *s, uint64_t delay_ms)
{
    uint64_t part = (s->n_spread++ * 2654435769u) >> 16, most_ms = delay_ms / 10;
    return delay_ms - (most_ms / 65536 * part + most_ms % 65536 * part / 65536);
}

/* The wheel may wake once for a timer that was stopped; it then finds the next one. */
void timer_stop(struct timer *t)
{
    list_remove(&t->link);
}

/* The first slot from here on that holds anything, if only a timer of a later round. */
static uint64_t next_wake(const struct sched *s)
{
    for (uint64_t tick = s->tick + 1; tick <= s->tick + SCHED_SLOTS; tick++)
        if (!list_empty(&s->slots[tick % SCHED_SLOTS]))
            return tick;
    return UINT64_MAX;
}

/* ---- the budget ---- */

uint64_t sched_look(struct sched *s)
{
    s->unlooked = SCHED_LOOK;
    if (s->clock_ns == NULL)
        return 0;
    uint64_t now_ns = s->clock_ns();
    if (s->turn_ns == 0) {
        s->turn_ns = now_ns;
        s->longest_ns = 0;
    } else if (now_ns - s->looked_ns > s->longest_ns) {
        s->longest_ns = now_ns - s->looked_ns;
        s->longest = s->work;
    }
    s->looked_ns = now_ns;
    return now_ns;
}

uint64_t sched_end_turn(struct sched *s)
{
    uint64_t took_ns = s->looked_ns - s->turn_ns;
    s->turn_ns = 0;
    return took_ns;
}

bool sched_io(struct sched *s)
{
    if (s->turn_ns == 0 || s->work != sched_io_piece || s->unlooked == 1)
        sched_look(s);
    s->unlooked--;
    s->work = sched_io_piece;
    return s->looked_ns - s->turn_ns >= SCHED_IO_US * US || !list_empty(&s->io);
}

static __attribute__((noinline)) bool sched_is_time_up(struct sched *s, const char *kind,
                                                       uint64_t until_ns)
{
    if (sched_look(s) >= until_ns)
        return true;
    return s->n_flushes >= SCHED_FLUSHES && kind != sched_flush_piece && s->clock_ns != NULL;
}

/* A piece of this kind is done: is it time for something else? */
static inline bool sched_is_past(struct sched *s, const char *kind, uint64_t until_ns)
{
    return (--s->unlooked == 0 || s->work != kind) && sched_is_time_up(s, kind, until_ns);
}

/* ---- the turn ---- */

/* Of the slot at `tick`. Each timer is taken off first: a callback may start or stop any. Those
 * that were passed over go back before those that were started meanwhile. False: to be gone on with
 * later. */
static bool fire_visited(struct sched *s, uint64_t until_ns)
{
    struct link *slot = &s->slots[s->tick % SCHED_SLOTS];
    while (!list_empty(&s->visited)) {
        struct timer *t = list_item(s->visited.next, struct timer, link);
        timer_stop(t);
        s->work = sched_timer_piece;
        if (t->due_ms > s->now_ms)
            list_push(&s->passed, &t->link);
        else
            t->fire(t);
        if (sched_is_past(s, sched_timer_piece, until_ns))
            return false;
    }
    list_splice(&s->passed, slot);
    list_splice(slot, &s->passed);
    return true;
}

static void fire_due(struct sched *s, uint64_t until_ns)
{
    uint64_t last = s->now_ms / SCHED_TICK_MS;
    if (last < s->wake_tick)
        return;
    /* After a long sleep one round visits every slot; more would visit them again for nothing. */
    if (list_empty(&s->visited) && list_empty(&s->passed)) {
        if (last - s->tick >= SCHED_SLOTS)
            s->tick = last - (SCHED_SLOTS - 1);
        list_splice(&s->visited, &s->slots[s->tick % SCHED_SLOTS]);
    }
    while (fire_visited(s, until_ns)) {
        if (s->tick == last) {
            s->wake_tick = next_wake(s);
            return;
        }
        s->tick++;
        list_splice(&s->visited, &s->slots[s->tick % SCHED_SLOTS]);
    }
    s->wake_tick = s->tick;
}

static inline void sched_run_first(struct sched *s, struct link *list, const char *kind)
{
    struct task *t = list_item(list->next, struct task, link);
    list_remove(&t->link);
    s->work = kind;
    t->run(t);
}

/* How many. */
static uint32_t sched_run(struct sched *s, struct link *list, const char *kind, uint64_t until_ns)
{
    uint32_t n = 0;
    bool past = false;
    for (; !past && !list_empty(list); n++) {
        sched_run_first(s, list, kind);
        past = sched_is_past(s, kind, until_ns);
    }
    return n;
}

/* One that was cancelled counts until there are none. */
static void sched_flush(struct sched *s, uint64_t until_ns)
{
    s->n_flushes -= sched_run(s, &s->flushes, sched_flush_piece, until_ns);
    if (list_empty(&s->flushes))
        s->n_flushes = 0;
}

static bool sched_has_tasks(const struct sched *s)
{
    return !list_empty(&s->tasks) || !list_empty(&s->flushes);
}

/* Timers, tasks and flushes, until none is left or their time is used. */
static void sched_run_tasks(struct sched *s, uint64_t until_ns)
{
    do {
        fire_due(s, until_ns);
        sched_run(s, &s->tasks, sched_task_piece, until_ns);
        sched_flush(s, until_ns + SCHED_FLUSH_US * US);
    } while (sched_has_tasks(s) && s->looked_ns < until_ns);
}

static void sched_run_background(struct sched *s)
{
    uint64_t until_ns = sched_look(s) + SCHED_BACKGROUND_US * US;
    do
        sched_run_first(s, &s->background, sched_background_piece);
    while (sched_look(s) < until_ns && s->clock_ns != NULL && !list_empty(&s->background));
    sched_flush(s, s->looked_ns + SCHED_FLUSH_US * US);
}

static void sched_pass(struct sched *s, uint64_t tasks_us)
{
    sched_run(s, &s->io, sched_io_piece, s->turn_ns + SCHED_IO_US * US);
    sched_run_tasks(s, s->looked_ns + tasks_us * US);
    if (!list_empty(&s->background))
        sched_run_background(s);
}

static bool sched_is_empty(const struct sched *s)
{
    return !sched_has_tasks(s) && list_empty(&s->io) && list_empty(&s->background);
}

void sched_drain(struct sched *s)
{
    while (!sched_is_empty(s))
        sched_pass(s, UINT32_MAX);
}

void sched_turn(struct sched *s, uint64_t now_ms, int64_t wall_ms)
{
    if (now_ms > s->now_ms)
        s->now_ms = now_ms;
    s->wall_ms = wall_ms;
    sched_pass(s, SCHED_TASKS_US);
    if (s->clock_ns == NULL)
        sched_drain(s);
    else if (sched_has_worked(s))
        sched_look(s); /* so that the last piece is seen, too */
}

bool sched_is_busy(const struct sched *s)
{
    return !sched_is_empty(s) || s->now_ms / SCHED_TICK_MS >= s->wake_tick;
}

uint64_t sched_wait_ms(const struct sched *s)
{
    if (s->wake_tick == UINT64_MAX)
        return UINT64_MAX;
    uint64_t at_ms = s->wake_tick * SCHED_TICK_MS;
    return at_ms > s->now_ms ? at_ms - s->now_ms : 0;
}
