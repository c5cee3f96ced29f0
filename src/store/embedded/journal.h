// SPDX-License-Identifier: Apache-2.0
/* journal.h -- makes records durable, many with one sync.
 *
 * Records that are put go into the open batch. One batch at a time is written and synced on the
 * journal's lane; meanwhile the next one fills. When the sync has returned, the batch is durable,
 * and everybody who waited for it is told, in order. Loop thread only, but for the lane.
 *
 * An error of write or sync ends the journal: nothing more is acknowledged, batches under way
 * and later ones fail with ERR_IO, and no write is tried again. Running out of space is noticed
 * earlier, when the next file cannot be prepared: journal_room says ERR_FULL before anything is
 * put, and 0 again once a file could be prepared.
 *
 * Files `journal/NNNNNNNN.j` are made, zeroed and synced ahead of need by a second lane, and used
 * again when a checkpoint has made their batches dispensable. The first one is small, so that it is
 * ready soon after the start. journal.c draws the format. */
#ifndef STORE_EMBEDDED_JOURNAL_H
#define STORE_EMBEDDED_JOURNAL_H

#include "base/lane.h"
#include "base/list.h"
#include "base/str.h"
#include "store/embedded/journal_format.h"

#include <stdbool.h>
#include <stdint.h>

struct block;
struct journal;
struct sched;
struct vfs;

enum journal_sync {
    JOURNAL_SYNC_ALWAYS,   /* durable means synced */
    JOURNAL_SYNC_INTERVAL, /* written; synced every interval: a power cut may take the last ones */
    JOURNAL_SYNC_NEVER,    /* written; the system syncs when it likes */
};

struct journal_config {
    uint64_t file_bytes; /* of one file, but for the first ones: at least JOURNAL_FILE_MIN */
    enum journal_sync sync;
    uint64_t sync_interval_ms;
    uint64_t first_bytes; /* of the first file, which is waited for; 0: JOURNAL_FIRST_BYTES */
    uint64_t step_bytes;  /* of a new file, written and synced at a time: a batch that is synced
                             meanwhile waits for so much. 0: JOURNAL_STEP_BYTES */
};
#define JOURNAL_FILE_MIN    (16 * 1024)
#define JOURNAL_FILE_BYTES  (64u * 1024 * 1024)
#define JOURNAL_FIRST_BYTES (4u * 1024 * 1024) /* or file_bytes, if that is less */
#define JOURNAL_STEP_BYTES  (1024u * 1024)

/* One is written, one waits because it was cut off or is full, one is open. */
#define JOURNAL_BATCHES     3

/* A record is 1 byte to JOURNAL_RECORD_MAX; a batch holds at least one, and one that is larger than
 * a file gets a file of its own size (journal_room says ERR_BUSY until that is there). */

/* ---- recovery: blocking, before the journal is opened ---- */

struct journal_scan {
    uint64_t from;             /* in: the first batch wanted; those before are in a checkpoint, and
                                  it does not matter what became of them. 0: from the first found */
    uint64_t next;             /* out: the sequence number for the first new batch */
    uint64_t next_file;        /* out: the lowest file id never used */
    uint64_t batches, records; /* out: what was replayed */
    bool torn;                 /* out: left out what an unfinished batch, or several, left behind */
    char damage[256]; /* out, with ERR_CORRUPT or ERR_IO: which file and place, for people */
    void *ctx;
    /* Each record of each batch from `from` on, in order. Non-zero stops the scan with that error.
     */
    int (*record)(void *ctx, uint64_t batch, struct str bytes);
};

/* Reads every file. A batch that does not verify is the torn tail if no valid later batch, in any
 * file, tells that it had been durable; otherwise it is corruption: ERR_CORRUPT, with the records
 * before it replayed. Never writes. */
int journal_scan(struct vfs *v, struct journal_scan *scan);

/* ---- the open journal ---- */

/* Never writes to a file that was there before, but removes those files once everything below
 * `next` is released. next and next_file come from the scan.
 *
 * What was replayed may be in the page cache only, if it was a process and not the machine that
 * died. So it has to rest elsewhere before anything is put: a later power cut could otherwise take
 * it and leave what came after it, which would look like damage. */
struct journal *journal_new(struct vfs *v, struct sched *sched, struct lane *writer,
                            struct lane *preparer, const struct journal_config *config,
                            uint64_t next, uint64_t next_file);

/* Prepares the first file; done() tells whether it can be written. If not, that is tried again
 * until it works, and journal_room tells meanwhile. */
void journal_start(struct journal *j, void (*done)(void *ctx, int err), void *ctx);

/* May a record of n bytes be put? 0: there is a place for it in a file that is ready, so it cannot
 * run out of space any more. ERR_FULL (no file can be prepared), ERR_BUSY (a file is being
 * prepared, or the open batch is full and those before it are not written yet), ERR_IO (the journal
 * has ended, or a file cannot be prepared for another reason), ERR_TOO_LARGE. Who asks for more
 * than he needs leaves the rest to others: space for deletes is kept that way. */
int journal_room(struct journal *j, size_t n);

/* Called when the batch is durable (0) or lost. */
struct journal_waiter {
    struct link link;
    void (*done)(struct journal_waiter *w, int err);
};

/* Puts one record into the open batch; returns the batch's number. journal_room has said 0. The
 * bytes are copied. waiter may be NULL. */
uint64_t journal_put(struct journal *j, struct str record, struct journal_waiter *waiter);

/* The same of a record that has the bytes of a block in it, at this place: those are not copied but
 * the block is kept until they are written. For large ones: the batch takes no other behind it. */
uint64_t journal_put_around(struct journal *j, struct str record, size_t at, struct block *inlay);

/* Waits for a batch that was returned by journal_put; one that is durable already is told soon. */
void journal_wait(struct journal *j, uint64_t batch, struct journal_waiter *waiter);

/* Every batch up to this one is durable. */
uint64_t journal_durable(const struct journal *j);

/* Ends the open batch, unless it is empty; returns the number that the next one will have. All
 * records put so far are in batches below it. */
uint64_t journal_cut(struct journal *j);

/* Batches below `batch` rest elsewhere: their files may be used again or removed. */
void journal_release(struct journal *j, uint64_t batch);

/* Bytes that batches take, as far as they are known: of those since the last cut. */
uint64_t journal_uncut(const struct journal *j);

/* The same of those that have been put here and not released (as of the last cut that has been),
 * and of all files, those from before included. */
uint64_t journal_bytes(const struct journal *j);
uint64_t journal_file_bytes(const struct journal *j);

/* 0, or why nothing is acknowledged any more. */
int journal_error(const struct journal *j);

/* Writes and syncs (but for SYNC_NEVER) what is open, then done(), on the schedule; nothing may be
 * put any more. journal_error tells how it went. */
void journal_stop(struct journal *j, void (*done)(void *ctx), void *ctx);

/* After stop's done(), also from within it, or if it was never started. NULL is allowed. */
void journal_free(struct journal *j);

#endif
