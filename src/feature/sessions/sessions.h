// SPDX-License-Identifier: Apache-2.0
/* sessions.h -- sessions put together for a server: engine, backend, surfaces. */
#ifndef FEATURE_SESSIONS_SESSIONS_H
#define FEATURE_SESSIONS_SESSIONS_H

#include "feature/feature.h"
#include "feature/sessions/session.h"
#include "stream/subscriber.h"
#include "stream/durable.h"
#include "feature/sessions/sessions_http.h"

struct fetcher;
struct http;
struct instances;
struct session_config;
struct session_upstream;

struct session_host {
    struct session_upstream *upstream; /* NULL: another backend */
    struct sessions *sessions;
    struct sessions_surface surface;
    struct store *view; /* of the sessions' streams, for workers */
    struct feeds view_feeds;
    struct stream_space space;
};

struct session_host_setup {
    const struct session_config *config;
    struct sched *sched;
    struct store *store;
    struct feeds *feeds;
    struct fetcher *fetcher;
    const struct instances *instances; /* NULL: the store is ours alone */
    struct http *http;
    struct durable *durable; /* gets the workers' view */
    const struct trace *trace;
    uint64_t long_poll_ms;
};

void session_host_init(struct session_host *s, const struct session_host_setup *setup);

/* Sessions that were held in memory alone. Of the state: struct session_host. */
extern const struct feature_trouble sessions_troubles[];

/* Clients are told to come back. */
void session_host_drain(struct session_host *s);

/* No exchange is left. stopped() comes from the schedule; then session_host_deinit is due. */
void session_host_stop(struct session_host *s, void (*stopped)(void *ctx), void *ctx);
void session_host_deinit(struct session_host *s);

#endif
