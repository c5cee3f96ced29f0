// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "feature/gateway/gateway_lines.h"

struct seen {
    struct buf text; /* each line with a bar behind it */
    int refuse;      /* so many are taken before */
};

static int on_line(void *user, struct str line)
{
    struct seen *s = user;
    if (s->refuse > 0 && --s->refuse == 0)
        return ERR_CLOSED;
    buf_put(&s->text, line);
    buf_putc(&s->text, '|');
    return 0;
}

static void assert_seen(struct seen *s, const char *want)
{
    buf_putc(&s->text, '\0');
    assert_string_equal(s->text.p, want);
    buf_deinit(&s->text);
}

/* However the bytes are cut, the lines are the same. */
static void test_every_cut(void **state)
{
    static const char text[] = "{\"a\":1}\n{\"b\":\r2}\r\n\r\n \n\nlast";
    const size_t n = sizeof text - 1;
    for (size_t one = 0; one <= n; one++)
        for (size_t two = one; two <= n; two++) {
            struct seen s = {0};
            struct gateway_lines l = {.max = 20, .user = &s, .on_line = on_line};
            assert_int_equal(gateway_lines_feed(&l, str_of(text, one)), 0);
            assert_int_equal(gateway_lines_feed(&l, str_of(text + one, two - one)), 0);
            assert_int_equal(gateway_lines_feed(&l, str_of(text + two, n - two)), 0);
            assert_int_equal(gateway_lines_end(&l), 0);
            assert_int_equal(gateway_lines_end(&l), 0);
            assert_seen(&s, "{\"a\":1}|{\"b\":\r2}|last|");
            gateway_lines_deinit(&l);
        }
}

/* A line of just the size, and one that is larger, whole and in pieces. */
static void test_bound(void **state)
{
    struct seen s = {0};
    struct gateway_lines l = {.max = 4, .user = &s, .on_line = on_line};
    assert_int_equal(gateway_lines_feed(&l, STR("1234\n12")), 0);
    assert_int_equal(gateway_lines_feed(&l, STR("34\r")), 0);
    assert_int_equal(gateway_lines_feed(&l, STR("\n")), 0);
    assert_seen(&s, "1234|1234|");
    assert_int_equal(gateway_lines_feed(&l, STR("12345\n")), ERR_TOO_LARGE);
    assert_int_equal(gateway_lines_feed(&l, STR("123456789")), ERR_TOO_LARGE);
    assert_int_equal(gateway_lines_feed(&l, STR("12345")), 0); /* the last one may be a CR */
    assert_int_equal(gateway_lines_feed(&l, STR("6")), ERR_TOO_LARGE);
    assert_int_equal(gateway_lines_end(&l), ERR_TOO_LARGE);
    gateway_lines_deinit(&l);
}

static void test_refused(void **state)
{
    struct seen s = {.refuse = 2};
    struct gateway_lines l = {.max = 9, .user = &s, .on_line = on_line};
    assert_int_equal(gateway_lines_feed(&l, STR("1\n2\n3\n")), ERR_CLOSED);
    assert_seen(&s, "1|");
    gateway_lines_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
