// SPDX-License-Identifier: Apache-2.0
/* cascade_turn.h -- one answer of a Cascade, from its first poll to its end.
 *
 * What a turn is told: the transcript as each poll found it, or that a poll failed, and the time.
 * What it says: which text is new (a delta), which text that was sent has become another (a
 * rewrite), when to poll again, and when it is over. It does nothing by itself: whoever polls waits
 * wait_ms from each answer on, so that one poll is under way at a time and none comes early.
 *
 * Per poll:
 *   1. Messages of the Assistant are looked at by index, not as they stand. Those of one index are
 *      one message, with a blank line between its parts.
 *   2. Text that begins with what was sent of that index gives the rest as a delta; any other text
 *      is a rewrite, after which it grows by deltas again. One that is missing now is left alone.
 *   3. A message of the System that begins with a gRPC code (cascade_errors.h) fails the turn.
 *   4. A poll is steady if it brought neither text nor another number of steps. The turn ends with
 *      the steady_polls-th steady one in a row, if nothing has changed for quiet_ms and a message
 *      of a Tool has said CORTEX_STEP_TYPE_CHECKPOINT. Nothing else ends it well, however long the
 *      transcript stands still: a slow tool does that, and what follows it is part of the answer.
 *   5. The wait is fast_ms behind a change and grows to slow_ms while polls are steady, but not
 *      beyond checkpoint_ms once the checkpoint was seen, as the end is near.
 *   6. A failed poll starts the quiet anew and doubles the wait, to failed_ms at most. failures_max
 *      in a row, or recent_max among the last CASCADE_TURN_RECENT polls, and the turn is lost. */
#ifndef FEATURE_CASCADE_CASCADE_TURN_H
#define FEATURE_CASCADE_CASCADE_TURN_H

#include "base/str.h"
#include "feature/cascade/cascade_errors.h"

#include <stdint.h>

#define CASCADE_TURN_RECENT       15         /* polls that are remembered */
#define CASCADE_TURN_MESSAGES_MAX 4096       /* indices of the Assistant's messages */
#define CASCADE_TURN_TEXT_MAX     (32 << 20) /* bytes of all of them */

struct cascade_turn_rules {
    uint32_t steady_polls;
    uint64_t quiet_ms;
    uint64_t fast_ms, slow_ms, checkpoint_ms, failed_ms;
    uint32_t failures_max, recent_max;
    uint64_t timeout_ms; /* of the whole turn, from cascade_turn_new on, but for what it was held */
};
extern const struct cascade_turn_rules cascade_turn_defaults;

enum cascade_turn_state {
    CASCADE_TURN_GOING,
    CASCADE_TURN_ENDED,     /* all of it is there */
    CASCADE_TURN_FAILED,    /* by what the System said: error */
    CASCADE_TURN_LOST,      /* too many polls have failed */
    CASCADE_TURN_TIMED_OUT, /* timeout_ms are over, and no checkpoint came */
    CASCADE_TURN_TOO_LARGE, /* a transcript or its messages are beyond the bounds above */
};

enum cascade_turn_kind { CASCADE_DELTA, CASCADE_REWRITE };

struct cascade_turn_event {
    enum cascade_turn_kind kind;
    uint64_t index;  /* of the message */
    struct str text; /* CASCADE_DELTA: what is new, never empty. CASCADE_REWRITE: all of it */
    /* CASCADE_DELTA: the one before was another message's. Who writes all deltas into one text puts
     * a blank line ("\n\n") in front of this one. */
    bool apart;
};

/* What follows from a poll. Events first, then the state. */
struct cascade_turn_step {
    enum cascade_turn_state state;
    const struct cascade_turn_event *events; /* lent, with their texts, until the next call */
    size_t n_events;
    uint64_t wait_ms;           /* CASCADE_TURN_GOING: until the next poll */
    struct cascade_error error; /* CASCADE_TURN_FAILED: lent like events */
};

struct cascade_turn;

/* rules are copied. */
struct cascade_turn *cascade_turn_new(const struct cascade_turn_rules *rules, uint64_t now_ms);
void cascade_turn_free(struct cascade_turn *t); /* NULL is fine */

/* Before the first poll. */
uint64_t cascade_turn_first_wait_ms(const struct cascade_turn *t);

/* A poll's answer: UTF-8, as cascade_transcript_answer_read has it. Not after another state than
 * CASCADE_TURN_GOING was given. */
void cascade_turn_polled(struct cascade_turn *t, uint64_t now_ms, struct str transcript,
                         uint64_t num_total_steps, struct cascade_turn_step *out);

/* There was no poll for so long, since nobody took what the last one brought. That time is not the
 * Cascade's: it counts neither as quiet nor for the timeout. */
void cascade_turn_held(struct cascade_turn *t, uint64_t held_ms);

/* A poll that brought no transcript, for whatever reason. */
void cascade_turn_poll_failed(struct cascade_turn *t, uint64_t now_ms,
                              struct cascade_turn_step *out);

#endif
