// SPDX-License-Identifier: Apache-2.0
/* Hexadecimal, percent encoding, and classes of characters. */
#include "base/ascii.h"
#include "base/hex.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void test_bytes(void **state)
{
    char text[10] = "xxxxxxxxx";
    uint8_t back[4];
    hex_encode("\x00\x9f\xab\xff", 4, text);
    assert_string_equal(text, "009fabffx");
    assert_true(hex_decode(str_of(text, 8), back, 4));
    assert_memory_equal(back, "\x00\x9f\xab\xff", 4);
    assert_true(hex_decode(STR("aBCd"), back, 2));
    assert_memory_equal(back, "\xab\xcd", 2);
    assert_true(hex_decode(STR(""), back, 0));
    assert_true(hex_decode_lower(STR("09af"), back, 2));
    assert_false(hex_decode_lower(STR("09aF"), back, 2));
    static const struct str wrong[] = {STR_INIT("0"),    STR_INIT("000"),  STR_INIT("00000"),
                                       STR_INIT("0g00"), STR_INIT("00 0"), STR_INIT("00\x10\x19")};
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_false(hex_decode(wrong[i], back, 2));
}

static void test_numbers(void **state)
{
    char text[HEX_U64];
    uint64_t v = 0;
    hex_encode_u64(0x0123456789abcdef, text);
    assert_memory_equal(text, "0123456789abcdef", HEX_U64);
    assert_true(hex_decode_u64(str_of(text, HEX_U64), &v));
    assert_true(v == 0x0123456789abcdef);
    assert_false(hex_decode_u64(STR("0123456789ABCDEF"), &v));
    assert_false(hex_decode_u64(STR("0123456789abcde"), &v));
    assert_true(v == 0x0123456789abcdef);
}

static void test_uuid(void **state)
{
    uint8_t ones[16], none[16] = {0};
    char text[HEX_UUID];
    memset(ones, 0xff, sizeof ones);
    hex_uuid(ones, text);
    assert_memory_equal(text, "ffffffff-ffff-4fff-bfff-ffffffffffff", HEX_UUID);
    hex_uuid(none, text);
    assert_memory_equal(text, "00000000-0000-4000-8000-000000000000", HEX_UUID);
}

/* url_encode and url_decode have the rest of it. */
static void test_percent_in_place(void **state)
{
    char text[] = "a%2fb%C3%a9+c";
    size_t n;
    assert_true(percent_decode(str_of(text, sizeof text - 1), true, text, &n));
    assert_true(str_eq(str_of(text, n), STR("a/b\xc3\xa9 c")));
    assert_false(percent_decode(STR("a%2"), false, text, &n));
    assert_false(percent_decode(STR("%x2"), false, text, &n));
}

static void test_classes(void **state)
{
    for (int i = 0; i < 256; i++) {
        char c = (char)i;
        bool digit = i >= '0' && i <= '9', upper = i >= 'A' && i <= 'Z', low = i >= 'a' && i <= 'z';
        assert_int_equal(ascii_is_digit(c), digit);
        assert_int_equal(ascii_is_alpha(c), upper || low);
        assert_int_equal(ascii_is_alnum(c), digit || upper || low);
        assert_int_equal(ascii_lower(c), upper ? (char)(i + 32) : c);
        assert_int_equal(ascii_is_space(c), i == ' ' || i == '\t' || i == '\n' || i == '\r');
        assert_int_equal(ascii_is_white(c), i == ' ' || (i >= 9 && i <= 13));
        assert_int_equal(ascii_is_visible(str_of(&c, 1)), i > 32 && i < 127);
        assert_int_equal(ascii_is_word(str_of(&c, 1), "-_"),
                         digit || upper || low || i == '-' || i == '_');
        assert_int_equal(ascii_is_token(str_of(&c, 1)),
                         i > 32 && i < 127 && strchr("\"(),/:;<=>?@[\\]{}", i) == NULL);
    }
    assert_false(ascii_is_visible(STR_NONE) || ascii_is_word(STR_NONE, "") ||
                 ascii_is_token(STR_NONE));
    assert_true(str_eq(ascii_trim(STR("\v \ta b\f\r\n")), STR("a b")));
    assert_int_equal(ascii_trim(STR(" \n ")).n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),   cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_uuid),    cmocka_unit_test(test_percent_in_place),
        cmocka_unit_test(test_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
