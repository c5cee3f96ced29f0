// SPDX-License-Identifier: Apache-2.0
#include "store/offset.h"
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void test_both_ways(void **state)
{
    static const struct {
        struct offset offset;
        const char *text;
    } samples[] = {
        {{0, 0}, "0000000000000000_0000000000000000"},
        {{1, 0}, "0000000000000001_0000000000000000"},
        {{1, 42}, "0000000000000001_0000000000000042"},
        {{123456, 7890123456789}, "0000000000123456_0007890123456789"},
        {{OFFSET_PART_MAX, OFFSET_PART_MAX}, "9999999999999999_9999999999999999"},
    };
    for (size_t i = 0; i < COUNT(samples); i++) {
        char text[OFFSET_TEXT];
        struct offset o = {77, 77};
        offset_format(samples[i].offset, text);
        assert_memory_equal(text, samples[i].text, OFFSET_TEXT);
        assert_int_equal(offset_parse(str_of_cstr(samples[i].text), &o), 0);
        assert_true(o.life == samples[i].offset.life && o.pos == samples[i].offset.pos);
        assert_true(offset_is_zero(o) == (i == 0));
    }
}

static void test_refuses(void **state)
{
    static const struct str invalid[] = {
        STR_INIT(""),
        STR_INIT("-1"),
        STR_INIT("now"),
        STR_INIT("0"),
        STR_INIT("0000000000000001_000000000000000"),
        STR_INIT("0000000000000001_00000000000000000"),
        STR_INIT("000000000000001_0000000000000000"),
        STR_INIT("00000000000000001_000000000000000"),
        STR_INIT("0000000000000001-0000000000000000"),
        STR_INIT("0000000000000001_000000000000000a"),
        STR_INIT("0000000000000001_ 00000000000000"),
        STR_INIT("+000000000000001_0000000000000000"),
        STR_INIT("0000000000000001_0000000000000000\0"),
        STR_INIT("0000000000000001_000000000000000\0"),
        STR_INIT("0000000000000001\0"
                 "0000000000000000"),
        STR_INIT("0000000000000000_0000000000000001"), /* no stream lives the life zero */
        STR_INIT("000000000000000__0000000000000000"),
        STR_INIT("0000000000000001_000000000000000_"),
    };
    for (size_t i = 0; i < COUNT(invalid); i++) {
        struct offset o = {77, 77};
        if (offset_parse(invalid[i], &o) != ERR_OFFSET)
            fail_msg("accepted: %.*s", (int)invalid[i].n, invalid[i].p);
        assert_true(o.life == 77 && o.pos == 77);
    }
}

/* Order of the text is order of position; clients rely on comparing it as text. */
static void test_order(void **state)
{
    static const struct offset ascending[] = {
        {0, 0}, {1, 0}, {1, 9}, {1, 10}, {1, OFFSET_PART_MAX}, {2, 0}, {10, 3}, {10, 20}, {99, 1},
    };
    for (size_t i = 1; i < COUNT(ascending); i++) {
        char a[OFFSET_TEXT], b[OFFSET_TEXT];
        offset_format(ascending[i - 1], a);
        offset_format(ascending[i], b);
        assert_true(memcmp(a, b, OFFSET_TEXT) < 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
