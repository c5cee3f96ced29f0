// SPDX-License-Identifier: Apache-2.0
/* crash_store.h -- the embedded store, compiled into a test once more with an ear at the points
 * where it decides, and with faults that can be switched on.
 *
 * What the test is told: which operation has changed the catalog, in the order of the changes, and
 * when one was judged. What it decides: whether the index may commit (LMDB goes past the simulated
 * disk, and must not go on when the power is off). */
#ifndef FAULT_CRASH_STORE_H
#define FAULT_CRASH_STORE_H

#include "base/err.h"
#include "store/catalog/catalog.h"
#include "store/embedded/index.h"
#include "store/embedded/journal.h"
#include "store/embedded/note.h"
#include "store/embedded/record.h"
#include "store/embedded/vfs.h"

enum crash_fault {
    CRASH_SOUND,
    CRASH_ANSWERS_EARLY, /* before the journal said durable */
    CRASH_SHOWS_EARLY,   /* to readers */
    CRASH_CLAIM_APART,   /* the producer's state in a record of its own */
    CRASH_EVENTS_APART,  /* an append of several events as two records */
    CRASH_FORGETS_REMOVES,
    CRASH_NEVER_SYNCS,
    CRASH_FORGETS_SEGMENTS, /* are not synced before the index tells of them */
    CRASH_SYNCS_AGAIN,      /* after an error */
    CRASH_MERGES_UNSYNCED,  /* segments are not, in which blocks were merged */
    CRASH_MERGES_AWAY,      /* the rows of the old blocks go, and there is none of the new one */
    CRASH_MERGES_ROWS,      /* ... or they stay */
    CRASH_MERGES_UNNOTED,   /* ... or the notes say that they do */
    CRASH_MERGES_ORDINAL,   /* one too many */
    CRASH_MERGES_TIMES,     /* the new block is as old as can be */
};
static enum crash_fault crash_fault;

/* The test's. */
static void note_judged(const struct store_write *w);
static void note_looked_up(struct str name); /* of a remove: the operation's own text */
static void note_checked(const struct doc_put *docs);
static void note_written(struct store_write *w);
static void note_removed(void); /* the one looked up last */
static void note_put(const struct doc_put *docs);
static int may_commit(void);
static void note_committed(void);

/* ---- deciding ---- */

static int heard_judge(struct catalog *c, struct store_write *w, struct judgement *j,
                       int (*find_fork_position)(void *ctx, struct judgement *j), void *ctx)
{
    note_judged(w);
    return catalog_judge(c, w, j, find_fork_position, ctx);
}

static struct stream *heard_apply(struct catalog *c, struct store_write *w,
                                  const struct judgement *j)
{
    struct stream *s = catalog_apply(c, w, j);
    if (crash_fault == CRASH_SHOWS_EARLY)
        catalog_settle(c, s, &w->info);
    note_written(w);
    return s;
}

static int heard_find(struct catalog *c, struct str name, struct stream **out)
{
    note_looked_up(name);
    return catalog_find(c, name, out);
}

static void heard_remove(struct catalog *c, struct stream *s)
{
    note_removed();
    catalog_remove(c, s);
}

static int heard_check_docs(struct catalog *c, const struct doc_put *docs, size_t n)
{
    note_checked(docs);
    return catalog_check_docs(c, docs, n);
}

static void heard_put_docs(struct catalog *c, const struct doc_put *docs, size_t n)
{
    note_put(docs);
    catalog_put_docs(c, docs, n);
}

/* ---- faults ---- */

static struct buf crash_second; /* a record that goes into a batch of its own */

static uint64_t faulty_durable(const struct journal *j)
{
    return crash_fault == CRASH_ANSWERS_EARLY ? UINT64_MAX : journal_durable(j);
}

static void faulty_put_write(struct buf *out, const struct stream *s, const struct store_write *w,
                             const struct judgement *j, int64_t now_ms)
{
    struct store_write first = *w, second = {0};
    uint32_t ends[64];
    if (crash_fault == CRASH_CLAIM_APART && w->claim.id.n > 0) {
        first.claim = (struct producer_claim){0};
        second.claim = w->claim;
    } else if (crash_fault == CRASH_EVENTS_APART && w->ends != NULL && w->n_events > 1 &&
               w->n_events <= 64) {
        first.n_events = 1;
        first.data.n = w->ends[0];
        second.data = str_skip(w->data, w->ends[0]);
        second.ends = ends;
        second.n_events = w->n_events - 1;
        for (uint32_t i = 1; i < w->n_events; i++)
            ends[i - 1] = w->ends[i] - w->ends[0];
    }
    record_put_write(out, s, &first, j, now_ms);
    if (second.claim.id.n > 0 || second.data.n > 0)
        record_put_write(&crash_second, s, &second, j, now_ms);
}

static uint64_t faulty_put(struct journal *j, struct str record, struct journal_waiter *waiter)
{
    uint64_t batch = journal_put(j, record, waiter);
    if (crash_second.n > 0) {
        journal_cut(j);
        if (journal_room(j, crash_second.n) == 0)
            batch = journal_put(j, buf_str(&crash_second), NULL);
        crash_second.n = 0;
    }
    return batch;
}

static void faulty_put_remove(struct buf *out, uint64_t life)
{
    record_put_remove(out, crash_fault == CRASH_FORGETS_REMOVES ? UINT64_MAX : life);
}

static bool crash_merged; /* the segment that is being written has a merged block */

static struct extent *faulty_join(struct extent *const *parts, size_t n)
{
    struct extent *c = extent_join(parts, n);
    crash_merged = true;
    if (crash_fault == CRASH_MERGES_ORDINAL)
        c->ordinal++;
    if (crash_fault == CRASH_MERGES_TIMES)
        c->oldest_ms = c->newest_ms = 0;
    return c;
}

static int faulty_apply(struct index_write *w, const struct note *n)
{
    if (n->type == NOTE_MERGE && crash_fault == CRASH_MERGES_ROWS)
        return index_put_block(w, n->life, &n->block);
    int err = note_apply(w, n);
    if (err == 0 && n->type == NOTE_MERGE && crash_fault == CRASH_MERGES_AWAY)
        err = index_trim(w, n->life, n->block.end);
    return err;
}

static void faulty_pack(struct buf *out, const struct note *n)
{
    struct note other = *n;
    if (n->type == NOTE_MERGE && crash_fault == CRASH_MERGES_UNNOTED)
        other.type = NOTE_BLOCK;
    note_pack(out, &other);
}

static int heard_commit(struct index_write *w)
{
    int err = may_commit();
    if (err != 0) {
        index_abort(w);
        return err;
    }
    err = index_commit(w);
    note_committed();
    return err;
}

#define catalog_judge      heard_judge
#define catalog_apply      heard_apply
#define catalog_find       heard_find
#define catalog_remove     heard_remove
#define catalog_check_docs heard_check_docs
#define catalog_put_docs   heard_put_docs
#define journal_durable    faulty_durable
#define journal_put        faulty_put
#define record_put_write   faulty_put_write
#define record_put_remove  faulty_put_remove
#define index_commit       heard_commit
#define extent_join        faulty_join
#define note_apply         faulty_apply
#define note_pack          faulty_pack
#include "store/embedded/embedded.c"
#include "store/embedded/embedded_call.c"
#include "store/embedded/embedded_find.c"
#include "store/embedded/embedded_large.c"
#include "store/embedded/embedded_write.c"
#include "store/embedded/merge.c"
#include "store/embedded/rest.c"
#undef catalog_judge
#undef catalog_apply
#undef catalog_find
#undef catalog_remove
#undef catalog_check_docs
#undef catalog_put_docs
#undef journal_durable
#undef journal_put
#undef record_put_write
#undef record_put_remove
#undef index_commit
#undef extent_join
#undef note_apply
#undef note_pack

/* ---- a disk that is not synced as it should be ---- */

static int (*sound_open)(struct vfs *v, const char *name, enum vfs_open how, struct file **out);
static int (*sound_sync)(struct file *f);
static const void *crash_segment; /* the file of a segment that is being written */

static int faulty_open(struct vfs *v, const char *name, enum vfs_open how, struct file **out)
{
    int err = sound_open(v, name, how, out);
    if (err == 0 && how == VFS_CREATE)
        crash_merged = false;
    if (err == 0 && how == VFS_CREATE)
        crash_segment = str_starts(str_of_cstr(name), STR("segments/")) ? *out : NULL;
    return err;
}

static int faulty_sync(struct file *f)
{
    if (crash_fault == CRASH_NEVER_SYNCS ||
        (crash_fault == CRASH_FORGETS_SEGMENTS && f == crash_segment) ||
        (crash_fault == CRASH_MERGES_UNSYNCED && f == crash_segment && crash_merged))
        return 0;
    int err = sound_sync(f);
    return err != 0 && crash_fault == CRASH_SYNCS_AGAIN ? sound_sync(f) : err;
}

static struct vfs *crash_disk(struct vfs *v)
{
    static struct vfs_ops faulty;
    if (crash_fault == CRASH_SOUND)
        return v;
    if (v->ops != &faulty) {
        faulty = *v->ops;
        sound_open = faulty.open;
        sound_sync = faulty.sync;
        faulty.open = faulty_open;
        faulty.sync = faulty_sync;
        v->ops = &faulty;
    }
    return v;
}

#endif
