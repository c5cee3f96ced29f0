// SPDX-License-Identifier: Apache-2.0
/* pack.h -- small binary records: numbers of 1 to 10 bytes (LEB128) and texts with their length. */
#ifndef BASE_PACK_H
#define BASE_PACK_H

#include "base/buf.h"

void pack_u64(struct buf *out, uint64_t v);
void pack_i64(struct buf *out, int64_t v); /* small values of either sign stay short */
void pack_str(struct buf *out, struct str s);
/* How much each of n growing numbers is above the one before it, the first above 0. */
void pack_steps(struct buf *out, const uint32_t *numbers, size_t n);

/* Reads what was packed. The first thing that does not fit sets err (ERR_CORRUPT); from then on all
 * reads give zero or empty. Texts are slices of the input. */
struct unpack {
    struct str rest;
    int err;
};

uint64_t unpack_u64(struct unpack *u);
uint64_t unpack_u64_max(struct unpack *u, uint64_t max); /* larger: ERR_CORRUPT */
int64_t unpack_i64(struct unpack *u);
struct str unpack_str(struct unpack *u);
bool unpack_bool(struct unpack *u); /* 0 or 1 */

/* 0 if all of it was read without an error. */
int unpack_end(const struct unpack *u);

#endif
