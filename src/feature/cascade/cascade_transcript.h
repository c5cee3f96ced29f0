// SPDX-License-Identifier: Apache-2.0
/* cascade_transcript.h -- the transcript of a Cascade, taken apart where it lies.
 *
 *     === MESSAGE <digits> - <word> ===
 *     body, any number of lines
 *
 * A header is a whole line, to the letter; a message ends where the next one begins, or with the
 * text. Nothing is escaped: a line of a body that looks like a header is one. Lines end with \n or
 * \r\n. What stands before the first header is no message. Messages come in the order of the text,
 * which is not always that of their indices. */
#ifndef FEATURE_CASCADE_CASCADE_TRANSCRIPT_H
#define FEATURE_CASCADE_CASCADE_TRANSCRIPT_H

#include "base/buf.h"
#include "base/str.h"

#include <stdint.h>

#define CASCADE_TRANSCRIPT_MAX (16 << 20) /* bytes of its text */
#define CASCADE_HEADER_START   "=== MESSAGE "

/* Any word will do in a header; these are known. */
enum cascade_role {
    CASCADE_ROLE_OTHER,
    CASCADE_ROLE_USER,
    CASCADE_ROLE_ASSISTANT,
    CASCADE_ROLE_TOOL,
    CASCADE_ROLE_SYSTEM,
};

struct cascade_message {
    uint64_t index; /* at most NUM_SAFE_MAX; a line with a larger one is no header */
    enum cascade_role role;
    struct str body; /* without white space (of ASCII) at either end */
};

/* The text with \n alone at the ends of its lines: itself, or if it has a \r\n a copy in *scratch,
 * which is emptied first. */
struct str cascade_transcript_lines(struct str text, struct buf *scratch);

/* Takes the next message off *rest, which began as what cascade_transcript_lines gave. Bodies are
 * parts of it. False: there is none left. */
bool cascade_transcript_next(struct str *rest, struct cascade_message *out);

#endif
