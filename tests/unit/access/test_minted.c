// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "access/minted.h"
#include "base/err.h"

#define NOW 1700000000

struct fixture {
    struct jwk_set *keys;
    struct arena arena;
    struct access_grants grants;
    struct access_limits none;
    struct principal *app, *first, *second;
    struct buf token;
};

static struct principal *principal_named(struct fixture *f, const char *issuer, const char *sub)
{
    struct principal *p = principal_new();
    p->known = true;
    p->issuer = str_of_cstr(issuer);
    p->name = p->sub = str_of_cstr(sub);
    p->id = issuer[0] != '\0' ? arena_printf(&f->arena, "%s|%s", issuer, sub) : p->sub;
    p->rights = (struct access_rights){.layers = {&f->grants}, .n = 1};
    return p;
}

static int setup(void **state)
{
    static struct fixture f;
    char ignored[200];
    struct jwk_secret secret = {STR("0123456789abcdef0123456789abcdef"), STR("tm-1")};
    f = (struct fixture){0};
    jwk_set_from_secret(&secret, NULL, &f.keys, ignored, sizeof ignored);
    access_grants_add_line(&f.grants, &f.arena, STR("read chats/**"), ignored, sizeof ignored);
    f.app = principal_named(&f, "", "app");
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    principal_unref(f->app);
    principal_unref(f->first);
    principal_unref(f->second);
    jwk_set_free(f->keys);
    buf_deinit(&f->token);
    arena_deinit(&f->arena);
    return 0;
}

static int sign(struct fixture *f, const struct principal *by, const char *user)
{
    char jti[MINTED_JTI + 1];
    struct minted m = {.grants = &f->grants,
                       .limits = &f->none,
                       .issued_s = NOW,
                       .expires_s = NOW + 60,
                       .user = str_of_cstr(user)};
    f->token.n = 0;
    return minted_sign(f->keys, by, &m, &f->token, jti);
}

/* Who bears what this one has minted for a user; "": for nobody in particular. */
static struct principal *bearer(struct fixture *f, const struct principal *by, const char *user)
{
    struct principal *p;
    assert_int_equal(sign(f, by, user), 0);
    assert_int_equal(minted_verify(f->keys, buf_str(&f->token), false, NOW, &p), JWT_OK);
    return p;
}

static void assert_text(struct str s, const char *wanted)
{
    if (!str_eq(s, str_of_cstr(wanted)))
        fail_msg("%.*s instead of %s", (int)s.n, s.p, wanted);
}

static void test_without_a_user_the_bearer_is_the_minter(void **state)
{
    struct fixture *f = *state;
    f->first = bearer(f, f->app, "");
    assert_text(f->first->id, "app");
    assert_text(principal_counts_as(f->first), "app");
    assert_int_equal(f->first->user.n, 0);
    assert_false(f->first->apart);
}

static void test_a_user_is_somebody_else(void **state)
{
    struct fixture *f = *state;
    f->first = bearer(f, f->app, "ann");
    assert_text(f->first->id, ">ann>app");
    assert_text(f->first->user, "ann");
    assert_text(f->first->name, "ann");
    assert_text(f->first->sub, "app"); /* whose rights they are */
    assert_true(f->first->apart);
    assert_text(principal_counts_as(f->first), ">ann>app");
}

/* Issuers choose their subjects, with any signs in them. */
static void test_no_two_users_are_one(void **state)
{
    struct fixture *f = *state;
    static const char *const issuers[] = {"", "", "idp", "idp", "idp"};
    static const char *const subs[] = {"app", "other", "app", "x>ann>app", ">ann>app"};
    static const char *const users[] = {"", "ann", "bob"};
    struct str ids[5 * 3];
    size_t n = 0;
    for (size_t i = 0; i < sizeof subs / sizeof *subs; i++)
        for (size_t u = 0; u < sizeof users / sizeof *users; u++) {
            struct principal *by = principal_named(f, issuers[i], subs[i]),
                             *p = bearer(f, by, users[u]);
            ids[n++] = arena_dup(&f->arena, p->id);
            principal_unref(p);
            principal_unref(by);
        }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            assert_false(str_eq(ids[i], ids[j]));
}

static void test_a_users_token_makes_no_other_user(void **state)
{
    struct fixture *f = *state;
    f->first = bearer(f, f->app, "ann");
    assert_int_equal(sign(f, f->first, "bob"), ERR_DENIED);
    f->second = bearer(f, f->first, "");
    assert_text(f->second->id, ">ann>app");
    assert_true(f->second->apart);
    principal_unref(f->second);
    f->second = bearer(f, f->first, "ann");
    assert_text(f->second->id, ">ann>app");
    assert_text(f->second->minter, "app");
}

/* Users by the thousand get no more than who has made them up. */
static void test_users_of_a_bounded_minter_count_as_he_does(void **state)
{
    struct fixture *f = *state;
    struct principal *subject = principal_named(f, "idp", "bob"); /* such have limits always */
    f->first = bearer(f, subject, "ann");
    principal_unref(subject);
    assert_text(f->first->id, ">ann>idp|bob");
    assert_text(principal_counts_as(f->first), "idp|bob");
    f->app->limits.stored = 1000; /* counted by root */
    f->second = bearer(f, f->app, "ann");
    assert_true(f->second->apart);
    assert_int_equal(f->second->limits.stored, 1000);
    principal_unref(f->second);
    f->app->limits.live = 5;
    f->second = bearer(f, f->app, "ann");
    assert_text(principal_counts_as(f->second), "app");
    principal_unref(f->first);
    f->first = bearer(f, f->second, ""); /* also the next generation */
    assert_text(principal_counts_as(f->first), "app");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_without_a_user_the_bearer_is_the_minter),
        TEST(test_a_user_is_somebody_else),
        TEST(test_no_two_users_are_one),
        TEST(test_a_users_token_makes_no_other_user),
        TEST(test_users_of_a_bounded_minter_count_as_he_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
