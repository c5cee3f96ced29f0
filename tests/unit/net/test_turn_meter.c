// SPDX-License-Identifier: Apache-2.0
#include "net/turn_meter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define US 1000u
#define MS (1000u * US)

static uint64_t had_ns; /* by the thread; cmocka runs one test at a time */
static unsigned looks;

static uint64_t read_thread(void)
{
    looks++;
    return had_ns;
}

static struct turn_meter meter_after(uint64_t before_ns)
{
    struct turn_meter m;
    had_ns = before_ns;
    turn_meter_start(&m, read_thread);
    looks = 0;
    return m;
}

/* Returns what it counts with. */
static uint64_t turn(struct turn_meter *m, uint64_t thread_ns, uint64_t took_ns)
{
    had_ns += thread_ns;
    return turn_meter_take(m, took_ns);
}

static void test_a_turn_in_which_others_had_the_processor(void **state)
{
    struct turn_meter m = meter_after(0);
    assert_int_equal(turn(&m, 2 * MS, 30 * MS), 2 * MS);
    assert_int_equal(turn(&m, 12 * MS, 12 * MS), 12 * MS);
}

/* A loop that has much to do has turns of just under a millisecond, one behind the other. */
static void test_turns_before_it_hardly_count(void **state)
{
    struct turn_meter m = meter_after(0);
    for (int before = 0; before < TURN_METER_TURNS; before++) {
        for (int i = 0; i < before; i++)
            assert_in_range(turn(&m, 900 * US, 900 * US), 900 * US, 1800 * US);
        assert_in_range(turn(&m, 500 * US, 15 * MS), 500 * US, 500 * US + TURN_METER_NS);
    }
}

static void test_what_came_before_the_first_turn_does_not_count(void **state)
{
    struct turn_meter m = meter_after(700 * MS);
    assert_int_equal(turn(&m, 500 * US, 15 * MS), 500 * US);
}

static void test_short_turns_are_looked_at_now_and_then(void **state)
{
    struct turn_meter m = meter_after(0);
    for (int i = 0; i < 10 * TURN_METER_TURNS; i++)
        assert_int_equal(turn(&m, 5 * US, 6 * US), 6 * US);
    assert_int_equal(looks, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_turn_in_which_others_had_the_processor),
        cmocka_unit_test(test_turns_before_it_hardly_count),
        cmocka_unit_test(test_what_came_before_the_first_turn_does_not_count),
        cmocka_unit_test(test_short_turns_are_looked_at_now_and_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
