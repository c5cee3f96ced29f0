// SPDX-License-Identifier: Apache-2.0
/* server_reload.c -- SIGHUP: certificates and settings are read again while the server runs.
 *
 * Settings that are `live` in their table, and who may do what, change; of others a trace says that
 * they need a restart. A file with an error in it changes nothing. What is under way goes on as it
 * began, but for answers to those who have lost their rights (http/answers.h). */
#include "base/env_secret.h"
#include "base/err.h"
#include "base/mem.h"
#include "app/config.h"
#include "app/server_core.h"
#include "access/policy.h"
#include "http/audit.h"
#include "http/front.h"
#include "http/guard.h"
#include "http/limits.h"
#include "net/tls.h"
#include "store/store.h"
#include "stream/access_http.h"
#include "stream/usage.h"
#include "telemetry/trace.h"

#include <stdlib.h>
#include <sys/stat.h>

/* ---- access ---- */

void server_tune_front(struct server *s)
{
    struct front *f = &s->http.front;
    f->origins = &s->config->allow_origin;
    front_set_proxies(f, &s->config->proxy_from);
    front_forget(f);
}

/* Once there, limits stay, and bound nothing if nobody asks for them any more: who has begun under
 * them ends so. */
static void tune_limits(struct server *s)
{
    static const struct limits_settings none;
    bool asked = config_limits_addresses(s->config);
    if (s->limits == NULL && !asked)
        return;
    if (s->limits == NULL) {
        s->limits = limits_new(&s->loop.sched, &s->metrics);
        s->usage = usage_new(&s->loop.sched, s->store);
    }
    limits_set(s->limits, asked ? &s->config->per_address : &none);
    s->http.per_client = s->limits;
    s->durable.usage = s->usage;
}

static bool server_is_revoked(void *server, const struct principal *p)
{
    struct server *s = server;
    return s->access != NULL && access_http_revoked(s->access, p);
}

static bool server_is_starting(void *server)
{
    struct server *s = server;
    return s->access != NULL && access_http_starting(s->access);
}

static void init_guard(struct server *s)
{
    s->guard = guard_new(&(struct guard_setup){.http = &s->http,
                                               .trace = s->trace,
                                               .sched = &s->loop.sched,
                                               .fetcher = s->fetcher,
                                               .audit = s->audit,
                                               .metrics = &s->metrics,
                                               .revoked = server_is_revoked,
                                               .starting = server_is_starting,
                                               .ctx = s});
    answers_init(&s->answers, &s->http, &s->loop.sched, server_is_revoked, s);
    s->http.guard = s->guard;
}

static void tune_access(struct server *s)
{
    const struct access_config *access = &s->config->access;
    access_http_set_longest(s->access, access_config_longest_s(access));
    if (access_config_on(access))
        access_http_begin(s->access, s->guard);
}

int server_init_access(struct server *s, char *why, size_t size)
{
    const struct access_config *access = &s->config->access;
    s->http.front.guarded = access_config_on(access);
    tune_limits(s);
    bool any = access->callers.n > 0 || access_config_on(access) || s->limits != NULL;
    if (s->guard == NULL && !any)
        return 0;
    struct policy *policy = access_config_policy(access, why, size);
    if (policy == NULL)
        return ERR_SYNTAX;
    bool was_on = s->guard != NULL && guard_policy(s->guard)->on;
    if (s->guard == NULL)
        init_guard(s);
    guard_set_policy(s->guard, policy);
    if (policy->on && !was_on && s->life == SERVER_SERVING)
        http_close_all(&s->http); /* nobody has decided about what is under way */
    if (s->access != NULL)
        tune_access(s);
    policy_unref(policy);
    return 0;
}

/* Of features, while they are there: a server that ends goes on when it starts again. */
static size_t server_erase_others(void *server, struct str prefix)
{
    struct server *s = server;
    size_t left = s->life == SERVER_SERVING ? 0 : 1;
    for (size_t i = 0; left == 0 && i < s->n_features; i++)
        if (s->features[i].state != NULL && s->features[i].feature->erase != NULL)
            left = s->features[i].feature->erase(s->features[i].state, prefix);
    return left;
}

/* Routes are added at the start alone: what is behind them may begin later. */
void server_open_access(struct server *s)
{
    s->access = access_http_new(&(struct access_http_setup){.sched = &s->loop.sched,
                                                            .store = s->store,
                                                            .audit = s->audit,
                                                            .trace = s->trace,
                                                            .answers = &s->answers,
                                                            .erase_others = server_erase_others,
                                                            .ctx = s});
    access_http_mount(s->access, &s->http);
    s->durable.bookmarks = access_http_bookmarks(s->access);
    tune_access(s);
}

/* ---- settings ---- */

static void tune(struct durable *d, const struct config *c)
{
    d->long_poll_ms = c->long_poll_timeout_ms;
    d->heartbeat_ms = c->heartbeat_ms;
    d->sse_lifetime_ms = c->sse_lifetime_ms;
    d->sse_retry_ms = c->sse_retry_ms;
}

static void reload_apply(struct server *s)
{
    const struct config *c = s->config;
    struct http_limits *limits = &s->http.limits;
    server_share_descriptors(s);
    limits->streams = c->max_streams;
    limits->head_timeout_ms = c->head_timeout_ms;
    limits->idle_timeout_ms = c->idle_timeout_ms;
    limits->body_timeout_ms = c->body_timeout_ms;
    limits->write_timeout_ms = c->write_timeout_ms;
    limits->body_min_bytes = c->body_rate_min;
    tune(&s->durable, c);
    tune_limits(s);
    server_tune_front(s);
    s->store->retain = (struct retain){c->retain_events, c->retain_bytes, c->retain_age_ms};
    s->host.write_timeout_ms = c->write_timeout_ms;
    for (size_t i = 0; i < s->n_features; i++)
        if (s->features[i].state != NULL && s->features[i].feature->tune != NULL)
            s->features[i].feature->tune(s->features[i].state, &s->host);
    config_tune_trace(c, s->reload.trace);
}

static void reload_report(const struct server *s, const struct config_change *change)
{
    if (change->taken[0] != '\0')
        trace(s->trace, RELOADED, TRACE_STR("settings", str_of_cstr(change->taken)));
    if (change->restart[0] != '\0')
        trace(s->trace, RELOAD_LATER, TRACE_STR("settings", str_of_cstr(change->restart)));
    if (change->taken[0] == '\0' && change->restart[0] == '\0')
        trace(s->trace, RELOAD_SAME, TRACE_STR("why", STR("no setting has changed")));
}

/* A pipe would be empty by now, or never end. */
static bool is_regular(const char *path)
{
    struct stat st;
    return stat(path, &st) != 0 || S_ISREG(st.st_mode); /* who reads it says why it cannot */
}

/* False: a trace has said why not. */
static bool reload_settings(struct server *s)
{
    struct reload *r = &s->reload;
    char why[512];
    if (r->config == NULL || r->config->file == NULL) {
        trace(s->trace, RELOAD_SAME,
              TRACE_STR("why", r->config == NULL ? STR("not read again")
                                                 : STR("there is no config file to read")));
        return true;
    }
    struct config_change *change = mem_alloc(sizeof *change);
    const char *pipe = env_secret_in_pipe();
    int err = ERR_SYNTAX;
    if (!is_regular(r->config->file))
        snprintf(why, sizeof why, "%s is no regular file", r->config->file);
    else if (pipe != NULL)
        snprintf(why, sizeof why, "%s_FILE names no regular file", pipe);
    else
        err = config_reload(r->config, r->argc, r->argv, change, why, sizeof why);
    if (err == 0) {
        reload_apply(s);
        reload_report(s, change);
        /* keys may be others */
        if (change->access || s->guard == NULL || s->config->access.issuers.n > 0)
            err = server_init_access(s, why, sizeof why);
        audit_note(s->audit, AUDIT_RELOAD, NULL, str_of_cstr(change->taken));
        config_deinit(&change->before);
    }
    if (err != 0)
        trace(s->trace, RELOAD_KEPT, TRACE_STR("error", str_of_cstr(why)));
    free(change);
    return err == 0;
}

/* ---- certificates ---- */

/* New connections only: those under way have nothing to gain. */
static bool reload_tls(struct server *s)
{
    char why[512];
    if (s->tls == NULL)
        return true;
    int err = ERR_SYNTAX;
    const struct config *c = s->config;
    if (!is_regular(c->tls_cert) || !is_regular(c->tls_key) ||
        (c->tls_client_ca != NULL && !is_regular(c->tls_client_ca)))
        snprintf(why, sizeof why, "tls-cert, tls-key or tls-client-ca is no regular file");
    else
        err = tls_reload(s->tls, why, sizeof why);
    if (err == 0)
        trace(s->trace, TLS_RELOADED, TRACE_STR("file", str_of_cstr(s->config->tls_cert)));
    else
        trace(s->trace, TLS_KEPT, TRACE_STR("error", str_of_cstr(why)));
    return err == 0;
}

void server_reload(struct server *s)
{
    if (s->life != SERVER_SERVING)
        return;
    bool certificates = reload_tls(s), settings = reload_settings(s);
    health_reloaded(&s->status, !certificates || !settings);
}
