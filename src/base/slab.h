// SPDX-License-Identifier: Apache-2.0
/* slab.h -- memory for many objects of one size, in pages of their own.
 *
 * What malloc has given is rarely given back to the system: something that lives on lies between
 * what was freed. A page goes back when nothing of it is in use any more. There is no overhead for
 * each object. Zero-initialised is empty. One thread only.
 *
 * Under AddressSanitizer objects come from malloc, which finds those that are used after their
 * end. */
#ifndef BASE_SLAB_H
#define BASE_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLAB_PAGE ((size_t)64 * 1024)

struct slab {
    size_t size;            /* of an object; set by the first slab_alloc */
    struct slab_page *open; /* with room; NULL: none */
    struct slab_page
        *spare; /* one that is empty, so that the next object need not ask the system */
    size_t pages;
    bool paged; /* for tests: pages, whatever the build */
};

/* Always the same size. Aligned to 8 bytes, and to 16 if the size is a multiple of that. */
void *slab_alloc(struct slab *s, size_t size);
void *slab_zalloc(struct slab *s, size_t size);
void slab_free(struct slab *s, void *object);

/* Nothing is in use any more. */
void slab_deinit(struct slab *s);

#endif
