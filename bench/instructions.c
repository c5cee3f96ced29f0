// SPDX-License-Identifier: Apache-2.0
/* Instructions per operation: the server runs under callgrind twice with different counts; the
 * difference is free of start, connecting and end. */
#include "bench.h"

#define APPENDS_FEW  1000
#define APPENDS_MANY 6000
#define READERS      500
#define EVENTS_FEW   10
#define EVENTS_MANY  60

static void appends(struct bench *b, uint64_t count)
{
    run_appends(b, count);
}

static void deliveries(struct bench *b, uint64_t count)
{
    run_deliveries(b, READERS, count);
}

static int total(struct bench *b, const struct server_plan *plan,
                 void (*work)(struct bench *b, uint64_t count), uint64_t count, uint64_t *out)
{
    struct server_plan counted = *plan;
    counted.callgrind = true;
    if (server_start(&b->server, &counted) != 0)
        return -1;
    b->swarm.to = b->server.at;
    work(b, count);
    if (server_stop(&b->server, out) != 0)
        return -1;
    if (*out == 0)
        swarm_fail(&b->swarm, "valgrind did not say how many instructions it counted");
    return b->swarm.failed ? -1 : 0;
}

static int compare(struct bench *b, const struct server_plan *plan, const char *key,
                   void (*work)(struct bench *b, uint64_t count), uint64_t few, uint64_t many,
                   double per_count)
{
    uint64_t low, high;
    progress("%s: under callgrind, %llu and %llu times", key, (unsigned long long)few,
             (unsigned long long)many);
    if (total(b, plan, work, few, &low) != 0 || total(b, plan, work, many, &high) != 0)
        return -1;
    double each = ((double)high - (double)low) / (double)(many - few) / per_count;
    report_add(&b->report, key, each);
    return 0;
}

/* A delivery bears its part, one 500th, of the append that caused it. */
int count_instructions(struct bench *b, const struct server_plan *plan)
{
    if (compare(b, plan, "instructions-append", appends, APPENDS_FEW, APPENDS_MANY, 1) != 0)
        return -1;
    return compare(b, plan, "instructions-delivery", deliveries, EVENTS_FEW, EVENTS_MANY, READERS);
}
