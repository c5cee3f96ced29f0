// SPDX-License-Identifier: Apache-2.0
/* Calls to a server of our own in the same loop: what it answers is written by hand, since no
 * library for servers gives a wrong answer. */
#include "base/err.h"
#include "http/exchange.h"
#include "http/http.h"
#include "unit/http/mount.h"
#include "http/rpc_client.h"
#include "net/listener.h"
#include "net/loop.h"
#include "telemetry/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define MAX_ANSWER 1000

struct world {
    struct loop loop;
    struct http http;
    struct trace trace;
    struct listener *listener;
    struct fetcher *fetcher;
    char target[64];

    /* what the server says */
    int http_status;
    const char *content_type;
    struct str body;
    const char *head[2], *trailers[2]; /* grpc-status, grpc-message; NULL: not sent */
    bool silent, breaks;

    /* what it was asked */
    int requests;
    char path[128], seen_type[64], te[32], csrf[64];
    char asked[256];
    size_t n_asked;

    /* what the client was told */
    struct rpc_client_call call;
    int dones, err, code;
    bool told, again;
    char answer[MAX_ANSWER + 1], message[RPC_CLIENT_MESSAGE_MAX + 1];
    size_t n_answer;
};

/* ---- the server ---- */

static void put_fields(struct exchange *x, const char *const fields[2],
                       void (*put)(struct exchange *x, struct str name, struct str value))
{
    if (fields[0] != NULL)
        put(x, STR("grpc-status"), str_of_cstr(fields[0]));
    if (fields[1] != NULL)
        put(x, STR("grpc-message"), str_of_cstr(fields[1]));
}

static enum pull pull(struct exchange *x)
{
    struct world *w = x->state;
    if (w->body.n > 0)
        exchange_put(x, slice_static(w->body));
    if (w->breaks) {
        exchange_abort(x);
        return PULL_WAIT;
    }
    put_fields(x, w->trailers, exchange_trailer);
    return PULL_END;
}
static const struct exchange_ops answer_ops = {.pull = pull};

static void note(char *to, size_t size, struct str value)
{
    assert_true(value.n < size);
    if (value.n > 0)
        memcpy(to, value.p, value.n);
    to[value.n] = '\0';
}

static void on_asked(struct exchange *x, struct str body, int err)
{
    struct world *w = x->state;
    const struct request *r = x->request;
    assert_int_equal(err, 0);
    w->requests++;
    note(w->path, sizeof w->path, r->path);
    note(w->seen_type, sizeof w->seen_type, request_header(r, STR("content-type")));
    note(w->te, sizeof w->te, request_header(r, STR("te")));
    note(w->csrf, sizeof w->csrf, request_header(r, STR("x-codeium-csrf-token")));
    note(w->asked, sizeof w->asked, body);
    w->n_asked = body.n;
    assert_int_equal(r->version, 20);
    if (w->silent)
        return;
    exchange_status(x, w->http_status);
    exchange_header(x, STR("Content-Type"), str_of_cstr(w->content_type));
    put_fields(x, w->head, exchange_header);
    x->ops = &answer_ops;
    exchange_stream(x);
}

static void serve(void *ctx, struct exchange *x)
{
    x->state = ctx;
    exchange_collect(x, 4096, on_asked);
}

static void on_accepted(void *ctx, int fd)
{
    struct world *w = ctx;
    http_accept(&w->http, fd, NULL);
}

static void on_accept_failed(void *ctx, int error)
{
    fail_msg("accept: %s", strerror(error));
}

static int set_up(void **state)
{
    static const struct listener_ops ops = {.accepted = on_accepted, .failed = on_accept_failed};
    struct world *w = calloc(1, sizeof *w);
    char why[128];
    *state = w;
    w->trace.level = TRACE_ERROR;
    assert_int_equal(loop_init(&w->loop), 0);
    http_init(&w->http, &w->loop, &w->trace,
              &(struct http_limits){.connections = 10,
                                    .inflight_bytes = 1 << 20,
                                    .head_timeout_ms = 10000,
                                    .idle_timeout_ms = 10000,
                                    .body_timeout_ms = 10000,
                                    .write_timeout_ms = 10000});
    mount_for_test(&w->http, "/", serve, w);
    w->listener = listener_new(&w->loop, STR("127.0.0.1:0"), &ops, w, why, sizeof why);
    assert_non_null(w->listener);
    struct str address = listener_address(w->listener);
    snprintf(w->target, sizeof w->target, "http://%.*s", (int)address.n, address.p);
    w->fetcher = fetcher_new(&w->loop);
    w->http_status = 200;
    w->content_type = "application/grpc";
    w->body = STR("\0\0\0\0\2ok");
    w->trailers[0] = "0";
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    rpc_client_cancel(&w->call);
    fetcher_free(w->fetcher);
    listener_close(w->listener);
    http_close_all(&w->http);
    loop_run(&w->loop);
    http_deinit(&w->http);
    loop_deinit(&w->loop);
    free(w);
    return 0;
}

/* ---- the client ---- */

static void on_done(struct rpc_client_call *c, int err)
{
    struct world *w = container_of(c, struct world, call);
    w->dones++;
    w->err = err;
    w->code = c->code;
    w->told = c->told;
    note(w->answer, sizeof w->answer, c->answer);
    note(w->message, sizeof w->message, c->message);
    w->n_answer = c->answer.n;
    if (w->again) {
        w->again = false;
        rpc_client_start(w->fetcher, c);
    }
}

static void prepare(struct world *w, struct str request)
{
    static const struct header csrf[] = {
        {STR_INIT("x-codeium-csrf-token"), STR_INIT("0f0f-1")},
    };
    w->call = (struct rpc_client_call){.target = str_of_cstr(w->target),
                                       .method = STR("/a.b.Service/Ask"),
                                       .request = request,
                                       .headers = csrf,
                                       .n_headers = 1,
                                       .policy = {.allow_loopback = true},
                                       .timeout_ms = 20000,
                                       .max_answer = MAX_ANSWER,
                                       .done = on_done};
}

static void run_until(struct world *w, const int *counter, int n)
{
    while (*counter < n)
        uv_run(&w->loop.uv, UV_RUN_ONCE);
}

static void ask(struct world *w)
{
    w->dones = 0;
    prepare(w, STR("hello"));
    rpc_client_start(w->fetcher, &w->call);
    run_until(w, &w->dones, 1);
}

static void assert_failed(struct world *w, int err, int code, bool told, const char *message)
{
    assert_int_equal(w->err, err);
    assert_int_equal(w->code, code);
    assert_int_equal(w->told, told);
    assert_string_equal(w->message, message);
    assert_int_equal(w->n_answer, 0);
}

/* ---- tests ---- */

static void test_one_message_each_way(void **state)
{
    struct world *w = *state;
    ask(w);
    assert_int_equal(w->err, 0);
    assert_int_equal(w->code, 0);
    assert_string_equal(w->answer, "ok");
    assert_string_equal(w->path, "/a.b.Service/Ask");
    assert_string_equal(w->seen_type, "application/grpc");
    assert_string_equal(w->te, "trailers");
    assert_string_equal(w->csrf, "0f0f-1");
    assert_int_equal(w->n_asked, 10);
    assert_memory_equal(w->asked, "\0\0\0\0\5hello", 10);
}

static void test_an_empty_message_is_one(void **state)
{
    struct world *w = *state;
    w->body = STR("\0\0\0\0\0");
    ask(w);
    assert_int_equal(w->err, 0);
    assert_int_equal(w->n_answer, 0);
}

static void test_started_again_when_done(void **state)
{
    struct world *w = *state;
    prepare(w, STR("hello"));
    w->again = true;
    rpc_client_start(w->fetcher, &w->call);
    run_until(w, &w->dones, 2);
    assert_int_equal(w->err, 0);
    assert_string_equal(w->answer, "ok");
    assert_int_equal(w->requests, 2);
}

static void test_errors_behind_a_body(void **state)
{
    struct world *w = *state;
    w->trailers[0] = "9";
    w->trailers[1] = "failed_precondition: 50%25 of it%0A\xc3\xa9";
    ask(w);
    assert_failed(w, ERR_UPSTREAM, GRPC_FAILED_PRECONDITION, true,
                  "failed_precondition: 50% of it\n\xc3\xa9");
}

/* Wherever the limit is in an escape, what stands before it is decoded. */
static void test_a_long_message_is_cut(void **state)
{
    struct world *w = *state;
    char told[RPC_CLIENT_MESSAGE_MAX + 10], said[RPC_CLIENT_MESSAGE_MAX + 1], xs[1024];
    memset(xs, 'x', sizeof xs);
    w->trailers[0] = "13";
    w->trailers[1] = told;
    for (int left = 1; left <= 3; left++) {
        int n = RPC_CLIENT_MESSAGE_MAX - 3 - left;
        snprintf(told, sizeof told, "%%41%.*s%%42yyy", n, xs);
        snprintf(said, sizeof said, "A%.*s%s", n, xs, left == 3 ? "B" : "");
        ask(w);
        assert_failed(w, ERR_UPSTREAM, GRPC_INTERNAL, true, said);
    }
}

static void test_errors_instead_of_a_body(void **state)
{
    struct world *w = *state;
    w->body = STR_NONE;
    w->trailers[0] = NULL;
    w->head[0] = "12";
    w->head[1] = "deprecated%20:)";
    ask(w);
    assert_failed(w, ERR_UPSTREAM, GRPC_UNIMPLEMENTED, true, "deprecated :)");
}

static void test_odd_statuses(void **state)
{
    struct world *w = *state;
    w->trailers[0] = "99";
    w->trailers[1] = "100%";
    ask(w);
    assert_failed(w, ERR_UPSTREAM, GRPC_UNKNOWN, true, "100%");
    w->trailers[0] = "-1";
    ask(w);
    assert_failed(w, ERR_UPSTREAM, GRPC_UNKNOWN, false, "the answer's grpc-status is no number");
    w->trailers[0] = w->trailers[1] = NULL; /* the message alone is enough */
    ask(w);
    assert_int_equal(w->err, 0);
    assert_string_equal(w->answer, "ok");
}

static void test_what_is_no_single_message(void **state)
{
    static const struct str bodies[] = {
        STR_INIT(""),
        STR_INIT("\0\0\0\0"),
        STR_INIT("\0\0\0\0\3ok"),
        STR_INIT("\0\0\0\0\2okmore"),
        STR_INIT("\1\0\0\0\2ok"),
    };
    struct world *w = *state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        w->body = bodies[i];
        ask(w);
        assert_failed(w, ERR_UPSTREAM, GRPC_INTERNAL, false, "the answer is not one message");
    }
}

static void test_an_answer_that_is_too_large(void **state)
{
    static char large[5 + MAX_ANSWER + 1] = {0, 0, 0, (MAX_ANSWER + 1) >> 8,
                                             (MAX_ANSWER + 1) & 0xff};
    struct world *w = *state;
    w->body = str_of(large, sizeof large);
    ask(w);
    assert_int_equal(w->err, ERR_TOO_LARGE);
    assert_int_equal(w->code, GRPC_RESOURCE_EXHAUSTED);
    large[3] = MAX_ANSWER >> 8;
    large[4] = (char)(MAX_ANSWER & 0xff);
    w->body.n--;
    ask(w);
    assert_int_equal(w->err, 0);
    assert_int_equal(w->n_answer, MAX_ANSWER);
}

static void test_what_is_not_grpc(void **state)
{
    struct world *w = *state;
    w->trailers[0] = NULL;
    w->http_status = 403;
    w->content_type = "text/plain";
    w->body = STR("no");
    ask(w);
    assert_failed(w, ERR_UPSTREAM, GRPC_PERMISSION_DENIED, false,
                  "the answer is not gRPC: HTTP status 403");
    w->http_status = 200;
    ask(w);
    assert_int_equal(w->code, GRPC_UNKNOWN);
}

static void test_a_broken_answer(void **state)
{
    struct world *w = *state;
    w->breaks = true;
    ask(w);
    assert_int_equal(w->err, ERR_UPSTREAM);
    assert_int_equal(w->code, GRPC_UNAVAILABLE);
    assert_false(w->told);
}

static void test_silence_and_nobody(void **state)
{
    struct world *w = *state;
    w->silent = true;
    prepare(w, STR("hello"));
    w->call.timeout_ms = 50;
    rpc_client_start(w->fetcher, &w->call);
    run_until(w, &w->dones, 1);
    assert_int_equal(w->err, ERR_UPSTREAM_TIMEOUT);
    assert_int_equal(w->code, GRPC_DEADLINE_EXCEEDED);
    w->call.target = STR("http://127.0.0.1:1");
    rpc_client_start(w->fetcher, &w->call);
    run_until(w, &w->dones, 2);
    assert_int_equal(w->err, ERR_UPSTREAM);
    assert_string_equal(w->message, "the upstream refused the connection");
}

static void test_cancelled_calls_say_nothing(void **state)
{
    struct world *w = *state;
    w->silent = true;
    prepare(w, STR("hello"));
    rpc_client_start(w->fetcher, &w->call);
    run_until(w, &w->requests, 1);
    assert_true(rpc_client_busy(&w->call));
    rpc_client_cancel(&w->call);
    rpc_client_cancel(&w->call);
    assert_false(rpc_client_busy(&w->call));
    w->silent = false;
    ask(w);
    assert_int_equal(w->dones, 1);
    assert_string_equal(w->answer, "ok");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_one_message_each_way),
        TEST(test_an_empty_message_is_one),
        TEST(test_started_again_when_done),
        TEST(test_errors_behind_a_body),
        TEST(test_a_long_message_is_cut),
        TEST(test_errors_instead_of_a_body),
        TEST(test_odd_statuses),
        TEST(test_what_is_no_single_message),
        TEST(test_an_answer_that_is_too_large),
        TEST(test_what_is_not_grpc),
        TEST(test_a_broken_answer),
        TEST(test_silence_and_nobody),
        TEST(test_cancelled_calls_say_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
