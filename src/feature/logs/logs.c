// SPDX-License-Identifier: Apache-2.0
#include "feature/logs/logs.h"
#include "base/err.h"
#include "base/lane.h"
#include "app/config.h"
#include "net/thread_lane.h"
#include "feature/logs/logs_http.h"
#include "feature/logs/logs_trace.h"

TRACE_TABLE_DEFINE(logs_traces, LOGS_TRACES);

int log_host_init(struct log_host *h, const struct config *config, struct loop *loop,
                  struct http *http, struct metrics *metrics, const struct trace *trace)
{
    *h = (struct log_host){NULL, NULL};
    if (config->logs.n == 0)
        return 0;
    h->lane = thread_lane_new(loop, "logs");
    if (h->lane == NULL)
        return ERR_IO;
    h->logs = logs_new(&(struct logs_setup){.loop = loop,
                                            .lane = h->lane,
                                            .configs = config->logs.items,
                                            .n_configs = config->logs.n,
                                            .long_poll_ms = config->long_poll_timeout_ms,
                                            .heartbeat_ms = config->heartbeat_ms,
                                            .sse_lifetime_ms = config->sse_lifetime_ms,
                                            .sse_retry_ms = config->sse_retry_ms,
                                            .metrics = metrics,
                                            .trace = trace});
    logs_mount(h->logs, http);
    return 0;
}

void log_host_tune(struct log_host *h, const struct config *config)
{
    if (h->logs != NULL)
        logs_set_times(h->logs, config->long_poll_timeout_ms, config->heartbeat_ms,
                       config->sse_lifetime_ms, config->sse_retry_ms);
}

void log_host_stop(struct log_host *h, void (*stopped)(void *ctx), void *ctx)
{
    if (h->logs == NULL)
        stopped(ctx);
    else
        logs_stop(h->logs, stopped, ctx);
}

void log_host_deinit(struct log_host *h)
{
    logs_free(h->logs);
    lane_free(h->lane);
    *h = (struct log_host){NULL, NULL};
}
