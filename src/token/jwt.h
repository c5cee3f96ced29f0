// SPDX-License-Identifier: Apache-2.0
/* jwt.h -- JSON Web Tokens (RFC 7519): verifies those of issuers and of our own, and signs the
 * latter.
 *
 * Compact form, signed, and nothing else: no encryption, no nesting, no detached payload, no
 * `none`. A token is read in this order, and the first thing that is wrong is the verdict:
 *
 *     size and shape   at most JWT_TOKEN_MAX bytes; three parts in base64url, in their one spelling
 *     header           JSON of at most 1 KiB, no name twice, 8 levels deep; `alg` is one of ours;
 *                      `kid` and `typ`, if there, are words; no crit b64 zip jku x5u jwk x5c
 *     payload          JSON as above; `iss` a string
 *                      ---- jwt_peek ends here
 *     issuer, type     `iss` and `typ` are those of the rules, byte for byte
 *     key              found by `kid` among the issuer's; its algorithm is the header's
 *     signature
 *     claims           the rest, below. Neither they nor the time count before the signature
 *
 * Pure: it knows no clock and no network. Memory is bounded by the token. Loop thread only. */
#ifndef TOKEN_JWT_H
#define TOKEN_JWT_H

#include "base/buf.h"
#include "base/str.h"
#include "token/jwk.h"

#include <jansson.h>
#include <stdint.h>

#define JWT_TOKEN_MAX  4096
#define JWT_LINK_MAX   2048 /* of one in a query; whoever takes it from there looks */
#define JWT_HEADER_MAX 1024 /* bytes of JSON */
#define JWT_ISS_MAX    256
#define JWT_SUB_MAX    128
#define JWT_JTI_MAX    128
#define JWT_AUD_MAX    16 /* in one token */
#define JWT_TYP_MAX    64

#define JWT_LIFETIME_S 3600 /* what rules say unless configured */
#define JWT_SKEW_S     30
#define JWT_SKEW_MAX_S 60

#define JWT_TYP_ACCESS STR("at+jwt") /* RFC 9068 */
#define JWT_TYP_LINK   STR("tm-link+jwt")

/* JWT_OK is 0. The texts are for traces and audits; clients are told none of it. */
#define JWT_VERDICTS(X)                                                                            \
    X(OK, "")                                                                                      \
    X(TOO_LARGE, "the token has more than 4 KiB, or its header more than 1 KiB")                   \
    X(BAD_SHAPE, "a token is three parts in base64url without padding")                            \
    X(BAD_HEADER, "the header is not a JSON object with each name once, or its typ is no word")    \
    X(REFUSED_HEADER, "the header has crit, b64, zip, jku, x5u, jwk or x5c")                       \
    X(BAD_KID, "the kid is not 1 to 64 characters of A-Z a-z 0-9 . _ -, or base64")                \
    X(UNKNOWN_ALG, "the alg is none of RS256, PS256, ES256, EdDSA and HS256")                      \
    X(BAD_PAYLOAD, "the payload is not a JSON object with each name once")                         \
    X(NO_ISSUER, "the token has no iss, or none of 1 to 256 bytes")                                \
    X(WRONG_ISSUER, "the iss is not the one that is expected")                                     \
    X(WRONG_TYPE, "the typ is none that this issuer's tokens may have here")                       \
    X(UNKNOWN_KID, "the issuer has no key of this kid")                                            \
    X(WRONG_ALG, "the key of this kid is for another alg")                                         \
    X(BAD_SIGNATURE, "the signature is not the key's")                                             \
    X(BAD_CLAIM, "exp, iat, nbf, aud, sub or jti is missing or malformed")                         \
    X(WRONG_AUDIENCE, "the token is for another audience")                                         \
    X(EXPIRED, "the token has expired")                                                            \
    X(NOT_YET_VALID, "iat or nbf is in the future")                                                \
    X(TOO_LONG_LIVED, "the token lives longer than this issuer's may")

enum jwt_verdict {
#define X(name, text) JWT_##name,
    JWT_VERDICTS(X)
#undef X
};

const char *jwt_verdict_name(enum jwt_verdict v); /* "EXPIRED"; static, as is the text */
const char *jwt_verdict_text(enum jwt_verdict v);

/* What a token says before anybody has verified it: enough to choose the rules, and no more. */
struct jwt_head {
    enum jwk_alg alg;
    char iss[JWT_ISS_MAX + 1]; /* these three end in NUL and have none inside */
    char kid[JWK_KID_MAX + 1]; /* "": none */
    char typ[JWT_TYP_MAX + 1]; /* "": none */
};

/* JWT_OK, or one of those up to NO_ISSUER; *out stays as it was then. */
enum jwt_verdict jwt_peek(struct str token, struct jwt_head *out);

/* Header and payload of a text that has the form of a token, whoever made it and whatever it is
 * signed with: nothing else of it is looked at. Both are the caller's. False: it has not. */
bool jwt_split(struct str token, json_t **header, json_t **payload);

/* Whether a payload says that it is for one of these. */
bool jwt_is_for(const json_t *payload, const struct str *aud, size_t n_aud);

struct jwt_rules {
    struct str iss;
    const struct str *aud; /* the token has to be for one of them */
    size_t n_aud;
    /* Types it may have: `x` also stands for `application/x`, and an empty one for a token without
     * typ. None: JWT_TYP_ACCESS. */
    const struct str *typ;
    size_t n_typ;
    int64_t max_lifetime_s; /* exp - iat at most */
    int64_t skew_s;         /* of clocks; 0 to JWT_SKEW_MAX_S */
    const struct jwk_set *keys;
    bool iat_optional; /* links have none: for one without, exp - now - skew_s counts as its life */
};

/* A token that was verified. */
struct jwt {
    struct str sub, jti;       /* p == NULL: it has none. Both live in the payload */
    char kid[JWK_KID_MAX + 1]; /* "": none */
    uint64_t key;              /* print of the one that has signed it: see jwk_set_holds */
    int64_t exp_s, iat_s;      /* iat_s < 0: none */
    json_t *payload;           /* an object; all other claims are in there, unread */
};

/* JWT_OK and *out, to be given to jwt_deinit; otherwise *out stays as it was. JWT_UNKNOWN_KID:
 * fetch the issuer's keys anew, perhaps. Claims are good like this:
 *
 *     exp   required: a whole number up to 2^53, without fraction or exponent; now < exp + skew
 *     iat   required unless iat_optional; such a number, now + skew or earlier, before exp
 *     nbf   optional; the same, now + skew or earlier
 *     aud   required: a string, or 1 to 16 of them in an array
 *     sub   optional: 1 to 128 bytes. Whoever needs one looks
 *     jti   optional: 1 to 128 bytes
 *
 * now_s: wall clock, seconds since 1970. */
enum jwt_verdict jwt_verify(const struct jwt_rules *rules, struct str token, int64_t now_s,
                            struct jwt *out);
void jwt_deinit(struct jwt *t); /* zero-initialised is fine */

/* Appends a token of our own, signed with the current secret of a set of jwk_set_from_secret. The
 * same claims give the same token, whatever the order they were put in. ERR_TOO_LARGE: it would
 * have more than JWT_TOKEN_MAX bytes; *out stays as it was then. typ: a word of ours. */
int jwt_sign_hs256(const struct jwk_set *keys, struct str typ, const json_t *payload,
                   struct buf *out);

#endif
