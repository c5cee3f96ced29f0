// SPDX-License-Identifier: Apache-2.0
/* poll.h -- resources that can only be polled, as streams: `[poll NAME]` is the stream
 * `poll/NAME`.
 *
 * One poller per resource, however many read the stream. It asks while somebody follows the stream,
 * once more for each plain read, and otherwise not at all (unless it is to ask always). What is new
 * goes into the stream together with the place that was reached, in one write: see
 * feature/poll/poll_changes.h. Servers that share a store may share a resource as well: the place's
 * version decides whose write counts. */
#ifndef FEATURE_POLL_POLL_H
#define FEATURE_POLL_POLL_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

struct durable;
struct feeds;
struct fetcher;
struct poll_config;
struct polls;
struct sched;
struct store;
struct trace;

#define POLL_STREAMS "poll/"

struct polls_setup {
    struct sched *sched;
    struct store *store;
    struct feeds *feeds;
    struct fetcher *fetcher;
    struct durable *durable; /* serves the streams */
    const struct trace *trace;
    const struct poll_config *configs; /* kept */
    size_t n_configs;
};
struct polls *polls_new(const struct polls_setup *setup);

/* stopped() comes from the schedule; polls_free is due then. */
void polls_stop(struct polls *all, void (*stopped)(void *ctx), void *ctx);
void polls_free(struct polls *all);

#endif
