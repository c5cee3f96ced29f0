// SPDX-License-Identifier: Apache-2.0
/* b64.h -- base64 (padded, RFC 4648 section 4) and base64url (no padding, section 5). */
#ifndef BASE_B64_H
#define BASE_B64_H

#include "base/buf.h"
#include "base/err.h"

#include <stdint.h>

/* Characters of n bytes, padded and not; and how many bytes n characters stand for at most. */
static inline size_t b64_size(size_t n)
{
    return n / 3 * 4 + (n % 3 > 0 ? 4 : 0);
}

static inline size_t b64url_size(size_t n)
{
    return n / 3 * 4 + (n % 3 > 0 ? n % 3 + 1 : 0);
}

static inline size_t b64_bytes_max(size_t n)
{
    return n / 4 * 3 + (n % 4 > 0 ? 2 : 0);
}

/* Into room that is large enough; they return what is used of it. */
size_t b64_encode(struct str bytes, char *out);
size_t b64url_encode(struct str bytes, char *out);

/* Strict: padded (the first) or not (the second), no other characters, unused tail bits zero, so
 * that a value has one spelling. `out` has room for b64_bytes_max and may be the text itself. */
bool b64_decode(struct str text, void *out, size_t *n);
bool b64url_decode(struct str text, void *out, size_t *n);

/* The same, appended to a buffer. ERR_SYNTAX leaves *out as it was. */
static inline void b64_put(struct buf *out, struct str bytes)
{
    out->n += b64_encode(bytes, buf_reserve(out, b64_size(bytes.n)));
}

static inline void b64url_put(struct buf *out, struct str bytes)
{
    out->n += b64url_encode(bytes, buf_reserve(out, b64url_size(bytes.n)));
}

static inline int b64_take(struct buf *out, struct str text)
{
    size_t n;
    if (!b64_decode(text, buf_reserve(out, b64_bytes_max(text.n)), &n))
        return ERR_SYNTAX;
    out->n += n;
    return 0;
}

static inline int b64url_take(struct buf *out, struct str text)
{
    size_t n;
    if (!b64url_decode(text, buf_reserve(out, b64_bytes_max(text.n)), &n))
        return ERR_SYNTAX;
    out->n += n;
    return 0;
}

#endif
