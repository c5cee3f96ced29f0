// SPDX-License-Identifier: Apache-2.0
#include "feature/subscriptions/subscription.h"
#include "feature/subscriptions/subscription_pattern.h"
#include "store/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

static void test_match(void **state)
{
    static const struct {
        const char *pattern, *path;
        bool match;
    } cases[] = {
        {"a", "a", true},
        {"a", "b", false},
        {"a", "a/b", false},
        {"a/b", "a", false},
        {"a/*", "a/b", true},
        {"a/*", "a", false},
        {"a/*", "a/b/c", false},
        {"a/*", "a/", false},
        {"*", "a", true},
        {"*", "a/b", false},
        {"*/b", "a/b", true},
        {"*/b", "a/c", false},
        {"a/*/c", "a/b/c", true},
        {"a/*/c", "a//c", false},
        {"**", "a", true},
        {"**", "a/b/c", true},
        {"a/**", "a", true},
        {"a/**", "a/b", true},
        {"a/**", "a/b/c/d", true},
        {"a/**", "ab/c", false},
        {"**/c", "c", true},
        {"**/c", "a/b/c", true},
        {"**/c", "a/b/c/d", false},
        {"a/**/z", "a/z", true},
        {"a/**/z", "a/b/z", true},
        {"a/**/z", "a/b/z/z", true},
        {"a/**/z", "a/b/z/y", false},
        {"a/**/b/**/c", "a/x/b/y/b/c", true},
        {"a/**/b/**/c", "a/x/c/b", false},
        {"**/**", "a", true},
        {"**/a/**", "b/a/c", true},
        {"**/a/**", "a", true},
        {"**/a/**", "b/c", false},
        {"**/*/x", "x", false},
        {"**/*/x", "y/x", true},
        {"a*", "ab", false}, /* a star is one only as a whole segment */
        {"a*", "a*", true},
        {"a%2Ab", "a*b", true},
        {"%2a", "*", true},
        {"%2a", "x", false},
        {"%2", "%2", true},
        {"100%", "100%", true},
        {"caf\xc3\xa9/*", "caf\xc3\xa9/1", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct str pattern = str_of_cstr(cases[i].pattern), path = str_of_cstr(cases[i].path);
        if (subscription_pattern_match(pattern, path) != cases[i].match)
            fail_msg("%s against %s: not %d", cases[i].pattern, cases[i].path, cases[i].match);
        /* whatever matches is found when listing by prefix */
        if (cases[i].match && !str_starts(path, subscription_pattern_prefix(pattern)))
            fail_msg("%s is not found by the prefix of %s", cases[i].path, cases[i].pattern);
    }
}

static void test_prefix(void **state)
{
    static const struct {
        const char *pattern, *prefix;
    } cases[] = {
        {"a/b", "a/b"}, {"a/*", "a/"},   {"a/b/*", "a/b/"},    {"a/**", "a"}, {"*", ""},
        {"**/a", ""},   {"a/%2A", "a/"}, {"a/b/**/**", "a/b"}, {"a", "a"},    {"a/*/b/c", "a/"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct str got = subscription_pattern_prefix(str_of_cstr(cases[i].pattern));
        if (!str_eq(got, str_of_cstr(cases[i].prefix)))
            fail_msg("%s: %.*s", cases[i].pattern, (int)got.n, got.p);
    }
}

static void test_meets(void **state)
{
    static const struct {
        const char *pattern;
        bool meets;
    } cases[] = {
        {"sessions/*/in", true}, {"sessions/a/in", true}, {"sessions/**", true}, {"**", true},
        {"*/a/in", true},        {"sessio%2Ans", true}, /* nothing is sure */
        {"session/*", false},    {"sessionsx/*", false},  {"a/**", false},       {"a", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (subscription_pattern_meets(str_of_cstr(cases[i].pattern), STR("sessions/")) !=
            cases[i].meets)
            fail_msg("%s: not %d", cases[i].pattern, cases[i].meets);
}

/* Stars over a path that never matches: what a peer could choose to keep us busy. */
static void test_match_is_cheap(void **state)
{
    char pattern[SUBSCRIPTION_PATTERN_MAX], path[STORE_NAME_MAX];
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = i % 5 == 2 ? '/' : i % 5 == 4 ? '/' : i % 5 == 3 ? 'a' : '*';
    for (size_t i = 0; i < sizeof path; i++)
        path[i] = i % 2 ? '/' : 'a';
    pattern[sizeof pattern - 1] = 'b';
    /* with backtracking over every double star this would not end */
    assert_false(
        subscription_pattern_match(str_of(pattern, sizeof pattern), str_of(path, sizeof path - 1)));
}

static void test_path(void **state)
{
    assert_true(str_eq(subscription_path(STR("//a/b/")), STR("a/b")));
    assert_true(str_eq(subscription_path(STR("a")), STR("a")));
    assert_int_equal(subscription_path(STR("///")).n, 0);
    static const char *good[] = {"a", "a/b", "a//b", "__dsx", "x/__ds", "\xf0\x9f\x8c\x8a", "a b"};
    static const char *bad[] = {
        "",     "/a",       "a/",           "__ds",  "__ds/a",           "a\nb", "a\x7f",
        "\xff", "\xc0\xaf", "\xed\xa0\x80", "\xe2x", "\xf4\x90\x80\x80", "a\xc3"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!subscription_path_valid(str_of_cstr(good[i])))
            fail_msg("good path %zu refused", i);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (subscription_path_valid(str_of_cstr(bad[i])))
            fail_msg("bad path %zu taken", i);
    char longest[STORE_NAME_MAX + 1];
    memset(longest, 'a', sizeof longest);
    assert_true(subscription_path_valid(str_of(longest, STORE_NAME_MAX)));
    assert_false(subscription_path_valid(str_of(longest, STORE_NAME_MAX + 1)));
    assert_false(subscription_path_valid(str_of("a\0b", 3)));
}

static void test_pattern_valid(void **state)
{
    assert_true(subscription_pattern_valid(STR("a/**/b")));
    assert_false(subscription_pattern_valid(STR("")));
    assert_false(subscription_pattern_valid(STR("a//b")));
    assert_false(subscription_pattern_valid(STR("/a")));
    assert_false(subscription_pattern_valid(STR("a/")));
    assert_false(subscription_pattern_valid(STR("a\x01")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_match), cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_meets), cmocka_unit_test(test_match_is_cheap),
        cmocka_unit_test(test_path),  cmocka_unit_test(test_pattern_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
