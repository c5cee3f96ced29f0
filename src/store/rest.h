// SPDX-License-Identifier: Apache-2.0
/* rest.h -- one checkpoint: brings what has changed since the last one to its resting place.
 *
 * Filled on the loop thread with a snapshot that no later change touches; run on a lane (or, at the
 * start, in place): the events into a new segment, synced; then rows, blocks, producers and
 * documents into the index, in one transaction with the journal's position. A crash before the
 * commit leaves the last checkpoint in force, and the journal has all that came after it. */
#ifndef STORE_REST_H
#define STORE_REST_H

#include "base/arena.h"
#include "base/buf.h"
#include "store/catalog.h"
#include "store/index.h"

struct rest_piece {
    struct chunk *chunk; /* referenced */
    uint64_t end;        /* of it, for this stream */
};

struct rest_stream {
    uint64_t life;
    struct str row;
    uint64_t first;                /* what ends before it has been trimmed */
    uint64_t copy_from, copy_upto; /* a new fork: blocks of that life below there are its own too */
    bool drop_blocks;              /* only its name is kept, for its forks */
    struct rest_piece *pieces;
    size_t n_pieces;
    struct producer_claim *producers;
    size_t n_producers;
    struct stream *stream; /* the loop's: pinned */
    uint64_t tail;
};

struct rest_doc {
    struct str key, value; /* value.p == NULL: removed */
    uint64_t version;
};

struct rest {
    struct vfs *vfs;
    struct index *index;
    struct arena arena; /* of everything here */
    struct rest_stream *streams;
    size_t n_streams;
    uint64_t *removed; /* lives */
    size_t n_removed;
    struct rest_doc *docs;
    size_t n_docs;
    struct index_meta meta;

    /* out */
    uint64_t segment_bytes; /* of the new segment; 0: none was needed */
    uint64_t *dead;         /* segments that hold nothing any more: to be removed */
    size_t n_dead, cap_dead;
    uint64_t dead_bytes; /* of the files that were removed */
    int err;
};

/* Blocking; sets err. Touches nothing of the loop's. */
void rest_run(struct rest *r);

/* Removes the files of dead segments. Blocking; after rest_run. */
void rest_remove_dead(struct rest *r);

#endif
