// SPDX-License-Identifier: Apache-2.0
/* ranges.h -- a set of numbers that come mostly in order, kept as sorted ranges.
 *
 * Numbers without holes are one range however many there are. What holes may cost is capped, since
 * a peer chooses the numbers. */
#ifndef BASE_RANGES_H
#define BASE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* first to last, both included. */
struct range {
    uint32_t first, last;
};

struct ranges {
    struct range *items; /* growing, with at least one number missing between any two */
    size_t n, cap;
    size_t max; /* n is never more */
};

void ranges_init(struct ranges *r, size_t max);
void ranges_deinit(struct ranges *r); /* empty again, with the same max; may be called twice */

/* 1: added. 0: it was there. ERR_LIMIT: it would be a range of its own and there are `max` already;
 * nothing has changed, and numbers that touch a range can still be added. */
int ranges_add(struct ranges *r, uint32_t v);

bool ranges_contains(const struct ranges *r, uint32_t v);

#endif
