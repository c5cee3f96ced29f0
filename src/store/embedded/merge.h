// SPDX-License-Identifier: Apache-2.0
/* merge.h -- small blocks of one stream become a larger one, at a checkpoint.
 *
 * A stream that gets an event now and then has a small block of each checkpoint, all in files of
 * their own. When it has `fan` of about one size at its end, they are read and written as one, and
 * its row takes the place of theirs; when there are as many of the larger ones, so are these; up to
 * MERGE_BYTES. So a stream has a block for that many bytes, and fan - 1 at the most of each size
 * below it; and a byte is written again once for each size. What the old blocks took is dead.
 *
 * Nothing is lost by it but times: a block has that of its first and of its last append. So it is
 * made of no more than span_ms, and streams are trimmed by age as exactly as before. Blocking. */
#ifndef STORE_EMBEDDED_MERGE_H
#define STORE_EMBEDDED_MERGE_H

#include "base/buf.h"
#include "store/embedded/index.h"
#include "store/embedded/shelf.h"

#define MERGE_BYTES   (64u * 1024) /* of events and their marks in one block */
#define MERGE_SPAN_MS (24 * 60 * 60 * 1000)

struct merge {
    struct index *index; /* as of its last commit */
    struct segment_writer *to;
    uint64_t budget; /* what may still be read, in bytes */
    uint32_t fan;    /* at least 2 */
    /* Told of each row that takes the place of those which begin and end within it. */
    void (*merged)(void *ctx, uint64_t life, const struct block_info *b);
    void *ctx;

    /* out */
    uint64_t blocks; /* that have become part of others */

    /* private */
    struct shelf shelf;
    struct buf rows, parts; /* of struct block_info and of extents, the last of the stream first */
};

void merge_init(struct merge *m, struct vfs *vfs);
void merge_deinit(struct merge *m);

/* The last blocks of a stream, if there are enough small ones: none that begins before `first`, and
 * together of no more time than span_ms. One that cannot be read, or that a fork has a row of, is
 * left alone with those before it. Errors: those of the index and of writing. */
int merge_stream(struct merge *m, uint64_t life, uint64_t first, int64_t span_ms);

#endif
