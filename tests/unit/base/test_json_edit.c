// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json_edit.h"

#include <stdlib.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

struct row {
    const char *object;
    struct json_edit edits[4];
    size_t n;
    const char *expected;
    bool changed;
};

static const struct row rows[] = {
    {"{}", {{{0}, {0}, false}}, 0, "{}", false},
    {"{ \"a\" : 1 }", {{STR_INIT("a"), STR_INIT("1"), false}}, 1, "{ \"a\" : 1 }", false},
    {"{ \"a\" : 1, \"b\":[ 2 ] }",
     {{STR_INIT("a"), STR_INIT("2"), false}},
     1,
     "{\"a\":2,\"b\":[ 2 ]}",
     true},
    {"{\"a\":1}", {{STR_INIT("b"), STR_INIT("\"x\""), false}}, 1, "{\"a\":1,\"b\":\"x\"}", true},
    {"{\"a\":1,\"b\":2}", {{STR_INIT("a"), {0}, false}}, 1, "{\"b\":2}", true},
    {"{\"a\":1}", {{STR_INIT("a"), {0}, false}}, 1, "{}", true},
    {"{\"b\":1}", {{STR_INIT("a"), {0}, false}}, 1, "{\"b\":1}", false},
    {"{\"a\":1}", {{STR_INIT("a"), STR_INIT("2"), true}}, 1, "{\"a\":1}", false},
    {"{}", {{STR_INIT("a"), STR_INIT("2"), true}}, 1, "{\"a\":2}", true},
    /* all of one name, however they are spelt */
    {"{\"a\":1,\"\\u0061\":3,\"b\":{\"a\":4}}",
     {{STR_INIT("a"), STR_INIT("2"), false}},
     1,
     "{\"a\":2,\"\\u0061\":2,\"b\":{\"a\":4}}",
     true},
    /* where strings end */
    {"{\"a\":\"\\\\\",\"b\":\"\\\"\",\"c\":[\"\\\\\\\"]\"],\"\\\\\":\"\"}",
     {{STR_INIT("b"), STR_INIT("1"), false}},
     1,
     "{\"a\":\"\\\\\",\"b\":1,\"c\":[\"\\\\\\\"]\"],\"\\\\\":\"\"}",
     true},
    {"{\"x\":1}",
     {{STR_INIT("x"), {0}, false},
      {STR_INIT("y"), STR_INIT("[]"), true},
      {STR_INIT("z"), STR_INIT("{}"), false}},
     3,
     "{\"y\":[],\"z\":{}}",
     true},
};

static void test_edits(void **state)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf out = {0};
        bool changed = json_edit_put(&out, str_of_cstr(rows[i].object), rows[i].edits, rows[i].n);
        buf_putc(&out, '\0');
        assert_string_equal(out.p, rows[i].expected);
        assert_int_equal(changed, rows[i].changed);
        buf_deinit(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_edits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
