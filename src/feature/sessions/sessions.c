// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/sessions.h"
#include "feature/sessions/session_view.h"
#include "feature/sessions/session_config.h"
#include "feature/sessions/session_status_http.h"
#include "feature/sessions/session_upstream.h"
#include "feature/sessions/sessions_trace.h"
#include "telemetry/metrics.h"

TRACE_TABLE_DEFINE(sessions_traces, SESSIONS_TRACES);

static const struct session_backend *backend_of(struct session_host *s,
                                                const struct session_host_setup *setup)
{
    const struct session_config *c = setup->config;
    if (c->handler == SESSION_HANDLER_ECHO)
        return &session_echo;
    if (c->upstream == NULL)
        return NULL;
    s->upstream = session_upstream_new(&(struct session_upstream_setup){.sched = setup->sched,
                                                                        .fetcher = setup->fetcher,
                                                                        .trace = setup->trace,
                                                                        .config = c,
                                                                        .event = session_job_event,
                                                                        .end = session_job_end});
    return session_upstream_backend(s->upstream);
}

/* The same protocol as for all streams, over what workers are to see. */
static void show_workers(struct session_host *s, const struct session_host_setup *setup)
{
    s->view = session_view_new(setup->sched, setup->store, &sessions_view_ops, s->sessions);
    feeds_init(&s->view_feeds, s->view);
    s->space = (struct stream_space){.prefix = STR(SESSION_PREFIX),
                                     .store = s->view,
                                     .feeds = &s->view_feeds,
                                     .takes = STR(SESSION_VIEW_TAKES)};
    durable_add_space(setup->durable, &s->space);
}

void session_host_init(struct session_host *s, const struct session_host_setup *setup)
{
    const struct session_config *c = setup->config;
    s->sessions = sessions_new(&(struct sessions_setup){.sched = setup->sched,
                                                        .store = setup->store,
                                                        .feeds = setup->feeds,
                                                        .instances = setup->instances,
                                                        .trace = setup->trace,
                                                        .backend = backend_of(s, setup),
                                                        .lifetime_ms = c->lifetime_ms,
                                                        .key_hold_ms = c->key_hold_ms,
                                                        .max_open = c->max_open,
                                                        .max_bytes = c->max_bytes});
    s->surface = (struct sessions_surface){.sched = setup->sched,
                                           .sessions = s->sessions,
                                           .max_message = c->max_message_bytes,
                                           .long_poll_ms = setup->long_poll_ms};
    sessions_surface_mount(&s->surface, setup->http);
    session_status_mount(s->sessions, setup->http);
    show_workers(s, setup);
}

void session_host_drain(struct session_host *s)
{
    sessions_drain(s->sessions);
}

void session_host_stop(struct session_host *s, void (*stopped)(void *ctx), void *ctx)
{
    sessions_surface_deinit(&s->surface);
    sessions_stop(s->sessions, stopped, ctx);
}

void session_host_deinit(struct session_host *s)
{
    feeds_deinit(&s->view_feeds);
    store_free(s->view);
    sessions_free(s->sessions);
    session_upstream_free(s->upstream);
}

static uint64_t sessions_count_degraded(const void *state)
{
    return sessions_degraded(((const struct session_host *)state)->sessions);
}

static const struct metric_info degraded_info = {.name = "sessions_degraded",
                                                 .help = "Sessions that were held in memory alone"};

const struct feature_trouble sessions_troubles[] = {
    {sessions_count_degraded, &TRACE_KIND_SESSIONS_DEGRADED, &degraded_info},
    {0},
};
