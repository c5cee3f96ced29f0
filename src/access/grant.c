// SPDX-License-Identifier: Apache-2.0
#include "access/grant.h"
#include "access/pattern.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/suggest.h"

#include <stdarg.h>

static int grant_wrong(char *reason, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int grant_wrong(char *reason, size_t size, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(reason, size, fmt, args);
    va_end(args);
    return ERR_SYNTAX;
}

/* ---- limits ---- */

static const struct {
    struct str word;
    size_t at;
} limit_rows[] = {
#define X(name, word, what) {STR_INIT(word), offsetof(struct access_limits, name)},
    ACCESS_LIMITS(X)
#undef X
};
#define N_LIMITS (sizeof limit_rows / sizeof *limit_rows)

static uint64_t *limit_at(struct access_limits *l, size_t i)
{
    return (uint64_t *)((char *)l + limit_rows[i].at);
}

static uint64_t limit_of(const struct access_limits *l, size_t i)
{
    return *(const uint64_t *)((const char *)l + limit_rows[i].at);
}

void access_limits_min(struct access_limits *into, const struct access_limits *other)
{
    for (size_t i = 0; i < N_LIMITS; i++) {
        uint64_t *mine = limit_at(into, i), theirs = limit_of(other, i);
        if (theirs != 0 && (*mine == 0 || theirs < *mine))
            *mine = theirs;
    }
}

bool access_limit_set(struct access_limits *into, struct str word, uint64_t value)
{
    for (size_t i = 0; i < N_LIMITS; i++)
        if (str_eq(limit_rows[i].word, word)) {
            *limit_at(into, i) = value;
            return true;
        }
    return false;
}

/* ---- one grant ---- */

/* Arrays grow by doubling in the arena: grants are few, and made once. */
static void grants_put(struct access_grants *g, struct arena *a, struct access_grant one)
{
    if ((g->n & (g->n - 1)) == 0) { /* 0, or full */
        struct access_grant *items = arena_alloc(a, (g->n == 0 ? 1 : 2 * g->n) * sizeof *items);
        if (g->n > 0)
            memcpy(items, g->items, g->n * sizeof *items);
        g->items = items;
    }
    one.literal = access_pattern_literal(one.pattern);
    g->items[g->n++] = one;
}

/* The kind that a pattern's first word says, which is taken off. */
static enum access_kind cut_kind(struct str *pattern, uint32_t verbs)
{
    struct str rest = *pattern, word = str_cut(&rest, ':');
    enum access_kind kind;
    if (!access_kind_parse(word, &kind))
        return ACCESS_STREAM;
    if (rest.p != NULL && access_kind_named(kind)) {
        *pattern = rest;
        return kind;
    }
    /* `server` is a stream's name, too, unless a verb of the server is granted on it */
    bool bare = rest.p == NULL && !access_kind_named(kind);
    for (unsigned v = 0; bare && v < ACCESS_N_VERBS; v++)
        if ((verbs & ACCESS_BIT(v)) != 0 && access_verb_kinds(v) == (1u << kind)) {
            *pattern = STR_NONE;
            return kind;
        }
    return ACCESS_STREAM;
}

/* Paths of routes begin with a slash, which says nothing. */
static struct str grant_name(enum access_kind kind, struct str name)
{
    return kind == ACCESS_ROUTE && name.n > 0 && name.p[0] == '/' ? str_skip(name, 1) : name;
}

static int grant_make(uint32_t verbs, struct str pattern, bool templates, struct access_grant *out,
                      char *reason, size_t size)
{
    struct access_grant g = {.verbs = verbs, .pattern = pattern};
    g.kind = cut_kind(&g.pattern, verbs);
    g.pattern = grant_name(g.kind, g.pattern);
    for (unsigned v = 0; v < ACCESS_N_VERBS; v++)
        if ((verbs & ACCESS_BIT(v)) != 0 && (access_verb_kinds(v) & (1u << g.kind)) == 0)
            return grant_wrong(reason, size, "%s cannot be granted on a %s", access_verb_text(v).p,
                               access_kind_text(g.kind).p);
    if (access_kind_named(g.kind) && access_pattern_check(g.pattern, templates, reason, size) != 0)
        return ERR_SYNTAX;
    *out = g;
    return 0;
}

/* ---- the file ---- */

static int parse_verb(struct str word, uint32_t *verbs, char *reason, size_t size)
{
    struct suggest near = {.word = word};
    enum access_verb verb;
    if (access_verb_parse(word, &verb)) {
        *verbs |= ACCESS_BIT(verb);
        return 0;
    }
    for (unsigned v = 0; v < ACCESS_N_VERBS; v++)
        suggest_offer(&near, access_verb_text(v).p);
    if (near.best != NULL)
        return grant_wrong(reason, size, "there is no verb %.*s; did you mean %s?", (int)word.n,
                           word.p, near.best);
    return grant_wrong(reason, size, "there is no verb %.*s", (int)(word.n < 64 ? word.n : 64),
                       word.p);
}

/* `read, append chats`: a word that a comma follows is a verb, and so is the one behind it. */
static int parse_verbs(struct str *line, uint32_t *verbs, char *reason, size_t size)
{
    bool more = true;
    while (more) {
        size_t n = 0;
        *line = ascii_trim(*line);
        while (n < line->n && line->p[n] != ',' && !ascii_is_white(line->p[n]))
            n++;
        int err = parse_verb(str_of(line->p, n), verbs, reason, size);
        if (err != 0)
            return err;
        *line = ascii_trim(str_skip(*line, n));
        more = line->n > 0 && line->p[0] == ',';
        if (more)
            *line = str_skip(*line, 1);
    }
    return 0;
}

/* The verbs `lab`, `metrics` and so on need no pattern. */
static int add_nameless(struct access_grants *g, struct arena *a, uint32_t verbs, char *reason,
                        size_t size)
{
    static const enum access_kind nameless[] = {ACCESS_LAB, ACCESS_SERVER};
    for (size_t i = 0; i < 2; i++) {
        struct access_grant one;
        if (grant_make(verbs, access_kind_text(nameless[i]), true, &one, reason, size) == 0 &&
            one.kind == nameless[i]) {
            grants_put(g, a, one);
            return 0;
        }
    }
    return grant_wrong(reason, size, "a grant names what it is for: VERB, VERB PATTERN...");
}

int access_grants_add_line(struct access_grants *g, struct arena *a, struct str line, char *reason,
                           size_t size)
{
    uint32_t verbs = 0;
    struct access_grant one;
    line = arena_dup(a, ascii_trim(line));
    int err = parse_verbs(&line, &verbs, reason, size);
    if (err == 0 && line.n == 0)
        return add_nameless(g, a, verbs, reason, size);
    while (err == 0 && line.n > 0) {
        size_t n = 0;
        while (n < line.n && !ascii_is_white(line.p[n]))
            n++;
        err = grant_make(verbs, str_of(line.p, n), true, &one, reason, size);
        if (err == 0)
            grants_put(g, a, one);
        line = ascii_trim(str_skip(line, n));
    }
    return err;
}

int access_grant_check(struct str line, char *reason, size_t size)
{
    struct arena a = {0};
    struct access_grants g = {0};
    int err = access_grants_add_line(&g, &a, line, reason, size);
    arena_deinit(&a);
    return err;
}

/* ---- JSON ---- */

static struct str grant_text_of(const json_t *value)
{
    return json_is_string(value) ? str_of(json_string_value(value), json_string_length(value))
                                 : STR_NONE;
}

int access_grants_add_entry(struct access_grants *g, struct arena *a, const json_t *actions,
                            const json_t *on)
{
    char ignored[128];
    uint32_t verbs = 0;
    size_t n = json_array_size(on);
    if (!json_is_array(actions) || !json_is_array(on) || json_array_size(actions) == 0 || n == 0 ||
        json_array_size(actions) > ACCESS_N_VERBS || g->n + n > ACCESS_PATTERNS_MAX)
        return ERR_SYNTAX;
    for (size_t i = 0; i < json_array_size(actions); i++) {
        enum access_verb verb;
        if (!access_verb_parse(grant_text_of(json_array_get(actions, i)), &verb))
            return ERR_SYNTAX;
        verbs |= ACCESS_BIT(verb);
    }
    for (size_t i = 0; i < n; i++) {
        struct str pattern = grant_text_of(json_array_get(on, i));
        struct access_grant one;
        if (pattern.n == 0 || pattern.n > ACCESS_PATTERN_MAX ||
            grant_make(verbs, arena_dup(a, pattern), false, &one, ignored, sizeof ignored) != 0)
            return ERR_SYNTAX;
        grants_put(g, a, one);
    }
    return 0;
}

static int read_limits(const json_t *object, struct access_limits *out)
{
    const char *key;
    json_t *value;
    if (object == NULL)
        return 0;
    if (!json_is_object(object))
        return ERR_SYNTAX;
    json_object_foreach((json_t *)object, key, value)
    {
        struct access_limits one = {0};
        json_int_t n = json_integer_value(value);
        if (n > ACCESS_LIMIT_MAX)
            n = ACCESS_LIMIT_MAX;
        if (n <= 0 || !access_limit_set(&one, str_of_cstr(key), (uint64_t)n))
            return ERR_SYNTAX;
        access_limits_min(out, &one);
    }
    return 0;
}

int access_grants_add_json(struct access_grants *g, struct access_limits *limits, struct arena *a,
                           const json_t *details, bool *found)
{
    *found = false;
    if (details == NULL)
        return 0;
    if (!json_is_array(details) || json_array_size(details) > ACCESS_GRANTS_MAX)
        return ERR_SYNTAX;
    for (size_t i = 0; i < json_array_size(details); i++) {
        const json_t *entry = json_array_get(details, i);
        if (!str_eq(grant_text_of(json_object_get(entry, "type")), STR(ACCESS_DETAIL_TYPE)))
            continue;
        *found = true;
        int err = access_grants_add_entry(g, a, json_object_get(entry, "actions"),
                                          json_object_get(entry, "on"));
        if (err == 0)
            err = read_limits(json_object_get(entry, "limits"), limits);
        if (err != 0)
            return err;
    }
    return 0;
}

static json_t *verbs_json(uint32_t verbs)
{
    json_t *list = json_array();
    for (unsigned v = 0; v < ACCESS_N_VERBS; v++)
        if ((verbs & ACCESS_BIT(v)) != 0)
            json_array_append_new(list, json_string(access_verb_text(v).p));
    return list;
}

static json_t *grant_json(const struct access_grant *g)
{
    struct str kind = access_kind_text(g->kind);
    json_t *on = !access_kind_named(g->kind)
                     ? json_stringn(kind.p, kind.n)
                     : json_sprintf("%s:%.*s", kind.p, (int)g->pattern.n, g->pattern.p);
    json_t *entry = json_object();
    json_object_set_new(entry, "type", json_string(ACCESS_DETAIL_TYPE));
    json_object_set_new(entry, "actions", verbs_json(g->verbs));
    json_object_set_new(entry, "on", json_pack("[o]", on));
    return entry;
}

json_t *access_grants_json(const struct access_grants *g, const struct access_limits *limits)
{
    json_t *list = json_array();
    for (size_t i = 0; i < g->n; i++)
        json_array_append_new(list, grant_json(&g->items[i]));
    json_t *set = json_object();
    for (size_t i = 0; i < N_LIMITS; i++)
        if (limit_of(limits, i) != 0)
            json_object_set_new(set, limit_rows[i].word.p,
                                json_integer((json_int_t)limit_of(limits, i)));
    if (json_object_size(set) > 0 && g->n > 0)
        json_object_set(json_array_get(list, 0), "limits", set);
    json_decref(set);
    return list;
}

/* ---- templates ---- */

bool access_claim_is_valid(struct str value)
{
    return value.n <= ACCESS_CLAIM_MAX && ascii_is_word(value, "-._~@:+") &&
           !str_eq(value, STR(".")) && !str_eq(value, STR(".."));
}

static bool claim_value(const json_t *claims, struct str claim, struct str *out)
{
    struct str text = grant_text_of(json_object_getn(claims, claim.p, claim.n));
    if (!access_claim_is_valid(text))
        return false;
    *out = text;
    return true;
}

bool access_expand(struct str text, const json_t *claims, struct arena *a, struct str *out)
{
    struct str rest = text, segment;
    char *to = arena_alloc(a, text.n + (text.n / 3 + 1) * ACCESS_CLAIM_MAX);
    size_t n = 0;
    while (access_segment_next(&rest, &segment)) {
        struct str put = segment;
        if (segment.n > 2 && segment.p[0] == '{' &&
            !claim_value(claims, str_of(segment.p + 1, segment.n - 2), &put))
            return false;
        if (put.p != segment.p && n == 0 && access_reserved(put))
            return false;
        memcpy(to + n, put.p, put.n);
        n += put.n;
        if (rest.p != NULL)
            to[n++] = '/';
    }
    *out = str_of(to, n);
    return true;
}

void access_grants_expand(const struct access_grants *templates, const json_t *claims,
                          struct arena *a, struct access_grants *out)
{
    for (size_t i = 0; i < templates->n; i++) {
        struct access_grant g = templates->items[i];
        if (memchr(g.pattern.p != NULL ? g.pattern.p : "", '{', g.pattern.n) == NULL ||
            access_expand(g.pattern, claims, a, &g.pattern))
            grants_put(out, a, g);
    }
}

/* ---- decisions ---- */

static bool grant_matches(const struct access_grant *one, struct str name)
{
    if (!access_kind_named(one->kind))
        return true;
    if (one->literal == ACCESS_PATTERN_MIXED)
        return access_pattern_match(one->pattern, name);
    return access_pattern_match_literal(one->pattern, one->literal, name);
}

static inline bool grants_allow(const struct access_grants *g, enum access_verb verb,
                                enum access_kind kind, struct str name)
{
    for (size_t i = 0; i < g->n; i++) {
        const struct access_grant *one = &g->items[i];
        if ((one->verbs & ACCESS_BIT(verb)) != 0 && one->kind == kind && grant_matches(one, name))
            return true;
    }
    return false;
}

bool access_grants_allow(const struct access_grants *g, enum access_verb verb,
                         enum access_kind kind, struct str name)
{
    return grants_allow(g, verb, kind, grant_name(kind, name));
}

bool access_grants_contain(const struct access_grants *g, enum access_verb verb,
                           enum access_kind kind, struct str pattern)
{
    pattern = grant_name(kind, pattern);
    for (size_t i = 0; i < g->n; i++) {
        const struct access_grant *one = &g->items[i];
        if ((one->verbs & ACCESS_BIT(verb)) != 0 && one->kind == kind &&
            (!access_kind_named(kind) || access_pattern_contains(one->pattern, pattern)))
            return true;
    }
    return false;
}

bool access_allows(const struct access_rights *r, enum access_verb verb, enum access_kind kind,
                   struct str name)
{
    name = grant_name(kind, name);
    for (size_t i = 0; i < r->n; i++)
        if (!grants_allow(r->layers[i], verb, kind, name))
            return false;
    return true;
}

bool access_contains(const struct access_rights *r, enum access_verb verb, enum access_kind kind,
                     struct str pattern)
{
    for (size_t i = 0; i < r->n; i++)
        if (!access_grants_contain(r->layers[i], verb, kind, pattern))
            return false;
    return true;
}

static bool grants_hold(const struct access_grants *g, enum access_verb verb, enum access_kind kind)
{
    for (size_t i = 0; i < g->n; i++)
        if ((g->items[i].verbs & ACCESS_BIT(verb)) != 0 && g->items[i].kind == kind)
            return true;
    return false;
}

bool access_holds(const struct access_rights *r, enum access_verb verb, enum access_kind kind)
{
    for (size_t i = 0; i < r->n; i++)
        if (!grants_hold(r->layers[i], verb, kind))
            return false;
    return true;
}

bool access_covers(const struct access_rights *r, const struct access_grants *inner)
{
    for (size_t i = 0; i < inner->n; i++)
        for (unsigned v = 0; v < ACCESS_N_VERBS; v++)
            if ((inner->items[i].verbs & ACCESS_BIT(v)) != 0 &&
                !access_contains(r, v, inner->items[i].kind, inner->items[i].pattern))
                return false;
    return true;
}
