// SPDX-License-Identifier: Apache-2.0
/* pattern.h -- names that a grant is for.
 *
 *     pattern = segment *("/" segment)      at most ACCESS_PATTERN_MAX bytes
 *     segment = "*"           any one segment
 *             | "**"          any number of segments, none included; the last segment only
 *             | "{" claim "}" the value of a claim, put in when the principal is known
 *             | literal       these bytes; no `*`, `{` or `}` in it, neither `.` nor `..`
 *
 * Bytes are compared as they are: no case, no Unicode forms, no second decoding. A wildcard stands
 * for ordinary segments alone: never for an empty one, `.` or `..`, and in the first place never
 * for one with which reserved names begin (access_reserved).
 *
 * Allow-only and without `**` in the middle, so that "is contained in" can be decided. Pure. */
#ifndef ACCESS_PATTERN_H
#define ACCESS_PATTERN_H

#include "base/str.h"

#include <stdint.h>

#define ACCESS_PATTERN_MAX 480

/* A segment that names of the server's own begin with: `.route`, `__ds`. */
bool access_reserved(struct str segment);

/* 0, or ERR_SYNTAX with a reason. templates: `{claim}` may stand in it. */
int access_pattern_check(struct str pattern, bool templates, char *reason, size_t size);

/* A root: ends in `/`, and its segments are literal, without `%`, `?` and `#`, so that it is spelt
 * in one way in URLs; the first is none that is reserved. templates: a segment may be `{claim}`. */
#define ACCESS_ROOT_MAX 128
bool access_root_valid(struct str root, bool templates);

/* Of a pattern that is good and has no templates left. */
bool access_pattern_match(struct str pattern, struct str name);

/* How a pattern can be matched without looking at its segments: its bytes before a `**`, all of
 * them if it has no wildcard, or ACCESS_PATTERN_MIXED. For whoever matches it often. */
#define ACCESS_PATTERN_MIXED SIZE_MAX
size_t access_pattern_literal(struct str pattern);
/* May `**` stand for the rest of a name? first: it is all of it. */
bool access_ordinary(struct str rest, bool first);

/* As access_pattern_match, of a pattern that is not mixed. `a/b` is before `a/b/` that `**`
 * follows, and is matched as well. */
static inline bool access_pattern_match_literal(struct str pattern, size_t literal, struct str name)
{
    if (literal == pattern.n)
        return str_eq(pattern, name);
    if (name.n + 1 == literal)
        return str_eq(str_of(pattern.p, name.n), name);
    return str_starts(name, str_of(pattern.p, literal)) &&
           access_ordinary(str_skip(name, literal), literal == 0);
}

/* Whether every name that `inner` matches is one that `outer` does. inner may be of a subscription:
 * with `**` anywhere. False also where it cannot be told. */
bool access_pattern_contains(struct str outer, struct str inner);

/* Whether it may match a name that begins with these bytes; false is sure. */
bool access_pattern_meets(struct str pattern, struct str start);

/* What every name that it matches begins with, byte for byte. */
struct str access_pattern_prefix(struct str pattern);

/* The next segment of *rest, which begins as the whole; false behind the last. */
bool access_segment_next(struct str *rest, struct str *segment);

#endif
