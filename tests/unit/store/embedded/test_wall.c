// SPDX-License-Identifier: Apache-2.0
/* Clocks that are wrong: lifetimes and ages go on when they are right again, and what the clock
 * jumps meanwhile ends nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/embedded/embedded_core.h"
#include "unit/store/store_bench.h"

#define HOUR_MS   (60 * 60 * 1000LL)
#define YEAR_MS   (365 * 24 * HOUR_MS)
#define TTL_S     60
#define AGE_MS    10000
#define EXPIRES_S 7200

struct told {
    int n;
    int64_t by_ms;
};

static void note_step(void *ctx, int64_t by_ms)
{
    struct told *t = ctx;
    t->n++;
    t->by_ms = by_ms;
}

/* `ttl`, used or its time is over; `at`, which expires then; `old`, whose events do not last. */
static struct bench *begin(struct told *told)
{
    struct bench *b = bench_new(1);
    struct stream_config ttl = {
        .content_type = STR("text/plain"), .ttl_s = TTL_S, .expires_ms = STORE_TTL_NONE};
    struct stream_config at = ttl, old = ttl;
    at.ttl_s = old.ttl_s = STORE_TTL_NONE;
    at.expires_ms = b->sched.wall_ms + EXPIRES_S * 1000;
    old.retain.age_ms = AGE_MS;
    b->config.stepped = note_step;
    b->config.stepped_ctx = told;
    assert_true(bench_open(b));
    assert_int_equal(write_op(b, (struct store_write){.name = STR("ttl"), .create = &ttl}), 0);
    assert_int_equal(write_op(b, (struct store_write){.name = STR("at"), .create = &at}), 0);
    assert_int_equal(write_op(b, (struct store_write){.name = STR("old"), .create = &old}), 0);
    assert_int_equal(told->n, 0);
    return b;
}

static void pass_s(struct bench *b, int64_t s)
{
    pass_turns(b, (int)(s * 1000 / SCHED_TICK_MS) + 1);
}

struct asking {
    struct store_stat op;
    int err;
};

static void on_stat(struct store_stat *s, int err)
{
    container_of(s, struct asking, op)->err = err;
}

static int stat_err(struct bench *b, const char *name, struct stream_info *info)
{
    struct asking a = {.op = {.name = str_of_cstr(name), .done = on_stat}, .err = PENDING};
    store_stat(b->store, &a.op);
    int err = await(b, &a.err);
    if (err == 0 && info != NULL)
        *info = a.op.info;
    return err;
}

static void assert_lifetimes_go_on(struct bench *b)
{
    struct stream_info info;
    assert_int_equal(stat_err(b, "ttl", NULL), 0);
    pass_s(b, TTL_S + 5);
    assert_int_equal(stat_err(b, "ttl", NULL), ERR_NOT_FOUND);
    assert_int_equal(stat_err(b, "old", &info), 0);
    assert_int_equal(info.events, 1);
    assert_int_equal(info.first, info.tail); /* its event has aged, whatever year it says */
    assert_int_equal(stat_err(b, "at", NULL), 0);
    pass_s(b, EXPIRES_S);
    assert_int_equal(stat_err(b, "at", NULL), ERR_NOT_FOUND);
}

/* A whole run with a clock that is years ahead; the next one has the right time. */
static void run_ahead(bool rested, bool killed)
{
    struct told told = {0};
    struct bench *b = begin(&told);
    int64_t now = b->sched.wall_ms;
    bench_close(b);
    b->sched.wall_ms = now + 10 * YEAR_MS;
    assert_true(bench_open(b));
    struct stream_config at = {.content_type = STR("text/plain"), .ttl_s = STORE_TTL_NONE};
    assert_int_equal(stat_err(b, "at", NULL), ERR_NOT_FOUND);
    assert_int_equal(append(b, "old", STR("x")), 0);
    if (rested)
        checkpoint(b);
    if (killed) {
        simfs_cut_power_at(b->fs, 1);
        bench_close(b);
        simfs_kill(b->fs);
    } else {
        bench_close(b);
    }
    assert_int_equal(told.n, 0); /* a store cannot know better than a clock that is ahead */
    b->sched.wall_ms = now;
    assert_true(bench_open(b));
    assert_int_equal(told.n, 1);
    assert_true(told.by_ms <= -10 * YEAR_MS + HOUR_MS);
    at.expires_ms = b->sched.wall_ms + EXPIRES_S * 1000;
    assert_int_equal(write_op(b, (struct store_write){.name = STR("at"), .create = &at}), 0);
    assert_lifetimes_go_on(b);
    checkpoint(b);
    bench_close(b);
    assert_true(bench_open(b));
    assert_int_equal(told.n, 1); /* what is stored is right again */
    bench_free(b);
}

static void test_run_ahead(void **state)
{
    run_ahead(true, false);
    run_ahead(true, true);
    run_ahead(false, true);
}

/* The clock jumps while the server runs, and back again. */
static void test_jumps(void **state)
{
    struct told told = {0};
    struct bench *b = begin(&told);
    b->sched.wall_ms += 2 * HOUR_MS - EXPIRES_S; /* an hour is the most that it may lead */
    pass_s(b, 2);
    assert_int_equal(told.n, 1);
    assert_true(told.by_ms > HOUR_MS && told.by_ms < 2 * HOUR_MS);
    assert_int_equal(stat_err(b, "ttl", NULL), 0); /* nobody has left it alone for a minute */
    assert_int_equal(append(b, "old", STR("x")), 0);
    b->sched.wall_ms -= 3 * HOUR_MS;
    pass_s(b, 2);
    assert_int_equal(told.n, 2);
    assert_true(told.by_ms < -2 * HOUR_MS);
    b->sched.wall_ms += HOUR_MS + EXPIRES_S;
    pass_s(b, 1);
    assert_lifetimes_go_on(b);
    bench_free(b);
}

/* A clock that is set right by minutes is waited for: nothing comes back. */
static void test_a_little_back(void **state)
{
    struct told told = {0};
    struct bench *b = begin(&told);
    pass_s(b, 10);
    int64_t before = catalog_wall_ms(&embedded_of(b->store)->catalog);
    b->sched.wall_ms -= HOUR_MS / 2;
    pass_s(b, 10);
    assert_int_equal(catalog_wall_ms(&embedded_of(b->store)->catalog), before);
    checkpoint(b);
    bench_close(b);
    assert_true(bench_open(b));
    assert_true(catalog_wall_ms(&embedded_of(b->store)->catalog) >= before);
    assert_int_equal(stat_err(b, "ttl", NULL), 0); /* opening counts as a touch */
    b->sched.wall_ms += HOUR_MS / 2;
    pass_s(b, 1);
    assert_int_equal(told.n, 0);
    bench_free(b);
}

/* A machine that has lost its clock: that year is not believed, and time goes on all the same. */
static void test_impossible(void **state)
{
    struct told told = {0};
    struct bench *b = begin(&told);
    int64_t now = b->sched.wall_ms;
    assert_int_equal(append(b, "old", STR("x")), 0);
    checkpoint(b);
    bench_close(b);
    b->sched.wall_ms = 1000;
    assert_true(bench_open(b));
    assert_true(catalog_wall_ms(&embedded_of(b->store)->catalog) >= now);
    assert_lifetimes_go_on(b);
    b->sched.wall_ms = now + EXPIRES_S * 1000 + HOUR_MS / 2;
    pass_s(b, 1);
    assert_int_equal(told.n, 0);
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_ahead),
        cmocka_unit_test(test_jumps),
        cmocka_unit_test(test_a_little_back),
        cmocka_unit_test(test_impossible),
    };
    return cmocka_run_group_tests_name("unit/wall", tests, NULL, NULL);
}
