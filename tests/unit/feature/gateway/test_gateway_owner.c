// SPDX-License-Identifier: Apache-2.0
/* Whose a generation is: its id says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "access/principal.h"
#include "feature/gateway/gateway_core.h"

#define MANY 200

static struct principal subject(const char *id, const char *root)
{
    return (struct principal){
        .id = str_of_cstr(id), .root = str_of_cstr(root), .rights.n = 1, .known = true};
}

static struct str make(const struct principal *p, char id[REQUEST_ID_TEXT])
{
    gateway_id_make(p, id);
    return str_of(id, REQUEST_ID_TEXT);
}

static void test_it_is_of_who_made_it(void **state)
{
    const struct principal all[] = {
        subject("ann", ""),     subject("bob", ""), subject("ann", "t/1/"),  subject("ann", "t/2/"),
        subject("annt", "/1/"), subject("", "ann"), subject("anonymous", "")};
    const size_t n = sizeof all / sizeof *all;
    char text[REQUEST_ID_TEXT];
    for (size_t i = 0; i < MANY; i++) {
        struct str id = make(&all[i % n], text);
        assert_true(gateway_is_request_id(id));
        for (size_t j = 0; j < n; j++)
            assert_int_equal(gateway_id_is_of(id, &all[j]), j == i % n);
    }
}

/* All tokens of a subject are one principal here. */
static void test_other_tokens_of_a_subject(void **state)
{
    struct principal a = subject("ann", ""), b = a;
    char text[REQUEST_ID_TEXT];
    a.jti = STR("1");
    b.jti = STR("2");
    b.by_link = true;
    assert_true(gateway_id_is_of(make(&a, text), &b));
}

static void test_ids_differ(void **state)
{
    struct principal ann = subject("ann", "");
    char a[REQUEST_ID_TEXT], b[REQUEST_ID_TEXT];
    make(&ann, a);
    make(&ann, b);
    assert_memory_not_equal(a, b, 18);
    assert_memory_not_equal(a + 18, b + 18, 18);
}

static void test_every_digit_counts(void **state)
{
    struct principal ann = subject("ann", "");
    char text[REQUEST_ID_TEXT];
    struct str id = make(&ann, text);
    for (size_t i = 0; i < REQUEST_ID_TEXT; i++) {
        char was = text[i];
        if (was == '-')
            continue;
        text[i] = was == '0' ? '1' : '0';
        assert_false(gateway_id_is_of(id, &ann));
        text[i] = was;
    }
    assert_true(gateway_id_is_of(id, &ann));
}

/* Without access nothing is anybody's; what was made then is nobody's later. */
static void test_without_access(void **state)
{
    struct principal ann = subject("ann", "");
    char text[REQUEST_ID_TEXT];
    struct str id = make(&principal_anonymous, text);
    assert_true(gateway_is_request_id(id));
    assert_true(gateway_id_is_of(id, &principal_anonymous));
    assert_false(gateway_id_is_of(id, &ann));
    assert_true(gateway_id_is_of(make(&ann, text), &principal_anonymous));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_of_who_made_it),
        cmocka_unit_test(test_other_tokens_of_a_subject),
        cmocka_unit_test(test_ids_differ),
        cmocka_unit_test(test_every_digit_counts),
        cmocka_unit_test(test_without_access),
    };
    return cmocka_run_group_tests_name("unit/gateway_owner", tests, NULL, NULL);
}
