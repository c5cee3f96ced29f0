// SPDX-License-Identifier: Apache-2.0
/* token_kit.h -- the other side of the verifier: makes keys and signs tokens of any content. */
#ifndef TESTS_TOKEN_KIT_H
#define TESTS_TOKEN_KIT_H

#include "base/b64.h"
#include "base/buf.h"
#include "token/jwk.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <stdlib.h>

static inline EVP_PKEY *kit_key(enum jwk_alg alg)
{
    switch (alg) {
    case JWK_RS256:
    case JWK_PS256: return EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
    case JWK_ES256: return EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    case JWK_EDDSA: return EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    default: return NULL;
    }
}

static inline void kit_put_number(struct buf *out, const char *name, EVP_PKEY *key,
                                  const char *param, int size)
{
    BIGNUM *v = NULL;
    unsigned char bytes[1024];
    if (EVP_PKEY_get_bn_param(key, param, &v) != 1)
        abort();
    int n = size > 0 ? size : BN_num_bytes(v);
    BN_bn2binpad(v, bytes, n);
    buf_printf(out, ",\"%s\":\"", name);
    b64url_put(out, str_of((const char *)bytes, (size_t)n));
    buf_putc(out, '"');
    BN_free(v);
}

/* The public half as a JWK; more: further members, with a comma in front. */
static inline void kit_put_jwk(struct buf *out, EVP_PKEY *key, const char *more)
{
    if (EVP_PKEY_is_a(key, "RSA")) {
        buf_printf(out, "{\"kty\":\"RSA\"");
        kit_put_number(out, "n", key, OSSL_PKEY_PARAM_RSA_N, 0);
        kit_put_number(out, "e", key, OSSL_PKEY_PARAM_RSA_E, 0);
    } else if (EVP_PKEY_is_a(key, "EC")) {
        buf_printf(out, "{\"kty\":\"EC\",\"crv\":\"P-256\"");
        kit_put_number(out, "x", key, OSSL_PKEY_PARAM_EC_PUB_X, 32);
        kit_put_number(out, "y", key, OSSL_PKEY_PARAM_EC_PUB_Y, 32);
    } else {
        unsigned char x[32];
        size_t n = sizeof x;
        EVP_PKEY_get_raw_public_key(key, x, &n);
        buf_printf(out, "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"");
        b64url_put(out, str_of((const char *)x, n));
        buf_putc(out, '"');
    }
    buf_printf(out, "%s}", more);
}

static inline void kit_put_pem(struct buf *out, EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *p;
    PEM_write_bio_PUBKEY(bio, key);
    long n = BIO_get_mem_data(bio, &p);
    buf_put(out, str_of(p, (size_t)n));
    BIO_free(bio);
}

/* A signature as OpenSSL makes it: of ES256 it is DER. md: NULL for Ed25519. */
static inline void kit_put_raw(struct buf *out, EVP_PKEY *key, const EVP_MD *md, bool pss,
                               struct str text)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY_CTX *settings;
    size_t n = 1100;
    EVP_DigestSignInit(ctx, &settings, md, NULL, key);
    if (pss) {
        EVP_PKEY_CTX_set_rsa_padding(settings, RSA_PKCS1_PSS_PADDING);
        EVP_PKEY_CTX_set_rsa_pss_saltlen(settings, RSA_PSS_SALTLEN_DIGEST);
    }
    char *to = buf_reserve(out, n);
    if (EVP_DigestSign(ctx, (unsigned char *)to, &n, (const unsigned char *)text.p, text.n) != 1)
        abort();
    out->n += n;
    EVP_MD_CTX_free(ctx);
}

static inline void kit_put_es256(struct buf *out, EVP_PKEY *key, struct str text)
{
    struct buf der = {0};
    kit_put_raw(&der, key, EVP_sha256(), false, text);
    const unsigned char *p = (const unsigned char *)der.p;
    ECDSA_SIG *sig = d2i_ECDSA_SIG(NULL, &p, (long)der.n);
    unsigned char *to = (unsigned char *)buf_reserve(out, 64);
    BN_bn2binpad(ECDSA_SIG_get0_r(sig), to, 32);
    BN_bn2binpad(ECDSA_SIG_get0_s(sig), to + 32, 32);
    out->n += 64;
    ECDSA_SIG_free(sig);
    buf_deinit(&der);
}

static inline void kit_put_hs256(struct buf *out, struct str secret, struct str text)
{
    unsigned n = 0;
    char *to = buf_reserve(out, 32);
    HMAC(EVP_sha256(), secret.n > 0 ? secret.p : "", (int)secret.n, (const unsigned char *)text.p,
         text.n, (unsigned char *)to, &n);
    out->n += n;
}

/* The signature over a text, in bytes. */
static inline void kit_put_signature(struct buf *out, enum jwk_alg alg, EVP_PKEY *key,
                                     struct str secret, struct str text)
{
    switch (alg) {
    case JWK_HS256: kit_put_hs256(out, secret, text); break;
    case JWK_RS256: kit_put_raw(out, key, EVP_sha256(), false, text); break;
    case JWK_PS256: kit_put_raw(out, key, EVP_sha256(), true, text); break;
    case JWK_ES256: kit_put_es256(out, key, text); break;
    case JWK_EDDSA: kit_put_raw(out, key, NULL, false, text); break;
    }
}

/* Header and payload in base64url, with a dot between. */
static inline void kit_put_text(struct buf *out, struct str header, struct str payload)
{
    b64url_put(out, header);
    buf_putc(out, '.');
    b64url_put(out, payload);
}

/* A whole token, signed with this algorithm, whatever its header says. */
static inline void kit_put_token(struct buf *out, enum jwk_alg alg, EVP_PKEY *key,
                                 struct str secret, struct str header, struct str payload)
{
    struct buf signature = {0};
    kit_put_text(out, header, payload);
    kit_put_signature(&signature, alg, key, secret, buf_str(out));
    buf_putc(out, '.');
    b64url_put(out, buf_str(&signature));
    buf_deinit(&signature);
}

#endif
