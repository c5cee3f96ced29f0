// SPDX-License-Identifier: Apache-2.0
/* cascade_messages.h -- the messages of exa.language_server_pb.LanguageServerService, as far as the
 * Cascade bridge speaks it, made and read with protobuf-c (cascade_wire.proto).
 *
 * Pure functions. Messages stand alone: framing is the caller's. What a server sends is bounded
 * before it gets here, and read within wire_message.h's budget: beyond it is ERR_TOO_LARGE, what is
 * no such message, or has texts that are no UTF-8, is ERR_SYNTAX, from all that read. Texts that
 * were read are in the arena. Outs are untouched on failure. */
#ifndef FEATURE_CASCADE_CASCADE_MESSAGES_H
#define FEATURE_CASCADE_CASCADE_MESSAGES_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/str.h"

#include <stdint.h>

#define CASCADE_SERVICE "exa.language_server_pb.LanguageServerService"
#define CASCADE_ID_MAX  128

/* ---- what we send; each appends one message ---- */

/* Who is asking. The rest of what a server insists on is the same for all and put in by itself. */
struct cascade_metadata {
    struct str version;    /* of the editor; servers refuse what they do not know */
    struct str api_key;    /* secret: so is any message with it, and the buffer it is in */
    struct str os;         /* darwin, linux or windows */
    uint64_t request_id;   /* cascade_next_request_id */
    struct str session_id; /* a new UUID each time, as is */
    struct str trigger_id;
    int64_t wall_ms;
};

/* Numbers that grow over all calls of a process: from the clock, one by one. *last is 0 at first.
 */
uint64_t cascade_next_request_id(uint64_t *last, int64_t wall_ms);

/* m == NULL: an empty Metadata, here and below. */
void cascade_put_initialize(struct buf *out, const struct cascade_metadata *m);
/* A new Cascade of its own, never the one that the editor shows. */
void cascade_put_start(struct buf *out, const struct cascade_metadata *m);
void cascade_put_send(struct buf *out, struct str cascade_id, struct str text, struct str model_uid,
                      const struct cascade_metadata *m);
/* All of the transcript: with an offset its messages would be numbered anew. */
void cascade_put_transcript(struct buf *out, struct str cascade_id);
void cascade_put_archive(struct buf *out, struct str cascade_id);
void cascade_put_user_status(struct buf *out, const struct cascade_metadata *m);

/* ---- what servers answer ---- */

/* Of StartCascade: 1 to CASCADE_ID_MAX letters, digits, `-`, `_` and `.`, fit for a name.
 * ERR_EMPTY: it has no cascade_id. ERR_SYNTAX also: one of other characters. */
int cascade_started_read(struct arena *a, struct str bytes, struct str *cascade_id);

struct cascade_transcript_answer {
    struct str text; /* at most CASCADE_TRANSCRIPT_MAX bytes, or ERR_TOO_LARGE */
    uint64_t num_total_steps;
};
int cascade_transcript_answer_read(struct arena *a, struct str bytes,
                                   struct cascade_transcript_answer *out);

/* RawGetChatMessage's, of old servers: {1 delta_message {5 text, 6 in_progress, 7 is_error}}. An
 * answer without one is an empty text. */
struct cascade_raw_message {
    struct str text;
    bool in_progress;
    bool is_error; /* the text is no answer: cascade_error_in_raw */
};
int cascade_raw_message_read(struct arena *a, struct str bytes, struct cascade_raw_message *out);

#endif
