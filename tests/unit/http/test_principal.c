// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "http/message.h"
#include "http/principal.h"

static const struct str capabilities[] = {STR_INIT("worker"), STR_INIT("tool")};

static struct principals *make(void)
{
    struct principals *all = principals_new();
    uint8_t digest[SHA256_SIZE];
    sha256(STR("secret-a"), digest);
    principals_add(all, digest, (struct principal){STR("a"), capabilities, 2});
    sha256(STR("secret-b"), digest);
    principals_add(all, digest, (struct principal){.name = STR("b")});
    return all;
}

static struct str name_for(const struct principals *all, const char *authorization)
{
    struct header h = {STR("authorization"), str_of_cstr(authorization)};
    struct request req = {.headers = &h, .n_headers = 1};
    return principals_find(all, &req)->name;
}

static void test_a_token_finds_its_caller(void **state)
{
    struct principals *all = make();
    assert_true(str_eq(name_for(all, "Bearer secret-a"), STR("a")));
    assert_true(str_eq(name_for(all, "bearer  secret-b "), STR("b")));
    principals_free(all);
}

static void test_everything_else_is_anonymous(void **state)
{
    static const char *const others[] = {"",
                                         "Bearer",
                                         "Bearer ",
                                         "secret-a",
                                         "Basic secret-a",
                                         "Bearer secret-a2",
                                         "Bearer secret",
                                         "Bearersecret-a"};
    struct principals *all = make();
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_true(str_eq(name_for(all, others[i]), STR("anonymous")));
    struct request none = {0};
    assert_ptr_equal(principals_find(all, &none), &principal_anonymous);
    principals_free(all);
}

static void test_capabilities(void **state)
{
    struct principal p = {STR("a"), capabilities, 2};
    assert_true(principal_can(&p, STR("tool")));
    assert_false(principal_can(&p, STR("too")));
    assert_false(principal_can(&principal_anonymous, STR("worker")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_token_finds_its_caller),
        cmocka_unit_test(test_everything_else_is_anonymous),
        cmocka_unit_test(test_capabilities),
    };
    return cmocka_run_group_tests_name("principal", tests, NULL, NULL);
}
