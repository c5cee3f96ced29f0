// SPDX-License-Identifier: Apache-2.0
/* The gateway and its store: what it takes out again, and its end while the store is slow. */
#include "base/mem.h"
#include "base/pack.h"
#include "stream/subscriber.h"
#include "http/fetch.h"
#include "http/http.h"
#include "net/loop.h"
#include "feature/gateway/route_config.h"
#include "store/store.h"
#include "feature/gateway/gateway_core.h"
#include "store/mem/mem_store.h"
#include "telemetry/metrics.h"
#include "telemetry/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define ID "00000000-0000-4000-8000-000000000000"

/* Keeps what comes: one read, one look at the documents, one at a stream. */
struct slow {
    struct store_ops ops;
    const struct store_ops *real;
    struct store_read *read;
    struct store_docs *docs;
    struct store_stat *stat;
};
static struct slow slow;

static void slow_read(struct store *s, struct store_read *r)
{
    slow.read = r;
}

static void slow_docs(struct store *s, struct store_docs *d)
{
    slow.docs = d;
}

static void slow_stat(struct store *s, struct store_stat *st)
{
    slow.stat = st;
}

struct bench {
    struct loop loop;
    struct http http;
    struct trace trace;
    struct metrics metrics;
    struct feeds feeds;
    struct store *store;
    struct fetcher *fetcher;
    struct gateway *gateway;
    uv_timer_t alive; /* a loop without active handles would not turn */
    int peer;
    bool stopped;
};

static void turns(struct bench *b, int n)
{
    while (n-- > 0)
        uv_run(&b->loop.uv, UV_RUN_ONCE);
}

/* Turns until it is so; asserts that it comes to that. */
#define UNTIL(b, condition)                                                                        \
    do {                                                                                           \
        for (int left_ = 10000; !(condition) && left_ > 0; left_--)                                \
            turns(b, 1);                                                                           \
        assert_true(condition);                                                                    \
    } while (0)

static void on_alive(uv_timer_t *t)
{
}

static char path[] = "/a", upstream[] = "http://127.0.0.1:1/", step[] = "S";
static const struct route_config route = {.path = path,
                                          .upstream = upstream,
                                          .step = step,
                                          .dialect = ROUTE_DIALECT_SSE,
                                          .max_body_bytes = 1000,
                                          .key_lifetime_ms = 1000,
                                          .state_ttl_ms = 1000,
                                          .snapshot_ttl_ms = 1000,
                                          .resume_ttl_ms = 1000};
static const struct http_limits limits = {.connections = 3,
                                          .inflight_bytes = 10000,
                                          .head_timeout_ms = 60000,
                                          .idle_timeout_ms = 60000,
                                          .body_timeout_ms = 60000,
                                          .write_timeout_ms = 60000};

static int orphans; /* streams that are there when the gateway opens */
static size_t n_put, n_left;
static const char *stream_of(int i);
static void make_stream(struct bench *b, const char *name);
static void slow_list(struct store *s, struct store_list *l);

static int set_up(void **state)
{
    struct bench *b = mem_zalloc(sizeof *b);
    char why[256];
    assert_int_equal(loop_init(&b->loop), 0);
    b->trace = (struct trace){.to = stderr, .level = TRACE_ERROR};
    http_init(&b->http, &b->loop, &b->trace, &limits);
    uv_timer_init(&b->loop.uv, &b->alive);
    uv_timer_start(&b->alive, on_alive, 1, 1);
    metrics_init(&b->metrics);
    b->store = mem_store_new(&b->loop.sched);
    slow = (struct slow){.ops = *b->store->ops, .real = b->store->ops};
    slow.ops.read = slow_read;
    slow.ops.docs = slow_docs;
    slow.ops.stat = slow_stat;
    for (int i = 0; i < orphans; i++)
        make_stream(b, stream_of(i));
    if (orphans > 0)
        slow.ops.list = slow_list;
    b->store->ops = &slow.ops;
    feeds_init(&b->feeds, b->store);
    b->fetcher = fetcher_new(&b->loop);
    b->gateway = gateway_new(&(struct gateway_setup){.sched = &b->loop.sched,
                                                     .store = b->store,
                                                     .feeds = &b->feeds,
                                                     .fetcher = b->fetcher,
                                                     .http = &b->http,
                                                     .metrics = &b->metrics,
                                                     .trace = &b->trace,
                                                     .routes = &route,
                                                     .n_routes = 1,
                                                     .store_is_memory = true,
                                                     .secret = STR("0123456789abcdef"),
                                                     .telemetry_prefix = STR("t")},
                             why, sizeof why);
    assert_non_null(b->gateway);
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    b->peer = fds[1];
    http_accept(&b->http, fds[0], NULL);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;
    gateway_free(b->gateway);
    fetcher_free(b->fetcher);
    feeds_deinit(&b->feeds);
    store_free(b->store);
    close(b->peer);
    uv_close((uv_handle_t *)&b->alive, NULL);
    turns(b, 3);
    http_deinit(&b->http);
    metrics_deinit(&b->metrics);
    loop_deinit(&b->loop);
    free(b);
    return 0;
}

static void on_stopped(void *ctx)
{
    ((struct bench *)ctx)->stopped = true;
}

/* The request is there; then the time for a drain is over, and the gateway is to stop. */
static void ask_and_stop(struct bench *b, const char *request)
{
    assert_int_equal(write(b->peer, request, strlen(request)), (ssize_t)strlen(request));
    UNTIL(b, slow.read != NULL || slow.docs != NULL || slow.stat != NULL);
    http_drain(&b->http);
    http_close_all(&b->http);
    UNTIL(b, b->http.n_connections == 0);
    gateway_stop(b->gateway, on_stopped, b);
    turns(b, 5);
}

/* Each read that comes is let go of, and waited for: how many there were. */
static int answer_reads(struct bench *b)
{
    int n = 0;
    for (struct store_read *r; (r = slow.read) != NULL; n++) {
        assert_false(b->stopped);
        slow.read = NULL;
        slow.real->read(b->store, r);
        UNTIL(b, slow.read != NULL || b->stopped);
    }
    return n;
}

static void test_a_read_is_waited_for(void **state)
{
    struct bench *b = *state;
    ask_and_stop(b, "GET /a/" ID " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_int_equal(answer_reads(b), 2); /* the events, and then a snapshot */
    assert_true(b->stopped);
}

static void test_a_snapshot_is_waited_for(void **state)
{
    struct bench *b = *state;
    ask_and_stop(b, "GET /a/" ID "?from=snapshot HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_int_equal(answer_reads(b), 3); /* the snapshot, the events, and once more */
    assert_true(b->stopped);
}

/* The key is free: nothing begins under it any more. */
static void test_a_key_is_waited_for(void **state)
{
    struct bench *b = *state;
    ask_and_stop(b, "POST /a HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k\r\n"
                    "Content-Length: 2\r\n\r\n{}");
    assert_non_null(slow.docs);
    assert_false(b->stopped);
    slow.real->docs(b->store, slow.docs);
    UNTIL(b, b->stopped);
}

static void test_a_stop_is_waited_for(void **state)
{
    struct bench *b = *state;
    ask_and_stop(b, "POST /a/" ID "/stop HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_non_null(slow.stat);
    assert_false(b->stopped);
    slow.real->stat(b->store, slow.stat);
    UNTIL(b, b->stopped);
}

/* ---- keys ---- */

static void on_put(struct store_put *p, int err)
{
    assert_int_equal(err, 0);
    n_put++;
}

static void put_key(struct bench *b, int i, int64_t expires_ms)
{
    struct buf value = {0};
    pack_str(&value, STR(ID));
    pack_str(&value, STR("a fingerprint"));
    pack_i64(&value, expires_ms);
    char key[32];
    snprintf(key, sizeof key, "gateway-key/%04d", i);
    struct doc_put put = {.key = str_of_cstr(key), .value = buf_str(&value)};
    struct store_put op = {.docs = &put, .n_docs = 1, .done = on_put};
    store_put(b->store, &op);
    n_put = 0;
    UNTIL(b, n_put == 1);
    buf_deinit(&value);
}

static void on_count(struct store_docs *d, int err)
{
    assert_int_equal(err, 0);
    n_left = d->n_rows;
}

static size_t count_keys(struct bench *b)
{
    struct store_docs docs = {.prefix = STR("gateway-key/"), .limit = 1000, .done = on_count};
    n_left = SIZE_MAX;
    store_docs(b->store, &docs);
    UNTIL(b, n_left != SIZE_MAX);
    return n_left;
}

static void test_all_keys_whose_time_is_over_go(void **state)
{
    struct bench *b = *state;
    slow.ops.docs = slow.real->docs;
    for (int i = 0; i < 600; i++)
        put_key(b, i, i % 200 == 7 ? INT64_MAX : 1);
    gateway_sweep_keys(b->gateway);
    UNTIL(b, count_keys(b) == 3);
    http_close_all(&b->http);
    UNTIL(b, b->http.n_connections == 0);
    gateway_stop(b->gateway, on_stopped, b);
    UNTIL(b, b->stopped);
}

/* ---- walks go page by page ---- */

#define PAGE 256

static void on_made(struct store_write *w, int err)
{
    assert_int_equal(err, 0);
    n_put++;
}

static const char *stream_of(int i)
{
    static char name[64];
    snprintf(name, sizeof name, ".route/a/00000000-0000-4000-8000-%012d", i);
    return name;
}

static void make_stream(struct bench *b, const char *name)
{
    struct stream_config config = {
        .content_type = STR("text/plain"), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    struct store_write w = {.name = str_of_cstr(name), .create = &config, .done = on_made};
    n_put = 0;
    store_write(b->store, &w);
    UNTIL(b, n_put == 1);
}

static struct store_list *listed;

static void slow_list(struct store *s, struct store_list *l)
{
    assert_true(l->limit <= PAGE);
    listed = l;
}

static void slow_pages(struct store *s, struct store_docs *d)
{
    assert_true(d->limit <= PAGE);
    slow.docs = d;
}

static void on_all(struct store_list *l, int err)
{
    n_left = 0;
    for (size_t i = 0; i < l->n_rows; i++)
        n_left += l->rows[i].info.end == END_NONE;
}

static size_t count_open(struct bench *b)
{
    struct store_list l = {
        .prefix = STR(".route/"), .limit = SIZE_MAX, .reserved = true, .done = on_all};
    n_left = SIZE_MAX;
    slow.real->list(b->store, &l);
    UNTIL(b, n_left != SIZE_MAX);
    return n_left;
}

static void stop(struct bench *b)
{
    http_close_all(&b->http);
    UNTIL(b, b->http.n_connections == 0);
    gateway_stop(b->gateway, on_stopped, b);
    UNTIL(b, b->stopped);
}

/* With streams from before, and the first page of them being read. */
static int set_up_orphans(void **state)
{
    orphans = 600;
    int err = set_up(state);
    orphans = 0;
    return err;
}

static size_t answer_lists(struct bench *b)
{
    size_t pages = 0;
    for (; listed != NULL; pages++) {
        struct store_list *l = listed;
        listed = NULL;
        slow.real->list(b->store, l);
        turns(b, 10);
    }
    return pages;
}

/* What is begun while they are looked for is not one of them. */
static void test_orphans_are_closed_page_by_page(void **state)
{
    struct bench *b = *state;
    struct generation *ours = (struct generation *)b; /* nobody looks at it */
    struct str id = str_skip(str_of_cstr(stream_of(450)), sizeof ".route/a/" - 1);
    char snapshot[80];
    map_put(&b->gateway->running, id, ours);
    snprintf(snapshot, sizeof snapshot, "%s.snapshot", stream_of(450));
    make_stream(b, snapshot);
    assert_int_equal(count_open(b), 601);
    assert_int_equal(answer_lists(b), 3);
    assert_int_equal(count_open(b), 2);
    map_remove(&b->gateway->running, id);
    stop(b);
}

static void test_stops_while_orphans_are_closed(void **state)
{
    struct bench *b = *state;
    http_close_all(&b->http);
    UNTIL(b, b->http.n_connections == 0);
    gateway_stop(b->gateway, on_stopped, b);
    turns(b, 5);
    assert_false(b->stopped);
    assert_int_equal(answer_lists(b), 1);
    UNTIL(b, b->stopped);
    assert_int_equal(count_open(b), 600 - PAGE);
}

static void test_keys_go_page_by_page(void **state)
{
    struct bench *b = *state;
    int pages = 0;
    for (int i = 0; i < 600; i++)
        put_key(b, i, i >= PAGE && i % 2 == 0 ? 1 : INT64_MAX);
    slow.ops.docs = slow_pages;
    gateway_sweep_keys(b->gateway);
    UNTIL(b, slow.docs != NULL);
    for (; slow.docs != NULL; pages++) {
        struct store_docs *d = slow.docs;
        slow.docs = NULL;
        slow.real->docs(b->store, d);
        turns(b, 10);
    }
    assert_int_equal(pages, 3);
    slow.ops.docs = slow.real->docs;
    assert_int_equal(count_keys(b), 600 - (600 - PAGE) / 2);
    stop(b);
}

static void test_stops_while_keys_go(void **state)
{
    struct bench *b = *state;
    for (int i = 0; i < 600; i++)
        put_key(b, i, 1);
    slow.ops.docs = slow_pages;
    gateway_sweep_keys(b->gateway);
    UNTIL(b, slow.docs != NULL);
    http_close_all(&b->http);
    UNTIL(b, b->http.n_connections == 0);
    gateway_stop(b->gateway, on_stopped, b);
    turns(b, 5);
    assert_false(b->stopped);
    slow.real->docs(b->store, slow.docs);
    UNTIL(b, b->stopped);
    slow.ops.docs = slow.real->docs;
    assert_int_equal(count_keys(b), 600 - PAGE);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_a_read_is_waited_for),
        T(test_a_snapshot_is_waited_for),
        T(test_a_key_is_waited_for),
        T(test_a_stop_is_waited_for),
        T(test_all_keys_whose_time_is_over_go),
        T(test_keys_go_page_by_page),
        T(test_stops_while_keys_go),
        cmocka_unit_test_setup_teardown(test_orphans_are_closed_page_by_page, set_up_orphans,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_stops_while_orphans_are_closed, set_up_orphans,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
