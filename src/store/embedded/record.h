// SPDX-License-Identifier: Apache-2.0
/* record.h -- streams and their changes as bytes: records of the journal, rows of the index.
 *
 * One record is one change with all its effects, so that a crash keeps all of it or nothing.
 * record.c draws the formats; numbers and texts are those of base/pack.h. */
#ifndef STORE_EMBEDDED_RECORD_H
#define STORE_EMBEDDED_RECORD_H

#include "base/arena.h"
#include "base/buf.h"
#include "store/catalog/catalog.h"

enum record_type {
    RECORD_WRITE = 1, /* create, append, close, producer, Stream-Seq, documents */
    RECORD_REMOVE,    /* a stream: deleted or expired */
    RECORD_DOCS,      /* documents alone */
    RECORD_TRIM,      /* a stream, from the front, without a write */
    RECORD_PART,      /* some of the data of a large write, which comes behind its parts */
};

struct record {
    enum record_type type;
    uint64_t life;
    int64_t now_ms;

    /* RECORD_WRITE */
    bool create;
    struct str name, content_type; /* with create, as the rest of this block */
    struct stream_config config;
    struct stream_config term;                  /* in force */
    uint64_t source_life, fork_at, fork_events; /* source_life 0: not a fork */
    struct str data;                            /* with RECORD_PART too */
    bool in_parts;  /* data.n is right, and the bytes are in the parts before it */
    uint32_t *ends; /* NULL: one event */
    uint32_t n_events;
    struct producer_claim claim;
    struct str seq;      /* p == NULL: none */
    enum end_reason end; /* END_NONE: not closed by it */

    /* RECORD_WRITE, RECORD_TRIM: where the stream begins from now on */
    bool trim;
    uint64_t first, first_event;

    struct doc_put *docs; /* expect_version is the one before */
    size_t n_docs;

    uint64_t at; /* RECORD_PART: where in the data it belongs */
};

/* A removal or a trim takes no more bytes. */
#define RECORD_SMALL_MAX 64

void record_put_write(struct buf *out, const struct stream *s, const struct store_write *w,
                      const struct judgement *j, int64_t now_ms);
/* The same without the bytes of the data; returns where in *out they belong. */
size_t record_put_around(struct buf *out, const struct stream *s, const struct store_write *w,
                         const struct judgement *j, int64_t now_ms);
/* The same of data whose parts have been put one after the other, and none of others between. */
void record_put_in_parts(struct buf *out, const struct stream *s, const struct store_write *w,
                         const struct judgement *j, int64_t now_ms);
void record_put_part(struct buf *out, uint64_t at, struct str bytes);
#define RECORD_PART_HEAD 16 /* bytes at most */
void record_put_remove(struct buf *out, uint64_t life);
void record_put_trim(struct buf *out, const struct stream *s);
void record_put_docs(struct buf *out, const struct doc_put *docs, size_t n);

/* Arrays are put into the arena, texts are slices of bytes. 0 or ERR_CORRUPT. */
int record_take(struct str bytes, struct arena *a, struct record *out);

/* A stream without its events, producers and documents. */
struct row {
    struct str name, content_type;
    struct stream_config config, term; /* as asked for, and what of it is in force */
    uint64_t first, first_event, tail, events;
    enum end_reason end;
    struct producer_claim closed_by;
    struct str last_seq;
    uint64_t source_life; /* 0: not a fork */
    uint64_t fork_at, fork_events;
    bool whole; /* a fork whose blocks are all under its own life: fork_events is not known */
    bool deleted;
};

void row_put(struct buf *out, const struct stream *s);
int row_take(struct str bytes, struct row *out);

/* Appends the row of a fork that is whole as that of one which is not. ERR_CORRUPT: it is none. */
int row_share(struct buf *out, struct str row, uint64_t fork_at, uint64_t fork_events);

#endif
