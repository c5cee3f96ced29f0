// SPDX-License-Identifier: Apache-2.0
/* redis_list.c -- listings: a page of an index, then what its names stand for, and so on until
 * there is enough. An index may name what is no longer there; that is left out. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "store/names.h"
#include "store/redis/redis_store_core.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>

#define PAGE     64 /* names at a time, at most */
#define PAGE_MIN 8  /* and at least: some may be gone */

/* A walk through an index. */
struct walk {
    struct redis_store *rs;
    const char *index;
    struct str prefix;
    struct arena arena; /* of all that is gathered */
    struct buf min;     /* in the words of ZRANGEBYLEX: where the next page begins */
    struct str names[PAGE];
    size_t n_names, n_answered;
    size_t wanted; /* at a time: about as many as are still to be listed */
    bool ends;     /* the page was the last */
    int err;
    void (*paged)(struct walk *w); /* names have come; more is asked for by walk_on */
    void (*ended)(struct walk *w);
};

static void walk_free(struct walk *w)
{
    buf_deinit(&w->min);
    arena_deinit(&w->arena);
}

static void put_bound(struct buf *out, char kind, struct str text)
{
    out->n = 0;
    buf_putc(out, kind);
    buf_put(out, text);
}

/* Behind everything that begins so: the last byte that can be is made one more. */
static void put_behind(struct buf *out, char kind, struct str prefix)
{
    while (prefix.n > 0 && (unsigned char)prefix.p[prefix.n - 1] == 0xff)
        prefix.n--;
    put_bound(out, prefix.n == 0 ? '+' : kind, prefix);
    if (prefix.n > 0)
        out->p[out->n - 1]++;
}

static int redis_list_take_page(struct rop *r, const struct redisReply *reply)
{
    struct walk *w = r->of;
    w->n_names = 0;
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements && i < w->wanted;
         i++)
        w->names[w->n_names++] = arena_dup(&w->arena, reply_str(reply, i));
    w->ends = w->n_names < w->wanted;
    if (w->n_names > 0)
        put_bound(&w->min, '(', w->names[w->n_names - 1]);
    return 0;
}

static void redis_list_finish_page(struct rop *r, int err)
{
    struct walk *w = r->of;
    w->err = err;
    if (err == 0 && w->n_names > 0)
        w->paged(w);
    else
        w->ended(w);
}

/* One more tells whether there are more. */
static void want(struct walk *w, size_t limit, size_t n)
{
    size_t left = limit < n ? 0 : limit - n;
    w->wanted = left < PAGE_MIN ? PAGE_MIN : left < PAGE ? left + 1 : PAGE;
    w->ends |= n > limit;
}

/* Stops at the end of the index, or by itself when w->ends was set. */
static void walk_on(struct walk *w)
{
    if (w->ends || w->err != 0) {
        w->ended(w);
        return;
    }
    struct rop *r = rop_new(w->rs, NULL, w, redis_list_take_page, redis_list_finish_page);
    struct buf max = {0};
    put_behind(&max, '(', w->prefix);
    rop_arg(r, STR("ZRANGEBYLEX"));
    rop_arg(r, rstore_index(w->rs, &r->arena, w->index));
    rop_arg(r, arena_dup(&r->arena, buf_str(&w->min)));
    rop_arg(r, arena_dup(&r->arena, buf_str(&max)));
    buf_deinit(&max);
    rop_arg(r, STR("LIMIT"));
    rop_arg(r, STR("0"));
    rop_arg_u64(r, w->wanted);
    rop_send(r);
}

static void walk_from(struct walk *w, struct redis_store *rs, const char *index, struct str prefix,
                      struct str after)
{
    w->rs = rs;
    w->index = index;
    w->prefix = prefix;
    if (after.n > 0 && str_cmp(after, prefix) >= 0)
        put_bound(&w->min, '(', after);
    else
        put_bound(&w->min, prefix.n > 0 ? '[' : '-', prefix);
    walk_on(w);
}

/* ---- streams ---- */

struct listing {
    struct walk walk;
    struct store_list *list;
    struct store_row *rows;
    size_t n, cap;
    struct stream_info infos[PAGE]; /* of the page */
    bool is_there[PAGE];
};

static void add_row(struct listing *l, struct str name, const struct stream_info *info)
{
    l->rows = mem_grow(l->rows, l->n, &l->cap, sizeof *l->rows);
    l->rows[l->n++] = (struct store_row){name, *info};
}

/* Some names of a page that are asked about together: all, or on a cluster one. */
struct asked {
    struct listing *listing;
    size_t first, n;
};

static int redis_list_take_rows(struct rop *r, const struct redisReply *reply)
{
    const struct asked *asked = r->of;
    struct listing *l = asked->listing;
    for (size_t i = 0; i < asked->n; i++) {
        const struct redisReply *row = reply_item(reply, i);
        l->is_there[asked->first + i] =
            reply_status(reply_str(row, 0)) == 0 &&
            reply_info(&l->walk.arena, reply_item(row, 1), &l->infos[asked->first + i]);
    }
    return 0;
}

static void rows_answered(struct listing *l)
{
    struct walk *w = &l->walk;
    for (size_t i = 0; i < w->n_names; i++)
        if (l->is_there[i])
            add_row(l, w->names[i], &l->infos[i]);
    want(w, l->list->limit, l->n);
    walk_on(w);
}

static void redis_list_finish_rows(struct rop *r, int err)
{
    const struct asked *asked = r->of;
    struct walk *w = &asked->listing->walk;
    if (err != 0)
        w->err = err;
    w->n_answered += asked->n;
    if (w->n_answered == w->n_names)
        rows_answered(asked->listing);
}

static void redis_list_fill_rows(struct rop *r)
{
    const struct asked *asked = r->of;
    args_stat(r, asked->listing->walk.names + asked->first, asked->n);
}

static void ask_rows(struct listing *l, size_t first, size_t n)
{
    struct rop *r = rop_new(l->walk.rs, &rstore_scripts.stat, NULL, redis_list_take_rows,
                            redis_list_finish_rows);
    struct asked *asked = r->of = arena_alloc(&r->arena, sizeof *asked);
    *asked = (struct asked){l, first, n};
    r->fill = redis_list_fill_rows;
    r->name = l->walk.names[first];
    rop_send(r);
}

/* Names that nobody is to see are passed over, all of a kind at once. */
static bool skip_reserved(struct walk *w)
{
    size_t kept = 0;
    for (size_t i = 0; i < w->n_names; i++) {
        struct str name = w->names[i];
        const struct store_names *reserved = store_names_of(name);
        if (reserved == NULL)
            w->names[kept++] = name;
        else if (!str_starts(reserved->prefix, w->prefix))
            w->ends = true; /* all of them are */
        else if (i + 1 == w->n_names)
            put_behind(&w->min, '[', reserved->prefix);
    }
    w->n_names = kept;
    return kept > 0;
}

static void redis_list_names_paged(struct walk *w)
{
    struct listing *l = container_of(w, struct listing, walk);
    if (!l->list->reserved && !skip_reserved(w)) {
        walk_on(w);
        return;
    }
    size_t step = w->rs->cluster ? 1 : w->n_names;
    w->n_answered = 0;
    for (size_t i = 0, n = w->n_names; i < n; i += step)
        ask_rows(l, i, step);
}

static void redis_list_listing_ended(struct walk *w)
{
    struct listing *l = container_of(w, struct listing, walk);
    struct store_list *list = l->list;
    list->rows = l->rows;
    list->n_rows = l->n < list->limit ? l->n : list->limit;
    list->more = l->n > list->limit;
    list->done(list, w->err);
    walk_free(w);
    free(l->rows);
    free(l);
}

void rstore_list(struct redis_store *rs, struct store_list *list)
{
    struct listing *l = mem_zalloc(sizeof *l);
    l->list = list;
    l->walk.paged = redis_list_names_paged;
    l->walk.ended = redis_list_listing_ended;
    want(&l->walk, list->limit, 0);
    walk_from(&l->walk, rs, "names", list->prefix, list->after);
}

/* ---- documents ---- */

struct reading {
    struct walk walk;
    struct store_docs *docs;
    struct doc_row *rows;
    size_t n, cap;
    struct doc_row page[PAGE]; /* value.p == NULL: gone */
};

static void add_doc(struct reading *d, const struct doc_row *row)
{
    d->rows = mem_grow(d->rows, d->n, &d->cap, sizeof *d->rows);
    d->rows[d->n++] = *row;
}

static void page_answered(struct reading *d)
{
    for (size_t i = 0; i < d->walk.n_names; i++)
        if (d->page[i].value.p != NULL)
            add_doc(d, &d->page[i]);
    want(&d->walk, d->docs->limit, d->n);
    walk_on(&d->walk);
}

/* One of a page. */
struct doc_ask {
    struct reading *reading;
    size_t at;
};

static int redis_list_take_doc(struct rop *r, const struct redisReply *reply)
{
    struct doc_ask *ask = r->of;
    struct reading *d = ask->reading;
    struct str version = reply_str(reply, 0), value = reply_str(reply, 1);
    struct doc_row *row = &d->page[ask->at];
    *row = (struct doc_row){.key = d->walk.names[ask->at]};
    if (version.p == NULL)
        return 0;
    row->value = value.n == 0 ? STR("") : arena_dup(&d->walk.arena, value);
    return num_parse(version, NUM_SAFE_MAX, &row->version) == 0 ? 0 : ERR_IO;
}

static void redis_list_finish_doc(struct rop *r, int err)
{
    struct reading *d = ((struct doc_ask *)r->of)->reading;
    if (err != 0)
        d->walk.err = err;
    if (++d->walk.n_answered == d->walk.n_names)
        page_answered(d);
}

static void redis_list_keys_paged(struct walk *w)
{
    struct reading *d = container_of(w, struct reading, walk);
    w->n_answered = 0;
    for (size_t i = 0; i < w->n_names; i++) {
        struct rop *r = rop_new(w->rs, NULL, NULL, redis_list_take_doc, redis_list_finish_doc);
        struct doc_ask *ask = r->of = arena_alloc(&r->arena, sizeof *ask);
        *ask = (struct doc_ask){d, i};
        rop_arg(r, STR("HMGET"));
        rop_arg(r, rstore_doc_key(w->rs, &r->arena, w->names[i]));
        rop_arg(r, STR("version"));
        rop_arg(r, STR("value"));
        rop_send(r);
    }
}

static void redis_list_reading_ended(struct walk *w)
{
    struct reading *d = container_of(w, struct reading, walk);
    struct store_docs *docs = d->docs;
    docs->rows = d->rows;
    docs->n_rows = docs->exact || d->n < docs->limit ? d->n : docs->limit;
    docs->more = d->n > docs->n_rows;
    docs->done(docs, w->err);
    walk_free(w);
    free(d->rows);
    free(d);
}

void rstore_docs(struct redis_store *rs, struct store_docs *docs)
{
    struct reading *d = mem_zalloc(sizeof *d);
    d->docs = docs;
    d->walk.paged = redis_list_keys_paged;
    d->walk.ended = redis_list_reading_ended;
    want(&d->walk, docs->limit, 0);
    if (!docs->exact) {
        walk_from(&d->walk, rs, "docs", docs->prefix, docs->after);
        return;
    }
    d->walk.rs = rs;
    d->walk.ends = true;
    d->walk.names[0] = docs->prefix;
    d->walk.n_names = 1;
    redis_list_keys_paged(&d->walk);
}

/* ---- for those who watch every stream ---- */

static void redis_list_rescan_paged(struct walk *w)
{
    for (size_t i = 0; i < w->n_names; i++)
        watchers_changed(&w->rs->watchers, w->names[i]);
    w->n_names = 0;
    arena_deinit(&w->arena); /* there may be millions of them */
    w->ends |= w->rs->stopping;
    walk_on(w);
}

static void redis_list_rescan_ended(struct walk *w)
{
    struct redis_store *rs = w->rs;
    bool again = rs->rescan == RESCAN_AGAIN && !rs->stopping;
    rs->rescan = RESCAN_NONE;
    walk_free(w);
    free(w);
    if (again)
        rstore_rescan(rs);
}

void rstore_rescan(struct redis_store *rs)
{
    if (rs->rescan != RESCAN_NONE) {
        rs->rescan = RESCAN_AGAIN;
        return;
    }
    struct walk *w = mem_zalloc(sizeof *w);
    rs->rescan = RESCAN_RUNNING;
    w->paged = redis_list_rescan_paged;
    w->ended = redis_list_rescan_ended;
    want(w, SIZE_MAX, 0);
    walk_from(w, rs, "names", STR_NONE, STR_NONE);
}
