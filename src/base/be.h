// SPDX-License-Identifier: Apache-2.0
/* be.h -- numbers of 1 to 8 bytes, the highest first: as cursors and protocols have them. */
#ifndef BASE_BE_H
#define BASE_BE_H

#include <stddef.h>
#include <stdint.h>

static inline void be_put(uint8_t *out, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(v >> 8 * (n - 1 - i));
}

static inline uint64_t be_get(const uint8_t *from, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v = v << 8 | from[i];
    return v;
}

#endif
