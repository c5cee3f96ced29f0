// SPDX-License-Identifier: Apache-2.0
/* arena.h -- memory that is given back all at once, as a request's is.
 *
 * Zero-initialised is empty. Nothing from an arena outlives arena_deinit. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/slab.h"
#include "base/str.h"

struct arena {
    struct arena_chunk *chunks;
    struct arena_cache *cache; /* may be NULL */
};

/* Chunks that were given back, for the next arena: a busy server allocates none. Zero-initialised
 * is empty. */
#define ARENA_CACHE_MAX 128
struct arena_cache {
    struct arena_chunk *chunks;
    size_t n;
    size_t unused;    /* the fewest there were since arena_cache_trim */
    struct slab slab; /* where they come from, so that what is not kept goes back to the system */
};
void arena_cache_deinit(struct arena_cache *c);

/* Gives back those that no arena has wanted since the last call. */
void arena_cache_trim(struct arena_cache *c);

void arena_deinit(struct arena *a);

/* Aligned for any type, not zeroed, never NULL. */
void *arena_alloc(struct arena *a, size_t n);
struct str arena_dup(struct arena *a, struct str s);
struct str arena_printf(struct arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
