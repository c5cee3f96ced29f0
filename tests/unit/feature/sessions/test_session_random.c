// SPDX-License-Identifier: Apache-2.0
/* Sessions over a store that is never in a hurry, is busy at times and fails now and then, with
 * clients that drop, overtake themselves and come back, and servers that are stopped and started:
 * see model/session_model.h for what must hold, model/seeds.h for how to repeat a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/units.h"
#include "model/delay.c"
#include "model/session_model.h"
#include "store/mem/mem_store.h"

#define SEEDS      60
#define STEPS_MAX  1500
#define TURNS_MAX  20000
#define START_WALL 1700000000000

enum mood { CALM, BUSY, FAILING };

struct world {
    struct session_model model;
    struct sched sched;
    struct store *store; /* delays; under it the front, under that the store in memory */
    struct feeds feeds;
    struct sessions_setup setup;
    enum mood mood;
    bool stopped, quiet;
};

static void pass_turn(struct world *w, uint64_t ms)
{
    sched_turn(&w->sched, w->sched.now_ms + ms, w->sched.wall_ms + (int64_t)ms);
}

static bool never_off(const struct session_model *m)
{
    return false;
}

/* What is created is not refused but for good: it would be degraded, and the talk over. */
static int judge(void *ctx, const char *verb, struct str name)
{
    struct world *w = container_of((struct session_model *)ctx, struct world, model);
    struct rng *rng = &w->model.rng;
    if (strcmp(verb, "write") != 0 || w->mood == CALM || w->quiet)
        return 0;
    if (w->mood == FAILING && rng_one_in(rng, 60))
        return ERR_IO;
    if (w->model.creates || !rng_one_in(rng, 8))
        return 0;
    return rng_one_in(rng, 2) ? ERR_BUSY : ERR_FULL;
}

static void note_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static void stop_engine(struct world *w)
{
    w->stopped = false;
    sessions_stop(w->model.all, note_stopped, &w->stopped);
    for (int i = 0; i < TURNS_MAX && !w->stopped; i++)
        pass_turn(w, SCHED_TICK_MS);
    assert_true(w->stopped);
    sessions_free(w->model.all);
}

static struct world *world_new(const struct rng *rng)
{
    struct world *w = mem_zalloc(sizeof *w);
    struct session_model *m = &w->model;
    sched_init(&w->sched, 0, START_WALL);
    model_init(m, rng->state, &w->sched);
    w->mood = (enum mood)rng_below(&m->rng, 3);
    m->harsh = w->mood != CALM;
    m->is_off = never_off;
    model_listen(m, facade_new(mem_store_new(&w->sched)));
    m->front->judge = judge;
    w->store =
        delay_store_new(&m->front->store, rng_next(&m->rng), (unsigned)rng_between(&m->rng, 1, 4));
    feeds_init(&w->feeds, w->store);
    w->setup = (struct sessions_setup){.sched = &w->sched,
                                       .store = w->store,
                                       .feeds = &w->feeds,
                                       .backend = &m->backend,
                                       .lifetime_ms = DAY_MS,
                                       .max_open = 100,
                                       .max_bytes = 64 * 1024 * 1024};
    m->all = sessions_new(&w->setup);
    return w;
}

static void world_free(struct world *w)
{
    for (size_t i = 0; i < TALKS; i++) {
        talk_free(w->model.talks[i]);
        w->model.talks[i] = NULL;
    }
    stop_engine(w);
    for (int i = 0; i < TURNS_MAX && delay_pending(w->store) > 0; i++)
        pass_turn(w, SCHED_TICK_MS);
    feeds_deinit(&w->feeds);
    store_free(w->store);
    model_deinit(&w->model);
    free(w);
}

/* At once, or after a while in which what is under way may come to its end. */
static void restart_engine(struct world *w)
{
    struct session_model *m = &w->model;
    if (rng_one_in(&m->rng, 2)) {
        sessions_drain(m->all);
        for (uint64_t n = rng_below(&m->rng, 40); n > 0 && !m->failed; n--) {
            model_step(m, true);
            pass_turn(w, SCHED_TICK_MS);
        }
    }
    stop_engine(w);
    m->all = sessions_new(&w->setup);
}

static void live(struct world *w)
{
    struct session_model *m = &w->model;
    struct rng *rng = &m->rng;
    for (uint64_t n = rng_between(rng, 100, STEPS_MAX); n > 0 && !m->failed; n--) {
        model_step(m, true);
        for (uint64_t turns = rng_below(rng, 4); turns > 0; turns--)
            pass_turn(w, SCHED_TICK_MS);
        if (rng_one_in(rng, 200)) { /* long enough for what nobody needs to be let go */
            pass_turn(w, MINUTE_MS);
            pass_turn(w, MINUTE_MS);
        }
        if (rng_one_in(rng, 300))
            restart_engine(w);
    }
}

/* Whatever has happened, everybody gets to the end. */
static void finish(struct world *w)
{
    struct session_model *m = &w->model;
    bool busy = true;
    w->quiet = true;
    stop_engine(w); /* one that has seen the store fail would keep clients off it */
    m->all = sessions_new(&w->setup);
    for (int i = 0; i < TURNS_MAX && busy && !m->failed; i++) {
        busy = model_step(m, false);
        pass_turn(w, SCHED_TICK_MS);
    }
    if (busy)
        blame(m, "some are never done");
}

static uint64_t total_acks, total_events, total_again, total_finished, total_replaced,
    total_dropped, total_degraded, total_failed;

static void body(struct rng *rng)
{
    struct world *w = world_new(rng);
    struct session_model *m = &w->model;
    char verdict[sizeof m->verdict];
    live(w);
    finish(w);
    bool failed = m->failed;
    memcpy(verdict, m->verdict, sizeof verdict);
    total_acks += m->n_acks;
    total_events += m->n_events;
    total_again += m->n_again;
    total_finished += m->n_finished;
    total_replaced += m->n_replaced;
    total_dropped += m->n_dropped;
    total_degraded += m->n_degraded;
    total_failed += m->n_failed;
    world_free(w);
    if (failed)
        fail_msg("%s", verdict);
}

static void test_sessions_survive(void **state)
{
    seeds_run(SEEDS, body);
    print_message("%llu sessions, %llu acks, %llu events; %llu chunks answered again; %llu "
                  "connections dropped, %llu overtaken, %llu failed, %llu degraded\n",
                  (unsigned long long)total_finished, (unsigned long long)total_acks,
                  (unsigned long long)total_events, (unsigned long long)total_again,
                  (unsigned long long)total_dropped, (unsigned long long)total_replaced,
                  (unsigned long long)total_failed, (unsigned long long)total_degraded);
    if (seeds_env("TIDEMARK_SEED") == 0) /* or life was too easy */
        assert_true(total_again > 0 && total_replaced > 0 && total_failed > 0 &&
                    total_degraded > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_sessions_survive, seeds_teardown),
    };
    return cmocka_run_group_tests_name("unit/session_random", tests, NULL, NULL);
}
