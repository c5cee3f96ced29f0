// SPDX-License-Identifier: Apache-2.0
#include "app/server.h"
#include "base/err.h"
#include "base/mem.h"
#include "app/config.h"
#include "stream/instances.h"
#include "feature/subscriptions/subscription.h"
#include "http/fetch.h"
#include "feature/lab/lab_config.h"
#include "net/listener.h"
#include "net/tls.h"
#include "store/store.h"
#include "feature/cascade/cascade.h"
#include "feature/cascade/cascade_config.h"
#include "feature/gateway/gateway.h"
#include "feature/poll/poll_upstream.h"
#include "telemetry/trace.h"

#include <signal.h>
#include <stdlib.h>

/* ---- listening ---- */

static void server_on_accepted(void *ctx, int fd)
{
    struct server *s = ctx;
    http_accept(&s->http, fd, s->tls);
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

static int listen_all(struct server *s)
{
    const struct option_list *addresses = &s->config->listen;
    s->listeners = mem_zalloc((addresses->n + 1) * sizeof *s->listeners);
    for (size_t i = 0; i < addresses->n; i++) {
        struct str address = str_of_cstr(addresses->items[i]);
        char why[256];
        bool local = str_starts(address, STR("unix:")); /* never leaves the machine: no TLS */
        struct listener *l =
            listener_new(&s->loop, address, local ? &local_ops : &listener_ops, s, why, sizeof why);
        if (l == NULL) {
            trace(s->trace, LISTEN_FAILED, TRACE_STR("address", address),
                  TRACE_STR("error", str_of_cstr(why)));
            return ERR_IO;
        }
        s->listeners[s->n_listeners++] = l;
        struct addr at;
        if (!local && addr_parse_listen(listener_address(l), &at, why, sizeof why) == 0)
            addr_own_add(&s->own, addr_port(&at));
        trace(s->trace, LISTENING, TRACE_STR("address", listener_address(l)));
    }
    return 0;
}

static void stop_listening(struct server *s)
{
    for (size_t i = 0; i < s->n_listeners; i++)
        listener_close(s->listeners[i]);
    s->n_listeners = 0;
}

/* ---- ending ---- */

#define LAST_WORDS_MS 1000 /* for readers of what is cut off */

/* In order: connections, then what works by itself, then what those used. */

static void server_let_go(void *ctx)
{
    struct server *s = ctx;
    timer_stop(&s->drain_limit);
    uv_unref((uv_handle_t *)&s->on_term); /* still caught, until the very end */
    uv_unref((uv_handle_t *)&s->on_int);
}

static void server_stop_store(void *ctx)
{
    struct server *s = ctx;
    instances_free(s->instances);
    store_stop(s->store, server_let_go, s);
}

static void server_on_subscriptions_stopped(void *ctx)
{
    struct server *s = ctx;
    webhooks_free(s->webhooks);
    subscriptions_free(s->subscriptions);
    fetcher_free(s->fetcher);
    if (s->instances != NULL)
        instances_stop(s->instances, server_stop_store, s);
    else
        server_stop_store(s);
}

static void server_on_polls_stopped(void *ctx)
{
    struct server *s = ctx;
    polls_free(s->polls);
    webhooks_stop(s->webhooks);
    subscriptions_stop(s->subscriptions, server_on_subscriptions_stopped, s);
}

static void stop_polls(struct server *s)
{
    polls_stop(s->polls, server_on_polls_stopped, s);
}

static void server_on_sessions_stopped(void *ctx)
{
    struct server *s = ctx;
    session_host_deinit(&s->sessions);
    stop_polls(s);
}

static void stop_sessions(struct server *s)
{
    session_host_stop(&s->sessions, server_on_sessions_stopped, s);
}

static void server_on_logs_stopped(void *ctx)
{
    struct server *s = ctx;
    log_host_deinit(&s->logs);
    stop_sessions(s);
}

static void server_on_gateway_stopped(void *ctx)
{
    struct server *s = ctx;
    gateway_free(s->gateway);
    log_host_stop(&s->logs, server_on_logs_stopped, s);
}

static void server_on_cascade_stopped(void *ctx)
{
    struct server *s = ctx;
    cascade_free(s->cascade);
    if (s->gateway != NULL)
        gateway_stop(s->gateway, server_on_gateway_stopped, s);
    else
        server_on_gateway_stopped(s);
}

static void server_stop_others(void *ctx)
{
    struct server *s = ctx;
    if (s->cascade != NULL)
        cascade_stop(s->cascade, server_on_cascade_stopped, s);
    else
        server_on_cascade_stopped(s);
}

static void server_stop_lab(void *ctx)
{
    struct server *s = ctx;
    if (s->lab.lab != NULL)
        lab_host_stop(&s->lab, server_stop_others, s);
    else
        server_stop_others(s);
}

static void stop_surfaces(struct server *s)
{
    watch_stop(&s->watch);
    tool_host_stop(&s->tools, server_stop_lab, s);
}

/* A drain: generations may finish, and as long as some are under way listeners stay open, so that
 * their readers can come back and everybody else hears when to. Then what is left of connections
 * ends, and the rest of the server. */

static void check_drained(struct server *s)
{
    if (s->stopping || !(s->quiet || s->cut) || s->http.n_connections > 0)
        return;
    s->stopping = true;
    stop_listening(s);
    stop_surfaces(s);
}

static void server_on_http_idle(struct http *http)
{
    check_drained(container_of(http, struct server, http));
}

static void server_on_gateway_drained(void *ctx)
{
    struct server *s = ctx;
    s->quiet = true;
    stop_listening(s);
    session_host_drain(&s->sessions);
    tool_host_drain(&s->tools);
    http_drain(&s->http); /* those that came meanwhile */
    check_drained(s);
}

static void server_close_all(struct server *s)
{
    s->cut = true;
    tool_host_cut(&s->tools);
    http_close_all(&s->http);
    check_drained(s);
}

/* Readers of generations are told that these are orphaned, as far as they listen. */
static void lose_patience(struct server *s)
{
    if (s->quiet || s->cut) {
        server_close_all(s);
        return;
    }
    s->cut = true;
    size_t n = gateway_orphan(s->gateway);
    if (n > 0)
        trace(s->trace, DRAIN_OVER, TRACE_INT("generations", (int64_t)n));
    sched_start(&s->loop.sched, &s->drain_limit, LAST_WORDS_MS);
}

static void server_on_drain_limit(struct timer *t)
{
    lose_patience(container_of(t, struct server, drain_limit));
}

void server_drain(struct server *s, struct str why)
{
    if (s->draining) { /* asked again */
        lose_patience(s);
        return;
    }
    s->draining = true;
    trace(s->trace, DRAINING, TRACE_STR("why", why),
          TRACE_INT("connections", (int64_t)s->http.n_connections));
    sched_start(&s->loop.sched, &s->drain_limit, s->config->drain_timeout_ms);
    gateway_drain(s->gateway, server_on_gateway_drained, s);
    http_drain_begin(&s->http);
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

#define REFRESH_MS 5000 /* how soon it is seen what other processes did to subscriptions */

static void init_subscriptions(struct server *s)
{
    const struct config *c = s->config;
    struct webhook_policy policy = {.allow_local = c->allow_loopback_targets,
                                    .allow_private = c->allow_private_targets,
                                    .own = &s->own};
    s->fetcher = fetcher_new(&s->loop);
    fetcher_own(s->fetcher, &s->own);
    s->subscriptions = subscriptions_new(&s->loop.sched, s->store);
    if (s->store->shared)
        subscriptions_set_refresh(s->subscriptions, REFRESH_MS);
    s->webhooks = webhooks_new(&s->loop.sched, s->subscriptions, s->fetcher, policy, s->trace);
    s->subscriptions_surface = (struct subscriptions_surface){
        .subscriptions = s->subscriptions, .policy = policy, .durable = &s->durable};
    http_route(&s->http, STR(SUBSCRIPTIONS_PREFIX), subscriptions_surface_handle,
               &s->subscriptions_surface);
}

static struct str text_or_none(const char *text)
{
    return text == NULL ? STR_NONE : str_of_cstr(text);
}

static int init_cascade(struct server *s)
{
    struct cascade_host host = {.loop = &s->loop,
                                .store = s->store,
                                .fetcher = s->fetcher,
                                .http = &s->http,
                                .gateway = s->gateway,
                                .trace = s->trace};
    struct section_list bridges = s->config->cascade;
    char why[256];
    if (bridges.n == 0)
        return 0;
    int err = cascade_open(&host, bridges.items, &s->cascade, why, sizeof why);
    if (err != 0)
        trace(s->trace, CASCADE_REFUSED, TRACE_STR("error", str_of_cstr(why)));
    cascade_forget(&bridges);
    return err;
}

static int init_gateway(struct server *s)
{
    const struct config *c = s->config;
    struct gateway_setup setup = {.sched = &s->loop.sched,
                                  .store = s->store,
                                  .feeds = &s->feeds,
                                  .fetcher = s->fetcher,
                                  .instances = s->instances,
                                  .http = &s->http,
                                  .metrics = &s->metrics,
                                  .trace = s->trace,
                                  .routes = c->routes.items,
                                  .n_routes = c->routes.n,
                                  .store_is_memory = s->store->in_memory,
                                  .secret = text_or_none(c->resume_secret),
                                  .previous_secret = text_or_none(c->resume_secret_previous),
                                  .telemetry_prefix = str_of_cstr(c->telemetry_prefix),
                                  .heartbeat_ms = c->heartbeat_ms,
                                  .write_timeout_ms = c->write_timeout_ms};
    char why[256];
    s->gateway = gateway_new(&setup, why, sizeof why);
    if (s->gateway == NULL) {
        trace(s->trace, GATEWAY_FAILED, TRACE_STR("error", str_of_cstr(why)));
        return ERR_SYNTAX;
    }
    return 0;
}

static void init_sessions(struct server *s)
{
    session_host_init(&s->sessions, &(struct session_host_setup){
                                        .config = s->config->session.items,
                                        .sched = &s->loop.sched,
                                        .store = s->store,
                                        .feeds = &s->feeds,
                                        .fetcher = s->fetcher,
                                        .instances = s->instances,
                                        .http = &s->http,
                                        .durable = &s->durable,
                                        .trace = s->trace,
                                        .long_poll_ms = s->config->long_poll_timeout_ms});
}

static void init_polls(struct server *s)
{
    const struct section_list *polls = &s->config->polls;
    s->polls = polls_new(&(struct polls_setup){.sched = &s->loop.sched,
                                               .store = s->store,
                                               .feeds = &s->feeds,
                                               .fetcher = s->fetcher,
                                               .durable = &s->durable,
                                               .trace = s->trace,
                                               .configs = polls->items,
                                               .n_configs = polls->n});
}

static void init_watch(struct server *s)
{
    struct config_doubt doubts[CONFIG_DOUBTS_MAX];
    size_t n = config_doubts(s->config, doubts);
    for (size_t i = 0; i < n; i++) {
        struct str setting = str_of_cstr(doubts[i].setting);
        trace(s->trace, CONFIG_DOUBT, TRACE_STR("setting", setting),
              TRACE_STR("why", str_of_cstr(doubts[i].why)));
        status_doubt(&s->status, setting);
    }
    s->states[0].state = s->gateway;
    s->states[1].state = &s->sessions;
    s->watch = (struct watch){
        .sched = &s->loop.sched, .store = s->store, .states = s->states, .trace = s->trace};
    watch_start(&s->watch);
}

static int init_logs(struct server *s)
{
    int err = log_host_init(&s->logs, s->config, &s->loop, &s->http, &s->metrics, s->trace);
    if (err != 0)
        trace(s->trace, LOGS_FAILED, TRACE_STR("error", STR("no thread for their files")));
    return err;
}

static void server_on_lab_finished(void *ctx)
{
    server_drain(ctx, STR("the Lab's task is done"));
}

static int init_lab(struct server *s)
{
    char why[600];
    if (s->config->lab.n == 0)
        return 0;
    struct lab_host_setup setup = {.config = s->config->lab.items,
                                   .loop = &s->loop,
                                   .http = &s->http,
                                   .finished = server_on_lab_finished,
                                   .ctx = s};
    int err = lab_host_init(&s->lab, &setup, why, sizeof why);
    if (err != 0)
        trace(s->trace, LAB_FAILED, TRACE_STR("error", str_of_cstr(why)));
    return err;
}

static int init_tools(struct server *s)
{
    char why[512];
    struct tool_host_setup setup = {.config = s->config,
                                    .loop = &s->loop,
                                    .http = &s->http,
                                    .store = s->store,
                                    .sessions = s->sessions.view,
                                    .fetcher = s->fetcher,
                                    .trace = s->trace};
    int err = tool_host_init(&s->tools, &setup, why, sizeof why);
    if (err != 0)
        trace(s->trace, TOOLS_FAILED, TRACE_STR("error", str_of_cstr(why)));
    return err;
}

static const char *server_unready_reason(void *ctx)
{
    const struct server *s = ctx;
    struct str ignored;
    if (s->draining)
        return "draining: the server is being stopped";
    int err = store_health(s->store, &ignored);
    return err == 0 ? NULL : err_text(err);
}

static void init_status(struct server *s)
{
    static const struct feature gateway = {.troubles = gateway_troubles};
    static const struct feature sessions = {.troubles = sessions_troubles};
    s->states[0].feature = &gateway;
    s->states[1].feature = &sessions;
    metrics_init(&s->metrics);
    s->status = (struct status){.http = &s->http,
                                .metrics = &s->metrics,
                                .store = s->store,
                                .states = s->states,
                                .unready = server_unready_reason,
                                .ctx = s};
    status_init(&s->status);
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
    s->http.idle = server_on_http_idle;
    s->http.names = (struct origin_names){.public_host = origin_host_of(c->public_url),
                                          .hosts = &c->allow_host};
    init_status(s);
    s->durable = (struct durable){.store = s->store,
                                  .feeds = &s->feeds,
                                  .sched = &s->loop.sched,
                                  .max_append = c->max_append_bytes,
                                  .read_chunk = c->read_chunk_bytes,
                                  .long_poll_ms = c->long_poll_timeout_ms,
                                  .heartbeat_ms = c->heartbeat_ms,
                                  .sse_lifetime_ms = c->sse_lifetime_ms,
                                  .sse_retry_ms = c->sse_retry_ms};
    if (c->public_url != NULL)
        s->durable.public_url = str_of_cstr(c->public_url);
    http_route(&s->http, STR(DURABLE_PREFIX), durable_handle, &s->durable);
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
    timer_init(&s->drain_limit, server_on_drain_limit);
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
    init_subscriptions(s);
    reload_principals(s);
    init_sessions(s);
    init_polls(s);
    server_init_signals(s);
    err = init_gateway(s);
    if (err == 0)
        err = init_cascade(s);
    if (err == 0)
        err = init_logs(s);
    if (err == 0)
        err = init_lab(s);
    if (err == 0)
        err = init_tools(s);
    if (err == 0)
        err = listen_all(s);
    if (err == 0)
        init_watch(s);
    if (err != 0) {
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
    reload_deinit(s);
    return err;
}
