// SPDX-License-Identifier: Apache-2.0
/* Turns with a budget: the clock is moved by the pieces themselves. */
#include "base/buf.h"
#include "base/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#define US 1000u

static uint64_t now_ns; /* cmocka runs one test at a time */

static uint64_t read_clock(void)
{
    return now_ns;
}

struct world {
    struct sched sched;
    struct buf notes;
};

static void world_init(struct world *w)
{
    *w = (struct world){0};
    now_ns = 1000 * US;
    sched_init(&w->sched, 1, 0);
    w->sched.clock_ns = read_clock;
}

/* What the loop does: a turn, and the poll. Returns how long it took. */
static uint64_t turn(struct world *w)
{
    sched_look(&w->sched);
    sched_turn(&w->sched, now_ns / 1000000, 0);
    return sched_end_turn(&w->sched) / US;
}

static void assert_notes(struct world *w, const char *expected)
{
    buf_putc(&w->notes, '\0');
    assert_string_equal(w->notes.p, expected);
    w->notes.n = 0;
}

struct piece {
    struct task task;
    struct timer timer;
    struct world *world;
    const char *work; /* NULL: has no name */
    uint64_t us;
    unsigned again; /* posts itself so often */
    bool in_background;
    struct task *flush;
    unsigned ran;
    char name;
};

static void work_on(struct piece *p)
{
    struct sched *s = &p->world->sched;
    buf_putc(&p->world->notes, p->name);
    if (p->work != NULL)
        sched_work(s, p->work);
    now_ns += p->us * US;
    p->ran++;
    if (p->flush != NULL)
        sched_post_flush(s, p->flush);
    if (p->again == 0)
        return;
    p->again--;
    if (p->in_background)
        sched_post_background(s, &p->task);
    else
        sched_post(s, &p->task);
}

static void piece_run(struct task *t)
{
    work_on(container_of(t, struct piece, task));
}

static void piece_fire(struct timer *t)
{
    work_on(container_of(t, struct piece, timer));
}

static void pieces_init(struct world *w, struct piece *p, int n, uint64_t us)
{
    for (int i = 0; i < n; i++) {
        p[i] = (struct piece){.world = w, .name = (char)('a' + i % 26), .us = us};
        task_init(&p[i].task, piece_run);
        timer_init(&p[i].timer, piece_fire);
    }
}

static void test_the_rest_is_left_for_the_next_turn(void **state)
{
    struct world w;
    struct piece p[4];
    world_init(&w);
    pieces_init(&w, p, 4, SCHED_TASKS_US / 2);
    for (int i = 0; i < 4; i++) {
        p[i].work = "piece";
        sched_post(&w.sched, &p[i].task);
    }
    assert_int_equal(turn(&w), SCHED_TASKS_US);
    assert_notes(&w, "ab");
    assert_true(sched_is_busy(&w.sched));
    turn(&w);
    assert_notes(&w, "cd");
    assert_false(sched_is_busy(&w.sched));
    buf_deinit(&w.notes);
}

/* Short ones are not looked at one by one. */
static void test_pieces_without_a_name(void **state)
{
    struct world w;
    static struct piece p[100];
    world_init(&w);
    pieces_init(&w, p, 100, SCHED_TASKS_US / 5);
    for (int i = 0; i < 100; i++)
        sched_post(&w.sched, &p[i].task);
    assert_int_equal(turn(&w), SCHED_TASKS_US / 5 * SCHED_LOOK);
    assert_int_equal(w.notes.n, SCHED_LOOK);
    buf_deinit(&w.notes);
}

/* One that turns out to be large is looked at by itself. */
static void large_run(struct task *t)
{
    struct piece *p = container_of(t, struct piece, task);
    sched_look_soon(&p->world->sched);
    work_on(p);
}

static void test_large_pieces_without_a_name(void **state)
{
    struct world w;
    struct piece p[4];
    world_init(&w);
    pieces_init(&w, p, 4, SCHED_TASKS_US / 2);
    for (int i = 0; i < 4; i++) {
        task_init(&p[i].task, large_run);
        sched_post(&w.sched, &p[i].task);
    }
    assert_int_equal(turn(&w), SCHED_TASKS_US);
    assert_notes(&w, "ab");
    turn(&w);
    assert_notes(&w, "cd");
    buf_deinit(&w.notes);
}

/* Two chains, one of long pieces and one of short: each has a piece when it is its turn. */
static void test_chains_take_turns(void **state)
{
    struct world w;
    struct piece p[2];
    world_init(&w);
    pieces_init(&w, p, 2, SCHED_TASKS_US * 3 / 10);
    p[0].work = p[1].work = "chain";
    p[0].again = p[1].again = 5;
    sched_post(&w.sched, &p[0].task);
    sched_post(&w.sched, &p[1].task);
    turn(&w);
    assert_notes(&w, "abab");
    turn(&w);
    assert_notes(&w, "abab");
    turn(&w);
    assert_notes(&w, "abab");
    buf_deinit(&w.notes);
}

/* What the tasks of a turn produced goes out at its end, though tasks are left. */
static void test_flushes_are_not_kept_waiting(void **state)
{
    struct world w;
    struct piece p[3];
    world_init(&w);
    pieces_init(&w, p, 3, SCHED_TASKS_US);
    p[0].work = p[1].work = "piece";
    p[2].us = 1;
    p[0].flush = &p[2].task;
    sched_post(&w.sched, &p[0].task);
    sched_post(&w.sched, &p[1].task);
    turn(&w);
    assert_notes(&w, "ac");
    turn(&w);
    assert_notes(&w, "b");
    buf_deinit(&w.notes);
}

/* Nor do many flushes pile up: they are run before further tasks are. */
static void test_many_flushes_come_before_more_tasks(void **state)
{
    struct world w;
    static struct piece p[400], f[400];
    world_init(&w);
    pieces_init(&w, p, 400, 1);
    pieces_init(&w, f, 400, 20);
    for (int i = 0; i < 400; i++) {
        p[i].flush = &f[i].task;
        sched_post(&w.sched, &p[i].task);
    }
    unsigned turns = 0;
    do {
        uint64_t us = turn(&w);
        assert_true(us <= SCHED_TASKS_US + SCHED_FLUSH_US + SCHED_LOOK * 20);
        unsigned tasks = 0, flushes = 0;
        for (int i = 0; i < 400; i++) {
            tasks += p[i].ran;
            flushes += f[i].ran;
        }
        assert_true(tasks - flushes < SCHED_FLUSHES + SCHED_LOOK);
        turns++;
    } while (sched_is_busy(&w.sched));
    assert_in_range(turns, 4, 16);
    for (int i = 0; i < 400; i++)
        assert_int_equal(f[i].ran, 1);
    buf_deinit(&w.notes);
}

/* One that makes itself again does not hold the loop. */
static void flush_again(struct task *t)
{
    struct piece *p = container_of(t, struct piece, task);
    p->ran++;
    now_ns += 20 * US;
    sched_post_flush(&p->world->sched, t);
}

static void test_an_endless_flush_ends_the_turn(void **state)
{
    struct world w;
    struct piece p[2];
    world_init(&w);
    pieces_init(&w, p, 2, 10);
    task_init(&p[0].task, flush_again);
    sched_post_flush(&w.sched, &p[0].task);
    turn(&w);
    assert_true(sched_is_busy(&w.sched));
    sched_post(&w.sched, &p[1].task);
    turn(&w);
    assert_int_equal(p[1].ran, 1);
    buf_deinit(&w.notes);
}

static void test_background_has_its_share_and_no_more(void **state)
{
    struct world w;
    struct piece p[2];
    world_init(&w);
    pieces_init(&w, p, 2, 100);
    p[0].work = "task chain";
    p[0].again = 1000;
    p[1].again = 1000;
    p[1].in_background = true;
    sched_post(&w.sched, &p[0].task);
    sched_post_background(&w.sched, &p[1].task);
    for (int i = 0; i < 10; i++)
        turn(&w);
    assert_int_equal(p[0].ran, 10 * (SCHED_TASKS_US / 100));
    assert_int_equal(p[1].ran, 10 * (SCHED_BACKGROUND_US / 100 + 1));
    /* the same alone: somebody may want I/O */
    p[0].again = 0;
    turn(&w);
    unsigned before = p[1].ran;
    turn(&w);
    assert_int_equal(p[1].ran - before, SCHED_BACKGROUND_US / 100 + 1);
    /* one piece, however long, if tasks take all */
    p[0].again = 10;
    p[1].us = 5 * SCHED_TASKS_US;
    sched_post(&w.sched, &p[0].task);
    before = p[1].ran;
    turn(&w);
    assert_int_equal(p[1].ran - before, 1);
    buf_deinit(&w.notes);
}

/* By hand: when there is nothing else to do, and all of it. */
static void test_background_without_a_budget(void **state)
{
    struct world w;
    struct piece p[3];
    world_init(&w);
    w.sched.clock_ns = NULL;
    pieces_init(&w, p, 3, 5000);
    p[0].again = 2;
    p[0].in_background = true;
    p[1].again = 2;
    p[0].flush = &p[2].task;
    sched_post_background(&w.sched, &p[0].task);
    sched_post(&w.sched, &p[1].task);
    sched_turn(&w.sched, 1, 0);
    assert_notes(&w, "bbbacacac");
    sched_post_background(&w.sched, &p[0].task);
    task_cancel(&p[0].task);
    sched_drain(&w.sched);
    assert_notes(&w, "");
    buf_deinit(&w.notes);
}

/* ---- timers ---- */

static void test_timers_of_one_tick_go_on_in_order(void **state)
{
    struct world w;
    static struct piece p[26];
    world_init(&w);
    pieces_init(&w, p, 26, 100);
    for (int i = 0; i < 26; i++) {
        p[i].work = "beat";
        sched_start(&w.sched, &p[i].timer, 100);
    }
    now_ns += 200000 * US;
    unsigned turns = 0;
    while (turns == 0 || sched_is_busy(&w.sched)) {
        assert_true(turn(&w) <= SCHED_TASKS_US);
        if (turns++ == 0) { /* in the middle: stops, and starts, which go to their places */
            timer_stop(&p[20].timer);
            sched_start(&w.sched, &p[21].timer, 1000);
            assert_int_equal(sched_wait_ms(&w.sched), 0);
        }
    }
    assert_notes(&w, "abcdefghijklmnopqrstwxyz"); /* without u, and v later */
    buf_deinit(&w.notes);
}

/* Random masses: each fires once, none early, those of one tick in the order they were started. */
#define BEATS 3000
struct beat {
    struct timer timer;
    struct world *world;
    uint64_t due_tick, order;
    bool fired;
};
static uint64_t last_tick, last_order, n_fired;

static void beat_fire(struct timer *t)
{
    struct beat *b = container_of(t, struct beat, timer);
    assert_false(b->fired);
    assert_true(b->world->sched.now_ms >= t->due_ms);
    assert_true(b->due_tick > last_tick || (b->due_tick == last_tick && b->order > last_order));
    last_tick = b->due_tick;
    last_order = b->order;
    b->fired = true;
    n_fired++;
    now_ns += 50 * US;
}

static void test_masses_of_timers(void **state)
{
    static struct beat beats[BEATS];
    struct world w;
    uint64_t random = 12345;
    world_init(&w);
    last_tick = last_order = n_fired = 0;
    for (uint64_t i = 0; i < BEATS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t delay = 1 + (random >> 33) % 40 * (SCHED_SLOTS * SCHED_TICK_MS / 10);
        beats[i] = (struct beat){.world = &w, .order = i + 1};
        timer_init(&beats[i].timer, beat_fire);
        sched_start(&w.sched, &beats[i].timer, delay);
        beats[i].due_tick = (beats[i].timer.due_ms + SCHED_TICK_MS - 1) / SCHED_TICK_MS;
    }
    unsigned turns = 0;
    while (sched_wait_ms(&w.sched) != UINT64_MAX) {
        now_ns += sched_wait_ms(&w.sched) * 1000 * US;
        assert_true(turn(&w) <= SCHED_TASKS_US + SCHED_LOOK * 50);
        turns++;
    }
    assert_int_equal(n_fired, BEATS);
    assert_true(turns > BEATS * 50 / (SCHED_TASKS_US + SCHED_LOOK * 50));
}

/* ---- I/O ---- */

/* Callbacks that read much have no name of their own, either. */
static void test_large_io_is_put_off_as_soon_as_its_share_is_used(void **state)
{
    struct world w;
    world_init(&w);
    int n = 0;
    for (; n < 100 && !sched_io(&w.sched); n++) {
        sched_look_soon(&w.sched);
        now_ns += SCHED_IO_US / 4 * US;
    }
    assert_int_equal(n, 4);
    buf_deinit(&w.notes);
}

static void test_io_is_put_off_when_its_share_is_used(void **state)
{
    struct world w;
    struct piece p[4];
    world_init(&w);
    pieces_init(&w, p, 4, 100);
    /* callbacks of one round */
    assert_false(sched_io(&w.sched));
    sched_work(&w.sched, "handshake"); /* is looked at right behind */
    now_ns += (SCHED_IO_US - 1) * US;
    assert_false(sched_io(&w.sched));
    sched_work(&w.sched, "handshake");
    now_ns += 1 * US;
    for (int i = 0; i < 3; i++) {
        assert_true(sched_io(&w.sched));
        sched_post_io(&w.sched, &p[i].task);
    }
    p[0].work = p[1].work = p[2].work = "handshake";
    sched_post(&w.sched, &p[3].task);
    turn(&w);
    assert_notes(&w, "ad"); /* at least one, and then the tasks */
    /* the next round: who comes stands behind those who wait */
    now_ns += 5000 * US;
    assert_true(sched_io(&w.sched));
    sched_post_io(&w.sched, &p[3].task);
    turn(&w);
    assert_notes(&w, "bcd");
    assert_false(sched_io(&w.sched));
    buf_deinit(&w.notes);
}

/* ---- who held it ---- */

static void test_the_longest_piece_is_named(void **state)
{
    struct world w;
    struct piece p[3];
    world_init(&w);
    pieces_init(&w, p, 3, 10);
    p[1].work = "list";
    p[1].us = 30000;
    for (int i = 0; i < 3; i++)
        sched_post(&w.sched, &p[i].task);
    assert_int_equal(turn(&w), 30010);
    assert_string_equal(w.sched.longest, "list");
    turn(&w);
    /* one that did not say: what it is */
    p[0].us = 20000;
    sched_post(&w.sched, &p[0].task);
    turn(&w);
    assert_string_equal(w.sched.longest, "task");
    sched_start(&w.sched, &p[0].timer, 1);
    now_ns += 100000 * US; /* sleeping is nobody's work */
    turn(&w);
    assert_string_equal(w.sched.longest, "timer");
    sched_post_background(&w.sched, &p[0].task);
    turn(&w);
    assert_string_equal(w.sched.longest, "background");
    sched_io(&w.sched);
    now_ns += 20000 * US;
    sched_post(&w.sched, &p[2].task);
    assert_int_equal(turn(&w), 20010);
    assert_string_equal(w.sched.longest, "io");
    buf_deinit(&w.notes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_rest_is_left_for_the_next_turn),
        cmocka_unit_test(test_pieces_without_a_name),
        cmocka_unit_test(test_large_pieces_without_a_name),
        cmocka_unit_test(test_chains_take_turns),
        cmocka_unit_test(test_flushes_are_not_kept_waiting),
        cmocka_unit_test(test_many_flushes_come_before_more_tasks),
        cmocka_unit_test(test_an_endless_flush_ends_the_turn),
        cmocka_unit_test(test_background_has_its_share_and_no_more),
        cmocka_unit_test(test_background_without_a_budget),
        cmocka_unit_test(test_timers_of_one_tick_go_on_in_order),
        cmocka_unit_test(test_masses_of_timers),
        cmocka_unit_test(test_large_io_is_put_off_as_soon_as_its_share_is_used),
        cmocka_unit_test(test_io_is_put_off_when_its_share_is_used),
        cmocka_unit_test(test_the_longest_piece_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
