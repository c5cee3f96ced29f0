// SPDX-License-Identifier: Apache-2.0
/* h2.h -- HTTP/2 connections, by nghttp2: prior knowledge on any port, never by Upgrade.
 *
 * Each stream is one exchange. Nothing is queued for a stream but one pull of its response or one
 * whole answer, and it is pulled only when the peer's window for it and our own write queue have
 * room; so a stream that its reader leaves alone costs its neighbours nothing. Of a request body,
 * the peer may send H2_STREAM_WINDOW bytes that the handler has not asked for, and H2_WINDOW on all
 * streams of the connection together. */
#ifndef HTTP_H2_H
#define HTTP_H2_H

#include "base/str.h"

struct peer;

#define H2_STREAMS       100 /* at once on one connection, where the limits do not say */
#define H2_STREAM_WINDOW (64 * 1024 - 1)
#define H2_WINDOW        (1024 * 1024)

/* Takes over a connection, and the bytes of it that have been read, from the preface on: lent, in
 * memory that may be the loop's scratch. */
void h2_start(struct peer *p, struct str bytes);

#endif
