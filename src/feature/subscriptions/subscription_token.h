// SPDX-License-Identifier: Apache-2.0
/* subscription_token.h -- the bearer token of a wake: proof that its holder was given this wake.
 *
 * Text `<generation>.<wake id>.<base64url of the tag>`, and of a tenant's `.<base64url of the
 * root>` behind it; the tag covers the subscription's id too, which begins with the root. Whoever
 * shows a token shows no other credential: the root in it says whose the id is. A token has no time
 * of its own: it is good until its generation is over. */
#ifndef FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_TOKEN_H
#define FEATURE_SUBSCRIPTIONS_SUBSCRIPTION_TOKEN_H

#include "base/arena.h"
#include "base/str.h"

#include <stdint.h>

struct mac;

struct str subscription_token_make(struct mac *key, struct arena *a, struct str id, struct str root,
                                   uint64_t generation, struct str wake_id);

/* The root in a token, not checked; n == 0: none. */
struct str subscription_token_root(struct arena *a, struct str token);

/* 0 and what the token was made for, or ERR_SYNTAX: it is not one of this subscription. */
int subscription_token_check(struct mac *key, struct str id, struct str token, uint64_t *generation,
                             struct str *wake_id);

#endif
