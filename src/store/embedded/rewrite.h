// SPDX-License-Identifier: Apache-2.0
/* rewrite.h -- brings what is still needed of an old segment into one that is being written.
 *
 * Each block is read, verified and added once, however many rows tell of it. One that cannot be
 * read is left where it is, and with it the old segment. Blocking. */
#ifndef STORE_EMBEDDED_REWRITE_H
#define STORE_EMBEDDED_REWRITE_H

#include "store/embedded/index.h"

struct rewrite {
    struct vfs *vfs;
    struct index *index; /* as of its last commit */
    struct segment_writer *to;
    uint64_t budget; /* bytes that may still be moved; one block may go beyond it */
    /* Told of each row that has to be put again, with its new place. */
    void (*moved)(void *ctx, uint64_t life, const struct block_info *b);
    void *ctx;

    /* out */
    uint64_t blocks; /* moved */
};

/* As many of the segment's live blocks as the budget allows, in the order of the file. Errors:
 * those of the index and of writing. */
int rewrite_segment(struct rewrite *w, uint64_t id);

/* Whether so much of a segment is dead that it is worth it. */
bool rewrite_is_due(const struct index_segment *s);

#endif
