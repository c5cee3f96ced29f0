// SPDX-License-Identifier: Apache-2.0
/* gateway.h -- stands in front of backends that answer with server-sent events, and makes their
 * answers resumable. See docs/protocols/gateway.md.
 *
 * A POST to a route starts a *generation*: one request to the upstream, whose answer is recorded
 * into a stream (feature/gateway/recorder.h), whether or not anybody reads it. Everybody who reads
 * it, the client that started it included, is a reader of that stream. */
#ifndef FEATURE_GATEWAY_GATEWAY_H
#define FEATURE_GATEWAY_GATEWAY_H

#include "http/surface.h"
#include "base/str.h"
#include "feature/feature.h"
#include "feature/gateway/gateway_source.h"

#include <stdint.h>

struct buf;
struct exchange;
struct feature_configs;
struct feature_warnings;
struct durable;
struct feeds;
struct fetcher;
struct gateway;
struct gateway_route;
struct http;
struct instances;
struct metrics;
struct route_config;
struct sched;
struct store;
struct trace;

/* Kept by reference, but for the secrets. */
struct gateway_setup {
    struct sched *sched;
    struct store *store;
    struct feeds *feeds;
    struct fetcher *fetcher;
    struct instances *instances; /* NULL: the store is ours alone */
    struct http *http;
    struct metrics *metrics;
    const struct trace *trace;
    const struct route_config *routes;
    size_t n_routes;
    bool store_is_memory; /* store->in_memory: buffers are bounded then, whatever a route says of
                             trimming */
    struct str secret, previous_secret; /* of resume tokens; n == 0: none */
    struct str telemetry_prefix;
    struct durable *durable;   /* whose lane large bodies are looked at on; NULL: it is done here */
    uint64_t heartbeat_ms;     /* 0: none */
    uint64_t write_timeout_ms; /* for readers that hold up everybody's answer */
};

/* Ends what an earlier process left under way; where others share the store, what those leave that
 * die. NULL with a sentence in why. */
struct gateway *gateway_new(const struct gateway_setup *setup, char *why, size_t size);

/* For answers that begin from now on. */
void gateway_set_times(struct gateway *g, uint64_t heartbeat_ms, uint64_t write_timeout_ms);

/* Answers that were passed on unrecorded. Of the state: struct gateway. */
extern const struct feature_trouble gateway_troubles[];
/* For doubts of those whose answers are resumed with its tokens: is there a secret to sign them? */
void gateway_warn_secret(const struct feature_configs *all, struct feature_warnings *out);

/* Answers that were passed on unrecorded, so far. */
uint64_t gateway_degraded(const struct gateway *g);

/* Begins nothing new. drained() comes once, from the schedule, when nothing is under way any more.
 */
void gateway_drain(struct gateway *g, void (*drained)(void *ctx), void *ctx);

/* Ends what is under way as orphaned, so that its readers are told before they go. How many. */
size_t gateway_orphan(struct gateway *g);

/* Generations under way are cut off and end as orphaned. No exchange is left. stopped() comes from
 * the schedule; gateway_free is due then. */
void gateway_stop(struct gateway *g, void (*stopped)(void *ctx), void *ctx);
void gateway_free(struct gateway *g); /* NULL is allowed */

/* ---- for features that answer instead of an upstream ---- */

/* A route with the defaults of one, whose clients speak OpenAI's dialect. */
struct gateway_local {
    const char *path;
    uint64_t parallel;   /* answers under way; 0: no limit */
    uint64_t longest_ms; /* an answer takes no longer; its stream does not expire before */
    struct source_kind source;
};

/* The route is the gateway's. */
struct gateway_route *gateway_add_local(struct gateway *g, const struct gateway_local *local);

/* Its sources are about to go. What is under way ends as orphaned, and its sources are freed before
 * this returns. No exchange is left. */
void gateway_orphan_route(struct gateway_route *r);

/* An error as a body of OpenAI's API. code: a word in capitals. */
void gateway_put_openai_error(struct buf *out, int status, struct str code, struct str message);

/* What requests of a route need, and what pages may ask, for surfaces of those that are local:
 * surface.h. */
extern const struct surface_rule gateway_rules[];
extern const struct surface_share gateway_share;

#endif
