// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "feature/gateway/gateway_choice.h"
#include "http/message.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define D(name)  ROUTE_DIALECT_##name

static void test_paths(void **state)
{
    static const struct {
        const char *path;
        enum route_dialect dialect;
    } rows[] = {
        {"/v1/chat/completions", D(OPENAI)},
        {"/openai/deployments/x/chat/completions", D(OPENAI)},
        {"/v1/completions", D(OPENAI)},
        {"/v1/responses", D(RESPONSES)},
        {"/v1/messages", D(ANTHROPIC)},
        {"/v1beta/models/a.b-c:streamGenerateContent", D(GEMINI)},
        {"/mcp", D(MCP)},
        {"/tools/mcp", D(MCP)},
        {"/api/chat", D(AUTO)},
        {"/v1/responses/r", D(AUTO)},
        {"/submessages", D(AUTO)},
        {"", D(AUTO)},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_int_equal(choice_by_request(str_of_cstr(rows[i].path), &(struct request){0}),
                         rows[i].dialect);
}

static enum route_dialect by_header(const char *path, const char *name)
{
    struct header header = {str_of_cstr(name), STR("x")};
    return choice_by_request(str_of_cstr(path),
                             &(struct request){.n_headers = 1, .headers = &header});
}

/* The path is more certain: an SDK's base URL has any key in its headers. */
static void test_headers(void **state)
{
    assert_int_equal(by_header("/a", "Anthropic-Version"), D(ANTHROPIC));
    assert_int_equal(by_header("/a", "x-goog-api-key"), D(GEMINI));
    assert_int_equal(by_header("/a", "mcp-protocol-version"), D(MCP));
    assert_int_equal(by_header("/a", "Mcp-Session-Id"), D(MCP));
    assert_int_equal(by_header("/a", "x-api-key"), D(AUTO));
    assert_int_equal(by_header("/v1/chat/completions", "x-goog-api-key"), D(OPENAI));
}

static void test_bodies(void **state)
{
    static const struct {
        const char *path, *body;
        enum route_dialect dialect;
    } rows[] = {
        {"/a", " {\"jsonrpc\":\"2.0\",\"id\":1}", D(MCP)},
        {"/api/chat", "{\"id\":\"c\",\"messages\":[],\"trigger\":\"submit-message\"}",
         D(UI_MESSAGE)},
        {"/api/chat", "{\"id\":\"c\",\"messages\":[]}", D(AUTO)},
        {"/api/chat", "{\"model\":\"llama\",\"messages\":[]}", D(NDJSON)},
        {"/x/api/generate", "{\"model\":\"llama\"}", D(NDJSON)},
        {"/a", "{\"model\":\"llama\"}", D(AUTO)},
        {"/a", "{\"jsonrpc\":2}", D(AUTO)},
        {"/a", "[{\"jsonrpc\":\"2.0\"}]", D(AUTO)},
        {"/a", "{\"jsonrpc\":\"2.0\"", D(AUTO)},
        {"/a", "", D(AUTO)},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_int_equal(choice_by_body(str_of_cstr(rows[i].path), str_of_cstr(rows[i].body)),
                         rows[i].dialect);
}

static const struct {
    const char *type, *data, *stored;
    enum route_dialect dialect;
} events[] = {
    {"message", "{\"object\":\"chat.completion.chunk\",\"choices\":[]}",
     "id: 1\ndata: {\"choices\":[]}\n\n", D(OPENAI)},
    {"response.created", "{}", "id: g:1\nevent: response.created\ndata: {}\n\n", D(RESPONSES)},
    {"", "{\"type\":\"response.created\"}", "data: {\"type\":\"response.created\"}\n\n",
     D(RESPONSES)},
    {"message_start", "{}", "id: 1\nevent: message_start\ndata: {}\n\n", D(ANTHROPIC)},
    {"content_block_delta", "{}", "id: 1\nevent: content_block_delta\ndata: {}\n\n", D(ANTHROPIC)},
    {"", "{\"candidates\":[]}", "data: {\"candidates\":[]}\n\n", D(GEMINI)},
    {"message", "{\"type\":\"RUN_STARTED\"}", "id: 1\ndata: {\"type\":\"RUN_STARTED\"}\n\n",
     D(AG_UI)},
    {"message", "{\"jsonrpc\":\"2.0\"}", "id: 1\ndata: {\"jsonrpc\":\ndata: \"2.0\"}\n\n", D(MCP)},
    {"", "{\"type\":\"start\"}", "id: 1\ndata: {\"type\":\"start\"}\n\n", D(UI_MESSAGE)},
    {"metadata", "{\"run_id\":1}", "id: 1\nevent: metadata\ndata: {\"run_id\":1}\n\n", D(AUTO)},
    {"start", "{}", "id: 1\nevent: start\ndata: {}\n\n", D(AUTO)},
    {"", "[DONE]", "id: 1\ndata: [DONE]\n\n", D(AUTO)},
    {"", "", "id: 1\ndata: \n\n", D(AUTO)},
    {"", "{\"choices\":[]", ": the upstream failed\n\n", D(AUTO)},
};

static void test_events(void **state)
{
    for (size_t i = 0; i < COUNT(events); i++) {
        assert_int_equal(choice_by_event(str_of_cstr(events[i].type), str_of_cstr(events[i].data)),
                         events[i].dialect);
        assert_int_equal(choice_by_stored(str_of_cstr(events[i].stored)), events[i].dialect);
    }
    assert_int_equal(choice_by_stored(STR("{\"message\":{}}\n")), D(NDJSON));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
