// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK_BYTES 2048
#define ALIGN       _Alignof(max_align_t)

struct arena_chunk {
    struct arena_chunk *next;
    _Alignas(max_align_t) char bytes[];
};

void arena_deinit(struct arena *a)
{
    for (struct arena_chunk *c = a->chunks, *next; c != NULL; c = next) {
        next = c->next;
        free(c);
    }
    *a = (struct arena){0};
}

void *arena_alloc(struct arena *a, size_t n)
{
    n = (n + ALIGN - 1) / ALIGN * ALIGN;
    if ((size_t)(a->end - a->at) < n) {
        size_t size = n > CHUNK_BYTES ? n : CHUNK_BYTES;
        struct arena_chunk *c = mem_alloc(sizeof *c + size);
        c->next = a->chunks;
        a->chunks = c;
        a->at = c->bytes;
        a->end = c->bytes + size;
    }
    void *p = a->at;
    a->at += n;
    return p;
}

struct str arena_dup(struct arena *a, struct str s)
{
    if (s.n == 0)
        return s;
    return str_of(memcpy(arena_alloc(a, s.n), s.p, s.n), s.n);
}

struct str arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return str_of(p, (size_t)n);
}
