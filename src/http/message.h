// SPDX-License-Identifier: Apache-2.0
/* message.h -- a request as every HTTP version hands it to a handler. */
#ifndef HTTP_MESSAGE_H
#define HTTP_MESSAGE_H

#include "base/str.h"

#include <stdint.h>

enum method {
    METHOD_OTHER, /* a token we have no word for; the text is in request.method_text */
    METHOD_GET,
    METHOD_HEAD,
    METHOD_POST,
    METHOD_PUT,
    METHOD_DELETE,
    METHOD_OPTIONS,
    METHOD_PATCH,
    METHOD_N,
};

struct header {
    struct str name, value; /* value without surrounding white space */
};

/* Slices live as long as the exchange keeps its request (exchange.h). */
struct request {
    enum method method;
    uint8_t version; /* 10, 11, 20 */
    uint8_t n_headers;
    struct str method_text;
    struct str path;  /* of the target, still encoded, from the first `/` (or `*` of OPTIONS) */
    struct str query; /* behind `?`, still encoded; p == NULL: there was no `?` */
    struct str host;  /* Host or :authority; n == 0: none */
    struct header *headers;
};

/* The bytes that the slices point into have been copied from old to `to`. */
void request_move(struct request *req, struct str old, const char *to);

/* The first header of that name (any case); p == NULL when absent. */
struct str request_header(const struct request *req, struct str name);

#endif
