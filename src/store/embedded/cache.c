// SPDX-License-Identifier: Apache-2.0
#include "store/embedded/cache.h"
#include "base/mem.h"
#include "store/catalog/extent.h"

#include <stdlib.h>

struct cache_key {
    uint64_t life, first;
};

struct cached {
    struct cache_key key;
    struct link by_use;
    struct extent *extent;
    size_t bytes;
};

static struct str key_bytes(const struct cache_key *k)
{
    return str_of((const char *)k, sizeof *k);
}

static void cache_drop(struct cache *c, struct cached *e)
{
    map_remove(&c->extents, key_bytes(&e->key));
    list_remove(&e->by_use);
    c->bytes -= e->bytes;
    extent_unref(e->extent);
    free(e);
}

void cache_init(struct cache *c, size_t max)
{
    *c = (struct cache){.max = max};
    map_init(&c->extents);
    list_init(&c->by_use);
}

void cache_deinit(struct cache *c)
{
    while (!list_empty(&c->by_use))
        cache_drop(c, list_item(c->by_use.next, struct cached, by_use));
    map_deinit(&c->extents);
}

static struct cached *cache_find(struct cache *c, uint64_t life, uint64_t first)
{
    struct cache_key key = {life, first};
    return map_get(&c->extents, key_bytes(&key));
}

void cache_put(struct cache *c, uint64_t life, struct extent *extent)
{
    size_t bytes = sizeof(struct cached) + sizeof(struct map_slot) + extent_size(extent);
    if (bytes > c->max || cache_find(c, life, extent->first) != NULL)
        return;
    while (c->bytes + bytes > c->max)
        cache_drop(c, list_item(c->by_use.next, struct cached, by_use));
    struct cached *e = mem_alloc(sizeof *e);
    *e =
        (struct cached){.key = {life, extent->first}, .extent = extent_ref(extent), .bytes = bytes};
    list_push(&c->by_use, &e->by_use);
    map_put(&c->extents, key_bytes(&e->key), e);
    c->bytes += bytes;
}

struct extent *cache_get(struct cache *c, uint64_t life, uint64_t first)
{
    struct cached *e = cache_find(c, life, first);
    if (e == NULL)
        return NULL;
    list_remove(&e->by_use);
    list_push(&c->by_use, &e->by_use);
    return e->extent;
}
