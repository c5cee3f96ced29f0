// SPDX-License-Identifier: Apache-2.0
#include "app/health.h"
#include "base/json.h"
#include "base/must.h"
#include "feature/feature.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/surface.h"
#include "net/loop.h"

#include <uv.h>

#define PREFIX "tidemark"

/* ---- numbers ---- */

static const struct metric_info gauge_infos[] = {
#define X(kind, text, said) {.name = text, .help = said},
    HEALTH_GAUGES(X)
#undef X
};

static const struct metric_info build_info = {
    .name = "build_info", .help = "Always 1", .labels = {"version"}, .series_max = 1};

static const struct metric_info responses_info = {
    .name = "responses",
    .help = "Responses begun, by the class of their status",
    .labels = {"class"},
    .series_max = HTTP_CLASSES};

static const struct metric_info refusals_info = {
    .name = "store_refusals",
    .help = "Operations that the store has refused for reasons of its own",
    .labels = {"error"},
    .series_max = STORE_TROUBLE_KINDS};

static const struct metric_info warnings_info = {
    .name = "config_warnings",
    .help = "1 for each setting that a warning was about at the start",
    .labels = {"setting"},
    .series_max = METRIC_SERIES_MAX};

static const struct str classes[HTTP_CLASSES] = {STR_INIT("1xx"), STR_INIT("2xx"), STR_INIT("3xx"),
                                                 STR_INIT("4xx"), STR_INIT("5xx")};

/* What an engine has no number of stays away instead of reading 0. */
static int register_figures(struct health *s)
{
    struct store_figure figures[STORE_FIGURES_MAX];
    size_t n = s->store == NULL ? 0 : store_figures(s->store, figures);
    int err = 0;
    for (size_t i = 0; i < n && err == 0; i++)
        err = metrics_add_gauge(s->metrics, STR(PREFIX), figures[i].info, &s->figures[i]);
    return err;
}

static int register_troubles(struct health *s)
{
    const struct feature_trouble *t;
    uint64_t ignored;
    int err = 0;
    for (size_t i = 0; err == 0 && (t = watch_trouble(s->states, i, &ignored)) != NULL; i++)
        if (t->metric != NULL)
            err = metrics_add_counter(s->metrics, STR(PREFIX), t->metric, &s->troubles[i]);
    return err;
}

static void register_all(struct health *s)
{
    struct metric_family *build = NULL;
    struct str version = STR(TIDEMARK_VERSION), prefix = STR(PREFIX);
    int err = metrics_add_family(s->metrics, prefix, &build_info, METRIC_GAUGE, &build);
    for (int i = 0; i < HEALTH_GAUGE_KINDS && err == 0; i++)
        err = metrics_add_gauge(s->metrics, prefix, &gauge_infos[i], &s->gauges[i]);
    if (err == 0)
        err = register_figures(s);
    if (err == 0)
        err =
            metrics_add_family(s->metrics, prefix, &responses_info, METRIC_COUNTER, &s->responses);
    if (err == 0)
        err = metrics_add_family(s->metrics, prefix, &refusals_info, METRIC_COUNTER, &s->refusals);
    if (err == 0)
        err = metrics_add_family(s->metrics, prefix, &warnings_info, METRIC_GAUGE, &s->warnings);
    if (err == 0)
        err = register_troubles(s);
    must(err == 0); /* the names are ours, and the first in the registry */
    gauge_set(metric_family_gauge(build, &version), 1);
}

static void look_at_store(struct health *s)
{
    struct store_figure figures[STORE_FIGURES_MAX];
    size_t n = store_figures(s->store, figures);
    for (size_t i = 0; i < n; i++)
        gauge_set(&s->figures[i], (int64_t)figures[i].value);
    for (int i = 0; i < STORE_TROUBLE_KINDS; i++) {
        struct str error = store_trouble_text((enum store_trouble)i);
        metric_family_counter(s->refusals, &error)->n = s->store->refused[i];
    }
}

static void health_look(struct health *s)
{
    struct gauge *g = s->gauges;
    size_t resident = 0;
    uint64_t n;
    gauge_set(&g[HEALTH_CONNECTIONS], (int64_t)s->http->n_connections);
    gauge_set(&g[HEALTH_INFLIGHT_BYTES], (int64_t)s->http->inflight_bytes);
    const struct unsent *unsent = &s->http->unsent;
    gauge_set(&g[HEALTH_UNSENT_BYTES], (int64_t)(unsent->held + unsent->large));
    gauge_set(&g[HEALTH_UNSENT_WAITING], (int64_t)unsent->waiting);
    gauge_set(&g[HEALTH_DRAINING], s->http->draining);
    gauge_set(&g[HEALTH_READY], s->unready(s->ctx) == NULL);
    if (uv_resident_set_memory(&resident) == 0)
        gauge_set(&g[HEALTH_MEMORY], (int64_t)resident);
    for (int i = 0; i < HTTP_CLASSES; i++)
        metric_family_counter(s->responses, &classes[i])->n = s->http->responses[i];
    if (s->store != NULL)
        look_at_store(s);
    for (size_t i = 0; watch_trouble(s->states, i, &n) != NULL; i++)
        s->troubles[i].n = n;
}

void health_reloaded(struct health *s, bool failed)
{
    gauge_set(&s->gauges[HEALTH_RELOAD_FAILED], failed);
    gauge_set(&s->gauges[HEALTH_CONNECTIONS_MAX], (int64_t)s->http->limits.connections);
}

void health_warn(struct health *s, struct str setting)
{
    gauge_set(metric_family_gauge(s->warnings, &setting), 1);
}

/* ---- answers ---- */

static void health_answer(struct exchange *x, int status, struct str type, struct str body)
{
    exchange_status(x, status);
    exchange_header(x, STR("Content-Type"), type);
    exchange_header(x, STR("Cache-Control"), STR("no-store"));
    exchange_send(x, body);
}

static void answer_line(struct exchange *x, int status, const char *line)
{
    struct buf body = {0};
    buf_put(&body, str_of_cstr(line));
    buf_putc(&body, '\n');
    health_answer(x, status, STR("text/plain; charset=utf-8"), buf_str(&body));
    buf_deinit(&body);
}

static void health_answer_metrics(struct health *s, struct exchange *x)
{
    struct buf body = {0};
    sched_work(&s->http->loop->sched, "metrics");
    health_look(s);
    metrics_put(s->metrics, &body);
    health_answer(x, 200, STR(METRICS_CONTENT_TYPE), buf_str(&body));
    buf_deinit(&body);
}

static void health_answer_liveness(struct health *s, struct exchange *x)
{
    answer_line(x, 200, "ok");
}

static void health_answer_readiness(struct health *s, struct exchange *x)
{
    const char *reason = s->unready(s->ctx);
    struct buf body = {0};
    if (reason == NULL) {
        answer_line(x, 200, "ready");
        return;
    }
    buf_put(&body, STR("{\"ready\":false"));
    if (x->admin || !s->http->front.admin_apart) { /* why is for those who run it */
        buf_put(&body, STR(",\"why\":"));
        json_put_string(&body, str_of_cstr(reason));
    }
    buf_put(&body, STR("}\n"));
    exchange_header(x, STR("Retry-After"), STR("1"));
    health_answer(x, 503, STR("application/json"), buf_str(&body));
    buf_deinit(&body);
}

static const struct surface_rule metrics_rules[] = {
    {"server.metrics", "GET HEAD", "", ACCESS_VERB_METRICS, ACCESS_SERVER, RULE_ADMIN, NULL},
    {0},
};
static const struct surface_rule liveness_rules[] = {
    {"server.live", "GET HEAD", "", 0, ACCESS_SERVER, RULE_PUBLIC, NULL},
    {0},
};
static const struct surface_rule readiness_rules[] = {
    {"server.ready", "GET HEAD", "", 0, ACCESS_SERVER, RULE_PUBLIC, NULL},
    {0},
};
const struct surface health_metrics_surface = {
    .path = "/metrics", .rules = metrics_rules, .strict = true};
const struct surface health_live_surface = {
    .path = "/healthz", .rules = liveness_rules, .probe = true, .unlimited = true};
const struct surface health_ready_surface = {
    .path = "/readyz", .rules = readiness_rules, .probe = true};

static const struct endpoint {
    const struct surface *surface;
    void (*answer)(struct health *s, struct exchange *x);
} endpoints[] = {
    {&health_metrics_surface, health_answer_metrics},
    {&health_live_surface, health_answer_liveness},
    {&health_ready_surface, health_answer_readiness},
};
#define N_ENDPOINTS (sizeof endpoints / sizeof *endpoints)

static const struct endpoint *health_find(struct str path)
{
    for (size_t i = 0; i < N_ENDPOINTS; i++)
        if (str_eq(path, str_of_cstr(endpoints[i].surface->path)))
            return &endpoints[i];
    return NULL;
}

void health_handle(void *status, struct exchange *x)
{
    const struct endpoint *page = health_find(x->request->path);
    if (page == NULL) {
        exchange_problem(x, 404, STR("NO_ROUTE"), STR("nothing is served under this path"));
    } else if (x->request->method != METHOD_GET && x->request->method != METHOD_HEAD) {
        exchange_header(x, STR("Allow"), STR("GET, HEAD"));
        exchange_problem(x, 405, STR("METHOD"), STR("this can only be read"));
    } else {
        page->answer(status, x);
    }
}

void health_init(struct health *s)
{
    register_all(s);
    gauge_set(&s->gauges[HEALTH_CONNECTIONS_MAX], (int64_t)s->http->limits.connections);
    gauge_set(&s->gauges[HEALTH_STARTED], s->http->loop->sched.wall_ms / 1000);
    for (size_t i = 0; i < N_ENDPOINTS; i++)
        http_mount(s->http, endpoints[i].surface, health_handle, s);
}
