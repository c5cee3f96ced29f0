// SPDX-License-Identifier: Apache-2.0
#include "http/issuers.h"
#include "access/minted.h"
#include "access/policy.h"
#include "base/mem.h"
#include "base/sched.h"
#include "http/fetch.h"
#include "http/jwks.h"
#include "http/tokens.h"

#include <stdlib.h>

struct issuers {
    struct issuers_setup setup;
    struct policy *policy;
    struct jwks **jwks; /* one for each of the policy's; NULL: its keys are in the policy */
    size_t n;
    const struct jwk_set *own;
};

/* ---- keys ---- */

static void issuers_on_changed(void *ctx)
{
    struct issuers *s = ctx;
    tokens_forget(s->setup.tokens);
    if (s->setup.changed != NULL)
        s->setup.changed(s->setup.ctx);
}

/* Those of the same section and place, taken out of the old list; NULL: there are none. */
static struct jwks *take_jwks(struct issuers *s, const struct issuer *i)
{
    for (size_t k = 0; k < s->n; k++) {
        struct jwks *j = s->jwks[k];
        if (j == NULL || !str_eq(s->policy->issuers[k].name, i->name) ||
            !jwks_is(j, i->jwks_url, &i->algs))
            continue;
        s->jwks[k] = NULL;
        return j;
    }
    return NULL;
}

static struct jwks *make_jwks(struct issuers *s, const struct issuer *i)
{
    struct jwks_setup setup = {.sched = s->setup.sched,
                               .fetcher = s->setup.fetcher,
                               .trace = s->setup.trace,
                               .audit = s->setup.audit,
                               .name = i->name,
                               .url = i->jwks_url,
                               .policy = i->algs,
                               .start = fetch_start,
                               .changed = issuers_on_changed,
                               .ctx = s};
    struct jwks *j = take_jwks(s, i);
    if (j == NULL)
        return jwks_new(&setup);
    jwks_refresh(j);
    return j;
}

static void free_jwks(struct jwks **jwks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        jwks_free(jwks[i]);
    free(jwks);
}

void issuers_set_policy(struct issuers *s, struct policy *policy)
{
    struct jwks **jwks = mem_zalloc((policy->n_issuers + 1) * sizeof *jwks);
    for (size_t i = 0; s->setup.fetcher != NULL && i < policy->n_issuers; i++)
        if (policy->issuers[i].jwks_url.n > 0)
            jwks[i] = make_jwks(s, &policy->issuers[i]);
    struct policy *before = s->policy;
    struct jwks **old = s->jwks;
    size_t n = s->n;
    s->policy = policy_ref(policy);
    s->jwks = jwks;
    s->n = policy->n_issuers;
    free_jwks(old, n); /* whoever waits is told, and finds the new ones */
    policy_unref(before);
}

void issuers_set_own(struct issuers *s, const struct jwk_set *keys)
{
    s->own = keys;
}

/* ---- tokens ---- */

static enum issuers_verdict bad(struct issuers_answer *out, enum issuers_verdict v, const char *why)
{
    out->why = why;
    return v;
}

/* What a verdict of the verifier means here. A signature that was looked at for nothing is counted;
 * those of HMACs cost next to nothing. */
static enum issuers_verdict refused(struct issuers *s, enum jwt_verdict v, enum jwk_alg alg,
                                    struct issuers_answer *out)
{
    if (v >= JWT_BAD_SIGNATURE && alg != JWK_HS256)
        tokens_checked_bad(s->setup.tokens);
    if (v == JWT_UNKNOWN_KID)
        return bad(out, ISSUERS_NO_KEY, jwt_verdict_text(v));
    out->ended = v == JWT_EXPIRED;
    return bad(out, v == JWT_NOT_YET_VALID ? ISSUERS_BAD_NOW : ISSUERS_BAD, jwt_verdict_text(v));
}

/* NULL: the caller who had it minted could have it minted today. */
static const char *orphaned_by_caller(const struct principal *caller, const struct principal *p)
{
    if (caller == NULL)
        return "its caller is not configured any more";
    if (!str_eq(caller->root, p->root) || !access_covers(&caller->rights, p->rights.layers[0]))
        return "its caller may not do this any more";
    return NULL;
}

/* Whoever had it minted is still there. */
static const char *orphaned(const struct issuers *s, const struct principal *p)
{
    const struct issuer *i = policy_find_issuer_named(s->policy, p->issuer);
    if (p->issuer.n == 0)
        return orphaned_by_caller(policy_find_name(s->policy, p->sub), p);
    if (i == NULL)
        return "its issuer is not configured any more";
    return p->issued_s < i->not_before_s ? "it was issued before the issuer's not-before" : NULL;
}

/* NULL: there are none at present. */
static const struct jwk_set *keys_of(const struct issuers *s, const struct issuer *i)
{
    const struct jwks *fetched = s->jwks[i - s->policy->issuers];
    return fetched != NULL ? jwks_keys(fetched) : i->keys;
}

bool issuers_lost(const struct issuers *s, const struct principal *p)
{
    if (!p->known)
        return false;
    if (p->minted)
        return orphaned(s, p) != NULL || (s->own != NULL && !jwk_set_holds(s->own, p->kid, p->key));
    if (p->issuer.n == 0) {
        const struct principal *now = policy_find_name(s->policy, p->name);
        return now == NULL || now->section != p->section;
    }
    const struct issuer *i = policy_find_issuer_named(s->policy, p->issuer);
    if (i == NULL || i->section != p->section || p->issued_s < i->not_before_s)
        return true;
    const struct jwk_set *keys = keys_of(s, i);
    return keys != NULL && !jwk_set_holds(keys, p->kid, p->key);
}

static enum issuers_verdict verify_own(struct issuers *s, struct str token, bool link,
                                       struct issuers_answer *out)
{
    struct principal *p;
    if (s->own == NULL)
        return bad(out, ISSUERS_BAD_NOW, "no tokens are signed here");
    enum jwt_verdict v =
        minted_verify(s->own, token, link, sched_awake_wall_ms(s->setup.sched) / 1000, &p);
    out->ended = v == JWT_EXPIRED;
    if (v != JWT_OK)
        return bad(out,
                   v == JWT_NOT_YET_VALID || v == JWT_UNKNOWN_KID ? ISSUERS_BAD_NOW : ISSUERS_BAD,
                   jwt_verdict_text(v));
    const char *why = orphaned(s, p);
    if (why != NULL) {
        principal_unref(p);
        return bad(out, ISSUERS_BAD, why);
    }
    out->principal = p;
    return ISSUERS_GOOD;
}

static enum issuers_verdict verify_with(struct issuers *s, const struct issuer *i,
                                        const struct jwk_set *keys, enum jwk_alg alg,
                                        struct str token, struct issuers_answer *out)
{
    struct jwt_rules rules;
    struct jwt t;
    if (alg != JWK_HS256 && !tokens_may_check(s->setup.tokens, token))
        return bad(out, ISSUERS_BUSY, "too many bad signatures at present");
    issuer_rules(i, keys, &rules);
    enum jwt_verdict v = jwt_verify(&rules, token, sched_awake_wall_ms(s->setup.sched) / 1000, &t);
    if (v != JWT_OK)
        return refused(s, v, alg, out);
    out->principal = issuer_principal(i, &t, &out->why);
    jwt_deinit(&t);
    return out->principal != NULL ? ISSUERS_GOOD : ISSUERS_BAD;
}

enum issuers_verdict issuers_verify(struct issuers *s, struct str token, bool link,
                                    struct issuers_answer *out)
{
    struct jwt_head head;
    *out = (struct issuers_answer){0};
    enum jwt_verdict v = jwt_peek(token, &head);
    if (v != JWT_OK)
        return bad(out, ISSUERS_BAD, jwt_verdict_text(v));
    if (link && token.n > JWT_LINK_MAX)
        return bad(out, ISSUERS_BAD, "a link is too long");
    struct str iss = str_of_cstr(head.iss);
    if (str_eq(iss, STR(MINTED_ISSUER)))
        return verify_own(s, token, link, out);
    const struct issuer *i = policy_find_issuer(s->policy, iss);
    if (i == NULL)
        return bad(out, ISSUERS_BAD, "no issuer has this iss");
    if (link)
        return bad(out, ISSUERS_BAD, "a token of an issuer is no link");
    out->jwks = s->jwks[i - s->policy->issuers];
    const struct jwk_set *keys = keys_of(s, i);
    if (keys == NULL)
        return bad(out, ISSUERS_NO_KEYS, "the issuer's keys cannot be had");
    return verify_with(s, i, keys, head.alg, token, out);
}

/* Another server of this kind has another key, and calls it otherwise. */
static bool is_own_kid(const struct issuers *s, struct str kid)
{
    return s->own == NULL || str_eq(jwk_set_kid(s->own, 0), kid);
}

static struct str text_at(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);
    return json_is_string(v) ? str_of(json_string_value(v), json_string_length(v)) : STR_NONE;
}

enum issuers_origin issuers_origin(const struct issuers *s, struct str token)
{
    enum issuers_origin found = ISSUERS_FOREIGN;
    json_t *header, *payload;
    if (!jwt_split(token, &header, &payload))
        return found;
    struct str iss = text_at(payload, "iss");
    const struct issuer *i = policy_find_issuer(s->policy, iss);
    if (str_eq(iss, STR(MINTED_ISSUER)))
        found = is_own_kid(s, text_at(header, "kid")) ? ISSUERS_OURS : ISSUERS_FOREIGN;
    else if (i != NULL && jwt_is_for(payload, i->aud, i->n_aud))
        found = ISSUERS_THEIRS;
    json_decref(header);
    json_decref(payload);
    return found;
}

/* ---- the whole ---- */

struct issuers *issuers_new(const struct issuers_setup *setup)
{
    struct issuers *s = mem_zalloc(sizeof *s);
    s->setup = *setup;
    s->policy = policy_new();
    return s;
}

void issuers_stop(struct issuers *s)
{
    struct jwks **jwks = s->jwks;
    s->jwks = mem_zalloc((s->n + 1) * sizeof *jwks);
    s->setup.fetcher = NULL;
    free_jwks(jwks, s->n);
}

void issuers_free(struct issuers *s)
{
    if (s == NULL)
        return;
    free_jwks(s->jwks, s->n);
    policy_unref(s->policy);
    free(s);
}
