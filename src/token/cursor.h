// SPDX-License-Identifier: Apache-2.0
/* cursor.h -- issues and verifies cursors (cursor_form.h): signed rights to the next page of one
 * tool's result.
 *
 * Nothing is kept for one: all that the next page needs is in the cursor, and whoever holds the key
 * can tell whether it is one.
 *
 * Pure but for the arena. One thread at a time per issuer. */
#ifndef TOKEN_CURSOR_H
#define TOKEN_CURSOR_H

#include "base/buf.h"
#include "base/sha256.h"
#include "base/str.h"
#include "token/cursor_form.h"

#include <stdint.h>

struct arena;

struct cursor_issuer;

/* Both are copied. Servers that share the key and the session take each other's cursors; one that
 * draws its session at its start ends those of its earlier life. */
struct cursor_issuer *cursor_issuer_new(const uint8_t key[CURSOR_KEY_SIZE],
                                        const uint8_t session[CURSOR_SESSION_SIZE]);
/* The same with cursors of this format; the one above issues CURSOR_TIDEMARK. */
struct cursor_issuer *cursor_issuer_new_as(enum cursor_format format,
                                           const uint8_t key[CURSOR_KEY_SIZE],
                                           const uint8_t session[CURSOR_SESSION_SIZE]);
enum cursor_format cursor_issuer_format(const struct cursor_issuer *i);
void cursor_issuer_free(struct cursor_issuer *i); /* wipes the key; NULL is allowed */

/* Appends the cursor, or leaves *out as it was where cursor_form_check says why not. The format is
 * the issuer's, whatever the payload says; so it is in cursor_verify. */
enum cursor_verdict cursor_issue(const struct cursor_issuer *i, const struct cursor_payload *p,
                                 struct buf *out);

/* CURSOR_OK and what the cursor says, its strings in *a. TOOL, CALLER and ARGS set *out as well, so
 * that it can be said what differs; otherwise *out stays as it was. See cursor_form_judge. */
enum cursor_verdict cursor_verify(const struct cursor_issuer *i, struct arena *a, struct str cursor,
                                  const struct cursor_asked *asked, int64_t now_s, uint64_t ttl_s,
                                  struct cursor_payload *out);

/* SHA-256 of the arguments in canonical form (json_canonical.h), without the member `without` of
 * an object; STR_NONE: with all. *out stays as it was unless this is 0. ERR_JSON, ERR_TOO_LARGE. */
int cursor_fingerprint(struct str args, struct str without, uint8_t out[SHA256_SIZE]);

/* A key or session as it is configured: base64url without padding or base64 with, white space
 * around it allowed, of n bytes. ERR_SYNTAX for anything else; *got is how many bytes it had then,
 * 0 if it is not base64 at all. */
int cursor_secret_take(struct str text, uint8_t *out, size_t n, size_t *got);

#endif
