// SPDX-License-Identifier: Apache-2.0
/* codec.h -- base64, hex and JSON texts of a session, strictly, with memory that may run out. */
#ifndef CLIENT_CODEC_H
#define CLIENT_CODEC_H

#include "base/b64.h"
#include "base/hex.h"
#include "client/client_core.h"

/* Append the text of s. 0 or TM_E_NOMEM, and then nothing was put. */
int codec_put_base64(struct tm_client *c, struct bytes *out, struct str s);    /* padded */
int codec_put_base64url(struct tm_client *c, struct bytes *out, struct str s); /* without padding */
int codec_put_hex(struct tm_client *c, struct bytes *out, struct str s);       /* lower case */
/* With the quotes; s is UTF-8. */
int codec_put_json(struct tm_client *c, struct bytes *out, struct str s);

/* Read all of text into out, which has room for b64_bytes_max(text.n) bytes, or exactly n. Only the
 * one canonical form is taken: TM_E_PROTOCOL. */
static inline int codec_take_base64(struct str text, char *out, size_t *n)
{
    return b64_decode(text, out, n) ? 0 : TM_E_PROTOCOL;
}

static inline int codec_take_base64url(struct str text, uint8_t *out, size_t n)
{
    size_t got;
    return text.n == b64url_size(n) && b64url_decode(text, out, &got) ? 0 : TM_E_PROTOCOL;
}

static inline int codec_take_hex(struct str text, uint8_t *out, size_t n)
{
    return hex_decode_lower(text, out, n) ? 0 : TM_E_PROTOCOL;
}

/* ---- reading JSON ----
 *
 * A position in a text; nothing is copied but what is asked for. All that goes wrong is
 * TM_E_PROTOCOL, or TM_E_NOMEM where memory is needed. */

struct json_read {
    struct str rest;
};

#define JSON_READ_DEPTH 32 /* of what is skipped */

char json_read_peek(struct json_read *r); /* behind white space; 0: the end, or a NUL */
int json_read_char(struct json_read *r, char c);
/* Inside an array or object whose first bracket was read: 1: another item begins. 0: `close` was
 * read. *n counts the items; 0 at first. */
int json_read_item(struct json_read *r, char close, size_t *n);
/* Appends the string, decoded. Surrogates that are no pair are refused. */
int json_read_string(struct tm_client *c, struct json_read *r, struct bytes *out);
int json_read_number(struct json_read *r, uint64_t max, uint64_t *out); /* digits alone */
int json_read_bool(struct json_read *r, bool *out);
int json_read_skip(struct json_read *r); /* a value, whatever it is */
int json_read_end(struct json_read *r);  /* nothing but white space is left */

#endif
