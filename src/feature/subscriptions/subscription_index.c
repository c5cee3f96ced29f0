// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "feature/subscriptions/subscription_core.h"
#include "feature/subscriptions/subscription_pattern.h"
#include "store/names.h"

#include <stdlib.h>

/* ---- buckets ---- */

static struct sub_bucket *bucket_new(struct str key)
{
    struct sub_bucket *b = mem_alloc(sizeof *b + key.n);
    list_init(&b->members);
    b->n = key.n;
    if (key.n > 0)
        memcpy(b->key, key.p, key.n);
    return b;
}

static struct sub_bucket *bucket_of(struct map *m, struct str key)
{
    struct sub_bucket *b = map_get(m, key);
    if (b == NULL) {
        b = bucket_new(key);
        map_put(m, str_of(b->key, b->n), b);
    }
    return b;
}

static void bucket_drop_if_empty(struct map *m, struct sub_bucket *b)
{
    if (!list_empty(&b->members))
        return;
    map_remove(m, str_of(b->key, b->n));
    free(b);
}

void sub_index_init(struct subscriptions *s)
{
    map_init(&s->by_segment);
    map_init(&s->by_name);
    s->wild = bucket_new(STR_NONE);
}

void sub_index_deinit(struct subscriptions *s)
{
    map_deinit(&s->by_segment);
    map_deinit(&s->by_name);
    free(s->wild);
}

/* ---- patterns ---- */

/* Patterns are found by their first segment, so that a change of a stream is not held against each
 * of ten thousand of them. */
void sub_index_add(struct subscription *sub)
{
    if (sub->pattern.n == 0)
        return;
    struct str rest = sub->pattern;
    struct str first = str_cut(&rest, '/');
    bool special = memchr(first.p, '*', first.n) || memchr(first.p, '%', first.n);
    sub->bucket = special ? sub->all->wild : bucket_of(&sub->all->by_segment, first);
    list_push(&sub->bucket->members, &sub->in_bucket);
}

static void free_tie(struct sub_tie *t)
{
    list_remove(&t->in_bucket);
    list_remove(&t->in_sub);
    bucket_drop_if_empty(&t->sub->all->by_name, t->bucket);
    t->sub->n_explicit -= !t->is_wake_stream;
    free(t);
}

void sub_index_remove(struct subscription *sub)
{
    list_remove(&sub->in_bucket);
    if (sub->bucket != NULL && sub->bucket != sub->all->wild)
        bucket_drop_if_empty(&sub->all->by_segment, sub->bucket);
    sub->bucket = NULL;
    list_each_safe (l, &sub->ties)
        free_tie(list_item(l, struct sub_tie, in_sub));
}

bool sub_matches(const struct subscription *sub, struct str name)
{
    const struct store_names *reserved = store_names_of(name);
    if (reserved != NULL && !(sub->sealed && reserved->sealed))
        return false;
    /* A wake stream that woke its own subscription would never let it rest. */
    return sub->pattern.n > 0 && subscription_pattern_match(sub->pattern, name) &&
           subscription_path_valid(name) && !str_eq(name, sub->wake_stream);
}

/* ---- names ---- */

static struct sub_tie *find_tie(struct subscription *sub, struct str name)
{
    struct sub_bucket *b = map_get(&sub->all->by_name, name);
    if (b == NULL)
        return NULL;
    list_each (l, &b->members) {
        struct sub_tie *t = list_item(l, struct sub_tie, in_bucket);
        if (t->sub == sub && !t->is_wake_stream)
            return t;
    }
    return NULL;
}

void sub_tie(struct subscription *sub, struct str name, bool is_wake_stream)
{
    if (!is_wake_stream && find_tie(sub, name) != NULL)
        return;
    struct sub_tie *t = mem_alloc(sizeof *t);
    *t = (struct sub_tie){.bucket = bucket_of(&sub->all->by_name, name),
                          .sub = sub,
                          .is_wake_stream = is_wake_stream};
    list_push(&t->bucket->members, &t->in_bucket);
    list_push(&sub->ties, &t->in_sub);
    sub->n_explicit += !is_wake_stream;
}

void sub_untie(struct subscription *sub, struct str name)
{
    struct sub_tie *t = find_tie(sub, name);
    if (t != NULL)
        free_tie(t);
}

bool sub_is_tied(struct subscription *sub, struct str name)
{
    return find_tie(sub, name) != NULL;
}

/* ---- hints ---- */

void sub_hint(struct subscription *sub, struct str name, struct link *to)
{
    struct sub_hint *hint = map_get(&sub->hint_map, name);
    if (hint != NULL) {
        hint->changed = true;
        return;
    }
    if (sub->hint_map.n >= sub->all->hints_max) {
        sub->behind = true;
        return;
    }
    hint = mem_zalloc(sizeof *hint + name.n);
    memcpy(hint->name, name.p, name.n);
    hint->stream.path = str_of(hint->name, name.n);
    list_push(to, &hint->link);
    map_put(&sub->hint_map, hint->stream.path, hint);
}

void sub_hint_free(struct subscription *sub, struct sub_hint *hint)
{
    list_remove(&hint->link);
    map_remove(&sub->hint_map, hint->stream.path);
    free(hint);
}

void sub_recheck_hints(struct subscription *sub)
{
    list_splice(&sub->hints, &sub->pending);
}

/* ---- notices ---- */

static void touch(struct subscription *sub, struct str name)
{
    sub_hint(sub, name, &sub->hints);
    sub->blocked = false;
    sub_settle(sub);
}

static void touch_pattern_members(struct sub_bucket *b, struct str name)
{
    list_each_safe (l, &b->members) {
        struct subscription *sub = list_item(l, struct subscription, in_bucket);
        if (sub_matches(sub, name))
            touch(sub, name);
    }
}

void sub_index_changed(struct store_watch *w, struct str name)
{
    struct subscriptions *s = container_of(w, struct subscriptions, watch);
    struct str rest = name;
    struct sub_bucket *b = map_get(&s->by_segment, str_cut(&rest, '/'));
    if (b != NULL)
        touch_pattern_members(b, name);
    touch_pattern_members(s->wild, name);
    b = map_get(&s->by_name, name);
    if (b == NULL)
        return;
    list_each_safe (l, &b->members) {
        struct sub_tie *t = list_item(l, struct sub_tie, in_bucket);
        if (!t->is_wake_stream) {
            touch(t->sub, name);
        } else if (t->sub->blocked) {
            t->sub->blocked = false;
            sub_settle(t->sub);
        }
    }
}
