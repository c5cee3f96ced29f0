// SPDX-License-Identifier: Apache-2.0
/* stored_answer.h -- an answer that is no stream of events, as it rests in the stream of its
 * generation: one event, which is all that the stream has.
 *
 *     HTTP STATUS LF  { NAME: VALUE LF }  LF  BODY
 *
 * STATUS is 200 to 299. NAME is a token of RFC 9110, VALUE has no CR, LF or NUL, and BODY is
 * everything that follows. An event of the upstream's begins with the name of a field and a colon,
 * and our notice with a colon (recorder.h): neither is taken for an answer. Pure. */
#ifndef FEATURE_GATEWAY_STORED_ANSWER_H
#define FEATURE_GATEWAY_STORED_ANSWER_H

#include "base/buf.h"
#include "http/message.h"

#define STORED_ANSWER_BODY_MAX (4 * 1024 * 1024)

/* Everything before the body. Headers that have no place in it are left out. */
void stored_answer_put_head(struct buf *out, int status, const struct header *headers, size_t n);

/* By its first bytes. */
bool stored_answer_is(struct str stored);

struct stored_answer {
    int status;
    struct str headers; /* for stored_answer_next */
    struct str body;
};

/* 0, or ERR_CORRUPT. */
int stored_answer_take(struct str stored, struct stored_answer *a);

/* The next of the headers that stored_answer_take has found, from the first on. False: that was
 * the last. */
bool stored_answer_next(struct str *headers, struct header *h);

#endif
