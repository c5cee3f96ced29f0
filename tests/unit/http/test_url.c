// SPDX-License-Identifier: Apache-2.0
#include "http/url.h"
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void test_decode(void **state)
{
    static const struct {
        struct str text, bytes;
        bool form;
    } samples[] = {
        {STR_INIT(""), STR_INIT(""), false},
        {STR_INIT("abc"), STR_INIT("abc"), true},
        {STR_INIT("a%20b"), STR_INIT("a b"), false},
        {STR_INIT("a+b"), STR_INIT("a+b"), false},
        {STR_INIT("a+b"), STR_INIT("a b"), true},
        {STR_INIT("a%2Bb"), STR_INIT("a+b"), true},
        {STR_INIT("%2f%2F"), STR_INIT("//"), false},
        {STR_INIT("%25%32%30"), STR_INIT("%20"), false}, /* decoded once only */
        {STR_INIT("%c3%A9"), STR_INIT("\xc3\xa9"), false},
        {STR_INIT("%ff"), STR_INIT("\xff"), false},
        {STR_INIT("-1%00"), STR_INIT("-1\0"), false},
    };
    for (size_t i = 0; i < COUNT(samples); i++) {
        struct arena a = {0};
        struct str out = STR_NONE;
        assert_int_equal(url_decode(&a, samples[i].text, samples[i].form, &out), 0);
        assert_true(str_eq(out, samples[i].bytes));
        arena_deinit(&a);
    }
}

static void test_decode_without_escapes_is_no_copy(void **state)
{
    struct arena a = {0};
    struct str text = STR("plain~text"), out;
    assert_int_equal(url_decode(&a, text, true, &out), 0);
    assert_ptr_equal(out.p, text.p);
    assert_null(a.chunks);
}

static void test_decode_refuses(void **state)
{
    static const struct str invalid[] = {
        STR_INIT("%"),   STR_INIT("a%"),    STR_INIT("%2"),     STR_INIT("%2g"),
        STR_INIT("%g2"), STR_INIT("%%"),    STR_INIT("%-1"),    STR_INIT("% 1"),
        STR_INIT("%0x"), STR_INIT("a%20%"), STR_INIT("%u00e9"),
    };
    struct arena a = {0};
    for (size_t i = 0; i < COUNT(invalid); i++) {
        struct str out = STR("kept");
        assert_int_equal(url_decode(&a, invalid[i], false, &out), ERR_SYNTAX);
        assert_true(str_eq(out, STR("kept")));
    }
    /* the two digits must lie within the length, not behind it */
    struct str out, text = STR("%41");
    assert_int_equal(url_decode(&a, str_of(text.p, 2), false, &out), ERR_SYNTAX);
    arena_deinit(&a);
}

static void assert_encoded(struct str s, bool keep_slash, const char *expected)
{
    struct buf out = {0};
    struct arena a = {0};
    struct str back;
    url_encode(&out, s, keep_slash);
    assert_true(str_eq(buf_str(&out), str_of_cstr(expected)));
    assert_int_equal(url_decode(&a, buf_str(&out), false, &back), 0);
    assert_true(str_eq(back, s));
    arena_deinit(&a);
    buf_deinit(&out);
}

static void test_encode(void **state)
{
    assert_encoded(STR_NONE, false, "");
    assert_encoded(STR("AZaz09-._~"), false, "AZaz09-._~");
    assert_encoded(STR("a/b c"), false, "a%2Fb%20c");
    assert_encoded(STR("a/b c"), true, "a/b%20c");
    assert_encoded(STR("%+&=?#"), true, "%25%2B%26%3D%3F%23");
    assert_encoded(STR("\0\x7f\x80\xff"), false, "%00%7F%80%FF");
}

static void test_query(void **state)
{
    static const struct {
        struct str query;
        int result;
        struct str value;
    } samples[] = {
        {STR_INIT(""), 0, STR_INIT("kept")},
        {STR_INIT("x=1"), 0, STR_INIT("kept")},
        {STR_INIT("key"), 1, STR_INIT("")},
        {STR_INIT("key="), 1, STR_INIT("")},
        {STR_INIT("key=v"), 1, STR_INIT("v")},
        {STR_INIT("a=1&key=v&b=2"), 1, STR_INIT("v")},
        {STR_INIT("&&key=v&"), 1, STR_INIT("v")},
        {STR_INIT("key=a=b"), 1, STR_INIT("a=b")},
        {STR_INIT("k%65y=v"), 1, STR_INIT("v")},
        {STR_INIT("key=a%20b+c"), 1, STR_INIT("a b c")},
        {STR_INIT("key=-1%00"), 1, STR_INIT("-1\0")},
        {STR_INIT("key%00=v"), 0, STR_INIT("kept")},
        {STR_INIT("Key=v"), 0, STR_INIT("kept")},
        {STR_INIT("keys=v&ke=y"), 0, STR_INIT("kept")},
        {STR_INIT("x=key"), 0, STR_INIT("kept")},
        {STR_INIT("x=1?key=v"), 0, STR_INIT("kept")},
        {STR_INIT("x=1;key=v"), 0, STR_INIT("kept")},
        {STR_INIT("key=1&key=2"), ERR_SYNTAX, STR_INIT("kept")},
        {STR_INIT("key=1&key=1"), ERR_SYNTAX, STR_INIT("kept")},
        {STR_INIT("key&k%65y"), ERR_SYNTAX, STR_INIT("kept")},
        {STR_INIT("key=%zz"), ERR_SYNTAX, STR_INIT("kept")},
        {STR_INIT("key=a%2"), ERR_SYNTAX, STR_INIT("kept")},
        /* what is broken elsewhere does not concern the key */
        {STR_INIT("%zz=1&key=v"), 1, STR_INIT("v")},
        {STR_INIT("x=%zz&key=v"), 1, STR_INIT("v")},
    };
    for (size_t i = 0; i < COUNT(samples); i++) {
        struct arena a = {0};
        struct str value = STR("kept");
        int result = url_query(&a, samples[i].query, STR("key"), &value);
        if (result != samples[i].result || !str_eq(value, samples[i].value))
            fail_msg("%s: %d, %.*s", samples[i].query.p, result, (int)value.n, value.p);
        arena_deinit(&a);
    }
}

static void test_parse(void **state)
{
    static const struct {
        const char *text, *scheme, *host;
        unsigned port;
        const char *path, *query; /* query: NULL for none */
    } valid[] = {
        {"http://h", "http", "h", 80, "", NULL},
        {"https://h", "https", "h", 443, "", NULL},
        {"HTTPS://H.Example", "HTTPS", "H.Example", 443, "", NULL},
        {"http://h/", "http", "h", 80, "/", NULL},
        {"http://h:1/", "http", "h", 1, "/", NULL},
        {"http://h:65535", "http", "h", 65535, "", NULL},
        {"http://h:0080/x", "http", "h", 80, "/x", NULL},
        {"http://h?", "http", "h", 80, "", ""},
        {"http://h?a=/b", "http", "h", 80, "", "a=/b"},
        {"http://h/a/b%20c?d=e?f&g", "http", "h", 80, "/a/b%20c", "d=e?f&g"},
        {"http://h/a:b@c", "http", "h", 80, "/a:b@c", NULL},
        {"http://127.0.0.1:8080/x", "http", "127.0.0.1", 8080, "/x", NULL},
        {"http://my_host-1.example./", "http", "my_host-1.example.", 80, "/", NULL},
        {"http://[::1]", "http", "::1", 80, "", NULL},
        {"http://[::1]:8080/x", "http", "::1", 8080, "/x", NULL},
        {"https://[2001:db8::192.0.2.1]?q", "https", "2001:db8::192.0.2.1", 443, "", "q"},
    };
    for (size_t i = 0; i < COUNT(valid); i++) {
        struct url u;
        if (url_parse(str_of_cstr(valid[i].text), &u) != 0)
            fail_msg("refused: %s", valid[i].text);
        assert_true(str_eq(u.scheme, str_of_cstr(valid[i].scheme)));
        assert_true(str_eq(u.host, str_of_cstr(valid[i].host)));
        assert_int_equal(u.port, valid[i].port);
        assert_true(str_eq(u.path, str_of_cstr(valid[i].path)));
        assert_int_equal(u.query.p == NULL, valid[i].query == NULL);
        if (valid[i].query != NULL)
            assert_true(str_eq(u.query, str_of_cstr(valid[i].query)));
    }
}

static void test_parse_refuses(void **state)
{
    static const struct str invalid[] = {
        STR_INIT(""),
        STR_INIT("h"),
        STR_INIT("/path"),
        STR_INIT("//h/"),
        STR_INIT("http"),
        STR_INIT("http:"),
        STR_INIT("http:/h"),
        STR_INIT("http://"),
        STR_INIT("http:///x"),
        STR_INIT("http://?x"),
        STR_INIT("ftp://h"),
        STR_INIT("httpx://h"),
        STR_INIT(" http://h"),
        STR_INIT("file:///etc/passwd"),
        STR_INIT("http://user@h/"),
        STR_INIT("http://user:pass@h/"),
        STR_INIT("http://a@b@h/"),
        STR_INIT("http://h\\@evil/"),
        STR_INIT("http://h/#f"),
        STR_INIT("http://h#f"),
        STR_INIT("http://h:"),
        STR_INIT("http://h:/"),
        STR_INIT("http://h:0"),
        STR_INIT("http://h:65536"),
        STR_INIT("http://h:+80"),
        STR_INIT("http://h:8a"),
        STR_INIT("http://h:80:80"),
        STR_INIT("http://:80"),
        STR_INIT("http://%68/"),
        STR_INIT("http://h%00/"),
        STR_INIT("http://h,i/"),
        STR_INIT("http://::1/"),
        STR_INIT("http://[]/"),
        STR_INIT("http://[::1"),
        STR_INIT("http://[::1/"),
        STR_INIT("http://[h]/"),
        STR_INIT("http://[127.0.0.1]/"),
        STR_INIT("http://[::1%25eth0]/"),
        STR_INIT("http://[::1\0]/"),
        STR_INIT("http://[::1]x/"),
        STR_INIT("http://[::1]180/"),
        STR_INIT("http://[::1]:"),
        STR_INIT("http://[1111:2222:3333:4444:5555:6666:7777:8888:9999]/"),
        STR_INIT("http://[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000]/"),
        STR_INIT("http://[0000:0000:0000:0000:0000:ffff:255.255.255.2555]/"), /* one too long */
        STR_INIT("http://h/a b"),
        STR_INIT("http://h/a\r\nX: y"),
        STR_INIT("http://h/\0"),
        STR_INIT("http://h/\x7f"),
        STR_INIT("http://h/\xc3\xa9"),
        STR_INIT("http://\xc3\xa9/"),
    };
    for (size_t i = 0; i < COUNT(invalid); i++) {
        struct url u = {.port = 7};
        if (url_parse(invalid[i], &u) != ERR_SYNTAX)
            fail_msg("accepted: %s", invalid[i].p);
        assert_int_equal(u.port, 7);
    }
}

static void test_parse_host_length(void **state)
{
    struct buf text = {0};
    struct url u;
    buf_put(&text, STR("http://"));
    for (int i = 0; i < 253; i++)
        buf_putc(&text, i % 50 == 49 ? '.' : 'a');
    assert_int_equal(url_parse(buf_str(&text), &u), 0);
    assert_int_equal(u.host.n, 253);
    buf_putc(&text, 'a');
    assert_int_equal(url_parse(buf_str(&text), &u), ERR_SYNTAX);
    buf_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_decode_without_escapes_is_no_copy),
        cmocka_unit_test(test_decode_refuses),
        cmocka_unit_test(test_encode),
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_parse_refuses),
        cmocka_unit_test(test_parse_host_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
