// SPDX-License-Identifier: Apache-2.0
/* cache.h -- extents that rest on disk and are kept in memory too, up to a number of bytes; the one
 * not used for longest goes first, some at a time. What is pinned of a budget is not the cache's.
 * Loop thread only. */
#ifndef STORE_EMBEDDED_CACHE_H
#define STORE_EMBEDDED_CACHE_H

#include "base/list.h"
#include "base/map.h"
#include "base/sched.h"

struct budget;
struct extent;

struct cache {
    struct map extents; /* of struct cached, by life and first position */
    struct link by_use; /* the least recently used first */
    size_t bytes, max;
    struct budget *budget; /* NULL: max is all the cache's */
    struct sched *sched;
    struct task shrinking; /* while there is too much */
};

void cache_init(struct cache *c, struct sched *sched, size_t max, struct budget *budget);
void cache_deinit(struct cache *c);

/* life: of the stream that the extent was written for. Takes a reference of its own. Returns how
 * many had to go for it: whoever puts very many counts those, too. */
size_t cache_put(struct cache *c, uint64_t life, struct extent *extent);

/* The extent that begins at this position; lent. NULL: not here. Small ones that follow it, as far
 * as they are here and go into max bytes with it, become one with it. */
struct extent *cache_get(struct cache *c, uint64_t life, uint64_t first, size_t max);

#endif
