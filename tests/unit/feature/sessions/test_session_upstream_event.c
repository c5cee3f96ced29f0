// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/session_upstream_event.h"
#include "base/err.h"
#include "feature/sessions/session_messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void assert_becomes(const char *name, const char *data, struct str expected)
{
    struct buf out = {0};
    assert_int_equal(session_upstream_event(str_of_cstr(name), str_of_cstr(data), &out), 1);
    assert_int_equal(out.n, expected.n);
    assert_memory_equal(out.p, expected.p, out.n);
    struct buf chunk = {0};
    size_t covered;
    assert_int_equal(session_put_chunk(&chunk, SESSION_AISERVER, buf_str(&out), false, 1, &covered),
                     0);
    buf_deinit(&chunk);
    buf_deinit(&out);
}

/* The bytes are those that protoc makes of the messages in proto/. */
static void test_what_a_name_says(void **state)
{
    assert_becomes("thinking", "hm", STR("\x12\x07\xca\x01\x04\x0a\x02hm"));
    assert_becomes("tool_call", "{\"toolCallId\":\"c1\"}",
                   STR("\x0a\x04\x1a\x02"
                       "c1"));
    assert_becomes(
        "tool_call",
        "{\"tool_call_id\":\"c1\",\"name\":\"grep\",\"raw_args\":\"{}\",\"timeout_ms\":2,"
        "\"isStreaming\":true,\"is_last_message\":true,\"toolIndex\":0}",
        STR("\x0a\x1e\x1a\x02"
            "c1\x31\x00\x00\x00\x00\x00\x00\x00\x40\x4a\x04grep\x52\x02{}\x70\x01\x78"
            "\x01\x80\x03\x00"));
    assert_becomes("data", "GgA=", STR("\x1a\x00")); /* a conversation_summary */
}

static void test_other_names_are_text(void **state)
{
    static const char *names[] = {"", "message", "text", "Thinking", "thinking ", "tool_calls"};
    struct buf out = {0};
    for (size_t i = 0; i < COUNT(names); i++)
        assert_int_equal(session_upstream_event(str_of_cstr(names[i]), STR("{"), &out), 0);
    assert_int_equal(out.n, 0);
}

static void test_what_is_malformed(void **state)
{
    static const struct {
        const char *name, *data;
    } rows[] = {
        {"thinking", "\xc3"},
        {"data", "GgA"},
        {"data", "?"},
        {"tool_call", "grep"},
        {"tool_call", "[]"},
        {"tool_call", "{}"},
        {"tool_call", "{\"toolCallId\":\"\"}"},
        {"tool_call", "{\"toolCallId\":1}"},
        {"tool_call", "{\"toolCallId\":\"c\",\"toolCallId\":\"d\"}"},
        {"tool_call", "{\"toolCallId\":\"c\",\"arguments\":\"{}\"}"},
        {"tool_call", "{\"toolCallId\":\"c\",\"rawArgs\":{}}"},
        {"tool_call", "{\"toolCallId\":\"c\",\"timeoutMs\":\"1\"}"},
        {"tool_call", "{\"toolCallId\":\"c\",\"toolIndex\":-1}"},
        {"tool_call", "{\"toolCallId\":\"c\",\"toolIndex\":4294967296}"},
        {"tool_call", "{\"toolCallId\":\"c\",\"isStreaming\":1}"},
    };
    struct buf out = {0};
    for (size_t i = 0; i < COUNT(rows); i++)
        if (session_upstream_event(str_of_cstr(rows[i].name), str_of_cstr(rows[i].data), &out) !=
            ERR_SYNTAX)
            fail_msg("taken: %s", rows[i].data);
    assert_int_equal(out.n, 0);
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_name_says),
        cmocka_unit_test(test_other_names_are_text),
        cmocka_unit_test(test_what_is_malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
