// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "access/issuer.h"
#include "access/policy.h"
#include "access/principal.h"

#define NOW 1700000000

struct fixture {
    struct arena arena;
    struct issuer issuer;
    struct jwt token;
    struct principal *found;
    const char *why;
};

static int setup(void **state)
{
    static struct fixture f;
    char ignored[200];
    f = (struct fixture){.issuer = {.name = STR("idp"), .limits = {.live = 10, .rate = 5}}};
    access_grants_add_line(&f.issuer.grants, &f.arena, STR("read, append chats/{sub}/** open/**"),
                           ignored, sizeof ignored);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    principal_unref(f->found);
    jwt_deinit(&f->token);
    arena_deinit(&f->arena);
    return 0;
}

/* What a verified token with these claims makes; false: nobody. */
static bool show(struct fixture *f, const char *claims)
{
    principal_unref(f->found);
    jwt_deinit(&f->token);
    json_t *payload = json_loads(claims, 0, NULL);
    assert_non_null(payload);
    const char *sub = json_string_value(json_object_get(payload, "sub")),
               *jti = json_string_value(json_object_get(payload, "jti"));
    f->token = (struct jwt){.sub = sub != NULL ? str_of_cstr(sub) : STR_NONE,
                            .jti = jti != NULL ? str_of_cstr(jti) : STR_NONE,
                            .iat_s = NOW,
                            .exp_s = NOW + 60,
                            .payload = payload};
    f->found = issuer_principal(&f->issuer, &f->token, &f->why);
    return f->found != NULL;
}

static bool may(const struct fixture *f, enum access_verb verb, struct str name)
{
    return principal_may(f->found, verb, ACCESS_STREAM, name);
}

static void test_the_section_grants(void **state)
{
    struct fixture *f = *state;
    assert_true(show(f, "{\"sub\":\"alice\",\"jti\":\"7\"}"));
    assert_true(may(f, ACCESS_VERB_READ, STR("chats/alice/1")));
    assert_true(may(f, ACCESS_VERB_APPEND, STR("open/x")));
    assert_false(may(f, ACCESS_VERB_READ, STR("chats/bob/1")));
    assert_false(may(f, ACCESS_VERB_DELETE, STR("open/x")));
    assert_true(f->found->known && !f->found->by_link);
    assert_true(str_eq(f->found->name, STR("alice")) && str_eq(f->found->sub, STR("alice")));
    assert_true(str_eq(f->found->issuer, STR("idp")) && str_eq(f->found->jti, STR("7")));
    assert_int_equal(f->found->issued_s, NOW);
    assert_int_equal(f->found->expires_ms, (NOW + 60 + JWT_SKEW_S) * INT64_C(1000));
    assert_int_equal(f->found->limits.live, 10);
}

static void test_a_token_may_have_less_and_never_more(void **state)
{
    struct fixture *f = *state;
    assert_true(show(f, "{\"sub\":\"a\",\"authorization_details\":[{\"type\":\"tidemark\","
                        "\"actions\":[\"read\",\"delete\"],\"on\":[\"open/1\",\"chats/**\"],"
                        "\"limits\":{\"live\":3,\"rate\":900,\"streams\":1}}]}"));
    assert_true(may(f, ACCESS_VERB_READ, STR("open/1")));
    assert_true(may(f, ACCESS_VERB_READ, STR("chats/a/1")));
    assert_false(may(f, ACCESS_VERB_READ, STR("open/2")));
    assert_false(may(f, ACCESS_VERB_READ, STR("chats/b/1")));
    assert_false(may(f, ACCESS_VERB_DELETE, STR("open/1")));
    assert_false(may(f, ACCESS_VERB_APPEND, STR("open/1")));
    assert_int_equal(f->found->limits.live, 3);
    assert_int_equal(f->found->limits.rate, 5);
    assert_int_equal(f->found->limits.streams, 1);
}

static void test_no_grants_are_none(void **state)
{
    struct fixture *f = *state;
    f->issuer.grants.n = 0;
    assert_true(show(f, "{\"sub\":\"a\",\"authorization_details\":[{\"type\":\"tidemark\","
                        "\"actions\":[\"read\"],\"on\":[\"**\"]}]}"));
    assert_false(may(f, ACCESS_VERB_READ, STR("open/1")));
    assert_true(show(f, "{\"sub\":\"a\"}"));
    assert_false(may(f, ACCESS_VERB_READ, STR("open/1")));
}

static void test_one_bad_entry_voids_the_token(void **state)
{
    struct fixture *f = *state;
    assert_false(show(f, "{\"sub\":\"a\",\"authorization_details\":[{\"type\":\"tidemark\","
                         "\"actions\":[\"read\"],\"on\":[\"open/1\"]},{\"type\":\"tidemark\"}]}"));
    assert_non_null(strstr(f->why, "authorization_details"));
    assert_false(show(f, "{\"authorization_details\":{}}"));
    assert_true(show(f, "{\"authorization_details\":[{\"type\":\"bank\"}]}"));
}

static void test_roots(void **state)
{
    struct fixture *f = *state;
    f->issuer.root = STR("t/{tenant}/");
    assert_true(show(f, "{\"sub\":\"a\",\"tenant\":\"acme\"}"));
    assert_true(str_eq(f->found->root, STR("t/acme/")));
    assert_false(show(f, "{\"sub\":\"a\"}"));
    assert_non_null(strstr(f->why, "root"));
    assert_false(show(f, "{\"tenant\":\"a/b\"}"));
    assert_false(show(f, "{\"tenant\":\"..\"}"));
    assert_false(show(f, "{\"tenant\":{\"sub\":\"a\"}}"));
    f->issuer.root = STR("{tenant}/");
    assert_false(show(f, "{\"tenant\":\".route\"}")); /* names of the server's own */
}

static void test_the_cut_off(void **state)
{
    struct fixture *f = *state;
    f->issuer.not_before_s = NOW;
    assert_true(show(f, "{}"));
    f->issuer.not_before_s = NOW + 1;
    assert_false(show(f, "{}"));
}

static void assert_id(struct fixture *f, const char *claims, const char *id)
{
    assert_true(show(f, claims));
    assert_true(str_eq(f->found->id, str_of_cstr(id)));
}

/* None of them is another's, nor a caller's name. */
static void test_identities(void **state)
{
    struct fixture *f = *state;
    assert_id(f, "{\"sub\":\"a\",\"jti\":\"7\"}", "idp|a");
    assert_id(f, "{\"sub\":\"#7\"}", "idp|#7");
    assert_id(f, "{\"jti\":\"7\"}", "idp#7");
    assert_id(f, "{}", "idp#");
    assert_true(str_eq(f->found->name, STR("idp")));
    f->issuer.root = STR("t/{tenant}/");
    assert_id(f, "{\"sub\":\"a\",\"tenant\":\"1\"}", "idp|t/1/|a");
    assert_id(f, "{\"sub\":\"a\",\"tenant\":\"2\"}", "idp|t/2/|a");
    assert_id(f, "{\"jti\":\"7\",\"tenant\":\"1\"}", "idp|t/1/#7");
}

/* ---- who else there is ---- */

static void test_certificates_and_names(void **state)
{
    struct policy *p = policy_new();
    struct principal *robot = principal_new();
    uint8_t digest[SHA256_SIZE];
    sha256(STR("token"), digest);
    robot->name = STR("robot");
    policy_add_caller(p, digest, robot);
    policy_add_certificate(p, robot, STR("spiffe://x/Robot"));
    policy_add_certificate(p, robot, STR("Robot.example"));
    struct principal *mute = principal_new();
    mute->name = STR("mute");
    policy_add_caller(p, NULL, mute);
    assert_ptr_equal(policy_find_caller(p, STR("token")), robot);
    assert_null(policy_find_caller(p, STR("")));
    assert_ptr_equal(policy_find_name(p, STR("mute")), mute);
    assert_ptr_equal(policy_find_certificate(p, STR("spiffe://x/Robot"), true), robot);
    assert_null(policy_find_certificate(p, STR("spiffe://x/robot"), true));
    assert_null(policy_find_certificate(p, STR("spiffe://x/Robot"), false));
    assert_ptr_equal(policy_find_certificate(p, STR("ROBOT.example"), false), robot);
    assert_null(policy_find_certificate(p, STR("Robot.example"), true));
    policy_add_issuer(p, &(struct issuer){.name = STR("idp"), .iss = STR("https://a/")});
    assert_non_null(policy_find_issuer(p, STR("https://a/")));
    assert_null(policy_find_issuer(p, STR("https://a")));
    assert_non_null(policy_find_issuer_named(p, STR("idp")));
    policy_unref(p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_section_grants),
        TEST(test_a_token_may_have_less_and_never_more),
        TEST(test_no_grants_are_none),
        TEST(test_one_bad_entry_voids_the_token),
        TEST(test_roots),
        TEST(test_the_cut_off),
        TEST(test_identities),
        cmocka_unit_test(test_certificates_and_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
