// SPDX-License-Identifier: Apache-2.0
/* failing_memory.h -- an allocator that counts, and fails when told to. */
#ifndef TESTS_FAILING_MEMORY_H
#define TESTS_FAILING_MEMORY_H

#include "tidemark.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

struct failing_memory {
    struct tm_allocator allocator;
    size_t asked;   /* for memory, so often */
    size_t fail_at; /* this time there is none; 0: never */
    size_t held;    /* blocks */
    size_t largest; /* in bytes */
    /* What must not be left in memory that is given back, and how often it was. NULL: anything. */
    const char *secret;
    size_t leaks;
};

static inline void failing_look(struct failing_memory *m, const void *p)
{
    if (m->secret != NULL && p != NULL &&
        memmem(p, malloc_usable_size((void *)p), m->secret, strlen(m->secret)) != NULL)
        m->leaks++;
}

static inline void *failing_alloc(void *ctx, void *p, size_t n)
{
    struct failing_memory *m = ctx;
    if (++m->asked == m->fail_at)
        return NULL;
    if (n > m->largest)
        m->largest = n;
    failing_look(m, p); /* it may move, and leave a copy */
    void *q = realloc(p, n);
    if (p == NULL && q != NULL)
        m->held++;
    return q;
}

static inline void failing_free(void *ctx, void *p)
{
    struct failing_memory *m = ctx;
    if (p != NULL)
        m->held--;
    failing_look(m, p);
    free(p);
}

static inline void failing_init(struct failing_memory *m)
{
    *m = (struct failing_memory){.allocator = {m, failing_alloc, failing_free}};
}

#endif
