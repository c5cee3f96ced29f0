// SPDX-License-Identifier: Apache-2.0
/* log.h -- a file of JSON objects, one a line, that several programs append to (JSONL).
 *
 * The file is the truth and belongs to nobody: other programs append to it at the same time, and
 * may truncate or replace it. So it is opened anew for each operation, and nothing of it is kept.
 * A position is a number of bytes from its start; a *cursor* is one that is 0 or lies directly
 * behind a newline. What stands behind the last newline is not there yet: somebody may be writing
 * it, or has died doing so.
 *
 * All work on files is done in a lane. Each operation completes exactly once, through its done(),
 * from the schedule; the caller embeds it and keeps it, and all it points to, until then. */
#ifndef FEATURE_LOGS_LOG_H
#define FEATURE_LOGS_LOG_H

#include "base/block.h"
#include "base/lane.h"
#include "base/str.h"
#include "feature/logs/log_id.h"

#define LOG_LINE_MAX (4 * 1024 * 1024) /* a longer one is passed over, as one that is no JSON */
#define LOG_STEP     (256 * 1024)      /* bytes of a read, unless it says otherwise */

struct log {
    struct lane *lane;
    const char *path;
};

/* Whole lines from a cursor on. A file that is not there is empty.
 * Errors: OFFSET (not behind a newline), GAP (ahead of the file's end, or `id` is of another file,
 * or was of this one before it was changed: with an id, what is not behind a newline is a GAP too;
 * size and id are set), IO. */
struct log_read {
    struct log *log;
    uint64_t since;
    uint32_t max; /* bytes, unless a line is longer; 0: LOG_STEP */
    bool has_id;
    struct log_id id; /* in: the file that `since` was given for. out: the file as it is now */
    /* out */
    struct block *bytes; /* lines with their newlines; the caller's reference. NULL: none */
    uint64_t next;       /* the cursor behind them, and behind a line that was passed over */
    uint64_t size;       /* of the file */
    void (*done)(struct log_read *r, int err);
    struct job job; /* private, as what follows */
    int err;
    uint64_t scan; /* where the end of a line that is too long is looked for; 0: of none */
    struct log_id scanned;
};
void log_read(struct log_read *r);

/* Appends lines, each with its newline and none above LOG_LINE_MAX, in one piece: what others
 * append at the same time stands before or behind it. A line that somebody left unfinished is
 * closed off first; if that comes at the very moment of writing and spoils the first line, that one
 * is appended once more, behind the others. The file and its folders are made if need be (0600,
 * 0700). 0: it is on the disk. Errors: FULL, IO, BUSY (somebody held the file's lock all the time);
 * then the lines have been taken back, unless somebody has appended behind them meanwhile. With a
 * key also EXISTS (it was used for other lines) and CORRUPT (what should be its file is none). */
struct log_append {
    struct log *log;
    struct str lines;
    struct str key; /* empty: none. Lines under one are appended once: log_keys.h */
    uint64_t key_lifetime_ms;
    /* out */
    uint64_t start, next; /* cursors; the lines are between them */
    struct log_id id;
    bool repeated;    /* they had been appended before; the cursors and the id are of then */
    bool key_dropped; /* another key was forgotten before its time, to make room */
    void (*done)(struct log_append *a, int err);
    struct job job; /* private, as what follows */
    int err;
    unsigned tries; /* to get the lock */
};
void log_append(struct log_append *a);

/* The same at once, on the calling thread: for programs without a loop. */
int log_append_now(const char *path, struct str lines, uint64_t *start);

/* ---- lines ---- */

/* Cuts the first line off *rest, without its newline and surrounding white space (a byte order mark
 * is that, too). False: *rest has no newline. */
bool log_line(struct str *rest, struct str *line);

#endif
