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

#endif
