// SPDX-License-Identifier: Apache-2.0
/* hex.h -- bytes and numbers in hexadecimal, and what is written with it. */
#ifndef BASE_HEX_H
#define BASE_HEX_H

#include "base/buf.h"

#include <stdint.h>

#define HEX_U64  16
#define HEX_UUID 36

/* Of both cases: 0 to 15, or -1. */
static inline int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* 2 * n characters, lower case. */
void hex_encode(const void *bytes, size_t n, char *out);
void hex_encode_u64(uint64_t v, char out[HEX_U64]);

static inline void hex_put(struct buf *out, struct str bytes)
{
    hex_encode(bytes.p, bytes.n, buf_reserve(out, 2 * bytes.n));
    out->n += 2 * bytes.n;
}

/* All of text, which is exactly as long as n bytes take. False: it is not, or no hex. The first
 * takes both cases; the second takes lower case alone, so that bytes have one spelling. */
bool hex_decode(struct str text, void *out, size_t n);
bool hex_decode_lower(struct str text, void *out, size_t n);
bool hex_decode_u64(struct str text, uint64_t *out); /* lower case, HEX_U64 characters */

/* A UUID of version 4 out of 16 random bytes, not terminated. */
void hex_uuid(const uint8_t random[16], char out[HEX_UUID]);

/* %XX for all but unreserved characters (RFC 3986) and, if it is to be kept, the slash. out has
 * room for 3 * s.n; returns how much is used. */
size_t percent_encode(struct str s, bool keep_slash, char *out);

/* Resolves each %XX and, with `form`, makes spaces of `+`. out has room for s.n, and may be s
 * itself. False: a `%` without two digits. */
bool percent_decode(struct str s, bool form, char *out, size_t *n);

#endif
