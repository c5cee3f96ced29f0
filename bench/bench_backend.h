// SPDX-License-Identifier: Apache-2.0
/* bench_backend.h -- an SSE backend within the load generator: it answers each POST with numbered
 * events at a fixed rate. Who sends an event and who receives it are one process with one clock, so
 * an event's way is timed without trusting anybody.
 *
 * It works in rounds. backend_expect says how many streams there will be; the requests come, each
 * with `?n=NUMBER` and a number of its own below that; backend_go starts all streams, evenly
 * staggered. When a stream has had its events its answer ends. A number that is asked for twice, or
 * a client that leaves early, fails the swarm. */
#ifndef BENCH_BACKEND_H
#define BENCH_BACKEND_H

#include "bench_hist.h"
#include "bench_swarm.h"

#include "base/list.h"

struct backend_stream {
    struct backend_conn *conn; /* NULL: not asked for yet, or its client has left */
    unsigned sent;
    uint64_t *sent_ns; /* when each event was */
};

struct backend {
    struct swarm *swarm;
    struct sockaddr_in at;
    int listen_fd, timer_fd;
    struct source listener, timer;
    struct link conns;
    struct buf event; /* as it is sent, but for its number */

    /* of this round */
    struct backend_stream *streams;
    unsigned n, asked; /* asked: those whose requests have come */
    unsigned events;   /* that each of them gets */
    uint64_t start_ns, interval_ns;
    uint64_t turn;    /* turn k: stream k modulo n gets an event */
    struct hist late; /* by how many ns events were sent later than they should have been */
};

/* Listens on a free port. event_size: bytes of JSON in an event. */
void backend_init(struct backend *b, struct swarm *s, size_t event_size);
void backend_deinit(struct backend *b);

/* Begins a round; what is left of the last one is closed. */
void backend_expect(struct backend *b, unsigned streams, unsigned events);

/* All have asked. Each gets so many events a second from now on. */
void backend_go(struct backend *b, unsigned per_second);

#endif
