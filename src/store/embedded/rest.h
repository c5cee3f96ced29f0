// SPDX-License-Identifier: Apache-2.0
/* rest.h -- one checkpoint: brings what has changed since the last one to its resting place.
 *
 * Filled on the loop thread with a snapshot that no later change touches; run on a lane (or, at the
 * start, in place): the events go into a new segment; rows, blocks, producers and documents into
 * the index, in one transaction with the journal's position, and as notes (note.h) into the same
 * segment. That is synced before the commit, so that whatever the index says can be made again from
 * the segments. A crash before the commit leaves the last checkpoint in force, and the journal has
 * all that came after it.
 *
 * Each checkpoint makes one segment, and their ids follow one another. A segment without a live
 * block is still needed for its notes, until a later one is a *base*: its notes tell of all there
 * is, and those before it count no more. From then on it is of use for its live blocks only; when
 * few are left, a checkpoint takes them into its own segment (rewrite.h), and the file is removed.
 * Small blocks of the streams that it has events of become larger ones in it (merge.h). */
#ifndef STORE_EMBEDDED_REST_H
#define STORE_EMBEDDED_REST_H

#include "base/arena.h"
#include "base/buf.h"
#include "store/catalog/catalog.h"
#include "store/embedded/index.h"

/* When more is done than what has to be. */
struct rest_limits {
    /* A base is due when the notes since the last one, or what it would let go of, have more than
     * twice the bytes of its own notes, and so many; or when more than so many files (and one for
     * each 64 KiB of a base) are kept for their notes alone. */
    uint64_t base_bytes, base_files;
    uint64_t rewrite_bytes; /* of live blocks that are moved out of old segments at a time */
    uint64_t merge_bytes;   /* of small blocks that are merged at a time, and 512 for each stream in
                               the checkpoint; 0: none are */
    uint32_t merge_fan;     /* so many become one */
    uint64_t reserve_bytes; /* at least; see reserve.h. 0: none are kept */
};
#define REST_LIMITS                                                                                \
    {                                                                                              \
        .base_bytes = 1u << 20, .base_files = 64, .rewrite_bytes = 32u << 20,                      \
        .merge_bytes = 16u << 20, .merge_fan = 8, .reserve_bytes = 1u << 20                        \
    }

struct rest_piece {
    struct extent *extent;  /* referenced */
    uint64_t end;           /* of it, for this stream */
    struct block_info info; /* where it went */
};

struct rest_stream {
    uint64_t life;
    struct str row;
    uint64_t first;  /* what ends at or before it is needed no more */
    uint64_t upto;   /* only forks keep it: what begins here or behind it is not either. UINT64_MAX:
                        it is not deleted */
    int64_t span_ms; /* of time that a block may be of */
    struct rest_piece *pieces;
    size_t n_pieces;
    struct producer_claim *producers;
    size_t n_producers;
    struct stream *stream; /* the loop's: pinned */
    uint64_t tail;
};

struct rest_doc {
    struct str key, value; /* value.p == NULL: removed. The key is lent: the document stays */
    uint64_t version;
    struct doc *doc; /* the loop's */
};

struct rest {
    struct vfs *vfs;
    struct index *index;
    struct rest_limits limits;
    struct pace *pace;  /* of writing the segment; NULL: as fast as it goes */
    struct arena arena; /* of everything here but `removed` and `dead` */
    struct rest_stream *streams;
    size_t n_streams;
    uint64_t *removed; /* lives; owned */
    size_t n_removed;
    struct rest_doc *docs;
    size_t n_docs;
    struct index_meta meta;

    /* out */
    uint64_t segment_bytes;                 /* of the new segment */
    uint64_t reserve_wanted, reserve_bytes; /* that is to be, and is kept in reserve */
    uint64_t rewritten;                     /* blocks that were moved out of old segments */
    uint64_t merged;                        /* small ones that have become part of others */
    bool is_base;                           /* it is one */
    bool untidy;    /* another checkpoint would be of use, even if it had nothing to rest */
    uint64_t *dead; /* segments that hold nothing any more: to be removed */
    size_t n_dead, cap_dead;
    uint64_t dead_bytes; /* of the files that were removed */
    int err;
};

/* Blocking; sets err. Touches nothing of the loop's. */
void rest_run(struct rest *r);

/* Removes the files of dead segments. Blocking; after rest_run. */
void rest_remove_dead(struct rest *r);

#endif
