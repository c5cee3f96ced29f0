// SPDX-License-Identifier: Apache-2.0
/* catalog_docs.c -- small versioned values beside the streams. */
#include "base/err.h"
#include "store/catalog/catalog_core.h"

static void free_doc(struct doc *d)
{
    list_remove(&d->dirty);
    text_free(&d->key);
    text_free(&d->value);
    free(d);
}

void catalog_forget_doc(struct catalog *c, struct doc *d)
{
    map_remove(&c->docs, d->key);
    free_doc(d);
}

void catalog_free_docs(struct catalog *c)
{
    size_t at = 0;
    for (struct doc *d; (d = map_next(&c->docs, &at)) != NULL;)
        free_doc(d);
    map_deinit(&c->docs);
}

static uint64_t doc_version(struct catalog *c, struct str key)
{
    const struct doc *d = map_get(&c->docs, key);
    return d == NULL || d->value.p == NULL ? 0 : d->version;
}

int catalog_check_docs(struct catalog *c, const struct doc_put *puts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (doc_version(c, puts[i].key) != puts[i].expect_version)
            return ERR_VERSION;
    return 0;
}

static void catalog_put_doc(struct catalog *c, const struct doc_put *put)
{
    struct doc *d = map_get(&c->docs, put->key);
    if (put->value.p == NULL && !c->keep_removed_docs) {
        if (d != NULL)
            catalog_forget_doc(c, d);
        return;
    }
    if (d == NULL) {
        d = mem_zalloc(sizeof *d);
        d->key = text_dup(put->key);
        list_init(&d->dirty);
        map_put(&c->docs, d->key, d);
    }
    text_free(&d->value);
    d->value = text_dup(put->value);
    d->version = DOC_NEXT(put->expect_version);
}

void catalog_put_docs(struct catalog *c, const struct doc_put *puts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        catalog_put_doc(c, &puts[i]);
}

static int catalog_docs_by_key(const void *a, const void *b)
{
    return str_cmp(((const struct doc_row *)a)->key, ((const struct doc_row *)b)->key);
}

static void find_doc(struct catalog *c, struct store_docs *q)
{
    const struct doc *d = map_get(&c->docs, q->prefix);
    q->rows = mem_alloc(sizeof *q->rows);
    q->n_rows = d != NULL && d->value.p != NULL;
    q->more = false;
    if (q->n_rows > 0)
        q->rows[0] = (struct doc_row){d->key, d->value, d->version};
}

void catalog_find_docs(struct catalog *c, struct store_docs *q)
{
    if (q->exact) {
        find_doc(c, q);
        return;
    }
    struct doc_row *rows = mem_alloc((c->docs.n + 1) * sizeof *rows);
    size_t n = 0, at = 0;
    for (struct doc *d; (d = map_next(&c->docs, &at)) != NULL;)
        if (d->value.p != NULL && catalog_listed(d->key, q->prefix, q->after))
            rows[n++] = (struct doc_row){d->key, d->value, d->version};
    qsort(rows, n, sizeof *rows, catalog_docs_by_key);
    q->rows = rows;
    q->n_rows = n < q->limit ? n : q->limit;
    q->more = n > q->limit;
}

void catalog_end_docs(struct store_docs *q, int err)
{
    struct doc_row *rows = q->rows;
    q->done(q, err);
    free(rows);
}
