// SPDX-License-Identifier: Apache-2.0
/* Who is delivered to next: counts of places, never times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rand.h"
#include "feature/subscriptions/webhook_queue.h"

#define TURNS 2000

struct place {
    struct webhook_queue q;
    struct webhook_turn turns[TURNS];
    size_t n;
};

static int setup(void **state)
{
    struct place *p = mem_zalloc(sizeof *p);
    webhook_queue_init(&p->q);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    webhook_queue_deinit(&p->q);
    free(p);
    return 0;
}

static struct webhook_turn *put(struct place *p, const char *receiver)
{
    assert_true(p->n < TURNS);
    struct webhook_turn *t = &p->turns[p->n++];
    webhook_queue_put(&p->q, t, str_of_cstr(receiver));
    return t;
}

static void put_many(struct place *p, const char *receiver, size_t n)
{
    while (n-- > 0)
        put(p, receiver);
}

/* Begins all that may; how many. */
static size_t begin_all(struct place *p)
{
    size_t n = 0;
    while (webhook_queue_next(&p->q) != NULL)
        n++;
    return n;
}

/* Ends what is under way and forgets what waits. */
static void finish_from(struct place *p, size_t first)
{
    for (size_t i = first; i < p->n; i++)
        if (list_empty(&p->turns[i].link))
            webhook_queue_end(&p->q, &p->turns[i], 1);
        else
            webhook_queue_remove(&p->q, &p->turns[i]);
}

static void finish(struct place *p)
{
    finish_from(p, 0);
}

/* Makes the receiver one of that pace. */
static void teach(struct place *p, const char *receiver, uint64_t took_ms)
{
    struct webhook_turn t;
    webhook_queue_put(&p->q, &t, str_of_cstr(receiver));
    assert_ptr_equal(webhook_queue_next(&p->q), &t);
    webhook_queue_end(&p->q, &t, took_ms);
}

static void test_one_receiver_cannot_take_all(void **state)
{
    struct place *p = *state;
    put_many(p, "slow", 1000);
    assert_int_equal(begin_all(p), WEBHOOK_DELIVERIES_MAX);
    struct webhook_turn *other = put(p, "other");
    assert_ptr_equal(webhook_queue_next(&p->q), other);
    put(p, "other"); /* it has one under way */
    assert_null(webhook_queue_next(&p->q));
    assert_int_equal(p->q.n_waiting, 1000 - WEBHOOK_DELIVERIES_MAX + 1);
    assert_int_equal(p->q.n_running, WEBHOOK_DELIVERIES_MAX + 1);
    finish(p);
}

/* Whatever it is taken for meanwhile. */
static void test_bound_of_a_receiver(void **state)
{
    struct place *p = *state;
    put_many(p, "r", 300);
    assert_int_equal(begin_all(p), WEBHOOK_DELIVERIES_MAX);
    for (size_t i = 0; i < 10; i++) {
        webhook_queue_end(&p->q, &p->turns[2 * i], 100);
        assert_int_equal(begin_all(p), 1);
        webhook_queue_end(&p->q, &p->turns[2 * i + 1], 30000);
        assert_int_equal(begin_all(p), 1);
    }
    finish_from(p, 20);
}

static void test_receivers_take_turns(void **state)
{
    struct place *p = *state;
    put_many(p, "a", 100);
    put_many(p, "b", 100);
    put_many(p, "c", 100);
    assert_int_equal(begin_all(p), WEBHOOK_DELIVERIES_MAX);
    size_t n[3] = {0};
    for (size_t i = 0; i < p->n; i++)
        n[i / 100] += list_empty(&p->turns[i].link);
    for (size_t i = 0; i < 3; i++)
        assert_in_range(n[i], WEBHOOK_DELIVERIES_MAX / 3, WEBHOOK_DELIVERIES_MAX / 3 + 1);
    finish(p);
}

/* A thousand names that were never heard of, or are known to be slow, leave the places of those
 * that are known to be quick alone. */
static void test_paces_have_their_own_places(void **state)
{
    struct place *p = *state;
    char name[16];
    teach(p, "quick", 100);
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "slow%d", i);
        teach(p, name, WEBHOOK_QUICK_MS);
    }
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "slow%d", i);
        put(p, name);
        snprintf(name, sizeof name, "new%d", i);
        put(p, name);
    }
    assert_int_equal(begin_all(p), 2 * (WEBHOOK_DELIVERIES_MAX + WEBHOOK_SPARE));
    put_many(p, "quick", 100);
    assert_int_equal(begin_all(p), WEBHOOK_DELIVERIES_MAX);
    finish(p);
}

static void test_overdue_gives_way(void **state)
{
    struct place *p = *state;
    const size_t all = WEBHOOK_DELIVERIES_MAX + WEBHOOK_SPARE;
    char name[16];
    for (size_t i = 0; i < 3 * all; i++) {
        snprintf(name, sizeof name, "tar%zu", i);
        put(p, name);
    }
    assert_int_equal(begin_all(p), all);
    for (size_t i = 0; i < all; i++) { /* they move to the places of slow ones */
        assert_true(webhook_queue_overdue(&p->q, &p->turns[i]));
        assert_int_equal(p->turns[i].place, WEBHOOK_SLOW);
    }
    assert_int_equal(begin_all(p), all);
    size_t left = 0;
    for (size_t i = all; i < 2 * all; i++) { /* for these none is left, and others wait */
        assert_false(webhook_queue_overdue(&p->q, &p->turns[i]));
        webhook_queue_end(&p->q, &p->turns[i], WEBHOOK_QUICK_MS);
        left += begin_all(p);
    }
    assert_int_equal(left, all);
    for (size_t i = 2 * all; i < 3 * all; i++) /* nobody waits for their places */
        assert_true(webhook_queue_overdue(&p->q, &p->turns[i]));
    assert_int_equal(p->turns[2 * all].place, WEBHOOK_UNKNOWN);
    for (size_t i = 0; i < all; i++) {
        webhook_queue_end(&p->q, &p->turns[i], 30000);
        webhook_queue_end(&p->q, &p->turns[2 * all + i], 30000);
    }
    assert_int_equal(p->q.lanes[WEBHOOK_SLOW].n_running, 0);
    assert_int_equal(p->q.lanes[WEBHOOK_UNKNOWN].n_running, 0);
}

static void test_memory_is_bounded(void **state)
{
    struct place *p = *state;
    char name[16];
    teach(p, "first", 100);
    for (int i = 0; i < WEBHOOK_RECEIVERS_MAX + 50; i++) {
        snprintf(name, sizeof name, "r%d", i);
        teach(p, name, 1);
    }
    assert_int_equal(p->q.n_idle, WEBHOOK_RECEIVERS_MAX);
    assert_int_equal(p->q.receivers.n, WEBHOOK_RECEIVERS_MAX);
    assert_null(map_get(&p->q.receivers, STR("first")));
}

/* Any order of calls: nobody who could be served waits, and no bound is passed. */
static void test_random(void **state)
{
    struct place *p = *state;
    enum { OUT, WAITS, RUNS } *is = mem_zalloc(TURNS * sizeof *is);
    char name[16];
    uint64_t x = 88172645463325252u;
    for (int step = 0; step < 60000; step++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        size_t i = (x >> 8) % TURNS;
        struct webhook_turn *t = &p->turns[i], *next;
        if (is[i] == OUT) {
            snprintf(name, sizeof name, "r%zu", i % 7 == 0 ? i : i % 3);
            webhook_queue_put(&p->q, t, str_of_cstr(name));
            is[i] = WAITS;
        } else if (is[i] == WAITS && x % 5 == 0) {
            webhook_queue_remove(&p->q, t);
            is[i] = OUT;
        } else if (is[i] == RUNS && (x % 4 == 0 || webhook_queue_overdue(&p->q, t))) {
            webhook_queue_end(&p->q, t, x % 3 == 0 ? WEBHOOK_NOT_ASKED : x % 4000);
            is[i] = OUT;
        }
        while ((next = webhook_queue_next(&p->q)) != NULL)
            is[next - p->turns] = RUNS;
        size_t waiting = 0, running = 0;
        if (step % 100 == 0) {
            for (size_t k = 0; k < TURNS; k++) {
                waiting += is[k] == WAITS;
                running += is[k] == RUNS;
            }
            assert_int_equal(p->q.n_waiting, waiting);
            assert_int_equal(p->q.n_running, running);
        }
        for (int k = 0; k < WEBHOOK_PACES; k++) {
            const struct webhook_lane *l = &p->q.lanes[k];
            assert_true(l->n_running <= WEBHOOK_DELIVERIES_MAX + WEBHOOK_SPARE);
            assert_true(l->n_running >= WEBHOOK_DELIVERIES_MAX || list_empty(&l->busy));
            assert_true(l->n_running == WEBHOOK_DELIVERIES_MAX + WEBHOOK_SPARE ||
                        list_empty(&l->free));
        }
    }
    for (size_t i = 0; i < TURNS; i++)
        if (is[i] == WAITS)
            webhook_queue_remove(&p->q, &p->turns[i]);
        else if (is[i] == RUNS)
            webhook_queue_end(&p->q, &p->turns[i], 1);
    free(is);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_one_receiver_cannot_take_all),
        T(test_bound_of_a_receiver),
        T(test_receivers_take_turns),
        T(test_paces_have_their_own_places),
        T(test_overdue_gives_way),
        T(test_memory_is_bounded),
        T(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
