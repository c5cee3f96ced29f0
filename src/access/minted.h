// SPDX-License-Identifier: Apache-2.0
/* minted.h -- tokens of our own: what a principal hands on of its rights, signed by a key that all
 * servers of a store share.
 *
 *     {"iss":"tidemark","aud":"tidemark","jti","iat","exp",
 *      "sub","iss_name"?,"id"?     whose rights these are: of the one who had it minted
 *      "user"?,"apart"?            whom it is for, among those whom he knows; see below
 *      "root"?,                    his root; names in the grants are below it
 *      "par"?: [jti, ...]          tokens it was made from, the oldest first: it dies with each
 *      "authorization_details": [...]}
 *
 * Users. A token for nobody in particular makes its bearer one with the minter: belongings (chats,
 * generations, keys) are shared. One for a user makes him somebody else, `>USER>MINTER'S ID`, whom
 * nobody else is: neither the minter nor another minter's user of that name; no name of a caller or
 * an issuer begins with that sign. What is made of such a token is for the same user. His limits
 * are `apart` if the minter has none that are counted; otherwise he counts as the minter, since
 * many users would be many times his limits.
 *
 * Its grants are absolute: they were compared with those of the minter when it was made. A link
 * (typ tm-link+jwt) is for URLs, and for reading alone. Pure. */
#ifndef ACCESS_MINTED_H
#define ACCESS_MINTED_H

#include "access/grant.h"
#include "access/principal.h"
#include "token/jwt.h"

#define MINTED_ISSUER       "tidemark" /* and audience */
#define MINTED_LIFETIME_S   3600
#define MINTED_LINK_S       1800
#define MINTED_DEPTH_MAX    4  /* tokens made from tokens */
#define MINTED_JTI          32 /* characters of ours */
#define MINTED_PARENTS_TEXT (MINTED_DEPTH_MAX * (JWT_JTI_MAX + 1))

struct minted {
    const struct access_grants *grants;
    const struct access_limits *limits; /* 0: as the minter's */
    int64_t issued_s, expires_s;
    struct str user; /* access_claim_is_valid; n == 0: whom the minter's own is for */
    bool link;
};

/* What p may hand on: 0 and the token and its jti; ERR_DENIED: p has no right to that (more verbs,
 * names, limits or time than its own, another user, or too many generations of tokens);
 * ERR_TOO_LARGE. */
int minted_sign(const struct jwk_set *keys, const struct principal *p, const struct minted *m,
                struct buf *out, char jti[MINTED_JTI + 1]);

/* Whether a link may carry this. */
bool minted_fits_link(const struct access_grants *g);

/* Whoever shows such a token: JWT_OK and a principal with one reference. link: it was in a URL.
 * From exp on it is expired, to the second: there is no skew as with other issuers, since answers
 * under way end then, and must not be taken up again. */
enum jwt_verdict minted_verify(const struct jwk_set *keys, struct str token, bool link,
                               int64_t now_s, struct principal **out);

/* Whoever shows a token that says this, if it is good. One reference is the caller's. */
struct principal *minted_principal(const struct jwt *t, bool link);

#endif
