// SPDX-License-Identifier: Apache-2.0
#include "http/rules.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/surface.h"
#include "http/url.h"

/* Every request asks this of every rule. */
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

static struct str path_below(const struct exchange *x, const struct http_route *route)
{
    struct str rest = str_skip(x->request->path, route->prefix.n);
    bool open = route->prefix.n > 0 && route->prefix.p[route->prefix.n - 1] == '/';
    return !open && rest.n > 0 && rest.p[0] == '/' ? str_skip(rest, 1) : rest;
}

static bool rule_fits(const struct surface_rule *rule, struct exchange *x, struct str below,
                      struct str *name)
{
    *name = STR_NONE;
    return has_word(rule->methods, x->request->method_text) &&
           path_fits(str_of_cstr(rule->path), below, name) && (rule->when == NULL || rule->when(x));
}

/* A route's name is its path. False: the path's name cannot be decoded. */
static bool rule_name(const struct surface_rule *rule, struct exchange *x,
                      const struct http_route *route, struct str *name)
{
    if (rule->kind != ACCESS_ROUTE)
        return url_decode(&x->arena, *name, false, name) == 0;
    *name = route->prefix;
    return true;
}

bool rules_next(struct exchange *x, const struct http_route *route, struct need *need)
{
    struct str below = path_below(x, route);
    need->rule = need->rule == NULL ? route->surface->rules : need->rule + 1;
    while (need->rule->id != NULL && !rule_fits(need->rule, x, below, &need->name))
        need->rule++;
    if (need->rule->id == NULL)
        return false;
    need->malformed = !rule_name(need->rule, x, route, &need->name);
    return true;
}

unsigned rules_how(struct exchange *x, const struct http_route *route)
{
    struct need need = {0};
    unsigned how = 0;
    while (rules_next(x, route, &need))
        how |= need.rule->how;
    return how;
}
