// SPDX-License-Identifier: Apache-2.0
#include "http/path_pattern.h"
#include "base/ascii.h"
#include "base/err.h"

#include <stdio.h>

bool path_pattern_next(struct str *text, struct str *before, struct str *name)
{
    struct str rest = *text;
    *before = str_cut(&rest, '{');
    if (rest.p == NULL)
        return false;
    *name = str_cut(&rest, '}');
    *text = rest;
    return rest.p != NULL;
}

/* ---- is it one? ---- */

static bool is_given_before(struct str pattern, const char *end, struct str name)
{
    struct str before, other, text = str_of(pattern.p, (size_t)(end - pattern.p));
    while (path_pattern_next(&text, &before, &other))
        if (str_eq(other, name))
            return true;
    return false;
}

static const char *segment_fault(struct str pattern, struct str segment)
{
    struct str before, name = STR_NONE, rest = segment;
    if (!path_pattern_next(&rest, &before, &name))
        return name.p != NULL || memchr(segment.p, '}', segment.n) != NULL
                   ? "a `{` or `}` has no other"
                   : NULL;
    if (memchr(rest.p, '{', rest.n) != NULL)
        return "a segment has one parameter at most";
    if (memchr(before.p, '}', before.n) != NULL || memchr(rest.p, '}', rest.n) != NULL)
        return "a `{` or `}` has no other";
    if (!ascii_is_word(name, "_"))
        return "the name of a parameter is made of letters, digits and _";
    return is_given_before(pattern, segment.p, name) ? "two parameters have one name" : NULL;
}

int path_pattern_check(struct str pattern, char *reason, size_t size)
{
    for (struct str rest = pattern; rest.p != NULL;) {
        struct str segment = str_cut(&rest, '/');
        const char *fault = segment.n > 0 ? segment_fault(pattern, segment) : NULL;
        if (fault == NULL)
            continue;
        snprintf(reason, size, "%s", fault);
        return ERR_SYNTAX;
    }
    return 0;
}

bool path_pattern_has_parameters(struct str pattern)
{
    return pattern.n > 0 && memchr(pattern.p, '{', pattern.n) != NULL;
}

size_t path_pattern_literal(struct str pattern)
{
    struct str before, name;
    size_t n = 0;
    while (path_pattern_next(&pattern, &before, &name))
        n += before.n;
    return n + before.n;
}

/* ---- matching ---- */

/* *value: what the segment's parameter stands for; left alone where there is none. */
static bool segment_fits(struct str pattern, struct str segment, struct str *name,
                         struct str *value)
{
    struct str before;
    *name = STR_NONE;
    if (!path_pattern_next(&pattern, &before, name))
        return str_eq(before, segment);
    if (segment.n <= before.n + pattern.n || !str_starts(segment, before) ||
        !str_ends(segment, pattern))
        return false;
    *value = str_of(segment.p + before.n, segment.n - before.n - pattern.n);
    return true;
}

size_t path_pattern_covers(struct str pattern, struct str path)
{
    struct str rest = path, segment = STR_NONE, name, value;
    while (pattern.p != NULL) {
        struct str want = str_cut(&pattern, '/');
        if (rest.p == NULL)
            return 0;
        segment = str_cut(&rest, '/');
        if (!segment_fits(want, segment, &name, &value))
            return 0;
    }
    return (size_t)(segment.p + segment.n - path.p);
}

bool path_pattern_value(struct str pattern, struct str path, struct str name, struct str *value)
{
    while (pattern.p != NULL && path.p != NULL) {
        struct str found, want = str_cut(&pattern, '/');
        if (!segment_fits(want, str_cut(&path, '/'), &found, value))
            return false;
        if (found.p != NULL && str_eq(found, name))
            return true;
    }
    return false;
}
