// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "feature/subscriptions/subscription_core.h"
#include "feature/subscriptions/subscription_pattern.h"
#include "store/names.h"

#include <stdlib.h>

/* Whoever appends pays for one entry in a queue: the name of the stream, once however often it
 * changes until its turn. A task takes the names one by one, finds the patterns that match and
 * the ties of the name, and tells their subscriptions, SUB_SLICE of them before it lets others
 * run. So the queue is never longer than there are streams.
 *
 *     IDLE --a name--> WALK --patterns found--> MEMBERS --all told--> TIES --all told--> IDLE
 *
 * A subscription that wants to know at once what concerns it asks the queue (sub_hear). */

struct sub_notice {
    struct link link;
    uint64_t number;
    size_t n;
    char text[];
};

static struct str sub_notice_name(const struct sub_notice *n)
{
    return str_of(n->text, n->n);
}

static struct sub_notice *sub_notices_first(struct sub_notices *ns)
{
    return list_item(ns->queue.next, struct sub_notice, link);
}

void sub_notices_changed(struct store_watch *w, struct str name)
{
    struct subscriptions *s = container_of(w, struct subscriptions, watch);
    struct sub_notices *ns = &s->notices;
    if (map_get(&ns->names, name) != NULL)
        return;
    struct sub_notice *n = mem_alloc(sizeof *n + name.n);
    n->number = ++ns->number;
    n->n = name.n;
    memcpy(n->text, name.p, name.n);
    list_push(&ns->queue, &n->link);
    map_put(&ns->names, sub_notice_name(n), n);
    sched_post(s->sched, &ns->task);
}

/* ---- telling ---- */

static void sub_notices_touch(struct subscription *sub, const struct sub_notice *n)
{
    sub->all->notices.touched++;
    if (sub->heard >= n->number)
        return;
    sub_hint(sub, sub_notice_name(n), &sub->hints);
    sub->blocked = false;
    sub_settle(sub);
}

/* The one behind the mark, which moves behind it; NULL: there is none. */
static struct link *sub_notices_next(struct sub_notices *ns, struct link *members)
{
    struct link *l = ns->mark.next;
    if (l == members)
        return NULL;
    list_remove(&ns->mark);
    list_push(l->next, &ns->mark);
    return l;
}

/* How much of `room` it took. */
static size_t sub_notices_tell_members(struct subscriptions *s, size_t room)
{
    struct sub_notices *ns = &s->notices;
    const struct sub_notice *n = sub_notices_first(ns);
    struct link *members = &s->patterns.found[ns->found]->members, *l = NULL;
    if (list_empty(&ns->mark))
        list_push(members->next, &ns->mark);
    size_t told = 0;
    for (; told < room && (l = sub_notices_next(ns, members)) != NULL; told++) {
        struct subscription *sub = list_item(l, struct subscription, in_pattern);
        if (sub_may_match(sub, sub_notice_name(n)))
            sub_notices_touch(sub, n);
    }
    if (told < room) {
        list_remove(&ns->mark);
        ns->found++;
    }
    return told + 1;
}

static void sub_notices_tell_tie(struct sub_tie *t, const struct sub_notice *n)
{
    if (!t->is_wake_stream) {
        sub_notices_touch(t->sub, n);
    } else if (t->sub->blocked) {
        t->sub->blocked = false;
        sub_settle(t->sub);
    }
}

/* The same; true in *through: there are no more. */
static size_t sub_notices_tell_ties(struct subscriptions *s, size_t room, bool *through)
{
    struct sub_notices *ns = &s->notices;
    const struct sub_notice *n = sub_notices_first(ns);
    struct sub_bucket *b = map_get(&s->by_name, sub_notice_name(n));
    *through = true;
    if (b == NULL)
        return 1;
    if (list_empty(&ns->mark))
        list_push(b->members.next, &ns->mark);
    struct link *l;
    for (size_t told = 0; (l = sub_notices_next(ns, &b->members)) != NULL;) {
        sub_notices_tell_tie(list_item(l, struct sub_tie, in_bucket), n);
        if (++told == room) {
            *through = false;
            return told;
        }
    }
    list_remove(&ns->mark);
    sub_bucket_drop_if_empty(&s->by_name, b);
    return 1;
}

/* ---- one name after the other ---- */

static void sub_notices_begin(struct subscriptions *s)
{
    struct sub_notices *ns = &s->notices;
    struct sub_notice *n = sub_notices_first(ns);
    map_remove(&ns->names, sub_notice_name(n)); /* what happens from now on is news */
    sub_patterns_walk(&s->patterns, sub_notice_name(n));
    ns->found = 0;
    ns->step = SUB_NOTICES_WALK;
}

static void sub_notices_end(struct sub_notices *ns)
{
    struct sub_notice *n = sub_notices_first(ns);
    list_remove(&n->link);
    free(n);
    ns->step = SUB_NOTICES_IDLE;
}

/* A bounded piece of work; how much. */
static size_t sub_notices_step(struct subscriptions *s, size_t room)
{
    struct sub_notices *ns = &s->notices;
    uint64_t visited = s->patterns.visited;
    size_t told = 1;
    bool through;
    switch (ns->step) {
    case SUB_NOTICES_IDLE: sub_notices_begin(s); break;
    case SUB_NOTICES_WALK:
        if (sub_patterns_step(&s->patterns, room))
            ns->step = SUB_NOTICES_MEMBERS;
        told += s->patterns.visited - visited;
        break;
    case SUB_NOTICES_MEMBERS:
        if (ns->found < s->patterns.n_found) {
            told = sub_notices_tell_members(s, room);
        } else {
            sub_patterns_walked(&s->patterns);
            ns->step = SUB_NOTICES_TIES;
        }
        break;
    case SUB_NOTICES_TIES:
        told = sub_notices_tell_ties(s, room, &through);
        if (through)
            sub_notices_end(ns);
        break;
    }
    return told;
}

static void sub_notices_run(struct task *t)
{
    struct subscriptions *s = container_of(t, struct subscriptions, notices.task);
    struct sub_notices *ns = &s->notices;
    ns->slices++;
    for (size_t done = 0; done < SUB_SLICE && !list_empty(&ns->queue);)
        done += sub_notices_step(s, SUB_SLICE - done);
    if (!list_empty(&ns->queue))
        sched_post(s->sched, t);
}

/* ---- for one subscription, at once ---- */

void sub_hear(struct subscription *sub)
{
    struct sub_notices *ns = &sub->all->notices;
    struct link *l = &ns->queue;
    size_t n = 0;
    while (l->prev != &ns->queue && n <= SUB_HEAR_MAX &&
           list_item(l->prev, struct sub_notice, link)->number > sub->heard) {
        l = l->prev;
        n++;
    }
    sub->heard = ns->number;
    if (n > SUB_HEAR_MAX) {
        sub->behind = true;
        return;
    }
    for (; l != &ns->queue; l = l->next) {
        struct str name = sub_notice_name(list_item(l, struct sub_notice, link));
        if (sub_matches(sub, name) || sub_is_tied(sub, name))
            sub_hint(sub, name, &sub->hints);
    }
}

/* ---- life ---- */

void sub_notices_init(struct subscriptions *s)
{
    map_init(&s->notices.names);
    list_init(&s->notices.queue);
    list_init(&s->notices.mark);
    task_init(&s->notices.task, sub_notices_run);
}

void sub_notices_stop(struct subscriptions *s)
{
    struct sub_notices *ns = &s->notices;
    task_cancel(&ns->task);
    list_remove(&ns->mark);
    if (s->patterns.walking)
        sub_patterns_walked(&s->patterns);
    while (!list_empty(&ns->queue))
        sub_notices_end(ns);
    map_deinit(&ns->names);
    map_init(&ns->names);
}
