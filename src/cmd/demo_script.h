// SPDX-License-Identifier: Apache-2.0
/* demo_script.h -- what the demo backend says: a text, one word an event, as a backend of each
 * dialect would send it.
 *
 *     sse          event: stage {"stage":"DRAFTING"}, event: token {"text":".."} ..., event: stage
 *                  {"stage":"COMPLETE","payload":{"text":"..","tokens":N}}
 *     openai       chunks of a chat completion, and [DONE]
 *     ui-message   a UI message stream of the AI SDK, and [DONE]
 *
 * Pure: the same script says the same, so that what arrives can be compared. */
#ifndef CMD_DEMO_SCRIPT_H
#define CMD_DEMO_SCRIPT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

#define DEMO_TOKENS_MAX 100000 /* so that the whole text still fits in one event */

enum demo_dialect { DEMO_SSE, DEMO_OPENAI, DEMO_UI_MESSAGE };

struct demo_script {
    enum demo_dialect dialect;
    uint64_t tokens;
    uint64_t number;   /* of this answer: part of its id */
    int64_t created_s; /* Unix time */
};

/* Token i, from 0. Put one after another they are the text. */
void demo_put_token(uint64_t i, struct buf *out);
void demo_put_text(uint64_t tokens, struct buf *out);

uint64_t demo_events(const struct demo_script *s);

/* Event i, from 0, as a whole SSE event. */
void demo_put_event(const struct demo_script *s, uint64_t i, struct buf *out);

/* The tokens that have been said with event i: event i carries one if this is more than it was. */
uint64_t demo_tokens_upto(const struct demo_script *s, uint64_t i);

#endif
