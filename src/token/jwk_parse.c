// SPDX-License-Identifier: Apache-2.0
/* jwk_parse.c -- sets of public keys as issuers publish them (RFC 7517, 7518, 8037). */
#include "base/b64.h"
#include "base/err.h"
#include "base/must.h"
#include "token/jwk.h"
#include "token/jwk_core.h"
#include "token/strict_json.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <stdio.h>

#define MEMBER_MAX   1032 /* bytes of a number: an RSA modulus has 1024, and zeros in front */
#define P256_SIZE    32   /* of a coordinate */
#define ED25519_SIZE 32
#define NAMELESS_MAX 2 /* keys without kid: each of them is tried for tokens without */

/* What becomes of a key. */
enum fate { USABLE, SKIPPED, MALFORMED };

/* The bytes of a member in base64url. */
struct member {
    uint8_t bytes[MEMBER_MAX];
    size_t n;
};

static bool take_member(const json_t *jwk, const char *name, struct member *out)
{
    struct str text = strict_json_text(json_object_get(jwk, name));
    return text.n > 0 && b64_bytes_max(text.n) <= sizeof out->bytes &&
           b64url_decode(text, out->bytes, &out->n);
}

/* ---- the key itself ---- */

static EVP_PKEY *build_key(const char *type, OSSL_PARAM *params)
{
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    must(ctx != NULL && params != NULL);
    if (EVP_PKEY_fromdata_init(ctx) != 1 ||
        EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_PUBLIC_KEY, params) != 1)
        key = NULL;
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    return key;
}

static EVP_PKEY *read_rsa(const json_t *jwk)
{
    struct member n, e;
    if (!take_member(jwk, "n", &n) || !take_member(jwk, "e", &e))
        return NULL;
    BIGNUM *modulus = BN_bin2bn(n.bytes, (int)n.n, NULL);
    BIGNUM *exponent = BN_bin2bn(e.bytes, (int)e.n, NULL);
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    must(modulus != NULL && exponent != NULL && build != NULL);
    must(OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, modulus) == 1 &&
         OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, exponent) == 1);
    EVP_PKEY *key = build_key("RSA", OSSL_PARAM_BLD_to_param(build));
    OSSL_PARAM_BLD_free(build);
    BN_free(modulus);
    BN_free(exponent);
    return key;
}

static EVP_PKEY *read_p256(const json_t *jwk)
{
    struct member x, y;
    if (!take_member(jwk, "x", &x) || !take_member(jwk, "y", &y) || x.n != P256_SIZE ||
        y.n != P256_SIZE)
        return NULL;
    uint8_t point[1 + 2 * P256_SIZE] = {POINT_CONVERSION_UNCOMPRESSED};
    memcpy(point + 1, x.bytes, P256_SIZE);
    memcpy(point + 1 + P256_SIZE, y.bytes, P256_SIZE);
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    must(build != NULL);
    must(OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) == 1 &&
         OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point) ==
             1);
    EVP_PKEY *key = build_key("EC", OSSL_PARAM_BLD_to_param(build));
    OSSL_PARAM_BLD_free(build);
    return key;
}

static EVP_PKEY *read_ed25519(const json_t *jwk)
{
    struct member x;
    if (!take_member(jwk, "x", &x) || x.n != ED25519_SIZE)
        return NULL;
    return EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, x.bytes, x.n);
}

/* The types that we know. */
static const struct kind {
    struct str kty, crv;
    EVP_PKEY *(*read)(const json_t *jwk);
} kinds[] = {
    {STR_INIT("RSA"), STR_INIT(""), read_rsa},
    {STR_INIT("EC"), STR_INIT("P-256"), read_p256},
    {STR_INIT("OKP"), STR_INIT("Ed25519"), read_ed25519},
};

static const struct kind *find_kind(struct str kty, const json_t *jwk)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (str_eq(kty, kinds[i].kty) &&
            (kinds[i].crv.n == 0 ||
             str_eq(strict_json_text(json_object_get(jwk, "crv")), kinds[i].crv)))
            return &kinds[i];
    return NULL;
}

/* ---- what it is for ---- */

/* Whether it verifies signatures, as far as it says anything about it. */
static enum fate judge_use(const json_t *jwk)
{
    const json_t *use = json_object_get(jwk, "use"), *ops = json_object_get(jwk, "key_ops"), *op;
    if ((use != NULL && !json_is_string(use)) || (ops != NULL && !json_is_array(ops)))
        return MALFORMED;
    if (use != NULL && !str_eq(strict_json_text(use), STR("sig")))
        return SKIPPED;
    if (ops == NULL)
        return USABLE;
    size_t i;
    json_array_foreach(ops, i, op)
    {
        if (str_eq(strict_json_text(op), STR("verify")))
            return USABLE;
    }
    return SKIPPED;
}

static enum fate read_kid(const json_t *jwk, struct jwk *out)
{
    const json_t *v = json_object_get(jwk, "kid");
    struct str kid = strict_json_text(v);
    if (v == NULL)
        return USABLE;
    if (!jwk_kid_is_valid(kid))
        return MALFORMED;
    memcpy(out->kid, kid.p, kid.n);
    out->kid_n = kid.n;
    return USABLE;
}

/* asked: set to alg, or to NULL if the key does not say. */
static enum fate read_alg(const json_t *jwk, enum jwk_alg *alg, const enum jwk_alg **asked)
{
    const json_t *v = json_object_get(jwk, "alg");
    *asked = NULL;
    if (v == NULL)
        return USABLE;
    if (!json_is_string(v))
        return MALFORMED;
    if (!jwk_alg_find(strict_json_text(v), alg))
        return SKIPPED;
    *asked = alg;
    return USABLE;
}

/* Members of secret and private keys, which nobody has to publish. */
static bool is_public(const json_t *jwk)
{
    return json_object_get(jwk, "d") == NULL && json_object_get(jwk, "k") == NULL;
}

static enum fate read_public(const json_t *jwk, const struct kind *kind,
                             const struct jwk_policy *policy, struct jwk *out)
{
    enum jwk_alg named;
    const enum jwk_alg *asked;
    enum fate fate = read_alg(jwk, &named, &asked);
    if (fate != USABLE)
        return fate;
    EVP_PKEY *key = kind->read(jwk);
    if (key == NULL || !jwk_alg_of(key, asked, policy, &out->alg))
        fate = MALFORMED;
    else if (!jwk_policy_allows(policy, out->alg))
        fate = SKIPPED;
    ERR_clear_error(); /* or TLS on this thread takes it for its own */
    if (fate == USABLE)
        out->public = key;
    else
        EVP_PKEY_free(key);
    return fate;
}

static enum fate read_key(const json_t *jwk, const struct jwk_policy *policy, struct jwk *out)
{
    struct str kty = strict_json_text(json_object_get(jwk, "kty"));
    if (kty.n == 0 || !is_public(jwk))
        return MALFORMED;
    const struct kind *kind = find_kind(kty, jwk);
    if (kind == NULL)
        return str_eq(kty, STR("oct")) ? MALFORMED : SKIPPED;
    enum fate fate = judge_use(jwk);
    if (fate == USABLE)
        fate = read_kid(jwk, out);
    return fate == USABLE ? read_public(jwk, kind, policy, out) : fate;
}

/* ---- the set ---- */

static void add_key(struct jwk_set *s, const json_t *jwk, const struct jwk_policy *policy)
{
    struct jwk key = {0};
    switch (read_key(jwk, policy, &key)) {
    case USABLE:
        jwk_set_print(&key);
        s->keys[s->counts.usable++] = key;
        break;
    case SKIPPED: s->counts.skipped++; break;
    case MALFORMED: s->counts.malformed++; break;
    }
}

static bool has_twins(const struct jwk_set *s)
{
    for (size_t i = 0; i < s->counts.usable; i++)
        for (size_t j = 0; j < i; j++)
            if (s->keys[i].kid_n > 0 && str_eq(jwk_set_kid(s, i), jwk_set_kid(s, j)))
                return true;
    return false;
}

static size_t count_nameless(const struct jwk_set *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->counts.usable; i++)
        n += s->keys[i].kid_n == 0;
    return n;
}

/* 0, or what is wrong with the document, and *s with what could be read of it. */
static int read_set(const json_t *doc, const struct jwk_policy *policy, struct jwk_set *s,
                    const char **why)
{
    const json_t *keys = json_object_get(doc, "keys"), *jwk;
    if (keys == NULL && json_object_get(doc, "kty") != NULL) {
        add_key(s, doc, policy);
        s->keys[0].any_kid = s->keys[0].kid_n == 0;
    } else if (!json_is_array(keys)) {
        *why = "this is neither a JWK nor a set of them";
        return ERR_SYNTAX;
    } else if (json_array_size(keys) > JWK_KEYS_MAX) {
        *why = "a set has at most 32 keys";
        return ERR_TOO_LARGE;
    }
    size_t i;
    json_array_foreach(keys, i, jwk)
    {
        add_key(s, jwk, policy);
    }
    if (has_twins(s)) {
        *why = "two keys have the same kid";
        return ERR_SYNTAX;
    }
    if (count_nameless(s) > NAMELESS_MAX) {
        *why = "more than two keys have no kid";
        return ERR_SYNTAX;
    }
    *why = "there is no key that is allowed: RSA of 2048 to 8192 bits, P-256, Ed25519";
    return s->counts.usable > 0 ? 0 : ERR_EMPTY;
}

int jwk_set_parse(struct str json, const struct jwk_policy *policy, struct jwk_set **out, char *why,
                  size_t size)
{
    if (json.n > JWK_TEXT_MAX) {
        snprintf(why, size, "a set of keys has at most 64 KiB");
        return ERR_TOO_LARGE;
    }
    json_t *doc = strict_json_object(json);
    if (doc == NULL) {
        snprintf(why, size, "this is not a JSON object with each name once");
        return ERR_SYNTAX;
    }
    struct jwk_set *s = jwk_set_new();
    const char *wrong = NULL;
    int err = read_set(doc, policy, s, &wrong);
    json_decref(doc);
    if (err != 0) {
        snprintf(why, size, "%s", wrong);
        jwk_set_free(s);
        return err;
    }
    *out = s;
    return 0;
}
