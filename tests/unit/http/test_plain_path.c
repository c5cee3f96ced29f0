// SPDX-License-Identifier: Apache-2.0
/* Which paths mean the same to every server, and what grants call them. */
#include "http/plain_path.h"
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void assert_named(const char *path, enum plain_slash slash, const char *wanted)
{
    struct arena a = {0};
    struct str name = STR_NONE;
    int err = plain_path_name(&a, str_of_cstr(path), slash, &name);
    if (err != 0 || !str_eq(name, str_of_cstr(wanted)))
        fail_msg("%s: %d %.*s", path, err, (int)name.n, name.p);
    arena_deinit(&a);
}

static void test_names(void **state)
{
    static const struct {
        const char *path, *split, *kept;
    } samples[] = {
        {"/v1/models", "/v1/models", "/v1/models"},
        {"/v1", "/v1", "/v1"},
        {"/", "/", "/"},
        {"/v1/models/", "/v1/models", "/v1/models"},
        {"/v1//models", "/v1//models", "/v1//models"},
        {"/v1/models//", "/v1/models/", "/v1/models/"},
        {"/v1/%6dodels", "/v1/models", "/v1/models"},
        {"/v1/models/a%2Fb", "/v1/models/a/b", "/v1/models/a%2Fb"},
        {"/v1/models/a%2fb%2F", "/v1/models/a/b", "/v1/models/a%2Fb%2F"},
        {"/v1/a%20b", "/v1/a b", "/v1/a b"},
        {"/v1/100%25", "/v1/100%", "/v1/100%"},
        {"/v1/100%25/x%3Ay", "/v1/100%/x:y", "/v1/100%/x:y"},
        {"/v1/caf%C3%A9", "/v1/caf\xc3\xa9", "/v1/caf\xc3\xa9"},
        {"/v1/models/gemini-2.5:streamGenerateContent",
         "/v1/models/gemini-2.5:streamGenerateContent",
         "/v1/models/gemini-2.5:streamGenerateContent"},
        {"/v1/...", "/v1/...", "/v1/..."},
        {"/v1/a..b/.c", "/v1/a..b/.c", "/v1/a..b/.c"},
        {"/v1/a;b=..", "/v1/a;b=..", "/v1/a;b=.."},
    };
    for (size_t i = 0; i < COUNT(samples); i++) {
        assert_named(samples[i].path, PLAIN_SLASH_SPLITS, samples[i].split);
        assert_named(samples[i].path, PLAIN_SLASH_STAYS, samples[i].kept);
    }
}

static void test_what_is_not_plain(void **state)
{
    static const char *const paths[] = {
        "/v1/../admin",
        "/v1/..",
        "/v1/.",
        "/v1/./x",
        "/v1/%2e%2e/admin",
        "/v1/%2E./admin",
        "/v1/.%2e",
        "/v1/x%2f..%2fadmin",
        "/v1/x%2F%2e%2e%2Fadmin",
        "/v1/%252e%252e/admin", /* to who decodes twice */
        "/v1/%25252e%25252e/admin",
        "/v1/%25x/%252e%252e",
        "/v1/%2525252525252e",
        "/v1/a%252Fb",
        "/v1/..;/admin", /* to who cuts at a semicolon */
        "/v1/..%3bx/admin",
        "/v1/.;",
        "/v1/..\\admin",
        "/v1/a\\b",
        "/v1/a%5cb",
        "/v1/a%255cb",
        "/v1/a%00b",
        "/v1/a%0d%0ab",
        "/v1/a%7fb",
        "/v1/%c0%ae%c0%ae/admin", /* too long a form of `.` */
        "/v1/%ff",
        "/v1/%",
        "/v1/%2",
        "/v1/%zz",
        "/v1/%u002e",
    };
    for (size_t i = 0; i < COUNT(paths); i++)
        for (int slash = 0; slash < 2; slash++) {
            struct arena a = {0};
            struct str name;
            if (plain_path_name(&a, str_of_cstr(paths[i]), (enum plain_slash)slash, &name) == 0)
                fail_msg("%s is taken for %.*s", paths[i], (int)name.n, name.p);
            arena_deinit(&a);
        }
}

static void test_ambiguous(void **state)
{
    assert_false(plain_path_is_ambiguous(STR("/v1/models")));
    assert_false(plain_path_is_ambiguous(STR("/v1/%2")));
    assert_true(plain_path_is_ambiguous(STR("/v1/a%2fb")));
    assert_true(plain_path_is_ambiguous(STR("/v1/a%2F")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_what_is_not_plain),
        cmocka_unit_test(test_ambiguous),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
