// SPDX-License-Identifier: Apache-2.0
/* oracle.h -- what a store has to answer, worked out in the most naive way.
 *
 * Written from the contract in store/store.h, not from any engine: streams are flat copies, forks
 * copy, everything is found by walking. It is fed with finished operations in the order in which
 * they took effect, says of each whether the contract allows that result, and takes on its effect.
 *
 * Where the contract leaves a choice, the oracle follows the engine: the number of a new life, how
 * much a read brings, which of two faults of a fork is named, when an expired stream whose name is
 * of no use to anybody is really gone, and when what need not be retained is. */
#ifndef MODEL_ORACLE_H
#define MODEL_ORACLE_H

#include "base/buf.h"
#include "store/store.h"

struct oracle_event {
    uint64_t end;
    bool ends_append;
    int64_t at_ms;
};

struct oracle_producer {
    struct str id; /* owned */
    struct producer_state state;
};

/* Another life whose positions up to `upto` mean the same here. */
struct oracle_origin {
    uint64_t life, upto;
};

struct oracle_stream {
    struct oracle_stream *next;
    struct oracle_name *name;
    uint64_t life;
    struct buf bytes;
    struct oracle_event *events;
    size_t n_events, cap_events;
    struct stream_config config; /* texts owned */
    struct str type;             /* owned */
    int64_t ttl_s, expires_ms;   /* in force */
    int64_t touched_ms;
    struct retain retain; /* in force */
    uint64_t first, may;  /* it was seen to begin at, and may have been trimmed up to */
    enum end_reason end;
    struct producer_claim closed_by; /* id owned */
    struct str last_seq;             /* owned; p == NULL: none yet */
    struct oracle_producer *producers;
    size_t n_producers;
    struct oracle_origin *origins;
    size_t n_origins;
    struct oracle_stream *source;
    bool deleted; /* its name answers DELETED while forks of it are there */
    bool expired; /* its name is free; the engine may not have noticed yet */
};

/* A name that was ever used. */
struct oracle_name {
    struct oracle_name *next;
    struct str text; /* owned */
    uint64_t *lives;
    size_t n_lives;
    uint64_t changes; /* by operations, of its tail or state: watches must be told */
};

struct oracle_doc {
    struct oracle_doc *next;
    struct str key, value; /* owned */
    uint64_t version;
};

struct oracle {
    struct oracle_stream *streams;
    struct oracle_name *names;
    struct oracle_doc *docs;
    uint64_t last_life;
    size_t fork_depth; /* the most */
    int64_t now_ms;
    char why[256];
};

void oracle_init(struct oracle *o);
void oracle_deinit(struct oracle *o);

/* Of a finished operation with its results. NULL: right. Otherwise what is wrong with it, lent
 * until the next call. */
const char *oracle_write(struct oracle *o, const struct store_write *w, int err);
const char *oracle_remove(struct oracle *o, const struct store_remove *r, int err);
const char *oracle_stat(struct oracle *o, const struct store_stat *st, int err);
const char *oracle_read(struct oracle *o, const struct store_read *r, int err);
const char *oracle_list(struct oracle *o, const struct store_list *l, int err);
const char *oracle_docs(struct oracle *o, const struct store_docs *d, int err);
const char *oracle_put(struct oracle *o, const struct store_put *p, int err);

/* The wall clock moves on. An engine need not be exact to the millisecond: at a time at which
 * oracle_at_deadline, its answers are not foreseen. */
void oracle_clock(struct oracle *o, int64_t wall_ms);
bool oracle_at_deadline(const struct oracle *o, int64_t wall_ms);

/* The engine has had its time to clear expired streams away. */
void oracle_swept(struct oracle *o);

/* The engine has had its time to trim, and was asked where each stream begins: NULL, or what has
 * been kept for too long. */
const char *oracle_trimmed(struct oracle *o);

/* For those who make up operations. NULL: no live stream has that name. */
const struct oracle_stream *oracle_find(const struct oracle *o, struct str name);
const struct producer_state *oracle_producer(const struct oracle_stream *s, struct str id);
uint64_t oracle_doc_version(const struct oracle *o, struct str key); /* 0: not there */
uint64_t oracle_changes(const struct oracle *o, struct str name);

/* Every stream that is there has just been accessed. */
void oracle_touch_all(struct oracle *o);

#endif
