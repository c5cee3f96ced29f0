// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/tool_rows.h"
#include "base/arena.h"
#include "base/mem.h"
#include "feature/builtin.h"
#include "feature/tools/tool_args.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

/* The text in pieces of n bytes; *out: the rows as they are stored. */
static enum tool_rows_fault split(const char *text, size_t n, size_t row_max, struct tool_rows *out)
{
    struct tool_splitter s = {.row_max = row_max};
    enum tool_rows_fault fault = TOOL_ROWS_FINE;
    for (struct str rest = str_of_cstr(text); fault == TOOL_ROWS_FINE && rest.n > 0;) {
        struct str piece = str_of(rest.p, rest.n < n ? rest.n : n);
        /* a copy of its own size, so that reading beyond it is noticed */
        char *copy = memcpy(mem_alloc(piece.n), piece.p, piece.n);
        fault = tool_splitter_feed(&s, str_of(copy, piece.n), out);
        free(copy);
        rest = str_skip(rest, piece.n);
    }
    if (fault == TOOL_ROWS_FINE)
        fault = tool_splitter_end(&s, out);
    assert_int_equal(s.rows, tool_rows_count(out));
    tool_splitter_deinit(&s);
    return fault;
}

/* However it is cut. */
static void assert_split(const char *text, enum tool_rows_fault fault, const char *stored)
{
    for (size_t n = 1; n <= strlen(text) + 1; n++) {
        struct tool_rows rows = {0};
        assert_int_equal(split(text, n, 64, &rows), fault);
        assert_int_equal(rows.bytes.n, strlen(stored));
        if (rows.bytes.n > 0)
            assert_memory_equal(rows.bytes.p, stored, rows.bytes.n);
        tool_rows_deinit(&rows);
    }
}

static void test_arrays(void **state)
{
    assert_split("[]", TOOL_ROWS_FINE, "");
    assert_split(" \r\n[ ] \n", TOOL_ROWS_FINE, "");
    assert_split("[1]", TOOL_ROWS_FINE, "1,");
    assert_split("[1,\n 2 ,{\"a\":[1,{}]},[],\"],[\\\"\\\\\",null]\n", TOOL_ROWS_FINE,
                 "1,2,{\"a\":[1,{}]},[],\"],[\\\"\\\\\",null,");
    assert_split("[{\n\t\"a\": 1\r\n}]", TOOL_ROWS_FINE, "{ \t\"a\": 1  },");
}

static void test_lines(void **state)
{
    assert_split("", TOOL_ROWS_FINE, "");
    assert_split("\n\n", TOOL_ROWS_FINE, "");
    assert_split("1\n2\n", TOOL_ROWS_FINE, "1,2,");
    assert_split("1\r\n\r\n 2 ", TOOL_ROWS_FINE, "1,2,");
    assert_split("{\"a\":\",\"}\n[3,4]\n\"x\"", TOOL_ROWS_FINE, "{\"a\":\",\"},[3,4],\"x\",");
    assert_split("{\n \"a\": 1\n}\n{}\n", TOOL_ROWS_FINE, "{  \"a\": 1 },{},");
}

static void test_faults(void **state)
{
    assert_split("[1,]", TOOL_ROWS_JSON, "1,");
    assert_split("[,1]", TOOL_ROWS_JSON, "");
    assert_split("[1,,2]", TOOL_ROWS_JSON, "1,");
    assert_split("[1 2]", TOOL_ROWS_JSON, "");
    assert_split("[}]", TOOL_ROWS_JSON, "");
    assert_split("[1] [2]", TOOL_ROWS_AFTER, "1,");
    assert_split("[1]]", TOOL_ROWS_AFTER, "1,");
    assert_split("[1", TOOL_ROWS_CUT, "");
    assert_split("[1,", TOOL_ROWS_CUT, "1,");
    assert_split("[", TOOL_ROWS_CUT, "");
    assert_split("[\"a]", TOOL_ROWS_CUT, "");
    assert_split("1\noops\n2\n", TOOL_ROWS_JSON, "1,");
    assert_split("{\"a\":1}{\"b\":2}\n", TOOL_ROWS_JSON, "");
    assert_split("{\"a\":\n", TOOL_ROWS_JSON, "");
    assert_split("]\n", TOOL_ROWS_JSON, "");
    assert_split("\xef\xbb\xbf[1]", TOOL_ROWS_JSON, "");
    assert_split("\"\xff\"\n", TOOL_ROWS_JSON, "");
    assert_split("\"a\nb\"\n", TOOL_ROWS_JSON, "");
}

static void test_row_max(void **state)
{
    char text[128] = "[\"", *end = text + 2;
    for (int i = 0; i < 62; i++)
        *end++ = 'a';
    strcpy(end, "\",1]");
    struct tool_rows rows = {0};
    assert_int_equal(split(text, 7, 64, &rows), TOOL_ROWS_FINE);
    tool_rows_deinit(&rows);
    assert_int_equal(split(text, 7, 63, &rows), TOOL_ROWS_LARGE);
    assert_int_equal(tool_rows_count(&rows), 0);
    tool_rows_deinit(&rows);
}

static void test_pages_of_rows(void **state)
{
    struct tool_rows r = {0};
    struct buf out = {0};
    assert_int_equal(tool_rows_page(&r, 10, 10), 0);
    tool_rows_put(&r, 0, &out);
    for (int i = 0; i < 5; i++)
        tool_rows_add(&r, STR("123"));
    assert_int_equal(tool_rows_page(&r, 10, 100), 5);
    assert_int_equal(tool_rows_page(&r, 3, 100), 3);
    assert_int_equal(tool_rows_page(&r, 10, 8), 2);
    assert_int_equal(tool_rows_page(&r, 10, 11), 2);
    assert_int_equal(tool_rows_page(&r, 10, 12), 3);
    assert_int_equal(tool_rows_page(&r, 10, 1), 1); /* no row is cut */
    tool_rows_put(&r, 2, &out);
    assert_true(str_eq(buf_str(&out), STR("[][123,123]")));
    assert_true(str_eq(tool_rows_at(&r, 4), STR("123,")));
    tool_rows_deinit(&r);
    buf_deinit(&out);
}

static void test_stored_rows_are_cut(void **state)
{
    struct str rest = STR("{\"a\":\",\\\"]\"},[1,2],3,"), row;
    assert_true(tool_rows_cut(&rest, &row));
    assert_true(str_eq(row, STR("{\"a\":\",\\\"]\"}")));
    assert_true(tool_rows_cut(&rest, &row));
    assert_true(str_eq(row, STR("[1,2]")));
    assert_true(tool_rows_cut(&rest, &row));
    assert_true(str_eq(row, STR("3")));
    assert_false(tool_rows_cut(&rest, &row));
    assert_int_equal(rest.n, 0);
}

/* ---- arguments ---- */

struct args {
    struct str name, stream, where;
    uint64_t limit;
};

#define FIELD(member) offsetof(struct args, member)
static const struct builtin_arg rows[] = {
    {.name = "name",
     .type = BUILTIN_TEXT,
     .field = FIELD(name),
     .required = true,
     .max = 5,
     .help = "A \"name\"."},
    {.name = "stream",
     .type = BUILTIN_TEXT,
     .field = FIELD(stream),
     .max = 9,
     .choices = "in|out",
     .help = "Which."},
    {.name = "limit",
     .type = BUILTIN_NUMBER,
     .field = FIELD(limit),
     .min = 1,
     .max = 9,
     .fallback = 4,
     .help = "How many."},
    {.name = "where", .type = BUILTIN_OBJECT, .field = FIELD(where), .help = "What."},
};
#define ROWS (sizeof rows / sizeof *rows)

static int take(struct args *a, struct arena *arena, struct str text, char *why, size_t size)
{
    *a = (struct args){0};
    return tool_args_take(a, rows, ROWS, text, arena, why, size);
}

static void assert_refused(const char *text, const char *expected)
{
    struct args a;
    struct arena arena = {0};
    char why[256] = "";
    assert_int_not_equal(take(&a, &arena, str_of_cstr(text), why, sizeof why), 0);
    assert_string_equal(why, expected);
    arena_deinit(&arena);
}

static void test_arguments(void **state)
{
    struct args a;
    struct arena arena = {0};
    json_t *where;
    char why[256];
    struct str text = STR("{\"name\":\"abcde\",\"stream\":\"out\",\"where\":{\"a\":1,\"b\":true}}");
    assert_int_equal(take(&a, &arena, text, why, sizeof why), 0);
    assert_true(str_eq(a.name, STR("abcde")) && str_eq(a.stream, STR("out")));
    assert_int_equal(a.limit, 4);
    where = json_loadb(a.where.p, a.where.n, 0, NULL);
    assert_int_equal(json_object_size(where), 2);
    json_decref(where);
    text = STR("{\"name\":\"a\",\"limit\":0.9e1}");
    assert_int_equal(take(&a, &arena, text, why, sizeof why), 0);
    assert_int_equal(a.limit, 9);
    arena_deinit(&arena);
    assert_refused("{}", "argument 'name' is missing");
    assert_refused("{\"name\":\"\"}", "argument 'name' must be a text that is not empty");
    assert_refused("{\"name\":7}", "argument 'name' must be a text that is not empty");
    assert_refused("{\"name\":\"abcdef\"}", "argument 'name' has more than 5 bytes");
    assert_refused("{\"name\":\"a\",\"stream\":\"up\"}", "argument 'stream' must be one of in|out");
    const char *number = "argument 'limit' must be an integer between 1 and 9";
    assert_refused("{\"name\":\"a\",\"limit\":0}", number);
    assert_refused("{\"name\":\"a\",\"limit\":10}", number);
    assert_refused("{\"name\":\"a\",\"limit\":-1}", number);
    assert_refused("{\"name\":\"a\",\"limit\":1.5}", number);
    assert_refused("{\"name\":\"a\",\"limit\":\"3\"}", number);
    assert_refused("{\"name\":\"a\",\"where\":{\"x\":[]}}",
                   "argument 'where' must be an object of texts, numbers and bools");
    assert_refused("{\"name\":\"a\",\"where\":3}",
                   "argument 'where' must be an object of texts, numbers and bools");
    assert_refused("{\"name\":\"a\",\"limt\":3}", "unknown argument 'limt'; did you mean 'limit'?");
    assert_refused("{\"name\":\"a\",\"colour\":3}", "unknown argument 'colour'");
}

static void test_schemas(void **state)
{
    struct buf out = {0};
    tool_args_schema(rows, ROWS, true, &out);
    json_t *s = json_loadb(out.p, out.n, 0, NULL), *p = json_object_get(s, "properties");
    assert_string_equal(json_string_value(json_object_get(s, "type")), "object");
    assert_int_equal(json_object_size(p), ROWS + 1);
    assert_non_null(json_object_get(p, "__cursor"));
    assert_int_equal(json_array_size(json_object_get(s, "required")), 1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(p, "limit"), "maximum")),
                     9);
    json_decref(s);
    out.n = 0;
    tool_args_add_cursor(STR("{\"properties\":{\"x\":{}},\"required\":[\"x\"]}"), &out);
    s = json_loadb(out.p, out.n, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(s, "type")), "object");
    assert_int_equal(json_object_size(json_object_get(s, "properties")), 2);
    assert_int_equal(json_array_size(json_object_get(s, "required")), 1);
    json_decref(s);
    /* It is the author's: what numbers and texts it has is nothing to us. */
    out.n = 0;
    tool_args_add_cursor(
        STR("{ \"type\": \"object\",\"pr\\u006fperties\":{\"__cursor\":1,\"n\":{"
            "\"default\":0.1,\"maximum\":18446744073709551615}},\"x\":\"\\u0000\" }"),
        &out);
    buf_putc(&out, '\0');
    assert_non_null(strstr(out.p, "{\"type\":\"object\",\"x\":\"\\u0000\",\"properties\":{\"n\":{"
                                  "\"default\":0.1,\"maximum\":18446744073709551615},"
                                  "\"__cursor\":{\"type\":\"string\""));
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrays),        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_faults),        cmocka_unit_test(test_row_max),
        cmocka_unit_test(test_pages_of_rows), cmocka_unit_test(test_stored_rows_are_cut),
        cmocka_unit_test(test_arguments),     cmocka_unit_test(test_schemas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
