// SPDX-License-Identifier: Apache-2.0
/* store.h -- where streams rest. Engines: mem/, embedded/, redis/.
 *
 * Loop thread only. Each operation completes exactly once, through its done(), and never before the
 * call that started it has returned. The caller embeds the operation in its own struct and keeps
 * it, and all it points to, alive until done() runs. Texts in results are lent until done()
 * returns.
 *
 * Another process may write the same store: what an operation reported may have changed by the
 * next one, so that everything that must hold together goes into one operation. A success means
 * the effects survive kill -9 and power loss (where the engine promises that at all), and no
 * reader ever sees an event that a crash can take back. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "base/block.h"
#include "base/sched.h"
#include "base/str.h"
#include "store/offset.h"
#include "store/producer.h"

#define STORE_NAME_MAX      480
#define STORE_PRODUCERS_MAX 10000 /* per stream: ERR_LIMIT */
#define STORE_SEQ_MAX       255   /* bytes of a Stream-Seq; the caller checks */
#define STORE_TTL_NONE      (-1)
#define STORE_FORK_DEPTH    64 /* of forks of forks, unless somebody says otherwise */

/* Why a stream ended: durable state. */
enum end_reason {
    END_NONE, /* still open */
    END_COMPLETED,
    END_CANCELLED,
    END_FAILED,
    END_ORPHANED,
    END_EXPIRED,
};
struct str end_reason_text(enum end_reason reason);

/* The most that is kept of a stream; what is older is trimmed from the front. 0: no bound. The
 * newest event is kept whatever its size, of the others at least as many as the bounds allow; how
 * soon the rest goes is the engine's: at most an eighth more stays, and no event for much longer
 * than its age. */
struct retain {
    uint64_t events, bytes, age_ms;
};

/* What a stream is created with; kept as asked, so that the same PUT again is recognised. */
struct stream_config {
    struct str content_type; /* n == 0: as the source of the fork */
    int64_t ttl_s;           /* sliding, reset by reads and appends; STORE_TTL_NONE */
    int64_t expires_ms;      /* Unix time; STORE_TTL_NONE */
    struct retain retain;    /* bounds of its own, instead of the store's */
    struct str fork_of;      /* name of the source; n == 0: not a fork */
    bool fork_at_tail;       /* no fork offset was asked for */
    struct offset fork_at;
    uint64_t fork_sub; /* events (JSON) or bytes past fork_at, within the next append */
};

struct stream_info {
    uint64_t life;
    uint64_t first, tail;         /* positions: the earliest that can be read, and the end */
    uint64_t first_event, events; /* ordinals there, from 0: events == all that ever were */
    uint64_t bytes; /* that can be read; positions may have holes (redis/stream.lua) */
    struct str content_type;
    int64_t ttl_s, expires_ms;
    struct retain retain; /* of its own */
    enum end_reason end;  /* END_NONE: open */
};

/* A small versioned value beside the streams. */
#define DOC_KEY_MAX   1024
#define DOC_VALUE_MAX (64 * 1024)
struct doc_put {
    struct str key;
    struct str value;        /* p == NULL: remove */
    uint64_t expect_version; /* 0: must not exist; otherwise the version it must have */
};

struct metric_info;
struct store;

/* Private part of every operation: the engine's. */
struct store_call {
    struct task task;
    struct store *store;
    struct link link; /* among those that wait for the same */
    void (*finish)(struct store_call *c);
    struct stream *stream; /* pinned */
    uint64_t batch;
    int result;
    bool trimmed; /* by a write */
};

/* One atomic change of one stream. Preconditions are looked at in this order; the first that fails
 * is the answer, and then nothing has changed: exists (or may be created), still open, content
 * type, producer claim, Stream-Seq, If-Match, data_err, docs. A create whose claim the stream has
 * taken before is a duplicate, with `created` set.
 * Errors: NOT_FOUND DELETED EXISTS CLOSED TYPE_MISMATCH FENCED SEQ_GAP EPOCH_START SEQ_ORDER
 * TAIL_MOVED VERSION LIMIT FULL IO FORK_SOURCE FORK_DELETED FORK_OFFSET FORK_DEPTH, and
 * data_err. */
struct store_write {
    struct str name;
    const struct stream_config *create; /* not NULL: make it, or confirm that it is so */
    struct str content_type;            /* of the data; p == NULL: not checked */
    struct str data;                    /* n == 0: no append */
    const uint32_t *ends;               /* where each event ends in data; NULL: one event */
    uint32_t n_events;
    /* NULL, or what large data lies in, from its first byte to its last: an engine may keep it
     * instead of a copy. */
    struct block *block;
    /* With a block, and else NULL and empty: the memory of `ends`, of which an engine may keep that
     * instead of a copy, and leaves it empty then; and all of `ends` but the last, as pack_steps
     * has them. There may be a million. */
    struct buf *ends_in;
    struct str steps;
    int data_err; /* != 0: the data is bad in a way that other preconditions go before */
    bool close;
    enum end_reason end; /* with close */
    struct producer_claim claim;
    struct str seq; /* Stream-Seq; p == NULL: none */
    bool if_match;
    struct offset match;
    const struct doc_put *docs; /* written with it, or nothing is */
    size_t n_docs;
    bool again; /* a write with this claim may have been done, its documents in part */

    /* out; with an error as far as known: the tail with CLOSED and TAIL_MOVED, the producer's
     * state with FENCED and CLOSED */
    struct stream_info info;
    bool created, duplicate;
    struct producer_state producer; /* the highest accepted */
    uint64_t expected_seq;          /* with SEQ_GAP */
    void (*done)(struct store_write *w, int err);
    struct store_call call;
};

/* Forks of it keep what they need; until the last is gone the name answers DELETED. */
struct store_remove {
    struct str name;
    void (*done)(struct store_remove *r, int err);
    struct store_call call;
};

struct store_stat {
    struct str name;
    struct stream_info info; /* out */
    void (*done)(struct store_stat *s, int err);
    struct store_call call;
};

enum gap_reason { GAP_TRIMMED, GAP_EXPIRED, GAP_REBORN, GAP_UNKNOWN };
struct str gap_reason_text(enum gap_reason reason);

struct gap {
    struct offset requested, earliest;
    enum gap_reason reason;
};

enum read_from { READ_AT, READ_START, READ_TAIL, READ_EVENT };
#define READ_SLICES 16

/* Whole events from a position on, up to about max_bytes (at least one event if there is any).
 * Errors: NOT_FOUND DELETED GAP OFFSET (not where an event begins) IO CORRUPT. */
struct store_read {
    struct str name;
    enum read_from from;
    struct offset at; /* with READ_AT */
    uint64_t event;   /* with READ_EVENT: the ordinal of the first; that of the tail is allowed */
    size_t max_bytes;
    bool touch; /* counts as an access for the TTL */

    /* out. The caller drops the slices' references (store_read_release). */
    struct stream_info info;
    uint64_t start, next;  /* positions read; next == info.tail: up to date */
    uint64_t last;         /* where the last event begins; next if there is none */
    uint64_t ordinal;      /* of the event at start, from 0 */
    uint64_t last_ordinal; /* of the event at last; with none it says nothing */
    struct slice slices[READ_SLICES];
    uint32_t n_slices;
    struct gap gap; /* with GAP */
    void (*done)(struct store_read *r, int err);
    struct store_call call;
};
void store_read_release(struct store_read *r);

/* How many events it has read. */
static inline uint64_t store_read_events(const struct store_read *r)
{
    return r->next > r->start ? r->last_ordinal - r->ordinal + 1 : 0;
}

struct store_row {
    struct str name;
    struct stream_info info;
};

/* Names in byte order: O(log n), and what is listed. If that is much it is done in parts: a stream
 * that comes or goes meanwhile may be in it or not. Deleted and expired streams are left out. */
struct store_list {
    struct str prefix, after; /* after.n == 0: from the first */
    size_t limit;
    bool reserved;          /* those with reserved names too: names.h */
    struct store_row *rows; /* out, lent */
    size_t n_rows;
    bool more;
    void (*done)(struct store_list *l, int err);
    struct store_call call;
    struct catalog_page *page; /* the engine's */
};

struct doc_row {
    struct str key, value;
    uint64_t version;
};

/* Keys in byte order. The same. */
struct store_docs {
    struct str prefix, after;
    size_t limit;
    bool exact;           /* only the one whose key is `prefix` */
    struct doc_row *rows; /* out, lent */
    size_t n_rows;
    bool more;
    void (*done)(struct store_docs *d, int err);
    struct store_call call;
    struct catalog_page *page; /* the engine's */
};

/* All or nothing. ERR_VERSION: one has another version, *nothing* was written. */
struct store_put {
    const struct doc_put *docs;
    size_t n_docs;
    void (*done)(struct store_put *p, int err);
    struct store_call call;
};
/* The version a document has after a put that expected `version`. */
#define DOC_NEXT(version) ((version) + 1)

/* changed(): the tail or the state of the stream may have changed; nothing more is said. Changes
 * that come before the call come as one. unwatch may be called from changed(). name.n == 0: every
 * stream; then changed() comes at once, in the middle of the store's work: it takes a note and does
 * nothing else. */
struct store_watch {
    struct link link;
    struct str name; /* kept by the caller until unwatch */
    void (*changed)(struct store_watch *w, struct str name);
};

/* Errors that are the store's own and no answer to what was asked: X(kind, word for metrics). */
#define STORE_TROUBLES(X)                                                                          \
    X(FULL, "full")                                                                                \
    X(IO, "io")                                                                                    \
    X(AWAY, "away")                                                                                \
    X(BUSY, "busy")

enum store_trouble {
#define X(kind, word) STORE_##kind,
    STORE_TROUBLES(X)
#undef X
        STORE_TROUBLE_KINDS,
};
struct str store_trouble_text(enum store_trouble kind);

/* A number by which an engine is watched, such as the bytes of its files. */
#define STORE_FIGURES_MAX 8
struct store_figure {
    const struct metric_info *info; /* of a gauge without labels; static */
    uint64_t value;
};

struct store_ops {
    void (*write)(struct store *s, struct store_write *w);
    void (*remove)(struct store *s, struct store_remove *r);
    void (*stat)(struct store *s, struct store_stat *st);
    void (*read)(struct store *s, struct store_read *r);
    void (*list)(struct store *s, struct store_list *l);
    void (*docs)(struct store *s, struct store_docs *d);
    void (*put)(struct store *s, struct store_put *p);
    void (*watch)(struct store *s, struct store_watch *w);
    void (*unwatch)(struct store *s, struct store_watch *w);
    int (*health)(struct store *s, struct str *why);
    size_t (*figures)(const struct store *s, struct store_figure *out); /* NULL: it has none */
    void (*stop)(struct store *s, void (*stopped)(void *ctx), void *ctx);
    void (*free)(struct store *s);
};

/* An engine embeds this first. */
struct store {
    const struct store_ops *ops;
    struct sched *sched;
    struct retain retain; /* bounds for streams that have none of their own; set before its use */
    uint32_t fork_depth;  /* a stream may be a fork of so many, one of the other; the same */
    bool shared;          /* other processes may write it */
    /* The clock has jumped, and the store follows it: by so much. The same; may be NULL. */
    void (*stepped)(void *ctx, int64_t by_ms);
    void *stepped_ctx;
    /* Not 0: an answer may get lost, so that a write that failed with AWAY may have been done all
     * the same. This is the producer that claims the server's own writes then (stream/writer.h),
     * drawn anew by each process, and how many it has claimed. */
    uint64_t author, claimed;
    bool in_memory; /* what it keeps takes memory, its own or Redis's: to be bounded */
    uint64_t refused[STORE_TROUBLE_KINDS]; /* operations that were answered so */
};

/* Would it take a write? 0 as far as is known, or why not: ERR_AWAY (it does not answer, for now),
 * ERR_FULL (until something is deleted or there is more room), ERR_IO (a disk failed, for good).
 * why: what the store itself says of it, for operators, lent until the next call; may be empty. */
int store_health(struct store *s, struct str *why);

/* Its figures as they are now, always the same ones in the same order; STORE_FIGURES_MAX at most.
 * How many. */
size_t store_figures(const struct store *s, struct store_figure *out);

/* For engines: counts the answer to an operation if it is one of the troubles. */
void store_count(struct store *s, int err);

/* For engines: the operation is run as a task of its own, behind those that were started before. */
void store_post(struct store *s, struct store_call *call, void (*run)(struct task *t));

/* Puts away what is under way; no operation may be started any more. stopped() comes from the
 * schedule; store_free is due then. */
void store_stop(struct store *s, void (*stopped)(void *ctx), void *ctx);

/* Stopped, or with no operation under way. NULL is allowed. */
void store_free(struct store *s);

void store_write(struct store *s, struct store_write *w);
void store_remove(struct store *s, struct store_remove *r);
void store_stat(struct store *s, struct store_stat *st);
void store_read(struct store *s, struct store_read *r);
void store_list(struct store *s, struct store_list *l);
void store_docs(struct store *s, struct store_docs *d);
void store_put(struct store *s, struct store_put *p);
void store_watch(struct store *s, struct store_watch *w);
void store_unwatch(struct store *s, struct store_watch *w);

#endif
