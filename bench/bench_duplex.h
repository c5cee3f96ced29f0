// SPDX-License-Identifier: Apache-2.0
/* bench_duplex.h -- one call that goes both ways, on an HTTP/2 connection (h2c) of its own: Connect
 * envelopes in both directions for as long as both sides like.
 *
 * Anything else than messages, a 200 and flow control fails the swarm. */
#ifndef BENCH_DUPLEX_H
#define BENCH_DUPLEX_H

#include "bench_swarm.h"

#include "base/buf.h"

#include <nghttp2/nghttp2.h>

#define DUPLEX_MESSAGE_MAX (64 * 1024) /* that is taken from the server */

struct duplex;

struct duplex_ops {
    void (*message)(struct duplex *d, struct str bytes); /* lent for the call */
    void (*after)(struct duplex *d); /* once per read, when all its messages have been handled */
};

/* Embedded in what a phase keeps per call; stays where it is while open. */
struct duplex {
    struct source source;
    struct swarm *swarm;
    const struct duplex_ops *ops;
    int fd; /* -1: closed */
    int32_t stream;
    nghttp2_session *session;
    bool deferred; /* nghttp2 waits to be told that there is a body again */
    bool waits_to_write;
    struct buf body; /* envelopes that are not frames yet */
    size_t body_at;
    struct buf out; /* frames that the kernel has not taken */
    size_t out_at;
    struct buf in; /* of an envelope that is not whole yet */
};

struct duplex_header {
    const char *name, *value;
};

/* Starts connecting, and makes the call as soon as that is done: POST path with these headers (n of
 * them, 8 at most) besides those of the protocol. */
void duplex_open(struct duplex *d, struct swarm *s, const struct duplex_ops *ops, const char *path,
                 const struct duplex_header *headers, size_t n);

/* Resets the connection. One that was never opened must be zeroed with fd -1; closing twice is
 * harmless. */
void duplex_close(struct duplex *d);

/* One message, copied; it goes out with the next flush, which is due soon. Within message() and
 * after() both are allowed. */
void duplex_put(struct duplex *d, struct str message);
void duplex_flush(struct duplex *d);

#endif
