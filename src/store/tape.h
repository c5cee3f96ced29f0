// SPDX-License-Identifier: Apache-2.0
/* tape.h -- the events of one stream in memory.
 *
 * A tape is a row of pieces; a piece is a reference to a chunk (bytes, and where their events end)
 * and the position up to which the chunk counts for this tape. A fork takes references to the
 * chunks of its source up to the fork point, so that nothing is copied and nothing that happens to
 * the source later reaches it. Only the tape that made a chunk adds to it. */
#ifndef STORE_TAPE_H
#define STORE_TAPE_H

#include "base/block.h"

#include <stdint.h>

struct tape {
    struct tape_piece *pieces;
    uint32_t n, cap;
    uint64_t tail;
};

void tape_deinit(struct tape *t); /* zero-initialised is empty */

/* data.n > 0. ends: where each of the n events ends in data (the last is data.n); NULL: one event.
 * They are one append. data.n < 2^31. */
void tape_append(struct tape *t, struct str data, const uint32_t *ends, uint32_t n);

/* *to is empty and becomes a fork of t up to position `at`. */
void tape_fork(const struct tape *t, uint64_t at, struct tape *to);

/* An event begins there, or it is the tail. */
bool tape_is_boundary(const struct tape *t, uint64_t pos);

/* The position `sub` events (or bytes) past the boundary `pos`, within the append that begins
 * there. 0 or ERR_FORK_OFFSET. */
int tape_advance(const struct tape *t, uint64_t pos, uint64_t sub, bool events, uint64_t *out);

/* Whole events from the boundary `from` on: about max bytes, at least one event unless at the tail.
 * Fills up to `room` slices with references; returns how many, and where they end in *next. */
uint32_t tape_read(const struct tape *t, uint64_t from, size_t max, struct slice *slices,
                   uint32_t room, uint64_t *next);

/* Where the event that ends at the boundary `end` begins; end > 0. */
uint64_t tape_event_before(const struct tape *t, uint64_t end);

#endif
