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
    free(b->p);
    *b = (struct buf){0};
}

char *buf_reserve(struct buf *b, size_t n)
{
    if (b->cap - b->n < n || b->p == NULL) {
        must(n <= SIZE_MAX / 4); /* or doubling would wrap */
        size_t cap = b->cap ? b->cap * 2 : 128;
        while (cap - b->n < n)
            cap *= 2;
        b->p = mem_realloc(b->p, cap);
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
