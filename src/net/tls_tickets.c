// SPDX-License-Identifier: Apache-2.0
#include "net/tls_tickets.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <string.h>

static bool is_old(const struct tls_ticket_key *k, int64_t now_s, int64_t life_s)
{
    return k->made_s == 0 || now_s - k->made_s >= life_s;
}

const struct tls_ticket_key *tls_tickets_sealing(struct tls_tickets *t, int64_t now_s)
{
    struct tls_ticket_key *k = &t->keys[0];
    if (!is_old(k, now_s, TLS_TICKET_KEY_S))
        return k;
    struct tls_ticket_key fresh = {.made_s = now_s > 0 ? now_s : 1};
    if (RAND_bytes(fresh.name, sizeof fresh.name) != 1 ||
        RAND_priv_bytes(fresh.cipher, sizeof fresh.cipher) != 1 ||
        RAND_priv_bytes(fresh.mac, sizeof fresh.mac) != 1)
        return NULL;
    t->keys[1] = t->keys[0];
    t->keys[0] = fresh;
    OPENSSL_cleanse(&fresh, sizeof fresh);
    return k;
}

const struct tls_ticket_key *tls_tickets_opening(const struct tls_tickets *t,
                                                 const uint8_t name[16], int64_t now_s)
{
    for (int i = 0; i < 2; i++) {
        const struct tls_ticket_key *k = &t->keys[i];
        if (!is_old(k, now_s, 2 * TLS_TICKET_KEY_S) && memcmp(k->name, name, sizeof k->name) == 0)
            return k;
    }
    return NULL;
}

static bool set_mac(const struct tls_ticket_key *k, EVP_MAC_CTX *mac)
{
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, (void *)(uintptr_t)k->mac,
                                          sizeof k->mac),
        OSSL_PARAM_construct_end(),
    };
    return EVP_MAC_CTX_set_params(mac, params) == 1;
}

/* OpenSSL's answers: -1 an error, 0 no ticket (a full handshake), 1 go on, 2 and seal a new one. */
int tls_tickets_apply(struct tls_tickets *t, uint8_t name[16], uint8_t *iv, EVP_CIPHER_CTX *cipher,
                      EVP_MAC_CTX *mac, bool sealing, bool once, int64_t now_s)
{
    const EVP_CIPHER *aes = EVP_aes_256_cbc();
    const struct tls_ticket_key *k =
        sealing ? tls_tickets_sealing(t, now_s) : tls_tickets_opening(t, name, now_s);
    if (k == NULL)
        return sealing ? -1 : 0;
    if (sealing) {
        memcpy(name, k->name, sizeof k->name);
        if (RAND_bytes(iv, EVP_CIPHER_get_iv_length(aes)) != 1)
            return -1;
    }
    if (EVP_CipherInit_ex(cipher, aes, NULL, k->cipher, iv, sealing) != 1 || !set_mac(k, mac))
        return -1;
    return sealing || (k == &t->keys[0] && !once) ? 1 : 2;
}

void tls_tickets_wipe(struct tls_tickets *t)
{
    OPENSSL_cleanse(t, sizeof *t);
}
