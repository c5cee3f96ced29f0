// SPDX-License-Identifier: Apache-2.0
/* Rules, one by one, and all of them at once: both say the same of every request. */
#include "http/rules.h"
#include "access/principal.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/surface.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static bool has_body(const struct exchange *x)
{
    return x->has_body;
}

static bool has_none(const struct exchange *x)
{
    return !x->has_body;
}

static const struct surface_rule rules[] = {
    {"list", "GET", "", ACCESS_VERB_LIST, ACCESS_STREAM, RULE_LATER, NULL},
    {"read", "GET", "{name...}", ACCESS_VERB_READ, ACCESS_STREAM, RULE_LINK, NULL},
    {"create", "PUT", "{name...}", ACCESS_VERB_CREATE, ACCESS_STREAM, 0, NULL},
    {"create.append", "PUT", "{name...}", ACCESS_VERB_APPEND, ACCESS_STREAM, 0, has_body},
    {"append", "POST", "{name...}", ACCESS_VERB_APPEND, ACCESS_STREAM, 0, has_body},
    {"close", "POST", "{name...}", ACCESS_VERB_CLOSE, ACCESS_STREAM, 0, has_none},
    {"delete", "DELETE", "{name...}", ACCESS_VERB_DELETE, ACCESS_STREAM, 0, has_body},
    {"fork", "PATCH", "{name...}", ACCESS_VERB_FORK, ACCESS_STREAM, RULE_LATER, NULL},
    {"head", "HEAD", "{name...}", ACCESS_VERB_READ, ACCESS_STREAM, 0, NULL},
    {"head.part", "HEAD", "{name}/part", ACCESS_VERB_LIST, ACCESS_STREAM, 0, NULL},
    {"purge", "PURGE", "{name...}", ACCESS_VERB_DELETE, ACCESS_STREAM, 0, NULL},
    {0},
};
static const struct surface_rule by_path[] = {
    {"call", "POST", "{name...}", ACCESS_VERB_CALL, ACCESS_ROUTE, 0, NULL},
    {"open", "GET", "{name...}", ACCESS_VERB_CALL, ACCESS_ROUTE, RULE_PUBLIC, NULL},
    {0},
};
static const struct surface surfaces[] = {{.path = "/s/", .rules = rules},
                                          {.path = "/r", .rules = by_path}};

static const char *const grants[] = {
    "",
    "read, append **",
    "append, create, close a/**",
    "close a",
    "read, list, delete *",
    "list, append, create, delete, close, read, fork **",
    "call route:/r",
};

static const char *const paths[] = {
    "",      "a",       "a/b",         "a/",        "a//b",  "a/b/part", "a/part", "%61",
    "a%2Fb", "a%zz",    "%",           "__ds",      "s",     "sessions", "..",     "a/../b",
    ".",     "a b/c/d", "sessions/1%", "%2e%2e/ab", "x/y/z", "a%00b",    "**",
};

static const struct {
    enum method method;
    struct str text;
} methods[] = {
    {METHOD_GET, STR_INIT("GET")},         {METHOD_HEAD, STR_INIT("HEAD")},
    {METHOD_PUT, STR_INIT("PUT")},         {METHOD_POST, STR_INIT("POST")},
    {METHOD_DELETE, STR_INIT("DELETE")},   {METHOD_PATCH, STR_INIT("PATCH")},
    {METHOD_OTHER, STR_INIT("PURGE")},     {METHOD_OTHER, STR_INIT("PURG")},
    {METHOD_OPTIONS, STR_INIT("OPTIONS")},
};

static struct principal *principal_with(const char *line)
{
    struct principal *p = principal_new();
    struct access_grants *g = arena_alloc(&p->arena, sizeof *g);
    char why[128];
    *g = (struct access_grants){0};
    if (line[0] != '\0')
        assert_int_equal(access_grants_add_line(g, &p->arena, str_of_cstr(line), why, sizeof why),
                         0);
    p->rights = (struct access_rights){.layers = {g}, .n = 1};
    return p;
}

static struct http_route route_of(const struct surface *s)
{
    struct str path = str_of_cstr(s->path);
    struct http_route route = {.prefix = path, .literal = path.n, .surface = s};
    rules_prepare(s, &route.rules);
    return route;
}

/* As the head of surface.h says it. */
static bool all_granted(struct exchange *x, bool *later)
{
    struct need need = {0};
    bool any = false, all = true;
    *later = false;
    while (rules_next(x, x->route, &need)) {
        const struct surface_rule *r = need.rule;
        bool decided = (r->how & (RULE_LATER | RULE_PUBLIC)) == 0;
        any = true;
        *later = *later || (all && (r->how & RULE_LATER) != 0);
        all = all && (!decided || (!need.malformed && access_allows(&x->principal->rights, r->verb,
                                                                    r->kind, need.name)));
    }
    return any && all;
}

static void check(struct exchange *x)
{
    struct need missing;
    bool later, granted = all_granted(x, &later);
    x->undecided = x->unescaped = false;
    assert_int_equal(rules_granted(x), granted);
    assert_int_equal(x->undecided, later);
    struct str below = str_skip(x->request->path, x->route->prefix.n);
    if (x->unescaped)
        assert_null(memchr(below.p, '%', below.n));
    assert_int_equal(rules_missing(x, &missing), !granted);
    if (granted)
        assert_null(missing.rule);
}

static void check_paths(const struct http_route *route, const struct principal *p, size_t method,
                        bool body)
{
    for (size_t i = 0; i < COUNT(paths); i++) {
        char path[64];
        int n =
            snprintf(path, sizeof path, "%.*s%s", (int)route->prefix.n, route->prefix.p, paths[i]);
        struct request req = {.method = methods[method].method,
                              .method_text = methods[method].text,
                              .path = str_of(path, (size_t)n)};
        struct exchange x = {.principal = p, .route = route, .request = &req, .has_body = body};
        check(&x);
        arena_deinit(&x.arena);
    }
}

static void test_all_at_once_is_one_by_one(void **state)
{
    for (size_t s = 0; s < COUNT(surfaces); s++) {
        struct http_route route = route_of(&surfaces[s]);
        for (size_t g = 0; g < COUNT(grants); g++) {
            struct principal *p = principal_with(grants[g]);
            for (size_t m = 0; m < COUNT(methods); m++) {
                check_paths(&route, p, m, false);
                check_paths(&route, p, m, true);
            }
            principal_unref(p);
        }
    }
}

static void test_what_is_missing(void **state)
{
    struct http_route route = route_of(&surfaces[0]);
    struct principal *p = principal_with("create **");
    struct request req = {.method = METHOD_PUT, .path = STR("/s/a%2Fb")};
    struct exchange x = {.principal = p, .route = &route, .request = &req, .has_body = true};
    struct need need;
    assert_true(rules_missing(&x, &need));
    assert_string_equal(need.rule->id, "create.append");
    assert_true(str_eq(need.name, STR("a/b")));
    req.method = METHOD_OPTIONS; /* which comes under no rule */
    assert_true(rules_missing(&x, &need));
    assert_null(need.rule);
    arena_deinit(&x.arena);
    principal_unref(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_at_once_is_one_by_one),
        cmocka_unit_test(test_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
