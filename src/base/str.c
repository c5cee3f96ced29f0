// SPDX-License-Identifier: Apache-2.0
#include "base/str.h"
#include "base/ascii_char.h"

#include <stdint.h>

static bool same_8(const char *a, const char *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x == y;
}

bool str_eq_nocase_n(const char *a, const char *b, size_t n)
{
    if (n >= 8 && n <= 16 && same_8(a, b) && same_8(a + n - 8, b + n - 8))
        return true; /* most headers have such a name, and are spelt alike */
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i] && ascii_lower(a[i]) != ascii_lower(b[i]))
            return false;
    return true;
}

int str_cmp(struct str a, struct str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n == 0 ? 0 : memcmp(a.p, b.p, n);
    if (order != 0)
        return order;
    return (a.n > b.n) - (a.n < b.n);
}

struct str str_trim(struct str s)
{
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t'))
        s = str_skip(s, 1);
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

struct str str_cut(struct str *rest, char sep)
{
    struct str all = *rest;
    const char *at = all.n == 0 ? NULL : memchr(all.p, sep, all.n);
    if (at == NULL) {
        *rest = STR_NONE;
        return all;
    }
    size_t n = (size_t)(at - all.p);
    *rest = str_skip(all, n + 1);
    return str_of(all.p, n);
}
