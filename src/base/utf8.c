// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

/* Bytes of the character that this byte begins; 0: it begins none. */
static size_t length_of(unsigned char c)
{
    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf)
        return 2;
    if (c >= 0xe0 && c <= 0xef)
        return 3;
    return c >= 0xf0 && c <= 0xf4 ? 4 : 0;
}

/* The first two bytes together rule out overlong forms, surrogates and too large values. */
static bool second_fits(unsigned char first, unsigned char second)
{
    unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    return second >= low && second <= high;
}

bool utf8_valid(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    for (size_t i = 0; i < s.n;) {
        size_t n = length_of(p[i]);
        if (n == 0 || n > s.n - i || (n > 1 && !second_fits(p[i], p[i + 1])))
            return false;
        for (size_t k = 2; k < n; k++)
            if ((p[i + k] & 0xc0) != 0x80)
                return false;
        i += n;
    }
    return true;
}

size_t utf8_incomplete_tail(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    for (size_t back = 1; back <= 3 && back <= s.n; back++) {
        unsigned char c = p[s.n - back];
        if ((c & 0xc0) == 0x80)
            continue; /* inside a character: look for its first byte */
        size_t n = length_of(c);
        bool fits = back == 1 || (n > 1 && second_fits(c, p[s.n - back + 1]));
        return n > back && fits ? back : 0;
    }
    return 0;
}
