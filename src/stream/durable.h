// SPDX-License-Identifier: Apache-2.0
/* durable.h -- the Durable Streams protocol under /v1/stream/. See docs/protocols/streams.md. */
#ifndef STREAM_DURABLE_H
#define STREAM_DURABLE_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct exchange;
struct feeds;
struct sched;
struct store;

#define DURABLE_PREFIX "/v1/stream/"

/* Which streams the server writes by itself, and nobody else: has() says whether this is one. NULL:
 * there are none. */
struct stream_owners {
    bool (*has)(void *ctx, struct str name);
    void *ctx;
};

/* Is it one of those, or one that the server made for a route or a tool? */
bool durable_owned(const struct stream_owners *owners, struct str name);

struct durable {
    struct store *store;
    struct feeds *feeds;
    struct sched *sched;
    struct str public_url; /* n == 0: from the Host header */
    uint64_t max_append;   /* bytes of one request body */
    uint64_t read_chunk;   /* bytes of one catch-up answer */
    uint64_t long_poll_ms, heartbeat_ms, sse_lifetime_ms;
    uint64_t sse_retry_ms; /* 0: left to the client */
    /* Serves the streams of sessions, from an feature/sessions/session_view.h and feeds on it; not
     * mounted itself. NULL: there are no sessions. */
    struct durable *sessions;
    /* Told of every read, so that a stream that is made on demand is; NULL: nobody wants to know.
     */
    void (*asked)(void *ctx, struct str name);
    void *asked_ctx;
    struct stream_owners owners;
};

/* Mounted at DURABLE_PREFIX. */
void durable_handle(void *durable, struct exchange *x);

#endif
