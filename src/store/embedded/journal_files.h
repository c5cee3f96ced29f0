// SPDX-License-Identifier: Apache-2.0
/* journal_files.h -- the files of an open journal: prepared ahead of need, filled one after the
 * other, and prepared again when what they hold is dispensable.
 *
 * Everything is called on the loop thread; the work is done on the preparer's lane. A place is
 * given only in a file that is ready, so that one who has a place cannot run out of space.
 *
 * The first file is a small one, for everybody waits for it; those that follow grow up to the
 * ordinary size. A new file is zeroed in small steps, as fast as the one before it fills: batches
 * are synced on the same disk, and would have to wait behind one large burst.
 *
 * Files that were there before are never written to. They are removed when everything in them has
 * been released and a file of our own is ready, so that the highest id is always on the disk and
 * none is given twice. */
#ifndef STORE_EMBEDDED_JOURNAL_FILES_H
#define STORE_EMBEDDED_JOURNAL_FILES_H

#include "base/buf.h"
#include "base/lane.h"
#include "base/sched.h"
#include "store/embedded/journal_format.h"

struct file;
struct vfs;

struct journal_file {
    struct link link;
    struct job job;
    struct journal_files *set;
    struct journal_identity who;
    uint64_t name, size;
    struct file *file;
    uint64_t made;  /* bytes that are there, the head's place included, while it is being made */
    uint64_t until; /* ... after the step under way */
    uint64_t used;  /* bytes given away, the head included */
    uint64_t last;  /* number of the last batch that was given a place; 0: none */
    bool held;      /* the writer's lane may be at it */
    int err;        /* of the job */
};

/* UNKNOWN --> OPENING --> FOUND: it is there, and the files from before are known. A failure leads
 * back to UNKNOWN; after a pause it is tried again. */
enum journal_folder {
    JOURNAL_FOLDER_UNKNOWN,
    JOURNAL_FOLDER_OPENING,
    JOURNAL_FOLDER_FOUND,
};

struct journal_files {
    struct vfs *vfs;
    struct sched *sched;
    struct lane *lane;
    uint64_t file_bytes; /* of an ordinary file */
    uint64_t next_bytes; /* of the next one that is made */
    uint64_t step_bytes; /* of one that is made, written and synced at a time */
    uint64_t next_id, epoch, first_number;
    struct link preparing;       /* not ready yet */
    struct link spares;          /* ready, in the order of their ids */
    struct link used;            /* the last one is being filled */
    unsigned n_spares;           /* ready or being prepared */
    struct journal_file *making; /* one of `preparing`, new; NULL: none */
    bool stepping;               /* a step of that is under way */
    unsigned n_jobs;
    enum journal_folder folder;
    bool stopping;
    bool awaited;      /* somebody found no place since a file has become ready */
    uint64_t wanted;   /* bytes of a larger file that somebody needs; 0: none */
    int err;           /* why the last file could not be prepared */
    uint64_t bytes;    /* of all files, old ones included */
    uint64_t released; /* batches below are dispensable */

    struct job open_job, remove_job;
    int open_err;
    struct buf old; /* names (uint64_t) of files from before, and their size */
    uint64_t old_bytes;
    struct timer retry;

    /* A file has become ready, could not be prepared, or the last job has ended. */
    void (*changed)(struct journal_files *s);
};

struct journal_files_setup {
    struct vfs *vfs;
    struct sched *sched;
    struct lane *lane;
    uint64_t file_bytes, first_bytes, step_bytes; /* see journal_config; none is 0 */
    uint64_t next_id;
    uint64_t first_number; /* of the first batch that will get a place */
    void (*changed)(struct journal_files *s);
};
void journal_files_init(struct journal_files *s, const struct journal_files_setup *setup);

/* Makes the folder, finds old files, prepares the first. changed() follows. Tries again for ever.
 */
void journal_files_start(struct journal_files *s);

/* A walk over the places that batches would get, one after the other. */
struct journal_probe {
    struct journal_files *set;
    struct link *at; /* the spare that would be taken next */
    uint64_t left;   /* in the file that would be filled */
};
struct journal_probe journal_files_probe(struct journal_files *s);
bool journal_probe_place(struct journal_probe *p, uint64_t span);

/* Asks for a file that can take span bytes; returns why there is none: ERR_BUSY, ERR_FULL, ERR_IO.
 */
int journal_files_lack(struct journal_files *s, uint64_t span);

/* Gives a batch its place; a probe has said that there is one. */
struct journal_file *journal_files_place(struct journal_files *s, uint64_t span, uint64_t number,
                                         uint64_t *offset);

/* Takes back the files that hold only batches which are released and written. quiet: no batch
 * counts on a place that it has not got yet. */
void journal_files_reclaim(struct journal_files *s, uint64_t durable, bool quiet);

/* No further jobs are begun but those under way go on: n_jobs tells. */
void journal_files_stop(struct journal_files *s);

/* Closes all files; no job is under way. */
void journal_files_deinit(struct journal_files *s);

#endif
