// SPDX-License-Identifier: Apache-2.0
/* fuzz_grant.c -- grants, against a matcher that was written without looking at ours.
 *
 * The input is lines: a grant of a config file, a pattern as a subscription has it, then names.
 * Whatever is granted on a name must be granted by the naive matcher too, and the other way round.
 * A pattern that is said to be contained in the grant must match no name outside of it. And what a
 * beginning rules out must not match. */
#include "access/grant.h"
#include "access/pattern.h"
#include "base/buf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "fuzz_grant: %s\n", what);
        abort();
    }
}

/* ---- the naive matcher: segments in an array, one case after the other ---- */

#define SEGMENTS_MAX 512

struct segments {
    struct str of[SEGMENTS_MAX];
    size_t n;
};

static void split(struct str text, struct segments *out)
{
    out->n = 0;
    size_t start = 0;
    for (size_t i = 0; i <= text.n; i++)
        if (i == text.n || text.p[i] == '/') {
            out->of[out->n++] = str_of(text.p + start, i - start);
            start = i + 1;
        }
}

static bool is(struct str s, const char *word)
{
    return s.n == strlen(word) && memcmp(s.p, word, s.n) == 0;
}

static bool wild_may_be(struct str s, size_t at)
{
    if (s.n == 0 || is(s, ".") || is(s, ".."))
        return false;
    return at > 0 || (!is(s, ".route") && !is(s, ".tool") && !is(s, "sessions") && !is(s, "__ds"));
}

/* `**` may stand anywhere, as in subscriptions. */
static bool naive(const struct segments *p, size_t pi, const struct segments *s, size_t si)
{
    if (pi == p->n)
        return si == s->n;
    if (is(p->of[pi], "**"))
        return naive(p, pi + 1, s, si) ||
               (si < s->n && wild_may_be(s->of[si], si) && naive(p, pi, s, si + 1));
    if (si == s->n)
        return false;
    if (is(p->of[pi], "*"))
        return wild_may_be(s->of[si], si) && naive(p, pi + 1, s, si + 1);
    return str_eq(p->of[pi], s->of[si]) && naive(p, pi + 1, s, si + 1);
}

static bool naive_match(struct str pattern, struct str name)
{
    static struct segments p, s;
    split(pattern, &p);
    split(name, &s);
    return naive(&p, 0, &s, 0);
}

/* ---- */

static size_t count_stars(struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i + 1 < s.n; i++)
        n += s.p[i] == '*' && s.p[i + 1] == '*';
    return n;
}

static void check_name(const struct access_grants *g, struct str inner, struct str name)
{
    for (size_t i = 0; i < g->n; i++) {
        const struct access_grant *one = &g->items[i];
        if (one->kind != ACCESS_STREAM)
            continue;
        bool ours = access_pattern_match(one->pattern, name);
        check(ours == naive_match(one->pattern, name), "it matches otherwise");
        struct access_grants alone = {.items = (struct access_grant *)one, .n = 1};
        if ((one->verbs & ACCESS_MAY(READ)) != 0)
            check(access_grants_allow(&alone, ACCESS_VERB_READ, ACCESS_STREAM, name) == ours,
                  "the quick way is another");
        if (inner.n > 0 && count_stars(inner) <= 4 &&
            access_pattern_contains(one->pattern, inner) && naive_match(inner, name))
            check(ours, "a pattern that is contained matches more");
        for (size_t n = 0; ours && n <= name.n; n++)
            check(access_pattern_meets(one->pattern, str_of(name.p, n)),
                  "a beginning is ruled out");
        check(!ours || str_starts(name, access_pattern_prefix(one->pattern)),
              "it begins otherwise");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str rest = str_of((const char *)data, n);
    struct arena a = {0};
    struct access_grants g = {0}, expanded = {0};
    char why[256];
    if (n == 0 || n > 1000)
        return 0;
    struct str line = str_cut(&rest, '\n');
    if (access_grants_add_line(&g, &a, line, why, sizeof why) == 0) {
        json_t *claims = json_pack("{s:s, s:s, s:i}", "sub", "42", "tenant", "*", "n", 7);
        access_grants_expand(&g, claims, &a, &expanded);
        json_decref(claims);
        struct str inner = rest.p != NULL ? str_cut(&rest, '\n') : STR_NONE;
        while (rest.p != NULL)
            check_name(&expanded, inner, str_cut(&rest, '\n'));
    }
    arena_deinit(&a);
    return 0;
}
