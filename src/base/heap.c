// SPDX-License-Identifier: Apache-2.0
#include "base/heap.h"
#include "base/mem.h"

#include <stdlib.h>

void heap_deinit(struct heap *h)
{
    free(h->items);
    *h = (struct heap){0};
}

static void set_place(struct heap *h, uint32_t at, struct heap_item *i)
{
    h->items[at] = i;
    i->place = at + 1;
}

static void sift_down(struct heap *h, uint32_t at)
{
    struct heap_item *i = h->items[at];
    for (uint32_t child; (child = 2 * at + 1) < h->n; at = child) {
        if (child + 1 < h->n && h->items[child + 1]->key < h->items[child]->key)
            child++;
        if (h->items[child]->key >= i->key)
            break;
        set_place(h, at, h->items[child]);
    }
    set_place(h, at, i);
}

static void sift_up(struct heap *h, uint32_t at)
{
    struct heap_item *i = h->items[at];
    for (; at > 0 && i->key < h->items[(at - 1) / 2]->key; at = (at - 1) / 2)
        set_place(h, at, h->items[(at - 1) / 2]);
    set_place(h, at, i);
}

static void settle(struct heap *h, struct heap_item *i)
{
    sift_up(h, i->place - 1);
    sift_down(h, i->place - 1);
}

void heap_put(struct heap *h, struct heap_item *i, int64_t key)
{
    i->key = key;
    if (i->place == 0) {
        size_t cap = h->cap;
        h->items = mem_grow(h->items, h->n, &cap, sizeof(struct heap_item *));
        h->cap = (uint32_t)cap;
        set_place(h, h->n++, i);
    }
    settle(h, i);
}

void heap_remove(struct heap *h, struct heap_item *i)
{
    if (i->place == 0)
        return;
    struct heap_item *last = h->items[--h->n];
    if (last != i) {
        set_place(h, i->place - 1, last);
        settle(h, last);
    }
    i->place = 0;
}
