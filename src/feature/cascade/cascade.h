// SPDX-License-Identifier: Apache-2.0
/* cascade.h -- the Cascade bridge put together for a server. */
#ifndef FEATURE_CASCADE_CASCADE_H
#define FEATURE_CASCADE_CASCADE_H

#include "feature/gateway/route_config.h"

#include <stdbool.h>

struct cascade;
struct cascade_config;
struct fetcher;
struct gateway_setup;
struct http;
struct lane;
struct loop;
struct store;
struct trace;

/* Zero-initialised: none. */
struct cascade_host {
    struct cascade *cascade;
    struct lane *lane;
    struct route_config route; /* of its chat completions */
    char *state_file;
};

struct cascade_host_setup {
    struct cascade_config *config; /* its secrets are taken over */
    struct loop *loop;
    struct store *store;
    struct fetcher *fetcher;
    struct http *http;
    const struct trace *trace;
};

/* From here on this process leaves no core files: libraries keep copies of what they send. 0, or
 * ERR_IO with nothing to stop. */
int cascade_host_init(struct cascade_host *h, const struct cascade_host_setup *setup);

/* Its route, for the gateway; nothing if there is no bridge. */
void cascade_host_add_route(const struct cascade_host *h, struct gateway_setup *to);

/* The gateway has stopped. Without a bridge stopped() is called at once. */
void cascade_host_stop(struct cascade_host *h, void (*stopped)(void *ctx), void *ctx);
void cascade_host_deinit(struct cascade_host *h);

#endif
