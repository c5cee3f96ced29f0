// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/json.h"
#include "base/jcs.h"
#include "base/json_canonical.h"

#include <stdio.h>
#include <stdlib.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* The text's canonical form behind what was there before; "!" and nothing else if there is none. */
static int canonical(struct str text, struct str without, struct buf *out)
{
    buf_putc(out, '!');
    int err = json_canonical(text, without, out);
    assert_int_equal(out->p[0], '!');
    assert_true(err == 0 ? out->n > 1 : out->n == 1);
    return err;
}

static void check(struct str text, struct str expected)
{
    struct buf out = {0}, again = {0};
    assert_int_equal(canonical(text, STR_NONE, &out), 0);
    struct str got = str_skip(buf_str(&out), 1);
    if (!str_eq(got, expected))
        print_error("%.*s\n", (int)got.n, got.p);
    assert_true(str_eq(got, expected));
    assert_int_equal(canonical(got, STR_NONE, &again), 0); /* it is its own canonical form */
    assert_true(str_eq(buf_str(&again), buf_str(&out)));
    buf_deinit(&out);
    buf_deinit(&again);
}

static void refuse(struct str text, int expected)
{
    struct buf out = {0};
    assert_int_equal(canonical(text, STR_NONE, &out), expected);
    buf_deinit(&out);
}

/* ---- the RFC's own ---- */

static void test_rfc_document(void **state)
{
    check(STR("{\n"
              "  \"numbers\": [333333333.33333329, 1E30, 4.50,\n"
              "              2e-3, 0.000000000000000000000000001],\n"
              "  \"string\": \"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/\",\n"
              "  \"literals\": [null, true, false]\n"
              "}"),
          STR("{\"literals\":[null,true,false],"
              "\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],"
              "\"string\":\"\xe2\x82\xac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}"));
}

static void test_rfc_order(void **state)
{
    check(STR("{\"\\u20ac\": \"Euro Sign\", \"\\r\": \"Carriage Return\","
              "\"\\ufb33\": \"Hebrew Letter Dalet With Dagesh\", \"1\": \"One\","
              "\"\\ud83d\\ude00\": \"Emoji: Grinning Face\", \"\\u0080\": \"Control\","
              "\"\\u00f6\": \"Latin Small Letter O With Diaeresis\"}"),
          STR("{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\xc2\x80\":\"Control\","
              "\"\xc3\xb6\":\"Latin Small Letter O With Diaeresis\","
              "\"\xe2\x82\xac\":\"Euro Sign\",\"\xf0\x9f\x98\x80\":\"Emoji: Grinning Face\","
              "\"\xef\xac\xb3\":\"Hebrew Letter Dalet With Dagesh\"}"));
}

/* Appendix B: a double's bits, and how it is printed. */
static const struct {
    uint64_t bits;
    const char *text;
} rfc_numbers[] = {
    {0x0000000000000000, "0"},
    {0x8000000000000000, "0"},
    {0x0000000000000001, "5e-324"},
    {0x8000000000000001, "-5e-324"},
    {0x7fefffffffffffff, "1.7976931348623157e+308"},
    {0xffefffffffffffff, "-1.7976931348623157e+308"},
    {0x4340000000000000, "9007199254740992"},
    {0xc340000000000000, "-9007199254740992"},
    {0x4430000000000000, "295147905179352830000"},
    {0x44b52d02c7e14af5, "9.999999999999997e+22"},
    {0x44b52d02c7e14af6, "1e+23"},
    {0x44b52d02c7e14af7, "1.0000000000000001e+23"},
    {0x444b1ae4d6e2ef4e, "999999999999999700000"},
    {0x444b1ae4d6e2ef4f, "999999999999999900000"},
    {0x444b1ae4d6e2ef50, "1e+21"},
    {0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
    {0x3eb0c6f7a0b5ed8d, "0.000001"},
    {0x41b3de4355555553, "333333333.3333332"},
    {0x41b3de4355555554, "333333333.33333325"},
    {0x41b3de4355555555, "333333333.3333333"},
    {0x41b3de4355555556, "333333333.3333334"},
    {0x41b3de4355555557, "333333333.33333343"},
    {0xbecbf647612f3696, "-0.0000033333333333333333"},
    {0x43143ff3c1cb0959, "1424953923781206.2"},
};

static void test_rfc_numbers(void **state)
{
    for (size_t i = 0; i < COUNT(rfc_numbers); i++) {
        char text[64];
        double v;
        memcpy(&v, &rfc_numbers[i].bits, sizeof v);
        int n = snprintf(text, sizeof text, "%.17g", v);
        check(str_of(text, (size_t)n), str_of_cstr(rfc_numbers[i].text));
    }
}

/* ---- numbers ---- */

static void test_numbers(void **state)
{
    static const struct str cases[][2] = {
        {STR_INIT("0"), STR_INIT("0")},
        {STR_INIT("-0"), STR_INIT("0")},
        {STR_INIT("-0.000e+7"), STR_INIT("0")},
        {STR_INIT("0e999999999999"), STR_INIT("0")},
        {STR_INIT("1.0"), STR_INIT("1")},
        {STR_INIT("-10E-1"), STR_INIT("-1")},
        {STR_INIT("0.1e1"), STR_INIT("1")},
        {STR_INIT("1e20"), STR_INIT("100000000000000000000")},
        {STR_INIT("1e21"), STR_INIT("1e+21")},
        {STR_INIT("0.00000123"), STR_INIT("0.00000123")},
        {STR_INIT("0.000000123"), STR_INIT("1.23e-7")},
        {STR_INIT("123456789012345"), STR_INIT("123456789012345")},
        {STR_INIT("1234567890123456"), STR_INIT("1234567890123456")},
        {STR_INIT("9007199254740993"), STR_INIT("9007199254740992")},
        {STR_INIT("0.1000000000000000055511151231257827"), STR_INIT("0.1")},
        {STR_INIT("1e-999999999999"), STR_INIT("0")},
        {STR_INIT("-1e-400"), STR_INIT("0")},
        {STR_INIT("2e-324"), STR_INIT("0")},
        {STR_INIT("3e-324"), STR_INIT("5e-324")},
        {STR_INIT("1e-323"), STR_INIT("1e-323")},
        {STR_INIT("1.2345678901234567e-310"), STR_INIT("1.23456789012346e-310")},
        {STR_INIT("2.2250738585072014e-308"), STR_INIT("2.2250738585072014e-308")},
        /* The nearest decimal of 16 digits, ..801e-14, means the double below this power of two. */
        {STR_INIT("5.684341886080801486968994140625e-14"), STR_INIT("5.684341886080802e-14")},
        {STR_INIT("2.22507385850721e-308"), STR_INIT("2.22507385850721e-308")},
        {STR_INIT("0.123456789012345e-306"), STR_INIT("1.23456789012345e-307")},
        {STR_INIT("9.99999999999999e307"), STR_INIT("9.99999999999999e+307")},
        {STR_INIT("1.7976931348623158e308"), STR_INIT("1.7976931348623157e+308")},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check(cases[i][0], cases[i][1]);
    refuse(STR("1.7976931348623159e308"), ERR_JSON);
    refuse(STR("[-1e309]"), ERR_JSON);
    refuse(STR("1e999999999999999999999"), ERR_JSON);
}

/* A digit a million places behind can decide between two doubles. */
static void test_long_numbers(void **state)
{
    struct buf text = {0};
    buf_put(&text, STR("9007199254740993."));
    while (text.n < 500000)
        buf_putc(&text, '0');
    check(buf_str(&text), STR("9007199254740992"));
    buf_putc(&text, '1');
    check(buf_str(&text), STR("9007199254740994"));
    buf_put(&text, STR("e-16"));
    check(buf_str(&text), STR("0.9007199254740993"));

    text.n = 0;
    buf_put(&text, STR("0."));
    while (text.n < 500000)
        buf_putc(&text, '0');
    buf_put(&text, STR("25e499999"));
    check(buf_str(&text), STR("2.5"));
    buf_deinit(&text);
}

/* ---- strings and members ---- */

static void test_strings(void **state)
{
    check(STR("\"\\b\\t\\n\\f\\r\\u0000\\u001F\\u007f\\/\""),
          STR("\"\\b\\t\\n\\f\\r\\u0000\\u001f\x7f/\""));
    check(STR("\"\\uD83D\\uDE00\\u00e9\\u20AC\\uFFFF\""),
          STR("\"\xf0\x9f\x98\x80\xc3\xa9\xe2\x82\xac\xef\xbf\xbf\""));
    check(STR("\"\\uDBFF\\uDFFF\\uD800\\uDC00\""), STR("\"\xf4\x8f\xbf\xbf\xf0\x90\x80\x80\""));
    static const struct str halves[] = {
        STR_INIT("\"\\ud800\""),        STR_INIT("\"\\udc00\""),   STR_INIT("\"\\ud800\\ud800\""),
        STR_INIT("\"\\ud800\\ue000\""), STR_INIT("\"\\ud800x\""),  STR_INIT("\"\\ud800\\n12345\""),
        STR_INIT("{\"\\udfff\":1}"),    STR_INIT("[\"\\udbff\"]"),
    };
    for (size_t i = 0; i < COUNT(halves); i++)
        refuse(halves[i], ERR_JSON);
}

/* U+FFFF is below U+10000, but not as UTF-16 has them; a prefix comes before what it begins. */
static void test_order(void **state)
{
    check(STR("{\"\xef\xbf\xbf\":1,\"\xf0\x90\x80\x80\":2,\"\xee\x80\x80\":3,\"\xed\x9f\xbf\":4,"
              "\"a\xef\xbf\xbf\":5,\"a\xf4\x8f\xbf\xbf\":6,\"aa\":7,\"a\":8,\"\":9}"),
          STR("{\"\":9,\"a\":8,\"aa\":7,\"a\xf4\x8f\xbf\xbf\":6,\"a\xef\xbf\xbf\":5,"
              "\"\xed\x9f\xbf\":4,\"\xf0\x90\x80\x80\":2,\"\xee\x80\x80\":3,\"\xef\xbf\xbf\":1}"));
}

static void test_nesting(void **state)
{
    check(STR(" { \"z\" : [ { } , [ ] , { \"b\" : 1 , \"a\" : { \"d\" : 2 , \"c\" : [ ] } } , 3 ] ,"
              " \"y\" : { \"x\" : { } } } "),
          STR("{\"y\":{\"x\":{}},\"z\":[{},[],{\"a\":{\"c\":[],\"d\":2},\"b\":1},3]}"));
    check(STR("[{\"a\":{}},{\"c\":1,\"b\":{\"a\":0}},{}]"),
          STR("[{\"a\":{}},{\"b\":{\"a\":0},\"c\":1},{}]"));
    check(STR("\t\"a\"\n"), STR("\"a\""));
}

static void test_duplicates(void **state)
{
    refuse(STR("{\"a\":1,\"a\":1}"), ERR_JSON);
    refuse(STR("{\"a\":1,\"b\":{},\"\\u0061\":2}"), ERR_JSON);
    refuse(STR("[0,{\"b\":[{\"\":0,\"\":0}]}]"), ERR_JSON);
    check(STR("{\"a\":{\"a\":{\"a\":1}},\"b\":[{\"a\":1},{\"a\":1}]}"),
          STR("{\"a\":{\"a\":{\"a\":1}},\"b\":[{\"a\":1},{\"a\":1}]}"));
}

static void check_without(struct str text, struct str without, struct str expected)
{
    struct buf out = {0};
    assert_int_equal(canonical(text, without, &out), 0);
    assert_true(str_eq(str_skip(buf_str(&out), 1), expected));
    buf_deinit(&out);
}

static void test_without(void **state)
{
    struct str name = STR("__cursor");
    check_without(STR("{\"__cursor\":\"x\"}"), name, STR("{}"));
    check_without(STR("{\"b\":{\"c\":[]},\"\\u005f_cursor\":{\"q\":{}},\"a\":{\"z\":{}}}"), name,
                  STR("{\"a\":{\"z\":{}},\"b\":{\"c\":[]}}"));
    check_without(STR("{\"a\":{\"__cursor\":1},\"z\":[{\"__cursor\":1}]}"), name,
                  STR("{\"a\":{\"__cursor\":1},\"z\":[{\"__cursor\":1}]}"));
    check_without(STR("[{\"__cursor\":1}]"), name, STR("[{\"__cursor\":1}]"));
    check_without(STR("\"__cursor\""), name, STR("\"__cursor\""));
    check_without(STR("{\"\":1,\"a\":2}"), STR(""), STR("{\"a\":2}"));
}

/* ---- limits ---- */

static void put_times(struct buf *b, struct str s, size_t times)
{
    for (size_t i = 0; i < times; i++)
        buf_put(b, s);
}

static void test_depth(void **state)
{
    static const struct str brackets[][2] = {{STR_INIT("["), STR_INIT("]")},
                                             {STR_INIT("{\"a\":"), STR_INIT("}")}};
    for (size_t i = 0; i < COUNT(brackets); i++)
        for (size_t depth = JSON_DEPTH_MAX; depth <= JSON_DEPTH_MAX + 1; depth++) {
            struct buf text = {0};
            put_times(&text, brackets[i][0], depth);
            buf_putc(&text, '1');
            put_times(&text, brackets[i][1], depth);
            if (depth <= JSON_DEPTH_MAX)
                check(buf_str(&text), buf_str(&text));
            else
                refuse(buf_str(&text), ERR_JSON);
            buf_deinit(&text);
        }
}

static void test_size(void **state)
{
    struct buf text = {0};
    buf_putc(&text, '"');
    put_times(&text, STR("a"), JSON_CANONICAL_MAX - 2);
    buf_putc(&text, '"');
    check(buf_str(&text), buf_str(&text));
    buf_putc(&text, ' ');
    refuse(buf_str(&text), ERR_TOO_LARGE);
    buf_deinit(&text);
}

static void test_no_json(void **state)
{
    static const struct str texts[] = {
        STR_INIT(""),      STR_INIT(" "),   STR_INIT("01"),     STR_INIT("{\"a\":1"),
        STR_INIT("[1,]"),  STR_INIT("nul"), STR_INIT("1 2"),    STR_INIT("\"\xff\""),
        STR_INIT("{a:1}"), STR_INIT("NaN"), STR_INIT("\"\n\""), STR_INIT("\xef\xbb\xbf{}"),
    };
    for (size_t i = 0; i < COUNT(texts); i++)
        refuse(texts[i], ERR_JSON);
    refuse(STR_NONE, ERR_JSON);
}

/* Writes into exactly the room that was measured, which sanitizers watch. */
static void write_within_measure(struct str text)
{
    struct jcs_room room;
    size_t n;
    assert_int_equal(jcs_measure(text, &room), 0);
    room.objects = malloc(room.n_objects * sizeof *room.objects);
    room.members = malloc(room.n_members * sizeof *room.members);
    room.names = malloc(room.n_names);
    room.out = malloc(room.n_out);
    assert_int_equal(jcs_write(text, STR_NONE, &room, &n), 0);
    assert_true(n <= room.n_out);
    free(room.objects);
    free(room.members);
    free(room.names);
    free(room.out);
}

static void test_measure(void **state)
{
    static const struct str texts[] = {
        STR_INIT("9"),
        STR_INIT("[99999999999999999,99999999999999999,99999999999999999]"),
        STR_INIT("[-99999999999999999999.9,-99999999999999999999.9]"),
        STR_INIT("[9999999999999999.9,0.99999999999999999,0.000000999999999999999999]"),
        STR_INIT("[1e20,1E20,-1e20,1e-6,1e-7,-1.2345678901234567e-6,5e-324]"),
        STR_INIT("{\"\\u0061\":[{},{\"\":{}}],\"\\u0001\":\"\\u0002\\/\"}"),
    };
    struct buf ones = {0};
    struct jcs_room room;
    for (size_t i = 0; i < COUNT(texts); i++)
        write_within_measure(texts[i]);
    put_times(&ones, STR("1,"), 10000);
    ones.p[0] = '[';
    ones.p[ones.n - 1] = ']';
    ones.p[1] = ' ';
    assert_int_equal(jcs_measure(buf_str(&ones), &room), 0);
    assert_true(room.n_out <= 2 * ones.n); /* not as if each number could become the longest */
    buf_deinit(&ones);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rfc_document), cmocka_unit_test(test_rfc_order),
        cmocka_unit_test(test_rfc_numbers),  cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_long_numbers), cmocka_unit_test(test_strings),
        cmocka_unit_test(test_order),        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_duplicates),   cmocka_unit_test(test_without),
        cmocka_unit_test(test_depth),        cmocka_unit_test(test_size),
        cmocka_unit_test(test_no_json),      cmocka_unit_test(test_measure),
    };
    return cmocka_run_group_tests_name("json_canonical", tests, NULL, NULL);
}
