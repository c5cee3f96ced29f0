// SPDX-License-Identifier: Apache-2.0
/* watch.h -- says what operators must hear of and what would otherwise be seen by clients alone:
 * that the store is unwell, that it refuses writes, and the troubles of features.
 *
 * Once a second it looks at numbers that others count. A change of health is told at once; of
 * what is refused or degraded the first is told, and then how many there were, once a minute. */
#ifndef APP_WATCH_H
#define APP_WATCH_H

#include "base/sched.h"
#include "store/store.h"

struct feature_state;
struct feature_trouble;
struct trace;

#define WATCH_TROUBLES_MAX 16 /* of all features; more are not looked at */

struct watch {
    /* Set before watch_start. */
    struct sched *sched;
    struct store *store;
    const struct feature_state *states; /* feature == NULL behind the last; NULL: none */
    const struct trace *trace;
    /* private */
    struct timer tick;
    int health; /* as it was told */
    struct watch_seen {
        uint64_t n, told_ms;
        bool told;
    } refused[STORE_TROUBLE_KINDS], troubles[WATCH_TROUBLES_MAX];
};

void watch_start(struct watch *w);
void watch_stop(struct watch *w); /* before what it looks at goes */

/* The troubles of all features, one after the other: the i-th, and how often it has been; NULL:
 * there are no more. A feature that is not there (state == NULL) has had none. */
const struct feature_trouble *watch_trouble(const struct feature_state *states, size_t i,
                                            uint64_t *count);

#endif
