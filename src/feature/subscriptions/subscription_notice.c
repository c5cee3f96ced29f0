// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "feature/subscriptions/subscription_core.h"
#include "feature/subscriptions/subscription_pattern.h"
#include "store/names.h"

#include <stdlib.h>

/* Whoever appends pays for one entry in a queue: the name of the stream, once however often it
 * changes until its turn. A task takes the names one by one, finds the patterns that match and
 * the ties of the name, and tells their subscriptions, SUB_SLICE of them before it lets others
 * run. Who has heard what is in the queue does not hear it again (`heard`), so a name that changes
 * after that comes a second time, and keeps its first turn. So the queue is never longer than twice
 * the number of streams.
 *
 * Who was told of something has enough to do, and is told no more until it has looked: a member of
 * a pattern does not listen until then, and hears the *news* afterwards, which are the names that
 * were noted meanwhile, once for all members. A tie is taken out until its stream is looked at.
 * So a stream that changes again and again costs ten thousand subscriptions one telling.
 *
 *     IDLE --a name--> WALK --patterns found--> MEMBERS --all told--> TIES --all told--> IDLE
 *
 * A subscription that wants to know at once what concerns it asks the queue (sub_hear_queue). */

struct sub_notice {
    struct link link;
    uint64_t number;
    bool again; /* an older one of the same name is in the queue, too */
    size_t n;
    char text[];
};

static struct str sub_notice_name(const struct sub_notice *n)
{
    return str_of(n->text, n->n);
}

static struct sub_notice *sub_notice_new(struct str name)
{
    struct sub_notice *n = mem_alloc(sizeof *n + name.n);
    list_init(&n->link);
    n->again = false;
    n->n = name.n;
    memcpy(n->text, name.p, name.n);
    return n;
}

static struct sub_notice *sub_notices_first(struct sub_notices *ns)
{
    return list_item(ns->queue.next, struct sub_notice, link);
}

void sub_notices_changed(struct store_watch *w, struct str name)
{
    struct subscriptions *s = container_of(w, struct subscriptions, watch);
    struct sub_notices *ns = &s->notices;
    struct sub_notice *n = map_get(&ns->names, name);
    if (n != NULL && n->number > ns->heard)
        return;
    if (n == NULL || !n->again) {
        bool again = n != NULL;
        n = sub_notice_new(name);
        n->again = again;
        map_put(&ns->names, sub_notice_name(n), n);
    }
    n->number = ++ns->number;
    list_remove(&n->link);
    list_push(&ns->queue, &n->link);
    sched_post_background(s->sched, &ns->task);
}

/* ---- news ---- */

struct sub_news {
    struct map names;   /* of struct sub_notice */
    struct link list;   /* the latest last */
    uint64_t forgotten; /* up to this one; who has not heard it is behind */
};

static void sub_news_forget(struct sub_notices *ns, struct sub_news *news)
{
    ns->n_news -= news->names.n;
    map_deinit(&news->names);
    map_init(&news->names);
    list_each_safe (l, &news->list) {
        list_remove(l);
        free(list_item(l, struct sub_notice, link));
    }
}

static void sub_news_free(struct sub_notices *ns, struct sub_pattern *p)
{
    if (p->news == NULL)
        return;
    sub_news_forget(ns, p->news);
    map_deinit(&p->news->names);
    free(p->news);
    p->news = NULL;
}

static void sub_news_add(struct sub_notices *ns, struct sub_pattern *p, const struct sub_notice *of)
{
    if (p->n_listening == p->n_members)
        return;
    if (p->news == NULL) {
        p->news = mem_zalloc(sizeof *p->news);
        map_init(&p->news->names);
        list_init(&p->news->list);
    }
    struct sub_news *news = p->news;
    struct sub_notice *n = map_get(&news->names, sub_notice_name(of));
    if (n == NULL && (news->names.n >= SUB_NEWS_OWN || ns->n_news >= ns->news_max)) {
        sub_news_forget(ns, news);
        news->forgotten = of->number;
        return;
    }
    if (n == NULL) {
        n = sub_notice_new(sub_notice_name(of));
        map_put(&news->names, sub_notice_name(n), n);
        ns->n_news++;
    }
    n->number = of->number;
    list_remove(&n->link);
    list_push(&news->list, &n->link);
}

/* The first of a list that it has not heard; NULL: there are more than SUB_HEAR_MAX. The head of
 * the list: there is none. */
static struct link *sub_first_unheard(const struct subscription *sub, struct link *list)
{
    struct link *l = list;
    for (size_t n = 0; l->prev != list; n++, l = l->prev) {
        if (list_item(l->prev, struct sub_notice, link)->number <= sub->heard)
            break;
        if (n == SUB_HEAR_MAX)
            return NULL;
    }
    return l;
}

/* What it had found out may be old as well. */
static void sub_fall_behind(struct subscription *sub)
{
    sub->behind = true;
    sub_recheck_hints(sub);
}

void sub_hear(struct subscription *sub)
{
    struct sub_news *news = sub->in == NULL || sub->listening ? NULL : sub->in->news;
    if (news == NULL)
        return;
    if (news->forgotten > sub->heard) {
        sub_fall_behind(sub);
        sub->heard = news->forgotten;
    }
    struct link *l = sub_first_unheard(sub, &news->list); /* there are not that many */
    for (; l != &news->list; l = l->next) {
        struct sub_notice *n = list_item(l, struct sub_notice, link);
        if (sub_may_match(sub, sub_notice_name(n)))
            sub_hint(sub, sub_notice_name(n), &sub->hints);
        sub->heard = n->number;
    }
}

void sub_hear_queue(struct subscription *sub)
{
    struct sub_notices *ns = &sub->all->notices;
    struct link *l = sub_first_unheard(sub, &ns->queue);
    sub->heard = ns->heard = ns->number;
    if (l == NULL) {
        sub_fall_behind(sub);
        return;
    }
    for (; l != &ns->queue; l = l->next) {
        struct str name = sub_notice_name(list_item(l, struct sub_notice, link));
        if (sub_matches(sub, name) || sub_is_tied(sub, name))
            sub_hint(sub, name, &sub->hints);
    }
}

void sub_listen(struct subscription *sub)
{
    struct sub_pattern *p = sub->in;
    if (p == NULL || sub->listening)
        return;
    sub_hear(sub);
    sub->listening = true;
    list_push(&p->members, &sub->in_pattern);
    if (++p->n_listening == p->n_members)
        sub_news_free(&sub->all->notices, p);
}

void sub_unlisten(struct subscription *sub)
{
    struct sub_pattern *p = sub->in;
    if (sub->listening)
        p->n_listening--;
    sub->listening = false;
    list_remove(&sub->in_pattern);
    if (p->n_listening + 1 == p->n_members) /* all the others do */
        sub_news_free(&sub->all->notices, p);
}

/* ---- telling ---- */

static void sub_notices_touch(struct subscription *sub)
{
    sub->all->notices.touched++;
    sub->blocked = false;
    sub_settle(sub);
}

static void sub_notices_tell_member(struct subscription *sub, const struct sub_notice *n)
{
    struct str name = sub_notice_name(n);
    if (sub->heard >= n->number || !sub_may_match(sub, name))
        return;
    sub_hint(sub, name, &sub->hints);
    sub->heard = n->number;
    sub->listening = false;
    sub->in->n_listening--;
    list_remove(&sub->in_pattern);
    sub_notices_touch(sub);
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
    if (list_empty(&ns->mark)) {
        sub_news_add(ns, s->patterns.found[ns->found], n);
        list_push(members->next, &ns->mark);
    }
    size_t told = 0;
    for (; told < room && (l = sub_notices_next(ns, members)) != NULL; told++) {
        sub_notices_tell_member(list_item(l, struct subscription, in_pattern), n);
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
        if (sub_hint(t->sub, sub_notice_name(n), &t->sub->hints))
            list_remove(&t->in_bucket);
        sub_notices_touch(t->sub);
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
    struct sub_notice *last = map_get(&ns->names, sub_notice_name(n));
    last->again = false;
    if (last == n)
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
    sched_work(s->sched, SUB_WORK);
    ns->slices++;
    for (size_t done = 0; done < ns->slice && !list_empty(&ns->queue);)
        done += sub_notices_step(s, ns->slice - done);
    if (!list_empty(&ns->queue))
        sched_post_background(s->sched, t);
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
