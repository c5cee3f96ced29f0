// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "access/principal.h"
#include "base/err.h"

static const struct str capabilities[] = {STR_INIT("worker"), STR_INIT("tool")};

static void test_capabilities(void **state)
{
    struct principal p = {.name = STR("a"), .capabilities = capabilities, .n_capabilities = 2};
    assert_true(principal_can(&p, STR("tool")));
    assert_false(principal_can(&p, STR("admin")));
    assert_false(principal_can(&principal_anonymous, STR("tool")));
}

static void test_workers(void **state)
{
    struct access_grant work = {
        .verbs = ACCESS_MAY(WORK), .kind = ACCESS_SESSION, .pattern = STR("**")};
    struct access_grants some = {&work, 1}, none = {0};
    struct principal p = {.capabilities = capabilities, .n_capabilities = 2};
    assert_true(principal_works(&p));
    assert_false(principal_works(&principal_anonymous));
    p = (struct principal){.rights = {.layers = {&some}, .n = 1}};
    assert_true(principal_works(&p));
    p.rights = (struct access_rights){.layers = {&some, &none}, .n = 2};
    assert_false(principal_works(&p));
}

static void test_words_are_checked(void **state)
{
    char why[128] = "";
    assert_int_equal(principal_check_capability(STR("worker"), why, sizeof why), 0);
    assert_int_equal(principal_check_capability(STR("db:read"), why, sizeof why), 0);
    assert_int_equal(principal_check_capability(STR("worke"), why, sizeof why), ERR_SYNTAX);
    assert_non_null(strstr(why, "worker"));
}

static void test_names_get_their_root(void **state)
{
    struct arena a = {0};
    struct principal p = {.root = STR("t/acme/")};
    assert_true(str_eq(principal_rooted(&p, &a, STR("x/y")), STR("t/acme/x/y")));
    assert_true(str_eq(principal_unrooted(&p, STR("t/acme/x/y")), STR("x/y")));
    assert_int_equal(principal_unrooted(&p, STR("t/acm/x")).n, 0);
    assert_int_equal(principal_unrooted(&p, STR("t/acme")).n, 0);
    assert_true(str_eq(principal_rooted(&principal_anonymous, &a, STR("x")), STR("x")));
    arena_deinit(&a);
}

static void test_without_layers_everything_is_allowed(void **state)
{
    struct access_grants none = {0};
    struct principal p = {.rights = {.layers = {&none}, .n = 1}};
    assert_true(principal_may(&principal_anonymous, ACCESS_VERB_DELETE, ACCESS_STREAM, STR("x")));
    assert_false(principal_may(&p, ACCESS_VERB_READ, ACCESS_STREAM, STR("x")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_capabilities),
        cmocka_unit_test(test_workers),
        cmocka_unit_test(test_words_are_checked),
        cmocka_unit_test(test_names_get_their_root),
        cmocka_unit_test(test_without_layers_everything_is_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
