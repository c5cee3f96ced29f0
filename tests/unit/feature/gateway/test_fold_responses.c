// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/json.h"
#include "feature/gateway/fold.h"

#include <stdlib.h>

#define MAX 100000

static struct fold *folded(const char *const *events, size_t n)
{
    struct fold *f = fold_new(FOLD_RESPONSES, MAX);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(fold_feed(f, STR_NONE, str_of_cstr(events[i])), 0);
    return f;
}
#define FOLDED(events) folded(events, sizeof(events) / sizeof *(events))

static void check(struct fold *f, const char *expected, enum fold_end end, uint64_t skipped)
{
    struct buf out = {0};
    size_t at;
    assert_int_equal(fold_put(f, &out), 0);
    assert_int_equal(json_check(buf_str(&out), &at), 0);
    buf_putc(&out, '\0');
    assert_string_equal(out.p, expected);
    assert_int_equal(fold_end(f), end);
    assert_int_equal(fold_skipped(f), skipped);
    buf_deinit(&out);
    fold_free(f);
}

#define CREATED                                                                                    \
    "{\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"status\":\"in_progress\","        \
    "\"output\":[]}}"
#define HEAD "{\"id\":\"r\",\"status\":\"in_progress\",\"output\":"
#define ADDED(index, item)                                                                         \
    "{\"type\":\"response.output_item.added\",\"output_index\":" index ",\"item\":" item "}"
#define DELTA(type, places, text)                                                                  \
    "{\"type\":\"response." type ".delta\"," places ",\"delta\":\"" text "\"}"
#define FIRST "\"output_index\":0,\"content_index\":0"

static void test_text(void **state)
{
    static const char *const events[] = {
        CREATED,
        ADDED("0", "{\"id\":\"m\",\"type\":\"message\",\"content\":[]}"),
        "{\"type\":\"response.content_part.added\"," FIRST
        ",\"part\":{\"type\":\"output_text\",\"text\":\"\"}}",
        DELTA("output_text", FIRST, "a\\u00e9"),
        DELTA("output_text", FIRST, "\\n\\\""),
        "{\"type\":\"response.output_text.annotation.added\"," FIRST
        ",\"annotation_index\":0,\"annotation\":{\"n\":1}}",
        "{\"type\":\"response.output_text.annotation.added\"," FIRST
        ",\"annotation_index\":1,\"annotation\":{\"n\":2}}",
    };
    check(FOLDED(events),
          HEAD "[{\"id\":\"m\",\"type\":\"message\",\"content\":[{\"type\":\"output_text\","
               "\"text\":\"a\\u00e9\\n\\\"\",\"annotations\":[{\"n\":1},{\"n\":2}]}]}]}",
          FOLD_RUNNING, 0);
}

static void test_all_that_grows(void **state)
{
    static const char *const events[] = {
        CREATED,
        ADDED("0", "{\"type\":\"reasoning\",\"summary\":[]}"),
        "{\"type\":\"response.reasoning_summary_part.added\",\"output_index\":0,"
        "\"summary_index\":0,\"part\":{\"type\":\"summary_text\",\"text\":\"s\"}}",
        DELTA("reasoning_summary_text", "\"output_index\":0,\"summary_index\":0", "um"),
        "{\"type\":\"response.content_part.added\"," FIRST ",\"part\":{\"text\":\"\"}}",
        DELTA("reasoning_text", FIRST, "why"),
        ADDED("1", "{\"type\":\"function_call\",\"arguments\":\"\"}"),
        DELTA("function_call_arguments", "\"output_index\":1", "{\\\"a\\\":"),
        DELTA("function_call_arguments", "\"output_index\":1", "1}"),
        ADDED("2", "{\"type\":\"code_interpreter_call\",\"status\":\"in_progress\"}"),
        DELTA("code_interpreter_call_code", "\"output_index\":2", "1+1"),
        "{\"type\":\"response.code_interpreter_call.interpreting\",\"output_index\":2}",
        ADDED("3", "{\"type\":\"custom_tool_call\",\"input\":\"x\"}"),
        DELTA("custom_tool_call_input", "\"output_index\":3", "y"),
        ADDED("4", "{\"type\":\"message\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"\"}]}"),
        DELTA("refusal", "\"output_index\":4,\"content_index\":0", "no"),
        "{\"type\":\"response.refusal.done\",\"output_index\":4,\"content_index\":0,\"refusal\":"
        "\"never\"}",
    };
    check(FOLDED(events),
          HEAD
          "[{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"sum\"}],"
          "\"content\":[{\"text\":\"why\"}]},"
          "{\"type\":\"function_call\",\"arguments\":\"{\\\"a\\\":1}\"},"
          "{\"type\":\"code_interpreter_call\",\"status\":\"interpreting\",\"code\":\"1+1\"},"
          "{\"type\":\"custom_tool_call\",\"input\":\"xy\"},"
          "{\"type\":\"message\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"never\"}]}"
          "]}",
          FOLD_RUNNING, 0);
}

/* What comes whole takes the place of its pieces. */
static void test_done(void **state)
{
    static const char *const events[] = {
        CREATED,
        ADDED("0", "{\"type\":\"message\",\"content\":[]}"),
        "{\"type\":\"response.content_part.added\"," FIRST ",\"part\":{\"text\":\"\"}}",
        DELTA("output_text", FIRST, "half"),
        "{\"type\":\"response.content_part.done\"," FIRST ",\"part\":{\"text\":\"whole\"}}",
        ADDED("1", "{\"type\":\"message\",\"content\":[{\"text\":\"x\"}]}"),
        DELTA("output_text", "\"output_index\":1,\"content_index\":0", "y"),
        "{\"type\":\"response.output_item.done\",\"output_index\":1,\"item\":{\"done\":true}}",
        /* a lifecycle event has no part in it: the items stay */
        "{\"type\":\"response.in_progress\",\"response\":{\"id\":\"r2\"}}",
    };
    check(FOLDED(events),
          "{\"id\":\"r2\",\"output\":[{\"type\":\"message\",\"content\":[{\"text\":\"whole\"}]},"
          "{\"done\":true}]}",
          FOLD_RUNNING, 0);
}

static void test_ends(void **state)
{
    static const char *const completed[] = {
        CREATED,
        ADDED("0", "{\"a\":1}"),
        "{\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"output\":[{\"b\":2}]}}",
        ADDED("1", "{\"late\":1}"),
    };
    check(FOLDED(completed), "{\"id\":\"r\",\"output\":[{\"b\":2}]}", FOLD_COMPLETE, 1);
    /* there are backends that end with nothing in it */
    static const char *const empty[] = {
        CREATED,
        ADDED("0", "{\"a\":1}"),
        "{\"type\":\"response.incomplete\",\"response\":{\"output\":[ ],\"id\":\"r\"}}",
    };
    check(FOLDED(empty), "{\"output\":[{\"a\":1}],\"id\":\"r\"}", FOLD_COMPLETE, 0);
    static const char *const failed[] = {
        CREATED,
        "{\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{},"
        "\"output\":[]}}",
    };
    check(FOLDED(failed), "{\"status\":\"failed\",\"error\":{},\"output\":[]}", FOLD_FAILED, 0);
}

static void test_errors(void **state)
{
    static const char *const told[] = {
        CREATED,
        "{\"type\":\"error\",\"code\":\"rate_limit\",\"message\":\"slow down\",\"param\":null}",
    };
    check(FOLDED(told),
          "{\"id\":\"r\",\"status\":\"failed\",\"output\":[],\"error\":{\"code\":\"rate_limit\","
          "\"message\":\"slow down\"}}",
          FOLD_FAILED, 0);
    static const char *const nested[] = {"{\"error\":{\"code\":500,\"message\":\"m\"}}"};
    check(FOLDED(nested),
          "{\"output\":[],\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":"
          "\"m\"}}",
          FOLD_FAILED, 0);
    static const char *const word[] = {"{\"error\":\"no\"}"};
    check(FOLDED(word),
          "{\"output\":[],\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":"
          "\"the upstream failed\"}}",
          FOLD_FAILED, 0);
}

/* Events that cannot be used change nothing. */
static void test_skipped(void **state)
{
    static const char *const events[] = {
        CREATED,
        ADDED("0", "{\"type\":\"message\",\"content\":[]}"),
        DELTA("output_text", FIRST, "no such part"),
        DELTA("output_text", "\"output_index\":7,\"content_index\":0", "no such item"),
        DELTA("output_text", "\"output_index\":-1,\"content_index\":0", "x"),
        "{\"type\":\"response.output_item.added\",\"item\":1}",
        "{\"type\":\"response.created\",\"response\":[]}",
        "{\"type\":\"response.unknown\",\"output_index\":0}",
        "{\"type\":\"response.web_search_call.searching\",\"output_index\":0}",
        "{\"type\":\"keepalive\"}",
        "no JSON",
        "[]",
    };
    check(FOLDED(events), HEAD "[{\"type\":\"message\",\"content\":[]}]}", FOLD_RUNNING, 10);
}

/* Everything is counted, and let go of when it has come whole. */
static void test_counts(void **state)
{
    struct fold *f = fold_new(FOLD_RESPONSES, MAX);
    fold_feed(f, STR_NONE, STR(ADDED("0", "{\"type\":\"message\",\"content\":[{\"text\":\"\"}]}")));
    size_t size = fold_size(f);
    for (int i = 0; i < 100; i++)
        fold_feed(f, STR_NONE, STR(DELTA("output_text", FIRST, "0123456789")));
    assert_int_equal(fold_size(f), size + 1000);
    fold_feed(f, STR_NONE,
              STR("{\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{}}"));
    assert_true(fold_size(f) < size);
    fold_free(f);
    f = fold_new(FOLD_RESPONSES, 2000);
    int err = 0;
    for (int i = 0; i < 5 && err == 0; i++)
        err = fold_feed(f, STR_NONE, STR(ADDED("0", "{}")));
    assert_int_equal(err, ERR_TOO_LARGE);
    assert_int_equal(fold_size(f), 0);
    fold_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),   cmocka_unit_test(test_all_that_grows),
        cmocka_unit_test(test_done),   cmocka_unit_test(test_ends),
        cmocka_unit_test(test_errors), cmocka_unit_test(test_skipped),
        cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
