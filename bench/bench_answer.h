// SPDX-License-Identifier: Apache-2.0
/* bench_answer.h -- HTTP/1.1 answers, read in whatever pieces the socket gives.
 *
 * Only what a load generator needs: the status, the framing (Content-Length or chunked; an answer
 * with a body and neither is an error) and two headers. Nothing is copied but a head that arrives
 * in parts and those headers. Zero-initialised is ready for the first answer; after `end` it is
 * ready for the next one on the same connection. */
#ifndef BENCH_ANSWER_H
#define BENCH_ANSWER_H

#include "base/buf.h"
#include "base/str.h"

#include <stdint.h>

#define ANSWER_HEAD_MAX   16384
#define ANSWER_OFFSET_MAX 256

enum answer_state {
    ANSWER_HEAD,
    ANSWER_LENGTH,     /* `left` bytes of body to come */
    ANSWER_CHUNK_SIZE, /* in a chunk's size line */
    ANSWER_CHUNK_DATA, /* `left` bytes of chunk to come */
    ANSWER_CHUNK_CR,   /* before the CR LF that ends a chunk */
    ANSWER_CHUNK_LF,
    ANSWER_TRAILER, /* after the last chunk, up to an empty line */
};

struct answer {
    enum answer_state state;
    int status;
    bool chunked, up_to_date;
    bool to_head; /* the caller's: requests are HEADs, and answers have no bodies */
    uint64_t left;
    unsigned line;                       /* bytes seen of the current size or trailer line */
    char next_offset[ANSWER_OFFSET_MAX]; /* "": the answer has no Stream-Next-Offset */
    struct buf head;
};

/* Each may be NULL. `body` gets pieces of the body without framing. None may end the connection
 * that is being read. */
struct answer_sink {
    void (*head)(void *ctx, const struct answer *a);
    void (*body)(void *ctx, struct str piece);
    void (*end)(void *ctx, const struct answer *a);
};

void answer_deinit(struct answer *a);

/* Takes all of `in`, calling the sink as parts become complete. NULL, or a sentence that says what
 * is wrong with the answer; nothing can be read from that connection then. */
const char *answer_feed(struct answer *a, struct str in, const struct answer_sink *sink, void *ctx);

#endif
