// SPDX-License-Identifier: Apache-2.0
#include "http/guard.h"
#include "access/policy.h"
#include "base/err.h"
#include "base/mem.h"
#include "http/credential.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/surface.h"
#include "http/url.h"

#include <stdlib.h>

struct guard {
    struct guard_setup setup;
    struct policy *policy;
};

/* ---- refusals ---- */

static const struct surface_refusal two_credentials = {
    400, STR_INIT("TWO_CREDENTIALS"), STR_INIT("send one credential: a header, a cookie or a link"),
    STR_INIT(""), 0};
/* The same whatever is wrong with it: the cause is for the trace. */
static const struct surface_refusal bad_credential = {
    401, STR_INIT("UNAUTHENTICATED"), STR_INIT("the credential is not good; get a new one"),
    STR_INIT("Bearer error=\"invalid_token\""), 0};
static const struct surface_refusal no_credential = {
    401, STR_INIT("UNAUTHENTICATED"), STR_INIT("this needs a credential"), STR_INIT("Bearer"), 0};
static const struct surface_refusal forbidden = {
    403, STR_INIT("FORBIDDEN"), STR_INIT("the credential does not grant this"),
    STR_INIT("Bearer error=\"insufficient_scope\""), 0};

void guard_refuse(struct exchange *x, const struct http_route *route,
                  const struct surface_refusal *why)
{
    if (why->challenge.n > 0)
        exchange_header(x, STR("WWW-Authenticate"), why->challenge);
    if (why->retry_after_s > 0)
        exchange_header_u64(x, STR("Retry-After"), why->retry_after_s);
    if (route != NULL && route->surface->refuse != NULL)
        route->surface->refuse(route->ctx, x, why);
    else
        exchange_problem(x, why->status, why->code, why->message);
}

static bool guard_deny(struct exchange *x, const struct http_route *route)
{
    guard_refuse(x, route, x->principal->known ? &forbidden : &no_credential);
    return false;
}

bool exchange_may(struct exchange *x, enum access_verb verb, enum access_kind kind, struct str name)
{
    return exchange_can(x, verb, kind, name) || guard_deny(x, x->route);
}

/* ---- rules ---- */

static bool has_word(const char *words, struct str word)
{
    struct str rest = str_of_cstr(words);
    while (rest.p != NULL)
        if (str_eq(str_cut(&rest, ' '), word))
            return true;
    return false;
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

bool guard_next_need(struct exchange *x, const struct http_route *route, struct guard_need *need)
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

static bool need_granted(const struct guard_need *need, struct exchange *x)
{
    const struct surface_rule *rule = need->rule;
    if ((rule->how & RULE_LATER) != 0)
        x->undecided = true;
    if ((rule->how & (RULE_LATER | RULE_PUBLIC)) != 0)
        return true;
    return !need->malformed && principal_may(x->principal, rule->verb, rule->kind, need->name);
}

/* False: no rule fits, or one that does is not granted. *how is of all that fit. */
static bool rules_granted(struct exchange *x, const struct http_route *route, unsigned *how)
{
    struct guard_need need = {0};
    bool any = false, all = true;
    *how = 0;
    while (guard_next_need(x, route, &need)) {
        any = true;
        *how |= need.rule->how;
        all = need_granted(&need, x) && all;
    }
    return any && all;
}

/* ---- credentials ---- */

enum guard_step {
    GUARD_GO,
    GUARD_ANSWERED,
    GUARD_WAITS, /* guard_go_on comes when it is known who asks */
};

/* Sets x->principal. */
static enum guard_step guard_identify(struct guard *g, struct exchange *x)
{
    struct policy *policy = g->policy;
    struct credential c;
    enum credential_owner owner = x->route != NULL ? x->route->authorization : CREDENTIAL_OURS;
    const struct surface_refusal *why = &bad_credential;
    if (credential_find(x, owner, &c) != 0) {
        why = &two_credentials;
    } else if (c.by == CREDENTIAL_NONE) {
        exchange_set_principal(x, policy->anonymous);
        return GUARD_GO;
    } else {
        const struct principal *p = policy_find_caller(policy, c.token);
        if (p != NULL) {
            exchange_set_principal(x, p);
            return GUARD_GO;
        }
    }
    if (!policy->on) /* it may be meant for an upstream */
        return GUARD_GO;
    guard_refuse(x, x->route, why);
    return GUARD_ANSWERED;
}

/* It is known who asks. False: refused. */
static bool guard_enter(struct guard *g, struct exchange *x)
{
    unsigned how;
    if (!g->policy->on || x->route == NULL || x->request->method == METHOD_OPTIONS)
        return true; /* a preflight asks for nothing */
    return rules_granted(x, x->route, &how) || guard_deny(x, x->route);
}

bool guard_admit(struct guard *g, struct exchange *x)
{
    return guard_identify(g, x) == GUARD_GO && guard_enter(g, x);
}

/* ---- the whole ---- */

struct guard *guard_new(const struct guard_setup *setup)
{
    struct guard *g = mem_zalloc(sizeof *g);
    g->setup = *setup;
    return g;
}

void guard_free(struct guard *g)
{
    if (g == NULL)
        return;
    policy_unref(g->policy);
    free(g);
}

void guard_set_policy(struct guard *g, struct policy *policy)
{
    policy_ref(policy);
    policy_unref(g->policy);
    g->policy = policy;
}
