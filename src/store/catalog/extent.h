// SPDX-License-Identifier: Apache-2.0
/* extent.h -- a run of a stream's events: their bytes, and where each of them ends.
 *
 * The unit of memory, of a block in a segment, and of the cache. Shared by reference count; only
 * the tape that made it adds to it, and only while nobody else holds it. */
#ifndef STORE_CATALOG_EXTENT_H
#define STORE_CATALOG_EXTENT_H

#include "base/block.h"

#include <stdint.h>

struct buf;

#define EXTENT_BYTES_MAX (64 * 1024) /* a larger append has an extent of its own */

/* Where an event ends, relative to the extent; the top bit says that its append ends there too. */
#define MARK_APPEND_END  0x80000000u
#define MARK_END(m)      ((m) & ~MARK_APPEND_END)

struct extent {
    uint32_t refs;
    uint32_t n_marks, cap_marks;
    uint64_t first;               /* position of its first byte */
    uint64_t ordinal;             /* of its first event in the stream, from 0 */
    int64_t oldest_ms, newest_ms; /* wall clock of its first and last append */
    struct block *bytes;
    uint32_t *marks;
};

struct extent *extent_new(uint64_t first, uint64_t ordinal, uint32_t cap);
struct extent *extent_ref(struct extent *c);
void extent_unref(struct extent *c); /* NULL is allowed */

static inline uint64_t extent_end(const struct extent *c)
{
    return c->first + c->bytes->n;
}

/* Memory that it takes, for budgets. */
size_t extent_size(const struct extent *c);

/* One append; it fits. ends: as in store_write. */
void extent_append(struct extent *c, struct str data, const uint32_t *ends, uint32_t n,
                   int64_t now_ms);

/* One append that has an extent of its own, which keeps its block. ends_in: NULL, or the memory of
 * `ends`, which the extent takes: it can be read there as before, but for the last. */
struct extent *extent_of(uint64_t first, uint64_t ordinal, struct block *data, const uint32_t *ends,
                         uint32_t n, struct buf *ends_in, int64_t now_ms);

/* Extents that follow one another, as one with all their appends; at least one. They stay the
 * caller's, and so is the result. */
struct extent *extent_join(struct extent *const *parts, size_t n);

/* Whether c can be joined with what ends with `last` and has so many bytes: small ones can. */
#define EXTENT_SMALL 4096
static inline bool extent_can_join(const struct extent *last, size_t bytes, const struct extent *c)
{
    return last->bytes->n < EXTENT_SMALL && c->bytes->n < EXTENT_SMALL &&
           bytes + c->bytes->n <= EXTENT_BYTES_MAX && last->first + last->bytes->n == c->first &&
           last->ordinal + last->n_marks == c->ordinal;
}

/* Index of the first mark that ends behind position pos; n_marks if there is none. */
uint32_t extent_mark_after(const struct extent *c, uint64_t pos);

/* An event of it begins at pos (or pos is its end). */
bool extent_is_boundary(const struct extent *c, uint64_t pos);

/* The position `sub` events (or bytes) past the boundary pos, within the append that begins there
 * and not behind `end`. 0 or ERR_FORK_OFFSET. sub > 0, pos < end. */
int extent_advance(const struct extent *c, uint64_t end, uint64_t pos, uint64_t sub, bool events,
                   uint64_t *out);

/* What has to be kept of a stream: events from this ordinal, this position and this time on, but in
 * any case the last event before `tail`. */
struct keep {
    uint64_t event, pos;
    int64_t ms;
    uint64_t tail;
    int64_t ahead_ms; /* with ahead_goes: what says that it is from later than this may go as well,
                         for the clock was wrong when it came, and that is long ago */
    bool ahead_goes;
};

/* What has come at this time, and nothing later, need not be kept. */
static inline bool keep_is_over(const struct keep *k, int64_t newest_ms)
{
    return newest_ms < k->ms || (k->ahead_goes && newest_ms > k->ahead_ms);
}

/* Where, between its first position and `end` (up to which it counts), that begins; `end`: nothing
 * of it has to be kept. Its time is looked at as a whole. *event: the ordinal there. */
uint64_t extent_keep_from(const struct extent *c, uint64_t end, const struct keep *k,
                          uint64_t *event);

#endif
