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
    uint8_t authorization; /* 1 + where the only header of that name is; 0: look for it */
    uint64_t absent;       /* of header_bit: no header has such a name; 0: nobody has looked */
    struct str method_text;
    struct str path;  /* of the target, still encoded, from the first `/` (or `*` of OPTIONS) */
    struct str query; /* behind `?`, still encoded; p == NULL: there was no `?` */
    struct str host;  /* Host or :authority; n == 0: none */
    struct header *headers;
};

/* The bytes that the slices point into have been copied from old to `to`. */
void request_move(struct request *req, struct str old, const char *to);

/* Tells a name, which has a byte, from most others by its length and first letter: what many
 * requests do without costs no search. Names that people use differ, with this factor. */
static inline uint64_t header_bit(struct str name)
{
    return UINT64_C(1) << ((name.n * 11 + (unsigned char)(name.p[0] | 0x20)) % 64);
}

/* Has it none of the headers with these bits? False: it may have some. */
static inline bool request_lacks(const struct request *req, uint64_t bits)
{
    return (req->absent & bits) == bits;
}

struct str request_find_header(const struct request *req, struct str name);

/* The first header of that name (any case); p == NULL when absent. */
static inline struct str request_header(const struct request *req, struct str name)
{
    return request_lacks(req, header_bit(name)) ? STR_NONE : request_find_header(req, name);
}

#endif
