// SPDX-License-Identifier: Apache-2.0
#include "token/cbor.h"
#include "base/err.h"
#include "base/utf8.h"

/* The top three bits of an item's first byte. The other five are the number itself up to 23, or
 * say in how many bytes it follows: 24 in one, 25 in two, 26 in four, 27 in eight. */
enum type { TYPE_UINT = 0, TYPE_BYTES = 2, TYPE_TEXT = 3, TYPE_ARRAY = 4, TYPE_MAP = 5 };

#define INFO_BITS   5
#define INFO_INLINE 23
#define INFO_ONE    24
#define INFO_EIGHT  27

size_t cbor_head_size(uint64_t v)
{
    if (v <= INFO_INLINE)
        return 1;
    if (v <= UINT8_MAX)
        return 2;
    if (v <= UINT16_MAX)
        return 3;
    return v <= UINT32_MAX ? 5 : CBOR_HEAD_MAX;
}

static void cbor_put_head(struct cbor_out *out, enum type type, uint64_t v)
{
    size_t n = cbor_head_size(v) - 1;
    unsigned char *to = (unsigned char *)out->p + out->n;
    unsigned info = n == 0 ? (unsigned)v : INFO_ONE + (unsigned)__builtin_ctzll(n);
    to[0] = (unsigned char)((unsigned)type << INFO_BITS | info);
    for (size_t i = n; i > 0; i--, v >>= 8)
        to[i] = (unsigned char)v;
    out->n += 1 + n;
}

static void cbor_put_string(struct cbor_out *out, enum type type, struct str s)
{
    cbor_put_head(out, type, s.n);
    if (s.n > 0)
        memcpy(out->p + out->n, s.p, s.n);
    out->n += s.n;
}

void cbor_put_uint(struct cbor_out *out, uint64_t v)
{
    cbor_put_head(out, TYPE_UINT, v);
}

void cbor_put_bytes(struct cbor_out *out, struct str s)
{
    cbor_put_string(out, TYPE_BYTES, s);
}

void cbor_put_text(struct cbor_out *out, struct str s)
{
    cbor_put_string(out, TYPE_TEXT, s);
}

void cbor_put_map(struct cbor_out *out, uint64_t n)
{
    cbor_put_head(out, TYPE_MAP, n);
}

void cbor_put_array(struct cbor_out *out, uint64_t n)
{
    cbor_put_head(out, TYPE_ARRAY, n);
}

/* ---- reading ---- */

static uint64_t cbor_fail(struct cbor_in *in)
{
    in->err = ERR_SYNTAX;
    in->rest.n = 0;
    return 0;
}

static uint64_t cbor_take_head(struct cbor_in *in, enum type type)
{
    const unsigned char *p = (const unsigned char *)in->rest.p;
    if (in->rest.n == 0 || (unsigned)p[0] >> INFO_BITS != (unsigned)type)
        return cbor_fail(in);
    unsigned info = p[0] & ((1u << INFO_BITS) - 1);
    size_t n = info >= INFO_ONE ? (size_t)1 << (info - INFO_ONE) : 0;
    if (info > INFO_EIGHT || in->rest.n <= n)
        return cbor_fail(in);
    uint64_t v = info;
    if (n > 0)
        v = 0;
    for (size_t i = 1; i <= n; i++)
        v = v << 8 | p[i];
    if (cbor_head_size(v) != 1 + n)
        return cbor_fail(in);
    in->rest = str_skip(in->rest, 1 + n);
    return v;
}

static struct str take_string(struct cbor_in *in, enum type type)
{
    uint64_t n = cbor_take_head(in, type);
    if (n > in->rest.n)
        n = cbor_fail(in);
    struct str s = str_of(in->rest.p, (size_t)n);
    in->rest = str_skip(in->rest, (size_t)n);
    return s;
}

uint64_t cbor_take_uint(struct cbor_in *in)
{
    return cbor_take_head(in, TYPE_UINT);
}

struct str cbor_take_bytes(struct cbor_in *in)
{
    return take_string(in, TYPE_BYTES);
}

struct str cbor_take_text(struct cbor_in *in)
{
    struct str s = take_string(in, TYPE_TEXT);
    if (!utf8_valid(s)) {
        cbor_fail(in);
        s.n = 0;
    }
    return s;
}

uint64_t cbor_take_map(struct cbor_in *in)
{
    return cbor_take_head(in, TYPE_MAP);
}

uint64_t cbor_take_array(struct cbor_in *in)
{
    return cbor_take_head(in, TYPE_ARRAY);
}

int cbor_end(const struct cbor_in *in)
{
    if (in->err != 0)
        return in->err;
    return in->rest.n == 0 ? 0 : ERR_SYNTAX;
}
