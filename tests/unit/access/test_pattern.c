// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "access/pattern.h"
#include "base/err.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void test_patterns_are_checked(void **state)
{
    static const struct {
        const char *text;
        bool good, template;
    } rows[] = {
        {"a", true, true},
        {"a/b", true, true},
        {"*", true, true},
        {"**", true, true},
        {"a/*/b", true, true},
        {"a/**", true, true},
        {"chats/{sub}/**", false, true},
        {"", false, false},
        {"/a", false, false},
        {"a/", false, false},
        {"a//b", false, false},
        {"a/**/b", false, false},
        {"a*", false, false},
        {"a/.", false, false},
        {"../a", false, false},
        {"{sub", false, false},
        {"{}", false, false},
        {"x{sub}", false, false},
        {"a b", false, false},
        {"a\tb", false, false},
        {"***", false, false},
    };
    char why[256];
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct str text = str_of_cstr(rows[i].text);
        assert_int_equal(access_pattern_check(text, false, why, sizeof why),
                         rows[i].good ? 0 : ERR_SYNTAX);
        assert_int_equal(access_pattern_check(text, true, why, sizeof why),
                         rows[i].template ? 0 : ERR_SYNTAX);
    }
    char long_one[ACCESS_PATTERN_MAX + 1];
    memset(long_one, 'a', sizeof long_one);
    assert_int_equal(access_pattern_check(str_of(long_one, ACCESS_PATTERN_MAX), false, why, 256),
                     0);
    assert_int_equal(access_pattern_check(str_of(long_one, sizeof long_one), false, why, 256),
                     ERR_SYNTAX);
}

static void test_names_are_matched(void **state)
{
    static const struct {
        const char *pattern, *name;
        bool match;
    } rows[] = {
        {"a", "a", true},
        {"a", "b", false},
        {"a", "a/b", false},
        {"a", "/a", false},
        {"*", "a", true},
        {"*", "a/b", false},
        {"*", "", false},
        {"*", ".", false},
        {"*", "..", false},
        {"**", "a", true},
        {"**", "a/b/c", true},
        {"**", "a//c", false},
        {"**", "a/../c", false},
        {"**", ".route/x", false},
        {"**", "sessions/x", false},
        {"*/x", ".tool/x", false},
        {".route/**", ".route/x", true},
        {"sessions/*", "sessions/x", true},
        {"a/**", "a/.route/x", true},
        {"chats/42/**", "chats/42", true},
        {"chats/42/**", "chats/42/x", true},
        {"chats/42/**", "chats/42/x/y", true},
        {"chats/42/**", "chats/42x", false},
        {"chats/42/**", "chats/42/../7", false},
        {"chats/42/**", "chats//42", false},
        {"chats/42/**", "Chats/42/x", false},
        {"chats/42/**", "chats/42/", false},
        {"chats/*/**", "chats/42", true},
        {"chats/*/log", "chats/42/log", true},
        {"chats/*/log", "chats/42/x/log", false},
        {"caf\xc3\xa9/**", "cafe\xcc\x81/x", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (access_pattern_match(str_of_cstr(rows[i].pattern), str_of_cstr(rows[i].name)) !=
            rows[i].match)
            fail_msg("%s on %s", rows[i].pattern, rows[i].name);
    for (size_t i = 0; i < COUNT(rows); i++) { /* and without looking at segments */
        struct str pattern = str_of_cstr(rows[i].pattern), name = str_of_cstr(rows[i].name);
        size_t literal = access_pattern_literal(pattern);
        if (literal != ACCESS_PATTERN_MIXED &&
            access_pattern_match_literal(pattern, literal, name) != rows[i].match)
            fail_msg("%s on %s", rows[i].pattern, rows[i].name);
    }
    assert_int_equal(access_pattern_literal(STR("a/b")), 3);
    assert_int_equal(access_pattern_literal(STR("a/b/**")), 4);
    assert_int_equal(access_pattern_literal(STR("**")), 0);
    assert_int_equal(access_pattern_literal(STR("a/*")), ACCESS_PATTERN_MIXED);
    assert_int_equal(access_pattern_literal(STR("*/**")), ACCESS_PATTERN_MIXED);
}

static void test_patterns_contain_patterns(void **state)
{
    static const struct {
        const char *outer, *inner;
        bool contained;
    } rows[] = {
        {"**", "**", true},         {"**", "a/*/b", true},    {"a/**", "a/**", true},
        {"a/**", "a/b/**", true},   {"a/**", "**", false},    {"a/**", "*", false},
        {"a/**", "*/x", false},     {"a/**", "**/a", false},  {"a/*", "a/b", true},
        {"a/*", "a/*", true},       {"a/*", "a/**", false},   {"a/*", "a/b/c", false},
        {"a", "a", true},           {"a", "*", false},        {"a/**", "a/**/b", true},
        {"**", ".route/**", false}, {"**", "a/../b", false},  {".route/**", ".route/x", true},
        {"a/b", "a", false},        {"a/**", "a/./b", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (access_pattern_contains(str_of_cstr(rows[i].outer), str_of_cstr(rows[i].inner)) !=
            rows[i].contained)
            fail_msg("%s in %s", rows[i].inner, rows[i].outer);
}

static void test_beginnings(void **state)
{
    static const struct {
        const char *pattern, *prefix;
    } prefixes[] = {{"a/b", "a/b"}, {"a/**", "a"}, {"a/*", "a/"}, {"*", ""}, {"**", ""}};
    static const struct {
        const char *pattern, *start;
        bool meets;
    } rows[] = {
        {"a/b/**", "", true},    {"a/b/**", "a", true},     {"a/b/**", "a/", true},
        {"a/b/**", "a/b", true}, {"a/b/**", "a/bx", false}, {"a/b/**", "a/b/c/d", true},
        {"*/x", "q/", true},     {"*/x", "q/y", false},     {"a", "a/", false},
        {"abc", "ab", true},     {"abc", "b", false},
    };
    for (size_t i = 0; i < COUNT(prefixes); i++)
        assert_true(str_eq(access_pattern_prefix(str_of_cstr(prefixes[i].pattern)),
                           str_of_cstr(prefixes[i].prefix)));
    for (size_t i = 0; i < COUNT(rows); i++)
        if (access_pattern_meets(str_of_cstr(rows[i].pattern), str_of_cstr(rows[i].start)) !=
            rows[i].meets)
            fail_msg("%s and %s", rows[i].pattern, rows[i].start);
}

static void test_roots(void **state)
{
    static const struct {
        const char *root;
        bool valid, as_template;
    } rows[] = {
        {"t/acme/", true, true},    {"a/", true, true},          {"t/{tenant}/", false, true},
        {"{tenant}/", false, true}, {"t/x{a}/", false, false},   {"t/{}/", false, false},
        {"", false, false},         {"/", false, false},         {"t", false, false},
        {"/t/", false, false},      {"t//x/", false, false},     {"./", false, false},
        {"t/../", false, false},    {"t/*/", false, false},      {"t/a*/", false, false},
        {"t/%2e/", false, false},   {"t/a?b/", false, false},    {"t/a#b/", false, false},
        {"t/a\nb/", false, false},  {"t/a\x7f/", false, false},  {".route/x/", false, false},
        {"__ds/", false, false},    {"sessions/", false, false}, {"t/sessions/", true, true},
    };
    char large[ACCESS_ROOT_MAX + 1];
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct str root = str_of_cstr(rows[i].root);
        if (access_root_valid(root, false) != rows[i].valid ||
            access_root_valid(root, true) != rows[i].as_template)
            fail_msg("%s", rows[i].root);
    }
    memset(large, 'a', sizeof large);
    large[ACCESS_ROOT_MAX - 1] = large[ACCESS_ROOT_MAX] = '/';
    assert_true(access_root_valid(str_of(large, ACCESS_ROOT_MAX), false));
    large[ACCESS_ROOT_MAX - 1] = 'a';
    assert_false(access_root_valid(str_of(large, ACCESS_ROOT_MAX + 1), false));
    assert_false(access_root_valid(STR("t/a\0b/"), false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns_are_checked),
        cmocka_unit_test(test_names_are_matched),
        cmocka_unit_test(test_patterns_contain_patterns),
        cmocka_unit_test(test_beginnings),
        cmocka_unit_test(test_roots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
