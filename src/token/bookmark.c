// SPDX-License-Identifier: Apache-2.0
#include "token/bookmark.h"
#include "base/arena.h"
#include "base/b64.h"
#include "base/be.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/rand.h"
#include "token/mac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>

#define NONCE  12
#define TAG    16
#define PLAIN  (2 + BOOKMARK_PLACE_MAX)
#define SEALED (NONCE + PLAIN + TAG)
#define TEXT   (sizeof BOOKMARK_PREFIX - 1 + b64url_size(SEALED))

struct bookmark_key {
    uint8_t key[MAC_KEY_SIZE];
};

struct bookmark_key *bookmark_key_new(const uint8_t root[32])
{
    struct bookmark_key *k = mem_alloc(sizeof *k);
    mac_subkey(root, "bookmark", k->key);
    return k;
}

void bookmark_key_free(struct bookmark_key *k)
{
    if (k != NULL)
        OPENSSL_cleanse(k->key, sizeof k->key);
    free(k);
}

/* One way or the other. False: the tag is not right. */
static bool bookmark_cipher(const struct bookmark_key *k, uint8_t sealed[SEALED],
                            uint8_t plain[PLAIN], bool seals)
{
    uint8_t *body = sealed + NONCE, *tag = body + PLAIN, none[1];
    int n = 0, end = 0;
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    must(ctx != NULL && EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, k->key, sealed, seals));
    must(EVP_CipherUpdate(ctx, seals ? body : plain, &n, seals ? plain : body, PLAIN) == 1);
    must(n == PLAIN);
    if (!seals)
        must(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, TAG, tag) == 1);
    bool good = EVP_CipherFinal_ex(ctx, none, &end) == 1;
    if (seals)
        must(good && EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, TAG, tag) == 1);
    EVP_CIPHER_CTX_free(ctx);
    return good;
}

void bookmark_put(const struct bookmark_key *k, struct str place, struct buf *out)
{
    uint8_t plain[PLAIN] = {0}, sealed[SEALED];
    must(place.n > 0 && place.n <= BOOKMARK_PLACE_MAX);
    be_put(plain, place.n, 2);
    memcpy(plain + 2, place.p, place.n);
    rand_bytes(sealed, NONCE);
    bookmark_cipher(k, sealed, plain, true);
    buf_put(out, STR(BOOKMARK_PREFIX));
    b64url_put(out, str_of((const char *)sealed, sizeof sealed));
}

int bookmark_take(const struct bookmark_key *k, struct arena *a, struct str text, struct str *place)
{
    uint8_t plain[PLAIN], sealed[SEALED];
    size_t n = 0;
    if (text.n != TEXT || !bookmark_is(text) ||
        !b64url_decode(str_skip(text, sizeof BOOKMARK_PREFIX - 1), sealed, &n) || n != SEALED ||
        !bookmark_cipher(k, sealed, plain, false))
        return ERR_SYNTAX;
    n = be_get(plain, 2);
    if (n == 0 || n > BOOKMARK_PLACE_MAX)
        return ERR_SYNTAX;
    *place = arena_dup(a, str_of((const char *)plain + 2, n));
    return 0;
}
