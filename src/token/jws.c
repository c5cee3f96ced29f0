// SPDX-License-Identifier: Apache-2.0
#include "token/jws.h"
#include "base/must.h"
#include "token/jwk_core.h"
#include "token/mac.h"

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/rsa.h>
#include <stdint.h>

#define P256_SIZE     32 /* of r and of s */
#define ED25519_SIZE  64
#define ES256_DER_MAX 80 /* a sequence of two numbers of up to 33 bytes: 72 */

static const uint8_t *bytes_of(struct str s)
{
    return (const uint8_t *)s.p;
}

/* The padding and what belongs to it; nothing for other keys than RSA. */
static bool set_padding(EVP_PKEY_CTX *ctx, enum jwk_alg alg)
{
    if (alg == JWK_RS256)
        return EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_PADDING) == 1;
    return alg != JWK_PS256 || (EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_PSS_PADDING) == 1 &&
                                EVP_PKEY_CTX_set_rsa_mgf1_md(ctx, EVP_sha256()) == 1 &&
                                EVP_PKEY_CTX_set_rsa_pss_saltlen(ctx, RSA_PSS_SALTLEN_DIGEST) == 1);
}

static bool check_public(const struct jwk *key, struct str text, struct str signature)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY_CTX *settings = NULL; /* the other context's */
    must(ctx != NULL);
    const EVP_MD *digest = key->alg == JWK_EDDSA ? NULL : EVP_sha256();
    bool ok = EVP_DigestVerifyInit(ctx, &settings, digest, NULL, key->public) == 1 &&
              set_padding(settings, key->alg) &&
              EVP_DigestVerify(ctx, bytes_of(signature), signature.n, bytes_of(text), text.n) == 1;
    EVP_MD_CTX_free(ctx);
    ERR_clear_error(); /* or TLS on this thread takes it for its own */
    return ok;
}

/* r || s as OpenSSL wants it, a DER sequence; returns its size, or 0 if one is zero. */
static size_t es256_to_der(struct str raw, uint8_t der[ES256_DER_MAX])
{
    BIGNUM *r = BN_bin2bn(bytes_of(raw), P256_SIZE, NULL);
    BIGNUM *s = BN_bin2bn(bytes_of(raw) + P256_SIZE, P256_SIZE, NULL);
    ECDSA_SIG *sig = ECDSA_SIG_new();
    must(r != NULL && s != NULL && sig != NULL);
    bool ok = !BN_is_zero(r) && !BN_is_zero(s);
    must(ECDSA_SIG_set0(sig, r, s) == 1); /* which owns them now */
    int n = ok ? i2d_ECDSA_SIG(sig, NULL) : 0;
    must(n >= 0 && n <= ES256_DER_MAX);
    if (ok)
        i2d_ECDSA_SIG(sig, &der);
    ECDSA_SIG_free(sig);
    return (size_t)n;
}

static bool check_es256(const struct jwk *key, struct str text, struct str signature)
{
    uint8_t der[ES256_DER_MAX];
    if (signature.n != 2 * P256_SIZE)
        return false;
    size_t n = es256_to_der(signature, der);
    return n > 0 && check_public(key, text, str_of((const char *)der, n));
}

bool jws_check(const struct jwk *key, struct str text, struct str signature)
{
    switch (key->alg) {
    case JWK_HS256: return signature.n == MAC_SIZE && mac_check(key->mac, &text, 1, signature);
    case JWK_RS256:
    case JWK_PS256:
        return signature.n == (size_t)EVP_PKEY_get_size(key->public) &&
               check_public(key, text, signature);
    case JWK_ES256: return check_es256(key, text, signature);
    case JWK_EDDSA: return signature.n == ED25519_SIZE && check_public(key, text, signature);
    }
    return false;
}
