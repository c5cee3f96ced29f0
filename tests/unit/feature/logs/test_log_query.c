// SPDX-License-Identifier: Apache-2.0
#include "feature/logs/log_query.h"
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* ---- the question ---- */

static void test_since(void **state)
{
    static const struct {
        const char *text;
        int err;
        uint64_t value;
    } rows[] = {
        {"", 0, 0},
        {" \t\r\n", 0, 0},
        {"0", 0, 0},
        {"007", 0, 7},
        {" 184 ", 0, 184},
        {"4294967297", 0, 4294967297},
        {"18446744073709551615", 0, UINT64_MAX},
        {"18446744073709551616", 0, UINT64_MAX},
        {"99999999999999999999999999999999", 0, UINT64_MAX},
        {"00000000000000000000000000000005", 0, 5},
        {"-1", ERR_SYNTAX, 0},
        {"+1", ERR_SYNTAX, 0},
        {"1.5", ERR_SYNTAX, 0},
        {"1.0", ERR_SYNTAX, 0},
        {"1e3", ERR_SYNTAX, 0},
        {"0x1", ERR_SYNTAX, 0},
        {"abc", ERR_SYNTAX, 0},
        {"1 2", ERR_SYNTAX, 0},
        {"1,000", ERR_SYNTAX, 0},
        {"\xd9\xa1", ERR_SYNTAX, 0}, /* a digit, but not one of ours */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct log_query q = {.since = 99};
        assert_int_equal(log_query_since(&q, str_of_cstr(rows[i].text)), rows[i].err);
        assert_int_equal(q.since, rows[i].err != 0 ? 99 : rows[i].value);
    }
    struct log_query q = {0};
    assert_int_equal(log_query_since(&q, STR("1\0")), ERR_SYNTAX);
    assert_int_equal(log_query_since(&q, STR_NONE), 0);
}

static void test_limit(void **state)
{
    static const struct {
        const char *text;
        uint64_t value;
    } rows[] = {
        {"", 0},
        {"0", 0},
        {"-5", 0},
        {"abc", 0},
        {"1", 1},
        {"+7", 7},
        {" 12 ", 12},
        {"3.9", 3},
        {"5abc", 5},
        {"500", 500},
        {"501", 500},
        {"0010", 10},
        {"9999999999999999999999", 500},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct log_query q = {.limit = 99};
        log_query_limit(&q, str_of_cstr(rows[i].text));
        assert_int_equal(q.limit, rows[i].value);
    }
}

static void test_refusals(void **state)
{
    struct buf out = {0};
    log_cursor_refusal(&out, LOG_CURSOR_AHEAD, STR(" 0099"), 16);
    buf_putc(&out, '\0');
    assert_string_equal(out.p, "{\"error\":{\"code\":\"INVALID_CURSOR\","
                               "\"message\":\"Cursor beyond end of file: 99\",\"context\":{\"fix\":"
                               "\"Reset since=0 (cursor must be <= current file size).\","
                               "\"sizeBytes\":16}}}");
    out.n = 0;
    log_cursor_refusal(&out, LOG_CURSOR_WITHIN, STR("1"), 16);
    buf_putc(&out, '\0');
    assert_non_null(strstr(out.p, "\"Cursor is not aligned to a newline boundary: 1\""));
    out.n = 0;
    log_cursor_refusal(&out, LOG_CURSOR_MALFORMED, STR("-1\"\n\xff"), 0);
    buf_putc(&out, '\0');
    assert_non_null(strstr(out.p, "\"Invalid cursor: -1\\\"\\n\xef\xbf\xbd\""));
    assert_null(strstr(out.p, "sizeBytes"));
    out.n = 0;
    char *x = buf_reserve(&out, 60000);
    memset(x, 'x', 60000);
    struct buf small = {0};
    log_cursor_refusal(&small, LOG_CURSOR_MALFORMED, str_of(x, 60000), 0);
    assert_true(small.n < 300);
    buf_deinit(&small);
    buf_deinit(&out);
}

/* ---- the answer ---- */

/* The items that `lines` give, with a bar behind each; *next is where it ended. */
static void scan(const struct log_query *q, struct str lines, struct buf *items, uint64_t *next)
{
    struct log_scan s;
    struct str item;
    log_scan_init(&s, q);
    items->n = 0;
    while (log_scan_item(&s, &lines, &item)) {
        buf_put(items, item);
        buf_putc(items, '|');
    }
    buf_putc(items, '\0');
    *next = s.next;
}

static void assert_scan(const struct log_query *q, const char *lines, const char *items,
                        uint64_t next)
{
    struct buf got = {0};
    uint64_t at;
    scan(q, str_of_cstr(lines), &got, &at);
    assert_string_equal(got.p, items);
    assert_int_equal(at, next);
    buf_deinit(&got);
}

static void test_partial_line_is_not_consumed(void **state)
{
    struct log_query q = {0};
    assert_scan(&q, "{\"a\":1}\n{\"b\":2}\n{\"schemaVersion\":1", "{\"a\":1}|{\"b\":2}|", 16);
    assert_scan(&q, "{\"a\":1}", "", 0);
    assert_scan(&q, "", "", 0);
    q.since = 1000;
    assert_scan(&q, "{\"a\":1}\n{", "{\"a\":1}|", 1008);
}

static void test_malformed_lines_are_consumed(void **state)
{
    struct log_query q = {0};
    assert_scan(&q, "\n\r\n  \n{\"torn\n{}x\n[1]\n\"s\"\n5\nnull\n{}\r\n{\"\xff\":1}\n", "{}|", 44);
    assert_scan(&q, "garbage\n", "", 8);
    assert_scan(&q, "{'a':1}\n{\"a\":01}\n{\"a\":1,}\n", "", 26);
}

static void test_items_are_as_they_stand(void **state)
{
    struct log_query q = {0};
    assert_scan(&q, " { \"b\" : 1.50 ,\t\"a\":\"\\u0041\" } \r\n",
                "{ \"b\" : 1.50 ,\t\"a\":\"\\u0041\" }|", 33);
}

/* s1, s2, s1 with a filter of s1 and a limit of 1, as agents poll. */
static void test_filter_and_limit(void **state)
{
    const char *lines = "{\"id\":\"a1\",\"sessionId\":\"s1\"}\n"
                        "{\"id\":\"a2\",\"sessionId\":\"s2\"}\n"
                        "{\"id\":\"a3\",\"sessionId\":\"s1\"}\n";
    struct log_query q = {.limit = 1};
    assert_int_equal(log_query_where(&q, STR("sessionId"), STR("s1")), 0);
    assert_scan(&q, lines, "{\"id\":\"a1\",\"sessionId\":\"s1\"}|", 29);
    q.since = 29;
    assert_scan(&q, lines + 29, "{\"id\":\"a3\",\"sessionId\":\"s1\"}|", 87);
    q.since = 0;
    q.limit = 0;
    log_query_deinit(&q);
    /* A filter that nothing passes moves the cursor as far as none. */
    assert_int_equal(log_query_where(&q, STR("sessionId"), STR("s9")), 0);
    assert_scan(&q, lines, "", 87);
    log_query_deinit(&q);
}

static void test_limit_stops_behind_its_last_item(void **state)
{
    struct log_query q = {.limit = 2};
    assert_scan(&q, "x\n{}\n\n{}\nx\n{}\n", "{}|{}|", 9);
    q.limit = 3;
    assert_scan(&q, "x\n{}\n\n{}\nx\n{}\n", "{}|{}|{}|", 14);
}

static void test_filter_values(void **state)
{
    static const struct {
        const char *value, *object;
        bool matches;
    } rows[] = {
        {"x", "{\"k\":\"x\"}", true},
        {"x", "{\"k\":\"\\u0078\"}", true},
        {"x", "{\"\\u006b\":\"x\"}", true},
        {"x", "{\"k\":\"X\"}", false},
        {"x", "{}", false},
        {"", "{}", false},
        {"", "{\"k\":\"\"}", true},
        {"x", "{\"deep\":{\"k\":\"x\"}}", false},
        {"x", "{\"k\":[\"x\"]}", false},
        {"x", "{\"k\":\"y\",\"k\":\"x\"}", true}, /* of several the last */
        {"x", "{\"k\":\"x\",\"k\":\"y\"}", false},
        {"5", "{\"k\":5}", true},
        {"5", "{\"k\":\"5\"}", true},
        {"5", "{\"k\":5.0}", true},
        {"5.0", "{\"k\":5}", true},
        {"5e0", "{\"k\":5}", true},
        {"5", "{\"k\":50}", false},
        {"0x5", "{\"k\":5}", false},
        {" 5", "{\"k\":5}", false},
        {"nan", "{\"k\":5}", false},
        {"-0.5", "{\"k\":-5e-1}", true},
        {"-0", "{\"k\":0}", true},
        {"0", "{\"k\":-0}", true},
        {"-0", "{\"k\":5}", false},
        {"9007199254740993", "{\"k\":9007199254740993}", true},
        {"9007199254740992", "{\"k\":9007199254740993}", false},
        {"true", "{\"k\":true}", true},
        {"false", "{\"k\":true}", false},
        {"true", "{\"k\":\"true\"}", true},
        {"null", "{\"k\":null}", false},
        {"{}", "{\"k\":{}}", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct log_query q = {0};
        struct buf line = {0}, got = {0};
        uint64_t next;
        assert_int_equal(log_query_where(&q, STR("k"), str_of_cstr(rows[i].value)), 0);
        buf_printf(&line, "%s\n", rows[i].object);
        scan(&q, buf_str(&line), &got, &next);
        if ((got.n > 1) != rows[i].matches)
            fail_msg("k=%s of %s", rows[i].value, rows[i].object);
        assert_int_equal(next, line.n);
        buf_deinit(&line);
        buf_deinit(&got);
        log_query_deinit(&q);
    }
}

static void test_all_filters_have_to_match(void **state)
{
    struct log_query q = {0};
    char key[2] = "a";
    assert_int_equal(log_query_where(&q, STR("a"), STR("1")), 0);
    assert_int_equal(log_query_where(&q, STR("b"), STR("2")), 0);
    assert_int_equal(log_query_where(&q, STR("a"), STR("2")), ERR_SYNTAX);
    assert_scan(&q, "{\"a\":1}\n{\"b\":2,\"a\":1}\n{\"a\":1,\"b\":3}\n", "{\"b\":2,\"a\":1}|", 36);
    for (size_t i = 2; i < LOG_FILTERS_MAX; i++) {
        key[0] = (char)('a' + i);
        assert_int_equal(log_query_where(&q, str_of(key, 1), STR("")), 0);
    }
    assert_int_equal(log_query_where(&q, STR("Z"), STR("")), ERR_LIMIT);
    log_query_deinit(&q);
}

/* Who looks closer than we do may refuse an item; the limit is of those that were taken. */
static void test_rejected_items_do_not_count(void **state)
{
    struct log_query q = {.limit = 1};
    struct str rest = STR("{\"bad\":1}\n{\"good\":1}\n{}\n"), item;
    struct log_scan s;
    log_scan_init(&s, &q);
    assert_true(log_scan_item(&s, &rest, &item));
    assert_true(log_scan_full(&s));
    log_scan_reject(&s);
    assert_true(log_scan_item(&s, &rest, &item));
    assert_memory_equal(item.p, "{\"good\":1}", item.n);
    assert_false(log_scan_item(&s, &rest, &item));
    assert_int_equal(s.next, 21);
    assert_int_equal(rest.n, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_since),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_partial_line_is_not_consumed),
        cmocka_unit_test(test_malformed_lines_are_consumed),
        cmocka_unit_test(test_items_are_as_they_stand),
        cmocka_unit_test(test_filter_and_limit),
        cmocka_unit_test(test_limit_stops_behind_its_last_item),
        cmocka_unit_test(test_filter_values),
        cmocka_unit_test(test_all_filters_have_to_match),
        cmocka_unit_test(test_rejected_items_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
