// SPDX-License-Identifier: Apache-2.0
/* watch.h -- says what operators must hear of and what would otherwise be seen by clients alone:
 * that the store is unwell, that it refuses writes, that answers and sessions go on without it.
 *
 * Once a second it looks at numbers that others count. A change of health is told at once; of
 * what is refused or degraded the first is told, and then how many there were, once a minute. */
#ifndef APP_WATCH_H
#define APP_WATCH_H

#include "base/sched.h"
#include "store/store.h"

struct gateway;
struct sessions;
struct trace;

enum { WATCH_ANSWERS = STORE_TROUBLE_KINDS, WATCH_SESSIONS, WATCH_KINDS };

struct watch {
    /* Set before watch_start. */
    struct sched *sched;
    struct store *store;
    const struct gateway *gateway;
    const struct sessions *sessions;
    const struct trace *trace;
    /* private */
    struct timer tick;
    int health; /* as it was told */
    struct watch_seen {
        uint64_t n, told_ms;
        bool told;
    } seen[WATCH_KINDS];
};

void watch_start(struct watch *w);
void watch_stop(struct watch *w); /* before what it looks at goes */

#endif
