// SPDX-License-Identifier: Apache-2.0
/* h1.h -- HTTP/1.1 connections.
 *
 * Requests are read one after the other; a pipelined one waits in the connection's buffer until
 * the response before it is complete, and the responses of one turn leave in one write. */
#ifndef HTTP_H1_H
#define HTTP_H1_H

#include "base/str.h"

struct peer;

/* Takes over a connection, and at least one byte of it that has been read: lent, in memory that may
 * be the loop's scratch, and not more than fit in a head. */
void h1_start(struct peer *p, struct str bytes);

/* Answers a connection that says nothing, or is one too many, and closes it. */
void h1_refuse(struct peer *p, int status, const char *why);

#endif
