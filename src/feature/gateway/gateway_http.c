// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/gateway.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "http/http.h"
#include "http/url.h"
#include "feature/gateway/gateway_core.h"
#include "feature/gateway/gateway_dialect.h"
#include "feature/gateway/gateway_trace.h"

#include <stdio.h>
#include <stdlib.h>

#define SWEEP_MS         (60 * 60 * 1000)
#define IGNORED_BODY_MAX (64 * 1024)

/* ---- small things that all parts use ---- */

/* STORE_RESERVED ends with a slash, and a path begins with one. */
struct str gateway_stream(struct arena *a, const struct gateway_route *r, struct str request_id,
                          const char *suffix)
{
    return arena_printf(a, STORE_RESERVED "%.*s/%.*s%s", (int)r->path.n - 1, r->path.p + 1,
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

void gateway_error(const struct gateway_route *r, struct exchange *x, int status, struct str code,
                   struct str message, struct str details)
{
    struct buf body = {0};
    struct dialect_problem problem = {status, code, message, details};
    dialect_put_problem(&body, (enum route_dialect)r->config->dialect, &problem);
    exchange_status(x, status);
    if (status == 503)
        exchange_header(x, STR("Retry-After"), STR("1"));
    exchange_header(x, STR("Content-Type"), STR("application/json"));
    exchange_header(x, STR("Cache-Control"), STR("no-store"));
    gateway_put_cors(x);
    exchange_send(x, buf_str(&body));
    buf_deinit(&body);
}

void gateway_refuse(const struct gateway_route *r, struct exchange *x, int err)
{
    gateway_error(r, x, err_http_status(err), str_of_cstr(err_name(err)),
                  str_of_cstr(err_text(err)), STR_NONE);
}

void gateway_refuse_draining(const struct gateway_route *r, struct exchange *x)
{
    gateway_error(r, x, 503, STR("DRAINING"), STR("The server is being stopped; try again"),
                  STR_NONE);
}

void gateway_send_failure(const struct gateway_route *r, struct exchange *x, struct str request_id,
                          enum end_reason end, int err, struct str message)
{
    message = gateway_end_message(end, message);
    exchange_header(x, STR("X-Correlation-ID"), arena_dup(&x->arena, request_id));
    if (end == END_ORPHANED)
        gateway_error(r, x, 503, STR("ORPHANED"), message, STR_NONE);
    else if (ERR_IS_PASSING(err) || err == ERR_IO || err == ERR_FULL)
        gateway_error(r, x, err_http_status(err), str_of_cstr(err_name(err)), message, STR_NONE);
    else if (err == ERR_UPSTREAM_TIMEOUT)
        gateway_error(r, x, 504, STR("UPSTREAM_TIMEOUT"), message, STR_NONE);
    else
        gateway_error(r, x, 502, STR("UPSTREAM_ERROR"), message, STR_NONE);
}

void gateway_put_cors(struct exchange *x)
{
    exchange_header(x, STR("Access-Control-Allow-Origin"), STR("*"));
    exchange_header(x, STR("Access-Control-Expose-Headers"),
                    STR("Retry-After, X-Correlation-ID, X-RateLimit-Limit, X-RateLimit-Remaining, "
                        "X-Resume-Token, X-Tidemark-Degraded"));
}

void gateway_send_status(struct exchange *x, struct str request_id, enum end_reason end)
{
    struct str status = end == END_NONE ? STR("running") : end_reason_text(end);
    exchange_status(x, 200);
    exchange_header(x, STR("Content-Type"), STR("application/json"));
    exchange_header(x, STR("Cache-Control"), STR("no-store"));
    gateway_put_cors(x);
    exchange_send(x, arena_printf(&x->arena, "{\"request_id\":\"%.*s\",\"status\":\"%.*s\"}\n",
                                  (int)request_id.n, request_id.p, (int)status.n, status.p));
}

/* ---- chats: the newest generation of one, by the id that its client has ---- */

typedef void chat_found_fn(struct gateway_route *r, struct exchange *x, struct str request_id);

static void find_chat(struct gateway_route *r, struct exchange *x, struct str encoded,
                      chat_found_fn *found)
{
    struct str chat;
    if (url_decode(&x->arena, encoded, false, &chat) != 0) {
        found(r, x, STR_NONE);
        return;
    }
    struct str key = generation_chat_key(&x->arena, r, gateway_caller(r, x), chat);
    if (r->gateway->setup.instances != NULL)
        presence_find_chat(r, x, key, found);
    else
        found(r, x, generation_of_chat(r->gateway, &x->arena, key));
}

static bool has_chats(const struct gateway_route *r)
{
    return r->config->dialect == ROUTE_DIALECT_UI_MESSAGE;
}

static void send_nothing(struct exchange *x)
{
    exchange_status(x, 204);
    gateway_put_cors(x);
    exchange_send(x, STR_NONE);
}

/* ---- stop: POST PATH/{id}/stop, DELETE PATH/{id} ---- */

struct stop_request {
    struct store_stat stat;
    struct store_write close;
    struct gateway_route *route;
    struct exchange *x;
    struct str id;
    bool may_be_chat; /* the id, if it is no generation's */
};

static void gateway_on_chat_to_stop(struct gateway_route *r, struct exchange *x,
                                    struct str request_id);

static void refuse_stop(struct stop_request *r, int err)
{
    bool gone = err == ERR_NOT_FOUND || err == ERR_DELETED;
    if (gone && r->may_be_chat)
        find_chat(r->route, r->x, r->id, gateway_on_chat_to_stop);
    else
        gateway_refuse(r->route, r->x, err);
}

static void answer_stop(struct stop_request *r, int err, enum end_reason end)
{
    struct gateway *g = r->route->gateway;
    if (err != 0)
        refuse_stop(r, err);
    else
        gateway_send_status(r->x, r->id, end);
    exchange_release(r->x);
    gateway_end(g);
}

/* It has ended already, maybe of itself: that is what was wanted. */
static void gateway_on_stop_stat(struct store_stat *stat, int err)
{
    answer_stop(container_of(stat, struct stop_request, stat), err, stat->info.end);
}

static void gateway_on_stop_closed(struct store_write *w, int err)
{
    /* it may have ended before */
    answer_stop(container_of(w, struct stop_request, close), err, w->info.end);
}

/* Another process may run it: it lets go when it finds its stream closed. */
static void stop_elsewhere(struct gateway_route *r, struct stop_request *s)
{
    s->close = (struct store_write){
        .name = s->stat.name, .close = true, .end = END_CANCELLED, .done = gateway_on_stop_closed};
    store_write(r->gateway->setup.store, &s->close);
}

static void stop_generation(struct gateway_route *r, struct exchange *x, struct str id,
                            bool may_be_chat)
{
    struct generation *gen = generation_find(r, id);
    if (gen != NULL) {
        generation_cancel(gen, x);
        return;
    }
    struct stop_request *s = arena_alloc(&x->arena, sizeof *s);
    *s = (struct stop_request){
        .stat = {.name = gateway_stream(&x->arena, r, id, ""), .done = gateway_on_stop_stat},
        .route = r,
        .x = x,
        .id = id,
        .may_be_chat = may_be_chat};
    exchange_hold(x);
    gateway_begin(r->gateway);
    if (r->gateway->setup.instances != NULL)
        stop_elsewhere(r, s);
    else
        store_stat(r->gateway->setup.store, &s->stat);
}

/* Nothing is under way: it is as it should be. */
static void gateway_on_chat_to_stop(struct gateway_route *r, struct exchange *x,
                                    struct str request_id)
{
    if (request_id.n > 0)
        stop_generation(r, x, request_id, false);
    else
        send_nothing(x);
}

/* The client of a chat knows no other id. Where it is a generation's as well, that one is meant. */
static void stop_member(struct gateway_route *r, struct exchange *x, struct str id)
{
    if (gateway_is_request_id(id))
        stop_generation(r, x, id, has_chats(r));
    else
        find_chat(r, x, id, gateway_on_chat_to_stop);
}

/* ---- reading: GET PATH/{id} ---- */

static void gateway_on_late_snapshot(struct snapshot_look *l)
{
    struct read_order *o = l->ctx;
    if (l->payload.n > 0)
        gateway_send_snapshot(o->route, o->x, o->request_id, l);
    else
        gateway_refuse(o->route, o->x, ERR_NOT_FOUND);
    snapshot_look_free(l);
    exchange_release(o->x);
}

static void gateway_on_missing(struct read_order *o)
{
    snapshot_look_new(o->route, o->request_id, gateway_on_late_snapshot, o);
}

static void gateway_on_chat_missing(struct read_order *o)
{
    send_nothing(o->x);
    exchange_release(o->x);
}

static void read_generation(struct gateway_route *r, struct exchange *x, struct str id)
{
    struct str from = STR_NONE;
    struct read_order *o = arena_alloc(&x->arena, sizeof *o);
    url_query(&x->arena, x->request->query, STR("from"), &from);
    *o = (struct read_order){.route = r,
                             .x = x,
                             .request_id = id,
                             .seq = gateway_last_event_id(x),
                             .from_snapshot = str_eq(from, STR("snapshot")),
                             .missing = gateway_on_missing,
                             .polite = request_header(x->request, STR("Last-Event-ID")).p != NULL};
    exchange_hold(x);
    gateway_read(o);
}

/* The AI SDK's way to come back to a chat: 204 when nothing is under way. */
static void gateway_on_chat_found(struct gateway_route *r, struct exchange *x,
                                  struct str request_id)
{
    if (request_id.n == 0) {
        send_nothing(x);
        return;
    }
    struct read_order *o = arena_alloc(&x->arena, sizeof *o);
    *o = (struct read_order){.route = r,
                             .x = x,
                             .request_id = request_id,
                             .missing = gateway_on_chat_missing,
                             .waits = true};
    exchange_hold(x);
    gateway_read(o);
}

/* ---- what is asked for ---- */

static void allow(const struct gateway_route *r, struct exchange *x, const char *methods)
{
    exchange_header(x, STR("Allow"), str_of_cstr(methods));
    gateway_error(r, x, 405, STR("METHOD"), arena_printf(&x->arena, "This path takes %s", methods),
                  STR_NONE);
}

void gateway_preflight(struct exchange *x)
{
    exchange_status(x, 204);
    gateway_put_cors(x);
    exchange_header(x, STR("Access-Control-Allow-Methods"), STR("GET, POST, DELETE, OPTIONS"));
    struct str asked = request_header(x->request, STR("Access-Control-Request-Headers"));
    if (asked.p != NULL) /* what the upstream takes is not ours to say */
        exchange_header(x, STR("Access-Control-Allow-Headers"), asked);
    exchange_header(x, STR("Access-Control-Max-Age"), STR("86400"));
    exchange_send(x, STR_NONE);
}

static void nowhere(const struct gateway_route *r, struct exchange *x)
{
    gateway_error(r, x, 404, STR("NO_ROUTE"), STR("This route has nothing under this path"),
                  STR_NONE);
}

static void handle_member(struct gateway_route *r, struct exchange *x, struct str id,
                          struct str what)
{
    enum method m = x->request->method;
    bool chat = str_eq(what, STR("stream")) && has_chats(r), stop = str_eq(what, STR("stop"));
    bool known = what.p == NULL || stop;
    if (chat && m == METHOD_GET)
        find_chat(r, x, id, gateway_on_chat_found);
    else if (chat && m == METHOD_DELETE)
        find_chat(r, x, id, gateway_on_chat_to_stop);
    else if (chat)
        allow(r, x, "GET, DELETE");
    else if (!known || !(gateway_is_request_id(id) || (stop && has_chats(r))))
        nowhere(r, x);
    else if (stop && m != METHOD_POST)
        allow(r, x, "POST");
    else if (stop)
        stop_member(r, x, id);
    else if (m == METHOD_DELETE)
        stop_generation(r, x, id, false);
    else if (m == METHOD_GET)
        read_generation(r, x, id);
    else
        allow(r, x, "GET, DELETE");
}

/* Below the route's own path bodies say nothing: what comes is not looked at. */
static void gateway_on_ignored_body(struct exchange *x, struct str body, int err)
{
    struct gateway_route *r = x->state;
    struct str rest = str_skip(x->request->path, r->path.n + 1);
    struct str id = str_cut(&rest, '/');
    if (err != 0)
        gateway_refuse(r, x, err);
    else if (!str_eq(id, STR("resume")) || rest.p != NULL)
        handle_member(r, x, id, rest);
    else if (x->request->method == METHOD_POST)
        gateway_resume(r, x);
    else
        allow(r, x, "POST");
}

static void gateway_handle(void *ctx, struct exchange *x)
{
    struct gateway_route *r = ctx;
    enum method m = x->request->method;
    struct str rest = str_skip(x->request->path, r->path.n);
    x->state = r;
    if (r->source.admit != NULL && !r->source.admit(r->source.ctx, x))
        return;
    if (m == METHOD_OPTIONS)
        gateway_preflight(x);
    else if (rest.n > 0 && rest.p[0] != '/')
        nowhere(r, x);
    else if (rest.n > 0)
        exchange_collect(x, IGNORED_BODY_MAX, gateway_on_ignored_body);
    else if (m == METHOD_POST)
        gateway_start(r, x);
    else
        allow(r, x, "POST");
}

/* ---- what an earlier process left ---- */

/* Streams that are still open belong to nobody any more: each is closed, so that its readers know.
 */
struct orphan {
    struct store_write write;
    struct gateway *gateway;
    char name[];
};

struct orphan_list {
    struct store_list list;
    struct gateway *gateway;
};

static void gateway_on_orphan_closed(struct store_write *w, int err)
{
    struct orphan *o = container_of(w, struct orphan, write);
    gateway_end(o->gateway);
    free(o);
}

static void close_orphan(struct gateway *g, struct str name)
{
    struct orphan *o = mem_zalloc(sizeof *o + name.n);
    memcpy(o->name, name.p, name.n);
    o->gateway = g;
    o->write = (struct store_write){.name = str_of(o->name, name.n),
                                    .close = true,
                                    .end = END_ORPHANED,
                                    .done = gateway_on_orphan_closed};
    gateway_begin(g);
    store_write(g->setup.store, &o->write);
}

static void gateway_on_orphans(struct store_list *l, int err)
{
    struct orphan_list *o = container_of(l, struct orphan_list, list);
    struct gateway *g = o->gateway;
    for (size_t i = 0; err == 0 && i < l->n_rows; i++)
        if (l->rows[i].info.end == END_NONE)
            close_orphan(g, l->rows[i].name);
    gateway_end(g);
    free(o);
}

/* Before anything is served: what is open now is not ours. */
static void find_orphans(struct gateway *g)
{
    struct orphan_list *o = mem_zalloc(sizeof *o);
    o->gateway = g;
    o->list = (struct store_list){.prefix = STR(STORE_RESERVED),
                                  .limit = SIZE_MAX,
                                  .reserved = true,
                                  .done = gateway_on_orphans};
    gateway_begin(g);
    store_list(g->setup.store, &o->list);
}

/* ---- the whole ---- */

static void gateway_on_sweep(struct timer *t)
{
    struct gateway *g = container_of(t, struct gateway, sweep);
    gateway_sweep_keys(g);
    sched_start(g->setup.sched, &g->sweep, SWEEP_MS);
}

void gateway_begin(struct gateway *g)
{
    g->background++;
}

void gateway_end(struct gateway *g)
{
    g->background--;
    gateway_check_stopped(g);
}

void gateway_check_stopped(struct gateway *g)
{
    if (g->drained != NULL && g->running.n == 0)
        sched_post(g->setup.sched, &g->drain);
    if (g->stopping && g->background == 0 && g->running.n == 0)
        sched_post(g->setup.sched, &g->stop);
}

static void gateway_run_drained(struct task *t)
{
    struct gateway *g = container_of(t, struct gateway, drain);
    void (*drained)(void *ctx) = g->drained;
    g->drained = NULL;
    if (drained != NULL)
        drained(g->drained_ctx);
}

static void gateway_run_stop(struct task *t)
{
    struct gateway *g = container_of(t, struct gateway, stop);
    g->stopped(g->stopped_ctx);
}

static int add_metrics(struct gateway *g)
{
    static const struct metric_info info = {.name = "gateway_generations",
                                            .help = "Generations under way",
                                            .labels = {"route"},
                                            .series_max = METRIC_SERIES_MAX};
    static const struct metric_info errors = {.name = "upstream_errors",
                                              .help = "Answers that upstreams did not give, or "
                                                      "not to their end",
                                              .labels = {"route", "reason"},
                                              .series_max = METRIC_SERIES_MAX};
    static const struct metric_info refused = {.name = "gateway_refused",
                                               .help = "Requests beyond a route's limits",
                                               .labels = {"route", "limit"},
                                               .series_max = METRIC_SERIES_MAX};
    struct metric_family *family, *refusals, *failures;
    int err = gateway_events_init(&g->events, g->setup.metrics, g->setup.trace,
                                  g->setup.telemetry_prefix);
    if (err == 0)
        err = metrics_add_family(g->setup.metrics, STR("tidemark"), &info, METRIC_GAUGE, &family);
    if (err == 0)
        err = metrics_add_family(g->setup.metrics, STR("tidemark"), &refused, METRIC_COUNTER,
                                 &refusals);
    if (err == 0)
        err = metrics_add_family(g->setup.metrics, STR("tidemark"), &errors, METRIC_COUNTER,
                                 &failures);
    for (size_t i = 0; err == 0 && i < g->n_routes; i++) {
        struct gateway_route *r = &g->routes[i];
        r->running = family_gauge(family, &r->path);
        r->upstream_errors = failures;
        r->refused_rate = family_counter(refusals, (struct str[]){r->path, STR("rate")});
        r->refused_parallel = family_counter(refusals, (struct str[]){r->path, STR("parallel")});
    }
    return err;
}

static void add_route(struct gateway *g, const struct route_config *c, struct source_kind source)
{
    struct gateway_route *r = &g->routes[g->n_routes++];
    *r = (struct gateway_route){
        .gateway = g, .config = c, .source = source, .path = str_of_cstr(c->path)};
    quota_init(&r->quota, c->requests_per_minute, 0);
}

struct gateway *gateway_new(const struct gateway_setup *setup, char *why, size_t size)
{
    struct gateway *g = mem_zalloc(sizeof *g);
    g->setup = *setup;
    g->routes = mem_zalloc((setup->n_routes + 1) * sizeof *g->routes);
    struct source_kind upstream = {.open = gateway_upstream_open, .ctx = setup->fetcher};
    for (size_t i = 0; i < setup->n_routes; i++)
        add_route(g, &setup->routes[i], upstream);
    if (setup->local.config != NULL)
        add_route(g, setup->local.config, setup->local.source);
    resume_keys_init(&g->keys, setup->secret, setup->previous_secret);
    map_init(&g->running);
    map_init(&g->chats);
    list_init(&g->awaits);
    list_init(&g->wholes);
    task_init(&g->drain, gateway_run_drained);
    task_init(&g->stop, gateway_run_stop);
    timer_init(&g->sweep, gateway_on_sweep);
    gateway_presence_init(g);
    if (add_metrics(g) != 0) {
        snprintf(why, size, "telemetry-prefix %.*s makes no names of metrics",
                 (int)setup->telemetry_prefix.n, setup->telemetry_prefix.p);
        gateway_free(g);
        return NULL;
    }
    if (setup->instances == NULL)
        find_orphans(g);
    sched_start(setup->sched, &g->sweep, SWEEP_MS);
    return g;
}

void gateway_mount(struct gateway *g, struct http *http)
{
    for (size_t i = 0; i < g->n_routes; i++)
        http_route(http, g->routes[i].path, gateway_handle, &g->routes[i]);
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
    g->draining = true;
    g->drained = drained;
    g->drained_ctx = ctx;
    gateway_check_stopped(g);
}

size_t gateway_orphan(struct gateway *g)
{
    size_t n = g->running.n;
    generations_orphan(g);
    return n;
}

void gateway_stop(struct gateway *g, void (*stopped)(void *ctx), void *ctx)
{
    g->draining = g->stopping = true;
    g->drained = NULL;
    g->stopped = stopped;
    g->stopped_ctx = ctx;
    timer_stop(&g->sweep);
    gateway_presence_stop(g);
    gateway_await_stop(g);
    gateway_whole_stop(g);
    generations_orphan(g);
    gateway_check_stopped(g);
}

void gateway_free(struct gateway *g)
{
    if (g == NULL)
        return;
    timer_stop(&g->sweep);
    gateway_presence_stop(g);
    task_cancel(&g->drain);
    task_cancel(&g->stop);
    for (size_t i = 0; i < g->n_routes; i++)
        quota_deinit(&g->routes[i].quota);
    resume_keys_deinit(&g->keys);
    map_deinit(&g->running);
    map_deinit(&g->chats);
    free(g->routes);
    free(g);
}
