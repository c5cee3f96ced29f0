// SPDX-License-Identifier: Apache-2.0
#include "base/buf.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/num.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void buf_deinit(struct buf *b)
{
    if (b->cap < BUF_MAPPED)
        free(b->p);
    else
        mem_unmap(b->p, b->cap);
    *b = (struct buf){0};
}

static char *buf_grow(struct buf *b, size_t cap)
{
    if (cap < BUF_MAPPED)
        return mem_realloc(b->p, cap);
    if (b->cap >= BUF_MAPPED)
        return mem_remap(b->p, b->cap, cap);
    char *p = mem_map(cap);
    if (b->n > 0)
        memcpy(p, b->p, b->n);
    free(b->p);
    return p;
}

char *buf_reserve(struct buf *b, size_t n)
{
    if (b->cap - b->n < n || b->p == NULL) {
        must(n <= SIZE_MAX / 4); /* or doubling would wrap */
        size_t cap = b->cap ? b->cap * 2 : 128;
        while (cap - b->n < n)
            cap *= 2;
        b->p = buf_grow(b, cap);
        b->cap = cap;
    }
    return b->p + b->n;
}

void buf_put(struct buf *b, struct str s)
{
    if (s.n == 0)
        return;
    memcpy(buf_reserve(b, s.n), s.p, s.n);
    b->n += s.n;
}

void buf_putc(struct buf *b, char c)
{
    *buf_reserve(b, 1) = c;
    b->n++;
}

void buf_put_u64(struct buf *b, uint64_t v)
{
    b->n += num_format(v, buf_reserve(b, NUM_TEXT_MAX));
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    vsnprintf(buf_reserve(b, (size_t)n + 1), (size_t)n + 1, fmt, again);
    b->n += (size_t)n;
    va_end(again);
    va_end(ap);
}
