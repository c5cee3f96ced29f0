// SPDX-License-Identifier: Apache-2.0
#include "base/list.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* -- str -------------------------------------------------------------------------------------- */

static void test_eq(void **state)
{
    assert_true(str_eq(STR(""), STR_NONE));
    assert_true(str_eq(STR("ab"), str_of("abc", 2)));
    assert_false(str_eq(STR("ab"), STR("abc")));
    assert_false(str_eq(STR("ab"), STR("aB")));
    assert_false(str_eq(STR("-1"), STR("-1\0")));
    assert_true(str_eq(STR("a\0b"), STR("a\0b")));
    assert_false(str_eq(STR("a\0b"), STR("a\0c")));
    assert_true(str_eq(str_of_cstr("abc"), STR("abc")));
}

static void test_eq_nocase(void **state)
{
    assert_true(str_eq_nocase(STR("Content-Type"), STR("cONTENT-tYPE")));
    assert_true(str_eq_nocase(STR_NONE, STR("")));
    assert_false(str_eq_nocase(STR("abc"), STR("abcd")));
    assert_false(str_eq_nocase(STR("@[`{"), STR("`{@["))); /* 32 apart, but no letters */
    assert_false(str_eq_nocase(STR("\xc3\x89"), STR("\xc3\xa9")));
    assert_false(str_eq_nocase(STR("a\0b"), STR("a\0c")));
}

static void test_starts_and_skip(void **state)
{
    assert_true(str_starts(STR("data: x"), STR("data:")));
    assert_true(str_starts(STR("x"), STR_NONE));
    assert_true(str_starts(STR_NONE, STR_NONE));
    assert_false(str_starts(STR("dat"), STR("data")));
    assert_false(str_starts(STR("xdata"), STR("data")));
    assert_true(str_eq(str_skip(STR("abc"), 1), STR("bc")));
    assert_true(str_eq(str_skip(STR("abc"), 3), STR("")));
    assert_null(str_skip(STR_NONE, 0).p);
}

static void test_cmp(void **state)
{
    static const struct str ascending[] = {
        STR_INIT(""),   STR_INIT("\0"), STR_INIT("\0\0"), STR_INIT("A"),
        STR_INIT("AB"), STR_INIT("B"),  STR_INIT("a"),    STR_INIT("\x80"),
    };
    size_t n = sizeof ascending / sizeof *ascending;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) {
            int order = str_cmp(ascending[i], ascending[k]);
            assert_int_equal((order > 0) - (order < 0), (i > k) - (i < k));
        }
    assert_int_equal(str_cmp(STR_NONE, STR("")), 0);
}

static void test_trim(void **state)
{
    assert_true(str_eq(str_trim(STR(" \t a b\t ")), STR("a b")));
    assert_true(str_eq(str_trim(STR("a")), STR("a")));
    assert_int_equal(str_trim(STR(" \t ")).n, 0);
    assert_int_equal(str_trim(STR_NONE).n, 0);
    assert_true(str_eq(str_trim(STR("\r\na\v")), STR("\r\na\v")));
}

static void test_cut(void **state)
{
    struct str rest = STR("a,,b,");
    assert_true(str_eq(str_cut(&rest, ','), STR("a")));
    assert_true(str_eq(str_cut(&rest, ','), STR("")));
    assert_true(str_eq(str_cut(&rest, ','), STR("b")));
    assert_int_equal(rest.n, 0);
    assert_non_null(rest.p); /* there was a separator: one empty piece is left */
    assert_int_equal(str_cut(&rest, ',').n, 0);
    assert_null(rest.p);
    assert_int_equal(str_cut(&rest, ',').n, 0);
    assert_null(rest.p);

    rest = STR("a\0b");
    assert_true(str_eq(str_cut(&rest, '\0'), STR("a")));
    assert_true(str_eq(rest, STR("b")));
}

/* -- list ------------------------------------------------------------------------------------- */

struct item {
    int n;
    struct link link;
};

static void assert_list(struct link *head, const char *expected)
{
    struct link *back = head->prev;
    const char *last = expected + strlen(expected);
    list_each (l, head) {
        assert_int_equal(list_item(l, struct item, link)->n, *expected - '0');
        expected++;
    }
    assert_int_equal(*expected, '\0');
    for (; back != head; back = back->prev)
        assert_int_equal(list_item(back, struct item, link)->n, *--last - '0');
}

static void test_list(void **state)
{
    struct link a, b;
    struct item items[6];
    list_init(&a);
    list_init(&b);
    assert_true(list_empty(&a));
    for (int i = 0; i < 6; i++) {
        items[i].n = i;
        list_init(&items[i].link);
        list_push(i < 3 ? &a : &b, &items[i].link);
    }
    assert_list(&a, "012");
    list_remove(&items[1].link);
    assert_list(&a, "02");
    list_remove(&items[1].link); /* in none: harmless */
    assert_true(list_empty(&items[1].link));
    list_splice(&a, &b);
    assert_list(&a, "02345");
    assert_true(list_empty(&b));
    list_splice(&a, &b);
    assert_list(&a, "02345");
    list_splice(&b, &a);
    assert_list(&b, "02345");
    list_each_safe (l, &b)
        if (list_item(l, struct item, link)->n % 2 == 0)
            list_remove(l);
    assert_list(&b, "35");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eq),   cmocka_unit_test(test_eq_nocase),
        cmocka_unit_test(test_cmp),  cmocka_unit_test(test_starts_and_skip),
        cmocka_unit_test(test_trim), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
