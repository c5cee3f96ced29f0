// SPDX-License-Identifier: Apache-2.0
/* doctor.h -- verifies what the embedded store has on disk while no server uses it, and repairs
 * what can be repaired.
 *
 * Looked at are the index (each page, each row, and whether the rows agree with one another), the
 * segments (each block, each note, and whether the blocks are those that the index tells of), the
 * journal (each batch) and the names of all files. Nothing is changed by that.
 *
 * A repair keeps all that verifies. What does not is never deleted: it gets the name NAME.damaged.
 * An index that is missing or damaged is made again (rebuild.h); of a journal that is damaged in
 * the middle everything before the damage is kept; a segment's footer is written again from its
 * blocks and notes. Blocks that are damaged stay as they are: reading there is an error, and
 * reading anything else is not. Calls block. */
#ifndef STORE_DOCTOR_DOCTOR_H
#define STORE_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vfs;

enum doctor_tone {
    DOCTOR_NOTE,  /* worth knowing, and nothing is wrong */
    DOCTOR_WRONG, /* something is */
    DOCTOR_DONE,  /* a repair has done this */
};

struct doctor {
    struct vfs *vfs;        /* nobody else uses it */
    const char *index_path; /* LMDB goes past the vfs */
    bool sync;              /* as of index_open */
    bool repair;
    void *ctx;
    /* One finding, in a sentence without its full stop. What in it is a peer's (names of streams)
     * has no control characters. */
    void (*say)(void *ctx, enum doctor_tone tone, const char *sentence);
    /* Now and then; may be NULL. */
    void (*progress)(void *ctx, uint64_t done_bytes, uint64_t all_bytes);

    /* out, all of them of the last look: after a repair what is there then */
    uint64_t streams, events; /* that came to rest */
    uint64_t batches;         /* of the journal that have not */
    uint64_t files, bytes;    /* of all files of ours */
    uint64_t found;           /* things wrong at first */
    uint64_t left;            /* ... and in the end */
    bool repaired;            /* something was done */
};

/* 0: all has been looked at, and `left` tells whether it is sound. Otherwise it could not be looked
 * at, or not be repaired (ERR_IO, ERR_FULL, ERR_VERSION), with a sentence in why. */
int doctor_run(struct doctor *d, char *why, size_t size);

#endif
