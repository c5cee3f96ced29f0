// SPDX-License-Identifier: Apache-2.0
/* health.h -- how the server is, for those who watch over it: GET /metrics (Prometheus text), GET
 * /healthz (it lives) and GET /readyz (send it requests, or the reason not to).
 *
 * The numbers of the whole server are registered here and looked up when somebody scrapes, so that
 * who counts them needs to know nothing of metrics. */
#ifndef APP_HEALTH_H
#define APP_HEALTH_H

#include "app/watch.h"
#include "telemetry/metrics.h"

struct exchange;
struct surface;
struct feature_state;
struct http;

/* name, help */
#define HEALTH_GAUGES(X)                                                                           \
    X(CONNECTIONS, "connections", "Connections open")                                              \
    X(CONNECTIONS_MAX, "connections_max", "Connections that may be open; more are answered 503")   \
    X(INFLIGHT_BYTES, "inflight_bytes", "Bytes of request bodies held in memory")                  \
    X(UNSENT_BYTES, "unsent_bytes", "Memory of answers that their readers have not taken")         \
    X(UNSENT_WAITING, "unsent_waiting", "Answers that wait for such memory")                       \
    X(DRAINING, "draining", "1 while the server is being stopped")                                 \
    X(READY, "ready", "1 while /readyz says so")                                                   \
    X(RELOAD_FAILED, "reload_failed", "1 if the last SIGHUP met settings that are no good")        \
    X(STARTED, "start_time_seconds", "Unix time of the start")                                     \
    X(MEMORY, "resident_memory_bytes", "Memory that the process takes")

enum health_gauge {
#define X(kind, name, help) HEALTH_##kind,
    HEALTH_GAUGES(X)
#undef X
        HEALTH_GAUGE_KINDS,
};

struct health {
    /* Set before health_init. */
    struct http *http;
    struct metrics *metrics;
    const struct store *store;          /* NULL: none */
    const struct feature_state *states; /* feature == NULL behind the last; a state may come and
                                             go. NULL: none */
    const char *(*unready)(void *ctx);  /* why requests should go elsewhere, static; NULL: ready */
    void *ctx;
    /* private */
    struct gauge gauges[HEALTH_GAUGE_KINDS], figures[STORE_FIGURES_MAX];
    struct counter troubles[WATCH_TROUBLES_MAX];
    struct metric_family *responses, *refusals, *warnings;
};

/* What is served. */
extern const struct surface health_metrics_surface, health_live_surface, health_ready_surface;

/* Registers the numbers and mounts the three paths. */
void health_init(struct health *s);

/* A setting that is not as good as it could be: a gauge of its name
 * says so. */
void health_warn(struct health *s, struct str setting);

void health_reloaded(struct health *s, bool failed);

/* Mounted at the three of them; exact, so that /metricsX is nothing. */
void health_handle(void *status, struct exchange *x);

#endif
