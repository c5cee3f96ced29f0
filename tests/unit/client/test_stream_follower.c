// SPDX-License-Identifier: Apache-2.0
#include "unit/client/fake_http.h"

#define JSON            "content-type: application/json\n"
#define BYTES           "content-type: application/octet-stream\n"
#define TEXT            "content-type: text/plain\n"
#define TAIL            "stream-up-to-date: true\n"
#define SSE             "content-type: text/event-stream\n"
#define SSE64           SSE "stream-sse-data-encoding: base64\n"
#define AT(o)           "stream-next-offset: " o "\n"

#define DATA(d)         "event: data\ndata:" d "\n\n"
#define CONTROL(o, ...) "event: control\ndata:{\"streamNextOffset\":\"" o "\"" __VA_ARGS__ "}\n\n"
#define UP_TO_DATE      ",\"upToDate\":true"

static struct tm_follower *follower(struct tm_client *c, const struct tm_follow_options *o)
{
    struct tm_follower *f = NULL;
    assert_int_equal(tm_follower_new(c, "a", o, &f), 0);
    return f;
}

/* The next batch is this one. */
static struct tm_batch expect(struct tm_follower *f, const char *data, const char *offset)
{
    struct tm_batch b;
    assert_int_equal(tm_follower_next(f, &b), 1);
    assert_str(str_of(b.data, b.n), data);
    assert_string_equal(b.next_offset, offset);
    return b;
}

static void expect_none(struct tm_follower *f, int answer)
{
    struct tm_batch b;
    assert_int_equal(tm_follower_next(f, &b), answer);
}

static struct http_request *asked(struct tm_client *c, const char *query)
{
    char path[256];
    snprintf(path, sizeof path, "/v1/stream/a?%s", query);
    struct http_request *r = fake_wait(c, 1);
    assert_str(r->path, path);
    return r;
}

static void live(struct http_request *r, const char *headers, const char *events)
{
    fake_head(r, 200, headers);
    fake_data(r, events);
}

static void catches_up_and_follows(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_follower *f = follower(c, NULL);
    (void)state;
    fake_answer(asked(c, "offset=-1"), 200, JSON AT("0_2"), "[1,2]");
    fake_quiet(c); /* nothing more before that was taken */
    assert_false(expect(f, "[1,2]", "0_2").up_to_date);
    expect_none(f, 0);
    fake_answer(asked(c, "offset=0_2"), 200, JSON TAIL AT("0_3"), "[3]");
    struct tm_batch b = expect(f, "[3]", "0_3");
    assert_true(b.up_to_date && !b.closed && !b.gap);
    assert_string_equal(b.content_type, "application/json");
    expect_none(f, 0);
    struct http_request *r = asked(c, "offset=0_3&live=sse");
    assert_true(r->live);
    live(r, SSE, CONTROL("0_3", ",\"streamCursor\":\"9\"" UP_TO_DATE));
    expect_none(f, 0); /* that was known */
    fake_data(r, DATA("[4]") CONTROL("0_4", ",\"streamCursor\":\"10\"" UP_TO_DATE));
    expect(f, "[4]", "0_4");
    fake_data(r, DATA("[5]") CONTROL("0_5", ",\"streamClosed\":true,\"endReason\":\"completed\""));
    b = expect(f, "[5]", "0_5");
    assert_true(b.closed && b.up_to_date);
    assert_string_equal(b.end_reason, "completed");
    assert_int_equal(fake.n, 0);
    expect_none(f, TM_E_CLOSED);
    expect_none(f, TM_E_CLOSED);
    fake_quiet(c);
    tm_follower_free(f);
    fake_close(c);
}

/* Up to the tail of a JSON stream, with the live request under way. */
static struct http_request *go_live(struct tm_client *c, struct tm_follower *f, const char *type)
{
    char headers[256];
    snprintf(headers, sizeof headers, "%s" TAIL AT("0_1"), type);
    fake_answer(asked(c, "offset=-1"), 200, headers, "");
    expect(f, "", "0_1");
    expect_none(f, 0);
    return fake_wait(c, 1);
}

static void hands_nothing_out_twice(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_follower *f = follower(c, NULL);
    (void)state;
    struct http_request *r = go_live(c, f, JSON);
    live(r, SSE, DATA("[2]") CONTROL("0_2", ",\"streamCursor\":\"7\"") DATA("[3]"));
    expect(f, "[2]", "0_2");
    expect_none(f, 0); /* its position has not come */
    fake_lose(r);
    r = asked(c, "offset=0_2&live=sse&cursor=7");
    live(r, SSE, DATA("[3]") CONTROL("0_3"));
    expect(f, "[3]", "0_3");
    fake_over(r, 0); /* the server ends it now and then */
    expect_none(f, 0);
    asked(c, "offset=0_3&live=sse&cursor=7");
    tm_follower_free(f);
    fake_close(c);
}

static void joins_what_comes_before_one_position(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_follower *f = follower(c, NULL);
    (void)state;
    struct http_request *r = go_live(c, f, JSON);
    live(r, SSE, DATA("[2 ] ") DATA(" [ 3]") DATA("[]") CONTROL("0_3"));
    expect(f, "[2 , 3]", "0_3");
    tm_follower_free(f);
    f = follower(c, NULL);
    r = go_live(c, f, BYTES);
    live(r, SSE64, DATA("AAE=") DATA("Ag\ndata:==") CONTROL("0_3"));
    struct tm_batch b;
    assert_int_equal(tm_follower_next(f, &b), 1);
    assert_int_equal(b.n, 3);
    assert_memory_equal(b.data, "\0\1\2", 3);
    tm_follower_free(f);
    fake_close(c);
}

static void polls_for_text(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_follower *f = follower(c, NULL);
    (void)state;
    assert_str(go_live(c, f, TEXT)->path, "/v1/stream/a?offset=0_1&live=long-poll");
    fake_answer(fake.requests[0], 200, TEXT TAIL AT("0_4") "stream-cursor: 5\n", "a\r\nb");
    expect(f, "a\r\nb", "0_4");
    expect_none(f, 0);
    fake_answer(asked(c, "offset=0_4&live=long-poll&cursor=5"), 204, TAIL AT("0_4"), "");
    expect_none(f, 0);
    fake_answer(asked(c, "offset=0_4&live=long-poll&cursor=5"), 204,
                TAIL AT("0_4") "stream-closed: true\nstream-end-reason: failed\n", "");
    struct tm_batch b = expect(f, "", "0_4");
    assert_true(b.closed);
    assert_string_equal(b.end_reason, "failed");
    expect_none(f, TM_E_CLOSED);
    tm_follower_free(f);
    fake_close(c);
}

static void polls_where_sse_does_not_work(void **state)
{
    struct tm_client *c = fake_client();
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct tm_follower *f = follower(c, NULL);
        struct http_request *r = go_live(c, f, BYTES);
        if (how == 0)
            fake_answer(r, 400, "", "no SSE for this one");
        else if (how == 1)
            live(r, SSE, DATA("bare bytes"));
        else
            fake_answer(r, 200, BYTES, "what is this?");
        asked(c, "offset=0_1&live=long-poll");
        tm_follower_free(f);
    }
    fake_close(c);
}

static void uses_sse_when_told_to(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_follow_options o = TM_FOLLOW_INIT;
    (void)state;
    o.live = TM_LIVE_SSE;
    o.offset = "now";
    struct tm_follower *f = follower(c, &o);
    struct http_request *r = asked(c, "offset=now&live=sse");
    live(r, SSE, "event: new-kind\ndata: x\n\n" DATA("text") CONTROL("0_4", UP_TO_DATE));
    expect(f, "text", "0_4");
    /* Two before one position: only a plain answer tells how they are joined. */
    fake_data(r, DATA("[1]") DATA("[2]"));
    expect_none(f, 0);
    fake_answer(asked(c, "offset=0_4"), 200, JSON TAIL AT("0_6"), "[1,2]");
    expect(f, "[1,2]", "0_6");
    expect_none(f, 0);
    r = asked(c, "offset=0_6&live=sse");
    live(r, SSE, "event: control\ndata: {broken\n\n");
    expect_none(f, TM_E_PROTOCOL);
    expect_none(f, TM_E_PROTOCOL);
    tm_follower_free(f);
    fake_close(c);
}

static void gives_values_one_by_one(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_follow_options o = TM_FOLLOW_INIT;
    (void)state;
    o.json_values = 1;
    o.live = TM_LIVE_NO;
    struct tm_follower *f = follower(c, &o);
    fake_answer(asked(c, "offset=-1"), 200, JSON AT("0_2"), "[ 1 , {\"a\":[2]} ]");
    expect(f, "1", "-1"); /* one that starts here anew gets it again */
    expect(f, "{\"a\":[2]}", "0_2");
    expect_none(f, 0);
    fake_answer(asked(c, "offset=0_2"), 200, JSON TAIL AT("0_3"), "[3]");
    assert_true(expect(f, "3", "0_3").up_to_date);
    expect_none(f, TM_E_CLOSED); /* that is the end for now */
    tm_follower_free(f);
    fake_close(c);
}

#define GAP "{\"gap\":{\"requested\":\"0_1\",\"earliest\":\"0_7\",\"reason\":\"trimmed\"}}"

static void stops_at_a_gap(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_follower *f = follower(c, NULL);
    (void)state;
    fake_answer(asked(c, "offset=-1"), 410, "", GAP);
    expect_none(f, TM_E_GAP);
    assert_non_null(strstr(tm_error(c), "0_7"));
    assert_ptr_equal(strstr(tm_error(c), "/v1/stream/a: "), tm_error(c));
    fake_quiet(c);
    tm_follower_free(f);
    fake_close(c);
}

static void goes_on_behind_a_gap(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_follow_options o = TM_FOLLOW_INIT;
    (void)state;
    o.skip_gap = 1;
    struct tm_follower *f = follower(c, &o);
    struct http_request *r = go_live(c, f, JSON);
    live(r, SSE, "event: gap\ndata: " GAP "\n\n");
    assert_int_equal(fake.n, 0);
    fake_answer(asked(c, "offset=0_7"), 200, JSON TAIL AT("0_8"), "[8]");
    assert_true(expect(f, "[8]", "0_8").gap);
    expect_none(f, 0);
    r = asked(c, "offset=0_8&live=sse");
    live(r, SSE, DATA("[9]") CONTROL("0_9"));
    assert_false(expect(f, "[9]", "0_9").gap);
    expect_none(f, 0);
    fake_lose(r);
    fake_answer(asked(c, "offset=0_9&live=sse"), 410, "", GAP);
    fake_answer(asked(c, "offset=0_7"), 410, "", GAP); /* that would go on for ever */
    expect_none(f, TM_E_GAP);
    tm_follower_free(f);
    fake_close(c);
}

static void tells_final_failures_from_others(void **state)
{
    static const struct {
        int status, err;
    } final[] = {
        {404, TM_E_NOT_FOUND}, {400, TM_E_OFFSET}, {403, TM_E_DENIED}, {301, TM_E_REFUSED}};
    struct tm_client *c = fake_client();
    (void)state;
    for (size_t i = 0; i < sizeof final / sizeof *final; i++) {
        struct tm_follower *f = follower(c, NULL);
        fake_lose(asked(c, "offset=-1"));
        fake_answer(asked(c, "offset=-1"), 503, "", "");
        fake_answer(asked(c, "offset=-1"), 429, "", "");
        fake_over(asked(c, "offset=-1"), TM_E_TIMEOUT);
        expect_none(f, 0);
        fake_answer(asked(c, "offset=-1"), final[i].status, "", "");
        expect_none(f, final[i].err);
        fake_quiet(c);
        tm_follower_free(f);
    }
    fake_close(c);
}

static void takes_no_half_answer(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_follow_options o = TM_FOLLOW_INIT;
    (void)state;
    struct tm_follower *f = follower(c, &o);
    struct http_request *r = asked(c, "offset=-1");
    fake_head(r, 200, BYTES AT("0_9"));
    fake_data(r, "half");
    fake_lose(r);
    expect_none(f, 0);
    r = asked(c, "offset=-1");
    fake_head(r, 200, BYTES AT("0_9"));
    r->framed = false;
    fake_data(r, "maybe all");
    fake_over(r, 0);
    expect_none(f, TM_E_PROTOCOL);
    tm_follower_free(f);
    f = follower(c, &o);
    fake_answer(asked(c, "offset=-1"), 200, JSON AT("0_9"), "[1,2");
    expect_none(f, TM_E_PROTOCOL);
    tm_follower_free(f);
    f = follower(c, &o);
    fake_answer(asked(c, "offset=-1"), 200, BYTES, "no offset");
    expect_none(f, TM_E_PROTOCOL);
    tm_follower_free(f);
    f = follower(c, &o);
    fake_answer(asked(c, "offset=-1"), 200, BYTES AT("0_1"), "a");
    expect(f, "a", "0_1");
    expect_none(f, 0);
    fake_answer(asked(c, "offset=0_1"), 200, BYTES AT("0_1"), "the same for ever");
    expect_none(f, TM_E_PROTOCOL);
    tm_follower_free(f);
    fake_close(c);
}

static void bounds_what_it_holds(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_follower *f = follower(c, NULL);
    char big[1002], event[800];
    (void)state;
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    fake_answer(asked(c, "offset=-1"), 200, BYTES AT("0_9"), big);
    expect_none(f, TM_E_TOO_LARGE);
    tm_follower_free(f);

    /* A reader who does not read: the live answer is left, and asked for again behind it. */
    f = follower(c, NULL);
    struct http_request *r = go_live(c, f, JSON);
    live(r, SSE, "");
    snprintf(event, sizeof event, DATA("[\"%.600s\"]") CONTROL("0_2"), big);
    fake_data(r, event);
    assert_int_equal(fake.n, 1);
    snprintf(event, sizeof event, DATA("[\"%.600s\"]") CONTROL("0_3"), big);
    assert_int_equal(fake_data(r, event), TM_E_CANCELLED);
    fake_quiet(c);
    struct tm_batch b;
    assert_int_equal(tm_follower_next(f, &b), 1);
    assert_string_equal(b.next_offset, "0_2");
    fake_quiet(c);
    assert_int_equal(tm_follower_next(f, &b), 1);
    assert_string_equal(b.next_offset, "0_3");
    expect_none(f, 0);
    asked(c, "offset=0_3&live=sse");
    tm_follower_free(f);
    fake_close(c);
}

/* Positions take memory, too, when nobody takes them. */
static void bounds_positions_that_nobody_takes(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_follow_options o = TM_FOLLOW_INIT;
    char event[128];
    int i = 0;
    (void)state;
    o.live = TM_LIVE_SSE;
    struct tm_follower *f = follower(c, &o);
    struct http_request *r = asked(c, "offset=-1&live=sse");
    fake_head(r, 200, SSE);
    do {
        assert_true(++i < 100);
        snprintf(event, sizeof event, CONTROL("0_%d"), i);
    } while (fake_data(r, event) == 0);
    for (int k = 1; k <= i; k++) {
        snprintf(event, sizeof event, "0_%d", k);
        expect(f, "", event);
    }
    expect_none(f, 0);
    snprintf(event, sizeof event, "offset=0_%d&live=sse", i);
    asked(c, event); /* and on from there */
    tm_follower_free(f);
    fake_close(c);
}

/* "now" is made a position first: what comes while a connection breaks is not lost. */
static void says_when_a_poll_brought_nothing(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_follow_options o = TM_FOLLOW_INIT;
    (void)state;
    o.live = TM_LIVE_LONG_POLL;
    o.offset = "now";
    struct tm_follower *f = follower(c, &o);
    assert_int_equal(tm_follower_status(f), 0);
    fake_answer(asked(c, "offset=now"), 200, TEXT TAIL AT("0_3"), "");
    assert_int_equal(tm_follower_status(f), 200);
    assert_true(expect(f, "", "0_3").up_to_date);
    expect_none(f, 0);
    fake_answer(asked(c, "offset=0_3&live=long-poll"), 204, TAIL AT("0_3"), "");
    expect_none(f, 0);
    assert_int_equal(tm_follower_status(f), 204);
    fake_lose(asked(c, "offset=0_3&live=long-poll"));
    assert_int_equal(tm_follower_status(f), 204);
    fake_answer(asked(c, "offset=0_3&live=long-poll"), 200, TEXT TAIL AT("0_4"), "x");
    expect(f, "x", "0_4");
    assert_int_equal(tm_follower_status(f), 200);
    tm_follower_free(f);
    fake_close(c);
}

static void gives_up_when_it_is_told_to(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_follow_options o = TM_FOLLOW_INIT;
    struct tm_batch b;
    int got;
    (void)state;
    o.retry_for_ms = 50;
    struct tm_follower *f = follower(c, &o);
    while ((got = tm_follower_wait(f, &b, 0)) == 0)
        if (fake.n > 0)
            fake_lose(fake.requests[0]);
        else
            tm_wait(c, 5);
    assert_int_equal(got, TM_E_NETWORK);
    assert_non_null(strstr(tm_error(c), "gave up"));
    tm_follower_free(f);
    fake_close(c);
}

/* A whole life of a follower; whichever allocation fails, all comes, once and in order. */
static bool try_without(struct tm_client *c, unsigned nth)
{
    struct tm_follower *f = NULL;
    struct tm_batch b;
    char got[64] = "";
    int err = 0;
    fake.fail_at = fake.allocations + nth;
    if (tm_follower_new(c, "a", NULL, &f) == TM_E_NOMEM)
        return true;
    while (err != TM_E_CLOSED) {
        err = tm_follower_wait(f, &b, 0);
        if (err == 1)
            strncat(got, b.data, b.n);
        assert_true(err == 0 || err == 1 || err == TM_E_NOMEM || err == TM_E_CLOSED);
        struct http_request *r = fake.n ? fake.requests[0] : NULL;
        if (r && !r->live)
            fake_answer(r, 200, JSON TAIL AT("0_1"), "[1]");
        else if (r)
            live(r, SSE, DATA("[2]") DATA("[3]") CONTROL("0_3", ",\"streamClosed\":true"));
    }
    assert_string_equal(got, "[1][2,3]");
    bool failed = fake.allocations >= fake.fail_at;
    fake.fail_at = 0;
    tm_follower_free(f);
    return failed;
}

static void survives_the_lack_of_memory(void **state)
{
    struct tm_client *c = fake_client();
    unsigned nth = 1;
    (void)state;
    while (try_without(c, nth))
        nth++;
    assert_true(nth > 10);
    fake_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(catches_up_and_follows),
        cmocka_unit_test(hands_nothing_out_twice),
        cmocka_unit_test(joins_what_comes_before_one_position),
        cmocka_unit_test(polls_for_text),
        cmocka_unit_test(polls_where_sse_does_not_work),
        cmocka_unit_test(uses_sse_when_told_to),
        cmocka_unit_test(gives_values_one_by_one),
        cmocka_unit_test(stops_at_a_gap),
        cmocka_unit_test(goes_on_behind_a_gap),
        cmocka_unit_test(tells_final_failures_from_others),
        cmocka_unit_test(takes_no_half_answer),
        cmocka_unit_test(bounds_what_it_holds),
        cmocka_unit_test(bounds_positions_that_nobody_takes),
        cmocka_unit_test(says_when_a_poll_brought_nothing),
        cmocka_unit_test(gives_up_when_it_is_told_to),
        cmocka_unit_test(survives_the_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
