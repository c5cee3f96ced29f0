// SPDX-License-Identifier: Apache-2.0
/* resume.h -- the resume token: a client's signed right to go on with one stream behind one event.
 *
 *     claim = request_id ":" step ":" seq ":" expires_at_ms              numbers in decimal
 *     token = base64url( claim ":" hex( HMAC-SHA256(secret, claim) ) )   no padding, lower case
 *
 * A right has one spelling: whatever resume_verify accepts is, byte for byte, what resume_issue
 * makes of its payload with the secret that signed it. Nothing else is let in, signed or not.
 *
 * Pure but for the arena it is given. One thread at a time per struct resume_keys. */
#ifndef TOKEN_RESUME_H
#define TOKEN_RESUME_H

#include "base/buf.h"
#include "base/str.h"

#include <stdint.h>

#define RESUME_REQUEST_ID_MAX 256
#define RESUME_STEP_MAX       64
#define RESUME_NUMBER_MAX     INT64_MAX /* of seq and of the time; 19 digits */

/* The longest claim, its colon and 64 digits of signature, in base64url. */
#define RESUME_TEXT_MAX       (RESUME_REQUEST_ID_MAX + 1 + RESUME_STEP_MAX + 1 + 19 + 1 + 19 + 1 + 64)
#define RESUME_TOKEN_MAX      ((RESUME_TEXT_MAX * 4 + 2) / 3)

struct arena;
struct mac;

/* Tokens are issued with the current secret and verified with either, so that those in clients'
 * hands outlive a change of secrets. Zero-initialised has none. */
struct resume_keys {
    struct mac *current, *previous; /* NULL: absent */
};

/* The secrets are copied. An empty one is absent: anybody could sign with it. */
void resume_keys_init(struct resume_keys *k, struct str current, struct str previous);
void resume_keys_deinit(struct resume_keys *k);

struct resume_payload {
    /* Neither is empty; visible ASCII without ':'. The id ends up in a header, and a secret that
     * also signs requests (lines of text) must not be made to sign one here. */
    struct str request_id, step;
    uint64_t seq;          /* of the last event that the client has; at most RESUME_NUMBER_MAX */
    int64_t expires_at_ms; /* wall clock, not negative; still good in that millisecond */
};

/* RESUME_OK is 0. NO_SECRET is about the server, not about the token: resuming is not on offer.
 * The other four are what a client is told. */
#define RESUME_VERDICTS(X)                                                                         \
    X(OK)                                                                                          \
    X(NO_SECRET)                                                                                   \
    X(INVALID_FORMAT)    /* too long, or not five parts, or a part is not as it would be issued */ \
    X(INVALID_SIGNATURE) /* signed with neither secret */                                          \
    X(TOKEN_EXPIRED)                                                                               \
    X(DECODE_ERROR) /* not base64url in its one spelling */

enum resume_verdict {
#define X(name) RESUME_##name,
    RESUME_VERDICTS(X)
#undef X
};

/* The name without its prefix, as in `Invalid resume token: TOKEN_EXPIRED`. Static. */
const char *resume_verdict_text(enum resume_verdict v);

/* Appends the token. NO_SECRET without a current secret, INVALID_FORMAT for a payload that no
 * token can carry; *out stays as it was then. */
enum resume_verdict resume_issue(const struct resume_keys *k, const struct resume_payload *p,
                                 struct buf *out);

/* RESUME_OK and what the token says, its texts in *a; otherwise *out stays as it was. Nothing
 * that the token says, its time included, is looked at before its signature. */
enum resume_verdict resume_verify(const struct resume_keys *k, struct arena *a, struct str token,
                                  int64_t now_ms, struct resume_payload *out);

#endif
