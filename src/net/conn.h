// SPDX-License-Identifier: Apache-2.0
/* conn.h -- one connected socket (TCP or Unix) on the loop, plain or with TLS.
 *
 * Reading: the owner is told when bytes can be read and reads them itself, into memory of its
 * choice. Writing: the owner puts slices, which are sent with one system call when the turn ends;
 * it puts more only after drained(), so that a peer that takes nothing holds a bounded queue.
 *
 * Connections share the loop: when I/O has had its share of a turn, those with news wait in line,
 * and have theirs in the next one.
 *
 * With TLS all of this is the same. The handshake comes first, by itself: what is put waits for it,
 * as for a peer that takes nothing, and nothing is readable before; how long it may take is up to
 * the owner. A peer that ends without saying so is gone, and not at its end.
 *
 * Lifetime: conn_init ... conn_close ... closed(). The memory goes in closed() and nowhere else;
 * conn_close may be called twice and from any callback. */
#ifndef NET_CONN_H
#define NET_CONN_H

#include "base/block.h"
#include "base/sched.h"

#include <sys/types.h>
#include <uv.h>

struct conn;
struct loop;
struct tls;
struct tls_names;

struct conn_ops {
    void (*readable)(struct conn *c); /* bytes, the end or an error can be had from conn_read */
    void (*drained)(struct conn *c);  /* everything put has been handed to the kernel */
    void (*stalled)(struct conn *c);  /* the kernel takes no more for now */
    void (*failed)(struct conn *c);   /* the peer is gone; the owner calls conn_close */
    void (*closed)(struct conn *c);   /* last call */
};

struct conn {
    const struct conn_ops *ops;
    struct loop *loop;
    struct task flush;
    struct task late;     /* what the poll reported when I/O had had its share of the turn */
    struct outq *out;     /* what has been put and not been sent; NULL: nothing */
    struct conn_tls *tls; /* of conn.c; NULL: plain */
    int fd;
    uint8_t events : 2;      /* what the loop's poll tells */
    uint8_t late_events : 2; /* of `late`; 0: it does not wait */
    bool want_read : 1, blocked : 1, closing : 1;
    bool ended : 1; /* the peer sends no more */
};

/* Takes over fd (non-blocking). 0 or a negative libuv code; then fd is still the caller's. */
int conn_init(struct conn *c, struct loop *loop, int fd, const struct conn_ops *ops);
void conn_close(struct conn *c);

/* Right after conn_init: speaks TLS as the server, and keeps t. 0 or ERR_NOMEM; then the connection
 * is fit for nothing but conn_close. */
int conn_start_tls(struct conn *c, struct tls *t);

/* The same as the client (t of tls_new_client), for a peer that has to prove to be host, a name or
 * an IP address. */
int conn_start_tls_to(struct conn *c, struct tls *t, const char *host);
static inline bool conn_is_secure(const struct conn *c)
{
    return c->tls != NULL;
}

/* Whether bytes can pass: false during the handshake of TLS. */
bool conn_is_ready(const struct conn *c);

/* What the handshake agreed on, `h2` say; nothing when it did not, or there is none. Lent. */
struct str conn_protocol(const struct conn *c);

/* Whom the certificate names that the peer has shown; NULL: it has shown none. Lent. */
const struct tls_names *conn_peer_names(const struct conn *c);

/* Of a peer that is gone: what was wrong with its TLS; NULL: nothing is known. Static. */
const char *conn_tls_why(const struct conn *c);

void conn_want_read(struct conn *c, bool want);

#define CONN_AGAIN (-1)
#define CONN_GONE  (-2)
/* > 0: bytes read; 0: the peer has finished sending; CONN_AGAIN: nothing now; CONN_GONE. */
ssize_t conn_read(struct conn *c, char *into, size_t n);

/* Takes a reference to the slice's owner until it is sent; static and NULL-owned bytes must outlive
 * it (they are sent or dropped before closed()). */
void conn_put(struct conn *c, struct slice s);

/* As conn_put, but these take the caller's reference. */
void conn_give(struct conn *c, struct slice s);
void conn_put_take(struct conn *c, struct block *b);

/* Calls drained() at the end of the turn even if nothing has been put. */
void conn_flush_later(struct conn *c);

/* Lets the other connections have their turn: drained() comes after the next round of I/O. */
void conn_yield(struct conn *c);

/* Bytes waiting to be sent. */
size_t conn_pending(const struct conn *c);

/* No more will be sent: the peer sees the end after what was put. Only when nothing is pending, and
 * nothing may be put afterwards. conn_close alone does not tell a TLS peer that it has got all. */
void conn_shutdown_write(struct conn *c);

#endif
