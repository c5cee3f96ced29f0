// SPDX-License-Identifier: Apache-2.0
#include "store/embedded/cache.h"
#include "base/budget.h"
#include "base/mem.h"
#include "store/catalog/extent.h"

#include <stdlib.h>

#define JOIN_MIN      4 /* fewer are left as they are */
#define JOIN_MAX      512

#define DROPS_AT_ONCE 64

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

static size_t cache_max(const struct cache *c)
{
    size_t rest = c->budget != NULL ? budget_rest(c->budget) : c->max;
    return rest < c->max ? rest : c->max;
}

/* One large extent takes the place of very many small ones: some of them, the rest goes later.
 * Returns how many. */
static size_t cache_shrink(struct cache *c)
{
    size_t max = cache_max(c), n = 0;
    for (; n < DROPS_AT_ONCE && c->bytes > max; n++)
        cache_drop(c, list_item(c->by_use.next, struct cached, by_use));
    if (c->bytes > max)
        sched_post_background(c->sched, &c->shrinking);
    return n;
}

static void cache_run_shrink(struct task *t)
{
    cache_shrink(container_of(t, struct cache, shrinking));
}

static void cache_give_way(void *ctx)
{
    cache_shrink(ctx);
}

void cache_init(struct cache *c, struct sched *sched, size_t max, struct budget *budget)
{
    *c = (struct cache){.sched = sched, .max = max, .budget = budget};
    task_init(&c->shrinking, cache_run_shrink);
    map_init(&c->extents);
    list_init(&c->by_use);
    if (budget != NULL) {
        budget->give_way = cache_give_way;
        budget->ctx = c;
    }
}

void cache_deinit(struct cache *c)
{
    if (c->budget != NULL)
        c->budget->give_way = NULL;
    task_cancel(&c->shrinking);
    while (!list_empty(&c->by_use))
        cache_drop(c, list_item(c->by_use.next, struct cached, by_use));
    map_deinit(&c->extents);
}

static struct cached *cache_find(struct cache *c, uint64_t life, uint64_t first)
{
    struct cache_key key = {life, first};
    return map_get(&c->extents, key_bytes(&key));
}

size_t cache_put(struct cache *c, uint64_t life, struct extent *extent)
{
    size_t bytes = sizeof(struct cached) + sizeof(struct map_slot) + extent_size(extent);
    struct cached *old = cache_find(c, life, extent->first);
    if (bytes > cache_max(c) || (old != NULL && extent_end(old->extent) >= extent_end(extent)))
        return 0;
    if (old != NULL)
        cache_drop(c, old);
    struct cached *e = mem_alloc(sizeof *e);
    *e =
        (struct cached){.key = {life, extent->first}, .extent = extent_ref(extent), .bytes = bytes};
    list_push(&c->by_use, &e->by_use);
    map_put(&c->extents, key_bytes(&e->key), e);
    c->bytes += bytes;
    return cache_shrink(c);
}

/* Small extents that follow this one, and it, become one, if there are enough. */
static struct cached *cache_join(struct cache *c, struct cached *e, size_t max)
{
    struct extent *parts[JOIN_MAX];
    const struct cache_key key = e->key;
    size_t n = 1, bytes = e->extent->bytes->n;
    parts[0] = e->extent;
    for (struct cached *next; n < JOIN_MAX; n++, bytes += next->extent->bytes->n) {
        next = cache_find(c, key.life, extent_end(parts[n - 1]));
        if (next == NULL || !extent_can_join(parts[n - 1], bytes, next->extent) ||
            bytes + next->extent->bytes->n > max)
            break;
        parts[n] = next->extent;
    }
    if (n < JOIN_MIN)
        return e;
    struct extent *joined = extent_join(parts, n);
    for (size_t i = 0; i < n; i++)
        cache_drop(c, cache_find(c, key.life, parts[i]->first));
    cache_put(c, key.life, joined); /* it takes less than they did */
    extent_unref(joined);
    return cache_find(c, key.life, key.first);
}

struct extent *cache_get(struct cache *c, uint64_t life, uint64_t first, size_t max)
{
    struct cached *e = cache_find(c, life, first);
    if (e == NULL)
        return NULL;
    if (e->extent->bytes->n < EXTENT_SMALL && c->bytes <= cache_max(c))
        e = cache_join(c, e, max);
    list_remove(&e->by_use);
    list_push(&c->by_use, &e->by_use);
    return e->extent;
}
