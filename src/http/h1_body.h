// SPDX-License-Identifier: Apache-2.0
/* h1_body.h -- the part of an HTTP/1.1 connection's bytes that is a request's body. */
#ifndef HTTP_H1_BODY_H
#define HTTP_H1_BODY_H

#include "http/h1_parse.h"

/* A request body that has not been read to its end. */
struct h1_body {
    uint64_t left; /* of a Content-Length */
    bool chunked;
    bool expect_continue; /* the peer waits for 100 */
    struct h1_chunked decoder;
    struct str ready;             /* all of it, where it came with the head */
    uint64_t seen, seen_at_timer; /* payload bytes: for the rate */
};

/* Takes body bytes from bytes[0..n). *data may lie anywhere in them: chunks are joined in place, so
 * that one read is one delivery. *used < n only when the body ends. -1: malformed. */
int h1_body_take(struct h1_body *b, char *bytes, size_t n, size_t *used, struct str *data,
                 bool *end);

#endif
