// SPDX-License-Identifier: Apache-2.0
/* block.h -- bytes shared by reference count.
 *
 * Bytes below n never change; the owner that filled a block may add behind n up to cap. A slice
 * lends a run of them; whoever keeps a slice past the call that gave it holds a reference. Loop
 * thread only. */
#ifndef BASE_BLOCK_H
#define BASE_BLOCK_H

#include "base/str.h"

#include <stdint.h>

struct block {
    uint32_t refs;
    uint32_t cap;
    uint32_t n;
    char bytes[];
};

struct slice {
    struct str bytes;
    struct block *owner; /* NULL: static bytes, no reference needed */
};

struct block *block_new(uint32_t cap); /* refs == 1, n == 0 */
struct block *block_of(struct str bytes);
struct block *block_ref(struct block *b);
void block_unref(struct block *b); /* NULL is allowed */

static inline struct slice slice_of(struct block *b, size_t from, size_t to)
{
    return (struct slice){str_of(b->bytes + from, to - from), b};
}

static inline struct slice slice_static(struct str s)
{
    return (struct slice){s, NULL};
}

#endif
