// SPDX-License-Identifier: Apache-2.0
/* session_seal.h -- what a session stores, sealed under the key that its client holds.
 *
 * From the client's 32 bytes come, by HKDF-SHA256 (RFC 5869), keys of their own:
 *
 *     name    salt             info                       for
 *     check   the session's    "tidemark session check"   stored, to know the key again; it is also
 *                                                          the commitment to it, which GCM lacks:
 *                                                          two keys with one check value would be a
 *                                                          collision of SHA-256
 *     in      the session's    "tidemark session in"      AES-256-GCM of what the client sent
 *     out     the session's    "tidemark session out"     AES-256-GCM of what the server sent
 *     mac     idempotency key  "tidemark session mac"     HMAC-SHA256 of server events; a client
 *                                                          can make it by itself
 *
 * The session's salt is 16 random bytes, drawn when it is created and stored in the clear, so that
 * another life of the same name has other keys even under the same secret.
 *
 * A record of a session's stream:
 *
 *     u32 n         bytes behind this number
 *     u8  type      enum session_record_type
 *     u64 a         CHUNK: its seqno. EVENT: ordinal of the `in` record that it answers
 *     12  nonce     random: at most 2^32 records a key keep a repetition out of reach, and no crash
 *                   can bring a used one back, as it could a counter
 *     ..  AES-256-GCM of the content
 *     16  its tag
 *
 * Numbers are little-endian. Sealed with it, though not all stored, is where it belongs, so that no
 * record can be moved, swapped or taken from elsewhere. The associated data:
 *
 *     u8  direction   0: in, 1: out
 *     u64 ordinal     the record's, in its stream
 *     13  the bytes before the nonce
 *     ..  the idempotency key */
#ifndef FEATURE_SESSIONS_SESSION_SEAL_H
#define FEATURE_SESSIONS_SESSION_SEAL_H

#include "base/buf.h"
#include "base/str.h"

#include <stdint.h>

#define SESSION_SECRET_SIZE 32
#define SESSION_SALT_SIZE   16
#define SESSION_CHECK_SIZE  32
#define SESSION_MAC_SIZE    32
#define SESSION_SEAL_EXTRA  (4 + 1 + 8 + 12 + 16) /* bytes of a record besides its content */

enum session_direction { SESSION_IN = 0, SESSION_OUT = 1 }; /* also in what is sealed */

enum session_record_type {
    SESSION_RECORD_CHUNK = 1, /* in */
    SESSION_RECORD_ABORT = 2,
    SESSION_RECORD_CLOSE = 3,
    SESSION_RECORD_EVENT = 4, /* out */
    SESSION_RECORD_MOVED = 5, /* in: from here on another process has the session; no content */
};

/* The secret as header text: 43 characters of base64url or base64, with or without the `=` behind
 * them. ERR_SYNTAX. */
int session_secret_parse(struct str text, uint8_t out[SESSION_SECRET_SIZE]);

void session_check(const uint8_t secret[SESSION_SECRET_SIZE], const uint8_t salt[SESSION_SALT_SIZE],
                   uint8_t out[SESSION_CHECK_SIZE]);

/* The keys of one session, ready for use. name: its key as it is stored; of that the MACs of
 * events know the client's part alone. Wiped when freed. One thread at a time. */
struct session_keys;
struct session_keys *session_keys_new(const uint8_t secret[SESSION_SECRET_SIZE],
                                      const uint8_t salt[SESSION_SALT_SIZE], struct str name);
void session_keys_free(struct session_keys *k); /* NULL is allowed */

/* One record out of stored bytes, still sealed. */
struct session_record {
    enum session_record_type type;
    uint64_t a;
    struct str sealed; /* nonce, ciphertext, tag */
    struct str head;   /* the bytes before: a part of what is authenticated */
};

/* Appends a record that is to be the ordinal-th of its stream. */
void session_seal(struct session_keys *k, enum session_direction direction, uint64_t ordinal,
                  enum session_record_type type, uint64_t a, struct str content, struct buf *out);

/* Cuts the first record off *rest. ERR_CORRUPT: it is none, or not all of it is there. */
int session_record_cut(struct str *rest, struct session_record *out);

/* Appends the content. ERR_CORRUPT: it was not sealed so; nothing is appended. */
int session_open(struct session_keys *k, enum session_direction direction, uint64_t ordinal,
                 const struct session_record *r, struct buf *out);

/* The chain of MACs over server events: each covers the one before, so that a client that keeps the
 * last one can prove that nothing was left out, changed, or put in by somebody else.
 *
 *     mac 0 = 32 zero bytes
 *     mac i = HMAC-SHA256(mac key, mac i-1 | covered bytes of the i-th server chunk) */
void session_chain(struct session_keys *k, const uint8_t before[SESSION_MAC_SIZE],
                   struct str covered, uint8_t out[SESSION_MAC_SIZE]);

#endif
