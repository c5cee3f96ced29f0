// SPDX-License-Identifier: Apache-2.0
/* h2_head.h -- the header list of an HTTP/2 request on its way to a struct request.
 *
 * nghttp2 has seen to the grammar by then: names in small letters, pseudo-headers first and once,
 * no headers that speak of a connection, values without control characters, a content-length that
 * the DATA agrees with. Here is what makes it a request that the HTTP/1.1 side would take as well,
 * and the same limits. */
#ifndef HTTP_H2_HEAD_H
#define HTTP_H2_HEAD_H

#include "http/exchange.h"
#include "http/h1_parse.h"

#define H2_LIST_MAX  H1_HEAD_MAX       /* names, values and 32 bytes for each: 431 */
#define H2_LIST_BOMB (4 * H2_LIST_MAX) /* nobody's mistake any more: the stream is reset */

/* One for a connection: header lists come one after the other. */
struct h2_head {
    size_t size; /* of the list so far, as HTTP/2 counts it */
    int status;  /* a refusal; 0: none so far */
    const char *why;
    struct str method, scheme, path, authority, host, length, expect;
    uint8_t hosts, authorizations, n;
    uint8_t authorization; /* 1 + where the last of them is */
    uint64_t names;        /* header_bit of all */
    struct header headers[H1_HEADERS_MAX];
};

void h2_head_reset(struct h2_head *h);

/* One field of the list; copied into the arena. NULL: of trailers, and only counted. */
void h2_head_add(struct h2_head *h, struct arena *arena, struct str name, struct str value);

/* The list is complete. Sets x->request and what goes with it; 0, or the status to refuse it with
 * and *why. */
int h2_head_finish(struct h2_head *h, struct exchange *x, const char **why);

#endif
