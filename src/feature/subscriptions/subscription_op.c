// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "feature/subscriptions/subscription_core.h"

#include <stdlib.h>

/* ---- life of an operation ---- */

static void reset_try(struct subop *j)
{
    struct subscription *sub = j->sub;
    list_splice(&sub->hints, &j->batch); /* not checked after all */
    if (j->hint != NULL)
        list_push(&sub->hints, &j->hint->link);
    if (j->pages != SUBOP_NO_PAGES) /* nor are those that it did not come to */
        sub->behind = true;
    arena_deinit(&j->arena);
    arena_deinit(&j->page);
    arena_deinit(&j->links.arena);
    arena_deinit(&j->streams.arena);
    j->arena = j->page = j->links.arena = j->streams.arena = (struct arena){0};
    j->links.n = j->links.at = j->streams.n = j->streams.at = 0;
    j->after.n = j->head_text.n = j->event.n = 0;
    j->exists = j->linked = j->woke = j->changed = j->lenient = j->clean = false;
    j->head = (struct subscription_head){0};
    j->version = j->link_version = 0;
    j->hint = NULL;
    j->pages = SUBOP_NO_PAGES;
    j->rows = NULL;
    j->puts = NULL;
    j->acks = NULL;
    j->acked = NULL;
    j->n_rows = j->at = j->n_puts = j->max_puts = j->n_acks = j->n_acked = 0;
    j->refusal = 0;
}

static void free_op(struct subop *j)
{
    list_remove(&j->link);
    task_cancel(&j->task);
    buf_deinit(&j->key);
    buf_deinit(&j->after);
    buf_deinit(&j->links.after);
    buf_deinit(&j->streams.after);
    buf_deinit(&j->head_text);
    buf_deinit(&j->event);
    free(j);
}

static void subscription_op_on_head(struct subop *j)
{
    struct subscription *sub = j->sub;
    const struct store_docs *d = &j->op.docs;
    int err = 0;
    if (d->n_rows == 1) {
        err = subscription_head_parse(&j->arena, d->rows[0].value, &j->head);
        j->exists = err == 0;
        j->version = d->rows[0].version;
    }
    if (err != 0) {
        subop_end(j, err);
        return;
    }
    sub_adopt(sub, j->exists ? &j->head : NULL, j->version);
    j->begin(j);
}

static void subscription_op_start(struct task *t)
{
    struct subop *j = container_of(t, struct subop, task);
    if (j->sub->all->phase == SUBSCRIPTIONS_STOPPING)
        subop_end(j, ERR_CANCELLED);
    else
        subop_doc(j, j->sub->head_key, subscription_op_on_head);
}

void subop_run(struct subscription *sub)
{
    if (sub->running || list_empty(&sub->ops))
        return;
    if (sub->all->phase == SUBSCRIPTIONS_LOADING) {
        list_remove(&sub->waiting);
        list_push(&sub->all->waiting, &sub->waiting);
        return;
    }
    sub->running = true;
    sched_post(sub->all->sched, &list_item(sub->ops.next, struct subop, link)->task);
}

void subop_add(struct subscription *sub, struct subscription_call *call, subop_next *begin)
{
    struct subop *j = mem_zalloc(sizeof *j);
    j->sub = sub;
    j->call = call;
    j->begin = begin;
    list_init(&j->batch);
    task_init(&j->task, subscription_op_start);
    list_push(&sub->ops, &j->link);
    sub->all->n_ops++;
    sub_load_retry_now(sub->all);
    subop_run(sub);
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

void subop_end(struct subop *j, int result)
{
    struct subscription *sub = j->sub;
    struct subscriptions *s = sub->all;
    struct subscription_call *call = j->call;
    if (result < 0) {
        sub_recheck_hints(sub); /* what was to be written may have been counted in */
        sub->blocked = false;   /* perhaps it is not */
    }
    reset_try(j);
    free_op(j);
    sub->running = false;
    if (call == NULL)
        look_ended(sub, result);
    else
        call->done(call, result);
    subop_run(sub);
    sub_settle(sub);
    sub_drop_if_unused(sub);
    s->n_ops--;
    sub_check_stop(s);
}

void subop_end_well(struct subop *j)
{
    subop_end(j, 0);
}

void subop_again(struct subop *j)
{
    sub_recheck_hints(j->sub);
    reset_try(j);
    sched_post(j->sub->all->sched, &j->task);
}

void subop_retry(struct subop *j)
{
    if (++j->tries < SUB_TRIES)
        subop_again(j);
    else
        subop_end(j, ERR_BUSY);
}

void subop_cancel_all(struct subscription *sub, int result)
{
    struct link waiting;
    list_init(&waiting);
    list_each_safe (l, &sub->ops) {
        if (sub->running && l == sub->ops.next)
            continue;
        list_remove(l);
        list_push(&waiting, l);
    }
    while (!list_empty(&waiting)) {
        struct subop *j = list_item(waiting.next, struct subop, link);
        struct subscription_call *call = j->call;
        free_op(j);
        if (call == NULL)
            look_ended(sub, result);
        else
            call->done(call, result);
        sub->all->n_ops--;
    }
}

/* ---- operations of the store ---- */

static void finished(struct subop *j, int err)
{
    sched_work(j->sub->all->sched, SUB_WORK);
    if (j->sub->all->phase == SUBSCRIPTIONS_STOPPING)
        subop_end(j, ERR_CANCELLED);
    else
        j->then(j, err);
}

static void subscription_op_good(struct subop *j, int err)
{
    if (err == 0)
        j->good(j);
    else
        subop_end(j, err);
}

static void subscription_op_good_or_retry(struct subop *j, int err)
{
    if (err == ERR_VERSION)
        subop_retry(j);
    else
        subscription_op_good(j, err);
}

static void subscription_op_docs_done(struct store_docs *d, int err)
{
    finished(container_of(d, struct subop, op.docs), err);
}

void subop_docs(struct subop *j, struct str prefix, struct str after, size_t limit,
                subop_next *then)
{
    j->then = subscription_op_good;
    j->good = then;
    j->op.docs = (struct store_docs){
        .prefix = prefix, .after = after, .limit = limit, .done = subscription_op_docs_done};
    store_docs(j->sub->all->store, &j->op.docs);
}

void subop_doc(struct subop *j, struct str key, subop_next *then)
{
    j->then = subscription_op_good;
    j->good = then;
    j->op.docs = (struct store_docs){
        .prefix = key, .limit = 1, .exact = true, .done = subscription_op_docs_done};
    store_docs(j->sub->all->store, &j->op.docs);
}

static void subscription_op_stat_done(struct store_stat *st, int err)
{
    if (err == ERR_NOT_FOUND || err == ERR_DELETED) {
        st->info = (struct stream_info){0};
        err = 0;
    }
    finished(container_of(st, struct subop, op.stat), err);
}

void subop_stat(struct subop *j, struct str name, subop_next *then)
{
    j->then = subscription_op_good;
    j->good = then;
    j->op.stat = (struct store_stat){.name = name, .done = subscription_op_stat_done};
    store_stat(j->sub->all->store, &j->op.stat);
}

static void subscription_op_list_done(struct store_list *l, int err)
{
    finished(container_of(l, struct subop, op.list), err);
}

void subop_list(struct subop *j, struct str prefix, struct str after, size_t limit,
                subop_next *then)
{
    j->then = subscription_op_good;
    j->good = then;
    j->op.list = (struct store_list){.prefix = prefix,
                                     .after = after,
                                     .limit = limit,
                                     .reserved = j->sub->sealed,
                                     .done = subscription_op_list_done};
    store_list(j->sub->all->store, &j->op.list);
}

static void subscription_op_put_done(struct store_put *p, int err)
{
    finished(container_of(p, struct subop, op.put), err);
}

void subop_put(struct subop *j, const struct doc_put *docs, size_t n, subop_step *then)
{
    j->then = then;
    j->op.put = (struct store_put){.docs = docs, .n_docs = n, .done = subscription_op_put_done};
    store_put(j->sub->all->store, &j->op.put);
}

void subop_put_or_retry(struct subop *j, const struct doc_put *docs, size_t n, subop_next *then)
{
    j->good = then;
    subop_put(j, docs, n, subscription_op_good_or_retry);
}

static void subscription_op_write_done(struct store_write *w, int err)
{
    finished(container_of(w, struct subop, op.write), err);
}

void subop_write(struct subop *j, struct str stream, struct str event, const struct doc_put *docs,
                 size_t n, subop_step *then)
{
    j->then = then;
    j->op.write = (struct store_write){.name = stream,
                                       .data = event,
                                       .n_events = 1,
                                       .docs = docs,
                                       .n_docs = n,
                                       .done = subscription_op_write_done};
    store_write(j->sub->all->store, &j->op.write);
}

/* ---- links ---- */

static void subscription_op_on_link(struct subop *j)
{
    const struct store_docs *d = &j->op.docs;
    j->linked = false;
    j->link_version = 0;
    if (d->n_rows == 1) {
        j->link_version = d->rows[0].version;
        j->linked = subscription_link_parse(d->rows[0].value, &j->link_doc) == 0 &&
                    j->link_doc.birth == j->head.birth;
    }
    j->link_then(j);
}

void subop_read_link(struct subop *j, struct str name, subop_next *then)
{
    j->key.n = 0;
    buf_put(&j->key, j->sub->link_prefix);
    buf_put(&j->key, name);
    j->link_then = then;
    subop_doc(j, buf_str(&j->key), subscription_op_on_link);
}

void subop_puts(struct subop *j, struct arena *a, size_t n)
{
    j->puts = arena_alloc(a, n * sizeof *j->puts);
    j->n_puts = 0;
    j->max_puts = n;
}

void subop_put_link(struct subop *j, struct arena *a, struct str name,
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
