// SPDX-License-Identifier: Apache-2.0
/* journal_disk.h -- a disk that does not do what the journal asks of it, so that a sound journal
 * on it behaves like a broken one, and a test can prove that it would notice.
 *
 * It stands in front of a simulated disk. The file that got the last batch is the only one whose
 * syncs are tampered with: what is done to prepare a file goes well. */
#ifndef FAULT_JOURNAL_DISK_H
#define FAULT_JOURNAL_DISK_H

#include "base/buf.h"
#include "store/embedded/journal_format.h"
#include "store/embedded/vfs.h"

#include <string.h>

enum journal_fault {
    JOURNAL_SOUND,
    JOURNAL_ACKS_BEFORE_SYNC, /* what was written before the last batch is synced, that is not */
    JOURNAL_NEVER_SYNCS,
    JOURNAL_RETRIES_SYNC,     /* after an error */
    JOURNAL_FORGETS_IDENTITY, /* a batch from an earlier life of a file reads as the next one */
    JOURNAL_FORGETS_NAMES,    /* a new file's name is not synced */
};

#define DISK_LIVES 512

static struct {
    enum journal_fault fault;
    struct vfs_ops sound, faulty;
    struct file *batch; /* got the last batch */

    /* Every life that a file of this disk has begun. */
    struct journal_identity lives[DISK_LIVES];
    unsigned n_lives;
} disk;

static bool disk_is_batch(struct str bytes)
{
    return str_starts(bytes, STR("tmb\n"));
}

static int disk_open(struct vfs *v, const char *name, enum vfs_open how, struct file **out)
{
    int err = disk.sound.open(v, name, how, out);
    if (err == 0 && *out == disk.batch)
        disk.batch = NULL; /* another, in the same place */
    return err;
}

static int disk_write(struct file *f, uint64_t offset, const struct iovec *pieces, int n)
{
    struct str bytes = str_of(pieces[0].iov_base, pieces[0].iov_len);
    bool is_batch = disk_is_batch(bytes);
    if (is_batch && disk.fault == JOURNAL_ACKS_BEFORE_SYNC) {
        int err = disk.sound.sync(f);
        if (err != 0)
            return err;
    }
    if (is_batch)
        disk.batch = f;
    else if (disk.batch == f)
        disk.batch = NULL;
    struct journal_identity *life = &disk.lives[disk.n_lives % DISK_LIVES];
    if (offset == 0 && bytes.n >= JOURNAL_FILE_HEAD && journal_head_read(bytes.p, life) == 0)
        disk.n_lives++;
    return disk.sound.write(f, offset, pieces, n);
}

static int disk_sync(struct file *f)
{
    bool idle = disk.fault == JOURNAL_NEVER_SYNCS || disk.fault == JOURNAL_ACKS_BEFORE_SYNC;
    if (f == disk.batch && idle)
        return 0;
    int err = disk.sound.sync(f);
    bool again = err != 0 && f == disk.batch && disk.fault == JOURNAL_RETRIES_SYNC;
    return again ? disk.sound.sync(f) : err;
}

static int disk_sync_dir(struct vfs *v, const char *name)
{
    bool forgets = disk.fault == JOURNAL_FORGETS_NAMES && strcmp(name, JOURNAL_DIR) == 0;
    return forgets ? 0 : disk.sound.sync_dir(v, name);
}

/* ---- batches of an earlier life ---- */

/* Whether a whole batch of that life of the file stands there. */
static bool disk_has_batch(struct str rest, const struct journal_identity *who,
                           struct journal_batch_head *h)
{
    return rest.n >= JOURNAL_BATCH_HEAD && journal_batch_head_read(rest.p, who, h) &&
           h->length <= rest.n - JOURNAL_BATCH_HEAD &&
           journal_records_verify(str_of(rest.p + JOURNAL_BATCH_HEAD, (size_t)h->length), who, h);
}

static bool disk_has_stale_batch(struct str rest, struct journal_batch_head *h)
{
    unsigned n = disk.n_lives < DISK_LIVES ? disk.n_lives : DISK_LIVES;
    for (unsigned i = 0; i < n; i++)
        if (disk_has_batch(rest, &disk.lives[i], h))
            return true;
    return false;
}

/* Makes each stale batch the one that is due behind those before it. */
static void disk_renew_batches(struct buf *file)
{
    struct journal_identity who;
    struct journal_batch_head h;
    if (file->n < JOURNAL_FILE_HEAD || journal_head_read(file->p, &who) != 0)
        return;
    uint64_t due = 0;
    for (size_t at = JOURNAL_FILE_HEAD; at < file->n;) {
        struct str rest = str_skip(buf_str(file), at);
        size_t span = JOURNAL_SECTOR;
        if (disk_has_batch(rest, &who, &h)) {
            due = h.number + 1;
            span = journal_span(JOURNAL_BATCH_HEAD + h.length);
        } else if (due != 0 && disk_is_batch(rest) && disk_has_stale_batch(rest, &h)) {
            h.number = due++;
            h.synced = 0;
            journal_batch_write(file->p + at, &who, &h);
            span = journal_span(JOURNAL_BATCH_HEAD + h.length);
        }
        at += span;
    }
}

static int disk_read(struct file *f, uint64_t offset, void *into, size_t n, size_t *got)
{
    if (disk.fault != JOURNAL_FORGETS_IDENTITY)
        return disk.sound.read(f, offset, into, n, got);
    struct buf file = {0};
    uint64_t size = 0;
    int err = disk.sound.size(f, &size);
    if (err == 0)
        err = disk.sound.read(f, 0, buf_reserve(&file, (size_t)size + 1), (size_t)size, &file.n);
    if (err == 0) {
        disk_renew_batches(&file);
        struct str rest = str_skip(buf_str(&file), offset < file.n ? (size_t)offset : file.n);
        *got = rest.n < n ? rest.n : n;
        memcpy(into, rest.p, *got);
    }
    buf_deinit(&file);
    return err;
}

/* The same disk, with what disk.fault says wrong with it. */
static struct vfs *journal_disk(struct vfs *v)
{
    if (disk.fault == JOURNAL_SOUND || v->ops == &disk.faulty)
        return v;
    disk.n_lives = 0;
    disk.batch = NULL;
    disk.sound = disk.faulty = *v->ops;
    disk.faulty.open = disk_open;
    disk.faulty.read = disk_read;
    disk.faulty.write = disk_write;
    disk.faulty.sync = disk_sync;
    disk.faulty.sync_dir = disk_sync_dir;
    v->ops = &disk.faulty;
    return v;
}

#endif
