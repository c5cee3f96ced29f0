// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "http/heartbeat.h"

static void test_comes_after_silence(void **state)
{
    struct heartbeat h = {.every_ms = 100, .since_ms = 1000};
    heartbeat_look(&h, 1099);
    assert_false(h.due);
    assert_int_equal(heartbeat_wait_ms(&h, 1099), 1);
    heartbeat_look(&h, 1100);
    assert_true(h.due);
    assert_int_equal(heartbeat_wait_ms(&h, 1100), 100);
}

/* Not on a clock: what is sent moves it. */
static void test_events_take_its_place(void **state)
{
    struct heartbeat h = {.every_ms = 100, .since_ms = 0};
    for (uint64_t now = 0; now < 10000; now += 99) {
        heartbeat_look(&h, now);
        assert_false(h.due);
        heartbeat_sent(&h, now);
        assert_int_equal(heartbeat_wait_ms(&h, now), 100);
    }
}

static void test_one_that_did_not_get_out_is_one(void **state)
{
    struct heartbeat h = {.every_ms = 100, .since_ms = 0};
    heartbeat_look(&h, 100);
    heartbeat_look(&h, 150);
    assert_true(h.due);
    assert_int_equal(heartbeat_wait_ms(&h, 150), 50); /* no busy loop while the peer stalls */
    heartbeat_sent(&h, 160);
    assert_false(h.due);
}

static void test_none(void **state)
{
    struct heartbeat h = {.every_ms = 0, .since_ms = 0};
    heartbeat_look(&h, 1000000);
    assert_false(h.due);
}

static void test_is_one_line(void **state)
{
    assert_string_equal(HEARTBEAT.p, ": heartbeat\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comes_after_silence),
        cmocka_unit_test(test_events_take_its_place),
        cmocka_unit_test(test_one_that_did_not_get_out_is_one),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_is_one_line),
    };
    return cmocka_run_group_tests_name("heartbeat", tests, NULL, NULL);
}
