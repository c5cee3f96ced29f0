// SPDX-License-Identifier: Apache-2.0
/* watchers.h -- who wants to know of which stream; whoever sees the changes.
 *
 * The watches of a stream are told some at a time, so that a stream with very many holds nobody up.
 * A change that comes meanwhile is told when this one has been told to all. */
#ifndef STORE_WATCHERS_H
#define STORE_WATCHERS_H

#include "base/map.h"
#include "store/store.h"

struct watchers {
    struct sched *sched;
    struct map names;       /* of struct watched */
    struct link everything; /* watches without a name */
    struct link dirty;      /* of struct watched: changed, and nobody was told yet */
    struct watched *told;   /* is being told; NULL: none */
    struct link untold;     /* its watches that are still to be */
    struct task notify;
};

void watchers_init(struct watchers *ws, struct sched *sched);
void watchers_deinit(struct watchers *ws); /* every watch has been removed */

void watchers_add(struct watchers *ws, struct store_watch *w);
void watchers_remove(struct watchers *ws, struct store_watch *w);

/* Tells those who watch it, from the schedule and once for all changes until then; those who watch
 * every stream at once. */
void watchers_changed(struct watchers *ws, struct str name);

/* Any stream may have changed. Those who watch every stream are not told which. */
void watchers_all_changed(struct watchers *ws);

#endif
