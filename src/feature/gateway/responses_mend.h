// SPDX-License-Identifier: Apache-2.0
/* responses_mend.h -- the events of a weak Responses backend as its clients need them.
 *
 * Clients put a response together from its events by their places: the item at output_index, its
 * part at content_index. Some backends leave these out, number nothing, or begin in the middle. So
 * of each event that is JSON
 *
 *     sequence_number   becomes 0, 1, 2 ..: the event's ordinal in its stream, so that
 *                       `starting_after` finds its place without a search
 *     output_index      becomes the place of the item that its item_id names; without one, that
 *     content_index     of the item or part that came last
 *     summary_index
 *     item_id, item.id  become what the item was called first; an item without a name gets one
 *     response          gets the one id of this response, and what clients take for granted:
 *                       object, created_at, status, model, output; and what the gateway did instead
 *                       of the backend: background, store, previous_response_id
 *
 * and where clients would fail without it, an event comes before: response.created at the
 * beginning, output_item.added before a message or reasoning item that nobody announced,
 * content_part.added and reasoning_summary_part.added before the first text of a part. What is
 * right stays as it came, byte for byte; so does what is no JSON object.
 *
 * At most RESPONSES_ITEMS_MAX items are known; events of further ones are numbered and no more.
 * Pure but for the callback. */
#ifndef FEATURE_GATEWAY_RESPONSES_MEND_H
#define FEATURE_GATEWAY_RESPONSES_MEND_H

#include "base/str.h"

#include <stdint.h>

#define RESPONSES_ITEMS_MAX 1024

/* Copied. */
struct responses_mend_config {
    struct str response_id; /* as text, without anything to escape */
    struct str model;       /* JSON, as asked for; n == 0: not known */
    struct str previous_id; /* a JSON string, if the gateway has put the items of that response in
                               front; n == 0: it has not */
    bool background, stored;
    int64_t created_s; /* Unix time */
};

struct responses_mend;
struct responses_mend *responses_mend_new(const struct responses_mend_config *config);
void responses_mend_free(struct responses_mend *m); /* NULL is fine */

/* Takes an event, lent for the call, and answers as recorder_event does. */
typedef int responses_emit_fn(void *ctx, struct str type, struct str data);

/* One event of the backend. The answer: the first error that emit gave, else 0 if it gave one, else
 * 1. */
int responses_mend_event(struct responses_mend *m, struct str type, struct str data,
                         responses_emit_fn *emit, void *ctx);

/* Has it ended as the protocol has it: completed, failed, incomplete, or with an error? */
bool responses_mend_has_ended(const struct responses_mend *m);

#endif
