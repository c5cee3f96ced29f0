// SPDX-License-Identifier: Apache-2.0
/* catalog_list.c -- listings, a slice at a time.
 *
 * `names` and `keys` have what can be listed and nothing else: streams from when their creation is
 * settled until they are deleted, documents while they have a value. So a page costs what is on it,
 * and the streams on the way that have expired, which are removed.
 *
 * Between two slices anything can change. What is listed so far is copied then, and where to go on
 * is a text, not a place: nothing that is there all the time is left out or listed twice. */
#include "store/catalog/catalog_core.h"
#include "store/names.h"
#include "base/arena.h"
#include "base/buf.h"

/* What a slice may cost, in rows. */
#define SLICE        1024
#define REMOVAL_COST 8
#define COPY_BYTES   4096 /* of a document, that cost as much as a row */

struct catalog_page {
    struct buf from; /* where to go on: the first key that is not before it */
    size_t cap;      /* of the rows */
    size_t kept;     /* so many rows have copies of their texts, in here */
    struct arena texts;
};

static void go_on_at(struct catalog_page *p, struct str key)
{
    p->from.n = 0;
    buf_put(&p->from, key);
}

/* What is no key itself comes first behind it. */
static void go_on_behind(struct catalog_page *p, struct str key)
{
    go_on_at(p, key);
    buf_putc(&p->from, '\0');
}

static void go_on_behind_all(struct catalog_page *p, struct str prefix)
{
    go_on_at(p, prefix);
    p->from.p[p->from.n - 1]++;
}

static struct catalog_page *catalog_page_new(struct str prefix, struct str after)
{
    struct catalog_page *p = mem_zalloc(sizeof *p);
    if (after.n > 0 && str_cmp(after, prefix) >= 0)
        go_on_behind(p, after);
    else
        go_on_at(p, prefix);
    return p;
}

static void catalog_page_free(struct catalog_page *p)
{
    buf_deinit(&p->from);
    arena_deinit(&p->texts);
    free(p);
}

/* ---- streams ---- */

static void add_row(struct store_list *l, const struct stream *s)
{
    l->rows = mem_grow(l->rows, l->n_rows, &l->page->cap, sizeof *l->rows);
    l->rows[l->n_rows++] = (struct store_row){s->name, stream_info_of(s)};
}

/* What is not to be listed is stepped over: what expired by removing it, reserved names all at
 * once. NULL: nothing is left that begins with the prefix. */
static struct stream *step_over(struct catalog *c, struct store_list *l, struct stream *s,
                                struct order_place *place, int *budget)
{
    while (s != NULL && str_starts(s->name, l->prefix) && *budget > 0) {
        const struct store_names *hidden = l->reserved ? NULL : store_names_of(s->name);
        if (hidden != NULL) {
            go_on_behind_all(l->page, hidden->prefix);
        } else if (stream_expired(c, s)) {
            go_on_behind(l->page, s->name);
            catalog_remove(c, s);
            *budget -= REMOVAL_COST;
        } else {
            return s;
        }
        s = order_seek(&c->names, buf_str(&l->page->from), place);
    }
    return s != NULL && str_starts(s->name, l->prefix) ? s : NULL;
}

bool catalog_find_list(struct catalog *c, struct store_list *l)
{
    struct order_place place;
    int budget = SLICE;
    sched_work(c->sched, "list");
    if (l->page == NULL) {
        l->page = catalog_page_new(l->prefix, l->after);
        l->rows = NULL;
        l->n_rows = 0;
    }
    struct stream *s = order_seek(&c->names, buf_str(&l->page->from), &place);
    for (; (s = step_over(c, l, s, &place, &budget)) != NULL; s = order_next(&place)) {
        if (budget-- <= 0) {
            go_on_at(l->page, s->name);
            catalog_keep_list(l);
            return false;
        }
        if (l->n_rows == l->limit)
            break;
        add_row(l, s);
    }
    l->more = s != NULL;
    return true;
}

void catalog_keep_list(struct store_list *l)
{
    for (; l->page->kept < l->n_rows; l->page->kept++) {
        struct store_row *row = &l->rows[l->page->kept];
        row->name = arena_dup(&l->page->texts, row->name);
        row->info.content_type = arena_dup(&l->page->texts, row->info.content_type);
    }
}

void catalog_drop_list(struct store_list *l)
{
    free(l->rows);
    catalog_page_free(l->page);
    l->rows = NULL;
    l->page = NULL;
}

void catalog_end_list(struct store_list *l, int err)
{
    struct store_row *rows = l->rows;
    struct catalog_page *page = l->page;
    l->done(l, err);
    free(rows);
    catalog_page_free(page);
}

/* ---- documents ---- */

static void add_doc(struct store_docs *q, const struct doc *d)
{
    q->rows = mem_grow(q->rows, q->n_rows, &q->page->cap, sizeof *q->rows);
    q->rows[q->n_rows++] = (struct doc_row){d->key, d->value, d->version};
}

static void find_exactly(struct catalog *c, struct store_docs *q)
{
    const struct doc *d = map_get(&c->docs, q->prefix);
    if (d != NULL && d->value.p != NULL)
        add_doc(q, d);
}

bool catalog_find_docs(struct catalog *c, struct store_docs *q)
{
    struct order_place place;
    size_t cost = 0;
    if (!q->exact)
        sched_work(c->sched, "documents");
    if (q->page == NULL) {
        q->page = catalog_page_new(q->exact ? STR_NONE : q->prefix, q->after);
        q->rows = NULL;
        q->n_rows = 0;
        q->more = false;
    }
    if (q->exact) {
        find_exactly(c, q);
        return true;
    }
    const struct doc *d = order_seek(&c->keys, buf_str(&q->page->from), &place);
    for (; d != NULL && str_starts(d->key, q->prefix); d = order_next(&place)) {
        if (cost >= SLICE) {
            go_on_at(q->page, d->key);
            catalog_keep_docs(q);
            return false;
        }
        q->more = q->n_rows == q->limit;
        if (q->more)
            break;
        add_doc(q, d);
        cost += 1 + d->value.n / COPY_BYTES;
    }
    return true;
}

void catalog_keep_docs(struct store_docs *q)
{
    for (; q->page->kept < q->n_rows; q->page->kept++) {
        struct doc_row *row = &q->rows[q->page->kept];
        row->key = arena_dup(&q->page->texts, row->key);
        row->value = arena_dup(&q->page->texts, row->value);
    }
}

void catalog_end_docs(struct store_docs *q, int err)
{
    struct doc_row *rows = q->rows;
    struct catalog_page *page = q->page;
    q->done(q, err);
    free(rows);
    catalog_page_free(page);
}
