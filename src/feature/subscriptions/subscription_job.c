// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "feature/subscriptions/subscription_core.h"

#include <stdlib.h>

/* ---- life of a job ---- */

static void reset_try(struct subjob *j)
{
    struct subscription *sub = j->sub;
    list_splice(&sub->hints, &j->batch); /* not checked after all */
    if (j->hint != NULL)
        list_push(&sub->hints, &j->hint->link);
    arena_deinit(&j->arena);
    arena_deinit(&j->page);
    j->arena = j->page = (struct arena){0};
    j->after.n = j->head_text.n = j->event.n = 0;
    j->exists = j->linked = j->woke = j->changed = j->lenient = j->clean = false;
    j->head = (struct subscription_head){0};
    j->version = j->link_version = 0;
    j->hint = NULL;
    j->pages = SUBJOB_NO_PAGES;
    j->rows = NULL;
    j->puts = NULL;
    j->acks = NULL;
    j->acked = NULL;
    j->n_rows = j->at = j->n_puts = j->max_puts = j->n_acks = j->n_acked = 0;
    j->refusal = 0;
}

static void free_job(struct subjob *j)
{
    list_remove(&j->link);
    task_cancel(&j->task);
    buf_deinit(&j->key);
    buf_deinit(&j->after);
    buf_deinit(&j->head_text);
    buf_deinit(&j->event);
    free(j);
}

static void subscription_job_on_head(struct subjob *j)
{
    struct subscription *sub = j->sub;
    const struct store_docs *d = &j->op.docs;
    int err = 0;
    if (d->n_rows == 1 && str_eq(d->rows[0].key, sub->head_key)) {
        err = subscription_head_parse(&j->arena, d->rows[0].value, &j->head);
        j->exists = err == 0;
        j->version = d->rows[0].version;
    }
    if (err != 0) {
        subjob_end(j, err);
        return;
    }
    sub_adopt(sub, j->exists ? &j->head : NULL, j->version);
    j->begin(j);
}

static void subscription_job_start(struct task *t)
{
    struct subjob *j = container_of(t, struct subjob, task);
    if (j->sub->all->phase == SUBSCRIPTIONS_STOPPING)
        subjob_end(j, ERR_CANCELLED);
    else
        subjob_docs(j, j->sub->head_key, STR_NONE, 1, subscription_job_on_head);
}

void subjob_run(struct subscription *sub)
{
    if (sub->running || list_empty(&sub->jobs) || sub->all->phase == SUBSCRIPTIONS_LOADING)
        return;
    sub->running = true;
    sched_post(sub->all->sched, &list_item(sub->jobs.next, struct subjob, link)->task);
}

void subjob_add(struct subscription *sub, struct subscription_call *call, subjob_next *begin)
{
    struct subjob *j = mem_zalloc(sizeof *j);
    j->sub = sub;
    j->call = call;
    j->begin = begin;
    list_init(&j->batch);
    task_init(&j->task, subscription_job_start);
    list_push(&sub->jobs, &j->link);
    sub->all->n_jobs++;
    sub_load_kick(sub->all);
    subjob_run(sub);
}

static void look_ended(struct subscription *sub, int result)
{
    struct subscriptions *s = sub->all;
    sub->looking = false;
    s->n_looks--;
    sub->paused = result < 0 && s->phase != SUBSCRIPTIONS_STOPPING;
    if (sub->paused)
        sched_start(s->sched, &sub->timer, SUB_PAUSE_MS);
}

void subjob_end(struct subjob *j, int result)
{
    struct subscription *sub = j->sub;
    struct subscriptions *s = sub->all;
    struct subscription_call *call = j->call;
    if (result < 0)
        sub_doubt(sub); /* what was to be written may have been counted in */
    reset_try(j);
    free_job(j);
    sub->running = false;
    if (call == NULL)
        look_ended(sub, result);
    else
        call->done(call, result);
    subjob_run(sub);
    sub_settle(sub);
    sub_drop_if_unused(sub);
    s->n_jobs--;
    sub_check_stop(s);
}

void subjob_end_well(struct subjob *j)
{
    subjob_end(j, 0);
}

void subjob_again(struct subjob *j)
{
    sub_doubt(j->sub);
    reset_try(j);
    sched_post(j->sub->all->sched, &j->task);
}

void subjob_retry(struct subjob *j)
{
    if (++j->tries < SUB_TRIES)
        subjob_again(j);
    else
        subjob_end(j, ERR_BUSY);
}

void subjob_cancel_all(struct subscription *sub, int result)
{
    struct link waiting;
    list_init(&waiting);
    list_each_safe (l, &sub->jobs) {
        if (sub->running && l == sub->jobs.next)
            continue;
        list_remove(l);
        list_push(&waiting, l);
    }
    while (!list_empty(&waiting)) {
        struct subjob *j = list_item(waiting.next, struct subjob, link);
        struct subscription_call *call = j->call;
        free_job(j);
        if (call == NULL)
            look_ended(sub, result);
        else
            call->done(call, result);
        sub->all->n_jobs--;
    }
}

/* ---- operations of the store ---- */

static void finished(struct subjob *j, int err)
{
    if (j->sub->all->phase == SUBSCRIPTIONS_STOPPING)
        subjob_end(j, ERR_CANCELLED);
    else
        j->then(j, err);
}

static void subscription_job_good(struct subjob *j, int err)
{
    if (err == 0)
        j->good(j);
    else
        subjob_end(j, err);
}

static void subscription_job_good_or_retry(struct subjob *j, int err)
{
    if (err == ERR_VERSION)
        subjob_retry(j);
    else
        subscription_job_good(j, err);
}

static void subscription_job_docs_done(struct store_docs *d, int err)
{
    finished(container_of(d, struct subjob, op.docs), err);
}

void subjob_docs(struct subjob *j, struct str prefix, struct str after, size_t limit,
                 subjob_next *then)
{
    j->then = subscription_job_good;
    j->good = then;
    j->op.docs = (struct store_docs){
        .prefix = prefix, .after = after, .limit = limit, .done = subscription_job_docs_done};
    store_docs(j->sub->all->store, &j->op.docs);
}

static void subscription_job_stat_done(struct store_stat *st, int err)
{
    if (err == ERR_NOT_FOUND || err == ERR_DELETED) {
        st->info = (struct stream_info){0};
        err = 0;
    }
    finished(container_of(st, struct subjob, op.stat), err);
}

void subjob_stat(struct subjob *j, struct str name, subjob_next *then)
{
    j->then = subscription_job_good;
    j->good = then;
    j->op.stat = (struct store_stat){.name = name, .done = subscription_job_stat_done};
    store_stat(j->sub->all->store, &j->op.stat);
}

static void subscription_job_list_done(struct store_list *l, int err)
{
    finished(container_of(l, struct subjob, op.list), err);
}

void subjob_list(struct subjob *j, struct str prefix, struct str after, size_t limit,
                 subjob_next *then)
{
    j->then = subscription_job_good;
    j->good = then;
    j->op.list = (struct store_list){.prefix = prefix,
                                     .after = after,
                                     .limit = limit,
                                     .reserved = j->sub->sealed,
                                     .done = subscription_job_list_done};
    store_list(j->sub->all->store, &j->op.list);
}

static void subscription_job_put_done(struct store_put *p, int err)
{
    finished(container_of(p, struct subjob, op.put), err);
}

void subjob_put(struct subjob *j, const struct doc_put *docs, size_t n, subjob_step *then)
{
    j->then = then;
    j->op.put = (struct store_put){.docs = docs, .n_docs = n, .done = subscription_job_put_done};
    store_put(j->sub->all->store, &j->op.put);
}

void subjob_put_or_retry(struct subjob *j, const struct doc_put *docs, size_t n, subjob_next *then)
{
    j->good = then;
    subjob_put(j, docs, n, subscription_job_good_or_retry);
}

static void subscription_job_write_done(struct store_write *w, int err)
{
    finished(container_of(w, struct subjob, op.write), err);
}

void subjob_write(struct subjob *j, struct str stream, struct str event, const struct doc_put *docs,
                  size_t n, subjob_step *then)
{
    j->then = then;
    j->op.write = (struct store_write){.name = stream,
                                       .data = event,
                                       .n_events = 1,
                                       .docs = docs,
                                       .n_docs = n,
                                       .done = subscription_job_write_done};
    store_write(j->sub->all->store, &j->op.write);
}

/* ---- links ---- */

static void subscription_job_on_link(struct subjob *j)
{
    const struct store_docs *d = &j->op.docs;
    j->linked = false;
    j->link_version = 0;
    if (d->n_rows == 1 && str_eq(d->rows[0].key, buf_str(&j->key))) {
        j->link_version = d->rows[0].version;
        j->linked = subscription_link_parse(d->rows[0].value, &j->link_doc) == 0 &&
                    j->link_doc.birth == j->head.birth;
    }
    j->link_then(j);
}

void subjob_read_link(struct subjob *j, struct str name, subjob_next *then)
{
    j->key.n = 0;
    buf_put(&j->key, j->sub->link_prefix);
    buf_put(&j->key, name);
    j->link_then = then;
    subjob_docs(j, buf_str(&j->key), STR_NONE, 1, subscription_job_on_link);
}

void subjob_puts(struct subjob *j, struct arena *a, size_t n)
{
    j->puts = arena_alloc(a, n * sizeof *j->puts);
    j->n_puts = 0;
    j->max_puts = n;
}

void subjob_put_link(struct subjob *j, struct arena *a, struct str name,
                     const struct subscription_link *link)
{
    must(j->n_puts < j->max_puts);
    struct str prefix = j->sub->link_prefix;
    char *key = arena_alloc(a, prefix.n + name.n);
    memcpy(key, prefix.p, prefix.n);
    memcpy(key + prefix.n, name.p, name.n);
    char *value = NULL;
    if (link != NULL) {
        value = arena_alloc(a, SUBSCRIPTION_LINK_TEXT);
        subscription_link_format(link, value);
    }
    j->puts[j->n_puts++] =
        (struct doc_put){.key = str_of(key, prefix.n + name.n),
                         .value = str_of(value, link ? SUBSCRIPTION_LINK_TEXT : 0),
                         .expect_version = j->link_version};
}
