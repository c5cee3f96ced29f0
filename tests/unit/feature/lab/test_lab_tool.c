// SPDX-License-Identifier: Apache-2.0
/* test_lab_tool.c -- feedback:wait, also beside log:read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "feature/lab/lab.h"
#include "feature/logs/logs.h"
#include "unit/feature/tools/tool_file_world.h"

const char *lab_feedback_path(const void *state)
{
    return state;
}

static int lab_setup(void **state)
{
    file_setup(state);
    offer(*state, logs_tools, log_path);
    offer(*state, lab_tools, log_path);
    return 0;
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
#define TEST(name) cmocka_unit_test_setup_teardown(name, lab_setup, file_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_feedback),
        TEST(test_no_pages_of_feedback),
        TEST(test_cancel_under_way),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
