// SPDX-License-Identifier: Apache-2.0
/* segment.h -- where events rest: large files of blocks, written once, at a checkpoint.
 *
 * A block is one extent of one stream; blocks of a stream that a checkpoint rests stand one after
 * another. Behind them stand the checkpoint's notes (note.h): what it changes in the index, so that
 * the index can be made again from the segments. Calls block: for lanes, recovery and tools.
 * segment.c draws the format. Errors: those of the vfs, and ERR_CORRUPT where a checksum or a
 * length does not hold. ERR_NOT_FOUND: there is no such file. */
#ifndef STORE_EMBEDDED_SEGMENT_H
#define STORE_EMBEDDED_SEGMENT_H

#include "base/str.h"
#include "store/embedded/segment_format.h"

#include <stdbool.h>
#include <stdint.h>

struct extent;
struct pace;
struct segment_writer;
struct vfs;

/* Where a block is. */
struct place {
    uint64_t segment; /* its number: segments/NNNNNNNN.s */
    uint64_t offset;
    uint32_t bytes; /* of the whole block, header and marks included */
};

/* What is known of a block without reading it. */
struct block_info {
    uint64_t life;       /* of the stream that it was written for */
    uint64_t first, end; /* positions */
    uint64_t ordinal, events;
    int64_t oldest_ms, newest_ms;
    struct place place;
};

/* ---- writing ---- */

/* Creates the file, and the folder if need be. Until it is finished it has another name, so that
 * what is found under its own is whole, whatever has happened; what a crash leaves of one that is
 * not is gone when the same id is used next. ERR_EXISTS: there is a finished one with this id. */
int segment_create(struct vfs *v, uint64_t id, struct segment_writer **out);

/* It is written in steps, with pauses; pace is lent until segment_close. */
void segment_set_pace(struct segment_writer *w, struct pace *pace);

/* The extent has been copied or written when this returns; small blocks become large writes.
 * ERR_TOO_LARGE: beyond SEGMENT_BLOCK_MAX. Any other error ends the segment: all further calls
 * return it. */
int segment_add(struct segment_writer *w, uint64_t life, const struct extent *c,
                struct block_info *out);

/* Opaque here, at most SEGMENT_NOTE_MAX bytes; small notes become large writes too. */
int segment_add_note(struct segment_writer *w, struct str note);

/* Footer, sync, the name, sync of the folder. After 0 all of it is durable; only segment_close may
 * follow. */
int segment_finish(struct segment_writer *w, uint64_t *file_bytes);

/* Frees the writer; a segment that was not finished is removed. NULL is allowed. */
void segment_close(struct segment_writer *w);

/* ---- reading ---- */

/* The whole block, verified; its life and first position must be those given (block_info.life,
 * which for a fork is not the life of its own). The extent is the caller's. It may reach beyond the
 * end that a row of the index tells: see index_copy_blocks. */
int segment_read(struct vfs *v, uint64_t life, uint64_t first, struct place place,
                 struct extent **out);

/* Everything in a finished segment: all blocks, then all notes, each in the order they were added.
 * Notes that are told are always checked; verify: everything is read and checked. What is damaged
 * or cannot be read is told through damaged() and passed over.
 *
 * ERR_CORRUPT: the footer is not there or not valid. With salvage, blocks and notes are then looked
 * for from the start of the file, each read and checked, up to the first that does not verify, and
 * told in the order of the file; the result is 0, and `salvaged` says so. ERR_VERSION: written by a
 * later version of this code, so leave it alone.
 *
 * block() and note() stop the scan by returning non-zero, which becomes the result. Each of the
 * three may be NULL. A note is lent until note() returns. */
struct segment_scan {
    bool verify, salvage;
    bool salvaged; /* out */
    void *ctx;
    int (*block)(void *ctx, const struct block_info *b);
    int (*note)(void *ctx, struct str note);
    void (*damaged)(void *ctx, uint64_t segment, uint64_t offset, const char *what);
};
int segment_scan(struct vfs *v, uint64_t id, struct segment_scan *scan);

/* Of its file. */
int segment_size(struct vfs *v, uint64_t id, uint64_t *bytes);

/* Not synced: one that comes back after a crash is unknown to the index. */
int segment_remove(struct vfs *v, uint64_t id);

/* The ids of all segment files there are, in order; freed by the caller. No folder: none. */
int segment_list(struct vfs *v, uint64_t **ids, size_t *n);

#endif
