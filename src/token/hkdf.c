// SPDX-License-Identifier: Apache-2.0
#include "token/hkdf.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

static OSSL_PARAM octets(const char *name, struct str s)
{
    return OSSL_PARAM_construct_octet_string(name, (void *)s.p, s.n);
}

bool hkdf_sha256(struct str secret, struct str salt, struct str info, uint8_t *out, size_t n)
{
    char digest[] = "SHA256";
    OSSL_PARAM params[5];
    size_t i = 0;
    params[i++] = OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0);
    params[i++] = octets(OSSL_KDF_PARAM_KEY, secret);
    if (salt.n > 0) /* left out, HKDF takes zeros */
        params[i++] = octets(OSSL_KDF_PARAM_SALT, salt);
    if (info.n > 0)
        params[i++] = octets(OSSL_KDF_PARAM_INFO, info);
    params[i] = OSSL_PARAM_construct_end();
    EVP_KDF *hkdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *ctx = hkdf == NULL ? NULL : EVP_KDF_CTX_new(hkdf);
    bool ok = ctx != NULL && EVP_KDF_derive(ctx, out, n, params) == 1;
    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(hkdf);
    return ok;
}
