// SPDX-License-Identifier: Apache-2.0
/* doctor_core.h -- what the parts of the doctor share: one look at everything.
 *
 * doctor.c looks and repairs; doctor_index.c, doctor_segment.c and doctor_journal.c look at one
 * kind of file each; doctor_repair.c, doctor_repair_index.c and doctor_share.c write. */
#ifndef STORE_DOCTOR_DOCTOR_CORE_H
#define STORE_DOCTOR_DOCTOR_CORE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/map.h"
#include "store/doctor/doctor.h"
#include "store/embedded/index_core.h"
#include "store/embedded/vfs.h"

/* A part of what a stream owns that cannot be read. */
struct doctor_loss {
    struct doctor_loss *next;
    uint64_t from, upto;
};

/* A stream as its row tells, and how far its blocks have been followed. */
struct doctor_stream {
    uint64_t life, first, first_event, tail, events;
    uint64_t source; /* 0: not a fork */
    uint64_t fork_at, fork_events;
    struct str name;
    bool deleted;
    bool whole;               /* a fork that has copies of what it was forked from */
    bool shared;              /* ... which it is about to lose */
    bool forked;              /* it has forks: for them it may have more than it needs itself */
    uint64_t need, need_upto; /* what those need of it: from, up to; UINT64_MAX, 0: nothing */
    uint64_t begin, end;      /* what it has to have rows of */
    struct doctor_loss *lost;
    bool unclear;           /* a row of its blocks does not verify: no word about holes */
    uint64_t blocks;        /* so far */
    uint64_t next, ordinal; /* where the next block begins, and the highest ordinal it can have */
    uint64_t least;         /* ... and the lowest */
};

enum doctor_index {
    DOCTOR_INDEX_SOUND,
    DOCTOR_INDEX_ROWS,   /* the file can be read, but rows are damaged or do not agree */
    DOCTOR_INDEX_BROKEN, /* it cannot be read */
    DOCTOR_INDEX_MISSING,
};

/* A row that does not verify. */
struct doctor_bad {
    enum table table;
    struct key key;
};

/* What the journal may write to. */
struct doctor_life {
    uint64_t life, tail;
    uint64_t rested; /* its tail before the journal */
    uint64_t stated; /* the last segment that has its row among its notes; 0: none */
    bool hearsay;    /* known from notes that the index has taken: no word about it now */
    bool gone;       /* known from the journal alone, which is being read again */
    bool replayed;   /* known from the journal */
};

struct doctor_pass {
    struct doctor *doctor;
    struct arena arena;
    struct buf *held;                 /* findings, to be told later; NULL: they are told at once */
    const struct doctor_pass *before; /* the repair; NULL: there was none */
    uint64_t wrong;
    uint64_t done_bytes, all_bytes;

    /* the index */
    enum doctor_index state;
    struct index *index; /* open if it is sound */
    bool has_meta;
    struct index_meta meta;
    struct doctor_stream *streams; /* by life */
    size_t n_streams, cap_streams;
    struct index_segment *rows; /* by id */
    size_t n_rows, cap_rows;
    bool twins;      /* two streams have the same name */
    uint64_t copies; /* rows that forks have of what they were forked from */
    struct doctor_bad *bad;
    size_t n_bad, cap_bad;
    struct map lives; /* of struct doctor_life, in the arena */

    /* the segments */
    uint64_t *ids; /* of the files, in order */
    size_t n_ids;
    uint64_t last_id;   /* looked at */
    struct buf footers; /* ids (uint64_t) of those whose footer can be written again */
    bool notes_lost;    /* the index could not be made again as it is */
    uint64_t stuck_at;  /* the first segment that the index does not know and cannot take; 0 */
    uint64_t batch;     /* the journal's that is due, as far as index and notes tell; 0: unknown */
    bool behind;        /* there are segments that the index does not know */
    bool outdated;      /* one of those tells of everything: what the index says counts no more */
    uint64_t absent;    /* one that is missing among those which the index does not know; 0: none */
    uint64_t lossy;     /* the last segment that is missing or has lost notes; 0: none */
    uint64_t meta_id;   /* the last one that tells where the journal goes on */
    uint64_t meta_lossy; /* the last that is lossy up to that */
    bool salvaged;       /* the index has been made again without those notes */

    /* the journal */
    bool journal_wrong;
    uint64_t batches;

    uint64_t files, bytes;
};

/* ---- doctor.c ---- */

void doctor_say(struct doctor_pass *l, enum doctor_tone tone, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void doctor_progress(struct doctor_pass *l, uint64_t bytes); /* so many more are done */
struct doctor_stream *doctor_find_stream(const struct doctor_pass *l,
                                         uint64_t life); /* NULL: unknown */

/* Keeps in mind that this cannot be read, for the sake of forks that share it. */
void doctor_note_loss(struct doctor_pass *l, uint64_t life, uint64_t from, uint64_t upto);

/* "stream chats/1", or "a stream of unknown name (life 12)"; in the arena. */
struct str doctor_stream_name(struct doctor_pass *l, uint64_t life);

/* The lives that records may be of. Those that the journal tells of are forgotten before it is read
 * again. */
void doctor_add_life(struct doctor_pass *l, uint64_t life, uint64_t tail, bool replayed);
void doctor_state_life(struct doctor_pass *l, uint64_t life, uint64_t segment);
struct doctor_life *doctor_find_life(struct doctor_pass *l, uint64_t life);
void doctor_drop_journal(struct doctor_pass *l);

/* Whether, after a repair, the index may know more or less of a stream than it did where the
 * journal goes on: what that has of it would come to stand in a wrong place, or twice. */
bool doctor_is_uncertain(const struct doctor_pass *l, uint64_t life);

/* For printf: %.*s */
#define STR_ARG(s) (int)(s).n, (s).p

/* ---- looking ---- */

/* 0, or why no look can be taken at all, which has been put into why. */
int doctor_check_index(struct doctor_pass *l, char *why, size_t size);
int doctor_check_segments(struct doctor_pass *l, char *why, size_t size);
int doctor_check_journal(struct doctor_pass *l, char *why, size_t size);

/* ---- writing: 0, or an error with a sentence in why ---- */

#define ASIDE_MAX          (VFS_NAME_MAX + 1)
#define DOCTOR_ASIDE_NAMES 1000 /* so many are tried */

/* The sentence for why. Returns err. */
int doctor_repair_failed(int err, const char *what, char *why, size_t size);

/* NAME.damaged, NAME.damaged.2, ... */
void doctor_aside_name(char *out, size_t size, const char *name, int n);

/* Gives it another name: NAME.damaged, or one with a number behind that. */
int doctor_set_aside(struct doctor_pass *l, const char *name, char *why, size_t size);
int doctor_repair_footer(struct doctor_pass *l, uint64_t id, char *why, size_t size);
int doctor_repair_index(struct doctor_pass *l, char *why, size_t size);
int doctor_repair_journal(struct doctor_pass *l, char *why, size_t size);

/* Forks share with their sources what they have copies of, where that is possible. */
int doctor_repair_forks(struct doctor_pass *l, char *why, size_t size);

/* Events are lost for good: no stream gets a life again that one of theirs may have had. */
int doctor_repair_lives(struct doctor_pass *l, char *why, size_t size);

#endif
