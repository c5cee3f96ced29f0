// SPDX-License-Identifier: Apache-2.0
#include "base/ranges.h"
#include "base/err.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void ranges_init(struct ranges *r, size_t max)
{
    *r = (struct ranges){.max = max};
}

void ranges_deinit(struct ranges *r)
{
    free(r->items);
    ranges_init(r, r->max);
}

/* How many ranges begin at or before v: the one that could hold it is the last of them. */
static size_t ranges_find(const struct ranges *r, uint32_t v)
{
    if (r->n == 0 || v >= r->items[r->n - 1].first) /* numbers in order end here */
        return r->n;
    size_t low = 0, high = r->n - 1; /* of these, and the last begins behind v */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->items[middle].first <= v)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool ranges_contains(const struct ranges *r, uint32_t v)
{
    size_t i = ranges_find(r, v);
    return i > 0 && v <= r->items[i - 1].last;
}

static int insert(struct ranges *r, size_t at, uint32_t v)
{
    if (r->n >= r->max)
        return ERR_LIMIT;
    if (r->n == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 4;
        r->items = mem_realloc(r->items, cap * sizeof *r->items);
        r->cap = cap;
    }
    memmove(r->items + at + 1, r->items + at, (r->n - at) * sizeof *r->items);
    r->items[at] = (struct range){v, v};
    r->n++;
    return 1;
}

/* The last hole between two ranges has been filled. */
static void merge(struct ranges *r, size_t left)
{
    r->items[left].last = r->items[left + 1].last;
    memmove(r->items + left + 1, r->items + left + 2, (r->n - left - 2) * sizeof *r->items);
    r->n--;
}

int ranges_add(struct ranges *r, uint32_t v)
{
    size_t i = ranges_find(r, v);
    struct range *before = i > 0 ? &r->items[i - 1] : NULL;
    struct range *behind = i < r->n ? &r->items[i] : NULL;
    if (before && v <= before->last)
        return 0;
    /* v is above before->last and below behind->first, so neither sum can wrap. */
    bool joins_before = before && v == before->last + 1;
    bool joins_behind = behind && v + 1 == behind->first;
    if (!joins_before && !joins_behind)
        return insert(r, i, v);
    if (joins_before && joins_behind)
        merge(r, i - 1);
    else if (joins_before)
        before->last = v;
    else
        behind->first = v;
    return 1;
}
