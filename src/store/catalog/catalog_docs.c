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

/* Only documents that have a value are listed. */
static void set_value(struct catalog *c, struct doc *d, struct str value)
{
    if (d->value.p == NULL && value.p != NULL)
        order_put(&c->keys, d);
    if (d->value.p != NULL && value.p == NULL)
        order_remove(&c->keys, d);
    text_free(&d->value);
    d->value = text_dup(value);
}

void catalog_forget_doc(struct catalog *c, struct doc *d)
{
    set_value(c, d, STR_NONE);
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
    set_value(c, d, put->value);
    d->version = DOC_NEXT(put->expect_version);
}

void catalog_put_docs(struct catalog *c, const struct doc_put *puts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        catalog_put_doc(c, &puts[i]);
}
