// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "base/json.h"
#include "client/backoff.h"
#include "client/json_values.h"
#include "http/sse_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static void assert_text(const struct buf *b, const char *expected)
{
    assert_int_equal(b->n, strlen(expected));
    assert_memory_equal(b->n ? b->p : "", expected, b->n);
}

/* -- SSE -------------------------------------------------------------------------------------- */

static int note_event(void *user, const struct sse_event *e)
{
    struct buf *log = user;
    buf_printf(log, "%.*s<%.*s>", (int)e->type.n, e->type.p, (int)e->data.n, e->data.p);
    if (e->id.n > 0)
        buf_printf(log, "#%.*s", (int)e->id.n, e->id.p);
    buf_putc(log, ';');
    return str_eq(e->data, STR("stop")) ? ERR_CANCELLED : 0;
}

/* Parses `bytes` in two or three pieces; the log is what note_event wrote and the result. */
static void parse_cut(struct buf *log, struct str bytes, size_t max, size_t cut, size_t cut2)
{
    struct sse_parser p;
    sse_parser_init(&p, max, log, note_event);
    sse_parser_feed(&p, str_of(bytes.p, cut));
    sse_parser_feed(&p, str_of(bytes.p + cut, cut2 - cut));
    int err = sse_parser_feed(&p, str_of(bytes.p + cut2, bytes.n - cut2));
    if (p.has_retry)
        buf_printf(log, "retry %u;", (unsigned)p.retry_ms);
    if (err)
        buf_printf(log, "%s", err_name(err));
    sse_parser_deinit(&p);
}

static void assert_sse_max(struct str bytes, size_t max, const char *expected)
{
    for (size_t cut2 = 0; cut2 <= bytes.n; cut2++)
        for (size_t cut = 0; cut <= cut2; cut++) {
            struct buf log = {0};
            parse_cut(&log, bytes, max, cut, cut2);
            assert_text(&log, expected);
            buf_deinit(&log);
        }
}

#define assert_sse(literal, expected) assert_sse_max(STR(literal), 1000, expected)

static void sse_fields(void **state)
{
    assert_sse("data: a\n\n", "message<a>;");
    assert_sse("event: data\ndata:x\n\n", "data<x>;");
    assert_sse("data:  two spaces\n\n", "message< two spaces>;");
    assert_sse("data:a\ndata:b\ndata:\n\n", "message<a\nb\n>;");
    assert_sse("data\n\n", "message<>;");
    assert_sse("data:\n\n", "message<>;");
    assert_sse("data:a:b\n\n", "message<a:b>;");
    assert_sse("Data:a\n data:b\ndata :c\nnope:d\n\ndata:e\n\n", "message<e>;");
    assert_sse("event:gap\n\ndata:x\n\n", "message<x>;"); /* no data: no event, type forgotten */
    assert_sse("event:a\nevent:b\ndata:x\n\n", "b<x>;");
    assert_sse("event:a\nevent:\ndata:x\n\n", "message<x>;");
}

static void sse_line_ends_and_bom(void **state)
{
    assert_sse("data:a\r\rdata:b\r\n\r\ndata:c\n\n", "message<a>;message<b>;message<c>;");
    assert_sse("data:a\r\ndata:b\r\r\n", "message<a\nb>;");
    assert_sse("data:a\n\r\ndata:b\r\n\n", "message<a>;message<b>;");
    assert_sse("\xEF\xBB\xBF"
               "data:a\n\n",
               "message<a>;");
    assert_sse("\xEF\xBB\xBF\xEF\xBB\xBF"
               "data:a\n\ndata:b\n\n",
               "message<b>;");
    assert_sse("\xEF\xBB"
               "data:a\n\ndata:b\n\n",
               "message<b>;");
    assert_sse("\n\n\ndata:a\n\n", "message<a>;");
    assert_sse("data:never ended\n", "");
    assert_sse("data:never ended", "");
}

static void sse_id_retry_comments(void **state)
{
    assert_sse("id: 7\ndata:a\n\ndata:b\n\nid\ndata:c\n\n",
               "message<a>#7;message<b>#7;message<c>;");
    assert_sse("id:1\nid:a\0b\ndata:x\n\n", "message<x>#1;");
    assert_sse("retry: 250\n\n", "retry 250;");
    assert_sse("retry:1s\nretry: -1\nretry:\n\n", "");
    assert_sse(": heartbeat\n\n:\ndata:a\n:between\ndata:b\n\n", "message<a\nb>;");
}

static void sse_limits(void **state)
{
    assert_sse_max(STR("data:12345\n\n"), 10, "message<12345>;");
    assert_sse_max(STR("data:123456\n\n"), 10, "TOO_LARGE");
    assert_sse_max(STR(":23456789ab\n\n"), 10, "TOO_LARGE"); /* a comment is a line too */
    assert_sse_max(STR("data:12345"), 10, "");
    assert_sse_max(STR("data:1\n\ndata:123456"), 10, "message<1>;TOO_LARGE");
    assert_sse_max(STR("data:1234\ndata:5678\ndata:\n\n"), 10, "message<1234\n5678\n>;");
    assert_sse_max(STR("data:1234\ndata:5678\ndata:9\n\n"), 10, "TOO_LARGE");
    char name[SSE_NAME_MAX + 20];
    int n = snprintf(name, sizeof name, "event:%0*d\ndata:a\n\n", SSE_NAME_MAX + 1, 0);
    struct buf log = {0};
    parse_cut(&log, str_of(name, (size_t)n), 1000, 3, 9);
    assert_text(&log, "TOO_LARGE");
    buf_deinit(&log);
}

static void sse_stops_where_told(void **state)
{
    assert_sse("data:a\n\ndata:stop\n\ndata:b\n\n", "message<a>;message<stop>;CANCELLED");
}

static void sse_reset_forgets_half_an_event(void **state)
{
    struct buf log = {0};
    struct sse_parser p;
    sse_parser_init(&p, 100, &log, note_event);
    sse_parser_feed(&p, STR("id:4\nevent:x\ndata:lost\nda"));
    sse_parser_reset(&p);
    assert_int_equal(sse_parser_feed(&p, STR("data:a\n\n")), 0);
    assert_text(&log, "message<a>#4;");
    assert_int_equal(sse_parser_feed(&p, STR("data:stop\n\n")), ERR_CANCELLED);
    assert_int_equal(sse_parser_feed(&p, STR("data:b\n\n")), ERR_CANCELLED);
    sse_parser_reset(&p);
    assert_int_equal(sse_parser_feed(&p, STR("data:c\n\n")), 0);
    assert_text(&log, "message<a>#4;message<stop>#4;message<c>#4;");
    sse_parser_deinit(&p);
    buf_deinit(&log);
}

/* -- JSON values ------------------------------------------------------------------------------ */

static int note_value(void *user, struct str value)
{
    struct buf *log = user;
    buf_put(log, value);
    buf_putc(log, ';');
    return str_eq(value, STR("\"stop\"")) ? ERR_CANCELLED : 0;
}

static void assert_values_max(struct str text, size_t max, const char *expected)
{
    for (size_t cut = 0; cut <= text.n; cut++) {
        struct buf log = {0};
        struct json_values v;
        json_values_init(&v, max, &log, note_value);
        json_values_feed(&v, str_of(text.p, cut));
        json_values_feed(&v, str_skip(text, cut));
        int err = json_values_end(&v);
        if (err)
            buf_printf(&log, "%s", err_name(err));
        assert_text(&log, expected);
        json_values_deinit(&v);
        buf_deinit(&log);
    }
}

#define assert_values(literal, expected) assert_values_max(STR(literal), 1000, expected)

static void values_of_arrays(void **state)
{
    assert_values("[]", "");
    assert_values(" \r\n[ ]\n ", "");
    assert_values("[1]", "1;");
    assert_values("[1, true ,\"a,]\\\"\\\\\",{\"k\":[1,{}]},[[]],null]",
                  "1;true;\"a,]\\\"\\\\\";{\"k\":[1,{}]};[[]];null;");
    assert_values("[ {\n\"a\":\r\n1\t}\n,\n12345678901234567890 ]",
                  "{ \"a\":  1\t};12345678901234567890;");
}

static void values_that_are_none(void **state)
{
    assert_values("", "JSON");
    assert_values("1", "JSON");
    assert_values("{}", "JSON");
    assert_values("[", "JSON");
    assert_values("[1", "JSON");
    assert_values("[1,", "1;JSON");
    assert_values("[1,]", "1;JSON");
    assert_values("[,1]", "JSON");
    assert_values("[1}", "JSON");
    assert_values("[[1}]", "JSON");
    assert_values("[1]]", "1;JSON");
    assert_values("[1] 2", "1;JSON");
    assert_values("[1\n2]", "JSON"); /* a dropped line end would make it 12 */
    assert_values("[\"a\nb\"]", "JSON");
    assert_values("[1,\"stop\",2]", "1;\"stop\";CANCELLED");
}

static void values_are_bounded_one_by_one(void **state)
{
    assert_values_max(STR("[1234,\"56\",7890]"), 4, "1234;\"56\";7890;");
    assert_values_max(STR("[1234,\"567\",8]"), 4, "1234;TOO_LARGE");
}

/* -- backoff ---------------------------------------------------------------------------------- */

static void backoff_grows_to_its_cap(void **state)
{
    struct backoff b = {.first_ms = 100, .max_ms = 1000};
    static const unsigned bounds[] = {100, 200, 400, 800, 1000, 1000};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        struct backoff again = b;
        assert_int_equal(backoff_next(&again, 0, bounds[i]), bounds[i]); /* the largest draw */
        assert_int_equal(backoff_next(&b, 0, bounds[i] + 1), 0);         /* the smallest */
    }
    backoff_reset(&b);
    assert_int_equal(backoff_next(&b, 0, 100), 100);
}

static void backoff_keeps_what_the_server_asks(void **state)
{
    struct backoff b = {.first_ms = 100, .max_ms = 1000};
    assert_int_equal(backoff_next(&b, 30000, 0), 30000);
    assert_int_equal(backoff_next(&b, 30000, 150), 30150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sse_fields),
        cmocka_unit_test(sse_line_ends_and_bom),
        cmocka_unit_test(sse_id_retry_comments),
        cmocka_unit_test(sse_limits),
        cmocka_unit_test(sse_stops_where_told),
        cmocka_unit_test(sse_reset_forgets_half_an_event),
        cmocka_unit_test(values_of_arrays),
        cmocka_unit_test(values_that_are_none),
        cmocka_unit_test(values_are_bounded_one_by_one),
        cmocka_unit_test(backoff_grows_to_its_cap),
        cmocka_unit_test(backoff_keeps_what_the_server_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
