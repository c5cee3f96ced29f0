// SPDX-License-Identifier: Apache-2.0
/* tls_tickets.h -- the keys that session tickets are sealed with. */
#ifndef NET_TLS_TICKETS_H
#define NET_TLS_TICKETS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

#define TLS_TICKET_KEY_S  (12 * 60 * 60) /* a key seals for so long, and opens for twice that */
#define TLS_TICKET_LIFE_S (12 * 60 * 60)

struct tls_ticket_key {
    uint8_t name[16], cipher[32], mac[32]; /* AES-256-CBC, HMAC-SHA-256 */
    int64_t made_s;                        /* monotonic; 0: there is none */
};

struct tls_tickets {
    struct tls_ticket_key keys[2]; /* the present one, the one before */
};

/* The key to seal with, made anew when it is time. NULL: no random numbers to be had. */
const struct tls_ticket_key *tls_tickets_sealing(struct tls_tickets *t, int64_t now_s);

/* The key of that name; NULL: it is not, or no longer, known. */
const struct tls_ticket_key *tls_tickets_opening(const struct tls_tickets *t,
                                                 const uint8_t name[16], int64_t now_s);

/* What OpenSSL's callback for ticket keys is to return. once: whoever opens a ticket is given a new
 * one, and not only when the key has changed since. */
int tls_tickets_apply(struct tls_tickets *t, uint8_t name[16], uint8_t *iv, EVP_CIPHER_CTX *cipher,
                      EVP_MAC_CTX *mac, bool sealing, bool once, int64_t now_s);

void tls_tickets_wipe(struct tls_tickets *t);

#endif
