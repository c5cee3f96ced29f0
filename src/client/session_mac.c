// SPDX-License-Identifier: Apache-2.0
#include "client/session_mac.h"
#include "tidemark.h"
#include "token/hkdf.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

int smac_hkdf(const uint8_t secret[SECRET_SIZE], struct str salt, struct str info,
              uint8_t key[MAC_SIZE])
{
    struct str of = str_of((const char *)secret, SECRET_SIZE);
    return hkdf_sha256(of, salt, info, key, MAC_SIZE) ? 0 : TM_E_NOMEM;
}

int smac_derive(const uint8_t secret[SECRET_SIZE], struct str idempotency_key,
                uint8_t key[MAC_SIZE])
{
    return smac_hkdf(secret, idempotency_key, STR("tidemark session mac"), key);
}

static int session_mac_sign(const uint8_t key[MAC_SIZE], const struct str *parts, size_t n,
                            uint8_t out[MAC_SIZE])
{
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end(),
    };
    size_t size = 0;
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *ctx = hmac == NULL ? NULL : EVP_MAC_CTX_new(hmac);
    int ok = ctx == NULL ? 0 : EVP_MAC_init(ctx, key, MAC_SIZE, params);
    for (size_t i = 0; i < n && ok == 1; i++)
        if (parts[i].n > 0)
            ok = EVP_MAC_update(ctx, (const uint8_t *)parts[i].p, parts[i].n);
    if (ok == 1)
        ok = EVP_MAC_final(ctx, out, &size, MAC_SIZE);
    EVP_MAC_CTX_free(ctx);
    EVP_MAC_free(hmac);
    return ok == 1 && size == MAC_SIZE ? 0 : TM_E_NOMEM;
}

int smac_chain(const uint8_t key[MAC_SIZE], const uint8_t before[MAC_SIZE], struct str covered,
               uint8_t out[MAC_SIZE])
{
    const struct str parts[] = {str_of((const char *)before, MAC_SIZE), covered};
    return session_mac_sign(key, parts, 2, out);
}

int smac_sign(const uint8_t key[MAC_SIZE], struct str bytes, uint8_t out[MAC_SIZE])
{
    return session_mac_sign(key, &bytes, 1, out);
}

bool smac_same(const uint8_t a[MAC_SIZE], const uint8_t b[MAC_SIZE])
{
    return CRYPTO_memcmp(a, b, MAC_SIZE) == 0;
}
