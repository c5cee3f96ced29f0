// SPDX-License-Identifier: Apache-2.0
/* gateway_feature.c -- the gateway as a feature of a server. Its state is a struct gateway. */
#include "base/err.h"
#include "feature/feature.h"
#include "feature/gateway/gateway.h"
#include "feature/gateway/gateway_config.h"
#include "feature/gateway/gateway_events.h"
#include "feature/gateway/gateway_core.h"
#include "feature/gateway/gateway_trace.h"
#include "net/loop.h"
#include "store/store.h"
#include "stream/durable.h"

static struct str text_or_none(const char *text)
{
    return text == NULL ? STR_NONE : str_of_cstr(text);
}

static int gateway_feature_open(const struct feature_host *h, const void *settings, void **state,
                                char *why, size_t size)
{
    const struct gateway_settings *c = settings;
    struct gateway_setup setup = {.sched = &h->loop->sched,
                                  .store = h->store,
                                  .feeds = h->feeds,
                                  .fetcher = h->fetcher,
                                  .instances = h->instances,
                                  .http = h->http,
                                  .metrics = h->metrics,
                                  .trace = h->trace,
                                  .routes = c->routes.items,
                                  .n_routes = c->routes.n,
                                  .store_is_memory = h->store->in_memory,
                                  .secret = text_or_none(c->resume_secret),
                                  .previous_secret = text_or_none(c->resume_secret_previous),
                                  .telemetry_prefix = str_of_cstr(c->telemetry_prefix),
                                  .durable = h->durable,
                                  .heartbeat_ms = h->durable->heartbeat_ms,
                                  .write_timeout_ms = h->write_timeout_ms};
    *state = gateway_new(&setup, why, size);
    return *state == NULL ? ERR_SYNTAX : 0;
}

static void gateway_feature_tune(void *state, const struct feature_host *h)
{
    gateway_set_times(state, h->durable->heartbeat_ms, h->write_timeout_ms);
}

static void gateway_feature_drain(void *state, void (*drained)(void *ctx), void *ctx)
{
    gateway_drain(state, drained, ctx);
}

static size_t gateway_feature_cut(void *state)
{
    return gateway_orphan(state);
}

static void gateway_feature_stop(void *state, void (*stopped)(void *ctx), void *ctx)
{
    gateway_stop(state, stopped, ctx);
}

static void gateway_feature_free(void *state)
{
    gateway_free(state);
}

static const struct surface *gateway_feature_surface_of(const void *section)
{
    const struct route_config *c = section;
    return c->prefix ? &gateway_prefix_surface : &gateway_surface;
}

static const struct surface *const surfaces[] = {&gateway_surface, &gateway_prefix_surface, NULL};
static const struct feature_names streams[] = {{GATEWAY_STREAMS, true}, {0}};
static const char *const documents[] = {GATEWAY_RUNNING, GATEWAY_KEYS, GATEWAY_CHATS, NULL};

const struct feature gateway_feature = {
    .name = "gateway",
    .title = "the gateway",
    .scope = FEATURE_OF_LOOP,
    .settings = &gateway_settings,
    .surfaces = surfaces,
    .surface_of = gateway_feature_surface_of,
    .streams = streams,
    .documents = documents,
    .traces = gateway_traces,
    .metrics = gateway_metrics,
    .troubles = gateway_troubles,
    .open = gateway_feature_open,
    .tune = gateway_feature_tune,
    .drain = gateway_feature_drain,
    .cut = gateway_feature_cut,
    .stop = gateway_feature_stop,
    .free = gateway_feature_free,
};
