// SPDX-License-Identifier: Apache-2.0
/* Sessions as a feature: what is under way when they are stopped ends before they are freed. */
#include "base/err.h"
#include "base/mem.h"
#include "feature/feature.h"
#include "feature/sessions/session_config.h"
#include "feature/sessions/sessions.h"
#include "http/http.h"
#include "net/loop.h"
#include "store/mem/mem_store.h"
#include "stream/durable.h"
#include "stream/subscriber.h"
#include "telemetry/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#define TURNS 20 /* more than anything takes that waits for nobody */

extern const struct feature sessions_feature;

/* A server with sessions, whose store can be slow. */
struct site {
    struct loop loop;
    uv_timer_t alive;
    struct http http;
    struct trace trace;
    struct store *store;
    const struct store_ops *real;
    struct store_ops slow;
    struct store_read *held;
    struct feeds feeds;
    struct durable durable;
    struct session_config config;
    struct sessions_settings settings;
    struct feature_host host;
    void *state;
    bool stopped;
};

static struct site *site_of_store; /* ops know the store alone */

static void hold_read(struct store *s, struct store_read *r)
{
    assert_null(site_of_store->held);
    site_of_store->held = r;
}

static void on_alive(uv_timer_t *t)
{
}

static void turn(struct site *s)
{
    for (int i = 0; i < TURNS; i++)
        uv_run(&s->loop.uv, UV_RUN_ONCE);
}

static int set_up(void **state)
{
    struct site *s = site_of_store = mem_zalloc(sizeof *s);
    char why[256];
    assert_int_equal(loop_init(&s->loop), 0);
    uv_timer_init(&s->loop.uv, &s->alive);
    uv_timer_start(&s->alive, on_alive, 1, 1);
    s->trace = (struct trace){.to = stderr, .level = TRACE_ERROR};
    http_init(&s->http, &s->loop, &s->trace, &(struct http_limits){.connections = 1});
    s->store = mem_store_new(&s->loop.sched);
    s->real = s->store->ops;
    s->slow = *s->real;
    s->slow.read = hold_read;
    feeds_init(&s->feeds, s->store);
    s->durable = (struct durable){
        .store = s->store, .feeds = &s->feeds, .sched = &s->loop.sched, .read_chunk = 1024};
    s->config = (struct session_config){
        .handler = SESSION_HANDLER_NONE, .lifetime_ms = 60000, .max_open = 1, .max_bytes = 1024};
    s->settings.session = (struct section_list){.items = &s->config, .n = 1};
    s->host = (struct feature_host){.loop = &s->loop,
                                    .store = s->store,
                                    .feeds = &s->feeds,
                                    .http = &s->http,
                                    .durable = &s->durable,
                                    .trace = &s->trace};
    assert_int_equal(sessions_feature.open(&s->host, &s->settings, &s->state, why, sizeof why), 0);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct site *s = *state;
    uv_close((uv_handle_t *)&s->alive, NULL);
    uv_run(&s->loop.uv, UV_RUN_DEFAULT);
    http_deinit(&s->http);
    feeds_deinit(&s->feeds);
    store_free(s->store);
    loop_deinit(&s->loop);
    free(s);
    return 0;
}

static void on_stopped(void *ctx)
{
    ((struct site *)ctx)->stopped = true;
}

static void test_nothing_under_way(void **state)
{
    struct site *s = *state;
    sessions_feature.stop(s->state, on_stopped, s);
    turn(s);
    assert_true(s->stopped);
    sessions_feature.free(s->state);
}

struct reading {
    struct store_read op;
    int result; /* > 0: none yet */
};

static void on_read(struct store_read *r, int err)
{
    container_of(r, struct reading, op)->result = err;
}

/* The worker who asked may have gone: nobody else waits for what it began. */
static void test_a_read_of_a_worker(void **state)
{
    struct site *s = *state;
    struct reading r = {
        .op = {.name = STR("sessions/k/in"), .from = READ_START, .max_bytes = 1, .done = on_read},
        .result = 1};
    s->store->ops = &s->slow;
    store_read(sessions_workers_view(s->state), &r.op);
    sessions_feature.stop(s->state, on_stopped, s);
    turn(s);
    assert_non_null(s->held);
    assert_false(s->stopped);
    s->store->ops = s->real;
    store_read(s->store, s->held);
    turn(s);
    assert_int_equal(r.result, ERR_NOT_FOUND);
    assert_true(s->stopped);
    sessions_feature.free(s->state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_under_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_read_of_a_worker, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
