// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "http/account.h"

#define START_MS 1000000

static const struct rate ten = {10, 1000, 20};

static struct account *get(struct accounts *as, const char *key, uint64_t now_ms)
{
    return accounts_get(as, str_of_cstr(key), now_ms);
}

/* How often so much is granted at this moment. */
static unsigned burst(struct account *a, const struct rate *rate, uint64_t cost, uint64_t now_ms)
{
    uint64_t wait_ms;
    unsigned n = 0;
    while (n < 1000000 && account_take(a, ACCOUNT_REQUESTS, rate, cost, now_ms, &wait_ms))
        n++;
    return n;
}

static void test_no_limit(void **state)
{
    static const struct rate none;
    struct accounts as;
    accounts_init(&as, 10);
    assert_int_equal(burst(get(&as, "a", START_MS), &none, 1, START_MS), 1000000);
    accounts_deinit(&as);
}

static void test_burst_and_refill(void **state)
{
    struct accounts as;
    uint64_t wait_ms = 0;
    accounts_init(&as, 10);
    struct account *a = get(&as, "a", START_MS);
    assert_int_equal(burst(a, &ten, 1, START_MS), 20);
    assert_false(account_take(a, ACCOUNT_REQUESTS, &ten, 1, START_MS, &wait_ms));
    assert_int_equal(wait_ms, 100);
    assert_int_equal(account_wait_ms(a, ACCOUNT_REQUESTS, &ten, 1, START_MS + 60), 40);
    assert_int_equal(account_wait_ms(a, ACCOUNT_REQUESTS, &ten, 1, START_MS + 100), 0);
    assert_int_equal(burst(a, &ten, 1, START_MS + 99), 0); /* having asked has cost nothing */
    assert_int_equal(burst(a, &ten, 1, START_MS + 100), 1);
    assert_int_equal(burst(a, &ten, 1, START_MS + 1100), 10);
    assert_int_equal(burst(a, &ten, 1, START_MS + 10000000), 20); /* never more than it holds */
    assert_int_equal(burst(a, &ten, 1, 0), 0);                    /* a clock that is behind */
    accounts_deinit(&as);
}

static void test_what_is_larger_than_the_bucket(void **state)
{
    struct accounts as;
    uint64_t wait_ms = 0;
    accounts_init(&as, 10);
    struct account *a = get(&as, "a", START_MS);
    assert_true(account_take(a, ACCOUNT_BYTES, &ten, 100, START_MS, &wait_ms));
    assert_false(account_take(a, ACCOUNT_BYTES, &ten, 1, START_MS, &wait_ms));
    assert_int_equal(wait_ms, 8100); /* 81 of 100 have to be paid off, 10 a second */
    assert_false(account_take(a, ACCOUNT_BYTES, &ten, 100, START_MS + 9999, &wait_ms));
    assert_true(account_take(a, ACCOUNT_BYTES, &ten, 100, START_MS + 10000, &wait_ms));
    accounts_deinit(&as);
}

/* Several tokens of one subject: a small one uses up no more of the large one's than it has. */
static void test_shared_by_different_limits(void **state)
{
    static const struct rate one = {1, 1000, 2};
    struct accounts as;
    accounts_init(&as, 10);
    struct account *a = get(&as, "a", START_MS);
    assert_int_equal(burst(a, &one, 1, START_MS), 2);
    assert_int_equal(burst(a, &ten, 1, START_MS), 18);
    assert_int_equal(burst(a, &one, 1, START_MS), 0);
    accounts_deinit(&as);
}

static void test_give_back(void **state)
{
    struct accounts as;
    accounts_init(&as, 10);
    struct account *a = get(&as, "a", START_MS);
    assert_int_equal(burst(a, &ten, 1, START_MS), 20);
    account_give_back(a, ACCOUNT_REQUESTS, &ten, 3);
    assert_int_equal(burst(a, &ten, 1, START_MS), 3);
    account_give_back(a, ACCOUNT_REQUESTS, &ten, 1000);
    assert_int_equal(burst(a, &ten, 1, START_MS), 20);
    accounts_deinit(&as);
}

static void test_counts(void **state)
{
    struct accounts as;
    accounts_init(&as, 10);
    struct account *a = get(&as, "a", START_MS);
    assert_true(account_enter(a, ACCOUNT_LIVE, 2));
    assert_true(account_enter(a, ACCOUNT_LIVE, 2));
    assert_false(account_enter(a, ACCOUNT_LIVE, 2));
    assert_true(account_enter(a, ACCOUNT_GENERATIONS, 2)); /* apart */
    assert_true(account_enter(a, ACCOUNT_LIVE, 0));
    account_leave(a, ACCOUNT_LIVE);
    assert_false(account_enter(a, ACCOUNT_LIVE, 2));
    account_leave(a, ACCOUNT_LIVE);
    assert_true(account_enter(a, ACCOUNT_LIVE, 2));
    account_leave(a, ACCOUNT_LIVE);
    account_leave(a, ACCOUNT_LIVE);
    account_leave(a, ACCOUNT_GENERATIONS);
    accounts_deinit(&as);
}

static void test_idle_ones_are_forgotten(void **state)
{
    struct accounts as;
    char key[24];
    accounts_init(&as, 1000);
    struct account *busy = get(&as, "busy", START_MS);
    account_enter(busy, ACCOUNT_CONNECTIONS, 0);
    struct account *blocked = get(&as, "blocked", START_MS);
    blocked->blocked_until_ms = START_MS + 10 * ACCOUNT_IDLE_MS;
    for (int i = 0; i < 500; i++) {
        snprintf(key, sizeof key, "%d", i);
        get(&as, key, START_MS);
    }
    assert_int_equal(as.by_key.n, 502);
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "later %d", i);
        get(&as, key, START_MS + ACCOUNT_IDLE_MS);
    }
    assert_int_equal(as.by_key.n, 302);
    assert_ptr_equal(get(&as, "busy", START_MS + ACCOUNT_IDLE_MS), busy);
    assert_ptr_equal(get(&as, "blocked", START_MS + ACCOUNT_IDLE_MS), blocked);
    account_leave(busy, ACCOUNT_CONNECTIONS);
    accounts_deinit(&as);
}

static void test_a_crowd_shares_one(void **state)
{
    struct accounts as;
    accounts_init(&as, 2);
    assert_int_equal(burst(get(&as, "a", START_MS), &ten, 1, START_MS), 20);
    assert_int_equal(burst(get(&as, "b", START_MS), &ten, 1, START_MS), 20);
    assert_int_equal(burst(get(&as, "c", START_MS), &ten, 1, START_MS), 20);
    assert_int_equal(burst(get(&as, "d", START_MS), &ten, 1, START_MS), 0); /* c took it */
    assert_int_equal(as.by_key.n, 2);
    /* Those that have no more to say than a new one make room. */
    assert_int_equal(burst(get(&as, "d", START_MS + 2000), &ten, 1, START_MS + 2000), 20);
    assert_int_equal(burst(get(&as, "e", START_MS + 2000), &ten, 1, START_MS + 2000), 20);
    accounts_deinit(&as);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_limit),
        cmocka_unit_test(test_burst_and_refill),
        cmocka_unit_test(test_what_is_larger_than_the_bucket),
        cmocka_unit_test(test_shared_by_different_limits),
        cmocka_unit_test(test_give_back),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_idle_ones_are_forgotten),
        cmocka_unit_test(test_a_crowd_shares_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
