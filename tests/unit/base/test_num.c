// SPDX-License-Identifier: Apache-2.0
#include "base/num.h"
#include "base/err.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void test_parse(void **state)
{
    static const struct {
        struct str text;
        uint64_t max, value;
    } valid[] = {
        {STR_INIT("0"), 0, 0},
        {STR_INIT("9"), 9, 9},
        {STR_INIT("10"), 10, 10},
        {STR_INIT("65535"), UINT16_MAX, 65535},
        {STR_INIT("9007199254740991"), NUM_SAFE_MAX, NUM_SAFE_MAX},
        {STR_INIT("18446744073709551615"), UINT64_MAX, UINT64_MAX},
        {STR_INIT("0000000000000000000000000000007"), 7, 7},
    };
    for (size_t i = 0; i < COUNT(valid); i++) {
        uint64_t v = 1234;
        assert_int_equal(num_parse(valid[i].text, valid[i].max, &v), 0);
        assert_true(v == valid[i].value);
    }
}

static void test_parse_refuses(void **state)
{
    static const struct {
        struct str text;
        uint64_t max;
    } invalid[] = {
        {STR_INIT(""), UINT64_MAX},
        {STR_INIT("1"), 0},
        {STR_INIT("8"), 7},
        {STR_INIT("10"), 9},
        {STR_INIT("65536"), UINT16_MAX},
        {STR_INIT("9007199254740992"), NUM_SAFE_MAX},
        {STR_INIT("18446744073709551616"), UINT64_MAX},
        {STR_INIT("18446744073709551620"), UINT64_MAX},
        {STR_INIT("99999999999999999999"), UINT64_MAX},
        {STR_INIT("-1"), UINT64_MAX},
        {STR_INIT("+1"), UINT64_MAX},
        {STR_INIT(" 1"), UINT64_MAX},
        {STR_INIT("1 "), UINT64_MAX},
        {STR_INIT("1\0"), UINT64_MAX},
        {STR_INIT("0x1"), UINT64_MAX},
        {STR_INIT("1e3"), UINT64_MAX},
        {STR_INIT("1_000"), UINT64_MAX},
        {STR_INIT("/"), UINT64_MAX}, /* the bytes beside the digits */
        {STR_INIT(":"), UINT64_MAX},
        {STR_INIT("\xd9\xa1"), UINT64_MAX}, /* an Arabic digit */
    };
    for (size_t i = 0; i < COUNT(invalid); i++) {
        uint64_t v = 1234;
        assert_int_equal(num_parse(invalid[i].text, invalid[i].max, &v), ERR_SYNTAX);
        assert_int_equal(num_parse_canonical(invalid[i].text, invalid[i].max, &v), ERR_SYNTAX);
        assert_int_equal(v, 1234);
    }
}

static void test_parse_canonical(void **state)
{
    uint64_t v = 1234;
    assert_int_equal(num_parse_canonical(STR("0"), UINT64_MAX, &v), 0);
    assert_int_equal(v, 0);
    assert_int_equal(num_parse_canonical(STR("100"), UINT64_MAX, &v), 0);
    assert_int_equal(v, 100);
    assert_int_equal(num_parse_canonical(STR("00"), UINT64_MAX, &v), ERR_SYNTAX);
    assert_int_equal(num_parse_canonical(STR("01"), UINT64_MAX, &v), ERR_SYNTAX);
    assert_int_equal(v, 100);
}

static void assert_format(uint64_t v)
{
    char expected[32], text[NUM_TEXT_MAX];
    uint64_t back;
    snprintf(expected, sizeof expected, "%" PRIu64, v);
    size_t n = num_format(v, text);
    assert_true(str_eq(str_of(text, n), str_of_cstr(expected)));
    assert_int_equal(num_parse_canonical(str_of(text, n), UINT64_MAX, &back), 0);
    assert_true(back == v);
}

static void test_format(void **state)
{
    assert_format(0);
    assert_format(UINT64_MAX);
    for (uint64_t power = 1; power < UINT64_MAX / 10; power *= 10) {
        assert_format(power - 1);
        assert_format(power);
        assert_format(power * 9 + 1);
    }
}

struct sample {
    const char *text;
    uint64_t value;
};

static void assert_all(int (*parse)(struct str, uint64_t *), const struct sample *samples, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t v = 1234;
        if (parse(str_of_cstr(samples[i].text), &v) != 0)
            fail_msg("refused: %s", samples[i].text);
        assert_true(v == samples[i].value);
    }
}

static void assert_none(int (*parse)(struct str, uint64_t *), const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t v = 1234;
        if (parse(str_of_cstr(texts[i]), &v) != ERR_SYNTAX)
            fail_msg("accepted: %s", texts[i]);
        assert_int_equal(v, 1234);
    }
}

static void test_size(void **state)
{
    static const struct sample valid[] = {
        {"0", 0},
        {"64", 64},
        {"10k", 10240},
        {"10K", 10240},
        {"16m", 16777216},
        {"1M", 1048576},
        {"2g", 2147483648},
        {"8G", 8589934592},
        {"18446744073709551615", UINT64_MAX},
        {"17179869183g", UINT64_C(17179869183) << 30},
    };
    static const char *const invalid[] = {
        "",
        "k",
        "-1k",
        "1.5m",
        "1kb",
        "1KiB",
        "1 k",
        " 1k",
        "1k ",
        "1t",
        "1x",
        "10kk",
        "1k1k",
        "18446744073709551616",
        "17179869184g",
        "18014398509481984k",
    };
    assert_all(num_parse_size, valid, COUNT(valid));
    assert_none(num_parse_size, invalid, COUNT(invalid));
}

static void test_duration(void **state)
{
    static const struct sample valid[] = {
        {"0", 0},
        {"0s", 0},
        {"250ms", 250},
        {"10s", 10000},
        {"5m", 300000},
        {"2h", 7200000},
        {"1d", 86400000},
        {"18446744073709551615ms", UINT64_MAX},
        {"18446744073709551s", UINT64_C(18446744073709551000)},
        {"213503982334d", UINT64_C(213503982334) * 86400000},
    };
    static const char *const invalid[] = {
        "",
        "s",
        "5",
        "00",
        "1.5s",
        "-1s",
        "1 s",
        "1S",
        "1M",
        "1sec",
        "1w",
        "1m30s",
        "18446744073709551616ms",
        "18446744073709552s",
        "213503982335d",
    };
    assert_all(num_parse_duration_ms, valid, COUNT(valid));
    assert_none(num_parse_duration_ms, invalid, COUNT(invalid));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_parse_refuses),
        cmocka_unit_test(test_parse_canonical),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_duration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
