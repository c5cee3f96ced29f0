// SPDX-License-Identifier: Apache-2.0
/* session_mac.h -- the MACs of a session: of its server's events, and of its saved state.
 *
 * A server signs each chunk together with the MAC of the one before, so that none can be left out,
 * changed, or put in by somebody who has not the session's secret (docs/protocols/sessions.md):
 *
 *     mac key = HKDF-SHA256(secret: 32 bytes, salt: idempotency key, info: "tidemark session mac")
 *     mac 0   = 32 zero bytes
 *     mac i   = HMAC-SHA256(mac key, mac i-1 | the i-th chunk's bytes in front of its MAC field)
 *
 * Functions return 0, or TM_E_NOMEM when OpenSSL cannot. */
#ifndef CLIENT_SESSION_MAC_H
#define CLIENT_SESSION_MAC_H

#include "base/str.h"

#include <stdint.h>

#define MAC_SIZE    32 /* of a MAC, and of its key */
#define SECRET_SIZE 32

int smac_derive(const uint8_t secret[SECRET_SIZE], struct str idempotency_key,
                uint8_t key[MAC_SIZE]);
/* HKDF-SHA256; salt n == 0: none. */
int smac_hkdf(const uint8_t secret[SECRET_SIZE], struct str salt, struct str info,
              uint8_t key[MAC_SIZE]);
int smac_chain(const uint8_t key[MAC_SIZE], const uint8_t before[MAC_SIZE], struct str covered,
               uint8_t out[MAC_SIZE]);
int smac_sign(const uint8_t key[MAC_SIZE], struct str bytes, uint8_t out[MAC_SIZE]);
/* In a time that does not depend on where they differ. */
bool smac_same(const uint8_t a[MAC_SIZE], const uint8_t b[MAC_SIZE]);

#endif
