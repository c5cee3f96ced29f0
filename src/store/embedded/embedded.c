// SPDX-License-Identifier: Apache-2.0
#include "store/embedded/embedded.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "store/embedded/embedded_core.h"
#include "store/embedded/record.h"
#include "store/catalog/verdict.h"
#include "store/embedded/vfs.h"
#include "telemetry/metrics.h"

#include <stdio.h>
#include <stdlib.h>

#define RETRY_MS       10
#define HEALTH_BYTES   8192        /* that a small append needs, for a look at the store's health */
#define DELETE_RESERVE (64 * 1024) /* room in the journal that data leaves for deletes, at most */
#define NEEDS_PLACE    1000        /* private verdict: the fork point must be looked up first */

void lives_add(struct lives *l, uint64_t life)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 16;
        l->items = mem_realloc(l->items, l->cap * sizeof *l->items);
    }
    l->items[l->n++] = life;
}

void embedded_mark_dirty(struct embedded *e, struct stream *s)
{
    if (!list_empty(&s->dirty)) {
        must(s->dirty_turn == e->dirty_turn); /* or embedded_before_change was forgotten */
        return;
    }
    list_push(&e->dirty, &s->dirty);
    s->dirty_turn = e->dirty_turn;
    e->n_dirty++;
}

void embedded_mark_docs(struct embedded *e, const struct doc_put *docs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct doc *d = map_get(&e->catalog.docs, docs[i].key);
        if (d != NULL && list_empty(&d->dirty))
            list_push(&e->dirty_docs, &d->dirty);
    }
}

/* ---- waiting for the journal ---- */

struct batch_waiter {
    struct journal_waiter waiter;
    struct embedded *embedded;
    uint64_t batch;
};

static void embedded_complete(struct store_call *c)
{
    struct stream *s = c->stream;
    store_count(c->store, c->result);
    c->finish(c); /* c may be gone then */
    if (s != NULL)
        stream_unpin(s);
}

static void retry_stalled(struct embedded *e);

static void embedded_on_batch(struct journal_waiter *jw, int err)
{
    struct batch_waiter *bw = container_of(jw, struct batch_waiter, waiter);
    struct embedded *e = bw->embedded;
    if (err != 0 && !e->told_failure && e->config.failed != NULL)
        e->config.failed(e->config.failed_ctx, err);
    e->told_failure = e->told_failure || err != 0;
    while (!list_empty(&e->waiting)) {
        struct store_call *c = list_item(e->waiting.next, struct store_call, link);
        if (c->batch > bw->batch)
            break;
        list_remove(&c->link);
        if (err != 0)
            c->result = err;
        embedded_complete(c);
    }
    free(bw);
    retry_stalled(e);
}

void embedded_finish_after(struct embedded *e, struct store_call *c, struct stream *s,
                           uint64_t batch)
{
    c->batch = batch;
    c->stream = s;
    if (s != NULL)
        s->pins++;
    list_init(&c->link);
    if (batch <= journal_durable(e->journal)) {
        embedded_complete(c);
        return;
    }
    /* A failed or duplicate write may wait for an older batch than the last call does. */
    struct link *before = &e->waiting;
    while (before->prev != &e->waiting &&
           list_item(before->prev, struct store_call, link)->batch > batch)
        before = before->prev;
    list_push(before, &c->link);
    if (batch <= e->awaited && journal_error(e->journal) == 0)
        return; /* with an error those who waited have been told already */
    e->awaited = batch;
    struct batch_waiter *bw = mem_alloc(sizeof *bw);
    *bw =
        (struct batch_waiter){.waiter = {.done = embedded_on_batch}, .embedded = e, .batch = batch};
    journal_wait(e->journal, batch, &bw->waiter);
}

uint64_t embedded_put_record(struct embedded *e)
{
    uint64_t batch = journal_put(e->journal, buf_str(&e->scratch), NULL);
    e->scratch.n = 0;
    return batch;
}

/* ---- write ---- */

struct fork_wait {
    struct store_write *write;
    struct fork_place place;
};

/* An upper bound of the record's size. The length of an event takes a byte, or up to five if there
 * are 128 bytes of it. */
static size_t record_bound(const struct store_write *w)
{
    size_t n = 4096 + w->name.n + w->data.n + w->n_events + w->data.n / 128 * 4;
    for (size_t i = 0; i < w->n_docs; i++)
        n += w->docs[i].key.n + w->docs[i].value.n + 32;
    return n;
}

/* Small files are a test's. */
size_t embedded_reserve(const struct embedded *e)
{
    uint64_t part = e->config.journal.file_bytes / 16;
    return part < DELETE_RESERVE ? (size_t)part : DELETE_RESERVE;
}

static int check_room(struct embedded *e, size_t n, bool data)
{
    if (data && e->unrested > e->config.unrested_max)
        return ERR_BUSY;
    if (data && e->config.disk_cap > 0 &&
        e->segment_bytes + journal_file_bytes(e->journal) + n > e->config.disk_cap)
        return ERR_FULL;
    return journal_room(e->journal, n + (data ? embedded_reserve(e) : 0));
}

static void embedded_finish_write(struct store_call *c)
{
    struct store_write *w = container_of(c, struct store_write, call);
    w->done(w, c->result);
}

static void embedded_finish_applied(struct store_call *c)
{
    struct store_write *w = container_of(c, struct store_write, call);
    struct embedded *e = embedded_of(c->store);
    if (c->result == 0)
        catalog_settle(&e->catalog, c->stream, &w->info);
    w->done(w, c->result);
}

static void embedded_apply(struct embedded *e, struct store_write *w, const struct judgement *j)
{
    int64_t now_ms = catalog_wall_ms(&e->catalog);
    if (j->stream != NULL)
        embedded_before_change(e, j->stream);
    struct stream *s = catalog_apply(&e->catalog, w, j);
    record_put_write(&e->scratch, s, w, j, now_ms);
    s->last_batch = embedded_put_record(e);
    if (w->n_docs > 0)
        e->docs_batch = s->last_batch;
    e->unrested += w->data.n;
    embedded_mark_dirty(e, s);
    embedded_mark_docs(e, w->docs, w->n_docs);
    if (!w->call.trimmed && w->data.n > 0)
        embedded_trim(&e->catalog, s);
    w->call.result = 0;
    w->call.finish = embedded_finish_applied;
    embedded_finish_after(e, &w->call, s, s->last_batch);
    embedded_rest_look(e);
}

static int embedded_use_place(void *ctx, struct judgement *j)
{
    struct fork_place *p = ctx;
    if (!p->known || p->source_life != j->source->life || p->anchor != j->fork_anchor)
        return NEEDS_PLACE;
    j->fork_at = p->at;
    j->fork_events = p->events;
    return p->err;
}

static void embedded_judge(struct embedded *e, struct store_write *w, struct fork_place *place);

static void run_later(struct embedded *e, struct store_call *c)
{
    list_push(&e->stalled, &c->link);
    sched_start(e->store.sched, &e->retry, RETRY_MS);
}

/* The journal has no room yet: everything that changes something waits, in order. */
static bool stall(struct embedded *e, struct store_call *c, int err)
{
    if (err != ERR_BUSY || e->unrested > e->config.unrested_max)
        return false;
    run_later(e, c);
    return true;
}

/* Behind those that came before. */
static bool must_queue(struct embedded *e, struct store_call *c)
{
    list_init(&c->link);
    if (e->retrying || list_empty(&e->stalled))
        return false;
    list_push(&e->stalled, &c->link);
    return true;
}

static void embedded_on_fork_placed(void *ctx)
{
    struct fork_wait *f = ctx;
    f->place.known = true;
    embedded_judge(embedded_of(f->write->call.store), f->write, &f->place);
    free(f);
}

static void look_up_fork(struct embedded *e, struct store_write *w, const struct judgement *j)
{
    struct fork_wait *f = mem_zalloc(sizeof *f);
    f->write = w;
    f->place = (struct fork_place){
        .source_life = j->source->life, .anchor = j->fork_anchor, .sub = w->create->fork_sub};
    embedded_place_fork(e, j->source, &f->place, embedded_on_fork_placed, f);
}

/* The batch without which the answer could have been another. */
static uint64_t batch_behind(const struct embedded *e, const struct judgement *j, int err)
{
    uint64_t batch = j->stream != NULL ? j->stream->last_batch : e->removed_batch;
    if (j->source != NULL && j->source->last_batch > batch)
        batch = j->source->last_batch;
    return err == ERR_VERSION && e->docs_batch > batch ? e->docs_batch : batch;
}

/* The answer says that a stream is not there. */
static bool tells_absence(int err)
{
    return err == ERR_NOT_FOUND || err == ERR_DELETED || err == ERR_FORK_SOURCE ||
           err == ERR_FORK_DELETED;
}

static bool stall_unrecorded(struct embedded *e, struct store_call *c);

static void embedded_judge(struct embedded *e, struct store_write *w, struct fork_place *place)
{
    struct judgement j;
    struct fork_place none = {0};
    int v = catalog_judge(&e->catalog, w, &j, embedded_use_place, place != NULL ? place : &none);
    if (v == NEEDS_PLACE) {
        look_up_fork(e, w, &j);
        return;
    }
    if (v == VERDICT_APPLY) {
        int err = check_room(e, record_bound(w), w->data.n > 0 || w->create != NULL);
        if (err == 0) {
            embedded_apply(e, w, &j);
            return;
        }
        if (stall(e, &w->call, err))
            return;
        v = err;
    }
    if (tells_absence(v) && stall_unrecorded(e, &w->call))
        return;
    if (w->duplicate)
        stream_touch(&e->catalog, j.stream);
    w->call.result = v > 0 ? 0 : v;
    w->call.finish = embedded_finish_write;
    embedded_finish_after(e, &w->call, j.stream, batch_behind(e, &j, v));
}

static void embedded_run_write(struct task *t)
{
    struct store_write *w = container_of(t, struct store_write, call.task);
    struct embedded *e = embedded_of(w->call.store);
    if (!must_queue(e, &w->call))
        embedded_judge(e, w, NULL);
}

/* Expiries that had no room come before everything that waits: names they freed may be among it. */
static void record_removals(struct embedded *e)
{
    size_t n = 0;
    if (e->journal_stopping)
        return;
    while (n < e->unrecorded.n && journal_room(e->journal, 64) == 0) {
        record_put_remove(&e->scratch, e->unrecorded.items[n++]);
        e->removed_batch = embedded_put_record(e);
    }
    e->unrecorded.n -= n;
    if (n > 0)
        memmove(e->unrecorded.items, e->unrecorded.items + n,
                e->unrecorded.n * sizeof *e->unrecorded.items);
}

/* While there is no room for expiries, nobody is told of them: a crash would bring the streams
 * back. True: the call is run again. */
static bool stall_unrecorded(struct embedded *e, struct store_call *c)
{
    record_removals(e);
    if (e->unrecorded.n == 0 || journal_room(e->journal, 64) != ERR_BUSY)
        return false;
    run_later(e, c);
    return true;
}

/* One after the other, until the journal has no room again. */
static void retry_stalled(struct embedded *e)
{
    record_removals(e);
    struct link now;
    list_init(&now);
    list_splice(&now, &e->stalled);
    e->retrying = true;
    while (!list_empty(&now) && list_empty(&e->stalled)) {
        struct store_call *c = list_item(now.next, struct store_call, link);
        list_remove(&c->link);
        c->task.run(&c->task);
    }
    e->retrying = false;
    list_splice(&e->stalled, &now);
    embedded_check_stopped(e);
}

static void embedded_on_retry(struct timer *t)
{
    struct embedded *e = container_of(t, struct embedded, retry);
    retry_stalled(e);
    if (e->unrecorded.n > 0 && !e->stopping)
        sched_start(e->store.sched, &e->retry, RETRY_MS);
}

/* ---- remove ---- */

/* The catalog takes a stream away: asked for, expired, or because its last fork is gone. */
static void embedded_on_removing(struct catalog *c, struct stream *s)
{
    struct embedded *e = container_of(c, struct embedded, catalog);
    bool again = s->deleted; /* its name goes now; the rest has gone before */
    embedded_before_change(e, s);
    list_remove(&s->dirty);
    if (s->family != NULL)
        embedded_mark_dirty(e, s);
    else
        lives_add(&e->removed, s->life);
    if (e->replaying != NULL && s->family == NULL)
        map_remove(e->replaying, life_key(&s->life));
    if (e->replaying != NULL || again)
        return;
    if (journal_room(e->journal, 64) != 0) {
        /* Until it is written down, an expired stream is there after a crash, and expires again. */
        lives_add(&e->unrecorded, s->life);
        sched_start(e->store.sched, &e->retry, RETRY_MS);
        return;
    }
    record_put_remove(&e->scratch, s->life);
    s->last_batch = e->removed_batch = embedded_put_record(e);
}

/* What it keeps for its forks is less at the next checkpoint. */
static void embedded_on_shrinking(struct catalog *c, struct stream *s)
{
    struct embedded *e = container_of(c, struct embedded, catalog);
    embedded_before_change(e, s);
    embedded_mark_dirty(e, s);
}

static void embedded_finish_remove(struct store_call *c)
{
    struct store_remove *r = container_of(c, struct store_remove, call);
    r->done(r, c->result);
}

static void embedded_run_remove(struct task *t)
{
    struct store_remove *r = container_of(t, struct store_remove, call.task);
    struct embedded *e = embedded_of(r->call.store);
    struct stream *s = NULL;
    if (must_queue(e, &r->call))
        return;
    int err = catalog_find(&e->catalog, r->name, &s);
    if (err == 0)
        err = check_room(e, 64, false);
    if (stall(e, &r->call, err) || (tells_absence(err) && stall_unrecorded(e, &r->call)))
        return;
    uint64_t batch = e->removed_batch;
    if (err == 0) {
        s->pins++;
        catalog_remove(&e->catalog, s);
        batch = s->last_batch;
        stream_unpin(s);
    }
    r->call.result = err;
    r->call.finish = embedded_finish_remove;
    embedded_finish_after(e, &r->call, NULL, batch);
}

/* ---- the others ---- */

static void embedded_finish_stat(struct store_call *c)
{
    struct store_stat *st = container_of(c, struct store_stat, call);
    st->done(st, c->result);
}

void embedded_tell_absence(struct embedded *e, struct store_call *c, int err)
{
    if (stall_unrecorded(e, c))
        return;
    c->result = err;
    embedded_finish_after(e, c, NULL, e->removed_batch);
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
        embedded_tell_absence(e, &st->call, err);
        return;
    }
    st->info = stream_info_of(s);
    st->done(st, 0);
}

static void embedded_finish_list(struct store_call *c)
{
    struct store_list *l = container_of(c, struct store_list, call);
    struct store_row *rows = l->rows;
    l->done(l, c->result);
    free(rows);
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
    if (stall_unrecorded(e, &l->call)) {
        free(l->rows);
        return;
    }
    if (e->removed_batch > journal_durable(e->journal))
        keep_names(l);
    l->call.result = 0;
    embedded_finish_after(e, &l->call, NULL, e->removed_batch);
}

static void embedded_finish_docs(struct store_call *c)
{
    struct store_docs *d = container_of(c, struct store_docs, call);
    struct doc_row *rows = d->rows;
    d->done(d, c->result);
    free(rows);
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
    if (e->docs_batch > journal_durable(e->journal))
        keep_rows(d);
    d->call.result = 0;
    d->call.finish = embedded_finish_docs;
    embedded_finish_after(e, &d->call, NULL, e->docs_batch);
}

static void embedded_finish_put(struct store_call *c)
{
    struct store_put *p = container_of(c, struct store_put, call);
    p->done(p, c->result);
}

static void embedded_run_put(struct task *t)
{
    struct store_put *p = container_of(t, struct store_put, call.task);
    struct embedded *e = embedded_of(p->call.store);
    size_t n = 64;
    for (size_t i = 0; i < p->n_docs; i++)
        n += p->docs[i].key.n + p->docs[i].value.n + 32;
    if (must_queue(e, &p->call))
        return;
    int err = catalog_check_docs(&e->catalog, p->docs, p->n_docs);
    if (err == 0)
        err = check_room(e, n, false);
    if (stall(e, &p->call, err))
        return;
    if (err == 0) {
        catalog_put_docs(&e->catalog, p->docs, p->n_docs);
        embedded_mark_docs(e, p->docs, p->n_docs);
        record_put_docs(&e->scratch, p->docs, p->n_docs);
        e->docs_batch = embedded_put_record(e);
    }
    p->call.result = err;
    p->call.finish = embedded_finish_put;
    embedded_finish_after(e, &p->call, NULL, e->docs_batch);
}

static void embedded_post(struct store *s, struct store_call *call, void (*run)(struct task *t))
{
    call->store = s;
    call->stream = NULL;
    task_init(&call->task, run);
    sched_post(s->sched, &call->task);
}

static void embedded_write(struct store *s, struct store_write *w)
{
    w->created = w->duplicate = false;
    embedded_post(s, &w->call, embedded_run_write);
}

static void embedded_remove(struct store *s, struct store_remove *r)
{
    embedded_post(s, &r->call, embedded_run_remove);
}

static void embedded_stat(struct store *s, struct store_stat *st)
{
    embedded_post(s, &st->call, embedded_run_stat);
}

static void embedded_list(struct store *s, struct store_list *l)
{
    embedded_post(s, &l->call, embedded_run_list);
}

static void embedded_docs(struct store *s, struct store_docs *d)
{
    embedded_post(s, &d->call, embedded_run_docs);
}

static void embedded_put(struct store *s, struct store_put *p)
{
    embedded_post(s, &p->call, embedded_run_put);
}

static void embedded_watch(struct store *s, struct store_watch *w)
{
    watchers_add(&embedded_of(s)->catalog.watchers, w);
}

static void embedded_unwatch(struct store *s, struct store_watch *w)
{
    watchers_remove(&embedded_of(s)->catalog.watchers, w);
}

/* ---- ending ---- */

static void embedded_on_journal_stopped(void *ctx)
{
    struct embedded *e = ctx;
    e->stopped(e->stopped_ctx);
}

/* Operations that wait for the journal are told when it has written what is open. */
void embedded_check_stopped(struct embedded *e)
{
    bool quiet = e->checkpoint == NULL && e->reads == 0 && list_empty(&e->stalled);
    if (quiet && e->stopping)
        record_removals(e);
    if (quiet && e->stopping && e->unrecorded.n > 0 && journal_room(e->journal, 64) == ERR_BUSY) {
        sched_start(e->store.sched, &e->retry, RETRY_MS); /* comes back here */
        return;
    }
    if (quiet && e->stopping && !e->rested_last) {
        e->rested_last = true;
        embedded_rest_last(e);
        quiet = e->checkpoint == NULL;
    }
    if (e->stopping && quiet && !e->journal_stopping) {
        e->journal_stopping = true;
        journal_stop(e->journal, embedded_on_journal_stopped, e);
    }
}

/* Behind all operations that were started before. */
static void embedded_run_stop(struct task *t)
{
    struct embedded *e = container_of(t, struct embedded, stop);
    e->stopping = true;
    embedded_rest_stop(e);
    embedded_check_stopped(e);
}

static void embedded_stop(struct store *s, void (*stopped)(void *ctx), void *ctx)
{
    struct embedded *e = embedded_of(s);
    e->stopped = stopped;
    e->stopped_ctx = ctx;
    sched_post(s->sched, &e->stop);
}

static void embedded_free(struct store *s)
{
    struct embedded *e = embedded_of(s);
    must(list_empty(&e->waiting) && list_empty(&e->stalled) && e->checkpoint == NULL);
    timer_stop(&e->retry);
    timer_stop(&e->checkpoint_timer);
    journal_free(e->journal);
    cache_deinit(&e->cache);
    catalog_deinit(&e->catalog);
    if (e->index != NULL)
        index_close(e->index);
    free(e->removed.items);
    free(e->unrecorded.items);
    buf_deinit(&e->scratch);
    free(e);
}

/* What a small append would meet; one that has to wait is no bad sign. */
static int embedded_health(struct store *s, struct str *why)
{
    int err = check_room(embedded_of(s), HEALTH_BYTES, true);
    return err == ERR_BUSY ? 0 : err;
}

/* Bytes that it takes, in memory and on disk. */
static size_t embedded_figures(const struct store *s, struct store_figure *out)
{
    static const struct metric_info infos[] = {
        {.name = "store_unrested_bytes",
         .help = "Bytes of events that no checkpoint has taken yet"},
        {.name = "store_journal_bytes", .help = "Bytes of the journal's files"},
        {.name = "store_segment_bytes", .help = "Bytes of segments"},
        {.name = "store_cache_bytes",
         .help = "Bytes of events at rest that are kept in memory too"},
    };
    const struct embedded *e = container_of(s, const struct embedded, store);
    const uint64_t values[] = {e->unrested, journal_file_bytes(e->journal), e->segment_bytes,
                               e->cache.bytes};
    size_t n = sizeof infos / sizeof *infos;
    for (size_t i = 0; i < n; i++)
        out[i] = (struct store_figure){&infos[i], values[i]};
    return n;
}

static const struct store_ops ops = {
    .write = embedded_write,
    .remove = embedded_remove,
    .stat = embedded_stat,
    .read = embedded_read,
    .list = embedded_list,
    .docs = embedded_docs,
    .put = embedded_put,
    .watch = embedded_watch,
    .unwatch = embedded_unwatch,
    .health = embedded_health,
    .figures = embedded_figures,
    .stop = embedded_stop,
    .free = embedded_free,
};

/* ---- opening ---- */

static int make_folders(struct vfs *v)
{
    static const char *const folders[] = {"journal", "segments"};
    for (int i = 0; i < 2; i++) {
        int err = vfs_make_dir(v, folders[i]);
        if (err != 0 && err != ERR_EXISTS)
            return err;
    }
    return vfs_sync_dir(v, "");
}

static void embedded_on_journal_started(void *ctx, int err)
{
    retry_stalled(ctx); /* with an error they are told so, or wait on */
}

static int open_all(struct embedded *e, const char *index_path, char *why, size_t size)
{
    int err = make_folders(e->vfs);
    if (err != 0) {
        snprintf(why, size, "cannot make the folders of the store: %s", err_text(err));
        return err;
    }
    e->index = index_open(index_path, e->config.index_sync, why, size);
    if (e->index == NULL)
        return ERR_IO;
    struct journal_scan scan = {0};
    err = embedded_recover(e, &scan, why, size);
    if (err != 0)
        return err;
    e->journal = journal_new(e->vfs, e->store.sched, e->lanes.journal, e->lanes.prepare,
                             &e->config.journal, scan.next, scan.next_file);
    journal_release(e->journal, scan.next); /* all of it has come to rest */
    journal_start(e->journal, embedded_on_journal_started, e);
    return 0;
}

struct store *embedded_open(struct sched *sched, struct vfs *vfs, const char *index_path,
                            const struct embedded_lanes *lanes,
                            const struct embedded_config *config, char *why, size_t size)
{
    struct embedded *e = mem_zalloc(sizeof *e);
    e->store = (struct store){.ops = &ops,
                              .sched = sched,
                              .retain = config->retain,
                              .fork_depth = STORE_FORK_DEPTH,
                              .stepped = config->stepped,
                              .stepped_ctx = config->stepped_ctx};
    e->vfs = vfs;
    e->lanes = *lanes;
    e->config = *config;
    catalog_init(&e->catalog, &e->store);
    e->catalog.removing = embedded_on_removing;
    e->catalog.shrinking = embedded_on_shrinking;
    e->catalog.trim = embedded_trim;
    e->catalog.keep_removed_docs = true;
    cache_init(&e->cache, config->cache_bytes);
    list_init(&e->waiting);
    list_init(&e->stalled);
    list_init(&e->dirty);
    list_init(&e->dirty_docs);
    timer_init(&e->retry, embedded_on_retry);
    task_init(&e->stop, embedded_run_stop);
    embedded_rest_init(e);
    if (open_all(e, index_path, why, size) != 0) {
        embedded_free(&e->store);
        return NULL;
    }
    catalog_start_sweep(&e->catalog);
    return &e->store;
}

void embedded_checkpoint(struct store *s)
{
    embedded_rest_start(embedded_of(s));
}

uint64_t embedded_unrested(const struct store *s)
{
    return container_of(s, const struct embedded, store)->unrested;
}

int embedded_error(const struct store *s)
{
    return journal_error(container_of(s, const struct embedded, store)->journal);
}
