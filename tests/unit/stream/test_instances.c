// SPDX-License-Identifier: Apache-2.0
/* Who is alive, on a clock of our own: several of them in one process, over one store. */
#include "base/err.h"
#include "base/mem.h"
#include "stream/instances.h"
#include "model/delay.c"
#include "store/mem/mem_store.h"
#include "store/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "unit/feature/sessions/session_bench.h"

#define BEAT  INSTANCE_BEAT_MS
#define LEASE ((INSTANCE_LOOKS + 1) * BEAT)

struct world {
    struct sched sched;
    struct facade *front;
    struct instances *in[3];
    struct instance_observer heirs[3];
    unsigned n_died[3], n_beats;
    char last[3][INSTANCE_ID_TEXT + 1];
    bool away;      /* the store */
    bool read_only; /* it can be read, but takes nothing */
    unsigned n_stopped;
};
static struct world *world;

static int judge(void *ctx, const char *verb, struct str name)
{
    const struct world *w = ctx;
    return w->away || (w->read_only && strcmp(verb, "put") == 0) ? ERR_BUSY : 0;
}

static void died(struct instance_observer *h, struct str id)
{
    size_t i = (size_t)(h - world->heirs);
    world->n_died[i]++;
    memcpy(world->last[i], id.p, id.n);
}

static void beat(struct instance_observer *h)
{
    world->n_beats++;
}

static void pass(struct world *w, uint64_t ms)
{
    for (uint64_t left = ms; left > 0; left -= left < 100 ? left : 100)
        sched_turn(&w->sched, w->sched.now_ms + (left < 100 ? left : 100), 0);
}

static void on_stopped(void *ctx)
{
    ((struct world *)ctx)->n_stopped++;
}

/* It dies: nothing more comes of it. */
static void kill_one(struct world *w, size_t i)
{
    instances_free(w->in[i]);
    w->in[i] = NULL;
}

static void start_one(struct world *w, size_t i)
{
    w->in[i] = instances_new(&w->sched, &w->front->store, BEAT);
    w->heirs[i] = (struct instance_observer){died, beat};
    instances_set_observer(w->in[i], &w->heirs[i]);
}

static int set_up(void **state)
{
    struct world *w = world = mem_zalloc(sizeof *w);
    sched_init(&w->sched, 1000, 0);
    w->front = facade_new(mem_store_new(&w->sched));
    w->front->store.shared = true;
    w->front->judge = judge;
    w->front->ctx = w;
    start_one(w, 0);
    start_one(w, 1);
    pass(w, 100);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    w->away = false;
    pass(w, 100); /* nothing is under way */
    for (size_t i = 0; i < 3; i++)
        instances_free(w->in[i]);
    store_free(&w->front->store);
    free(w);
    return 0;
}

static void test_each_has_an_id_of_its_own(void **state)
{
    struct world *w = *state;
    char text[INSTANCE_ID_TEXT + 1];
    assert_true(instances_id(w->in[0]) != instances_id(w->in[1]));
    snprintf(text, sizeof text, "%016" PRIx64, instances_id(w->in[0]));
    assert_true(str_eq(instances_name(w->in[0]), str_of_cstr(text)));
}

static void test_who_lives_is_not_dead(void **state)
{
    struct world *w = *state;
    pass(w, 20 * LEASE);
    assert_int_equal(w->n_died[0] + w->n_died[1], 0);
    assert_false(instances_is_dead(w->in[0], instances_id(w->in[1])));
}

static void test_who_died_is_dead_after_the_lease_and_not_before(void **state)
{
    struct world *w = *state;
    uint64_t id = instances_id(w->in[1]);
    char name[INSTANCE_ID_TEXT + 1] = {0};
    memcpy(name, instances_name(w->in[1]).p, INSTANCE_ID_TEXT);
    pass(w, 12345);
    kill_one(w, 1);
    pass(w, (INSTANCE_LOOKS - 1) * BEAT);
    assert_false(instances_is_dead(w->in[0], id));
    assert_int_equal(w->n_died[0], 0);
    pass(w, 3 * BEAT);
    assert_true(instances_is_dead(w->in[0], id));
    assert_true(w->n_died[0] > 0);
    assert_string_equal(w->last[0], name);
}

static void test_the_heir_is_told_until_the_dead_is_buried(void **state)
{
    struct world *w = *state;
    char name[INSTANCE_ID_TEXT];
    memcpy(name, instances_name(w->in[1]).p, INSTANCE_ID_TEXT);
    kill_one(w, 1);
    pass(w, 2 * LEASE);
    unsigned told = w->n_died[0];
    assert_true(told > 1);
    instances_remove(w->in[0], str_of(name, INSTANCE_ID_TEXT));
    pass(w, BEAT);
    told = w->n_died[0];
    pass(w, 2 * LEASE);
    assert_int_equal(w->n_died[0], told);
}

/* One that begins later has to see for itself. */
static void test_a_newcomer_finds_the_dead(void **state)
{
    struct world *w = *state;
    kill_one(w, 0);
    kill_one(w, 1);
    pass(w, 10 * LEASE);
    start_one(w, 2);
    pass(w, (INSTANCE_LOOKS - 1) * BEAT);
    assert_int_equal(w->n_died[2], 0);
    pass(w, 2 * BEAT);
    assert_true(w->n_died[2] >= 2);
}

static void test_a_store_that_is_away_kills_nobody(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 5; i++) {
        w->away = true;
        unsigned beats = w->n_beats;
        pass(w, 10 * LEASE + 1234);
        assert_int_equal(w->n_beats, beats);
        w->away = false;
        pass(w, 3 * BEAT);
    }
    assert_int_equal(w->n_died[0] + w->n_died[1], 0);
}

/* Full, or without its replicas: who does not get through with a sign of life may be alive. */
static void test_a_store_that_takes_nothing_kills_nobody(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 5; i++) {
        w->read_only = true;
        pass(w, 10 * LEASE + 1234);
        w->read_only = false;
        pass(w, 3 * BEAT);
    }
    assert_int_equal(w->n_died[0] + w->n_died[1], 0);
}

/* The process was stopped, or its machine asleep: the others may have died, or not. */
static void test_time_that_one_slept_does_not_count(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 10; i++) {
        sched_turn(&w->sched, w->sched.now_ms + 10 * LEASE, 0);
        pass(w, BEAT / 2);
    }
    assert_int_equal(w->n_died[0] + w->n_died[1], 0);
}

/* Its document was taken away while it was stopped: it is there again, and not dead. */
static void test_one_that_was_buried_alive_comes_back(void **state)
{
    struct world *w = *state;
    pass(w, BEAT);
    instances_remove(w->in[0], instances_name(w->in[1]));
    pass(w, 100);
    pass(w, 2 * LEASE);
    assert_int_equal(w->n_died[0], 0);
    uint64_t id = instances_id(w->in[1]);
    kill_one(w, 1);
    pass(w, 2 * LEASE);
    assert_true(instances_is_dead(w->in[0], id)); /* so it was there */
}

static void test_who_stops_takes_its_document_along(void **state)
{
    struct world *w = *state;
    uint64_t id = instances_id(w->in[1]);
    instances_stop(w->in[1], on_stopped, w);
    assert_int_equal(w->n_stopped, 0);
    pass(w, 100);
    assert_int_equal(w->n_stopped, 1);
    kill_one(w, 1);
    pass(w, 3 * LEASE);
    assert_int_equal(w->n_died[0], 0);
    assert_false(instances_is_dead(w->in[0], id));
}

static void test_stopping_waits_for_what_is_under_way(void **state)
{
    struct world *w = *state;
    start_one(w, 2); /* its first operations have begun, and nothing more */
    instances_stop(w->in[2], on_stopped, w);
    assert_int_equal(w->n_stopped, 0);
    pass(w, 100);
    assert_int_equal(w->n_stopped, 1);
}

static void test_a_slow_store(void **state)
{
    struct sched sched;
    sched_init(&sched, 1000, 0);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct store *store = delay_store_new(mem_store_new(&sched), seed, 40);
        struct instances *a = instances_new(&sched, store, BEAT);
        struct instances *b = instances_new(&sched, store, BEAT);
        uint64_t id = instances_id(b);
        bool dead = false;
        for (int i = 0; i < 10000; i++) {
            sched_turn(&sched, sched.now_ms + SCHED_TICK_MS, 0);
            dead |= instances_is_dead(a, id) || instances_is_dead(b, instances_id(a));
        }
        assert_false(dead);
        unsigned stopped = 0;
        world->n_stopped = 0;
        instances_stop(b, on_stopped, world);
        instances_stop(a, on_stopped, world);
        for (int i = 0; i < 1000 && world->n_stopped < 2; i++)
            sched_turn(&sched, sched.now_ms + SCHED_TICK_MS, 0);
        stopped = world->n_stopped;
        assert_int_equal(stopped, 2);
        assert_int_equal(delay_pending(store), 0);
        instances_free(a);
        instances_free(b);
        store_free(store);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_each_has_an_id_of_its_own),
        TEST(test_who_lives_is_not_dead),
        TEST(test_who_died_is_dead_after_the_lease_and_not_before),
        TEST(test_the_heir_is_told_until_the_dead_is_buried),
        TEST(test_a_newcomer_finds_the_dead),
        TEST(test_a_store_that_is_away_kills_nobody),
        TEST(test_a_store_that_takes_nothing_kills_nobody),
        TEST(test_time_that_one_slept_does_not_count),
        TEST(test_one_that_was_buried_alive_comes_back),
        TEST(test_who_stops_takes_its_document_along),
        TEST(test_stopping_waits_for_what_is_under_way),
        TEST(test_a_slow_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
