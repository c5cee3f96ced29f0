// SPDX-License-Identifier: Apache-2.0
/* mem_store.c -- the store in memory: the reference model for the others, and for who needs no
 * disk.
 *
 * An operation is looked at and done in one task of the schedule, right before its done(): all of
 * it happens at one moment, in the order of the calls. Only a long listing takes several. */
#include "store/mem/mem_store.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/catalog/catalog.h"
#include "store/catalog/verdict.h"

#include <stdlib.h>

struct mem {
    struct store store;
    struct catalog catalog;
    uint32_t unfinished; /* listings */
    struct task stop;
    void (*stopped)(void *ctx);
    void *stopped_ctx;
};

static struct mem *mem_of(struct store *s)
{
    return container_of(s, struct mem, store);
}

static struct catalog *catalog_of(struct store *s)
{
    return &mem_of(s)->catalog;
}

static void mem_store_run_write(struct task *t)
{
    struct store_write *w = container_of(t, struct store_write, call.task);
    struct catalog *c = catalog_of(w->call.store);
    struct judgement j;
    int v = catalog_judge(c, w, &j, NULL, NULL);
    if (v == VERDICT_APPLY) {
        struct stream *s = catalog_apply(c, w, &j);
        catalog_settle(c, s, &w->info);
    } else if (w->duplicate) {
        stream_touch(c, j.stream);
    }
    w->done(w, v > 0 ? 0 : v);
}

static void mem_store_run_remove(struct task *t)
{
    struct store_remove *r = container_of(t, struct store_remove, call.task);
    struct catalog *c = catalog_of(r->call.store);
    struct stream *s;
    int err = catalog_find(c, r->name, &s);
    if (err == 0)
        catalog_remove(c, s);
    r->done(r, err);
}

static void mem_store_run_stat(struct task *t)
{
    struct store_stat *st = container_of(t, struct store_stat, call.task);
    struct stream *s;
    int err = catalog_find(catalog_of(st->call.store), st->name, &s);
    if (err == 0)
        st->info = stream_info_of(s);
    st->done(st, err);
}

static int read_stream(struct catalog *c, struct store_read *r)
{
    struct stream *s;
    int err = catalog_find(c, r->name, &s);
    if (err != 0)
        return err;
    r->info = stream_info_of(s);
    if (r->touch)
        stream_touch(c, s);
    r->start = r->from == READ_TAIL ? s->settled_tail : s->settled_first;
    if (r->from == READ_AT)
        err = stream_resolve(s, r->at, &r->start, &r->gap.reason);
    if (r->from == READ_EVENT)
        err = stream_seek(s, r->event, &r->start, &r->gap.reason);
    if (err == ERR_GAP) {
        r->gap.requested = r->at;
        r->gap.earliest = (struct offset){s->life, s->settled_first};
    }
    return err != 0 ? err : stream_fill_read(s, r);
}

static void mem_store_run_read(struct task *t)
{
    struct store_read *r = container_of(t, struct store_read, call.task);
    sched_work(r->call.store->sched, "read");
    r->done(r, read_stream(catalog_of(r->call.store), r));
}

/* Behind what has come meanwhile. */
static void go_on(struct store_call *call)
{
    mem_of(call->store)->unfinished++;
    sched_post(call->store->sched, &call->task);
}

static void mem_store_run_list(struct task *t)
{
    struct store_list *l = container_of(t, struct store_list, call.task);
    struct mem *m = mem_of(l->call.store);
    m->unfinished -= l->page != NULL;
    sched_work(m->store.sched, "list");
    if (catalog_find_list(&m->catalog, l))
        catalog_end_list(l, 0);
    else
        go_on(&l->call);
}

static void mem_store_run_docs(struct task *t)
{
    struct store_docs *d = container_of(t, struct store_docs, call.task);
    struct mem *m = mem_of(d->call.store);
    m->unfinished -= d->page != NULL;
    sched_work(m->store.sched, "documents");
    if (catalog_find_docs(&m->catalog, d))
        catalog_end_docs(d, 0);
    else
        go_on(&d->call);
}

static void mem_store_run_put(struct task *t)
{
    struct store_put *p = container_of(t, struct store_put, call.task);
    struct catalog *c = catalog_of(p->call.store);
    int err = catalog_check_docs(c, p->docs, p->n_docs);
    if (err == 0)
        catalog_put_docs(c, p->docs, p->n_docs);
    p->done(p, err);
}

static void mem_write(struct store *s, struct store_write *w)
{
    w->created = w->duplicate = false;
    store_post(s, &w->call, mem_store_run_write);
}

static void mem_remove(struct store *s, struct store_remove *r)
{
    store_post(s, &r->call, mem_store_run_remove);
}

static void mem_stat(struct store *s, struct store_stat *st)
{
    store_post(s, &st->call, mem_store_run_stat);
}

static void mem_read(struct store *s, struct store_read *r)
{
    r->n_slices = 0;
    store_post(s, &r->call, mem_store_run_read);
}

static void mem_list(struct store *s, struct store_list *l)
{
    l->page = NULL;
    store_post(s, &l->call, mem_store_run_list);
}

static void mem_docs(struct store *s, struct store_docs *d)
{
    d->page = NULL;
    store_post(s, &d->call, mem_store_run_docs);
}

static void mem_put(struct store *s, struct store_put *p)
{
    store_post(s, &p->call, mem_store_run_put);
}

static void mem_watch(struct store *s, struct store_watch *w)
{
    watchers_add(&catalog_of(s)->watchers, w);
}

static void mem_unwatch(struct store *s, struct store_watch *w)
{
    watchers_remove(&catalog_of(s)->watchers, w);
}

/* Behind all operations that were started before. */
static void mem_store_run_stop(struct task *t)
{
    struct mem *m = container_of(t, struct mem, stop);
    if (m->unfinished > 0)
        sched_post(m->store.sched, &m->stop);
    else
        m->stopped(m->stopped_ctx);
}

static void mem_stop(struct store *s, void (*stopped)(void *ctx), void *ctx)
{
    struct mem *m = mem_of(s);
    m->stopped = stopped;
    m->stopped_ctx = ctx;
    sched_post(s->sched, &m->stop);
}

static void mem_free(struct store *s)
{
    struct mem *m = mem_of(s);
    catalog_deinit(&m->catalog);
    free(m);
}

/* All of it is on tapes. */
static enum trim_verdict mem_store_trim(struct catalog *c, struct stream *s)
{
    struct trim to;
    enum trim_verdict v = catalog_judge_trim(c, s, &to);
    if (v == TRIM_TO) {
        stream_trim(s, to.first, to.event);
        stream_settle_trim(c, s, to.first);
    }
    return v;
}

static int mem_health(struct store *s, struct str *why)
{
    return 0;
}

static const struct store_ops ops = {
    .write = mem_write,
    .remove = mem_remove,
    .stat = mem_stat,
    .read = mem_read,
    .list = mem_list,
    .docs = mem_docs,
    .put = mem_put,
    .watch = mem_watch,
    .unwatch = mem_unwatch,
    .health = mem_health,
    .stop = mem_stop,
    .free = mem_free,
};

struct store *mem_store_new(struct sched *sched)
{
    struct mem *m = mem_zalloc(sizeof *m);
    m->store = (struct store){
        .ops = &ops, .sched = sched, .fork_depth = STORE_FORK_DEPTH, .in_memory = true};
    task_init(&m->stop, mem_store_run_stop);
    catalog_init(&m->catalog, &m->store);
    m->catalog.trim = mem_store_trim;
    catalog_start_clock(&m->catalog);
    catalog_start_sweep(&m->catalog);
    return &m->store;
}
