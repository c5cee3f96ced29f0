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

#define COUNT(a)   (sizeof(a) / sizeof *(a))
#define EVENTS_MAX 16
#define MAX        100000

/* Events in, the snapshot out. */
struct row {
    const char *events[EVENTS_MAX];
    const char *snapshot; /* NULL: none */
    enum fold_end end;
    uint64_t skipped;
};

static void feed(struct fold *f, const char *event)
{
    assert_int_equal(fold_feed(f, STR_NONE, str_of_cstr(event)), 0);
}

/* As text; NULL: ERR_EMPTY. The caller frees it. */
static char *snapshot(const struct fold *f)
{
    struct buf out = {0};
    size_t at;
    int err = fold_put(f, &out);
    if (err != 0) {
        assert_int_equal(err, ERR_EMPTY);
        assert_int_equal(out.n, 0);
        return NULL;
    }
    assert_int_equal(json_check(buf_str(&out), &at), 0);
    buf_putc(&out, '\0');
    return out.p;
}

static void check_snapshot(const struct fold *f, const char *expected)
{
    char *text = snapshot(f);
    if (expected == NULL)
        assert_null(text);
    else
        assert_string_equal(text, expected);
    free(text);
}

static void check_row(enum fold_kind kind, const struct row *r)
{
    struct fold *f = fold_new(kind, MAX);
    for (size_t i = 0; i < EVENTS_MAX && r->events[i] != NULL; i++)
        feed(f, r->events[i]);
    check_snapshot(f, r->snapshot);
    check_snapshot(f, r->snapshot); /* looking does not change it */
    assert_int_equal(fold_end(f), r->end);
    assert_int_equal(fold_skipped(f), r->skipped);
    fold_free(f);
}

static void check_rows(enum fold_kind kind, const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check_row(kind, &rows[i]);
}

static void kinds_have_names(void **state)
{
    static const char *const names[] = {"last", "openai", "ui-message", "responses"};
    enum fold_kind kind;
    for (size_t i = 0; i < COUNT(names); i++) {
        assert_int_equal(fold_kind_parse(str_of_cstr(names[i]), &kind), 0);
        assert_string_equal(fold_kind_name(kind), names[i]);
    }
    assert_int_equal(fold_kind_parse(STR("none"), &kind), ERR_SYNTAX);
    assert_int_equal(fold_kind_parse(STR("las"), &kind), ERR_SYNTAX);
}

/* ---- last ---- */

static void last_is_the_final_payload(void **state)
{
    static const struct row rows[] = {
        {{NULL}, NULL, FOLD_RUNNING, 0},
        {{"[DONE]"}, NULL, FOLD_COMPLETE, 0},
        {{"{\"a\":1}", " {\"a\": 2}\n"}, "{\"a\": 2}", FOLD_RUNNING, 0},
        {{"{\"stage\":\"DRAFTING\"}", "{\"stage\":\"COMPLETE\",\"payload\":{\"graph\":[1.10]}}"},
         "{\"graph\":[1.10]}",
         FOLD_COMPLETE,
         0},
        /* what comes after the end does not take its place, another end does */
        {{"{\"stage\":\"COMPLETE\",\"payload\":1}", "{\"late\":1}"}, "1", FOLD_COMPLETE, 0},
        {{"{\"stage\":\"COMPLETE\",\"payload\":1}", "{\"payload\":2,\"stage\":\"COMPLETE\"}"},
         "2",
         FOLD_COMPLETE,
         0},
        {{"{\"stage\":\"COMPLETE\",\"payload\":null}"}, "null", FOLD_COMPLETE, 0},
        /* no payload, not the stage, not an object, not JSON */
        {{"{\"stage\":\"COMPLETE\"}"}, "{\"stage\":\"COMPLETE\"}", FOLD_RUNNING, 0},
        {{"{\"stage\":\"COMPLETED\",\"payload\":1}"},
         "{\"stage\":\"COMPLETED\",\"payload\":1}",
         FOLD_RUNNING,
         0},
        {{"[\"COMPLETE\"]"}, "[\"COMPLETE\"]", FOLD_RUNNING, 0},
        {{"{\"stage\":\"COMPLETE\",\"payload\":1"},
         "\"{\\\"stage\\\":\\\"COMPLETE\\\",\\\"payload\\\":1\"",
         FOLD_RUNNING,
         0},
        {{"plain text"}, "\"plain text\"", FOLD_RUNNING, 0},
        {{"one\ntwo"}, "\"one\\ntwo\"", FOLD_RUNNING, 0},
        /* no line breaks in the snapshot, though the event had some */
        {{"{\"a\":\n\r\n[1,\n2]}"}, "{\"a\":[1,2]}", FOLD_RUNNING, 0},
        {{"1", "[DONE]", "2"}, "1", FOLD_COMPLETE, 1},
        {{"1", "", " \n"}, "1", FOLD_RUNNING, 2},
        {{"{\"stage\":\"COMPLETE\",\"payload\":{\"schema\":\"error.v1\",\"code\":\"INTERNAL\"}}"},
         "{\"schema\":\"error.v1\",\"code\":\"INTERNAL\"}",
         FOLD_FAILED,
         0},
    };
    check_rows(FOLD_LAST, rows, COUNT(rows));
}

static void last_passes_over_heartbeats(void **state)
{
    struct fold *f = fold_new(FOLD_LAST, MAX);
    assert_int_equal(fold_feed(f, STR("stage"), STR("1")), 0);
    assert_int_equal(fold_feed(f, STR("heartbeat"), STR("{}")), 0);
    check_snapshot(f, "1");
    assert_int_equal(fold_end(f), FOLD_RUNNING);
    assert_int_equal(fold_feed(f, STR("error"), STR("{\"m\":1}")), 0);
    check_snapshot(f, "{\"m\":1}");
    assert_int_equal(fold_end(f), FOLD_FAILED);
    fold_free(f);
}

/* ---- openai ---- */

#define HEAD     "\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m\","
#define HEAD_OUT "{\"object\":\"chat.completion\",\"id\":\"c1\",\"created\":7,\"model\":\"m\","
#define CHOICE(index, delta, finish)                                                               \
    "{" HEAD "\"choices\":[{\"index\":" #index ",\"delta\":" delta ",\"finish_reason\":" finish    \
    "}]}"
#define MESSAGE(content)                                                                           \
    "\"message\":{\"role\":\"assistant\",\"content\":" content ",\"refusal\":null}"

static void openai_joins_deltas(void **state)
{
    static const struct row rows[] = {
        {{CHOICE(0, "{\"role\":\"assistant\",\"content\":\"\"}", "null"),
          CHOICE(0, "{\"content\":\"Hel\"}", "null"), CHOICE(0, "{\"content\":\"lo\\n\"}", "null"),
          CHOICE(0, "{}", "\"stop\""), "[DONE]"},
         HEAD_OUT "\"choices\":[{\"index\":0," MESSAGE(
             "\"Hello\\n\"") ",\"logprobs\":null,\"finish_reason\":\"stop\"}]}",
         FOLD_COMPLETE,
         0},
        /* choices in the order of their index; one is not finished */
        {{CHOICE(1, "{\"content\":\"b\"}", "\"stop\""), CHOICE(0, "{\"content\":\"a\"}", "null")},
         HEAD_OUT "\"choices\":[{\"index\":0," MESSAGE(
             "\"a\"") ",\"logprobs\":null,\"finish_reason\":null},"
                      "{\"index\":1," MESSAGE("\"b\"") ",\"logprobs\":null,\"finish_reason\":"
                                                       "\"stop\"}]}",
         FOLD_RUNNING,
         0},
        /* finished without [DONE] */
        {{CHOICE(0, "{\"content\":null}", "\"length\"")},
         HEAD_OUT "\"choices\":[{\"index\":0," MESSAGE(
             "null") ",\"logprobs\":null,\"finish_reason\":\"length\"}]}",
         FOLD_COMPLETE,
         0},
        /* halves of a character in two chunks are a character again */
        {{CHOICE(0, "{\"content\":\"\\ud83d\"}", "null"),
          CHOICE(0, "{\"content\":\"\\ude00\"}", "null")},
         HEAD_OUT "\"choices\":[{\"index\":0," MESSAGE(
             "\"\\ud83d\\ude00\"") ",\"logprobs\":null,\"finish_reason\":null}]}",
         FOLD_RUNNING,
         0},
    };
    check_rows(FOLD_OPENAI, rows, COUNT(rows));
}

static void openai_joins_tool_calls(void **state)
{
    static const struct row rows[] = {
        {{CHOICE(0,
                 "{\"role\":\"assistant\",\"tool_calls\":[{\"index\":1,\"id\":\"b\",\"type\":"
                 "\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"\"}}]}",
                 "null"),
          CHOICE(0,
                 "{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\"}},"
                 "{\"index\":1,\"function\":{\"arguments\":\"{\\\"x\\\"\"}}]}",
                 "null"),
          CHOICE(0, "{\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\":1}\"}}]}",
                 "\"tool_calls\"")},
         HEAD_OUT "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":null,"
                  "\"refusal\":null,\"tool_calls\":["
                  "{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
                  "\"\"}},"
                  "{\"id\":\"b\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":"
                  "\"{\\\"x\\\":1}\"}}]},\"logprobs\":null,\"finish_reason\":\"tool_calls\"}]}",
         FOLD_COMPLETE,
         0},
        {{CHOICE(0, "{\"function_call\":{\"name\":\"f\",\"arguments\":\"{\"}}", "null"),
          CHOICE(0, "{\"function_call\":{\"arguments\":\"}\"}}", "\"function_call\"")},
         HEAD_OUT "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":null,"
                  "\"refusal\":null,\"function_call\":{\"name\":\"f\",\"arguments\":\"{}\"}},"
                  "\"logprobs\":null,\"finish_reason\":\"function_call\"}]}",
         FOLD_COMPLETE,
         0},
    };
    check_rows(FOLD_OPENAI, rows, COUNT(rows));
}

static void openai_keeps_what_comes_beside_the_text(void **state)
{
    static const struct row rows[] = {
        /* the head of an empty first chunk does not count, its usage does; the last usage wins */
        {{"{\"id\":\"\",\"model\":\"\",\"choices\":[],\"prompt_filter_results\":[]}",
          "{\"id\":\"c1\",\"created\":7,\"model\":\"m\",\"system_fingerprint\":\"fp\","
          "\"service_tier\":\"default\",\"usage\":null,\"choices\":[{\"index\":0,\"delta\":{"
          "\"reasoning_content\":\"hm\"},\"logprobs\":{\"content\":[{\"t\":1}],\"refusal\":null}}]"
          "}",
          "{\"id\":\"c2\",\"created\":8,\"choices\":[{\"index\":0,\"delta\":{\"refusal\":\"no\","
          "\"reasoning_content\":\"m\"},\"logprobs\":{\"content\":[ ]}}]}",
          "{\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":{\"content\":[ {\"t\":2} ]}}]}",
          "{\"choices\":[],\"usage\":{\"total_tokens\":1}}",
          "{\"choices\":[],\"usage\":{\"total_tokens\":12345678901234567890}}"},
         "{\"object\":\"chat.completion\",\"id\":\"c1\",\"created\":7,\"model\":\"m\","
         "\"service_tier\":\"default\",\"system_fingerprint\":\"fp\",\"choices\":[{\"index\":0,"
         "\"message\":{\"role\":\"assistant\",\"content\":null,\"refusal\":\"no\","
         "\"reasoning_content\":\"hmm\"},\"logprobs\":{\"content\":[{\"t\":1},{\"t\":2}],"
         "\"refusal\":null},\"finish_reason\":null}],\"usage\":{\"total_tokens\":"
         "12345678901234567890}}",
         FOLD_RUNNING,
         0},
    };
    check_rows(FOLD_OPENAI, rows, COUNT(rows));
}

static void openai_skips_what_it_cannot_use(void **state)
{
    static const char good[] = CHOICE(0, "{\"content\":\"a\"}", "null");
    static const char out[] = HEAD_OUT "\"choices\":[{\"index\":0," MESSAGE(
        "\"a\"") ",\"logprobs\":null,\"finish_reason\":null}]}";
    static const char *const bad[] = {
        "{",
        "not json",
        "[]",
        "null",
        "\"choices\"",
        "{}",
        "{\"choices\":{}}",
        "{\"choices\":[1]}",
        "{\"choices\":[{\"delta\":{\"content\":\"x\"}}]}",
        "{\"choices\":[{\"index\":-1,\"delta\":{\"content\":\"x\"}}]}",
        "{\"choices\":[{\"index\":0.0,\"delta\":{\"content\":\"x\"}}]}",
        "{\"choices\":[{\"index\":\"0\",\"delta\":{\"content\":\"x\"}}]}",
        "{\"choices\":[{\"index\":128,\"delta\":{\"content\":\"x\"}}]}",
        "{\"choices\":[{\"index\":18446744073709551616,\"delta\":{\"content\":\"x\"}}]}",
        "{\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"id\":\"x\"}]}}]}",
        "{\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[7]}}]}",
        "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xff\"}}]}",
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        const struct row row = {{bad[i], good, bad[i]}, out, FOLD_RUNNING, 2};
        check_row(FOLD_OPENAI, &row);
    }
    /* wrong types are as good as nothing */
    static const struct row odd = {
        {good, CHOICE(0, "{\"content\":7,\"role\":null,\"tool_calls\":null}", "null"),
         CHOICE(0, "null", "3")},
        out,
        FOLD_RUNNING,
        0};
    check_row(FOLD_OPENAI, &odd);
}

static void openai_notes_errors(void **state)
{
    struct fold *f = fold_new(FOLD_OPENAI, MAX);
    feed(f, "{\"error\":null,\"choices\":[]}");
    assert_int_equal(fold_end(f), FOLD_RUNNING);
    assert_int_equal(fold_error(f).n, 0);
    feed(f, "{\"error\":{\"message\":\"busy\"}}");
    feed(f, "[DONE]");
    assert_int_equal(fold_end(f), FOLD_FAILED);
    assert_true(str_eq(fold_error(f), STR("{\"message\":\"busy\"}")));
    assert_int_equal(fold_skipped(f), 0);
    check_snapshot(f, NULL);
    fold_free(f);
}

/* ---- ui-message ---- */

#define START   "{\"type\":\"start\",\"messageId\":\"m\"}"
#define OUT(ps) "{\"id\":\"m\",\"role\":\"assistant\",\"parts\":[" ps "]}"

static void ui_texts(void **state)
{
    static const struct row rows[] = {
        {{START, "{\"type\":\"text-start\",\"id\":\"1\"}",
          "{\"type\":\"text-delta\",\"id\":\"1\",\"delta\":\"Hel\"}",
          "{\"type\":\"text-delta\",\"id\":\"1\",\"delta\":\"lo\",\"providerMetadata\":{\"p\":{}}}",
          "{\"type\":\"text-end\",\"id\":\"1\"}", "{\"type\":\"finish\"}", "[DONE]"},
         OUT("{\"type\":\"text\",\"text\":\"Hello\",\"providerMetadata\":{\"p\":{}},\"state\":"
             "\"done\"}"),
         FOLD_COMPLETE,
         0},
        /* two at once, in the order of their start; ids are compared as what they mean */
        {{START, "{\"type\":\"text-start\",\"id\":\"a\"}",
          "{\"type\":\"reasoning-start\",\"id\":\"a\",\"providerMetadata\":{\"p\":{\"s\":1}}}",
          "{\"type\":\"reasoning-delta\",\"id\":\"\\u0061\",\"delta\":\"hm\"}",
          "{\"type\":\"text-delta\",\"id\":\"a\",\"delta\":\"x\"}",
          "{\"type\":\"reasoning-end\",\"id\":\"a\",\"providerMetadata\":null}"},
         OUT("{\"type\":\"text\",\"text\":\"x\",\"state\":\"streaming\"},"
             "{\"type\":\"reasoning\",\"id\":\"a\",\"text\":\"hm\",\"providerMetadata\":{\"p\":{"
             "\"s\":1}},\"state\":\"done\"}"),
         FOLD_RUNNING,
         0},
        {{START, "{\"type\":\"text-start\",\"id\":\"\xf0\x9f\x98\x80\"}",
          "{\"type\":\"text-delta\",\"id\":\"\\ud83d\\uDE00\",\"delta\":\"x\"}",
          "{\"type\":\"text-delta\",\"id\":\"\\ud83d\",\"delta\":\"y\"}"},
         OUT("{\"type\":\"text\",\"text\":\"x\",\"state\":\"streaming\"}"),
         FOLD_RUNNING,
         1},
        /* an id may come again; a step's end forgets what is open */
        {{START, "{\"type\":\"text-start\",\"id\":\"1\"}", "{\"type\":\"text-start\",\"id\":\"1\"}",
          "{\"type\":\"text-delta\",\"id\":\"1\",\"delta\":\"x\"}", "{\"type\":\"finish-step\"}",
          "{\"type\":\"text-delta\",\"id\":\"1\",\"delta\":\"y\"}"},
         OUT("{\"type\":\"text\",\"text\":\"\",\"state\":\"streaming\"},"
             "{\"type\":\"text\",\"text\":\"x\",\"state\":\"streaming\"}"),
         FOLD_RUNNING,
         1},
    };
    check_rows(FOLD_UI_MESSAGE, rows, COUNT(rows));
}

static void ui_parts_that_come_whole(void **state)
{
    static const struct row rows[] = {
        {{START, "{\"type\":\"start-step\"}",
          "{\"type\":\"source-url\",\"sourceId\":\"s\",\"url\":\"u\",\"title\":null,\"x\":1}",
          "{\"type\":\"source-document\",\"sourceId\":\"s\",\"mediaType\":\"t/p\",\"title\":\"T\","
          "\"filename\":\"f\"}",
          "{\"type\":\"file\",\"url\":\"data:,\",\"mediaType\":\"t/p\",\"providerMetadata\":{}}"},
         OUT("{\"type\":\"step-start\"},"
             "{\"type\":\"source-url\",\"sourceId\":\"s\",\"url\":\"u\"},"
             "{\"type\":\"source-document\",\"title\":\"T\",\"sourceId\":\"s\",\"mediaType\":"
             "\"t/p\",\"filename\":\"f\"},"
             "{\"type\":\"file\",\"providerMetadata\":{},\"url\":\"data:,\",\"mediaType\":"
             "\"t/p\"}"),
         FOLD_RUNNING,
         0},
        /* data of the same type and id is replaced where it stands; transient data is not kept */
        {{START, "{\"type\":\"data-a\",\"id\":\"1\",\"data\":{\"n\":1},\"more\":true}",
          "{\"type\":\"data-b\",\"id\":\"1\",\"data\":[]}", "{\"type\":\"data-a\",\"data\":0}",
          "{\"type\":\"data-a\",\"id\":\"1\",\"data\":\"longer than before\"}",
          "{\"type\":\"data-a\",\"data\":0}", "{\"type\":\"data-c\",\"data\":1,\"transient\":true}",
          "{\"type\":\"data-d\",\"id\":\"2\"}"},
         OUT("{\"type\":\"data-a\",\"id\":\"1\",\"data\":\"longer than before\",\"more\":true},"
             "{\"type\":\"data-b\",\"id\":\"1\",\"data\":[]},{\"type\":\"data-a\",\"data\":0},"
             "{\"type\":\"data-a\",\"data\":0},{\"type\":\"data-d\",\"id\":\"2\"}"),
         FOLD_RUNNING,
         0},
        {{START, "{\"type\":\"data-d\",\"id\":\"2\"}",
          "{\"type\":\"data-d\",\"id\":\"2\",\"data\":3}"},
         OUT("{\"type\":\"data-d\",\"id\":\"2\",\"data\":3}"),
         FOLD_RUNNING,
         0},
        /* a type and an id that only read alike together */
        {{START, "{\"type\":\"data-a\",\"id\":\"b1\",\"data\":1}",
          "{\"type\":\"data-ab\",\"id\":\"1\",\"data\":2}"},
         OUT("{\"type\":\"data-a\",\"id\":\"b1\",\"data\":1},"
             "{\"type\":\"data-ab\",\"id\":\"1\",\"data\":2}"),
         FOLD_RUNNING,
         0},
    };
    check_rows(FOLD_UI_MESSAGE, rows, COUNT(rows));
}

#define INPUT_START "{\"type\":\"tool-input-start\",\"toolCallId\":\"c\",\"toolName\":\"t\"}"
#define INPUT_DELTA(text)                                                                          \
    "{\"type\":\"tool-input-delta\",\"toolCallId\":\"c\",\"inputTextDelta\":\"" text "\"}"
#define INPUT                                                                                      \
    "{\"type\":\"tool-input-available\",\"toolCallId\":\"c\",\"toolName\":\"t\",\"input\":{\"q\":" \
    "1}}"
#define TOOL_OUT "{\"type\":\"tool-t\",\"toolCallId\":\"c\",\"state\":"

static void ui_tools(void **state)
{
    static const struct row rows[] = {
        {{START, INPUT_START}, OUT(TOOL_OUT "\"input-streaming\"}"), FOLD_RUNNING, 0},
        /* input as far as it has come */
        {{START, INPUT_START, INPUT_DELTA("{\\\"q\\\":[1,"), INPUT_DELTA("\\\"a\\\\")},
         OUT(TOOL_OUT "\"input-streaming\",\"input\":{\"q\":[1,\"a\"]},\"rawInput\":\"{\\\"q\\\":["
                      "1,\\\"a\\\\\"}"),
         FOLD_RUNNING,
         0},
        {{START, INPUT_START, INPUT_DELTA("no json")},
         OUT(TOOL_OUT "\"input-streaming\",\"rawInput\":\"no json\"}"),
         FOLD_RUNNING,
         0},
        {{START,
          "{\"type\":\"tool-input-start\",\"toolCallId\":\"c\",\"toolName\":\"t\","
          "\"inputEncoding\":\"text\"}",
          INPUT_DELTA("{\\\"q\\\"")},
         OUT(TOOL_OUT "\"input-streaming\",\"input\":\"{\\\"q\\\"\",\"rawInput\":\"{\\\"q\\\"\","
                      "\"inputEncoding\":\"text\"}"),
         FOLD_RUNNING,
         0},
        /* the whole life of a call */
        {{START, INPUT_START, INPUT_DELTA("{"), INPUT,
          "{\"type\":\"tool-output-available\",\"toolCallId\":\"c\",\"output\":{\"r\":1},"
          "\"preliminary\":true,\"providerExecuted\":true}",
          "{\"type\":\"tool-output-available\",\"toolCallId\":\"c\",\"output\":{\"r\":2},"
          "\"providerMetadata\":{\"p\":{}}}"},
         OUT(TOOL_OUT "\"output-available\",\"input\":{\"q\":1},\"output\":{\"r\":2},"
                      "\"providerExecuted\":true,\"resultProviderMetadata\":{\"p\":{}}}"),
         FOLD_RUNNING,
         0},
        {{START, INPUT,
          "{\"type\":\"tool-output-error\",\"toolCallId\":\"c\",\"errorText\":\"e\"}"},
         OUT(TOOL_OUT "\"output-error\",\"input\":{\"q\":1},\"errorText\":\"e\"}"),
         FOLD_RUNNING,
         0},
        /* an outcome while the input is still coming keeps what has come */
        {{START, INPUT_START, INPUT_DELTA("{\\\"q\\\":1"),
          "{\"type\":\"tool-output-error\",\"toolCallId\":\"c\",\"errorText\":\"e\"}",
          INPUT_DELTA("}")},
         OUT(TOOL_OUT "\"output-error\",\"input\":{\"q\":1},\"rawInput\":\"{\\\"q\\\":1\","
                      "\"errorText\":\"e\"}"),
         FOLD_RUNNING,
         1},
        {{START, INPUT_START, INPUT_DELTA("{\\\"q\\\":1"),
          "{\"type\":\"tool-output-available\",\"toolCallId\":\"c\",\"output\":null}"},
         OUT(TOOL_OUT "\"output-available\",\"input\":{\"q\":1},\"output\":null}"),
         FOLD_RUNNING,
         0},
        {{START, INPUT_START,
          "{\"type\":\"tool-input-error\",\"toolCallId\":\"c\",\"toolName\":\"u\",\"input\":\"x\","
          "\"errorText\":\"e\",\"dynamic\":true}"},
         OUT("{\"type\":\"tool-u\",\"toolCallId\":\"c\",\"state\":\"output-error\",\"rawInput\":"
             "\"x\",\"errorText\":\"e\"}"),
         FOLD_RUNNING,
         0},
        {{START,
          "{\"type\":\"tool-input-available\",\"toolCallId\":\"c\",\"toolName\":\"t\",\"input\":1,"
          "\"dynamic\":true,\"title\":\"T\",\"providerMetadata\":{\"p\":{}},\"toolMetadata\":{}}"},
         OUT("{\"type\":\"dynamic-tool\",\"toolName\":\"t\",\"toolCallId\":\"c\",\"state\":"
             "\"input-available\",\"title\":\"T\",\"toolMetadata\":{},\"input\":1,"
             "\"callProviderMetadata\":{\"p\":{}}}"),
         FOLD_RUNNING,
         0},
        {{START, INPUT,
          "{\"type\":\"tool-approval-request\",\"toolCallId\":\"c\",\"approvalId\":\"a\","
          "\"approvalDescriptor\":null,\"inputSchemaInput\":null,\"signature\":\"s\"}"},
         OUT(TOOL_OUT "\"approval-requested\",\"input\":{\"q\":1},\"approval\":{\"id\":\"a\","
                      "\"inputSchemaInput\":null,\"signature\":\"s\"}}"),
         FOLD_RUNNING,
         0},
        {{START, INPUT, "{\"type\":\"tool-output-denied\",\"toolCallId\":\"c\"}"},
         OUT(TOOL_OUT "\"output-denied\",\"input\":{\"q\":1}}"),
         FOLD_RUNNING,
         0},
    };
    check_rows(FOLD_UI_MESSAGE, rows, COUNT(rows));
}

static void ui_tools_in_steps(void **state)
{
    static const struct row rows[] = {
        /* the same id in a later step is another part, but an outcome finds the earlier one */
        {{START, INPUT, "{\"type\":\"start-step\"}", INPUT,
          "{\"type\":\"tool-output-available\",\"toolCallId\":\"c\",\"output\":2}"},
         OUT(TOOL_OUT "\"input-available\",\"input\":{\"q\":1}},{\"type\":\"step-start\"}," TOOL_OUT
                      "\"output-available\",\"input\":{\"q\":1},\"output\":2}"),
         FOLD_RUNNING,
         0},
        {{START, INPUT, "{\"type\":\"start-step\"}",
          "{\"type\":\"tool-output-available\",\"toolCallId\":\"c\",\"output\":2}"},
         OUT(TOOL_OUT "\"output-available\",\"input\":{\"q\":1},\"output\":2},"
                      "{\"type\":\"step-start\"}"),
         FOLD_RUNNING,
         0},
        /* input that goes on in the next step */
        {{START, INPUT_START, INPUT_DELTA("[1"), "{\"type\":\"start-step\"}", INPUT_DELTA(",2")},
         OUT(TOOL_OUT "\"input-streaming\",\"input\":[1],\"rawInput\":\"[1\"},"
                      "{\"type\":\"step-start\"}," TOOL_OUT
                      "\"input-streaming\",\"input\":[1,2],\"rawInput\":\"[1,2\"}"),
         FOLD_RUNNING,
         0},
        /* a dynamic call and another one of the same id: the first of the step has the outcome */
        {{START,
          "{\"type\":\"tool-input-available\",\"toolCallId\":\"c\",\"toolName\":\"d\","
          "\"dynamic\":true}",
          INPUT, "{\"type\":\"tool-output-available\",\"toolCallId\":\"c\",\"output\":2}"},
         OUT("{\"type\":\"dynamic-tool\",\"toolName\":\"d\",\"toolCallId\":\"c\",\"state\":"
             "\"output-available\",\"output\":2}," TOOL_OUT
             "\"input-available\",\"input\":{\"q\":1}}"),
         FOLD_RUNNING,
         0},
    };
    check_rows(FOLD_UI_MESSAGE, rows, COUNT(rows));
}

#define METADATA(m) "{\"type\":\"message-metadata\",\"messageMetadata\":" m "}"
#define META_OUT(m) "{\"id\":\"\",\"metadata\":" m ",\"role\":\"assistant\",\"parts\":[]}"

static void ui_metadata_is_merged(void **state)
{
    static const struct row rows[] = {
        {{METADATA("{\"a\":1.10}")}, META_OUT("{\"a\":1.10}"), FOLD_RUNNING, 0},
        {{METADATA("null"), METADATA("7"), METADATA("null")}, META_OUT("7"), FOLD_RUNNING, 0},
        {{METADATA("{\"a\":{\"x\":1,\"y\":[1]},\"b\":2}"),
          METADATA("{\"a\":{\"y\":[2],\"z\":{}},\"c\":null}"),
          "{\"type\":\"finish\",\"messageMetadata\":{\"a\":{\"z\":{\"q\":0}}}}"},
         META_OUT("{\"a\":{\"x\":1,\"y\":[2],\"z\":{\"q\":0}},\"b\":2,\"c\":null}"),
         FOLD_COMPLETE,
         0},
        /* something that is no object takes the place of all below it, for good */
        {{METADATA("{\"a\":{\"x\":{\"y\":1},\"w\":1}}"), METADATA("{\"a\":{\"x\":{\"z\":2}}}"),
          METADATA("{\"a\":1}"), METADATA("{\"a\":{\"x\":3}}"), METADATA("{\"a\":{\"v\":4}}")},
         META_OUT("{\"a\":{\"x\":3,\"v\":4}}"),
         FOLD_RUNNING,
         0},
        {{METADATA("{\"a\":1}"), METADATA("[1]"), METADATA("{}")}, META_OUT("{}"), FOLD_RUNNING, 0},
        {{METADATA("{}"), METADATA("{}")}, META_OUT("{}"), FOLD_RUNNING, 0},
        /* names are compared as what they mean; the last of a repeated one counts */
        {{METADATA("{\"a\":1,\"a\":2,\"\":3}"), METADATA("{\"\\u0061\":4,\"\":5}")},
         META_OUT("{\"a\":4,\"\":5}"),
         FOLD_RUNNING,
         0},
        {{METADATA("{\"a\":1}"),
          METADATA("{\"__proto__\":{\"x\":1},\"constructor\":1,\"prototype\":1,\"b\":1}")},
         META_OUT("{\"a\":1,\"b\":1}"),
         FOLD_RUNNING,
         0},
    };
    check_rows(FOLD_UI_MESSAGE, rows, COUNT(rows));
}

static void ui_messages_begin_and_end(void **state)
{
    static const struct row rows[] = {
        /* no id, and the same id again */
        {{"{\"type\":\"start\"}", "{\"type\":\"start-step\"}"},
         "{\"id\":\"\",\"role\":\"assistant\",\"parts\":[{\"type\":\"step-start\"}]}",
         FOLD_RUNNING,
         0},
        {{START, "{\"type\":\"start-step\"}", "{\"type\":\"start\",\"messageId\":\"\\u006d\"}"},
         OUT("{\"type\":\"step-start\"}"),
         FOLD_RUNNING,
         0},
        /* another message */
        {{"{\"type\":\"start\",\"messageId\":\"other\",\"messageMetadata\":{\"a\":1}}",
          "{\"type\":\"text-start\",\"id\":\"1\"}", INPUT, "{\"type\":\"data-a\",\"id\":\"1\"}",
          START, "{\"type\":\"text-delta\",\"id\":\"1\",\"delta\":\"x\"}",
          "{\"type\":\"tool-output-denied\",\"toolCallId\":\"c\"}"},
         OUT(""),
         FOLD_RUNNING,
         2},
        /* nothing that a message shows */
        {{"{\"type\":\"start\"}", "{\"type\":\"finish\"}",
          "{\"type\":\"data-a\",\"data\":1,\"transient\":true}", "[DONE]"},
         NULL,
         FOLD_COMPLETE,
         0},
        {{START, "{\"type\":\"abort\"}", "[DONE]"}, OUT(""), FOLD_ABORTED, 0},
        {{START, "{\"type\":\"finish\",\"finishReason\":\"error\"}"}, OUT(""), FOLD_FAILED, 0},
        {{START, "{\"type\":\"error\",\"errorText\":\"e\"}", "{\"type\":\"abort\"}", "[DONE]"},
         OUT(""),
         FOLD_FAILED,
         0},
    };
    check_rows(FOLD_UI_MESSAGE, rows, COUNT(rows));
}

#define UNKNOWN_ENCODING                                                                           \
    "{\"type\":\"tool-input-start\",\"toolCallId\":\"c\",\"toolName\":\"t\",\"inputEncoding\":"    \
    "\"xml\"}"

static void ui_skips_what_it_cannot_use(void **state)
{
    static const char *const bad[] = {
        "x",
        "[{\"type\":\"start-step\"}]",
        "{}",
        "{\"type\":7}",
        "{\"type\":null}",
        "{\"type\":\"step-start\"}",
        "{\"type\":\"text-start\"}",
        "{\"type\":\"text-start\",\"id\":1}",
        "{\"type\":\"text-start\",\"id\":null}",
        "{\"type\":\"text-start\",\"id\":\"x\",\"providerMetadata\":1}",
        "{\"type\":\"text-delta\",\"id\":\"t\"}",
        "{\"type\":\"text-delta\",\"id\":\"t\",\"delta\":1}",
        "{\"type\":\"text-delta\",\"id\":\"none\",\"delta\":\"x\"}",
        "{\"type\":\"reasoning-delta\",\"id\":\"t\",\"delta\":\"x\"}",
        "{\"type\":\"text-end\",\"id\":\"none\"}",
        "{\"type\":\"tool-input-start\",\"toolCallId\":\"c\"}",
        "{\"type\":\"tool-input-start\",\"toolCallId\":\"c\",\"toolName\":\"t\",\"dynamic\":1}",
        "{\"type\":\"tool-input-start\",\"toolCallId\":\"c\",\"toolName\":\"t\",\"inputEncoding\":"
        "0}",
        UNKNOWN_ENCODING,
        "{\"type\":\"tool-input-delta\",\"toolCallId\":\"c\",\"inputTextDelta\":\"x\"}",
        "{\"type\":\"tool-output-available\",\"toolCallId\":\"c\",\"output\":1}",
        "{\"type\":\"tool-output-error\",\"toolCallId\":\"c\",\"errorText\":\"x\"}",
        "{\"type\":\"tool-output-denied\",\"toolCallId\":\"c\"}",
        "{\"type\":\"tool-approval-request\",\"toolCallId\":\"c\",\"approvalId\":\"a\"}",
        "{\"type\":\"source-url\",\"url\":\"u\"}",
        "{\"type\":\"file\",\"url\":\"u\"}",
        "{\"type\":\"data-x\",\"id\":1,\"data\":1}",
        "{\"type\":\"data-x\",\"data\":1,\"transient\":\"yes\"}",
        "{\"type\":\"start\",\"messageId\":7}",
        "{\"type\":\"error\"}",
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        const struct row row = {{START, "{\"type\":\"text-start\",\"id\":\"t\"}", bad[i]},
                                OUT("{\"type\":\"text\",\"text\":\"\",\"state\":\"streaming\"}"),
                                FOLD_RUNNING,
                                1};
        check_row(FOLD_UI_MESSAGE, &row);
    }
}

static void ui_notes_errors(void **state)
{
    struct fold *f = fold_new(FOLD_UI_MESSAGE, MAX);
    feed(f, "{\"type\":\"error\",\"errorText\":\"a \\\"b\\\"\"}");
    assert_true(str_eq(fold_error(f), STR("\"a \\\"b\\\"\"")));
    check_snapshot(f, NULL);
    fold_free(f);
}

/* ---- hostile input ---- */

static void nesting_is_bounded(void **state)
{
    struct buf event = {0};
    for (size_t depth = FOLD_DEPTH_MAX - 1; depth <= FOLD_DEPTH_MAX; depth++) {
        struct fold *f = fold_new(FOLD_UI_MESSAGE, MAX);
        event.n = 0;
        buf_put(&event, STR("{\"type\":\"data-x\",\"s\":\"]]]{{{\",\"data\":"));
        for (size_t i = 0; i < depth; i++)
            buf_putc(&event, '[');
        for (size_t i = 0; i < depth; i++)
            buf_putc(&event, ']');
        buf_putc(&event, '}');
        assert_int_equal(fold_feed(f, STR_NONE, buf_str(&event)), 0);
        assert_int_equal(fold_skipped(f), depth < FOLD_DEPTH_MAX ? 0 : 1);
        fold_free(f);
    }
    buf_deinit(&event);
}

/* Metadata as deep as it may be, merged over and over. */
static void deep_metadata_is_merged(void **state)
{
    struct fold *f = fold_new(FOLD_UI_MESSAGE, 1000000);
    struct buf event = {0};
    for (size_t round = 0; round < 3; round++) {
        event.n = 0;
        buf_put(&event, STR("{\"type\":\"message-metadata\",\"messageMetadata\":"));
        for (size_t i = 0; i < FOLD_DEPTH_MAX - 1; i++)
            buf_put(&event, STR("{\"a\":"));
        buf_printf(&event, "%zu", round);
        for (size_t i = 0; i < FOLD_DEPTH_MAX; i++)
            buf_putc(&event, '}');
        assert_int_equal(fold_feed(f, STR_NONE, buf_str(&event)), 0);
    }
    char *text = snapshot(f);
    assert_int_equal(fold_skipped(f), 0);
    assert_non_null(strstr(text, "{\"a\":2}"));
    free(text);
    buf_deinit(&event);
    fold_free(f);
}

static void a_fold_beyond_its_limit_is_given_up(void **state)
{
    static const struct {
        enum fold_kind kind;
        const char *event;
    } cases[] = {
        {FOLD_OPENAI, CHOICE(0, "{\"content\":\"0123456789\"}", "null")},
        {FOLD_OPENAI, CHOICE(0,
                             "{\"tool_calls\":[{\"index\":3,\"function\":{\"arguments\":"
                             "\"0123456789\"}}]}",
                             "null")},
        {FOLD_UI_MESSAGE, "{\"type\":\"start-step\"}"},
        {FOLD_UI_MESSAGE, "{\"type\":\"text-start\",\"id\":\"1\"}"},
        {FOLD_UI_MESSAGE, "{\"type\":\"data-x\",\"data\":[]}"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fold *f = fold_new(cases[i].kind, 10000);
        struct buf out = {0};
        size_t n = 0;
        while (fold_feed(f, STR_NONE, str_of_cstr(cases[i].event)) == 0) {
            assert_in_range(fold_size(f), 1, 10000);
            assert_true(++n < 10000);
        }
        assert_true(n > 1);
        assert_int_equal(fold_size(f), 0);
        assert_int_equal(fold_put(f, &out), ERR_TOO_LARGE);
        assert_int_equal(out.n, 0);
        assert_int_equal(fold_feed(f, STR_NONE, STR("[DONE]")), ERR_TOO_LARGE);
        assert_int_equal(fold_end(f), FOLD_RUNNING);
        fold_free(f);
    }
}

/* What is replaced makes room: a stream may say the same thing for ever. */
static void replacing_does_not_add_up(void **state)
{
    static const struct {
        enum fold_kind kind;
        const char *event;
    } cases[] = {
        {FOLD_LAST, "{\"some\":\"event\"}"},
        {FOLD_LAST, "{\"stage\":\"COMPLETE\",\"payload\":{\"some\":\"event\"}}"},
        {FOLD_OPENAI, "{\"choices\":[],\"usage\":{\"total_tokens\":1}}"},
        {FOLD_OPENAI, CHOICE(0, "{\"role\":\"assistant\"}", "\"stop\"")},
        {FOLD_UI_MESSAGE, "{\"type\":\"data-x\",\"id\":\"1\",\"data\":[1,2,3]}"},
        {FOLD_UI_MESSAGE, METADATA("{\"a\":{\"b\":[1,2,3]},\"c\":1}")},
        {FOLD_UI_MESSAGE, INPUT},
        {FOLD_UI_MESSAGE, INPUT_START},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fold *f = fold_new(cases[i].kind, 10000);
        feed(f, cases[i].event);
        feed(f, cases[i].event);
        size_t size = fold_size(f);
        for (size_t k = 0; k < 1000; k++)
            feed(f, cases[i].event);
        assert_int_equal(fold_size(f), size);
        fold_free(f);
    }
}

/* Two thirds of the limit may be replaced by two thirds of it. */
static void large_values_are_replaced_in_place(void **state)
{
    struct buf event = {0};
    struct fold *f = fold_new(FOLD_LAST, 300);
    buf_putc(&event, '"');
    for (size_t i = 0; i < 200; i++)
        buf_putc(&event, 'x');
    buf_putc(&event, '"');
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(fold_feed(f, STR_NONE, buf_str(&event)), 0);
    assert_int_equal(fold_size(f), 202);
    fold_free(f);
    buf_deinit(&event);
}

/* Everything a message holds is let go of when another begins, to the byte. */
static void what_is_held_is_counted(void **state)
{
    static const char *const events[] = {
        "{\"type\":\"text-start\",\"id\":\"1\",\"providerMetadata\":{\"p\":{}}}",
        "{\"type\":\"text-delta\",\"id\":\"1\",\"delta\":\"abc\"}",
        "{\"type\":\"reasoning-start\",\"id\":\"1\"}",
        INPUT_START,
        INPUT_DELTA("{\\\"q\\\":1"),
        "{\"type\":\"start-step\"}",
        INPUT_DELTA("}"),
        INPUT,
        "{\"type\":\"tool-output-error\",\"toolCallId\":\"c\",\"errorText\":\"e\"}",
        "{\"type\":\"tool-approval-request\",\"toolCallId\":\"c\",\"approvalId\":\"a\"}",
        "{\"type\":\"data-x\",\"id\":\"1\",\"data\":[1,2,3]}",
        "{\"type\":\"data-x\",\"id\":\"1\",\"data\":[1]}",
        METADATA("{\"a\":{\"b\":1}}"),
        METADATA("{\"a\":{\"b\":{\"c\":1}}}"),
        METADATA("{\"a\":{\"b\":{\"d\":1}}}"),
        "{\"type\":\"source-url\",\"sourceId\":\"s\",\"url\":\"u\"}",
    };
    struct fold *f = fold_new(FOLD_UI_MESSAGE, MAX);
    feed(f, "{\"type\":\"start\",\"messageId\":\"one\"}");
    size_t empty = fold_size(f);
    assert_int_equal(empty, strlen("\"one\""));
    for (size_t i = 0; i < COUNT(events); i++)
        feed(f, events[i]);
    assert_int_equal(fold_skipped(f), 0);
    assert_true(fold_size(f) > 2000);
    feed(f, "{\"type\":\"start\",\"messageId\":\"two\"}");
    assert_int_equal(fold_size(f), empty);
    fold_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_have_names),
        cmocka_unit_test(last_is_the_final_payload),
        cmocka_unit_test(last_passes_over_heartbeats),
        cmocka_unit_test(openai_joins_deltas),
        cmocka_unit_test(openai_joins_tool_calls),
        cmocka_unit_test(openai_keeps_what_comes_beside_the_text),
        cmocka_unit_test(openai_skips_what_it_cannot_use),
        cmocka_unit_test(openai_notes_errors),
        cmocka_unit_test(ui_texts),
        cmocka_unit_test(ui_parts_that_come_whole),
        cmocka_unit_test(ui_tools),
        cmocka_unit_test(ui_tools_in_steps),
        cmocka_unit_test(ui_metadata_is_merged),
        cmocka_unit_test(ui_messages_begin_and_end),
        cmocka_unit_test(ui_skips_what_it_cannot_use),
        cmocka_unit_test(ui_notes_errors),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(deep_metadata_is_merged),
        cmocka_unit_test(a_fold_beyond_its_limit_is_given_up),
        cmocka_unit_test(replacing_does_not_add_up),
        cmocka_unit_test(large_values_are_replaced_in_place),
        cmocka_unit_test(what_is_held_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
