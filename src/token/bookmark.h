// SPDX-License-Identifier: Apache-2.0
/* bookmark.h -- where a listing goes on, for a caller who may not know the name that stands there.
 *
 *     "__ds/after/" base64url( nonce[12] sealed[2 + BOOKMARK_PLACE_MAX] tag[16] )
 *     sealed: AES-256-GCM of the place's length (u16, big-endian), the place, zeros
 *
 * All have one length, so that they do not tell the place's either. No stream has such a name. One
 * thread at a time per key. */
#ifndef TOKEN_BOOKMARK_H
#define TOKEN_BOOKMARK_H

#include "base/buf.h"
#include "base/str.h"

#include <stdint.h>

#define BOOKMARK_PREFIX    "__ds/after/"
#define BOOKMARK_PLACE_MAX 480

struct arena;
struct bookmark_key;

/* Derived from the root: servers that share it take each other's bookmarks. */
struct bookmark_key *bookmark_key_new(const uint8_t root[32]);
void bookmark_key_free(struct bookmark_key *k); /* wipes it; NULL is allowed */

static inline bool bookmark_is(struct str text)
{
    return str_starts(text, STR(BOOKMARK_PREFIX));
}

/* place.n: 1 to BOOKMARK_PLACE_MAX. */
void bookmark_put(const struct bookmark_key *k, struct str place, struct buf *out);

/* The place, in *a. ERR_SYNTAX: it is no bookmark, or another key's. */
int bookmark_take(const struct bookmark_key *k, struct arena *a, struct str text,
                  struct str *place);

#endif
