// SPDX-License-Identifier: Apache-2.0
/* cascade.h -- the bridge to Cascade: the language server of an editor on this machine, which can
 * only be polled, answers as an API of OpenAI's form does. See docs/protocols/bridges.md.
 *
 *     POST /v1/chat/completions   a route of the gateway, whose source is a Cascade
 *     GET  /v1/models             what the account may use
 *
 * What it takes of secrets (the server's CSRF token, the account's API key) stays in memory of
 * base/secret.h and goes to that server alone. */
#ifndef FEATURE_CASCADE_CASCADE_H
#define FEATURE_CASCADE_CASCADE_H

#include <stddef.h>

struct cascade;
struct cascade_config;
struct fetcher;
struct gateway;
struct http;
struct loop;
struct store;
struct trace;

struct cascade_host {
    struct loop *loop;
    struct store *store;
    struct fetcher *fetcher;
    struct http *http;
    struct gateway *gateway;
    const struct trace *trace;
};

/* Copies the secrets of the settings. Archives what an earlier process left behind. 0, or ERR_IO
 * with a sentence in why and nothing to stop. */
int cascade_open(const struct cascade_host *host, const struct cascade_config *config,
                 struct cascade **out, char *why, size_t size);

/* Before the gateway stops. Ends the generations of its route as orphaned, and archives what they
 * have begun. stopped() comes from the schedule; cascade_free is due then. */
void cascade_stop(struct cascade *c, void (*stopped)(void *ctx), void *ctx);
void cascade_free(struct cascade *c); /* NULL is allowed */

#endif
