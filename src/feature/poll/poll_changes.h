// SPDX-License-Identifier: Apache-2.0
/* poll_changes.h -- what changed in a resource that can only be asked again and again.
 *
 * An answer goes in; out come events, one JSON value each, for what is new since the answers before
 * it, and the place that has been reached. Both are stored together, so that neither a crash nor a
 * second reader of the resource can make an event come twice or not at all.
 *
 *     append     {"text":T}               T was added at the end
 *                {"rewrite":T}            what was there before has changed; all of it is T now
 *     replace    {"digest":D,"body":B}    a new version; D is SHA-256 in hex, B the body: as JSON
 *                                         if it is JSON, else as a string
 *     jsonlines  the item                 of a JSON array, or of lines with a JSON value each:
 *                                         one whose key was not there before
 *
 * Text that is not UTF-8 is mended (U+FFFD). A character that the answer's end has cut in half
 * waits for the next answer. Pure but for memory. */
#ifndef FEATURE_POLL_POLL_CHANGES_H
#define FEATURE_POLL_POLL_CHANGES_H

#include "base/buf.h"
#include "base/sha256.h"

#define POLL_SEEN_MAX   4096 /* keys that are remembered, the newest; more in one answer: refused */
#define POLL_ETAG_MAX   1024
#define POLL_CURSOR_MAX 2048

enum poll_mode { POLL_APPEND, POLL_REPLACE, POLL_JSONLINES };

/* Texts are lent. */
struct poll_rules {
    enum poll_mode mode;
    /* jsonlines. Pointers as in RFC 6901; an empty one means the whole. */
    struct str items; /* where the array is in the answer */
    struct str key;   /* what tells an item from others, in it */
    bool newest_first;
    /* Where the next request goes on: cursor_in the last new item, or in the whole answer. */
    struct str cursor; /* p == NULL: there is none */
    bool cursor_of_answer;
};

/* How far the answers have been taken. */
struct poll_position {
    struct buf etag;   /* of the last answer; n == 0: it had none */
    struct buf cursor; /* n == 0: from the beginning */
    uint64_t length;   /* append: bytes that are in events */
    uint8_t digest[SHA256_SIZE];
    struct buf seen; /* jsonlines: POLL_KEY_SIZE bytes a key, the newest last */
    bool begun;      /* an answer has been taken */
};
#define POLL_KEY_SIZE 8

void poll_position_deinit(struct poll_position *p);
void poll_position_copy(struct poll_position *to,
                        const struct poll_position *from); /* to: deinitialised */

/* As it is stored. 0 or ERR_CORRUPT, which leaves *out empty. */
void poll_position_put(struct buf *out, const struct poll_position *p);
int poll_position_take(struct str bytes, struct poll_position *out);

/* Is it a pointer of RFC 6901? */
bool poll_pointer_ok(struct str pointer);

/* Takes one answer: moves *p and appends events to *events, each with a comma behind it as JSON
 * streams have, and to *ends (uint32_t) where each ends. A body that cannot be taken leaves
 * everything as it was: ERR_JSON, ERR_TOO_LARGE (more items than are remembered), or ERR_SYNTAX (no
 * array where the rules say, an item without its key, a cursor that is neither text nor number),
 * with a sentence in why. body is at most 64 MiB. */
int poll_take(const struct poll_rules *rules, struct poll_position *p, struct str body,
              struct buf *events, struct buf *ends, char *why, size_t size);

/* ---- when to ask again ---- */

struct poll_pace {
    uint64_t every_ms, slowest_ms;
    uint64_t now_ms;   /* the pause at present */
    uint32_t failures; /* one after another */
};

enum poll_outcome { POLL_CHANGED, POLL_SAME, POLL_FAILED };
#define POLL_FAILED_MAX_MS (5 * 60 * 1000)

/* The pause before the next request: `every` behind a change, longer and longer (up to `slowest`)
 * while nothing changes, and longer still while it fails; never below what the answer asks for
 * (retry_ms; 0: nothing), and a tenth more or less by `random`. */
uint64_t poll_pause_ms(struct poll_pace *pace, enum poll_outcome outcome, uint64_t retry_ms,
                       uint64_t random);

#endif
