// SPDX-License-Identifier: Apache-2.0
#include "model/lossy.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "model/seeds.h"

#include <assert.h>
#include <stdlib.h>

struct lossy {
    struct store store;
    struct store *inner;
    struct rng rng;
    unsigned percent, late_ms;
    bool spares_closes, spares_creates;
    enum fate fate;
    size_t left; /* that meet it */
    size_t n_lost, n_pending;
};

/* One write or put on its way, a copy of the caller's; write.name.n == 0: a put. */
struct errand {
    struct lossy *lossy;
    struct timer timer;
    struct arena texts;
    struct stream_config create;
    struct store_write write;
    struct store_put put;
    struct store_write *write_of; /* whom to tell; both NULL: nobody */
    struct store_put *put_of;
};

static struct lossy *lossy_of(const struct store *s)
{
    return container_of(s, struct lossy, store);
}

static bool lossy_draw(struct lossy *l, enum fate *fate)
{
    *fate = l->fate;
    if (l->left > 0) {
        l->left--;
        return true;
    }
    *fate = (enum fate)rng_below(&l->rng, 3);
    return l->percent > 0 && rng_percent(&l->rng, l->percent);
}

/* ---- answers ---- */

static void lossy_refuse_write(struct task *t)
{
    struct store_write *w = container_of(t, struct store_write, call.task);
    w->done(w, ERR_AWAY);
}

static void lossy_refuse_put(struct task *t)
{
    struct store_put *p = container_of(t, struct store_put, call.task);
    p->done(p, ERR_AWAY);
}

static void errand_over(struct errand *e)
{
    struct store_write *w = e->write_of;
    struct store_put *p = e->put_of;
    e->lossy->n_pending--;
    arena_deinit(&e->texts);
    free(e);
    if (w != NULL)
        w->done(w, ERR_AWAY);
    if (p != NULL)
        p->done(p, ERR_AWAY);
}

static void lossy_on_write(struct store_write *w, int err)
{
    errand_over(container_of(w, struct errand, write));
}

static void lossy_on_put(struct store_put *p, int err)
{
    errand_over(container_of(p, struct errand, put));
}

static void lossy_set_out(struct timer *t)
{
    struct errand *e = container_of(t, struct errand, timer);
    if (e->write.name.n > 0)
        store_write(e->lossy->inner, &e->write);
    else
        store_put(e->lossy->inner, &e->put);
}

/* ---- copies ---- */

static struct str lossy_keep(struct errand *e, struct str s)
{
    if (s.n == 0)
        return s.p == NULL ? s : STR("");
    return arena_dup(&e->texts, s);
}

static const struct doc_put *lossy_keep_docs(struct errand *e, const struct doc_put *docs, size_t n)
{
    struct doc_put *copy = arena_alloc(&e->texts, (n + 1) * sizeof *copy);
    for (size_t i = 0; i < n; i++) {
        copy[i] = docs[i];
        copy[i].key = lossy_keep(e, docs[i].key);
        copy[i].value = lossy_keep(e, docs[i].value);
    }
    return copy;
}

static struct errand *errand_new(struct lossy *l)
{
    struct errand *e = mem_zalloc(sizeof *e);
    e->lossy = l;
    l->n_pending++;
    timer_init(&e->timer, lossy_set_out);
    return e;
}

static void lossy_set_write(struct errand *e, const struct store_write *w)
{
    e->write = *w;
    e->write.name = lossy_keep(e, w->name);
    e->write.content_type = lossy_keep(e, w->content_type);
    e->write.data = lossy_keep(e, w->data);
    e->write.seq = lossy_keep(e, w->seq);
    e->write.claim.id = lossy_keep(e, w->claim.id);
    if (w->ends != NULL) {
        struct str ends = str_of((const char *)w->ends, w->n_events * sizeof *w->ends);
        uint32_t *copy = arena_alloc(&e->texts, ends.n + sizeof *copy);
        memcpy(copy, ends.p, ends.n);
        e->write.ends = copy;
    }
    if (w->create != NULL) {
        e->create = *w->create;
        e->create.content_type = lossy_keep(e, w->create->content_type);
        e->create.fork_of = lossy_keep(e, w->create->fork_of);
        e->write.create = &e->create;
    }
    e->write.docs = lossy_keep_docs(e, w->docs, w->n_docs);
    e->write.done = lossy_on_write;
}

static void lossy_set_put(struct errand *e, const struct store_put *p)
{
    e->put = *p;
    e->put.docs = lossy_keep_docs(e, p->docs, p->n_docs);
    e->put.done = lossy_on_put;
}

static void lossy_send_late(struct errand *e)
{
    sched_start(e->lossy->store.sched, &e->timer,
                rng_between(&e->lossy->rng, 1, e->lossy->late_ms));
}

/* ---- operations ---- */

static void lossy_write(struct store *s, struct store_write *w)
{
    struct lossy *l = lossy_of(s);
    enum fate fate;
    bool spared = (w->close && l->spares_closes) || (w->create != NULL && l->spares_creates);
    if (spared || !lossy_draw(l, &fate)) {
        store_write(l->inner, w);
        return;
    }
    l->n_lost++;
    if (fate != FATE_NOT_DONE) {
        struct errand *e = errand_new(l);
        lossy_set_write(e, w);
        if (fate == FATE_DONE) {
            e->write_of = w;
            lossy_set_out(&e->timer);
            return;
        }
        lossy_send_late(e);
    }
    task_init(&w->call.task, lossy_refuse_write);
    sched_post(s->sched, &w->call.task);
}

static void lossy_put(struct store *s, struct store_put *p)
{
    struct lossy *l = lossy_of(s);
    enum fate fate;
    if (!lossy_draw(l, &fate)) {
        store_put(l->inner, p);
        return;
    }
    l->n_lost++;
    if (fate != FATE_NOT_DONE) {
        struct errand *e = errand_new(l);
        lossy_set_put(e, p);
        if (fate == FATE_DONE) {
            e->put_of = p;
            lossy_set_out(&e->timer);
            return;
        }
        lossy_send_late(e);
    }
    task_init(&p->call.task, lossy_refuse_put);
    sched_post(s->sched, &p->call.task);
}

static void lossy_remove(struct store *s, struct store_remove *r)
{
    store_remove(lossy_of(s)->inner, r);
}

static void lossy_stat(struct store *s, struct store_stat *st)
{
    store_stat(lossy_of(s)->inner, st);
}

static void lossy_read(struct store *s, struct store_read *r)
{
    store_read(lossy_of(s)->inner, r);
}

static void lossy_list(struct store *s, struct store_list *l)
{
    store_list(lossy_of(s)->inner, l);
}

static void lossy_docs(struct store *s, struct store_docs *d)
{
    store_docs(lossy_of(s)->inner, d);
}

static void lossy_watch(struct store *s, struct store_watch *w)
{
    store_watch(lossy_of(s)->inner, w);
}

static void lossy_unwatch(struct store *s, struct store_watch *w)
{
    store_unwatch(lossy_of(s)->inner, w);
}

static int lossy_health(struct store *s, struct str *why)
{
    return store_health(lossy_of(s)->inner, why);
}

static void lossy_stop(struct store *s, void (*stopped)(void *ctx), void *ctx)
{
    store_stop(lossy_of(s)->inner, stopped, ctx);
}

static void lossy_free(struct store *s)
{
    store_free(lossy_of(s)->inner);
    lossy_store_drop(s);
}

static const struct store_ops lossy_ops = {
    .write = lossy_write,
    .remove = lossy_remove,
    .stat = lossy_stat,
    .read = lossy_read,
    .list = lossy_list,
    .docs = lossy_docs,
    .put = lossy_put,
    .watch = lossy_watch,
    .unwatch = lossy_unwatch,
    .health = lossy_health,
    .stop = lossy_stop,
    .free = lossy_free,
};

struct store *lossy_store_new(struct store *inner, uint64_t seed)
{
    struct lossy *l = mem_zalloc(sizeof *l);
    l->store = *inner;
    l->store.ops = &lossy_ops;
    l->inner = inner;
    l->rng.state = seed;
    l->late_ms = LOSSY_LATE_MS;
    while (l->store.author == 0)
        l->store.author = rng_next(&l->rng);
    return &l->store;
}

void lossy_next(struct store *s, enum fate fate, size_t n)
{
    lossy_of(s)->fate = fate;
    lossy_of(s)->left = n;
}

void lossy_store_drop(struct store *s)
{
    assert(lossy_pending(s) == 0);
    free(lossy_of(s));
}

void lossy_spare_creates(struct store *s)
{
    lossy_of(s)->spares_creates = true;
}

void lossy_spare_closes(struct store *s)
{
    lossy_of(s)->spares_closes = true;
}

void lossy_often(struct store *s, unsigned percent)
{
    lossy_of(s)->percent = percent;
}

void lossy_late(struct store *s, unsigned ms)
{
    lossy_of(s)->late_ms = ms;
}

size_t lossy_lost(const struct store *s)
{
    return lossy_of(s)->n_lost;
}

size_t lossy_pending(const struct store *s)
{
    return lossy_of(s)->n_pending;
}
