// SPDX-License-Identifier: Apache-2.0
/* HTTP/1.1 connections over socket pairs: a loop on one end, bytes written and read by hand on the
 * other. */
#include "base/mem.h"
#include "http/exchange.h"
#include "http/http.h"
#include "unit/http/mount.h"
#include "net/conn.h"
#include "net/loop.h"
#include "telemetry/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
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
    int gone;   /* exchanges whose peer went away */
    int served; /* answers of /big */
    int early;  /* answers of /early, and how many when /mark was asked for */
    int marked;
    struct exchange *held;
    struct exchange *sleeper; /* of /sleep */
};

/* ---- handlers ---- */

/* /echo: full duplex; what arrives goes back as it arrives, with a trailer that counts it. */
struct echo {
    struct block *piece;
    bool ended, asleep;
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
    ((struct bench *)ctx)->early++;
    exchange_send(x, STR("early"));
}

static void mark(void *ctx, struct exchange *x)
{
    struct bench *b = ctx;
    b->marked = b->early;
    exchange_send(x, STR("marked"));
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

/* /nothing: the same with a status that has no body. */
static void nothing(void *ctx, struct exchange *x)
{
    exchange_status(x, 204);
    endless(ctx, x);
}

/* /big: an answer of many bytes. */
static char big_answer[100000];
static void big(void *ctx, struct exchange *x)
{
    struct bench *b = ctx;
    struct slice s = slice_static(str_of(big_answer, sizeof big_answer));
    b->served++;
    exchange_send_slices(x, &s, 1);
}

/* /both: a body without end out, while what comes in is read to its end. */
static void both_body(struct exchange *x, struct str data, bool end)
{
    if (!end)
        exchange_want(x, both_body);
}

static void both(void *ctx, struct exchange *x)
{
    endless(ctx, x);
    exchange_want(x, both_body);
}

/* /piece: takes what comes with the head, and then waits for the test. */
static void piece_body(struct exchange *x, struct str data, bool end)
{
    if (end)
        exchange_send(x, STR("whole"));
}

static void piece(void *ctx, struct exchange *x)
{
    later(ctx, x);
    exchange_want(x, piece_body);
}

/* /ask: once it is awake, asks for the body when it is asked for a response. */
static void ask_body(struct exchange *x, struct str data, bool end)
{
    struct echo *e = x->state;
    e->piece = block_of(data);
    e->ended = end;
    exchange_wake(x);
}

static enum pull ask_pull(struct exchange *x)
{
    struct echo *e = x->state;
    if (e->piece == NULL) {
        if (!e->asleep)
            exchange_want(x, ask_body);
        return PULL_WAIT;
    }
    exchange_put(x, slice_of(e->piece, 0, e->piece->n));
    block_unref(e->piece);
    e->piece = NULL;
    if (!e->ended)
        return PULL_MORE;
    free(e);
    return PULL_END;
}

static const struct exchange_ops ask_ops = {.pull = ask_pull, .gone = echo_gone};

static void ask(void *ctx, struct exchange *x)
{
    struct bench *b = ctx;
    struct echo *e = mem_zalloc(sizeof *e);
    e->asleep = true;
    x->ops = &ask_ops;
    x->state = e;
    b->held = x;
    exchange_stream(x);
}

/* /sleep: one word once it is woken; /rouse: wakes it from within its own pull. */
static enum pull sleep_pull(struct exchange *x)
{
    struct bench *b = x->state;
    if (b->sleeper != NULL)
        return PULL_WAIT;
    exchange_put(x, slice_static(STR("awake")));
    return PULL_END;
}
static const struct exchange_ops sleep_ops = {.pull = sleep_pull};

static void sleeping(void *ctx, struct exchange *x)
{
    struct bench *b = ctx;
    x->ops = &sleep_ops;
    x->state = b;
    b->sleeper = x;
    exchange_stream(x);
}

static enum pull rouse_pull(struct exchange *x)
{
    struct bench *b = x->state;
    struct exchange *sleeper = b->sleeper;
    b->sleeper = NULL;
    exchange_put(x, slice_static(STR("good ")));
    exchange_wake(sleeper);
    exchange_put(x, slice_static(STR("morning")));
    return PULL_END;
}
static const struct exchange_ops rouse_ops = {.pull = rouse_pull};

static void rouse(void *ctx, struct exchange *x)
{
    x->ops = &rouse_ops;
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
    http_accept(&b->http, fds[0], NULL);
}

/* As connect_peer, for a peer whose network takes little at once. */
static void connect_narrow(struct bench *b, int *peer)
{
    int fds[2], bytes = 4096;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    *peer = fds[1];
    http_accept(&b->http, fds[0], NULL);
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
    uv_timer_start(&b->alive, on_alive, 10, 10);
    mount_for_test(&b->http, "/echo", echo, b);
    mount_for_test(&b->http, "/size", size, b);
    mount_for_test(&b->http, "/early", early, b);
    mount_for_test(&b->http, "/mark", mark, b);
    mount_for_test(&b->http, "/later", later, b);
    mount_for_test(&b->http, "/endless", endless, b);
    mount_for_test(&b->http, "/nothing", nothing, b);
    mount_for_test(&b->http, "/big", big, b);
    mount_for_test(&b->http, "/both", both, b);
    mount_for_test(&b->http, "/piece", piece, b);
    mount_for_test(&b->http, "/ask", ask, b);
    mount_for_test(&b->http, "/sleep", sleeping, b);
    mount_for_test(&b->http, "/rouse", rouse, b);
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

/* Time passes for real; what is hoped for has long come by the end of it. */
static void run_ms(struct bench *b, uint64_t ms)
{
    uint64_t until = uv_hrtime() / 1000000 + ms;
    while (uv_hrtime() / 1000000 < until)
        uv_run(&b->loop.uv, UV_RUN_ONCE);
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
    say_text(b, "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_got(b, "HTTP/1.1 200 OK\r\n"); /* the head comes before any of the body */
    assert_got(b, "Transfer-Encoding: chunked\r\n");
    say_text(b, "5\r\nhello\r\n");
    assert_got(b, "5\r\nhello\r\n"); /* and each piece while the request goes on */
    say_text(b, "6\r\n world\r\n");
    assert_got(b, "6\r\n world\r\n");
    assert_null(strstr(b->got, "0\r\n"));
    say_text(b, "0\r\n\r\n");
    assert_got(b, "0\r\nEchoed: 11\r\n\r\n");
    say_text(b, "GET /early HTTP/1.1\r\nHost: localhost\r\n\r\n"); /* and the connection goes on */
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
             "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n");
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
    say_text(b, "POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"
                "GET /early HTTP/1.1\r\nHost: localhost\r\n\r\n"
                "POST /size HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
                "chunked\r\n\r\n4\r\nwxyz\r\n0\r\n\r\n"
                "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"
                "GET /early HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    wait_closed(b);
    const char *first = strstr(b->got, "\r\n\r\n3");
    const char *second = strstr(b->got, "\r\n\r\nearly");
    const char *third = strstr(b->got, "\r\n\r\n4");
    const char *fourth = strstr(b->got, "404 Not Found");
    assert_true(first != NULL && second > first && third > second && fourth > third);
    assert_int_equal(count(b->got, "HTTP/1.1 "), 5);
    assert_int_equal(count(b->got, "Connection: close\r\n"), 1);
}

/* One that sends hundreds of requests and waits for nothing has a few of them answered before
 * others have their turn; and all of them in the end. */
static void test_pipelining_is_no_privilege(void **state)
{
    struct bench *b = *state;
    enum { REQUESTS = 300, FEW = 20 };
    const char *request = "GET /early HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const char *other = "GET /mark HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char all[REQUESTS * 48] = "";
    int peer;
    for (int i = 0; i < REQUESTS; i++)
        strcat(all, request);
    connect_peer(b, &peer);
    b->marked = -1;
    assert_int_equal(write(b->peer, all, strlen(all)), (ssize_t)strlen(all));
    assert_int_equal(write(peer, other, strlen(other)), (ssize_t)strlen(other));
    for (int i = 0; i < 1000 && (b->early < REQUESTS || b->marked < 0); i++)
        turns(b, 1);
    assert_int_equal(b->early, REQUESTS);
    assert_in_range(b->marked, 0, FEW);
    turns(b, 3);
    read_peer(b);
    assert_int_equal(count(b->got, "\r\n\r\nearly"), REQUESTS);
    close(peer);
}

static void test_every_split_is_the_same(void **state)
{
    struct bench *b = *state;
    const char *request =
        "POST /size HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
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
    say_text(b, "POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40000\r\n\r\n");
    say(b, body, 40000);
    assert_got(b, "\r\n\r\n40000");
    say_text(b, "POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n");
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
    say_text(b, "POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100001\r\n\r\n");
    say(b, body, sizeof body);
    assert_got(b, "HTTP/1.1 413 ");
    assert_int_equal(b->http.inflight_bytes, 0);
}

static void test_answer_before_the_body_closes(void **state)
{
    struct bench *b = *state;
    say_text(b, "POST /early HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc");
    assert_got(b, "Connection: close\r\n");
    assert_got(b, "early");
    say_text(
        b, "GET /early HTTP/1.1\r\nHost: localhost\r\n\r\n"); /* must not be taken for a request */
    wait_closed(b);
    assert_int_equal(count(b->got, "HTTP/1.1 "), 1);
}

static void test_expect_continue(void **state)
{
    struct bench *b = *state;
    say_text(b, "POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: "
                "100-continue\r\n\r\n");
    assert_string_equal(b->got, "HTTP/1.1 100 Continue\r\n\r\n");
    say_text(b, "abc");
    assert_got(b, "\r\n\r\n3");
    b->n_got = 0;
    say_text(b, "POST /early HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: "
                "100-continue\r\n\r\n");
    assert_null(strstr(b->got, "100 Continue")); /* not wanted: said by the answer itself */
    assert_got(b, "early");
}

static void test_head_has_no_body(void **state)
{
    struct bench *b = *state;
    say_text(b, "HEAD /early HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_got(b, "Content-Length: 5\r\n");
    assert_null(strstr(b->got, "early"));
}

static void test_head_of_a_stream(void **state)
{
    struct bench *b = *state;
    say_text(b, "HEAD /endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_got(b, "HTTP/1.1 200 OK\r\n");
    assert_int_equal(b->gone, 1); /* the handler will not be asked, and must know */
    say_text(b, "GET /early HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_got(b, "\r\n\r\nearly");
}

/* A chunk behind such a head would be taken for the beginning of the next response. */
static void test_stream_with_a_status_that_has_no_body(void **state)
{
    struct bench *b = *state;
    say_text(b, "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_got(b, "HTTP/1.1 204 No Content\r\n");
    assert_null(strstr(b->got, "chunked"));
    assert_int_equal(b->gone, 1);
    assert_string_equal(b->got + b->n_got - 4, "\r\n\r\n");
    b->n_got = 0;
    say_text(b, "GET /early HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_int_equal(strncmp(b->got, "HTTP/1.1 200 OK\r\n", 17), 0);
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
    say_text(b, "GET /early HTTP/1.1\r\nHost: localhost\r\n\r\nGET /none HTTP/1.1\r\nHost: "
                "localhost\r\n\r\nBAD\r\n\r\n");
    wait_closed(b);
    assert_int_equal(count(b->got, "HTTP/1.1 "), 3);
    assert_int_equal(count(b->got, "X-Content-Type-Options: nosniff\r\n"), 3);
    assert_int_equal(count(b->got, "Cross-Origin-Resource-Policy: cross-origin\r\n"), 3);
}

static void test_malformed_is_refused_and_closed(void **state)
{
    struct bench *b = *state;
    say_text(
        b,
        "GET /early HTTP/1.1\r\nHost: localhost\r\nBad Name: v\r\n\r\nGET /early HTTP/1.1\r\nHost: "
        "x\r\n\r\n");
    wait_closed(b);
    assert_got(b, "HTTP/1.1 400 ");
    assert_null(strstr(b->got, "\r\n\r\nearly"));
}

static void test_bad_chunk_ends_the_exchange(void **state)
{
    struct bench *b = *state;
    say_text(b, "POST /size HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
                "chunked\r\n\r\n3\r\nabcX\r\n");
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
    say_text(b, "POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc");
    wait_closed(b);
    assert_got(b, "HTTP/1.1 408 ");
}

static void test_too_many_connections(void **state)
{
    struct bench *b = *state;
    static const char head[] = "GET /early HTTP/1.1\r\nHost: x\r\n\r\n";
    int more[3];
    for (int i = 0; i < 3; i++)
        connect_peer(b, &more[i]);
    assert_int_equal(write(more[2], head, sizeof head - 1), sizeof head - 1);
    turns(b, 3);
    char got[1024] = "";
    assert_true(read(more[2], got, sizeof got - 1) > 0);
    assert_non_null(strstr(got, "HTTP/1.1 503 "));
    say_text(b, "GET /early HTTP/1.1\r\nHost: localhost\r\n\r\n"); /* those before go on */
    assert_got(b, "early");
    for (int i = 0; i < 3; i++)
        close(more[i]);
    turns(b, 3);
}

static void test_gone_while_held(void **state)
{
    struct bench *b = *state;
    say_text(b, "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n");
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
    say_text(b, "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n");
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
    say_text(b, "GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(b->n_got > 0);
    shutdown(b->peer, SHUT_WR);
    turns(b, 5);
    assert_int_equal(b->gone, 1);
}

static void test_peer_that_reads_nothing_is_cut_off(void **state)
{
    struct bench *b = *state;
    const char *request = "GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n";
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
    say_text(b, "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n");
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

#define CROWD 200

/* Some at a time; one that leaves, or comes, before its turn makes no difference. */
static void test_a_crowd_is_closed_in_slices(void **state)
{
    struct bench *b = *state;
    int crowd[CROWD], late;
    size_t left = 0;
    b->http.limits.connections = 2 * CROWD;
    for (int i = 0; i < CROWD; i++)
        connect_peer(b, &crowd[i]);
    turns(b, 10);
    http_drain_begin(&b->http); /* which has not come far */
    http_close_all(&b->http);
    list_each (l, &b->http.undrained)
        left++;
    assert_true(left >= CROWD / 2 && left < CROWD);
    close(crowd[CROWD - 1]);
    connect_peer(b, &late);
    turns(b, 20);
    assert_int_equal(b->http.n_connections, 1);
    for (int i = 0; i < CROWD - 1; i++)
        close(crowd[i]);
    close(late);
    http_close_all(&b->http);
    turns(b, 10);
}

static void test_a_crowd_is_drained_in_slices(void **state)
{
    struct bench *b = *state;
    int crowd[CROWD], late;
    size_t left = 0;
    b->http.limits.connections = 2 * CROWD;
    for (int i = 0; i < CROWD; i++) {
        connect_peer(b, &crowd[i]);
        assert_true(write(crowd[i], "GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n", 38) == 38);
    }
    turns(b, 10);
    http_drain_begin(&b->http);
    list_each (l, &b->http.undrained)
        left++;
    assert_true(left >= CROWD / 2 && left < CROWD);
    close(crowd[CROWD - 1]);
    connect_peer(b, &late);
    turns(b, 20);
    assert_true(list_empty(&b->http.undrained));
    for (int i = 0; i < CROWD - 1; i++) {
        char answer[1000];
        ssize_t n = read(crowd[i], answer, sizeof answer);
        while (n > 0)
            n = read(crowd[i], answer, sizeof answer);
        assert_int_equal(n, 0);
        close(crowd[i]);
    }
    close(late);
    http_close_all(&b->http);
    turns(b, 10);
}

static void test_unread_answers_stop_the_requests(void **state)
{
    /* One request at a time, each seen alone, and no answer is ever read. */
    struct bench *b = *state;
    const char *request = "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (int i = 0; i < 200; i++) {
        assert_int_equal(write(b->peer, request, strlen(request)), (ssize_t)strlen(request));
        turns(b, 3);
    }
    assert_true(b->served > 0 && b->served < 10);
    while (b->served < 200 || b->n_got > 0) { /* and who reads at last gets them all */
        b->n_got = 0;
        turns(b, 3);
        read_peer(b);
    }
    assert_int_equal(b->served, 200);
}

static void test_stalled_while_the_body_comes(void **state)
{
    /* The body is waited for, then read to its end; all that time nobody reads the response. */
    struct bench *b = *state;
    const char *request = "POST /both HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n\r\n";
    assert_true(write(b->peer, request, strlen(request)) > 0);
    turns(b, 10);
    assert_true(write(b->peer, "0123456789012345678901234567890123456789", 40) == 40);
    run_ms(b, 1000);
    assert_int_equal(b->gone, 1);
}

static void test_stalled_before_a_request(void **state)
{
    /* What is queued is little enough to serve the next request; that must not let it off. */
    struct bench *b = *state;
    int peer;
    connect_narrow(b, &peer);
    const char *request = "POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"
                          "GET /sleep HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (int i = 0; i < 40; i++) { /* fill the way out */
        const char *one = "GET /early HTTP/1.1\r\nHost: localhost\r\n\r\n";
        assert_true(write(peer, one, strlen(one)) > 0);
        turns(b, 2);
    }
    assert_true(write(peer, request, strlen(request)) > 0);
    turns(b, 5);
    assert_non_null(b->sleeper);
    run_ms(b, 1000);
    assert_int_equal(b->http.n_connections, 1); /* only the one that has nothing to do with it */
    close(peer);
}

static void test_slow_reader_is_not_idle(void **state)
{
    struct bench *b = *state;
    int narrow, n_got = 0;
    b->http.limits.idle_timeout_ms = 50;
    b->http.limits.write_timeout_ms = 10000;
    connect_narrow(b, &narrow);
    close(b->peer);
    b->peer = narrow;
    for (int i = 0; i < 100; i++) {
        const char *one = "GET /early HTTP/1.1\r\nHost: localhost\r\n\r\n";
        assert_true(write(narrow, one, strlen(one)) > 0);
        turns(b, 2);
    }
    char some[1000];
    for (int i = 0; i < 100; i++) {
        run_ms(b, 20);
        ssize_t n = read(narrow, some, sizeof some);
        if (n <= 0)
            break;
        n_got += (int)n;
    }
    assert_true(n_got > 100 * 100); /* and not only what had been sent already */
}

static void test_trickled_body_is_408(void **state)
{
    /* Each byte comes in time, all of them together do not. */
    struct bench *b = *state;
    say_text(b, "POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n");
    for (int i = 0; i < 100 && b->n_got == 0; i++) {
        (void)!write(b->peer, "x", 1);
        run_ms(b, 20);
        read_peer(b);
    }
    assert_got(b, "HTTP/1.1 408 ");
}

static void test_body_that_nobody_wants_is_not_slow(void **state)
{
    struct bench *b = *state;
    say_text(b, "POST /piece HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\n");
    say_text(b, "abc");
    run_ms(b, 400); /* the handler is busy for longer than a body may take */
    assert_int_equal(b->gone, 0);
    exchange_want(b->held, piece_body);
    exchange_release(b->held);
    say_text(b, "def");
    assert_got(b, "whole");
}

static void test_no_continue_within_a_response(void **state)
{
    struct bench *b = *state;
    say_text(b, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n"
                "Expect: 100-continue\r\n\r\n");
    say_text(b, "abc");
    assert_got(b, "HTTP/1.1 200 OK\r\n");
    assert_null(strstr(b->got, "100 Continue"));
    assert_got(b, "\r\n\r\n3\r\nabc\r\n0\r\n");
}

static void test_woken_within_its_own_pull(void **state)
{
    /* The body is there already, and is handed over within the pull that asks for it. */
    struct bench *b = *state;
    say_text(b, "POST /ask HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc");
    struct echo *e = b->held->state;
    e->asleep = false;
    exchange_wake(b->held);
    turns(b, 3);
    read_peer(b);
    assert_got(b, "\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
}

static void test_woken_within_the_pull_of_another(void **state)
{
    struct bench *b = *state;
    int other;
    connect_peer(b, &other);
    const char *request = "GET /sleep HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_true(write(other, request, strlen(request)) > 0);
    turns(b, 3);
    say_text(b, "GET /rouse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_got(b, "\r\n\r\nc\r\ngood morning\r\n0\r\n\r\n");
    char got[1024] = "";
    assert_true(read(other, got, sizeof got - 1) > 0);
    assert_non_null(strstr(got, "\r\n\r\n5\r\nawake\r\n0\r\n\r\n"));
    close(other);
}

static void test_http_10_keep_alive(void **state)
{
    struct bench *b = *state;
    const char *asks = "GET /early HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    say_text(b, asks);
    say_text(b, asks);
    assert_int_equal(count(b->got, "Connection: keep-alive\r\n"), 2); /* or it waits for the end */
    say_text(b, "GET /early HTTP/1.0\r\n\r\n");
    assert_got(b, "Connection: close\r\n");
    wait_closed(b);
}

/* ---- connections by themselves ---- */

static void ignore(struct conn *c)
{
}

static void test_queue_that_is_never_empty(void **state)
{
    /* What has been sent is forgotten, even if there is always something left to send. */
    struct bench *b = *state;
    const struct conn_ops ops = {ignore, ignore, ignore, ignore, ignore};
    static char some[500];
    struct conn c;
    int fds[2], bytes = 4096;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    assert_int_equal(conn_init(&c, &b->loop, fds[0], &ops), 0);
    size_t put = 0, taken = 0;
    for (int i = 0; i < 2000; i++) {
        for (; put - taken < 60000; put += sizeof some)
            conn_put(&c, slice_static(str_of(some, sizeof some)));
        turns(b, 1);
        char got[1000];
        ssize_t n = read(fds[1], got, sizeof got);
        taken += n > 0 ? (size_t)n : 0;
    }
    size_t queue_bytes = malloc_usable_size(c.out);
    conn_close(&c);
    turns(b, 2);
    close(fds[1]);
    assert_true(taken > 500000);
    assert_in_range(queue_bytes, 1, 20000);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_echo_is_full_duplex),
        T(test_echo_is_bounded),
        T(test_pipelined_in_order),
        T(test_pipelining_is_no_privilege),
        T(test_every_split_is_the_same),
        T(test_large_body_and_limits),
        T(test_too_large_is_413),
        T(test_answer_before_the_body_closes),
        T(test_expect_continue),
        T(test_head_has_no_body),
        T(test_head_of_a_stream),
        T(test_stream_with_a_status_that_has_no_body),
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
        T(test_a_crowd_is_drained_in_slices),
        T(test_a_crowd_is_closed_in_slices),
        T(test_unread_answers_stop_the_requests),
        T(test_stalled_while_the_body_comes),
        T(test_stalled_before_a_request),
        T(test_slow_reader_is_not_idle),
        T(test_trickled_body_is_408),
        T(test_body_that_nobody_wants_is_not_slow),
        T(test_no_continue_within_a_response),
        T(test_woken_within_its_own_pull),
        T(test_woken_within_the_pull_of_another),
        T(test_http_10_keep_alive),
        T(test_queue_that_is_never_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
