// SPDX-License-Identifier: Apache-2.0
/* responses_store.h -- what is kept of a response, and how it is read.
 *
 *     NAME            its events, as every generation has them
 *     NAME.snapshot   the Response that they made, once it has ended
 *     NAME.input      two events, closed: the Response as it was queued, and the items that it was
 *                     made from, as an array. Stored with a comma behind each, as JSON streams are.
 *
 * A response is there as long as its events are, or the stream that they will come to. What a crash
 * leaves of the others is not found any more, and expires.
 *
 * Loop thread only. What is begun here frees itself when its done() has returned, which may be
 * before the call that began it has. */
#ifndef FEATURE_GATEWAY_RESPONSES_STORE_H
#define FEATURE_GATEWAY_RESPONSES_STORE_H

#include "base/arena.h"
#include "base/buf.h"
#include "store/store.h"

#define RESPONSES_INPUT_SUFFIX ".input"
#define RESPONSES_FOLD_MAX     (8 * 1024 * 1024) /* what came in pieces, and then whole */

struct gateway_route;

/* A response as it is now. */
struct response_load {
    struct buf response; /* out: JSON */
    enum end_reason end; /* out: of its generation; END_NONE: it is under way */
    int err;             /* out: ERR_NOT_FOUND, ERR_TOO_LARGE: it has become too large for one body;
                            of the store */
    void (*done)(struct response_load *l);
    void *ctx;
};
void response_load(struct gateway_route *r, struct str request_id,
                   void (*done)(struct response_load *l), void *ctx);

/* The items that it was made from. */
struct response_input {
    struct buf items; /* out: a JSON array */
    int err;          /* out: ERR_NOT_FOUND; of the store */
    void (*done)(struct response_input *l);
    void *ctx;
};
void response_input(struct gateway_route *r, struct str request_id,
                    void (*done)(struct response_input *l), void *ctx);

/* Everything of it. err: ERR_NOT_FOUND, if there was nothing; of the store. done NULL: nobody
 * waits. */
void response_remove(struct gateway_route *r, struct str request_id,
                     void (*done)(void *ctx, int err), void *ctx);

/* Of one that has not come to be: there is nothing else. */
void response_remove_input(struct gateway_route *r, struct str request_id);

#endif
