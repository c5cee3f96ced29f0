// SPDX-License-Identifier: Apache-2.0
#include "base/sched.h"
#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#define TICK     SCHED_TICK_MS
#define ROUND_MS ((uint64_t)SCHED_SLOTS * SCHED_TICK_MS)

/* The clock is moved by hand and notes what ran, by name. */
struct world {
    struct sched sched;
    struct buf notes;
};

static void world_init(struct world *w, uint64_t now_ms)
{
    *w = (struct world){0};
    sched_init(&w->sched, now_ms, 0);
}

static void sleep_ms(struct world *w, uint64_t ms)
{
    sched_turn(&w->sched, w->sched.now_ms + ms, 0);
}

/* What was noted since the last time. */
static void assert_notes(struct world *w, const char *expected)
{
    buf_putc(&w->notes, '\0');
    assert_string_equal(w->notes.p, expected);
    w->notes.n = 0;
}

static int world_end(struct world *w)
{
    size_t left = w->notes.n;
    buf_deinit(&w->notes);
    return (int)left;
}

/* -- tasks ------------------------------------------------------------------------------------ */

struct chore {
    struct task task;
    struct world *world;
    char name;
    struct chore *posts, *flushes, *cancels; /* what it does to others when it runs */
};

static void chore_run(struct task *t)
{
    struct chore *c = container_of(t, struct chore, task);
    struct sched *s = &c->world->sched;
    buf_putc(&c->world->notes, c->name);
    if (c->posts != NULL)
        sched_post(s, &c->posts->task);
    if (c->flushes != NULL)
        sched_post_flush(s, &c->flushes->task);
    if (c->cancels != NULL)
        task_cancel(&c->cancels->task);
}

static void chores_init(struct world *w, struct chore *c, int n)
{
    for (int i = 0; i < n; i++) {
        c[i] = (struct chore){.world = w, .name = (char)('a' + i)};
        task_init(&c[i].task, chore_run);
    }
}

static void test_tasks_run_in_order(void **state)
{
    struct world w;
    struct chore c[4];
    world_init(&w, 5);
    chores_init(&w, c, 4);
    sched_post(&w.sched, &c[2].task);
    sched_post(&w.sched, &c[0].task);
    sched_post(&w.sched, &c[2].task); /* already posted: keeps its place, runs once */
    c[2].posts = &c[3];
    assert_notes(&w, ""); /* never from within sched_post */
    sched_drain(&w.sched);
    assert_notes(&w, "cad");
    sched_drain(&w.sched);
    assert_notes(&w, "");
    assert_int_equal(world_end(&w), 0);
}

static void test_flushes_run_after_tasks(void **state)
{
    struct world w;
    struct chore c[4];
    world_init(&w, 5);
    chores_init(&w, c, 4);
    sched_post_flush(&w.sched, &c[0].task);
    sched_post(&w.sched, &c[1].task);
    sched_post(&w.sched, &c[2].task);
    c[1].posts = &c[3];
    c[3].flushes = &c[0]; /* already posted: once only */
    sleep_ms(&w, 0);
    assert_notes(&w, "bcda");
    /* a flush may make work again: first the other flushes, then that */
    c[1].posts = NULL;
    c[0].posts = &c[2];
    c[2].flushes = &c[1];
    sched_post_flush(&w.sched, &c[0].task);
    sched_post_flush(&w.sched, &c[1].task);
    sleep_ms(&w, 0);
    assert_notes(&w, "abcb");
    assert_int_equal(world_end(&w), 0);
}

static void test_task_cancel(void **state)
{
    struct world w;
    struct chore c[3];
    world_init(&w, 5);
    chores_init(&w, c, 3);
    for (int i = 0; i < 3; i++)
        sched_post(&w.sched, &c[i].task);
    c[0].cancels = &c[1];
    c[2].cancels = &c[2]; /* it is no longer posted: harmless */
    sched_drain(&w.sched);
    assert_notes(&w, "ac");
    sched_post(&w.sched, &c[1].task);
    sched_drain(&w.sched);
    assert_notes(&w, "b");
    assert_int_equal(world_end(&w), 0);
}

/* Within bounds, and even: of any 100 in a row each tenth of the room has some. */
static void test_spread(void **state)
{
    struct world w;
    world_init(&w, 0);
    assert_int_equal(sched_spread(&w.sched, 60000), 60000);
    for (int round = 0; round < 1000; round++) {
        unsigned tenths[11] = {0};
        for (int i = 0; i < 100; i++) {
            uint64_t ms = sched_spread(&w.sched, 60000);
            assert_in_range(ms, 54000, 60000);
            tenths[(60000 - ms) / 600]++;
        }
        for (int i = 0; i < 10; i++)
            assert_in_range(tenths[i], 5, 15);
    }
    assert_int_equal(sched_spread(&w.sched, 0), 0);
    assert_int_equal(sched_spread(&w.sched, 9), 9);
    uint64_t huge = sched_spread(&w.sched, UINT64_MAX);
    assert_true(huge >= UINT64_MAX - UINT64_MAX / 10);
}

/* -- timers ----------------------------------------------------------------------------------- */

struct alarm {
    struct timer timer;
    struct world *world;
    char name;
    struct alarm *stops, *starts;
    uint64_t starts_ms;
    struct chore *posts;
};

static void alarm_fire(struct timer *t)
{
    struct alarm *a = container_of(t, struct alarm, timer);
    assert_false(timer_running(t));
    buf_putc(&a->world->notes, a->name);
    if (a->stops != NULL)
        timer_stop(&a->stops->timer);
    if (a->starts != NULL)
        sched_start(&a->world->sched, &a->starts->timer, a->starts_ms);
    if (a->posts != NULL)
        sched_post(&a->world->sched, &a->posts->task);
}

static void alarms_init(struct world *w, struct alarm *a, int n)
{
    for (int i = 0; i < n; i++) {
        a[i] = (struct alarm){.world = w, .name = (char)('A' + i)};
        timer_init(&a[i].timer, alarm_fire);
    }
}

/* For many delays and phases of the tick: silent until due, heard a tick later at the latest. */
static void test_never_early_and_soon(void **state)
{
    static const uint64_t delays[] = {0,
                                      1,
                                      TICK - 1,
                                      TICK,
                                      TICK + 1,
                                      1000,
                                      ROUND_MS - TICK,
                                      ROUND_MS - 1,
                                      ROUND_MS,
                                      ROUND_MS + 1,
                                      ROUND_MS + TICK,
                                      3 * ROUND_MS + 5};
    for (uint64_t phase = 0; phase < 2 * TICK; phase++) {
        for (size_t i = 0; i < sizeof delays / sizeof *delays; i++) {
            struct world w;
            struct alarm a;
            world_init(&w, 1000 * TICK + phase);
            alarms_init(&w, &a, 1);
            sched_start(&w.sched, &a.timer, delays[i]);
            assert_true(timer_running(&a.timer));
            if (delays[i] > 0)
                sleep_ms(&w, delays[i] - 1);
            assert_notes(&w, "");
            sleep_ms(&w, 1 + TICK);
            assert_notes(&w, "A");
            assert_false(timer_running(&a.timer));
            sleep_ms(&w, 2 * ROUND_MS);
            assert_notes(&w, "");
            assert_true(sched_wait_ms(&w.sched) == UINT64_MAX);
            assert_int_equal(world_end(&w), 0);
        }
    }
}

/* Following sched_wait_ms alone: every wake but few finds work, and the timer fires. */
static void test_wait(void **state)
{
    struct world w;
    struct alarm a[3];
    world_init(&w, 12345);
    alarms_init(&w, a, 3);
    assert_true(sched_wait_ms(&w.sched) == UINT64_MAX);
    sched_start(&w.sched, &a[0].timer, 100);
    sched_start(&w.sched, &a[1].timer, 5 * ROUND_MS);
    sched_start(&w.sched, &a[2].timer, 200);
    timer_stop(&a[2].timer);
    int wakes = 0;
    while (w.notes.n < 2) {
        uint64_t wait = sched_wait_ms(&w.sched);
        assert_true(wait > 0 && wait <= ROUND_MS); /* 0 would spin */
        sleep_ms(&w, wait);
        assert_true(++wakes < 20);
    }
    assert_notes(&w, "AB");
    assert_true(w.sched.now_ms - 12345 >= 5 * ROUND_MS);
    assert_true(w.sched.now_ms - 12345 <= 5 * ROUND_MS + TICK);
    assert_true(sched_wait_ms(&w.sched) == UINT64_MAX);
    assert_int_equal(world_end(&w), 0);
}

static void test_order(void **state)
{
    struct world w;
    struct alarm a[5];
    world_init(&w, 0);
    alarms_init(&w, a, 5);
    sched_start(&w.sched, &a[0].timer, 500);
    sched_start(&w.sched, &a[1].timer, 100);
    sched_start(&w.sched, &a[2].timer, 300);
    sched_start(&w.sched, &a[3].timer, 100);            /* the same tick as B */
    sched_start(&w.sched, &a[4].timer, ROUND_MS + 100); /* the same slot, a round later */
    sleep_ms(&w, 600);
    assert_notes(&w, "BDCA");
    sleep_ms(&w, ROUND_MS - 600);
    assert_notes(&w, "");
    sleep_ms(&w, 100 + TICK);
    assert_notes(&w, "E");
    assert_int_equal(world_end(&w), 0);
}

static void test_restart_moves(void **state)
{
    struct world w;
    struct alarm a;
    world_init(&w, 77);
    alarms_init(&w, &a, 1);
    sched_start(&w.sched, &a.timer, 100);
    sleep_ms(&w, 90);
    sched_start(&w.sched, &a.timer, 100);
    sleep_ms(&w, 99);
    assert_notes(&w, "");
    sleep_ms(&w, 1 + TICK);
    assert_notes(&w, "A");
    sched_start(&w.sched, &a.timer, 10000); /* later, then sooner */
    sched_start(&w.sched, &a.timer, 50);
    sleep_ms(&w, 50 + TICK);
    assert_notes(&w, "A");
    sleep_ms(&w, 2 * ROUND_MS);
    assert_notes(&w, "");
    assert_int_equal(world_end(&w), 0);
}

static void test_stop(void **state)
{
    struct world w;
    struct alarm a;
    world_init(&w, 77);
    alarms_init(&w, &a, 1);
    timer_stop(&a.timer); /* never started: harmless */
    sched_start(&w.sched, &a.timer, 0);
    timer_stop(&a.timer);
    assert_false(timer_running(&a.timer));
    sleep_ms(&w, 2 * ROUND_MS);
    assert_notes(&w, "");
    assert_int_equal(world_end(&w), 0);
}

/* A and B are due together: what A does to B must hold. */
static void test_callbacks_stop_and_start_others(void **state)
{
    struct world w;
    struct alarm a[3];
    world_init(&w, 160);
    alarms_init(&w, a, 3);
    a[0].stops = &a[1];
    for (int i = 0; i < 3; i++)
        sched_start(&w.sched, &a[i].timer, 100);
    sleep_ms(&w, 200);
    assert_notes(&w, "AC");

    a[0].stops = NULL;
    a[0].starts = &a[1];
    a[0].starts_ms = 1000;
    for (int i = 0; i < 3; i++)
        sched_start(&w.sched, &a[i].timer, 100);
    sleep_ms(&w, 200);
    assert_notes(&w, "AC");
    sleep_ms(&w, 999);
    assert_notes(&w, "");
    sleep_ms(&w, 1 + TICK);
    assert_notes(&w, "B");
    assert_int_equal(world_end(&w), 0);
}

/* One that starts itself with no delay fires at most twice a turn, however long the sleep was. */
static void test_restart_from_its_own_callback(void **state)
{
    struct world w;
    struct alarm a;
    for (uint64_t phase = 0; phase < TICK; phase++) {
        world_init(&w, 1600);
        alarms_init(&w, &a, 1);
        a.starts = &a;
        a.starts_ms = 0;
        sched_start(&w.sched, &a.timer, 5);
        sleep_ms(&w, 7 * TICK + phase);
        assert_in_range(w.notes.n, 1, 2);
        assert_true(timer_running(&a.timer));
        w.notes.n = 0;
        for (int i = 0; i < 100; i++)
            sleep_ms(&w, TICK);
        assert_in_range(w.notes.n, 99, 101);
        w.notes.n = 0;
        a.starts_ms = 10 * TICK;
        sleep_ms(&w, 5 * ROUND_MS);
        assert_notes(&w, "A");
        assert_int_equal(world_end(&w), 0);
    }
}

static void test_tasks_of_timers_run_in_the_same_turn(void **state)
{
    struct world w;
    struct alarm a[2];
    struct chore c[1];
    world_init(&w, 0);
    alarms_init(&w, a, 2);
    chores_init(&w, c, 1);
    a[0].posts = &c[0];
    sched_start(&w.sched, &a[0].timer, 10);
    sched_start(&w.sched, &a[1].timer, 50);
    sleep_ms(&w, 100);
    assert_notes(&w, "ABa");
    assert_int_equal(world_end(&w), 0);
}

/* A delay that would wrap the clock is for ever, not now. */
static void test_endless_delay(void **state)
{
    struct world w;
    struct alarm a[2];
    world_init(&w, 123456789);
    alarms_init(&w, a, 2);
    sched_start(&w.sched, &a[0].timer, UINT64_MAX);
    sched_start(&w.sched, &a[1].timer, UINT64_MAX - w.sched.now_ms);
    assert_true(sched_wait_ms(&w.sched) > UINT64_MAX / 2);
    for (int i = 0; i < 5; i++)
        sleep_ms(&w, ROUND_MS + 7);
    assert_notes(&w, "");
    assert_true(timer_running(&a[0].timer) && timer_running(&a[1].timer));
    assert_int_equal(world_end(&w), 0);
}

static void test_the_clock_never_goes_back(void **state)
{
    struct world w;
    struct alarm a;
    world_init(&w, 10000);
    alarms_init(&w, &a, 1);
    sched_start(&w.sched, &a.timer, 100);
    sched_turn(&w.sched, 500, -7);
    assert_int_equal(w.sched.now_ms, 10000);
    assert_int_equal(w.sched.wall_ms, -7); /* this one may */
    sched_turn(&w.sched, 10100 + TICK, 0);
    assert_notes(&w, "A");
    assert_int_equal(world_end(&w), 0);
}

static void free_fire(struct timer *t)
{
    free(container_of(t, struct alarm, timer));
}

static void test_a_callback_may_free_its_timer(void **state)
{
    struct world w;
    world_init(&w, 1);
    for (int i = 0; i < 3; i++) {
        struct alarm *a = malloc(sizeof *a);
        timer_init(&a->timer, free_fire);
        sched_start(&w.sched, &a->timer, 10);
    }
    sleep_ms(&w, 100); /* the sanitizer watches */
    assert_true(sched_wait_ms(&w.sched) == UINT64_MAX);
    assert_int_equal(world_end(&w), 0);
}

/* -- at random, against a model that is nothing but due times ---------------------------------- */

#define CLOCKS 40

struct clockwork;

struct clock {
    struct timer timer;
    struct clockwork *all;
    bool running;
    uint64_t due_ms, started_ms;
};

struct clockwork {
    struct sched sched;
    struct clock clocks[CLOCKS];
    uint64_t random;
    unsigned fired;
    int budget; /* changes that callbacks may still make in this turn */
};

static uint64_t draw(struct clockwork *k, uint64_t below)
{
    k->random ^= k->random << 13;
    k->random ^= k->random >> 7;
    k->random ^= k->random << 17;
    return k->random % below;
}

static uint64_t draw_ms(struct clockwork *k)
{
    switch (draw(k, 6)) {
    case 0: return 0;
    case 1: return draw(k, 2 * TICK);
    case 2: return draw(k, 100) * TICK;
    case 3: return draw(k, ROUND_MS);
    case 4: return ROUND_MS - 2 * TICK + draw(k, 4 * TICK);
    default: return draw(k, 4 * ROUND_MS);
    }
}

static void change_one(struct clockwork *k)
{
    struct clock *c = &k->clocks[draw(k, CLOCKS)];
    if (draw(k, 3) == 0) {
        timer_stop(&c->timer);
        c->running = false;
        return;
    }
    uint64_t delay_ms = draw_ms(k);
    sched_start(&k->sched, &c->timer, delay_ms);
    c->running = true;
    c->started_ms = k->sched.now_ms;
    c->due_ms = k->sched.now_ms + delay_ms;
}

static void clock_fire(struct timer *t)
{
    struct clock *c = container_of(t, struct clock, timer);
    struct clockwork *k = c->all;
    assert_true(c->running);
    assert_true(c->due_ms <= k->sched.now_ms);
    c->running = false;
    k->fired++;
    if (k->budget > 0 && draw(k, 2) == 0) {
        k->budget--;
        change_one(k);
    }
}

/* The tick in which the timer must have fired: the first that begins when it is due, or the one
 * after it was started. */
static uint64_t last_tick(const struct clock *c)
{
    uint64_t due = (c->due_ms + TICK - 1) / TICK, next = c->started_ms / TICK + 1;
    return due > next ? due : next;
}

static void assert_none_late(struct clockwork *k)
{
    uint64_t now_ms = k->sched.now_ms, wait_ms = sched_wait_ms(&k->sched);
    for (int i = 0; i < CLOCKS; i++) {
        struct clock *c = &k->clocks[i];
        assert_int_equal(timer_running(&c->timer), c->running);
        if (!c->running)
            continue;
        assert_true(last_tick(c) > now_ms / TICK);
        assert_true(wait_ms <= last_tick(c) * TICK - now_ms); /* it wakes in time for it */
    }
}

static void test_random(void **state)
{
    static struct clockwork k;
    unsigned fired = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        k = (struct clockwork){.random = seed * 7919};
        sched_init(&k.sched, draw(&k, 100000), 0);
        for (int i = 0; i < CLOCKS; i++) {
            k.clocks[i].all = &k;
            timer_init(&k.clocks[i].timer, clock_fire);
        }
        for (int turn = 0; turn < 2000; turn++) {
            for (uint64_t n = draw(&k, 4); n > 0; n--)
                change_one(&k);
            uint64_t wait_ms = sched_wait_ms(&k.sched);
            bool as_told = draw(&k, 2) == 0 && wait_ms < 10 * ROUND_MS;
            k.budget = 10;
            sched_turn(&k.sched, k.sched.now_ms + (as_told ? wait_ms : draw_ms(&k)), 0);
            assert_none_late(&k);
        }
        fired += k.fired;
    }
    assert_true(fired > 10000); /* or the test tests nothing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tasks_run_in_order),
        cmocka_unit_test(test_flushes_run_after_tasks),
        cmocka_unit_test(test_task_cancel),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_never_early_and_soon),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_restart_moves),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_callbacks_stop_and_start_others),
        cmocka_unit_test(test_restart_from_its_own_callback),
        cmocka_unit_test(test_tasks_of_timers_run_in_the_same_turn),
        cmocka_unit_test(test_endless_delay),
        cmocka_unit_test(test_the_clock_never_goes_back),
        cmocka_unit_test(test_a_callback_may_free_its_timer),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
