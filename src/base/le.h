// SPDX-License-Identifier: Apache-2.0
/* le.h -- numbers in file formats: little-endian whatever the machine is, at any address. */
#ifndef BASE_LE_H
#define BASE_LE_H

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LE_U32(v) (v)
#define LE_U64(v) (v)
#else
#define LE_U32(v) __builtin_bswap32(v)
#define LE_U64(v) __builtin_bswap64(v)
#endif

static inline void le_put_u32(char *out, uint32_t v)
{
    v = LE_U32(v);
    memcpy(out, &v, sizeof v);
}

static inline void le_put_u64(char *out, uint64_t v)
{
    v = LE_U64(v);
    memcpy(out, &v, sizeof v);
}

static inline uint32_t le_get_u32(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return LE_U32(v);
}

static inline uint64_t le_get_u64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return LE_U64(v);
}

#endif
