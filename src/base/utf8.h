// SPDX-License-Identifier: Apache-2.0
/* utf8.h -- is it UTF-8, and does it stop in the middle of a character? Strict: no overlong forms,
 * no surrogates, nothing above U+10FFFF. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/str.h"

#include <stdint.h>

/* The first byte narrows the second, which shuts out what is not allowed. */
static inline bool utf8_second_fits(unsigned char first, unsigned char second)
{
    unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    return second >= low && second <= high;
}

/* Bytes of the character that is not ASCII at the front; 0: there is none. */
static inline size_t utf8_length(const char *text, size_t left)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0xc2 || p[0] > 0xf4 || left < 2 || !utf8_second_fits(p[0], p[1]))
        return 0;
    if (p[0] < 0xe0)
        return 2;
    if (left < 3 || (p[2] & 0xc0) != 0x80)
        return 0;
    if (p[0] < 0xf0)
        return 3;
    return left >= 4 && (p[3] & 0xc0) == 0x80 ? 4 : 0;
}

bool utf8_valid(struct str s);

/* How many bytes at the end begin a character that more bytes could complete: 0 to 3. */
size_t utf8_incomplete_tail(struct str s);

/* Writes the code point, at most 0x10ffff; returns how many bytes it took. A surrogate becomes the
 * three bytes that UTF-8 would have for it if it had any. */
size_t utf8_encode(uint32_t point, char out[4]);

#endif
