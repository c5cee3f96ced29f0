// SPDX-License-Identifier: Apache-2.0
/* order.h -- items in the byte order of their keys: a B+tree of pointers.
 *
 * The key is read through the item: it must live as long as the item is in here, and stay what it
 * is. An insert, a removal and a seek cost O(log n); the next item costs O(1). One item takes about
 * 16 bytes, at the worst 64. */
#ifndef BASE_ORDER_H
#define BASE_ORDER_H

#include "base/str.h"

#include <stdint.h>

struct order_node;

struct order {
    struct order_node *root; /* NULL: empty */
    struct str (*key)(const void *item);
    size_t n;
    uint64_t changes; /* inserts and removals so far */
};

void order_init(struct order *o, struct str (*key)(const void *item));
void order_deinit(struct order *o); /* items are the caller's */

void order_put(struct order *o, void *item);    /* no item has that key */
void order_remove(struct order *o, void *item); /* it is there */

/* A place among the items. Who changes the order has to seek again: a change leaves no place
 * valid, and order_next refuses to go on. */
struct order_place {
    const struct order *order;
    struct order_node *leaf;
    uint32_t at;
    uint64_t changes;
};

/* The first item whose key is not before this one, and its place; NULL: there is none. */
void *order_seek(const struct order *o, struct str key, struct order_place *out);
void *order_next(struct order_place *p); /* NULL: that was the last */

#endif
