// SPDX-License-Identifier: Apache-2.0
#include "store/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_names_by_how_they_begin(void **state)
{
    static const struct {
        struct str name;
        bool reserved, sealed;
    } cases[] = {
        {STR_INIT(".route/chat/1"), true, false},
        {STR_INIT(".route/"), true, false},
        {STR_INIT(".tool/00ff"), true, false},
        {STR_INIT("sessions/k/in"), true, true},
        {STR_INIT("sessions/"), true, true},
        {STR_INIT(""), false, false},
        {STR_INIT("."), false, false},
        {STR_INIT("s"), false, false},
        {STR_INIT(".route"), false, false},
        {STR_INIT(".routes/x"), false, false},
        {STR_INIT("sessions"), false, false},
        {STR_INIT("session/k"), false, false},
        {STR_INIT("Sessions/k"), false, false},
        {STR_INIT("my/sessions/k"), false, false},
        {STR_INIT("/.route/x"), false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (store_reserved(cases[i].name) != cases[i].reserved ||
            store_sealed(cases[i].name) != cases[i].sealed)
            fail_msg("%s", cases[i].name.p);
}

/* The first row that fits is the only one. */
static void test_rows_are_apart(void **state)
{
    for (const struct store_names *a = store_names; a->prefix.n > 0; a++) {
        assert_int_equal(a->prefix.p[a->prefix.n - 1], '/');
        assert_ptr_equal(store_names_of(a->prefix), a);
        for (const struct store_names *b = a + 1; b->prefix.n > 0; b++)
            assert_false(str_starts(b->prefix, a->prefix) || str_starts(a->prefix, b->prefix));
    }
    for (const struct store_doc_group *a = store_doc_groups; a->prefix.n > 0; a++)
        for (const struct store_doc_group *b = a + 1; b->prefix.n > 0; b++)
            assert_false(str_starts(b->prefix, a->prefix) || str_starts(a->prefix, b->prefix));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_by_how_they_begin),
        cmocka_unit_test(test_rows_are_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
