// SPDX-License-Identifier: Apache-2.0
/* dial.h -- connects a socket: names are resolved off the loop, and all addresses tried in turn.
 *
 * Loop thread only. done() is called exactly once, later, and the dial is gone with it. */
#ifndef NET_DIAL_H
#define NET_DIAL_H

#include <stdint.h>

struct dial;
struct loop;

/* host: a name or an IP address; with port 0 the path of a Unix socket. Copied. timeout_ms: for all
 * of it, but a name whose resolver takes longer holds up done(). fd: connected, non-blocking and
 * the receiver's; or -1, and why is a sentence (lent). */
struct dial *dial_new(struct loop *loop, const char *host, uint16_t port, uint32_t timeout_ms,
                      void (*done)(void *ctx, int fd, const char *why), void *ctx);

/* done() comes as soon as can be, with -1. */
void dial_cancel(struct dial *d);

#endif
