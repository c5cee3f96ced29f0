// SPDX-License-Identifier: Apache-2.0
#include "unit/client/fake_http.h"

#include "base/sse_parse.h"

#define LIMIT 64

/* Events as one text: type/id/data; for each. */
struct seen {
    char text[512];
    int answer;
};

static int note(void *ctx, const struct sse_event *e)
{
    struct seen *seen = ctx;
    size_t n = strlen(seen->text);
    snprintf(seen->text + n, sizeof seen->text - n, "%.*s/%.*s/%.*s;", (int)e->type.n, e->type.p,
             (int)e->id.n, e->id.p, (int)e->data.n, e->data.p ? e->data.p : "");
    return seen->answer;
}

/* In one piece, and then byte by byte: the same must come of it. */
static void check(const char *input, const char *expected)
{
    struct tm_client *c = fake_client();
    for (int bytewise = 0; bytewise < 2; bytewise++) {
        struct seen seen = {0};
        struct sse_parser s;
        sse_parser_init(&s, &client_sse_host, c, LIMIT, &seen, note);
        size_t n = strlen(input), step = bytewise || n == 0 ? 1 : n;
        for (size_t i = 0; i < n; i += step)
            assert_int_equal(sse_parser_feed(&s, str_of(input + i, step)), 0);
        assert_string_equal(seen.text, expected);
        sse_parser_deinit(&s);
    }
    fake_close(c);
}

static void parses_events(void **state)
{
    (void)state;
    check("data: a\n\n", "message//a;");
    check("event: x\nid: 7\ndata:a\ndata: b\n\ndata:c\n\n", "x/7/a\nb;message/7/c;");
    check("data:  two\n\n", "message// two;");
    check(": comment\nretry: 5\nunknown: 1\ndata\n\n", "message//;");
    check("event: nothing\n\ndata: a\n\n", "message//a;");
    check("\xEF\xBB\xBF"
          "data: a\n\n",
          "message//a;");
    check("\xEF\xBB"
          "data: a\n\ndata: b\n\n",
          "message//b;");
    check("data: half", "");
    check("data: u\xc2\x85\xe2\x80\xa8v\n\n", "message//u\xc2\x85\xe2\x80\xa8v;");
}

static void knows_all_line_ends(void **state)
{
    (void)state;
    check("data: a\r\ndata: b\r\n\r\n", "message//a\nb;");
    check("data: a\rdata: b\r\r", "message//a\nb;");
    check("data: a\r\n\ndata: b\n\r\n", "message//a;message//b;");
}

static void bounds_what_it_keeps(void **state)
{
    struct tm_client *c = fake_client();
    struct seen seen = {0};
    struct sse_parser s;
    char line[LIMIT + 8];
    (void)state;
    sse_parser_init(&s, &client_sse_host, c, LIMIT, &seen, note);
    memset(line, 'x', sizeof line);
    assert_int_equal(sse_parser_feed(&s, str_of(line, sizeof line)), TM_E_TOO_LARGE);
    assert_int_equal(sse_parser_feed(&s, STR("\n\n")), TM_E_TOO_LARGE);
    sse_parser_reset(&s);
    for (int i = 0; i < 6; i++) /* six lines of ten and what joins them: 65 */
        assert_int_equal(sse_parser_feed(&s, STR("data: 0123456789\n")),
                         i < 5 ? 0 : TM_E_TOO_LARGE);
    sse_parser_reset(&s);
    assert_int_equal(sse_parser_feed(&s, STR("data: a\n\n")), 0);
    assert_string_equal(seen.text, "message//a;");
    sse_parser_deinit(&s);
    fake_close(c);
}

static void stops_when_told(void **state)
{
    struct tm_client *c = fake_client();
    struct seen seen = {.answer = TM_E_CANCELLED};
    struct sse_parser s;
    (void)state;
    sse_parser_init(&s, &client_sse_host, c, LIMIT, &seen, note);
    assert_int_equal(sse_parser_feed(&s, STR("data: a\n\ndata: b\n\n")), TM_E_CANCELLED);
    assert_string_equal(seen.text, "message//a;");
    sse_parser_deinit(&s);
    fake_close(c);
}

static void says_when_memory_is_out(void **state)
{
    struct tm_client *c = fake_client();
    (void)state;
    for (unsigned nth = 1; nth <= 3; nth++) {
        struct seen seen = {0};
        struct sse_parser s;
        sse_parser_init(&s, &client_sse_host, c, LIMIT, &seen, note);
        fake.fail_at = fake.allocations + nth;
        int err = sse_parser_feed(&s, STR("data: a"));
        if (err == 0)
            err = sse_parser_feed(&s, STR("\ndata: b\n\n"));
        assert_int_equal(err, nth <= 2 ? TM_E_NOMEM : 0);
        assert_string_equal(seen.text, nth <= 2 ? "" : "message//a\nb;");
        sse_parser_deinit(&s);
    }
    fake.fail_at = 0;
    fake_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_events),           cmocka_unit_test(knows_all_line_ends),
        cmocka_unit_test(bounds_what_it_keeps),    cmocka_unit_test(stops_when_told),
        cmocka_unit_test(says_when_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
