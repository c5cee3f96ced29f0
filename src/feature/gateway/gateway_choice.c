// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/gateway_choice.h"
#include "base/json.h"
#include "base/json_view.h"
#include "feature/gateway/recorder.h"
#include "http/message.h"

struct choice {
    struct str text;
    enum route_dialect dialect;
};
#define N_OF(table) (sizeof(table) / sizeof *(table))

/* ---- the request ---- */

static enum route_dialect by_path(struct str path)
{
    static const struct choice ends[] = {
        {STR_INIT("/completions"), ROUTE_DIALECT_OPENAI},
        {STR_INIT("/responses"), ROUTE_DIALECT_RESPONSES},
        {STR_INIT("/messages"), ROUTE_DIALECT_ANTHROPIC},
        {STR_INIT("/v1/complete"), ROUTE_DIALECT_ANTHROPIC},
        {STR_INIT(":streamGenerateContent"), ROUTE_DIALECT_GEMINI},
        {STR_INIT(":generateContent"), ROUTE_DIALECT_GEMINI},
        {STR_INIT("/mcp"), ROUTE_DIALECT_MCP},
    };
    for (size_t i = 0; i < N_OF(ends); i++)
        if (str_ends(path, ends[i].text))
            return ends[i].dialect;
    return ROUTE_DIALECT_AUTO;
}

enum route_dialect choice_by_request(struct str path, const struct request *req)
{
    static const struct choice headers[] = {
        {STR_INIT("anthropic-version"), ROUTE_DIALECT_ANTHROPIC},
        {STR_INIT("x-goog-api-key"), ROUTE_DIALECT_GEMINI},
        {STR_INIT("MCP-Protocol-Version"), ROUTE_DIALECT_MCP},
        {STR_INIT("Mcp-Session-Id"), ROUTE_DIALECT_MCP},
    };
    enum route_dialect d = by_path(path);
    for (size_t i = 0; d == ROUTE_DIALECT_AUTO && i < N_OF(headers); i++)
        if (request_header(req, headers[i].text).p != NULL)
            d = headers[i].dialect;
    return d;
}

static bool is_object(struct str text)
{
    size_t ignored;
    return view_type(text) == VIEW_OBJECT && json_check(text, &ignored) == 0;
}

/* Ollama's paths are those of many pages as well, but they name no model. */
static bool is_ollama(struct str path, struct str model)
{
    return view_type(model) == VIEW_STRING &&
           (str_ends(path, STR("/api/chat")) || str_ends(path, STR("/api/generate")));
}

enum route_dialect choice_by_body(struct str path, struct str body)
{
    enum { JSONRPC, MESSAGES, MODEL, TRIGGER, N };
    struct view_want wants[N] = {[JSONRPC] = {.name = STR_INIT("jsonrpc")},
                                 [MESSAGES] = {.name = STR_INIT("messages")},
                                 [MODEL] = {.name = STR_INIT("model")},
                                 [TRIGGER] = {.name = STR_INIT("trigger")}};
    body = view_trim(body);
    if (!is_object(body))
        return ROUTE_DIALECT_AUTO;
    view_pick(body, wants, N);
    if (view_type(wants[JSONRPC].value) == VIEW_STRING)
        return ROUTE_DIALECT_MCP;
    if (view_type(wants[TRIGGER].value) == VIEW_STRING &&
        view_type(wants[MESSAGES].value) == VIEW_ARRAY)
        return ROUTE_DIALECT_UI_MESSAGE;
    return is_ollama(path, wants[MODEL].value) ? ROUTE_DIALECT_NDJSON : ROUTE_DIALECT_AUTO;
}

/* ---- the answer ---- */

/* What an event is called, by its beginning: in `event:`, or in the member `type`. */
static enum route_dialect by_type(struct str type)
{
    static const struct choice types[] = {
        {STR_INIT("response."), ROUTE_DIALECT_RESPONSES},
        {STR_INIT("message_"), ROUTE_DIALECT_ANTHROPIC},
        {STR_INIT("content_block_"), ROUTE_DIALECT_ANTHROPIC},
        {STR_INIT("RUN_"), ROUTE_DIALECT_AG_UI},
        {STR_INIT("STEP_"), ROUTE_DIALECT_AG_UI},
        {STR_INIT("TEXT_MESSAGE_"), ROUTE_DIALECT_AG_UI},
        {STR_INIT("TOOL_CALL_"), ROUTE_DIALECT_AG_UI},
        {STR_INIT("STATE_"), ROUTE_DIALECT_AG_UI},
        {STR_INIT("MESSAGES_SNAPSHOT"), ROUTE_DIALECT_AG_UI},
        {STR_INIT("start"), ROUTE_DIALECT_UI_MESSAGE},
        {STR_INIT("text-"), ROUTE_DIALECT_UI_MESSAGE},
        {STR_INIT("reasoning-"), ROUTE_DIALECT_UI_MESSAGE},
        {STR_INIT("tool-"), ROUTE_DIALECT_UI_MESSAGE},
        {STR_INIT("data-"), ROUTE_DIALECT_UI_MESSAGE},
    };
    for (size_t i = 0; i < N_OF(types); i++)
        if (str_starts(type, types[i].text))
            return types[i].dialect;
    return ROUTE_DIALECT_AUTO;
}

static enum route_dialect by_data(struct str data)
{
    enum { TYPE, JSONRPC, CHOICES, CANDIDATES, N };
    struct view_want wants[N] = {[TYPE] = {.name = STR_INIT("type")},
                                 [JSONRPC] = {.name = STR_INIT("jsonrpc")},
                                 [CHOICES] = {.name = STR_INIT("choices")},
                                 [CANDIDATES] = {.name = STR_INIT("candidates")}};
    data = view_trim(data);
    if (!is_object(data))
        return ROUTE_DIALECT_AUTO;
    view_pick(data, wants, N);
    if (view_type(wants[JSONRPC].value) == VIEW_STRING)
        return ROUTE_DIALECT_MCP;
    if (view_type(wants[CHOICES].value) == VIEW_ARRAY)
        return ROUTE_DIALECT_OPENAI;
    if (view_type(wants[CANDIDATES].value) == VIEW_ARRAY)
        return ROUTE_DIALECT_GEMINI;
    return view_type(wants[TYPE].value) == VIEW_STRING ? by_type(view_inside(wants[TYPE].value))
                                                       : ROUTE_DIALECT_AUTO;
}

/* A name tells two dialects apart from all others; types of the AI SDK stand in the data alone. */
enum route_dialect choice_by_event(struct str type, struct str data)
{
    enum route_dialect d = by_type(type);
    if (d == ROUTE_DIALECT_RESPONSES || d == ROUTE_DIALECT_ANTHROPIC)
        return d;
    return by_data(data);
}

enum route_dialect choice_by_stored(struct str stored)
{
    static const struct str fields[] = {STR_INIT("id: "), STR_INIT("event: "), STR_INIT("data: "),
                                        STR_INIT(": ")};
    struct buf lines = {0};
    struct str type;
    enum route_dialect d = ROUTE_DIALECT_NDJSON;
    for (size_t i = 0; i < N_OF(fields); i++)
        if (str_starts(stored, fields[i]))
            d = ROUTE_DIALECT_AUTO;
    if (d == ROUTE_DIALECT_NDJSON)
        return d;
    struct str data = recorder_event_data(stored, &type, &lines);
    d = choice_by_event(type, data);
    buf_deinit(&lines);
    return d;
}
