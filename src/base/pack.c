// SPDX-License-Identifier: Apache-2.0
#include "base/pack.h"
#include "base/err.h"

static inline char *pack_at(char *at, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        *at++ = (char)(v | 0x80);
    *at++ = (char)v;
    return at;
}

void pack_u64(struct buf *out, uint64_t v)
{
    char *at = buf_reserve(out, 10);
    out->n += (size_t)(pack_at(at, v) - at);
}

void pack_steps(struct buf *out, const uint32_t *numbers, size_t n)
{
    char *from = buf_reserve(out, n * 5), *at = from;
    for (size_t i = 0; i < n; i++)
        at = pack_at(at, numbers[i] - (i == 0 ? 0 : numbers[i - 1]));
    out->n += (size_t)(at - from);
}

void pack_i64(struct buf *out, int64_t v)
{
    pack_u64(out, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

void pack_str(struct buf *out, struct str s)
{
    pack_u64(out, s.n);
    buf_put(out, s);
}

static void pack_fail(struct unpack *u)
{
    u->err = ERR_CORRUPT;
    u->rest = STR_NONE;
}

uint64_t unpack_u64(struct unpack *u)
{
    uint64_t v = 0;
    for (size_t i = 0; i < 10 && i < u->rest.n; i++) {
        unsigned char c = (unsigned char)u->rest.p[i];
        if (i == 9 && c > 1)
            break; /* more than 64 bits */
        v |= (uint64_t)(c & 0x7f) << (7 * i);
        if (c < 0x80) {
            u->rest = str_skip(u->rest, i + 1);
            return v;
        }
    }
    pack_fail(u);
    return 0;
}

uint64_t unpack_u64_max(struct unpack *u, uint64_t max)
{
    uint64_t v = unpack_u64(u);
    if (v <= max)
        return v;
    pack_fail(u);
    return 0;
}

int64_t unpack_i64(struct unpack *u)
{
    uint64_t v = unpack_u64(u);
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

struct str unpack_str(struct unpack *u)
{
    uint64_t n = unpack_u64(u);
    if (n > u->rest.n) {
        pack_fail(u);
        return STR_NONE;
    }
    struct str s = str_of(u->rest.p, (size_t)n);
    u->rest = str_skip(u->rest, (size_t)n);
    return s;
}

bool unpack_bool(struct unpack *u)
{
    return unpack_u64_max(u, 1) == 1;
}

int unpack_end(const struct unpack *u)
{
    return u->err == 0 && u->rest.n > 0 ? ERR_CORRUPT : u->err;
}
