// SPDX-License-Identifier: Apache-2.0
/* usage.h -- how many streams there are below a root, and how many bytes they hold.
 *
 * Nothing is kept on disk: the store is asked. A root is counted by listing its names, page by
 * page, when it is first used, and again every USAGE_RECOUNT_MS while it is. In between, what this
 * process has written itself is added; what other processes have, is seen at the next count. Bytes
 * are those that can be read: a fork counts with all that it has of its source.
 *
 *     usage_take --> fits --> granted, and reserved until usage_settle
 *         |           `--> does not, by a fresh count --> refused
 *         `--> not counted yet, or only by an old count --> counted first; then done()
 *
 * So nobody is refused because of what was deleted meanwhile. A root that is not used for a while
 * is forgotten. Loop thread only. */
#ifndef STREAM_USAGE_H
#define STREAM_USAGE_H

#include "base/list.h"
#include "base/str.h"

#include <stdint.h>

struct sched;
struct store;

#define USAGE_RECOUNT_MS 10000
#define USAGE_FRESH_MS   1000
#define USAGE_IDLE_MS    60000

enum usage_answer {
    USAGE_GRANTED,
    USAGE_REFUSED,
    USAGE_WAITS, /* done() comes */
};

/* Embedded by whoever is about to write; kept until it is settled, or refused. */
struct usage_claim {
    struct str root;
    uint64_t streams, bytes;         /* that it would add */
    uint64_t streams_max, bytes_max; /* 0: any number */
    void (*done)(struct usage_claim *c, enum usage_answer answer);
    struct usage_root *of; /* private: granted by it; NULL: not granted */
    struct link link;      /* private */
};

struct usage;
struct usage *usage_new(struct sched *sched, struct store *store);
void usage_stop(struct usage *u); /* before the store: nothing is counted from now on. NULL: none */
void usage_free(struct usage *u); /* the store has stopped, nothing is claimed. NULL is allowed */

enum usage_answer usage_take(struct usage *u, struct usage_claim *c);

/* Of what was granted this much was written. Does nothing if nothing was. */
void usage_settle(struct usage *u, struct usage_claim *c, uint64_t streams, uint64_t bytes);

/* Something below the root was deleted. */
void usage_deleted(struct usage *u, struct str root);

#endif
