// SPDX-License-Identifier: Apache-2.0
#include "token/signer.h"
#include "base/b64.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/sha256.h"
#include "base/num.h"

#include <openssl/evp.h>
#include <stdlib.h>

struct signer {
    EVP_PKEY *key;
    struct buf kid, jwk;
};

/* RFC 7638: the required members only, sorted, without white space. */
static void put_thumbprint(struct buf *out, struct str x)
{
    struct buf json = {0};
    uint8_t digest[SHA256_SIZE];
    buf_put(&json, STR("{\"crv\":\"Ed25519\",\"kty\":\"OKP\",\"x\":\""));
    buf_put(&json, x);
    buf_put(&json, STR("\"}"));
    sha256(buf_str(&json), digest);
    b64url_put(out, str_of((const char *)digest, sizeof digest));
    buf_deinit(&json);
}

static void describe(struct signer *s)
{
    uint8_t public[32];
    size_t size = sizeof public;
    int ok = EVP_PKEY_get_raw_public_key(s->key, public, &size);
    must(ok == 1 && size == sizeof public);
    struct buf x = {0};
    b64url_put(&x, str_of((const char *)public, size));
    buf_put(&s->kid, STR("ds_"));
    put_thumbprint(&s->kid, buf_str(&x));
    buf_printf(&s->jwk,
               "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"%.*s\",\"kid\":\"%.*s\","
               "\"use\":\"sig\",\"alg\":\"EdDSA\"}",
               (int)x.n, x.p, (int)s->kid.n, s->kid.p);
    buf_deinit(&x);
}

struct signer *signer_new(const uint8_t seed[SIGNER_SEED_SIZE])
{
    struct signer *s = mem_zalloc(sizeof *s);
    s->key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, SIGNER_SEED_SIZE);
    must(s->key != NULL);
    describe(s);
    return s;
}

void signer_free(struct signer *s)
{
    if (s == NULL)
        return;
    EVP_PKEY_free(s->key);
    buf_deinit(&s->kid);
    buf_deinit(&s->jwk);
    free(s);
}

struct str signer_kid(const struct signer *s)
{
    return buf_str(&s->kid);
}

struct str signer_jwk(const struct signer *s)
{
    return buf_str(&s->jwk);
}

static void sign_whole(struct signer *s, struct str bytes, uint8_t out[SIGNER_SIZE])
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    must(ctx != NULL);
    size_t size = SIGNER_SIZE;
    int ok = EVP_DigestSignInit(ctx, NULL, NULL, NULL, s->key);
    if (ok == 1)
        ok = EVP_DigestSign(ctx, out, &size, (const uint8_t *)bytes.p, bytes.n);
    must(ok == 1 && size == SIGNER_SIZE);
    EVP_MD_CTX_free(ctx);
}

/* Ed25519 reads its message twice, so OpenSSL wants it in one piece. */
void signer_sign(struct signer *s, const struct str *parts, size_t n, uint8_t out[SIGNER_SIZE])
{
    struct buf whole = {0};
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += parts[i].n;
    buf_reserve(&whole, size + 1); /* also when empty: OpenSSL takes no NULL */
    for (size_t i = 0; i < n; i++)
        buf_put(&whole, parts[i]);
    sign_whole(s, buf_str(&whole), out);
    buf_deinit(&whole);
}

void signer_put_header(struct signer *s, int64_t unix_s, struct str body, struct buf *out)
{
    must(unix_s >= 0);
    char digits[NUM_TEXT_MAX];
    uint8_t signature[SIGNER_SIZE];
    struct str time = str_of(digits, num_format((uint64_t)unix_s, digits));
    const struct str parts[] = {time, STR("."), body};
    signer_sign(s, parts, 3, signature);
    buf_put(out, STR("t="));
    buf_put(out, time);
    buf_put(out, STR(",kid="));
    buf_put(out, signer_kid(s));
    buf_put(out, STR(",ed25519="));
    b64url_put(out, str_of((const char *)signature, sizeof signature));
}
