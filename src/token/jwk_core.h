// SPDX-License-Identifier: Apache-2.0
/* jwk_core.h -- what a key is made of, for those who make and use them. */
#ifndef TOKEN_JWK_CORE_H
#define TOKEN_JWK_CORE_H

#include "token/jwk.h"

#include <openssl/evp.h>

struct mac;

struct jwk {
    enum jwk_alg alg;
    bool any_kid; /* for tokens of whatever kid */
    char kid[JWK_KID_MAX];
    size_t kid_n;     /* 0: it has none */
    EVP_PKEY *public; /* NULL for HS256 */
    struct mac *mac;  /* NULL for the others */
    uint64_t print;   /* of the key itself: see jwk_set_holds */
};

struct jwk_set {
    struct jwk keys[JWK_KEYS_MAX];
    struct jwk_counts counts;
};

/* An empty set with room for all. */
struct jwk_set *jwk_set_new(void);

/* The next key after this one (NULL: the first) that a token with this kid may be signed with; NULL
 * if there is none. Two at most. kid empty: the token has none. */
const struct jwk *jwk_set_match(const struct jwk_set *s, struct str kid, const struct jwk *after);

/* The algorithm of a public key, or false if it is none of ours or too weak. asked: the one that
 * its owner wants, or NULL: the policy's. */
bool jwk_alg_of(EVP_PKEY *key, const enum jwk_alg *asked, const struct jwk_policy *policy,
                enum jwk_alg *out);

/* Once it has its key: tells it from others. */
void jwk_set_print(struct jwk *k);

/* Whether the policy allows it; NULL is the zero-initialised one. */
bool jwk_policy_allows(const struct jwk_policy *policy, enum jwk_alg alg);

#endif
