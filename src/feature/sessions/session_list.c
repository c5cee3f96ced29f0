// SPDX-License-Identifier: Apache-2.0
/* session_list.c -- looking at sessions from outside, and sweeping up behind those that are over.
 *
 * A session's streams expire by themselves. Its document stays a while longer, so that a client
 * that comes back can be told that it is too late; the sweep notes when the streams were first seen
 * to be gone, and removes the document a day later. */
#include "base/err.h"
#include "base/mem.h"
#include "base/units.h"
#include "feature/sessions/session_core.h"

#include <stdlib.h>

#define PAGE            100
#define SWEEP_MS        (10 * MINUTE_MS)
#define REMEMBER_MS     DAY_MS
#define DOC_PREFIX_SIZE (sizeof SESSION_DOC_PREFIX - 1)

/* ---- listing ---- */

static int session_list_put_row(struct sessions *all, const struct doc_row *doc,
                                struct session_row *out)
{
    struct session_doc d;
    int err = session_doc_read(doc->value, &d);
    if (err != 0)
        return err;
    const struct session *s = session_find(all, str_skip(doc->key, DOC_PREFIX_SIZE));
    *out = (struct session_row){.key = str_skip(doc->key, DOC_PREFIX_SIZE),
                                .service = d.service,
                                .created_ms = d.created_ms,
                                .answered = d.answered,
                                .expired = d.gone_ms != 0,
                                .connected = s != NULL && s->visit != NULL,
                                .key_held = s != NULL && s->keys != NULL};
    return 0;
}

static struct str doc_key(struct arena *a, struct str key)
{
    return arena_printf(a, SESSION_DOC_PREFIX "%.*s", (int)key.n, key.p);
}

static void session_list_on_listed(struct store_docs *d, int err)
{
    struct sessions_list *l = container_of(d, struct sessions_list, docs);
    struct sessions *all = l->all;
    struct arena arena = l->arena; /* l may be gone behind done() */
    l->rows = arena_alloc(&arena, (d->n_rows + 1) * sizeof *l->rows);
    l->n_rows = 0;
    l->more = err == 0 && d->more && d->n_rows > 0;
    l->next = l->more ? str_skip(d->rows[d->n_rows - 1].key, DOC_PREFIX_SIZE) : STR_NONE;
    for (size_t i = 0; err == 0 && i < d->n_rows; i++)
        if (session_list_put_row(all, &d->rows[i], &l->rows[l->n_rows]) == 0)
            l->n_rows++;
    l->done(l, err);
    arena_deinit(&arena);
    gate_leave(&all->under_way);
}

void sessions_list(struct sessions_list *l)
{
    l->arena = (struct arena){0};
    l->docs = (struct store_docs){
        .prefix = doc_key(&l->arena, l->prefix), .limit = l->limit, .done = session_list_on_listed};
    if (l->after.n > 0)
        l->docs.after = doc_key(&l->arena, l->after);
    gate_enter(&l->all->under_way);
    store_docs(l->all->durable.store, &l->docs);
}

/* ---- one ---- */

static void session_list_show(struct sessions_show *s, int err)
{
    struct sessions *all = s->all;
    struct arena arena = s->arena;
    s->done(s, err);
    arena_deinit(&arena);
    gate_leave(&all->under_way);
}

static void session_list_on_out_stat(struct store_stat *st, int err)
{
    struct sessions_show *s = container_of(st, struct sessions_show, out);
    s->row.out = st->info;
    s->row.expired |= err != 0;
    session_list_show(s, 0);
}

static void session_list_on_in_stat(struct store_stat *st, int err)
{
    struct sessions_show *s = container_of(st, struct sessions_show, in);
    s->row.in = st->info;
    s->row.in.content_type = STR_NONE; /* lent by this call only */
    s->row.expired |= err != 0;
    store_stat(s->all->durable.store, &s->out);
}

static struct str stream_name(struct arena *a, struct str key, const char *suffix)
{
    return arena_printf(a, SESSION_PREFIX "%.*s%s", (int)key.n, key.p, suffix);
}

static void session_list_on_shown(struct store_docs *d, int err)
{
    struct sessions_show *s = container_of(d, struct sessions_show, docs);
    if (err == 0)
        err = d->n_rows == 0 ? ERR_NOT_FOUND : session_list_put_row(s->all, &d->rows[0], &s->row);
    if (err != 0) {
        session_list_show(s, err);
        return;
    }
    s->row.key = arena_dup(&s->arena, s->row.key);
    s->in = (struct store_stat){.name = stream_name(&s->arena, s->row.key, "/in"),
                                .done = session_list_on_in_stat};
    s->out = (struct store_stat){.name = stream_name(&s->arena, s->row.key, "/out"),
                                 .done = session_list_on_out_stat};
    store_stat(s->all->durable.store, &s->in);
}

void sessions_show(struct sessions_show *s)
{
    s->arena = (struct arena){0};
    s->docs = (struct store_docs){.prefix = doc_key(&s->arena, s->key),
                                  .limit = 1,
                                  .exact = true,
                                  .done = session_list_on_shown};
    gate_enter(&s->all->under_way);
    store_docs(s->all->durable.store, &s->docs);
}

/* ---- the sweep ---- */

/* A walk over all documents, a page at a time, with one question to the store under way. */
struct session_sweep {
    struct sessions *all;
    struct timer timer;
    struct store_docs docs;
    struct store_stat stat;
    struct store_put put;
    struct doc_put doc;
    struct arena page; /* the rows that are being looked at */
    struct doc_row *rows;
    size_t n, at;
    bool more;
    struct buf value;
};

static void next_row(struct session_sweep *w);

static void skip_row(struct session_sweep *w)
{
    w->at++;
    next_row(w);
}

static void session_list_on_sweep_put(struct store_put *p, int err)
{
    skip_row(container_of(p, struct session_sweep, put));
}

static void put_or_remove(struct session_sweep *w, const struct doc_row *row, struct session_doc *d)
{
    int64_t now_ms = w->all->setup.sched->wall_ms;
    bool remembered = d->gone_ms == 0 || now_ms - d->gone_ms < (int64_t)REMEMBER_MS;
    if (d->gone_ms != 0 && remembered) {
        skip_row(w);
        return;
    }
    w->doc = (struct doc_put){.key = row->key, .expect_version = row->version};
    if (remembered) {
        d->gone_ms = now_ms;
        w->value.n = 0;
        session_doc_put(&w->value, d);
        w->doc.value = buf_str(&w->value);
    }
    w->put = (struct store_put){.docs = &w->doc, .n_docs = 1, .done = session_list_on_sweep_put};
    store_put(w->all->durable.store, &w->put);
}

static void session_list_on_sweep_stat(struct store_stat *st, int err)
{
    struct session_sweep *w = container_of(st, struct session_sweep, stat);
    const struct doc_row *row = &w->rows[w->at];
    struct session_doc d;
    bool gone = err == ERR_NOT_FOUND || err == ERR_DELETED;
    if (gone && session_doc_read(row->value, &d) == 0)
        put_or_remove(w, row, &d);
    else
        skip_row(w);
}

static void read_page(struct session_sweep *w, struct str after);

static void rest(struct session_sweep *w)
{
    arena_deinit(&w->page);
    w->page = (struct arena){0};
    w->n = w->at = 0;
    if (w->all->phase != SESSIONS_STOPPING)
        sched_start(w->all->setup.sched, &w->timer, SWEEP_MS);
    gate_leave(&w->all->under_way);
}

/* Those in memory know best what has become of them. */
static void next_row(struct session_sweep *w)
{
    while (w->at < w->n &&
           session_find(w->all, str_skip(w->rows[w->at].key, DOC_PREFIX_SIZE)) != NULL)
        w->at++;
    if (w->all->phase == SESSIONS_STOPPING || (w->at == w->n && !w->more)) {
        rest(w);
        return;
    }
    if (w->at == w->n) {
        read_page(w, w->rows[w->n - 1].key);
        return;
    }
    w->stat = (struct store_stat){
        .name = stream_name(&w->page, str_skip(w->rows[w->at].key, DOC_PREFIX_SIZE), "/in"),
        .done = session_list_on_sweep_stat};
    store_stat(w->all->durable.store, &w->stat);
}

static void session_list_on_page(struct store_docs *d, int err)
{
    struct session_sweep *w = container_of(d, struct session_sweep, docs);
    struct arena page = {0};
    size_t n = err == 0 ? d->n_rows : 0;
    w->more = err == 0 && d->more;
    w->rows = arena_alloc(&page, (n + 1) * sizeof *w->rows);
    for (size_t i = 0; i < n; i++)
        w->rows[i] = (struct doc_row){arena_dup(&page, d->rows[i].key),
                                      arena_dup(&page, d->rows[i].value), d->rows[i].version};
    arena_deinit(&w->page); /* `after` was in it */
    w->page = page;
    w->n = n;
    w->at = 0;
    next_row(w);
}

static void read_page(struct session_sweep *w, struct str after)
{
    w->docs = (struct store_docs){.prefix = STR(SESSION_DOC_PREFIX),
                                  .after = after,
                                  .limit = PAGE,
                                  .done = session_list_on_page};
    store_docs(w->all->durable.store, &w->docs);
}

static void session_list_on_sweep(struct timer *t)
{
    struct session_sweep *w = container_of(t, struct session_sweep, timer);
    gate_enter(&w->all->under_way);
    read_page(w, STR_NONE);
}

void session_sweep_start(struct sessions *all)
{
    struct session_sweep *w = mem_zalloc(sizeof *w);
    all->sweep = w;
    w->all = all;
    timer_init(&w->timer, session_list_on_sweep);
    sched_start(all->setup.sched, &w->timer, SWEEP_MS);
}

void session_sweep_stop(struct sessions *all)
{
    timer_stop(&all->sweep->timer);
}

void session_sweep_free(struct sessions *all)
{
    buf_deinit(&all->sweep->value);
    free(all->sweep);
}
