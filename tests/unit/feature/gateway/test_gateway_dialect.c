// SPDX-License-Identifier: Apache-2.0
/* The notices byte by byte: clients that nobody here wrote depend on them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json.h"
#include "http/sse_host.h"
#include "feature/gateway/gateway_dialect.h"

#define VOICE(which) (&(struct dialect_voice){.dialect = (which)})
#define SSE          VOICE(ROUTE_DIALECT_SSE)
#define OPENAI       VOICE(ROUTE_DIALECT_OPENAI)
#define UI           VOICE(ROUTE_DIALECT_UI_MESSAGE)

#define CHUNK                                                                                      \
    "data: {\"id\":\"\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"\","        \
    "\"choices\":[],\"tidemark\":"
#define PART     "data: {\"type\":\"data-tidemark\",\"data\":"
#define PART_END ",\"transient\":true}\n\n"
#define DONE     "data: [DONE]\n\n"

static void assert_out(struct buf *out, const char *want)
{
    buf_putc(out, '\0');
    assert_string_equal(out->p, want);
    buf_deinit(out);
}

static void test_resume(void **state)
{
    struct buf out = {0};
    dialect_put_resume(&out, SSE, STR("abc-_9"));
    assert_out(&out, "event: resume\ndata: {\"token\":\"abc-_9\"}\n\n");
    dialect_put_resume(&out, OPENAI, STR("abc-_9"));
    assert_out(&out, ": resume abc-_9\n");
    dialect_put_resume(&out, UI, STR("abc-_9"));
    assert_out(&out, ": resume abc-_9\n");
}

static void test_gap(void **state)
{
    struct buf out = {0};
    struct dialect_gap gap = {.requested = 3, .earliest = 45, .reason = GAP_TRIMMED};
#define MISSING                                                                                    \
    "events of this answer are missing: 3 was the last one received, 45 is the next one that is "  \
    "kept"
#define GAP                                                                                        \
    "{\"gap\":{\"requested\":\"3\",\"earliest\":\"45\",\"reason\":\"trimmed\",\"snapshot\":null}}"
    dialect_put_gap_json(&out, &gap);
    assert_out(&out, GAP);
    dialect_put_gap(&out, SSE, &gap);
    assert_out(&out, "event: gap\ndata: " GAP "\n\n");
    dialect_put_gap(&out, OPENAI, &gap);
    assert_out(&out, CHUNK GAP "}\n\n"
                               "data: {\"error\":{\"message\":\"" MISSING
                               "\",\"type\":\"upstream_error\","
                               "\"param\":null,\"code\":\"GAP\"}}\n\n");
    dialect_put_gap(&out, UI, &gap);
    assert_out(&out,
               PART GAP PART_END "data: {\"type\":\"error\",\"errorText\":\"" MISSING "\"}\n\n");
#undef GAP
#undef MISSING
    gap = (struct dialect_gap){
        .requested = UINT64_MAX, .reason = GAP_UNKNOWN, .snapshot = STR("/a?from=\"snapshot\"")};
    dialect_put_gap_json(&out, &gap);
    assert_out(&out, "{\"gap\":{\"requested\":\"18446744073709551615\",\"earliest\":\"0\","
                     "\"reason\":\"unknown\",\"snapshot\":\"/a?from=\\\"snapshot\\\"\"}}");
}

static void test_snapshot(void **state)
{
    struct buf out = {0};
    struct str payload = STR("{\"a\":\r\n[1,\n2]}");
    dialect_put_snapshot(&out, SSE, payload, 7);
    assert_out(&out, "id: 7\nevent: snapshot\ndata: {\"a\":[1,2]}\n\n");
    dialect_put_snapshot(&out, OPENAI, payload, 7);
    assert_out(&out, CHUNK "{\"snapshot\":{\"a\":[1,2]},\"seq\":7}}\n\n");
    dialect_put_snapshot(&out, UI, payload, 7);
    assert_out(&out, PART "{\"snapshot\":{\"a\":[1,2]},\"seq\":7}" PART_END);
}

/* ---- complete ---- */

static const struct dialect_diagnostics diagnostics = {
    .resumes = 1, .trims = 2, .recovered_events = 3, .correlation_id = STR_INIT("id-1")};
#define DIAGNOSTICS                                                                                \
    "\"diagnostics\":{\"resumes\":1,\"trims\":2,\"recovered_events\":3,\"correlation_id\":\"id-"   \
    "1\"}"

static void assert_payload(const char *payload, const char *want)
{
    struct buf out = {0};
    dialect_put_payload(&out, str_of_cstr(payload), &diagnostics);
    assert_out(&out, want);
}

static void test_payload(void **state)
{
    assert_payload("{}", "{" DIAGNOSTICS "}");
    assert_payload(" {\"a\" : 1,\n\"b\":{\"diagnostics\":2}}\n",
                   "{\"a\":1,\"b\":{\"diagnostics\":2}," DIAGNOSTICS "}");
    assert_payload("{\"diagnostics\":{\"x\":[1,2]}}", "{" DIAGNOSTICS "}");
    assert_payload("{\"diagnostics\":1,\"z\":\"}\",\"diagnostics\":2}",
                   "{\"z\":\"}\"," DIAGNOSTICS "}");
    /* Another spelling of the name is overruled by the last one. */
    assert_payload("{\"di\\u0061gnostics\":1}", "{\"di\\u0061gnostics\":1," DIAGNOSTICS "}");
    assert_payload("[1,\n2]", "[1,2]");
    assert_payload("\"text\"", "\"text\"");
    assert_payload("12", "12");
    assert_payload("null", "null");
    assert_payload("{\"a\":", "{\"a\":");
    assert_payload("", "");
}

static void test_complete(void **state)
{
    struct buf out = {0};
    struct str payload = STR("{\"a\":1}");
    dialect_put_complete(&out, SSE, payload, &diagnostics);
    assert_out(&out, "event: complete\ndata: {\"a\":1," DIAGNOSTICS "}\n\n");
    dialect_put_complete(&out, OPENAI, payload, &diagnostics);
    assert_out(&out, CHUNK "{\"complete\":{\"a\":1," DIAGNOSTICS "}}}\n\n" DONE);
    dialect_put_complete(&out, UI, payload, &diagnostics);
    assert_out(&out, PART "{\"complete\":{\"a\":1," DIAGNOSTICS "}}" PART_END DONE);
    dialect_put_complete(&out, SSE, STR("[1]"), &diagnostics);
    assert_out(&out, "event: complete\ndata: [1]\n\n");
}

/* ---- errors and ends ---- */

static void test_error(void **state)
{
    struct buf out = {0};
    dialect_put_error(&out, SSE, STR("INTERNAL"), STR("a \"b\"\nc"));
    assert_out(&out, "event: error\ndata: {\"schema\":\"error.v1\",\"code\":\"INTERNAL\","
                     "\"message\":\"a \\\"b\\\"\\nc\"}\n\n");
    dialect_put_error(&out, OPENAI, STR("INTERNAL"), STR("a \"b\"\nc"));
    assert_out(&out,
               "data: {\"error\":{\"message\":\"a \\\"b\\\"\\nc\",\"type\":\"upstream_error\","
               "\"param\":null,\"code\":\"INTERNAL\"}}\n\n");
    dialect_put_error(&out, UI, STR("INTERNAL"), STR("a \"b\"\nc"));
    assert_out(&out, "data: {\"type\":\"error\",\"errorText\":\"a \\\"b\\\"\\nc\"}\n\n");
}

static void test_end_failed(void **state)
{
    struct buf out = {0};
#define END "{\"reason\":\"failed\",\"message\":\"cut\"}"
    dialect_put_end(&out, SSE, END_FAILED, STR("cut"));
    assert_out(&out, "event: error\ndata: {\"schema\":\"error.v1\",\"code\":\"UPSTREAM_ERROR\","
                     "\"message\":\"cut\"}\n\nevent: end\ndata: " END "\n\n");
    dialect_put_end(&out, OPENAI, END_FAILED, STR("cut"));
    assert_out(&out, CHUNK "{\"end\":" END "}}\n\n"
                           "data: {\"error\":{\"message\":\"cut\",\"type\":\"upstream_error\","
                           "\"param\":null,\"code\":\"UPSTREAM_ERROR\"}}\n\n");
    dialect_put_end(&out, UI, END_FAILED, STR("cut"));
    assert_out(&out, PART "{\"end\":" END "}" PART_END
                          "data: {\"type\":\"error\",\"errorText\":\"cut\"}\n\n");
#undef END
}

static void test_end_cancelled(void **state)
{
    struct buf out = {0};
#define END "{\"reason\":\"cancelled\",\"message\":\"stopped on request\"}"
    dialect_put_end(&out, SSE, END_CANCELLED, STR_NONE);
    assert_out(&out, "event: end\ndata: " END "\n\n");
    dialect_put_end(&out, OPENAI, END_CANCELLED, STR_NONE);
    assert_out(&out, CHUNK "{\"end\":" END "}}\n\n" DONE);
    dialect_put_end(&out, UI, END_CANCELLED, STR_NONE);
    assert_out(&out, PART "{\"end\":" END "}" PART_END "data: {\"type\":\"abort\"}\n\n" DONE);
#undef END
}

static void test_end_cut_short(void **state)
{
    struct buf out = {0};
    dialect_put_end(&out, SSE, END_ORPHANED, STR("gone"));
    assert_out(&out, "event: end\ndata: {\"reason\":\"orphaned\",\"message\":\"gone\"}\n\n");
    dialect_put_end(&out, OPENAI, END_ORPHANED, STR("gone"));
    assert_out(&out, CHUNK "{\"end\":{\"reason\":\"orphaned\",\"message\":\"gone\"}}}\n\n"
                           "data: {\"error\":{\"message\":\"gone\",\"type\":\"upstream_error\","
                           "\"param\":null,\"code\":\"ORPHANED\"}}\n\n");
    dialect_put_end(&out, UI, END_EXPIRED, STR("gone"));
    assert_out(&out, PART "{\"end\":{\"reason\":\"expired\",\"message\":\"gone\"}}" PART_END
                          "data: {\"type\":\"error\",\"errorText\":\"gone\"}\n\n");
}

static void test_end_completed(void **state)
{
    struct buf out = {0};
    for (int d = 0; d < ROUTE_DIALECTS; d++) {
        dialect_put_end(&out, VOICE((enum route_dialect)d), END_COMPLETED, STR("x"));
        dialect_put_end(&out, VOICE((enum route_dialect)d), END_NONE, STR("x"));
        assert_int_equal(out.n, 0);
    }
}

/* ---- the other dialects ---- */

#define NAMED(which)                                                                               \
    (&(struct dialect_voice){.dialect = ROUTE_DIALECT_##which,                                     \
                             .seq = 7,                                                             \
                             .generation = STR("gen"),                                             \
                             .rpc_id = STR("\"q\"")})
#define CUT_REASON ": reason {\"end\":{\"reason\":\"failed\",\"message\":\"cut\"}}\n"

static void test_ends_of_others(void **state)
{
    static const struct {
        enum route_dialect dialect;
        const char *failed;
    } rows[] = {
        {ROUTE_DIALECT_AUTO,
         CUT_REASON "event: error\ndata: {\"schema\":\"error.v1\",\"code\":\"UPSTREAM_ERROR\","
                    "\"message\":\"cut\"}\n\n"},
        {ROUTE_DIALECT_RESPONSES,
         CUT_REASON "event: error\ndata: {\"type\":\"error\",\"code\":\"UPSTREAM_ERROR\","
                    "\"message\":\"cut\",\"param\":null,\"sequence_number\":7,\"error\":{"
                    "\"message\":\"cut\",\"type\":\"upstream_error\",\"param\":null,\"code\":"
                    "\"UPSTREAM_ERROR\"}}\n\n"},
        {ROUTE_DIALECT_ANTHROPIC,
         CUT_REASON "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\","
                    "\"message\":\"cut\",\"code\":\"UPSTREAM_ERROR\"}}\n\n"},
        {ROUTE_DIALECT_GEMINI, CUT_REASON "\ndata: {\"error\":{\"code\":502,\"message\":\"cut\","
                                          "\"status\":\"UNAVAILABLE\"}}\n\n"},
        {ROUTE_DIALECT_AG_UI, CUT_REASON "data: {\"type\":\"RUN_ERROR\",\"message\":\"cut\","
                                         "\"code\":\"UPSTREAM_ERROR\"}\n\n"},
        {ROUTE_DIALECT_MCP,
         CUT_REASON "id: gen:8\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"error\":{\"code\":"
                    "-32603,\"message\":\"cut\",\"data\":{\"code\":\"UPSTREAM_ERROR\"}}}\n\n"},
        {ROUTE_DIALECT_NDJSON, "{\"error\":\"cut\",\"code\":\"UPSTREAM_ERROR\"}\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dialect_voice v = *NAMED(AUTO);
        struct buf out = {0};
        v.dialect = rows[i].dialect;
        dialect_put_end(&out, &v, END_FAILED, STR("cut"));
        assert_out(&out, rows[i].failed);
    }
}

/* Who asked for the end sees no whole answer either. */
static void test_stopped(void **state)
{
    struct buf out = {0};
    dialect_put_end(&out, NAMED(GEMINI), END_CANCELLED, STR("x"));
    assert_out(&out, ": reason {\"end\":{\"reason\":\"cancelled\",\"message\":\"x\"}}\n\n"
                     "data: {\"error\":{\"code\":499,\"message\":\"x\",\"status\":"
                     "\"CANCELLED\"}}\n\n");
    dialect_put_end(&out, NAMED(ANTHROPIC), END_CANCELLED, STR("x"));
    assert_out(&out, ": reason {\"end\":{\"reason\":\"cancelled\",\"message\":\"x\"}}\n"
                     "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":"
                     "\"api_error\",\"message\":\"x\",\"code\":\"CANCELLED\"}}\n\n");
}

/* A gap's error is followed by events: it has no number of its own. */
static void test_gap_of_others(void **state)
{
    struct dialect_gap gap = {.requested = 3, .earliest = 45, .reason = GAP_TRIMMED};
    struct buf out = {0};
    dialect_put_gap(&out, NAMED(MCP), &gap);
    assert_out(&out, ": gap {\"gap\":{\"requested\":\"3\",\"earliest\":\"45\",\"reason\":"
                     "\"trimmed\",\"snapshot\":null}}\ndata: {\"jsonrpc\":\"2.0\",\"id\":"
                     "\"q\",\"error\":{\"code\":-32603,\"message\":\"events of this answer are "
                     "missing: 3 was the last one received, 45 is the next one that is kept\","
                     "\"data\":{\"code\":\"GAP\"}}}\n\n");
}

static void test_payloads_of_others(void **state)
{
    struct str payload = STR("{\"a\":\n1}");
    struct buf out = {0};
    dialect_put_snapshot(&out, NAMED(SSE), payload, 7);
    assert_out(&out, "id: gen:7\nevent: snapshot\ndata: {\"a\":1}\n\n");
    dialect_put_snapshot(&out, NAMED(ANTHROPIC), payload, 7);
    assert_out(&out, ": snapshot {\"snapshot\":{\"a\":1},\"seq\":7}\n");
    dialect_put_snapshot(&out, NAMED(GEMINI), payload, 7);
    assert_out(&out, "data: {\"a\":1}\n\n");
    dialect_put_complete(&out, NAMED(NDJSON), payload, &diagnostics);
    assert_out(&out, "{\"a\":1}\n");
    /* An SDK would see no event at all, and no error. */
    dialect_put_complete(&out, NAMED(AG_UI), payload, &diagnostics);
    assert_out(&out, ": complete {\"complete\":{\"a\":1," DIAGNOSTICS "}}\ndata: {\"type\":"
                     "\"RUN_ERROR\",\"message\":\"the events of this answer are no longer kept\","
                     "\"code\":\"EXPIRED\"}\n\n");
}

static void test_comments(void **state)
{
    static const struct {
        enum route_dialect dialect;
        const char *resume, *heartbeat, *end;
    } rows[] = {
        {ROUTE_DIALECT_AUTO, ": resume t\n", ": heartbeat\n", ": end\n"},
        {ROUTE_DIALECT_GEMINI, ": resume t\n\n", ": heartbeat\n\n", ": end\n\n"},
        {ROUTE_DIALECT_NDJSON, "", "", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf out = {0};
        dialect_put_resume(&out, VOICE(rows[i].dialect), STR("t"));
        assert_out(&out, rows[i].resume);
        assert_true(str_eq(dialect_heartbeat(rows[i].dialect), str_of_cstr(rows[i].heartbeat)));
        assert_true(str_eq(dialect_end_mark(rows[i].dialect), str_of_cstr(rows[i].end)));
    }
}

/* Clients of versions that know it, and of MCP alone. */
static void test_prime(void **state)
{
    struct buf out = {0};
    dialect_put_prime(&out, NAMED(MCP), STR("2025-06-18"));
    dialect_put_prime(&out, NAMED(MCP), STR_NONE);
    dialect_put_prime(&out, NAMED(OPENAI), STR("2025-11-25"));
    assert_int_equal(out.n, 0);
    dialect_put_prime(&out, NAMED(MCP), STR("2025-11-25"));
    assert_out(&out, "id: gen:7\ndata: \n\n");
}

static void test_bodies_of_others(void **state)
{
    static const struct {
        enum route_dialect dialect;
        int status;
        const char *body;
    } rows[] = {
        {ROUTE_DIALECT_RESPONSES, 503,
         "{\"error\":{\"message\":\"no\",\"type\":\"server_error\",\"param\":null,\"code\":"
         "\"X\"}}"},
        {ROUTE_DIALECT_ANTHROPIC, 503,
         "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"no\","
         "\"code\":\"X\"}}"},
        {ROUTE_DIALECT_ANTHROPIC, 410,
         "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":"
         "\"no\",\"code\":\"X\"}}"},
        {ROUTE_DIALECT_GEMINI, 429,
         "{\"error\":{\"code\":429,\"message\":\"no\",\"status\":\"RESOURCE_EXHAUSTED\"}}"},
        {ROUTE_DIALECT_GEMINI, 500,
         "{\"error\":{\"code\":500,\"message\":\"no\",\"status\":\"INTERNAL\"}}"},
        {ROUTE_DIALECT_GEMINI, 422,
         "{\"error\":{\"code\":422,\"message\":\"no\",\"status\":\"FAILED_PRECONDITION\"}}"},
        {ROUTE_DIALECT_MCP, 502,
         "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32603,\"message\":\"no\","
         "\"data\":{\"code\":\"X\"}}}"},
        {ROUTE_DIALECT_NDJSON, 502, "{\"error\":\"no\",\"code\":\"X\"}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dialect_problem p = {rows[i].status, STR("X"), STR("no"), STR_NONE};
        struct buf out = {0};
        dialect_put_problem(&out, VOICE(rows[i].dialect), &p);
        assert_out(&out, rows[i].body);
    }
}

static void test_error_body(void **state)
{
    struct buf out = {0};
    dialect_put_error_body(&out, STR("BAD_INPUT"), STR("no"), STR_NONE);
    assert_out(&out, "{\"schema\":\"error.v1\",\"code\":\"BAD_INPUT\",\"message\":\"no\"}");
    dialect_put_error_body(&out, STR("RATE_LIMITED"), STR("Too many requests"),
                           STR("{\"retry_after_seconds\":3}"));
    assert_out(&out, "{\"schema\":\"error.v1\",\"code\":\"RATE_LIMITED\",\"message\":\"Too many "
                     "requests\",\"details\":{\"retry_after_seconds\":3}}");
}

static void test_problem(void **state)
{
    struct buf out = {0};
    struct dialect_problem p = {429, STR("RATE_LIMITED"), STR("no"), STR("{\"n\":3}")};
    dialect_put_problem(&out, OPENAI, &p);
    assert_out(&out, "{\"error\":{\"message\":\"no\",\"type\":\"rate_limit_error\",\"param\":null,"
                     "\"code\":\"RATE_LIMITED\",\"details\":{\"n\":3}}}");
    p = (struct dialect_problem){504, STR("UPSTREAM_TIMEOUT"), STR("late"), STR_NONE};
    dialect_put_problem(&out, OPENAI, &p);
    assert_out(&out, "{\"error\":{\"message\":\"late\",\"type\":\"upstream_error\",\"param\":null,"
                     "\"code\":\"UPSTREAM_TIMEOUT\"}}");
    dialect_put_problem(&out, UI, &p);
    assert_out(&out,
               "{\"schema\":\"error.v1\",\"code\":\"UPSTREAM_TIMEOUT\",\"message\":\"late\"}");
}

/* ---- nothing breaks out ---- */

static int check_event(void *user, const struct sse_event *event)
{
    size_t at;
    ++*(unsigned *)user;
    if (!str_eq(event->data, STR("[DONE]")))
        assert_int_equal(json_check(event->data, &at), 0);
    return 0;
}

/* Where notices are comments the error comes alone. */
static unsigned events_of_a_failure(enum route_dialect d)
{
    bool both =
        d == ROUTE_DIALECT_SSE || d == ROUTE_DIALECT_OPENAI || d == ROUTE_DIALECT_UI_MESSAGE;
    return both ? 2 : dialect_form(d) == DIALECT_LINES ? 0 : 1;
}

/* A message is text of an upstream: it must stay within its JSON string, in one SSE field. */
static void test_hostile_messages(void **state)
{
    static const struct str messages[] = {
        STR_INIT("\n\ndata: {}\n\n"), STR_INIT("\r\rdata: x\r\r"), STR_INIT("\"},\"x\":{\""),
        STR_INIT("\0\x01\x1f\x7f"),   STR_INIT("\xff\xfe\xc3"),    STR_INIT("\\\"\\"),
    };
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        for (int d = 0; d < ROUTE_DIALECTS; d++) {
            struct buf out = {0};
            struct sse_parser parser;
            unsigned n = 0;
            dialect_put_end(&out, VOICE((enum route_dialect)d), END_FAILED, messages[i]);
            sse_parser_init(&parser, &sse_server_host, NULL, 4096, &n, check_event);
            assert_int_equal(sse_parser_feed(&parser, buf_str(&out)), 0);
            assert_int_equal(n, events_of_a_failure((enum route_dialect)d));
            sse_parser_deinit(&parser);
            buf_deinit(&out);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_gap),
        cmocka_unit_test(test_snapshot),
        cmocka_unit_test(test_payload),
        cmocka_unit_test(test_complete),
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_end_failed),
        cmocka_unit_test(test_end_cancelled),
        cmocka_unit_test(test_end_cut_short),
        cmocka_unit_test(test_end_completed),
        cmocka_unit_test(test_error_body),
        cmocka_unit_test(test_problem),
        cmocka_unit_test(test_hostile_messages),
        cmocka_unit_test(test_ends_of_others),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_gap_of_others),
        cmocka_unit_test(test_payloads_of_others),
        cmocka_unit_test(test_comments),
        cmocka_unit_test(test_prime),
        cmocka_unit_test(test_bodies_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
