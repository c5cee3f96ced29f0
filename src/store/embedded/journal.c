// SPDX-License-Identifier: Apache-2.0
/* journal.c -- batches, and who waits for them. journal_files.c keeps the files, journal_scan.c
 * reads them after a crash, journal_format.c knows the bytes. The format:
 *
 *     file   | head | batch | batch | ... | zeros, or what is left of an earlier life
 *
 * A file has its whole size before it gets its head, and sizes differ. The head takes one sector,
 * which a disk writes whole or not at all; each batch begins at a sector, so that a write never
 * touches one that an acknowledged batch is in. Sectors have 512 bytes. Numbers are little-endian.
 *
 *     head      0  8  "tmjourn\n"
 *               8  4  version, 1
 *              12  4  0
 *              16  8  id: grows with each file that is made or used again; never given twice
 *              24  8  epoch: the id of the first file that the same server made
 *              32  8  first: number of the first batch of that epoch
 *              40  8  salt: random, seed of the sums of this file's batches
 *              48  8  XXH3-64 of bytes 0-47
 *              56     zeros up to 512
 *
 *     batch     0  4  "tmb\n"
 *               4  4  count of records, at least 1
 *               8  8  id of the file
 *              16  8  number: 1, 2, 3, ... through all files
 *              24  8  synced: every batch below this number was durable when this one was written
 *              32  8  length of the records in bytes
 *              40  8  XXH3-64 of the records, seed: salt
 *              48  8  XXH3-64 of bytes 0-47, seed: salt
 *              56     records
 *
 *     record    0  4  length in bytes, at least 1
 *               4     bytes
 *
 * A batch counts if both of its sums are right and its number is due: the one after the last. A
 * batch of an earlier life of the file fails by the salt and by the id; the same is true of bytes
 * in a record that somebody made look like a batch. What stands behind a batch that fails is not
 * trusted but asked: its `synced` tells whether the failed one had been durable (see
 * journal_scan.c). An epoch begins with the number that was due when
 * its server started, so whatever an earlier epoch has under that number or a higher one had been
 * lost by then, and stays lost. Number 0 and an id of 0 do not exist, so zeros are no batch and no
 * head. */
#include "store/embedded/journal.h"
#include "base/block.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "store/embedded/journal_files.h"
#include "store/embedded/vfs.h"

#include <assert.h>
#include <stdlib.h>

#define BUFFER_KEPT   (1024u * 1024) /* a buffer that has grown beyond is given back */
#define ONE_RECORD(n) (JOURNAL_BATCH_HEAD + JOURNAL_RECORD_HEAD + (n)) /* a batch of one */

struct journal_batch {
    struct buf bytes;    /* the head's place, then the records; empty: nothing put yet */
    struct block *inlay; /* NULL, or bytes of the last record that stand at inlay_at */
    size_t inlay_at;
    uint32_t count;
    uint64_t number, offset;
    struct journal_file *file;
    struct link waiters;
};

/* What bytes of which number came before a cut, to know what a release gives back. */
struct mark {
    struct link link;
    uint64_t number, bytes;
};

struct journal {
    struct journal_config config;
    struct sched *sched;
    struct lane *lane;
    struct journal_files files;

    /* A ring: n_sealed from `first` on, then the open one if there is room. */
    struct journal_batch batches[JOURNAL_BATCHES];
    unsigned first, n_sealed;
    uint64_t next;    /* number of the open batch */
    uint64_t durable; /* up to this one */
    uint64_t synced;  /* below this one; in SYNC_ALWAYS they say the same */
    int err;

    /* The job on the writer's lane. */
    struct job job;
    bool writing;
    bool sync; /* after the write, if there is one */
    struct journal_batch *batch;
    struct journal_file *target, *left; /* left: to be synced first, for it is not written again */
    int job_err;

    struct journal_file *dirty; /* SYNC_INTERVAL: has batches that are not synced */
    struct timer sync_timer;
    bool sync_due;

    struct task flush;
    struct task soon;
    struct link in_time, too_late; /* to be told soon: of batches that are durable, or lost */

    uint64_t bytes, released_bytes; /* that all batches so far take in files */
    uint64_t cut_bytes;             /* at the last cut */
    struct link marks;

    void (*started)(void *ctx, int err);
    void *start_ctx;
    void (*stopped)(void *ctx);
    void *stop_ctx;
    bool stopping;
};

static void flush_later(struct journal *j);

/* ---- telling ---- */

static void notify_all(struct link *waiters, int err)
{
    while (!list_empty(waiters)) {
        struct journal_waiter *w = list_item(waiters->next, struct journal_waiter, link);
        list_remove(&w->link);
        w->done(w, err);
    }
}

static void journal_notify_waiters(struct task *t)
{
    struct journal *j = container_of(t, struct journal, soon);
    struct link in_time, too_late; /* those who come meanwhile have to wait */
    list_init(&in_time);
    list_init(&too_late);
    list_splice(&in_time, &j->in_time);
    list_splice(&too_late, &j->too_late);
    notify_all(&in_time, 0);
    notify_all(&too_late, ERR_IO);
    flush_later(j);
}

/* Nothing waits to be written or is being written. */
static bool is_quiet(const struct journal *j)
{
    return j->n_sealed == 0 && j->batches[j->first].bytes.n == 0;
}

static void journal_check_stopped(struct journal *j)
{
    if (j->stopped == NULL || !is_quiet(j) || j->dirty != NULL || j->writing ||
        j->files.n_jobs > 0 || !list_empty(&j->in_time) || !list_empty(&j->too_late))
        return;
    void (*stopped)(void *ctx) = j->stopped;
    j->stopped = NULL;
    stopped(j->stop_ctx);
}

/* ---- batches ---- */

static struct journal_batch *open_batch(struct journal *j)
{
    return j->n_sealed < JOURNAL_BATCHES ? &j->batches[(j->first + j->n_sealed) % JOURNAL_BATCHES]
                                         : NULL;
}

static uint64_t batch_size(const struct journal_batch *b)
{
    return b->bytes.n + (b->inlay != NULL ? b->inlay->n : 0);
}

static uint64_t span_with(const struct journal_batch *b, uint64_t n)
{
    return journal_span((b->bytes.n > 0 ? batch_size(b) : JOURNAL_BATCH_HEAD) + n);
}

/* Of a batch with several records; one that does not fit is in a batch by itself. */
static uint64_t batch_max(const struct journal *j)
{
    uint64_t file = j->files.file_bytes - JOURNAL_FILE_HEAD;
    return file < JOURNAL_BATCH_BYTES ? file : JOURNAL_BATCH_BYTES;
}

static bool takes(const struct journal *j, const struct journal_batch *b, size_t n)
{
    return b->bytes.n == 0 ||
           (b->inlay == NULL && span_with(b, JOURNAL_RECORD_HEAD + n) <= batch_max(j));
}

static void journal_seal(struct journal *j)
{
    struct journal_batch *b = open_batch(j);
    b->number = j->next++;
    b->file = journal_files_place(&j->files, span_with(b, 0), b->number, &b->offset);
    j->bytes += span_with(b, 0);
    j->n_sealed++;
}

static void drop_inlay(struct journal_batch *b)
{
    block_unref(b->inlay);
    b->inlay = NULL;
}

static void reset(struct journal_batch *b)
{
    drop_inlay(b);
    if (b->bytes.cap > BUFFER_KEPT)
        buf_deinit(&b->bytes);
    b->bytes.n = 0;
    b->count = 0;
}

/* ---- on the lane ---- */

static int write_batch(struct journal *j)
{
    struct journal_batch *b = j->batch;
    struct journal_batch_head head = {
        .number = b->number,
        .synced = j->synced,
        .length = batch_size(b) - JOURNAL_BATCH_HEAD,
        .count = b->count,
    };
    if (b->inlay == NULL) {
        journal_batch_write(b->bytes.p, &b->file->who, &head);
        return vfs_write(b->file->file, b->offset, buf_str(&b->bytes));
    }
    struct iovec pieces[] = {{b->bytes.p, b->inlay_at},
                             {b->inlay->bytes, b->inlay->n},
                             {b->bytes.p + b->inlay_at, b->bytes.n - b->inlay_at}};
    journal_batch_write_pieces(pieces, 3, &b->file->who, &head);
    return vfs_writev(b->file->file, b->offset, pieces, 3);
}

static void journal_write_run(struct job *job)
{
    struct journal *j = container_of(job, struct journal, job);
    int err = j->left != NULL ? vfs_sync(j->left->file) : 0;
    if (err == 0 && j->batch != NULL)
        err = write_batch(j);
    if (err == 0 && j->sync)
        err = vfs_sync(j->target->file);
    j->job_err = err;
}

/* ---- writing ---- */

static void journal_hold(struct journal_file *f, bool held)
{
    if (f != NULL)
        f->held = held;
}

static void set_dirty(struct journal *j, struct journal_file *f)
{
    journal_hold(j->dirty, false);
    journal_hold(f, true);
    j->dirty = f;
    if (f == NULL)
        timer_stop(&j->sync_timer);
    else if (!timer_running(&j->sync_timer) && !j->sync_due)
        sched_start(j->sched, &j->sync_timer, j->config.sync_interval_ms);
}

/* Nothing is acknowledged any more, and nothing is written. In order: first those who waited for
 * the batch that failed. */
static void journal_end(struct journal *j)
{
    struct link lost;
    list_init(&lost);
    for (unsigned i = 0; i < JOURNAL_BATCHES; i++) {
        struct journal_batch *b = &j->batches[(j->first + i) % JOURNAL_BATCHES];
        list_splice(&lost, &b->waiters);
        drop_inlay(b);
        buf_deinit(&b->bytes);
        b->count = 0;
    }
    j->err = ERR_IO;
    j->n_sealed = 0;
    set_dirty(j, NULL);
    journal_files_stop(&j->files);
    notify_all(&lost, j->err);
}

static void batch_done(struct journal *j)
{
    struct journal_batch *b = j->batch;
    struct link waiters;
    list_init(&waiters);
    list_splice(&waiters, &b->waiters);
    j->durable = b->number;
    reset(b);
    j->first = (j->first + 1) % JOURNAL_BATCHES;
    j->n_sealed--;
    notify_all(&waiters, 0);
}

static void journal_write_done(struct job *job)
{
    struct journal *j = container_of(job, struct journal, job);
    struct journal_batch *b = j->batch;
    j->writing = false;
    journal_hold(j->target, false);
    journal_hold(j->left, false);
    if (j->job_err != 0) {
        journal_end(j);
        journal_check_stopped(j);
        return;
    }
    if (j->sync) {
        j->synced = (b != NULL ? b->number : j->durable) + 1;
        set_dirty(j, NULL);
    } else if (j->config.sync == JOURNAL_SYNC_INTERVAL) {
        set_dirty(j, j->target);
        if (j->left != NULL)
            j->synced = b->number;
    }
    flush_later(
        j); /* before those who are told: the disk need not wait until their answers are sent */
    if (b != NULL)
        batch_done(j);
    journal_files_reclaim(&j->files, j->durable, is_quiet(j));
}

static void journal_submit(struct journal *j)
{
    j->batch = j->n_sealed > 0 ? &j->batches[j->first] : NULL;
    j->target = j->batch != NULL ? j->batch->file : j->dirty;
    j->left = j->dirty != NULL && j->dirty != j->target ? j->dirty : NULL;
    j->sync = j->config.sync == JOURNAL_SYNC_ALWAYS ||
              (j->config.sync == JOURNAL_SYNC_INTERVAL && (j->sync_due || j->stopping));
    j->sync_due = false;
    j->writing = true;
    journal_hold(j->target, true);
    lane_submit(j->lane, &j->job);
}

static void journal_flush(struct task *t)
{
    struct journal *j = container_of(t, struct journal, flush);
    if (j->err == 0 && !j->writing) {
        if (j->n_sealed == 0 && open_batch(j)->bytes.n > 0)
            journal_seal(j);
        if (j->n_sealed > 0 || ((j->sync_due || j->stopping) && j->dirty != NULL))
            journal_submit(j);
    }
    journal_check_stopped(j);
}

/* At the end of the turn, so that one batch takes all that the turn brings. */
static void flush_later(struct journal *j)
{
    sched_post_flush(j->sched, &j->flush);
}

static void journal_sync_now(struct timer *t)
{
    struct journal *j = container_of(t, struct journal, sync_timer);
    j->sync_due = true;
    flush_later(j);
}

/* ---- the calls ---- */

static void journal_files_changed(struct journal_files *f)
{
    struct journal *j = container_of(f, struct journal, files);
    if (j->started != NULL && (f->err != 0 || !list_empty(&f->spares))) {
        void (*started)(void *ctx, int err) = j->started;
        j->started = NULL;
        started(j->start_ctx, f->err);
    }
    flush_later(j); /* for one who stops */
}

static uint64_t or_default(uint64_t bytes, uint64_t by_default)
{
    return bytes != 0 ? bytes : by_default;
}

struct journal *journal_new(struct vfs *v, struct sched *sched, struct lane *writer,
                            struct lane *preparer, const struct journal_config *config,
                            uint64_t next, uint64_t next_file)
{
    must(next > 0 && next_file > 0 && config->file_bytes >= JOURNAL_FILE_MIN);
    must(config->first_bytes == 0 || config->first_bytes > JOURNAL_FILE_HEAD);
    struct journal *j = mem_zalloc(sizeof *j);
    j->config = *config;
    j->sched = sched;
    j->lane = writer;
    j->next = j->synced = next;
    j->durable = next - 1;
    j->job.run = journal_write_run;
    j->job.done = journal_write_done;
    journal_files_init(&j->files,
                       &(struct journal_files_setup){
                           .vfs = v,
                           .sched = sched,
                           .lane = preparer,
                           .file_bytes = config->file_bytes,
                           .first_bytes = or_default(config->first_bytes, JOURNAL_FIRST_BYTES),
                           .step_bytes = or_default(config->step_bytes, JOURNAL_STEP_BYTES),
                           .next_id = next_file,
                           .first_number = next,
                           .changed = journal_files_changed,
                       });
    for (int i = 0; i < JOURNAL_BATCHES; i++)
        list_init(&j->batches[i].waiters);
    list_init(&j->in_time);
    list_init(&j->too_late);
    list_init(&j->marks);
    timer_init(&j->sync_timer, journal_sync_now);
    task_init(&j->flush, journal_flush);
    task_init(&j->soon, journal_notify_waiters);
    return j;
}

void journal_start(struct journal *j, void (*done)(void *ctx, int err), void *ctx)
{
    j->started = done;
    j->start_ctx = ctx;
    journal_files_start(&j->files);
}

int journal_room(struct journal *j, size_t n)
{
    must(n > 0);
    if (j->err != 0)
        return j->err;
    if (n > JOURNAL_RECORD_MAX)
        return ERR_TOO_LARGE;
    const struct journal_batch *b = open_batch(j);
    if (j->stopping || b == NULL)
        return ERR_BUSY;
    struct journal_probe probe = journal_files_probe(&j->files);
    uint64_t span = span_with(b, JOURNAL_RECORD_HEAD + n);
    if (!takes(j, b, n)) {
        if (j->n_sealed + 1 == JOURNAL_BATCHES)
            return ERR_BUSY;
        journal_probe_place(&probe, span_with(b, 0));
        span = journal_span(ONE_RECORD(n));
    }
    return journal_probe_place(&probe, span) ? 0 : journal_files_lack(&j->files, span);
}

/* Of n bytes, `record` among them, into the open batch, which is the result. */
static struct journal_batch *put_record(struct journal *j, size_t n, struct str record)
{
    must(journal_room(j, n) == 0);
    if (!takes(j, open_batch(j), n))
        journal_seal(j);
    struct journal_batch *b = open_batch(j);
    if (b->bytes.n == 0) {
        buf_reserve(&b->bytes, ONE_RECORD(record.n));
        b->bytes.n = JOURNAL_BATCH_HEAD;
    }
    journal_record_head_write(buf_reserve(&b->bytes, JOURNAL_RECORD_HEAD), n);
    b->bytes.n += JOURNAL_RECORD_HEAD;
    buf_put(&b->bytes, record);
    b->count++;
    flush_later(j);
    return b;
}

uint64_t journal_put(struct journal *j, struct str record, struct journal_waiter *waiter)
{
    struct journal_batch *b = put_record(j, record.n, record);
    if (waiter != NULL)
        list_push(&b->waiters, &waiter->link);
    return j->next;
}

uint64_t journal_put_around(struct journal *j, struct str record, size_t at, struct block *inlay)
{
    must(at <= record.n && inlay->n > 0);
    struct journal_batch *b = put_record(j, record.n + inlay->n, record);
    b->inlay = block_ref(inlay);
    b->inlay_at = b->bytes.n - record.n + at;
    return j->next;
}

void journal_wait(struct journal *j, uint64_t batch, struct journal_waiter *waiter)
{
    assert(batch <= j->next);
    if (j->err != 0 || batch <= j->durable) {
        list_push(batch <= j->durable ? &j->in_time : &j->too_late, &waiter->link);
        sched_post(j->sched, &j->soon);
        return;
    }
    uint64_t i = batch - j->durable - 1;
    must(i < JOURNAL_BATCHES);
    list_push(&j->batches[(j->first + i) % JOURNAL_BATCHES].waiters, &waiter->link);
}

uint64_t journal_durable(const struct journal *j)
{
    return j->durable;
}

static void put_mark(struct journal *j)
{
    if (!list_empty(&j->marks) && list_item(j->marks.prev, struct mark, link)->number == j->next)
        return;
    struct mark *m = mem_alloc(sizeof *m);
    *m = (struct mark){.number = j->next, .bytes = j->bytes};
    list_push(&j->marks, &m->link);
}

uint64_t journal_cut(struct journal *j)
{
    struct journal_batch *b = open_batch(j);
    if (b != NULL && b->bytes.n > 0) {
        journal_seal(j);
        flush_later(j);
    }
    put_mark(j);
    j->cut_bytes = j->bytes;
    return j->next;
}

void journal_release(struct journal *j, uint64_t batch)
{
    must(batch <= j->next);
    if (batch <= j->files.released)
        return;
    j->files.released = batch;
    list_each_safe (l, &j->marks) {
        struct mark *m = list_item(l, struct mark, link);
        if (m->number > batch)
            break;
        j->released_bytes = m->bytes;
        list_remove(l);
        free(m);
    }
    journal_files_reclaim(&j->files, j->durable, is_quiet(j));
}

uint64_t journal_uncut(const struct journal *j)
{
    uint64_t sealed = j->bytes - j->cut_bytes;
    return j->n_sealed == JOURNAL_BATCHES
               ? sealed
               : sealed + batch_size(&j->batches[(j->first + j->n_sealed) % JOURNAL_BATCHES]);
}

uint64_t journal_bytes(const struct journal *j)
{
    return j->bytes - j->released_bytes;
}

uint64_t journal_file_bytes(const struct journal *j)
{
    return j->files.bytes;
}

int journal_error(const struct journal *j)
{
    return j->err;
}

void journal_stop(struct journal *j, void (*done)(void *ctx), void *ctx)
{
    assert(!j->stopping);
    j->stopping = true;
    j->stopped = done;
    j->stop_ctx = ctx;
    journal_files_stop(&j->files);
    flush_later(j);
}

void journal_free(struct journal *j)
{
    if (j == NULL)
        return;
    must(!j->writing);
    task_cancel(&j->flush);
    task_cancel(&j->soon);
    timer_stop(&j->sync_timer);
    journal_files_deinit(&j->files);
    for (int i = 0; i < JOURNAL_BATCHES; i++) {
        drop_inlay(&j->batches[i]);
        buf_deinit(&j->batches[i].bytes);
    }
    list_each_safe (l, &j->marks)
        free(list_item(l, struct mark, link));
    free(j);
}
