// SPDX-License-Identifier: Apache-2.0
#include "base/map.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/rand.h"

#include <stdlib.h>
#include <xxhash.h>

/* Linear probing, at most three quarters full, and backward shift on removal: no tombstones.
 *
 * A large table does not change its size at once. There are two then, and every change of the map
 * moves some of the old one: whole runs of slots in use, so that what is left is found where it
 * was. A key is in one of the two. New keys go to the new one, and the old one is empty long before
 * that is full. */

/* All in slots. */
#define AT_ONCE     1024  /* move in one go, if there are no more */
#define MOVE        8     /* with each change otherwise, at least */
#define MOVE_SPARSE 64    /* the same of a table that gets smaller: few are in use */
#define MAPPED_MIN  65536 /* a table of so many has pages of its own */
#define RELEASED    32768 /* of such a table at a time, when they have moved */
#define SHRINK_PART 8     /* a large table of which less is in use gets smaller */

/* Of a walk's position: the slot. */
#define WALK_BITS   40
#define WALK_MASK   (((uint64_t)1 << WALK_BITS) - 1)
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "a walk's position has 64 bits");

struct map_old {
    struct map_slot *slots;
    size_t cap, moved; /* slots before it are free */
};

void map_init(struct map *m)
{
    *m = (struct map){.seed = rand_u64()};
}

/* ---- tables ---- */

/* A large one is not zeroed but by the system, page by page, when it is used. */
static struct map_slot *table_new(size_t cap)
{
    size_t bytes = cap * sizeof(struct map_slot);
    return cap < MAPPED_MIN ? mem_zalloc(bytes) : mem_map(bytes);
}

static void table_free(struct map_slot *slots, size_t cap)
{
    if (cap < MAPPED_MIN)
        free(slots);
    else
        mem_unmap(slots, cap * sizeof *slots);
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

/* The slot of this key, or the free one where it would be. */
static struct map_slot *map_find(struct map_slot *slots, size_t cap, struct str key, uint32_t hash)
{
    size_t i = hash & (cap - 1);
    while (slots[i].value != NULL && !(slots[i].hash == hash && str_eq(map_key_of(&slots[i]), key)))
        i = (i + 1) & (cap - 1);
    return &slots[i];
}

static void close_hole(struct map_slot *slots, size_t cap, size_t hole)
{
    size_t mask = cap - 1;
    for (size_t i = (hole + 1) & mask; slots[i].value != NULL; i = (i + 1) & mask) {
        size_t home = slots[i].hash & mask;
        if (((i - home) & mask) < ((i - hole) & mask))
            continue; /* moving it to the hole would put it before its home */
        slots[hole] = slots[i];
        hole = i;
    }
    slots[hole] = (struct map_slot){0};
}

/* ---- from one size to another ---- */

static void drop_old(struct map *m)
{
    if (m->old == NULL)
        return;
    table_free(m->old->slots, m->old->cap);
    free(m->old);
    m->old = NULL;
}

void map_deinit(struct map *m)
{
    drop_old(m);
    table_free(m->slots, m->cap);
    *m = (struct map){0};
}

static void move_slot(struct map *m, struct map_slot *from)
{
    size_t i = from->hash & (m->cap - 1);
    while (m->slots[i].value != NULL)
        i = (i + 1) & (m->cap - 1);
    m->slots[i] = *from;
    *from = (struct map_slot){0};
}

/* So that the end of it is not one long call. */
static void release_moved(const struct map_old *old)
{
    if (old->cap >= MAPPED_MIN && old->moved % RELEASED == 0)
        mem_release(old->slots + old->moved - RELEASED, RELEASED * sizeof *old->slots);
}

/* Ends at a free slot, and so between two runs. */
static void move_some(struct map *m)
{
    struct map_old *old = m->old;
    size_t n = old->cap <= AT_ONCE ? AT_ONCE : old->cap < m->cap ? MOVE : MOVE_SPARSE;
    size_t end = old->cap - old->moved > n ? old->moved + n : old->cap;
    while (old->moved < end || (old->moved < old->cap && old->slots[old->moved].value != NULL)) {
        if (old->slots[old->moved].value != NULL)
            move_slot(m, &old->slots[old->moved]);
        old->moved++;
        release_moved(old);
    }
    if (old->moved == old->cap)
        drop_old(m);
}

static void resize(struct map *m, size_t cap)
{
    must(m->old == NULL); /* it was empty long before */
    if (m->cap > 0) {
        m->old = mem_alloc(sizeof *m->old);
        *m->old = (struct map_old){m->slots, m->cap, 0};
    }
    m->slots = table_new(cap);
    m->cap = cap;
    if (m->old != NULL && m->old->cap <= AT_ONCE)
        move_some(m);
}

/* ---- the map ---- */

void map_reserve(struct map *m, size_t n)
{
    size_t cap = 8;
    must(m->n == 0 && m->old == NULL);
    while (cap * 3 < n * 4)
        cap *= 2;
    table_free(m->slots, m->cap);
    m->slots = table_new(cap);
    m->cap = cap;
}

void *map_get(const struct map *m, struct str key)
{
    if (m->n == 0)
        return NULL;
    uint32_t hash = hash_of(m, key);
    void *value = map_find(m->slots, m->cap, key, hash)->value;
    if (value == NULL && m->old != NULL)
        value = map_find(m->old->slots, m->old->cap, key, hash)->value;
    return value;
}

void *map_put(struct map *m, struct str key, void *value)
{
    must(key.n <= UINT32_MAX);
    if ((m->n + 1) * 4 > m->cap * 3)
        resize(m, m->cap ? m->cap * 2 : 8);
    if (m->old != NULL)
        move_some(m);
    uint32_t hash = hash_of(m, key);
    struct map_slot *slot = map_find(m->slots, m->cap, key, hash), *old = NULL;
    if (slot->value == NULL && m->old != NULL)
        old = map_find(m->old->slots, m->old->cap, key, hash);
    if (old != NULL && old->value != NULL)
        slot = old;
    void *before = slot->value;
    *slot = (struct map_slot){key.p, value, (uint32_t)key.n, hash};
    m->n += before == NULL;
    return before;
}

static void *remove_from(struct map_slot *slots, size_t cap, struct str key, uint32_t hash)
{
    struct map_slot *slot = map_find(slots, cap, key, hash);
    void *value = slot->value;
    if (value != NULL)
        close_hole(slots, cap, (size_t)(slot - slots));
    return value;
}

void *map_remove(struct map *m, struct str key)
{
    if (m->n == 0)
        return NULL;
    uint32_t hash = hash_of(m, key);
    void *value = remove_from(m->slots, m->cap, key, hash);
    if (value == NULL && m->old != NULL)
        value = remove_from(m->old->slots, m->old->cap, key, hash);
    m->n -= value != NULL;
    if (m->old != NULL)
        move_some(m);
    else if (m->cap > AT_ONCE && m->n < m->cap / SHRINK_PART)
        resize(m, m->cap / 2);
    return value;
}

/* What a change of the map changes, for the upper bits of a walk's position. */
static uint64_t walk_mark(const struct map *m)
{
    return (uint64_t)(m->n + (m->old == NULL ? 0 : m->old->moved)) << WALK_BITS;
}

void *map_next(const struct map *m, size_t *at)
{
    size_t old_cap = m->old == NULL ? 0 : m->old->cap;
    uint64_t mark = walk_mark(m), i = *at & WALK_MASK;
    must(*at == 0 || (*at & ~WALK_MASK) == mark); /* nobody has changed it meanwhile */
    if (m->old != NULL && i < m->old->moved)
        i = m->old->moved;
    void *value = NULL;
    for (; value == NULL && i < old_cap + m->cap; i++)
        value = i < old_cap ? m->old->slots[i].value : m->slots[i - old_cap].value;
    *at = mark | i;
    return value;
}
