// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <string.h>

/* Where the first byte at or behind i is that is not ASCII, or a few bytes before it. */
static size_t skip_ascii(struct str s, size_t i)
{
    uint64_t eight;
    while (s.n - i >= sizeof eight) {
        memcpy(&eight, s.p + i, sizeof eight);
        if ((eight & 0x8080808080808080) != 0)
            break;
        i += sizeof eight;
    }
    return i;
}

bool utf8_valid(struct str s)
{
    for (size_t i = skip_ascii(s, 0); i < s.n;) {
        size_t n = (unsigned char)s.p[i] < 0x80 ? 1 : utf8_length(s.p + i, s.n - i);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

/* Bytes of the character that this byte, which is not ASCII, begins; 0: it begins none. */
static size_t length_of(unsigned char c)
{
    if (c < 0xc2 || c > 0xf4)
        return 0;
    return c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

size_t utf8_incomplete_tail(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    for (size_t back = 1; back <= 3 && back <= s.n; back++) {
        unsigned char c = p[s.n - back];
        if ((c & 0xc0) == 0x80)
            continue; /* inside a character: look for its first byte */
        bool fits = back == 1 || utf8_second_fits(c, p[s.n - back + 1]);
        return length_of(c) > back && fits ? back : 0;
    }
    return 0;
}

size_t utf8_encode(uint32_t point, char out[4])
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t n = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; point >>= 6)
        out[i] = (char)(0x80 | (point & 0x3f));
    out[0] = (char)(lead[n] | point);
    return n;
}
