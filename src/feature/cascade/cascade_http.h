// SPDX-License-Identifier: Apache-2.0
/* cascade_http.h -- the bridge to Cascade: the language server of an editor on this machine, which
 * can only be polled, answers as an API of OpenAI's form does. See docs/protocols/bridges.md.
 *
 *     POST /v1/chat/completions   a route of the gateway, whose source is a Cascade
 *     GET  /v1/models             what the account may use
 *
 * What it takes of secrets (the server's CSRF token, the account's API key) stays in memory of
 * base/secret.h and goes to that server alone. */
#ifndef FEATURE_CASCADE_CASCADE_HTTP_H
#define FEATURE_CASCADE_CASCADE_HTTP_H

#include "base/str.h"
#include "feature/gateway/gateway_source.h"

#include <stdint.h>

#define CASCADE_CHAT_PATH   "/v1/chat/completions"
#define CASCADE_MODELS_PATH "/v1/models"

struct cascade;
struct fetcher;
struct http;
struct lane;
struct sched;
struct store;
struct trace;

/* Kept by reference, but for the texts, which are copied. */
struct cascade_setup {
    struct sched *sched;
    struct store *store;
    struct fetcher *fetcher;
    struct lane *lane; /* of its own */
    const struct trace *trace;
    struct str target;                       /* http://ADDRESS:PORT; n == 0: to be found */
    struct str csrf_token, api_key, version; /* n == 0: to be found */
    const char *proc;                        /* "/proc" */
    const char *state_file;                  /* of the editor */
    uint64_t timeout_ms;                     /* of one answer */
    bool refuse_tools;                       /* requests that offer tools; else they are ignored */
};

/* Archives what an earlier process left behind. */
struct cascade *cascade_new(const struct cascade_setup *setup);

/* /v1/models; the rest is the gateway's. */
void cascade_mount(struct cascade *c, struct http *http);
struct source_kind cascade_source(struct cascade *c);

/* The gateway has stopped. What is under way is archived first. stopped() comes from the schedule;
 * cascade_free is due then. */
void cascade_stop(struct cascade *c, void (*stopped)(void *ctx), void *ctx);
void cascade_free(struct cascade *c); /* NULL is allowed */

#endif
