// SPDX-License-Identifier: Apache-2.0
/* Paths with parameters: how they are written, and what they stand for. */
#include "http/path_pattern.h"
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define GEMINI   "/v1beta/models/{model}:streamGenerateContent"

static void test_syntax(void **state)
{
    static const char *const good[] = {"/v1", GEMINI, "/threads/{id}/runs/{run_id}/join", "/{a}"};
    static const char *const bad[] = {"/{",     "/}",     "/a}{b",   "/{a}{b}", "/{a}/{a}",
                                      "/{}",    "/{a-b}", "/{a",     "/a}",     "/{a}}",
                                      "/{{a}}", "/{a/b}", "/x{a}y}", "/{a}x{b"};
    char why[128];
    for (size_t i = 0; i < COUNT(good); i++)
        assert_int_equal(path_pattern_check(str_of_cstr(good[i]), why, sizeof why), 0);
    for (size_t i = 0; i < COUNT(bad); i++)
        if (path_pattern_check(str_of_cstr(bad[i]), why, sizeof why) == 0)
            fail_msg("%s is taken", bad[i]);
}

static void test_covers(void **state)
{
    static const struct {
        const char *pattern, *path;
        size_t n;
    } samples[] = {
        {"/v1", "/v1", 3},
        {"/v1", "/v1/models", 3},
        {"/v1", "/v1beta", 0},
        {"/v1", "/v", 0},
        {"/v1/{x}", "/v1", 0},
        {"/v1/{x}", "/v1/", 0},
        {"/v1/{x}", "/v1/y/z", 5},
        {"/threads/{id}/runs/stream", "/threads/7/runs/stream", 22},
        {"/threads/{id}/runs/stream", "/threads/7/runs/stream/x", 22},
        {"/threads/{id}/runs/stream", "/threads/7/runs/streams", 0},
        {"/threads/{id}/runs/stream", "/threads//runs/stream", 0},
        {"/threads/{id}/runs/stream", "/threads/7/8/runs/stream", 0},
        {GEMINI, "/v1beta/models/g:streamGenerateContent", 38},
        {GEMINI, "/v1beta/models/a:b:streamGenerateContent", 40},
        {GEMINI, "/v1beta/models/:streamGenerateContent", 0},
        {GEMINI, "/v1beta/models/g:generateContent", 0},
        {GEMINI, "/v1beta/models/a/b:streamGenerateContent", 0},
    };
    for (size_t i = 0; i < COUNT(samples); i++)
        assert_int_equal(
            path_pattern_covers(str_of_cstr(samples[i].pattern), str_of_cstr(samples[i].path)),
            samples[i].n);
    assert_int_equal(path_pattern_literal(STR("/v1")), 3);
    assert_int_equal(path_pattern_literal(STR("/a/{b}:c/{d}")), 6);
    assert_true(path_pattern_has_parameters(STR(GEMINI)));
    assert_false(path_pattern_has_parameters(STR("/v1")));
}

static void test_values(void **state)
{
    struct str pattern = STR("/a/{one}/b-{two}:c"), path = STR("/a/x%2Fy/b-z:c/more"), value;
    assert_true(path_pattern_value(pattern, path, STR("one"), &value));
    assert_true(str_eq(value, STR("x%2Fy")));
    assert_true(path_pattern_value(pattern, path, STR("two"), &value));
    assert_true(str_eq(value, STR("z")));
    assert_false(path_pattern_value(pattern, path, STR("three"), &value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_syntax),
        cmocka_unit_test(test_covers),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
