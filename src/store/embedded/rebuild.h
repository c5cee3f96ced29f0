// SPDX-License-Identifier: Apache-2.0
/* rebuild.h -- the index made again from the segments, or brought up to date with them.
 *
 * Every checkpoint leaves notes of what it changed in its segment (note.h, rest.h). Applied in the
 * order of the segments, from the newest base on, they make the index that was there after the last
 * checkpoint, row by row. What came after that is in the journal, as ever.
 *
 * A segment whose commit never happened, because of a crash, counts as if it had: all of it is
 * durable. (A commit that fails and is tried again takes the same segment's place.)
 *
 * Calls block, and read all notes since the last base, but of the events only those of segments
 * whose footer is damaged. */
#ifndef STORE_EMBEDDED_REBUILD_H
#define STORE_EMBEDDED_REBUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct index;
struct vfs;

struct rebuild {
    bool salvage; /* in: where something is damaged, go on with what is sound */

    /* out */
    uint64_t checkpoints;                      /* applied */
    uint64_t streams, blocks, producers, docs; /* in the index afterwards; by index_rebuild */
    uint64_t damaged; /* segments, notes and blocks that are missing or do not verify */
    char damage[200]; /* the first of them, in a sentence; "" */
};

/* Makes the index anew and puts it into the place of whatever is at path, which nobody has open. It
 * is made in a file beside it (path.new) that takes its name when it is complete: after an error or
 * a crash, what was there is there. Rows that tell of blocks which are lost are kept, so that
 * reading there is an error and nothing else. Without segments it is that of a new store.
 * ERR_CORRUPT: something is damaged, and it is not to be salvaged. Other errors: those of the vfs
 * and of the index; why has a sentence. */
int index_rebuild(struct vfs *v, const char *path, bool sync, struct rebuild *r, char *why,
                  size_t size);

/* Applies the checkpoints that the index does not know: that of a commit which a crash came before,
 * or all since the copy was made that somebody has put in its place. Errors as above; nothing is
 * salvaged. */
int index_catch_up(struct vfs *v, struct index *i, struct rebuild *r);

#endif
