// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"
#include "base/mem.h"
#include "base/must.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK_BYTES 4000
#define ALIGN       _Alignof(max_align_t)

struct arena_chunk {
    struct arena_chunk *next;
    size_t size, used;
    _Alignas(max_align_t) char bytes[];
};

static void arena_drop(struct arena_cache *cache, struct arena_chunk *c)
{
    if (cache == NULL || c->size != CHUNK_BYTES) {
        free(c);
        return;
    }
    if (cache->n == ARENA_CACHE_MAX) {
        slab_free(&cache->slab, c);
        return;
    }
    c->next = cache->chunks;
    cache->chunks = c;
    cache->n++;
}

void arena_deinit(struct arena *a)
{
    for (struct arena_chunk *c = a->chunks, *next; c != NULL; c = next) {
        next = c->next;
        arena_drop(a->cache, c);
    }
    *a = (struct arena){.cache = a->cache};
}

static struct arena_chunk *cache_pop(struct arena_cache *cache)
{
    struct arena_chunk *c = cache->chunks;
    cache->chunks = c->next;
    cache->n--;
    if (cache->unused > cache->n)
        cache->unused = cache->n;
    return c;
}

void arena_cache_trim(struct arena_cache *cache)
{
    for (size_t n = cache->unused; n > 0; n--)
        slab_free(&cache->slab, cache_pop(cache));
    cache->unused = cache->n;
}

void arena_cache_deinit(struct arena_cache *cache)
{
    while (cache->n > 0)
        slab_free(&cache->slab, cache_pop(cache));
    slab_deinit(&cache->slab);
    *cache = (struct arena_cache){0};
}

static struct arena_chunk *new_chunk(struct arena *a, size_t n)
{
    struct arena_cache *cache = a->cache;
    if (n <= CHUNK_BYTES && cache != NULL && cache->n > 0)
        return cache_pop(cache);
    size_t size = n > CHUNK_BYTES ? n : CHUNK_BYTES;
    bool usual = size == CHUNK_BYTES && cache != NULL;
    struct arena_chunk *c =
        usual ? slab_alloc(&cache->slab, sizeof *c + size) : mem_alloc(sizeof *c + size);
    c->size = size;
    return c;
}

void *arena_alloc(struct arena *a, size_t n)
{
    must(n <= SIZE_MAX / 2); /* or rounding up would wrap */
    n = (n + ALIGN - 1) / ALIGN * ALIGN;
    struct arena_chunk *c = a->chunks;
    if (c == NULL || c->size - c->used < n) {
        c = new_chunk(a, n);
        c->next = a->chunks;
        c->used = 0;
        a->chunks = c;
    }
    void *p = c->bytes + c->used;
    c->used += n;
    return p;
}

struct str arena_dup(struct arena *a, struct str s)
{
    if (s.n == 0)
        return s;
    return str_of(memcpy(arena_alloc(a, s.n), s.p, s.n), s.n);
}

struct str arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return str_of(p, (size_t)n);
}
