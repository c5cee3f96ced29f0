// SPDX-License-Identifier: Apache-2.0
/* bench_bulk.h -- long histories of numbered JSON events, and how fast plain GETs read them. */
#ifndef BENCH_BULK_H
#define BENCH_BULK_H

#include "bench.h"

#define BULK_EVENT_SIZE 64
#define BULK_GETTERS    4

/* Streams `phase`-0 to -(streams - 1) with so many events each. */
struct bulk {
    const char *phase;
    unsigned streams; /* that divide BULK_GETTERS */
    uint64_t events;
    uint64_t bytes; /* out of bulk_verify: of the answers' bodies that hold one whole stream */
};

void bulk_fill(struct bench *b, const struct bulk *h);

/* Every event is there, once and in order. */
void bulk_verify(struct bench *b, struct bulk *h);

/* Several connections read from start to end, each one stream, again and again for so long; once at
 * least. Returns the bytes of whole readings. */
uint64_t bulk_get(struct bench *b, const struct bulk *h, double seconds);

void bulk_delete(struct bench *b, const struct bulk *h);

#endif
