// SPDX-License-Identifier: Apache-2.0
/* Tools over /atd/v1/: who may ask, what is asked and answered, and what goes on record. */
#include "tools_world.h"
#include "feature/tools/tools_audit.h"

#include <jansson.h>

#define POST "POST /atd/v1/run_tool HTTP/1.1\r\nContent-Type: application/json"
#define NEXT "POST /atd/v1/run_tool_continue HTTP/1.1\r\nContent-Type: application/json"

static void expect(struct world *w, const char *head, const char *body, int status,
                   const char *answer)
{
    char *got = world_ask(w, head, body);
    if (status_of(got) != status || (answer != NULL && strcmp(body_of(got), answer) != 0))
        fail_msg("asked %s\ngot %s\nexpected %d %s", head, got, status, answer);
    free(got);
}

static void a_result_and_its_next_page(void **state)
{
    struct world *w = world_new(NULL);
    w->tools.next_cursor = "abc";
    expect(w, POST, "{\"tool_id\":\"plain\",\"args\":{\"a\": 1e2}}", 200,
           "{\"type\":\"tool_result\",\"tool_id\":\"plain\",\"result\":[{\"row\":0}],"
           "\"success\":true,\"dry_run\":false,\"next_cursor\":\"abc\"}");
    assert_true(str_eq(buf_str(&w->tools.args), STR("{\"a\": 1e2}"))); /* as it came */
    assert_false(w->tools.had_cursor);
    w->tools.next_cursor = NULL;
    expect(w, NEXT, "{\"tool_id\":\"plain\",\"cursor\":\"a\\u0062c\"}", 200,
           "{\"type\":\"tool_result\",\"tool_id\":\"plain\",\"result\":[{\"row\":0}],"
           "\"success\":true,\"dry_run\":false}");
    assert_true(w->tools.had_cursor && str_eq(buf_str(&w->tools.cursor), STR("abc")));
    assert_int_equal(w->tools.args.n, 0);
    assert_false(w->tools.loose);
    w->tools.outcome = TOOL_EXECUTION_FAILED;
    w->tools.result = "{\"code\":\"X\",\"message\":\"m\",\"retryable\":true}";
    expect(w, POST, "{\"tool_id\":\"plain\",\"dry_run\":true}", 200,
           "{\"type\":\"tool_result\",\"tool_id\":\"plain\",\"result\":{\"code\":\"X\","
           "\"message\":\"m\",\"retryable\":true},\"success\":false,\"dry_run\":true}");
    assert_true(w->tools.dry_run);
    world_free(w);
}

static void every_refusal_has_its_status(void **state)
{
    static const struct {
        enum tool_outcome outcome;
        uint16_t code;
        bool retryable;
        const char *details;
        int status;
        const char *answer;
    } rows[] = {
        {TOOL_CAPABILITY_DENIED, 1001, false, "{\"missing\":[\"x\"]}", 403,
         "{\"type\":\"error\",\"message\":\"m\",\"code\":1001,\"retryable\":false,"
         "\"details\":{\"missing\":[\"x\"]}}"},
        {TOOL_RATE_LIMITED, 1002, true, NULL, 429,
         "{\"type\":\"error\",\"message\":\"m\",\"code\":1002,\"retryable\":true}"},
        {TOOL_CURSOR_REFUSED, 1020, false, NULL, 410,
         "{\"type\":\"error\",\"message\":\"m\",\"code\":1020,\"retryable\":false}"},
        {TOOL_CURSOR_REFUSED, 1021, false, NULL, 400,
         "{\"type\":\"error\",\"message\":\"m\",\"code\":1021,\"retryable\":false}"},
        {TOOL_TOOL_NOT_FOUND, 0, false, NULL, 404,
         "{\"type\":\"error\",\"message\":\"m\",\"retryable\":false}"},
        {TOOL_INVALID_ARGS, 0, false, NULL, 400,
         "{\"type\":\"error\",\"message\":\"m\",\"retryable\":false}"},
    };
    struct world *w = world_new(NULL);
    w->tools.message = "m";
    for (size_t i = 0; i < COUNT(rows); i++) {
        w->tools.outcome = rows[i].outcome;
        w->tools.code = rows[i].code;
        w->tools.retryable = rows[i].retryable;
        w->tools.details = rows[i].details;
        expect(w, POST, "{\"tool_id\":\"plain\"}", rows[i].status, rows[i].answer);
    }
    w->tools.outcome = TOOL_RATE_LIMITED;
    char *got = world_ask(w, POST, "{\"tool_id\":\"plain\"}");
    assert_non_null(strstr(got, "\r\nRetry-After: 1\r\n"));
    free(got);
    world_free(w);
}

static void what_is_no_request(void **state)
{
    struct world *w = world_new(NULL);
    expect(w, POST, "{", 400, NULL);
    expect(w, POST, "[]", 400, NULL);
    expect(w, POST, "{\"args\":{}}", 400, NULL);
    expect(w, POST, "{\"tool_id\":1}", 400, NULL);
    expect(w, POST, "{\"tool_id\":\"plain\",\"dry_run\":1}", 400, NULL);
    expect(w, NEXT, "{\"tool_id\":\"plain\"}", 400, NULL);
    expect(w, "POST /atd/v1/run_tool HTTP/1.1", "{\"tool_id\":\"plain\"}", 415, NULL);
    expect(w, "POST /atd/v1/run HTTP/1.1\r\nContent-Type: application/json", "{}", 404, NULL);
    expect(w, "GET /atd/v1/run_tool HTTP/1.1", "", 405, NULL);
    expect(w, "POST /atd/v1/tools HTTP/1.1", "", 405, NULL);
    assert_int_equal(w->tools.n_calls, 0);
    struct buf head = {0};
    buf_printf(&head, POST "\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n",
               TOOL_ARGS_MAX + 128 * 1024);
    int fd = world_connect(w);
    assert_int_equal(write(fd, head.p, head.n), (ssize_t)head.n);
    char *got = world_receive(w, fd);
    assert_int_equal(status_of(got), 413);
    free(got);
    buf_deinit(&head);
    world_free(w);
}

static void the_list_of_tools(void **state)
{
    struct world *w = world_new(NULL);
    expect(w, "GET /atd/v1/tools HTTP/1.1", "", 200,
           "{\"type\":\"tool_list\",\"tools\":["
           "{\"id\":\"conformance:page_gen\",\"description\":\"Rows.\",\"input_schema\":"
           "{\"type\":\"object\",\"properties\":{\"__cursor\":{}}},\"paginated\":true},"
           "{\"id\":\"plain\",\"description\":\"One \\\"thing\\\".\",\"input_schema\":"
           "{\"type\":\"object\"},\"capability\":\"a:b\",\"paginated\":false}]}");
    world_free(w);
}

static void who_asks(void **state)
{
    static const char ask[] = "{\"tool_id\":\"plain\"}";
    struct world *w = world_new(NULL);
    expect(w, POST, ask, 200, NULL);
    assert_false(w->tools.had_caller);
    assert_int_equal(w->tools.capabilities.n, 0);
    expect(w, POST "\r\nAuthorization: Bearer good-token", ask, 200, NULL);
    assert_true(str_eq(buf_str(&w->tools.caller), STR("ci")));
    assert_true(str_eq(buf_str(&w->tools.capabilities), STR("a:b worker ")));
    /* Another scheme is as good as none; of ours the case does not matter. */
    expect(w, POST "\r\nAuthorization: Basic Zm9v", ask, 200, NULL);
    assert_false(w->tools.had_caller);
    expect(w, POST "\r\nAuthorization: bearer good-token", ask, 200, NULL);
    assert_true(w->tools.had_caller);
    char *got = world_ask(w, POST "\r\nAuthorization: Bearer bad-token", ask);
    assert_int_equal(status_of(got), 401);
    assert_non_null(strstr(got, "\r\nWWW-Authenticate: Bearer error=\"invalid_token\"\r\n"));
    free(got);
    world_free(w);
    w = world_new(&(struct world_setup){.require_bearer = true});
    expect(w, POST, ask, 401, NULL);
    expect(w, "GET /atd/v1/tools HTTP/1.1", "", 401, NULL);
    expect(w, POST "\r\nAuthorization: Bearer good-token", ask, 200, NULL);
    world_free(w);
}

static int status_at(struct world *w, const char *host, const char *origin)
{
    struct buf all = {0};
    buf_printf(&all,
               POST "\r\nHost: %s\r\nOrigin: %s\r\nConnection: close\r\nContent-Length: 19\r\n\r\n"
                    "{\"tool_id\":\"plain\"}",
               host, origin);
    int fd = world_connect(w);
    assert_int_equal(write(fd, all.p, all.n), (ssize_t)all.n);
    char *got = world_receive(w, fd);
    int status = status_of(got);
    free(got);
    buf_deinit(&all);
    return status;
}

static void pages_of_other_sites(void **state)
{
    static const char ask[] = "{\"tool_id\":\"plain\"}";
    char *items[] = {(char[]){"https://friend.example"}};
    struct option_list origins = {.items = items, .n = 1};
    struct world *w = world_new(&(struct world_setup){.origins = &origins});
    w->http.names.public_host = STR("us.example");
    expect(w, POST "\r\nOrigin: http://localhost:3000", ask, 200, NULL);
    expect(w, POST "\r\nOrigin: http://127.0.0.1", ask, 200, NULL);
    expect(w, POST "\r\nOrigin: http://[::1]:80", ask, 200, NULL);
    expect(w, POST "\r\nOrigin: https://us.example", ask, 200, NULL);
    expect(w, POST "\r\nOrigin: https://friend.example", ask, 200, NULL);
    expect(w, POST "\r\nOrigin: https://friend.example.evil", ask, 403, NULL);
    expect(w, POST "\r\nOrigin: null", ask, 403, NULL);
    expect(w, POST "\r\nOrigin: http://localhost.evil.example", ask, 403, NULL);
    expect(w, POST "\r\nOrigin: http://192.0.2.7", ask, 403, NULL);
    assert_int_equal(w->tools.n_calls, 5);
    /* An address is where the page itself came from, or somebody else's. */
    assert_int_equal(status_at(w, "192.0.2.7:4437", "http://192.0.2.7:4437"), 200);
    assert_int_equal(status_at(w, "192.0.2.7:4437", "http://192.0.2.8:4437"), 403);
    assert_int_equal(status_at(w, "evil.example", "http://evil.example"), 421);
    /* A browser asks first, and shows the page an answer only if it is told so. */
    char *got = world_ask(w,
                          "OPTIONS /atd/v1/run_tool HTTP/1.1\r\nOrigin: https://friend.example\r\n"
                          "Access-Control-Request-Method: POST\r\n"
                          "Access-Control-Request-Headers: content-type,authorization",
                          "");
    assert_int_equal(status_of(got), 204);
    assert_non_null(strstr(got, "\r\nAccess-Control-Allow-Origin: https://friend.example\r\n"));
    assert_non_null(
        strstr(got, "\r\nAccess-Control-Allow-Headers: content-type,authorization\r\n"));
    free(got);
    got = world_ask(w, POST "\r\nOrigin: https://friend.example", ask);
    assert_non_null(strstr(got, "\r\nAccess-Control-Allow-Origin: https://friend.example\r\n"));
    free(got);
    got = world_ask(w, POST "\r\nOrigin: http://localhost:3000", ask);
    assert_non_null(strstr(got, "\r\nAccess-Control-Allow-Origin: http://localhost:3000\r\n"));
    assert_null(strstr(got, "Access-Control-Allow-Credentials"));
    free(got);
    expect(w, "OPTIONS /mcp HTTP/1.1\r\nOrigin: https://friend.example", "", 204, NULL);
    expect(w, "OPTIONS /mcp HTTP/1.1\r\nOrigin: https://evil.example", "", 403, NULL);
    expect(w, "OPTIONS /mcp HTTP/1.1", "", 405, NULL);
    world_free(w);
}

static void whoever_leaves_ends_the_call(void **state)
{
    struct world *w = world_new(NULL);
    w->tools.hold = true;
    int fd = world_connect(w);
    world_send(fd, POST, STR("{\"tool_id\":\"plain\"}"));
    while (w->tools.n_calls == 0)
        world_turn(w);
    close(fd);
    while (w->http.n_connections > 0)
        world_turn(w);
    assert_int_equal(w->tools.n_cancelled, 1);
    world_free(w);
}

/* ---- the audit ---- */

static json_t *audit_lines(const char *path)
{
    json_t *lines = json_array();
    char line[4096];
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(o);
        json_array_append_new(lines, o);
    }
    if (f != NULL)
        fclose(f);
    return lines;
}

static const char *text(const json_t *o, const char *key)
{
    const char *value = json_string_value(json_object_get(o, key));
    return value != NULL ? value : "";
}

static void calls_are_on_record(void **state)
{
    char path[] = "/tmp/tools_audit_XXXXXX";
    close(mkstemp(path));
    struct world *w = world_new(&(struct world_setup){.audit = path});
    expect(w, POST "\r\nAuthorization: Bearer good-token", "{\"tool_id\":\"plain\"}", 200, NULL);
    w->tools.page = 2;
    expect(w, NEXT, "{\"tool_id\":\"plain\",\"cursor\":\"x\"}", 200, NULL);
    w->tools.outcome = TOOL_EXECUTION_FAILED;
    w->tools.result = "{\"code\":\"TIMEOUT\",\"message\":\"secret\",\"retryable\":true}";
    w->tools.retryable = true;
    w->tools.page = 1;
    expect(w, POST, "{\"tool_id\":\"plain\",\"dry_run\":true}", 200, NULL);
    w->tools.message = "m";
    static const enum tool_outcome refused[] = {TOOL_INVALID_ARGS, TOOL_CAPABILITY_DENIED,
                                                TOOL_RATE_LIMITED, TOOL_TOOL_NOT_FOUND};
    w->tools.page = 0;
    for (size_t i = 0; i < COUNT(refused); i++) {
        w->tools.outcome = refused[i];
        expect(w, POST, "{\"tool_id\":\"plain\"}", (int[]){400, 403, 429, 404}[i], NULL);
        /* Of a continuation nothing was run. */
        expect(w, NEXT, "{\"tool_id\":\"plain\",\"cursor\":\"x\"}", (int[]){400, 403, 429, 404}[i],
               NULL);
    }
    w->tools.outcome = TOOL_CURSOR_REFUSED;
    w->tools.code = 1021;
    expect(w, NEXT, "{\"tool_id\":\"plain\",\"cursor\":\"x\"}", 400, NULL);

    /* Whoever does not wait for the answer is on record, too. */
    w->tools.hold = true;
    int fd = world_connect(w);
    size_t before = w->tools.n_calls;
    world_send(fd, POST, STR("{\"tool_id\":\"plain\"}"));
    while (w->tools.n_calls == before)
        world_turn(w);
    close(fd);
    while (w->http.n_connections > 0)
        world_turn(w);
    world_free(w);

    json_t *lines = audit_lines(path);
    static const char *const kinds[] = {"success",        "success",           "execution_failed",
                                        "invalid_args",   "capability_denied", "rate_limited",
                                        "tool_not_found", "execution_failed"};
    assert_int_equal(json_array_size(lines), COUNT(kinds));
    for (size_t i = 0; i < COUNT(kinds); i++) {
        const json_t *line = json_array_get(lines, i);
        assert_string_equal(text(json_object_get(line, "outcome"), "kind"), kinds[i]);
        assert_string_equal(text(line, "tool_id"), "plain");
        assert_int_equal(strlen(text(line, "call_id")), AUDIT_ULID_TEXT);
        assert_int_equal(json_integer_value(json_object_get(line, "schema_version")), 2);
        assert_true(json_is_array(json_object_get(line, "secrets_resolved")));
        assert_true(json_is_integer(json_object_get(line, "duration_ms")));
    }
    const json_t *first = json_array_get(lines, 0), *second = json_array_get(lines, 1);
    assert_string_equal(text(first, "caller_id"), "ci");
    assert_int_equal(json_array_size(json_object_get(first, "granted_capabilities")), 2);
    assert_null(json_object_get(first, "cursor_page"));
    assert_null(json_object_get(second, "caller_id"));
    assert_int_equal(json_integer_value(json_object_get(second, "cursor_page")), 2);
    const json_t *failed = json_object_get(json_array_get(lines, 2), "outcome");
    assert_string_equal(text(failed, "code"), "TIMEOUT");
    assert_true(json_is_true(json_object_get(failed, "retryable")));
    assert_true(json_is_true(json_object_get(json_array_get(lines, 2), "dry_run")));
    assert_string_equal(text(json_object_get(json_array_get(lines, 7), "outcome"), "code"),
                        "cancelled");
    json_decref(lines);
    unlink(path);
}

static void a_ulid_begins_with_its_time(void **state)
{
    char a[AUDIT_ULID_TEXT], b[AUDIT_ULID_TEXT];
    audit_ulid(1469918176385, a); /* of the ULID specification */
    assert_memory_equal(a, "01ARYZ6S41", 10);
    audit_ulid(1469918176385, b);
    assert_memory_not_equal(a, b, sizeof a);
    audit_ulid(0, a);
    assert_memory_equal(a, "0000000000", 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_and_its_next_page),
        cmocka_unit_test(every_refusal_has_its_status),
        cmocka_unit_test(what_is_no_request),
        cmocka_unit_test(the_list_of_tools),
        cmocka_unit_test(who_asks),
        cmocka_unit_test(pages_of_other_sites),
        cmocka_unit_test(whoever_leaves_ends_the_call),
        cmocka_unit_test(calls_are_on_record),
        cmocka_unit_test(a_ulid_begins_with_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
