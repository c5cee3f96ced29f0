// SPDX-License-Identifier: Apache-2.0
/* bench_steady.h -- a steady load of appends, by a process of its own, while something else goes
 * on.
 *
 * The load is open: request k is due at the start plus k times the interval, and it is sent then,
 * whatever has been answered. Its latency counts from when it was due. So a server that stands
 * still for a second makes a second's worth of requests late, and not just one. Requests go to the
 * connections in turn and are pipelined there. */
#ifndef BENCH_STEADY_H
#define BENCH_STEADY_H

#include "bench.h"
#include "bench_hist.h"

#include <sys/types.h>

#define STEADY_PER_SECOND 5000
#define STEADY_SETTLE_S   0.5 /* that steady_begin takes */

/* Of the requests that were due between steady_begin and steady_end. */
struct steady_figures {
    struct hist latency;      /* ns */
    struct hist lag;          /* ns by which requests were sent later than they were due */
    uint64_t max_ns, lag_max; /* ns */
};

struct steady {
    struct steady_shared *shared; /* with the process */
    pid_t pid;
};

struct steady_plan {
    unsigned per_second; /* requests, at most a million */
    const char *type;    /* of the streams and of each append; further headers may follow it, each
                            behind a CRLF */
    const char *varied;  /* a text in those in whose place each append has a number of its own, of
                            as many digits; NULL: all are alike */
    bool refused;        /* reads, all of which are to be answered 401 or 429 */
    bool last;           /* others of our processes go before it */
};

/* Starts the load against the server and begins to count when it has settled. */
void steady_begin(struct steady *s, struct bench *b, const struct steady_plan *plan);

/* Ends it and waits for the last answers. What went wrong there fails the swarm. */
void steady_end(struct steady *s, struct bench *b, struct steady_figures *out);

static inline double steady_p999_us(const struct steady_figures *f)
{
    return (double)hist_at(&f->latency, 0.999) / 1e3;
}

#endif
