// SPDX-License-Identifier: Apache-2.0
/* logs.h -- logs put together for a server: a thread for their files, and the surface. */
#ifndef FEATURE_LOGS_LOGS_H
#define FEATURE_LOGS_LOGS_H

struct config;
struct http;
struct lane;
struct logs;
struct loop;
struct metrics;
struct trace;

struct log_host {
    struct lane *lane; /* NULL: no logs are configured */
    struct logs *logs;
};

/* 0, or ERR_IO: no thread could be had. Then there is nothing to stop. */
int log_host_init(struct log_host *h, const struct config *config, struct loop *loop,
                  struct http *http, struct metrics *metrics, const struct trace *trace);

/* Other times for readers that come from now on. */
void log_host_tune(struct log_host *h, const struct config *config);

/* No exchange is left. stopped() may come from within this call; then log_host_deinit is due. */
void log_host_stop(struct log_host *h, void (*stopped)(void *ctx), void *ctx);
void log_host_deinit(struct log_host *h);

#endif
