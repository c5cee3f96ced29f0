// SPDX-License-Identifier: Apache-2.0
/* test_tool_builtin.c -- the tools that look at what the server has anyway. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/arena.h"
#include "fault/simlane.h"
#include "feature/lab/lab.h"
#include "feature/logs/logs.h"
#include "feature/tools/tool_rows.h"
#include "tool_world.h"

#include <unistd.h>

static const struct str worker = STR_INIT("worker");

static void put_json(struct world *w, const char *name, const char *text, bool close)
{
    struct tool_splitter s = {.row_max = 1 << 20};
    struct tool_rows r = {0};
    assert_int_equal(tool_splitter_feed(&s, str_of_cstr(text), &r), TOOL_ROWS_FINE);
    put_stream(w, str_of_cstr(name), STR("application/json"), buf_str(&r.bytes),
               (const uint32_t *)r.ends.p, (uint32_t)tool_rows_count(&r), close);
    tool_splitter_deinit(&s);
    tool_rows_deinit(&r);
}

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

/* ---- session:read ---- */

static void test_read_a_session(void **state)
{
    struct world *w = *state;
    struct asked a = {.call = {.capabilities = &worker, .n_capabilities = 1}};
    put_json(w, "sessions/k/in", "[1,2]", false);
    put_json(w, "sessions/k/out", "[3,4]", false);
    ask(w, &a, "session:read", "{\"session\":\"k\"}", NULL);
    assert_page(&a, "[3,4]", 1, false);
    ask(w, &a, "session:read", "{\"session\":\"k\",\"stream\":\"in\",\"limit\":1}", NULL);
    assert_page(&a, "[1]", 1, true);
    char cursor[CURSOR_MAX + 1];
    strcpy(cursor, a.cursor);
    a.call.n_capabilities = 0; /* it may have been taken away meanwhile */
    ask(w, &a, "session:read", NULL, cursor);
    assert_refused(&a, TOOL_CAPABILITY_DENIED, TOOL_CODE_CAPABILITY,
                   "capability denied: session:read requires worker");
    a.call.n_capabilities = 1;
    ask(w, &a, "session:read", NULL, cursor);
    assert_page(&a, "[2]", 2, false);
    ask(w, &a, "session:read", "{\"session\":\"a/b\"}", NULL);
    assert_refused(&a, TOOL_INVALID_ARGS, 0,
                   "invalid arguments: argument 'session' is no key of a session");
    ask(w, &a, "session:read", "{\"session\":\"other\"}", NULL);
    assert_failed(&a, "sessions/other/out: no such stream", false);
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

/* ---- logs and feedback ---- */

static char log_path[64];

const char *logs_path(const void *state, struct str name)
{
    return str_eq(name, STR("events")) ? state : NULL;
}

const char *lab_feedback_path(const void *state)
{
    return state;
}

static int file_setup(void **state)
{
    world_setup(state);
    struct world *w = *state;
    close_tools(w);
    strcpy(log_path, "/tmp/test_tool_builtin.XXXXXX");
    close(mkstemp(log_path));
    w->setup.lane = simlane_new(&w->sched, 1, 0);
    w->offers[2] = (struct builtin_offer){logs_tools, log_path};
    w->offers[3] = (struct builtin_offer){lab_tools, log_path};
    w->setup.n_offers = 4;
    open_tools(w);
    return 0;
}

static int file_teardown(void **state)
{
    struct world *w = *state;
    struct lane *lane = w->setup.lane;
    close_tools(w);
    lane_free(lane);
    unlink(log_path);
    return world_teardown(state);
}

static void append(const char *text)
{
    FILE *f = fopen(log_path, "a");
    fputs(text, f);
    fclose(f);
}

static void test_log(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    append("{\"n\":1}\nno JSON\n{\"n\":2}\n{\"n\":3}\n{\"n\":");
    ask(w, &a, "log:read", "{\"name\":\"events\",\"limit\":2}", NULL);
    assert_page(&a, "{\"items\":[{\"n\":1},{\"n\":2}],\"nextCursor\":\"24\"}", 1, true);
    ask(w, &a, "log:read", NULL, a.cursor);
    assert_page(&a, "{\"items\":[{\"n\":3}],\"nextCursor\":\"32\"}", 2, false);
    append("4}\n");
    ask(w, &a, "log:read", "{\"name\":\"events\",\"cursor\":\"32\"}", NULL);
    assert_page(&a, "{\"items\":[{\"n\":4}],\"nextCursor\":\"40\"}", 1, false);
    ask(w, &a, "log:read", "{\"name\":\"events\",\"where\":{\"n\":3}}", NULL);
    assert_page(&a, "{\"items\":[{\"n\":3}],\"nextCursor\":\"40\"}", 1, false);
    ask(w, &a, "log:read", "{\"name\":\"events\",\"where\":{\"n\":\"x\"}}", NULL);
    assert_page(&a, "{\"items\":[],\"nextCursor\":\"40\"}", 1, false);
    forget(&a);
}

static void test_log_is_large(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    FILE *f = fopen(log_path, "a");
    for (int i = 0; i < 5000; i++)
        fprintf(f, "{\"n\":%d,\"pad\":\"%0300d\"}\n", i, i);
    fclose(f);
    int n = 0;
    ask(w, &a, "log:read", "{\"name\":\"events\",\"limit\":500}", NULL);
    for (;;) {
        assert_int_equal(a.call.outcome, TOOL_SUCCESS);
        json_t *page = json_loadb(a.call.result.p, a.call.result.n, 0, NULL), *item;
        size_t i;
        json_array_foreach(json_object_get(page, "items"), i, item)
            assert_int_equal(json_integer_value(json_object_get(item, "n")), n++);
        json_decref(page);
        if (a.call.next_cursor.n == 0)
            break;
        ask(w, &a, "log:read", NULL, a.cursor);
    }
    assert_int_equal(n, 5000);
    /* nothing passes, and yet it does not look at all of it at once: 16 MiB a page */
    f = fopen(log_path, "a");
    for (int i = 0; i < 60000; i++)
        fprintf(f, "{\"n\":%d,\"pad\":\"%0300d\"}\n", i, i);
    fclose(f);
    ask(w, &a, "log:read", "{\"name\":\"events\",\"where\":{\"n\":\"x\"}}", NULL);
    assert_int_equal(a.call.outcome, TOOL_SUCCESS);
    assert_true(a.call.next_cursor.n > 0);
    ask(w, &a, "log:read", NULL, a.cursor);
    assert_int_equal(a.call.outcome, TOOL_SUCCESS);
    assert_int_equal(a.call.next_cursor.n, 0);
    forget(&a);
}

static void test_log_is_refused(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    append("{\"n\":1}\n{\"n\":2}\n");
    ask(w, &a, "log:read", "{\"name\":\"other\"}", NULL);
    assert_failed(&a, "there is no log named other", false);
    ask(w, &a, "log:read", "{\"name\":\"events\",\"cursor\":\"x\"}", NULL);
    assert_refused(&a, TOOL_INVALID_ARGS, 0,
                   "invalid arguments: argument 'cursor' must be a nextCursor (digits only)");
    ask(w, &a, "log:read", "{\"name\":\"events\",\"cursor\":\"99\"}", NULL);
    assert_refused(&a, TOOL_INVALID_ARGS, 0,
                   "invalid arguments: argument 'cursor' is beyond the end of the file");
    ask(w, &a, "log:read", "{\"name\":\"events\",\"cursor\":\"3\"}", NULL);
    assert_refused(&a, TOOL_INVALID_ARGS, 0,
                   "invalid arguments: argument 'cursor' is not behind the end of a line");
    ask(w, &a, "log:read", "{\"name\":\"events\",\"limit\":1}", NULL);
    assert_true(a.call.next_cursor.n > 0);
    assert_int_equal(truncate(log_path, 0), 0);
    append("{\"x\":1}\n{\"x\":2}\n"); /* another file, as long as the last */
    ask(w, &a, "log:read", NULL, a.cursor);
    assert_failed(&a, "the file was truncated or replaced; begin anew without a cursor", false);
    forget(&a);
}

#define ENTRY(id, run)                                                                             \
    "{\"id\":\"" id "\",\"createdAt\":\"2026-01-01T00:00:00.000Z\",\"runId\":\"" run               \
    "\",\"topic\":\"t\"}\n"

static void test_feedback(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    const struct tool_info *info = tools_find(w->tools, STR("feedback:wait"));
    assert_false(info->pages);
    append("{\"other\":1}\n" ENTRY("f1", "run_a") ENTRY("f2", "run_b"));
    ask(w, &a, "feedback:wait", "{\"run\":\"run_b\"}", NULL);
    assert_int_equal(a.call.outcome, TOOL_SUCCESS);
    json_t *r = json_loadb(a.call.result.p, a.call.result.n, 0, NULL);
    json_t *items = json_object_get(r, "items");
    char args[128];
    assert_int_equal(json_array_size(items), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(items, 0), "id")), "f2");
    snprintf(args, sizeof args, "{\"run\":\"run_b\",\"timeout\":5,\"cursor\":\"%s\"}",
             json_string_value(json_object_get(r, "nextCursor")));
    json_decref(r);

    begin(w, &a, "feedback:wait", args, NULL);
    pass_ms(w, 2000);
    assert_int_equal(a.done, 0);
    append(ENTRY("f3", "run_a"));
    pass_ms(w, 1000);
    assert_int_equal(a.done, 0); /* of another run */
    append(ENTRY("f4", "run_b"));
    pass_ms(w, 500);
    assert_int_equal(a.done, 1);
    r = json_loadb(a.call.result.p, a.call.result.n, 0, NULL);
    items = json_object_get(r, "items");
    assert_int_equal(json_array_size(items), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(items, 0), "id")), "f4");
    json_decref(r);

    begin(w, &a, "feedback:wait", "{\"run\":\"run_c\",\"timeout\":5}", NULL);
    pass_ms(w, 4500);
    assert_int_equal(a.done, 0);
    pass_ms(w, 1000);
    assert_int_equal(a.done, 1);
    assert_int_equal(a.call.outcome, TOOL_SUCCESS);
    assert_memory_equal(a.call.result.p, "{\"items\":[],\"nextCursor\":\"", 26);
    ask(w, &a, "feedback:wait", "{\"run\":\"run_c\",\"timeout\":0}", NULL);
    assert_int_equal(a.call.outcome, TOOL_SUCCESS);

    begin(w, &a, "feedback:wait", "{\"run\":\"run_c\"}", NULL);
    tools_cancel(w->tools, &a.call);
    pass_ms(w, 1000);
    assert_int_equal(a.done, 0);
    forget(&a);
}

static void test_no_pages_of_feedback(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    struct buf cursor = {0};
    struct cursor_payload p = {
        .tool_id = STR("feedback:wait"), .page = 2, .issued_at_s = w->sched.wall_ms / 1000};
    assert_int_equal(cursor_issue(w->issuer, &p, &cursor), CURSOR_OK);
    buf_putc(&cursor, '\0');
    ask(w, &a, "feedback:wait", NULL, cursor.p);
    assert_refused(&a, TOOL_CURSOR_REFUSED, 1021,
                   "tool feedback:wait does not support pagination but received a cursor");
    buf_deinit(&cursor);
    forget(&a);
}

/* What is under way in a lane or a store outlives the call, and nothing outlives the stop. */
static void test_cancel_under_way(void **state)
{
    struct world *w = *state;
    struct asked a = {0}, b = {0};
    append("{\"n\":1}\n");
    simlane_hold(w->setup.lane, true);
    begin(w, &a, "log:read", "{\"name\":\"events\"}", NULL);
    assert_int_equal(a.done, 0);
    tools_cancel(w->tools, &a.call);
    begin(w, &b, "feedback:wait", NULL, NULL);
    w->stopped = false;
    tools_stop(w->tools, on_stopped, w);
    sched_drain(&w->sched);
    assert_false(w->stopped);
    simlane_hold(w->setup.lane, false);
    pass_ms(w, 100);
    assert_true(w->stopped);
    assert_int_equal(a.done + b.done, 0);
    tools_free(w->tools);
    open_tools(w);
    forget(&a);
    forget(&b);
}

int main(void)
{
#define TEST(name)      cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
#define WITH_FILE(name) cmocka_unit_test_setup_teardown(name, file_setup, file_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_read_json),
        TEST(test_read_much),
        TEST(test_read_from_an_offset),
        TEST(test_read_other_types),
        TEST(test_read_much_text),
        TEST(test_read_a_large_event),
        TEST(test_read_what_is_gone),
        TEST(test_read_what_is_reserved),
        TEST(test_read_a_session),
        TEST(test_list),
        TEST(test_long_names),
        TEST(test_kept_state_is_gone),
        WITH_FILE(test_log),
        WITH_FILE(test_log_is_large),
        WITH_FILE(test_log_is_refused),
        WITH_FILE(test_feedback),
        WITH_FILE(test_no_pages_of_feedback),
        WITH_FILE(test_cancel_under_way),
    };
#undef WITH_FILE
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
