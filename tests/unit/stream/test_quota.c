// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "stream/quota.h"
#include "model/seeds.h"

#define START_MS 1000000

static bool take(struct quota *q, const char *caller, uint64_t now_ms, struct quota_answer *a)
{
    return quota_take(q, str_of_cstr(caller), now_ms, a);
}

/* How many requests are granted at this moment. */
static unsigned burst(struct quota *q, const char *caller, uint64_t now_ms)
{
    struct quota_answer a;
    unsigned n = 0;
    while (take(q, caller, now_ms, &a))
        n++;
    return n;
}

static void test_off(void **state)
{
    struct quota q;
    struct quota_answer a = {9, 9};
    quota_init(&q, 0, 0);
    for (int i = 0; i < 1000; i++)
        assert_true(take(&q, "a", START_MS, &a));
    assert_int_equal(a.remaining, 0);
    assert_int_equal(a.retry_after_s, 0);
    assert_int_equal(q.by_key.n, 0);
    quota_deinit(&q);
}

static void test_burst_and_refill(void **state)
{
    struct quota q;
    struct quota_answer a;
    quota_init(&q, 20, 0);
    for (uint64_t i = 0; i < 20; i++) {
        assert_true(take(&q, "a", START_MS, &a));
        assert_int_equal(a.remaining, 19 - i);
        assert_int_equal(a.retry_after_s, 0);
    }
    assert_false(take(&q, "a", START_MS, &a));
    assert_int_equal(a.remaining, 0);
    assert_int_equal(a.retry_after_s, 3);
    assert_false(take(&q, "a", START_MS + 2001, &a));
    assert_int_equal(a.retry_after_s, 1);
    assert_false(take(&q, "a", START_MS + 2999, &a)); /* and having asked has cost nothing */
    assert_int_equal(a.retry_after_s, 1);
    assert_true(take(&q, "a", START_MS + 3000, &a));
    assert_false(take(&q, "a", START_MS + 3000, &a));
    assert_int_equal(burst(&q, "a", START_MS + 3000 + 30000), 10);
    assert_int_equal(burst(&q, "a", START_MS + 10000000), 20); /* never more than it holds */
    quota_deinit(&q);
}

static void test_callers_are_apart(void **state)
{
    struct quota q;
    quota_init(&q, 3, 0);
    assert_int_equal(burst(&q, "a", START_MS), 3);
    assert_int_equal(burst(&q, "b", START_MS), 3);
    assert_int_equal(burst(&q, "", START_MS), 3); /* nobody in particular is one, too */
    assert_int_equal(burst(&q, "a", START_MS), 0);
    quota_deinit(&q);
}

static void test_long_keys(void **state)
{
    struct quota q;
    char key[QUOTA_KEY_MAX + 3];
    memset(key, 'k', sizeof key);
    key[sizeof key - 1] = '\0';
    quota_init(&q, 3, 0);
    assert_int_equal(burst(&q, key, START_MS), 3);
    key[QUOTA_KEY_MAX] = 'x';
    assert_int_equal(burst(&q, key, START_MS), 0);
    key[QUOTA_KEY_MAX - 1] = 'x';
    assert_int_equal(burst(&q, key, START_MS), 3);
    quota_deinit(&q);
}

static void test_clock_goes_back(void **state)
{
    struct quota q;
    quota_init(&q, 60, 0);
    assert_int_equal(burst(&q, "a", START_MS), 60);
    assert_int_equal(burst(&q, "a", START_MS - 5000), 0);
    assert_int_equal(burst(&q, "a", START_MS + 1000), 1);
    quota_deinit(&q);
}

static void test_extremes(void **state)
{
    struct quota q;
    struct quota_answer a;
    quota_init(&q, QUOTA_PER_MINUTE_MAX, 0);
    assert_true(take(&q, "a", 0, &a));
    assert_int_equal(a.remaining, QUOTA_PER_MINUTE_MAX - 1);
    assert_true(take(&q, "a", UINT64_MAX, &a));
    assert_int_equal(a.remaining, QUOTA_PER_MINUTE_MAX - 1);
    quota_deinit(&q);
    quota_init(&q, 1, 0);
    assert_int_equal(burst(&q, "a", 0), 1);
    assert_false(take(&q, "a", 0, &a));
    assert_int_equal(a.retry_after_s, 60);
    assert_false(take(&q, "a", 59999, &a));
    assert_true(take(&q, "a", 60000, &a));
    quota_deinit(&q);
}

/* A product of the time and the limit that wraps to nothing. */
static void test_long_absence(void **state)
{
    struct quota q;
    quota_init(&q, 2, 0);
    assert_int_equal(burst(&q, "a", 0), 2);
    assert_int_equal(burst(&q, "a", (uint64_t)1 << 63), 2);
    quota_deinit(&q);
}

/* ---- many callers ---- */

static void test_crowd_from_the_start(void **state)
{
    struct quota q;
    quota_init(&q, 2, 1);
    assert_int_equal(burst(&q, "a", 0), 2);
    assert_int_equal(burst(&q, "b", 0), 2);
    assert_int_equal(burst(&q, "c", 0), 0);
    assert_int_equal(q.by_key.n, 1);
    quota_deinit(&q);
}

static bool take_number(struct quota *q, unsigned caller, uint64_t now_ms)
{
    struct quota_answer a;
    char key[16];
    snprintf(key, sizeof key, "c%u", caller);
    return take(q, key, now_ms, &a);
}

static void test_bounded(void **state)
{
    struct quota q;
    quota_init(&q, 2, 100);
    unsigned granted = 0;
    for (unsigned i = 0; i < 100000; i++)
        granted += take_number(&q, i, START_MS);
    assert_int_equal(q.by_key.n, 100);
    assert_int_equal(granted, 100 + 2);        /* the crowd is as one */
    assert_true(take_number(&q, 0, START_MS)); /* and has taken nobody's bucket away */
    assert_false(take_number(&q, 0, START_MS));
    /* When they are full again there is room for others. */
    granted = 0;
    for (unsigned i = 0; i < 50; i++)
        granted += take_number(&q, 1000000 + i, START_MS + 60000);
    assert_int_equal(granted, 50);
    quota_deinit(&q);
}

static void test_forgets_only_full_ones(void **state)
{
    struct quota q;
    quota_init(&q, 10, 100);
    assert_int_equal(burst(&q, "busy", START_MS), 10);
    /* Others come, one every 100 ms; each is full again after 6 s. */
    for (unsigned i = 0; i < 500; i++)
        assert_true(take_number(&q, i, START_MS + i * 100));
    assert_in_range(q.by_key.n, 60, 100);
    assert_int_equal(burst(&q, "busy", START_MS + 50000), 8);
    for (unsigned i = 0; i < 1000; i++)
        assert_true(take_number(&q, 1000 + i, START_MS + 50000 + i * 100));
    assert_null(map_get(&q.by_key, STR("busy")));
    assert_int_equal(burst(&q, "busy", START_MS + 150000), 10);
    quota_deinit(&q);
}

/* At any time no more than a bucket and what has flowed into it; whoever asks no faster than that
 * is never refused. */
static void random_requests(struct rng *r)
{
    struct quota q;
    struct quota_answer a;
    uint64_t limit = rng_between(r, 1, 100), now_ms = START_MS, granted = 0;
    uint64_t pace_ms = (60000 + limit - 1) / limit;
    quota_init(&q, limit, 0);
    for (int i = 0; i < 2000; i++) {
        now_ms += rng_below(r, pace_ms);
        bool ok = take(&q, "a", now_ms, &a);
        granted += ok;
        assert_true(granted <= limit + (now_ms - START_MS) * limit / 60000);
        if (!ok && rng_one_in(r, 4)) {
            now_ms += a.retry_after_s * 1000;
            assert_true(take(&q, "a", now_ms, &a)); /* what it was told holds */
            granted++;
        }
    }
    for (int i = 0; i < 200; i++)
        assert_true(take(&q, "slow", now_ms += pace_ms, &a));
    quota_deinit(&q);
}

static void test_random(void **state)
{
    seeds_run(200, random_requests);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_burst_and_refill),
        cmocka_unit_test(test_callers_are_apart),
        cmocka_unit_test(test_long_keys),
        cmocka_unit_test(test_clock_goes_back),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_long_absence),
        cmocka_unit_test(test_crowd_from_the_start),
        cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_forgets_only_full_ones),
        cmocka_unit_test_teardown(test_random, seeds_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
