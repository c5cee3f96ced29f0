// SPDX-License-Identifier: Apache-2.0
#include "access/pattern.h"
#include "base/ascii.h"
#include "base/err.h"

#include <stdio.h>

static const struct str any_one = STR_INIT("*"), any_many = STR_INIT("**");

bool access_reserved(struct str segment)
{
    static const struct str first[] = {STR_INIT(".route"), STR_INIT(".tool"), STR_INIT("sessions"),
                                       STR_INIT("__ds")};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (str_eq(first[i], segment))
            return true;
    return false;
}

/* ---- segments ---- */

/* Behind the last one *rest has p == NULL, as str_cut leaves it. */
bool access_segment_next(struct str *rest, struct str *segment)
{
    if (rest->p == NULL)
        return false;
    *segment = str_cut(rest, '/');
    return true;
}

static bool is_dots(struct str segment)
{
    return str_eq(segment, STR(".")) || str_eq(segment, STR(".."));
}

/* May a wildcard stand for it? */
static inline bool is_ordinary(struct str segment, bool first)
{
    if (segment.n == 0)
        return false;
    if (segment.p[0] != '.' && segment.p[0] != '_' && segment.p[0] != 's')
        return true; /* no name that is none begins otherwise */
    return !is_dots(segment) && !(first && access_reserved(segment));
}

/* ---- is it one? ---- */

static bool is_template(struct str s)
{
    return s.n > 2 && s.p[0] == '{' && s.p[s.n - 1] == '}' &&
           ascii_is_word(str_of(s.p + 1, s.n - 2), "-._:/");
}

static bool is_literal(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '*' || s.p[i] == '{' || s.p[i] == '}' || (unsigned char)s.p[i] <= ' ' ||
            s.p[i] == 0x7f)
            return false;
    return s.n > 0 && !is_dots(s);
}

static const char *wrong_with(struct str segment, bool last, bool templates)
{
    if (str_eq(segment, any_many))
        return last ? NULL : "`**` can only be the last segment of a pattern";
    if (str_eq(segment, any_one) || is_literal(segment))
        return NULL;
    if (is_template(segment))
        return templates ? NULL : "`{claim}` has no meaning here";
    return "a pattern's segments are literal, `*`, `{claim}`, or `**` at the end; none is empty, "
           "`.` or `..`";
}

int access_pattern_check(struct str pattern, bool templates, char *reason, size_t size)
{
    struct str rest = pattern, segment;
    const char *why = pattern.n == 0                   ? "the pattern is empty"
                      : pattern.n > ACCESS_PATTERN_MAX ? "a pattern has at most 480 bytes"
                                                       : NULL;
    while (why == NULL && access_segment_next(&rest, &segment))
        why = wrong_with(segment, rest.p == NULL, templates);
    if (why != NULL)
        snprintf(reason, size, "%s", why);
    return why == NULL ? 0 : ERR_SYNTAX;
}

static bool is_plain(struct str s)
{
    return is_literal(s) && memchr(s.p, '%', s.n) == NULL && memchr(s.p, '?', s.n) == NULL &&
           memchr(s.p, '#', s.n) == NULL;
}

bool access_root_valid(struct str root, bool templates)
{
    if (root.n < 2 || root.n > ACCESS_ROOT_MAX || root.p[root.n - 1] != '/')
        return false;
    struct str rest = str_of(root.p, root.n - 1), segment;
    bool first = true;
    while (access_segment_next(&rest, &segment)) {
        if (!is_plain(segment) && !(templates && is_template(segment)))
            return false;
        if (first && access_reserved(segment))
            return false;
        first = false;
    }
    return true;
}

/* ---- matching ---- */

size_t access_pattern_literal(struct str pattern)
{
    const char *star = pattern.n > 0 ? memchr(pattern.p, '*', pattern.n) : NULL;
    if (star == NULL)
        return pattern.n;
    size_t n = (size_t)(star - pattern.p);
    return str_eq(str_skip(pattern, n), any_many) ? n : ACCESS_PATTERN_MIXED;
}

/* Every request asks this: without str_cut. */
bool access_ordinary(struct str rest, bool first)
{
    const char *p = rest.p, *end = p != NULL ? p + rest.n : NULL;
    while (p != NULL) {
        const char *slash = p < end ? memchr(p, '/', (size_t)(end - p)) : NULL;
        if (!is_ordinary(str_of(p, (size_t)((slash != NULL ? slash : end) - p)), first))
            return false;
        p = slash != NULL ? slash + 1 : NULL;
        first = false;
    }
    return true;
}

bool access_pattern_match(struct str pattern, struct str name)
{
    struct str p = pattern, n = name, want, have;
    bool first = true;
    while (access_segment_next(&p, &want)) {
        if (str_eq(want, any_many))
            return access_ordinary(n, first);
        if (!access_segment_next(&n, &have))
            return false;
        if (str_eq(want, any_one) ? !is_ordinary(have, first) : !str_eq(want, have))
            return false;
        first = false;
    }
    return n.p == NULL;
}

/* ---- containment ---- */

static bool segment_contains(struct str outer, struct str inner, bool first)
{
    if (str_eq(inner, any_many))
        return false;
    if (!str_eq(outer, any_one))
        return str_eq(outer, inner);
    return str_eq(inner, any_one) || is_ordinary(inner, first);
}

/* What `**` of the outer one has to stand for. Wildcards of the inner are ordinary by themselves.
 */
static bool rest_contained(struct str rest, bool first)
{
    struct str segment;
    while (access_segment_next(&rest, &segment)) {
        if (!str_eq(segment, any_one) && !str_eq(segment, any_many) && !is_ordinary(segment, first))
            return false;
        first = false;
    }
    return true;
}

bool access_pattern_contains(struct str outer, struct str inner)
{
    struct str o = outer, i = inner, want, have;
    bool first = true;
    while (access_segment_next(&o, &want)) {
        if (str_eq(want, any_many))
            return rest_contained(i, first);
        if (!access_segment_next(&i, &have) || !segment_contains(want, have, first))
            return false;
        first = false;
    }
    return i.p == NULL;
}

/* ---- beginnings ---- */

struct str access_pattern_prefix(struct str pattern)
{
    struct str rest = pattern, segment;
    const char *start = rest.p, *end = start;
    while (access_segment_next(&rest, &segment)) {
        if (str_eq(segment, any_one))
            break;
        if (str_eq(segment, any_many)) { /* what is before it is matched as well */
            end -= end > start ? 1 : 0;
            break;
        }
        end = segment.p + segment.n + (rest.p != NULL ? 1 : 0);
    }
    return str_of(start, (size_t)(end - start));
}

bool access_pattern_meets(struct str pattern, struct str start)
{
    struct str p = pattern, s = start, want, have;
    while (access_segment_next(&p, &want) && access_segment_next(&s, &have)) {
        bool open = s.p == NULL; /* `have` may go on */
        if (str_eq(want, any_many))
            return true;
        if (str_eq(want, any_one))
            continue;
        if (open ? !str_starts(want, have) : !str_eq(want, have))
            return false;
    }
    return s.p == NULL;
}
