// SPDX-License-Identifier: Apache-2.0
/* cursor_form.h -- the cursor, a signed right to the next page of one tool's result: what is in it,
 * and when it is good. cursor.h issues and verifies them.
 *
 * Nothing is kept for it: all that the next page needs is in the cursor, and whoever holds the key
 * can tell whether it is one.
 *
 *     cursor = base64url( body || HMAC-SHA256(K, body) )     no padding, at most 512 characters
 *     body   = a CBOR map of seven, or of six without the second, in this order:
 *
 *         1  tool_id       text
 *         2  caller_id     text; left out if nobody has said who it is
 *         3  args          32 bytes, cursor_fingerprint of the arguments
 *         4  page          number of the page that it leads to: the first cursor says 2
 *         5  issued_at     seconds since 1970
 *         6  session       8 bytes, the issuer's
 *         7  state         bytes that only the tool understands; there even if empty
 *
 *     K      = mac_subkey(key, "cursor"), so that a key that is used elsewhere too signs no
 *              cursors there
 *
 * That is the format `tidemark`. The format `atd` is that of the ATD reference server, byte for
 * byte: the keys are the texts tool_id, caller_id, args_fingerprint, page_index, issued_at_unix,
 * server_session and opaque_state, in this order; args_fingerprint and server_session are arrays of
 * 32 and 8 numbers, one for each byte; and K is the key itself.
 *
 * A cursor has one spelling (see cbor.h), and the MAC is over the bytes as they came. It is not
 * encrypted: whoever has it can read it.
 *
 * What fits: 512 characters are 384 bytes, 352 of them body. Of these 51 are there always (50 if
 * there is no caller_id). A name of up to 23 bytes costs one more than it has, a longer one two;
 * the page one byte up to 23, two up to 255, the time five; the state one to three more than it
 * has. So with a page up to 23:
 *
 *     tool_id and caller_id                 state
 *     34 bytes together, none over 23       256, CURSOR_STATE_MAX
 *     35 bytes and nobody                   256
 *     28 and 11 bytes                       251
 *     64 and 64 bytes                       161
 *
 * In the format `atd` 142 to 182 bytes are there always: a byte above 23 takes two in an array. All
 * are taken to be above, so that what fits does not depend on arguments: beside names of 28 and 11
 * bytes, 129 bytes of state. cursor_room tells it for any payload.
 *
 * Pure; nothing is allocated, and nothing aborts: libtidemark has it, too. */
#ifndef TOKEN_CURSOR_FORM_H
#define TOKEN_CURSOR_FORM_H

#include "base/str.h"

#include <stdint.h>

#define CURSOR_MAX          512 /* characters of a cursor */
#define CURSOR_STATE_MAX    256 /* bytes, where the names leave room for them */
#define CURSOR_KEY_SIZE     32
#define CURSOR_SESSION_SIZE 8
#define CURSOR_TTL_S        300 /* unless configured otherwise */

/* Fewer bytes than this, decoded, were never a cursor; the shortest has 86. */
#define CURSOR_BYTES_LEAST  60

#define CURSOR_ARGS_SIZE    32 /* of a fingerprint, a SHA-256 */
#define CURSOR_TAG_SIZE     32
#define CURSOR_BYTES_MAX    (CURSOR_MAX / 4 * 3)
#define CURSOR_BODY_MAX     (CURSOR_BYTES_MAX - CURSOR_TAG_SIZE)

enum cursor_format { CURSOR_TIDEMARK, CURSOR_ATD };

struct cursor_payload {
    enum cursor_format format;
    struct str tool_id;   /* UTF-8, as is the caller's */
    struct str caller_id; /* p == NULL: nobody, which is not the same as an empty name */
    uint8_t args[CURSOR_ARGS_SIZE];
    uint64_t page;
    int64_t issued_at_s; /* wall clock, not negative */
    struct str state;
};

/* Who goes on, and with what. */
struct cursor_asked {
    struct str tool_id, caller_id; /* as above */
    const uint8_t *args; /* CURSOR_ARGS_SIZE of them. NULL: it sends none, so none differ */
    enum cursor_format format;
};

/* CURSOR_OK is 0. With each verdict, the code of the protocol and the sentence for the client. The
 * result is to be asked for anew after a 1020; a 1021 is a mistake, or worse. */
#define CURSOR_VERDICTS(X)                                                                         \
    X(OK, 0, "")                                                                                   \
    X(STATE_TOO_LARGE, 1021, "opaque_state too large")                                             \
    X(TOO_LARGE, 1021, "cursor too large")                                                         \
    X(NO_CURSOR, 1021, "cursor format invalid") /* not base64url, or too short to be one */        \
    X(FORMAT, 1021, "cursor format invalid")    /* rightly signed, but not in its one spelling */  \
    X(SIGNATURE, 1021, "cursor signature invalid")                                                 \
    X(EXPIRED, 1020, "cursor expired")                                                             \
    X(SESSION, 1020, "cursor expired") /* of another session: the server was started anew */       \
    X(TOOL, 1021, "cursor tool_id mismatch")                                                       \
    X(CALLER, 1021, "cursor caller_id mismatch")                                                   \
    X(ARGS, 1021, "cursor arguments mismatch")

enum cursor_verdict {
#define X(name, code, text) CURSOR_##name,
    CURSOR_VERDICTS(X)
#undef X
};

int cursor_verdict_code(enum cursor_verdict v);
const char *cursor_verdict_text(enum cursor_verdict v); /* static */

/* How many bytes of state fit beside the rest of the payload: 0 to CURSOR_STATE_MAX, or -1 when not
 * even none does. */
int cursor_room(const struct cursor_payload *p);

/* Whether it can be issued: STATE_TOO_LARGE (over CURSOR_STATE_MAX), TOO_LARGE (over CURSOR_MAX) or
 * FORMAT (a name that is not UTF-8, a time before 1970). */
enum cursor_verdict cursor_form_check(const struct cursor_payload *p);

/* The body of one that can be; returns its size. */
size_t cursor_form_write(const struct cursor_payload *p, const uint8_t session[CURSOR_SESSION_SIZE],
                         char out[CURSOR_BODY_MAX]);

/* What is to be said of a body: `ours`, its tag is right, with our key. OK, or TOOL, CALLER and
 * ARGS, looked at in this order and last: *p points into it. Good for ttl_s seconds and the rest of
 * the next one; one from the future does not expire.
 *
 * One that is not ours is SESSION if it has the form of one and names another session: that is how
 * a server with a key drawn at its start sees those of its earlier life. It decides which refusal
 * is told and nothing else. */
enum cursor_verdict cursor_form_judge(struct str body, bool ours,
                                      const uint8_t session[CURSOR_SESSION_SIZE],
                                      const struct cursor_asked *asked, int64_t now_s,
                                      uint64_t ttl_s, struct cursor_payload *p);

#endif
