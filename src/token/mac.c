// SPDX-License-Identifier: Apache-2.0
#include "token/mac.h"
#include "base/mem.h"
#include "base/must.h"
#include "token/hkdf.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>

/* The context stays keyed: starting over with init(NULL) skips the key schedule and every lookup,
 * which makes a tag about five times as fast as HMAC() from scratch. */
struct mac {
    EVP_MAC_CTX *ctx;
};

struct mac *mac_new(struct str key)
{
    struct mac *m = mem_alloc(sizeof *m);
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    must(hmac != NULL);
    m->ctx = EVP_MAC_CTX_new(hmac);
    EVP_MAC_free(hmac); /* the context holds its own reference */
    must(m->ctx != NULL);
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end(),
    };
    /* A NULL key would mean "keep the key", so an empty one is given as an empty string. */
    const void *bytes = key.n > 0 ? key.p : "";
    must(EVP_MAC_init(m->ctx, bytes, key.n, params) == 1);
    return m;
}

void mac_free(struct mac *m)
{
    if (m == NULL)
        return;
    EVP_MAC_CTX_free(m->ctx);
    free(m);
}

void mac_sign(struct mac *m, const struct str *parts, size_t n, uint8_t tag[MAC_SIZE])
{
    size_t size = 0;
    int ok = EVP_MAC_init(m->ctx, NULL, 0, NULL);
    for (size_t i = 0; i < n && ok == 1; i++)
        if (parts[i].n > 0)
            ok = EVP_MAC_update(m->ctx, (const uint8_t *)parts[i].p, parts[i].n);
    if (ok == 1)
        ok = EVP_MAC_final(m->ctx, tag, &size, MAC_SIZE);
    must(ok == 1 && size == MAC_SIZE);
}

bool mac_check(struct mac *m, const struct str *parts, size_t n, struct str tag)
{
    uint8_t right[MAC_SIZE];
    mac_sign(m, parts, n, right);
    bool same = mac_equal(str_of((const char *)right, MAC_SIZE), tag);
    OPENSSL_cleanse(right, sizeof right); /* it would let a forger in, so it does not linger */
    return same;
}

bool mac_equal(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || CRYPTO_memcmp(a.p, b.p, a.n) == 0);
}

void mac_hkdf(struct str secret, struct str salt, struct str info, uint8_t *out, size_t n)
{
    must(hkdf_sha256(secret, salt, info, out, n));
}

/* The info is the product, a slash and the purpose: `tidemark/callback`. Changing it, or the
 * salt, would make every token in the hands of clients worthless. */
void mac_subkey(const uint8_t root[MAC_KEY_SIZE], const char *purpose, uint8_t out[MAC_KEY_SIZE])
{
    char info[64] = "tidemark/";
    size_t n = strlen(info), room = sizeof info - n;
    size_t length = strlen(purpose);
    must(length > 0 && length < room);
    memcpy(info + n, purpose, length);
    mac_hkdf(str_of((const char *)root, MAC_KEY_SIZE), STR_NONE, str_of(info, n + length), out,
             MAC_KEY_SIZE);
}
