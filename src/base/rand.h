// SPDX-License-Identifier: Apache-2.0
/* rand.h -- random bytes from the kernel; never fails (aborts if the kernel cannot give any). */
#ifndef BASE_RAND_H
#define BASE_RAND_H

#include <stddef.h>
#include <stdint.h>

void rand_bytes(void *out, size_t n);
uint64_t rand_u64(void);

/* A UUID (version 4) in lower case, with a NUL behind it. */
#define RAND_UUID 36
void rand_uuid(char out[RAND_UUID + 1]);

#endif
