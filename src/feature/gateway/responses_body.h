// SPDX-License-Identifier: Apache-2.0
/* responses_body.h -- bodies of OpenAI's Responses API that the gateway makes itself. Pure; all of
 * it may run on any thread. */
#ifndef FEATURE_GATEWAY_RESPONSES_BODY_H
#define FEATURE_GATEWAY_RESPONSES_BODY_H

#include "base/buf.h"
#include "feature/gateway/responses_request.h"
#include "store/store.h"

#include <stdint.h>

/* A response of which nothing has come yet: what was asked for, with status `queued`. */
void responses_put_queued(struct buf *out, const struct responses_request *r, struct str id,
                          int64_t created_s);

/* A response (JSON) as it is when its generation has ended so, or END_NONE: not yet. One that has a
 * final status of its own stays as it is. */
void responses_put_ended(struct buf *out, struct str response, enum end_reason end,
                         struct str message);

void responses_put_deleted(struct buf *out, struct str id);

/* {"error":{"message","type":"invalid_request_error","param","code"}}; n == 0: null. */
void responses_put_error(struct buf *out, struct str message, struct str param, struct str code);

/* The same, of an id that there is nothing under. */
void responses_put_missing(struct buf *out, struct str id);

#define RESPONSES_LIMIT_MAX     100
#define RESPONSES_LIMIT_DEFAULT 20

struct responses_page {
    struct str id;    /* of the response */
    struct str after; /* the id of an item; n == 0: from the first */
    uint32_t limit;   /* at most RESPONSES_LIMIT_MAX */
    bool descending;
};

/* A page of the items of a JSON array. Items that came without an id have one by their place. What
 * this takes grows with the array, but not the memory. ERR_NOT_FOUND: there is no item `after`. */
int responses_put_list(struct buf *out, struct str items, const struct responses_page *page);

#endif
