// SPDX-License-Identifier: Apache-2.0
/* cascade_prompt.h -- what clients of OpenAI's API ask, as the one message that a Cascade takes.
 *
 * The last message of the user is the question. What came before it goes in front, in blocks with a
 * blank line between them:
 *
 *     Instructions:                 all messages of system and developer, a blank line between them
 *     Previous user message:        and so on, in their order
 *     Previous assistant reply:
 *     Previous tool result:
 *     (the question, without a word in front of it)
 *
 * Messages without text are left out, and lines that the transcript could not tell from its own
 * headers begin with a space. Pure. */
#ifndef FEATURE_CASCADE_CASCADE_PROMPT_H
#define FEATURE_CASCADE_CASCADE_PROMPT_H

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>

struct cascade_prompt {
    struct buf model; /* empty: none was named */
    struct buf text;
    bool tools; /* the request offers some, which are passed over */
    bool usage; /* it wants a stream to end with what was used */
    /* Not NULL: the request cannot be used, and this is what to say of it. Static. */
    const char *wrong;
};

/* refuse_tools: a request that offers tools is wrong. One that demands that a tool be called is so
 * in any case. cascade_prompt_deinit is due in any case. */
void cascade_prompt_read(struct cascade_prompt *p, struct str body, bool refuse_tools);
void cascade_prompt_deinit(struct cascade_prompt *p);

/* Whether this body asks for an answer in one piece: `stream` is not true. What is no JSON object
 * does not. */
bool cascade_prompt_is_whole(struct str body);

#endif
