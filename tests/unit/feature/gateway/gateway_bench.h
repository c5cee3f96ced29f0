// SPDX-License-Identifier: Apache-2.0
/* gateway_bench.h -- two gateways over one store, as two processes have them. The upstream is on
 * the same loop, and says what it is told to; so does the store. To be included after cmocka.h. */
#ifndef UNIT_GATEWAY_BENCH_H
#define UNIT_GATEWAY_BENCH_H

#include "stream/subscriber.h"
#include "http/fetch.h"
#include "http/guard.h"
#include "http/http.h"
#include "net/loop.h"
#include "feature/gateway/route_config.h"
#include "feature/gateway/gateway_core.h"
#include "store/mem/mem_store.h"
#include "telemetry/metrics.h"
#include "telemetry/trace.h"
#include "unit/feature/sessions/session_bench.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define BEAT_MS  20
#define SIDES    2
#define CLIENTS  16
#define SSE_HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
#define KEY      "Idempotency-Key: k\r\n"
#define ONE      "event: token\ndata: one\n\n"
#define TWO      "data: two\ndata: lines\n\n"
#define OTHER_HEAD                                                                                 \
    "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"

/* ---- the upstream ---- */

struct caller {
    uv_tcp_t tcp;
    struct bench *bench;
    struct buf in;
    bool heard, gone;
};

struct sending {
    uv_write_t req;
    struct buf out;
};

/* ---- all of it ---- */

struct side {
    struct http http;
    struct feeds feeds;
    struct fetcher *fetcher;
    struct metrics metrics;
    struct instances *instances;
    struct gateway *gateway;
    struct guard *guard; /* NULL: all is open */
    bool stopped;
};

struct client {
    int fd;
    struct buf in;
};

struct bench {
    struct loop loop;
    struct trace trace;
    struct facade *front;
    struct side sides[SIDES];
    struct client clients[CLIENTS];
    size_t n_clients;
    uv_timer_t alive;
    uv_tcp_t listener;
    struct caller *callers[CLIENTS]; /* in the order in which they came */
    size_t n_callers;
    const char *reply; /* to each request, at once */
    char url[64];
    char path[8], step[8];
    struct route_config route;
    int refuse;          /* writes that make streams of generations */
    unsigned stats_lost; /* so many that come next are not answered */
};

static inline void turns(struct bench *b, int n)
{
    while (n-- > 0)
        uv_run(&b->loop.uv, UV_RUN_ONCE);
}

/* Turns until it is so; asserts that it comes to that. */
#define UNTIL(b, condition)                                                                        \
    do {                                                                                           \
        for (int left_ = 20000; !(condition) && left_ > 0; left_--)                                \
            turns(b, 1);                                                                           \
        assert_true(condition);                                                                    \
    } while (0)

static inline void on_alive(uv_timer_t *t)
{
}

static inline void on_sent(uv_write_t *req, int status)
{
    struct sending *s = container_of(req, struct sending, req);
    buf_deinit(&s->out);
    free(s);
}

static inline void caller_send(struct caller *c, const char *text)
{
    struct sending *s = mem_zalloc(sizeof *s);
    buf_put(&s->out, str_of_cstr(text));
    uv_buf_t buf = uv_buf_init(s->out.p, (unsigned)s->out.n);
    uv_write(&s->req, (uv_stream_t *)&c->tcp, &buf, 1, on_sent);
}

static inline void on_caller_closed(uv_handle_t *h)
{
    ((struct caller *)h->data)->gone = true;
}

static inline void caller_close(struct caller *c)
{
    if (!uv_is_closing((uv_handle_t *)&c->tcp))
        uv_close((uv_handle_t *)&c->tcp, on_caller_closed);
}

static inline void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *buf)
{
    struct caller *c = h->data;
    *buf = uv_buf_init(buf_reserve(&c->in, 4096), 4096);
}

/* What comes is small, and its body is `{...}`. */
static inline void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct caller *c = s->data;
    if (n < 0) {
        caller_close(c);
        return;
    }
    c->in.n += (size_t)n;
    if (c->heard || c->in.n == 0 || c->in.p[c->in.n - 1] != '}')
        return;
    c->heard = true;
    if (c->bench->reply != NULL)
        caller_send(c, c->bench->reply);
}

static inline void on_connection(uv_stream_t *listener, int status)
{
    struct bench *b = listener->data;
    struct caller *c = mem_zalloc(sizeof *c);
    assert_true(b->n_callers < CLIENTS);
    b->callers[b->n_callers++] = c;
    c->bench = b;
    uv_tcp_init(&b->loop.uv, &c->tcp);
    c->tcp.data = c;
    assert_int_equal(uv_accept(listener, (uv_stream_t *)&c->tcp), 0);
    uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
}

static inline void start_upstream(struct bench *b)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int n = sizeof at;
    uv_tcp_init(&b->loop.uv, &b->listener);
    b->listener.data = b;
    assert_int_equal(uv_tcp_bind(&b->listener, (struct sockaddr *)&at, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&b->listener, 10, on_connection), 0);
    uv_tcp_getsockname(&b->listener, (struct sockaddr *)&at, &n);
    snprintf(b->url, sizeof b->url, "http://127.0.0.1:%d/", ntohs(at.sin_port));
}

static inline bool is_heard(const struct bench *b, size_t i)
{
    return b->n_callers > i && b->callers[i]->heard;
}

/* ---- clients ---- */

static inline struct client *ask(struct bench *b, size_t side, const char *request)
{
    struct client *c = &b->clients[b->n_clients++];
    int fds[2];
    assert_true(b->n_clients <= CLIENTS);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    c->fd = fds[1];
    http_accept(&b->sides[side].http, fds[0], NULL);
    assert_int_equal(write(c->fd, request, strlen(request)), (ssize_t)strlen(request));
    return c;
}

static inline struct client *post(struct bench *b, size_t side, const char *headers,
                                  const char *body)
{
    struct buf request = {0};
    buf_printf(&request, "POST /a HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n%s",
               headers, strlen(body), body);
    buf_putc(&request, '\0');
    struct client *c = ask(b, side, request.p);
    buf_deinit(&request);
    return c;
}

static inline struct client *member(struct bench *b, size_t side, const char *method, struct str id,
                                    const char *rest)
{
    struct buf request = {0};
    buf_printf(&request, "%s /a/%.*s%s HTTP/1.1\r\nHost: localhost\r\n\r\n", method, (int)id.n,
               id.p, rest);
    buf_putc(&request, '\0');
    struct client *c = ask(b, side, request.p);
    buf_deinit(&request);
    return c;
}

static inline void hang_up(struct client *c)
{
    close(c->fd);
    c->fd = -1;
}

/* Has it been told this? */
static inline bool told(struct client *c, const char *text)
{
    ssize_t n;
    while (c->fd >= 0 && (n = read(c->fd, buf_reserve(&c->in, 4096), 4096)) > 0)
        c->in.n += (size_t)n;
    return memmem(c->in.p, c->in.n, text, strlen(text)) != NULL;
}

/* The value of a header of its answer. */
static inline struct str header(struct client *c, const char *name)
{
    const char *at = memmem(c->in.p, c->in.n, name, strlen(name));
    assert_non_null(at);
    at += strlen(name) + 2;
    return str_of(at, (size_t)(strchr(at, '\r') - at));
}

#define ID_HEADER "X-Correlation-ID"

/* ---- the store ---- */

static inline int judge(void *ctx, const char *verb, struct str name)
{
    struct bench *b = ctx;
    if (strcmp(verb, "stat") == 0 && b->stats_lost > 0) {
        b->stats_lost--;
        return ERR_BUSY;
    }
    bool generation = strcmp(verb, "write") == 0 && str_starts(name, STR(GATEWAY_STREAMS));
    return generation ? b->refuse : 0;
}

static size_t n_docs, docs_answered;

static inline void on_docs(struct store_docs *d, int err)
{
    assert_int_equal(err, 0);
    n_docs = d->n_rows;
    docs_answered++;
}

static inline size_t count_docs(struct bench *b, const char *prefix)
{
    size_t before = docs_answered;
    struct store_docs docs = {.prefix = str_of_cstr(prefix), .limit = 100, .done = on_docs};
    store_docs(&b->front->store, &docs);
    UNTIL(b, docs_answered > before);
    return n_docs;
}

static struct stream_info info_found;
static int stat_result;

static inline void on_stat(struct store_stat *st, int err)
{
    info_found = st->info;
    stat_result = err;
}

/* How the stream of a generation has ended, or with a suffix. */
static inline enum end_reason end_of(struct bench *b, struct str id, const char *suffix)
{
    char name[100];
    snprintf(name, sizeof name, GATEWAY_STREAMS "a/%.*s%s", (int)id.n, id.p, suffix);
    struct store_stat st = {.name = str_of_cstr(name), .done = on_stat};
    stat_result = 1;
    store_stat(&b->front->store, &st);
    UNTIL(b, stat_result <= 0);
    return stat_result == 0 ? info_found.end : END_NONE;
}

/* ---- beginning and end ---- */

static const struct http_limits limits = {.connections = 20,
                                          .inflight_bytes = 100000,
                                          .head_timeout_ms = 60000,
                                          .idle_timeout_ms = 60000,
                                          .body_timeout_ms = 60000,
                                          .write_timeout_ms = 60000};

static inline void start_side(struct bench *b, struct side *s)
{
    char why[256];
    http_init(&s->http, &b->loop, &b->trace, &limits);
    metrics_init(&s->metrics);
    feeds_init(&s->feeds, &b->front->store);
    s->fetcher = fetcher_new(&b->loop);
    s->instances = instances_new(&b->loop.sched, &b->front->store, BEAT_MS);
    s->gateway = gateway_new(&(struct gateway_setup){.sched = &b->loop.sched,
                                                     .store = &b->front->store,
                                                     .feeds = &s->feeds,
                                                     .fetcher = s->fetcher,
                                                     .instances = s->instances,
                                                     .http = &s->http,
                                                     .metrics = &s->metrics,
                                                     .trace = &b->trace,
                                                     .routes = &b->route,
                                                     .n_routes = 1,
                                                     .secret = STR("0123456789abcdef"),
                                                     .telemetry_prefix = STR("t")},
                             why, sizeof why);
    assert_non_null(s->gateway);
}

static inline struct bench *bench_new(int dialect)
{
    struct bench *b = mem_zalloc(sizeof *b);
    assert_int_equal(loop_init(&b->loop), 0);
    b->trace = (struct trace){.to = stderr, .level = TRACE_ERROR};
    uv_timer_init(&b->loop.uv, &b->alive);
    uv_timer_start(&b->alive, on_alive, 1, 1);
    start_upstream(b);
    strcpy(b->path, "/a");
    strcpy(b->step, "S");
    b->route = (struct route_config){.path = b->path,
                                     .upstream = b->url,
                                     .step = b->step,
                                     .dialect = dialect,
                                     .snapshot = ROUTE_SNAPSHOT_LAST,
                                     .max_body_bytes = 1000,
                                     .connect_timeout_ms = 10000,
                                     .first_byte_timeout_ms = 60000,
                                     .idle_timeout_ms = 60000,
                                     .key_lifetime_ms = 60000,
                                     .state_ttl_ms = 60000,
                                     .snapshot_ttl_ms = 60000,
                                     .resume_ttl_ms = 60000};
    b->front = facade_new(mem_store_new(&b->loop.sched));
    b->front->store.shared = true;
    b->front->judge = judge;
    b->front->ctx = b;
    for (size_t i = 0; i < SIDES; i++)
        start_side(b, &b->sides[i]);
    b->reply = SSE_HEAD ONE;
    return b;
}

static inline int set_up(void **state)
{
    *state = bench_new(ROUTE_DIALECT_SSE);
    return 0;
}

static inline int set_up_chats(void **state)
{
    *state = bench_new(ROUTE_DIALECT_UI_MESSAGE);
    return 0;
}

static inline void note_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static inline void stop_side(struct bench *b, struct side *s)
{
    gateway_orphan(s->gateway);
    http_drain(&s->http);
    turns(b, 5);
    http_close_all(&s->http);
    UNTIL(b, s->http.n_connections == 0);
    gateway_stop(s->gateway, note_stopped, &s->stopped);
    UNTIL(b, s->stopped);
    gateway_free(s->gateway);
    s->stopped = false;
    instances_stop(s->instances, note_stopped, &s->stopped);
    UNTIL(b, s->stopped);
    instances_free(s->instances);
    fetcher_free(s->fetcher);
    UNTIL(b, s->feeds.by_name.n == 0);
    feeds_deinit(&s->feeds);
    guard_free(s->guard);
}

static inline int tear_down(void **state)
{
    struct bench *b = *state;
    b->refuse = 0;
    for (size_t i = 0; i < SIDES; i++)
        stop_side(b, &b->sides[i]);
    assert_int_equal(count_docs(b, "running/"), 0);
    assert_int_equal(count_docs(b, "instances/"), 0);
    for (size_t i = 0; i < b->n_callers; i++) {
        caller_close(b->callers[i]);
        UNTIL(b, b->callers[i]->gone);
        buf_deinit(&b->callers[i]->in);
        free(b->callers[i]);
    }
    for (size_t i = 0; i < b->n_clients; i++) {
        if (b->clients[i].fd >= 0)
            close(b->clients[i].fd);
        buf_deinit(&b->clients[i].in);
    }
    uv_close((uv_handle_t *)&b->alive, NULL);
    uv_close((uv_handle_t *)&b->listener, NULL);
    turns(b, 3);
    for (size_t i = 0; i < SIDES; i++) {
        http_deinit(&b->sides[i].http);
        metrics_deinit(&b->sides[i].metrics);
    }
    store_free(&b->front->store);
    loop_deinit(&b->loop);
    free(b);
    return 0;
}

#endif
