// SPDX-License-Identifier: Apache-2.0
/* tls_channel.h -- TLS on one connected socket, for conn.c.
 *
 * No call blocks. The socket stays the caller's, and so does waiting for it: TLS_WANT_READ and
 * TLS_WANT_WRITE say what to wait for before the same call is made again. */
#ifndef NET_TLS_CHANNEL_H
#define NET_TLS_CHANNEL_H

#include "base/str.h"

#include <stdbool.h>
#include <sys/types.h>

struct tls;
struct tls_channel;
struct tls_names;

#define TLS_RECORD_MAX (16 * 1024)

#define TLS_WANT_READ  (-1)
#define TLS_WANT_WRITE (-2)
#define TLS_GONE       (-3) /* the peer left, cut its answer short or broke the rules; traced */

/* Keeps t. fd: connected and non-blocking. host: NULL as the server; as the client, whom the peer
 * has to prove to be, a name or an IP address. NULL: out of memory. */
struct tls_channel *tls_channel_new(struct tls *t, int fd, const char *host);
void tls_channel_free(struct tls_channel *c); /* NULL is allowed */

/* 0: done; or one of the above. */
int tls_channel_handshake(struct tls_channel *c);
bool tls_channel_ready(const struct tls_channel *c);

/* After TLS_GONE: what was wrong. Static. */
const char *tls_channel_why(const struct tls_channel *c);

/* What was agreed on, `h2` say; nothing if the client did not ask. Once ready; lent. */
struct str tls_channel_protocol(const struct tls_channel *c);

/* Whom the client's certificate names; NULL: it has shown none. Once ready; lent. */
const struct tls_names *tls_channel_names(struct tls_channel *c);

/* > 0: bytes read; 0: the peer said that it has finished; or one of the above. buffered_only: what
 * has been taken from the socket before, and no more. */
ssize_t tls_channel_read(struct tls_channel *c, char *into, size_t n, bool buffered_only);

/* Whether something has been taken from the socket and not been read, be it the end. It may be a
 * part of a record, which tls_channel_read has no use for yet. */
bool tls_channel_has_more(const struct tls_channel *c);

/* One record: up to TLS_RECORD_MAX of these bytes. How many, or one of the above. After
 * TLS_WANT_WRITE the same bytes have to be given again, or more that begin with them. */
ssize_t tls_channel_write(struct tls_channel *c, struct str bytes);

/* Says that no more will be sent. 0, or one of the above. */
int tls_channel_finish(struct tls_channel *c);

#endif
