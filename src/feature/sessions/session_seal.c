// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/session_seal.h"
#include "base/b64.h"
#include "base/err.h"
#include "base/le.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/rand.h"
#include "token/mac.h"

#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>

#define NONCE_SIZE  12
#define NONCES      16 /* drawn at once: a system call is dear beside a short record */
#define TAG_SIZE    16
#define KEY_SIZE    32
#define HEAD_SIZE   (4 + 1 + 8)
#define SECRET_TEXT 43 /* without the `=` */

/* The contexts stay keyed, as the one in a struct mac does: a record costs a nonce, not a lookup of
 * the cipher and a key schedule. One context per key does both ways; GCM has one schedule. */
struct session_keys {
    EVP_CIPHER_CTX *ciphers[2]; /* by direction */
    struct mac *chain;
    char nonces[NONCES * NONCE_SIZE];
    size_t nonces_left; /* bytes at their end that are not used yet */
    size_t name_n;
    char name[];
};

int session_secret_parse(struct str text, uint8_t out[SESSION_SECRET_SIZE])
{
    char url[SECRET_TEXT];
    struct buf secret = {0};
    if (text.n == SECRET_TEXT + 1 && text.p[SECRET_TEXT] == '=')
        text.n--;
    if (text.n != SECRET_TEXT)
        return ERR_SYNTAX;
    for (size_t i = 0; i < SECRET_TEXT; i++)
        url[i] = text.p[i] == '+' ? '-' : text.p[i] == '/' ? '_' : text.p[i];
    int err = b64url_take(&secret, str_of(url, SECRET_TEXT));
    if (err == 0)
        memcpy(out, secret.p, SESSION_SECRET_SIZE);
    OPENSSL_cleanse(secret.p, secret.cap); /* after a failure too, some of it is there */
    OPENSSL_cleanse(url, sizeof url);
    buf_deinit(&secret);
    return err;
}

static void derive(const uint8_t secret[SESSION_SECRET_SIZE], struct str salt, struct str info,
                   uint8_t out[KEY_SIZE])
{
    mac_hkdf(str_of((const char *)secret, SESSION_SECRET_SIZE), salt, info, out, KEY_SIZE);
}

static struct str salt_str(const uint8_t salt[SESSION_SALT_SIZE])
{
    return str_of((const char *)salt, SESSION_SALT_SIZE);
}

void session_check(const uint8_t secret[SESSION_SECRET_SIZE], const uint8_t salt[SESSION_SALT_SIZE],
                   uint8_t out[SESSION_CHECK_SIZE])
{
    derive(secret, salt_str(salt), STR("tidemark session check"), out);
}

static EVP_CIPHER_CTX *cipher_new(const uint8_t key[KEY_SIZE])
{
    EVP_CIPHER *gcm = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    must(gcm != NULL);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    must(ctx != NULL);
    int ok = EVP_CipherInit_ex2(ctx, gcm, key, NULL, 1, NULL);
    must(ok == 1 && EVP_CIPHER_CTX_get_iv_length(ctx) == NONCE_SIZE);
    EVP_CIPHER_free(gcm); /* the context holds its own reference */
    return ctx;
}

/* As the client knows it: `%` is in no key but behind the root of a tenant. */
static struct str session_own_name(struct str name)
{
    size_t n = name.n;
    while (n > 0 && name.p[n - 1] != '%')
        n--;
    return str_skip(name, n);
}

struct session_keys *session_keys_new(const uint8_t secret[SESSION_SECRET_SIZE],
                                      const uint8_t salt[SESSION_SALT_SIZE], struct str name)
{
    static const struct str infos[2] = {
        [SESSION_IN] = STR_INIT("tidemark session in"),
        [SESSION_OUT] = STR_INIT("tidemark session out"),
    };
    struct session_keys *k = mem_alloc(sizeof *k + name.n);
    k->nonces_left = 0;
    k->name_n = name.n;
    if (name.n > 0)
        memcpy(k->name, name.p, name.n);
    uint8_t key[KEY_SIZE];
    for (size_t i = 0; i < 2; i++) {
        derive(secret, salt_str(salt), infos[i], key);
        k->ciphers[i] = cipher_new(key);
    }
    derive(secret, session_own_name(name), STR("tidemark session mac"), key);
    k->chain = mac_new(str_of((const char *)key, sizeof key));
    OPENSSL_cleanse(key, sizeof key);
    return k;
}

/* Both kinds of contexts are wiped by OpenSSL; what is left here is no secret. */
void session_keys_free(struct session_keys *k)
{
    if (k == NULL)
        return;
    for (size_t i = 0; i < 2; i++)
        EVP_CIPHER_CTX_free(k->ciphers[i]);
    mac_free(k->chain);
    free(k);
}

/* One pass of the cipher over a part; to == NULL: it is only authenticated. */
static void pass(EVP_CIPHER_CTX *ctx, struct str part, char *to)
{
    if (part.n == 0)
        return;
    must(part.n <= INT_MAX);
    int n = 0;
    int ok = EVP_CipherUpdate(ctx, (uint8_t *)to, &n, (const uint8_t *)part.p, (int)part.n);
    must(ok == 1 && (size_t)n == part.n);
}

/* Begins a record: the nonce, and what is authenticated with it, as the header draws it. */
static EVP_CIPHER_CTX *session_seal_begin(struct session_keys *k, enum session_direction direction,
                                          uint64_t ordinal, struct str head, const char *nonce,
                                          bool seals)
{
    EVP_CIPHER_CTX *ctx = k->ciphers[direction];
    int ok = EVP_CipherInit_ex2(ctx, NULL, NULL, (const uint8_t *)nonce, seals, NULL);
    must(ok == 1);
    char place[1 + 8] = {(char)direction};
    le_put_u64(place + 1, ordinal);
    pass(ctx, str_of(place, sizeof place), NULL);
    pass(ctx, head, NULL);
    pass(ctx, str_of(k->name, k->name_n), NULL);
    return ctx;
}

static void put_nonce(struct session_keys *k, char out[NONCE_SIZE])
{
    if (k->nonces_left == 0) {
        rand_bytes(k->nonces, sizeof k->nonces);
        k->nonces_left = sizeof k->nonces;
    }
    memcpy(out, k->nonces + sizeof k->nonces - k->nonces_left, NONCE_SIZE);
    k->nonces_left -= NONCE_SIZE;
}

void session_seal(struct session_keys *k, enum session_direction direction, uint64_t ordinal,
                  enum session_record_type type, uint64_t a, struct str content, struct buf *out)
{
    must(content.n <= INT_MAX - SESSION_SEAL_EXTRA);
    char *head = buf_reserve(out, SESSION_SEAL_EXTRA + content.n);
    char *nonce = head + HEAD_SIZE, *sealed = nonce + NONCE_SIZE, *tag = sealed + content.n;
    le_put_u32(head, (uint32_t)(SESSION_SEAL_EXTRA - 4 + content.n));
    head[4] = (char)type;
    le_put_u64(head + 5, a);
    put_nonce(k, nonce);
    EVP_CIPHER_CTX *ctx =
        session_seal_begin(k, direction, ordinal, str_of(head, HEAD_SIZE), nonce, true);
    pass(ctx, content, sealed);
    int n = 0;
    int ok = EVP_CipherFinal_ex(ctx, (uint8_t *)tag, &n) == 1 &&
             EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, TAG_SIZE, tag) == 1;
    must(ok && n == 0);
    out->n += SESSION_SEAL_EXTRA + content.n;
}

int session_record_cut(struct str *rest, struct session_record *out)
{
    if (rest->n < SESSION_SEAL_EXTRA)
        return ERR_CORRUPT;
    size_t n = le_get_u32(rest->p);
    uint8_t type = (uint8_t)rest->p[4];
    if (n < SESSION_SEAL_EXTRA - 4 || n > rest->n - 4 || type < SESSION_RECORD_CHUNK ||
        type > SESSION_RECORD_MOVED)
        return ERR_CORRUPT;
    out->type = type;
    out->a = le_get_u64(rest->p + 5);
    out->head = str_of(rest->p, HEAD_SIZE);
    out->sealed = str_of(rest->p + HEAD_SIZE, 4 + n - HEAD_SIZE);
    *rest = str_skip(*rest, 4 + n);
    return 0;
}

int session_open(struct session_keys *k, enum session_direction direction, uint64_t ordinal,
                 const struct session_record *r, struct buf *out)
{
    if (r->sealed.n < NONCE_SIZE + TAG_SIZE || r->sealed.n > INT_MAX)
        return ERR_CORRUPT;
    struct str content = str_skip(r->sealed, NONCE_SIZE);
    content.n -= TAG_SIZE;
    EVP_CIPHER_CTX *ctx = session_seal_begin(k, direction, ordinal, r->head, r->sealed.p, false);
    char *to = buf_reserve(out, content.n);
    pass(ctx, content, to);
    uint8_t tag[TAG_SIZE];
    memcpy(tag, content.p + content.n, TAG_SIZE);
    int ok = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, TAG_SIZE, tag);
    must(ok == 1);
    int n = 0;
    uint8_t none[1];
    if (EVP_CipherFinal_ex(ctx, none, &n) != 1) {
        OPENSSL_cleanse(to, content.n); /* what nobody vouches for is not left lying about */
        return ERR_CORRUPT;
    }
    out->n += content.n;
    return 0;
}

void session_chain(struct session_keys *k, const uint8_t before[SESSION_MAC_SIZE],
                   struct str covered, uint8_t out[SESSION_MAC_SIZE])
{
    const struct str parts[] = {str_of((const char *)before, SESSION_MAC_SIZE), covered};
    mac_sign(k->chain, parts, 2, out);
}
