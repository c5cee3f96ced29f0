// SPDX-License-Identifier: Apache-2.0
/* tape.h -- the events of one stream that are in memory.
 *
 * A tape is a row of pieces; a piece is a reference to an extent and the position up to which the
 * extent counts. A fork has a tape of its own that begins at the fork point; what comes before is
 * on its source's (catalog.h), so that a fork costs the same whatever it was made of. What is
 * dropped from the front rests elsewhere, or has been trimmed.
 *
 * `upto`: for a fork that reads its source's tape nothing counts from there on. */
#ifndef STORE_CATALOG_TAPE_H
#define STORE_CATALOG_TAPE_H

#include "base/block.h"

#include <stdint.h>

struct buf;
struct extent;
struct keep;

struct tape {
    struct tape_piece *pieces;
    uint32_t n, cap;
    uint64_t first; /* position of the first byte held; == tail: nothing is */
    uint64_t tail;
    uint64_t events; /* appended in all: the ordinal of the next */
};

void tape_deinit(struct tape *t); /* zero-initialised is empty */

/* data.n > 0. ends: where each of the n events ends in data (the last is data.n); NULL: one event.
 * They are one append. data.n < 2^31. */
void tape_append(struct tape *t, struct str data, const uint32_t *ends, uint32_t n, int64_t now_ms);

/* The same of a block, which is kept and not copied: data that is larger than an extent. ends_in:
 * as in extent_of. */
void tape_append_block(struct tape *t, struct block *data, const uint32_t *ends, uint32_t n,
                       struct buf *ends_in, int64_t now_ms);

/* *t is empty and begins at this position, whose event's ordinal is `events`. */
void tape_begin(struct tape *t, uint64_t at, uint64_t events);

/* An event begins there, or it is the tail. pos >= first. */
bool tape_is_boundary(const struct tape *t, uint64_t pos);

/* Ordinal of the event that begins at this boundary (or would). pos >= first. */
uint64_t tape_ordinal(const struct tape *t, uint64_t pos);

/* The position `sub` events (or bytes) past the boundary `pos`, within the append that begins
 * there. 0 or ERR_FORK_OFFSET. pos >= first. */
int tape_advance(const struct tape *t, uint64_t upto, uint64_t pos, uint64_t sub, bool events,
                 uint64_t *out);

/* Whole events from the boundary `from` (>= first) on, none behind `limit`: about max bytes, at
 * least one event if there is any. Fills up to `room` slices with references; returns how many,
 * where they end in *next, and where the last event begins in *last. */
uint32_t tape_read(const struct tape *t, uint64_t from, uint64_t limit, size_t max,
                   struct slice *slices, uint32_t room, uint64_t *next, uint64_t *last);

/* Nothing is added to the extents that are there; the next append begins a new one. */
void tape_seal(struct tape *t);

/* When the first event of the extent that the next append may go to was appended; INT64_MAX: there
 * is none. */
int64_t tape_open_since(const struct tape *t);

/* Where what has to be kept begins, and the ordinal there; `upto`, or the tail if that comes first,
 * if all of it may go (and then *event is not set). */
uint64_t tape_keep_from(const struct tape *t, uint64_t upto, const struct keep *k, uint64_t *event);

/* Lets go of everything before position `upto`: whole pieces, and then first == upto; the tail, if
 * none is left. */
void tape_drop(struct tape *t, uint64_t upto);

/* Lets go of whole pieces that begin at `from` or behind it; the tail stays what it was, and nobody
 * asks for what comes there. */
void tape_cut(struct tape *t, uint64_t from);

/* The pieces held, in order; each as an extent and where it ends for this tape. i < n. */
struct extent *tape_extent(const struct tape *t, uint32_t i, uint64_t *end);

#endif
