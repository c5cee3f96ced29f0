// SPDX-License-Identifier: Apache-2.0
/* bench_pump.h -- requests as fast as they are answered: so many connections, each with so many
 * requests under way. What is asked, the phase says. */
#ifndef BENCH_PUMP_H
#define BENCH_PUMP_H

#include "bench.h"
#include "bench_hist.h"

#define PUMP_DEPTH_MAX 16

struct pump;

/* One connection. */
struct spout {
    struct peer peer;
    struct pump *pump;
    struct buf requests;              /* the phase's, for next(); freed by pump_close */
    uint64_t sent_ns[PUMP_DEPTH_MAX]; /* a ring: answers come in the order of the requests */
    unsigned number, oldest, under_way, owed;
    uint64_t sent, answered;
};

struct pump {
    struct bench *bench;
    unsigned n, depth;
    int status; /* that every answer must have */
    const char *what;
    bool lenient;      /* another status is counted, and no failure */
    uint64_t limit;    /* no more requests once so many are sent */
    uint64_t until_ns; /* pump_until waits no longer; 0: as long as there are answers */
    /* The bytes of the connection's next `count` (at most depth) requests, of which `first` were
     * sent before on all connections. They stay where they are until its next call. */
    struct str (*next)(struct spout *s, uint64_t first, unsigned count);
    /* One was answered. May be NULL. */
    void (*timed)(struct pump *p, uint64_t sent_ns, uint64_t answered_ns);
    void *ctx; /* the phase's */

    struct spout *spouts;
    uint64_t sent, answered, refused;
    struct hist latency;
};

/* The caller has filled in everything above `spouts`; this opens the connections. */
void pump_open(struct pump *p);

/* Sends the first requests; the others follow whenever the swarm runs. */
void pump_start(struct pump *p);

/* Waits until so many have been answered in all; not more than `limit`. */
void pump_until(struct pump *p, uint64_t answered);

/* Waits for all answers up to `limit`, or, if that was lowered, to all that was sent. */
void pump_finish(struct pump *p);

void pump_close(struct pump *p);

/* One request for each of the streams `phase`-0 to -(count - 1), as many at a time as can be: for
 * what surrounds a measurement. make() puts one at the end of `out`. */
void pump_each(struct bench *b, const char *phase, uint64_t count,
               void (*make)(struct buf *out, struct name stream, void *arg), void *arg, int status,
               const char *what);

/* The same for a part of them, with so many requests under way. It ends early at until_ns, unless
 * that is 0. */
struct pump_range {
    uint64_t first, count;
    unsigned connections, depth;
    uint64_t until_ns;
    bool heads; /* requests are HEADs */
};
void pump_range(struct bench *b, const char *phase, struct pump_range range,
                void (*make)(struct buf *out, struct name stream, void *arg), void *arg, int status,
                const char *what);

/* Deletes them. A server of ours is about to end, and what it holds goes with it: nothing is done
 * then. */
void pump_delete(struct bench *b, const char *phase, uint64_t count);

#endif
