// SPDX-License-Identifier: Apache-2.0
#include "store/embedded/journal_files.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/rand.h"
#include "store/embedded/vfs.h"

#include <stdlib.h>

#define SPARES_KEPT   2   /* files taken back are prepared again up to this; the rest is removed */
#define RETRY_MS      500 /* until another attempt after a file could not be prepared */
#define GROWTH        4   /* a file has so many times the size of the one that was made before it */
#define ZEROS_BYTES   (64 * 1024)
#define ZEROS_AT_ONCE 16
#define HURRIED_STEPS 8 /* taken at once if there is no place left and all wait */

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

static int write_head(struct journal_file *f)
{
    char head[JOURNAL_FILE_HEAD];
    journal_head_write(head, &f->who);
    int err = vfs_write(f->file, 0, str_of(head, sizeof head));
    return err != 0 ? err : vfs_sync(f->file);
}

/* What the journal holds has to fit into segments as well, or it could never be released. A small
 * file needs as much as an ordinary one, or a disk would be filled up with small ones. */
static int check_space(struct journal_file *f)
{
    uint64_t free_bytes, size = f->size > f->set->file_bytes ? f->size : f->set->file_bytes;
    if (vfs_free_bytes(f->set->vfs, &free_bytes) != 0)
        return 0; /* then we shall see */
    return free_bytes / 2 < size ? ERR_FULL : 0;
}

static void discard(struct journal_file *f)
{
    char name[JOURNAL_NAME_MAX];
    journal_name(f->name, name);
    vfs_close(f->file);
    f->file = NULL;
    vfs_remove(f->set->vfs, name); /* if it stays, the next server removes it */
}

static int journal_files_create(struct journal_file *f)
{
    char name[JOURNAL_NAME_MAX];
    journal_name(f->name, name);
    int err = check_space(f);
    return err != 0 ? err : vfs_open(f->set->vfs, name, VFS_CREATE, &f->file);
}

/* It can be used from now on: all of it is on the disk, and its name. */
static int journal_files_finish(struct journal_file *f)
{
    int err = write_head(f);
    return err != 0 ? err : vfs_sync_dir(f->set->vfs, JOURNAL_DIR);
}

static int make_step(struct journal_file *f)
{
    int err = write_zeros(f->file, f->made, f->until);
    if (err != 0)
        return err;
    f->made = f->until;
    return f->made < f->size ? vfs_sync(f->file) : journal_files_finish(f);
}

static void journal_files_step_run(struct job *j)
{
    struct journal_file *f = container_of(j, struct journal_file, job);
    f->err = f->file == NULL ? journal_files_create(f) : 0;
    if (f->err != 0)
        return;
    f->err = make_step(f);
    if (f->err != 0)
        discard(f);
}

/* The stale batches behind the new head verify no more. */
static void journal_files_renew_run(struct job *j)
{
    struct journal_file *f = container_of(j, struct journal_file, job);
    f->err = write_head(f);
    if (f->err != 0)
        discard(f);
}

static void journal_files_discard_run(struct job *j)
{
    discard(container_of(j, struct journal_file, job));
}

/* ---- files that become ready and go again ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static struct journal_file *journal_file_of(struct link *l)
{
    return list_item(l, struct journal_file, link);
}

static void file_ready(struct job *j)
{
    struct journal_file *f = container_of(j, struct journal_file, job);
    struct journal_files *s = f->set;
    s->err = f->err;
    list_remove(&f->link);
    if (f->err == 0) {
        f->used = JOURNAL_FILE_HEAD;
        f->last = 0;
        list_push(&s->spares, &f->link);
        s->awaited = false;
        if (f->size >= s->wanted)
            s->wanted = 0;
        timer_stop(&s->retry);
        return;
    }
    s->bytes -= f->size;
    s->n_spares--;
    sched_start(s->sched, &s->retry, RETRY_MS);
    free(f);
}

static void journal_files_step_done(struct job *j)
{
    struct journal_file *f = container_of(j, struct journal_file, job);
    struct journal_files *s = f->set;
    s->stepping = false;
    if (f->err != 0 || f->made == f->size) {
        s->making = NULL;
        if (f->err == 0 && f->size >= s->next_bytes)
            s->next_bytes = least(s->next_bytes * GROWTH, s->file_bytes);
        file_ready(j);
    }
    end_job(s);
}

static void journal_files_renew_done(struct job *j)
{
    struct journal_files *s = container_of(j, struct journal_file, job)->set;
    file_ready(j);
    end_job(s);
}

static void journal_files_discard_done(struct job *j)
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

/* One that is larger than ordinary comes after one that is not: the disk may have no room for it,
 * and who needs less must not suffer from that. */
static uint64_t size_of_next(const struct journal_files *s)
{
    bool later = s->wanted > s->file_bytes && s->n_spares == 0;
    return s->wanted > s->next_bytes && !later ? s->wanted : s->next_bytes;
}

static void make(struct journal_files *s)
{
    struct journal_file *f = mem_zalloc(sizeof *f);
    f->set = s;
    f->size = size_of_next(s);
    f->made = JOURNAL_FILE_HEAD;
    f->who = new_identity(s);
    f->name = f->who.id;
    list_push(&s->preparing, &f->link);
    s->making = f;
    if (f->size >= s->wanted)
        s->wanted = 0;
    s->bytes += f->size;
    s->n_spares++;
}

/* How much of the new file should be there by now: all of it when three quarters of the one that is
 * being filled are used, and before that in proportion. */
static uint64_t due(const struct journal_files *s)
{
    if (s->awaited || list_empty(&s->used))
        return s->making->size;
    const struct journal_file *filling = journal_file_of(s->used.prev);
    uint64_t by = filling->size / 4 * 3;
    return filling->used < by ? s->making->size * filling->used / by : s->making->size;
}

static void journal_files_step(struct journal_files *s)
{
    struct journal_file *f = s->making;
    if (f == NULL || s->stepping || f->made >= due(s))
        return;
    bool hurry = s->awaited || list_empty(&s->used);
    f->until = least(f->made + (hurry ? HURRIED_STEPS : 1) * s->step_bytes, f->size);
    /* Files are filled in the order of their ids, and others may be renewed between two steps. */
    if (f->until == f->size && f->who.id + 1 != s->next_id)
        f->who = new_identity(s);
    s->stepping = true;
    begin_job(s, &f->job, journal_files_step_run, journal_files_step_done);
}

static void renew(struct journal_files *s, struct journal_file *f)
{
    f->who = new_identity(s);
    list_push(&s->preparing, &f->link);
    s->n_spares++;
    begin_job(s, &f->job, journal_files_renew_run, journal_files_renew_done);
}

/* ---- files from before ---- */

static int journal_files_note_old(void *ctx, const char *name)
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
    return err != 0 ? err : vfs_list(s->vfs, JOURNAL_DIR, journal_files_note_old, s);
}

static void journal_files_open_run(struct job *j)
{
    struct journal_files *s = container_of(j, struct journal_files, open_job);
    s->open_err = open_folder(s);
}

static void journal_files_open_done(struct job *j)
{
    struct journal_files *s = container_of(j, struct journal_files, open_job);
    s->err = s->open_err;
    if (s->open_err == 0) {
        s->folder = JOURNAL_FOLDER_FOUND;
        s->bytes += s->old_bytes;
    } else {
        s->folder = JOURNAL_FOLDER_UNKNOWN;
        sched_start(s->sched, &s->retry, RETRY_MS);
    }
    end_job(s);
}

static void journal_files_remove_run(struct job *j)
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

static void journal_files_remove_done(struct job *j)
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
    if (begun || s->folder != JOURNAL_FOLDER_FOUND || s->old.n == 0 || !own || s->stopping ||
        s->released < s->first_number)
        return;
    begin_job(s, &s->remove_job, journal_files_remove_run, journal_files_remove_done);
}

/* ---- the set ---- */

static void prepare(struct journal_files *s)
{
    bool waits = s->folder == JOURNAL_FOLDER_OPENING || timer_running(&s->retry);
    if (s->stopping)
        return;
    if (!waits && s->folder == JOURNAL_FOLDER_UNKNOWN) {
        s->folder = JOURNAL_FOLDER_OPENING;
        begin_job(s, &s->open_job, journal_files_open_run, journal_files_open_done);
        return;
    }
    if (!waits && s->making == NULL && (s->n_spares == 0 || s->wanted > 0))
        make(s);
    journal_files_step(s);
    remove_old(s);
}

static void journal_files_try_again(struct timer *t)
{
    prepare(container_of(t, struct journal_files, retry));
}

void journal_files_init(struct journal_files *s, const struct journal_files_setup *setup)
{
    *s = (struct journal_files){
        .vfs = setup->vfs,
        .sched = setup->sched,
        .lane = setup->lane,
        .file_bytes = journal_span(setup->file_bytes),
        .next_bytes = journal_span(least(setup->first_bytes, setup->file_bytes)),
        .step_bytes = setup->step_bytes,
        .next_id = setup->next_id,
        .epoch = setup->next_id,
        .first_number = setup->first_number,
        .changed = setup->changed,
    };
    list_init(&s->preparing);
    list_init(&s->spares);
    list_init(&s->used);
    timer_init(&s->retry, journal_files_try_again);
}

void journal_files_start(struct journal_files *s)
{
    prepare(s);
}

static uint64_t left_in(const struct journal_files *s)
{
    if (list_empty(&s->used))
        return 0;
    const struct journal_file *f = journal_file_of(s->used.prev);
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
        p->left = journal_file_of(p->at)->size - JOURNAL_FILE_HEAD;
        p->at = p->at->next;
    }
    p->left -= span;
    return true;
}

/* The largest that will be ready without anybody's asking for it. */
static uint64_t coming(struct journal_files *s)
{
    uint64_t size = 0;
    list_each (l, &s->preparing)
        if (journal_file_of(l)->size > size)
            size = journal_file_of(l)->size;
    return size;
}

int journal_files_lack(struct journal_files *s, uint64_t span)
{
    uint64_t size = JOURNAL_FILE_HEAD + span;
    if (size > coming(s) && size > s->wanted)
        s->wanted = size;
    s->awaited = true;
    prepare(s);
    return s->err != 0 ? s->err : ERR_BUSY;
}

struct journal_file *journal_files_place(struct journal_files *s, uint64_t span, uint64_t number,
                                         uint64_t *offset)
{
    while (left_in(s) < span) {
        must(!list_empty(&s->spares));
        struct journal_file *f = journal_file_of(s->spares.next);
        list_remove(&f->link);
        s->n_spares--;
        if (f->size - f->used >= span)
            list_push(&s->used, &f->link);
        else
            renew(s, f); /* files are filled in the order of their ids: it needs a later one */
    }
    struct journal_file *f = journal_file_of(s->used.prev);
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
    struct journal_file *f = journal_file_of(s->used.next);
    bool filling = s->used.next == s->used.prev;
    if (f->held || f->last >= s->released || f->last > durable)
        return NULL;
    return !filling || (quiet && s->err != 0) ? f : NULL;
}

/* Others than ordinary ones are not kept, unless a small one is all that can be had. */
static bool is_worth_keeping(const struct journal_files *s, const struct journal_file *f)
{
    bool fits = f->size == s->file_bytes || (f->size < s->file_bytes && s->err != 0);
    return fits && s->n_spares < SPARES_KEPT;
}

void journal_files_reclaim(struct journal_files *s, uint64_t durable, bool quiet)
{
    for (struct journal_file *f; (f = dispensable(s, durable, quiet)) != NULL;) {
        list_remove(&f->link);
        if (is_worth_keeping(s, f))
            renew(s, f);
        else
            begin_job(s, &f->job, journal_files_discard_run, journal_files_discard_done);
    }
    remove_old(s);
}

void journal_files_stop(struct journal_files *s)
{
    s->stopping = true;
    timer_stop(&s->retry);
}

static void journal_files_close_all(struct link *files)
{
    list_each_safe (l, files) {
        struct journal_file *f = journal_file_of(l);
        vfs_close(f->file);
        free(f);
    }
}

void journal_files_deinit(struct journal_files *s)
{
    must(s->n_jobs == 0);
    timer_stop(&s->retry);
    journal_files_close_all(&s->preparing); /* half made: the next server removes it */
    journal_files_close_all(&s->spares);
    journal_files_close_all(&s->used);
    buf_deinit(&s->old);
}
