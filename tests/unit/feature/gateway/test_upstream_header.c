// SPDX-License-Identifier: Apache-2.0
/* Headers that a route itself sends: how they are written, and where their values come from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "feature/gateway/upstream_header.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET "sk-secret"

static void assert_loads(const char *setting, const char *name, const char *value)
{
    char why[256] = "", *items[] = {(char *)setting};
    struct option_list list = {.items = items, .n = 1};
    struct upstream_headers h;
    assert_int_equal(upstream_header_check(str_of_cstr(setting), why, sizeof why), 0);
    assert_int_equal(upstream_headers_load(&h, &list, why, sizeof why), 0);
    assert_int_equal(h.n, 1);
    assert_string_equal(h.items[0].name, name);
    assert_string_equal(h.items[0].value, value);
    upstream_headers_free(&h);
    assert_int_equal(h.n, 0);
}

static void assert_refused(const char *setting)
{
    char why[256] = "";
    assert_int_not_equal(upstream_header_check(str_of_cstr(setting), why, sizeof why), 0);
    assert_null(strstr(why, SECRET));
}

static void assert_fails(const char *setting, const char *says)
{
    char why[256] = "", *items[] = {(char *)setting};
    struct option_list list = {.items = items, .n = 1};
    struct upstream_headers h;
    assert_int_equal(upstream_header_check(str_of_cstr(setting), why, sizeof why), 0);
    assert_int_not_equal(upstream_headers_load(&h, &list, why, sizeof why), 0);
    assert_non_null(strstr(why, says));
    assert_null(strstr(why, SECRET));
    upstream_headers_free(&h);
}

static void test_values(void **state)
{
    assert_loads("x-api-key: " SECRET, "x-api-key", SECRET);
    assert_loads("x-api-key:" SECRET, "x-api-key", SECRET);
    assert_loads("A:  b: c  ", "A", "b: c");
    assert_loads("From: me@ENV:x", "From", "me@ENV:x"); /* within a word it is no place */
}

static void test_variables(void **state)
{
    setenv("UPSTREAM_KEY", SECRET, 1);
    assert_loads("x-api-key: @ENV:UPSTREAM_KEY", "x-api-key", SECRET);
    assert_loads("Authorization: Bearer @ENV:UPSTREAM_KEY", "Authorization", "Bearer " SECRET);
    setenv("UPSTREAM_KEY", "", 1);
    assert_fails("x-api-key: @ENV:UPSTREAM_KEY", "UPSTREAM_KEY is not set");
    setenv("UPSTREAM_KEY", SECRET "\r\nX-Evil: 1", 1);
    assert_fails("x-api-key: @ENV:UPSTREAM_KEY", "UPSTREAM_KEY holds a byte");
    unsetenv("UPSTREAM_KEY");
}

static void test_files(void **state)
{
    char path[] = "/tmp/tidemark-test-XXXXXX", setting[100];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, SECRET "\n", sizeof SECRET), sizeof SECRET);
    close(fd);
    snprintf(setting, sizeof setting, "x-api-key: @FILE:%s", path);
    assert_loads(setting, "x-api-key", SECRET);

    char *items[] = {setting};
    struct option_list list = {.items = items, .n = 1};
    assert_false(upstream_headers_are_open(&list));
    chmod(path, 0644);
    assert_true(upstream_headers_are_open(&list));
    unlink(path);
    assert_false(upstream_headers_are_open(&list));
    assert_fails(setting, path);
}

static void test_what_is_none(void **state)
{
    static const char *const wrong[] = {
        "",         SECRET,          ": " SECRET,         "a b: " SECRET, "x:",
        "x: ",      "Host: " SECRET, "content-length: 1", "TE: " SECRET,  "x: a\nb",
        "x: @ENV:", "x: @ENV:A-B",   "x: @ENV:A B",       "x: @FILE:",    "x: a\x7f",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_refused(wrong[i]);
}

static void test_names(void **state)
{
    char why[256], first[] = "Authorization: a", second[] = "X-Region: b";
    char *items[] = {first, second};
    struct option_list list = {.items = items, .n = 2};
    struct upstream_headers h;
    assert_int_equal(upstream_headers_load(&h, &list, why, sizeof why), 0);
    assert_true(upstream_headers_have(&h, STR("authorization")));
    assert_true(upstream_headers_have(&h, STR("x-region")));
    assert_false(upstream_headers_have(&h, STR("x-regio")));
    upstream_headers_free(&h);
    assert_false(upstream_headers_have(&h, STR("authorization")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_variables),
        cmocka_unit_test(test_files),  cmocka_unit_test(test_what_is_none),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("unit/upstream_header", tests, NULL, NULL);
}
