// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "base/err.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* What json_check says of a copy of exactly text's size, so that the sanitizer sees any look beyond
 * its end. json_split must agree, down to the place. */
static int check(struct str text, size_t *at)
{
    struct buf out = {0}, ends = {0};
    size_t split_at = 0;
    char *copy = mem_alloc(text.n);
    if (text.n > 0)
        memcpy(copy, text.p, text.n);
    *at = 0;
    int err = json_check(str_of(copy, text.n), at);
    assert_int_equal(json_split(str_of(copy, text.n), &out, &ends, &split_at), err);
    if (err != 0)
        assert_int_equal(split_at, *at);
    buf_deinit(&out);
    buf_deinit(&ends);
    free(copy);
    return err;
}

static void accept(struct str text)
{
    size_t at;
    if (check(text, &at) != 0)
        fail_msg("refused at %zu: %.*s", at, (int)text.n, text.p);
}

static void refuse(struct str text, size_t expected_at)
{
    size_t at;
    if (check(text, &at) != ERR_JSON)
        fail_msg("accepted: %.*s", (int)text.n, text.p);
    if (at != expected_at)
        fail_msg("refused at %zu, not %zu: %.*s", at, expected_at, (int)text.n, text.p);
}

static void test_accepts(void **state)
{
    static const struct str valid[] = {
        STR_INIT("null"),
        STR_INIT("true"),
        STR_INIT("false"),
        STR_INIT("\"\""),
        STR_INIT("{}"),
        STR_INIT("[]"),
        STR_INIT(" \t\r\n{ \t\r\n} \t\r\n"),
        STR_INIT("[ ]"),
        STR_INIT("[[],[[]],{}]"),
        STR_INIT("{\"\":{\"\":{}}}"),
        STR_INIT("{\"a\":1,\"a\":2}"),
        STR_INIT("{ \"a\" : [ 1 , { \"b\" : null } ] , \"c\" : \"d\" }"),
        STR_INIT("[1,\n2\r\n,\n[true\n,false]\n]"),
        STR_INIT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\uABcd\""),
        STR_INIT("\"\\ud800\""),
        STR_INIT("\"\\udc00\\ud800\""),
        STR_INIT("\"\\ud83d\\ude00\""),
        STR_INIT("\"\x7f\""),
        STR_INIT("\"\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\""),
        STR_INIT("\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\""),
        STR_INIT("\"\xef\xbb\xbf\""), /* the mark of byte order is a character within a string */
        STR_INIT("{\"\xc3\xa9\":\"\xe6\xbd\xae\xe6\xb1\x90 \xf0\x9f\x8c\x8a and ASCII\"}"),
    };
    for (size_t i = 0; i < COUNT(valid); i++)
        accept(valid[i]);
}

static void test_refuses(void **state)
{
    static const struct {
        struct str text;
        size_t at;
    } invalid[] = {
        {STR_INIT(""), 0},
        {STR_INIT(" \n"), 2},
        {STR_INIT("\0"), 0},
        {STR_INIT("1\0"), 1},
        {STR_INIT("[1]\0"), 3},
        {STR_INIT("\xef\xbb\xbf{}"), 0},
        {STR_INIT("\xff\xfe{\0}\0"), 0},
        {STR_INIT("1 2"), 2},
        {STR_INIT("{}{}"), 2},
        {STR_INIT("[1]]"), 3},
        {STR_INIT("[1],"), 3},
        {STR_INIT("[1,]"), 3},
        {STR_INIT("[,1]"), 1},
        {STR_INIT("[1,,2]"), 3},
        {STR_INIT("[1 2]"), 3},
        {STR_INIT("[1}"), 2},
        {STR_INIT("[1;2]"), 2},
        {STR_INIT("[[1}]"), 3},
        {STR_INIT("{]"), 1},
        {STR_INIT("]"), 0},
        {STR_INIT("}"), 0},
        {STR_INIT("{\"a\"}"), 4},
        {STR_INIT("{\"a\":}"), 5},
        {STR_INIT("{\"a\":1,}"), 7},
        {STR_INIT("{\"a\" 1}"), 5},
        {STR_INIT("{\"a\"::1}"), 5},
        {STR_INIT("{,}"), 1},
        {STR_INIT("{a:1}"), 1},
        {STR_INIT("{'a':1}"), 1},
        {STR_INIT("{1:1}"), 1},
        {STR_INIT("{\"a\":1 \"b\":2}"), 7},
        {STR_INIT("{\"a\":[1}"), 7},
        {STR_INIT("True"), 0},
        {STR_INIT("tru"), 3},
        {STR_INIT("trux"), 3},
        {STR_INIT("nulll"), 4},
        {STR_INIT("[nul]"), 4},
        {STR_INIT("fals\xe9"), 4},
        {STR_INIT("NaN"), 0},
        {STR_INIT("Infinity"), 0},
        {STR_INIT("-Infinity"), 1},
        {STR_INIT("// c\n1"), 0},
        {STR_INIT("1/**/"), 1},
        {STR_INIT("'a'"), 0},
        {STR_INIT("\""), 1},
        {STR_INIT("\"a"), 2},
        {STR_INIT("\"\\"), 2},
        {STR_INIT("\"\\\""), 3},
        {STR_INIT("\"\\x\""), 2},
        {STR_INIT("\"\\\0\""), 2},
        {STR_INIT("\"\\U0041\""), 2},
        {STR_INIT("\"\\u12g4\""), 5},
        {STR_INIT("\"\\u123\""), 6},
        {STR_INIT("\"\\u12"), 5},
        {STR_INIT("\"\\ud800\\u\""), 9},
        {STR_INIT("\"a\nb\""), 2},
        {STR_INIT("\"a\tb\""), 2},
        {STR_INIT("\"\0\""), 1},
        {STR_INIT("\v1"), 0},
        {STR_INIT("\xc2\xa0"
                  "1"),
         0},
    };
    for (size_t i = 0; i < COUNT(invalid); i++)
        refuse(invalid[i].text, invalid[i].at);
}

static void test_numbers(void **state)
{
    static const char *const valid[] = {
        "0",
        "-0",
        "1",
        "-1",
        "10",
        "9876543210",
        "12345678901234567890",
        "0.0",
        "1.0",
        "-0.5",
        "1.000000000000000000000000000001",
        "0e0",
        "1E5",
        "1e+5",
        "1e-5",
        "0.1E-0099",
        "1e99999",
    };
    static const struct {
        const char *text;
        size_t at;
    } invalid[] = {
        {"-", 1},   {"+1", 0},    {"01", 1},    {"-01", 2},  {"00", 1},
        {".5", 0},  {"1.", 2},    {"-.5", 1},   {"1.e5", 2}, {"1e", 2},
        {"1e+", 3}, {"1e5.5", 3}, {"1.2.3", 3}, {"0x10", 1}, {"1a", 1},
        {"--1", 1}, {"1_000", 1}, {"1e5e5", 3}, {"- 1", 1},
    };
    for (size_t i = 0; i < COUNT(valid); i++)
        accept(str_of_cstr(valid[i]));
    for (size_t i = 0; i < COUNT(invalid); i++)
        refuse(str_of_cstr(invalid[i].text), invalid[i].at);
}

/* Whatever is cut off the end must be missed, wherever the cut is. */
static void test_every_prefix(void **state)
{
    static const char text[] =
        "{\"id\":\"chunk \\u00e9\",\"list\":[1,-2.5e+3,true,false,null,[],{}],"
        "\"text\":\"\xc3\xa9t\xc3\xa9 \xf0\x9f\x8c\x8a, more than sixteen\"}";
    accept(STR(text));
    for (size_t n = 0; n < sizeof text - 1; n++) {
        size_t at;
        assert_int_equal(check(str_of(text, n), &at), ERR_JSON);
        if (at != n && (text[n] & 0xc0) != 0x80) /* half a character is reported at its start */
            fail_msg("cut at %zu, refused at %zu", n, at);
    }
}

/* Each byte at each place of a string, since the scan goes by many bytes at once. */
static void test_every_byte_in_a_string(void **state)
{
    char text[64];
    for (size_t n = 3; n < 45; n++) {
        for (size_t i = 1; i < n - 1; i++) {
            for (int c = 0; c < 256; c++) {
                memset(text, 'x', n);
                text[0] = text[n - 1] = '"';
                text[i] = (char)c;
                size_t at;
                int err = check(str_of(text, n), &at);
                if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\')
                    assert_int_equal(err, 0);
                else if (c == '"')
                    assert_true(err == ERR_JSON && at == i + 1);
                else if (c == '\\') /* escapes an x, or the closing quote */
                    assert_true(err == ERR_JSON && at == (i == n - 2 ? n : i + 1));
                else
                    assert_true(err == ERR_JSON && at == i);
            }
        }
    }
}

/* The length of the character at p, 0 if it is none that may stand in a string as it is: by the
 * code point, with none of the implementation's shortcuts. */
static size_t character(const unsigned char *p, size_t left)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (p[0] < 0x80)
        return p[0] >= 0x20 && p[0] != '"' && p[0] != '\\' ? 1 : 0;
    size_t n = p[0] >> 5 == 6 ? 2 : p[0] >> 4 == 14 ? 3 : p[0] >> 3 == 30 ? 4 : 0;
    if (n == 0 || n > left)
        return 0;
    uint32_t point = p[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if (p[i] >> 6 != 2)
            return 0;
        point = point << 6 | (p[i] & 63);
    }
    bool surrogate = point >= 0xd800 && point <= 0xdfff;
    return point >= least[n] && point <= 0x10ffff && !surrogate ? n : 0;
}

static bool are_characters(const unsigned char *p, size_t n)
{
    for (size_t i = 0, length; i < n; i += length)
        if ((length = character(p + i, n - i)) == 0)
            return false;
    return true;
}

static void check_utf8(const unsigned char *bytes, size_t n)
{
    char text[8] = {'"'};
    size_t at;
    memcpy(text + 1, bytes, n);
    text[n + 1] = '"';
    int err = json_check(str_of(text, n + 2), &at);
    if ((err == 0) != are_characters(bytes, n))
        fail_msg("%02x %02x %02x %02x (%zu): %d", bytes[0], bytes[1], bytes[2], bytes[3], n, err);
}

static void test_utf8(void **state)
{
    static const unsigned char edges[] = {0x00, 0x22, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0,
                                          0xbf, 0xc0, 0xc2, 0xe0, 0xed, 0xf0, 0xf4, 0xff};
    for (unsigned lead = 0x80; lead < 0x100; lead++) {
        unsigned char b[4] = {(unsigned char)lead};
        check_utf8(b, 1);
        for (unsigned second = 0x80; second < 0x100; second++) {
            b[1] = (unsigned char)second;
            check_utf8(b, 2);
            for (size_t i = 0; i < COUNT(edges); i++) {
                b[2] = edges[i];
                check_utf8(b, 3);
                for (size_t k = 0; k < COUNT(edges); k++) {
                    b[3] = edges[k];
                    check_utf8(b, 4);
                }
            }
        }
    }
}

/* depth times `open`, then `inner`, then as often `close`. */
static struct str nested(struct buf *b, const char *open, size_t depth, const char *inner,
                         const char *close)
{
    b->n = 0;
    for (size_t i = 0; i < depth; i++)
        buf_put(b, str_of_cstr(open));
    buf_put(b, str_of_cstr(inner));
    for (size_t i = 0; i < depth; i++)
        buf_put(b, str_of_cstr(close));
    return buf_str(b);
}

static void test_depth(void **state)
{
    struct buf b = {0};
    accept(nested(&b, "[", JSON_DEPTH_MAX, "", "]"));
    accept(nested(&b, "[", JSON_DEPTH_MAX, "1", "]"));
    accept(nested(&b, "{\"a\":", JSON_DEPTH_MAX, "1", "}"));
    accept(nested(&b, "[{\"a\":", JSON_DEPTH_MAX / 2, "1", "}]"));
    accept(nested(&b, "[1,", JSON_DEPTH_MAX - 2, "[[],{},[],{}]", "]")); /* siblings add none */
    refuse(nested(&b, "[", JSON_DEPTH_MAX + 1, "", "]"), JSON_DEPTH_MAX);
    refuse(nested(&b, "[", JSON_DEPTH_MAX, "{}", "]"), JSON_DEPTH_MAX);
    refuse(nested(&b, "{\"a\":", JSON_DEPTH_MAX + 1, "1", "}"), JSON_DEPTH_MAX * 5);
    refuse(nested(&b, "[", 1000000, "", ""), JSON_DEPTH_MAX);
    buf_deinit(&b);
}

/* The events of `text`, each with its comma, `|` between them. */
static void assert_events(struct str text, const char *expected)
{
    struct buf out = {0}, ends = {0}, shown = {0};
    size_t at, from = 0;
    buf_put(&out, STR("before")); /* must stay, and count */
    from = out.n;
    assert_int_equal(json_split(text, &out, &ends, &at), 0);
    assert_int_equal(ends.n % sizeof(uint32_t), 0);
    for (size_t i = 0; i < ends.n; i += sizeof(uint32_t)) {
        uint32_t end;
        memcpy(&end, ends.p + i, sizeof end);
        assert_true(end > from && end <= out.n);
        buf_printf(&shown, "%s%.*s", i > 0 ? "|" : "", (int)(end - from), out.p + from);
        from = end;
    }
    assert_int_equal(from, out.n);
    assert_memory_equal(out.p, "before", 6);
    buf_putc(&shown, '\0');
    assert_string_equal(shown.p, expected);
    buf_deinit(&out);
    buf_deinit(&ends);
    buf_deinit(&shown);
}

static void test_split(void **state)
{
    assert_events(STR("1"), "1,");
    assert_events(STR("  \"a\" \n"), "\"a\",");
    assert_events(STR("[]"), "");
    assert_events(STR(" [ \r\n ] "), "");
    assert_events(STR("[1]"), "1,");
    assert_events(STR("[1,2,3]"), "1,|2,|3,");
    assert_events(STR("[ 1 ,\n2\t,\r\n 3 ]\n"), "1,|2,|3,");
    assert_events(STR("[[1,2],[3,4]]"), "[1,2],|[3,4],");
    assert_events(STR("[[]]"), "[],");
    assert_events(STR("[{\"a\":1},null,\"x\"]"), "{\"a\":1},|null,|\"x\",");
    assert_events(STR("{\"list\":[1,2]}"), "{\"list\":[1,2]},");
    /* as they came */
    assert_events(STR("[12345678901234567890,1.0,1e5,-0]"), "12345678901234567890,|1.0,|1e5,|-0,");
    assert_events(STR("{\"a\":1,\"a\":2,\"b\":\"\\u0041\\/\"}"),
                  "{\"a\":1,\"a\":2,\"b\":\"\\u0041\\/\"},");
    assert_events(STR("[ { \"a\" : 1 } ]"), "{ \"a\" : 1 },");
    /* no raw line breaks, the escaped ones stay */
    assert_events(STR("{\n  \"a\": \"x\\ny\",\r\n  \"b\": [\n1,\r2\n]\n}\n"),
                  "{  \"a\": \"x\\ny\",  \"b\": [1,2]},");
    assert_events(STR("[{\"a\":\n1},{\"b\":2}]"), "{\"a\":1},|{\"b\":2},");
}

/* A lone value of every size, into buffers that are just full: its comma needs room too. */
static void test_split_grows(void **state)
{
    char text[300];
    memset(text, '1', sizeof text);
    for (size_t n = 1; n <= sizeof text; n++) {
        struct buf out = {0}, ends = {0};
        size_t at;
        assert_int_equal(json_split(str_of(text, n), &out, &ends, &at), 0);
        assert_int_equal(out.n, n + 1);
        assert_int_equal(out.p[n], ',');
        buf_deinit(&out);
        buf_deinit(&ends);
    }
}

static void test_split_failure_changes_nothing(void **state)
{
    static const struct str broken[] = {STR_INIT("[1,2,3"), STR_INIT("[1,2,x]"), STR_INIT("{} {}"),
                                        STR_INIT("[1,2] 3"), STR_INIT("")};
    struct buf out = {0}, ends = {0};
    size_t at;
    assert_int_equal(json_split(STR("[10,20]"), &out, &ends, &at), 0);
    for (size_t i = 0; i < COUNT(broken); i++) {
        assert_int_equal(json_split(broken[i], &out, &ends, &at), ERR_JSON);
        assert_int_equal(ends.n, 2 * sizeof(uint32_t));
        assert_true(str_eq(buf_str(&out), STR("10,20,")));
    }
    buf_deinit(&out);
    buf_deinit(&ends);
}

static void test_split_many(void **state)
{
    struct buf text = {0}, out = {0}, ends = {0};
    size_t at;
    buf_putc(&text, '[');
    for (unsigned i = 0; i < 10000; i++)
        buf_printf(&text, "%s{\"n\":%u}", i > 0 ? "," : "", i);
    buf_putc(&text, ']');
    assert_int_equal(json_split(buf_str(&text), &out, &ends, &at), 0);
    assert_int_equal(ends.n, 10000 * sizeof(uint32_t));
    /* a compact array's elements with their commas are its inside and one comma more */
    assert_int_equal(out.n, text.n - 1);
    assert_memory_equal(out.p, text.p + 1, text.n - 2);
    buf_deinit(&text);
    buf_deinit(&out);
    buf_deinit(&ends);
}

/* What is allocated for the ends of events is bounded. */
static void test_split_too_many(void **state)
{
    struct buf text = {0}, out = {0}, ends = {0};
    size_t at;
    buf_putc(&text, '[');
    for (unsigned i = 0; i < JSON_EVENTS_MAX; i++)
        buf_put(&text, STR("1,"));
    text.p[text.n - 1] = ']';
    assert_int_equal(json_split(buf_str(&text), &out, &ends, &at), 0);
    assert_int_equal(ends.n, JSON_EVENTS_MAX * sizeof(uint32_t));
    out.n = ends.n = 0;
    text.p[text.n - 1] = ',';
    buf_put(&text, STR("1]"));
    assert_int_equal(json_split(buf_str(&text), &out, &ends, &at), ERR_TOO_MANY_EVENTS);
    assert_int_equal(at, text.n - 3);
    assert_int_equal(out.n + ends.n, 0);
    assert_true(ends.cap <= JSON_EVENTS_MAX * sizeof(uint32_t));
    text.p[text.n - 3] = ';'; /* what is no JSON is that first of all */
    assert_int_equal(json_split(buf_str(&text), &out, &ends, &at), ERR_JSON);
    buf_deinit(&text);
    buf_deinit(&out);
    buf_deinit(&ends);
}

static void assert_quoted(struct str s, const char *expected)
{
    struct buf b = {0};
    json_put_string(&b, s);
    accept(buf_str(&b));
    buf_putc(&b, '\0');
    assert_string_equal(b.p, expected);
    buf_deinit(&b);
}

static void test_put_string(void **state)
{
    assert_quoted(STR_NONE, "\"\"");
    assert_quoted(STR("plain text, longer than one step of the scan"),
                  "\"plain text, longer than one step of the scan\"");
    assert_quoted(STR("a\"b\\c/d"), "\"a\\\"b\\\\c/d\"");
    assert_quoted(STR("\b\f\n\r\t"), "\"\\b\\f\\n\\r\\t\"");
    assert_quoted(STR("\0\1\x1f\x7f"), "\"\\u0000\\u0001\\u001f\x7f\"");
    assert_quoted(STR("\xc3\xa9\xe6\xbd\xae\xf0\x9f\x8c\x8a"),
                  "\"\xc3\xa9\xe6\xbd\xae\xf0\x9f\x8c\x8a\"");
    /* one replacement for each byte that is no part of a character */
    assert_quoted(STR("a\x80z"), "\"a\xef\xbf\xbdz\"");
    assert_quoted(STR("\xc3"), "\"\xef\xbf\xbd\"");
    assert_quoted(STR("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    assert_quoted(STR("\xf0\x9f\x8c"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    assert_quoted(STR("\xc0\xaf"), "\"\xef\xbf\xbd\xef\xbf\xbd\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_every_prefix),
        cmocka_unit_test(test_every_byte_in_a_string),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_grows),
        cmocka_unit_test(test_split_failure_changes_nothing),
        cmocka_unit_test(test_split_many),
        cmocka_unit_test(test_split_too_many),
        cmocka_unit_test(test_put_string),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
