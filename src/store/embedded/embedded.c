// SPDX-License-Identifier: Apache-2.0
/* embedded.c -- the store as a whole: opened, watched, and brought to its end.
 *
 *     RUNNING    takes operations
 *        | stop was asked for
 *     DRAINING   waits for calls that found no room, reads, and the checkpoint under way
 *        | nothing waits, and expiries are in the journal
 *     RESTING    the last checkpoint, unless it is not wanted or would take long
 *        | it has ended
 *     CLOSING    the journal writes what is open
 *        | it has stopped
 *     CLOSED     the last calls are answered; then stopped() */
#include "store/embedded/embedded.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "store/embedded/embedded_core.h"
#include "store/embedded/vfs.h"
#include "telemetry/metrics.h"

#include <stdio.h>
#include <stdlib.h>

#define HEALTH_BYTES 8192 /* that a small append needs, for a look at the store's health */

void lives_add(struct lives *l, uint64_t life)
{
    l->items = mem_grow(l->items, l->n, &l->cap, sizeof *l->items);
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

void embedded_mark_doc(struct embedded *e, struct doc *d)
{
    if (!list_empty(&d->dirty)) {
        must(d->dirty_turn == e->dirty_turn); /* or embedded_before_docs was forgotten */
        return;
    }
    list_push(&e->dirty_docs, &d->dirty);
    d->dirty_turn = e->dirty_turn;
    e->n_dirty_docs++;
}

void embedded_mark_docs(struct embedded *e, const struct doc_put *docs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct doc *d = map_get(&e->catalog.docs, docs[i].key);
        if (d != NULL)
            embedded_mark_doc(e, d);
    }
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
    e->stage = EMBEDDED_CLOSED;
    embedded_check_closed(e);
}

void embedded_check_closed(struct embedded *e)
{
    if (e->stage == EMBEDDED_CLOSED && list_empty(&e->completing))
        e->stopped(e->stopped_ctx);
}

/* Operations that wait for the journal are told when it has written what is open. */
void embedded_check_stopped(struct embedded *e)
{
    bool quiet = e->checkpoint == NULL && e->reads == 0 && list_empty(&e->stalled) &&
                 list_empty(&e->large.writes);
    if (!quiet || e->stage == EMBEDDED_RUNNING || e->stage >= EMBEDDED_CLOSING)
        return;
    if (!embedded_record_removals(e)) {
        embedded_retry_soon(e); /* comes back here */
        return;
    }
    if (e->stage == EMBEDDED_DRAINING) {
        e->stage = EMBEDDED_RESTING;
        embedded_rest_last(e);
        if (e->checkpoint != NULL || e->stage != EMBEDDED_RESTING)
            return;
    }
    e->stage = EMBEDDED_CLOSING;
    journal_stop(e->journal, embedded_on_journal_stopped, e);
}

/* Behind all operations that were started before. */
static void embedded_run_stop(struct task *t)
{
    struct embedded *e = container_of(t, struct embedded, stop);
    e->stage = EMBEDDED_DRAINING;
    catalog_stop_sweep(&e->catalog);
    embedded_rest_stop(e);
    embedded_large_stop(e);
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
    must(e->checkpoint == NULL);
    embedded_call_deinit(e);
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
    int err = embedded_check_room(embedded_of(s), HEALTH_BYTES, ROOM_EVENTS);
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
        {.name = "store_index_bytes", .help = "Bytes of the index that hold something"},
        {.name = "store_cache_bytes",
         .help = "Bytes of events at rest that are kept in memory too"},
    };
    const struct embedded *e = container_of(s, const struct embedded, store);
    const uint64_t values[] = {e->unrested, journal_file_bytes(e->journal), e->segment_bytes,
                               e->index_bytes, e->cache.bytes};
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
    embedded_retry_stalled(ctx); /* with an error they are told so, or wait on */
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
    cache_init(&e->cache, sched, config->cache_bytes, config->budget);
    list_init(&e->dirty);
    list_init(&e->dirty_docs);
    embedded_call_init(e);
    embedded_large_init(e);
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
