// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

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
