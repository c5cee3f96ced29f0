// SPDX-License-Identifier: Apache-2.0
#include "base/map.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/rand.h"

#include <stdlib.h>
#include <xxhash.h>

/* Linear probing, at most three quarters full, and backward shift on removal: no tombstones. */

void map_init(struct map *m)
{
    *m = (struct map){.seed = rand_u64()};
}

void map_deinit(struct map *m)
{
    free(m->slots);
    *m = (struct map){0};
}

/* Half of it is enough: a map has fewer than 2^32 slots. */
static uint32_t hash_of(const struct map *m, struct str key)
{
    return (uint32_t)XXH3_64bits_withSeed(key.p, key.n, m->seed);
}

static struct str map_key_of(const struct map_slot *s)
{
    return str_of(s->key, s->key_n);
}

static size_t map_find(const struct map *m, struct str key, uint32_t hash)
{
    size_t i = hash & (m->cap - 1);
    while (m->slots[i].value != NULL &&
           !(m->slots[i].hash == hash && str_eq(map_key_of(&m->slots[i]), key)))
        i = (i + 1) & (m->cap - 1);
    return i;
}

void *map_get(const struct map *m, struct str key)
{
    return m->n == 0 ? NULL : m->slots[map_find(m, key, hash_of(m, key))].value;
}

static void resize(struct map *m, size_t cap)
{
    struct map_slot *old = m->slots;
    size_t old_cap = m->cap;
    m->slots = mem_zalloc(cap * sizeof *m->slots);
    m->cap = cap;
    for (size_t i = 0; i < old_cap; i++)
        if (old[i].value != NULL)
            m->slots[map_find(m, map_key_of(&old[i]), old[i].hash)] = old[i];
    free(old);
}

void *map_put(struct map *m, struct str key, void *value)
{
    must(key.n <= UINT32_MAX);
    if ((m->n + 1) * 4 > m->cap * 3)
        resize(m, m->cap ? m->cap * 2 : 8);
    uint32_t hash = hash_of(m, key);
    struct map_slot *slot = &m->slots[map_find(m, key, hash)];
    void *before = slot->value;
    *slot = (struct map_slot){key.p, value, (uint32_t)key.n, hash};
    m->n += before == NULL;
    return before;
}

void *map_remove(struct map *m, struct str key)
{
    if (m->n == 0)
        return NULL;
    size_t mask = m->cap - 1, hole = map_find(m, key, hash_of(m, key));
    void *value = m->slots[hole].value;
    if (value == NULL)
        return NULL;
    for (size_t i = (hole + 1) & mask; m->slots[i].value != NULL; i = (i + 1) & mask) {
        size_t home = m->slots[i].hash & mask;
        if (((i - home) & mask) < ((i - hole) & mask))
            continue; /* moving it to the hole would put it before its home */
        m->slots[hole] = m->slots[i];
        hole = i;
    }
    m->slots[hole] = (struct map_slot){0};
    m->n--;
    return value;
}

void *map_next(const struct map *m, size_t *at)
{
    while (*at < m->cap) {
        void *value = m->slots[(*at)++].value;
        if (value != NULL)
            return value;
    }
    return NULL;
}
