// SPDX-License-Identifier: Apache-2.0
/* logs_http.h -- files of JSON lines as resumable streams under /v1/log/. See
 * docs/protocols/logs.md. */
#ifndef FEATURE_LOGS_LOGS_HTTP_H
#define FEATURE_LOGS_LOGS_HTTP_H

#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

struct surface;
struct http;
struct lane;
struct log_config;
struct logs;
struct loop;
struct metric_info;
struct metrics;
struct trace;

#define LOGS_PREFIX "/v1/log/"

/* All of it is kept by reference. */
struct logs_setup {
    struct loop *loop;
    struct lane *lane; /* for all work on files */
    const struct log_config *configs;
    size_t n_configs;
    uint64_t long_poll_ms, heartbeat_ms, sse_lifetime_ms;
    uint64_t sse_retry_ms; /* 0: left to the client */
    struct metrics *metrics;
    const struct trace *trace;
};

extern const struct metric_info *const logs_metrics[]; /* for the row */

struct logs *logs_new(const struct logs_setup *setup);
extern const struct surface logs_surface;
void logs_mount(struct logs *l, struct http *http);

/* The file of the log of that name; NULL: there is none. */
const char *logs_path_of(const struct logs *l, struct str name);

/* For readers that come from now on. */
void logs_set_times(struct logs *l, uint64_t long_poll_ms, uint64_t heartbeat_ms,
                    uint64_t sse_lifetime_ms, uint64_t sse_retry_ms);

/* No exchange is left. stopped() comes when the lane has nothing of ours any more, from the
 * schedule; then logs_free is due. */
void logs_stop(struct logs *l, void (*stopped)(void *ctx), void *ctx);
void logs_free(struct logs *l); /* NULL is fine */

#endif
