// SPDX-License-Identifier: Apache-2.0
#include "base/date.h"
#include "base/err.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <cmocka.h>

#define COUNT(a)   (sizeof(a) / sizeof *(a))
#define LAST_MS    INT64_C(253402300799999) /* 9999-12-31T23:59:59.999Z */
#define DAY_MS     INT64_C(86400000)
#define BUFFER_MAX 64

static void test_parse(void **state)
{
    static const struct {
        const char *text;
        int64_t ms;
    } valid[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2001-09-09T01:46:40Z", INT64_C(1000000000000)},
        {"2026-01-31T23:59:59.000Z", INT64_C(1769903999000)},
        {"2026-01-31T23:59:59.5Z", INT64_C(1769903999500)},
        {"2026-01-31T23:59:59.25Z", INT64_C(1769903999250)},
        {"2026-01-31T23:59:59.1239999999999999999999Z", INT64_C(1769903999123)},
        {"2026-01-31t23:59:59z", INT64_C(1769903999000)},
        {"2026-02-01T01:29:59+01:30", INT64_C(1769903999000)},
        {"2026-01-31T12:59:59-11:00", INT64_C(1769903999000)},
        {"2026-01-31T23:59:59-00:00", INT64_C(1769903999000)},
        {"2026-02-01T23:58:59+23:59", INT64_C(1769903999000)},
        {"1970-01-01T01:00:00+01:00", 0},
        {"2000-02-29T00:00:00Z", INT64_C(951782400000)},
        {"2024-02-29T00:00:00Z", INT64_C(1709164800000)},
        {"9999-12-31T23:59:59.999Z", LAST_MS},
    };
    for (size_t i = 0; i < COUNT(valid); i++) {
        int64_t ms = -1;
        if (date_parse_rfc3339(str_of_cstr(valid[i].text), &ms) != 0)
            fail_msg("refused: %s", valid[i].text);
        if (ms != valid[i].ms)
            fail_msg("%s: %" PRId64 ", not %" PRId64, valid[i].text, ms, valid[i].ms);
    }
}

static void test_parse_refuses(void **state)
{
    static const struct str invalid[] = {
        STR_INIT(""),
        STR_INIT("2026-01-31"),
        STR_INIT("2026-01-31T23:59:59"),
        STR_INIT("2026-01-31T23:59Z"),
        STR_INIT("2026-01-31 23:59:59Z"),
        STR_INIT("2026-01-31T23:59:59.Z"),
        STR_INIT("2026-01-31T23:59:59,5Z"),
        STR_INIT("2026-01-31T23:59:59Z "),
        STR_INIT("2026-01-31T23:59:59Z\0"),
        STR_INIT(" 2026-01-31T23:59:59Z"),
        STR_INIT("2026-1-31T23:59:59Z"),
        STR_INIT("26-01-31T23:59:59Z"),
        STR_INIT("12026-01-31T23:59:59Z"),
        STR_INIT("+2026-01-31T23:59:59Z"),
        STR_INIT("2026-00-01T00:00:00Z"),
        STR_INIT("2026-13-01T00:00:00Z"),
        STR_INIT("2026-01-00T00:00:00Z"),
        STR_INIT("2026-01-32T00:00:00Z"),
        STR_INIT("2026-04-31T00:00:00Z"),
        STR_INIT("2026-02-29T00:00:00Z"),
        STR_INIT("2024-02-30T00:00:00Z"),
        STR_INIT("2100-02-29T00:00:00Z"), /* a century is no leap year... */
        STR_INIT("2000-02-30T00:00:00Z"), /* ...but every fourth is */
        STR_INIT("2026-01-31T24:00:00Z"),
        STR_INIT("2026-01-31T23:60:00Z"),
        STR_INIT("2026-01-31T23:59:60Z"),
        STR_INIT("2016-12-31T23:59:60Z"), /* there was one */
        STR_INIT("2026-01-31T23:59:59+24:00"),
        STR_INIT("2026-01-31T23:59:59+01:60"),
        STR_INIT("2026-01-31T23:59:59+0100"),
        STR_INIT("2026-01-31T23:59:59+01"),
        STR_INIT("2026-01-31T23:59:59+1:00"),
        STR_INIT("2026-01-31T23:59:59Z+01:00"),
        STR_INIT("2026-01-31T23:59:59UTC"),
        STR_INIT("1969-12-31T23:59:59Z"),
        STR_INIT("1969-12-31T23:59:59-01:00"), /* in 1970 by UTC, but not as written */
        STR_INIT("1970-01-01T00:59:59+01:00"),
        STR_INIT("9999-12-31T23:00:00-01:00"),
        STR_INIT("0000-01-01T00:00:00Z"),
    };
    for (size_t i = 0; i < COUNT(invalid); i++) {
        int64_t ms = -1;
        if (date_parse_rfc3339(invalid[i], &ms) != ERR_SYNTAX)
            fail_msg("accepted: %.*s", (int)invalid[i].n, invalid[i].p);
        assert_int_equal(ms, -1);
    }
}

/* Both forms of a time as the C library sees it. */
static void assert_forms(int64_t ms)
{
    char rfc3339[DATE_RFC3339_TEXT], http[DATE_HTTP_TEXT];
    char expected[BUFFER_MAX], fraction[BUFFER_MAX];
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    int64_t back;
    assert_non_null(gmtime_r(&seconds, &tm));

    date_format_rfc3339(ms, rfc3339);
    strftime(expected, sizeof expected, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(fraction, sizeof fraction, ".%03dZ", (int)(ms % 1000));
    assert_memory_equal(rfc3339, expected, 19);
    assert_memory_equal(rfc3339 + 19, fraction, 5);
    assert_int_equal(date_parse_rfc3339(str_of(rfc3339, sizeof rfc3339), &back), 0);
    assert_true(back == ms);

    date_format_http(ms, http);
    assert_int_equal(strftime(expected, sizeof expected, "%a, %d %b %Y %H:%M:%S GMT", &tm),
                     DATE_HTTP_TEXT);
    assert_memory_equal(http, expected, DATE_HTTP_TEXT);
}

/* The first and last day of every month, and a stride of days in between. */
static void test_calendar(void **state)
{
    for (int year = 1970; year <= 9999; year++) {
        for (int month = 0; month < 12; month++) {
            struct tm tm = {.tm_year = year - 1900, .tm_mon = month, .tm_mday = 1};
            int64_t first_ms = (int64_t)timegm(&tm) * 1000;
            assert_forms(first_ms);
            if (first_ms > 0)
                assert_forms(first_ms - 1);
        }
    }
    for (int64_t day = 0; day * DAY_MS <= LAST_MS; day += 13)
        assert_forms(day * DAY_MS + (day * 7919 * 1000 + day) % DAY_MS);
}

static void test_format_outside(void **state)
{
    char text[DATE_RFC3339_TEXT], http[DATE_HTTP_TEXT];
    date_format_rfc3339(-1, text);
    assert_memory_equal(text, "1970-01-01T00:00:00.000Z", sizeof text);
    date_format_rfc3339(INT64_MIN, text);
    assert_memory_equal(text, "1970-01-01T00:00:00.000Z", sizeof text);
    date_format_rfc3339(LAST_MS + 1, text);
    assert_memory_equal(text, "9999-12-31T23:59:59.999Z", sizeof text);
    date_format_http(INT64_MAX, http);
    assert_memory_equal(http, "Fri, 31 Dec 9999 23:59:59 GMT", sizeof http);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_parse_refuses),
        cmocka_unit_test(test_calendar),
        cmocka_unit_test(test_format_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
