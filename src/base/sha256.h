// SPDX-License-Identifier: Apache-2.0
/* sha256.h -- SHA-256 of bytes in memory. Cannot fail: without it the process aborts. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include "base/str.h"

#include <stdint.h>

#define SHA256_SIZE 32
#define SHA256_HEX  64

void sha256(struct str bytes, uint8_t out[SHA256_SIZE]);
void sha256_hex(struct str bytes, char out[SHA256_HEX]); /* lower case, no NUL */

#endif
