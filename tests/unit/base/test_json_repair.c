// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/json_repair.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void check(struct str text, const char *expected)
{
    struct buf out = {0};
    buf_putc(&out, '>'); /* what is there already stays */
    bool ok = json_repair(text, &out);
    assert_int_equal(ok, expected != NULL);
    buf_putc(&out, '\0');
    assert_int_equal(out.p[0], '>');
    assert_string_equal(out.p + 1, expected != NULL ? expected : "");
    buf_deinit(&out);
}

static void beginnings_become_values(void **state)
{
    static const struct {
        const char *text, *value;
    } cases[] = {
        {"{\"a\":[1,\"b\",null]}", "{\"a\":[1,\"b\",null]}"},
        {" {\"a\":\n1} ", "{\"a\":1}"},
        {"7", "7"},
        {"{", "{}"},
        {"[", "[]"},
        {"\"", "\"\""},
        {"{\"a", "{}"},
        {"{\"a\\\"b", "{}"},
        {"{\"a\"", "{}"},
        {"{\"a\":", "{}"},
        {"{\"a\": ", "{}"},
        {"{\"a\":\"", "{\"a\":\"\"}"},
        {"{\"a\":\"x\\", "{\"a\":\"x\"}"},
        {"{\"a\":\"x\\\"", "{\"a\":\"x\\\"\"}"},
        {"{\"a\":\"x\\u00e", "{\"a\":\"x\"}"},
        {"{\"a\":\"x\\u00e9", "{\"a\":\"x\\u00e9\"}"},
        {"{\"a\":\"]}", "{\"a\":\"]}\"}"},
        {"{\"a\":1", "{\"a\":1}"},
        {"{\"a\":1,", "{\"a\":1}"},
        {"{\"a\":1,\"b", "{\"a\":1}"},
        {"{\"a\":1,\"b\":-", "{\"a\":1}"},
        {"{\"a\":[{\"b\":[", "{\"a\":[{\"b\":[]}]}"},
        {"{\"a\":[{\"b\":[]}", "{\"a\":[{\"b\":[]}]}"},
        {"[1,", "[1]"},
        {"[1 ", "[1]"},
        {"[-", "[]"},
        {"[1.", "[1]"},
        {"[1.5e", "[1.5]"},
        {"[1.5e-", "[1.5]"},
        {"[1.5e-3", "[1.5e-3]"},
        {"[t", "[true]"},
        {"[fals", "[false]"},
        {"n", "null"},
        {"[true", "[true]"},
        /* behind a value nothing is looked at */
        {"{} x", "{}"},
        {"[1]]", "[1]"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check(str_of_cstr(cases[i].text), cases[i].value);
}

static void what_begins_no_value_stays_nothing(void **state)
{
    static const struct str cases[] = {
        STR_INIT(""),           STR_INIT("  "),         STR_INIT("-"),      STR_INIT("x"),
        STR_INIT("}"),          STR_INIT("[}"),         STR_INIT("{]"),     STR_INIT("{1"),
        STR_INIT("{,"),         STR_INIT("[,"),         STR_INIT("[1,]"),   STR_INIT("{\"a\",1"),
        STR_INIT("{\"a\":1,}"), STR_INIT("[01,2"),      STR_INIT("[1-2,"),  STR_INIT("[trux"),
        STR_INIT("[truee"),     STR_INIT("[\"a\" \"b"), STR_INIT("[\"\\x"), STR_INIT("[\"\\uzzzz"),
        STR_INIT("[\"\xff"),    STR_INIT("[\"a\nb"),    STR_INIT("[1\0"),   STR_INIT("\0"),
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check(cases[i], NULL);
}

static void every_prefix_of_a_value_is_one(void **state)
{
    static const char text[] = "{\"city\":\"Z\xc3\xbcrich \\\"\\u00e9\\\\\",\"n\":[1,-2.5E+3,true,"
                               "{\"q\":null}, [] ],\"e\":{},\n\"s\":\"\"}";
    for (size_t n = 1; n < sizeof text; n++) {
        struct buf out = {0};
        size_t at;
        if ((text[n] & 0xc0) == 0x80)
            continue; /* within a character */
        assert_true(json_repair(str_of(text, n), &out));
        assert_int_equal(json_check(buf_str(&out), &at), 0);
        assert_null(memchr(out.p, '\n', out.n));
        buf_deinit(&out);
    }
}

static void nesting_is_bounded(void **state)
{
    char text[REPAIR_DEPTH_MAX + 1];
    memset(text, '[', sizeof text);
    struct buf out = {0};
    assert_true(json_repair(str_of(text, REPAIR_DEPTH_MAX), &out));
    assert_int_equal(out.n, 2 * REPAIR_DEPTH_MAX);
    assert_false(json_repair(str_of(text, REPAIR_DEPTH_MAX + 1), &out));
    assert_int_equal(out.n, 2 * REPAIR_DEPTH_MAX);
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beginnings_become_values),
        cmocka_unit_test(what_begins_no_value_stays_nothing),
        cmocka_unit_test(every_prefix_of_a_value_is_one),
        cmocka_unit_test(nesting_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
