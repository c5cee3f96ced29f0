// SPDX-License-Identifier: Apache-2.0
/* budget.h -- memory for stored bytes, shared by a cache and by those who need what they hold.
 *
 * What is pinned cannot be given back before its time; the cache takes the rest, and gives way as
 * pins grow. Loop thread only. */
#ifndef BASE_BUDGET_H
#define BASE_BUDGET_H

#include <stddef.h>

struct budget {
    size_t max;
    size_t pinned; /* may be more than max: one thing larger than that is let through */
    void (*give_way)(void *ctx); /* the cache's; NULL: there is none */
    void *ctx;
};

/* What the cache may take. */
static inline size_t budget_rest(const struct budget *b)
{
    return b->pinned < b->max ? b->max - b->pinned : 0;
}

static inline void budget_pin(struct budget *b, size_t n)
{
    b->pinned += n;
    if (b->give_way != NULL)
        b->give_way(b->ctx);
}

static inline void budget_unpin(struct budget *b, size_t n)
{
    b->pinned -= n;
}

#endif
