// SPDX-License-Identifier: Apache-2.0
/* durable.h -- the Durable Streams protocol under /v1/stream/. See docs/protocols/streams.md. */
#ifndef STREAM_DURABLE_H
#define STREAM_DURABLE_H

#include "base/gate.h"
#include "base/slab.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct bookmark_key;
struct exchange;
struct feeds;
struct lane;
struct sched;
struct store;
struct surface;
struct usage;

#define DURABLE_PREFIX "/v1/stream/"

/* Streams whose names begin with `prefix`, a reserved one, are served from a store of their own: a
 * view around the real one. Workers may write as far as that store takes it. */
struct stream_space {
    struct str prefix;         /* as in store/names.h */
    struct store *store;       /* lists all streams, its own as what they are read as */
    struct feeds *feeds;       /* of that store */
    struct str takes;          /* a sentence for who appends what the store answers ERR_SYNTAX to;
                                  n == 0: the common one */
    struct stream_space *next; /* private */
};

/* What a feature has to do with streams that others read. */
struct stream_hooks {
    /* Somebody reads the stream of this name: one that is made on demand is made now. */
    void (*asked)(void *ctx, struct str name);
    /* Is it one that the feature writes by itself, and nobody else? */
    bool (*owns)(void *ctx, struct str name);
    void *ctx;
    struct stream_hooks *next; /* private */
};

struct durable {
    struct store *store;
    struct feeds *feeds;
    struct sched *sched;
    struct str public_url; /* n == 0: from the Host header */
    uint64_t max_append;   /* bytes of one request body */
    uint64_t read_chunk;   /* bytes of one catch-up answer */
    uint64_t long_poll_ms, heartbeat_ms, sse_lifetime_ms;
    uint64_t sse_retry_ms;       /* 0: left to the client */
    struct stream_space *spaces; /* NULL: none */
    struct stream_hooks *hooks;  /* NULL: none */
    /* Where large bodies are checked and split: made when one comes, or is NULL, and then it is
     * done here. `preparing` counts those, and has to be empty before a store stops. */
    struct lane *lane;      /* of bodies up to DURABLE_HUGE */
    struct lane *huge_lane; /* of the others: nobody waits long behind a few of them */
    struct lane *(*make_lane)(void *ctx, bool huge); /* may be NULL */
    void *ctx;
    struct gate preparing;
    /* For listings that look at others' names (listing.h); NULL, or points to NULL: there are none
     * yet. */
    struct bookmark_key *const *bookmarks;
    struct usage *usage; /* what is stored below roots; NULL: nobody's is bounded */
    struct slab readers; /* of SSE; slab_deinit when no exchange is left */
};

/* The lane for a body of n bytes, for whoever else gets some and waits for its own jobs before it
 * stops. NULL: it is not large, or there is no lane, or no thread could be had. */
#define DURABLE_HUGE (1024 * 1024)
struct lane *durable_lane(struct durable *d, size_t n);

/* Before the first request. They outlive it. The last space that was added answers listings. */
void durable_add_space(struct durable *d, struct stream_space *space);
void durable_add_hooks(struct durable *d, struct stream_hooks *hooks);

/* Does the server write this stream by itself, and nobody else? */
bool durable_owned(const struct durable *d, struct str name);

/* Mounted at DURABLE_PREFIX. */
extern const struct surface durable_surface;
void durable_handle(void *durable, struct exchange *x);

#endif
