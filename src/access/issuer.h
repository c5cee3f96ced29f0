// SPDX-License-Identifier: Apache-2.0
/* issuer.h -- who signs tokens that are taken here, and what its tokens make of their bearers.
 *
 *     what the token says                     its bearer may do
 *     --------------------------------------  -----------------------------------------------------
 *     no authorization_details of our type    what the issuer's section grants, `{claim}` filled in
 *     some                                    what both that and the token grant
 *     one of them is malformed                nothing: the token is not good
 *
 * Tokens that this server has signed itself are another matter: access/minted.h.
 *
 * Identity. A token with `sub` is that subject of that issuer, whichever token it is: `ISSUER|SUB`.
 * One without is told from others by its `jti`, so that strangers share no belongings:
 * `ISSUER#JTI`; without that, too, all such tokens of the issuer are one, `ISSUER#`. Names of
 * issuers and callers have neither sign in them, so that none of these is another's. Pure. */
#ifndef ACCESS_ISSUER_H
#define ACCESS_ISSUER_H

#include "access/grant.h"
#include "token/jwt.h"

struct principal;

/* Its texts live in the policy that it is of. */
struct issuer {
    struct str name; /* of its section */
    struct str iss;
    const struct str *aud, *typ;
    size_t n_aud, n_typ;
    int64_t max_lifetime_s;
    int64_t not_before_s;        /* tokens that were issued before are not good; 0: all are */
    struct str root;             /* may have a `{claim}`; n == 0: none */
    struct access_grants grants; /* may have some, too */
    struct access_limits limits;
    struct jwk_policy algs;
    struct str jwks_url;  /* n == 0: `keys` are there */
    struct jwk_set *keys; /* owned; NULL: they have to be fetched */
    uint64_t section;     /* see struct principal */
};

/* What its tokens have to be like, with these keys. */
void issuer_rules(const struct issuer *i, const struct jwk_set *keys, struct jwt_rules *out);

/* Who shows a token of this issuer, which was verified. NULL: it is not good after all; *why is
 * then static. One reference is the caller's. */
struct principal *issuer_principal(const struct issuer *i, const struct jwt *t, const char **why);

#endif
