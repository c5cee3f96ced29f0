// SPDX-License-Identifier: Apache-2.0
/* What expires is removed some at a time, what does not is left alone, and clocks may jump. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "model/seeds.h"
#include "store/catalog/catalog.h"
#include "store/catalog/verdict.h"

#define WALL_MS  1700000000000
#define HOUR_MS  (60 * 60 * 1000LL)
#define MANY     3000
#define AT_ONCE  18 /* removals in a slice */
#define SWEEP_MS 1100

struct world {
    struct sched sched;
    struct store store;
    struct catalog catalog;
    struct rng rng;
    void (*sweep)(struct task *t);
    size_t slices, most_removed, looks;
    enum trim_verdict verdict;
};

static struct world *world_of(struct catalog *c)
{
    return container_of(c, struct world, catalog);
}

static enum trim_verdict count_look(struct catalog *c, struct stream *s)
{
    world_of(c)->looks++;
    return world_of(c)->verdict;
}

static void count_slice(struct task *t)
{
    struct world *w = world_of(container_of(t, struct catalog, sweeping));
    size_t before = w->catalog.streams.n;
    w->sweep(t);
    w->slices++;
    if (before - w->catalog.streams.n > w->most_removed)
        w->most_removed = before - w->catalog.streams.n;
}

static void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){.rng.state = seed};
    sched_init(&w->sched, 0, WALL_MS);
    w->store = (struct store){.sched = &w->sched, .fork_depth = STORE_FORK_DEPTH};
    catalog_init(&w->catalog, &w->store);
    w->catalog.trim = count_look;
    w->sweep = w->catalog.sweeping.run;
    w->catalog.sweeping.run = count_slice;
}

static void world_start(struct world *w)
{
    catalog_start_clock(&w->catalog);
    catalog_start_sweep(&w->catalog);
}

static void pass_ms(struct world *w, int64_t ms)
{
    w->slices = w->most_removed = w->looks = 0;
    for (; ms > 0; ms -= 500)
        sched_turn(&w->sched, w->sched.now_ms + 500, w->sched.wall_ms + 500);
}

static struct stream *add(struct world *w, unsigned i, struct stream_config config)
{
    char name[32];
    snprintf(name, sizeof name, "s%u", i);
    struct stream *s = catalog_add(&w->catalog, str_of_cstr(name), w->catalog.lives + 1, &config,
                                   STR("text/plain"));
    stream_show(&w->catalog, s);
    return s;
}

static struct stream_config lasting(int64_t ttl_s, int64_t expires_ms)
{
    return (struct stream_config){.ttl_s = ttl_s, .expires_ms = expires_ms};
}

/* ---- how much at once ---- */

static void assert_removed_by_parts(struct world *w)
{
    assert_int_equal(w->catalog.streams.n, 1);
    assert_in_range(w->most_removed, 1, AT_ONCE);
    assert_true(w->slices >= MANY / AT_ONCE);
    pass_ms(w, SWEEP_MS);
    assert_in_range(w->slices, 1, 2); /* a sweep that has nothing to do */
}

static void test_many_at_once(void **state)
{
    for (int dated = 0; dated < 2; dated++) {
        struct world w;
        world_init(&w, 1);
        world_start(&w);
        add(&w, MANY, lasting(3600, STORE_TTL_NONE));
        for (unsigned i = 0; i < MANY; i++)
            add(&w, i,
                dated ? lasting(STORE_TTL_NONE, WALL_MS + 5000) : lasting(5, STORE_TTL_NONE));
        pass_ms(&w, 4000);
        assert_int_equal(w.catalog.streams.n, MANY + 1);
        pass_ms(&w, 2 * SWEEP_MS);
        assert_removed_by_parts(&w);
        catalog_deinit(&w.catalog);
    }
}

/* Who was loaded counts as touched when the clock starts, and nobody walks them for it. */
static void test_loaded(void **state)
{
    struct world w;
    world_init(&w, 1);
    for (unsigned i = 0; i < MANY; i++)
        add(&w, i, lasting(10, STORE_TTL_NONE));
    add(&w, MANY, lasting(STORE_TTL_NONE, STORE_TTL_NONE));
    sched_turn(&w.sched, 8000, WALL_MS + 8000); /* loading took long */
    world_start(&w);
    pass_ms(&w, 8000);
    assert_int_equal(w.catalog.streams.n, MANY + 1);
    pass_ms(&w, 2 * SWEEP_MS + 2000);
    assert_removed_by_parts(&w);
    catalog_deinit(&w.catalog);
}

/* ---- looks at what streams retain ---- */

static void test_looks(void **state)
{
    struct world w;
    world_init(&w, 1);
    world_start(&w);
    struct stream_config events = lasting(STORE_TTL_NONE, STORE_TTL_NONE), aged = events;
    events.retain.events = 10;
    aged.retain.age_ms = 1600000; /* a hundred seconds are a sixteenth of it */
    for (unsigned i = 0; i < MANY; i++)
        add(&w, i, events);
    pass_ms(&w, SWEEP_MS);
    assert_int_equal(w.looks, MANY); /* a new one may be a fork that has too much */
    pass_ms(&w, 100000);
    assert_int_equal(w.looks, 0);
    struct stream *s = add(&w, MANY, aged);
    pass_ms(&w, 300000);
    assert_int_equal(w.looks, 1); /* it is empty */
    s->tape.tail = 1;             /* as if appended to; then it holds something that will age */
    stream_look_soon(&w.catalog, s);
    pass_ms(&w, SWEEP_MS + 1000);
    assert_int_equal(w.looks, 1);
    pass_ms(&w, 1000000);
    assert_in_range(w.looks, 9, 11);
    w.verdict = TRIM_LOOK; /* there is something to do: looked at until it is done */
    pass_ms(&w, 110000);
    assert_in_range(w.looks, 5, 111);
    w.verdict = TRIM_NONE;
    s->tape.tail = 0;
    catalog_deinit(&w.catalog);
}

/* Who appends to a stream that holds too much at rest has it looked at soon. */
static void test_too_much_rests(void **state)
{
    struct world w;
    world_init(&w, 1);
    world_start(&w);
    struct stream_config config = lasting(STORE_TTL_NONE, STORE_TTL_NONE);
    config.retain.events = 500;
    struct stream *s = add(&w, 0, config);
    s->tape.first = s->tape.tail = s->tape.events = s->settled_tail = 1000;
    pass_ms(&w, 5000);
    w.looks = 0;
    struct store_write write = {.name = s->name, .data = STR("x"), .n_events = 1};
    struct judgement j;
    assert_int_equal(catalog_judge(&w.catalog, &write, &j, NULL, NULL), VERDICT_APPLY);
    assert_ptr_equal(catalog_apply(&w.catalog, &write, &j), s);
    pass_ms(&w, 2 * SWEEP_MS);
    assert_in_range(w.looks, 1, 3);
    catalog_deinit(&w.catalog);
}

/* ---- against a model ---- */

#define STREAMS 60

struct known {
    struct stream *stream;
    int64_t ttl_s, expires_ms, touched_ms; /* steady */
};

/* The clock: time passes, or it jumps, by more than it may lead. */
static int64_t pass_some(struct world *w, int64_t *jumped_ms)
{
    int64_t by = (int64_t)rng_below(&w->rng, 20) * 500, jump = 0;
    if (rng_one_in(&w->rng, 30))
        jump = rng_one_in(&w->rng, 2) ? 2 * HOUR_MS : -2 * HOUR_MS;
    sched_turn(&w->sched, w->sched.now_ms + (uint64_t)by, w->sched.wall_ms + by + jump);
    *jumped_ms += jump;
    return by;
}

static bool is_over(const struct known *k, int64_t steady_ms, int64_t jumped_ms)
{
    return (k->ttl_s >= 0 && steady_ms >= k->touched_ms + k->ttl_s * 1000) ||
           (k->expires_ms >= 0 && steady_ms + jumped_ms >= k->expires_ms);
}

static void add_known(struct world *w, unsigned i, struct known *k, int64_t steady_ms,
                      int64_t jumped_ms)
{
    *k =
        (struct known){.ttl_s = rng_one_in(&w->rng, 2) ? (int64_t)rng_between(&w->rng, 1, 100) : -1,
                       .expires_ms = -1,
                       .touched_ms = steady_ms};
    if (k->ttl_s < 0 || rng_one_in(&w->rng, 2))
        k->expires_ms = steady_ms + jumped_ms + (int64_t)rng_below(&w->rng, 3 * HOUR_MS);
    k->stream = add(w, i, lasting(k->ttl_s, k->expires_ms));
}

static void test_model(void **state)
{
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct world w;
        struct known all[STREAMS] = {{0}};
        int64_t steady_ms = WALL_MS, jumped_ms = 0;
        size_t n_over = 0;
        world_init(&w, seed);
        world_start(&w);
        for (int step = 0; step < 1000; step++) {
            unsigned i = (unsigned)rng_below(&w.rng, STREAMS);
            if (all[i].stream == NULL) {
                add_known(&w, i, &all[i], steady_ms, jumped_ms);
            } else if (!is_over(&all[i], steady_ms, jumped_ms)) {
                stream_touch(&w.catalog, all[i].stream);
                all[i].touched_ms = steady_ms;
            }
            steady_ms += pass_some(&w, &jumped_ms);
            for (int k = 0; k < 3; k++, steady_ms += 500) /* at least one sweep */
                sched_turn(&w.sched, w.sched.now_ms + 500, w.sched.wall_ms + 500);
            for (unsigned k = 0; k < STREAMS; k++) {
                char name[32];
                snprintf(name, sizeof name, "s%u", k);
                bool there = map_get(&w.catalog.streams, str_of_cstr(name)) != NULL;
                if (all[k].stream == NULL)
                    continue;
                if (!there) { /* now or a moment ago */
                    assert_true(is_over(&all[k], steady_ms, jumped_ms));
                    all[k].stream = NULL;
                    n_over++;
                } else { /* or it is over since the sweep */
                    assert_false(is_over(&all[k], steady_ms - 1100, jumped_ms));
                }
            }
        }
        assert_true(n_over > 20);
        catalog_deinit(&w.catalog);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_at_once), cmocka_unit_test(test_loaded),
        cmocka_unit_test(test_looks),        cmocka_unit_test(test_too_much_rests),
        cmocka_unit_test(test_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
