// SPDX-License-Identifier: Apache-2.0
/* heap.h -- a binary heap of items that are part of something else; the one with the lowest key
 * comes first. An item can be moved and removed wherever it stands. */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include <stdint.h>

struct heap_item {
    int64_t key;
    uint32_t place; /* from 1 on; 0: it is in no heap. Zero-initialised is so */
};

/* Zero-initialised is empty. */
struct heap {
    struct heap_item **items;
    uint32_t n, cap;
};

void heap_deinit(struct heap *h); /* items are the caller's */

/* Puts it in, or where it belongs with another key than so far. */
void heap_put(struct heap *h, struct heap_item *i, int64_t key);

/* Harmless on an item that is in no heap. */
void heap_remove(struct heap *h, struct heap_item *i);

/* NULL: it is empty. */
static inline struct heap_item *heap_first(const struct heap *h)
{
    return h->n == 0 ? (struct heap_item *)0 : h->items[0];
}

#endif
