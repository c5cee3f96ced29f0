// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/client_json.h"

static void tells_valid_from_invalid(void **state)
{
    static const char *good[] = {
        "0",    "-0.5e+3",     "\"\"", "\"\\u00e9\\n\xc3\xa9\"",
        "true", "null",        "[]",   " [ 1 , {\"a\" : [ ] , \"b\":{}} ] ",
        "{}",   "\"\\ud800\"", "1E9"};
    static const char *bad[] = {"",
                                " ",
                                "01",
                                "1.",
                                "-",
                                "+1",
                                "tru",
                                "[1,]",
                                "[,1]",
                                "{\"a\"}",
                                "{a:1}",
                                "{\"a\":1,}",
                                "\"\t\"",
                                "\"\\x\"",
                                "\"\\u12g4\"",
                                "\"\xff\"",
                                "\"open",
                                "[1",
                                "1 2",
                                "]",
                                "[}",
                                "{]",
                                "{\"a\":}",
                                "nan",
                                ("\xef\xbb\xbf"
                                 "1"),
                                ".5",
                                "1e"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!json_valid(str_of_cstr(good[i])))
            fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (json_valid(str_of_cstr(bad[i])))
            fail_msg("taken: %s", bad[i]);
    assert_false(json_valid(str_of("1\0", 2)));
}

static void bounds_the_depth(void **state)
{
    char text[2 * JSON_DEPTH_MAX + 2];
    (void)state;
    memset(text, '[', JSON_DEPTH_MAX + 1);
    memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    assert_false(json_valid(str_of(text, sizeof text)));
    assert_true(json_valid(str_of(text + 1, sizeof text - 2)));
}

/* Every text that ends too early, in memory that ends there too. */
static void looks_at_nothing_beyond_the_end(void **state)
{
    static const char text[] = "{\"a\\u00e9\":[1.5e3,true,null,\"\xf0\x9f\x8c\x8a\"],\"b\":{}}";
    (void)state;
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *copy = malloc(n ? n : 1);
        memcpy(copy, text, n);
        assert_false(json_valid(str_of(copy, n)));
        free(copy);
    }
    assert_true(json_valid(STR(text)));
}

static void splits_an_array(void **state)
{
    static const char *values[] = {"1", "[2,3]", "{\"a\": 4}", "\"],[\"", "null"};
    struct json_array a;
    struct str value;
    (void)state;
    assert_true(json_array_begin(&a, STR(" [1 , [2,3],{\"a\": 4}\n,\"],[\",null ] ")));
    for (size_t i = 0; i < 5; i++) {
        assert_false(json_array_ended(&a));
        assert_true(json_array_next(&a, &value));
        assert_true(str_eq(value, str_of_cstr(values[i])));
    }
    assert_true(json_array_ended(&a));
    assert_false(json_array_next(&a, &value));
    assert_true(json_array_begin(&a, STR("[ ]")));
    assert_false(json_array_next(&a, &value));
    assert_false(json_array_begin(&a, STR("{}")));
    assert_false(json_array_begin(&a, STR("[1")));
}

static void finds_members(void **state)
{
    const struct str object =
        STR("{\"a\":{\"b\":1}, \"b\" : \"x\", \"c\":true,\"b\":2,\"d\":false}");
    struct str value;
    (void)state;
    assert_true(json_member(object, STR("b"), &value));
    assert_true(str_eq(value, STR("\"x\"")));
    assert_true(json_member(object, STR("a"), &value));
    assert_true(str_eq(value, STR("{\"b\":1}")));
    assert_false(json_member(object, STR("e"), &value));
    assert_false(json_member(STR("[1]"), STR("a"), &value));
    assert_false(json_member(STR("{}"), STR("a"), &value));
    assert_false(json_member(STR("{\"a\":1"), STR("a"), &value));
    assert_true(json_member_is_true(object, STR("c")));
    assert_false(json_member_is_true(object, STR("d")));
}

static void reads_texts(void **state)
{
    char text[16];
    (void)state;
    assert_true(json_member_text(STR("{\"t\":\"a\\n\\u00e9\\ud83c\\udf0a\\ud800\"}"), STR("t"),
                                 text, sizeof text));
    assert_string_equal(text, "a\n\xc3\xa9\xf0\x9f\x8c\x8a\xef\xbf\xbd");
    assert_true(json_member_text(STR("{\"t\":\"123456789012345\"}"), STR("t"), text, sizeof text));
    assert_string_equal(text, "123456789012345");
    assert_false(
        json_member_text(STR("{\"t\":\"1234567890123456\"}"), STR("t"), text, sizeof text));
    assert_string_equal(text, "");
    assert_false(json_member_text(STR("{\"t\":\"a\\u0000b\"}"), STR("t"), text, sizeof text));
    assert_string_equal(text, "");
    assert_false(json_member_text(STR("{\"t\":1}"), STR("t"), text, sizeof text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_valid_from_invalid),
        cmocka_unit_test(bounds_the_depth),
        cmocka_unit_test(looks_at_nothing_beyond_the_end),
        cmocka_unit_test(splits_an_array),
        cmocka_unit_test(finds_members),
        cmocka_unit_test(reads_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
