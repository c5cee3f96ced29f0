// SPDX-License-Identifier: Apache-2.0
/* Pages over the wires, with the real tools: every page once, and every way in which a cursor is
 * not good. */
#include "base/json.h"
#include "base/lane.h"
#include "base/mem.h"
#include "feature/tools/tools.h"
#include "http/audit.h"
#include "http/http.h"
#include "net/loop.h"
#include "net/thread_lane.h"
#include "store/store.h"
#include "feature/tools/mcp.h"
#include "feature/tools/tools_socket.h"
#include "store/mem/mem_store.h"
#include "telemetry/trace.h"
#include "token/cursor.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define TTL_S    300
#define TOOL     "conformance:page_gen"

static const uint8_t key[CURSOR_KEY_SIZE] = {7}, session[CURSOR_SESSION_SIZE] = {1, 2, 3};

struct site {
    struct loop loop;
    struct trace trace;
    struct store *store;
    struct cursor_issuer *issuer;
    struct tools *tools;
    struct lane *lane;
    struct tools_service *service;
    struct tools_socket *socket;
    uv_timer_t alive;
    int fd;
    char audit_path[64];
    struct audit *audit;
};

static void on_alive(uv_timer_t *t)
{
}

/* Nothing is made: it is there to ask for a capability. */
static void start_never(void *ctx, struct tool_run *run)
{
    tool_run_end(run, STR("never"), false);
}

static void stop_never(void *ctx, struct tool_run *run)
{
}

static const struct tool_maker never = {
    .start = start_never, .stop = stop_never, .room = stop_never};

static const struct tool_spec specs[] = {{.id = STR_INIT("guarded"),
                                          .input_schema = STR_INIT("{\"type\":\"object\"}"),
                                          .capability = STR_INIT("x:y"),
                                          .timeout_ms = 1000,
                                          .max_output = 1000,
                                          .page_rows = 10,
                                          .page_bytes = 1000,
                                          .parallel = 1,
                                          .maker = &never}};

static const struct builtin_offer offer = {tools_builtins, NULL};

static int set_up(void **state)
{
    struct site *s = mem_zalloc(sizeof *s);
    char why[256] = "";
    int fds[2];
    assert_int_equal(loop_init(&s->loop), 0);
    s->trace = (struct trace){.to = stderr, .level = TRACE_ERROR};
    s->store = mem_store_new(&s->loop.sched);
    s->issuer = cursor_issuer_new(key, session);
    s->lane = thread_lane_new(&s->loop, "audit");
    snprintf(s->audit_path, sizeof s->audit_path, "/tmp/tools_pages_XXXXXX");
    close(mkstemp(s->audit_path));
    s->audit = audit_new(&(struct audit_setup){
        .sched = &s->loop.sched, .lane = s->lane, .path = s->audit_path, .trace = &s->trace});
    s->tools = tools_new(&(struct tools_setup){.sched = &s->loop.sched,
                                               .store = s->store,
                                               .issuer = s->issuer,
                                               .cursor_ttl_s = TTL_S,
                                               .keep_max = UINT64_MAX,
                                               .offers = &offer,
                                               .n_offers = 1,
                                               .specs = specs,
                                               .n_specs = COUNT(specs)},
                         why, sizeof why);
    assert_non_null(s->tools);
    s->service = tools_service_new(&(struct tools_service_setup){
        .tools = s->tools, .sched = &s->loop.sched, .trace = &s->trace, .audit = s->audit});
    s->socket = tools_socket_new(
        &(struct tools_socket_setup){.loop = &s->loop, .service = s->service, .trace = &s->trace},
        why, sizeof why);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    tools_socket_accept(s->socket, fds[0]);
    s->fd = fds[1];
    uv_timer_init(&s->loop.uv, &s->alive);
    uv_timer_start(&s->alive, on_alive, 5, 5);
    *state = s;
    return 0;
}

static void on_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static int tear_down(void **state)
{
    struct site *s = *state;
    bool stopped = false;
    close(s->fd);
    tools_socket_cut(s->socket);
    tools_socket_stop(s->socket, on_stopped, &stopped);
    while (!stopped)
        uv_run(&s->loop.uv, UV_RUN_ONCE);
    tools_socket_free(s->socket);
    stopped = false;
    tools_service_stop(s->service, on_stopped, &stopped);
    while (!stopped)
        uv_run(&s->loop.uv, UV_RUN_ONCE);
    tools_service_free(s->service);
    stopped = false;
    tools_stop(s->tools, on_stopped, &stopped);
    while (!stopped)
        uv_run(&s->loop.uv, UV_RUN_ONCE);
    tools_free(s->tools);
    audit_free(s->audit);
    lane_free(s->lane);
    cursor_issuer_free(s->issuer);
    uv_close((uv_handle_t *)&s->alive, NULL);
    uv_run(&s->loop.uv, UV_RUN_DEFAULT);
    store_free(s->store);
    loop_deinit(&s->loop);
    unlink(s->audit_path);
    free(s);
    return 0;
}

/* ---- asking ---- */

static void read_exactly(struct site *s, char *into, size_t n)
{
    for (size_t got = 0; got < n;) {
        ssize_t k = read(s->fd, into + got, n - got);
        assert_int_not_equal(k, 0);
        if (k > 0)
            got += (size_t)k;
        else
            uv_run(&s->loop.uv, UV_RUN_ONCE);
    }
}

static json_t *ask(struct site *s, const char *json)
{
    size_t n = strlen(json);
    unsigned char head[4] = {(unsigned char)(n >> 24), (unsigned char)(n >> 16),
                             (unsigned char)(n >> 8), (unsigned char)n};
    assert_int_equal(write(s->fd, head, 4), 4);
    assert_int_equal(write(s->fd, json, n), (ssize_t)n);
    read_exactly(s, (char *)head, 4);
    n = (size_t)head[2] << 8 | head[3];
    char *text = mem_alloc(n + 1);
    read_exactly(s, text, n);
    text[n] = '\0';
    json_t *answer = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(answer);
    free(text);
    return answer;
}

static const char *text_of(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));
    return text != NULL ? text : "";
}

static json_t *run(struct site *s, const char *tool)
{
    char json[256];
    snprintf(json, sizeof json,
             "{\"type\":\"run_tool\",\"tool_id\":\"%s\",\"args\":{},\"dry_run\":false}", tool);
    return ask(s, json);
}

/* args: "" for none, or `,"args":{..}`. */
static json_t *go_on(struct site *s, const char *tool, const char *cursor, const char *args)
{
    char json[2048];
    snprintf(json, sizeof json,
             "{\"type\":\"run_tool_continue\",\"tool_id\":\"%s\",\"cursor\":\"%s\"%s}", tool,
             cursor, args);
    return ask(s, json);
}

static void expect_error(json_t *answer, int code, const char *message)
{
    assert_string_equal(text_of(answer, "type"), "error");
    assert_string_equal(text_of(answer, "message"), message);
    assert_int_equal(json_integer_value(json_object_get(answer, "code")), code);
    assert_int_equal(json_object_get(answer, "code") != NULL, code != 0);
    assert_true(json_is_false(json_object_get(answer, "retryable")));
    json_decref(answer);
}

static char *first_cursor(struct site *s)
{
    json_t *answer = run(s, TOOL);
    char *cursor = strdup(text_of(answer, "next_cursor"));
    assert_true(strlen(cursor) > 0);
    json_decref(answer);
    return cursor;
}

static void issue(const struct cursor_issuer *i, struct cursor_payload p, char out[CURSOR_MAX + 1])
{
    struct buf text = {0};
    assert_int_equal(cursor_fingerprint(STR("{}"), STR_NONE, p.args), 0);
    assert_int_equal(cursor_issue(i, &p, &text), CURSOR_OK);
    snprintf(out, CURSOR_MAX + 1, "%.*s", (int)text.n, text.p);
    buf_deinit(&text);
}

static struct cursor_payload second_page(const struct site *s)
{
    return (struct cursor_payload){.tool_id = STR(TOOL),
                                   .page = 2,
                                   .issued_at_s = s->loop.sched.wall_ms / 1000,
                                   .state = STR("\0\0\0\2")};
}

/* ---- tests ---- */

static void every_row_once_and_on_record(void **state)
{
    struct site *s = *state;
    json_t *answer = run(s, TOOL);
    int rows = 0, pages = 0;
    for (bool more = true; more;) {
        const json_t *result = json_object_get(answer, "result");
        assert_true(json_is_true(json_object_get(answer, "success")));
        assert_int_equal(json_array_size(result), 10);
        for (size_t i = 0; i < 10; i++, rows++)
            assert_int_equal(json_integer_value(json_object_get(json_array_get(result, i), "row")),
                             rows);
        pages++;
        more = json_object_get(answer, "next_cursor") != NULL;
        json_t *next =
            more ? go_on(s, TOOL, text_of(answer, "next_cursor"), pages % 2 ? "" : ",\"args\":{}")
                 : NULL;
        json_decref(answer);
        answer = next;
    }
    assert_int_equal(pages, 10);
    assert_int_equal(rows, 100);
    char line[4096];
    FILE *f = fopen(s->audit_path, "r");
    for (int i = 1; i <= 10; i++) {
        assert_non_null(fgets(line, sizeof line, f));
        json_t *o = json_loads(line, 0, NULL);
        const json_t *page = json_object_get(o, "cursor_page");
        assert_int_equal(json_integer_value(page), i == 1 ? 0 : i);
        assert_int_equal(page == NULL, i == 1);
        json_decref(o);
    }
    assert_null(fgets(line, sizeof line, f));
    fclose(f);
}

static void cursors_of_others(void **state)
{
    struct site *s = *state;
    char *cursor = first_cursor(s);
    expect_error(go_on(s, "other:not_page_gen", cursor, ""), 1021,
                 "cursor tool_id mismatch: cursor=" TOOL " request=other:not_page_gen");
    expect_error(go_on(s, TOOL, cursor, ",\"args\":{\"a\":1}"), 1021, "cursor arguments mismatch");
    json_decref(ask(s, "{\"type\":\"hello\",\"client_id\":\"me\"}"));
    expect_error(go_on(s, TOOL, cursor, ""), 1021, "cursor caller_id mismatch");
    json_decref(ask(s, "{\"type\":\"hello\",\"client_id\":\"\"}"));
    expect_error(go_on(s, TOOL, cursor, ""), 1021, "cursor caller_id mismatch");
    json_decref(ask(s, "{\"type\":\"hello\"}"));
    json_t *answer = go_on(s, TOOL, cursor, "");
    assert_string_equal(text_of(answer, "type"), "tool_result");
    json_decref(answer);
    free(cursor);
}

#define GONE "cursor expired; re-issue the original RunTool"

static void cursors_of_other_times_and_servers(void **state)
{
    static const uint8_t other_key[CURSOR_KEY_SIZE] = {8}, other_session[CURSOR_SESSION_SIZE] = {9};
    struct site *s = *state;
    char cursor[CURSOR_MAX + 1];
    uv_run(&s->loop.uv, UV_RUN_ONCE); /* so that it is some time */
    struct cursor_payload p = second_page(s);
    issue(s->issuer, p, cursor);
    json_t *answer = go_on(s, TOOL, cursor, "");
    assert_string_equal(text_of(answer, "type"), "tool_result");
    json_decref(answer);
    p.issued_at_s -= TTL_S + 5;
    issue(s->issuer, p, cursor);
    expect_error(go_on(s, TOOL, cursor, ""), 1020, GONE);
    static const struct {
        const uint8_t *key, *session;
        int code;
        const char *message;
    } rows[] = {
        {key, other_session, 1020, GONE},
        {other_key, other_session, 1020, GONE},
        {other_key, session, 1021, "cursor invalid"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct cursor_issuer *other = cursor_issuer_new(rows[i].key, rows[i].session);
        issue(other, second_page(s), cursor);
        expect_error(go_on(s, TOOL, cursor, ""), rows[i].code, rows[i].message);
        cursor_issuer_free(other);
    }
}

static void what_is_no_cursor(void **state)
{
    struct site *s = *state;
    char large[CURSOR_MAX + 2];
    memset(large, 'A', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    static const char *const none[] = {"", "0", "start", "not!base64!", "YWJjZGVm", "YWJjZGVm=="};
    for (size_t i = 0; i < COUNT(none); i++)
        expect_error(go_on(s, TOOL, none[i], ""), 1021, "cursor invalid");
    expect_error(go_on(s, TOOL, large, ""), 1021, "cursor invalid");
    char *cursor = first_cursor(s);
    size_t at = strlen(cursor) - 5;
    cursor[at] = cursor[at] == 'A' ? 'B' : 'A';
    expect_error(go_on(s, TOOL, cursor, ""), 1021, "cursor invalid");
    free(cursor);
}

static void tools_that_are_not_for_everybody(void **state)
{
    struct site *s = *state;
    expect_error(run(s, "nothing"), 0, "tool not found: nothing");
    json_t *answer = run(s, "guarded");
    assert_int_equal(json_integer_value(json_object_get(answer, "code")), 1001);
    const json_t *details = json_object_get(answer, "details");
    assert_string_equal(json_string_value(json_array_get(json_object_get(details, "required"), 0)),
                        "x:y");
    assert_int_equal(json_array_size(json_object_get(details, "granted")), 0);
    assert_string_equal(json_string_value(json_array_get(json_object_get(details, "missing"), 0)),
                        "x:y");
    json_decref(answer);
    char cursor[CURSOR_MAX + 1];
    struct cursor_payload p = second_page(s);
    p.tool_id = STR("gone");
    issue(s->issuer, p, cursor);
    expect_error(go_on(s, "gone", cursor, ""), 0, "tool not found: gone");
    p.tool_id = STR("guarded");
    issue(s->issuer, p, cursor);
    answer = go_on(s, "guarded", cursor, "");
    assert_int_equal(json_integer_value(json_object_get(answer, "code")), 1001);
    json_decref(answer);
}

static void a_dry_run_runs_nothing(void **state)
{
    struct site *s = *state;
    json_t *answer =
        ask(s, "{\"type\":\"run_tool\",\"tool_id\":\"" TOOL "\",\"args\":{},\"dry_run\":true}");
    const json_t *result = json_object_get(answer, "result");
    assert_true(json_is_true(json_object_get(answer, "dry_run")));
    assert_true(json_is_true(json_object_get(result, "dry_run")));
    assert_string_equal(text_of(result, "tool_id"), TOOL);
    assert_true(json_is_object(json_object_get(result, "args_preview")));
    assert_null(json_object_get(answer, "next_cursor"));
    json_decref(answer);
}

/* ---- MCP ---- */

static void on_done(struct mcp_request *r)
{
    r->done = NULL;
}

static json_t *call(struct site *s, const char *arguments)
{
    char text[2048];
    snprintf(text, sizeof text,
             "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"" TOOL
             "\",\"arguments\":%s}}",
             arguments);
    struct mcp_request r = {.text = str_of_cstr(text), .done = on_done};
    if (!mcp_handle(s->service, &r))
        while (r.done != NULL)
            uv_run(&s->loop.uv, UV_RUN_ONCE);
    json_t *answer = json_loadb(r.answer.p, r.answer.n, 0, NULL);
    assert_non_null(answer);
    mcp_request_deinit(&r);
    return answer;
}

static void models_invent_cursors(void **state)
{
    static const char *const invented[] = {"\"\"", "\"0\"", "\"start\"", "\"null\"", "1", "null"};
    struct site *s = *state;
    char arguments[1024];
    for (size_t i = 0; i < COUNT(invented); i++) {
        snprintf(arguments, sizeof arguments, "{\"__cursor\":%s}", invented[i]);
        json_t *answer = call(s, arguments);
        const json_t *content = json_object_get(json_object_get(answer, "result"), "content");
        assert_int_equal(strncmp(text_of(json_array_get(content, 0), "text"), "[{\"row\":0}", 10),
                         0);
        json_decref(answer);
    }
    /* One of ours that fails its check is another matter. */
    char *cursor = first_cursor(s);
    snprintf(arguments, sizeof arguments, "{\"__cursor\":\"%s\"}", cursor);
    json_t *answer = call(s, arguments);
    const json_t *content = json_object_get(json_object_get(answer, "result"), "content");
    assert_int_equal(strncmp(text_of(json_array_get(content, 0), "text"), "[{\"row\":10}", 11), 0);
    json_decref(answer);
    cursor[20] = cursor[20] == 'A' ? 'B' : 'A';
    snprintf(arguments, sizeof arguments, "{\"__cursor\":\"%s\"}", cursor);
    answer = call(s, arguments);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(answer, "error"), "code")),
                     -32603);
    json_decref(answer);
    free(cursor);
    cursor = first_cursor(s);
    snprintf(arguments, sizeof arguments, "{\"__cursor\":\"%s\",\"other\":1}", cursor);
    answer = call(s, arguments);
    assert_string_equal(text_of(json_object_get(answer, "error"), "message"),
                        "cursor arguments mismatch");
    json_decref(answer);
    free(cursor);
}

#define WITH_SITE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SITE(every_row_once_and_on_record),
        WITH_SITE(cursors_of_others),
        WITH_SITE(cursors_of_other_times_and_servers),
        WITH_SITE(what_is_no_cursor),
        WITH_SITE(tools_that_are_not_for_everybody),
        WITH_SITE(a_dry_run_runs_nothing),
        WITH_SITE(models_invent_cursors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
