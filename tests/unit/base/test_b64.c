// SPDX-License-Identifier: Apache-2.0
#include "base/b64.h"
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void test_samples(void **state)
{
    static const struct {
        struct str bytes, padded, url;
    } samples[] = {
        {STR_INIT(""), STR_INIT(""), STR_INIT("")},
        {STR_INIT("f"), STR_INIT("Zg=="), STR_INIT("Zg")},
        {STR_INIT("fo"), STR_INIT("Zm8="), STR_INIT("Zm8")},
        {STR_INIT("foo"), STR_INIT("Zm9v"), STR_INIT("Zm9v")},
        {STR_INIT("foob"), STR_INIT("Zm9vYg=="), STR_INIT("Zm9vYg")},
        {STR_INIT("fooba"), STR_INIT("Zm9vYmE="), STR_INIT("Zm9vYmE")},
        {STR_INIT("foobar"), STR_INIT("Zm9vYmFy"), STR_INIT("Zm9vYmFy")},
        {STR_INIT("\0"), STR_INIT("AA=="), STR_INIT("AA")},
        {STR_INIT("\xfb\xff\xbf"), STR_INIT("+/+/"), STR_INIT("-_-_")},
        {STR_INIT("\xff\xff\xff\xff"), STR_INIT("/////w=="), STR_INIT("_____w")},
    };
    for (size_t i = 0; i < COUNT(samples); i++) {
        struct buf padded = {0}, url = {0}, back = {0};
        b64_put(&padded, samples[i].bytes);
        b64url_put(&url, samples[i].bytes);
        assert_true(str_eq(buf_str(&padded), samples[i].padded));
        assert_true(str_eq(buf_str(&url), samples[i].url));
        assert_int_equal(b64url_take(&back, samples[i].url), 0);
        assert_true(str_eq(buf_str(&back), samples[i].bytes));
        back.n = 0;
        assert_int_equal(b64_take(&back, samples[i].padded), 0);
        assert_true(str_eq(buf_str(&back), samples[i].bytes));
        buf_deinit(&padded);
        buf_deinit(&url);
        buf_deinit(&back);
    }
}

static void test_refuses(void **state)
{
    static const struct str invalid[] = {
        STR_INIT("A"),
        STR_INIT("AAAAA"),
        STR_INIT("Zg=="),
        STR_INIT("Zm8="),
        STR_INIT("Zm9v="),
        STR_INIT("+/+/"),
        STR_INIT("Zm 9"),
        STR_INIT("Zm9v\n"),
        STR_INIT("Zm9\0"),
        STR_INIT("Zh"), /* bits behind the last byte */
        STR_INIT("Zm9"),
        STR_INIT("A\xc3\xa9"
                 "A"),
    };
    struct buf out = {0};
    buf_put(&out, STR("kept"));
    for (size_t i = 0; i < COUNT(invalid); i++) {
        if (b64url_take(&out, invalid[i]) != ERR_SYNTAX)
            fail_msg("accepted: %.*s", (int)invalid[i].n, invalid[i].p);
        assert_true(str_eq(buf_str(&out), STR("kept")));
    }
    buf_deinit(&out);
}

static void test_refuses_padded(void **state)
{
    static const struct str invalid[] = {
        STR_INIT("A"),    STR_INIT("="),     STR_INIT("===="),     STR_INIT("A==="),
        STR_INIT("Zg"),   STR_INIT("Zg="),   STR_INIT("Zg==="),    STR_INIT("Zm8"),
        STR_INIT("-_-_"), STR_INIT("Zm 9"),  STR_INIT("Zm9v\n"),   STR_INIT("Zm9v\n\n\n\n"),
        STR_INIT("Zh=="), STR_INIT("Zm9="),  STR_INIT("Zg==Zm9v"), STR_INIT("Zm=v"),
        STR_INIT("=Zm9"), STR_INIT("Zm9v="),
    };
    struct buf out = {0};
    buf_put(&out, STR("kept"));
    for (size_t i = 0; i < COUNT(invalid); i++) {
        if (b64_take(&out, invalid[i]) != ERR_SYNTAX)
            fail_msg("accepted: %.*s", (int)invalid[i].n, invalid[i].p);
        assert_true(str_eq(buf_str(&out), STR("kept")));
    }
    buf_deinit(&out);
}

/* Of all 4096 texts of two characters, the 256 with clear tail bits are taken, each for its own
 * byte: a value has one spelling. */
static void test_one_spelling(void **state)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    bool seen[256] = {false};
    int taken = 0;
    for (int i = 0; i < 64 * 64; i++) {
        char text[2] = {alphabet[i / 64], alphabet[i % 64]};
        struct buf out = {0};
        if (b64url_take(&out, str_of(text, 2)) == 0) {
            assert_int_equal(out.n, 1);
            assert_false(seen[(unsigned char)out.p[0]]);
            seen[(unsigned char)out.p[0]] = true;
            taken++;
        }
        buf_deinit(&out);
    }
    assert_int_equal(taken, 256);
}

static void test_round_trip(void **state)
{
    struct buf bytes = {0}, text = {0}, back = {0};
    for (int n = 0; n < 300; n++) {
        text.n = back.n = 0;
        b64url_put(&text, buf_str(&bytes));
        assert_int_equal(b64url_take(&back, buf_str(&text)), 0);
        assert_true(str_eq(buf_str(&back), buf_str(&bytes)));
        buf_putc(&bytes, (char)(n * 37 + n / 7));
    }
    buf_deinit(&bytes);
    buf_deinit(&text);
    buf_deinit(&back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_refuses_padded), cmocka_unit_test(test_one_spelling),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
