// SPDX-License-Identifier: Apache-2.0
#include "base/heap.h"
#include "base/buf.h"
#include "base/mem.h"

#define ITEM sizeof(struct heap_item *)

/* Small heaps are many, and have as little room as they can; a large one is not copied when it
 * grows. */
static struct buf heap_memory(const struct heap *h)
{
    return (struct buf){(char *)h->items, h->n * ITEM, h->cap * ITEM};
}

void heap_deinit(struct heap *h)
{
    struct buf memory = heap_memory(h);
    buf_deinit(&memory);
    *h = (struct heap){0};
}

static void heap_make_room(struct heap *h)
{
    size_t cap = h->cap;
    if (h->n < cap)
        return;
    if (2 * cap * ITEM < BUF_MAPPED) {
        h->items = mem_grow(h->items, h->n, &cap, ITEM);
    } else {
        struct buf memory = heap_memory(h);
        buf_reserve(&memory, ITEM);
        h->items = (struct heap_item **)(void *)memory.p;
        cap = memory.cap / ITEM;
    }
    h->cap = (uint32_t)cap;
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
        heap_make_room(h);
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
