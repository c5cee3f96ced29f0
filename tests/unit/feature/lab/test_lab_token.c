// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "feature/lab/lab_token.h"

#define THEN 1700000000000

static void test_its_time(void **state)
{
    struct lab_tokens t, other;
    char text[LAB_TOKEN_MAX];
    lab_tokens_init(&t);
    lab_tokens_init(&other);
    lab_token_put(&t, THEN, text);
    struct str token = str_of_cstr(text);
    assert_int_equal(token.n, LAB_TOKEN_MAX - 1);
    assert_true(lab_token_is_good(&t, token, THEN - 1));
    assert_false(lab_token_is_good(&t, token, THEN));
    assert_false(lab_token_is_good(&other, token, THEN - 1)); /* of another start */
    assert_false(lab_token_is_plain(&t, token));
    lab_tokens_deinit(&t);
    lab_tokens_deinit(&other);
}

static void test_what_is_none(void **state)
{
    struct lab_tokens t;
    char text[LAB_TOKEN_MAX + 1];
    lab_tokens_init(&t);
    lab_token_put(&t, THEN, text);
    struct str token = str_of_cstr(text);
    for (size_t i = 0; i < token.n; i++) {
        char was = text[i];
        text[i] = was == '1' ? '2' : '1';
        assert_false(lab_token_is_good(&t, token, 0));
        text[i] = was;
        assert_false(lab_token_is_good(&t, str_of(text, i), 0));
    }
    text[token.n] = '0';
    assert_false(lab_token_is_good(&t, str_of(text, token.n + 1), 0));
    assert_false(lab_token_is_good(&t, str_of_cstr(t.plain), 0));
    assert_false(lab_token_is_good(&t, STR_NONE, 0));
    assert_false(lab_token_is_plain(&t, STR_NONE));
    assert_true(lab_token_is_plain(&t, str_of_cstr(t.plain)));
    lab_tokens_deinit(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_its_time),
        cmocka_unit_test(test_what_is_none),
    };
    return cmocka_run_group_tests_name("unit/lab_token", tests, NULL, NULL);
}
