// SPDX-License-Identifier: Apache-2.0
#include "base/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void note(void *ctx)
{
    ++*(int *)ctx;
}

static void test_tells_when_the_last_has_left(void **state)
{
    struct sched s;
    struct gate g;
    int told = 0;
    sched_init(&s, 0, 0);
    gate_init(&g, &s);
    gate_enter(&g);
    gate_enter(&g);
    gate_leave(&g);
    gate_leave(&g);
    sched_drain(&s);
    gate_enter(&g);
    gate_enter(&g);
    assert_false(gate_is_shut(&g));
    gate_shut(&g, note, &told);
    assert_true(gate_is_shut(&g));
    sched_drain(&s);
    gate_leave(&g);
    sched_drain(&s);
    assert_int_equal(told, 0);
    gate_leave(&g);
    assert_int_equal(told, 0); /* never from within */
    sched_drain(&s);
    assert_int_equal(told, 1);
}

static void test_tells_of_an_empty_one(void **state)
{
    struct sched s;
    struct gate g;
    int told = 0;
    sched_init(&s, 0, 0);
    gate_init(&g, &s);
    gate_shut(&g, note, &told);
    assert_int_equal(told, 0);
    sched_drain(&s);
    assert_int_equal(told, 1);
}

/* What is being finished begins something else before it is told. */
static void test_waits_for_who_comes_late(void **state)
{
    struct sched s;
    struct gate g;
    int told = 0;
    sched_init(&s, 0, 0);
    gate_init(&g, &s);
    gate_enter(&g);
    gate_shut(&g, note, &told);
    gate_leave(&g);
    gate_enter(&g);
    sched_drain(&s);
    assert_int_equal(told, 0);
    gate_leave(&g);
    sched_drain(&s);
    assert_int_equal(told, 1);
}

/* Once only; whoever shuts it again is told again. */
static void test_tells_once(void **state)
{
    struct sched s;
    struct gate g;
    int told = 0, other = 0;
    sched_init(&s, 0, 0);
    gate_init(&g, &s);
    gate_shut(&g, note, &told);
    sched_drain(&s);
    gate_enter(&g);
    gate_leave(&g);
    sched_drain(&s);
    assert_int_equal(told, 1);
    assert_true(gate_is_shut(&g));
    gate_shut(&g, note, &other);
    sched_drain(&s);
    assert_int_equal(told, 1);
    assert_int_equal(other, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tells_when_the_last_has_left),
        cmocka_unit_test(test_tells_of_an_empty_one),
        cmocka_unit_test(test_waits_for_who_comes_late),
        cmocka_unit_test(test_tells_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
