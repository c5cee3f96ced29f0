// SPDX-License-Identifier: Apache-2.0
#include "http/rules.h"
#include "access/principal.h"
#include "base/must.h"
#include "http/exchange.h"
#include "http/h1_parse.h"
#include "http/http.h"
#include "http/plain_path.h"
#include "http/surface.h"
#include "http/url.h"

#define EVERY_METHOD "*"

static bool has_word(const char *words, struct str word)
{
    for (;;) {
        size_t n = 0;
        while (n < word.n && words[n] == word.p[n])
            n++;
        if (n == word.n && (words[n] == ' ' || words[n] == '\0'))
            return true;
        for (words += n; *words != ' '; words++)
            if (*words == '\0')
                return false;
        words++;
    }
}

/* Whether the path, behind the surface's own, is the rule's; *name is what stands for `{name}`,
 * still encoded. */
static bool path_fits(struct str pattern, struct str path, struct str *name)
{
    while (pattern.p != NULL) {
        struct str want = str_cut(&pattern, '/');
        if (want.n > 4 && memcmp(want.p + want.n - 4, "...}", 4) == 0) {
            *name = path;
            return path.n > 0;
        }
        if (path.p == NULL)
            return false;
        struct str have = str_cut(&path, '/');
        if (want.n > 0 && want.p[0] == '{' && have.n > 0)
            *name = have;
        else if (!str_eq(want, have))
            return false;
    }
    return path.p == NULL;
}

/* ---- before any request ---- */

void rules_prepare(const struct surface *surface, struct http_rules *out)
{
    *out = (struct http_rules){.tails = 0};
    for (size_t i = 0; surface->rules[i].id != NULL; i++) {
        struct str methods = str_of_cstr(surface->rules[i].methods);
        struct str path = str_of_cstr(surface->rules[i].path);
        must(i < HTTP_RULES_MAX);
        for (int m = 0; m < METHOD_N && str_eq(methods, STR(EVERY_METHOD)); m++)
            out->of[m] |= (uint64_t)1 << i;
        while (methods.p != NULL)
            out->of[h1_method(str_cut(&methods, ' '))] |= (uint64_t)1 << i;
        if (str_ends(path, STR("...}")) && memchr(path.p, '/', path.n) == NULL)
            out->tails |= (uint64_t)1 << i;
        if (surface->rules[i].kind == ACCESS_ROUTE ||
            (surface->rules[i].how & (RULE_LATER | RULE_PUBLIC)) != 0)
            out->special |= (uint64_t)1 << i;
    }
}

/* ---- of a request ---- */

static inline struct str path_below(const struct exchange *x, const struct http_route *route)
{
    bool literal = route->literal == route->prefix.n; /* so that it need not be compared again */
    size_t n = literal ? route->prefix.n : http_route_covers(route, x->request->path);
    struct str rest = str_skip(x->request->path, n);
    bool open = route->prefix.n > 0 && route->prefix.p[route->prefix.n - 1] == '/';
    return !open && rest.n > 0 && rest.p[0] == '/' ? str_skip(rest, 1) : rest;
}

/* It is one for the request's method. */
static bool rule_fits(const struct surface_rule *rule, struct exchange *x, struct str below,
                      bool tail, struct str *name)
{
    const struct request *req = x->request;
    *name = tail ? below : STR_NONE;
    if (req->method == METHOD_OTHER && !has_word(rule->methods, req->method_text) &&
        !has_word(rule->methods, STR(EVERY_METHOD)))
        return false;
    if (tail ? below.n == 0 : !path_fits(str_of_cstr(rule->path), below, name))
        return false;
    return rule->when == NULL || rule->when(x);
}

/* A route's name is its path: as it is written, as the request fills it in, or whatever is asked
 * for below it. False: the path's name cannot be decoded. */
static bool rule_name(const struct surface_rule *rule, struct exchange *x,
                      const struct http_route *route, struct str *name)
{
    struct str path = x->request->path;
    if (rule->kind != ACCESS_ROUTE)
        return url_decode(&x->arena, *name, false, name) == 0;
    *name = route->prefix;
    if (!route->surface->wide && route->literal == route->prefix.n)
        return true;
    if (!route->surface->wide)
        path.n = http_route_covers(route, path);
    return plain_path_name(&x->arena, path, PLAIN_SLASH_SPLITS, name) == 0;
}

bool rules_next(struct exchange *x, const struct http_route *route, struct need *need)
{
    const struct http_rules *rules = &route->rules;
    uint64_t left = need->rule == NULL ? rules->of[x->request->method] : need->left;
    for (struct str below = path_below(x, route); left != 0;) {
        int i = __builtin_ctzll(left);
        left &= left - 1;
        need->rule = &route->surface->rules[i];
        if (!rule_fits(need->rule, x, below, (rules->tails >> i & 1) != 0, &need->name))
            continue;
        need->left = left;
        need->malformed = !rule_name(need->rule, x, route, &need->name);
        return true;
    }
    return false;
}

unsigned rules_how(struct exchange *x, const struct http_route *route)
{
    struct need need = {0};
    unsigned how = 0;
    while (rules_next(x, route, &need))
        how |= need.rule->how;
    return how;
}

/* ---- and of whoever asks ---- */

static bool need_granted(const struct need *need, struct exchange *x)
{
    const struct surface_rule *rule = need->rule;
    if ((rule->how & RULE_LATER) != 0)
        x->undecided = true;
    if ((rule->how & (RULE_LATER | RULE_PUBLIC)) != 0)
        return true;
    return !need->malformed && principal_may(x->principal, rule->verb, rule->kind, need->name);
}

bool rules_missing(struct exchange *x, struct need *need)
{
    bool any = false;
    for (*need = (struct need){0}; rules_next(x, x->route, need); any = true)
        if (!need_granted(need, x))
            return true;
    need->rule = NULL;
    return !any;
}

/* The same where all rules are for what the rest of the path names, and nothing in it is encoded:
 * most requests that are asked about are appends to streams, and reads of them. */
static bool tails_granted(struct exchange *x, uint64_t left, struct str name)
{
    bool any = false;
    for (; left != 0; left &= left - 1) {
        const struct surface_rule *rule = &x->route->surface->rules[__builtin_ctzll(left)];
        if (rule->when != NULL && !rule->when(x))
            continue;
        if (!principal_may(x->principal, rule->verb, rule->kind, name))
            return false;
        any = true;
    }
    return any;
}

bool rules_granted(struct exchange *x)
{
    const struct http_rules *rules = &x->route->rules;
    enum method method = x->request->method;
    uint64_t all = rules->of[method];
    struct str below = path_below(x, x->route);
    x->unescaped = below.n > 0 && memchr(below.p, '%', below.n) == NULL;
    if (x->unescaped && (all & (~rules->tails | rules->special)) == 0 && method != METHOD_OTHER)
        return tails_granted(x, all, below);
    struct need ignored;
    return !rules_missing(x, &ignored);
}
