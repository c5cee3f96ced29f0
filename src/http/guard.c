// SPDX-License-Identifier: Apache-2.0
#include "http/guard.h"
#include "access/minted.h"
#include "access/policy.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "http/audit.h"
#include "http/credential.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/origin.h"
#include "http/surface.h"
#include "http/url.h"

#include <stdlib.h>

struct guard {
    struct guard_setup setup;
    struct policy *policy;
    const struct jwk_set *own_keys; /* NULL: there are none */
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
static const struct surface_refusal cookie_reads = {
    403, STR_INIT("FORBIDDEN"),
    STR_INIT("a cookie is for reading, from pages of this server; send the token as a header"),
    STR_INIT(""), 0};
static const struct surface_refusal starting = {
    503, STR_INIT("BUSY"), STR_INIT("the server is starting; try again in a moment"), STR_INIT(""),
    1};

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

static const struct surface_rule no_rule = {.id = NULL};

static struct audit *audit_of(const struct exchange *x)
{
    return x->http->guard != NULL ? x->http->guard->setup.audit : NULL;
}

/* What was missing; rule->id == NULL: nobody can tell. */
static bool guard_deny(struct exchange *x, const struct surface_rule *rule, struct str name)
{
    const struct http_route *route = x->route;
    struct audit_fact fact = {.event = AUDIT_DENIED, .name = name};
    if (rule->id != NULL) {
        fact.verb = access_verb_text(rule->verb);
        fact.kind = access_kind_text(rule->kind);
    }
    audit_tell(audit_of(x), x, &fact);
    guard_refuse(x, route, x->principal->known ? &forbidden : &no_credential);
    return false;
}

void guard_forbid(struct exchange *x)
{
    guard_deny(x, &no_rule, STR_NONE);
}

bool exchange_may(struct exchange *x, enum access_verb verb, enum access_kind kind, struct str name)
{
    const struct surface_rule missing = {.id = "", .verb = verb, .kind = kind};
    return exchange_can(x, verb, kind, name) || guard_deny(x, &missing, name);
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

static bool rule_granted(const struct surface_rule *rule, struct exchange *x,
                         const struct http_route *route, struct str name)
{
    if ((rule->how & RULE_LATER) != 0)
        x->undecided = true;
    if ((rule->how & (RULE_LATER | RULE_PUBLIC)) != 0)
        return true;
    if (rule->kind == ACCESS_ROUTE)
        name = route->prefix;
    else if (url_decode(&x->arena, name, false, &name) != 0)
        return false;
    return principal_may(x->principal, rule->verb, rule->kind, name);
}

/* What the rules say of a request. */
struct ruling {
    const struct surface_rule *missing; /* the first that is not granted, or no_rule */
    struct str name;                    /* ... what for; as it stands in the path */
    unsigned how;                       /* of all that fit */
};

/* False: no rule fits, or one that does is not granted. */
static bool rules_granted(struct exchange *x, const struct http_route *route, struct ruling *out)
{
    struct str below = path_below(x, route), name;
    bool any = false, all = true;
    *out = (struct ruling){.missing = &no_rule};
    for (const struct surface_rule *rule = route->surface->rules; rule->id != NULL; rule++)
        if (rule_fits(rule, x, below, &name)) {
            any = true;
            out->how |= rule->how;
            if (all && !rule_granted(rule, x, route, name)) {
                all = false;
                out->missing = rule;
                out->name = name;
            }
        }
    return any && all;
}

/* ---- credentials ---- */

enum guard_step {
    GUARD_GO,
    GUARD_ANSWERED,
    GUARD_WAITS, /* guard_go_on comes when it is known who asks */
};

static bool reads(const struct exchange *x)
{
    return x->request->method == METHOD_GET || x->request->method == METHOD_HEAD;
}

/* Browsers send cookies by themselves, whoever's page it is. */
static bool cookie_counts(const struct exchange *x)
{
    return reads(x) && (request_header(x->request, STR("Origin")).p == NULL ||
                        origin_check(x, ORIGIN_OWN, NULL) == ORIGIN_FINE);
}

static const struct surface_refusal *guard_fail(struct guard *g, struct exchange *x,
                                                const char *cause)
{
    audit_note(g->setup.audit, AUDIT_AUTH_FAILED, x, str_of_cstr(cause));
    return &bad_credential;
}

/* NULL: x->principal is set. */
static const struct surface_refusal *guard_verify(struct guard *g, struct exchange *x,
                                                  const struct credential *c)
{
    struct principal *p;
    int64_t now_s = clock_wall_ms() / 1000; /* that of the turn may be from before a long sleep */
    if (g->setup.starting != NULL && g->setup.starting(g->setup.ctx))
        return &starting;
    if (g->own_keys == NULL)
        return guard_fail(g, x, jwt_verdict_name(JWT_UNKNOWN_KID));
    enum jwt_verdict v = minted_verify(g->own_keys, c->token, c->by == CREDENTIAL_LINK, now_s, &p);
    if (v != JWT_OK)
        return guard_fail(g, x, jwt_verdict_name(v));
    bool revoked = g->setup.revoked != NULL && g->setup.revoked(g->setup.ctx, p);
    if (!revoked)
        exchange_set_principal(x, p);
    principal_unref(p);
    return revoked ? guard_fail(g, x, "REVOKED") : NULL;
}

static const struct surface_refusal *guard_judge(struct guard *g, struct exchange *x,
                                                 const struct credential *c)
{
    const struct principal *p =
        c->by == CREDENTIAL_LINK ? NULL : policy_find_caller(g->policy, c->token);
    if (p == NULL)
        return guard_verify(g, x, c);
    exchange_set_principal(x, p);
    return NULL;
}

/* Sets x->principal. */
static enum guard_step guard_identify(struct guard *g, struct exchange *x)
{
    struct policy *policy = g->policy;
    struct credential c;
    enum credential_owner owner = x->route != NULL ? x->route->authorization : CREDENTIAL_OURS;
    const struct surface_refusal *why = NULL;
    int err = credential_find(x, owner, &c);
    if (policy->on)
        credential_cut(x);
    if (err != 0)
        why = &two_credentials;
    else if (c.by == CREDENTIAL_NONE)
        exchange_set_principal(x, policy->anonymous);
    else
        why = guard_judge(g, x, &c);
    if (why == NULL && c.by == CREDENTIAL_COOKIE && !cookie_counts(x))
        why = &cookie_reads;
    if (why == NULL || !policy->on) /* it may be meant for an upstream */
        return GUARD_GO;
    guard_refuse(x, x->route, why);
    return GUARD_ANSWERED;
}

/* It is known who asks. False: refused. */
static bool guard_enter(struct guard *g, struct exchange *x)
{
    struct ruling ruling;
    if (!g->policy->on || x->route == NULL || x->request->method == METHOD_OPTIONS)
        return true; /* a preflight asks for nothing */
    if (!rules_granted(x, x->route, &ruling))
        return guard_deny(x, ruling.missing, ruling.name);
    bool link_will_do = (ruling.how & RULE_LINK) != 0 && reads(x);
    return !x->principal->by_link || link_will_do || guard_deny(x, &no_rule, STR("by link"));
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

void guard_set_own_keys(struct guard *g, const struct jwk_set *keys)
{
    g->own_keys = keys;
}

/* Tokens are verified each time: none is kept. */
void guard_forget_tokens(struct guard *g)
{
}
