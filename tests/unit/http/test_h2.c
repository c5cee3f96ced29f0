// SPDX-License-Identifier: Apache-2.0
/* HTTP/2 connections over socket pairs: a loop on one end; on the other nghttp2's client side for
 * what clients do, and frames written by hand for what none should. */
#include "base/mem.h"
#include "http/exchange.h"
#include "http/h2.h"
#include "http/h2_guard.h"
#include "http/http.h"
#include "unit/http/mount.h"
#include "net/loop.h"
#include "telemetry/trace.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define REPLIES 256 /* streams that a test looks at */

struct reply {
    int status;
    char head[1024]; /* "name: value\n" of headers, then of trailers */
    size_t n_head;
    char body[4096]; /* the first of it */
    size_t n_body;
    bool ended;  /* END_STREAM was seen */
    bool closed; /* and with which code */
    uint32_t code;
};

struct bench {
    struct loop loop;
    struct http http;
    struct trace trace;
    uv_timer_t alive; /* a loop without active handles would not turn */
    int fd;
    bool peer_closed;
    nghttp2_session *client;
    struct reply replies[REPLIES]; /* stream 2i+1 has number i */
    int goaways;
    int32_t goaway_last;
    uint32_t goaway_code;
    /* raw peers: frames that came, by type */
    char in[1 << 16];
    size_t n_in;
    int frames[16], resets_no_error;
    uint32_t last_reset;

    int gone, waited, pulls, bodies;
    struct exchange *held[REPLIES];
    int n_held;
};

/* ---- handlers ---- */

static void early(void *ctx, struct exchange *x)
{
    exchange_send(x, STR("early"));
}

static void on_collected(struct exchange *x, struct str body, int err)
{
    if (err != 0)
        exchange_error(x, err);
    else
        exchange_send(x, arena_printf(&x->arena, "%zu", body.n));
}

static void size(void *ctx, struct exchange *x)
{
    exchange_collect(x, 1 << 20, on_collected);
}

/* /later: waits for the test, and wants nothing of the body. */
static void note_gone(struct exchange *x)
{
    struct bench *b = x->state;
    b->gone++;
}
static const struct exchange_ops later_ops = {.gone = note_gone};

static void later(void *ctx, struct exchange *x)
{
    struct bench *b = ctx;
    x->ops = &later_ops;
    x->state = b;
    exchange_hold(x);
    b->held[b->n_held++] = x;
}

/* /wait: for nothing. */
static void wait_for_nothing(void *ctx, struct exchange *x)
{
    struct bench *b = ctx;
    b->waited++;
    x->ops = &later_ops;
    x->state = b;
}

/* /slow: waits for the body. */
static void slow_body(struct exchange *x, struct str data, bool end)
{
    struct bench *b = x->state;
    b->bodies++;
    if (end)
        exchange_send(x, STR("whole"));
    else
        exchange_want(x, slow_body);
}

static void slow(void *ctx, struct exchange *x)
{
    x->ops = &later_ops;
    x->state = ctx;
    exchange_want(x, slow_body);
}

/* /endless: a body without end. */
static char filler[16384];
static enum pull endless_pull(struct exchange *x)
{
    struct bench *b = x->state;
    b->pulls++;
    exchange_put(x, slice_static(str_of(filler, sizeof filler)));
    return PULL_MORE;
}
static const struct exchange_ops endless_ops = {.pull = endless_pull, .gone = note_gone};

static void endless(void *ctx, struct exchange *x)
{
    x->ops = &endless_ops;
    x->state = ctx;
    exchange_stream(x);
}

/* /big: an answer of many bytes. */
static char big_answer[300000];
static void big(void *ctx, struct exchange *x)
{
    struct slice s = slice_static(str_of(big_answer, sizeof big_answer));
    exchange_send_slices(x, &s, 1);
}

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
            exchange_want(x, echo_body);
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

/* /turns: as /echo, but asks for the body before it begins to answer. */
static void turns(void *ctx, struct exchange *x)
{
    x->ops = &echo_ops;
    x->state = mem_zalloc(sizeof(struct echo));
    exchange_want(x, echo_body);
    exchange_stream(x);
}

/* /tick: one word for each time the test wakes it; ends when the server drains. */
struct tick {
    struct bench *b;
    int words;
    bool over;
};

static enum pull tick_pull(struct exchange *x)
{
    struct tick *t = x->state;
    if (t->words > 0) {
        exchange_put(x, slice_static(STR("tick ")));
        t->words--;
        return PULL_MORE;
    }
    if (!t->over)
        return PULL_WAIT;
    free(t);
    return PULL_END;
}

static void tick_gone(struct exchange *x)
{
    struct tick *t = x->state;
    t->b->gone++;
    free(t);
}

static void tick_drain(struct exchange *x)
{
    struct tick *t = x->state;
    t->over = true;
    exchange_wake(x);
}
static const struct exchange_ops tick_ops = {
    .pull = tick_pull, .gone = tick_gone, .drain = tick_drain};

static void tick(void *ctx, struct exchange *x)
{
    struct bench *b = ctx;
    struct tick *t = mem_zalloc(sizeof *t);
    t->b = b;
    x->ops = &tick_ops;
    x->state = t;
    exchange_hold(x);
    b->held[b->n_held++] = x;
    exchange_stream(x);
}

static void tick_now(struct exchange *x)
{
    ((struct tick *)x->state)->words++;
    exchange_wake(x);
}

/* ---- the client ---- */

static struct reply *reply_of(struct bench *b, int32_t id)
{
    assert_true(id > 0 && id / 2 < REPLIES);
    return &b->replies[id / 2];
}

static int on_header(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags, void *ctx)
{
    struct reply *r = reply_of(ctx, frame->hd.stream_id);
    if (name_n == 7 && memcmp(name, ":status", 7) == 0)
        r->status = atoi((const char *)value);
    r->n_head += (size_t)snprintf(r->head + r->n_head, sizeof r->head - r->n_head, "%s: %s\n",
                                  (const char *)name, (const char *)value);
    assert_true(r->n_head < sizeof r->head);
    return 0;
}

static int on_data(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *data, size_t n,
                   void *ctx)
{
    struct reply *r = reply_of(ctx, id);
    if (r->n_body < sizeof r->body - 1) {
        size_t room = sizeof r->body - 1 - r->n_body;
        memcpy(r->body + r->n_body, data, n < room ? n : room);
    }
    r->n_body += n;
    return 0;
}

static int on_frame(nghttp2_session *s, const nghttp2_frame *frame, void *ctx)
{
    struct bench *b = ctx;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        b->goaways++;
        b->goaway_last = frame->goaway.last_stream_id;
        b->goaway_code = frame->goaway.error_code;
    }
    if (frame->hd.type <= NGHTTP2_HEADERS && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        reply_of(b, frame->hd.stream_id)->ended = true;
    return 0;
}

static int on_close(nghttp2_session *s, int32_t id, uint32_t code, void *ctx)
{
    struct reply *r = reply_of(ctx, id);
    r->closed = true;
    r->code = code;
    return 0;
}

/* manual: windows are opened by the test alone. */
static void start_client(struct bench *b, bool manual)
{
    nghttp2_session_callbacks *c;
    nghttp2_option *o;
    nghttp2_session_callbacks_new(&c);
    nghttp2_option_new(&o);
    nghttp2_option_set_no_auto_window_update(o, manual);
    nghttp2_session_callbacks_set_on_header_callback(c, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(c, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(c, on_close);
    assert_int_equal(nghttp2_session_client_new2(&b->client, c, b, o), 0);
    nghttp2_option_del(o);
    nghttp2_session_callbacks_del(c);
    nghttp2_submit_settings(b->client, NGHTTP2_FLAG_NONE, NULL, 0);
}

/* ---- driving ---- */

static const struct http_limits limits = {.connections = 3,
                                          .inflight_bytes = 4 << 20,
                                          .head_timeout_ms = 100,
                                          .idle_timeout_ms = 100000,
                                          .body_timeout_ms = 100,
                                          .write_timeout_ms = 100000,
                                          .body_min_bytes = 10};

static void connect_peer(struct bench *b)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    b->fd = fds[1];
    http_accept(&b->http, fds[0], NULL);
}

static void on_alive(uv_timer_t *t)
{
}

static int set_up(void **state)
{
    static const struct {
        const char *path;
        void (*handle)(void *ctx, struct exchange *x);
    } routes[] = {
        {"/early", early}, {"/size", size},       {"/later", later}, {"/wait", wait_for_nothing},
        {"/slow", slow},   {"/endless", endless}, {"/big", big},     {"/echo", echo},
        {"/turns", turns}, {"/tick", tick}};
    struct bench *b = mem_zalloc(sizeof *b);
    assert_int_equal(loop_init(&b->loop), 0);
    b->trace = (struct trace){.to = stderr, .level = TRACE_ERROR};
    http_init(&b->http, &b->loop, &b->trace, &limits);
    b->http.names.any = true;
    uv_timer_init(&b->loop.uv, &b->alive);
    uv_timer_start(&b->alive, on_alive, 10, 10);
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        mount_for_test(&b->http, routes[i].path, routes[i].handle, b);
    connect_peer(b);
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
    for (int i = 0; i < b->n_held; i++)
        exchange_release(b->held[i]);
    assert_int_equal(b->http.inflight_bytes, 0);
    http_deinit(&b->http);
    loop_deinit(&b->loop);
    nghttp2_session_del(b->client);
    close(b->fd);
    free(b);
    return 0;
}

static void turn(struct bench *b)
{
    uv_run(&b->loop.uv, UV_RUN_NOWAIT);
}

/* What the client has to say, as far as the socket takes it; and what it hears. */
static bool exchange_bytes(struct bench *b)
{
    bool moved = false;
    const uint8_t *out;
    ssize_t n;
    while ((n = nghttp2_session_mem_send(b->client, &out)) > 0) {
        while (n > 0) {
            ssize_t sent = send(b->fd, out, (size_t)n, MSG_NOSIGNAL);
            if (sent > 0) {
                out += sent;
                n -= sent;
            } else if (b->peer_closed) {
                return moved;
            }
            turn(b);
            if (sent < 0 && errno != EAGAIN)
                b->peer_closed = true;
        }
        moved = true;
    }
    static uint8_t in[65536];
    while ((n = read(b->fd, in, sizeof in)) > 0) {
        assert_int_equal(nghttp2_session_mem_recv(b->client, in, (size_t)n), n);
        moved = true;
    }
    b->peer_closed = b->peer_closed || n == 0;
    return moved;
}

/* Until nothing moves any more. */
static void run(struct bench *b)
{
    for (int quiet = 0; quiet < 3;) {
        turn(b);
        quiet = exchange_bytes(b) ? 0 : quiet + 1;
    }
}

/* Time passes for real: the limits that are waited for are short. */
#define run_until(b, what)                                                                         \
    do {                                                                                           \
        uint64_t until_ = uv_hrtime() + 10000000000u;                                              \
        while (!(what) && uv_hrtime() < until_) {                                                  \
            uv_run(&(b)->loop.uv, UV_RUN_ONCE);                                                    \
            exchange_bytes(b);                                                                     \
        }                                                                                          \
        assert_true(what);                                                                         \
    } while (0)

static nghttp2_nv nv(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NONE};
}

static int32_t submit(struct bench *b, const char *method, const char *path,
                      nghttp2_data_provider *body)
{
    nghttp2_nv head[] = {nv(":method", method), nv(":scheme", "http"), nv(":authority", "x"),
                         nv(":path", path)};
    int32_t id = nghttp2_submit_request(b->client, NULL, head, 4, body, b);
    assert_true(id > 0);
    return id;
}

static struct reply *get(struct bench *b, const char *path)
{
    int32_t id = submit(b, "GET", path, NULL);
    run(b);
    return reply_of(b, id);
}

/* A request body that the test makes longer as it likes. */
struct upload {
    nghttp2_data_provider provider;
    size_t left;
    bool end; /* behind `left` */
    int32_t id;
};

static ssize_t read_upload(nghttp2_session *s, int32_t id, uint8_t *buf, size_t room,
                           uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct upload *u = source->ptr;
    size_t n = u->left < room ? u->left : room;
    memset(buf, 'u', n);
    u->left -= n;
    if (u->left == 0 && u->end)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    else if (n == 0)
        return NGHTTP2_ERR_DEFERRED;
    return (ssize_t)n;
}

static void upload(struct bench *b, struct upload *u, const char *path, size_t n, bool end)
{
    *u = (struct upload){{{.ptr = u}, read_upload}, n, end, 0};
    u->id = submit(b, "POST", path, &u->provider);
    run(b);
}

static void upload_more(struct bench *b, struct upload *u, size_t n, bool end)
{
    u->left += n;
    u->end = end;
    nghttp2_session_resume_data(b->client, u->id);
    run(b);
}

/* ---- what clients do ---- */

static void test_requests_and_answers(void **state)
{
    struct bench *b = *state;
    start_client(b, false);
    struct reply *r = get(b, "/early");
    assert_int_equal(r->status, 200);
    assert_string_equal(r->body, "early");
    assert_true(r->ended && r->closed && r->code == NGHTTP2_NO_ERROR);
    assert_non_null(strstr(r->head, "content-length: 5\n"));
    assert_non_null(strstr(r->head, "date: "));
    assert_non_null(strstr(r->head, "x-content-type-options: nosniff\n"));
    assert_int_equal(get(b, "/nowhere")->status, 404);

    int32_t id = submit(b, "HEAD", "/early", NULL);
    run(b);
    assert_non_null(strstr(reply_of(b, id)->head, "content-length: 5\n"));
    assert_int_equal(reply_of(b, id)->n_body, 0);
    assert_true(reply_of(b, id)->closed);

    struct upload u;
    upload(b, &u, "/size", 200000, true); /* three windows */
    assert_string_equal(reply_of(b, u.id)->body, "200000");
    assert_int_equal(get(b, "/big")->n_body, sizeof big_answer);
    assert_int_equal(b->http.n_connections, 1);
}

static void test_head_of_a_stream(void **state)
{
    struct bench *b = *state;
    start_client(b, false);
    int32_t id = submit(b, "HEAD", "/endless", NULL);
    run(b);
    assert_int_equal(reply_of(b, id)->status, 200);
    assert_true(reply_of(b, id)->closed);
    assert_int_equal(b->gone, 1);
    assert_int_equal(b->pulls, 0);
}

static void test_the_preface_in_pieces(void **state)
{
    struct bench *b = *state;
    start_client(b, false);
    submit(b, "GET", "/early", NULL);
    const uint8_t *out;
    ssize_t n;
    while ((n = nghttp2_session_mem_send(b->client, &out)) > 0)
        for (ssize_t i = 0; i < n; i++) {
            assert_int_equal(write(b->fd, out + i, 1), 1);
            turn(b);
        }
    run(b);
    assert_string_equal(b->replies[0].body, "early");
}

static void test_both_versions_on_one_port(void **state)
{
    struct bench *b = *state;
    /* What begins like the preface and is none, too. */
    const char *requests[] = {"GET /early HTTP/1.1\r\nHost: localhost\r\n\r\n",
                              "PUT /early HTTP/1.1\r\nHost: localhost\r\n\r\n",
                              "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"};
    const char *answers[] = {"HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 505 "};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(write(b->fd, requests[i], 1), 1);
        turn(b);
        size_t rest = strlen(requests[i]) - 1;
        assert_int_equal(write(b->fd, requests[i] + 1, rest), (ssize_t)rest);
        for (int k = 0; k < 4; k++)
            turn(b);
        char got[1024] = "";
        assert_true(read(b->fd, got, sizeof got - 1) > 0);
        assert_memory_equal(got, answers[i], strlen(answers[i]));
    }
}

static void test_many_streams(void **state)
{
    struct bench *b = *state;
    start_client(b, false);
    run(b); /* its settings are known */
    for (int i = 0; i < H2_STREAMS; i++)
        submit(b, "GET", "/tick", NULL);
    run(b);
    assert_int_equal(b->n_held, H2_STREAMS);
    for (int i = H2_STREAMS - 1; i >= 0; i--)
        tick_now(b->held[i]);
    run(b);
    for (int i = 0; i < H2_STREAMS; i++)
        assert_string_equal(b->replies[i].body, "tick ");
    tick_now(b->held[7]);
    run(b);
    assert_string_equal(b->replies[7].body, "tick tick ");
    assert_string_equal(b->replies[8].body, "tick ");
    http_close_all(&b->http);
    run(b);
    assert_int_equal(b->gone, H2_STREAMS);
}

static void test_duplex_echo(void **state)
{
    struct bench *b = *state;
    struct upload u, silent;
    start_client(b, false);
    upload(b, &silent, "/turns", 0, false); /* wanted a body before it began to answer */
    upload(b, &u, "/echo", 5, false);
    struct reply *r = reply_of(b, u.id);
    assert_int_equal(r->status, 200); /* while the request goes on */
    assert_string_equal(r->body, "uuuuu");
    upload_more(b, &u, 1000, false);
    assert_int_equal(r->n_body, 1005);
    /* Silence is no slow body here, however long it lasts. */
    uint64_t until = uv_hrtime() + 300000000u;
    while (uv_hrtime() < until)
        uv_run(&b->loop.uv, UV_RUN_ONCE);
    run(b);
    assert_false(r->closed || reply_of(b, silent.id)->closed);
    upload_more(b, &silent, 3, true);
    assert_string_equal(reply_of(b, silent.id)->body, "uuu");
    upload_more(b, &u, 200000, true);
    assert_int_equal(r->n_body, 201005);
    assert_non_null(strstr(r->head, "echoed: 201005\n"));
    assert_true(r->ended && r->closed && r->code == NGHTTP2_NO_ERROR);
}

static void test_a_stalled_stream_holds_nobody(void **state)
{
    struct bench *b = *state;
    start_client(b, true);
    int32_t stalled = submit(b, "GET", "/endless", NULL);
    run(b);
    /* The window's worth, and one pull that waits for more room. */
    assert_int_equal(reply_of(b, stalled)->n_body, 65535);
    assert_true(b->pulls * sizeof filler <= 65535 + 2 * EXCHANGE_PULL);
    int pulls = b->pulls;
    nghttp2_submit_window_update(b->client, NGHTTP2_FLAG_NONE, 0, 1 << 20);
    for (int i = 0; i < 50; i++)
        assert_string_equal(get(b, "/early")->body, "early");
    assert_int_equal(get(b, "/big")->n_body, 65535);
    assert_int_equal(b->pulls, pulls);
    nghttp2_submit_window_update(b->client, NGHTTP2_FLAG_NONE, stalled, 10000);
    run(b);
    assert_int_equal(reply_of(b, stalled)->n_body, 75535);
}

static void test_streams_share_the_connection(void **state)
{
    /* A long answer, whose window is wide open, and a word on another stream. */
    struct bench *b = *state;
    start_client(b, true);
    nghttp2_settings_entry wide = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 30};
    nghttp2_submit_settings(b->client, NGHTTP2_FLAG_NONE, &wide, 1);
    nghttp2_submit_window_update(b->client, NGHTTP2_FLAG_NONE, 0, 1 << 30);
    submit(b, "GET", "/tick", NULL);
    submit(b, "GET", "/endless", NULL);
    turn(b);
    for (int i = 0; i < 10; i++) {
        exchange_bytes(b);
        turn(b);
    }
    tick_now(b->held[0]);
    for (int i = 0; i < 10; i++) {
        turn(b);
        exchange_bytes(b);
    }
    assert_string_equal(b->replies[0].body, "tick ");
    assert_true(b->replies[1].n_body > 1 << 20);
}

static void test_an_unread_body_is_bounded(void **state)
{
    struct bench *b = *state;
    struct upload u[17], last;
    start_client(b, false);
    upload(b, &u[0], "/later", 1 << 20, true);
    assert_int_equal(b->http.inflight_bytes, H2_STREAM_WINDOW);
    assert_int_equal(u[0].left, (1 << 20) - H2_STREAM_WINDOW);
    upload(b, &last, "/size", 100000, true); /* its neighbour is not kept */
    assert_string_equal(reply_of(b, last.id)->body, "100000");
    for (int i = 1; i < 17; i++)
        upload(b, &u[i], "/later", 1 << 20, true);
    assert_true(b->http.inflight_bytes <= H2_WINDOW);
    /* When their requests are answered, the connection's window is free again. */
    for (int i = 0; i < 17; i++)
        exchange_send(b->held[i], STR("no"));
    run(b);
    assert_int_equal(b->http.inflight_bytes, 0);
    for (int i = 0; i < 17; i++) {
        assert_string_equal(reply_of(b, u[i].id)->body, "no");
        run_until(b, reply_of(b, u[i].id)->closed);
    }
    upload(b, &last, "/size", 1000000, true);
    assert_string_equal(reply_of(b, last.id)->body, "1000000");
}

static void test_bodies_over_the_budget_are_503(void **state)
{
    struct bench *b = *state;
    struct upload u;
    start_client(b, false);
    b->http.limits.inflight_bytes = 50000;
    upload(b, &u, "/size", 60000, true);
    assert_int_equal(reply_of(b, u.id)->status, 503);
    assert_non_null(strstr(reply_of(b, u.id)->head, "retry-after: 1\n"));
    upload(b, &u, "/later", 60000, false);
    assert_int_equal(reply_of(b, u.id)->status, 503);
    assert_int_equal(b->gone, 1);
    assert_int_equal(b->http.inflight_bytes, 0);
}

static void test_an_answer_before_the_body(void **state)
{
    struct bench *b = *state;
    struct upload u;
    start_client(b, false);
    upload(b, &u, "/early", 100, false);
    assert_string_equal(reply_of(b, u.id)->body, "early");
    assert_true(reply_of(b, u.id)->ended && !reply_of(b, u.id)->closed);
    run_until(b, reply_of(b, u.id)->closed); /* the rest is waited for, but not for long */
    assert_int_equal(reply_of(b, u.id)->code, NGHTTP2_NO_ERROR);
    upload(b, &u, "/early", 100, false);
    b->frames[NGHTTP2_RST_STREAM] = 0;
    upload_more(b, &u, 100, true);
    assert_true(reply_of(b, u.id)->closed);
    assert_int_equal(b->frames[NGHTTP2_RST_STREAM], 0);
    assert_string_equal(get(b, "/early")->body, "early");
}

static void test_expect_continue(void **state)
{
    struct bench *b = *state;
    start_client(b, false);
    struct upload u = {.end = true};
    u.provider = (nghttp2_data_provider){{.ptr = &u}, read_upload};
    nghttp2_nv head[] = {nv(":method", "POST"), nv(":scheme", "http"), nv(":authority", "x"),
                         nv(":path", "/size"), nv("expect", "100-continue")};
    u.end = false;
    u.id = nghttp2_submit_request(b->client, NULL, head, 5, &u.provider, b);
    run(b);
    assert_int_equal(reply_of(b, u.id)->status, 100);
    upload_more(b, &u, 7, true);
    assert_int_equal(reply_of(b, u.id)->status, 200);
    assert_string_equal(reply_of(b, u.id)->body, "7");
}

static void test_slow_bodies_are_408(void **state)
{
    struct bench *b = *state;
    struct upload u;
    start_client(b, false);
    upload(b, &u, "/slow", 5, false);
    run_until(b, reply_of(b, u.id)->closed);
    assert_int_equal(reply_of(b, u.id)->status, 408);
    assert_int_equal(b->gone, 1);
    upload(b, &u, "/later", 5, false); /* nobody waits for this one */
    uint64_t until = uv_hrtime() + 300000000u;
    while (uv_hrtime() < until)
        uv_run(&b->loop.uv, UV_RUN_ONCE);
    run(b);
    assert_false(reply_of(b, u.id)->closed);
}

static void test_abort_is_seen(void **state)
{
    struct bench *b = *state;
    start_client(b, false);
    int32_t id = submit(b, "GET", "/tick", NULL);
    run(b);
    tick_now(b->held[0]);
    run(b);
    exchange_abort(b->held[0]);
    run(b);
    assert_string_equal(reply_of(b, id)->body, "tick ");
    assert_true(reply_of(b, id)->closed);
    assert_int_equal(reply_of(b, id)->code, NGHTTP2_INTERNAL_ERROR);
    assert_int_equal(b->gone, 1);
    assert_string_equal(get(b, "/early")->body, "early");
}

static void test_a_reset_cancels_the_work(void **state)
{
    struct bench *b = *state;
    start_client(b, false);
    int32_t waiting = submit(b, "GET", "/later", NULL), reading = submit(b, "GET", "/tick", NULL);
    run(b);
    nghttp2_submit_rst_stream(b->client, NGHTTP2_FLAG_NONE, waiting, NGHTTP2_CANCEL);
    nghttp2_submit_rst_stream(b->client, NGHTTP2_FLAG_NONE, reading, NGHTTP2_CANCEL);
    run(b);
    assert_int_equal(b->gone, 2);
    assert_true(exchange_over(b->held[0]));
    exchange_send(b->held[0], STR("too late")); /* does nothing */
    run(b);
    assert_int_equal(reply_of(b, waiting)->status, 0);
    close(b->fd);
    b->fd = -1;
    for (int i = 0; i < 5; i++)
        turn(b);
    assert_int_equal(b->http.n_connections, 0);
}

static void test_drain(void **state)
{
    struct bench *b = *state;
    start_client(b, false);
    int32_t first = submit(b, "GET", "/tick", NULL), second = submit(b, "GET", "/later", NULL);
    run(b);
    http_drain(&b->http);
    turn(b);
    /* A request that was on its way when the notice went out is still answered. */
    int32_t third = submit(b, "GET", "/early", NULL);
    run(b);
    assert_string_equal(reply_of(b, third)->body, "early");
    assert_true(reply_of(b, first)->ended);
    assert_int_equal(b->goaways, 2);
    assert_int_equal(b->goaway_last, third);
    assert_int_equal(b->goaway_code, NGHTTP2_NO_ERROR);
    assert_int_equal(b->http.n_connections, 1); /* the last one is waited for */
    exchange_send(b->held[1], STR("done"));
    run(b);
    assert_string_equal(reply_of(b, second)->body, "done");
    assert_true(b->peer_closed);
}

static void test_idle_connections_are_told_to_go(void **state)
{
    struct bench *b = *state;
    b->http.limits.idle_timeout_ms = 50;
    start_client(b, false);
    submit(b, "GET", "/tick", NULL);
    run(b);
    uint64_t until = uv_hrtime() + 200000000u;
    while (uv_hrtime() < until)
        uv_run(&b->loop.uv, UV_RUN_ONCE);
    run(b);
    assert_int_equal(b->goaways, 0); /* an open stream is not idle */
    nghttp2_submit_rst_stream(b->client, NGHTTP2_FLAG_NONE, 1, NGHTTP2_CANCEL);
    run_until(b, b->peer_closed);
    assert_int_equal(b->goaways, 1);
    assert_int_equal(b->goaway_code, NGHTTP2_NO_ERROR);
}

static void test_a_window_that_stays_shut(void **state)
{
    struct bench *b = *state;
    b->http.limits.write_timeout_ms = 50;
    start_client(b, true);
    int32_t stuck = submit(b, "GET", "/endless", NULL), whole = submit(b, "GET", "/big", NULL);
    int32_t quiet = submit(b, "GET", "/tick", NULL);
    nghttp2_submit_window_update(b->client, NGHTTP2_FLAG_NONE, 0, 1 << 20);
    run_until(b, reply_of(b, stuck)->closed && reply_of(b, whole)->closed);
    assert_int_equal(reply_of(b, stuck)->code, NGHTTP2_CANCEL);
    assert_int_equal(reply_of(b, whole)->code, NGHTTP2_CANCEL);
    assert_false(reply_of(b, quiet)->closed); /* it had nothing to say */
    assert_int_equal(b->gone, 1);
}

static void test_a_peer_that_takes_nothing(void **state)
{
    struct bench *b = *state;
    b->http.limits.write_timeout_ms = 50;
    start_client(b, true);
    nghttp2_settings_entry wide = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 30};
    nghttp2_submit_settings(b->client, NGHTTP2_FLAG_NONE, &wide, 1);
    nghttp2_submit_window_update(b->client, NGHTTP2_FLAG_NONE, 0, 1 << 30);
    submit(b, "GET", "/endless", NULL);
    exchange_bytes(b);
    uint64_t until = uv_hrtime() + 5000000000u;
    while (b->http.n_connections > 0 && uv_hrtime() < until)
        uv_run(&b->loop.uv, UV_RUN_ONCE);
    assert_int_equal(b->http.n_connections, 0);
    assert_int_equal(b->gone, 1);
}

static void test_a_careful_reader_is_no_attacker(void **state)
{
    /* Opens its windows in small steps, for a long time. */
    struct bench *b = *state;
    start_client(b, true);
    int32_t id = submit(b, "GET", "/endless", NULL);
    run(b);
    for (int i = 0; i < 3000; i++) {
        nghttp2_submit_window_update(b->client, NGHTTP2_FLAG_NONE, 0, 1000);
        nghttp2_submit_window_update(b->client, NGHTTP2_FLAG_NONE, id, 1000);
        exchange_bytes(b);
        turn(b);
    }
    run(b);
    assert_int_equal(b->goaways, 0);
    assert_int_equal(reply_of(b, id)->n_body, 65535 + 3000 * 1000);
}

/* ---- frames by hand ---- */

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

struct wire {
    uint8_t bytes[70000];
    size_t n;
};

static void frame(struct wire *w, uint8_t type, uint8_t flags, uint32_t id, const void *payload,
                  size_t n)
{
    assert_true(w->n + 9 + n <= sizeof w->bytes);
    uint8_t *p = w->bytes + w->n;
    const uint8_t head[9] = {
        (uint8_t)(n >> 16),  (uint8_t)(n >> 8),   (uint8_t)n,         type,       flags,
        (uint8_t)(id >> 24), (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id};
    memcpy(p, head, 9);
    if (n > 0)
        memcpy(p + 9, payload, n);
    w->n += 9 + n;
}

/* A literal field that is not indexed; lengths below 127. */
static size_t field(uint8_t *to, const char *name, const char *value)
{
    size_t a = strlen(name), b = strlen(value);
    to[0] = 0;
    to[1] = (uint8_t)a;
    memcpy(to + 2, name, a);
    to[2 + a] = (uint8_t)b;
    memcpy(to + 3 + a, value, b);
    return 3 + a + b;
}

static size_t request_fields(uint8_t *to, const char *path)
{
    size_t n = field(to, ":method", "GET");
    n += field(to + n, ":scheme", "http");
    n += field(to + n, ":path", path);
    return n + field(to + n, ":authority", "x");
}

static void request(struct wire *w, uint32_t id, const char *path, uint8_t flags)
{
    uint8_t fields[256];
    frame(w, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | flags, id, fields,
          request_fields(fields, path));
}

/* Takes in what the server says, and counts its frames. */
static void hear(struct bench *b)
{
    ssize_t n;
    while ((n = read(b->fd, b->in + b->n_in, sizeof b->in - b->n_in)) > 0) {
        b->n_in += (size_t)n;
        size_t at = 0;
        while (b->n_in - at >= 9) {
            const uint8_t *p = (uint8_t *)b->in + at;
            size_t length = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];
            if (b->n_in - at < 9 + length)
                break;
            assert_true(p[3] < 16);
            b->frames[p[3]]++;
            if (p[3] == NGHTTP2_GOAWAY) {
                b->goaway_code = p[16];
                b->goaways++;
            }
            if (p[3] == NGHTTP2_RST_STREAM)
                b->last_reset = p[12];
            at += 9 + length;
        }
        memmove(b->in, b->in + at, b->n_in - at);
        b->n_in -= at;
    }
    if (n == 0)
        b->peer_closed = true;
}

/* False: the server wants no more of it. */
static bool say(struct bench *b, struct wire *w)
{
    size_t at = 0;
    while (at < w->n && !b->peer_closed) {
        ssize_t n = send(b->fd, w->bytes + at, w->n - at, MSG_NOSIGNAL);
        if (n > 0)
            at += (size_t)n;
        else if (errno != EAGAIN)
            b->peer_closed = true;
        turn(b);
        hear(b);
    }
    w->n = 0;
    for (int i = 0; i < 3; i++)
        turn(b);
    hear(b);
    return !b->peer_closed;
}

static void say_hello(struct bench *b, struct wire *w)
{
    memcpy(w->bytes, PREFACE, 24);
    w->n = 24;
    frame(w, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    frame(w, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, NULL, 0);
    assert_true(say(b, w));
    assert_int_equal(b->frames[NGHTTP2_SETTINGS], 2);
}

/* ---- requests that are none ---- */

struct malformed {
    const char *what;
    const char *fields[10]; /* names and values */
    int status;             /* 0: the stream is reset */
};

#define GET_X ":method", "GET", ":scheme", "http", ":path", "/early"

static const struct malformed malformed[] = {
    {"nothing wrong", {GET_X, ":authority", "x"}, 200},
    {"host instead of :authority", {GET_X, "host", "x"}, 200},
    {"capitals in a name", {GET_X, "Host", "x"}, 0},
    {"a space in a name", {GET_X, "a b", "x"}, 0},
    {"a line break in a value", {GET_X, "a", "x\r\nb: c"}, 0},
    {"a space before a value", {GET_X, "a", " x"}, 0},
    {"a header of the connection", {GET_X, "connection", "close"}, 0},
    {"transfer-encoding", {GET_X, "transfer-encoding", "chunked"}, 0},
    {"te other than trailers", {GET_X, "te", "gzip"}, 0},
    {"a pseudo-header behind others", {":method", "GET", "host", "x", ":path", "/early"}, 0},
    {"a pseudo-header twice", {GET_X, ":path", "/early"}, 0},
    {"no path", {":method", "GET", ":scheme", "http", ":authority", "x"}, 0},
    {"an empty path", {":method", "GET", ":scheme", "http", ":path", "", "host", "x"}, 0},
    {"a path without a slash", {":method", "GET", ":scheme", "http", ":path", "e", "host", "x"}, 0},
    {"a fragment", {":method", "GET", ":scheme", "http", ":path", "/early#a", "host", "x"}, 400},
    {"no host at all", {GET_X}, 0},
    {"a user in the host", {GET_X, ":authority", "a@x"}, 400},
    {"a list for a host", {GET_X, ":authority", "a,b"}, 400},
    {"two opinions of the host", {GET_X, ":authority", "x", "host", "y"}, 400},
    {"a scheme of another kind",
     {":method", "GET", ":scheme", "ftp", ":path", "/early", "host", "x"},
     400},
    {"CONNECT", {":method", "CONNECT", ":authority", "x:1"}, 400},
    {"another expectation", {GET_X, "host", "x", "expect", "wonders"}, 417},
    {"a length and no body", {GET_X, "host", "x", "content-length", "5"}, 0},
    {"a length that is no number", {GET_X, "host", "x", "content-length", "+5"}, 0},
};

static void test_malformed_requests(void **state)
{
    struct bench *b = *state;
    static struct wire w;
    say_hello(b, &w);
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        const struct malformed *m = &malformed[i];
        uint8_t fields[512];
        size_t n = 0;
        uint64_t before[HTTP_CLASSES];
        memcpy(before, b->http.responses, sizeof before);
        memset(b->frames, 0, sizeof b->frames);
        for (int k = 0; k < 10 && m->fields[k] != NULL; k += 2)
            n += field(fields + n, m->fields[k], m->fields[k + 1]);
        frame(&w, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM,
              (uint32_t)(2 * i + 1), fields, n);
        print_message("%s\n", m->what);
        assert_true(say(b, &w));
        assert_int_equal(b->frames[NGHTTP2_RST_STREAM], m->status == 0);
        assert_int_equal(b->frames[NGHTTP2_HEADERS], m->status != 0);
        if (m->status != 0)
            assert_int_equal(b->http.responses[m->status / 100 - 1],
                             before[m->status / 100 - 1] + 1);
        else
            assert_int_equal(b->last_reset, NGHTTP2_PROTOCOL_ERROR);
    }
}

static void test_more_or_less_data_than_said(void **state)
{
    struct bench *b = *state;
    static struct wire w;
    for (int more = 0; more < 2; more++) {
        if (more == 0)
            say_hello(b, &w);
        uint8_t fields[256];
        size_t n = field(fields, ":method", "POST");
        n += field(fields + n, ":scheme", "http");
        n += field(fields + n, ":path", "/size");
        n += field(fields + n, ":authority", "x");
        n += field(fields + n, "content-length", "4");
        b->frames[NGHTTP2_RST_STREAM] = 0;
        frame(&w, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, (uint32_t)(2 * more + 1), fields, n);
        frame(&w, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, (uint32_t)(2 * more + 1), "12345",
              more ? 5 : 3);
        assert_true(say(b, &w));
        assert_int_equal(b->frames[NGHTTP2_RST_STREAM], 1);
        assert_int_equal(b->last_reset, NGHTTP2_PROTOCOL_ERROR);
        assert_int_equal(b->frames[NGHTTP2_HEADERS], 0);
    }
}

static void test_trailers_are_ignored(void **state)
{
    struct bench *b = *state;
    static struct wire w;
    uint8_t fields[64];
    say_hello(b, &w);
    request(&w, 1, "/size", 0);
    frame(&w, NGHTTP2_DATA, 0, 1, "abc", 3);
    assert_true(say(b, &w));
    assert_int_equal(b->frames[NGHTTP2_HEADERS], 0);
    frame(&w, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 1, fields,
          field(fields, "checksum", "none"));
    assert_true(say(b, &w));
    assert_int_equal(b->frames[NGHTTP2_HEADERS], 1);
    assert_int_equal(b->http.responses[1], 1);
    assert_int_equal(b->frames[NGHTTP2_RST_STREAM], 0);
}

static void test_large_heads_are_431(void **state)
{
    struct bench *b = *state;
    start_client(b, false);
    static char value[17000];
    memset(value, 'v', sizeof value - 1);
    nghttp2_nv head[70] = {nv(":method", "GET"), nv(":scheme", "http"), nv(":authority", "x"),
                           nv(":path", "/early"), nv("large", value)};
    int32_t id = nghttp2_submit_request(b->client, NULL, head, 5, NULL, b);
    run(b);
    assert_int_equal(reply_of(b, id)->status, 431);
    for (int i = 4; i < 70; i++)
        head[i] = nv("a", "b");
    id = nghttp2_submit_request(b->client, NULL, head, 70, NULL, b);
    run(b);
    assert_int_equal(reply_of(b, id)->status, 431);
    id = nghttp2_submit_request(b->client, NULL, head, 68, NULL, b);
    run(b);
    assert_int_equal(reply_of(b, id)->status, 200);
}

/* ---- peers that mean no good ---- */

/* Each adds its next frames to the wire; how many. */
typedef int attack_fn(struct wire *w, uint32_t step);

static int rapid_reset(struct wire *w, uint32_t step)
{
    uint32_t id = 2 * step + 1;
    request(w, id, "/wait", NGHTTP2_FLAG_END_STREAM);
    frame(w, NGHTTP2_RST_STREAM, 0, id, "\0\0\0\x8", 4);
    return 2;
}

/* Makes us reset what is open: by a window that overflows. */
static int provoked_reset(struct wire *w, uint32_t step)
{
    uint32_t id = 2 * step + 1;
    request(w, id, "/wait", NGHTTP2_FLAG_END_STREAM);
    frame(w, NGHTTP2_WINDOW_UPDATE, 0, id, "\x7f\xff\xff\xff", 4);
    return 2;
}

/* The same by other means: an increment of nothing, a frame for a stream that is half closed. */
static int provoked_by_zero(struct wire *w, uint32_t step)
{
    uint32_t id = 2 * step + 1;
    request(w, id, "/wait", NGHTTP2_FLAG_END_STREAM);
    frame(w, NGHTTP2_WINDOW_UPDATE, 0, id, "\0\0\0\0", 4);
    return 2;
}

static int provoked_by_data(struct wire *w, uint32_t step)
{
    uint32_t id = 2 * step + 1;
    request(w, id, "/wait", NGHTTP2_FLAG_END_STREAM);
    frame(w, NGHTTP2_DATA, 0, id, "x", 1);
    return 2;
}

static int malformed_requests(struct wire *w, uint32_t step)
{
    frame(w, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 2 * step + 1,
          "\x82", 1);
    return 1;
}

static int too_many_streams(struct wire *w, uint32_t step)
{
    request(w, 2 * step + 1, "/wait", NGHTTP2_FLAG_END_STREAM);
    return 1;
}

static int empty_data(struct wire *w, uint32_t step)
{
    if (step == 0)
        request(w, 1, "/wait", 0);
    frame(w, NGHTTP2_DATA, 0, 1, NULL, 0);
    return 1;
}

static int padded_data(struct wire *w, uint32_t step)
{
    if (step == 0)
        request(w, 1, "/wait", 0);
    frame(w, NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, 1, "\x3\0\0\0", 4);
    return 1;
}

static int pings(struct wire *w, uint32_t step)
{
    frame(w, NGHTTP2_PING, 0, 0, "12345678", 8);
    return 1;
}

static int settings(struct wire *w, uint32_t step)
{
    frame(w, NGHTTP2_SETTINGS, 0, 0, "\0\x4\0\0\x10\0", 6);
    return 1;
}

static int settings_acks(struct wire *w, uint32_t step)
{
    frame(w, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, NULL, 0);
    return 1;
}

static int priorities(struct wire *w, uint32_t step)
{
    frame(w, NGHTTP2_PRIORITY, 0, 2 * step + 1, "\0\0\0\0\x10", 5);
    return 1;
}

static int window_updates(struct wire *w, uint32_t step)
{
    frame(w, NGHTTP2_WINDOW_UPDATE, 0, 0, "\0\0\0\x1", 4);
    return 1;
}

static int unknown_frames(struct wire *w, uint32_t step)
{
    frame(w, 0xbe, 0, 0, "what", 4);
    return 1;
}

static int continuations(struct wire *w, uint32_t step)
{
    uint8_t fields[256];
    size_t n = field(fields, "name", "value");
    if (step == 0)
        frame(w, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, 1, fields,
              request_fields(fields, "/early"));
    frame(w, NGHTTP2_CONTINUATION, 0, 1, fields, n);
    return 1;
}

static int empty_continuations(struct wire *w, uint32_t step)
{
    uint8_t fields[256];
    if (step == 0)
        frame(w, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, 1, fields,
              request_fields(fields, "/early"));
    frame(w, NGHTTP2_CONTINUATION, 0, 1, NULL, 0);
    return 1;
}

/* One field of 4,000 bytes that goes into the table, and then 4,000 references to it: 16 MB. */
static int header_bomb(struct wire *w, uint32_t step)
{
    static uint8_t fields[16000];
    size_t n = request_fields(fields, "/early");
    if (step == 0) {
        static const uint8_t literal[] = {0x40, 1, 'b', 0x7f, 0xa1, 0x1e}; /* 127 + 3873 = 4000 */
        memcpy(fields + n, literal, sizeof literal);
        memset(fields + n + sizeof literal, 'b', 4000);
        n += sizeof literal + 4000;
    }
    memset(fields + n, 0x80 | 62, 4000); /* the first of the dynamic table */
    frame(w, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 2 * step + 1,
          fields, n + 4000);
    return 1;
}

static int trailer_bomb(struct wire *w, uint32_t step)
{
    static uint8_t fields[16000];
    size_t n = 0;
    if (step == 0) {
        static const uint8_t literal[] = {0x40, 1, 'b', 0x7f, 0xa1, 0x1e};
        memcpy(fields, literal, sizeof literal);
        memset(fields + sizeof literal, 'b', 4000);
        n = sizeof literal + 4000;
    }
    memset(fields + n, 0x80 | 62, 4000);
    request(w, 2 * step + 1, "/wait", 0);
    frame(w, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 2 * step + 1,
          fields, n + 4000);
    return 2;
}

static int oversized_frames(struct wire *w, uint32_t step)
{
    static char payload[16385];
    frame(w, NGHTTP2_PING, 0, 0, payload, sizeof payload);
    return 1;
}

static int data_beyond_the_window(struct wire *w, uint32_t step)
{
    static char payload[16384];
    if (step == 0)
        request(w, 1, "/wait", 0);
    frame(w, NGHTTP2_DATA, 0, 1, payload, sizeof payload);
    return 1;
}

static int data_on_no_stream(struct wire *w, uint32_t step)
{
    frame(w, NGHTTP2_DATA, 0, 9, "x", 1);
    return 1;
}

static int pushes(struct wire *w, uint32_t step)
{
    frame(w, NGHTTP2_PUSH_PROMISE, NGHTTP2_FLAG_END_HEADERS, 1, "\0\0\0\x2\x82", 5);
    return 1;
}

static const struct {
    const char *name;
    attack_fn *next;
} attacks[] = {
    {"rapid reset", rapid_reset},
    {"resets provoked by window overflow", provoked_reset},
    {"resets provoked by increments of zero", provoked_by_zero},
    {"resets provoked by late data", provoked_by_data},
    {"malformed requests", malformed_requests},
    {"streams over the limit", too_many_streams},
    {"empty DATA", empty_data},
    {"DATA of padding alone", padded_data},
    {"PING flood", pings},
    {"SETTINGS flood", settings},
    {"SETTINGS acknowledged for nothing", settings_acks},
    {"PRIORITY flood", priorities},
    {"WINDOW_UPDATE flood", window_updates},
    {"frames of no known kind", unknown_frames},
    {"CONTINUATION flood", continuations},
    {"empty CONTINUATION flood", empty_continuations},
    {"header bombs", header_bomb},
    {"header bombs in trailers", trailer_bomb},
    {"oversized frames", oversized_frames},
    {"DATA beyond the window", data_beyond_the_window},
    {"DATA on a stream that was never opened", data_on_no_stream},
    {"PUSH_PROMISE from a client", pushes},
};

#define FRAMES_MAX 1000
#define BYTES_MAX  (1 << 20)

static void test_attacks_end_the_connection(void **state)
{
    struct bench *b = *state;
    static struct wire w;
    for (size_t i = 0; i < sizeof attacks / sizeof attacks[0]; i++) {
        int frames = 0;
        size_t bytes = 0;
        b->goaways = 0;
        memset(b->frames, 0, sizeof b->frames);
        say_hello(b, &w);
        for (uint32_t step = 0; !b->peer_closed && b->goaways == 0; step++) {
            frames += attacks[i].next(&w, step);
            bytes += w.n;
            if (frames > FRAMES_MAX || bytes > BYTES_MAX)
                fail_msg("%s: still open after %d frames, %zu bytes", attacks[i].name, frames,
                         bytes);
            say(b, &w);
        }
        print_message("%-40s %4d frames, %6zu bytes, GOAWAY %u\n", attacks[i].name, frames, bytes,
                      b->goaway_code);
        while (!b->peer_closed) {
            uv_run(&b->loop.uv, UV_RUN_ONCE);
            hear(b);
        }
        close(b->fd);
        while (b->http.n_connections > 0)
            uv_run(&b->loop.uv, UV_RUN_ONCE);
        assert_int_equal(b->http.inflight_bytes, 0);
        assert_int_equal(b->gone, b->waited);
        b->peer_closed = false;
        b->n_in = 0;
        connect_peer(b);
    }
}

static void test_who_asks_and_does_not_listen(void **state)
{
    /* Pings, and never takes an answer: no more is read from it than it has caused to be kept. */
    struct bench *b = *state;
    static struct wire w;
    b->http.limits.write_timeout_ms = 100;
    memcpy(w.bytes, PREFACE, 24);
    w.n = 24;
    frame(&w, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    assert_int_equal(write(b->fd, w.bytes, w.n), (ssize_t)w.n);
    turn(b);
    w.n = 0;
    pings(&w, 0);
    for (int i = 0; i < 2000; i++)
        if (send(b->fd, w.bytes, w.n, MSG_NOSIGNAL) < 0)
            break;
    uint64_t until = uv_hrtime() + 5000000000u;
    while (b->http.n_connections > 0 && uv_hrtime() < until)
        uv_run(&b->loop.uv, UV_RUN_ONCE);
    assert_int_equal(b->http.n_connections, 0);
}

static void test_half_a_head(void **state)
{
    struct bench *b = *state;
    static struct wire w;
    uint8_t fields[256];
    say_hello(b, &w);
    request(&w, 1, "/later", NGHTTP2_FLAG_END_STREAM);
    frame(&w, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, 3, fields,
          request_fields(fields, "/early"));
    assert_true(say(b, &w));
    uint64_t until = uv_hrtime() + 5000000000u;
    while (!b->peer_closed && uv_hrtime() < until) {
        uv_run(&b->loop.uv, UV_RUN_ONCE);
        hear(b);
    }
    assert_true(b->peer_closed);
    assert_int_equal(b->goaways, 1);
    assert_int_equal(b->gone, 1);
}

static void test_a_preface_and_nothing_more(void **state)
{
    struct bench *b = *state;
    assert_int_equal(write(b->fd, PREFACE, 24), 24);
    uint64_t until = uv_hrtime() + 5000000000u;
    while (!b->peer_closed && uv_hrtime() < until) {
        uv_run(&b->loop.uv, UV_RUN_ONCE);
        hear(b);
    }
    assert_true(b->peer_closed);
}

static void test_something_else_than_settings(void **state)
{
    struct bench *b = *state;
    static struct wire w;
    memcpy(w.bytes, PREFACE, 24);
    w.n = 24;
    frame(&w, NGHTTP2_PING, 0, 0, "12345678", 8);
    say(b, &w);
    for (int i = 0; i < 5; i++)
        turn(b);
    hear(b);
    assert_true(b->peer_closed);
    assert_int_equal(b->goaway_code, NGHTTP2_PROTOCOL_ERROR);
}

static void test_the_guard(void **state)
{
    struct h2_guard g;
    h2_guard_init(&g, 1000);
    for (int i = 0; i < H2_GUARD_BURST; i++)
        assert_true(h2_guard_pay(&g, 1000, 1));
    assert_false(h2_guard_pay(&g, 1000, 1));
    assert_true(h2_guard_pay(&g, 1010, 1)); /* a hundred a second */
    assert_false(h2_guard_pay(&g, 1019, 1));
    h2_guard_gain(&g, 2);
    assert_true(h2_guard_pay(&g, 1019, 2));
    assert_true(h2_guard_pay(&g, 1000000000, H2_GUARD_BURST)); /* and never more than the burst */
    assert_false(h2_guard_pay(&g, 1000000000, 1));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_requests_and_answers),
        TEST(test_head_of_a_stream),
        TEST(test_the_preface_in_pieces),
        TEST(test_both_versions_on_one_port),
        TEST(test_many_streams),
        TEST(test_duplex_echo),
        TEST(test_a_stalled_stream_holds_nobody),
        TEST(test_streams_share_the_connection),
        TEST(test_an_unread_body_is_bounded),
        TEST(test_bodies_over_the_budget_are_503),
        TEST(test_an_answer_before_the_body),
        TEST(test_expect_continue),
        TEST(test_slow_bodies_are_408),
        TEST(test_abort_is_seen),
        TEST(test_a_reset_cancels_the_work),
        TEST(test_drain),
        TEST(test_idle_connections_are_told_to_go),
        TEST(test_a_window_that_stays_shut),
        TEST(test_a_peer_that_takes_nothing),
        TEST(test_a_careful_reader_is_no_attacker),
        TEST(test_malformed_requests),
        TEST(test_more_or_less_data_than_said),
        TEST(test_trailers_are_ignored),
        TEST(test_large_heads_are_431),
        TEST(test_attacks_end_the_connection),
        TEST(test_who_asks_and_does_not_listen),
        TEST(test_half_a_head),
        TEST(test_a_preface_and_nothing_more),
        TEST(test_something_else_than_settings),
        cmocka_unit_test(test_the_guard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
