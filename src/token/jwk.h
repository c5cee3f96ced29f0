// SPDX-License-Identifier: Apache-2.0
/* jwk.h -- the keys of one issuer of JWTs: what jwt_verify checks signatures with.
 *
 * A key is good for one algorithm, which is settled when the key is loaded and never by a token:
 *
 *     RSA, 2048 to 8192 bits      RS256 or PS256: what its `alg` says, else what the policy says
 *     EC, P-256                   ES256
 *     OKP, Ed25519                EdDSA, which RFC 9864 calls Ed25519
 *     a secret of our own         HS256; never from a JWK
 *
 * A set does not change once it is made. Loop thread only; one owner. */
#ifndef TOKEN_JWK_H
#define TOKEN_JWK_H

#include "base/str.h"

#include <stdint.h>

#define JWK_TEXT_MAX   (64 * 1024) /* bytes of a set or a PEM file */
#define JWK_KEYS_MAX   32          /* in a set, usable or not */
#define JWK_KID_MAX    64
#define JWK_SECRET_MIN 32 /* bytes */

/* name; its spelling in a header or JWK, and another one or "" */
#define JWK_ALGS(X)                                                                                \
    X(RS256, "RS256", "")                                                                          \
    X(PS256, "PS256", "")                                                                          \
    X(ES256, "ES256", "")                                                                          \
    X(EDDSA, "EdDSA", "Ed25519")                                                                   \
    X(HS256, "HS256", "")

enum jwk_alg {
#define X(name, text, other) JWK_##name,
    JWK_ALGS(X)
#undef X
};

const char *jwk_alg_name(enum jwk_alg alg);            /* static */
bool jwk_alg_find(struct str name, enum jwk_alg *out); /* byte for byte; false: there is none */

/* What an issuer's keys may be. Zero-initialised: all but HS256, and RS256 for RSA. */
struct jwk_policy {
    unsigned allowed; /* 1u << JWK_RS256 and so on; 0: all. HS256 is not for public keys anyway */
    enum jwk_alg rsa; /* of RSA keys that do not say: JWK_RS256 or JWK_PS256 */
};

struct jwk_set;

/* A JWKS, or one JWK. 0 and a set with at least one key, or:
 *
 *     ERR_TOO_LARGE  the text or the number of keys
 *     ERR_SYNTAX     no JSON object, names twice, nested too deep, neither `keys` nor `kty`; two
 *                    usable keys with one `kid`; more than two without any
 *     ERR_EMPTY      no usable key
 *
 * with a phrase in why; *out stays as it was then. Keys for other purposes (`use`, `key_ops`), of
 * other types, curves or algorithms are skipped. So are malformed ones, which are also counted:
 * a secret (`oct`) or private key, RSA outside of the sizes or with an even or huge exponent, a
 * point off the curve, a `kid` that no token may have, an `alg` of another type.
 *
 * A key of a set that has no `kid` is for tokens that have none; a lone JWK without is for all. */
int jwk_set_parse(struct str json, const struct jwk_policy *policy, struct jwk_set **out, char *why,
                  size_t size);

/* One public key in PEM (SubjectPublicKeyInfo), as an operator's file has it. kid: empty, and it is
 * for all tokens, whatever kid they have. Errors as above. */
int jwk_set_from_pem(struct str pem, struct str kid, const struct jwk_policy *policy,
                     struct jwk_set **out, char *why, size_t size);

/* A secret for HS256 that is shared with whoever signs: from the environment, not from JWKs. */
struct jwk_secret {
    struct str bytes; /* JWK_SECRET_MIN at least; copied */
    struct str kid;   /* empty: for all tokens, whatever kid they have */
};

/* Tokens are signed with the current secret (jwt_sign_hs256) and verified with both. previous: NULL
 * or empty bytes: there is none. ERR_SYNTAX: a secret is too short, or a kid is none. */
int jwk_set_from_secret(const struct jwk_secret *current, const struct jwk_secret *previous,
                        struct jwk_set **out, char *why, size_t size);

void jwk_set_free(struct jwk_set *s); /* wipes secrets; NULL is allowed */

/* For traces and audits: how many keys there are, and how many others the text had. */
struct jwk_counts {
    size_t usable, skipped, malformed;
};
struct jwk_counts jwk_set_counts(const struct jwk_set *s);
struct str jwk_set_kid(const struct jwk_set *s, size_t i); /* i < usable; may be empty */
enum jwk_alg jwk_set_alg(const struct jwk_set *s, size_t i);

/* Is a key of this print (struct jwt) among them, and still for tokens with this kid? */
bool jwk_set_holds(const struct jwk_set *s, struct str kid, uint64_t print);

/* Whether a kid is 1 to JWK_KID_MAX of A-Z a-z 0-9 . _ -, or base64 as some providers have it: it
 * is compared with those of keys, and never a part of a path. */
bool jwk_kid_is_valid(struct str kid);

#endif
