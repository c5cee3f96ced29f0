// SPDX-License-Identifier: Apache-2.0
/* fuzz_tool_frames.c -- frames of the tools' socket, what they say, and MCP's messages. An input is
 * bytes as a client sends them; jansson says what JSON they hold. Whatever they are, an answer is
 * one JSON value. */
#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/sched.h"
#include "feature/tools/tool.h"
#include "feature/tools/tools.h"
#include "store/store.h"
#include "feature/tools/mcp.h"
#include "feature/tools/tools_message.h"
#include "feature/tools/tools_socket.h"
#include "store/mem/mem_store.h"
#include "token/cursor.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define INPUT_MAX 4096

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_tool_frames: %s\n", what);
    abort();
}

static const char *text(const json_t *o, const char *key)
{
    const char *value = json_string_value(json_object_get(o, key));
    return value != NULL ? value : "";
}

static void check_request(const struct tools_request *r, struct str json)
{
    static const char *const types[] = {
        [TOOLS_PING] = "ping",      [TOOLS_HELLO] = "hello",
        [TOOLS_LIST] = "tool_list", [TOOLS_SCHEMA] = "tool_schema",
        [TOOLS_RUN] = "run_tool",   [TOOLS_CONTINUE] = "run_tool_continue",
    };
    json_t *o = json_loadb(json.p, json.n, JSON_ALLOW_NUL, NULL);
    if (o == NULL) /* numbers and half surrogates that it has no room for */
        return;
    check(strcmp(text(o, "type"), types[r->type]) == 0, "another type");
    if (r->type == TOOLS_RUN || r->type == TOOLS_CONTINUE)
        check(json_string_length(json_object_get(o, "tool_id")) == r->tool_id.n, "another tool");
    if (r->type == TOOLS_RUN)
        check(json_is_true(json_object_get(o, "dry_run")) == r->dry_run, "another dry_run");
    if (r->type == TOOLS_CONTINUE)
        check(json_string_length(json_object_get(o, "cursor")) == r->cursor.n, "another cursor");
    json_decref(o);
}

static void fuzz_message(struct str json)
{
    struct arena a = {0};
    struct tools_request r;
    struct buf answer = {0};
    const char *why = NULL;
    if (tools_request_read(json, &a, &r, &why) == 0) {
        check_request(&r, json);
        struct tool_call c = {.tool_id = r.tool_id, .outcome = TOOL_EXECUTION_FAILED};
        buf_put(&c.result, STR("1"));
        tools_put_answer(&answer, &c);
        buf_deinit(&c.result);
    } else {
        check(why != NULL, "refused without a word");
        tools_put_error(&answer, str_of_cstr(why), 400, false);
    }
    json_t *o = json_loadb(answer.p, answer.n, JSON_ALLOW_NUL, NULL);
    check(o != NULL, "an answer that is no JSON");
    json_decref(o);
    struct str id = mcp_id_of(json);
    check(id.n == 0 || (id.p >= json.p && id.p + id.n <= json.p + json.n), "an id of its own");
    mcp_cancelled_id(json);
    mcp_headers_of(json, &a);
    buf_deinit(&answer);
    arena_deinit(&a);
}

/* ---- MCP ---- */

static struct tools_service *make_service(struct sched *sched)
{
    static const uint8_t key[CURSOR_KEY_SIZE] = {7}, session[CURSOR_SESSION_SIZE] = {1};
    char why[256];
    sched_init(sched, 0, 1762000000000);
    static const struct builtin_offer offer = {tools_builtins, NULL};
    struct tools *tools = tools_new(&(struct tools_setup){.sched = sched,
                                                          .store = mem_store_new(sched),
                                                          .issuer = cursor_issuer_new(key, session),
                                                          .cursor_ttl_s = CURSOR_TTL_S,
                                                          .offers = &offer,
                                                          .n_offers = 1},
                                    why, sizeof why);
    check(tools != NULL, why);
    return tools_service_new(&(struct tools_service_setup){.tools = tools, .sched = sched});
}

static void on_done(struct mcp_request *r)
{
    r->done = NULL;
}

static void fuzz_mcp(struct str text)
{
    static struct sched sched;
    static struct tools_service *service; /* nothing is kept between two messages */
    if (service == NULL)
        service = make_service(&sched);
    struct mcp_headers headers = {.version = STR(MCP_VERSION), .method = STR("tools/call")};
    for (int i = 0; i < 3; i++) {
        struct mcp_request r = {
            .text = text, .headers = i == 2 ? &headers : NULL, .bridge = i == 1, .done = on_done};
        if (!mcp_handle(service, &r)) {
            sched_drain(&sched);
            check(r.done == NULL, "a call that is never answered");
        }
        size_t at; /* an id is told as it came, also where jansson would not take it */
        check(r.status == 202 || json_check(buf_str(&r.answer), &at) == 0, "no JSON");
        check(r.status != 202 || r.answer.n == 0, "an answer that nobody waits for");
        mcp_request_deinit(&r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str rest = str_of((const char *)data, n), json;
    if (n > INPUT_MAX)
        return 0;
    fuzz_message(rest);
    fuzz_mcp(rest);
    int got;
    while ((got = tools_frame_take(rest, &json)) == 1) {
        check(json.p == rest.p + TOOLS_FRAME_HEAD && json.n + TOOLS_FRAME_HEAD <= rest.n,
              "a frame beyond its bytes");
        fuzz_message(json);
        rest = str_skip(rest, TOOLS_FRAME_HEAD + json.n);
    }
    check(got == 0 || got == ERR_TOO_LARGE, "a verdict it cannot have");
    return 0;
}
