// SPDX-License-Identifier: Apache-2.0
/* gateway.c -- the life of the gateway: its routes, what an earlier process left, draining and
 * stopping. Requests come in by gateway_http.c. */
#include "feature/gateway/gateway.h"
#include "base/err.h"
#include "base/mem.h"
#include "feature/gateway/gateway_core.h"
#include "feature/gateway/gateway_trace.h"
#include "feature/gateway/recorder.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>

#define SWEEP_MS (60 * 60 * 1000)
#define PROBE_MS 1000 /* after a failure of the store, before it is tried again */

/* ---- names ---- */

/* GATEWAY_STREAMS ends with a slash, and a path begins with one. */
struct str gateway_stream(struct arena *a, const struct gateway_route *r, struct str request_id,
                          const char *suffix)
{
    return arena_printf(a, GATEWAY_STREAMS "%.*s/%.*s%s", (int)r->path.n - 1, r->path.p + 1,
                        (int)request_id.n, request_id.p, suffix);
}

int64_t gateway_ttl_s(const struct route_config *c)
{
    return (int64_t)(c->state_ttl_ms + 999) / 1000;
}

bool gateway_is_request_id(struct str text)
{
    if (text.n != REQUEST_ID_TEXT)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
    }
    return true;
}

/* ---- whether the store takes new streams ---- */

bool gateway_is_trouble(int err)
{
    return ERR_IS_PASSING(err) || err == ERR_IO || err == ERR_FULL || err == ERR_UPSTREAM;
}

bool gateway_is_worth_trying(const struct gateway *g)
{
    return !g->failing || (!g->probing && g->setup.sched->now_ms - g->failed_ms >= PROBE_MS);
}

bool gateway_try(struct gateway *g)
{
    bool probes = g->failing && !g->probing;
    g->probing |= probes;
    return probes;
}

void gateway_tried(struct gateway *g, bool probed, int err)
{
    if (probed)
        g->probing = false;
    g->failing = gateway_is_trouble(err);
    if (!g->failing)
        return;
    g->failed_ms = g->setup.sched->now_ms;
    gateway_look_for_leftovers(g);
}

/* The name ends with the request id, and that of a snapshot with a suffix behind it. */
bool gateway_runs(const struct gateway *g, struct str stream)
{
    struct str suffix = STR(RECORDER_SNAPSHOT_SUFFIX);
    if (str_ends(stream, suffix))
        stream.n -= suffix.n;
    return stream.n > REQUEST_ID_TEXT &&
           map_get(&g->running, str_skip(stream, stream.n - REQUEST_ID_TEXT)) != NULL;
}

/* ---- what an earlier process left ---- */

/* Streams that are still open and not run here belong to nobody any more: each is closed, so that
 * its readers know. A walk, a page at a time; those of a page are closed before the next one. */
#define ORPHANS_PAGE 256

struct orphan {
    struct store_write write;
    struct orphans *all;
    char name[STORE_NAME_MAX];
};

struct orphans {
    struct gateway *gateway;
    struct store_list list;
    struct orphan *page;
    size_t closing; /* of the page */
    size_t last_n;  /* 0: there is no page behind it */
    char last[STORE_NAME_MAX];
};

static void gateway_on_orphans(struct store_list *l, int err);

static void list_orphans(struct orphans *o)
{
    o->list = (struct store_list){.prefix = STR(GATEWAY_STREAMS),
                                  .after = str_of(o->last, o->last_n),
                                  .limit = ORPHANS_PAGE,
                                  .reserved = true,
                                  .done = gateway_on_orphans};
    store_list(o->gateway->setup.store, &o->list);
}

static void next_orphans(struct orphans *o)
{
    struct gateway *g = o->gateway;
    free(o->page);
    o->page = NULL;
    if (o->last_n > 0 && !g->stopping) {
        list_orphans(o);
        return;
    }
    free(o);
    gateway_end(g);
}

static void gateway_on_orphan_closed(struct store_write *w, int err)
{
    struct orphans *o = container_of(w, struct orphan, write)->all;
    if (--o->closing == 0)
        next_orphans(o);
}

static void close_orphan(struct orphans *o, struct orphan *one, struct str name)
{
    memcpy(one->name, name.p, name.n);
    one->all = o;
    one->write = (struct store_write){.name = str_of(one->name, name.n),
                                      .close = true,
                                      .end = END_ORPHANED,
                                      .done = gateway_on_orphan_closed};
    o->closing++;
    store_write(o->gateway->setup.store, &one->write);
}

static void gateway_on_orphans(struct store_list *l, int err)
{
    struct orphans *o = container_of(l, struct orphans, list);
    size_t n = err == 0 ? l->n_rows : 0;
    o->page = mem_alloc((n + 1) * sizeof *o->page);
    o->last_n = 0;
    if (n > 0 && l->more) {
        o->last_n = l->rows[n - 1].name.n;
        memcpy(o->last, l->rows[n - 1].name.p, o->last_n);
    }
    for (size_t i = 0; i < n; i++)
        if (l->rows[i].info.end == END_NONE && !gateway_runs(o->gateway, l->rows[i].name))
            close_orphan(o, &o->page[i], l->rows[i].name);
    if (o->closing == 0)
        next_orphans(o);
}

static void find_orphans(struct gateway *g)
{
    struct orphans *o = mem_zalloc(sizeof *o);
    o->gateway = g;
    gateway_begin(g);
    list_orphans(o);
}

/* ---- what is counted ---- */

static void gateway_on_sweep(struct timer *t)
{
    struct gateway *g = container_of(t, struct gateway, sweep);
    gateway_sweep_keys(g);
    sched_start(g->setup.sched, &g->sweep, SWEEP_MS);
}

static int add_metrics(struct gateway *g)
{
    struct metrics *m = g->setup.metrics;
    struct str prefix = STR("tidemark");
    int err = gateway_events_init(&g->events, m, g->setup.trace, g->setup.telemetry_prefix);
    if (err == 0)
        err =
            metrics_add_family(m, prefix, &gateway_running_info, METRIC_GAUGE, &g->running_family);
    if (err == 0)
        err =
            metrics_add_family(m, prefix, &gateway_passing_info, METRIC_GAUGE, &g->passing_family);
    if (err == 0)
        err = metrics_add_family(m, prefix, &gateway_refused_info, METRIC_COUNTER,
                                 &g->refused_family);
    if (err == 0)
        err =
            metrics_add_family(m, prefix, &gateway_failed_info, METRIC_COUNTER, &g->failed_family);
    return err;
}

/* ---- routes ---- */

static struct gateway_route *add_route(struct gateway *g, const struct route_config *c,
                                       struct source_kind source)
{
    struct gateway_route *r = mem_zalloc(sizeof *r);
    *r = (struct gateway_route){
        .gateway = g, .config = c, .source = source, .path = str_of_cstr(c->path)};
    quota_init(&r->quota, c->requests_per_minute, 0);
    quota_init(&r->anonymous, c->anonymous_per_minute, 0);
    r->running = metric_family_gauge(g->running_family, &r->path);
    r->passing = metric_family_gauge(g->passing_family, &r->path);
    r->refused_rate =
        metric_family_counter(g->refused_family, (struct str[]){r->path, STR("rate")});
    r->refused_parallel =
        metric_family_counter(g->refused_family, (struct str[]){r->path, STR("parallel")});
    g->routes = mem_realloc(g->routes, (g->n_routes + 1) * sizeof *g->routes);
    g->routes[g->n_routes++] = r;
    return r;
}

static void route_free(struct gateway_route *r)
{
    quota_deinit(&r->quota);
    quota_deinit(&r->anonymous);
    upstream_headers_free(&r->added);
    if (r->local != NULL) {
        options_free(&route_options, r->local);
        free(r->local->path);
    }
    free(r->local);
    free(r);
}

struct gateway_route *gateway_add_local(struct gateway *g, const struct gateway_local *local)
{
    struct route_config *c = mem_zalloc(sizeof *c);
    char ignored[64];
    options_defaults(&route_options, c, ignored, sizeof ignored);
    c->path = mem_alloc(strlen(local->path) + 1);
    memcpy(c->path, local->path, strlen(local->path) + 1);
    c->dialect = ROUTE_DIALECT_OPENAI;
    c->parallel = local->parallel;
    if (c->state_ttl_ms < local->longest_ms)
        c->state_ttl_ms = local->longest_ms;
    route_finish(c, ignored, sizeof ignored);
    struct gateway_route *r = add_route(g, c, local->source);
    r->local = c;
    gateway_mount(r);
    return r;
}

void gateway_orphan_route(struct gateway_route *r)
{
    generations_orphan(r->gateway, r);
}

/* ---- the whole ---- */

static int add_configured(struct gateway *g, const struct route_config *c, char *why, size_t size)
{
    struct source_kind upstream = {.open = gateway_upstream_open, .ctx = g->setup.fetcher};
    struct gateway_route *r = add_route(g, c, upstream);
    char reason[256];
    if (upstream_headers_load(&r->added, &c->upstream_header, reason, sizeof reason) != 0) {
        snprintf(why, size, "[route %s] upstream-header: %s", c->path, reason);
        return ERR_SYNTAX;
    }
    gateway_mount(r);
    return 0;
}

struct gateway *gateway_new(const struct gateway_setup *setup, char *why, size_t size)
{
    struct gateway *g = mem_zalloc(sizeof *g);
    g->setup = *setup;
    resume_keys_init(&g->keys, setup->secret, setup->previous_secret);
    map_init(&g->running);
    map_init(&g->chats);
    list_init(&g->awaits);
    list_init(&g->wholes);
    repeats_init(&g->repeats);
    list_init(&g->passes);
    gate_init(&g->generations, setup->sched);
    gate_init(&g->under_way, setup->sched);
    timer_init(&g->sweep, gateway_on_sweep);
    gateway_presence_init(g);
    if (add_metrics(g) != 0) {
        snprintf(why, size, "telemetry-prefix %.*s makes no names of metrics",
                 (int)setup->telemetry_prefix.n, setup->telemetry_prefix.p);
        gateway_free(g);
        return NULL;
    }
    for (size_t i = 0; i < setup->n_routes; i++)
        if (add_configured(g, &setup->routes[i], why, size) != 0) {
            gateway_free(g);
            return NULL;
        }
    if (setup->instances == NULL)
        find_orphans(g);
    sched_start(setup->sched, &g->sweep, SWEEP_MS);
    return g;
}

void gateway_set_times(struct gateway *g, uint64_t heartbeat_ms, uint64_t write_timeout_ms)
{
    g->setup.heartbeat_ms = heartbeat_ms;
    g->setup.write_timeout_ms = write_timeout_ms;
}

static uint64_t gateway_count_degraded(const void *state)
{
    return ((const struct gateway *)state)->events.counts[GATEWAY_DEGRADED].n;
}

const struct feature_trouble gateway_troubles[] = {
    {.count = gateway_count_degraded, .told = &TRACE_KIND_ANSWERS_DEGRADED},
    {0},
};

void gateway_drain(struct gateway *g, void (*drained)(void *ctx), void *ctx)
{
    gate_shut(&g->generations, drained, ctx);
}

size_t gateway_orphan(struct gateway *g)
{
    size_t n = g->running.n;
    generations_orphan(g, NULL);
    return n;
}

/* What they began last in the store is waited for as well. */
static void gateway_on_no_generation(void *ctx)
{
    struct gateway *g = ctx;
    gate_shut(&g->under_way, g->stopped, g->stopped_ctx);
}

void gateway_stop(struct gateway *g, void (*stopped)(void *ctx), void *ctx)
{
    g->stopping = true;
    g->stopped = stopped;
    g->stopped_ctx = ctx;
    timer_stop(&g->sweep);
    gateway_presence_stop(g);
    gateway_await_stop(g);
    gateway_whole_stop(g);
    gateway_pass_stop(g);
    generations_orphan(g, NULL);
    gate_shut(&g->generations, gateway_on_no_generation, g);
}

void gateway_free(struct gateway *g)
{
    if (g == NULL)
        return;
    timer_stop(&g->sweep);
    gateway_presence_stop(g);
    task_cancel(&g->generations.notify);
    task_cancel(&g->under_way.notify);
    for (size_t i = 0; i < g->n_routes; i++)
        route_free(g->routes[i]);
    resume_keys_deinit(&g->keys);
    repeats_deinit(&g->repeats);
    map_deinit(&g->running);
    map_deinit(&g->chats);
    free(g->routes);
    free(g);
}
