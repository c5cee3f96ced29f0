// SPDX-License-Identifier: Apache-2.0
/* embedded_find.c -- what there is: one stream, streams, documents. */
#include "base/err.h"
#include "base/mem.h"
#include "store/embedded/embedded_core.h"

#include <stdlib.h>

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

/* Streams may change and go while the answer waits: it gets texts of its own. */
static void keep_names(struct store_list *l)
{
    size_t n = l->n_rows * sizeof *l->rows;
    for (size_t i = 0; i < l->n_rows; i++)
        n += l->rows[i].name.n + l->rows[i].info.content_type.n;
    l->rows = mem_realloc(l->rows, n + 1);
    char *to = (char *)(l->rows + l->n_rows);
    for (size_t i = 0; i < l->n_rows; i++) {
        struct str *texts[] = {&l->rows[i].name, &l->rows[i].info.content_type};
        for (size_t k = 0; k < 2; k++) {
            *texts[k] = str_of(memcpy(to, texts[k]->p, texts[k]->n), texts[k]->n);
            to += texts[k]->n;
        }
    }
}

static void embedded_run_list(struct task *t)
{
    struct store_list *l = container_of(t, struct store_list, call.task);
    struct embedded *e = embedded_of(l->call.store);
    l->call.finish = embedded_finish_list;
    catalog_find_list(&e->catalog, l);
    if (embedded_stall_unrecorded(e, &l->call)) {
        free(l->rows);
        return;
    }
    if (embedded_has_to_wait(e, e->removed_batch))
        keep_names(l);
    l->call.result = 0;
    embedded_finish_after(e, &l->call, NULL, e->removed_batch);
}

void embedded_list(struct store *s, struct store_list *l)
{
    store_post(s, &l->call, embedded_run_list);
}

static void embedded_finish_docs(struct store_call *c)
{
    catalog_end_docs(container_of(c, struct store_docs, call), c->result);
}

/* The documents may change while the answer waits: it gets texts of its own. */
static void keep_rows(struct store_docs *d)
{
    size_t n = d->n_rows * sizeof *d->rows;
    for (size_t i = 0; i < d->n_rows; i++)
        n += d->rows[i].key.n + d->rows[i].value.n;
    d->rows = mem_realloc(d->rows, n + 1);
    char *to = (char *)(d->rows + d->n_rows);
    for (size_t i = 0; i < d->n_rows; i++) {
        struct doc_row *row = &d->rows[i];
        row->key = str_of(memcpy(to, row->key.p, row->key.n), row->key.n);
        to += row->key.n;
        row->value = str_of(memcpy(to, row->value.p, row->value.n), row->value.n);
        to += row->value.n;
    }
}

static void embedded_run_docs(struct task *t)
{
    struct store_docs *d = container_of(t, struct store_docs, call.task);
    struct embedded *e = embedded_of(d->call.store);
    catalog_find_docs(&e->catalog, d);
    if (embedded_has_to_wait(e, e->docs_batch))
        keep_rows(d);
    d->call.result = 0;
    d->call.finish = embedded_finish_docs;
    embedded_finish_after(e, &d->call, NULL, e->docs_batch);
}

void embedded_docs(struct store *s, struct store_docs *d)
{
    store_post(s, &d->call, embedded_run_docs);
}
