// SPDX-License-Identifier: Apache-2.0
#include "unit/client/fake_http.h"

#include "base/num.h"

#define OFFSET "stream-next-offset: 0_5\n"

static struct tm_call *append(struct tm_client *c, struct tm_append_options *o)
{
    struct tm_call *call = NULL;
    o->data = "hello";
    o->n = 5;
    assert_int_equal(tm_append(c, "a", o, &call), 0);
    return call;
}

static void sends_what_it_is_told(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_create_options o = TM_CREATE_INIT;
    struct tm_call *call = NULL;
    (void)state;
    o.content_type = "text/plain";
    o.ttl_s = 60;
    o.closed = 1;
    o.data = "x";
    o.n = 1;
    assert_int_equal(tm_create(c, "chats/a b?%\xc3\xa9", &o, &call), 0);
    assert_int_equal(tm_call_header(call, "X-More", "1"), 0);
    struct http_request *r = fake_wait(c, 1);
    assert_str(r->method, "PUT");
    assert_str(r->path, "/v1/stream/chats/a%20b%3F%25%C3%A9");
    assert_str(r->body, "x");
    assert_string_equal(fake_header(r, "content-type"), "text/plain");
    assert_string_equal(fake_header(r, "stream-ttl"), "60");
    assert_string_equal(fake_header(r, "stream-closed"), "true");
    assert_string_equal(fake_header(r, "x-more"), "1");
    assert_int_equal(tm_call_header(call, "x", "late"), TM_E_INVALID);
    assert_int_equal(tm_call_done(call), 0);
    fake_answer(r, 201, OFFSET "content-type: text/plain\nstream-closed: true\n", "");
    assert_int_equal(tm_call_wait(call, 0), 0);
    const struct tm_result *result = tm_call_result(call);
    assert_int_equal(result->status, 201);
    assert_true(result->created && result->closed);
    assert_string_equal(result->next_offset, "0_5");
    assert_string_equal(result->end_reason, "");
    assert_int_equal(result->ttl_s, -1);
    tm_call_free(call);
    fake_close(c);
}

static void finds_streams_elsewhere(void **state)
{
    struct tm_options o = TM_OPTIONS_INIT;
    struct tm_client *c = NULL;
    struct tm_call *call = NULL;
    char path[] = "/streams/";
    (void)state;
    fake = (struct fake){.headers = ""};
    o.server = "http://127.0.0.1:1";
    o.stream_path = path;
    assert_int_equal(tm_open(&o, &c), 0);
    path[1] = 'X'; /* it was copied */
    assert_int_equal(tm_head(c, "a/b", &call), 0);
    assert_str(fake_wait(c, 1)->path, "/streams/a/b");
    tm_call_free(call);
    tm_close(c);
    o.stream_path = "streams";
    assert_int_equal(tm_open(&o, &c), TM_E_INVALID);
}

static void sends_a_plain_append_once(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_append_options o = TM_APPEND_INIT;
    (void)state;
    struct tm_call *call = append(c, &o);
    assert_false(fake_wait(c, 1)->resend);
    fake_answer(fake.requests[0], 503, "", "");
    assert_int_equal(tm_call_wait(call, 0), TM_E_BUSY);
    tm_call_free(call);
    call = append(c, &o);
    fake_lose(fake_wait(c, 1));
    assert_int_equal(tm_call_wait(call, 0), TM_E_NETWORK);
    assert_int_equal(tm_call_result(call)->status, 0);
    tm_call_free(call);
    assert_int_equal(fake.started, 2);
    fake_close(c);
}

static void repeat(struct tm_client *c, struct tm_append_options *o)
{
    struct tm_call *call = append(c, o);
    fake_lose(fake_wait(c, 1));
    fake_answer(fake_wait(c, 1), 429, "", "");
    struct http_request *r = fake_wait(c, 1);
    assert_true(r->resend);
    assert_str(r->body, "hello");
    fake_answer(r, 204, OFFSET, "");
    assert_int_equal(tm_call_wait(call, 0), 0);
    assert_int_equal(tm_call_result(call)->duplicate, o->producer_id != NULL);
    tm_call_free(call);
}

static void repeats_what_cannot_happen_twice(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_append_options numbered = TM_APPEND_INIT, matched = TM_APPEND_INIT,
                             any = TM_APPEND_INIT;
    (void)state;
    numbered.producer_id = "p";
    numbered.producer_seq = 3;
    matched.if_match = "0_5";
    any.at_least_once = 1;
    repeat(c, &numbered);
    repeat(c, &matched);
    repeat(c, &any);
    fake_close(c);
}

static void gives_up_after_a_few_times(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_call *call = NULL;
    (void)state;
    assert_int_equal(tm_head(c, "a", &call), 0);
    while (!tm_call_done(call))
        fake_answer(fake_wait(c, 1), 500, "", "oh no");
    assert_int_equal(tm_call_error(call), TM_E_REFUSED);
    assert_string_equal(tm_call_message(call), "oh no");
    assert_int_equal(fake.started, 6);
    tm_call_free(call);
    fake_close(c);
}

static void gives_up_when_it_is_told_to(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_call *call = NULL;
    (void)state;
    for (int retries = 0; retries < 3; retries++) {
        fake.started = 0;
        c->options.retries = retries;
        assert_int_equal(tm_head(c, "a", &call), 0);
        while (!tm_call_done(call))
            fake_lose(fake_wait(c, 1));
        assert_int_equal(tm_call_error(call), TM_E_NETWORK);
        assert_int_equal(fake.started, 1 + retries);
        tm_call_free(call);
    }
    fake_close(c);
}

static void waits_as_long_as_the_server_asks(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_call *call = NULL;
    (void)state;
    assert_int_equal(tm_head(c, "a", &call), 0);
    fake_answer(fake_wait(c, 1), 503, "retry-after: 3600\n", "");
    fake_quiet(c); /* without the header it would have come within 2 ms */
    assert_int_equal(tm_call_done(call), 0);
    tm_call_free(call);
    fake_close(c);
}

static const struct refusal {
    const char *method;
    int status;
    const char *headers, *body;
    int err;
} refusals[] = {
    {"PUT", 409, "", "", TM_E_EXISTS},
    {"POST", 409, "", "Sequence conflict", TM_E_CONFLICT},
    {"POST", 409, "stream-closed: true\n", "", TM_E_CLOSED},
    {"POST", 403, "producer-epoch: 4\n", "", TM_E_FENCED},
    {"POST", 403, "", "", TM_E_DENIED},
    {"POST", 401, "", "", TM_E_DENIED},
    {"POST", 413, "", "", TM_E_TOO_LARGE},
    {"POST", 412, "", "", TM_E_CONFLICT},
    {"POST", 400, "", "", TM_E_INVALID},
    {"POST", 302, "", "", TM_E_REFUSED},
    {"GET", 400, "", "", TM_E_OFFSET},
    {"GET", 404, "", "<html>", TM_E_NOT_FOUND},
    {"GET", 410, "", "", TM_E_NOT_FOUND},
    {"GET", 410, "", "{\"gap\":{\"requested\":\"a\",\"earliest\":\"b\",\"reason\":\"trimmed\"}}",
     TM_E_GAP},
    {"PUT", 404, "", "{\"error\":{\"code\":\"FORK_SOURCE\",\"message\":\"none\"}}", TM_E_NOT_FOUND},
    {"PUT", 409, "", "{\"error\":{\"code\":\"FORK_DELETED\",\"message\":\"m\"}}", TM_E_CONFLICT},
    {"POST", 400, "", "{\"error\":{\"code\":\"FORK_OFFSET\"}}", TM_E_OFFSET},
};

static struct tm_call *start(struct tm_client *c, const char *method)
{
    struct tm_call *call = NULL;
    struct tm_append_options o = TM_APPEND_INIT;
    if (strcmp(method, "POST") == 0)
        return append(c, &o);
    if (strcmp(method, "PUT") == 0)
        assert_int_equal(tm_create(c, "a", NULL, &call), 0);
    else
        assert_int_equal(tm_read(c, "a", "x", TM_LIVE_NO, &call), 0);
    return call;
}

static void names_refusals(void **state)
{
    struct tm_client *c = fake_client();
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        struct tm_call *call = start(c, r->method);
        fake_answer(fake_wait(c, 1), r->status, r->headers, r->body);
        if (tm_call_error(call) != r->err)
            fail_msg("%s %d %s: %d", r->method, r->status, r->body, tm_call_error(call));
        assert_int_equal(tm_call_wait(call, 0), r->err);
        assert_true(*tm_error(c) != '\0' && *tm_call_message(call) != '\0');
        if (r->err == TM_E_GAP) {
            assert_string_equal(tm_call_result(call)->gap_requested, "a");
            assert_string_equal(tm_call_result(call)->gap_earliest, "b");
            assert_string_equal(tm_call_result(call)->gap_reason, "trimmed");
        }
        tm_call_free(call);
    }
    fake_close(c);
}

static void remember(void *ctx, const char *text)
{
    snprintf(ctx, 256, "%s", text);
}

/* Whoever has many streams must know which one it was. What a query holds is nobody's business. */
static void says_which_stream_failed(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_call *call = NULL;
    char told[256] = "", name[400];
    (void)state;
    c->options.notice = remember;
    c->options.notice_ctx = told;
    assert_int_equal(tm_read(c, "chats/1", NULL, TM_LIVE_NO, &call), 0);
    fake_answer(fake_wait(c, 1), 503, "", "later");
    assert_ptr_equal(strstr(told, "/v1/stream/chats/1: later; trying again in "), told);
    fake_answer(fake_wait(c, 1), 404, "", "");
    assert_int_equal(tm_call_wait(call, 0), TM_E_NOT_FOUND);
    assert_string_equal(tm_error(c),
                        "/v1/stream/chats/1: there is no such stream (the server answered 404)");
    assert_string_equal(tm_call_message(call), "there is no such stream");
    tm_call_free(call);
    assert_int_equal(tm_delete(c, "b", &call), 0);
    c->options.notice = NULL;
    while (!tm_call_done(call))
        fake_lose(fake_wait(c, 1));
    assert_int_equal(tm_call_wait(call, 0), TM_E_NETWORK);
    assert_ptr_equal(strstr(tm_error(c), "/v1/stream/b: the server could not be"), tm_error(c));
    tm_call_free(call);
    /* However long the name is, what went wrong is there. */
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(tm_head(c, name, &call), 0);
    fake_answer(fake_wait(c, 1), 404, "", "");
    assert_int_equal(tm_call_wait(call, 0), TM_E_NOT_FOUND);
    assert_non_null(strstr(tm_error(c), "nnn: there is no such stream (the server answered 404)"));
    tm_call_free(call);
    fake_close(c);
}

static void takes_a_read_as_it_comes(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_call *call = NULL;
    (void)state;
    assert_int_equal(tm_read(c, "a", "0_1", TM_LIVE_LONG_POLL, &call), 0);
    struct http_request *r = fake_wait(c, 1);
    assert_str(r->path, "/v1/stream/a?offset=0_1&live=long-poll");
    assert_true(r->live);
    fake_head(r, 200, OFFSET "stream-cursor: 9\nstream-up-to-date: true\n");
    assert_int_equal(fake_data(r, "[1,"), 0);
    assert_int_equal(fake_data(r, "2]"), 0);
    fake_over(r, 0);
    assert_int_equal(tm_call_wait(call, 0), 0);
    assert_str(str_of(tm_call_result(call)->data, tm_call_result(call)->n), "[1,2]");
    assert_string_equal(tm_call_result(call)->cursor, "9");
    assert_true(tm_call_result(call)->up_to_date);
    tm_call_free(call);
    assert_int_equal(tm_read(c, "a", NULL, TM_LIVE_SSE, &call), TM_E_INVALID);
    fake_close(c);
}

static void takes_no_half_answer(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_call *call = NULL;
    (void)state;
    assert_int_equal(tm_read(c, "a", NULL, TM_LIVE_NO, &call), 0);
    struct http_request *r = fake_wait(c, 1);
    fake_head(r, 200, OFFSET);
    assert_int_equal(fake_data(r, "half"), 0);
    fake_lose(r);
    r = fake_wait(c, 1); /* once more, from nothing */
    fake_head(r, 200, OFFSET);
    r->framed = false;
    assert_int_equal(fake_data(r, "all"), 0);
    fake_over(r, 0);
    assert_int_equal(tm_call_wait(call, 0), TM_E_PROTOCOL);
    assert_int_equal(tm_call_result(call)->n, 0);
    tm_call_free(call);
    fake_close(c);
}

static void bounds_an_answer(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_call *call = NULL;
    char body[1002];
    (void)state;
    memset(body, 'x', sizeof body - 1);
    body[sizeof body - 1] = '\0';
    assert_int_equal(tm_get(c, "/v1/stream/?prefix=a", &call), 0);
    fake_answer(fake_wait(c, 1), 200, "", body);
    assert_int_equal(tm_call_wait(call, 0), TM_E_TOO_LARGE);
    tm_call_free(call);
    body[1000] = '\0';
    assert_int_equal(tm_get(c, "/v1/stream/?prefix=a", &call), 0);
    fake_answer(fake_wait(c, 1), 200, "", body);
    assert_int_equal(tm_call_wait(call, 0), 0);
    assert_int_equal(tm_call_result(call)->n, 1000);
    tm_call_free(call);
    fake_close(c);
}

/* What a server has besides streams: any answer is one, and nothing is sent twice. */
static void posts_to_a_path(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_post_options o = TM_POST_INIT;
    struct tm_call *call = NULL;
    (void)state;
    o.content_type = "application/json";
    o.data = "{}";
    o.n = 2;
    o.answer_timeout_ms = 12345;
    assert_int_equal(tm_post(c, "/atd/v1/run_tool", &o, &call), 0);
    struct http_request *r = fake_wait(c, 1);
    assert_true(str_eq(r->method, STR("POST")));
    assert_true(str_eq(r->path, STR("/atd/v1/run_tool")));
    assert_true(str_eq(r->body, STR("{}")));
    assert_int_equal(r->silence_ms, 12345);
    fake_answer(r, 410, "", "{\"code\":1020}");
    assert_int_equal(tm_call_wait(call, 0), 0);
    assert_int_equal(tm_call_result(call)->status, 410);
    assert_int_equal(tm_call_result(call)->n, 13);
    assert_memory_equal(tm_call_result(call)->data, "{\"code\":1020}", 13);
    tm_call_free(call);
    assert_int_equal(tm_post(c, "/x", NULL, &call), 0);
    fake_lose(fake_wait(c, 1));
    assert_int_equal(tm_call_wait(call, 0), TM_E_NETWORK);
    assert_int_equal(tm_call_result(call)->status, 0);
    tm_call_free(call);
    assert_int_equal(tm_post(c, "/x", NULL, &call), 0);
    fake_answer(fake_wait(c, 1), 503, "", "later");
    assert_int_equal(tm_call_wait(call, 0), 0);
    assert_int_equal(tm_call_result(call)->status, 503);
    tm_call_free(call);
    call = NULL;
    o.answer_timeout_ms = -1;
    assert_int_equal(tm_post(c, "/x", &o, &call), TM_E_INVALID);
    assert_int_equal(tm_post(c, "x", NULL, &call), TM_E_INVALID);
    assert_null(call);
    fake_close(c);
}

static void a_delete_that_was_done_is_done(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_call *call = NULL;
    (void)state;
    assert_int_equal(tm_delete(c, "a", &call), 0);
    fake_lose(fake_wait(c, 1));
    fake_answer(fake_wait(c, 1), 404, "", "");
    assert_int_equal(tm_call_wait(call, 0), 0);
    tm_call_free(call);
    assert_int_equal(tm_delete(c, "a", &call), 0);
    fake_answer(fake_wait(c, 1), 404, "", "");
    assert_int_equal(tm_call_wait(call, 0), TM_E_NOT_FOUND);
    tm_call_free(call);
    fake_close(c);
}

static void refuses_what_cannot_be_sent(void **state)
{
    struct tm_client *c = fake_client();
    struct tm_append_options o = TM_APPEND_INIT;
    struct tm_create_options p = TM_CREATE_INIT;
    struct tm_call *call = NULL;
    (void)state;
    assert_int_equal(tm_head(c, "", &call), TM_E_INVALID);
    assert_int_equal(tm_append(c, "a", &o, &call), TM_E_INVALID);
    o.data = "x";
    o.n = 1;
    o.seq = "a\nb";
    assert_int_equal(tm_append(c, "a", &o, &call), TM_E_INVALID);
    o.seq = NULL;
    o.producer_id = "p";
    o.producer_seq = NUM_SAFE_MAX + 1;
    assert_int_equal(tm_append(c, "a", &o, &call), TM_E_INVALID);
    p.ttl_s = -1;
    assert_int_equal(tm_create(c, "a", &p, &call), TM_E_INVALID);
    assert_int_equal(tm_get(c, "nothing", &call), TM_E_INVALID);
    assert_null(call);
    assert_int_equal(tm_head(c, "a", &call), 0);
    assert_int_equal(tm_call_header(call, "a b", "c"), TM_E_INVALID);
    assert_int_equal(tm_call_header(call, "a", "c\r\nd: e"), TM_E_INVALID);
    assert_int_equal(tm_call_header(call, "Host", "elsewhere"), TM_E_INVALID);
    assert_int_equal(tm_call_header(call, "Transfer-Encoding", "chunked"), TM_E_INVALID);
    assert_int_equal(tm_call_header(call, "content-length", "0"), TM_E_INVALID);
    tm_call_free(call);
    fake_close(c);
}

/* A call of all there is, while the nth allocation fails: an error or a success, never a leak. */
static int try_without(struct tm_client *c, unsigned nth)
{
    struct tm_append_options o = TM_APPEND_INIT;
    struct tm_call *call = NULL;
    fake.fail_at = fake.allocations + nth;
    o.data = "hello";
    o.n = 5;
    o.seq = "1";
    o.producer_id = "p";
    int err = tm_append(c, "a", &o, &call);
    if (err == 0) {
        err = tm_call_header(call, "x-more", "1");
        for (int i = 0; i < 5 && fake.n == 0 && !tm_call_done(call); i++)
            tm_wait(c, 5);
        if (fake.n > 0)
            fake_answer(fake.requests[0], 200, OFFSET, "body");
        if (err == 0)
            err = tm_call_wait(call, 0);
        tm_call_free(call);
    }
    fake.fail_at = 0;
    return err;
}

static void survives_the_lack_of_memory(void **state)
{
    struct tm_client *c = fake_client();
    unsigned failed = 0;
    (void)state;
    while (try_without(c, failed + 1) == TM_E_NOMEM)
        failed++;
    assert_true(failed > 5);
    assert_int_equal(try_without(c, failed + 1), 0);
    fake_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_what_it_is_told),
        cmocka_unit_test(finds_streams_elsewhere),
        cmocka_unit_test(sends_a_plain_append_once),
        cmocka_unit_test(repeats_what_cannot_happen_twice),
        cmocka_unit_test(gives_up_after_a_few_times),
        cmocka_unit_test(gives_up_when_it_is_told_to),
        cmocka_unit_test(waits_as_long_as_the_server_asks),
        cmocka_unit_test(names_refusals),
        cmocka_unit_test(says_which_stream_failed),
        cmocka_unit_test(takes_a_read_as_it_comes),
        cmocka_unit_test(takes_no_half_answer),
        cmocka_unit_test(bounds_an_answer),
        cmocka_unit_test(posts_to_a_path),
        cmocka_unit_test(a_delete_that_was_done_is_done),
        cmocka_unit_test(refuses_what_cannot_be_sent),
        cmocka_unit_test(survives_the_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
