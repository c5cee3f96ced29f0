// SPDX-License-Identifier: Apache-2.0
/* bench_swarm.h -- many client connections on one epoll, in one thread.
 *
 * The first thing that goes wrong is kept as a sentence in `failure`; every later call on the
 * swarm then does nothing, so that phases check once at their end. */
#ifndef BENCH_SWARM_H
#define BENCH_SWARM_H

#include "bench_answer.h"

#include <netinet/in.h>
#include <stdint.h>

#define SWARM_SCRATCH (256 * 1024)

struct swarm {
    int epoll;
    struct sockaddr_in to;
    struct sockaddr_in also; /* every other connection goes there; sin_family 0: none does */
    bool to_also;
    char *scratch;       /* what a read brings, for as long as it is handled */
    unsigned patience_s; /* of swarm_run */
    bool failed;
    char failure[256];
};

/* Something else that the swarm's epoll waits for. It stays where it is while it is watched, and
 * must not be closed while what another one brought is handled. */
struct source {
    void (*ready)(struct source *s, uint32_t events);
};

struct peer;

/* Each may be NULL. `after` runs once per read, when all that it brought has been handled. */
struct peer_ops {
    void (*head)(struct peer *p);
    void (*body)(struct peer *p, struct str piece);
    void (*end)(struct peer *p);
    void (*after)(struct peer *p);
};

/* One connection. Embedded in what a phase keeps per connection; stays where it is while open. */
struct peer {
    struct source source;
    struct swarm *swarm;
    const struct peer_ops *ops;
    int fd; /* -1: closed */
    bool waits_to_write;
    struct answer answer;
    struct str out; /* borrowed bytes that the kernel has not taken yet */
};

int swarm_init(struct swarm *s, struct sockaddr_in to);
void swarm_deinit(struct swarm *s);
void swarm_fail(struct swarm *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Handles what arrives until done(arg) or a failure; that it takes longer than patience_s is one.
 * awaited: what done() waits for, to go into the sentence. */
#define SWARM_PATIENCE_S 30 /* at first */
void swarm_run(struct swarm *s, const char *awaited, bool (*done)(void *arg), void *arg);

/* Handles what arrives for a while. */
void swarm_run_for(struct swarm *s, double seconds);

/* Watches a descriptor, or watches it for other events; closing it ends that. */
void swarm_watch(struct swarm *s, int fd, uint32_t events, struct source *source);
void swarm_rewatch(struct swarm *s, int fd, uint32_t events, struct source *source);

/* A socket that connects in the background and resets the connection when it is closed; -1 if there
 * is none, which fails the swarm. */
int swarm_connect(struct swarm *s);

/* Starts connecting, in the background. */
void peer_open(struct peer *p, struct swarm *s, const struct peer_ops *ops);

/* Resets the connection (no TIME-WAIT remains, or a few runs would use up all ports). A peer that
 * was never opened must be zeroed with fd -1; closing twice is harmless. */
void peer_close(struct peer *p);

/* Sends bytes that stay valid until they are gone. Only when nothing is left of the last ones. */
void peer_send(struct peer *p, struct str bytes);

/* Fails the swarm unless the answer has this status. */
bool peer_expect(struct peer *p, int status, const char *what);

#endif
