// SPDX-License-Identifier: Apache-2.0
#include "http/hangups.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static char places[HANGUPS_MAX + 1];

static void test_right_behind_a_time(void **state)
{
    struct hangups h = {0};
    hangups_note(&h, &places[0], 5000);
    assert_true(hangups_has(&h, &places[0], 5000));
    assert_true(hangups_has(&h, &places[0], 5000 - HANGUP_MS));
    assert_false(hangups_has(&h, &places[0], 5000 - HANGUP_MS - 1));
    assert_false(hangups_has(&h, &places[0], 5001)); /* another one was there */
    assert_false(hangups_has(&h, &places[1], 5000));
}

static void test_nobody_knows_where(void **state)
{
    struct hangups h = {0};
    assert_false(hangups_has(&h, NULL, 0));
}

static void test_the_oldest_are_forgotten(void **state)
{
    struct hangups h = {0};
    for (size_t i = 0; i <= HANGUPS_MAX; i++)
        hangups_note(&h, &places[i], 10);
    assert_false(hangups_has(&h, &places[0], 10));
    for (size_t i = 1; i <= HANGUPS_MAX; i++)
        assert_true(hangups_has(&h, &places[i], 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_behind_a_time),
        cmocka_unit_test(test_nobody_knows_where),
        cmocka_unit_test(test_the_oldest_are_forgotten),
    };
    return cmocka_run_group_tests_name("unit/hangups", tests, NULL, NULL);
}
