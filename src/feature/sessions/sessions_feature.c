// SPDX-License-Identifier: Apache-2.0
/* sessions_feature.c -- sessions as a feature of a server: engine, backend, surfaces. */
#include "feature/sessions/session_doc.h"
#include "feature/sessions/sessions.h"
#include "base/mem.h"
#include "feature/feature.h"
#include "feature/sessions/sessions_commands.h"
#include "feature/sessions/session.h"
#include "feature/sessions/session_config.h"
#include "feature/sessions/session_status_http.h"
#include "feature/sessions/session_upstream.h"
#include "feature/sessions/session_view.h"
#include "feature/sessions/sessions_http.h"
#include "feature/sessions/sessions_trace.h"
#include "net/loop.h"
#include "store/store.h"
#include "stream/durable.h"
#include "stream/subscriber.h"
#include "telemetry/metrics.h"

#include <stdlib.h>

TRACE_TABLE_DEFINE(sessions_traces, SESSIONS_TRACES);

struct sessions_state {
    struct session_upstream *upstream; /* NULL: another backend */
    struct sessions *sessions;
    struct sessions_http surface;
    struct store *view; /* of the sessions' streams, for workers */
    struct feeds view_feeds;
    struct stream_space space;
    void (*stopped)(void *ctx);
    void *ctx;
};

static const struct session_backend *
backend_of(struct sessions_state *s, const struct feature_host *h, const struct session_config *c)
{
    if (c->handler == SESSION_HANDLER_ECHO)
        return &session_echo;
    if (c->upstream == NULL)
        return NULL;
    s->upstream =
        session_upstream_new(&(struct session_upstream_setup){.sched = &h->loop->sched,
                                                              .fetcher = h->fetcher,
                                                              .trace = h->trace,
                                                              .config = c,
                                                              .event = session_reply_event,
                                                              .end = session_reply_end});
    return session_upstream_backend(s->upstream);
}

/* The same protocol as for all streams, over what workers are to see. */
static void show_workers(struct sessions_state *s, const struct feature_host *h)
{
    s->view = session_view_new(&h->loop->sched, h->store, &sessions_view_ops, s->sessions);
    feeds_init(&s->view_feeds, s->view);
    s->space = (struct stream_space){.prefix = STR(SESSION_PREFIX),
                                     .store = s->view,
                                     .feeds = &s->view_feeds,
                                     .takes = STR(SESSION_VIEW_TAKES)};
    durable_add_space(h->durable, &s->space);
}

static int sessions_feature_open(const struct feature_host *h, const void *settings, void **state,
                                 char *why, size_t size)
{
    const struct session_config *c = ((const struct sessions_settings *)settings)->session.items;
    struct sessions_state *s = *state = mem_zalloc(sizeof *s);
    s->sessions = sessions_new(&(struct sessions_setup){.sched = &h->loop->sched,
                                                        .store = h->store,
                                                        .feeds = h->feeds,
                                                        .instances = h->instances,
                                                        .trace = h->trace,
                                                        .backend = backend_of(s, h, c),
                                                        .lifetime_ms = c->lifetime_ms,
                                                        .key_hold_ms = c->key_hold_ms,
                                                        .max_open = c->max_open,
                                                        .max_bytes = c->max_bytes});
    s->surface = (struct sessions_http){.sched = &h->loop->sched,
                                        .sessions = s->sessions,
                                        .max_message = c->max_message_bytes,
                                        .long_poll_ms = h->durable->long_poll_ms};
    sessions_http_mount(&s->surface, h->http);
    session_status_mount(s->sessions, h->http);
    show_workers(s, h);
    return 0;
}

struct store *sessions_workers_view(void *state)
{
    return ((struct sessions_state *)state)->view;
}

static void sessions_feature_tune(void *state, const struct feature_host *h)
{
    ((struct sessions_state *)state)->surface.long_poll_ms = h->durable->long_poll_ms;
}

/* Clients are told to come back. */
static void sessions_feature_quiesce(void *state)
{
    sessions_drain(((struct sessions_state *)state)->sessions);
}

/* A worker that has gone may have left a read behind, which asks for keys when it is done. */
static void sessions_on_stopped(void *ctx)
{
    struct sessions_state *s = ctx;
    store_stop(s->view, s->stopped, s->ctx);
}

static void sessions_feature_stop(void *state, void (*stopped)(void *ctx), void *ctx)
{
    struct sessions_state *s = state;
    s->stopped = stopped;
    s->ctx = ctx;
    sessions_http_deinit(&s->surface);
    sessions_stop(s->sessions, sessions_on_stopped, s);
}

static void sessions_feature_free(void *state)
{
    struct sessions_state *s = state;
    feeds_deinit(&s->view_feeds);
    store_free(s->view);
    sessions_free(s->sessions);
    session_upstream_free(s->upstream);
    free(s);
}

static uint64_t sessions_count_degraded(const void *state)
{
    return sessions_degraded(((const struct sessions_state *)state)->sessions);
}

static const struct metric_info degraded_info = {.name = "sessions_degraded",
                                                 .help = "Sessions that were held in memory alone"};

static const struct feature_trouble troubles[] = {
    {sessions_count_degraded, &TRACE_KIND_SESSIONS_DEGRADED, &degraded_info},
    {0},
};

static const struct surface *const surfaces[] = {&sessions_chat_surface, &sessions_bidi_surface,
                                                 &sessions_own_surface, &session_status_surface,
                                                 NULL};

static const struct command commands[] = {
    {"session", cmd_session, "look at sessions, or hold one"},
    {NULL, NULL, NULL},
};

static const struct feature_names streams[] = {{SESSION_PREFIX, true}, {0}};
static const char *const documents[] = {SESSION_DOC_PREFIX, NULL};

const struct feature sessions_feature = {
    .name = "sessions",
    .title = "sessions",
    .scope = FEATURE_OF_LOOP,
    .settings = &sessions_settings,
    .surfaces = surfaces,
    .streams = streams,
    .documents = documents,
    .traces = sessions_traces,
    .commands = commands,
    .tools = sessions_tools,
    .troubles = troubles,
    .open = sessions_feature_open,
    .tune = sessions_feature_tune,
    .quiesce = sessions_feature_quiesce,
    .stop = sessions_feature_stop,
    .free = sessions_feature_free,
};
