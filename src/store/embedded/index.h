// SPDX-License-Identifier: Apache-2.0
/* index.h -- what exists and where it rests: one LMDB file, `index.mdb`, written in one transaction
 * a checkpoint.
 *
 * table     key                        value
 * stream    life                       the stream's row (catalog's encoding)
 * block     life, first position       where the block is, what it holds
 * producer  life, digest of the id     id, epoch, seq
 * doc       digest of the key          key, version, value
 * segment   id                         live rows, bytes, live bytes
 * resident  segment, offset,           nothing: the block rows by where they rest
 *           life, position
 * meta      "checkpoint"               batches below are in here; the last life; next segment id
 *
 * Numbers in keys are big-endian, so that their order is the order of bytes; digests are SHA-256,
 * for LMDB's keys are short and peers choose the names. Every value carries its own checksum, which
 * covers its key and table too. One writer at a time; readers on any thread see the last commit.
 * Calls block. The file grows as it must; it never shrinks, but room in it is used again. Some
 * space is kept for it on the disk, so that rows can be removed when that is full. All of it can be
 * made again from the notes of the checkpoints, which are in the segments: rebuild.h.
 * Errors: ERR_IO, ERR_FULL, ERR_CORRUPT, ERR_NOT_FOUND.
 *
 * The functions that are passed in are called with a transaction open: they are short, and call
 * nothing of this header. What they return, if not 0, ends the call and is its result. Texts are
 * lent to them. */
#ifndef STORE_EMBEDDED_INDEX_H
#define STORE_EMBEDDED_INDEX_H

#include "base/str.h"
#include "store/producer.h"
#include "store/embedded/segment.h"

struct index;
struct index_write;

struct index_meta {
    uint64_t batch; /* journal batches below it are in the index */
    uint64_t lives; /* handed out */
    uint64_t next_segment;
    int64_t wall_ms;     /* the latest time seen; see catalog_wall_ms */
    uint64_t base;       /* the newest segment whose notes tell of everything; 0: none yet */
    uint64_t base_bytes; /* of its notes */
    uint64_t note_bytes; /* of those of all later segments */
};

struct index_segment {
    uint64_t id;
    uint64_t live_rows;  /* that tell of blocks in it; of one block there may be several (forks) */
    uint64_t bytes;      /* of the file */
    uint64_t live_bytes; /* of the blocks that rows tell of, each counted once */
};

/* path: of the file; beside it LMDB keeps path-lock. sync false: for tests on a simulated disk,
 * where a commit counts as durable. Makes the file if it is missing (meta is then all zero but
 * next_segment 1). NULL with a sentence in why. */
struct index *index_open(const char *path, bool sync, char *why, size_t size);
void index_close(struct index *i); /* no call is under way; NULL is allowed */
const char *index_path(const struct index *i);

/* Closed, with its lock file gone: gives it the name `to`, in place of what has it. After 0 that is
 * durable (with sync). 0 or ERR_IO. */
int index_rename(const char *from, const char *to, bool sync);

/* Closed, or never opened: the file goes, and its lock file. */
void index_unlink(const char *path);

/* ---- loading: all tables, or some of them ---- */

/* Functions that are NULL are passed over. The order within a table is that of its keys. */
struct index_load {
    void *ctx;
    int (*stream)(void *ctx, uint64_t life, struct str row);
    int (*block)(void *ctx, uint64_t life, const struct block_info *b);
    int (*producer)(void *ctx, uint64_t life, const struct producer_claim *p);
    int (*doc)(void *ctx, struct str key, uint64_t version, struct str value);
    int (*segment)(void *ctx, const struct index_segment *s);
};
int index_load(struct index *i, struct index_load *load, struct index_meta *meta);

/* ---- reading, on any thread ---- */

/* The block that holds position pos of this life. ERR_NOT_FOUND: none does. */
int index_find(struct index *i, uint64_t life, uint64_t pos, struct block_info *out);

/* All blocks of a life from the one that holds position `from` on, in order. */
int index_blocks(struct index *i, uint64_t life, uint64_t from,
                 int (*each)(void *ctx, const struct block_info *b), void *ctx);

/* All blocks of a life, the last one first. */
int index_blocks_back(struct index *i, uint64_t life,
                      int (*each)(void *ctx, const struct block_info *b), void *ctx);

/* The last block of a life that begins before position `upto` and, with its first event, not behind
 * this event; there is one that begins at or before `from`, or ERR_NOT_FOUND. */
int index_find_event(struct index *i, uint64_t life, uint64_t from, uint64_t upto, uint64_t event,
                     struct block_info *out);

/* Whether rows of other lives tell of the block that is there (forks as version 0.1 made them). */
int index_is_shared(struct index *i, uint64_t life, const struct place *place, bool *out);

/* All rows of blocks that rest in a segment (for rewriting it), in the order of the file; those
 * that tell of the same block come one after another. `life` is the row's; b->life, that of the
 * stream which the block was written for, may be another. */
int index_segment_blocks(struct index *i, uint64_t segment,
                         int (*each)(void *ctx, uint64_t life, const struct block_info *b),
                         void *ctx);

struct index_size {
    uint64_t streams, docs;
    uint64_t bytes; /* of pages that hold something. The file may be larger: pages that are free are
                       used again */
};
int index_size(struct index *i, struct index_size *out);

/* ---- one checkpoint ---- */

/* Everything until commit is one transaction, made on one thread; another begin waits for its end.
 * After an error all calls return it, commit too. Segments' live counts follow the blocks by
 * themselves: a block row counts as one reference. What is put replaces what is there; to remove
 * what is not there is no error. */
int index_begin(struct index *i, struct index_write **out);
#define INDEX_ROW_MAX (SEGMENT_NOTE_MAX - 64) /* a row goes into a note too */
int index_put_stream(struct index_write *w, uint64_t life, struct str row);

/* The row is (life, b->first). When a segment is rewritten, put the rows of its blocks again with
 * their new places, ends and lives as index_segment_blocks gave them, and before anything is
 * trimmed or removed in the same transaction, or what is gone comes back. */
int index_put_block(struct index_write *w, uint64_t life, const struct block_info *b);

/* The same, of a block that holds what several held: their rows, which begin and end within it, are
 * removed. */
int index_merge_blocks(struct index_write *w, uint64_t life, const struct block_info *b);
int index_put_producer(struct index_write *w, uint64_t life, const struct producer_claim *p);
int index_put_doc(struct index_write *w, struct str key, uint64_t version, struct str value);
int index_remove_doc(struct index_write *w, struct str key);

/* The size of the file of a segment; before or after its blocks are put. */
int index_add_segment(struct index_write *w, uint64_t id, uint64_t bytes);

/* A fork as version 0.1 made it, for the sake of its notes: rows for all blocks of `from` below
 * position `upto` are made for `to` as well. The last one ends at upto, even if the block goes on:
 * that part is not the fork's. Its `events` are still those of the whole block. */
int index_copy_blocks(struct index_write *w, uint64_t from, uint64_t to, uint64_t upto);

/* The stream's row, blocks and producers. */
int index_remove_stream(struct index_write *w, uint64_t life);

/* Removes the rows of a life's blocks that end at or before pos. */
int index_trim(struct index_write *w, uint64_t life, uint64_t pos);

/* Removes the rows of a life's blocks that begin at pos or behind it, and those of its producers: a
 * stream that only forks keep. */
int index_cut(struct index_write *w, uint64_t life, uint64_t pos);

int index_put_meta(struct index_write *w, const struct index_meta *meta);

/* Removes everything but the meta. */
int index_clear(struct index_write *w);

/* As index_load, of what the transaction has made of the tables so far; without segments. */
int index_load_written(struct index_write *w, struct index_load *load);

/* Segments with an id below `below` and without a live block, after all of the above; their rows
 * are removed. The files may be removed once the commit has succeeded. */
int index_dead_segments(struct index_write *w, uint64_t below, int (*each)(void *ctx, uint64_t id),
                        void *ctx);

/* Frees w, whatever the result. 0: it is durable. ERR_FULL: nothing has changed, and it may be
 * tried again. ERR_IO: the last commit is still what readers see, but nothing is written any more
 * until the index is opened again. */
int index_commit(struct index_write *w);
void index_abort(struct index_write *w); /* NULL is allowed */

#endif
