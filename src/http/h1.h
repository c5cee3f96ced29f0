// SPDX-License-Identifier: Apache-2.0
/* h1.h -- HTTP/1.1 connections.
 *
 * Requests are read one after the other; a pipelined one waits in the connection's buffer until
 * the response before it is complete, and the responses of one turn leave in one write. */
#ifndef HTTP_H1_H
#define HTTP_H1_H

#include "base/list.h"

struct http;

/* Takes over a connected, non-blocking socket. */
void h1_accept(struct http *http, int fd);

/* Each connection by its link in http->connections. */
void h1_drain(struct link *l);
void h1_close(struct link *l);

#endif
