// SPDX-License-Identifier: Apache-2.0
/* embedded_find.c -- what there is: one stream, streams, documents. */
#include "base/err.h"
#include "store/embedded/embedded_core.h"

static void embedded_finish_stat(struct store_call *c)
{
    struct store_stat *st = container_of(c, struct store_stat, call);
    st->done(st, c->result);
}

static void embedded_run_stat(struct task *t)
{
    struct store_stat *st = container_of(t, struct store_stat, call.task);
    struct embedded *e = embedded_of(st->call.store);
    struct stream *s;
    st->call.finish = embedded_finish_stat;
    int err = catalog_find(&e->catalog, st->name, &s);
    if (err == 0 && !s->settled)
        err = ERR_NOT_FOUND;
    if (err != 0) {
        embedded_answer_absent(e, &st->call, err);
        return;
    }
    st->info = stream_info_of(s);
    st->done(st, 0);
}

void embedded_stat(struct store *s, struct store_stat *st)
{
    store_post(s, &st->call, embedded_run_stat);
}

static void embedded_finish_list(struct store_call *c)
{
    catalog_end_list(container_of(c, struct store_list, call), c->result);
}

/* Stopping waits for it. */
static void go_on(struct embedded *e, struct store_call *c)
{
    e->reads++;
    sched_post(e->store.sched, &c->task);
}

/* Streams may change and go while the answer waits: it gets texts of its own. */
static void answer_list(struct embedded *e, struct store_list *l)
{
    if (embedded_stall_unrecorded(e, &l->call)) {
        catalog_drop_list(l);
        return;
    }
    if (embedded_has_to_wait(e, e->removed_batch))
        catalog_keep_list(l);
    l->call.result = 0;
    l->call.finish = embedded_finish_list;
    embedded_finish_after(e, &l->call, NULL, e->removed_batch);
}

static void embedded_run_list(struct task *t)
{
    struct store_list *l = container_of(t, struct store_list, call.task);
    struct embedded *e = embedded_of(l->call.store);
    bool again = l->page != NULL;
    sched_work(e->store.sched, "list");
    e->reads -= again;
    if (!catalog_find_list(&e->catalog, l)) {
        go_on(e, &l->call);
        return;
    }
    answer_list(e, l);
    if (again)
        embedded_check_stopped(e);
}

void embedded_list(struct store *s, struct store_list *l)
{
    l->page = NULL;
    store_post(s, &l->call, embedded_run_list);
}

static void embedded_finish_docs(struct store_call *c)
{
    catalog_end_docs(container_of(c, struct store_docs, call), c->result);
}

/* The documents may change while the answer waits: it gets texts of its own. */
static void answer_docs(struct embedded *e, struct store_docs *d)
{
    if (embedded_has_to_wait(e, e->docs_batch))
        catalog_keep_docs(d);
    d->call.result = 0;
    d->call.finish = embedded_finish_docs;
    embedded_finish_after(e, &d->call, NULL, e->docs_batch);
}

static void embedded_run_docs(struct task *t)
{
    struct store_docs *d = container_of(t, struct store_docs, call.task);
    struct embedded *e = embedded_of(d->call.store);
    bool again = d->page != NULL;
    sched_work(e->store.sched, "documents");
    e->reads -= again;
    if (!catalog_find_docs(&e->catalog, d)) {
        go_on(e, &d->call);
        return;
    }
    answer_docs(e, d);
    if (again)
        embedded_check_stopped(e);
}

void embedded_docs(struct store *s, struct store_docs *d)
{
    d->page = NULL;
    store_post(s, &d->call, embedded_run_docs);
}
