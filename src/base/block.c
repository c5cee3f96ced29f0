// SPDX-License-Identifier: Apache-2.0
#include "base/block.h"
#include "base/mem.h"
#include "base/must.h"

#include <stdlib.h>

struct block *block_new(uint32_t cap)
{
    struct block *b = mem_alloc(sizeof *b + cap);
    *b = (struct block){.refs = 1, .cap = cap};
    return b;
}

struct block *block_of(struct str bytes)
{
    must(bytes.n <= UINT32_MAX);
    struct block *b = block_new((uint32_t)bytes.n);
    if (bytes.n > 0)
        memcpy(b->bytes, bytes.p, bytes.n);
    b->n = (uint32_t)bytes.n;
    return b;
}

struct block *block_ref(struct block *b)
{
    if (b != NULL)
        b->refs++;
    return b;
}

void block_unref(struct block *b)
{
    if (b == NULL)
        return;
    must(b->refs > 0);
    if (--b->refs == 0)
        free(b);
}
