// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "access/minted.h"
#include "access/policy.h"
#include "base/sched.h"
#include "http/issuers.h"
#include "http/tokens.h"
#include "../token/token_kit.h"

#define NOW    1700000000
#define SECRET STR("0123456789abcdef0123456789abcdef")
#define OURS   STR("fedcba9876543210fedcba9876543210")

struct fixture {
    struct sched sched;
    struct tokens *tokens;
    struct issuers *issuers;
    struct jwk_set *own;
    EVP_PKEY *key;
    struct buf token;
    struct issuers_answer answer;
};

static const struct str aud = STR_INIT("https://us.example"), typ = STR_INIT("at+jwt");

static struct issuer new_issuer(const char *name, struct jwk_set *keys, int64_t not_before_s)
{
    return (struct issuer){.name = str_of_cstr(name),
                           .iss = str_of_cstr(name),
                           .aud = &aud,
                           .n_aud = 1,
                           .typ = &typ,
                           .n_typ = 1,
                           .max_lifetime_s = 3600,
                           .not_before_s = not_before_s,
                           .keys = keys};
}

static struct jwk_set *secret_set(struct str secret, struct str kid)
{
    struct jwk_set *keys = NULL;
    char why[100];
    jwk_set_from_secret(&(struct jwk_secret){secret, kid}, NULL, &keys, why, sizeof why);
    return keys;
}

/* With the caller `ci`, if asked for, and the issuers `hs` and `ed`. */
static void set_policy(struct fixture *f, bool caller, int64_t not_before_s)
{
    struct policy *p = policy_new();
    struct buf jwk = {0};
    struct jwk_set *public = NULL;
    char why[100];
    if (caller) {
        struct principal *ci = principal_new();
        ci->name = STR("ci");
        policy_add_caller(p, NULL, ci);
    }
    kit_put_jwk(&jwk, f->key, ",\"kid\":\"k\"");
    jwk_set_parse(buf_str(&jwk), NULL, &public, why, sizeof why);
    struct issuer hs = new_issuer("hs", secret_set(SECRET, STR("")), not_before_s),
                  ed = new_issuer("ed", public, 0);
    policy_add_issuer(p, &hs);
    policy_add_issuer(p, &ed);
    issuers_set_policy(f->issuers, p);
    policy_unref(p);
    buf_deinit(&jwk);
}

static int setup(void **state)
{
    static struct fixture f;
    f = (struct fixture){.key = kit_key(JWK_EDDSA), .own = secret_set(OURS, STR("tm-1"))};
    sched_init(&f.sched, 5000, NOW * INT64_C(1000));
    f.tokens = tokens_new(&f.sched);
    f.issuers = issuers_new(&(struct issuers_setup){.sched = &f.sched, .tokens = f.tokens});
    issuers_set_own(f.issuers, f.own);
    set_policy(&f, true, 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    principal_unref(f->answer.principal);
    issuers_free(f->issuers);
    tokens_free(f->tokens);
    jwk_set_free(f->own);
    EVP_PKEY_free(f->key);
    buf_deinit(&f->token);
    return 0;
}

static enum issuers_verdict verify(struct fixture *f, bool link)
{
    principal_unref(f->answer.principal);
    return issuers_verify(f->issuers, buf_str(&f->token), link, &f->answer);
}

/* A token of an issuer, for `alice`. good: its signature is. */
static void make(struct fixture *f, const char *iss, enum jwk_alg alg, const char *kid, bool good)
{
    char header[100], payload[200];
    f->token.n = 0;
    int n = snprintf(header, sizeof header, "{\"alg\":\"%s\",\"kid\":\"%s\",\"typ\":\"at+jwt\"}",
                     jwk_alg_name(alg), kid);
    int m = snprintf(payload, sizeof payload,
                     "{\"iss\":\"%s\",\"aud\":\"%s\",\"sub\":\"alice\",\"iat\":%d,\"exp\":%d}", iss,
                     aud.p, NOW, NOW + 60);
    kit_put_text(&f->token, str_of(header, (size_t)n), str_of(payload, (size_t)m));
    struct buf signature = {0};
    kit_put_signature(&signature, alg, f->key, SECRET, buf_str(&f->token));
    signature.p[0] ^= !good;
    buf_putc(&f->token, '.');
    b64url_put(&f->token, buf_str(&signature));
    buf_deinit(&signature);
}

/* One of our own, that somebody has had minted who may do everything. */
static void make_own(struct fixture *f, const char *issuer, const char *sub, bool link)
{
    struct access_grant one = {
        .verbs = ACCESS_MAY(READ), .kind = ACCESS_STREAM, .pattern = STR("a/**")};
    struct access_grants grants = {&one, 1};
    struct access_limits limits = {0};
    struct principal *p = principal_new();
    char jti[MINTED_JTI + 1];
    p->known = true;
    p->issuer = str_of_cstr(issuer);
    p->sub = str_of_cstr(sub);
    p->id = p->sub;
    f->token.n = 0;
    struct minted m = {
        .grants = &grants, .limits = &limits, .issued_s = NOW, .expires_s = NOW + 60, .link = link};
    assert_int_equal(minted_sign(f->own, p, &m, &f->token, jti), 0);
    principal_unref(p);
}

static void test_each_issuer_has_its_keys(void **state)
{
    struct fixture *f = *state;
    make(f, "hs", JWK_HS256, "any", true);
    assert_int_equal(verify(f, false), ISSUERS_GOOD);
    assert_true(str_eq(f->answer.principal->id, STR("hs|alice")));
    make(f, "ed", JWK_EDDSA, "k", true);
    assert_int_equal(verify(f, false), ISSUERS_GOOD);
    assert_true(str_eq(f->answer.principal->id, STR("ed|alice")));
    make(f, "ed", JWK_HS256, "k", true);
    assert_int_equal(verify(f, false), ISSUERS_BAD);
    make(f, "hs", JWK_EDDSA, "k", true);
    assert_int_equal(verify(f, false), ISSUERS_BAD);
    make(f, "nobody", JWK_HS256, "k", true);
    assert_int_equal(verify(f, false), ISSUERS_BAD);
    make(f, "ed", JWK_EDDSA, "other", true);
    assert_int_equal(verify(f, false), ISSUERS_NO_KEY);
    assert_null(f->answer.jwks); /* it is in a file */
}

static void test_an_issuers_token_is_no_link(void **state)
{
    struct fixture *f = *state;
    make(f, "hs", JWK_HS256, "any", true);
    assert_int_equal(verify(f, true), ISSUERS_BAD);
}

static void test_what_is_early_may_be_good_later(void **state)
{
    struct fixture *f = *state;
    make(f, "hs", JWK_HS256, "any", true);
    f->sched.wall_ms -= 100 * 1000;
    assert_int_equal(verify(f, false), ISSUERS_BAD_NOW);
    f->sched.wall_ms += 100 * 1000;
    assert_int_equal(verify(f, false), ISSUERS_GOOD);
}

static void test_bad_signatures_are_bounded(void **state)
{
    struct fixture *f = *state;
    make(f, "ed", JWK_EDDSA, "k", false);
    for (int i = 0; i < TOKENS_CHECKS; i++)
        assert_int_equal(verify(f, false), ISSUERS_BAD);
    assert_int_equal(verify(f, false), ISSUERS_BUSY);
    make(f, "hs", JWK_HS256, "any", true); /* costs nothing */
    assert_int_equal(verify(f, false), ISSUERS_GOOD);
    make(f, "ed", JWK_EDDSA, "k", true);
    assert_int_equal(verify(f, false), ISSUERS_BUSY);
    f->sched.now_ms += 1000;
    assert_int_equal(verify(f, false), ISSUERS_GOOD);
}

static void test_tokens_of_our_own(void **state)
{
    struct fixture *f = *state;
    make_own(f, "", "ci", false);
    assert_int_equal(verify(f, false), ISSUERS_GOOD);
    assert_true(str_eq(f->answer.principal->id, STR("ci")));
    assert_false(f->answer.principal->by_link);
    assert_int_equal(verify(f, true), ISSUERS_BAD);
    make_own(f, "", "ci", true);
    assert_int_equal(verify(f, false), ISSUERS_BAD);
    assert_int_equal(verify(f, true), ISSUERS_GOOD);
    assert_true(f->answer.principal->by_link);
    f->sched.wall_ms += 60 * 1000; /* to the second */
    assert_int_equal(verify(f, true), ISSUERS_BAD);
    issuers_set_own(f->issuers, NULL);
    assert_int_equal(verify(f, true), ISSUERS_BAD_NOW);
}

/* What somebody had minted goes when he does. */
static void test_our_own_die_with_their_minters(void **state)
{
    struct fixture *f = *state;
    make_own(f, "", "ci", false);
    set_policy(f, false, 0);
    assert_int_equal(verify(f, false), ISSUERS_BAD);
    make_own(f, "hs", "alice", false);
    assert_int_equal(verify(f, false), ISSUERS_GOOD);
    set_policy(f, true, NOW + 1);
    assert_int_equal(verify(f, false), ISSUERS_BAD);
    make_own(f, "gone", "alice", false);
    assert_int_equal(verify(f, false), ISSUERS_BAD);
}

static bool lost(struct fixture *f, const char *iss, enum jwk_alg alg, const char *kid)
{
    make(f, iss, alg, kid, true);
    assert_int_equal(verify(f, false), ISSUERS_GOOD);
    return issuers_lost(f->issuers, f->answer.principal);
}

/* Who was known by a key that is not there any more, or is another one of the same kid, is not. */
static void test_a_bearer_is_lost_with_his_key(void **state)
{
    struct fixture *f = *state;
    assert_false(lost(f, "hs", JWK_HS256, "any"));
    assert_false(lost(f, "ed", JWK_EDDSA, "k"));
    set_policy(f, true, 0); /* read again, and the same */
    assert_false(issuers_lost(f->issuers, f->answer.principal));
    EVP_PKEY_free(f->key);
    f->key = kit_key(JWK_EDDSA);
    set_policy(f, true, 0);
    assert_true(issuers_lost(f->issuers, f->answer.principal));
    assert_false(lost(f, "hs", JWK_HS256, "any"));
    set_policy(f, true, NOW + 1);
    assert_true(issuers_lost(f->issuers, f->answer.principal));
    make_own(f, "", "ci", false);
    assert_int_equal(verify(f, false), ISSUERS_GOOD);
    assert_false(issuers_lost(f->issuers, f->answer.principal));
    set_policy(f, false, 0);
    assert_true(issuers_lost(f->issuers, f->answer.principal));
}

static void test_a_caller_is_lost_with_his_section(void **state)
{
    struct fixture *f = *state;
    struct principal *ci = principal_new();
    ci->name = STR("ci");
    ci->known = true;
    assert_false(issuers_lost(f->issuers, ci));
    ci->section++; /* what the one in use says is something else */
    assert_true(issuers_lost(f->issuers, ci));
    ci->section--;
    set_policy(f, false, 0);
    assert_true(issuers_lost(f->issuers, ci));
    principal_unref(ci);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_each_issuer_has_its_keys),
        TEST(test_an_issuers_token_is_no_link),
        TEST(test_what_is_early_may_be_good_later),
        TEST(test_bad_signatures_are_bounded),
        TEST(test_tokens_of_our_own),
        TEST(test_our_own_die_with_their_minters),
        TEST(test_a_bearer_is_lost_with_his_key),
        TEST(test_a_caller_is_lost_with_his_section),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
