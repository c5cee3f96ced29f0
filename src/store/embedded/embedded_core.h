// SPDX-License-Identifier: Apache-2.0
/* embedded_core.h -- what the parts of the embedded store share. */
#ifndef STORE_EMBEDDED_EMBEDDED_CORE_H
#define STORE_EMBEDDED_EMBEDDED_CORE_H

#include "store/embedded/cache.h"
#include "store/catalog/catalog.h"
#include "store/embedded/embedded.h"
#include "store/embedded/pace.h"
#include "store/embedded/rest.h"

struct lives {
    uint64_t *items;
    size_t n, cap;
};
void lives_add(struct lives *l, uint64_t life);

/* Calls that wait for one batch, in the order they came. */
struct batch_calls {
    struct journal_waiter waiter; /* in no list: nobody waits */
    struct embedded *embedded;
    struct link calls;
};

/* embedded.c draws what leads from one to the next. */
enum embedded_stage {
    EMBEDDED_RUNNING,
    EMBEDDED_DRAINING,
    EMBEDDED_RESTING,
    EMBEDDED_CLOSING,
    EMBEDDED_CLOSED,
};

/* Of embedded_large.c. */
struct large {
    struct link writes; /* one after the other: parts of the first are put */
    struct journal_waiter waiter;
    struct task go_on; /* behind those that the same batch answers */
    struct timer retry;
    size_t at;        /* of its data is in the journal */
    uint64_t first;   /* batch of its first part */
    unsigned tries;   /* to put them */
    unsigned retries; /* for want of room */
    bool waiting;     /* for the batch of the last one */
    bool in_parts;    /* it is being applied, and all of them are there */
};

struct embedded {
    struct store store;
    struct catalog catalog;
    struct cache cache;
    struct vfs *vfs;
    struct index *index;
    struct journal *journal;
    struct embedded_lanes lanes;
    struct embedded_config config;
    struct buf scratch; /* a record being made */

    struct batch_calls batches[JOURNAL_BATCHES]; /* that are not durable: by number */
    struct link completing; /* calls whose batches are durable, or lost; in order */
    struct task complete;   /* the next of those */
    struct link stalled;    /* calls that the journal had no room for, in order */
    struct task rerun;      /* the next of those */
    struct timer retry;
    struct large large;
    uint64_t removed_batch, docs_batch; /* the last that a stream was removed by, a document put */

    /* since the last checkpoint */
    struct link dirty; /* streams */
    size_t n_dirty;    /* at most so many */
    bool dirty_turn;   /* of those, and of documents; a checkpoint that begins has the others in a
                          list of its own */
    struct link dirty_docs;
    size_t n_dirty_docs;
    struct lives removed;
    struct lives unrecorded; /* expired while the journal had no room */
    uint64_t unrested;       /* bytes of events, those of a checkpoint under way included */

    struct checkpoint *checkpoint; /* under way */
    uint64_t cut;                  /* the first batch that the last one leaves in the journal */
    struct pace pace;              /* of it */
    struct timer checkpoint_timer;
    bool rest_failed; /* the last one did: the timer tries again, and nobody before */
    struct index_meta meta;
    uint64_t segment_bytes; /* of all segments, and what is kept in reserve */
    uint64_t reserve_bytes;
    uint64_t index_bytes;      /* that hold something */
    uint64_t snapped;          /* no life above this has gone into a checkpoint */
    bool untidy;               /* the last checkpoint has left something to do */
    uint64_t rewritten;        /* blocks that have been moved out of old segments */
    uint64_t merged;           /* small ones that have become part of others */
    uint32_t reads;            /* under way */
    struct recovery *recovery; /* while the store is being opened */
    enum embedded_stage stage;
    bool retrying;     /* stalled calls are being run again */
    bool told_failure; /* config.failed was called */
    struct task stop;
    void (*stopped)(void *ctx);
    void *stopped_ctx;
};

static inline struct embedded *embedded_of(struct store *s)
{
    return container_of(s, struct embedded, store);
}

/* A stream is about to be changed: a checkpoint that has yet to look at it does so now. */
void embedded_before_change(struct embedded *e, struct stream *s);
void embedded_mark_dirty(struct embedded *e, struct stream *s); /* it has been */

/* The same of documents. */
void embedded_before_docs(struct embedded *e, const struct doc_put *docs, size_t n);
void embedded_mark_doc(struct embedded *e, struct doc *d);
void embedded_mark_docs(struct embedded *e, const struct doc_put *docs, size_t n);

/* embedded_rest.c: checkpoints. */
void embedded_rest_init(struct embedded *e);
void embedded_rest_start(struct embedded *e); /* unless one is under way, or nothing has changed */
void embedded_rest_look(struct embedded *e);  /* there is more to rest: time to start, to hurry? */
void embedded_rest_stop(struct embedded *e);  /* no more, but the last: one under way hurries */
void embedded_rest_last(struct embedded *e);  /* if that is wanted, and no great deal */
int embedded_rest_now(struct embedded *e, uint64_t batch); /* blocking, at the start */
bool embedded_anything_to_rest(const struct embedded *e);

/* embedded_recover.c: loading and replay, blocking. */
int embedded_recover(struct embedded *e, struct journal_scan *scan, char *why, size_t size);
void embedded_recover_forget(struct recovery *r, uint64_t life); /* a stream is removed */

/* ---- embedded_call.c: how calls wait ---- */

void embedded_call_init(struct embedded *e);
void embedded_call_deinit(struct embedded *e); /* none waits */

/* Puts the record in `scratch` into the journal's open batch, which is the result. */
uint64_t embedded_put_record(struct embedded *e);

/* Whether a call that is finished after this batch is not finished at once. */
bool embedded_has_to_wait(struct embedded *e, uint64_t batch);

/* Finishes the call when the batch is durable: not before what the answer speaks of is. Pins the
 * stream until then; NULL: none. */
void embedded_finish_after(struct embedded *e, struct store_call *c, struct stream *s,
                           uint64_t batch);

/* The answer is that something is not there: it is given when the removes that it may come from are
 * durable, expiry included. Until those have found room in the journal the call is run again. */
void embedded_answer_absent(struct embedded *e, struct store_call *c, int err);

/* Room in the journal that data leaves for deletes. */
size_t embedded_reserve(const struct embedded *e);

/* What a record is for. */
enum room {
    ROOM_LESS,   /* to remove or end something: as long as there is any */
    ROOM_CHANGE, /* to put something into the place of something else: not while what waits to rest
                    is too much */
    ROOM_DOCS,   /* to keep more than so far: not beyond the disk's cap either */
    ROOM_EVENTS, /* the same, and a reserve is left to those that remove something */
};

/* May a record of n bytes be put? */
int embedded_check_room(struct embedded *e, size_t n, enum room what);
enum room embedded_room_of_docs(struct embedded *e, const struct doc_put *docs, size_t n);

/* The journal has no room yet: everything that changes something waits, in order. False: err is
 * another, or more room is not to be had by waiting. */
bool embedded_stall(struct embedded *e, struct store_call *c, int err);

/* Whether it has been put behind those that wait. */
bool embedded_must_queue(struct embedded *e, struct store_call *c);

/* While there is no room for expiries, nobody is told of them: a crash would bring the streams
 * back. True: the call is run again. */
bool embedded_stall_unrecorded(struct embedded *e, struct store_call *c);

/* Expiries that had no room come before everything that waits: names they freed may be among it.
 * False: some wait for room that is to be had. */
bool embedded_record_removals(struct embedded *e);

/* Runs the calls that wait one after the other, until the journal has no room again. */
void embedded_retry_stalled(struct embedded *e);
void embedded_retry_soon(struct embedded *e);

/* embedded_large.c: whether it takes care of the write, which is to be judged and applied later. */
void embedded_large_init(struct embedded *e);
bool embedded_large_take(struct embedded *e, struct store_write *w);
void embedded_large_stop(struct embedded *e);

/* embedded_write.c */
int embedded_judge_only(struct embedded *e, struct store_write *w);
void embedded_write_now(struct embedded *e, struct store_write *w);
size_t embedded_record_bound(const struct embedded *e, const struct store_write *w);
void embedded_write(struct store *s, struct store_write *w);
void embedded_remove(struct store *s, struct store_remove *r);
void embedded_put(struct store *s, struct store_put *p);
void embedded_on_removing(struct catalog *c, struct stream *s);
void embedded_on_shrinking(struct catalog *c, struct stream *s);

/* embedded_find.c */
void embedded_stat(struct store *s, struct store_stat *st);
void embedded_list(struct store *s, struct store_list *l);
void embedded_docs(struct store *s, struct store_docs *d);

/* embedded_trim.c: trims the stream if it holds more than it retains, now or after a look at what
 * rests. */
enum trim_verdict embedded_trim(struct catalog *c, struct stream *s);

/* embedded_read.c */
void embedded_read(struct store *s, struct store_read *r);

/* A block of a stream's past is needed to place a fork: loads it, then calls done on the loop. */
struct fork_position {
    uint64_t source_life, anchor, sub;
    uint64_t at, events;
    int err;
    bool known;
};
void embedded_find_fork_position(struct embedded *e, struct stream *source,
                                 struct fork_position *place, void (*done)(void *ctx), void *ctx);

/* What of a stream's past has to be kept: finds where that begins, then calls done on the loop. err
 * != 0: it could not be found out. front_ms: as in struct stream_term. */
struct keep_lookup {
    struct keep keep;
    struct stream *stream; /* pinned */
    uint64_t first, event;
    int64_t front_ms;
    int err;
};
void embedded_look(struct embedded *e, struct keep_lookup *look,
                   void (*done)(struct embedded *e, struct keep_lookup *look));

/* A checkpoint or a read has ended: is that what stopping waited for? */
void embedded_check_stopped(struct embedded *e);

/* The journal has stopped, and all calls are complete: tells who asked for it. The store may be
 * gone then. */
void embedded_check_closed(struct embedded *e);

#endif
