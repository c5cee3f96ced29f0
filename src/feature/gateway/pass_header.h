// SPDX-License-Identifier: Apache-2.0
/* pass_header.h -- which headers go on from a client to an upstream, and back.
 *
 * All do but these: those of one connection, those that this server writes itself, credentials of
 * ours, what speaks for this origin to a browser, and what would make another request of the one
 * that was judged here. Pure. */
#ifndef FEATURE_GATEWAY_PASS_HEADER_H
#define FEATURE_GATEWAY_PASS_HEADER_H

#include "http/message.h"

#include <stdbool.h>
#include <stddef.h>

enum pass {
    PASS_NEVER,  /* nobody can have it sent on */
    PASS_ASKED,  /* if a route's `forward` names it */
    PASS_ALWAYS, /* unless its `drop` does */
};

/* Of a request, by its name; the value may still be no one else's business. */
enum pass pass_request_header(struct str name);

/* Of an answer. False also for what no header can be. */
bool pass_answer_header(const struct header *h);

/* Of an answer whose body this server makes itself: without what the answer says of its body. */
bool pass_stream_header(const struct header *h);

/* Does a message's Connection header name it, so that it is for one connection alone? */
bool pass_is_named(const struct header *all, size_t n, struct str name);

#endif
