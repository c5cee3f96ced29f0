// SPDX-License-Identifier: Apache-2.0
/* map.h -- a hash map from bytes to pointers.
 *
 * The key is borrowed: it must live in (or as long as) the value. Hashed with a seed drawn per
 * map, so that a peer cannot choose names that collide. It grows and shrinks with what is in it,
 * and no change of it takes long, however large it is. Zero-initialised is not valid: map_init. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/str.h"

#include <stdint.h>

struct map_slot {
    const char *key;
    void *value; /* NULL: free */
    uint32_t key_n, hash;
};

struct map {
    struct map_slot *slots;
    size_t n, cap; /* cap: 0 or a power of two */
    uint64_t seed;
    struct map_old *old; /* a large table before it got another size, while it moves; or NULL */
};

void map_init(struct map *m);
void map_deinit(struct map *m); /* values are the caller's */

/* It is empty, and about to get n: it need not grow on the way. */
void map_reserve(struct map *m, size_t n);

void *map_get(const struct map *m, struct str key); /* NULL: not there */

/* value is not NULL. A value already under that key is replaced and returned, and the key with it.
 */
void *map_put(struct map *m, struct str key, void *value);
void *map_remove(struct map *m, struct str key);

/* Walks in no order: *at starts at 0; returns NULL at the end. Nothing may be put or removed during
 * a walk, not even what was just returned: any of them moves others. Collect what has to go, or
 * start over with *at = 0. A walk that goes on all the same is a bug of ours, and ends the process.
 */
void *map_next(const struct map *m, size_t *at);

#endif
