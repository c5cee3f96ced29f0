// SPDX-License-Identifier: Apache-2.0
#include "feature/subscriptions/subscription_pattern.h"
#include "base/utf8.h"
#include "feature/subscriptions/subscription.h"
#include "store/store.h"

static const struct str any_one = STR_INIT("*");
static const struct str any_many = STR_INIT("**");
static const struct str reserved = STR_INIT("__ds");

struct str subscription_path(struct str path)
{
    while (path.n > 0 && path.p[0] == '/')
        path = str_skip(path, 1);
    while (path.n > 0 && path.p[path.n - 1] == '/')
        path.n--;
    return path;
}

static bool text_valid(struct str s, size_t max)
{
    if (s.n == 0 || s.n > max || !utf8_valid(s))
        return false;
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f)
            return false;
    return true;
}

bool subscription_id_valid(struct str id)
{
    return text_valid(id, SUBSCRIPTION_ID_MAX);
}

bool subscription_path_valid(struct str path)
{
    if (!text_valid(path, STORE_NAME_MAX) || subscription_path(path).n != path.n)
        return false;
    return !str_eq(str_cut(&path, '/'), reserved);
}

bool subscription_pattern_valid(struct str pattern)
{
    if (!text_valid(pattern, SUBSCRIPTION_PATTERN_MAX))
        return false;
    while (pattern.p != NULL)
        if (str_cut(&pattern, '/').n == 0)
            return false;
    return true;
}

/* The character at *i, which moves behind it. */
static char literal_char(struct str literal, size_t *i)
{
    const char *p = literal.p + *i;
    bool star = literal.n - *i >= 3 && p[0] == '%' && p[1] == '2' && (p[2] | 0x20) == 'a';
    *i += star ? 3 : 1;
    return star ? '*' : p[0];
}

static bool literal_match(struct str literal, struct str segment)
{
    size_t at = 0;
    for (size_t i = 0; i < literal.n; at++)
        if (at == segment.n || segment.p[at] != literal_char(literal, &i))
            return false;
    return at == segment.n;
}

struct str subscription_pattern_literal(struct str segment, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < segment.n;)
        out[n++] = literal_char(segment, &i);
    return str_of(out, n);
}

static bool segment_match(struct str want, struct str have)
{
    return str_eq(want, any_one) ? have.n > 0 : literal_match(want, have);
}

bool subscription_pattern_match(struct str pattern, struct str path)
{
    /* Only the last `**` seen needs to take more segments when what follows it does not fit: an
     * earlier one that took more would leave less for the same rest. So one point to go back to
     * is enough. */
    struct str back_pattern = STR_NONE, back_path = STR_NONE;
    for (;;) {
        struct str rest = path;
        struct str want = str_cut(&pattern, '/'); /* p == NULL behind the last */
        struct str have = str_cut(&rest, '/');
        if (want.p == NULL && have.p == NULL)
            return true;
        if (str_eq(want, any_many)) {
            back_pattern = pattern;
            back_path = path;
            if (pattern.p == NULL)
                return true;
        } else if (want.p != NULL && have.p != NULL && segment_match(want, have)) {
            path = rest;
        } else {
            if (back_path.p == NULL)
                return false;
            str_cut(&back_path, '/');
            pattern = back_pattern;
            path = back_path;
        }
    }
}

struct str subscription_pattern_prefix(struct str pattern)
{
    struct str rest = pattern;
    size_t n = 0;
    for (;;) {
        struct str segment = str_cut(&rest, '/');
        if (memchr(segment.p, '*', segment.n) || memchr(segment.p, '%', segment.n))
            return str_of(pattern.p, n);
        n += segment.n;
        if (rest.p == NULL || str_starts(rest, any_many)) /* which may stand for nothing */
            return str_of(pattern.p, n);
        n++;
    }
}

bool subscription_pattern_meets(struct str pattern, struct str start)
{
    struct str prefix = subscription_pattern_prefix(pattern);
    return str_starts(prefix, start) || str_starts(start, prefix);
}

struct str subscription_unrooted(struct str root, struct str name)
{
    return root.n > 0 && str_starts(name, root) ? str_skip(name, root.n) : name;
}
