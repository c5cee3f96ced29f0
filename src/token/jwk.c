// SPDX-License-Identifier: Apache-2.0
#include "token/jwk.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/sha256.h"
#include "token/jwk_core.h"
#include "token/mac.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>

#define RSA_BITS_MIN     2048
#define RSA_BITS_MAX     8192
#define RSA_EXPONENT_MAX 64 /* bits: what takes longer than 65537 is somebody's bad joke */

static const struct {
    struct str text, other;
} algs[] = {
#define X(name, text, other) {STR_INIT(text), STR_INIT(other)},
    JWK_ALGS(X)
#undef X
};

const char *jwk_alg_name(enum jwk_alg alg)
{
    return algs[alg].text.p;
}

bool jwk_alg_find(struct str name, enum jwk_alg *out)
{
    for (size_t i = 0; name.n > 0 && i < sizeof algs / sizeof *algs; i++)
        if (str_eq(name, algs[i].text) || str_eq(name, algs[i].other)) {
            *out = (enum jwk_alg)i;
            return true;
        }
    return false;
}

/* Padding, if any, ends it. */
static bool is_base64(struct str s)
{
    for (int i = 0; i < 2 && s.n > 0 && s.p[s.n - 1] == '='; i++)
        s.n--;
    return ascii_is_word(s, "+/");
}

bool jwk_kid_is_valid(struct str kid)
{
    return kid.n <= JWK_KID_MAX && (ascii_is_word(kid, "._-") || is_base64(kid));
}

bool jwk_policy_allows(const struct jwk_policy *policy, enum jwk_alg alg)
{
    return policy == NULL || policy->allowed == 0 || (policy->allowed >> alg & 1);
}

/* ---- what a public key is good for ---- */

static bool rsa_is_sound(EVP_PKEY *key)
{
    BIGNUM *n = NULL, *e = NULL;
    bool ok = EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_N, &n) == 1 &&
              EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_E, &e) == 1 && BN_is_odd(n) &&
              BN_num_bits(n) >= RSA_BITS_MIN && BN_num_bits(n) <= RSA_BITS_MAX && BN_is_odd(e) &&
              !BN_is_one(e) && BN_num_bits(e) <= RSA_EXPONENT_MAX;
    BN_free(n);
    BN_free(e);
    return ok;
}

static bool is_p256(EVP_PKEY *key)
{
    char group[32];
    size_t n;
    return EVP_PKEY_get_group_name(key, group, sizeof group, &n) == 1 &&
           strcmp(group, "prime256v1") == 0;
}

static bool point_is_on_curve(EVP_PKEY *key)
{
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    must(ctx != NULL);
    bool ok = EVP_PKEY_public_check(ctx) == 1;
    EVP_PKEY_CTX_free(ctx);
    return ok;
}

bool jwk_alg_of(EVP_PKEY *key, const enum jwk_alg *asked, const struct jwk_policy *policy,
                enum jwk_alg *out)
{
    enum jwk_alg alg;
    bool ok = true;
    if (EVP_PKEY_is_a(key, "RSA") && rsa_is_sound(key)) {
        alg = asked != NULL ? *asked : policy != NULL ? policy->rsa : JWK_RS256;
        ok = alg == JWK_RS256 || alg == JWK_PS256;
    } else if (EVP_PKEY_is_a(key, "EC") && is_p256(key) && point_is_on_curve(key)) {
        alg = JWK_ES256;
    } else if (EVP_PKEY_is_a(key, "ED25519")) {
        alg = JWK_EDDSA;
    } else {
        alg = JWK_HS256; /* no public key's */
        ok = false;
    }
    ERR_clear_error(); /* or TLS on this thread takes it for its own */
    if (!ok || (asked != NULL && *asked != alg))
        return false;
    *out = alg;
    return true;
}

/* ---- the set ---- */

struct jwk_set *jwk_set_new(void)
{
    return mem_zalloc(sizeof(struct jwk_set));
}

void jwk_set_free(struct jwk_set *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->counts.usable; i++) {
        EVP_PKEY_free(s->keys[i].public);
        mac_free(s->keys[i].mac);
    }
    free(s);
}

struct jwk_counts jwk_set_counts(const struct jwk_set *s)
{
    return s->counts;
}

struct str jwk_set_kid(const struct jwk_set *s, size_t i)
{
    must(i < s->counts.usable);
    return str_of(s->keys[i].kid, s->keys[i].kid_n);
}

enum jwk_alg jwk_set_alg(const struct jwk_set *s, size_t i)
{
    must(i < s->counts.usable);
    return s->keys[i].alg;
}

const struct jwk *jwk_set_match(const struct jwk_set *s, struct str kid, const struct jwk *after)
{
    const struct jwk *end = s->keys + s->counts.usable;
    for (const struct jwk *k = after != NULL ? after + 1 : s->keys; k < end; k++)
        if (k->any_kid || str_eq(str_of(k->kid, k->kid_n), kid))
            return k;
    return NULL;
}

bool jwk_set_holds(const struct jwk_set *s, struct str kid, uint64_t print)
{
    for (const struct jwk *k = NULL; (k = jwk_set_match(s, kid, k)) != NULL;)
        if (k->print == print)
            return true;
    return false;
}

/* A secret's is a tag that it signs, from which nothing follows. */
void jwk_set_print(struct jwk *k)
{
    uint8_t digest[SHA256_SIZE];
    unsigned char *der = NULL;
    if (k->mac != NULL) {
        mac_sign(k->mac, &(struct str)STR_INIT("print"), 1, digest);
    } else {
        int n = i2d_PUBKEY(k->public, &der);
        must(n > 0);
        sha256(str_of((const char *)der, (size_t)n), digest);
        OPENSSL_free(der);
    }
    memcpy(&k->print, digest, sizeof k->print);
}

/* ---- a secret ---- */

static const char *add_secret(struct jwk_set *s, const struct jwk_secret *secret)
{
    if (secret->bytes.n < JWK_SECRET_MIN)
        return "a secret for HS256 needs at least 32 bytes";
    if (secret->kid.n > 0 && !jwk_kid_is_valid(secret->kid))
        return "a key ID has 1 to 64 characters of A-Z a-z 0-9 . _ -";
    struct jwk *k = &s->keys[s->counts.usable++];
    *k = (struct jwk){.alg = JWK_HS256, .any_kid = secret->kid.n == 0, .kid_n = secret->kid.n};
    if (secret->kid.n > 0)
        memcpy(k->kid, secret->kid.p, secret->kid.n);
    k->mac = mac_new(secret->bytes);
    jwk_set_print(k);
    return NULL;
}

int jwk_set_from_secret(const struct jwk_secret *current, const struct jwk_secret *previous,
                        struct jwk_set **out, char *why, size_t size)
{
    struct jwk_set *s = jwk_set_new();
    const char *wrong = add_secret(s, current);
    if (wrong == NULL && previous != NULL && previous->bytes.n > 0)
        wrong = add_secret(s, previous);
    if (wrong != NULL) {
        snprintf(why, size, "%s", wrong);
        jwk_set_free(s);
        return ERR_SYNTAX;
    }
    *out = s;
    return 0;
}

/* ---- PEM ---- */

/* OpenSSL would ask at the terminal. */
static int no_password(char *to, int size, int writing, void *data)
{
    return -1;
}

/* The one public key; NULL if there is none, or another behind it. */
static EVP_PKEY *read_pem(struct str pem)
{
    BIO *bio = BIO_new_mem_buf(pem.p, (int)pem.n);
    must(bio != NULL);
    EVP_PKEY *key = PEM_read_bio_PUBKEY(bio, NULL, no_password, NULL);
    EVP_PKEY *other = key != NULL ? PEM_read_bio_PUBKEY(bio, NULL, no_password, NULL) : NULL;
    if (other != NULL) {
        EVP_PKEY_free(other);
        EVP_PKEY_free(key);
        key = NULL;
    }
    BIO_free(bio);
    ERR_clear_error();
    return key;
}

static int pem_fails(char *why, size_t size, int err, const char *text)
{
    snprintf(why, size, "%s", text);
    return err;
}

int jwk_set_from_pem(struct str pem, struct str kid, const struct jwk_policy *policy,
                     struct jwk_set **out, char *why, size_t size)
{
    if (pem.n > JWK_TEXT_MAX)
        return pem_fails(why, size, ERR_TOO_LARGE, "a key file has at most 64 KiB");
    if (kid.n > 0 && !jwk_kid_is_valid(kid))
        return pem_fails(why, size, ERR_SYNTAX,
                         "a key ID has 1 to 64 characters of A-Z a-z 0-9 . _ -");
    EVP_PKEY *key = pem.n > 0 ? read_pem(pem) : NULL;
    if (key == NULL)
        return pem_fails(why, size, ERR_SYNTAX, "this is not one public key in PEM");
    enum jwk_alg alg;
    if (!jwk_alg_of(key, NULL, policy, &alg) || !jwk_policy_allows(policy, alg)) {
        EVP_PKEY_free(key);
        return pem_fails(
            why, size, ERR_EMPTY,
            "the key is none that is allowed: RSA of 2048 to 8192 bits, P-256, Ed25519");
    }
    struct jwk_set *s = jwk_set_new();
    s->keys[0] = (struct jwk){.alg = alg, .any_kid = kid.n == 0, .kid_n = kid.n, .public = key};
    if (kid.n > 0)
        memcpy(s->keys[0].kid, kid.p, kid.n);
    jwk_set_print(&s->keys[0]);
    s->counts.usable = 1;
    *out = s;
    return 0;
}
