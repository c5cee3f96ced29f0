// SPDX-License-Identifier: Apache-2.0
/* responses_request.h -- what a POST to OpenAI's Responses API asks for, and what the upstream is
 * asked for instead.
 *
 * The upstream always streams, whatever the client wants. It never hears of `background`, which the
 * gateway serves, nor of a previous response that the gateway has kept: the items of that one stand
 * in front of the new `input`. Everything else goes on as it came. Pure; all of it may run on any
 * thread. */
#ifndef FEATURE_GATEWAY_RESPONSES_REQUEST_H
#define FEATURE_GATEWAY_RESPONSES_REQUEST_H

#include "base/buf.h"
#include "base/str.h"

/* Texts lie in the body. */
struct responses_request {
    struct str body; /* an object */
    bool stream, background, stored;
    struct str model;    /* JSON; these three: n == 0 if it is not there */
    struct str previous; /* a JSON string */
    struct str input;    /* JSON */
};

/* ERR_JSON: it is no JSON object, or nested too deep. ERR_SYNTAX: a background response that is not
 * to be stored. */
int responses_request_parse(struct responses_request *r, struct str body);

/* Items, as elements of an array with commas between them. */

/* Those of an `input`: what is there as a text is a message of the user's. */
void responses_put_input(struct buf *out, struct str input);

/* The items that a response was made from (an array), and those that it made. What it was cut off
 * in is left out, but for the text of a message. */
void responses_put_context(struct buf *out, struct str input, struct str response);

/* What the upstream gets. continues: with these items instead of `input` and the previous response.
 * ERR_TOO_LARGE: it would take more than max bytes. */
int responses_request_put(struct buf *out, const struct responses_request *r, bool continues,
                          struct str items, size_t max);

#endif
