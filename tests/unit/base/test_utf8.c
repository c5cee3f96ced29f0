// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/utf8.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- an encoder to compare with: by the definition, code point by code point ---- */

static size_t encode(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

static bool is_scalar(uint32_t cp)
{
    return cp <= 0x10ffff && !(cp >= 0xd800 && cp <= 0xdfff);
}

/* Every code point, and the values around them that are none. */
static void test_all_code_points(void **state)
{
    char text[4];
    for (uint32_t cp = 0; cp < 0x120000; cp++) {
        size_t n = encode(cp, text);
        if (utf8_valid(str_of(text, n)) != is_scalar(cp))
            fail_msg("U+%04X", cp);
    }
}

/* A proper part of a character is incomplete; with nothing else it is not valid either. */
static void test_all_parts(void **state)
{
    char text[5] = "x";
    for (uint32_t cp = 0; cp < 0x120000; cp += cp < 0x3000 || cp > 0xd700 ? 1 : 7) {
        size_t n = encode(cp, text + 1);
        for (size_t part = 1; part <= n; part++) {
            /* the second byte shows whether more can complete it */
            size_t expected = part < n && (part == 1 || is_scalar(cp)) ? part : 0;
            if (utf8_incomplete_tail(str_of(text, 1 + part)) != expected)
                fail_msg("U+%04X, %zu of %zu", cp, part, n);
            if (part < n && utf8_valid(str_of(text, 1 + part)))
                fail_msg("U+%04X, %zu of %zu is valid", cp, part, n);
        }
    }
}

struct row {
    struct str text;
    bool valid;
    size_t incomplete;
};

static const struct row rows[] = {
    {STR_INIT(""), true, 0},
    {STR_INIT("plain"), true, 0},
    {STR_INIT("a\0b"), true, 0},
    {STR_INIT("\xc3\xa4\xe2\x82\xac\xf0\x9f\x8c\x8a"), true, 0},
    {STR_INIT("a\xc3"), false, 1},
    {STR_INIT("a\xe2"), false, 1},
    {STR_INIT("a\xe2\x82"), false, 2},
    {STR_INIT("a\xf0"), false, 1},
    {STR_INIT("a\xf0\x9f"), false, 2},
    {STR_INIT("a\xf0\x9f\x8c"), false, 3},
    {STR_INIT("\xf0\x9f\x8c"), false, 3},
    {STR_INIT("\xe2"), false, 1},
    /* overlong */
    {STR_INIT("\xc0\x80"), false, 0},
    {STR_INIT("\xc1\xbf"), false, 0},
    {STR_INIT("\xe0\x80\x80"), false, 0},
    {STR_INIT("\xe0\x9f\xbf"), false, 0},
    {STR_INIT("\xf0\x80\x80\x80"), false, 0},
    {STR_INIT("\xf0\x8f\xbf\xbf"), false, 0},
    {STR_INIT("\xc0"), false, 0}, /* no byte could make these good */
    {STR_INIT("\xe0\x80"), false, 0},
    {STR_INIT("\xf0\x8f"), false, 0},
    {STR_INIT("\xf0\x8f\xbf"), false, 0},
    /* surrogates */
    {STR_INIT("\xed\x9f\xbf"), true, 0},
    {STR_INIT("\xed\xa0\x80"), false, 0},
    {STR_INIT("\xed\xa0"), false, 0},
    {STR_INIT("\xed\x9f"), false, 2},
    /* above U+10FFFF */
    {STR_INIT("\xf4\x8f\xbf\xbf"), true, 0},
    {STR_INIT("\xf4\x90\x80\x80"), false, 0},
    {STR_INIT("\xf4\x90"), false, 0},
    {STR_INIT("\xf5\x80\x80\x80"), false, 0},
    {STR_INIT("\xff"), false, 0},
    /* stray and missing continuation bytes */
    {STR_INIT("\x80"), false, 0},
    {STR_INIT("\x80\x80\x80\x80"), false, 0},
    {STR_INIT("a\xbf"), false, 0},
    {STR_INIT("\xc3\x28"), false, 0},
    {STR_INIT("\xe2\x28\xa1"), false, 0},
    {STR_INIT("\xe2\x82\x28"), false, 0},
    {STR_INIT("\xf0\x9f\x8c\x28"), false, 0},
    {STR_INIT("\xc3\xc3"), false, 1},
    {STR_INIT("\xe2\x82\xe2"), false, 1},
    {STR_INIT("\xc3\xa4\xa4"), false, 0},
};

static void test_rows(void **state)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (utf8_valid(rows[i].text) != rows[i].valid)
            fail_msg("row %zu is %s", i, rows[i].valid ? "valid" : "not valid");
        size_t n = utf8_incomplete_tail(rows[i].text);
        if (n != rows[i].incomplete)
            fail_msg("row %zu: %zu incomplete", i, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_code_points),
        cmocka_unit_test(test_all_parts),
        cmocka_unit_test(test_rows),
    };
    return cmocka_run_group_tests_name("unit/utf8", tests, NULL, NULL);
}
