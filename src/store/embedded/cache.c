// SPDX-License-Identifier: Apache-2.0
#include "store/embedded/cache.h"
#include "base/mem.h"
#include "store/catalog/chunk.h"

#include <stdlib.h>

struct key {
    uint64_t life, first;
};

struct cached {
    struct key key;
    struct link by_use;
    struct chunk *chunk;
    size_t bytes;
};

static struct str key_bytes(const struct key *k)
{
    return str_of((const char *)k, sizeof *k);
}

static void cache_drop(struct cache *c, struct cached *e)
{
    map_remove(&c->chunks, key_bytes(&e->key));
    list_remove(&e->by_use);
    c->bytes -= e->bytes;
    chunk_unref(e->chunk);
    free(e);
}

void cache_init(struct cache *c, size_t max)
{
    *c = (struct cache){.max = max};
    map_init(&c->chunks);
    list_init(&c->by_use);
}

void cache_deinit(struct cache *c)
{
    while (!list_empty(&c->by_use))
        cache_drop(c, list_item(c->by_use.next, struct cached, by_use));
    map_deinit(&c->chunks);
}

static struct cached *cache_find(struct cache *c, uint64_t life, uint64_t first)
{
    struct key key = {life, first};
    return map_get(&c->chunks, key_bytes(&key));
}

void cache_put(struct cache *c, uint64_t life, struct chunk *chunk)
{
    size_t bytes = sizeof(struct cached) + sizeof(struct map_slot) + chunk_size(chunk);
    if (bytes > c->max || cache_find(c, life, chunk->first) != NULL)
        return;
    while (c->bytes + bytes > c->max)
        cache_drop(c, list_item(c->by_use.next, struct cached, by_use));
    struct cached *e = mem_alloc(sizeof *e);
    *e = (struct cached){.key = {life, chunk->first}, .chunk = chunk_ref(chunk), .bytes = bytes};
    list_push(&c->by_use, &e->by_use);
    map_put(&c->chunks, key_bytes(&e->key), e);
    c->bytes += bytes;
}

struct chunk *cache_get(struct cache *c, uint64_t life, uint64_t first)
{
    struct cached *e = cache_find(c, life, first);
    if (e == NULL)
        return NULL;
    list_remove(&e->by_use);
    list_push(&c->by_use, &e->by_use);
    return e->chunk;
}
