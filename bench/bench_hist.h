// SPDX-License-Identifier: Apache-2.0
/* bench_hist.h -- latencies in buckets that are at most a sixteenth too wide. Zero-initialised is
 * empty.
 */
#ifndef BENCH_HIST_H
#define BENCH_HIST_H

#include <stdint.h>

#define HIST_BUCKETS (64 * 16)

struct hist {
    uint64_t n;
    uint64_t counts[HIST_BUCKETS];
};

static inline unsigned hist_bucket(uint64_t v)
{
    if (v < 16)
        return (unsigned)v;
    unsigned top = 63 - (unsigned)__builtin_clzll(v);
    return (top - 3) * 16 + (unsigned)((v >> (top - 4)) & 15);
}

static inline void hist_add(struct hist *h, uint64_t v)
{
    h->counts[hist_bucket(v)]++;
    h->n++;
}

/* The least value of the bucket that holds the given part (0 to 1) of all values. */
static inline uint64_t hist_at(const struct hist *h, double part)
{
    uint64_t want = (uint64_t)(part * (double)h->n), sum = 0;
    for (unsigned i = 0; i < HIST_BUCKETS; i++) {
        sum += h->counts[i];
        if (sum > want)
            return i < 16 ? i : (uint64_t)(16 + i % 16) << (i / 16 - 1);
    }
    return 0;
}

#endif
