// SPDX-License-Identifier: Apache-2.0
/* num.h -- decimal numbers, strictly. */
#ifndef BASE_NUM_H
#define BASE_NUM_H

#include "base/str.h"

#include <stdint.h>

#define NUM_TEXT_MAX 20               /* digits of UINT64_MAX */
#define NUM_SAFE_MAX 9007199254740991 /* 2^53 - 1, what JavaScript can hold */

/* All of s is one or more digits and the value is at most max: 0. Otherwise ERR_SYNTAX.
 * Leading zeros are accepted; no sign, no space. */
int num_parse(struct str s, uint64_t max, uint64_t *out);

/* As num_parse, but `0` or a first digit from 1 to 9. */
int num_parse_canonical(struct str s, uint64_t max, uint64_t *out);

/* Writes the digits of v (no NUL), returns how many; out holds NUM_TEXT_MAX bytes. */
size_t num_format(uint64_t v, char *out);

/* A size such as 64, 10k, 16m, 2g (powers of 1024, either case), or a duration such as 250ms, 10s,
 * 5m, 2h, 1d (or plain 0) in milliseconds. ERR_SYNTAX for anything else, overflow included. */
int num_parse_size(struct str s, uint64_t *out);
int num_parse_duration_ms(struct str s, uint64_t *out);

#endif
