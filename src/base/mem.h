// SPDX-License-Identifier: Apache-2.0
/* mem.h -- allocation that cannot fail quietly.
 *
 * Sizes that a peer controls are capped before they come here, so that running out of memory
 * means the machine is out of it: the process says so and aborts, and what was acknowledged is
 * safe in the store. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>

void *mem_alloc(size_t n);
void *mem_zalloc(size_t n);
void *mem_realloc(void *p, size_t n);

/* Zeroed pages of their own, for what is large: they cost nothing before they are used. What is
 * released, whole pages, goes back to the system, and is zeros from then on. */
void *mem_map(size_t n);
void mem_unmap(void *p, size_t n);
void mem_release(void *p, size_t n);

/* Makes room for one more in an array with n of cap items, of so many bytes each; where there is
 * none it has twice the room afterwards. The array, perhaps elsewhere. */
void *mem_grow(void *items, size_t n, size_t *cap, size_t item_bytes);

/* The struct that contains this member. */
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#endif
