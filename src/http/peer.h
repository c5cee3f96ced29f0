// SPDX-License-Identifier: Apache-2.0
/* peer.h -- one connection of a server: what is the same whatever it speaks.
 *
 * It begins without a protocol. What the handshake of TLS agreed on decides, or else its first
 * bytes: those of HTTP/2's preface, or any others.
 * From then on the protocol has the connection, its callbacks and both timers; at the end it gives
 * it back to linger. The memory goes when the connection is closed, the protocol's with it. */
#ifndef HTTP_PEER_H
#define HTTP_PEER_H

#include "base/list.h"
#include "net/conn.h"

struct account;
struct http;
struct peer;
struct peer_stall;
struct unsent_share;

struct protocol {
    void (*drain)(struct peer *p); /* see http_drain */
    void (*close)(struct peer *p); /* now: ends what is under way, and calls peer_close */
    void (*free)(void *session);   /* of a connection that is closed */
};

#define PEER_PREFACE 24 /* bytes that an HTTP/2 client begins with */

struct peer {
    struct conn conn;
    struct http *http;
    struct link link;              /* in http->connections */
    struct timer timer;            /* of what the peer is to send */
    struct peer_stall *stall;      /* of peer.c; NULL: the peer takes what there is */
    const struct protocol *speaks; /* NULL: not known yet */
    void *session; /* the protocol's; before: bytes that do not say which it is, or NULL */
    struct unsent_share *share; /* of unsent.c; NULL: all is sent */
    struct account *account;    /* of limits.c: whom it counts for; NULL: nobody */
    bool surplus : 1;           /* one too many: it is told so, or may see that we live */
    bool over_limit : 1;        /* ... of its own address */
    bool admin : 1;             /* it came by the listener of admin-listen */
};

static inline struct peer *peer_of(struct conn *c)
{
    return container_of(c, struct peer, conn);
}

/* Takes over a connected, non-blocking socket; ops and on_timeout are for as long as it is not
 * known what is spoken. NULL: it could not be watched, and is closed. */
struct peer *peer_new(struct http *http, int fd, const struct conn_ops *ops,
                      void (*on_timeout)(struct timer *t));

/* For protocols, when they begin. The timers are stopped. */
void peer_speaks(struct peer *p, const struct protocol *protocol, void *session,
                 const struct conn_ops *ops, void (*on_timeout)(struct timer *t));

/* For protocols: the last thing said has been sent. Bytes of the peer may be on their way: closing
 * now could make its kernel throw away what it got. So the end is said, and what still comes is
 * read for a moment; then comes close(). */
void peer_linger(struct peer *p);

/* Stops the timers and closes the socket. May be called twice. */
void peer_close(struct peer *p);

/* The `stalled` and `closed` of every protocol's conn_ops, and `failed` of those that have nothing
 * to add. A stall that lasts for the limit's time ends in close(). The queue counts as unsent until
 * the protocol says otherwise. */
void peer_stalled(struct conn *c);
void peer_failed(struct conn *c);
void peer_closed(struct conn *c);

/* So much is queued for the peer that it does not take. */
void peer_queued(struct peer *p, size_t bytes);

/* The peer takes again what there is: it is no longer waited for. */
void peer_end_stall(struct peer *p);
static inline void peer_drained(struct peer *p) /* and nothing is left that counts */
{
    if (p->stall == NULL && p->share == NULL)
        return;
    peer_end_stall(p);
    peer_queued(p, 0);
}

/* The connection that this share is of is closed: others wait for what it does not take. */
void peer_cut(struct unsent_share **share);

/* Each connection by its link in http->connections. */
void peer_drain(struct link *l);
void peer_end(struct link *l);

#endif
