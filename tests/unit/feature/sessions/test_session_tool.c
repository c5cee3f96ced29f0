// SPDX-License-Identifier: Apache-2.0
/* test_session_tool.c -- session:read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "feature/sessions/sessions.h"
#include "unit/feature/tools/tool_world.h"

static const struct str worker = STR_INIT("worker");

/* The state of sessions is the world, and their view its store. */
struct store *sessions_workers_view(void *state)
{
    return ((struct world *)state)->store;
}

static int session_setup(void **state)
{
    world_setup(state);
    offer(*state, sessions_tools, *state);
    return 0;
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_read_a_session, session_setup, world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
