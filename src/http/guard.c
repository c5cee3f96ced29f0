// SPDX-License-Identifier: Apache-2.0
#include "http/guard.h"
#include "access/policy.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/sched.h"
#include "http/credential.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/issuers.h"
#include "http/jwks.h"
#include "http/surface.h"
#include "http/tokens.h"
#include "http/url.h"
#include "net/tls_names.h"
#include "telemetry/trace.h"

#include <stdlib.h>

struct guard {
    struct guard_setup setup;
    struct policy *policy;
    struct tokens *tokens; /* these two: NULL without a schedule */
    struct issuers *issuers;
    size_t waiting;
};

/* A request that waits for keys. */
struct guard_wait {
    struct jwks_waiter waiter;
    struct guard *guard;
    struct exchange *x; /* held */
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
    403, STR_INIT("FORBIDDEN"), STR_INIT("a cookie is for reading; send the token as a header"),
    STR_INIT(""), 0};
static const struct surface_refusal no_keys = {
    503, STR_INIT("BUSY"), STR_INIT("the credential cannot be checked at present; try again"),
    STR_INIT(""), 5};
static const struct surface_refusal too_many_bad = {
    429, STR_INIT("RATE_LIMITED"), STR_INIT("too many credentials are not good; try again"),
    STR_INIT(""), 1};

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

/* False: no rule fits, or one that does is not granted. *how is of all that fit. */
static bool rules_granted(struct exchange *x, const struct http_route *route, unsigned *how)
{
    struct str below = path_below(x, route), name;
    bool any = false, all = true;
    *how = 0;
    for (const struct surface_rule *rule = route->surface->rules; rule->id != NULL; rule++)
        if (rule_fits(rule, x, below, &name)) {
            any = true;
            *how |= rule->how;
            all = all && rule_granted(rule, x, route, name);
        }
    return any && all;
}

/* ---- credentials ---- */

enum guard_step {
    GUARD_GO,
    GUARD_ANSWERED,
    GUARD_WAITS, /* guard_go_on comes when it is known who asks */
};

/* Rules of the surface may have it carry something else than a credential. */
static enum credential_owner owner_of(struct exchange *x)
{
    const struct http_route *route = x->route;
    struct str name;
    if (route == NULL)
        return CREDENTIAL_OURS;
    for (const struct surface_rule *rule = route->surface->rules; rule->id != NULL; rule++)
        if ((rule->how & RULE_TICKET) != 0 && rule_fits(rule, x, path_below(x, route), &name))
            return CREDENTIAL_THEIRS;
    return route->authorization;
}

static bool reads(const struct exchange *x)
{
    return x->request->method == METHOD_GET || x->request->method == METHOD_HEAD;
}

static const struct surface_refusal *guard_fail(struct guard *g, const char *cause)
{
    if (g->setup.trace != NULL)
        trace(g->setup.trace, CREDENTIAL_REFUSED, TRACE_STR("why", str_of_cstr(cause)));
    return &bad_credential;
}

/* It is this one's. NULL: it will do, where it stands; x->principal is set. */
static const struct surface_refusal *guard_take(struct guard *g, struct exchange *x,
                                                const struct credential *c,
                                                const struct principal *p)
{
    if ((c->by == CREDENTIAL_LINK) != p->by_link)
        return guard_fail(g, p->by_link ? "a link is for URLs" : "only a link is for URLs");
    if (c->by == CREDENTIAL_COOKIE && !reads(x))
        return &cookie_reads;
    if (g->setup.revoked != NULL && g->setup.revoked(g->setup.ctx, p))
        return guard_fail(g, "it was revoked");
    exchange_set_principal(x, p);
    return NULL;
}

static const struct surface_refusal *guard_wait(struct guard *g, struct exchange *x,
                                                enum issuers_verdict v, struct issuers_answer *a,
                                                bool may_wait, bool *waits);

/* A token that is not remembered. bad: its key, should it turn out to be that. */
static const struct surface_refusal *
guard_verify(struct guard *g, struct exchange *x, const struct credential *c,
             const struct tokens_key *key, const struct tokens_key *bad, bool may_wait, bool *waits)
{
    struct issuers_answer a;
    enum issuers_verdict v = issuers_verify(g->issuers, c->token, c->by == CREDENTIAL_LINK, &a);
    switch (v) {
    case ISSUERS_GOOD: break;
    case ISSUERS_NO_KEY:
    case ISSUERS_NO_KEYS: return guard_wait(g, x, v, &a, may_wait, waits);
    case ISSUERS_BUSY: return &too_many_bad;
    case ISSUERS_BAD: tokens_put_bad(g->tokens, bad); return guard_fail(g, a.why);
    default: return guard_fail(g, a.why);
    }
    tokens_put(g->tokens, key, c->token, a.principal);
    const struct surface_refusal *why = guard_take(g, x, c, a.principal);
    principal_unref(a.principal);
    return why;
}

/* NULL: x->principal is set, or the request waits. */
static const struct surface_refusal *guard_judge(struct guard *g, struct exchange *x,
                                                 const struct credential *c, bool may_wait,
                                                 bool *waits)
{
    struct tokens_key key = tokens_key(g->tokens, c->token);
    const struct principal *p = tokens_find(g->tokens, &key, c->token);
    if (p != NULL)
        return guard_take(g, x, c, p);
    struct tokens_key bad = key;
    bad.high ^= c->by == CREDENTIAL_LINK; /* what is bad in a URL may be good elsewhere */
    if (tokens_is_bad(g->tokens, &bad))
        return guard_fail(g, "it was not good a moment ago");
    p = policy_find_caller(g->policy, c->token);
    if (p == NULL)
        return guard_verify(g, x, c, &key, &bad, may_wait, waits);
    tokens_put(g->tokens, &key, c->token, p);
    return guard_take(g, x, c, p);
}

/* The one caller that a certificate names. NULL, and *many: there are two. */
static const struct principal *find_certificate(const struct policy *policy,
                                                const struct tls_names *names, bool *many)
{
    const struct principal *found = NULL;
    *many = false;
    for (size_t i = 0; i < names->n; i++) {
        const struct principal *p =
            policy_find_certificate(policy, names->items[i].text, names->items[i].uri);
        *many = *many || (p != NULL && found != NULL && p != found);
        found = p != NULL ? p : found;
    }
    return *many ? NULL : found;
}

/* A request without a credential: its connection may have one. */
static const struct surface_refusal *guard_judge_peer(struct guard *g, struct exchange *x)
{
    const struct tls_names *names = x->certificate;
    bool many;
    if (names == NULL || g->policy->certificates.n == 0) {
        exchange_set_principal(x, g->policy->anonymous);
        return NULL;
    }
    if (g->setup.sched != NULL && sched_awake_wall_ms(g->setup.sched) / 1000 >= names->expires_s)
        return guard_fail(g, "the certificate has expired");
    const struct principal *p = find_certificate(g->policy, names, &many);
    if (p == NULL)
        return guard_fail(g, many ? "the certificate names two callers"
                                  : "the certificate names no caller");
    if (g->setup.revoked != NULL && g->setup.revoked(g->setup.ctx, p))
        return guard_fail(g, "it was revoked");
    exchange_set_principal(x, p);
    return NULL;
}

/* Where a token that is not known may be meant for an upstream. */
static void guard_know(struct guard *g, struct exchange *x, const struct credential *c)
{
    const struct principal *p = policy_find_caller(g->policy, c->token);
    if (p != NULL)
        exchange_set_principal(x, p);
}

/* Sets x->principal. */
static enum guard_step guard_identify(struct guard *g, struct exchange *x, bool may_wait)
{
    struct credential c;
    bool waits = false;
    const struct surface_refusal *why = NULL;
    int err = credential_find(x, owner_of(x), &c);
    if (err != 0)
        why = &two_credentials;
    else if (c.by == CREDENTIAL_NONE)
        why = guard_judge_peer(g, x);
    else if (!g->policy->on || g->tokens == NULL)
        guard_know(g, x, &c);
    else
        why = guard_judge(g, x, &c, may_wait, &waits);
    if (why == NULL || !g->policy->on)
        return waits ? GUARD_WAITS : GUARD_GO;
    guard_refuse(x, x->route, why);
    return GUARD_ANSWERED;
}

/* It is known who asks. False: refused. */
static bool guard_enter(struct guard *g, struct exchange *x)
{
    unsigned how;
    if (!g->policy->on || x->route == NULL || x->request->method == METHOD_OPTIONS)
        return true; /* a preflight asks for nothing */
    if (!rules_granted(x, x->route, &how))
        return guard_deny(x, x->route);
    bool link_will_do = (how & RULE_LINK) != 0 && reads(x);
    return !x->principal->by_link || link_will_do || guard_deny(x, x->route);
}

bool guard_admit(struct guard *g, struct exchange *x)
{
    return guard_identify(g, x, true) == GUARD_GO && guard_enter(g, x);
}

/* ---- waiting for keys ---- */

/* The keys are there, or cannot be had. */
static void guard_go_on(struct jwks_waiter *waiter)
{
    struct guard_wait *w = container_of(waiter, struct guard_wait, waiter);
    struct guard *g = w->guard;
    struct exchange *x = w->x;
    free(w);
    g->waiting--;
    if (!exchange_over(x) && guard_identify(g, x, false) == GUARD_GO && guard_enter(g, x))
        http_hand_over(x);
    exchange_release(x);
}

static const struct surface_refusal *guard_wait(struct guard *g, struct exchange *x,
                                                enum issuers_verdict v, struct issuers_answer *a,
                                                bool may_wait, bool *waits)
{
    const struct surface_refusal *why = v == ISSUERS_NO_KEYS ? &no_keys : NULL;
    bool full = g->waiting >= GUARD_WAITING_MAX;
    if (may_wait && !full && a->jwks != NULL) {
        struct guard_wait *w = mem_zalloc(sizeof *w);
        *w = (struct guard_wait){.waiter = {.done = guard_go_on}, .guard = g, .x = x};
        if (jwks_wait(a->jwks, &w->waiter)) {
            exchange_hold(x);
            g->waiting++;
            *waits = true;
            return NULL;
        }
        free(w);
    }
    if (why == NULL && !(may_wait && full))
        return guard_fail(g, a->why);
    return &no_keys;
}

/* ---- the whole ---- */

struct guard *guard_new(const struct guard_setup *setup)
{
    struct guard *g = mem_zalloc(sizeof *g);
    g->setup = *setup;
    if (setup->sched == NULL)
        return g;
    g->tokens = tokens_new(setup->sched);
    g->issuers = issuers_new(&(struct issuers_setup){.sched = setup->sched,
                                                     .fetcher = setup->fetcher,
                                                     .tokens = g->tokens,
                                                     .trace = setup->trace});
    return g;
}

void guard_stop(struct guard *g)
{
    if (g != NULL && g->issuers != NULL)
        issuers_stop(g->issuers);
}

void guard_free(struct guard *g)
{
    if (g == NULL)
        return;
    issuers_free(g->issuers);
    tokens_free(g->tokens);
    policy_unref(g->policy);
    free(g);
}

void guard_set_policy(struct guard *g, struct policy *policy)
{
    policy_ref(policy);
    policy_unref(g->policy);
    g->policy = policy;
    guard_forget_tokens(g);
    if (g->issuers != NULL)
        issuers_set_policy(g->issuers, policy);
}

void guard_set_own_keys(struct guard *g, const struct jwk_set *keys)
{
    guard_forget_tokens(g);
    if (g->issuers != NULL)
        issuers_set_own(g->issuers, keys);
}

void guard_forget_tokens(struct guard *g)
{
    if (g->tokens != NULL)
        tokens_forget(g->tokens);
}
