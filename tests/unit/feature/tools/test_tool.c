// SPDX-License-Identifier: Apache-2.0
/* test_tool.c -- the checks of a call, and results that are made and kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/arena.h"
#include "fault/simlane.h"
#include "feature/tools/tool_core.h"
#include "feature/sessions/sessions.h"
#include "store/mem/mem_store.h"
#include "stream/durable.h"
#include "tool_world.h"

struct store *sessions_workers_view(void *state)
{
    return ((struct world *)state)->store;
}

/* A tool with a capability is among those that are there. */
static int setup_with_sessions(void **state)
{
    world_setup(state);
    offer(*state, sessions_tools, *state);
    return 0;
}

/* ---- which tools there are ---- */

static void test_the_tools(void **state)
{
    struct world *w = *state;
    const char *ids[] = {"conformance:page_gen", "mine", "session:read", "stream:list",
                         "stream:read"};
    assert_int_equal(tools_count(w->tools), 5);
    for (size_t i = 0; i < 5; i++) {
        const struct tool_info *t = tools_at(w->tools, i);
        assert_true(str_eq(t->id, str_of_cstr(ids[i])));
        assert_ptr_equal(tools_find(w->tools, t->id), t);
        json_t *schema = json_loadb(t->input_schema.p, t->input_schema.n, 0, NULL);
        assert_non_null(json_object_get(json_object_get(schema, "properties"), "__cursor"));
        json_decref(schema);
        assert_true(t->pages);
    }
    assert_null(tools_find(w->tools, STR("log:read"))); /* there are no logs */
    assert_null(tools_find(w->tools, STR("min")));
    assert_true(str_eq(tools_find(w->tools, STR("session:read"))->capability, STR("worker")));
}

static void assert_not_made(struct world *w, const char *expected)
{
    char why[512];
    assert_null(tools_new(&w->setup, why, sizeof why));
    assert_string_equal(why, expected);
}

static void test_names_are_checked(void **state)
{
    struct world *w = *state;
    char name[TOOL_ID_MAX + 2], expected[512];
    w->setup.n_specs = 2;
    w->specs[1] = fake_spec(w, STR("mine"));
    assert_not_made(w, "there are two tools named mine");
    w->specs[1].id = STR("stream:read");
    assert_not_made(w, "there are two tools named stream:read");
    w->specs[1].id = STR("");
    assert_not_made(w, "'' cannot be a tool's name: it has 1 to 128 bytes of UTF-8");
    memset(name, 'n', sizeof name);
    w->specs[1].id = str_of(name, TOOL_ID_MAX + 1);
    snprintf(expected, sizeof expected,
             "'%.129s' cannot be a tool's name: it has 1 to 128 bytes of UTF-8", name);
    assert_not_made(w, expected);
}

/* The longest names, and so many pages that their number takes three bytes. */
static void test_longest_names_leave_room(void **state)
{
    struct world *w = *state;
    char name[TOOL_ID_MAX + 1], caller[TOOL_CALLER_MAX], text[64];
    close_tools(w);
    memset(name, 'n', TOOL_ID_MAX);
    name[TOOL_ID_MAX] = '\0';
    memset(caller, 'c', sizeof caller);
    w->specs[0].id = str_of_cstr(name);
    w->specs[0].page_rows = 1;
    open_tools(w);
    struct asked a = {.call.caller_id = str_of(caller, sizeof caller)};
    begin(w, &a, name, NULL, NULL);
    for (int i = 0; i < 300; i++) {
        snprintf(text, sizeof text, "%d\n", i);
        tool_run_output(w->made[0].run, str_of_cstr(text));
    }
    tool_run_end(w->made[0].run, STR_NONE, false);
    sched_drain(&w->sched);
    for (int i = 0; i < 300; i++) {
        snprintf(text, sizeof text, "[%d]", i);
        assert_page(&a, text, (uint64_t)i + 1, i < 299);
        if (i < 299)
            ask(w, &a, name, NULL, a.cursor);
    }
    forget(&a);
}

/* A tool that is asked for one thing must not be told to give another. */
static void test_arguments_stay_as_they_are(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", " {\"id\":9007199254740993,\r\n\"b\":[1.50]}\n", NULL);
    assert_string_equal(w->made[0].args, "{\"id\":9007199254740993,\"b\":[1.50]}");
    tool_run_end(w->made[0].run, STR_NONE, false);
    sched_drain(&w->sched);
    forget(&a);
}

/* ---- large arguments ---- */

#define LARGE (100 * 1000)

static struct durable large_bodies;

static int setup_with_lane(void **state)
{
    world_setup(state);
    struct world *w = *state;
    close_tools(w);
    large_bodies = (struct durable){.lane = simlane_new(&w->sched, 1, 0)};
    simlane_hold(large_bodies.lane, true);
    w->setup.durable = &large_bodies;
    open_tools(w);
    return 0;
}

static int teardown_with_lane(void **state)
{
    simlane_hold(large_bodies.lane, false);
    world_teardown(state);
    lane_free(large_bodies.lane);
    return 0;
}

/* An object that begins with this, and is large. */
static char *large_args(const char *start)
{
    struct buf text = {0};
    buf_printf(&text, "{%s\"all\":[1", start);
    while (text.n < LARGE)
        buf_put(&text, STR(",1"));
    buf_put(&text, str_of("]}", 3));
    return text.p;
}

static void let_lane_run(struct world *w)
{
    simlane_hold(large_bodies.lane, false);
    pass_ms(w, 64);
    simlane_hold(large_bodies.lane, true);
}

static void test_large_arguments_leave_the_loop(void **state)
{
    struct world *w = *state;
    struct asked a = {0}, b = {0};
    char *args = large_args("\"b\":1,");
    begin(w, &a, "mine", args, NULL);
    assert_int_equal(a.done + (int)w->n_made, 0);
    assert_int_equal(simlane_pending(large_bodies.lane), 1);
    begin(w, &b, "mine", "{}", NULL); /* a small one does not wait for it */
    assert_int_equal(w->n_made, 1);
    let_lane_run(w);
    assert_int_equal(w->n_made, 2);
    assert_memory_equal(w->made[1].args, "{\"b\":1,\"all\":[1,1,", 18);
    for (int i = 0; i < 2; i++)
        tool_run_end(w->made[i].run, STR_NONE, false);
    sched_drain(&w->sched);
    assert_page(&a, "[]", 1, false);
    forget(&a);
    forget(&b);
    free(args);
}

/* As small ones are. */
static void test_large_arguments_are_checked(void **state)
{
    static const struct {
        const char *tool, *start;
        enum tool_outcome outcome;
        const char *message;
    } rows[] = {
        {"mine", "\"all\":1,", TOOL_INVALID_ARGS,
         "invalid arguments: they are not valid JSON without repeated names"},
        {"stream:read", "", TOOL_INVALID_ARGS, "invalid arguments: unknown argument 'all'"},
        {"none", "", TOOL_TOOL_NOT_FOUND, "tool not found: none"},
    };
    struct world *w = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct asked a = {0};
        char *args = large_args(rows[i].start);
        begin(w, &a, rows[i].tool, args, NULL);
        assert_int_equal(a.done, 0);
        let_lane_run(w);
        assert_refused(&a, rows[i].outcome, 0, rows[i].message);
        forget(&a);
        free(args);
    }
}

static void test_cancel_of_large_arguments(void **state)
{
    struct world *w = *state;
    struct asked a = {0}, b = {0};
    char *args = large_args("");
    begin(w, &a, "mine", args, NULL);
    begin(w, &b, "mine", args, NULL);
    tools_cancel(w->tools, &a.call);
    free(args); /* with the call */
    w->stopped = false;
    tools_stop(w->tools, on_stopped, w);
    pass_ms(w, 64);
    assert_false(w->stopped); /* the lane has them still */
    let_lane_run(w);
    assert_true(w->stopped);
    assert_int_equal(a.done + b.done + (int)w->n_made, 0);
    tools_free(w->tools);
    w->tools = NULL;
}

/* ---- the checks ---- */

static void test_conformance_pages(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    struct arena arena = {0};
    ask(w, &a, "conformance:page_gen", NULL, NULL);
    for (int page = 1; page <= 10; page++) {
        struct buf rows = {0};
        for (int i = 0; i < 10; i++)
            buf_printf(&rows, "%s{\"row\":%d}", i == 0 ? "[" : ",", (page - 1) * 10 + i);
        buf_put(&rows, str_of("]", 2));
        assert_page(&a, rows.p, (uint64_t)page, page < 10);
        buf_deinit(&rows);
        if (page == 10)
            break;
        struct cursor_payload p;
        struct cursor_asked asked = {.tool_id = STR("conformance:page_gen")};
        assert_int_equal(cursor_verify(w->issuer, &arena, str_of_cstr(a.cursor), &asked,
                                       START_WALL_MS / 1000, TTL_S, &p),
                         CURSOR_OK);
        assert_int_equal(p.page, page + 1);
        assert_int_equal(p.state.n, 4);
        assert_memory_equal(p.state.p, ((char[]){0, 0, 0, (char)(page + 1)}), 4);
        ask(w, &a, "conformance:page_gen", NULL, a.cursor);
    }
    arena_deinit(&arena);
    forget(&a);
}

#define GEN "conformance:page_gen"

static void test_cursors_are_checked(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    char cursor[CURSOR_MAX + 1], other[CURSOR_MAX + 2];
    ask(w, &a, GEN, NULL, NULL);
    strcpy(cursor, a.cursor);

    ask(w, &a, "other:not_page_gen", NULL, cursor);
    assert_refused(&a, TOOL_CURSOR_REFUSED, 1021,
                   "cursor tool_id mismatch: cursor=conformance:page_gen "
                   "request=other:not_page_gen");
    a.call.caller_id = STR("somebody");
    ask(w, &a, GEN, NULL, cursor);
    assert_refused(&a, TOOL_CURSOR_REFUSED, 1021, "cursor caller_id mismatch");
    a.call.caller_id = STR("");
    ask(w, &a, GEN, NULL, cursor);
    assert_refused(&a, TOOL_CURSOR_REFUSED, 1021, "cursor caller_id mismatch");
    a.call.caller_id = STR_NONE;
    ask(w, &a, GEN, "{\"x\":1}", cursor);
    assert_refused(&a, TOOL_CURSOR_REFUSED, 1021, "cursor arguments mismatch");
    ask(w, &a, GEN, "{\"x\":", cursor);
    assert_refused(&a, TOOL_INVALID_ARGS, 0,
                   "invalid arguments: they are not valid JSON without repeated names");
    ask(w, &a, GEN, " {} ", cursor);
    assert_int_equal(a.call.outcome, TOOL_SUCCESS);
    ask(w, &a, GEN, "null", cursor);
    assert_int_equal(a.call.outcome, TOOL_SUCCESS);

    strcpy(other, cursor);
    other[strlen(other) - 5] ^= 1;
    ask(w, &a, GEN, NULL, other);
    assert_refused(&a, TOOL_CURSOR_REFUSED, 1021, "cursor invalid");
    memset(other, 'A', CURSOR_MAX + 1);
    other[CURSOR_MAX + 1] = '\0';
    ask(w, &a, GEN, NULL, other);
    assert_refused(&a, TOOL_CURSOR_REFUSED, 1021, "cursor invalid");
    ask(w, &a, GEN, NULL, "start");
    assert_refused(&a, TOOL_CURSOR_REFUSED, 1021, "cursor invalid");

    w->sched.wall_ms += TTL_S * 1000;
    ask(w, &a, GEN, NULL, cursor);
    assert_int_equal(a.call.outcome, TOOL_SUCCESS);
    w->sched.wall_ms += 1000;
    ask(w, &a, GEN, NULL, cursor);
    assert_refused(&a, TOOL_CURSOR_REFUSED, 1020, "cursor expired; re-issue the original RunTool");
    forget(&a);
}

static void test_cursors_of_other_servers(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    uint8_t other[CURSOR_KEY_SIZE] = {7};
    ask(w, &a, GEN, NULL, NULL);
    close_tools(w);
    cursor_issuer_free(w->issuer);
    w->setup.issuer = w->issuer = cursor_issuer_new(key, other);
    open_tools(w);
    ask(w, &a, GEN, NULL, a.cursor);
    assert_refused(&a, TOOL_CURSOR_REFUSED, 1020, "cursor expired; re-issue the original RunTool");
    close_tools(w);
    cursor_issuer_free(w->issuer);
    w->setup.issuer = w->issuer = cursor_issuer_new(other, session);
    open_tools(w);
    ask(w, &a, GEN, NULL, a.cursor);
    assert_refused(&a, TOOL_CURSOR_REFUSED, 1021, "cursor invalid");
    forget(&a);
}

/* What a model made up is none; one of ours that was changed is a mistake. */
static void test_loose_cursors(void **state)
{
    struct world *w = *state;
    struct asked a = {.call.cursor_loose = true};
    const char *invented[] = {"", "0", "start", "!!!"};
    for (size_t i = 0; i < sizeof invented / sizeof *invented; i++) {
        ask(w, &a, GEN, NULL, invented[i]);
        assert_int_equal(a.call.outcome, TOOL_SUCCESS);
        assert_int_equal(a.call.page, 1);
    }
    a.cursor[strlen(a.cursor) - 5] ^= 1;
    ask(w, &a, GEN, NULL, a.cursor);
    assert_refused(&a, TOOL_CURSOR_REFUSED, 1021, "cursor invalid");
    forget(&a);
}

static void issue(struct world *w, const char *tool, struct str caller, struct str state, char *out)
{
    struct buf b = {0};
    struct cursor_payload p = {.tool_id = str_of_cstr(tool),
                               .caller_id = caller,
                               .page = 2,
                               .issued_at_s = w->sched.wall_ms / 1000,
                               .state = state};
    assert_int_equal(cursor_fingerprint(STR("{}"), STR_NONE, p.args), 0);
    assert_int_equal(cursor_issue(w->issuer, &p, &b), CURSOR_OK);
    memcpy(out, b.p, b.n);
    out[b.n] = '\0';
    buf_deinit(&b);
}

static void test_tools_are_looked_for(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    char cursor[CURSOR_MAX + 1];
    ask(w, &a, "nothing", "[bad", NULL);
    assert_refused(&a, TOOL_TOOL_NOT_FOUND, 0, "tool not found: nothing");
    issue(w, "nothing", STR_NONE, STR_NONE, cursor);
    ask(w, &a, "nothing", NULL, cursor);
    assert_refused(&a, TOOL_TOOL_NOT_FOUND, 0, "tool not found: nothing");
    /* rightly signed, with a state that we never gave */
    const char *tools[] = {GEN, "mine", "stream:list"};
    for (size_t i = 0; i < 3; i++)
        for (int n = 0; n < 64; n++) {
            char text[64];
            memset(text, n % 2 == 0 ? 's' : 'i', sizeof text);
            if (i == 1 && n == TOOL_KEPT_STATE)
                continue;
            if (i == 2 && (n == 1 + TOOL_KEEP_ID || n == 0))
                continue;
            issue(w, tools[i], STR_NONE, str_of(text, (size_t)n), cursor);
            ask(w, &a, tools[i], NULL, cursor);
            if (i == 0 && n == 0)
                assert_int_equal(a.call.outcome, TOOL_SUCCESS);
            else
                assert_refused(&a, TOOL_CURSOR_REFUSED, 1021, "cursor invalid");
        }
    forget(&a);
}

static void test_capabilities(void **state)
{
    struct world *w = *state;
    struct str granted[] = {STR("tool"), STR("db:read")};
    struct asked a = {.call = {.capabilities = granted, .n_capabilities = 2}};
    ask(w, &a, "session:read", "[]", NULL);
    assert_refused(&a, TOOL_CAPABILITY_DENIED, TOOL_CODE_CAPABILITY,
                   "capability denied: session:read requires worker");
    assert_true(same(&a.call.details, "{\"required\":[\"worker\"],\"granted\":[\"tool\","
                                      "\"db:read\"],\"missing\":[\"worker\"]}"));
    granted[1] = STR("worker");
    ask(w, &a, "session:read", "[]", NULL);
    assert_refused(&a, TOOL_INVALID_ARGS, 0, "invalid arguments: a JSON object is expected");
    forget(&a);
}

static void test_arguments_are_an_object(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    const char *bad[] = {"[]", "1", "\"x\"", "true"};
    for (size_t i = 0; i < 4; i++) {
        ask(w, &a, "mine", bad[i], NULL);
        assert_refused(&a, TOOL_INVALID_ARGS, 0, "invalid arguments: a JSON object is expected");
    }
    ask(w, &a, "mine", "{\"a\":1,\"a\":2}", NULL);
    assert_refused(&a, TOOL_INVALID_ARGS, 0,
                   "invalid arguments: they are not valid JSON without repeated names");
    ask(w, &a, GEN, "{\"a\":1}", NULL);
    assert_refused(&a, TOOL_INVALID_ARGS, 0, "invalid arguments: unknown argument 'a'");
    char *large = malloc(TOOL_ARGS_MAX + 16);
    memset(large, ' ', TOOL_ARGS_MAX + 8);
    memcpy(large, "{}", 2);
    large[TOOL_ARGS_MAX + 8] = '\0';
    ask(w, &a, "mine", large, NULL);
    assert_refused(&a, TOOL_INVALID_ARGS, 0,
                   "invalid arguments: there are more than 1 MiB of them");
    free(large);
    char caller[TOOL_CALLER_MAX + 1] = {0};
    a.call.caller_id = str_of(caller, sizeof caller);
    ask(w, &a, "mine", NULL, NULL);
    assert_refused(&a, TOOL_INVALID_ARGS, 0, "a caller's id has at most 128 bytes of UTF-8");
    assert_int_equal(w->n_made, 0);
    forget(&a);
}

static void test_dry_run(void **state)
{
    struct world *w = *state;
    struct asked a = {.call.dry_run = true};
    ask(w, &a, "mine", " {\"b\":1.0, \"a\":2}", NULL);
    assert_page(&a, "{\"dry_run\":true,\"tool_id\":\"mine\",\"args_preview\":{\"b\":1.0, \"a\":2}}",
                1, false);
    ask(w, &a, "none", NULL, NULL);
    assert_refused(&a, TOOL_TOOL_NOT_FOUND, 0, "tool not found: none");
    ask(w, &a, GEN, "{\"a\":1}", NULL);
    assert_refused(&a, TOOL_INVALID_ARGS, 0, "invalid arguments: unknown argument 'a'");
    assert_int_equal(w->n_made, 0);
    forget(&a);
}

/* ---- results that are made ---- */

static void give(struct world *w, size_t i, const char *text)
{
    assert_true(tool_run_output(w->made[i].run, str_of_cstr(text)));
    sched_drain(&w->sched);
}

static void end(struct world *w, size_t i, const char *message)
{
    tool_run_end(w->made[i].run, str_of_cstr(message), true);
    sched_drain(&w->sched);
}

static void test_one_page(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", "{\"b\":[1.0],\"a\":\"x\"}", NULL);
    assert_string_equal(w->made[0].args, "{\"b\":[1.0],\"a\":\"x\"}");
    give(w, 0, "[1,2,");
    give(w, 0, "3]");
    assert_int_equal(a.done, 0);
    end(w, 0, "");
    assert_page(&a, "[1,2,3]", 1, false);
    begin(w, &a, "mine", NULL, NULL);
    assert_string_equal(w->made[1].args, "{}");
    end(w, 1, "");
    assert_page(&a, "[]", 1, false);
    assert_int_equal(look(w).n, 0); /* nothing is kept for nobody */
    forget(&a);
}

static void test_pages(void **state)
{
    struct world *w = *state;
    struct asked a = {0}, again = {0};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "[1,2,3,4,5,6,7]");
    assert_page(&a, "[1,2,3]", 1, true); /* there is more, whatever comes */
    end(w, 0, "");
    struct looked k = look(w);
    assert_int_equal(k.n, 1);
    assert_int_equal(k.last.end, END_COMPLETED);
    assert_int_equal(k.last.ttl_s, TTL_S + 2 + TOOL_KEEP_SLACK_S);
    char first[CURSOR_MAX + 1];
    strcpy(first, a.cursor);
    ask(w, &a, "mine", NULL, first);
    assert_page(&a, "[4,5,6]", 2, true);
    ask(w, &again, "mine", "{}", first);
    assert_page(&again, "[4,5,6]", 2, true); /* as often as one likes */
    ask(w, &a, "mine", NULL, a.cursor);
    assert_page(&a, "[7]", 3, false);
    assert_int_equal(w->n_made, 1);
    forget(&a);
    forget(&again);
}

static void test_pages_by_bytes(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    char row[900], line[1000];
    memset(row, 'x', sizeof row);
    snprintf(line, sizeof line, "\"%.*s\"\n", (int)sizeof row, row);
    begin(w, &a, "mine", NULL, NULL);
    for (int i = 0; i < 3; i++)
        give(w, 0, line);
    end(w, 0, "");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(a.call.outcome, TOOL_SUCCESS);
        assert_int_equal(a.call.result.n, sizeof row + 4); /* one row a page */
        assert_int_equal(a.call.next_cursor.n > 0, i < 2);
        if (i < 2)
            ask(w, &a, "mine", NULL, a.cursor);
    }
    forget(&a);
}

/* The first page comes as soon as it is known that there is another one; that one when it is full,
 * or at the end. */
static void test_pages_while_it_is_made(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "1\n2\n3\n");
    assert_int_equal(a.done, 0);
    give(w, 0, "4\n");
    assert_page(&a, "[1,2,3]", 1, true);
    begin(w, &a, "mine", NULL, a.cursor);
    give(w, 0, "5\n6\n");
    assert_int_equal(a.done, 0); /* full, but maybe the last one */
    give(w, 0, "7\n");
    assert_page(&a, "[4,5,6]", 2, true);
    begin(w, &a, "mine", NULL, a.cursor);
    assert_int_equal(a.done, 0);
    give(w, 0, "8\n9");
    end(w, 0, "");
    assert_page(&a, "[7,8,9]", 3, false);
    forget(&a);
}

static void test_a_result_of_no_more_than_promised(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "1\n2\n3\n4\n");
    begin(w, &a, "mine", NULL, a.cursor);
    assert_int_equal(a.done, 0);
    end(w, 0, "");
    assert_page(&a, "[4]", 2, false);
    forget(&a);
}

/* ---- results that fail ---- */

static void test_failure_before_the_first_page(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "1\n2\n");
    end(w, 0, "it broke");
    assert_failed(&a, "it broke", true);
    assert_int_equal(look(w).n, 0);
    forget(&a);
}

static void test_failure_behind_the_first_page(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "1\n2\n3\n4\n5\n");
    assert_page(&a, "[1,2,3]", 1, true);
    end(w, 0, "it broke");
    assert_int_equal(look(w).last.end, END_FAILED);
    ask(w, &a, "mine", NULL, a.cursor);
    assert_page(&a, "[4,5]", 2, true); /* what came, and that there is something more */
    char last[CURSOR_MAX + 1];
    strcpy(last, a.cursor);
    for (int i = 0; i < 2; i++) {
        ask(w, &a, "mine", NULL, last);
        assert_failed(&a, "it broke", true);
        assert_int_equal(a.call.page, 3);
    }
    forget(&a);
}

static void test_failure_at_the_end_of_a_page(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "1\n2\n3\n4\n5\n6\n");
    begin(w, &a, "mine", NULL, a.cursor);
    assert_int_equal(a.done, 0);
    end(w, 0, "it broke");
    assert_page(&a, "[4,5,6]", 2, true);
    ask(w, &a, "mine", NULL, a.cursor);
    assert_failed(&a, "it broke", true);
    forget(&a);
}

/* No matter how much came before. */
static void assert_fails_with(struct world *w, const char *text, bool ends, const char *message)
{
    struct asked a = {0};
    size_t i = w->n_made;
    begin(w, &a, "mine", NULL, NULL);
    tool_run_output(w->made[i].run, str_of_cstr(text));
    if (ends)
        tool_run_end(w->made[i].run, STR_NONE, false);
    sched_drain(&w->sched);
    assert_int_equal(w->made[i].stopped, !ends);
    assert_failed(&a, message, false);
    forget(&a);
}

static void test_bad_results(void **state)
{
    struct world *w = *state;
    assert_fails_with(w, "1\noops\n", false, "row 2 of the result is not valid JSON");
    assert_fails_with(w, "Traceback", true, "row 1 of the result is not valid JSON");
    assert_fails_with(w, "[1,2", true, "the result ended in the middle of its array");
    assert_fails_with(w, "[1] oops", false, "something stands behind the result's array");
    char *large = malloc(TOOL_ROW_MAX + 16);
    memset(large, '1', TOOL_ROW_MAX + 2);
    large[TOOL_ROW_MAX + 2] = '\0';
    w->specs[0].max_output = 2 * TOOL_ROW_MAX;
    assert_fails_with(w, large, false, "row 1 of the result has more than 4194304 bytes");
    free(large);
    w->specs[0].max_output = 9;
    assert_fails_with(w, "1\n2\n3\n4\n5\n", false, "the result has more than 9 bytes");
}

static void test_max_output_is_allowed(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    w->specs[0].max_output = 7;
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "[1,2,3]");
    end(w, 0, "");
    assert_page(&a, "[1,2,3]", 1, false);
    forget(&a);
}

static void test_invalid_behind_the_first_page(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "1\n2\n3\n4\n");
    assert_false(tool_run_output(w->made[0].run, STR("oops\n")));
    sched_drain(&w->sched);
    assert_true(w->made[0].stopped);
    ask(w, &a, "mine", NULL, a.cursor);
    assert_page(&a, "[4]", 2, true);
    ask(w, &a, "mine", NULL, a.cursor);
    assert_failed(&a, "row 5 of the result is not valid JSON", false);
    forget(&a);
}

static void test_timeouts(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", NULL, NULL);
    pass_ms(w, 900);
    assert_int_equal(a.done, 0);
    pass_ms(w, 200);
    assert_failed(&a, "the tool took longer than 1000 ms", true);
    assert_true(w->made[0].stopped);
    begin(w, &a, "mine", NULL, NULL);
    give(w, 1, "1\n2\n3\n4\n");
    begin(w, &a, "mine", NULL, a.cursor);
    pass_ms(w, 1100);
    assert_true(w->made[1].stopped);
    assert_page(&a, "[4]", 2, true);
    ask(w, &a, "mine", NULL, a.cursor);
    assert_failed(&a, "the tool took longer than 1000 ms", true);
    forget(&a);
}

/* ---- a store that fails, and a crash ---- */

static void test_first_write_fails(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    w->refuse = ERR_FULL;
    w->refuse_left = 1;
    begin(w, &a, "mine", NULL, NULL);
    tool_run_output(w->made[0].run, STR("1\n2\n3\n4\n"));
    sched_drain(&w->sched);
    assert_failed(&a, "the result cannot be kept: storage is full", true);
    assert_true(w->made[0].stopped);
    forget(&a);
}

static void test_later_write_fails(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "1\n2\n3\n4\n");
    w->refuse = ERR_FULL;
    w->refuse_left = 1;
    tool_run_output(w->made[0].run, STR("5\n6\n7\n"));
    sched_drain(&w->sched);
    assert_true(w->made[0].stopped);
    ask(w, &a, "mine", NULL, a.cursor);
    assert_page(&a, "[4]", 2, true);
    ask(w, &a, "mine", NULL, a.cursor);
    assert_failed(&a, "the result cannot be kept: storage is full", true);
    forget(&a);
}

/* The rows are there and could be taken for all of them. */
static void test_last_write_fails(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "1\n2\n3\n4\n");
    w->refuse = ERR_FULL;
    w->refuse_left = 1;
    end(w, 0, "");
    ask(w, &a, "mine", NULL, a.cursor);
    assert_page(&a, "[4]", 2, true);
    ask(w, &a, "mine", NULL, a.cursor);
    assert_failed(&a, "the result cannot be kept: storage is full", true);
    forget(&a);
}

/* A store that does not answer for a while is waited for, and so is the page. */
static void test_stall_is_waited_out(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "1\n2\n3\n4\n");
    w->refuse = ERR_AWAY;
    w->refuse_left = 3;
    end(w, 0, "");
    begin(w, &a, "mine", NULL, a.cursor);
    assert_int_equal(a.done, 0);
    pass_ms(w, 1000);
    assert_page(&a, "[4]", 2, false);
    forget(&a);
}

static void test_no_write_succeeds_any_more(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "1\n2\n3\n4\n");
    w->refuse = ERR_IO;
    w->refuse_left = 1000;
    end(w, 0, "");
    assert_int_equal(look(w).last.end, END_NONE);
    begin(w, &a, "mine", NULL, a.cursor);
    assert_int_equal(a.done, 0); /* somebody else might be making it */
    pass_ms(w, 9000);
    assert_page(&a, "[4]", 2, true);
    ask(w, &a, "mine", NULL, a.cursor);
    assert_failed(&a, "the result broke off before its end; ask for it anew", true);
    forget(&a);
}

/* A server that was killed, and its successor with the same key, session and store. */
static void test_crash(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "1\n2\n3\n4\n5\n6\n7\n8\n");
    w->refuse = ERR_IO; /* whatever it says from now on, nobody will hear */
    w->refuse_left = 1000;
    close_tools(w);
    w->refuse_left = 0;
    open_tools(w);
    assert_int_equal(look(w).last.end, END_NONE);
    ask(w, &a, "mine", NULL, a.cursor);
    assert_page(&a, "[4,5,6]", 2, true);
    begin(w, &a, "mine", NULL, a.cursor);
    assert_int_equal(a.done, 0);
    pass_ms(w, 9000);
    assert_page(&a, "[7,8]", 3, true);
    ask(w, &a, "mine", NULL, a.cursor); /* its time is up: nobody waits in vain */
    assert_failed(&a, "the result broke off before its end; ask for it anew", true);
    forget(&a);
}

static void test_what_was_kept_is_gone(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "1\n2\n3\n4\n");
    end(w, 0, "");
    close_tools(w);
    store_free(w->store);
    w->setup.store = w->store = mem_store_new(&w->sched);
    open_tools(w);
    ask(w, &a, "mine", NULL, a.cursor);
    assert_refused(&a, TOOL_CURSOR_REFUSED, 1020, "cursor expired; re-issue the original RunTool");
    forget(&a);
}

/* A store that keeps only the newest events keeps results whole. */
static void test_retention_cuts_nothing(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    w->store->retain = (struct retain){.events = 1, .bytes = 1, .age_ms = 1};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "[1,2,3,4,5,6,7]");
    end(w, 0, "");
    pass_ms(w, 1000);
    ask(w, &a, "mine", NULL, a.cursor);
    assert_page(&a, "[4,5,6]", 2, true);
    forget(&a);
}

/* Its cursor is good for TTL_S, from each page on. */
static void test_results_live_as_long_as_cursors(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "[1,2,3,4,5,6,7,8,9,10]");
    end(w, 0, "");
    for (int i = 2; i <= 4; i++) {
        w->sched.wall_ms += TTL_S * 1000;
        sched_turn(&w->sched, w->sched.now_ms + TTL_S * 1000, w->sched.wall_ms);
        ask(w, &a, "mine", NULL, a.cursor);
        assert_int_equal(a.call.outcome, TOOL_SUCCESS);
        assert_int_equal(a.call.page, i);
    }
    assert_page(&a, "[10]", 4, false);
    forget(&a);
}

/* ---- bounds ---- */

static void make_pages(struct world *w, struct asked *a, size_t which)
{
    begin(w, a, "mine", NULL, NULL);
    give(w, which, "[1,2,3,4,5,6,7]");
    end(w, which, "");
    assert_page(a, "[1,2,3]", 1, true);
}

/* There is room for two: the one that was used longest ago goes. */
static void test_not_too_much_is_kept(void **state)
{
    struct world *w = *state;
    struct asked a = {0}, b = {0}, c = {0};
    close_tools(w);
    w->setup.keep_max = 5 * TOOL_KEEP_COST / 2;
    open_tools(w);
    make_pages(w, &a, 0);
    make_pages(w, &b, 1);
    ask(w, &a, "mine", NULL, a.cursor);
    assert_page(&a, "[4,5,6]", 2, true);
    make_pages(w, &c, 2);
    sched_drain(&w->sched);
    assert_int_equal(look(w).n, 2);
    ask(w, &b, "mine", NULL, b.cursor);
    assert_refused(&b, TOOL_CURSOR_REFUSED, 1020, "cursor expired; re-issue the original RunTool");
    ask(w, &a, "mine", NULL, a.cursor);
    assert_page(&a, "[7]", 3, false);
    ask(w, &c, "mine", NULL, c.cursor);
    assert_page(&c, "[4,5,6]", 2, true);

    /* One that is larger than all that may be kept is kept alone. */
    struct asked large = {0};
    char row[4 * TOOL_KEEP_COST];
    memset(row, '1', sizeof row);
    row[sizeof row - 1] = 0;
    begin(w, &large, "mine", NULL, NULL);
    give(w, 3, "1\n2\n3\n");
    give(w, 3, row);
    end(w, 3, "");
    sched_drain(&w->sched);
    assert_int_equal(look(w).n, 1);
    ask(w, &large, "mine", NULL, large.cursor);
    assert_int_equal(large.call.outcome, TOOL_SUCCESS);
    forget(&large);
    forget(&a);
    forget(&b);
    forget(&c);
}

static void test_parallel(void **state)
{
    struct world *w = *state;
    struct asked a[6] = {{.done = 0}};
    w->specs[0].parallel = 2;
    close_tools(w);
    open_tools(w);
    begin(w, &a[0], "mine", NULL, NULL);
    begin(w, &a[1], "mine", NULL, NULL);
    ask(w, &a[2], "mine", NULL, NULL);
    assert_refused(&a[2], TOOL_RATE_LIMITED, TOOL_CODE_BUSY, "rate limited for mine");
    give(w, 0, "1\n2\n3\n4\n");
    assert_page(&a[0], "[1,2,3]", 1, true);
    ask(w, &a[2], "mine", NULL, NULL); /* what goes on behind the page still counts */
    assert_refused(&a[2], TOOL_RATE_LIMITED, TOOL_CODE_BUSY, "rate limited for mine");
    begin(w, &a[2], "mine", NULL, a[0].cursor); /* but does not stand in its own way */
    begin(w, &a[3], "mine", NULL, a[0].cursor);
    ask(w, &a[4], "mine", NULL, a[0].cursor);
    assert_refused(&a[4], TOOL_RATE_LIMITED, TOOL_CODE_BUSY,
                   "rate limited for mine (continuation)");
    end(w, 0, "");
    assert_page(&a[2], "[4]", 2, false);
    assert_page(&a[3], "[4]", 2, false);
    ask(w, &a[4], "mine", NULL, a[0].cursor);
    assert_page(&a[4], "[4]", 2, false);
    begin(w, &a[5], "mine", NULL, NULL);
    assert_int_equal(w->n_made, 3);
    end(w, 1, "");
    end(w, 2, "");
    for (size_t i = 0; i < 6; i++)
        forget(&a[i]);
}

static void test_makers_are_held_back(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    static char many[300 * 1024];
    for (size_t i = 0; i < sizeof many; i += 2)
        memcpy(many + i, "1\n", 2);
    struct str piece = str_of(many, sizeof many);
    w->specs[0].max_output = 64 << 20;
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "1\n2\n3\n4\n");
    w->hold = true;
    assert_true(tool_run_output(w->made[0].run, piece)); /* is being written */
    int pieces = 1;
    while (tool_run_output(w->made[0].run, piece))
        pieces++;
    assert_true(pieces > 1 && pieces < 5);
    sched_drain(&w->sched);
    assert_int_equal(w->made[0].rooms, 0);
    release(w);
    assert_int_equal(w->made[0].rooms, 1);
    give(w, 0, "[]\n");
    end(w, 0, "");
    assert_int_equal(look(w).last.events, 4 + 1 + (uint64_t)(pieces + 1) * sizeof many / 2);
    forget(&a);
}

/* More than one write may hold. */
static void test_large_results(void **state)
{
    struct world *w = *state;
    struct asked a = {0};
    size_t n = 3 << 20;
    char *row = malloc(n + 4);
    memset(row, 'r', n);
    row[0] = row[n - 1] = '"';
    strcpy(row + n, "\n");
    w->specs[0].max_output = 64 << 20;
    begin(w, &a, "mine", NULL, NULL);
    w->hold = true;
    for (int i = 0; i < 4; i++)
        tool_run_output(w->made[0].run, str_of(row, n + 1));
    tool_run_end(w->made[0].run, STR_NONE, false);
    release(w);
    assert_true(w->n_writes >= 4);
    for (uint64_t page = 1; page <= 4; page++) {
        assert_int_equal(a.call.outcome, TOOL_SUCCESS);
        assert_int_equal(a.call.result.n, n + 2);
        assert_int_equal(a.call.page, page);
        assert_int_equal(a.call.next_cursor.n > 0, page < 4);
        if (page < 4)
            ask(w, &a, "mine", NULL, a.cursor);
    }
    free(row);
    forget(&a);
}

/* ---- cancelling and stopping ---- */

static void test_cancel(void **state)
{
    struct world *w = *state;
    struct asked a = {0}, b = {0};
    a.call = (struct tool_call){.tool_id = STR("mine"), .done = on_done};
    tools_call(w->tools, &a.call);
    tools_cancel(w->tools, &a.call); /* before anything */
    sched_drain(&w->sched);
    assert_int_equal(w->n_made, 0);

    begin(w, &a, "mine", NULL, NULL); /* while it is made */
    give(w, 0, "1\n");
    tools_cancel(w->tools, &a.call);
    assert_true(w->made[0].stopped);

    begin(w, &a, "mine", NULL, NULL); /* while the first page is being stored */
    w->hold = true;
    tool_run_output(w->made[1].run, STR("1\n2\n3\n4\n"));
    tools_cancel(w->tools, &a.call);
    assert_true(w->made[1].stopped);
    release(w);

    begin(w, &a, "mine", NULL, NULL); /* a further page: the result is made all the same */
    give(w, 2, "1\n2\n3\n4\n");
    begin(w, &b, "mine", NULL, a.cursor);
    tools_cancel(w->tools, &b.call);
    sched_drain(&w->sched);
    assert_false(w->made[2].stopped);
    end(w, 2, "");
    assert_int_equal(b.done, 0);
    ask(w, &b, "mine", NULL, a.cursor);
    assert_page(&b, "[4]", 2, false);
    tools_cancel(w->tools, &b.call); /* done already: harmless */
    forget(&a);
    forget(&b);
}

static void test_stop(void **state)
{
    struct world *w = *state;
    struct asked a = {0}, b = {0}, c = {0};
    begin(w, &a, "mine", NULL, NULL);
    give(w, 0, "1\n2\n3\n4\n");
    begin(w, &b, "mine", NULL, NULL);
    begin(w, &c, "mine", NULL, a.cursor);
    close_tools(w);
    assert_true(w->made[0].stopped);
    assert_true(w->made[1].stopped);
    assert_int_equal(b.done + c.done, 0);
    assert_int_equal(look(w).last.end, END_FAILED);
    open_tools(w);
    ask(w, &c, "mine", NULL, a.cursor);
    assert_page(&c, "[4]", 2, true);
    ask(w, &c, "mine", NULL, c.cursor);
    assert_failed(&c, "the server was stopped", true);
    forget(&a);
    forget(&b);
    forget(&c);
}

/* Whoever asked may do anything when it is answered, end everything included. */
struct ender {
    struct asked asked;
    struct world *w;
};

static void stop_all(struct tool_call *c)
{
    struct ender *e = container_of(c, struct ender, asked.call);
    e->asked.done++;
    tools_stop(e->w->tools, on_stopped, e->w);
}

static void test_stop_from_an_answer(void **state)
{
    struct world *w = *state;
    struct ender e = {.w = w};
    begin(w, &e.asked, "mine", NULL, NULL);
    e.asked.call.done = stop_all;
    give(w, 0, "1\n2\n3\n4\n");
    assert_int_equal(e.asked.done, 1);
    assert_true(w->made[0].stopped);
    assert_true(w->stopped);
    tools_free(w->tools);
    w->tools = NULL;
    forget(&e.asked);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_with_sessions, world_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_the_tools),
        TEST(test_names_are_checked),
        TEST(test_longest_names_leave_room),
        TEST(test_conformance_pages),
        TEST(test_cursors_are_checked),
        TEST(test_cursors_of_other_servers),
        TEST(test_loose_cursors),
        TEST(test_tools_are_looked_for),
        TEST(test_capabilities),
        TEST(test_arguments_are_an_object),
        TEST(test_arguments_stay_as_they_are),
        cmocka_unit_test_setup_teardown(test_large_arguments_leave_the_loop, setup_with_lane,
                                        teardown_with_lane),
        cmocka_unit_test_setup_teardown(test_large_arguments_are_checked, setup_with_lane,
                                        teardown_with_lane),
        cmocka_unit_test_setup_teardown(test_cancel_of_large_arguments, setup_with_lane,
                                        teardown_with_lane),
        TEST(test_dry_run),
        TEST(test_one_page),
        TEST(test_pages),
        TEST(test_pages_by_bytes),
        TEST(test_pages_while_it_is_made),
        TEST(test_a_result_of_no_more_than_promised),
        TEST(test_failure_before_the_first_page),
        TEST(test_failure_behind_the_first_page),
        TEST(test_failure_at_the_end_of_a_page),
        TEST(test_bad_results),
        TEST(test_max_output_is_allowed),
        TEST(test_invalid_behind_the_first_page),
        TEST(test_timeouts),
        TEST(test_first_write_fails),
        TEST(test_later_write_fails),
        TEST(test_last_write_fails),
        TEST(test_stall_is_waited_out),
        TEST(test_no_write_succeeds_any_more),
        TEST(test_crash),
        TEST(test_what_was_kept_is_gone),
        TEST(test_retention_cuts_nothing),
        TEST(test_results_live_as_long_as_cursors),
        TEST(test_not_too_much_is_kept),
        TEST(test_parallel),
        TEST(test_makers_are_held_back),
        TEST(test_large_results),
        TEST(test_cancel),
        TEST(test_stop),
        TEST(test_stop_from_an_answer),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
