// SPDX-License-Identifier: Apache-2.0
/* HTTP/1.1 connections over socket pairs: a loop on one end, bytes written and read by hand on the
 * other. */
#include "base/mem.h"
#include "http/exchange.h"
#include "http/http.h"
#include "net/loop.h"
#include "telemetry/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct bench {
    struct loop loop;
    struct http http;
    struct trace trace;
    uv_timer_t alive; /* a loop without active handles would not turn */
    int peer;
    char got[1 << 20];
    size_t n_got;
    bool peer_closed;
    int gone; /* exchanges whose peer went away */
    struct exchange *held;
};

/* ---- handlers ---- */

/* /echo: full duplex; what arrives goes back as it arrives, with a trailer that counts it. */
struct echo {
    struct block *piece;
    bool ended;
    uint64_t total;
};

static void echo_body(struct exchange *x, struct str data, bool end)
{
    struct echo *e = x->state;
    if (data.n > 0)
        e->piece = block_of(data);
    e->ended = end;
    e->total += data.n;
    exchange_wake(x);
}

static enum pull echo_pull(struct exchange *x)
{
    struct echo *e = x->state;
    if (e->piece != NULL) {
        exchange_put(x, slice_of(e->piece, 0, e->piece->n));
        block_unref(e->piece);
        e->piece = NULL;
        if (!e->ended)
            exchange_want(x, echo_body); /* only now: one piece at a time */
        return PULL_MORE;
    }
    if (!e->ended)
        return PULL_WAIT;
    exchange_trailer(x, STR("Echoed"),
                     arena_printf(&x->arena, "%llu", (unsigned long long)e->total));
    free(e);
    return PULL_END;
}

static void echo_gone(struct exchange *x)
{
    struct echo *e = x->state;
    block_unref(e->piece);
    free(e);
}

static const struct exchange_ops echo_ops = {.pull = echo_pull, .gone = echo_gone};

static void echo(void *ctx, struct exchange *x)
{
    x->ops = &echo_ops;
    x->state = mem_zalloc(sizeof(struct echo));
    exchange_stream(x);
    exchange_want(x, echo_body);
}

/* /size: the whole body, and its size as the answer. */
static void on_collected(struct exchange *x, struct str body, int err)
{
    if (err != 0)
        exchange_error(x, err);
    else
        exchange_send(x, arena_printf(&x->arena, "%zu", body.n));
}

static void size(void *ctx, struct exchange *x)
{
    exchange_collect(x, 100000, on_collected);
}

/* /early: answers without looking at the body. */
static void early(void *ctx, struct exchange *x)
{
    exchange_send(x, STR("early"));
}

/* /later: waits for the test. */
static void later_gone(struct exchange *x)
{
    struct bench *b = x->state;
    b->gone++;
}
static const struct exchange_ops later_ops = {.gone = later_gone};

static void later(void *ctx, struct exchange *x)
{
    struct bench *b = ctx;
    x->ops = &later_ops;
    x->state = b;
    exchange_hold(x);
    b->held = x;
}

/* /endless: a body without end, from a static slice. */
static char filler[16384];
static enum pull endless_pull(struct exchange *x)
{
    exchange_put(x, slice_static(str_of(filler, sizeof filler)));
    return PULL_MORE;
}
static void endless_gone(struct exchange *x)
{
    struct bench *b = x->state;
    b->gone++;
}
static const struct exchange_ops endless_ops = {.pull = endless_pull, .gone = endless_gone};

static void endless(void *ctx, struct exchange *x)
{
    x->ops = &endless_ops;
    x->state = ctx;
    exchange_stream(x);
}

/* ---- driving ---- */

static const struct http_limits limits = {.connections = 3,
                                          .inflight_bytes = 50000,
                                          .head_timeout_ms = 100,
                                          .idle_timeout_ms = 100000,
                                          .body_timeout_ms = 100,
                                          .write_timeout_ms = 100,
                                          .body_min_bytes = 10};

static void connect_peer(struct bench *b, int *peer)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    *peer = fds[1];
    http_accept(&b->http, fds[0]);
}

static void on_alive(uv_timer_t *t)
{
}

static int set_up(void **state)
{
    struct bench *b = mem_zalloc(sizeof *b);
    assert_int_equal(loop_init(&b->loop), 0);
    b->trace = (struct trace){.to = stderr, .level = TRACE_ERROR};
    http_init(&b->http, &b->loop, &b->trace, &limits);
    uv_timer_init(&b->loop.uv, &b->alive);
    uv_timer_start(&b->alive, on_alive, 1 << 30, 0);
    http_route(&b->http, STR("/echo"), echo, b);
    http_route(&b->http, STR("/size"), size, b);
    http_route(&b->http, STR("/early"), early, b);
    http_route(&b->http, STR("/later"), later, b);
    http_route(&b->http, STR("/endless"), endless, b);
    connect_peer(b, &b->peer);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;
    http_close_all(&b->http);
    uv_close((uv_handle_t *)&b->alive, NULL);
    uv_run(&b->loop.uv, UV_RUN_DEFAULT);
    assert_int_equal(b->http.n_connections, 0);
    assert_int_equal(b->http.inflight_bytes, 0);
    http_deinit(&b->http);
    loop_deinit(&b->loop);
    close(b->peer);
    free(b);
    return 0;
}

static void read_peer(struct bench *b)
{
    while (b->n_got < sizeof b->got - 1) {
        ssize_t n = read(b->peer, b->got + b->n_got, sizeof b->got - 1 - b->n_got);
        if (n <= 0) {
            b->peer_closed = b->peer_closed || n == 0;
            break;
        }
        b->n_got += (size_t)n;
    }
    b->got[b->n_got] = '\0';
}

static void turns(struct bench *b, int n)
{
    for (int i = 0; i < n; i++)
        uv_run(&b->loop.uv, UV_RUN_NOWAIT);
}

static void say(struct bench *b, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = write(b->peer, bytes, n);
        if (sent > 0) {
            bytes += sent;
            n -= (size_t)sent;
        }
        turns(b, 2);
        read_peer(b);
    }
    turns(b, 3);
    read_peer(b);
}

static void say_text(struct bench *b, const char *text)
{
    say(b, text, strlen(text));
}

/* Runs the loop until the peer sees the end. Time passes for real: these limits are short. */
static void wait_closed(struct bench *b)
{
    while (!b->peer_closed) {
        uv_run(&b->loop.uv, UV_RUN_ONCE);
        read_peer(b);
    }
}

static int count(const char *in, const char *what)
{
    int n = 0;
    for (const char *p = in; (p = strstr(p, what)) != NULL; p += strlen(what))
        n++;
    return n;
}

#define assert_got(b, text) assert_non_null(strstr((b)->got, text))

/* ---- tests ---- */

static void test_echo_is_full_duplex(void **state)
{
    struct bench *b = *state;
    say_text(b, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_got(b, "HTTP/1.1 200 OK\r\n"); /* the head comes before any of the body */
    assert_got(b, "Transfer-Encoding: chunked\r\n");
    say_text(b, "5\r\nhello\r\n");
    assert_got(b, "5\r\nhello\r\n"); /* and each piece while the request goes on */
    say_text(b, "6\r\n world\r\n");
    assert_got(b, "6\r\n world\r\n");
    assert_null(strstr(b->got, "0\r\n"));
    say_text(b, "0\r\n\r\n");
    assert_got(b, "0\r\nEchoed: 11\r\n\r\n");
    say_text(b, "GET /early HTTP/1.1\r\nHost: x\r\n\r\n"); /* and the connection goes on */
    assert_got(b, "early");
}

static void test_echo_is_bounded(void **state)
{
    /* A peer that sends and does not read: what is taken from it stops, and so does memory. */
    struct bench *b = *state;
    static char piece[65536];
    memset(piece, 'x', sizeof piece);
    char head[128];
    snprintf(head, sizeof head,
             "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n");
    assert_int_equal(write(b->peer, head, strlen(head)), (ssize_t)strlen(head));
    size_t taken = 0;
    for (int idle = 0; idle < 50; turns(b, 1)) {
        ssize_t n = write(b->peer, piece, sizeof piece);
        idle = n > 0 ? 0 : idle + 1;
        taken += n > 0 ? (size_t)n : 0;
        assert_true(taken < 8u << 20);
    }
    assert_true(taken > 0);
}

static void test_pipelined_in_order(void **state)
{
    struct bench *b = *state;
    say_text(
        b,
        "POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
        "GET /early HTTP/1.1\r\nHost: x\r\n\r\n"
        "POST /size HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwxyz\r\n0\r\n\r\n"
        "GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
        "GET /early HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    wait_closed(b);
    const char *first = strstr(b->got, "\r\n\r\n3");
    const char *second = strstr(b->got, "\r\n\r\nearly");
    const char *third = strstr(b->got, "\r\n\r\n4");
    const char *fourth = strstr(b->got, "404 Not Found");
    assert_true(first != NULL && second > first && third > second && fourth > third);
    assert_int_equal(count(b->got, "HTTP/1.1 "), 5);
    assert_int_equal(count(b->got, "Connection: close\r\n"), 1);
}

static void test_every_split_is_the_same(void **state)
{
    struct bench *b = *state;
    const char *request = "POST /size HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                          "3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n";
    for (size_t cut = 1; cut < strlen(request); cut++) {
        b->n_got = 0;
        say(b, request, cut);
        say_text(b, request + cut);
        assert_got(b, "\r\n\r\n5");
        assert_int_equal(count(b->got, "HTTP/1.1 "), 1);
    }
}

static void test_large_body_and_limits(void **state)
{
    struct bench *b = *state;
    static char body[100001];
    memset(body, 'x', sizeof body);
    say_text(b, "POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 40000\r\n\r\n");
    say(b, body, 40000);
    assert_got(b, "\r\n\r\n40000");
    say_text(b, "POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
    say(b, body, 60000); /* more than all bodies together may take */
    assert_got(b, "HTTP/1.1 503 ");
    assert_got(b, "Retry-After: 1\r\n");
    assert_int_equal(b->http.inflight_bytes, 0);
}

static void test_too_large_is_413(void **state)
{
    struct bench *b = *state;
    b->http.limits.inflight_bytes = 1 << 20;
    static char body[100001];
    memset(body, 'x', sizeof body);
    say_text(b, "POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 100001\r\n\r\n");
    say(b, body, sizeof body);
    assert_got(b, "HTTP/1.1 413 ");
    assert_int_equal(b->http.inflight_bytes, 0);
}

static void test_answer_before_the_body_closes(void **state)
{
    struct bench *b = *state;
    say_text(b, "POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    assert_got(b, "Connection: close\r\n");
    assert_got(b, "early");
    say_text(b, "GET /early HTTP/1.1\r\nHost: x\r\n\r\n"); /* must not be taken for a request */
    wait_closed(b);
    assert_int_equal(count(b->got, "HTTP/1.1 "), 1);
}

static void test_expect_continue(void **state)
{
    struct bench *b = *state;
    say_text(b,
             "POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_string_equal(b->got, "HTTP/1.1 100 Continue\r\n\r\n");
    say_text(b, "abc");
    assert_got(b, "\r\n\r\n3");
    b->n_got = 0;
    say_text(
        b, "POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_null(strstr(b->got, "100 Continue")); /* not wanted: said by the answer itself */
    assert_got(b, "early");
}

static void test_head_has_no_body(void **state)
{
    struct bench *b = *state;
    say_text(b, "HEAD /early HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_got(b, "Content-Length: 5\r\n");
    assert_null(strstr(b->got, "early"));
}

static void test_http_10(void **state)
{
    struct bench *b = *state;
    say_text(b, "GET /endless HTTP/1.0\r\n\r\n");
    assert_got(b, "Connection: close\r\n");
    assert_null(strstr(b->got, "chunked"));
}

static void test_every_answer_is_safe_for_browsers(void **state)
{
    struct bench *b = *state;
    say_text(
        b,
        "GET /early HTTP/1.1\r\nHost: x\r\n\r\nGET /none HTTP/1.1\r\nHost: x\r\n\r\nBAD\r\n\r\n");
    wait_closed(b);
    assert_int_equal(count(b->got, "HTTP/1.1 "), 3);
    assert_int_equal(count(b->got, "X-Content-Type-Options: nosniff\r\n"), 3);
    assert_int_equal(count(b->got, "Cross-Origin-Resource-Policy: cross-origin\r\n"), 3);
}

static void test_malformed_is_refused_and_closed(void **state)
{
    struct bench *b = *state;
    say_text(b, "GET /early HTTP/1.1\r\nHost: x\r\nBad Name: v\r\n\r\nGET /early HTTP/1.1\r\nHost: "
                "x\r\n\r\n");
    wait_closed(b);
    assert_got(b, "HTTP/1.1 400 ");
    assert_null(strstr(b->got, "\r\n\r\nearly"));
}

static void test_bad_chunk_ends_the_exchange(void **state)
{
    struct bench *b = *state;
    say_text(b,
             "POST /size HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n");
    wait_closed(b);
    assert_got(b, "HTTP/1.1 400 ");
}

static void test_slow_head_is_408(void **state)
{
    struct bench *b = *state;
    say_text(b, "GET /early HT");
    wait_closed(b);
    assert_got(b, "HTTP/1.1 408 ");
}

static void test_slow_body_is_408(void **state)
{
    struct bench *b = *state;
    say_text(b, "POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc");
    wait_closed(b);
    assert_got(b, "HTTP/1.1 408 ");
}

static void test_too_many_connections(void **state)
{
    struct bench *b = *state;
    int more[3];
    for (int i = 0; i < 3; i++)
        connect_peer(b, &more[i]);
    turns(b, 3);
    char got[1024] = "";
    assert_true(read(more[2], got, sizeof got - 1) > 0);
    assert_non_null(strstr(got, "HTTP/1.1 503 "));
    say_text(b, "GET /early HTTP/1.1\r\nHost: x\r\n\r\n"); /* those before go on */
    assert_got(b, "early");
    for (int i = 0; i < 3; i++)
        close(more[i]);
    turns(b, 3);
}

static void test_gone_while_held(void **state)
{
    struct bench *b = *state;
    say_text(b, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    struct exchange *x = b->held;
    shutdown(b->peer, SHUT_RDWR);
    turns(b, 5);
    /* A peer that only stopped sending may still want the answer; this one takes none. */
    exchange_status(x, 204);
    exchange_send(x, STR_NONE);
    turns(b, 5);
    exchange_send(x, STR("again")); /* over: does nothing */
    exchange_release(x);
    assert_int_equal(b->http.n_connections, 0);
}

static void test_half_closed_peer_gets_its_answer(void **state)
{
    struct bench *b = *state;
    say_text(b, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(b->peer, SHUT_WR);
    turns(b, 5);
    assert_int_equal(b->gone, 0);
    exchange_send(b->held, STR("at last"));
    exchange_release(b->held);
    wait_closed(b);
    assert_got(b, "at last");
}

static void test_streaming_to_a_peer_that_left(void **state)
{
    struct bench *b = *state;
    say_text(b, "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(b->n_got > 0);
    shutdown(b->peer, SHUT_WR);
    turns(b, 5);
    assert_int_equal(b->gone, 1);
}

static void test_peer_that_reads_nothing_is_cut_off(void **state)
{
    struct bench *b = *state;
    const char *request = "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_true(write(b->peer, request, strlen(request)) > 0);
    while (b->gone == 0)
        uv_run(&b->loop.uv, UV_RUN_ONCE);
    assert_int_equal(b->gone, 1);
}

static void test_drain(void **state)
{
    struct bench *b = *state;
    int idle;
    connect_peer(b, &idle);
    say_text(b, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(b->http.n_connections, 2);
    http_drain(&b->http);
    turns(b, 5);
    close(idle);
    turns(b, 5);
    assert_int_equal(b->http.n_connections, 1); /* the idle one is gone, the busy one is not */
    exchange_send(b->held, STR("done"));
    exchange_release(b->held);
    wait_closed(b);
    assert_got(b, "Connection: close\r\n");
    assert_got(b, "done");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_echo_is_full_duplex),
        T(test_echo_is_bounded),
        T(test_pipelined_in_order),
        T(test_every_split_is_the_same),
        T(test_large_body_and_limits),
        T(test_too_large_is_413),
        T(test_answer_before_the_body_closes),
        T(test_expect_continue),
        T(test_head_has_no_body),
        T(test_http_10),
        T(test_every_answer_is_safe_for_browsers),
        T(test_malformed_is_refused_and_closed),
        T(test_bad_chunk_ends_the_exchange),
        T(test_slow_head_is_408),
        T(test_slow_body_is_408),
        T(test_too_many_connections),
        T(test_gone_while_held),
        T(test_half_closed_peer_gets_its_answer),
        T(test_streaming_to_a_peer_that_left),
        T(test_peer_that_reads_nothing_is_cut_off),
        T(test_drain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
