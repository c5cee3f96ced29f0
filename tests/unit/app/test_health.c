// SPDX-License-Identifier: Apache-2.0
/* The three paths as bytes: a server's HTTP side on a loop, and a peer that speaks it by hand. */
#include "base/buf.h"
#include "base/mem.h"
#include "feature/feature.h"
#include "http/exchange.h"
#include "http/http.h"
#include "unit/http/mount.h"
#include "net/loop.h"
#include "app/health.h"
#include "telemetry/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct site {
    struct loop loop;
    struct http http;
    struct trace trace;
    struct metrics metrics;
    struct health status;
    const char *reason;
    uv_timer_t alive; /* a loop without active handles would not turn */
    int fd;
    char answer[16384];
};

static const char *unready(void *ctx)
{
    return ((struct site *)ctx)->reason;
}

static void on_alive(uv_timer_t *t)
{
}

static void teapot(void *ctx, struct exchange *x)
{
    exchange_problem(x, 418, STR("TEAPOT"), STR("short and stout"));
}

static void broken(void *ctx, struct exchange *x)
{
    exchange_problem(x, 500, STR("BROKEN"), STR("out of order"));
}

static void connect_peer(struct site *s)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    s->fd = fds[1];
    http_accept(&s->http, fds[0], NULL);
}

static int site_open(void **state, const struct store *store, const struct feature_state *states)
{
    struct site *s = mem_zalloc(sizeof *s);
    assert_int_equal(loop_init(&s->loop), 0);
    s->trace = (struct trace){.to = stderr, .level = TRACE_ERROR};
    http_init(&s->http, &s->loop, &s->trace,
              &(struct http_limits){.connections = 7,
                                    .inflight_bytes = 1 << 20,
                                    .head_timeout_ms = 10000,
                                    .idle_timeout_ms = 10000,
                                    .body_timeout_ms = 10000,
                                    .write_timeout_ms = 10000,
                                    .body_min_bytes = 1});
    metrics_init(&s->metrics);
    s->status = (struct health){.http = &s->http,
                                .metrics = &s->metrics,
                                .store = store,
                                .states = states,
                                .unready = unready,
                                .ctx = s};
    health_init(&s->status);
    mount_for_test(&s->http, "/teapot", teapot, NULL);
    mount_for_test(&s->http, "/broken", broken, NULL);
    uv_timer_init(&s->loop.uv, &s->alive);
    uv_timer_start(&s->alive, on_alive, 10, 10);
    connect_peer(s);
    *state = s;
    return 0;
}

static int set_up(void **state)
{
    return site_open(state, NULL, NULL);
}

static int tear_down(void **state)
{
    struct site *s = *state;
    http_close_all(&s->http);
    uv_close((uv_handle_t *)&s->alive, NULL);
    uv_run(&s->loop.uv, UV_RUN_DEFAULT);
    close(s->fd);
    http_deinit(&s->http);
    metrics_deinit(&s->metrics);
    loop_deinit(&s->loop);
    free(s);
    return 0;
}

/* The whole answer has come: its head, and what Content-Length says. */
static bool is_whole(const char *answer, size_t n)
{
    const char *end = strstr(answer, "\r\n\r\n");
    const char *length = strstr(answer, "Content-Length: ");
    if (end == NULL)
        return false;
    return length == NULL || n >= (size_t)(end + 4 - answer) + strtoul(length + 16, NULL, 10);
}

/* Sends a text and gives what comes back. HEAD has no body, whatever its length says. */
static const char *say(struct site *s, const char *text)
{
    size_t n = 0;
    bool head = strncmp(text, "HEAD", 4) == 0;
    uint64_t until = uv_hrtime() + UINT64_C(5000000000);
    assert_int_equal(write(s->fd, text, strlen(text)), (ssize_t)strlen(text));
    do {
        uv_run(&s->loop.uv, UV_RUN_ONCE);
        ssize_t got = read(s->fd, s->answer + n, sizeof s->answer - 1 - n);
        n += got > 0 ? (size_t)got : 0;
        s->answer[n] = '\0';
        assert_true(uv_hrtime() < until);
    } while (!(head ? strstr(s->answer, "\r\n\r\n") != NULL : is_whole(s->answer, n)));
    return s->answer;
}

static const char *ask(struct site *s, const char *method, const char *path)
{
    char text[1024];
    snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: localhost\r\n\r\n", method, path);
    return say(s, text);
}

static const char *body_of(const char *answer)
{
    return strstr(answer, "\r\n\r\n") + 4;
}

#define assert_has(text, what)                                                                     \
    do {                                                                                           \
        if (strstr(text, what) == NULL)                                                            \
            fail_msg("\"%s\" is not in: %s", what, text);                                          \
    } while (0)
#define assert_has_not(text, what) assert_null(strstr(text, what))

static void assert_status(const char *answer, const char *status)
{
    assert_memory_equal(answer, "HTTP/1.1 ", 9);
    assert_memory_equal(answer + 9, status, 3);
}

/* ---- health and readiness ---- */

static void test_healthy_as_long_as_it_answers(void **state)
{
    struct site *s = *state;
    s->reason = "out of disks";
    const char *answer = ask(s, "GET", "/healthz");
    assert_status(answer, "200");
    assert_has(answer, "Cache-Control: no-store\r\n");
    assert_string_equal(body_of(answer), "ok\n");
}

static void test_ready_until_there_is_a_reason(void **state)
{
    struct site *s = *state;
    const char *answer = ask(s, "GET", "/readyz");
    assert_status(answer, "200");
    assert_string_equal(body_of(answer), "ready\n");

    s->reason = "out of disks";
    answer = ask(s, "GET", "/readyz");
    assert_status(answer, "503");
    assert_has(answer, "Content-Type: application/json\r\n");
    assert_string_equal(body_of(answer), "{\"ready\":false,\"why\":\"out of disks\"}\n");
    assert_has(ask(s, "GET", "/metrics"), "\ntidemark_ready 0\n");

    s->reason = NULL;
    assert_status(ask(s, "GET", "/readyz"), "200");
    assert_has(ask(s, "GET", "/metrics"), "\ntidemark_ready 1\n");
}

/* ---- who may ask how ---- */

static void test_only_to_be_read(void **state)
{
    struct site *s = *state;
    static const char *const paths[] = {"/metrics", "/healthz", "/readyz"};
    for (size_t i = 0; i < 3; i++) {
        const char *answer = ask(s, "DELETE", paths[i]);
        assert_status(answer, "405");
        assert_has(answer, "Allow: GET, HEAD\r\n");
        answer = ask(s, "HEAD", paths[i]);
        assert_status(answer, "200");
        assert_string_equal(body_of(answer), "");
    }
}

static void test_paths_are_exact(void **state)
{
    struct site *s = *state;
    static const char *const others[] = {"/metricsX", "/metrics/", "/healthz/x", "/readyzz",
                                         "/Healthz"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_status(ask(s, "GET", others[i]), "404");
    assert_status(ask(s, "GET", "/readyz?verbose"), "200");
}

/* ---- metrics ---- */

static void test_metrics_of_the_whole_server(void **state)
{
    struct site *s = *state;
    const char *answer = ask(s, "GET", "/metrics");
    assert_status(answer, "200");
    assert_has(answer, "Content-Type: " METRICS_CONTENT_TYPE "\r\n");
    assert_has(answer, "\ntidemark_build_info{version=\"" TIDEMARK_VERSION "\"} 1\n");
    assert_has(answer, "\ntidemark_connections 1\n");
    assert_has(answer, "\ntidemark_connections_max 7\n");
    assert_has(answer, "\ntidemark_inflight_bytes 0\n");
    assert_has(answer, "\ntidemark_draining 0\n");
    assert_has_not(answer, "tidemark_store_"); /* a store in memory has no files */
    assert_has_not(answer, "\ntidemark_start_time_seconds 0\n");
    assert_has_not(answer, "\ntidemark_resident_memory_bytes 0\n");
}

/* An engine's figures and a feature's troubles. */

static uint64_t n_files, n_lost;

static size_t figures_of_files(const struct store *store, struct store_figure *out)
{
    static const struct metric_info files = {.name = "store_files", .help = "Files"};
    out[0] = (struct store_figure){&files, n_files};
    return 1;
}

static uint64_t count_lost(const void *state)
{
    return *(const uint64_t *)state;
}

static const struct metric_info lost_info = {.name = "things_lost", .help = "Things"};
static const struct feature_trouble lost_troubles[] = {
    {.count = count_lost}, {.count = count_lost, .metric = &lost_info}, {0}};
static const struct feature lossy = {.troubles = lost_troubles};
static struct feature_state lossy_states[] = {{.feature = &lossy}, {0}};

static int set_up_numbers(void **state)
{
    static const struct store_ops ops = {.figures = figures_of_files};
    static const struct store store = {.ops = &ops, .refused = {[STORE_FULL] = 2}};
    n_files = n_lost = 0;
    lossy_states[0].state = NULL;
    return site_open(state, &store, lossy_states);
}

static void test_figures_and_troubles_are_metrics(void **state)
{
    struct site *s = *state;
    n_lost = 5;
    const char *answer = ask(s, "GET", "/metrics");
    assert_has(answer, "\ntidemark_store_files 0\n");
    assert_has(answer, "\ntidemark_store_refusals_total{error=\"full\"} 2\n");
    assert_has(answer, "\ntidemark_things_lost_total 0\n"); /* the feature is not there */
    n_files = 3;
    lossy_states[0].state = &n_lost;
    answer = ask(s, "GET", "/metrics");
    assert_has(answer, "\n# TYPE tidemark_store_files gauge\ntidemark_store_files 3\n");
    assert_has(answer, "\n# TYPE tidemark_things_lost_total counter\n");
    assert_has(answer, "\ntidemark_things_lost_total 5\n");
}

static void test_numbers_are_those_of_now(void **state)
{
    struct site *s = *state;
    int first = s->fd;
    assert_has(ask(s, "GET", "/metrics"), "\ntidemark_connections 1\n");
    s->http.inflight_bytes = 4321;
    connect_peer(s);
    const char *answer = ask(s, "GET", "/metrics");
    assert_has(answer, "\ntidemark_connections 2\n");
    assert_has(answer, "\ntidemark_inflight_bytes 4321\n");
    s->http.draining = true;
    assert_has(ask(s, "GET", "/metrics"), "\ntidemark_draining 1\n");
    s->http.draining = false;
    s->http.inflight_bytes = 0;
    close(first);
}

static void test_responses_are_counted_by_class(void **state)
{
    struct site *s = *state;
    for (int i = 0; i < 3; i++)
        ask(s, "GET", "/healthz");
    ask(s, "GET", "/teapot");
    ask(s, "GET", "/nothing");
    ask(s, "GET", "/broken");
    const char *answer = ask(s, "GET", "/metrics");
    /* The scrape itself begins after it has been counted out. */
    assert_has(answer, "\ntidemark_responses_total{class=\"2xx\"} 3\n");
    assert_has(answer, "\ntidemark_responses_total{class=\"3xx\"} 0\n");
    assert_has(answer, "\ntidemark_responses_total{class=\"4xx\"} 2\n");
    assert_has(answer, "\ntidemark_responses_total{class=\"5xx\"} 1\n");
    assert_has(ask(s, "GET", "/metrics"), "\ntidemark_responses_total{class=\"2xx\"} 4\n");
}

static void test_refused_requests_count_too(void **state)
{
    struct site *s = *state;
    int first = s->fd;
    assert_status(say(s, "no request at all\r\n\r\n"), "400");
    connect_peer(s);
    assert_has(ask(s, "GET", "/metrics"), "\ntidemark_responses_total{class=\"4xx\"} 1\n");
    close(first);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_healthy_as_long_as_it_answers),
        TEST(test_ready_until_there_is_a_reason),
        TEST(test_only_to_be_read),
        TEST(test_paths_are_exact),
        TEST(test_metrics_of_the_whole_server),
        cmocka_unit_test_setup_teardown(test_figures_and_troubles_are_metrics, set_up_numbers,
                                        tear_down),
        TEST(test_numbers_are_those_of_now),
        TEST(test_responses_are_counted_by_class),
        TEST(test_refused_requests_count_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
