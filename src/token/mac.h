// SPDX-License-Identifier: Apache-2.0
/* mac.h -- HMAC-SHA256 with a kept key, and keys of their own for every purpose.
 *
 * One thread at a time per struct mac. Nothing here can fail but for lack of memory or a broken
 * OpenSSL, and then the process aborts: a token that was not checked must not pass. */
#ifndef TOKEN_MAC_H
#define TOKEN_MAC_H

#include "base/str.h"

#include <stdint.h>

#define MAC_SIZE     32 /* of a tag */
#define MAC_KEY_SIZE 32 /* of a root or subkey */

struct mac;

struct mac *mac_new(struct str key); /* the key is copied; any length */
void mac_free(struct mac *m);        /* wipes the key; NULL is allowed */

/* The tag over the parts, one behind the other. Where the parts end is not covered: a caller whose
 * parts vary in length puts the lengths in. */
void mac_sign(struct mac *m, const struct str *parts, size_t n, uint8_t tag[MAC_SIZE]);

/* Whether `tag` is the right one; takes the same time wherever it differs. */
bool mac_check(struct mac *m, const struct str *parts, size_t n, struct str tag);

/* Compares in a time that depends on the lengths only. */
bool mac_equal(struct str a, struct str b);

/* The key for one purpose ("callback", "cursor"): knowing it tells nothing about the root's other
 * keys. The same root and purpose give the same key for ever. */
void mac_subkey(const uint8_t root[MAC_KEY_SIZE], const char *purpose, uint8_t out[MAC_KEY_SIZE]);

/* HKDF-SHA256 (RFC 5869), what mac_subkey is made of. n: 1 to 255 * 32. */
void mac_hkdf(struct str secret, struct str salt, struct str info, uint8_t *out, size_t n);

#endif
