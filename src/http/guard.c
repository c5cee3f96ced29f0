// SPDX-License-Identifier: Apache-2.0
#include "http/guard.h"
#include "access/policy.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/sched.h"
#include "http/audit.h"
#include "http/credential.h"
#include "http/exchange.h"
#include "http/front_state.h"
#include "http/http.h"
#include "http/issuers.h"
#include "http/jwks.h"
#include "http/limits.h"
#include "http/refuse.h"
#include "http/rules.h"
#include "http/surface.h"
#include "http/tokens.h"
#include "net/tls_names.h"
#include "telemetry/metrics.h"
#include "telemetry/trace.h"

#include <stdlib.h>

/* How it was decided: X(decision, label). */
#define DECISIONS(X)                                                                               \
    X(ALLOWED, "allowed")                                                                          \
    X(DENIED, "denied")                                                                            \
    X(UNAUTHENTICATED, "unauthenticated")                                                          \
    X(LIMITED, "limited")

enum decision {
#define X(decision, label) DECISION_##decision,
    DECISIONS(X)
#undef X
        DECISIONS_N,
};

static const struct str decision_labels[DECISIONS_N] = {
#define X(decision, label) STR_INIT(label),
    DECISIONS(X)
#undef X
};

static const struct metric_info decisions_info = {
    .name = "access_decisions",
    .help = "Requests by whether access control has let them in",
    .labels = {"decision"},
    .series_max = DECISIONS_N};

struct guard {
    struct guard_setup setup;
    struct policy *policy;
    struct tokens *tokens; /* these two: NULL without a schedule */
    struct issuers *issuers;
    size_t waiting;
    struct counter *decisions[DECISIONS_N]; /* NULL: they are not counted */
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
/* The same to whoever sent it. It was good once, so that nobody is taken for an attacker by it. */
static const struct surface_refusal ended_credential = {
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
static const struct surface_refusal no_keys = {
    503, STR_INIT("BUSY"), STR_INIT("the credential cannot be checked at present; try again"),
    STR_INIT(""), 5};
static const struct surface_refusal too_many_bad = {
    429, STR_INIT("RATE_LIMITED"), STR_INIT("too many credentials are not good; try again"),
    STR_INIT(""), 1};

static const struct surface_refusal misplaced_credential = {
    401, STR_INIT("UNAUTHENTICATED"),
    STR_INIT("this token is for this server, but what is sent like this goes to the upstream; send "
             "it as Tidemark-Authorization"),
    STR_INIT("Bearer error=\"invalid_token\""), 0};

static const struct surface_rule no_rule = {.id = NULL};

static inline void guard_add(struct guard *g, enum decision how)
{
    if (g->decisions[how] != NULL)
        counter_inc(g->decisions[how]);
}

static void guard_count(const struct exchange *x, enum decision how)
{
    struct guard *g = x->http->guard;
    if (g != NULL && g->policy->on)
        guard_add(g, how);
}

/* What was missing; rule->id == NULL: nobody can tell. */
static bool guard_deny(struct exchange *x, const struct surface_rule *rule, struct str name)
{
    struct audit_fact fact = {.event = AUDIT_DENIED, .name = name};
    if (rule->id != NULL) {
        fact.verb = access_verb_text(rule->verb);
        fact.kind = access_kind_text(rule->kind);
    }
    audit_tell(x->http->audit, x, &fact);
    guard_count(x, x->principal->known ? DECISION_DENIED : DECISION_UNAUTHENTICATED);
    refuse(x, x->principal->known ? &forbidden : &no_credential);
    return false;
}

bool exchange_may(struct exchange *x, enum access_verb verb, enum access_kind kind, struct str name)
{
    const struct surface_rule missing = {.id = "", .verb = verb, .kind = kind};
    return exchange_can(x, verb, kind, name) || guard_deny(x, &missing, name);
}

bool exchange_deny(struct exchange *x)
{
    return guard_deny(x, &no_rule, STR_NONE);
}

/* ---- rules ---- */

bool guard_is_public(const struct guard *g, enum access_verb verb, enum access_kind kind,
                     struct str name)
{
    const struct principal *everybody = g != NULL ? g->policy->anonymous : NULL;
    return everybody == NULL || !g->policy->on ||
           (everybody->root.n == 0 && principal_may(everybody, verb, kind, name));
}

/* ---- credentials ---- */

enum guard_step {
    GUARD_GO,
    GUARD_ANSWERED,
    GUARD_WAITS, /* guard_go_on comes when it is known who asks */
};

/* Rules of the surface may have it carry something else than a credential. */
static enum credential_owner owner_of(const struct guard *g, struct exchange *x)
{
    const struct http_route *route = x->route;
    if (route == NULL)
        return CREDENTIAL_OURS;
    if (route->surface->has_tickets && (rules_how(x, route) & RULE_TICKET) != 0)
        return CREDENTIAL_THEIRS;
    if (route->authorization == CREDENTIAL_THEIRS && !g->policy->on)
        return CREDENTIAL_OURS; /* callers are known by it nevertheless */
    return route->authorization;
}

static bool reads(const struct exchange *x)
{
    return x->request->method == METHOD_GET || x->request->method == METHOD_HEAD;
}

/* Browsers send cookies by themselves, whoever's page it is. */
static bool cookie_counts(const struct exchange *x)
{
    return reads(x) &&
           (x->page == FRONT_NO_PAGE || x->page == FRONT_SAME || x->page == FRONT_LISTED);
}

static const struct surface_refusal *guard_tell(struct guard *g, struct exchange *x,
                                                const char *cause, bool ended)
{
    if (g->setup.trace != NULL)
        trace(g->setup.trace, CREDENTIAL_REFUSED, TRACE_STR("why", str_of_cstr(cause)));
    audit_note(x->http->audit, AUDIT_AUTH_FAILED, x, str_of_cstr(cause));
    return ended ? &ended_credential : &bad_credential;
}

static const struct surface_refusal *guard_fail(struct guard *g, struct exchange *x,
                                                const char *cause)
{
    return guard_tell(g, x, cause, false);
}

/* It is this one's. NULL: it will do, where it stands; x->principal is set. */
static const struct surface_refusal *guard_take(struct guard *g, struct exchange *x,
                                                const struct credential *c,
                                                const struct principal *p)
{
    if ((c->by == CREDENTIAL_LINK) != p->by_link)
        return guard_fail(g, x, p->by_link ? "a link is for URLs" : "only a link is for URLs");
    if (c->by == CREDENTIAL_COOKIE && !cookie_counts(x))
        return &cookie_reads;
    if (g->setup.revoked != NULL && g->setup.revoked(g->setup.ctx, p))
        return guard_tell(g, x, "it was revoked", true);
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
    struct issuers_answer a = {.ended = false};
    if (g->setup.starting != NULL && g->setup.starting(g->setup.ctx))
        return &starting;
    enum issuers_verdict v = issuers_verify(g->issuers, c->token, c->by == CREDENTIAL_LINK, &a);
    switch (v) {
    case ISSUERS_GOOD: break;
    case ISSUERS_NO_KEY:
    case ISSUERS_NO_KEYS: return guard_wait(g, x, v, &a, may_wait, waits);
    case ISSUERS_BUSY: return &too_many_bad;
    case ISSUERS_BAD:
        tokens_put_bad(g->tokens, bad, a.ended);
        return guard_tell(g, x, a.why, a.ended);
    default: return guard_fail(g, x, a.why);
    }
    tokens_put(g->tokens, key, c->token, a.principal);
    const struct surface_refusal *why = guard_take(g, x, c, a.principal);
    principal_unref(a.principal);
    return why;
}

/* Not remembered as good. NULL: x->principal is set, or the request waits. */
static const struct surface_refusal *guard_judge(struct guard *g, struct exchange *x,
                                                 const struct credential *c,
                                                 const struct tokens_key *key, bool may_wait,
                                                 bool *waits)
{
    struct tokens_key bad = *key;
    bad.high ^= c->by == CREDENTIAL_LINK; /* what is bad in a URL may be good elsewhere */
    bool ended;
    if (tokens_is_bad(g->tokens, &bad, &ended))
        return guard_tell(g, x, "it was not good a moment ago", ended);
    const struct principal *p = policy_find_caller(g->policy, c->token);
    if (p == NULL)
        return guard_verify(g, x, c, key, &bad, may_wait, waits);
    tokens_put(g->tokens, key, c->token, p);
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
        return guard_tell(g, x, "the certificate has expired", true);
    const struct principal *p = find_certificate(g->policy, names, &many);
    if (p == NULL)
        return guard_fail(
            g, x, many ? "the certificate names two callers" : "the certificate names no caller");
    if (g->setup.revoked != NULL && g->setup.revoked(g->setup.ctx, p))
        return guard_tell(g, x, "it was revoked", true);
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

/* Of a credential that was shown. An address that has shown many bad ones is heard no more, unless
 * this one is remembered as good. */
static enum guard_step guard_identify_token(struct guard *g, struct exchange *x,
                                            const struct credential *c, bool may_wait,
                                            const struct surface_refusal **why)
{
    struct tokens_key key = tokens_key(g->tokens, c->token);
    const struct principal *p = tokens_find(g->tokens, &key, c->token);
    bool waits = false;
    if (p != NULL) {
        *why = guard_take(g, x, c, p);
        if (*why == NULL && c->by == CREDENTIAL_BEARER)
            tokens_let_in(g->tokens, &key, c->token);
    } else if (!limits_try_credential(x)) {
        guard_count(x, DECISION_LIMITED);
        return GUARD_ANSWERED;
    } else {
        *why = guard_judge(g, x, c, &key, may_wait, &waits);
    }
    return waits ? GUARD_WAITS : GUARD_GO;
}

/* Good or not. One of an issuer may be for the upstream as well: whoever shows it to us, too, says
 * so. Those of callers and our own are for nobody else. */
static bool is_misplaced(const struct guard *g, struct str token, const struct credential *shown)
{
    if (policy_find_caller(g->policy, token) != NULL)
        return true;
    enum issuers_origin of =
        g->issuers != NULL ? issuers_origin(g->issuers, token) : ISSUERS_FOREIGN;
    return of == ISSUERS_OURS || (of == ISSUERS_THEIRS && !str_eq(token, shown->token));
}

/* A token of ours where the upstream's belongs is not sent on. NULL: there is none. */
static const struct surface_refusal *guard_find_misplaced(struct guard *g, struct exchange *x,
                                                          const struct credential *shown)
{
    struct str token;
    for (size_t at = 0; (token = credential_next_theirs(x, &at)).p != NULL;)
        if (token.n > 0 && is_misplaced(g, token, shown)) {
            guard_fail(g, x, "it stands where the upstream's is expected");
            return &misplaced_credential;
        }
    return NULL;
}

static const struct surface_refusal *guard_find(struct guard *g, struct exchange *x,
                                                struct credential *out)
{
    enum credential_owner owner = owner_of(g, x);
    if (credential_find(x, owner, out) != 0)
        return &two_credentials;
    bool sent_on = owner == CREDENTIAL_THEIRS && x->route->authorization == owner;
    return sent_on ? guard_find_misplaced(g, x, out) : NULL;
}

/* Sets x->principal. */
static enum guard_step guard_identify(struct guard *g, struct exchange *x, bool may_wait)
{
    struct credential c;
    const struct surface_refusal *why = guard_find(g, x, &c);
    enum guard_step step = GUARD_GO;
    if (why == NULL && c.by == CREDENTIAL_NONE)
        why = guard_judge_peer(g, x);
    else if (why == NULL && (!g->policy->on || g->tokens == NULL))
        guard_know(g, x, &c);
    else if (why == NULL)
        step = guard_identify_token(g, x, &c, may_wait, &why);
    if (why == NULL || !g->policy->on)
        return step;
    guard_count(x, why == &too_many_bad   ? DECISION_LIMITED
                   : why == &cookie_reads ? DECISION_DENIED
                                          : DECISION_UNAUTHENTICATED);
    if (why == &bad_credential)
        limits_note_bad_credential(x);
    refuse(x, why);
    return GUARD_ANSWERED;
}

/* Whoever was let in lately by a token in the usual place is so again: whatever could change that
 * has made tokens.c forget it. NULL: guard_identify has to look. */
static inline const struct principal *guard_recognize(struct guard *g, struct exchange *x)
{
    if (g->tokens == NULL || x->route == NULL || !x->route->plain)
        return NULL;
    struct str token = credential_glance(x->request);
    return token.p != NULL ? tokens_find_recent(g->tokens, token) : NULL;
}

/* What a request comes under is not granted. */
static bool guard_deny_ruled(struct exchange *x)
{
    struct need need;
    rules_missing(x, &need);
    return guard_deny(x, need.rule != NULL ? need.rule : &no_rule, need.name);
}

/* A link is for reading, where a rule says so. */
static bool link_will_do(struct exchange *x)
{
    return reads(x) && (rules_how(x, x->route) & RULE_LINK) != 0;
}

/* It is known who asks. False: refused. */
static inline bool guard_enter(struct guard *g, struct exchange *x)
{
    bool on = g->policy->on;
    if (on && x->request->query.n > 0)
        credential_cut(x);
    if (x->request->method == METHOD_OPTIONS)
        return true; /* a preflight asks for nothing */
    if (!limits_admit(x)) {
        guard_count(x, DECISION_LIMITED);
        return false;
    }
    if (!on || x->route == NULL)
        return true;
    if (!rules_granted(x))
        return guard_deny_ruled(x);
    if (x->principal->by_link && !link_will_do(x))
        return guard_deny(x, &no_rule, STR("by link"));
    guard_add(g, DECISION_ALLOWED);
    return true;
}

bool guard_admit(struct guard *g, struct exchange *x)
{
    const struct principal *p = guard_recognize(g, x);
    if (p != NULL)
        exchange_set_principal(x, p);
    else if (guard_identify(g, x, true) != GUARD_GO)
        return false;
    return guard_enter(g, x);
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
        return guard_fail(g, x, a->why);
    return &no_keys;
}

/* ---- the whole ---- */

/* Settings or keys have changed: answers to those who are not known any more end (answers.h). */
static void guard_on_changed(void *guard)
{
    struct guard *g = guard;
    list_each_safe (l, &g->setup.http->active) {
        struct principal *p = list_item(l, struct principal, active);
        p->gone = p->gone || issuers_lost(g->issuers, p);
    }
}

static void guard_register(struct guard *g, struct metrics *metrics)
{
    struct metric_family *family;
    must(metrics_add_family(metrics, STR("tidemark"), &decisions_info, METRIC_COUNTER, &family) ==
         0);
    for (int i = 0; i < DECISIONS_N; i++)
        g->decisions[i] = metric_family_counter(family, &decision_labels[i]);
}

struct guard *guard_new(const struct guard_setup *setup)
{
    struct guard *g = mem_zalloc(sizeof *g);
    g->setup = *setup;
    if (setup->metrics != NULL)
        guard_register(g, setup->metrics);
    if (setup->sched == NULL)
        return g;
    g->tokens = tokens_new(setup->sched);
    g->issuers = issuers_new(&(struct issuers_setup){.sched = setup->sched,
                                                     .fetcher = setup->fetcher,
                                                     .tokens = g->tokens,
                                                     .trace = setup->trace,
                                                     .audit = setup->audit,
                                                     .changed = guard_on_changed,
                                                     .ctx = g});
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

const struct policy *guard_policy(const struct guard *g)
{
    return g->policy;
}

/* Answers to whoever has lost something end (answers.h); he comes back with what he has. */
static void guard_end_rights(struct guard *g, const struct policy *next)
{
    list_each (l, &g->setup.http->active) {
        struct principal *p = list_item(l, struct principal, active);
        p->gone = p->gone || !policy_upholds(next, g->policy, p);
    }
}

void guard_set_policy(struct guard *g, struct policy *policy)
{
    policy_ref(policy);
    if (g->policy != NULL)
        guard_end_rights(g, policy);
    policy_unref(g->policy);
    g->policy = policy;
    guard_forget_tokens(g);
    if (g->issuers == NULL)
        return;
    issuers_set_policy(g->issuers, policy);
    guard_on_changed(g);
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
