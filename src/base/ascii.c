// SPDX-License-Identifier: Apache-2.0
#include "base/ascii.h"

struct str ascii_trim(struct str s)
{
    while (s.n > 0 && ascii_is_white(s.p[0]))
        s = str_skip(s, 1);
    while (s.n > 0 && ascii_is_white(s.p[s.n - 1]))
        s.n--;
    return s;
}

bool ascii_is_word(struct str s, const char *others)
{
    for (size_t i = 0; i < s.n; i++)
        if (!ascii_is_alnum(s.p[i]) && (s.p[i] == '\0' || strchr(others, s.p[i]) == NULL))
            return false;
    return s.n > 0;
}

bool ascii_is_visible(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '!' || s.p[i] > '~')
            return false;
    return s.n > 0;
}

bool ascii_is_token(struct str s)
{
    return ascii_is_word(s, "!#$%&'*+-.^_`|~");
}
