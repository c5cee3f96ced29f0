// SPDX-License-Identifier: Apache-2.0
/* test_tool_streams.c -- the tools that look at streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "tool_world.h"
#include "store/mem/mem_store.h"

/* ---- stream:read ---- */

static void test_read_json(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    put_json(w, "s", "[1,{\"a\":[2]},\"3\",[4],5]", false);
    ask(w, &a, "stream:read", "{\"name\":\"s\",\"limit\":2}", NULL);
    assert_page(&a, "[1,{\"a\":[2]}]", 1, true);
    ask(w, &a, "stream:read", NULL, a.cursor);
    assert_page(&a, "[\"3\",[4]]", 2, true);
    char before[CURSOR_MAX + 1];
    strcpy(before, a.cursor);
    ask(w, &a, "stream:read", "{\"limit\":2,\"name\":\"s\"}",
        before); /* the same, in other words */
    assert_page(&a, "[5]", 3, false);
    ask(w, &a, "stream:read", "{\"name\":\"s\"}", before);
    assert_refused(&a, TOOL_CURSOR_REFUSED, 1021, "cursor arguments mismatch");
    put_json(w, "s", "[6,7,8]", false);
    ask(w, &a, "stream:read", NULL, before);
    assert_page(&a, "[5,6]", 3, true);
    ask(w, &a, "stream:read", "{\"name\":\"s\"}", NULL);
    assert_page(&a, "[1,{\"a\":[2]},\"3\",[4],5,6,7,8]", 1, false);
    forget(&a);
}

/* Pages by bytes, too: every event once. */
static void test_read_much(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    struct buf text = {0};
    buf_putc(&text, '[');
    for (int i = 0; i < 3000; i++)
        buf_printf(&text, "%s{\"n\":%d,\"pad\":\"%0200d\"}", i > 0 ? "," : "", i, i);
    buf_put(&text, str_of("]", 2));
    put_json(w, "s", text.p, true);
    ask(w, &a, "stream:read", "{\"name\":\"s\",\"limit\":1000}", NULL);
    int n = 0, pages = 1;
    for (;; pages++) {
        assert_int_equal(a.call.outcome, TOOL_SUCCESS);
        assert_true(a.call.result.n <= 66 * 1024);
        json_t *rows = json_loadb(a.call.result.p, a.call.result.n, 0, NULL), *row;
        size_t i;
        json_array_foreach(rows, i, row)
            assert_int_equal(json_integer_value(json_object_get(row, "n")), n++);
        json_decref(rows);
        if (a.call.next_cursor.n == 0)
            break;
        ask(w, &a, "stream:read", NULL, a.cursor);
    }
    assert_int_equal(n, 3000);
    assert_true(pages > 3);
    buf_deinit(&text);
    forget(&a);
}

static void test_read_from_an_offset(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    put_json(w, "s", "[1,22,333]", false);
    ask(w, &a, "stream:read",
        "{\"name\":\"s\",\"offset\":\"0000000000000001_0000000000000002\",\"limit\":1}", NULL);
    assert_page(&a, "[22]", 1, true);
    ask(w, &a, "stream:read", NULL, a.cursor);
    assert_page(&a, "[333]", 2, false);
    ask(w, &a, "stream:read", "{\"name\":\"s\",\"offset\":\"-1\"}", NULL);
    assert_page(&a, "[1,22,333]", 1, false);
    ask(w, &a, "stream:read", "{\"name\":\"s\",\"offset\":\"7\"}", NULL);
    assert_refused(&a, TOOL_INVALID_ARGS, 0,
                   "invalid arguments: argument 'offset' must be -1 or an offset of the stream");
    ask(w, &a, "stream:read", "{\"name\":\"s\",\"offset\":\"0000000000000001_0000000000000003\"}",
        NULL);
    assert_failed(&a, "s: this is not an offset of this stream", false);
    forget(&a);
}

static void test_read_other_types(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    put_stream(w, STR("t"), STR("text/plain"), STR("a \"b\"\n"), NULL, 1, false);
    ask(w, &a, "stream:read", "{\"name\":\"t\"}", NULL);
    assert_page(&a,
                "[{\"offset\":\"0000000000000001_0000000000000000\",\"text\":\"a \\\"b\\\"\\n\"}]",
                1, false);
    put_stream(w, STR("b"), STR("image/png"), str_of("\xff\x00", 2), NULL, 1, false);
    ask(w, &a, "stream:read", "{\"name\":\"b\"}", NULL);
    assert_page(&a, "[{\"offset\":\"0000000000000002_0000000000000000\",\"base64\":\"/wA=\"}]", 1,
                false);
    put_stream(w, STR("e"), STR("text/plain"), STR_NONE, NULL, 0, false);
    ask(w, &a, "stream:read", "{\"name\":\"e\"}", NULL);
    assert_page(&a, "[]", 1, false);
    forget(&a);
}

static void test_read_much_text(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    static char piece[50 * 1024];
    size_t n = 0;
    memset(piece, 'x', sizeof piece);
    for (int i = 0; i < 5; i++)
        put_stream(w, STR("t"), STR("text/plain"), str_of(piece, sizeof piece), NULL, 1, false);
    ask(w, &a, "stream:read", "{\"name\":\"t\"}", NULL);
    for (uint64_t page = 1;; page++) {
        assert_int_equal(a.call.outcome, TOOL_SUCCESS);
        assert_int_equal(a.call.page, page);
        json_t *rows = json_loadb(a.call.result.p, a.call.result.n, 0, NULL);
        n += json_string_length(json_object_get(json_array_get(rows, 0), "text"));
        json_decref(rows);
        if (a.call.next_cursor.n == 0)
            break;
        ask(w, &a, "stream:read", NULL, a.cursor);
    }
    assert_int_equal(n, 5 * sizeof piece);
    forget(&a);
}

/* One that would fit on no wire is refused, and not cut. */
static void test_read_a_large_event(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    struct buf large = {0};
    buf_put(&large, STR("[1,\""));
    memset(buf_reserve(&large, TOOL_ROW_MAX), 'x', TOOL_ROW_MAX);
    large.n += TOOL_ROW_MAX;
    buf_put(&large, STR("\"]"));
    put_stream(w, STR("s"), STR("application/json"), STR("1,"), NULL, 1, false);
    large.p[large.n - 1] = ',';
    put_stream(w, STR("s"), STR("application/json"), str_skip(buf_str(&large), 3), NULL, 1, false);
    ask(w, &a, "stream:read", "{\"name\":\"s\"}", NULL);
    assert_page(&a, "[1]", 1, true);
    ask(w, &a, "stream:read", NULL, a.cursor);
    assert_failed(&a, "s: the next event has more than 4194304 bytes", false);
    buf_deinit(&large);
    forget(&a);
}

struct removal {
    struct store_remove op;
    bool done;
};
static void on_removed(struct store_remove *r, int err)
{
    assert_int_equal(err, 0);
    container_of(r, struct removal, op)->done = true;
}

static void remove_stream(struct world *w, struct str name)
{
    struct removal r = {.op = {.name = name, .done = on_removed}};
    store_remove(w->store, &r.op);
    sched_drain(&w->sched);
    assert_true(r.done);
}

static void test_read_what_is_gone(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    ask(w, &a, "stream:read", "{\"name\":\"s\"}", NULL);
    assert_failed(&a, "s: no such stream", false);
    put_json(w, "s", "[1,2]", false);
    ask(w, &a, "stream:read", "{\"name\":\"s\",\"limit\":1}", NULL);
    remove_stream(w, STR("s"));
    put_json(w, "s", "[3,4]", false); /* another one of that name is not the next page */
    ask(w, &a, "stream:read", NULL, a.cursor);
    assert_failed(&a, "s: this position can no longer be read", false);
    forget(&a);
}

/* Among what is reserved are results that others asked for. */
static void test_read_what_is_reserved(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    put_json(w, ".tool/00000000000000000000000000000000", "[1]", true);
    put_json(w, "sessions/k/out", "[1]", true);
    const char *names[] = {".tool/00000000000000000000000000000000", "sessions/k/out"};
    for (int i = 0; i < 2; i++) {
        char args[128], expected[128];
        snprintf(args, sizeof args, "{\"name\":\"%s\"}", names[i]);
        snprintf(expected, sizeof expected, "%s: no such stream", names[i]);
        ask(w, &a, "stream:read", args, NULL);
        assert_failed(&a, expected, false);
    }
    ask(w, &a, "stream:list", "{\"prefix\":\".\"}", NULL);
    assert_page(&a, "[]", 1, false);
    ask(w, &a, "stream:list", "{\"prefix\":\"sess\"}", NULL);
    assert_page(&a, "[]", 1, false);
    forget(&a);
}

/* ---- stream:list ---- */

static void test_list(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    put_json(w, "a/1", "[1]", true);
    put_json(w, "a/2", "[1,2]", false);
    put_json(w, "b", "[1]", false);
    ask(w, &a, "stream:list", "{\"prefix\":\"a/\",\"limit\":1}", NULL);
    assert_page(&a,
                "[{\"name\":\"a/1\",\"contentType\":\"application/json\",\"tail\":"
                "\"0000000000000001_0000000000000002\",\"events\":1,\"closed\":true,\"reason\":"
                "\"completed\"}]",
                1, true);
    ask(w, &a, "stream:list", NULL, a.cursor);
    assert_page(&a,
                "[{\"name\":\"a/2\",\"contentType\":\"application/json\",\"tail\":"
                "\"0000000000000002_0000000000000004\",\"events\":2,\"closed\":false}]",
                2, false);
    ask(w, &a, "stream:list", "{\"limit\":1001}", NULL);
    assert_refused(&a, TOOL_INVALID_ARGS, 0,
                   "invalid arguments: argument 'limit' must be an integer between 1 and 1000");
    forget(&a);
}

/* Names that no cursor could hold; the state is kept beside it. */
static void test_long_names(void **state)
{
    struct world *w = *state;
    struct asked a = {.call.caller_id = STR("somebody")};
    struct buf args = {0};
    char name[STORE_NAME_MAX + 1];
    memset(name, 'n', STORE_NAME_MAX);
    name[STORE_NAME_MAX] = '\0';
    for (char last = 'a'; last < 'e'; last++) {
        name[STORE_NAME_MAX - 1] = last;
        put_json(w, name, "[1,2,3]", false);
    }
    ask(w, &a, "stream:list", "{\"limit\":1}", NULL);
    for (uint64_t page = 1; page <= 4; page++) {
        assert_int_equal(a.call.outcome, TOOL_SUCCESS);
        assert_int_equal(a.call.page, page);
        json_t *rows = json_loadb(a.call.result.p, a.call.result.n, 0, NULL);
        name[STORE_NAME_MAX - 1] = (char)('a' + page - 1);
        assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "name")),
                            name);
        json_decref(rows);
        assert_int_equal(look(w).n, page < 4 ? page : 3);
        assert_int_equal(a.call.next_cursor.n > 0, page < 4);
        if (page < 4)
            ask(w, &a, "stream:list", NULL, a.cursor);
    }
    buf_printf(&args, "{\"name\":\"%s\",\"limit\":1}%c", name, '\0');
    w->refuse = ERR_FULL;
    w->refuse_left = 1;
    ask(w, &a, "stream:read", args.p, NULL);
    assert_failed(&a, "the page cannot be continued: storage is full", true);
    ask(w, &a, "stream:read", args.p, NULL);
    assert_page(&a, "[1]", 1, true);
    ask(w, &a, "stream:read", NULL, a.cursor);
    assert_page(&a, "[2]", 2, true);
    ask(w, &a, "stream:read", args.p, a.cursor);
    assert_page(&a, "[3]", 3, false);
    buf_deinit(&args);
    forget(&a);
}

static void test_kept_state_is_gone(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    char name[STORE_NAME_MAX + 1], args[600];
    memset(name, 'n', STORE_NAME_MAX);
    name[STORE_NAME_MAX] = '\0';
    put_json(w, name, "[1,2,3]", false);
    snprintf(args, sizeof args, "{\"name\":\"%s\",\"limit\":1}", name);
    ask(w, &a, "stream:read", args, NULL);
    close_tools(w);
    store_free(w->store);
    w->setup.store = w->store = mem_store_new(&w->sched);
    open_tools(w);
    ask(w, &a, "stream:read", NULL, a.cursor);
    assert_refused(&a, TOOL_CURSOR_REFUSED, 1020, "cursor expired; re-issue the original RunTool");
    forget(&a);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_read_json),
        TEST(test_read_much),
        TEST(test_read_from_an_offset),
        TEST(test_read_other_types),
        TEST(test_read_much_text),
        TEST(test_read_a_large_event),
        TEST(test_read_what_is_gone),
        TEST(test_read_what_is_reserved),
        TEST(test_list),
        TEST(test_long_names),
        TEST(test_kept_state_is_gone),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
