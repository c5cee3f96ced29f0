// SPDX-License-Identifier: Apache-2.0
#include "app/server_core.h"
#include "base/err.h"
#include "base/http_url.h"
#include "base/mem.h"
#include "base/must.h"
#include "app/config.h"
#include "stream/access_http.h"
#include "stream/instances.h"
#include "stream/usage.h"
#include "http/audit.h"
#include "http/fetch.h"
#include "http/front.h"
#include "http/guard.h"
#include "http/limits.h"
#include "http/origin.h"
#include "http/surface.h"
#include "net/listener.h"
#include "net/thread_lane.h"
#include "net/tls.h"
#include "store/store.h"
#include "telemetry/trace.h"

#include <signal.h>
#include <stdlib.h>

/* ---- listening ---- */

static void server_on_accepted(void *ctx, int fd)
{
    struct server *s = ctx;
    http_accept(&s->http, fd, s->tls);
}

static void server_on_admin_accepted(void *ctx, int fd)
{
    struct server *s = ctx;
    bool local = str_starts(str_of_cstr(s->config->admin_listen), STR("unix:"));
    http_accept_admin(&s->http, fd, local ? NULL : s->tls);
}

static void server_on_local_accepted(void *ctx, int fd)
{
    struct server *s = ctx;
    http_accept(&s->http, fd, NULL);
}

static void server_on_accept_failed(void *ctx, int error)
{
    struct server *s = ctx;
    trace(s->trace, ACCEPT_FAILED, TRACE_STR("error", str_of_cstr(strerror(error))));
}

static const struct listener_ops listener_ops = {.accepted = server_on_accepted,
                                                 .failed = server_on_accept_failed};
static const struct listener_ops local_ops = {.accepted = server_on_local_accepted,
                                              .failed = server_on_accept_failed};

static const struct listener_ops admin_ops = {.accepted = server_on_admin_accepted,
                                              .failed = server_on_accept_failed};

static int listen_at(struct server *s, const char *text, const struct listener_ops *ops)
{
    struct str address = str_of_cstr(text);
    struct addr at;
    char why[256];
    struct listener *l = listener_new(&s->loop, address, ops, s, why, sizeof why);
    if (l == NULL) {
        trace(s->trace, LISTEN_FAILED, TRACE_STR("address", address),
              TRACE_STR("error", str_of_cstr(why)));
        return ERR_IO;
    }
    s->listeners[s->n_listeners++] = l;
    if (addr_parse_listen(listener_address(l), &at, why, sizeof why) == 0 && at.kind == ADDR_TCP)
        addr_own_add(&s->own, addr_port(&at));
    if (ops == &admin_ops)
        trace(s->trace, LISTENING_ADMIN, TRACE_STR("address", listener_address(l)));
    else
        trace(s->trace, LISTENING, TRACE_STR("address", listener_address(l)));
    return 0;
}

static int listen_all(struct server *s)
{
    const struct option_list *addresses = &s->config->listen;
    int err = 0;
    s->listeners = mem_zalloc((addresses->n + 1) * sizeof *s->listeners);
    for (size_t i = 0; i < addresses->n && err == 0; i++) {
        /* A Unix socket never leaves the machine: no TLS. */
        bool local = str_starts(str_of_cstr(addresses->items[i]), STR("unix:"));
        err = listen_at(s, addresses->items[i], local ? &local_ops : &listener_ops);
    }
    if (err == 0 && s->config->admin_listen != NULL)
        err = listen_at(s, s->config->admin_listen, &admin_ops);
    return err;
}

static void stop_listening(struct server *s)
{
    for (size_t i = 0; i < s->n_listeners; i++)
        listener_close(s->listeners[i]);
    s->n_listeners = 0;
}

/* ---- descriptors ---- */

#define RESERVE_MIN   128 /* for the store, for commands, and for peers that are one too many */
#define RESERVE_MAX   1024
#define UPSTREAMS_MIN 8

void server_share_descriptors(struct server *s)
{
    uint64_t wanted = s->config->max_connections, all = s->descriptors;
    uint64_t reserve = RESERVE_MIN + all / 8;
    reserve = reserve < RESERVE_MAX ? reserve : RESERVE_MAX;
    reserve = reserve < all / 2 ? reserve : all / 2;
    uint64_t n = wanted < all - reserve ? wanted : all - reserve, left = all - n;
    s->http.limits.connections = n;
    fetcher_bound(s->fetcher,
                  left > RESERVE_MIN + UPSTREAMS_MIN ? left - RESERVE_MIN : UPSTREAMS_MIN);
    if (n < wanted)
        trace(s->trace, CONNECTIONS_BOUND, TRACE_INT("connections", (int64_t)n),
              TRACE_INT("wanted", (int64_t)wanted), TRACE_INT("descriptors", (int64_t)all));
}

/* ---- ending ---- */

#define ORPHAN_FLUSH_MS 1000 /* for readers of what is cut off */

/* In order: connections, then features, the last one first, then what those used. */

static void server_on_store_stopped(void *ctx)
{
    struct server *s = ctx;
    timer_stop(&s->drain_limit);
    lane_free(s->durable.lane);
    lane_free(s->durable.huge_lane);
    lane_free(s->audit_lane);
    uv_unref((uv_handle_t *)&s->on_term); /* still caught, until the very end */
    uv_unref((uv_handle_t *)&s->on_int);
}

static void server_stop_store(void *ctx)
{
    struct server *s = ctx;
    instances_free(s->instances);
    s->instances = NULL;
    usage_stop(s->usage);
    store_stop(s->store, server_on_store_stopped, s);
}

static void server_stop_instances(void *ctx)
{
    struct server *s = ctx;
    if (s->instances != NULL)
        instances_stop(s->instances, server_stop_store, s);
    else
        server_stop_store(s);
}

/* Everybody has told what there was to tell. */
static void server_stop_audit(void *ctx)
{
    struct server *s = ctx;
    if (s->audit != NULL)
        audit_stop(s->audit, server_stop_instances, s);
    else
        server_stop_instances(s);
}

static void server_stop_access(struct server *s)
{
    if (s->access != NULL)
        access_http_stop(s->access, server_stop_audit, s);
    else
        server_stop_audit(s);
}

static void server_stop_features(struct server *s);

static void server_on_feature_stopped(void *ctx)
{
    struct server *s = ctx;
    struct feature_state *f = &s->features[--s->n_features];
    f->feature->free(f->state);
    f->state = NULL;
    server_stop_features(s);
}

/* One after the other; then the rest of the server. */
static void server_stop_features(struct server *s)
{
    while (s->n_features > 0 && s->features[s->n_features - 1].state == NULL)
        s->n_features--;
    if (s->n_features > 0) {
        struct feature_state *f = &s->features[s->n_features - 1];
        f->feature->stop(f->state, server_on_feature_stopped, s);
        return;
    }
    guard_stop(s->guard);
    fetcher_free(s->fetcher);
    server_stop_access(s);
}

static void server_on_bodies_prepared(void *ctx)
{
    server_stop_features(ctx);
}

static void stop_surfaces(struct server *s)
{
    if (s->guard != NULL)
        answers_stop(&s->answers);
    watch_stop(&s->watch);
    gate_shut(&s->durable.preparing, server_on_bodies_prepared, s);
}

#define each_open(s, f)                                                                            \
    for (struct feature_state *f = (s)->features; f < (s)->features + (s)->n_features; f++)        \
        if (f->state != NULL)

/* A drain: generations may finish, and as long as some are under way listeners stay open, so that
 * their readers can come back and everybody else hears when to. Then what is left of connections
 * ends, and the rest of the server. */

static void check_drained(struct server *s)
{
    if (s->life < SERVER_LAST_WORDS || s->life == SERVER_STOPPING || s->http.n_connections > 0)
        return;
    s->life = SERVER_STOPPING;
    stop_listening(s);
    stop_surfaces(s);
}

static void server_on_http_idle(struct http *http)
{
    check_drained(container_of(http, struct server, http));
}

static void server_on_drained(void *ctx)
{
    struct server *s = ctx;
    if (s->life == SERVER_STOPPING)
        return;
    s->life = SERVER_QUIET;
    stop_listening(s);
    each_open (s, f)
        if (f->feature->quiesce != NULL)
            f->feature->quiesce(f->state);
    http_drain(&s->http); /* those that came meanwhile */
    check_drained(s);
}

static void server_on_feature_drained(void *ctx)
{
    gate_leave(&((struct server *)ctx)->working);
}

static size_t cut_features(struct server *s)
{
    size_t n = 0;
    each_open (s, f)
        if (f->feature->cut != NULL)
            n += f->feature->cut(f->state);
    return n;
}

static void close_all(struct server *s)
{
    stop_listening(s); /* or those that are closed come back */
    each_open (s, f)
        if (f->feature->close != NULL)
            f->feature->close(f->state);
    http_close_all(&s->http);
    check_drained(s);
}

/* Readers of what is cut off are told, as far as they listen. */
static void on_drain_expired(struct server *s)
{
    if (s->life != SERVER_DRAINING) {
        close_all(s);
        return;
    }
    s->life = SERVER_LAST_WORDS;
    size_t n = cut_features(s);
    if (n > 0)
        trace(s->trace, DRAIN_OVER, TRACE_INT("generations", (int64_t)n));
    sched_start(&s->loop.sched, &s->drain_limit, ORPHAN_FLUSH_MS);
}

static void server_on_drain_limit(struct timer *t)
{
    on_drain_expired(container_of(t, struct server, drain_limit));
}

void server_drain(struct server *s, struct str why)
{
    if (s->life != SERVER_SERVING) { /* asked again */
        on_drain_expired(s);
        return;
    }
    s->life = SERVER_DRAINING;
    trace(s->trace, DRAINING, TRACE_STR("why", why),
          TRACE_INT("connections", (int64_t)s->http.n_connections));
    sched_start(&s->loop.sched, &s->drain_limit, s->config->drain_timeout_ms);
    http_drain_begin(&s->http);
    each_open (s, f)
        if (f->feature->drain != NULL) {
            gate_enter(&s->working);
            f->feature->drain(f->state, server_on_feature_drained, s);
        }
    gate_shut(&s->working, server_on_drained, s);
}

static void server_on_hangup(uv_signal_t *handle, int number)
{
    server_reload(handle->data);
}

static void server_on_signal(uv_signal_t *handle, int number)
{
    server_drain(handle->data, number == SIGTERM ? STR("SIGTERM") : STR("SIGINT"));
}

/* ---- the whole ---- */

static bool declares_surface(const struct feature *f, const struct http_route *r)
{
    for (const struct surface *const *p = f->surfaces; p != NULL && *p != NULL; p++)
        if (r->configured ? *p == r->surface
                          : (*p)->path != NULL && str_eq(r->prefix, str_of_cstr((*p)->path)))
            return true;
    return false;
}

/* Its row says what it serves. */
static void check_surfaces(const struct server *s, const struct feature *f, size_t from)
{
    for (size_t i = from; i < s->http.n_routes; i++)
        must(declares_surface(f, &s->http.routes[i]));
}

static int server_open_feature(struct server *s, size_t i)
{
    const struct feature *f = features[i];
    struct feature_state *state = &s->features[s->n_features++];
    const struct http_clash *clash = &s->http.clash;
    char why[600] = "";
    static const struct metric_info *const none[] = {NULL};
    size_t routes = s->http.n_routes;
    s->http.claimant = f->title;
    s->metrics.declared = f->metrics != NULL ? f->metrics : none;
    int err = f->open(&s->host, s->config->features.of[i], &state->state, why, sizeof why);
    s->metrics.declared = NULL;
    check_surfaces(s, f, routes);
    if (err != 0) {
        trace(s->trace, FEATURE_FAILED, TRACE_STR("feature", str_of_cstr(f->title)),
              TRACE_STR("error", str_of_cstr(why)));
    } else if (clash->path.n > 0) {
        trace(s->trace, PATH_CLAIMED, TRACE_STR("path", clash->path),
              TRACE_STR("first", str_of_cstr(clash->first)),
              TRACE_STR("second", str_of_cstr(clash->second)));
        err = ERR_EXISTS;
    }
    return err;
}

/* While it drains already, nobody asks to hurry by this. */
static void server_on_finished(void *server, struct str why)
{
    struct server *s = server;
    if (s->life == SERVER_SERVING)
        server_drain(s, why);
}

static int server_open_features(struct server *s)
{
    s->host = (struct feature_host){.loop = &s->loop,
                                    .store = s->store,
                                    .feeds = &s->feeds,
                                    .instances = s->instances,
                                    .http = &s->http,
                                    .durable = &s->durable,
                                    .fetcher = s->fetcher,
                                    .metrics = &s->metrics,
                                    .audit = s->audit,
                                    .trace = s->trace,
                                    .own = &s->own,
                                    .write_timeout_ms = s->config->write_timeout_ms,
                                    .finished = server_on_finished,
                                    .ctx = s,
                                    .configs = &s->config->features,
                                    .states = s->features,
                                    .private = s->config->private};
    int err = 0;
    for (size_t i = 0; features[i] != NULL && err == 0; i++)
        err = server_open_feature(s, i);
    return err;
}

static void init_watch(struct server *s)
{
    struct feature_warnings warnings = {.n = 0};
    config_warnings(s->config, &warnings);
    for (size_t i = 0; i < warnings.n; i++) {
        struct str setting = str_of_cstr(warnings.rows[i].setting);
        trace(s->trace, CONFIG_DOUBT, TRACE_STR("setting", setting),
              TRACE_STR("why", str_of_cstr(warnings.rows[i].why)));
        health_warn(&s->status, setting);
    }
    s->watch = (struct watch){
        .sched = &s->loop.sched, .store = s->store, .states = s->features, .trace = s->trace};
    watch_start(&s->watch);
}

static const char *server_unready_reason(void *ctx)
{
    const struct server *s = ctx;
    struct str ignored;
    if (s->life != SERVER_SERVING)
        return "draining: the server is being stopped";
    int err = store_health(s->store, &ignored);
    return err == 0 ? NULL : err_text(err);
}

static void init_status(struct server *s)
{
    for (size_t i = 0; features[i] != NULL; i++)
        s->features[i].feature = features[i];
    metrics_init(&s->metrics);
    s->status = (struct health){.http = &s->http,
                                .metrics = &s->metrics,
                                .store = s->store,
                                .states = s->features,
                                .unready = server_unready_reason,
                                .ctx = s};
    health_init(&s->status);
    s->turns = (struct turns){.loop = &s->loop, .trace = s->trace};
    turns_init(&s->turns, &s->metrics);
}

/* Who sends a huge body waits anyway; where processors are short, the loop goes first. */
static struct lane *server_make_lane(void *ctx, bool huge)
{
    struct server *s = ctx;
    return huge ? thread_lane_new_background(&s->loop, "huge bodies")
                : thread_lane_new(&s->loop, "bodies");
}

static void init_surfaces(struct server *s)
{
    const struct config *c = s->config;
    http_init(&s->http, &s->loop, s->trace,
              &(struct http_limits){.connections = c->max_connections,
                                    .streams = c->max_streams,
                                    .inflight_bytes = c->max_inflight_bytes,
                                    .head_timeout_ms = c->head_timeout_ms,
                                    .idle_timeout_ms = c->idle_timeout_ms,
                                    .body_timeout_ms = c->body_timeout_ms,
                                    .write_timeout_ms = c->write_timeout_ms,
                                    .body_min_bytes = c->body_rate_min});
    s->http.unsent.budget = &s->storage.budget;
    s->http.idle = server_on_http_idle;
    s->http.names =
        (struct http_names){.public_host = origin_host_of(c->public_url), .hosts = &c->allow_host};
    s->http.front.open = c->access_word != NULL;
    s->http.front.exposed = config_is_exposed(c);
    s->http.front.admin_apart = c->admin_listen != NULL;
    server_tune_front(s);
    init_status(s);
    s->durable = (struct durable){.store = s->store,
                                  .feeds = &s->feeds,
                                  .sched = &s->loop.sched,
                                  .max_append = c->max_append_bytes,
                                  .read_chunk = c->read_chunk_bytes,
                                  .long_poll_ms = c->long_poll_timeout_ms,
                                  .heartbeat_ms = c->heartbeat_ms,
                                  .sse_lifetime_ms = c->sse_lifetime_ms,
                                  .sse_retry_ms = c->sse_retry_ms,
                                  .make_lane = server_make_lane,
                                  .ctx = s};
    gate_init(&s->durable.preparing, &s->loop.sched);
    if (c->public_url != NULL)
        s->durable.public_url = str_of_cstr(c->public_url);
    http_mount(&s->http, &durable_surface, durable_handle, &s->durable);
}

/* Whoever asked for it has a line of its own where it has one: a trace, an event. */
static void server_on_refused(void *ctx, const struct fetch *fetch)
{
    struct server *s = ctx;
    struct url url = {0};
    url_parse(fetch->url, &url);
    audit_tell(s->audit, NULL,
               &(struct audit_fact){.event = AUDIT_TARGET_REFUSED,
                                    .cause = str_of_cstr(fetch->error),
                                    .name = fetch->about.n > 0 ? fetch->about : url.host});
}

/* 0, or ERR_IO after a trace. */
static int init_audit(struct server *s)
{
    const char *path = s->config->audit;
    if (path == NULL)
        return 0;
    s->audit_lane = thread_lane_new(&s->loop, "audit");
    if (s->audit_lane == NULL) {
        trace(s->trace, AUDIT_FAILED, TRACE_STR("file", str_of_cstr(path)),
              TRACE_STR("error", STR("no thread for it")));
        return ERR_IO;
    }
    s->audit = audit_new(&(struct audit_setup){.sched = &s->loop.sched,
                                               .lane = s->audit_lane,
                                               .path = path,
                                               .trace = s->trace,
                                               .address = front_address});
    s->http.audit = s->audit;
    return 0;
}

static void server_init_signals(struct server *s)
{
    signal(SIGPIPE, SIG_IGN);
    uv_signal_init(&s->loop.uv, &s->on_term);
    uv_signal_init(&s->loop.uv, &s->on_int);
    uv_signal_init(&s->loop.uv, &s->on_hup);
    s->on_term.data = s->on_int.data = s->on_hup.data = s;
    uv_signal_start(&s->on_term, server_on_signal, SIGTERM);
    uv_signal_start(&s->on_int, server_on_signal, SIGINT);
    uv_signal_start(&s->on_hup, server_on_hangup, SIGHUP);
    uv_unref((uv_handle_t *)&s->on_hup);
}

static int init_tls(struct server *s)
{
    struct tls_settings settings = {.cert = s->config->tls_cert,
                                    .key = s->config->tls_key,
                                    .client_ca = s->config->tls_client_ca,
                                    .alpn = STR(HTTP_ALPN),
                                    .trace = s->trace};
    char why[512];
    if (settings.cert == NULL)
        return 0;
    s->tls = tls_new(&settings, why, sizeof why);
    if (s->tls != NULL)
        return 0;
    trace(s->trace, TLS_REFUSED, TRACE_STR("error", str_of_cstr(why)));
    return ERR_SYNTAX;
}

int server_init(struct server *s, const struct config *config, const struct trace *trace_to)
{
    *s = (struct server){.config = config, .trace = trace_to};
    int err = init_tls(s);
    if (err != 0)
        return err;
    if (loop_init(&s->loop) != 0) {
        tls_unref(s->tls);
        return ERR_IO;
    }
    s->descriptors = loop_raise_files(&s->loop);
    timer_init(&s->drain_limit, server_on_drain_limit);
    gate_init(&s->working, &s->loop.sched);
    char why[512], store[512];
    storage_name(config, store, sizeof store);
    if (storage_open(&s->storage, &s->loop, config, trace_to, why, sizeof why) != 0) {
        trace(s->trace, STORE_FAILED, TRACE_STR("store", str_of_cstr(store)),
              TRACE_STR("error", str_of_cstr(why)));
        loop_deinit(&s->loop);
        tls_unref(s->tls);
        return ERR_IO;
    }
    s->store = s->storage.store;
    feeds_init(&s->feeds, s->store);
    trace(s->trace, STORE_OPEN, TRACE_STR("store", str_of_cstr(store)));
    if (s->store->shared)
        s->instances = instances_new(&s->loop.sched, s->store, INSTANCE_BEAT_MS);
    init_surfaces(s);
    server_init_signals(s);
    s->fetcher = fetcher_new(&s->loop);
    fetcher_own(s->fetcher, &s->own);
    fetcher_on_refused(s->fetcher, server_on_refused, s);
    server_share_descriptors(s);
    err = init_audit(s);
    if (err == 0 && (err = server_init_access(s, why, sizeof why)) != 0)
        trace(s->trace, ACCESS_FAILED, TRACE_STR("error", str_of_cstr(why)));
    if (err == 0) {
        server_open_access(s);
        err = server_open_features(s);
    }
    if (err == 0)
        err = listen_all(s);
    if (err == 0)
        init_watch(s);
    if (err != 0) {
        s->life = SERVER_STOPPING; /* for signals that come meanwhile */
        stop_listening(s);
        stop_surfaces(s);
        server_run(s);
        server_deinit(s);
    }
    return err;
}

void server_run(struct server *s)
{
    loop_run(&s->loop);
}

int server_deinit(struct server *s)
{
    http_deinit(&s->http);
    slab_deinit(&s->durable.readers);
    s->loop.turned = NULL;
    metrics_deinit(&s->metrics);
    feeds_deinit(&s->feeds);
    int err = storage_close(&s->storage);
    uv_close((uv_handle_t *)&s->on_term, NULL);
    uv_close((uv_handle_t *)&s->on_int, NULL);
    uv_close((uv_handle_t *)&s->on_hup, NULL);
    loop_deinit(&s->loop);
    tls_unref(s->tls);
    free(s->listeners);
    free(s->own.ports);
    access_http_free(s->access);
    audit_free(s->audit);
    guard_free(s->guard);
    usage_free(s->usage);
    limits_free(s->limits);
    return err;
}
