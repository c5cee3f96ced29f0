// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "base/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static void *checked(void *p, size_t n)
{
    if (p == NULL && n > 0) {
        fprintf(stderr, "tidemark: out of memory (%zu bytes)\n", n);
        abort();
    }
    return p;
}

void *mem_alloc(size_t n)
{
    return checked(malloc(n), n);
}

void *mem_zalloc(size_t n)
{
    return checked(calloc(1, n), n);
}

void *mem_realloc(void *p, size_t n)
{
    return checked(realloc(p, n), n);
}

void *mem_grow(void *items, size_t n, size_t *cap, size_t item_bytes)
{
    if (n < *cap)
        return items;
    *cap = *cap > 0 ? *cap * 2 : 8;
    return mem_realloc(items, *cap * item_bytes);
}

void *mem_map(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return checked(p == MAP_FAILED ? NULL : p, n);
}

void mem_unmap(void *p, size_t n)
{
    must(munmap(p, n) == 0);
}

void mem_release(void *p, size_t n)
{
    must(madvise(p, n, MADV_DONTNEED) == 0);
}
