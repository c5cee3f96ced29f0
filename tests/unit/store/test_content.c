// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/content.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void test_kinds(void **state)
{
    static const struct {
        struct str type;
        enum content_kind kind;
    } rows[] = {
        {STR_INIT("application/json"), CONTENT_JSON},
        {STR_INIT("APPLICATION/Json"), CONTENT_JSON},
        {STR_INIT("application/json;charset=utf-8"), CONTENT_JSON},
        {STR_INIT("application/json ; charset=utf-8"), CONTENT_JSON},
        {STR_INIT("application/jsonl"), CONTENT_BINARY},
        {STR_INIT("application/x-json"), CONTENT_BINARY},
        {STR_INIT("application/vnd.api+json"), CONTENT_BINARY},
        {STR_INIT("application/octet-stream"), CONTENT_BINARY},
        {STR_INIT("text/plain"), CONTENT_TEXT},
        {STR_INIT("Text/event-stream; x=y"), CONTENT_TEXT},
        {STR_INIT("text/"), CONTENT_TEXT},
        {STR_INIT("text"), CONTENT_BINARY},
        {STR_INIT("context/plain"), CONTENT_BINARY},
        {STR_INIT("image/png; text/plain"), CONTENT_BINARY},
        {STR_INIT(""), CONTENT_BINARY},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (content_kind(rows[i].type) != rows[i].kind)
            fail_msg("row %zu", i);
}

static void test_same(void **state)
{
    static const struct {
        struct str a, b;
        bool same;
    } rows[] = {
        {STR_INIT("text/plain"), STR_INIT("text/plain"), true},
        {STR_INIT("text/plain"), STR_INIT("TEXT/PLAIN"), true},
        {STR_INIT("text/plain;charset=utf-8"), STR_INIT("text/plain; charset=latin1"), true},
        {STR_INIT("text/plain"), STR_INIT("text/plain \t;x"), true},
        {STR_INIT("text/plain"), STR_INIT("text/plai"), false},
        {STR_INIT("text/plain"), STR_INIT("text/plainx"), false},
        {STR_INIT("text/plain"), STR_INIT("text/html"), false},
        {STR_INIT("text/plain"), STR_INIT(""), false},
        {STR_INIT(""), STR_INIT(""), true},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (content_same(rows[i].a, rows[i].b) != rows[i].same ||
            content_same(rows[i].b, rows[i].a) != rows[i].same)
            fail_msg("row %zu", i);
}

static void test_valid(void **state)
{
    static const struct {
        struct str type;
        bool valid;
    } rows[] = {
        {STR_INIT("text/plain"), true},
        {STR_INIT("a/b"), true},
        {STR_INIT("application/vnd.a-b+c_1"), true},
        {STR_INIT("!#$%&'*+-.^_`|~/x"), true},
        {STR_INIT("text/plain; charset=\"utf-8\""), true},
        {STR_INIT("text/plain;"), true},
        {STR_INIT(""), false},
        {STR_INIT("text"), false},
        {STR_INIT("/"), false},
        {STR_INIT("text/"), false},
        {STR_INIT("/plain"), false},
        {STR_INIT("text/plain/x"), false},
        {STR_INIT("text /plain"), false},
        {STR_INIT("te xt/plain"), false},
        {STR_INIT("text/pl\0in"), false},
        {STR_INIT("text/(plain)"), false},
        {STR_INIT("text/plain, text/html"), false},
        {STR_INIT("text/pl\xc3\xa4in"), false},
        {STR_INIT("text/plain; x=\xc3\xa4"), false},
        {STR_INIT("text/plain; x=\r\nSet-Cookie: y"), false}, /* goes back into responses */
        {STR_INIT("text/plain; x=\x7f"), false},
        {STR_INIT("text/plain; x=\0"), false},
        {STR_INIT(";charset=utf-8"), false},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (content_valid(rows[i].type) != rows[i].valid)
            fail_msg("row %zu", i);
}

static void test_length(void **state)
{
    char text[CONTENT_TYPE_MAX + 1];
    memset(text, 'a', sizeof text);
    text[4] = '/';
    assert_true(content_valid(str_of(text, CONTENT_TYPE_MAX)));
    assert_false(content_valid(str_of(text, CONTENT_TYPE_MAX + 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_valid),
        cmocka_unit_test(test_length),
    };
    return cmocka_run_group_tests_name("unit/content", tests, NULL, NULL);
}
