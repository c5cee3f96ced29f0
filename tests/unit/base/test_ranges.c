// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "base/ranges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void assert_ranges(const struct ranges *r, const struct range *right, size_t n)
{
    assert_int_equal(r->n, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(r->items[i].first, right[i].first);
        assert_int_equal(r->items[i].last, right[i].last);
    }
}

static void test_empty(void **state)
{
    struct ranges r;
    ranges_init(&r, 4);
    assert_false(ranges_contains(&r, 0));
    assert_false(ranges_contains(&r, UINT32_MAX));
    ranges_deinit(&r);
    ranges_deinit(&r);
    assert_int_equal(ranges_add(&r, 7), 1); /* usable again */
    assert_true(ranges_contains(&r, 7));
    ranges_deinit(&r);
}

static void test_in_order_is_one_range(void **state)
{
    struct ranges r;
    ranges_init(&r, 1);
    for (uint32_t v = 0; v < 100000; v++) {
        assert_false(ranges_contains(&r, v));
        assert_int_equal(ranges_add(&r, v), 1);
        assert_int_equal(ranges_add(&r, v), 0);
    }
    assert_ranges(&r, (struct range[]){{0, 99999}}, 1);
    assert_true(ranges_contains(&r, 0));
    assert_true(ranges_contains(&r, 99999));
    assert_false(ranges_contains(&r, 100000));
    ranges_deinit(&r);
}

static void test_joins(void **state)
{
    struct ranges r;
    ranges_init(&r, 8);
    assert_int_equal(ranges_add(&r, 20), 1);
    assert_int_equal(ranges_add(&r, 10), 1);
    assert_int_equal(ranges_add(&r, 30), 1);
    assert_ranges(&r, (struct range[]){{10, 10}, {20, 20}, {30, 30}}, 3);
    assert_int_equal(ranges_add(&r, 21), 1); /* at the end of one */
    assert_int_equal(ranges_add(&r, 29), 1); /* at the beginning of one */
    assert_ranges(&r, (struct range[]){{10, 10}, {20, 21}, {29, 30}}, 3);
    for (uint32_t v = 22; v < 29; v++)
        assert_int_equal(ranges_add(&r, v), 1);
    assert_ranges(&r, (struct range[]){{10, 10}, {20, 30}}, 2);
    for (uint32_t v = 20; v <= 30; v++)
        assert_int_equal(ranges_add(&r, v), 0);
    assert_false(ranges_contains(&r, 19));
    assert_false(ranges_contains(&r, 31));
    assert_false(ranges_contains(&r, 9));
    assert_false(ranges_contains(&r, 11));
    ranges_deinit(&r);
}

static void test_both_ends_of_the_numbers(void **state)
{
    struct ranges r;
    ranges_init(&r, 2);
    assert_int_equal(ranges_add(&r, UINT32_MAX), 1);
    assert_int_equal(ranges_add(&r, 0), 1);
    assert_ranges(&r, (struct range[]){{0, 0}, {UINT32_MAX, UINT32_MAX}}, 2);
    assert_int_equal(ranges_add(&r, UINT32_MAX - 1), 1);
    assert_int_equal(ranges_add(&r, UINT32_MAX), 0);
    assert_int_equal(ranges_add(&r, 0), 0);
    assert_ranges(&r, (struct range[]){{0, 0}, {UINT32_MAX - 1, UINT32_MAX}}, 2);
    ranges_deinit(&r);
}

static void test_cap(void **state)
{
    struct ranges r;
    ranges_init(&r, 3);
    for (uint32_t v = 0; v < 3; v++)
        assert_int_equal(ranges_add(&r, v * 2), 1);
    assert_int_equal(ranges_add(&r, 9), ERR_LIMIT);
    assert_false(ranges_contains(&r, 9));
    assert_ranges(&r, (struct range[]){{0, 0}, {2, 2}, {4, 4}}, 3);
    assert_int_equal(ranges_add(&r, 4), 0);
    assert_int_equal(ranges_add(&r, 5), 1); /* makes one longer, so it is no matter of the cap */
    assert_int_equal(ranges_add(&r, 1), 1); /* makes one of two, so there is room again */
    assert_int_equal(ranges_add(&r, 9), 1);
    assert_int_equal(ranges_add(&r, 11), ERR_LIMIT);
    assert_ranges(&r, (struct range[]){{0, 2}, {4, 5}, {9, 9}}, 3);
    ranges_deinit(&r);
}

/* Against a table of booleans. */
static void test_random(void **state)
{
    enum { NUMBERS = 400 };
    uint32_t random = 12345;
    for (int round = 0; round < 50; round++) {
        bool there[NUMBERS] = {false};
        struct ranges r;
        ranges_init(&r, NUMBERS);
        for (int i = 0; i < 600; i++) {
            random = random * 1664525 + 1013904223;
            uint32_t v = (random >> 8) % NUMBERS;
            assert_int_equal(ranges_add(&r, v), there[v] ? 0 : 1);
            there[v] = true;
        }
        size_t runs = 0;
        for (uint32_t v = 0; v < NUMBERS; v++) {
            assert_int_equal(ranges_contains(&r, v), there[v]);
            runs += there[v] && (v == 0 || !there[v - 1]);
        }
        assert_int_equal(r.n, runs);
        ranges_deinit(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty), cmocka_unit_test(test_in_order_is_one_range),
        cmocka_unit_test(test_joins), cmocka_unit_test(test_both_ends_of_the_numbers),
        cmocka_unit_test(test_cap),   cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
