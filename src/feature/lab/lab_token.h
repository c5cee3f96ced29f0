// SPDX-License-Identifier: Apache-2.0
/* lab_token.h -- what the page shows with everything that it posts: X-CM-LAB-TOKEN.
 *
 * A page of another site cannot send it, since it cannot read it. Without access it is one text, as
 * long as the Lab runs:
 *
 *     tok_UUID
 *
 * With access it also stands for the right to use the Lab, since a browser's cookie is for reading
 * alone. It is given to who has that right, and says how long it is good, in ms since 1970:
 *
 *     tok_EXPIRES_SIGNATURE    16 and 64 hex digits, HMAC-SHA256 of what stands before it
 */
#ifndef FEATURE_LAB_LAB_TOKEN_H
#define FEATURE_LAB_LAB_TOKEN_H

#include "base/str.h"
#include "token/mac.h"

#define LAB_TOKEN_MS  (60 * 1000) /* the page gets another one by itself */
#define LAB_TOKEN_MAX (4 + 16 + 1 + 2 * MAC_SIZE + 1)

struct lab_tokens {
    char plain[48];
    struct mac *mac;
};

void lab_tokens_init(struct lab_tokens *t);
void lab_tokens_deinit(struct lab_tokens *t);

/* With a NUL behind it. */
void lab_token_put(const struct lab_tokens *t, int64_t expires_ms, char out[LAB_TOKEN_MAX]);

/* Takes the same time wherever it differs. */
bool lab_token_is_plain(const struct lab_tokens *t, struct str token);
bool lab_token_is_good(const struct lab_tokens *t, struct str token, int64_t now_ms);

#endif
