// SPDX-License-Identifier: Apache-2.0
/* The folds that are built on drafts, and that of JSON-RPC. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/json.h"
#include "feature/gateway/fold.h"

#include <stdio.h>
#include <stdlib.h>

#define COUNT(a)   (sizeof(a) / sizeof *(a))
#define EVENTS_MAX 16
#define MAX        100000

struct row {
    const char *events[EVENTS_MAX];
    const char *snapshot; /* NULL: none */
    enum fold_end end;
    uint64_t skipped;
};

static void check_snapshot(const struct fold *f, const char *expected)
{
    struct buf out = {0};
    size_t at;
    int err = fold_put(f, &out);
    if (expected == NULL) {
        assert_int_equal(err, ERR_EMPTY);
        return;
    }
    assert_int_equal(err, 0);
    assert_int_equal(json_check(buf_str(&out), &at), 0);
    buf_putc(&out, '\0');
    assert_string_equal(out.p, expected);
    buf_deinit(&out);
}

static void check_rows(enum fold_kind kind, const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct fold *f = fold_new(kind, MAX);
        for (size_t k = 0; k < EVENTS_MAX && rows[i].events[k] != NULL; k++)
            assert_int_equal(fold_feed(f, STR_NONE, str_of_cstr(rows[i].events[k])), 0);
        check_snapshot(f, rows[i].snapshot);
        check_snapshot(f, rows[i].snapshot); /* looking does not change it */
        assert_int_equal(fold_end(f), rows[i].end);
        assert_int_equal(fold_skipped(f), rows[i].skipped);
        fold_free(f);
    }
}

static void kinds_have_names(void **state)
{
    static const char *const names[] = {"anthropic", "gemini", "ag-ui", "mcp", "ndjson"};
    for (size_t i = 0; i < COUNT(names); i++) {
        enum fold_kind kind;
        assert_int_equal(fold_kind_parse(str_of_cstr(names[i]), &kind), 0);
        assert_int_equal(kind, FOLD_ANTHROPIC + i);
        assert_string_equal(fold_kind_name(kind), names[i]);
    }
}

/* ---- anthropic ---- */

#define MESSAGE_START                                                                              \
    "{\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[],\"stop_reason\":null,"   \
    "\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}"
#define BLOCK(index, block)                                                                        \
    "{\"type\":\"content_block_start\",\"index\":" #index ",\"content_block\":" block "}"
#define DELTA(index, delta)                                                                        \
    "{\"type\":\"content_block_delta\",\"index\":" #index ",\"delta\":" delta "}"
#define STOP(index) "{\"type\":\"content_block_stop\",\"index\":" #index "}"
#define MESSAGE(content)                                                                           \
    "{\"id\":\"m\",\"content\":[" content "],\"stop_reason\":null,\"usage\":{\"input_tokens\":3,"  \
    "\"output_tokens\":1}}"

static void anthropic_grows(void **state)
{
    static const struct row rows[] = {
        {{"{\"type\":\"ping\"}"}, NULL, FOLD_RUNNING, 0},
        {{MESSAGE_START, BLOCK(0, "{\"type\":\"text\",\"text\":\"\"}"),
          DELTA(0, "{\"type\":\"text_delta\",\"text\":\"a\"}"), "{\"type\":\"ping\"}",
          DELTA(0, "{\"type\":\"text_delta\",\"text\":\"b\"}"),
          DELTA(0, "{\"type\":\"citations_delta\",\"citation\":{\"c\":1}}"), STOP(0)},
         MESSAGE("{\"type\":\"text\",\"text\":\"ab\",\"citations\":[{\"c\":1}]}"),
         FOLD_RUNNING,
         0},
        /* numbers of usage take the place of those before, one by one */
        {{MESSAGE_START,
          "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{"
          "\"output_tokens\":9,\"more\":2}}",
          "{\"type\":\"message_stop\"}"},
         "{\"id\":\"m\",\"content\":[],\"stop_reason\":\"end_turn\",\"usage\":{\"input_tokens\":3,"
         "\"output_tokens\":9,\"more\":2}}",
         FOLD_COMPLETE,
         0},
        {{MESSAGE_START, BLOCK(0, "{\"type\":\"thinking\",\"thinking\":\"\"}"),
          DELTA(0, "{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}"),
          DELTA(0, "{\"type\":\"signature_delta\",\"signature\":\"s\"}")},
         MESSAGE("{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"s\"}"),
         FOLD_RUNNING,
         0},
    };
    check_rows(FOLD_ANTHROPIC, rows, COUNT(rows));
}

#define TOOL         BLOCK(0, "{\"type\":\"tool_use\",\"input\":{}}")
#define PIECE(text)  DELTA(0, "{\"type\":\"input_json_delta\",\"partial_json\":\"" text "\"}")
#define USE(members) MESSAGE("{\"type\":\"tool_use\"," members "}")

static void anthropic_has_input(void **state)
{
    static const struct row rows[] = {
        {{MESSAGE_START, TOOL, PIECE("{\\\"a\\\""), PIECE(": \\n1}")},
         USE("\"input\":{},\"partial_json\":\"{\\\"a\\\": \\n1}\""),
         FOLD_RUNNING,
         0},
        {{MESSAGE_START, TOOL, PIECE("{\\\"a\\\""), PIECE(": \\n1}"), STOP(0)},
         USE("\"input\":{\"a\": 1}"),
         FOLD_RUNNING,
         0},
        /* no JSON, or nothing */
        {{MESSAGE_START, TOOL, PIECE("{"), STOP(0)},
         USE("\"input\":{},\"partial_json\":\"{\""),
         FOLD_RUNNING,
         0},
        {{MESSAGE_START, TOOL, STOP(0)}, USE("\"input\":{}"), FOLD_RUNNING, 0},
        {{MESSAGE_START, STOP(3)}, MESSAGE(""), FOLD_RUNNING, 0},
    };
    check_rows(FOLD_ANTHROPIC, rows, COUNT(rows));
}

static void anthropic_skips_what_it_cannot_use(void **state)
{
    static const struct row rows[] = {
        {{MESSAGE_START, "{\"type\":\"message_start\"}", "{\"type\":\"message_delta\"}",
          DELTA(128, "{\"type\":\"text_delta\",\"text\":\"x\"}"),
          DELTA(0, "{\"type\":\"text_delta\",\"text\":7}"), DELTA(0, "[]"),
          "{\"type\":\"content_block_stop\"}", BLOCK(0, "1"), "{\"type\":\"what\"}", "{}"},
         MESSAGE(""),
         FOLD_RUNNING,
         9},
        {{MESSAGE_START, DELTA(0, "{\"type\":\"new_delta\"}"),
          "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}"},
         MESSAGE(""),
         FOLD_FAILED,
         0},
    };
    check_rows(FOLD_ANTHROPIC, rows, COUNT(rows));
}

/* ---- gemini ---- */

#define CHUNK(candidate, more) "{\"candidates\":[" candidate "]" more "}"
#define PARTS(parts)           "{\"content\":{\"role\":\"model\",\"parts\":[" parts "]}"

static void gemini_joins_parts(void **state)
{
    static const struct row rows[] = {
        {{CHUNK(PARTS("{\"text\":\"Hel\"}") "}", ",\"usageMetadata\":{\"n\":1}"),
          CHUNK(PARTS("{\"text\":\"lo\"}") ",\"finishReason\":\"STOP\"}",
                ",\"usageMetadata\":{\"n\":2}")},
         "{\"candidates\":[" PARTS("{\"text\":\"Hello\"}") ",\"finishReason\":\"STOP\"}],"
                                                           "\"usageMetadata\":{\"n\":2}}",
         FOLD_COMPLETE,
         0},
        /* thoughts are apart, and so is what is no plain text */
        {{CHUNK(PARTS("{\"text\":\"hm\",\"thought\":true}") "}", ""),
          CHUNK(PARTS("{\"thought\":true,\"text\":\"m\"},{\"text\":\"a\"}") "}", ""),
          CHUNK(PARTS("{\"functionCall\":{\"name\":\"f\"}}") "}", ""),
          CHUNK(PARTS("{\"text\":\"b\"},{\"text\":\"c\",\"thoughtSignature\":\"s\"}") "}", ""),
          CHUNK(PARTS("{\"text\":\"d\"}") "}", "")},
         "{\"candidates\":[" PARTS(
             "{\"text\":\"hmm\",\"thought\":true},{\"text\":\"a\"},"
             "{\"functionCall\":{\"name\":\"f\"}},{\"text\":\"b\"},"
             "{\"text\":\"c\",\"thoughtSignature\":\"s\"},{\"text\":\"d\"}") "}]}",
         FOLD_RUNNING,
         0},
        {{CHUNK("{\"index\":1,\"content\":{\"parts\":[{\"text\":\"b\"}]}}", ""),
          CHUNK("{\"index\":0,\"content\":{\"parts\":[{\"text\":\"a\"}]}}", "")},
         "{\"candidates\":[{\"index\":0,\"content\":{\"parts\":[{\"text\":\"a\"}]}},"
         "{\"index\":1,\"content\":{\"parts\":[{\"text\":\"b\"}]}}]}",
         FOLD_RUNNING,
         0},
        {{CHUNK("{\"index\":200}", ""), CHUNK("7", ""), "{\"candidates\":{}}",
          "{\"promptFeedback\":{}}", "{\"error\":{\"code\":502}}"},
         "{\"promptFeedback\":{}}",
         FOLD_FAILED,
         3},
    };
    check_rows(FOLD_GEMINI, rows, COUNT(rows));
}

/* ---- ag-ui ---- */

#define TEXT_START "{\"type\":\"TEXT_MESSAGE_START\",\"messageId\":\"m\",\"role\":\"assistant\"}"
#define TEXT(text) "{\"type\":\"TEXT_MESSAGE_CONTENT\",\"messageId\":\"m\",\"delta\":\"" text "\"}"

static void ag_ui_has_messages_and_state(void **state)
{
    static const struct row rows[] = {
        {{"{\"type\":\"RUN_STARTED\"}"}, NULL, FOLD_RUNNING, 0},
        {{TEXT_START, TEXT("a"), TEXT("b"), "{\"type\":\"TEXT_MESSAGE_END\",\"messageId\":\"m\"}",
          "{\"type\":\"RUN_FINISHED\"}"},
         "{\"messages\":[{\"id\":\"m\",\"role\":\"assistant\",\"content\":\"ab\"}]}",
         FOLD_COMPLETE,
         0},
        {{TEXT_START,
          "{\"type\":\"TOOL_CALL_START\",\"toolCallId\":\"c\",\"toolCallName\":\"f\","
          "\"parentMessageId\":\"m\"}",
          "{\"type\":\"TOOL_CALL_ARGS\",\"toolCallId\":\"c\",\"delta\":\"{}\"}",
          "{\"type\":\"TOOL_CALL_RESULT\",\"messageId\":\"t\",\"toolCallId\":\"c\",\"content\":"
          "\"ok\"}"},
         "{\"messages\":[{\"id\":\"m\",\"role\":\"assistant\",\"content\":\"\",\"toolCalls\":[{"
         "\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},"
         "{\"id\":\"t\",\"role\":\"tool\",\"toolCallId\":\"c\",\"content\":\"ok\"}]}",
         FOLD_RUNNING,
         0},
        {{"{\"type\":\"MESSAGES_SNAPSHOT\",\"messages\":[{\"id\":\"m\",\"content\":\"a\"}]}",
          TEXT("b"), "{\"type\":\"STATE_DELTA\",\"delta\":[{\"op\":\"x\"}]}",
          "{\"type\":\"STATE_SNAPSHOT\",\"snapshot\":{\"s\":1}}",
          "{\"type\":\"STATE_DELTA\",\"delta\":[1,2]}", "{\"type\":\"STATE_DELTA\",\"delta\":[3]}"},
         "{\"messages\":[{\"id\":\"m\",\"content\":\"ab\"}],\"state\":{\"s\":1},\"stateDelta\":[1,"
         "2,3]}",
         FOLD_RUNNING,
         0},
        {{TEXT_START, "{\"type\":\"TEXT_MESSAGE_CONTENT\",\"delta\":\"x\"}",
          "{\"type\":\"TOOL_CALL_ARGS\",\"toolCallId\":\"none\",\"delta\":\"x\"}", "{}",
          "{\"type\":\"STATE_SNAPSHOT\"}", "{\"type\":\"CUSTOM\"}",
          "{\"type\":\"RUN_ERROR\",\"message\":\"no\"}"},
         "{\"messages\":[{\"id\":\"m\",\"role\":\"assistant\",\"content\":\"\"}]}",
         FOLD_FAILED,
         4},
    };
    check_rows(FOLD_AG_UI, rows, COUNT(rows));
}

/* ---- mcp ---- */

static void mcp_is_the_response(void **state)
{
    static const struct row rows[] = {
        {{"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}",
          "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":1}}",
          "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\"}"},
         "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":1}}",
         FOLD_COMPLETE,
         0},
        {{"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1}}", "{\"id\":1,\"result\":2}"},
         "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1}}",
         FOLD_FAILED,
         1},
        {{"{\"jsonrpc\":\"2.0\",\"method\":\"x\"}"}, NULL, FOLD_RUNNING, 0},
    };
    check_rows(FOLD_MCP, rows, COUNT(rows));
}

/* ---- ndjson ---- */

static void ndjson_is_one_line(void **state)
{
    static const struct row rows[] = {
        {{"{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"a\"},\"done\":false}",
          "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"b\",\"thinking\":"
          "\"hm\",\"tool_calls\":[{\"f\":1}]},\"done\":false}",
          "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{"
          "\"f\":2}]},\"done\":true,\"eval_count\":7}"},
         "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"ab\",\"thinking\":"
         "\"hm\",\"tool_calls\":[{\"f\":1},{\"f\":2}]},\"done\":true,\"eval_count\":7}",
         FOLD_COMPLETE,
         0},
        {{"{\"response\":\"a\",\"done\":false}", "{\"response\":\"b\",\"done\":true}"},
         "{\"response\":\"ab\",\"done\":true}",
         FOLD_COMPLETE,
         0},
        {{"{\"a\":1}", "{\"a\":{\"b\":2}}", "[1]", "{\"error\":\"no\"}"},
         "{\"a\":{\"b\":2},\"error\":\"no\"}",
         FOLD_FAILED,
         1},
    };
    check_rows(FOLD_NDJSON, rows, COUNT(rows));
}

/* ---- bounds ---- */

/* What grows is counted, also where it stands for what came before; beyond the limit nothing is
 * left. */
static void all_of_them_are_bounded(void **state)
{
    static const char *const events[] = {
        [FOLD_ANTHROPIC] = DELTA(0, "{\"type\":\"text_delta\",\"text\":\"0123456789\"}"),
        [FOLD_GEMINI] = CHUNK(PARTS("{\"text\":\"0123456789\"}") "}", ""),
        [FOLD_AG_UI] = TEXT("0123456789"),
        [FOLD_MCP] =
            "{\"jsonrpc\":\"2.0\",\"result\":\"0123456789012345678901234567890123456789\"}",
        [FOLD_NDJSON] = "{\"response\":\"0123456789\"}",
    };
    for (int kind = FOLD_ANTHROPIC; kind < FOLD_KINDS; kind++) {
        struct fold *f = fold_new((enum fold_kind)kind, kind == FOLD_MCP ? 70 : 4000);
        struct buf out = {0};
        int err = 0;
        for (int i = 0; err == 0 && i < 1000; i++) {
            err = fold_feed(f, STR_NONE, str_of_cstr(events[kind]));
            assert_true(fold_size(f) <= 4000);
            if (kind == FOLD_MCP && i == 10)
                break; /* each takes the place of the one before */
        }
        assert_int_equal(err, kind == FOLD_MCP ? 0 : ERR_TOO_LARGE);
        assert_int_equal(fold_put(f, &out), kind == FOLD_MCP ? 0 : ERR_TOO_LARGE);
        buf_deinit(&out);
        fold_free(f);
    }
}

/* More members than are looked through, in an object that something is added to. */
static void a_hostile_object_is_given_up(void **state)
{
    struct buf event = {0};
    buf_put(&event, STR("{\"type\":\"message_start\",\"message\":{"));
    for (int i = 0; i < 1000; i++)
        buf_printf(&event, "%s\"%d\":0", i > 0 ? "," : "", i);
    buf_put(&event, STR("}}"));
    struct fold *f = fold_new(FOLD_ANTHROPIC, 10 * MAX);
    assert_int_equal(fold_feed(f, STR_NONE, buf_str(&event)), 0);
    assert_int_equal(
        fold_feed(f, STR_NONE, STR(DELTA(0, "{\"type\":\"text_delta\",\"text\":\"a\"}"))),
        ERR_TOO_LARGE);
    fold_free(f);
    buf_deinit(&event);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_have_names),
        cmocka_unit_test(anthropic_grows),
        cmocka_unit_test(anthropic_has_input),
        cmocka_unit_test(anthropic_skips_what_it_cannot_use),
        cmocka_unit_test(gemini_joins_parts),
        cmocka_unit_test(ag_ui_has_messages_and_state),
        cmocka_unit_test(mcp_is_the_response),
        cmocka_unit_test(ndjson_is_one_line),
        cmocka_unit_test(all_of_them_are_bounded),
        cmocka_unit_test(a_hostile_object_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
