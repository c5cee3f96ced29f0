// SPDX-License-Identifier: Apache-2.0
/* test_log_tool.c -- log:read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "feature/logs/logs.h"
#include "unit/feature/tools/tool_file_world.h"

static int log_setup(void **state)
{
    file_setup(state);
    offer(*state, logs_tools, log_path);
    return 0;
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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, log_setup, file_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_log),
        TEST(test_log_is_large),
        TEST(test_log_is_refused),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
