// SPDX-License-Identifier: Apache-2.0
/* logs_feature.c -- logs as a feature of a server: a thread for their files, and the surface. */
#include "feature/logs/logs.h"
#include "base/err.h"
#include "base/lane.h"
#include "base/mem.h"
#include "feature/feature.h"
#include "feature/logs/logs_http.h"
#include "feature/logs/logs_trace.h"
#include "net/thread_lane.h"
#include "stream/durable.h"

#include <stdio.h>
#include <stdlib.h>

TRACE_TABLE_DEFINE(logs_traces, LOGS_TRACES);

struct logs_state {
    struct lane *lane;
    struct logs *logs;
};

static int logs_feature_open(const struct feature_host *h, const void *settings, void **state,
                             char *why, size_t size)
{
    const struct logs_settings *c = settings;
    if (c->logs.n == 0)
        return 0;
    struct lane *lane = thread_lane_new(h->loop, "logs");
    if (lane == NULL) {
        snprintf(why, size, "no thread for their files");
        return ERR_IO;
    }
    struct logs_state *s = *state = mem_zalloc(sizeof *s);
    s->lane = lane;
    s->logs = logs_new(&(struct logs_setup){.loop = h->loop,
                                            .lane = lane,
                                            .configs = c->logs.items,
                                            .n_configs = c->logs.n,
                                            .long_poll_ms = h->durable->long_poll_ms,
                                            .heartbeat_ms = h->durable->heartbeat_ms,
                                            .sse_lifetime_ms = h->durable->sse_lifetime_ms,
                                            .sse_retry_ms = h->durable->sse_retry_ms,
                                            .metrics = h->metrics,
                                            .trace = h->trace});
    logs_mount(s->logs, h->http);
    return 0;
}

const char *logs_path(const void *state, struct str name)
{
    return logs_path_of(((const struct logs_state *)state)->logs, name);
}

static void logs_feature_tune(void *state, const struct feature_host *h)
{
    const struct durable *d = h->durable;
    logs_set_times(((struct logs_state *)state)->logs, d->long_poll_ms, d->heartbeat_ms,
                   d->sse_lifetime_ms, d->sse_retry_ms);
}

static void logs_feature_stop(void *state, void (*stopped)(void *ctx), void *ctx)
{
    struct logs_state *s = state;
    logs_stop(s->logs, stopped, ctx);
}

static void logs_feature_free(void *state)
{
    struct logs_state *s = state;
    logs_free(s->logs);
    lane_free(s->lane);
    free(s);
}

static const struct surface *const surfaces[] = {&logs_surface, NULL};

const struct feature logs_feature = {
    .name = "logs",
    .title = "logs",
    .scope = FEATURE_OF_LOOP,
    .settings = &logs_settings,
    .surfaces = surfaces,
    .traces = logs_traces,
    .metrics = logs_metrics,
    .tools = logs_tools,
    .open = logs_feature_open,
    .tune = logs_feature_tune,
    .stop = logs_feature_stop,
    .free = logs_feature_free,
};
