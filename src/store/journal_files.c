// SPDX-License-Identifier: Apache-2.0
#include "store/journal_files.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rand.h"
#include "store/vfs.h"

#include <assert.h>
#include <stdlib.h>

#define SPARES_KEPT   2   /* files taken back are prepared again up to this; the rest is removed */
#define RETRY_MS      500 /* until another attempt after a file could not be prepared */
#define ZEROS_BYTES   (64 * 1024)
#define ZEROS_AT_ONCE 16
/* A new file is synced in steps, or one large burst would hold up the syncs of batches. */
#define SYNC_STEP     (8u * 1024 * 1024)

static void prepare(struct journal_files *s);

static void begin_job(struct journal_files *s, struct job *j, void (*run)(struct job *j),
                      void (*done)(struct job *j))
{
    j->run = run;
    j->done = done;
    s->n_jobs++;
    lane_submit(s->lane, j);
}

static void end_job(struct journal_files *s)
{
    s->n_jobs--;
    prepare(s);
    s->changed(s);
}

/* ---- on the lane: preparing a file ---- */

static int write_zeros(struct file *f, uint64_t from, uint64_t to)
{
    static const char zeros[ZEROS_BYTES];
    while (from < to) {
        struct iovec pieces[ZEROS_AT_ONCE];
        uint64_t n = 0;
        int count = 0;
        for (; count < ZEROS_AT_ONCE && from + n < to; count++) {
            uint64_t left = to - from - n;
            pieces[count].iov_base = (void *)zeros;
            pieces[count].iov_len = left < ZEROS_BYTES ? (size_t)left : ZEROS_BYTES;
            n += pieces[count].iov_len;
        }
        int err = vfs_writev(f, from, pieces, count);
        if (err != 0)
            return err;
        from += n;
    }
    return 0;
}

static int fill(struct journal_file *f)
{
    int err = 0;
    for (uint64_t at = JOURNAL_FILE_HEAD; at < f->size && err == 0; at += SYNC_STEP) {
        uint64_t to = f->size - at < SYNC_STEP ? f->size : at + SYNC_STEP;
        err = write_zeros(f->file, at, to);
        if (err == 0 && to < f->size)
            err = vfs_sync(f->file);
    }
    return err;
}

static int write_head(struct journal_file *f)
{
    char head[JOURNAL_FILE_HEAD];
    journal_head_write(head, &f->who);
    int err = vfs_write(f->file, 0, str_of(head, sizeof head));
    return err != 0 ? err : vfs_sync(f->file);
}

/* What the journal holds has to fit into segments as well, or it could never be released. */
static int check_space(struct journal_file *f)
{
    uint64_t free_bytes;
    if (vfs_free_bytes(f->set->vfs, &free_bytes) != 0)
        return 0; /* then we shall see */
    return free_bytes / 2 < f->size ? ERR_FULL : 0;
}

static void discard(struct journal_file *f)
{
    char name[JOURNAL_NAME_MAX];
    journal_name(f->name, name);
    vfs_close(f->file);
    f->file = NULL;
    vfs_remove(f->set->vfs, name); /* if it stays, the next server removes it */
}

static int make_file(struct journal_file *f)
{
    char name[JOURNAL_NAME_MAX];
    journal_name(f->name, name);
    int err = check_space(f);
    if (err == 0)
        err = vfs_open(f->set->vfs, name, VFS_CREATE, &f->file);
    if (err != 0)
        return err;
    err = fill(f);
    if (err == 0)
        err = write_head(f);
    if (err == 0 && JOURNAL_BROKEN != JOURNAL_FORGETS_NAMES)
        err = vfs_sync_dir(f->set->vfs, JOURNAL_DIR);
    if (err != 0)
        discard(f);
    return err;
}

static void make_run(struct job *j)
{
    struct journal_file *f = container_of(j, struct journal_file, job);
    f->err = make_file(f);
}

/* The stale batches behind the new head verify no more. */
static void renew_run(struct job *j)
{
    struct journal_file *f = container_of(j, struct journal_file, job);
    f->err = write_head(f);
    if (f->err != 0)
        discard(f);
}

static void discard_run(struct job *j)
{
    discard(container_of(j, struct journal_file, job));
}

/* ---- files that become ready and go again ---- */

static void file_ready(struct job *j)
{
    struct journal_file *f = container_of(j, struct journal_file, job);
    struct journal_files *s = f->set;
    s->err = f->err;
    if (f->err == 0) {
        f->used = JOURNAL_FILE_HEAD;
        f->last = 0;
        list_push(&s->spares, &f->link);
        timer_stop(&s->retry);
        return;
    }
    s->bytes -= f->size;
    s->n_spares--;
    sched_start(s->sched, &s->retry, RETRY_MS);
    free(f);
}

static void make_done(struct job *j)
{
    struct journal_files *s = container_of(j, struct journal_file, job)->set;
    s->creating = false;
    file_ready(j);
    end_job(s);
}

static void renew_done(struct job *j)
{
    struct journal_files *s = container_of(j, struct journal_file, job)->set;
    file_ready(j);
    end_job(s);
}

static void discard_done(struct job *j)
{
    struct journal_file *f = container_of(j, struct journal_file, job);
    struct journal_files *s = f->set;
    s->bytes -= f->size;
    free(f);
    end_job(s);
}

static struct journal_identity new_identity(struct journal_files *s)
{
    return (struct journal_identity){
        .id = s->next_id++, .salt = rand_u64(), .epoch = s->epoch, .first = s->first_number};
}

static void make(struct journal_files *s, uint64_t size)
{
    struct journal_file *f = mem_zalloc(sizeof *f);
    list_init(&f->link);
    f->set = s;
    f->size = size;
    f->who = new_identity(s);
    f->name = f->who.id;
    s->creating = true;
    s->bytes += size;
    s->n_spares++;
    begin_job(s, &f->job, make_run, make_done);
}

static void renew(struct journal_files *s, struct journal_file *f)
{
    f->who = new_identity(s);
    s->n_spares++;
    begin_job(s, &f->job, renew_run, renew_done);
}

/* ---- files from before ---- */

static int note_old(void *ctx, const char *name)
{
    struct journal_files *s = ctx;
    uint64_t n, size = 0;
    char path[JOURNAL_NAME_MAX];
    struct file *f;
    if (!journal_name_parse(name, &n))
        return 0;
    journal_name(n, path);
    int err = vfs_open(s->vfs, path, VFS_READ, &f);
    if (err != 0)
        return err;
    err = vfs_size(f, &size);
    vfs_close(f);
    s->old_bytes += size;
    buf_put(&s->old, str_of((const char *)&n, sizeof n));
    return err;
}

static int open_folder(struct journal_files *s)
{
    s->old.n = 0;
    s->old_bytes = 0;
    int err = vfs_make_dir(s->vfs, JOURNAL_DIR);
    if (err != 0 && err != ERR_EXISTS)
        return err;
    err = vfs_sync_dir(s->vfs, ""); /* whoever made it may have died before doing so */
    return err != 0 ? err : vfs_list(s->vfs, JOURNAL_DIR, note_old, s);
}

static void open_run(struct job *j)
{
    struct journal_files *s = container_of(j, struct journal_files, open_job);
    s->open_err = open_folder(s);
}

static void open_done(struct job *j)
{
    struct journal_files *s = container_of(j, struct journal_files, open_job);
    s->opening = false;
    s->opened = s->open_err == 0;
    s->err = s->open_err;
    if (s->opened)
        s->bytes += s->old_bytes;
    else
        sched_start(s->sched, &s->retry, RETRY_MS);
    end_job(s);
}

static void remove_run(struct job *j)
{
    struct journal_files *s = container_of(j, struct journal_files, remove_job);
    for (size_t at = 0; at < s->old.n; at += sizeof(uint64_t)) {
        char name[JOURNAL_NAME_MAX];
        uint64_t n;
        memcpy(&n, s->old.p + at, sizeof n);
        journal_name(n, name);
        vfs_remove(s->vfs, name);
    }
}

static void remove_done(struct job *j)
{
    struct journal_files *s = container_of(j, struct journal_files, remove_job);
    s->bytes -= s->old_bytes;
    buf_deinit(&s->old);
    end_job(s);
}

static void remove_old(struct journal_files *s)
{
    bool own = !list_empty(&s->spares) || !list_empty(&s->used);
    bool begun = s->remove_job.run != NULL;
    if (begun || s->old.n == 0 || !s->opened || !own || s->stopping ||
        s->released < s->first_number)
        return;
    begin_job(s, &s->remove_job, remove_run, remove_done);
}

/* ---- the set ---- */

static void prepare(struct journal_files *s)
{
    if (s->stopping || s->creating || s->opening || timer_running(&s->retry))
        return;
    if (!s->opened) {
        s->opening = true;
        begin_job(s, &s->open_job, open_run, open_done);
        return;
    }
    if (s->n_spares == 0) {
        make(s, s->file_bytes);
    } else if (s->wanted > 0) {
        make(s, s->wanted);
        s->wanted = 0;
    }
    remove_old(s);
}

static void try_again(struct timer *t)
{
    prepare(container_of(t, struct journal_files, retry));
}

void journal_files_init(struct journal_files *s, struct vfs *v, struct sched *sched,
                        struct lane *lane, uint64_t file_bytes, uint64_t next_id,
                        uint64_t first_number)
{
    *s = (struct journal_files){
        .vfs = v,
        .sched = sched,
        .lane = lane,
        .file_bytes = journal_span(file_bytes),
        .next_id = next_id,
        .epoch = next_id,
        .first_number = first_number,
    };
    list_init(&s->spares);
    list_init(&s->used);
    timer_init(&s->retry, try_again);
}

void journal_files_start(struct journal_files *s)
{
    prepare(s);
}

static struct journal_file *file_of(struct link *l)
{
    return list_item(l, struct journal_file, link);
}

static uint64_t left_in(const struct journal_files *s)
{
    if (list_empty(&s->used))
        return 0;
    const struct journal_file *f = file_of(s->used.prev);
    return f->size - f->used;
}

struct journal_probe journal_files_probe(struct journal_files *s)
{
    return (struct journal_probe){.set = s, .at = s->spares.next, .left = left_in(s)};
}

bool journal_probe_place(struct journal_probe *p, uint64_t span)
{
    while (p->left < span) {
        if (p->at == &p->set->spares)
            return false;
        p->left = file_of(p->at)->size - JOURNAL_FILE_HEAD;
        p->at = p->at->next;
    }
    p->left -= span;
    return true;
}

int journal_files_lack(struct journal_files *s, uint64_t span)
{
    uint64_t size = JOURNAL_FILE_HEAD + span;
    if (size > s->file_bytes && size > s->wanted)
        s->wanted = size;
    prepare(s);
    return s->err != 0 ? s->err : ERR_BUSY;
}

struct journal_file *journal_files_place(struct journal_files *s, uint64_t span, uint64_t number,
                                         uint64_t *offset)
{
    while (left_in(s) < span) {
        assert(!list_empty(&s->spares));
        struct journal_file *f = file_of(s->spares.next);
        list_remove(&f->link);
        s->n_spares--;
        if (f->size - f->used >= span)
            list_push(&s->used, &f->link);
        else
            renew(s, f); /* files are filled in the order of their ids: it needs a later one */
    }
    struct journal_file *f = file_of(s->used.prev);
    *offset = f->used;
    f->used += span;
    f->last = number;
    prepare(s);
    return f;
}

/* The file that is being filled is kept, unless it may be all there is on a full disk. */
static struct journal_file *dispensable(struct journal_files *s, uint64_t durable, bool quiet)
{
    if (s->stopping || list_empty(&s->used))
        return NULL;
    struct journal_file *f = file_of(s->used.next);
    bool filling = s->used.next == s->used.prev;
    if (f->held || f->last >= s->released || f->last > durable)
        return NULL;
    return !filling || (quiet && s->err != 0) ? f : NULL;
}

void journal_files_reclaim(struct journal_files *s, uint64_t durable, bool quiet)
{
    for (struct journal_file *f; (f = dispensable(s, durable, quiet)) != NULL;) {
        list_remove(&f->link);
        if (f->size == s->file_bytes && s->n_spares < SPARES_KEPT)
            renew(s, f);
        else
            begin_job(s, &f->job, discard_run, discard_done);
    }
    remove_old(s);
}

void journal_files_stop(struct journal_files *s)
{
    s->stopping = true;
    timer_stop(&s->retry);
}

static void close_all(struct link *files)
{
    list_each_safe (l, files) {
        struct journal_file *f = file_of(l);
        vfs_close(f->file);
        free(f);
    }
}

void journal_files_deinit(struct journal_files *s)
{
    assert(s->n_jobs == 0);
    timer_stop(&s->retry);
    close_all(&s->spares);
    close_all(&s->used);
    buf_deinit(&s->old);
}
