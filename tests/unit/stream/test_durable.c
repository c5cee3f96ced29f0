// SPDX-License-Identifier: Apache-2.0
/* The streams protocol as bytes: a server's parts on a loop, and peers that speak HTTP by hand. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "fault/simlane.h"
#include "stream/subscriber.h"
#include "http/http.h"
#include "model/delay.c"
#include "model/seeds.h"
#include "net/loop.h"
#include "store/mem/mem_store.h"
#include "store/store.h"
#include "stream/durable.h"
#include "telemetry/trace.h"

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

#define PEERS_MAX 64

struct peer {
    struct site *site;
    int fd;
    struct buf got; /* NUL-terminated */
    bool closed;
};

struct site {
    struct loop loop;
    struct http http;
    struct trace trace;
    struct store *store;
    bool delayed; /* by model/delay.h */
    struct feeds feeds;
    struct durable durable;
    uv_timer_t alive; /* a loop without active handles would not turn */
    struct peer peers[PEERS_MAX];
    size_t n_peers;
};

/* ---- driving ---- */

static void on_alive(uv_timer_t *t)
{
}

static int set_up(void **state)
{
    struct site *s = mem_zalloc(sizeof *s);
    assert_int_equal(loop_init(&s->loop), 0);
    s->trace = (struct trace){.to = stderr, .level = TRACE_ERROR};
    http_init(&s->http, &s->loop, &s->trace,
              &(struct http_limits){.connections = PEERS_MAX,
                                    .inflight_bytes = 256 << 20,
                                    .head_timeout_ms = 10000,
                                    .idle_timeout_ms = 10000,
                                    .body_timeout_ms = 10000,
                                    .write_timeout_ms = 10000,
                                    .body_min_bytes = 1});
    s->store = mem_store_new(&s->loop.sched);
    feeds_init(&s->feeds, s->store);
    s->durable = (struct durable){.store = s->store,
                                  .feeds = &s->feeds,
                                  .sched = &s->loop.sched,
                                  .max_append = 64 << 20,
                                  .read_chunk = 1 << 20,
                                  .long_poll_ms = 10000,
                                  .heartbeat_ms = 10000,
                                  .sse_lifetime_ms = 60000};
    http_mount(&s->http, &durable_surface, durable_handle, &s->durable);
    uv_timer_init(&s->loop.uv, &s->alive);
    uv_timer_start(&s->alive, on_alive, 10, 10);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct site *s = *state;
    http_close_all(&s->http);
    while (s->delayed && delay_pending(s->store) > 0)
        uv_run(&s->loop.uv, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&s->alive, NULL);
    uv_run(&s->loop.uv, UV_RUN_DEFAULT);
    assert_int_equal(s->http.n_connections, 0);
    assert_int_equal(s->http.inflight_bytes, 0);
    for (size_t i = 0; i < s->n_peers; i++) {
        close(s->peers[i].fd);
        buf_deinit(&s->peers[i].got);
    }
    http_deinit(&s->http);
    feeds_deinit(&s->feeds);
    store_free(s->store);
    loop_deinit(&s->loop);
    free(s);
    return 0;
}

static struct peer *connect_peer(struct site *s)
{
    int fds[2];
    assert_true(s->n_peers < PEERS_MAX);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    struct peer *p = &s->peers[s->n_peers++];
    *p = (struct peer){.site = s, .fd = fds[1]};
    http_accept(&s->http, fds[0], NULL);
    return p;
}

static void turns(struct site *s, int n)
{
    for (int i = 0; i < n; i++)
        uv_run(&s->loop.uv, UV_RUN_NOWAIT);
}

static void hear(struct peer *p)
{
    for (;;) {
        ssize_t n = read(p->fd, buf_reserve(&p->got, 65536), 65535);
        if (n <= 0) {
            p->closed = p->closed || n == 0;
            break;
        }
        p->got.n += (size_t)n;
    }
    p->got.p[p->got.n] = '\0';
}

static void say(struct peer *p, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = write(p->fd, bytes, n);
        if (sent > 0) {
            bytes += sent;
            n -= (size_t)sent;
        }
        turns(p->site, 1);
    }
    turns(p->site, 3);
}

/* Runs the loop until the peer has got this text. Gives up after seconds, and then fails. */
static void wait_for(struct peer *p, const char *text)
{
    uint64_t until = uv_hrtime() + UINT64_C(5000000000);
    for (hear(p); memmem(p->got.p, p->got.n, text, strlen(text)) == NULL; hear(p)) {
        if (uv_hrtime() > until)
            fail_msg("\"%s\" did not come; this did: %.2000s", text, p->got.p);
        uv_run(&p->site->loop.uv, UV_RUN_ONCE);
    }
}

static void forget(struct peer *p)
{
    p->got.n = 0;
}

/* One request with a body of n bytes; its answer's head, and what there is of its body. */
static const char *ask_n(struct peer *p, const char *head, const void *body, size_t n)
{
    char text[8192];
    int length = snprintf(text, sizeof text, "%s\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n",
                          head, n);
    assert_true(length > 0 && (size_t)length < sizeof text);
    forget(p);
    say(p, text, (size_t)length);
    say(p, body, n);
    wait_for(p, "\r\n\r\n");
    return p->got.p;
}

/* head: request line and headers, without the end of its last line. */
static const char *ask(struct peer *p, const char *head, const char *body)
{
    return ask_n(p, head, body, strlen(body));
}

static int status_of(const char *answer)
{
    assert_memory_equal(answer, "HTTP/1.1 ", 9);
    return atoi(answer + 9);
}

#define assert_has(text, what)     assert_non_null(strstr(text, what))
#define assert_has_not(text, what) assert_null(strstr(text, what))

static void create(struct peer *p, const char *name, const char *type)
{
    char head[1024];
    snprintf(head, sizeof head, "PUT /v1/stream/%s HTTP/1.1\r\nContent-Type: %s", name, type);
    assert_int_equal(status_of(ask(p, head, "")), 201);
}

static void append_n(struct peer *p, const char *name, const char *type, const void *data, size_t n)
{
    char head[1024];
    snprintf(head, sizeof head, "POST /v1/stream/%s HTTP/1.1\r\nContent-Type: %s", name, type);
    assert_int_equal(status_of(ask_n(p, head, data, n)), 204);
}

static void append(struct peer *p, const char *name, const char *type, const char *data)
{
    append_n(p, name, type, data, strlen(data));
}

/* Starts a request without a body and does not wait. */
static void start(struct peer *p, const char *line)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "%s\r\nHost: localhost\r\n\r\n", line);
    forget(p);
    say(p, text, (size_t)n);
    hear(p);
}

/* ---- reading what came ---- */

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
        assert_memory_equal(after + 2 + n, "\r\n", 2);
        at = after + 2 + n + 2;
    }
    buf_putc(&out, '\0');
    out.n--;
    return out;
}

/* What a reader of SSE makes of it: the data events' data, one after the other. */
struct heard {
    struct buf data;
    int n_data, n_control;
    char last_control[256];
};

static void heard_deinit(struct heard *h)
{
    buf_deinit(&h->data);
}

static void take_event(struct heard *h, const char *type, const struct buf *data)
{
    if (strcmp(type, "data") == 0) {
        h->n_data++;
        buf_put(&h->data, str_of(data->p, data->n - 1)); /* without the last line's end */
    } else {
        assert_string_equal(type, "control");
        h->n_control++;
        snprintf(h->last_control, sizeof h->last_control, "%.*s", (int)data->n - 1, data->p);
    }
}

static struct heard parse_sse(const struct peer *p)
{
    struct buf body = dechunk(p), data = {0};
    struct heard h = {0};
    char type[16] = "";
    const char *stop = body.p + body.n;
    for (char *line = body.p, *end; (end = memchr(line, '\n', (size_t)(stop - line))) != NULL;
         line = end + 1) {
        *end = '\0';
        assert_int_equal(strlen(line), end - line);
        assert_null(strchr(line, '\r'));
        if (*line == '\0' && data.n > 0)
            take_event(&h, type, &data);
        if (*line == '\0')
            data.n = 0;
        if (strncmp(line, "event: ", 7) == 0)
            snprintf(type, sizeof type, "%s", line + 7);
        if (strncmp(line, "data:", 5) == 0) {
            char *value = line + 5 + (line[5] == ' ');
            buf_put(&data, str_of(value, strlen(value)));
            buf_putc(&data, '\n');
        }
    }
    buf_putc(&h.data, '\0');
    h.data.n--;
    buf_deinit(&body);
    buf_deinit(&data);
    return h;
}

static void assert_heard(const struct peer *p, const char *data)
{
    struct heard h = parse_sse(p);
    assert_string_equal(h.data.p, data);
    heard_deinit(&h);
}

/* Bytes in use, by the sanitizer's account where there is one. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t allocated(void)
{
    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* ---- names ---- */

static void test_names(void **state)
{
    struct peer *p = connect_peer(*state);
    static const struct {
        const char *path;
        int status;
    } rows[] = {
        {"/v1/stream/plain", 201},
        {"/v1/stream/a/b", 201},
        {"/v1/stream/a%2Fb", 200}, /* the same */
        {"/v1/stream/a%2fb", 200},
        {"/v1/stream/%61/b", 200},
        {"/v1/stream/a/b/", 201}, /* another */
        {"/v1/stream/..", 201},
        {"/v1/stream/%2e%2E", 200},
        {"/v1/stream/a/../b", 201},
        {"/v1/stream/%2F", 201},
        {"/v1/stream//", 200},
        {"/v1/stream/%E2%82%AC", 201},
        {"/v1/stream/a%20b", 201},
        {"/v1/stream/a+b", 201}, /* a plus is a plus */
        {"/v1/stream/__dsx", 201},
        {"/v1/stream/__ds", 400},
        {"/v1/stream/__ds/", 400},
        {"/v1/stream/__ds/x", 400},
        {"/v1/stream/__ds%2Fx", 400},
        {"/v1/stream/%5F_ds/x", 400},
        {"/v1/stream/%5f%5f%64%73%2f", 400},
        {"/v1/stream/%00", 400},
        {"/v1/stream/a%00b", 400},
        {"/v1/stream/a%0Ab", 400},
        {"/v1/stream/a%7Fb", 400},
        {"/v1/stream/a%2", 400},
        {"/v1/stream/a%zz", 400},
        {"/v1/stream/%FF", 400},
        {"/v1/stream/%C0%AF", 400}, /* an overlong slash */
        {"/v1/stream/%ED%A0%80", 400},
        {"/v1/stream/", 405},
        {"/v1/stream", 404},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char head[256];
        snprintf(head, sizeof head, "PUT %s HTTP/1.1", rows[i].path);
        int status = status_of(ask(p, head, ""));
        if (status != rows[i].status)
            fail_msg("PUT %s: %d", rows[i].path, status);
    }
}

static void test_longest_name(void **state)
{
    struct peer *p = connect_peer(*state);
    char head[2048] = "PUT /v1/stream/";
    for (int i = 0; i < STORE_NAME_MAX; i++)
        strcat(head, "%6e");
    strcat(head, " HTTP/1.1");
    assert_int_equal(status_of(ask(p, head, "")), 201);
    snprintf(head, sizeof head, "PUT /v1/stream/%0*d HTTP/1.1", STORE_NAME_MAX + 1, 7);
    assert_int_equal(status_of(ask(p, head, "")), 400);
}

static void test_location(void **state)
{
    struct site *s = *state;
    struct peer *p = connect_peer(s);
    assert_has(ask(p, "PUT /v1/stream/a%2Fb HTTP/1.1", ""),
               "\r\nLocation: http://localhost/v1/stream/a%2Fb\r\n");
    assert_has(ask(p, "PUT http://192.0.2.1:99/v1/stream/c?x=y HTTP/1.1", ""),
               "\r\nLocation: http://192.0.2.1:99/v1/stream/c\r\n");
    s->durable.public_url = STR("https://public");
    assert_has(ask(p, "PUT /v1/stream/d HTTP/1.1", ""),
               "\r\nLocation: https://public/v1/stream/d\r\n");
}

/* ---- reads ---- */

static void test_partial_read_is_no_end(void **state)
{
    struct site *s = *state;
    struct peer *p = connect_peer(s);
    s->durable.read_chunk = 10;
    create(p, "s", "text/plain");
    append(p, "s", "text/plain", "0123456789");
    assert_int_equal(status_of(ask(p,
                                   "POST /v1/stream/s HTTP/1.1\r\nContent-Type: text/plain\r\n"
                                   "Stream-Closed: true",
                                   "abcdefghij")),
                     204);
    const char *answer = ask(p, "GET /v1/stream/s HTTP/1.1", "");
    assert_has(answer, "\r\n\r\n0123456789");
    assert_has(answer, "Stream-Next-Offset: 0000000000000001_0000000000000010\r\n");
    assert_has_not(answer, "Stream-Closed: ");
    assert_has_not(answer, "Stream-Up-To-Date: ");
    assert_has(answer, "ETag: \"1:0:10\"\r\n");
    answer = ask(p, "GET /v1/stream/s?offset=0000000000000001_0000000000000010 HTTP/1.1", "");
    assert_has(answer, "\r\n\r\nabcdefghij");
    assert_has(answer, "Stream-Closed: true\r\n");
    assert_has(answer, "Stream-End-Reason: completed\r\n");
    assert_has(answer, "Stream-Up-To-Date: true\r\n");
    assert_has(answer, "ETag: \"1:10:20:c\"\r\n");
}

static void test_not_modified(void **state)
{
    struct peer *p = connect_peer(*state);
    create(p, "s", "text/plain");
    append(p, "s", "text/plain", "abc");
    const char *again = "GET /v1/stream/s HTTP/1.1\r\nIf-None-Match: \"x\", W/\"1:0:3\"";
    const char *answer = ask(p, again, "");
    assert_int_equal(status_of(answer), 304);
    assert_has(answer, "ETag: \"1:0:3\"\r\n");
    assert_has(answer, "Stream-Next-Offset: 0000000000000001_0000000000000003\r\n");
    assert_has(answer, "Stream-Up-To-Date: true\r\n");
    assert_has(answer, "Cache-Control: public");
    assert_has_not(answer, "Content-Length");
    /* The same bytes, but now they are the last ones. */
    ask(p, "POST /v1/stream/s HTTP/1.1\r\nStream-Closed: true", "");
    answer = ask(p, again, "");
    assert_int_equal(status_of(answer), 200);
    assert_has(answer, "Stream-Closed: true\r\n");
}

static void test_now_is_not_cached(void **state)
{
    struct peer *p = connect_peer(*state);
    create(p, "s", "application/json");
    append(p, "s", "application/json", "1");
    const char *answer = ask(p, "GET /v1/stream/s?offset=now HTTP/1.1\r\nIf-None-Match: *", "");
    assert_int_equal(status_of(answer), 200);
    assert_has(answer, "\r\n\r\n[]");
    assert_has(answer, "Cache-Control: no-store\r\n");
    assert_has_not(answer, "ETag: ");
}

static void test_what_a_cache_keeps_suits_a_browser(void **state)
{
    /* It may be asked for by a program first and given to a browser of another site later. */
    struct peer *p = connect_peer(*state);
    create(p, "s", "text/plain");
    append(p, "s", "text/plain", "abc");
    const char *answer = ask(p, "GET /v1/stream/s HTTP/1.1", "");
    assert_has(answer, "Cache-Control: public");
    assert_has(answer, "Vary: Origin\r\n");
    assert_has_not(answer, "Access-Control-Allow-Origin");
    answer = ask(p, "GET /v1/stream/s HTTP/1.1\r\nOrigin: http://localhost:1", "");
    const char *first = strstr(answer, "Access-Control-Allow-Origin: http://localhost:1\r\n");
    assert_non_null(first);
    assert_has_not(first + 1, "Access-Control-Allow-Origin"); /* once is enough */
    assert_has(answer, "Access-Control-Expose-Headers: ");
    assert_has(answer, "Vary: Origin\r\n");
    /* And what it asks for wrongly, it must be able to read. */
    answer = ask(p, "GET /v1/stream/none HTTP/1.1\r\nOrigin: http://localhost:1", "");
    assert_int_equal(status_of(answer), 404);
    assert_has(answer, "Access-Control-Allow-Origin: http://localhost:1\r\n");
    answer = ask(p, "GET /v1/stream/s?offset=x HTTP/1.1\r\nOrigin: http://localhost:1", "");
    assert_int_equal(status_of(answer), 400);
    assert_has(answer, "Access-Control-Allow-Origin: http://localhost:1\r\n");
    /* Pages of other sites may not. */
    answer = ask(p, "GET /v1/stream/s HTTP/1.1\r\nOrigin: http://o", "");
    assert_has_not(answer, "Access-Control-Allow-Origin");
}

static void test_last_event_id_is_for_sse(void **state)
{
    /* Elsewhere it would give a cache another answer than the URL asks for. */
    struct peer *p = connect_peer(*state);
    create(p, "s", "text/plain");
    append(p, "s", "text/plain", "abc");
    append(p, "s", "text/plain", "def");
    const char *answer = ask(p,
                             "GET /v1/stream/s HTTP/1.1\r\n"
                             "Last-Event-ID: 0000000000000001_0000000000000003",
                             "");
    assert_has(answer, "\r\n\r\nabcdef");
    start(p, "GET /v1/stream/s?offset=-1&live=sse HTTP/1.1\r\n"
             "Last-Event-ID: 0000000000000001_0000000000000003");
    wait_for(p, "upToDate");
    assert_heard(p, "def");
}

static void test_head_of_a_live_read(void **state)
{
    struct peer *p = connect_peer(*state);
    create(p, "s", "text/plain");
    append(p, "s", "text/plain", "abc");
    const char *answer = ask(p, "HEAD /v1/stream/s?offset=-1&live=sse HTTP/1.1", "");
    assert_int_equal(status_of(answer), 200);
    assert_has(answer, "Content-Type: text/plain\r\n");
    append(p, "s", "text/plain", "def"); /* and the connection goes on */
}

/* ---- waiting ---- */

static void test_long_poll_with_a_request_behind_it(void **state)
{
    struct site *s = *state;
    struct peer *w = connect_peer(s), *p = connect_peer(s);
    create(w, "s", "text/plain");
    start(p, "GET /v1/stream/s?offset=now&live=long-poll HTTP/1.1\r\nHost: localhost\r\n\r\n"
             "HEAD /v1/stream/s HTTP/1.1");
    assert_int_equal(p->got.n, 0);
    append(w, "s", "text/plain", "news");
    wait_for(p, "Stream-Cursor");
    wait_for(p, "newsHTTP/1.1 200 OK");
}

static void test_long_poll_of_a_peer_that_left(void **state)
{
    struct site *s = *state;
    struct peer *w = connect_peer(s), *p = connect_peer(s);
    create(w, "s", "text/plain");
    start(p, "GET /v1/stream/s?offset=now&live=long-poll HTTP/1.1");
    shutdown(p->fd, SHUT_RDWR);
    turns(s, 3);
    append(w, "s", "text/plain", "news"); /* goes nowhere, and hurts nobody */
    append(w, "s", "text/plain", "more");
}

static void test_drain_ends_what_waits(void **state)
{
    struct site *s = *state;
    struct peer *w = connect_peer(s), *poll = connect_peer(s), *sse = connect_peer(s);
    struct peer *late_poll = connect_peer(s), *late_sse = connect_peer(s);
    create(w, "s", "text/plain");
    start(poll, "GET /v1/stream/s?offset=now&live=long-poll HTTP/1.1");
    start(sse, "GET /v1/stream/s?offset=now&live=sse HTTP/1.1");
    say(late_poll, "GET /v1/str", 11); /* these have begun, and may finish */
    say(late_sse, "GET /v1/str", 11);
    http_drain(&s->http);
    wait_for(poll, "HTTP/1.1 204 ");
    wait_for(sse, "0\r\n\r\n");
    start(late_poll, "eam/s?offset=now&live=long-poll HTTP/1.1");
    wait_for(late_poll, "HTTP/1.1 204 ");
    start(late_sse, "eam/s?offset=now&live=sse HTTP/1.1");
    wait_for(late_sse, "0\r\n\r\n");
}

/* ---- SSE ---- */

static void test_sse_text_lines(void **state)
{
    struct site *s = *state;
    struct peer *w = connect_peer(s), *p = connect_peer(s);
    create(w, "s", "text/plain");
    append(w, "s", "text/plain", "a\r");
    append(w, "s", "text/plain", "\nb\rc\n\nd");
    append(w, "s", "text/plain", " e\n f\n:g\n\r\r\ndata: h\n\nevent: control");
    append(w, "s", "text/plain", "\n");
    start(p, "GET /v1/stream/s?offset=-1&live=sse HTTP/1.1");
    wait_for(p, "upToDate");
    assert_heard(p, "a\nb\nc\n\nd e\n f\n:g\n\n\ndata: h\n\nevent: control\n");
}

/* Appends of a size that leaves every kind of border between two slices. */
static void test_sse_over_slices(void **state)
{
    struct site *s = *state;
    struct peer *w = connect_peer(s);
    static char data[2000], expected[3000];
    for (size_t n = 508; n < 516; n++) {
        for (size_t at = 0; at < n; at++)
            data[at] = "\r\n x"[(at + n) % 4];
        char name[32];
        snprintf(name, sizeof name, "text%zu", n);
        create(w, name, "text/plain");
        append_n(w, name, "text/plain", data, n);
        append_n(w, name, "text/plain", data, n);
        size_t out = 0;
        for (size_t i = 0; i < 2 * n; i++) {
            char c = data[i % n], before = i == 0 ? 0 : data[(i - 1) % n];
            if (c != '\n' || before != '\r')
                expected[out++] = c == '\r' ? '\n' : c;
        }
        expected[out] = '\0';
        struct peer *p = connect_peer(s);
        char line[128];
        snprintf(line, sizeof line, "GET /v1/stream/%s?offset=-1&live=sse HTTP/1.1", name);
        start(p, line);
        wait_for(p, "upToDate");
        assert_heard(p, expected);
    }
}

static int b64_value(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c == '\0' ? NULL : strchr(digits, c);
    return at == NULL ? -1 : (int)(at - digits);
}

/* Fails unless it is one text in base64 with its padding at the end only. */
static struct buf unbase64(struct str text)
{
    struct buf out = {0};
    assert_int_equal(text.n % 4, 0);
    for (size_t i = 0; i < text.n; i += 4) {
        unsigned v = 0, n = 0;
        for (size_t k = 0; k < 4; k++) {
            int digit = b64_value(text.p[i + k]);
            assert_true(digit >= 0 || (text.p[i + k] == '=' && i + 4 == text.n));
            v = v << 6 | (unsigned)(digit < 0 ? 0 : digit);
            n += digit >= 0;
        }
        for (unsigned k = 0; k + 1 < n; k++)
            buf_putc(&out, (char)(v >> (16 - 8 * k)));
    }
    return out;
}

static void fill(char *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (char)(i * 31 + i / 256);
}

static void test_sse_base64_over_slices(void **state)
{
    struct site *s = *state;
    struct peer *w = connect_peer(s);
    char data[3000];
    fill(data, sizeof data);
    for (size_t n = 1; n < 8; n++) {
        char name[32], line[128];
        snprintf(name, sizeof name, "binary%zu", n);
        create(w, name, "image/png");
        append_n(w, name, "image/png", data, 510 + n);
        append_n(w, name, "image/png", data + 510 + n, n);
        append_n(w, name, "image/png", data + 510 + 2 * n, 2000);
        struct peer *p = connect_peer(s);
        snprintf(line, sizeof line, "GET /v1/stream/%s?offset=-1&live=sse HTTP/1.1", name);
        start(p, line);
        wait_for(p, "upToDate");
        assert_has(p->got.p, "Stream-SSE-Data-Encoding: base64\r\n");
        struct heard h = parse_sse(p);
        struct buf bytes = unbase64(buf_str(&h.data));
        assert_int_equal(bytes.n, 510 + 2 * n + 2000);
        assert_memory_equal(bytes.p, data, bytes.n);
        buf_deinit(&bytes);
        heard_deinit(&h);
    }
}

static void test_sse_character_in_two_appends(void **state)
{
    struct site *s = *state;
    struct peer *w = connect_peer(s), *p = connect_peer(s);
    create(w, "s", "text/plain");
    append(w, "s", "text/plain", "price: 5 \xE2\x82");
    start(p, "GET /v1/stream/s?offset=-1&live=sse HTTP/1.1");
    wait_for(p, "event: control"); /* at once, whatever there is to say */
    turns(s, 5);
    hear(p);
    struct heard h = parse_sse(p);
    assert_int_equal(h.n_data, 0);
    assert_int_equal(h.n_control, 1);
    assert_has(h.last_control, "_0000000000000000\"");
    assert_has_not(h.last_control, "upToDate");
    heard_deinit(&h);
    append(w, "s", "text/plain", "\xAC.");
    wait_for(p, "upToDate");
    assert_heard(p, "price: 5 \xE2\x82\xAC.");
}

static void test_sse_characters_in_many_appends(void **state)
{
    /* Each append ends one character and begins another, while they are all in one slice. */
    struct site *s = *state;
    struct peer *w = connect_peer(s), *p = connect_peer(s);
    create(w, "s", "text/plain");
    append(w, "s", "text/plain", "one ");
    append(w, "s", "text/plain", "two \xE4\xBD");
    append(w, "s", "text/plain", "\xA0 three \xE5");
    start(p, "GET /v1/stream/s?offset=-1&live=sse HTTP/1.1");
    turns(s, 5);
    append(w, "s", "text/plain", "\xA5\xBD four \xF0");
    append(w, "s", "text/plain", "\x9F");
    append(w, "s", "text/plain", "\x98");
    append(w, "s", "text/plain", "\x80 five");
    wait_for(p, "upToDate");
    struct heard h = parse_sse(p);
    assert_string_equal(h.data.p,
                        "one two \xE4\xBD\xA0 three \xE5\xA5\xBD four \xF0\x9F\x98\x80 five");
    heard_deinit(&h);
    /* No event on its way held half a character. */
    struct buf body = dechunk(p);
    assert_has_not(body.p, "\xE4\xBD\n");
    assert_has_not(body.p, "\xE5\n");
    assert_has_not(body.p, "\xF0\n");
    assert_has_not(body.p, "\x9F\n");
    assert_has_not(body.p, "\x98\n");
    buf_deinit(&body);
}

static void test_sse_character_over_batches(void **state)
{
    /* A replay comes in several batches; none ends within a character that the next one ends. */
    struct site *s = *state;
    struct peer *w = connect_peer(s), *p = connect_peer(s);
    static char half[EVENT_BATCH_BYTES / 2];
    create(w, "s", "text/plain");
    for (int i = 0; i < 6; i++) {
        memset(half, 'x', sizeof half);
        if (i > 0 && i % 2 == 0)
            memcpy(half, "\xAC", 1);
        if (i % 2 == 1)
            memcpy(half + sizeof half - 2, "\xE2\x82", 2);
        append_n(w, "s", "text/plain", half, sizeof half);
    }
    append(w, "s", "text/plain", "\xAC end");
    start(p, "GET /v1/stream/s?offset=-1&live=sse HTTP/1.1");
    wait_for(p, "upToDate");
    struct buf body = dechunk(p);
    assert_has_not(body.p, "data:\xAC");
    buf_deinit(&body);
    struct heard h = parse_sse(p);
    assert_int_equal(h.data.n, 6 * sizeof half + 5);
    heard_deinit(&h);
}

static void test_sse_character_that_is_never_ended(void **state)
{
    /* Bytes that are no UTF-8 come late, but they come. */
    struct site *s = *state;
    struct peer *w = connect_peer(s), *p = connect_peer(s);
    s->durable.heartbeat_ms = 50;
    create(w, "s", "text/plain");
    append(w, "s", "text/plain", "caf\xE9");
    start(p, "GET /v1/stream/s?offset=-1&live=sse HTTP/1.1");
    wait_for(p, "upToDate");
    assert_heard(p, "caf\xE9");
    /* And the next one is given its time again. */
    append(w, "s", "text/plain", "\xE2");
    append(w, "s", "text/plain", "\x82\xAC");
    wait_for(p, "0000000000000007\",\"streamCursor");
    assert_heard(p, "caf\xE9\xE2\x82\xAC");
}

static void test_sse_end_of_a_character_that_is_not(void **state)
{
    struct site *s = *state;
    struct peer *w = connect_peer(s), *p = connect_peer(s);
    create(w, "s", "text/plain");
    append(w, "s", "text/plain", "abc\xE2");
    start(p, "GET /v1/stream/s?offset=-1&live=sse HTTP/1.1");
    turns(s, 5);
    ask(w, "POST /v1/stream/s HTTP/1.1\r\nStream-Closed: true", "");
    wait_for(p, "streamClosed"); /* nothing is withheld at the end */
    assert_heard(p, "abc\xE2");
}

static void test_sse_control_only_when_there_is_news(void **state)
{
    struct site *s = *state;
    struct peer *w = connect_peer(s), *p = connect_peer(s);
    create(w, "s", "text/plain");
    append(w, "s", "text/plain", "abc");
    append(w, "s", "text/plain", "d\xE2");
    start(p, "GET /v1/stream/s?offset=-1&live=sse HTTP/1.1");
    turns(s, 10);
    hear(p);
    struct heard h = parse_sse(p);
    assert_string_equal(h.data.p, "abc");
    assert_int_equal(h.n_control, 1);
    heard_deinit(&h);
}

static void test_sse_of_a_stream_that_goes(void **state)
{
    struct site *s = *state;
    struct peer *w = connect_peer(s), *p = connect_peer(s);
    create(w, "s", "text/plain");
    append(w, "s", "text/plain", "abc");
    start(p, "GET /v1/stream/s?offset=-1&live=sse HTTP/1.1");
    wait_for(p, "upToDate");
    assert_int_equal(status_of(ask(w, "DELETE /v1/stream/s HTTP/1.1", "")), 204);
    wait_for(p, "event: gap\ndata:{\"gap\":{\"requested\":\"0000000000000001_0000000000000003\"");
    wait_for(p, "0\r\n\r\n");
}

static void fail_now(struct task *t)
{
    struct store_read *r = container_of(t, struct store_read, call.task);
    r->n_slices = 0;
    r->done(r, ERR_IO);
}

static void fail_read(struct store *s, struct store_read *r)
{
    task_init(&r->call.task, fail_now);
    sched_post(s->sched, &r->call.task);
}

static void test_sse_of_a_store_that_fails(void **state)
{
    /* Nothing is gone: the response ends, and the client comes back to where it was. */
    struct site *s = *state;
    struct peer *w = connect_peer(s), *p = connect_peer(s);
    create(w, "s", "text/plain");
    start(p, "GET /v1/stream/s?offset=-1&live=sse HTTP/1.1");
    wait_for(p, "upToDate");
    struct store_ops failing = *s->store->ops;
    const struct store_ops *working = s->store->ops;
    failing.read = fail_read;
    s->store->ops = &failing;
    append(w, "s", "text/plain", "abc");
    wait_for(p, "0\r\n\r\n");
    s->store->ops = working;
    assert_has_not(p->got.p, "gap");
}

/* ---- large events ---- */

#define LARGE (1 << 20)

static void read_large(struct site *s, const char *name, const char *type, const char *data,
                       size_t n, struct heard *h)
{
    struct peer *w = connect_peer(s), *p = connect_peer(s);
    char line[128];
    create(w, name, type);
    append_n(w, name, type, data, n);
    snprintf(line, sizeof line, "GET /v1/stream/%s?offset=-1&live=sse HTTP/1.1", name);
    start(p, line);
    wait_for(p, "upToDate");
    *h = parse_sse(p);
    assert_int_equal(h->n_data, 1);
    assert_int_equal(h->n_control, 1);
}

static void test_sse_large_events(void **state)
{
    struct site *s = *state;
    static char data[LARGE], expected[LARGE + 3];
    struct heard h;
    fill(data, LARGE);
    read_large(s, "binary", "image/png", data, LARGE - 1, &h);
    struct buf bytes = unbase64(buf_str(&h.data));
    assert_int_equal(bytes.n, LARGE - 1);
    assert_memory_equal(bytes.p, data, bytes.n);
    buf_deinit(&bytes);
    heard_deinit(&h);

    size_t out = 0;
    for (size_t i = 0; i < LARGE; i++) {
        data[i] = "\r\n x"[i * i % 11 % 4];
        if (data[i] != '\n' || i == 0 || data[i - 1] != '\r')
            expected[out++] = data[i] == '\r' ? '\n' : data[i];
    }
    read_large(s, "text", "text/plain", data, LARGE, &h);
    assert_int_equal(h.data.n, out);
    assert_memory_equal(h.data.p, expected, out);
    heard_deinit(&h);

    memset(data, 'x', LARGE);
    data[0] = data[LARGE - 1] = '"';
    read_large(s, "json", "application/json", data, LARGE, &h);
    assert_int_equal(h.data.n, LARGE + 2);
    assert_memory_equal(h.data.p, "[\"x", 3);
    assert_memory_equal(h.data.p + LARGE - 1, "x\"]", 3);
    heard_deinit(&h);
}

static void test_sse_large_event_costs_a_slow_reader_little(void **state)
{
    struct site *s = *state;
    struct peer *w = connect_peer(s);
    const size_t n = 8 << 20;
    char *data = mem_alloc(n);
    memset(data, 'x', n);
    create(w, "s", "text/plain");
    append_n(w, "s", "text/plain", data, n);
    free(data);
    size_t before = allocated();
    for (int i = 0; i < 20; i++) { /* none of them reads */
        const char *request =
            "GET /v1/stream/s?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n";
        say(connect_peer(s), request, strlen(request));
    }
    turns(s, 10);
    assert_true(allocated() - before < 10 << 20);
}

static void test_sse_large_event_outlasts_its_response(void **state)
{
    /* A reader too slow for one response's time must get it nevertheless, or it never will. */
    struct site *s = *state;
    struct peer *w = connect_peer(s), *p = connect_peer(s);
    s->durable.sse_lifetime_ms = 100;
    s->durable.heartbeat_ms = 20;
    char *data = mem_alloc(4 << 20);
    memset(data, 'x', 4 << 20);
    create(w, "s", "text/plain");
    append_n(w, "s", "text/plain", data, 4 << 20);
    free(data);
    const char *request = "GET /v1/stream/s?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n";
    say(p, request, strlen(request));
    for (uint64_t until = uv_hrtime() + 300000000; uv_hrtime() < until;)
        uv_run(&s->loop.uv, UV_RUN_ONCE);
    wait_for(p, "0\r\n\r\n");
    struct heard h = parse_sse(p);
    assert_int_equal(h.data.n, 4 << 20);
    assert_int_equal(h.n_control, 1);
    heard_deinit(&h);
}

/* ---- anything at any time ---- */

/* What a peer may say, whole or cut anywhere, one behind the other. */
static const char *const sayings[] = {
    "PUT /v1/stream/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n\r\n",
    "PUT /v1/stream/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n",
    "DELETE /v1/stream/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /v1/stream/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: "
    "12\r\n\r\n12345\xE2\x82\r\n890",
    "POST /v1/stream/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    "text/plain\r\nTransfer-Encoding: "
    "chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n",
    "POST /v1/stream/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: "
    "100-continue\r\nContent-Length: 9\r\n\r\n[1,2,3,4]",
    "POST /v1/stream/b HTTP/1.1\r\nHost: localhost\r\nStream-Closed: true\r\nContent-Length: "
    "0\r\n\r\n",
    "POST /v1/stream/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Content-Length: 4000\r\n\r\n[",
    "DELETE /v1/stream/b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nxyz",
    "GET /v1/stream/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /v1/stream/a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "HEAD /v1/stream/a?live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /v1/stream/a?offset=now&live=long-poll HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /v1/stream/a?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\nOrigin: o\r\n\r\n",
    "GET /v1/stream/large?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /v1/stream/large HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /v1/stream/b?offset=-1&live=sse HTTP/1.0\r\n\r\n",
    "GET /v1/stream/b?offset=now&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /v1/stream/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
};

static void say_something(struct peer *p, struct rng *r)
{
    const char *text = sayings[rng_below(r, sizeof sayings / sizeof *sayings)];
    size_t n = strlen(text);
    if (rng_one_in(r, 8))
        n = rng_between(r, 1, n);
    (void)!send(p->fd, text, n, MSG_NOSIGNAL);
}

static void do_something(struct site *s, struct rng *r)
{
    struct peer *p = &s->peers[rng_below(r, s->n_peers)];
    char some[5000];
    switch (rng_below(r, 16)) {
    case 0:
    case 1:
        if (s->n_peers < PEERS_MAX)
            connect_peer(s);
        break;
    case 2: shutdown(p->fd, rng_one_in(r, 2) ? SHUT_WR : SHUT_RDWR); break;
    case 3:
    case 4:
    case 5: (void)!read(p->fd, some, rng_below(r, sizeof some)); break;
    case 6: turns(s, (int)rng_below(r, 5)); break;
    default: say_something(p, r);
    }
    if (rng_one_in(r, 3))
        turns(s, 1);
}

static void put_large(struct site *s)
{
    static char large[300000];
    struct peer *w = connect_peer(s);
    memset(large, '\n', sizeof large);
    create(w, "large", "text/plain");
    append_n(w, "large", "text/plain", large, 9000);
    append_n(w, "large", "text/plain", large, sizeof large);
}

/* Whatever peers do and leave undone, when they do nothing more the server is rid of them all. */
static void live_and_let_go(struct rng *r)
{
    void *state;
    set_up(&state);
    struct site *s = state;
    put_large(s);
    if (rng_one_in(r, 2))
        s->store = delay_store_new(s->store, rng_next(r), 2);
    s->delayed = s->store != s->durable.store;
    s->durable.store = s->feeds.store = s->store;
    s->http.limits = (struct http_limits){.connections = PEERS_MAX / 2,
                                          .inflight_bytes = 10000,
                                          .head_timeout_ms = 30,
                                          .idle_timeout_ms = 40,
                                          .body_timeout_ms = 30,
                                          .write_timeout_ms = 50,
                                          .body_min_bytes = 1};
    s->durable.long_poll_ms = 30;
    s->durable.heartbeat_ms = 20;
    s->durable.sse_lifetime_ms = 70;
    uint64_t drain_at = rng_below(r, 1200); /* in every other run, at any time */
    for (uint64_t i = 0; i < 600; i++) {
        if (i == drain_at)
            http_drain(&s->http);
        do_something(s, r);
    }
    uint64_t until = uv_hrtime() + UINT64_C(20000000000);
    while (s->http.n_connections > 0 && uv_hrtime() < until)
        uv_run(&s->loop.uv, UV_RUN_ONCE);
    assert_int_equal(s->http.n_connections, 0);
    tear_down(&state);
}

static void test_nobody_stays_for_ever(void **state)
{
    seeds_run(6, live_and_let_go);
}

/* ---- large bodies ---- */

static char *large_json(uint32_t events, size_t *n)
{
    struct buf b = {0};
    buf_putc(&b, '[');
    for (uint32_t i = 0; i < events; i++)
        buf_printf(&b, "{\"n\":%u},", i);
    b.p[b.n - 1] = ']';
    *n = b.n;
    return b.p;
}

static void say_large(struct peer *p, const char *name, const char *body, size_t n)
{
    char head[256];
    int length = snprintf(head, sizeof head,
                          "POST /v1/stream/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                          "application/json\r\nContent-Length: %zu\r\n\r\n",
                          name, n);
    forget(p);
    say(p, head, (size_t)length);
    say(p, body, n);
    turns(p->site, 10);
    hear(p);
}

static void use_lane(struct site *s)
{
    s->durable.lane = simlane_new(&s->loop.sched, 1, 0);
    gate_init(&s->durable.preparing, &s->loop.sched);
    simlane_hold(s->durable.lane, true);
}

/* Checked and split on the lane; others are served meanwhile, and the answers are the same. */
static void test_large_bodies_are_prepared_on_a_lane(void **state)
{
    struct site *s = *state;
    struct peer *p = connect_peer(s), *q = connect_peer(s);
    size_t n;
    char *body = large_json(20000, &n);
    use_lane(s);
    create(q, "a", "application/json");
    say_large(p, "a", body, n);
    assert_int_equal(p->got.n, 0);
    assert_int_equal(simlane_pending(s->durable.lane), 1);
    assert_int_equal(s->http.inflight_bytes, n); /* it is in memory */
    append(q, "a", "application/json", "\"first\"");
    simlane_hold(s->durable.lane, false);
    wait_for(p, "HTTP/1.1 204");
    assert_int_equal(s->durable.preparing.inside, 0);
    turns(s, 5);
    assert_int_equal(s->http.inflight_bytes, 0);
    assert_has(ask(q, "GET /v1/stream/a?offset=-1 HTTP/1.1", ""), "[\"first\",{\"n\":0},{\"n\":1}");
    /* what is wrong with it comes behind what is wrong with the stream, as ever */
    body[n - 1] = ' ';
    say_large(p, "a", body, n);
    wait_for(p, "\r\n\r\n");
    assert_int_equal(status_of(p->got.p), 400);
    assert_has(p->got.p, "\"JSON\"");
    say_large(p, "absent", body, n);
    wait_for(p, "\r\n\r\n");
    assert_int_equal(status_of(p->got.p), 404);
    turns(s, 5);
    assert_int_equal(s->http.inflight_bytes, 0);
    lane_free(s->durable.lane);
    free(body);
}

/* It has sent all: what it wanted appended is, though it hears nothing of it. */
static void test_a_peer_leaves_while_its_body_is_prepared(void **state)
{
    struct site *s = *state;
    struct peer *p = connect_peer(s), *q = connect_peer(s);
    size_t n;
    char *body = large_json(20000, &n);
    use_lane(s);
    create(q, "a", "application/json");
    say_large(p, "a", body, n);
    assert_int_equal(simlane_pending(s->durable.lane), 1);
    http_close_all(&s->http);
    turns(s, 10);
    assert_int_equal(s->http.n_connections, 0);
    assert_int_equal(s->durable.preparing.inside, 1);
    q = connect_peer(s);
    simlane_hold(s->durable.lane, false);
    turns(s, 50);
    assert_int_equal(s->durable.preparing.inside, 0);
    assert_int_equal(s->http.inflight_bytes, 0);
    assert_has(ask(q, "GET /v1/stream/a?offset=-1 HTTP/1.1", ""), "[{\"n\":0},{\"n\":1}");
    lane_free(s->durable.lane);
    free(body);
}

/* A few huge ones are not waited for. */
static void test_large_bodies_pass_huge_ones(void **state)
{
    struct site *s = *state;
    struct peer *p = connect_peer(s), *q = connect_peer(s);
    size_t n, n_huge;
    char *body = large_json(20000, &n), *huge = large_json(100000, &n_huge);
    assert_true(n <= DURABLE_HUGE && n_huge > DURABLE_HUGE);
    use_lane(s);
    simlane_hold(s->durable.lane, false);
    s->durable.huge_lane = simlane_new(&s->loop.sched, 1, 0);
    simlane_hold(s->durable.huge_lane, true);
    create(q, "a", "application/json");
    say_large(p, "a", huge, n_huge);
    turns(s, 50);
    assert_int_equal(simlane_pending(s->durable.huge_lane), 1);
    say_large(q, "a", body, n);
    wait_for(q, "HTTP/1.1 204");
    assert_int_equal(p->got.n, 0);
    simlane_hold(s->durable.huge_lane, false);
    wait_for(p, "HTTP/1.1 204");
    lane_free(s->durable.lane);
    lane_free(s->durable.huge_lane);
    free(body);
    free(huge);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_names),
        T(test_longest_name),
        T(test_location),
        T(test_partial_read_is_no_end),
        T(test_not_modified),
        T(test_now_is_not_cached),
        T(test_what_a_cache_keeps_suits_a_browser),
        T(test_last_event_id_is_for_sse),
        T(test_head_of_a_live_read),
        T(test_long_poll_with_a_request_behind_it),
        T(test_long_poll_of_a_peer_that_left),
        T(test_drain_ends_what_waits),
        T(test_sse_text_lines),
        T(test_sse_over_slices),
        T(test_sse_base64_over_slices),
        T(test_sse_character_in_two_appends),
        T(test_sse_characters_in_many_appends),
        T(test_sse_character_over_batches),
        T(test_sse_character_that_is_never_ended),
        T(test_sse_end_of_a_character_that_is_not),
        T(test_sse_control_only_when_there_is_news),
        T(test_sse_of_a_stream_that_goes),
        T(test_sse_of_a_store_that_fails),
        T(test_sse_large_events),
        T(test_sse_large_event_costs_a_slow_reader_little),
        T(test_sse_large_event_outlasts_its_response),
        T(test_large_bodies_are_prepared_on_a_lane),
        T(test_a_peer_leaves_while_its_body_is_prepared),
        T(test_large_bodies_pass_huge_ones),
        cmocka_unit_test_teardown(test_nobody_stays_for_ever, seeds_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
