// SPDX-License-Identifier: Apache-2.0
/* turns.h -- how long the loop's turns take, and what held those that took too long: two metrics,
 * and now and then a trace. A turn is measured in the thread's time, so that a busy machine does
 * not look like a slow server. */
#ifndef APP_TURNS_H
#define APP_TURNS_H

#include "telemetry/metrics.h"

struct loop;
struct trace;

struct turns {
    /* Set before turns_init. */
    struct loop *loop;
    const struct trace *trace;
    /* private */
    struct histogram seconds;
    struct metric_family *blocked;
    uint64_t quiet_until_ms; /* no trace before */
};

#define TURN_BLOCKED_US 10000  /* counted */
#define TURN_TOLD_US    100000 /* traced, once in TURN_QUIET_MS */
#define TURN_QUIET_MS   10000

/* Registers the metrics and listens to the loop, until the loop's end. */
void turns_init(struct turns *t, struct metrics *m);

/* For tests: a turn took so long, and this took the longest of it. */
void turns_count(void *turns, uint64_t us, const char *work);

#endif
