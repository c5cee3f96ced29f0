// SPDX-License-Identifier: Apache-2.0
#include "model/delay.h"
#include "base/arena.h"
#include "base/mem.h"
#include "model/seeds.h"

#include <assert.h>
#include <stdlib.h>

struct delay {
    struct store store;
    struct store *inner;
    struct rng rng;
    unsigned max_turns;
    bool one_by_one;
    struct timer tick;
    struct link items; /* what is held */
    struct link due;   /* what is held no longer */
    size_t n_items, n_under_way, n_watches, watches_max;
    uint64_t n_reads;
    void (*passed_on)(void *ctx, const void *op);
    void *ctx;
};

/* Something that happens after so many turns. */
struct item {
    struct link link;
    unsigned turns;
    void (*run)(struct item *i);
};

static struct delay *delay_of(const struct store *s)
{
    return container_of(s, struct delay, store);
}

/* ---- the clockwork ---- */

static void hold(struct delay *d, struct item *i, void (*run)(struct item *i))
{
    i->turns = (unsigned)rng_between(&d->rng, 1, d->max_turns);
    i->run = run;
    list_push(&d->items, &i->link);
    d->n_items++;
    if (!timer_running(&d->tick))
        sched_start(d->store.sched, &d->tick, 1);
}

static void let_go(struct delay *d, struct item *i)
{
    list_remove(&i->link);
    d->n_items--;
}

static struct item *any_of(struct rng *r, struct link *items)
{
    size_t n = 0;
    list_each (l, items)
        n++;
    struct link *at = items->next;
    for (uint64_t skip = rng_below(r, n); skip > 0; skip--)
        at = at->next;
    return list_item(at, struct item, link);
}

static void tick(struct timer *t)
{
    struct delay *d = container_of(t, struct delay, tick);
    list_each_safe (l, &d->items) {
        if (--list_item(l, struct item, link)->turns > 0)
            continue;
        list_remove(l);
        list_push(&d->due, l);
    }
    while (!list_empty(&d->due)) {
        struct item *i = any_of(&d->rng, &d->due);
        let_go(d, i);
        i->run(i);
    }
    if (d->n_items > 0)
        sched_start(d->store.sched, &d->tick, 1);
}

/* ---- operations ---- */

/* One operation: the caller's struct, and the copy of it that the inner store works on. */
struct held {
    struct item item;
    struct delay *delay;
    const struct kind *kind;
    void *op;
    int err;
    struct arena texts;
    union {
        struct store_write write;
        struct store_remove remove;
        struct store_stat stat;
        struct store_read read;
        struct store_list list;
        struct store_docs docs;
        struct store_put put;
    } inner;
};

struct kind {
    void (*begin)(struct held *h);
    void (*finish)(struct held *h); /* copies the results to the caller's struct and tells it */
};

static struct str keep(struct held *h, struct str s)
{
    if (s.n == 0)
        return s.p == NULL ? s : STR("");
    return arena_dup(&h->texts, s);
}

static void keep_info(struct held *h, struct stream_info *info)
{
    info->content_type = keep(h, info->content_type);
}

static void complete(struct item *i)
{
    struct held *h = container_of(i, struct held, item);
    h->kind->finish(h);
    arena_deinit(&h->texts);
    free(h);
}

static void came_back(struct held *h, int err)
{
    h->err = err;
    h->delay->n_under_way--;
    hold(h->delay, &h->item, complete);
}

static void pass_on(struct item *i)
{
    struct held *h = container_of(i, struct held, item);
    struct delay *d = h->delay;
    if (d->one_by_one && d->n_under_way > 0) {
        hold(d, i, pass_on);
        return;
    }
    if (d->passed_on != NULL)
        d->passed_on(d->ctx, h->op);
    d->n_under_way++;
    h->kind->begin(h);
}

static void take(struct store *s, const struct kind *kind, void *op)
{
    struct held *h = mem_zalloc(sizeof *h);
    h->delay = delay_of(s);
    h->kind = kind;
    h->op = op;
    hold(h->delay, &h->item, pass_on);
}

/* The caller's struct becomes the inner one but for what belongs to each. */
#define GIVE_BACK(type, member)                                                                    \
    struct type *op = h->op;                                                                       \
    h->inner.member.done = op->done;                                                               \
    h->inner.member.call = op->call;                                                               \
    *op = h->inner.member;                                                                         \
    op->done(op, h->err)

static void write_back(struct store_write *w, int err)
{
    struct held *h = container_of(w, struct held, inner.write);
    keep_info(h, &w->info);
    came_back(h, err);
}

static void begin_write(struct held *h)
{
    h->inner.write = *(const struct store_write *)h->op;
    h->inner.write.info = (struct stream_info){0};
    h->inner.write.done = write_back;
    store_write(h->delay->inner, &h->inner.write);
}

static void finish_write(struct held *h)
{
    GIVE_BACK(store_write, write);
}

static void remove_back(struct store_remove *r, int err)
{
    came_back(container_of(r, struct held, inner.remove), err);
}

static void begin_remove(struct held *h)
{
    h->inner.remove = *(const struct store_remove *)h->op;
    h->inner.remove.done = remove_back;
    store_remove(h->delay->inner, &h->inner.remove);
}

static void finish_remove(struct held *h)
{
    GIVE_BACK(store_remove, remove);
}

static void stat_back(struct store_stat *st, int err)
{
    struct held *h = container_of(st, struct held, inner.stat);
    keep_info(h, &st->info);
    came_back(h, err);
}

static void begin_stat(struct held *h)
{
    h->inner.stat = *(const struct store_stat *)h->op;
    h->inner.stat.info = (struct stream_info){0};
    h->inner.stat.done = stat_back;
    store_stat(h->delay->inner, &h->inner.stat);
}

static void finish_stat(struct held *h)
{
    GIVE_BACK(store_stat, stat);
}

static void read_back(struct store_read *r, int err)
{
    struct held *h = container_of(r, struct held, inner.read);
    keep_info(h, &r->info);
    came_back(h, err);
}

static void begin_read(struct held *h)
{
    h->delay->n_reads++;
    h->inner.read = *(const struct store_read *)h->op;
    h->inner.read.info = (struct stream_info){0};
    h->inner.read.done = read_back;
    store_read(h->delay->inner, &h->inner.read);
}

static void finish_read(struct held *h)
{
    GIVE_BACK(store_read, read);
}

static void list_back(struct store_list *l, int err)
{
    struct held *h = container_of(l, struct held, inner.list);
    struct store_row *rows = arena_alloc(&h->texts, (l->n_rows + 1) * sizeof *rows);
    for (size_t i = 0; i < l->n_rows; i++) {
        rows[i] = l->rows[i];
        rows[i].name = keep(h, rows[i].name);
        keep_info(h, &rows[i].info);
    }
    l->rows = rows;
    came_back(h, err);
}

static void begin_list(struct held *h)
{
    h->inner.list = *(const struct store_list *)h->op;
    h->inner.list.n_rows = 0;
    h->inner.list.done = list_back;
    store_list(h->delay->inner, &h->inner.list);
}

static void finish_list(struct held *h)
{
    GIVE_BACK(store_list, list);
}

static void docs_back(struct store_docs *d, int err)
{
    struct held *h = container_of(d, struct held, inner.docs);
    struct doc_row *rows = arena_alloc(&h->texts, (d->n_rows + 1) * sizeof *rows);
    for (size_t i = 0; i < d->n_rows; i++) {
        rows[i] = d->rows[i];
        rows[i].key = keep(h, rows[i].key);
        rows[i].value = keep(h, rows[i].value);
    }
    d->rows = rows;
    came_back(h, err);
}

static void begin_docs(struct held *h)
{
    h->inner.docs = *(const struct store_docs *)h->op;
    h->inner.docs.n_rows = 0;
    h->inner.docs.done = docs_back;
    store_docs(h->delay->inner, &h->inner.docs);
}

static void finish_docs(struct held *h)
{
    GIVE_BACK(store_docs, docs);
}

static void put_back(struct store_put *p, int err)
{
    came_back(container_of(p, struct held, inner.put), err);
}

static void begin_put(struct held *h)
{
    h->inner.put = *(const struct store_put *)h->op;
    h->inner.put.done = put_back;
    store_put(h->delay->inner, &h->inner.put);
}

static void finish_put(struct held *h)
{
    GIVE_BACK(store_put, put);
}

static const struct kind kind_write = {begin_write, finish_write};
static const struct kind kind_remove = {begin_remove, finish_remove};
static const struct kind kind_stat = {begin_stat, finish_stat};
static const struct kind kind_read = {begin_read, finish_read};
static const struct kind kind_list = {begin_list, finish_list};
static const struct kind kind_docs = {begin_docs, finish_docs};
static const struct kind kind_put = {begin_put, finish_put};

static void delay_write(struct store *s, struct store_write *w)
{
    take(s, &kind_write, w);
}

static void delay_remove(struct store *s, struct store_remove *r)
{
    take(s, &kind_remove, r);
}

static void delay_stat(struct store *s, struct store_stat *st)
{
    take(s, &kind_stat, st);
}

static void delay_read(struct store *s, struct store_read *r)
{
    take(s, &kind_read, r);
}

static void delay_list(struct store *s, struct store_list *l)
{
    take(s, &kind_list, l);
}

static void delay_docs(struct store *s, struct store_docs *d)
{
    take(s, &kind_docs, d);
}

static void delay_put(struct store *s, struct store_put *p)
{
    take(s, &kind_put, p);
}

/* ---- watches ---- */

/* Watches on behalf of one of the caller's, whose link is the only one in `outer`. */
struct proxy {
    struct store_watch inner;
    struct delay *delay;
    struct link outer;
    struct link notes;
};

/* A notice that has not been handed over yet. */
struct note {
    struct item item;
    struct link of_proxy;
    struct proxy *proxy;
    size_t n;
    char name[];
};

static void drop_note(struct note *n)
{
    list_remove(&n->of_proxy);
    free(n);
}

static void tell(struct item *i)
{
    struct note *n = container_of(i, struct note, item);
    struct proxy *p = n->proxy;
    struct store_watch *outer = list_item(p->outer.next, struct store_watch, link);
    char text[STORE_NAME_MAX];
    struct str name = str_of(text, n->n);
    memcpy(text, n->name, n->n);
    if (rng_one_in(&p->delay->rng, 8))
        hold(p->delay, i, tell);
    else
        drop_note(n);
    outer->changed(outer, name); /* may unwatch: nothing of p is used below */
}

static void inner_changed(struct store_watch *w, struct str name)
{
    struct proxy *p = container_of(w, struct proxy, inner);
    list_each (l, &p->notes) {
        const struct note *n = list_item(l, struct note, of_proxy);
        if (str_eq(str_of(n->name, n->n), name))
            return;
    }
    assert(name.n <= STORE_NAME_MAX);
    struct note *n = mem_zalloc(sizeof *n + name.n);
    n->proxy = p;
    n->n = name.n;
    memcpy(n->name, name.p, name.n);
    list_push(&p->notes, &n->of_proxy);
    hold(p->delay, &n->item, tell);
}

static void delay_watch(struct store *s, struct store_watch *w)
{
    struct delay *d = delay_of(s);
    struct proxy *p = mem_zalloc(sizeof *p);
    p->delay = d;
    list_init(&p->outer);
    list_init(&p->notes);
    list_push(&p->outer, &w->link);
    p->inner.name = w->name;
    p->inner.changed = inner_changed;
    store_watch(d->inner, &p->inner);
    if (++d->n_watches > d->watches_max)
        d->watches_max = d->n_watches;
}

static void delay_unwatch(struct store *s, struct store_watch *w)
{
    struct delay *d = delay_of(s);
    struct proxy *p = container_of(w->link.next, struct proxy, outer);
    list_remove(&w->link);
    while (!list_empty(&p->notes)) {
        struct note *n = list_item(p->notes.next, struct note, of_proxy);
        let_go(d, &n->item);
        drop_note(n);
    }
    store_unwatch(d->inner, &p->inner);
    d->n_watches--;
    free(p);
}

/* ---- the store ---- */

static void delay_free(struct store *s)
{
    struct delay *d = delay_of(s);
    assert(delay_pending(s) == 0 && d->n_watches == 0);
    timer_stop(&d->tick);
    store_free(d->inner);
    free(d);
}

static void delay_stop(struct store *s, void (*stopped)(void *ctx), void *ctx)
{
    store_stop(delay_of(s)->inner, stopped, ctx);
}

static int delay_health(struct store *s, struct str *why)
{
    return store_health(delay_of(s)->inner, why);
}

static const struct store_ops delay_ops = {
    .write = delay_write,
    .remove = delay_remove,
    .stat = delay_stat,
    .read = delay_read,
    .list = delay_list,
    .docs = delay_docs,
    .put = delay_put,
    .watch = delay_watch,
    .unwatch = delay_unwatch,
    .health = delay_health,
    .stop = delay_stop,
    .free = delay_free,
};

struct store *delay_store_new(struct store *inner, uint64_t seed, unsigned max_turns)
{
    struct delay *d = mem_zalloc(sizeof *d);
    d->store = (struct store){.ops = &delay_ops, .sched = inner->sched};
    d->inner = inner;
    d->rng.state = seed;
    d->max_turns = max_turns;
    list_init(&d->items);
    list_init(&d->due);
    timer_init(&d->tick, tick);
    return &d->store;
}

void delay_one_by_one(struct store *s)
{
    delay_of(s)->one_by_one = true;
}

void delay_observe(struct store *s, void (*passed_on)(void *ctx, const void *op), void *ctx)
{
    delay_of(s)->passed_on = passed_on;
    delay_of(s)->ctx = ctx;
}

size_t delay_pending(const struct store *s)
{
    const struct delay *d = delay_of(s);
    return d->n_items + d->n_under_way;
}

uint64_t delay_reads(const struct store *s)
{
    return delay_of(s)->n_reads;
}

size_t delay_watches_max(const struct store *s)
{
    return delay_of(s)->watches_max;
}
