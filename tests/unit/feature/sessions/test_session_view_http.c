// SPDX-License-Identifier: Apache-2.0
/* The streams of sessions over HTTP, as a worker and as others see them. */
#include "base/b64.h"
#include "base/mem.h"
#include "feature/sessions/session_seal.h"
#include "feature/sessions/session_view.h"
#include "stream/subscriber.h"
#include "http/http.h"
#include "http/surface.h"
#include "unit/http/callers.h"
#include "net/loop.h"
#include "store/mem/mem_store.h"
#include "store/store.h"
#include "stream/durable.h"
#include "telemetry/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define TYPE     "application/x-tidemark-session"
#define PEERS    4
#define WORKER   "\r\nAuthorization: Bearer worker-token"

struct peer {
    struct site *site;
    int fd;
    struct buf got; /* NUL-terminated */
};

struct site {
    struct loop loop;
    struct http http;
    struct trace trace;
    struct guard *guard;
    struct store *store, *view;
    struct feeds feeds, view_feeds;
    struct durable durable;
    struct stream_space space;
    struct session_keys *keys;
    bool held;
    uint64_t ordinals[2]; /* of the next record, by direction */
    struct buf contents;  /* that reached the engine */
    uv_timer_t alive;
    struct peer peers[PEERS];
    size_t n_peers;
};

/* ---- what stands for the engine ---- */

static struct session_keys *give_keys(void *ctx, struct str key)
{
    struct site *s = ctx;
    return s->held ? s->keys : NULL;
}

/* Lets the real store say that all is well, without sealing anything. */
static void take_contents(void *ctx, struct str key, struct store_write *w, struct str contents)
{
    struct site *s = ctx;
    buf_put(&s->contents, contents);
    w->data = STR("sealed");
    w->n_events = 1;
    store_write(s->store, w);
}

static const struct session_view_ops view_ops = {.keys = give_keys, .write_out = take_contents};

struct direct_write {
    struct store_write op;
    bool done;
};

static void on_direct(struct store_write *w, int err)
{
    assert_int_equal(err, 0);
    container_of(w, struct direct_write, op)->done = true;
}

static void write_directly(struct site *s, struct store_write op)
{
    struct direct_write d = {.op = op};
    d.op.done = on_direct;
    store_write(s->store, &d.op);
    while (!d.done)
        uv_run(&s->loop.uv, UV_RUN_ONCE);
}

static void create(struct site *s, const char *name, const char *type)
{
    struct stream_config config = {
        .content_type = str_of_cstr(type), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    write_directly(s, (struct store_write){.name = str_of_cstr(name), .create = &config});
}

/* A client's chunk in `in`, or a server chunk in `out`. */
static void put_record(struct site *s, enum session_direction d, struct str content)
{
    struct buf event = {0}, sealed = {0};
    if (d == SESSION_OUT)
        buf_putc(&event, 0);
    buf_put(&event, content);
    session_seal(s->keys, d, s->ordinals[d],
                 d == SESSION_OUT ? SESSION_RECORD_EVENT : SESSION_RECORD_CHUNK, s->ordinals[d],
                 buf_str(&event), &sealed);
    s->ordinals[d]++;
    write_directly(s, (struct store_write){.name = d == SESSION_OUT ? STR("sessions/k/out")
                                                                    : STR("sessions/k/in"),
                                           .data = buf_str(&sealed),
                                           .n_events = 1});
    buf_deinit(&event);
    buf_deinit(&sealed);
}

/* ---- driving ---- */

static void on_alive(uv_timer_t *t)
{
}

static int set_up(void **state)
{
    static const struct str worker = STR_INIT("worker");
    struct site *s = mem_zalloc(sizeof *s);
    uint8_t secret[SESSION_SECRET_SIZE] = {1}, salt[SESSION_SALT_SIZE] = {2};
    assert_int_equal(loop_init(&s->loop), 0);
    s->trace = (struct trace){.to = stderr, .level = TRACE_ERROR};
    http_init(&s->http, &s->loop, &s->trace,
              &(struct http_limits){.connections = PEERS,
                                    .inflight_bytes = 64 << 20,
                                    .head_timeout_ms = 10000,
                                    .idle_timeout_ms = 10000,
                                    .body_timeout_ms = 10000,
                                    .write_timeout_ms = 10000,
                                    .body_min_bytes = 1});
    s->guard = guard_with_caller(&s->http, STR("worker-token"), STR("w"), &worker, 1);
    s->store = mem_store_new(&s->loop.sched);
    s->view = session_view_new(&s->loop.sched, s->store, &view_ops, s);
    feeds_init(&s->feeds, s->store);
    feeds_init(&s->view_feeds, s->view);
    s->durable = (struct durable){.store = s->store,
                                  .feeds = &s->feeds,
                                  .sched = &s->loop.sched,
                                  .max_append = 1 << 20,
                                  .read_chunk = 1 << 20,
                                  .long_poll_ms = 10000,
                                  .heartbeat_ms = 10000,
                                  .sse_lifetime_ms = 60000};
    s->space = (struct stream_space){.prefix = STR("sessions/"),
                                     .store = s->view,
                                     .feeds = &s->view_feeds,
                                     .takes = STR(SESSION_VIEW_TAKES)};
    durable_add_space(&s->durable, &s->space);
    s->keys = session_keys_new(secret, salt, STR("k"));
    s->held = true;
    http_mount(&s->http, &durable_surface, durable_handle, &s->durable);
    uv_timer_init(&s->loop.uv, &s->alive);
    uv_timer_start(&s->alive, on_alive, 10, 10);
    create(s, "sessions/k/in", TYPE);
    create(s, "sessions/k/out", TYPE);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct site *s = *state;
    http_close_all(&s->http);
    uv_close((uv_handle_t *)&s->alive, NULL);
    uv_run(&s->loop.uv, UV_RUN_DEFAULT);
    assert_int_equal(s->http.n_connections, 0);
    for (size_t i = 0; i < s->n_peers; i++) {
        close(s->peers[i].fd);
        buf_deinit(&s->peers[i].got);
    }
    http_deinit(&s->http);
    feeds_deinit(&s->feeds);
    feeds_deinit(&s->view_feeds);
    store_free(s->view);
    store_free(s->store);
    guard_free(s->guard);
    session_keys_free(s->keys);
    buf_deinit(&s->contents);
    loop_deinit(&s->loop);
    free(s);
    return 0;
}

static struct peer *connect_peer(struct site *s)
{
    int fds[2];
    assert_true(s->n_peers < PEERS);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    struct peer *p = &s->peers[s->n_peers++];
    *p = (struct peer){.site = s, .fd = fds[1]};
    http_accept(&s->http, fds[0], NULL);
    return p;
}

static void hear(struct peer *p)
{
    for (ssize_t n; (n = read(p->fd, buf_reserve(&p->got, 65536), 65535)) > 0;)
        p->got.n += (size_t)n;
    buf_reserve(&p->got, 1);
    p->got.p[p->got.n] = '\0';
}

/* Runs the loop until this has come; fails after seconds. */
static void wait_for(struct peer *p, const char *text)
{
    uint64_t until = uv_hrtime() + UINT64_C(5000000000);
    for (hear(p); memmem(p->got.p, p->got.n, text, strlen(text)) == NULL; hear(p)) {
        if (uv_hrtime() > until)
            fail_msg("\"%s\" did not come; this did: %.2000s", text, p->got.p);
        uv_run(&p->site->loop.uv, UV_RUN_ONCE);
    }
}

static void start(struct peer *p, const char *head, const char *body)
{
    char text[4096];
    int n = snprintf(text, sizeof text, "%s\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                     head, strlen(body), body);
    assert_true(n > 0 && (size_t)n < sizeof text);
    p->got.n = 0;
    assert_int_equal(write(p->fd, text, (size_t)n), n);
    for (int i = 0; i < 5; i++)
        uv_run(&p->site->loop.uv, UV_RUN_NOWAIT);
}

/* head: request line and headers, without the end of the last. The answer, and what there is of its
 * body. */
static const char *ask(struct peer *p, const char *head, const char *body)
{
    start(p, head, body);
    wait_for(p, "\r\n\r\n");
    return p->got.p;
}

static int status_of(const char *answer)
{
    assert_memory_equal(answer, "HTTP/1.1 ", 9);
    return atoi(answer + 9);
}

#define assert_has(text, what)     assert_non_null(strstr(text, what))
#define assert_has_not(text, what) assert_null(strstr(text, what))

/* ---- who ---- */

static void test_others_see_nothing(void **state)
{
    struct peer *p = connect_peer(*state);
    static const char *const heads[] = {
        "GET /v1/stream/sessions/k/in HTTP/1.1",
        "GET /v1/stream/sessions%2Fk%2Fin?offset=-1 HTTP/1.1",
        "HEAD /v1/stream/sessions/k/in HTTP/1.1",
        "POST /v1/stream/sessions/k/out HTTP/1.1\r\nContent-Type: application/json",
        "PUT /v1/stream/sessions/new HTTP/1.1",
        "DELETE /v1/stream/sessions/k/in HTTP/1.1",
        "GET /v1/stream/sessions/k/in HTTP/1.1\r\nAuthorization: Bearer other-token",
    };
    for (size_t i = 0; i < COUNT(heads); i++)
        if (status_of(ask(p, heads[i], "")) != 404)
            fail_msg("%s: %.100s", heads[i], p->got.p);
    assert_has(ask(p, "GET /v1/stream/ HTTP/1.1", ""), "{\"streams\":[],");
    assert_int_equal(status_of(ask(p,
                                   "PUT /v1/stream/copy HTTP/1.1\r\n"
                                   "Stream-Forked-From: /v1/stream/sessions/k/in",
                                   "")),
                     400);
}

static void test_no_sessions(void **state)
{
    struct site *s = *state;
    struct peer *p = connect_peer(s);
    s->durable.spaces = NULL;
    assert_int_equal(status_of(ask(p, "GET /v1/stream/sessions/k/in HTTP/1.1" WORKER, "")), 404);
    assert_int_equal(status_of(ask(p, "PUT /v1/stream/sessions/new HTTP/1.1" WORKER, "")), 404);
    assert_has(ask(p, "GET /v1/stream/ HTTP/1.1" WORKER, ""), TYPE);
}

static void test_worker_reads(void **state)
{
    struct site *s = *state;
    struct peer *p = connect_peer(s);
    put_record(s, SESSION_IN, STR("hello"));
    put_record(s, SESSION_IN, STR("again"));
    const char *a = ask(p, "GET /v1/stream/sessions/k/in?offset=-1 HTTP/1.1" WORKER, "");
    assert_int_equal(status_of(a), 200);
    assert_has(a, "\r\n\r\n[{\"type\":\"chunk\",\"seqno\":0,\"data\":\"aGVsbG8=\"},"
                  "{\"type\":\"chunk\",\"seqno\":1,\"data\":\"YWdhaW4=\"}]");
    assert_has(a, "Content-Type: application/json\r\n");
    assert_has(a, "Stream-Up-To-Date: true\r\n");
    assert_has(a, "Cache-Control: no-store\r\n"); /* it is in the clear */
    assert_has_not(a, "ETag");
    a = ask(p, "HEAD /v1/stream/sessions/k/in HTTP/1.1" WORKER, "");
    assert_has(a, "Content-Type: application/json\r\n");
    a = ask(p, "GET /v1/stream/?prefix=sessions/ HTTP/1.1" WORKER, "");
    assert_has(a, "{\"name\":\"sessions/k/in\",\"contentType\":\"application/json\",");
    assert_has_not(a, TYPE);
}

/* ---- without the key ---- */

static void assert_key_absent(const char *a)
{
    assert_int_equal(status_of(a), 503);
    assert_has(a, "Retry-After: 1\r\n");
    assert_has(a, "\r\n\r\n{\"error\":{\"code\":\"key-absent\",\"message\":\"");
    assert_has(a, "client must come back");
}

static void test_key_absent(void **state)
{
    struct site *s = *state;
    struct peer *p = connect_peer(s);
    put_record(s, SESSION_IN, STR("hello"));
    s->held = false;
    assert_key_absent(ask(p, "GET /v1/stream/sessions/k/in HTTP/1.1" WORKER, ""));
    assert_key_absent(
        ask(p, "GET /v1/stream/sessions/k/in?offset=-1&live=sse HTTP/1.1" WORKER, ""));
    assert_key_absent(ask(
        p, "POST /v1/stream/sessions/k/out HTTP/1.1" WORKER "\r\nContent-Type: application/json",
        "{\"text\":\"a\"}"));
    /* A reader at the tail waits as ever, and is told when something comes that it cannot have. */
    start(p, "GET /v1/stream/sessions/k/in?offset=now&live=long-poll HTTP/1.1" WORKER, "");
    hear(p);
    assert_int_equal(p->got.n, 0);
    put_record(s, SESSION_IN, STR("more"));
    wait_for(p, "\r\n\r\n");
    assert_key_absent(p->got.p);
}

/* ---- writing ---- */

static void test_worker_writes(void **state)
{
    struct site *s = *state;
    struct peer *p = connect_peer(s);
#define POST "POST /v1/stream/sessions/k/out HTTP/1.1" WORKER "\r\nContent-Type: application/json"
    assert_int_equal(status_of(ask(p, POST, "[{\"text\":\"a\"},{\"data\":\"aGk=\"}]")), 204);
    assert_true(str_eq(buf_str(&s->contents), STR("\1\1\0\0\0a\0\2\0\0\0hi")));
    s->contents.n = 0;
    const char *a = ask(p, POST "\r\nProducer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: 0",
                        "{\"text\":\"b\"}");
    assert_int_equal(status_of(a), 200);
    a = ask(p, POST "\r\nProducer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: 0",
            "{\"text\":\"b\"}");
    assert_int_equal(status_of(a), 204);
    a = ask(p, POST "\r\nStream-Closed: true", "");
    assert_int_equal(status_of(a), 204);
    assert_has(a, "Stream-Closed: true\r\n");
    assert_int_equal(status_of(ask(p, POST, "{\"text\":\"b\"}")), 409);
}

static void test_worker_is_refused(void **state)
{
    struct site *s = *state;
    struct peer *p = connect_peer(s);
    const char *a = ask(p, POST, "{\"text\":1}");
    assert_int_equal(status_of(a), 400);
    assert_has(a,
               "{\"error\":{\"code\":\"SYNTAX\",\"message\":\"a session takes events of the form");
    a = ask(p, POST, "{\"text\":");
    assert_int_equal(status_of(a), 400);
    assert_has(a, "\"code\":\"JSON\"");
    static const struct {
        const char *head;
        int status;
    } rows[] = {
        {"POST /v1/stream/sessions/k/in HTTP/1.1" WORKER "\r\nContent-Type: application/json", 403},
        {"PUT /v1/stream/sessions/k/out HTTP/1.1" WORKER "\r\nContent-Type: application/json", 403},
        {"PUT /v1/stream/sessions/new/out HTTP/1.1" WORKER, 403},
        {"DELETE /v1/stream/sessions/k/out HTTP/1.1" WORKER, 403},
        {"GET /v1/stream/sessions/k HTTP/1.1" WORKER, 404},
        {"GET /v1/stream/sessions/other/in HTTP/1.1" WORKER, 404},
        {"PUT /v1/stream/copy HTTP/1.1" WORKER "\r\nStream-Forked-From: sessions/k/in", 400},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (status_of(ask(p, rows[i].head, "")) != rows[i].status)
            fail_msg("%s: %.200s", rows[i].head, p->got.p);
    assert_int_equal(s->contents.n, 0);
}

/* ---- live ---- */

/* The body of a chunked response, as far as it has come. */
static struct buf dechunk(const struct peer *p)
{
    struct buf out = {0};
    const char *at = strstr(p->got.p, "\r\n\r\n"), *end = p->got.p + p->got.n;
    assert_non_null(at);
    for (at += 4; at < end;) {
        char *after;
        size_t n = strtoul(at, &after, 16);
        if (n == 0 || (size_t)(end - after) < n + 4)
            break;
        buf_put(&out, str_of(after + 2, n));
        at = after + 2 + n + 2;
    }
    buf_putc(&out, '\0');
    return out;
}

/* Events of any size arrive whole: those that fit a batch sealed but not opened, and those that are
 * written piece by piece. */
static void test_sse_sizes(void **state)
{
    static const size_t sizes[] = {10, 40000, 48000, 49500, 65000, 65494, 65495, 300000};
    struct site *s = *state;
    struct peer *p = connect_peer(s);
    char *content = mem_alloc(300000);
    memset(content, 'x', 300000);
    for (size_t i = 0; i < COUNT(sizes); i++)
        put_record(s, SESSION_OUT, str_of(content, sizes[i]));
    start(p, "GET /v1/stream/sessions/k/out?offset=-1&live=sse HTTP/1.1" WORKER, "");
    wait_for(p, "\"upToDate\":true}\n\n");
    put_record(s, SESSION_OUT, STR("live"));
    wait_for(p, "{\"id\":\"9\",\"data\":\"bGl2ZQ==\"}]\n\n");
    struct buf body = dechunk(p), right = {0};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        right.n = 0;
        buf_printf(&right, "{\"id\":\"%zu\",\"data\":\"", i + 1);
        b64_put(&right, str_of(content, sizes[i]));
        buf_put(&right, STR("\"}"));
        const char *at = memmem(body.p, body.n, right.p, right.n);
        if (at == NULL)
            fail_msg("the event of %zu bytes did not come whole", sizes[i]);
        assert_true(at[right.n] == ',' || at[right.n] == ']');
    }
    buf_deinit(&body);
    buf_deinit(&right);
    free(content);
}

static void test_long_poll(void **state)
{
    struct site *s = *state;
    struct peer *p = connect_peer(s);
    start(p, "GET /v1/stream/sessions/k/in?offset=-1&live=long-poll HTTP/1.1" WORKER, "");
    hear(p);
    assert_int_equal(p->got.n, 0);
    put_record(s, SESSION_IN, STR("hello"));
    wait_for(p, "]");
    assert_int_equal(status_of(p->got.p), 200);
    assert_has(p->got.p, "[{\"type\":\"chunk\",\"seqno\":0,\"data\":\"aGVsbG8=\"}]");
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_others_see_nothing), TEST(test_no_sessions),   TEST(test_worker_reads),
        TEST(test_key_absent),         TEST(test_worker_writes), TEST(test_worker_is_refused),
        TEST(test_sse_sizes),          TEST(test_long_poll),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
