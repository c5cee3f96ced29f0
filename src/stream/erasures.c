// SPDX-License-Identifier: Apache-2.0
#include "stream/erasures.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/gate.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/sched.h"
#include "base/sha256.h"
#include "store/store.h"
#include "telemetry/trace.h"

#include <jansson.h>
#include <stdlib.h>

#define PREFIX_LEN (sizeof ERASURE_DOCUMENTS - 1)
#define PAGE       100
#define RETRY_MS   1000
#define OTHERS_MS  50

/*   noting --document is there--> listing --a page--> removing --of the page the last--> noting
 *                                    |
 *                                    |--others are left--> listing, OTHERS_MS later
 *                                    `--nothing is left--> its document goes, and so does it     */
struct erasure {
    struct link link;
    struct erasures *all;
    struct link waits; /* of struct waiting */
    uint64_t version;  /* of its document; 0: not there */
    uint64_t removed;
    struct buf names; /* of a page: each with a NUL behind it */
    size_t at;        /* the next of them */
    size_t n_kept;    /* of the page, that could not be removed */
    bool noted;       /* its document was there once */
    struct store_list list;
    struct store_remove remove;
    struct store_put put;
    struct doc_put doc;
    struct timer retry;
    char value[64];
    size_t key_n;
    char key[]; /* of the document; the prefix is its end */
};

struct waiting {
    struct link link;
    struct erasure_wait *wait;
    struct erasures *all;
    struct timer limit;
    struct task over; /* it did not begin at all */
    int err;
};

struct erasures {
    struct erasures_setup setup;
    struct link all;
    size_t n;
    struct store_docs docs;
    struct timer look;
    struct seen {
        uint8_t key[SHA256_SIZE];
        uint64_t version;
    } seen[ERASURES_MAX]; /* at the last look */
    size_t n_seen;
    bool looked;
    struct gate calls;
    bool stopping;
};

static struct str prefix_of(const struct erasure *e)
{
    return str_of(e->key + PREFIX_LEN, e->key_n - PREFIX_LEN);
}

/* ---- who waits ---- */

static void end_wait(struct waiting *w, const struct erasure *e, bool finished, int err)
{
    struct erasure_wait *wait = w->wait;
    list_remove(&w->link);
    timer_stop(&w->limit);
    task_cancel(&w->over);
    free(w);
    wait->removed = e != NULL ? e->removed : 0;
    wait->finished = finished;
    wait->done(wait, err);
}

static void end_waits(struct erasure *e, bool finished, int err)
{
    while (!list_empty(&e->waits))
        end_wait(list_item(e->waits.next, struct waiting, link), e, finished, err);
}

/* ---- one ---- */

static void note(struct erasure *e);

static void erasure_free(struct erasure *e)
{
    list_remove(&e->link);
    e->all->n--;
    timer_stop(&e->retry);
    buf_deinit(&e->names);
    free(e);
}

static void try_again(struct erasure *e, int err)
{
    struct erasures *all = e->all;
    if (all->stopping)
        return;
    trace(all->setup.trace, ERASE_FAILED, TRACE_STR("prefix", prefix_of(e)),
          TRACE_STR("error", str_of_cstr(err_text(err))));
    sched_start(all->setup.sched, &e->retry, RETRY_MS);
}

static void erasures_on_over(struct store_put *p, int err)
{
    struct erasure *e = container_of(p, struct erasure, put);
    struct erasures *all = e->all;
    if (all->setup.erased != NULL)
        all->setup.erased(all->setup.ctx, prefix_of(e), e->removed);
    end_waits(e, true, 0);
    erasure_free(e);
    gate_leave(&all->calls);
}

static void erase_finish(struct erasure *e)
{
    e->doc = (struct doc_put){.key = str_of(e->key, e->key_n), .expect_version = e->version};
    e->put = (struct store_put){.docs = &e->doc, .n_docs = 1, .done = erasures_on_over};
    gate_enter(&e->all->calls);
    store_put(e->all->setup.store, &e->put);
}

static void remove_next(struct erasure *e);

static void erasures_on_removed(struct store_remove *r, int err)
{
    struct erasure *e = container_of(r, struct erasure, remove);
    struct erasures *all = e->all;
    e->removed += err == 0;
    e->n_kept += err != 0 && !ERR_IS_GONE(err);
    if (!all->stopping)
        remove_next(e);
    gate_leave(&all->calls);
}

static void remove_next(struct erasure *e)
{
    if (e->at == e->names.n) {
        if (e->n_kept > 0)
            try_again(e, ERR_IO);
        else
            note(e);
        return;
    }
    struct str name = str_of_cstr(e->names.p + e->at);
    e->at += name.n + 1;
    e->remove = (struct store_remove){.name = name, .done = erasures_on_removed};
    gate_enter(&e->all->calls);
    store_remove(e->all->setup.store, &e->remove);
}

static bool others_left(struct erasure *e)
{
    struct erasures *all = e->all;
    if (all->setup.others == NULL || all->setup.others(all->setup.ctx, prefix_of(e)) == 0)
        return false;
    sched_start(all->setup.sched, &e->retry, OTHERS_MS);
    return true;
}

static void erasures_on_listed(struct store_list *l, int err)
{
    struct erasure *e = container_of(l, struct erasure, list);
    struct erasures *all = e->all;
    e->names.n = e->at = e->n_kept = 0;
    for (size_t i = 0; err == 0 && i < l->n_rows; i++) {
        buf_put(&e->names, l->rows[i].name);
        buf_putc(&e->names, '\0');
    }
    if (err != 0)
        try_again(e, err);
    else if (all->stopping)
        ;
    else if (e->names.n > 0)
        remove_next(e);
    else if (!others_left(e))
        erase_finish(e);
    gate_leave(&all->calls);
}

static void list_page(struct erasure *e)
{
    e->list = (struct store_list){
        .prefix = prefix_of(e), .limit = PAGE, .reserved = true, .done = erasures_on_listed};
    gate_enter(&e->all->calls);
    store_list(e->all->setup.store, &e->list);
}

static void erasures_on_noted(struct store_put *p, int err)
{
    struct erasure *e = container_of(p, struct erasure, put);
    struct erasures *all = e->all;
    if (err == 0)
        e->version = DOC_NEXT(e->version);
    if (err != 0 && !e->noted) { /* nobody will go on with it: whoever asked asks again */
        end_waits(e, false, err);
        erasure_free(e);
    } else if (!all->stopping) { /* another process may be at it as well: how far is told by both */
        e->noted = true;
        list_page(e);
    }
    gate_leave(&all->calls);
}

static void note(struct erasure *e)
{
    int n =
        snprintf(e->value, sizeof e->value, "{\"removed\":%llu}", (unsigned long long)e->removed);
    e->doc = (struct doc_put){.key = str_of(e->key, e->key_n),
                              .value = str_of(e->value, (size_t)n),
                              .expect_version = e->version};
    e->put = (struct store_put){.docs = &e->doc, .n_docs = 1, .done = erasures_on_noted};
    gate_enter(&e->all->calls);
    store_put(e->all->setup.store, &e->put);
}

static void erasures_on_retry(struct timer *t)
{
    list_page(container_of(t, struct erasure, retry));
}

static struct erasure *erasure_new(struct erasures *all, struct str prefix)
{
    struct erasure *e = mem_zalloc(sizeof *e + PREFIX_LEN + prefix.n);
    e->all = all;
    memcpy(e->key, ERASURE_DOCUMENTS, PREFIX_LEN);
    memcpy(e->key + PREFIX_LEN, prefix.p, prefix.n);
    e->key_n = PREFIX_LEN + prefix.n;
    list_init(&e->waits);
    timer_init(&e->retry, erasures_on_retry);
    list_init(&e->link);
    list_push(&all->all, &e->link);
    all->n++;
    return e;
}

static struct erasure *find(struct erasures *all, struct str prefix)
{
    list_each (l, &all->all) {
        struct erasure *e = list_item(l, struct erasure, link);
        if (str_eq(prefix_of(e), prefix))
            return e;
    }
    return NULL;
}

/* ---- from outside ---- */

static void erasures_on_limit(struct timer *t)
{
    struct waiting *w = container_of(t, struct waiting, limit);
    struct erasure *e = w->wait->own;
    end_wait(w, e, false, 0);
}

static void erasures_run_over(struct task *t)
{
    struct waiting *w = container_of(t, struct waiting, over);
    struct erasures *all = w->all;
    end_wait(w, NULL, false, w->err);
    gate_leave(&all->calls);
}

void erasures_begin(struct erasures *all, struct erasure_wait *wait)
{
    struct erasure *e = find(all, wait->prefix);
    struct waiting *w = mem_zalloc(sizeof *w);
    w->wait = wait;
    w->all = all;
    list_init(&w->link);
    timer_init(&w->limit, erasures_on_limit);
    task_init(&w->over, erasures_run_over);
    if (e == NULL && (all->n >= ERASURES_MAX || all->stopping)) {
        w->err = ERR_LIMIT;
        gate_enter(&all->calls);
        sched_post(all->setup.sched, &w->over);
        return;
    }
    bool fresh = e == NULL;
    if (fresh)
        e = erasure_new(all, wait->prefix);
    wait->own = e;
    list_push(&e->waits, &w->link);
    sched_start(all->setup.sched, &w->limit, wait->wait_ms);
    if (fresh)
        note(e);
}

/* ---- the whole ---- */

static void resume(struct erasures *all, const struct doc_row *row)
{
    struct str prefix = str_skip(row->key, PREFIX_LEN);
    if (prefix.n == 0 || find(all, prefix) != NULL || all->n >= ERASURES_MAX)
        return;
    struct erasure *e = erasure_new(all, prefix);
    json_t *o = json_loadb(row->value.p, row->value.n, 0, NULL);
    e->removed = (uint64_t)json_integer_value(json_object_get(o, "removed"));
    json_decref(o);
    e->version = row->version;
    e->noted = true;
    list_page(e);
}

/* Of those under way elsewhere, versions go on. */
static bool is_left(const struct erasures *all, const struct seen *now)
{
    for (size_t i = 0; i < all->n_seen; i++)
        if (memcmp(all->seen[i].key, now->key, SHA256_SIZE) == 0 &&
            all->seen[i].version == now->version)
            return true;
    return false;
}

static void erasures_on_left(struct store_docs *d, int err)
{
    struct erasures *all = container_of(d, struct erasures, docs);
    struct seen seen[ERASURES_MAX];
    size_t n = err == 0 && !all->stopping ? d->n_rows : 0;
    for (size_t i = 0; i < n; i++) {
        sha256(d->rows[i].key, seen[i].key);
        seen[i].version = d->rows[i].version;
        if (!all->looked || is_left(all, &seen[i]))
            resume(all, &d->rows[i]);
    }
    if (n > 0)
        memcpy(all->seen, seen, n * sizeof *seen);
    all->n_seen = n;
    all->looked = all->looked || err == 0;
    if (all->setup.store->shared && !all->stopping)
        sched_start(all->setup.sched, &all->look, ERASURES_LOOK_MS);
    gate_leave(&all->calls);
}

static void erasures_on_look(struct timer *t)
{
    struct erasures *all = container_of(t, struct erasures, look);
    all->docs = (struct store_docs){
        .prefix = STR(ERASURE_DOCUMENTS), .limit = ERASURES_MAX, .done = erasures_on_left};
    gate_enter(&all->calls);
    store_docs(all->setup.store, &all->docs);
}

struct erasures *erasures_new(const struct erasures_setup *setup)
{
    struct erasures *all = mem_zalloc(sizeof *all);
    all->setup = *setup;
    list_init(&all->all);
    gate_init(&all->calls, setup->sched);
    timer_init(&all->look, erasures_on_look);
    erasures_on_look(&all->look);
    return all;
}

void erasures_stop(struct erasures *all, void (*stopped)(void *ctx), void *ctx)
{
    all->stopping = true;
    timer_stop(&all->look);
    list_each (l, &all->all) {
        struct erasure *e = list_item(l, struct erasure, link);
        timer_stop(&e->retry);
        end_waits(e, false, 0);
    }
    gate_shut(&all->calls, stopped, ctx);
}

void erasures_free(struct erasures *all)
{
    if (all == NULL)
        return;
    while (!list_empty(&all->all))
        erasure_free(list_item(all->all.next, struct erasure, link));
    free(all);
}
