// SPDX-License-Identifier: Apache-2.0
/* unsent.h -- what answers hold until their peers take it: bounded for the whole server, and for
 * each connection by its share of that.
 *
 * Two things count. What is queued because the peer does not take it: transports say how much, and
 * nobody waits for that. And what a handler reserves before it reads something to put
 * (exchange_reserve). A reservation that does not fit waits: those of one connection in their
 * order, and connections take turns. What is larger than a share, one large event, is counted
 * apart: a slow reader of it holds up nobody but others of its kind.
 *
 *     reserve --fits--> reserved --reserve(0), exchange over--> gone
 *        |                 ^
 *        +--> waiting -----+  and the exchange is woken
 *
 * While somebody waits because others hold all there is, these have to take it: a connection that
 * takes less than a quarter of what it holds, and less than one pull, from one look to the next is
 * cut off. */
#ifndef HTTP_UNSENT_H
#define HTTP_UNSENT_H

#include "base/sched.h"

#include <stddef.h>

struct budget;
struct reservation;
struct unsent_share; /* a connection's: it keeps a pointer, NULL while it has none */

struct unsent {
    struct sched *sched;
    struct budget *budget; /* NULL: no bound */
    size_t held, large;    /* in shares; and apart from them */
    struct link turns;     /* of the connections that wait for the whole server's room */
    struct link queue;     /* of large reservations that wait */
    struct task grant;
    uint64_t waiting; /* reservations */

    struct link shares, unlooked; /* all there are; those that this look has not come to */
    struct timer look;            /* runs while somebody waits */
    void (*cut)(struct unsent_share **of);
};

void unsent_init(struct unsent *u, struct sched *sched);

/* What is queued for the peer, and not taken, is so much now. */
void unsent_queued(struct unsent *u, struct unsent_share **of, size_t bytes);

/* The peer has taken so much that may not have been told as queued before. */
void unsent_took(struct unsent_share *s, size_t bytes);

/* So much is queued that no further request should add to it. */
bool unsent_full(const struct unsent *u, const struct unsent_share *s);

/* Whose a reservation is. */
struct unsent_user {
    struct unsent_share **of;
    void (*granted)(void *ctx); /* from the schedule */
    void *ctx;
};

/* *r: NULL, or what it has; then user is ignored. See exchange_reserve. */
bool unsent_reserve(struct unsent *u, struct reservation **r, const struct unsent_user *user,
                    size_t bytes);
void unsent_give_back(struct unsent *u, struct reservation **r);

#endif
