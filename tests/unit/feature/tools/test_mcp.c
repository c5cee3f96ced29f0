// SPDX-License-Identifier: Apache-2.0
/* MCP: both eras over HTTP, what the bridge makes of it, and every error there is. */
#include "tools_world.h"
#include "feature/tools/mcp.h"

#include <jansson.h>

#define POST   "POST /mcp HTTP/1.1\r\nContent-Type: application/json"
#define BRIDGE "POST /mcp?bridge=1 HTTP/1.1\r\nContent-Type: application/json"
#define META                                                                                       \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","                       \
    "\"io.modelcontextprotocol/clientCapabilities\":{}}"
#define MODERN(method)                                                                             \
    "POST /mcp HTTP/1.1\r\nContent-Type: application/json; charset=utf-8\r\n"                      \
    "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: " method
#define MSG(method, params)                                                                        \
    "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"" method "\",\"params\":{" params "}}"
#define CALL(name, args) MSG("tools/call", "\"name\":\"" name "\",\"arguments\":" args)

static json_t *ask(struct world *w, const char *head, const char *body, int status)
{
    char *got = world_ask(w, head, body);
    if (status_of(got) != status)
        fail_msg("asked %s\n%s\ngot %s\nexpected %d", head, body, got, status);
    json_t *answer = json_loads(body_of(got), JSON_REJECT_DUPLICATES, NULL);
    if (*body_of(got) != '\0')
        assert_non_null(answer);
    free(got);
    return answer;
}

static const json_t *at(const json_t *o, const char *path)
{
    char name[64];
    for (const char *p = path; *p && o != NULL;) {
        size_t n = strcspn(p, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        o = json_is_array(o) ? json_array_get(o, (size_t)atoi(name)) : json_object_get(o, name);
        p += n + (p[n] == ' ');
    }
    return o;
}

static const char *text_at(const json_t *o, const char *path)
{
    const char *text = json_string_value(at(o, path));
    return text != NULL ? text : "";
}

static void expect_error(struct world *w, const char *head, const char *body, int status, long code,
                         const char *message)
{
    json_t *answer = ask(w, head, body, status);
    assert_int_equal(json_integer_value(at(answer, "error code")), code);
    if (message != NULL)
        assert_string_equal(text_at(answer, "error message"), message);
    assert_null(at(answer, "result"));
    json_decref(answer);
}

/* ---- 2025 ---- */

static void a_handshake(void **state)
{
    static const char *const versions[][2] = {{"2025-06-18", "2025-06-18"},
                                              {"2025-11-25", "2025-11-25"},
                                              {"2024-11-05", "2025-11-25"},
                                              {"2026-07-28", "2025-11-25"},
                                              {"", "2025-11-25"}};
    struct world *w = world_new(NULL);
    for (size_t i = 0; i < COUNT(versions); i++) {
        char body[256];
        snprintf(body, sizeof body,
                 "{\"jsonrpc\":\"2.0\",\"id\":\"a\\u0041\",\"method\":\"initialize\",\"params\":{"
                 "\"protocolVersion\":\"%s\",\"capabilities\":{},\"clientInfo\":{}}}",
                 versions[i][0]);
        json_t *answer = ask(w, POST, body, 200);
        assert_string_equal(text_at(answer, "jsonrpc"), "2.0");
        assert_string_equal(text_at(answer, "id"), "aA");
        assert_string_equal(text_at(answer, "result protocolVersion"), versions[i][1]);
        assert_string_equal(text_at(answer, "result serverInfo name"), "tidemark");
        assert_string_equal(text_at(answer, "result serverInfo version"), TIDEMARK_VERSION);
        assert_true(json_is_object(at(answer, "result capabilities tools")));
        assert_null(at(answer, "result resultType"));
        json_decref(answer);
    }
    json_decref(ask(w, POST, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}", 200));
    json_t *nothing =
        ask(w, POST, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}", 202);
    assert_null(nothing);
    json_t *pong = ask(w, POST "\r\nMCP-Protocol-Version: 2025-06-18", MSG("ping", ""), 200);
    assert_int_equal(json_object_size(at(pong, "result")), 0);
    json_decref(pong);
    world_free(w);
}

static void the_list_of_tools(void **state)
{
    struct world *w = world_new(NULL);
    json_t *answer = ask(w, POST, MSG("tools/list", ""), 200);
    assert_int_equal(json_array_size(at(answer, "result tools")), 2);
    assert_string_equal(text_at(answer, "result tools 0 name"), "conformance:page_gen");
    assert_string_equal(text_at(answer, "result tools 1 description"), "One \"thing\".");
    assert_string_equal(text_at(answer, "result tools 1 inputSchema type"), "object");
    assert_null(at(answer, "result ttlMs"));
    json_decref(answer);
    answer = ask(w, BRIDGE, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}", 200);
    assert_string_equal(text_at(answer, "result tools 0 name"), "conformance_page_gen");
    json_decref(answer);
    expect_error(w, POST, MSG("tools/list", "\"cursor\":\"x\""), 200, -32602, NULL);
    world_free(w);
}

static void a_call_and_its_pages(void **state)
{
    struct world *w = world_new(NULL);
    struct tools *t = &w->tools;
    t->next_cursor = "NEXT";
    json_t *answer = ask(w, POST, CALL("conformance:page_gen", "{\"a\":1}"), 200);
    assert_string_equal(text_at(answer, "result content 0 type"), "text");
    assert_string_equal(text_at(answer, "result content 0 text"), "[{\"row\":0}]");
    assert_true(json_is_false(at(answer, "result isError")));
    assert_string_equal(text_at(answer, "result nextCursor"), "NEXT");
    /* Models see the content alone. */
    assert_memory_equal(text_at(answer, "result content 1 text"), "\n\n", 2);
    assert_non_null(strstr(text_at(answer, "result content 1 text"), "{\"__cursor\":\"NEXT\"}"));
    json_decref(answer);
    assert_true(t->loose && !t->had_cursor && !t->had_caller && !t->dry_run);
    assert_true(str_eq(buf_str(&t->args), STR("{\"a\":1}")));
    assert_true(str_eq(buf_str(&t->tool_id), STR("conformance:page_gen")));

    answer = ask(w, "POST /mcp?quiet=1 HTTP/1.1\r\nContent-Type: application/json",
                 CALL("conformance:page_gen", "{}"), 200);
    assert_int_equal(json_array_size(at(answer, "result content")), 1);
    assert_string_equal(text_at(answer, "result nextCursor"), "NEXT");
    json_decref(answer);

    t->next_cursor = NULL;
    answer = ask(w, POST, CALL("conformance:page_gen", "{\"__cursor\":\"NE\\u0058T\"}"), 200);
    assert_int_equal(json_array_size(at(answer, "result content")), 1);
    assert_null(at(answer, "result nextCursor"));
    json_decref(answer);
    assert_true(t->had_cursor && t->args.n == 0);
    assert_true(str_eq(buf_str(&t->cursor), STR("NEXT")));
    world_free(w);
}

static void arguments_and_cursors(void **state)
{
    static const struct {
        const char *arguments, *args, *cursor; /* cursor: NULL, none */
    } rows[] = {
        {"null", "", NULL},
        {"{}", "{}", NULL},
        {"{ }", "{}", NULL},
        {"{\"__cursor\":\"c\",\"a\":[1, 2]}", "{\"a\":[1, 2]}", "c"},
        {"{\"a\":1,\"__cursor\":\"c\",\"b\":\"\\u0001\"}", "{\"a\":1,\"b\":\"\\u0001\"}", "c"},
        {"{\"\\u005f_cursor\":\"c\"}", "", "c"},
        {"{\"__cursor\":\"\"}", "", ""},
        {"{\"__cursor\":null}", "{}", NULL},
        {"{\"__cursor\":1,\"a\":2}", "{\"a\":2}", NULL},
        {"{\"a\":{\"__cursor\":\"x\"}}", "{\"a\":{\"__cursor\":\"x\"}}", NULL},
    };
    struct world *w = world_new(NULL);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf body = {0};
        buf_printf(&body, CALL("plain", "%s") "%c", rows[i].arguments, 0);
        json_decref(ask(w, POST, body.p, 200));
        buf_deinit(&body);
        assert_true(str_eq(buf_str(&w->tools.args), str_of_cstr(rows[i].args)));
        assert_int_equal(w->tools.had_cursor, rows[i].cursor != NULL);
        if (rows[i].cursor != NULL)
            assert_true(str_eq(buf_str(&w->tools.cursor), str_of_cstr(rows[i].cursor)));
    }
    json_decref(ask(w, POST, MSG("tools/call", "\"name\":\"plain\""), 200));
    assert_int_equal(w->tools.args.n, 0);
    world_free(w);
}

static void failures_of_tools(void **state)
{
    struct world *w = world_new(NULL);
    struct tools *t = &w->tools;
    t->outcome = TOOL_EXECUTION_FAILED;
    t->result = "{\"code\":\"E\",\"message\":\"m\",\"retryable\":false}";
    json_t *answer = ask(w, POST, CALL("plain", "{}"), 200);
    assert_true(json_is_true(at(answer, "result isError")));
    assert_string_equal(text_at(answer, "result content 0 text"), t->result);
    json_decref(answer);

    t->outcome = TOOL_CURSOR_REFUSED;
    t->message = "cursor expired; re-issue the original RunTool";
    t->code = 1020;
    answer = ask(w, POST, CALL("plain", "{}"), 200);
    assert_int_equal(json_integer_value(at(answer, "error code")), -32603);
    assert_string_equal(text_at(answer, "error message"), t->message);
    assert_int_equal(json_integer_value(at(answer, "error data atd_code")), 1020);
    assert_true(json_is_false(at(answer, "error data retryable")));
    assert_true(json_is_null(at(answer, "error data details")));
    json_decref(answer);

    t->outcome = TOOL_CAPABILITY_DENIED;
    t->code = 1001;
    t->details = "{\"missing\":[\"x\"]}";
    answer = ask(w, POST, CALL("plain", "{}"), 200);
    assert_int_equal(json_integer_value(at(answer, "error data atd_code")), 1001);
    assert_string_equal(text_at(answer, "error data details missing 0"), "x");
    json_decref(answer);

    t->outcome = TOOL_TOOL_NOT_FOUND;
    t->code = 0;
    t->message = "tool not found: x";
    t->details = NULL;
    answer = ask(w, POST, CALL("x", "{}"), 200);
    assert_int_equal(json_integer_value(at(answer, "error code")), -32603);
    assert_true(json_is_null(at(answer, "error data atd_code")));
    json_decref(answer);
    world_free(w);
}

static void the_bridge(void **state)
{
    struct world *w = world_new(NULL);
    struct tools *t = &w->tools;
    json_t *old = ask(w, BRIDGE, MSG("initialize", "\"protocolVersion\":\"2024-11-05\""), 200);
    assert_string_equal(text_at(old, "result protocolVersion"), "2024-11-05");
    json_decref(old);
    json_decref(ask(w, BRIDGE, CALL("conformance_page_gen", "{}"), 200));
    assert_true(str_eq(buf_str(&t->tool_id), STR("conformance:page_gen")));
    expect_error(w, BRIDGE, CALL("nothing", "{}"), 200, -32602, "unknown tool name: nothing");
    expect_error(w, BRIDGE, CALL("conformance:page_gen", "{}"), 200, -32602,
                 "unknown tool name: conformance:page_gen");
    t->outcome = TOOL_CURSOR_REFUSED;
    t->message = "cursor invalid";
    t->code = 1021;
    json_t *answer = ask(w, BRIDGE, CALL("plain", "{}"), 200);
    assert_true(json_is_true(at(answer, "result isError")));
    assert_string_equal(text_at(answer, "result content 0 text"),
                        "atd-sdk error: server error code=Some(1021) retryable=Some(false): cursor "
                        "invalid");
    json_decref(answer);
    t->outcome = TOOL_INVALID_ARGS;
    t->code = 0;
    answer = ask(w, BRIDGE, CALL("plain", "{}"), 200);
    assert_string_equal(text_at(answer, "result content 0 text"),
                        "atd-sdk error: server error code=None retryable=Some(false): cursor "
                        "invalid");
    json_decref(answer);
    world_free(w);
}

static void what_is_wrong(void **state)
{
    struct world *w = world_new(NULL);
    expect_error(w, POST, MSG("tools/call", "\"arguments\":{}"), 200, -32602,
                 "missing `name` parameter");
    expect_error(w, POST, MSG("tools/call", "\"name\":1"), 200, -32602, "missing `name` parameter");
    expect_error(w, POST, CALL("plain", "[]"), 200, -32602, NULL);
    expect_error(w, POST, MSG("resources/list", ""), 200, -32601, "Method not found");
    expect_error(w, POST, "{", 400, -32700, NULL);
    expect_error(w, POST, "", 400, -32700, NULL);
    expect_error(w, POST, "[]", 400, -32600, NULL);
    expect_error(w, POST, "[" MSG("ping", "") "]", 400, -32600, NULL);
    expect_error(w, POST, "1", 400, -32600, NULL);
    expect_error(w, POST, "{\"id\":1,\"method\":\"ping\"}", 400, -32600, NULL);
    expect_error(w, POST, "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", 400, -32600, NULL);
    expect_error(w, POST, "{\"jsonrpc\":\"2.0\",\"id\":1}", 400, -32600, NULL);
    expect_error(w, POST, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", 400, -32600, NULL);
    expect_error(w, POST, "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", 400, -32600,
                 NULL);
    expect_error(w, POST, "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}", 400, -32600, NULL);
    expect_error(w, POST, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[]}", 400,
                 -32600, NULL);
    expect_error(w, "POST /mcp HTTP/1.1\r\nContent-Type: text/plain", MSG("ping", ""), 415, -32600,
                 NULL);
    expect_error(w, "POST /mcp HTTP/1.1", MSG("ping", ""), 415, -32600, NULL);
    expect_error(w, POST "\r\nOrigin: http://evil.example", MSG("ping", ""), 403, -32001, NULL);
    expect_error(w, "GET /mcp HTTP/1.1", "", 405, -32600, NULL);
    expect_error(w, "DELETE /mcp HTTP/1.1", "", 405, -32600, NULL);
    expect_error(w, "POST /mcp/x HTTP/1.1\r\nContent-Type: application/json", MSG("ping", ""), 404,
                 -32600, NULL);
    assert_int_equal(w->tools.n_calls, 0);
    /* Its id is told wherever it could be read. */
    json_t *answer = ask(w, POST, "{\"jsonrpc\":\"1.0\",\"id\":\"x\"}", 400);
    assert_string_equal(text_at(answer, "id"), "x");
    json_decref(answer);

    struct buf head = {0};
    buf_printf(&head, POST "\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n",
               TOOL_ARGS_MAX + 128 * 1024);
    int fd = world_connect(w);
    assert_int_equal(write(fd, head.p, head.n), (ssize_t)head.n);
    char *got = world_receive(w, fd);
    assert_int_equal(status_of(got), 413);
    assert_non_null(strstr(got, "-32600"));
    free(got);
    buf_deinit(&head);
    world_free(w);
}

static void tokens(void **state)
{
    struct world *w = world_new(NULL);
    json_decref(ask(w, POST "\r\nAuthorization: Bearer good-token", CALL("plain", "{}"), 200));
    assert_true(str_eq(buf_str(&w->tools.caller), STR("ci")));
    assert_true(str_eq(buf_str(&w->tools.capabilities), STR("a:b worker ")));
    json_decref(ask(w, POST "\r\nAuthorization: Basic x", CALL("plain", "{}"), 200));
    assert_false(w->tools.had_caller);
    char *got = world_ask(w, POST "\r\nAuthorization: Bearer nobody", MSG("ping", ""));
    assert_int_equal(status_of(got), 401);
    assert_non_null(strstr(got, "\r\nWWW-Authenticate: Bearer error=\"invalid_token\"\r\n"));
    assert_non_null(strstr(got, "\"code\":-32002"));
    free(got);
    world_free(w);
    w = world_new(&(struct world_setup){.require_bearer = true});
    expect_error(w, POST, MSG("ping", ""), 401, -32002, NULL);
    json_decref(ask(w, POST "\r\nAuthorization: Bearer good-token", MSG("ping", ""), 200));
    world_free(w);
}

/* ---- 2026 ---- */

static void discovery(void **state)
{
    struct world *w = world_new(NULL);
    json_t *answer = ask(w, MODERN("server/discover"), MSG("server/discover", META), 200);
    assert_string_equal(text_at(answer, "result resultType"), "complete");
    assert_string_equal(text_at(answer, "result supportedVersions 0"), "2026-07-28");
    assert_int_equal(json_array_size(at(answer, "result supportedVersions")), 3);
    assert_true(json_is_object(at(answer, "result capabilities tools")));
    assert_true(json_is_integer(at(answer, "result ttlMs")));
    assert_string_equal(text_at(answer, "result cacheScope"), "public");
    assert_string_equal(text_at(answer, "result _meta io.modelcontextprotocol/serverInfo name"),
                        "tidemark");
    json_decref(answer);
    answer = ask(w, MODERN("tools/list"), MSG("tools/list", META), 200);
    assert_string_equal(text_at(answer, "result resultType"), "complete");
    assert_true(json_is_integer(at(answer, "result ttlMs")));
    assert_int_equal(json_array_size(at(answer, "result tools")), 2);
    json_decref(answer);
    world_free(w);
}

static void a_modern_call(void **state)
{
    struct world *w = world_new(NULL);
    static const char plain[] = MSG("tools/call", "\"name\":\"plain\"," META);
    w->tools.next_cursor = "N";
    json_t *answer = ask(w, MODERN("tools/call") "\r\nMcp-Name: plain", plain, 200);
    assert_string_equal(text_at(answer, "result resultType"), "complete");
    assert_string_equal(text_at(answer, "result content 0 text"), "[{\"row\":0}]");
    assert_string_equal(text_at(answer, "result nextCursor"), "N");
    json_decref(answer);
    /* Names that cannot be headers are encoded. */
    json_decref(ask(w, MODERN("tools/call") "\r\nMcp-Name: =?base64?cGxhaW4=?=", plain, 200));
    json_decref(ask(w, MODERN("tools/call") "\r\nMcp-Name: =?base64?w6Q=?=",
                    MSG("tools/call", "\"name\":\"\xc3\xa4\"," META), 200));
    assert_int_equal(w->tools.n_calls, 3);
    static const char *const wrong[] = {
        "", "\r\nMcp-Name: other", "\r\nMcp-Name: PLAIN",
        "\r\nMcp-Name: =?base64?cGxhaW4?=", "\r\nMcp-Name: =?base64?b3RoZXI=?="};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct buf head = {0};
        buf_printf(&head, MODERN("tools/call") "%s%c", wrong[i], 0);
        expect_error(w, head.p, plain, 400, -32020, NULL);
        buf_deinit(&head);
    }
    expect_error(w, MODERN("tools/call"), MSG("tools/call", META), 200, -32602,
                 "missing `name` parameter");
    w->tools.outcome = TOOL_CURSOR_REFUSED;
    w->tools.code = 1021;
    w->tools.message = "cursor invalid";
    expect_error(w, MODERN("tools/call") "\r\nMcp-Name: plain", plain, 200, -32603,
                 "cursor invalid");
    world_free(w);
}

static void versions_and_metadata(void **state)
{
    static const char discover[] = MSG("server/discover", META);
    struct world *w = world_new(NULL);
    /* What the header says is what the message says. */
    expect_error(w, POST, discover, 400, -32020, NULL);
    expect_error(w, POST "\r\nMCP-Protocol-Version: 2026-07-28", discover, 400, -32020, NULL);
    expect_error(w, POST "\r\nMCP-Protocol-Version: 2025-11-25\r\nMcp-Method: server/discover",
                 discover, 400, -32020, NULL);
    expect_error(w, MODERN("tools/list"), discover, 400, -32020, NULL);
    expect_error(w, MODERN("Server/Discover"), discover, 400, -32020, NULL);
    expect_error(w, MODERN("server/discover"),
                 MSG("server/discover",
                     "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"v9\","
                     "\"io.modelcontextprotocol/clientCapabilities\":{}}"),
                 400, -32020, NULL);
    /* What is missing. */
    expect_error(w, MODERN("server/discover"), MSG("server/discover", ""), 400, -32602, NULL);
    expect_error(w, MODERN("server/discover"), MSG("server/discover", "\"_meta\":1"), 400, -32602,
                 NULL);
    expect_error(
        w, MODERN("server/discover"),
        MSG("server/discover", "\"_meta\":{\"io.modelcontextprotocol/clientCapabilities\":{}}"),
        400, -32602, NULL);
    expect_error(w, MODERN("server/discover"),
                 MSG("server/discover",
                     "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}"),
                 400, -32602, NULL);
    expect_error(w, MODERN("server/discover"),
                 MSG("server/discover",
                     "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
                     "\"io.modelcontextprotocol/clientCapabilities\":{},"
                     "\"io.modelcontextprotocol/clientInfo\":\"x\"}"),
                 400, -32602, NULL);
    expect_error(w, POST, MSG("server/discover", ""), 400, -32602, NULL);
    /* What we do not speak. */
    json_t *answer =
        ask(w,
            "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nMCP-Protocol-Version: v999\r\n"
            "Mcp-Method: tools/list",
            MSG("tools/list", "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"v999\","
                              "\"io.modelcontextprotocol/clientCapabilities\":{}}"),
            400);
    assert_int_equal(json_integer_value(at(answer, "error code")), -32022);
    assert_string_equal(text_at(answer, "error data requested"), "v999");
    assert_string_equal(text_at(answer, "error data supported 0"), "2026-07-28");
    assert_int_equal(json_integer_value(at(answer, "id")), 7);
    json_decref(answer);
    expect_error(w, POST "\r\nMCP-Protocol-Version: 2024-11-05", MSG("ping", ""), 400, -32022,
                 NULL);
    /* What it no longer has, and never had. */
    static const char *const gone[] = {"initialize", "ping", "logging/setLevel", "unknown/method"};
    for (size_t i = 0; i < COUNT(gone); i++) {
        struct buf head = {0}, body = {0};
        buf_printf(&head, MODERN("%s") "%c", gone[i], 0);
        buf_printf(&body, MSG("%s", META) "%c", gone[i], 0);
        expect_error(w, head.p, body.p, 404, -32601, NULL);
        buf_deinit(&head);
        buf_deinit(&body);
    }
    assert_null(ask(w, POST,
                    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{" META "}}",
                    202));
    world_free(w);
}

/* Arguments that proxies are to see. */
static void arguments_in_headers(void **state)
{
    static const struct tool_info info = {
        .id = STR_INIT("sql"),
        .input_schema = STR_INIT(
            "{\"type\":\"object\",\"properties\":{\"region\":{\"type\":\"string\",\"x-mcp-header\":"
            "\"Region\"},\"n\":{\"type\":\"integer\",\"x-mcp-header\":\"N\"},\"b\":{\"type\":"
            "\"boolean\",\"x-mcp-header\":\"B\"},\"in\":{\"properties\":{\"x\":{\"x-mcp-header\":"
            "\"In\"}}}}}")};
    static const struct {
        const char *arguments, *headers;
        bool match;
    } rows[] = {
        {"{}", "", true},
        {"{\"other\":1}", "\r\nMcp-Param-Unknown: x", true},
        {"{\"region\":\"us\"}", "\r\nmcp-param-region: us", true},
        {"{\"region\":\"us\"}", "\r\nMcp-Param-Region: =?base64?dXM=?=", true},
        {"{\"region\":\"us\"}", "", false},
        {"{\"region\":\"us\"}", "\r\nMcp-Param-Region: US", false},
        {"{\"region\":\"us\"}", "\r\nMcp-Param-Region: =?base64?dXM?=", false},
        {"{\"region\":\"\xc3\xa4\"}", "\r\nMcp-Param-Region: \xc3\xa4", false},
        {"{\"region\":\"\xc3\xa4\"}", "\r\nMcp-Param-Region: =?base64?w6Q=?=", true},
        {"{\"region\":null}", "", true},
        {"{\"region\":null}", "\r\nMcp-Param-Region: us", false},
        {"{}", "\r\nMcp-Param-Region: us", false},
        {"{\"n\":42}", "\r\nMcp-Param-N: 42", true},
        {"{\"n\":42}", "\r\nMcp-Param-N: 42.0", true},
        {"{\"n\":42}", "\r\nMcp-Param-N: 43", false},
        {"{\"n\":42}", "\r\nMcp-Param-N: 0x2a", false},
        {"{\"n\":42}", "\r\nMcp-Param-N: 42 ; 1", false},
        {"{\"b\":true}", "\r\nMcp-Param-B: true", true},
        {"{\"b\":true}", "\r\nMcp-Param-B: false", false},
        {"{\"in\":{\"x\":\"y\"}}", "\r\nMcp-Param-In: y", true},
        {"{\"in\":{\"x\":\"y\"}}", "", false},
        {"{\"in\":{\"x\":[]}}", "\r\nMcp-Param-In: []", false},
    };
    struct world *w = world_new(NULL);
    w->tools.infos = &info;
    w->tools.n = 1;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf head = {0}, body = {0};
        buf_printf(&head, MODERN("tools/call") "\r\nMcp-Name: sql%s%c", rows[i].headers, 0);
        buf_printf(&body, MSG("tools/call", "\"name\":\"sql\",\"arguments\":%s," META) "%c",
                   rows[i].arguments, 0);
        if (rows[i].match)
            json_decref(ask(w, head.p, body.p, 200));
        else
            expect_error(w, head.p, body.p, 400, -32020, NULL);
        buf_deinit(&head);
        buf_deinit(&body);
    }
    /* Older clients know nothing of it. */
    json_decref(ask(w, POST, CALL("sql", "{\"region\":\"us\"}"), 200));
    world_free(w);
}

static void whoever_leaves_ends_the_call(void **state)
{
    struct world *w = world_new(NULL);
    w->tools.hold = true;
    int fd = world_connect(w);
    world_send(fd, POST, STR(CALL("plain", "{}")));
    while (w->tools.n_calls == 0)
        world_turn(w);
    close(fd);
    while (w->http.n_connections > 0)
        world_turn(w);
    assert_int_equal(w->tools.n_cancelled, 1);
    world_free(w);
}

/* ---- without headers, and for whoever hands messages on ---- */

static void on_done(struct mcp_request *r)
{
    r->status = r->status == 200 ? 1 : r->status;
}

static void without_http(void **state)
{
    struct world *w = world_new(NULL);
    struct mcp_request r = {.text = STR(MSG("server/discover", META)), .done = on_done};
    assert_true(mcp_handle(w->service, &r));
    assert_int_equal(r.status, 200);
    mcp_request_deinit(&r);
    r = (struct mcp_request){.text = STR(MSG("tools/call", "\"name\":\"plain\"," META)),
                             .bridge = true,
                             .done = on_done};
    assert_false(mcp_handle(w->service, &r));
    while (r.status == 0)
        world_turn(w);
    assert_int_equal(r.status, 1);
    mcp_request_deinit(&r);
    w->tools.hold = true;
    r = (struct mcp_request){.text = STR(CALL("plain", "{}")), .done = on_done};
    assert_false(mcp_handle(w->service, &r));
    mcp_cancel(&r);
    mcp_request_deinit(&r);
    assert_int_equal(w->tools.n_cancelled, 1);
    world_free(w);
}

static void messages_are_handed_on(void **state)
{
    struct arena a = {0};
    assert_true(str_eq(mcp_id_of(STR(MSG("ping", ""))), STR("7")));
    assert_true(str_eq(mcp_id_of(STR("{\"id\": \"a\" }")), STR("\"a\"")));
    assert_int_equal(mcp_id_of(STR("{\"id\":null}")).n, 0);
    assert_int_equal(mcp_id_of(STR("{")).n, 0);
    assert_true(str_eq(mcp_cancelled_id(STR("{\"jsonrpc\":\"2.0\",\"method\":"
                                            "\"notifications/cancelled\",\"params\":{\"requestId\":"
                                            "3}}")),
                       STR("3")));
    assert_int_equal(mcp_cancelled_id(STR(MSG("notifications/cancelled", "\"requestId\":3"))).n, 0);
    assert_int_equal(mcp_cancelled_id(STR(MSG("ping", ""))).n, 0);
    struct mcp_headers h = mcp_headers_of(STR(MSG("tools/call", "\"name\":\"a b\"," META)), &a);
    assert_true(str_eq(h.version, STR("2026-07-28")));
    assert_true(str_eq(h.method, STR("tools/call")));
    assert_true(str_eq(h.name, STR("a b")));
    h = mcp_headers_of(STR(MSG("tools/call", "\"name\":\"\xc3\xa4\"," META)), &a);
    assert_true(str_eq(h.name, STR("=?base64?w6Q=?=")));
    h = mcp_headers_of(STR(MSG("tools/call", "\"name\":\"=?base64?x?=\"," META)), &a);
    assert_true(str_starts(h.name, STR("=?base64?PT")));
    h = mcp_headers_of(STR(CALL("plain", "{}")), &a);
    assert_null(h.version.p);
    assert_null(h.method.p);
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handshake),
        cmocka_unit_test(the_list_of_tools),
        cmocka_unit_test(a_call_and_its_pages),
        cmocka_unit_test(arguments_and_cursors),
        cmocka_unit_test(failures_of_tools),
        cmocka_unit_test(the_bridge),
        cmocka_unit_test(what_is_wrong),
        cmocka_unit_test(tokens),
        cmocka_unit_test(discovery),
        cmocka_unit_test(a_modern_call),
        cmocka_unit_test(versions_and_metadata),
        cmocka_unit_test(arguments_in_headers),
        cmocka_unit_test(whoever_leaves_ends_the_call),
        cmocka_unit_test(without_http),
        cmocka_unit_test(messages_are_handed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
