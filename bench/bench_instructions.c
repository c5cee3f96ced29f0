// SPDX-License-Identifier: Apache-2.0
/* Instructions per operation: the server runs under callgrind twice with different counts; the
 * difference is free of start, connecting and end. */
#include "bench.h"

#define APPENDS_FEW  1000
#define APPENDS_MANY 6000
#define READERS      500
#define EVENTS_FEW   10
#define EVENTS_MANY  60
#define CHUNKS_FEW   500
#define CHUNKS_MANY  2500

static void appends(struct bench *b, uint64_t count)
{
    run_appends(b, count);
}

static void deliveries(struct bench *b, uint64_t count)
{
    run_deliveries(b, READERS, count);
}

static int total(struct bench *b, void (*work)(struct bench *b, uint64_t count), uint64_t count,
                 uint64_t *out)
{
    *out = 0;
    if (bench_begin(b) != 0)
        return -1;
    work(b, count);
    if (bench_end(b, out) != 0)
        return -1;
    if (*out == 0)
        swarm_fail(&b->swarm, "valgrind did not say how many instructions it counted");
    return b->swarm.failed ? -1 : 0;
}

static int compare(struct bench *b, const char *key, void (*work)(struct bench *b, uint64_t count),
                   uint64_t few, uint64_t many, double per_count)
{
    uint64_t low, high;
    progress("%s: under callgrind, %llu and %llu times", key, (unsigned long long)few,
             (unsigned long long)many);
    if (total(b, work, few, &low) != 0 || total(b, work, many, &high) != 0)
        return -1;
    double each = ((double)high - (double)low) / (double)(many - few) / per_count;
    report_add(&b->report, key, each);
    return 0;
}

/* A delivery bears its part, one 500th, of the append that caused it. */
int count_instructions(struct bench *b)
{
    if (compare(b, "instructions-append", appends, APPENDS_FEW, APPENDS_MANY, 1) != 0)
        return -1;
    if (compare(b, "instructions-delivery", deliveries, EVENTS_FEW, EVENTS_MANY, READERS) != 0)
        return -1;
    return compare(b, "instructions-chunk", run_chunks, CHUNKS_FEW, CHUNKS_MANY, 1);
}
