// SPDX-License-Identifier: Apache-2.0
/* backoff.h -- how long to wait before the next try. */
#ifndef BASE_BACKOFF_H
#define BASE_BACKOFF_H

#include <stdint.h>

/* After so many failures in a row, from 1 on: first_ms, doubled each time, at most most_ms. */
static inline uint64_t backoff_ms(uint64_t first_ms, uint64_t most_ms, uint32_t failures)
{
    uint64_t ms = first_ms;
    while (failures-- > 1 && ms < most_ms)
        ms *= 2;
    return ms < most_ms ? ms : most_ms;
}

/* Up to one part of it less or more, so that those who failed together do not come back
 * together. */
static inline uint64_t backoff_jitter(uint64_t ms, uint64_t parts, uint64_t random)
{
    return ms - ms / parts + random % (2 * (ms / parts) + 1);
}

#endif
