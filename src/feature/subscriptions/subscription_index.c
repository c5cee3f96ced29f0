// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "feature/subscriptions/subscription_core.h"
#include "feature/subscriptions/subscription_pattern.h"
#include "store/names.h"

#include <stdlib.h>

/* ---- patterns ---- */

void sub_index_init(struct subscriptions *s)
{
    sub_patterns_init(&s->patterns);
    map_init(&s->by_name);
}

void sub_index_deinit(struct subscriptions *s)
{
    sub_patterns_deinit(&s->patterns);
    map_deinit(&s->by_name);
}

bool sub_may_match(const struct subscription *sub, struct str name)
{
    const struct store_names *reserved = store_names_of(name);
    if (reserved != NULL && !(sub->sealed && reserved->sealed))
        return false;
    /* A wake stream that woke its own subscription would never let it rest. */
    return subscription_path_valid(name) && !str_eq(name, sub->wake_stream);
}

bool sub_matches(const struct subscription *sub, struct str name)
{
    return sub->pattern.n > 0 && subscription_pattern_match(sub->pattern, name) &&
           sub_may_match(sub, name);
}

/* ---- names ---- */

static struct sub_bucket *sub_bucket_of(struct map *m, struct str key)
{
    struct sub_bucket *b = map_get(m, key);
    if (b != NULL)
        return b;
    b = mem_alloc(sizeof *b + key.n);
    list_init(&b->members);
    b->n_ties = 0;
    b->n = key.n;
    memcpy(b->key, key.p, key.n);
    map_put(m, str_of(b->key, b->n), b);
    return b;
}

void sub_bucket_drop_if_empty(struct map *m, struct sub_bucket *b)
{
    if (b->n_ties > 0 || !list_empty(&b->members))
        return;
    map_remove(m, str_of(b->key, b->n));
    free(b);
}

static struct sub_tie *sub_tie_new(struct subscription *sub, struct str name, bool is_wake_stream)
{
    struct sub_tie *t = mem_alloc(sizeof *t);
    *t = (struct sub_tie){.bucket = sub_bucket_of(&sub->all->by_name, name),
                          .sub = sub,
                          .is_wake_stream = is_wake_stream};
    list_push(&t->bucket->members, &t->in_bucket);
    t->bucket->n_ties++;
    return t;
}

static void sub_tie_free(struct sub_tie *t)
{
    list_remove(&t->in_bucket);
    t->bucket->n_ties--;
    sub_bucket_drop_if_empty(&t->sub->all->by_name, t->bucket);
    free(t);
}

void sub_tie(struct subscription *sub, struct str name)
{
    if (sub_is_tied(sub, name))
        return;
    struct sub_tie *t = sub_tie_new(sub, name, false);
    map_put(&sub->ties, str_of(t->bucket->key, t->bucket->n), t);
    sub->n_explicit++;
}

void sub_untie(struct subscription *sub, struct str name)
{
    struct sub_tie *t = map_remove(&sub->ties, name);
    if (t == NULL)
        return;
    sub_tie_free(t);
    sub->n_explicit--;
}

void sub_tie_listen(struct subscription *sub, struct str name)
{
    struct sub_tie *t = map_get(&sub->ties, name);
    if (t != NULL && list_empty(&t->in_bucket))
        list_push(&t->bucket->members, &t->in_bucket);
}

bool sub_is_tied(struct subscription *sub, struct str name)
{
    return map_get(&sub->ties, name) != NULL;
}

void sub_index_add(struct subscription *sub)
{
    if (sub->pattern.n > 0)
        sub->in = sub_patterns_add(&sub->all->patterns, sub->pattern, &sub->in_pattern);
    sub->listening = sub->in != NULL;
    if (sub->wake_stream.n > 0)
        sub->wake_tie = sub_tie_new(sub, sub->wake_stream, true);
    sub->heard = sub->all->notices.heard = sub->all->notices.number;
}

void sub_index_remove(struct subscription *sub)
{
    if (sub->in != NULL) {
        sub_unlisten(sub);
        sub_patterns_remove(&sub->all->patterns, sub->in, &sub->in_pattern);
    }
    sub->in = NULL;
    if (sub->wake_tie != NULL)
        sub_tie_free(sub->wake_tie);
    sub->wake_tie = NULL;
    size_t at = 0;
    for (struct sub_tie *t; (t = map_next(&sub->ties, &at)) != NULL;)
        sub_tie_free(t);
    map_deinit(&sub->ties);
    map_init(&sub->ties);
    sub->n_explicit = 0;
}

/* ---- hints ---- */

bool sub_hint(struct subscription *sub, struct str name, struct link *to)
{
    struct sub_hint *hint = map_get(&sub->hint_map, name);
    if (hint != NULL) {
        hint->changed = true;
        return true;
    }
    struct subscriptions *s = sub->all;
    size_t n = sub->hint_map.n;
    bool full = n >= SUB_HINTS_OWN && s->n_hints >= s->hints_all;
    if (n >= s->hints_max || (full && to == &sub->hints)) { /* a look knows how many it may have */
        sub->behind = true;
        return false;
    }
    s->n_hints++;
    hint = mem_zalloc(sizeof *hint + name.n);
    memcpy(hint->name, name.p, name.n);
    hint->stream.path = str_of(hint->name, name.n);
    list_push(to, &hint->link);
    map_put(&sub->hint_map, hint->stream.path, hint);
    return true;
}

void sub_hint_free(struct subscription *sub, struct sub_hint *hint)
{
    sub_tie_listen(sub, hint->stream.path);
    list_remove(&hint->link);
    map_remove(&sub->hint_map, hint->stream.path);
    sub->all->n_hints--;
    free(hint);
}

void sub_recheck_hints(struct subscription *sub)
{
    list_splice(&sub->hints, &sub->pending);
}
