// SPDX-License-Identifier: Apache-2.0
/* redis_family.c -- on a cluster: which streams are kept under another tag than their own. A hint,
 * dropped when it turns out wrong. */
#include "base/mem.h"
#include "store/redis/redis_store_core.h"

#include <stdlib.h>

#define HINTS_MAX 10000

struct redis_family {
    size_t watches;
    struct str tag; /* owned; p == NULL: not known */
    size_t n;
    char name[];
};

static struct redis_family *redis_family_find(struct redis_store *rs, struct str name)
{
    return map_get(&rs->families, name);
}

static struct redis_family *find_or_add(struct redis_store *rs, struct str name)
{
    struct redis_family *f = redis_family_find(rs, name);
    if (f != NULL)
        return f;
    f = mem_zalloc(sizeof *f + name.n);
    f->n = name.n;
    memcpy(f->name, name.p, name.n);
    map_put(&rs->families, str_of(f->name, f->n), f);
    return f;
}

static void drop_if_unused(struct redis_store *rs, struct redis_family *f)
{
    if (f->watches > 0 || f->tag.p != NULL)
        return;
    map_remove(&rs->families, str_of(f->name, f->n));
    free(f);
}

static void redis_family_subscribe(struct redis_store *rs, const struct redis_family *f,
                                   void (*how)(struct redis *r, struct str channel))
{
    struct arena a = {0};
    if (f->tag.p != NULL && f->watches > 0)
        how(rs->redis, rstore_channel(rs, &a, f->tag, str_of(f->name, f->n)));
    arena_deinit(&a);
}

static void set_tag(struct redis_store *rs, struct redis_family *f, struct str tag)
{
    if (str_eq(f->tag, tag))
        return;
    redis_family_subscribe(rs, f, redis_unsubscribe);
    rs->n_hints -= f->tag.p != NULL;
    free((char *)(uintptr_t)f->tag.p);
    f->tag = STR_NONE;
    if (tag.n > 0) {
        f->tag = str_of(memcpy(mem_alloc(tag.n), tag.p, tag.n), tag.n);
        rs->n_hints++;
    }
    redis_family_subscribe(rs, f, redis_subscribe);
}

/* All hints but those of streams that are watched, which are bounded by who watches. */
static void drop_hints(struct redis_store *rs)
{
    size_t at = 0, n = 0;
    struct redis_family **old = mem_alloc((rs->families.n + 1) * sizeof *old);
    for (struct redis_family *f; (f = map_next(&rs->families, &at)) != NULL;)
        if (f->watches == 0)
            old[n++] = f;
    for (size_t i = 0; i < n; i++) {
        set_tag(rs, old[i], STR_NONE);
        drop_if_unused(rs, old[i]);
    }
    free(old);
}

struct str redis_family_of(struct redis_store *rs, struct str name)
{
    const struct redis_family *f = redis_family_find(rs, name);
    return f == NULL ? STR_NONE : f->tag;
}

void redis_family_learn(struct redis_store *rs, struct str name, struct str family)
{
    if (rs->n_hints >= HINTS_MAX)
        drop_hints(rs);
    set_tag(rs, find_or_add(rs, name), family);
}

void redis_family_forget(struct redis_store *rs, struct str name)
{
    struct redis_family *f = redis_family_find(rs, name);
    if (f == NULL)
        return;
    set_tag(rs, f, STR_NONE);
    drop_if_unused(rs, f);
}

void redis_family_watch(struct redis_store *rs, struct str name)
{
    struct redis_family *f = find_or_add(rs, name);
    if (f->watches++ == 0)
        redis_family_subscribe(rs, f, redis_subscribe);
}

void redis_family_unwatch(struct redis_store *rs, struct str name)
{
    struct redis_family *f = redis_family_find(rs, name);
    if (f->watches == 1)
        redis_family_subscribe(rs, f, redis_unsubscribe);
    f->watches--;
    drop_if_unused(rs, f);
}

void redis_family_deinit(struct redis_store *rs)
{
    size_t at = 0;
    for (struct redis_family *f; (f = map_next(&rs->families, &at)) != NULL;) {
        free((char *)(uintptr_t)f->tag.p);
        free(f);
    }
    map_deinit(&rs->families);
}
