// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/tools_message.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_view.h"
#include "feature/tools/tool.h"

/* ---- requests ---- */

enum { M_TYPE, M_CLIENT, M_CAPABILITIES, M_TOOL, M_ARGS, M_CURSOR, M_DRY_RUN, MEMBERS };

static const struct {
    struct str name;
    enum tools_request_type type;
} types[] = {
    {STR_INIT("ping"), TOOLS_PING},      {STR_INIT("hello"), TOOLS_HELLO},
    {STR_INIT("tool_list"), TOOLS_LIST}, {STR_INIT("tool_schema"), TOOLS_SCHEMA},
    {STR_INIT("run_tool"), TOOLS_RUN},   {STR_INIT("run_tool_continue"), TOOLS_CONTINUE},
};

static bool find_type(struct str value, enum tools_request_type *out)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (view_text_is(value, types[i].name)) {
            *out = types[i].type;
            return true;
        }
    }
    return false;
}

static const char *tools_message_take_text(struct arena *a, struct str value, struct str *out,
                                           const char *why)
{
    if (view_type(value) != VIEW_STRING)
        return why;
    *out = view_text(a, value);
    return NULL;
}

static const char *take_capabilities(struct arena *a, struct str value, struct tools_request *out)
{
    struct str rest, item;
    if (view_type(value) == VIEW_NONE)
        return NULL;
    if (view_type(value) != VIEW_ARRAY)
        return "requested_capabilities must be an array of strings";
    rest = view_inside(value);
    while (view_element(&rest, &item)) {
        if (view_type(item) != VIEW_STRING)
            return "requested_capabilities must be an array of strings";
        if (out->n_capabilities == TOOLS_CAPABILITIES_MAX)
            return "too many requested_capabilities";
        out->capabilities[out->n_capabilities++] = view_text(a, item);
    }
    return NULL;
}

static const char *take_hello(struct arena *a, const struct view_want *m, struct tools_request *out)
{
    enum view_type client = view_type(m[M_CLIENT].value);
    if (client == VIEW_STRING)
        out->client_id = view_text(a, m[M_CLIENT].value);
    else if (client != VIEW_NONE && client != VIEW_NULL)
        return "client_id must be a string";
    if (out->client_id.n > TOOL_CALLER_MAX)
        return "client_id is too long";
    return take_capabilities(a, m[M_CAPABILITIES].value, out);
}

static const char *take_dry_run(struct str value, bool required, bool *out)
{
    if (view_type(value) == VIEW_NONE && !required)
        return NULL;
    if (view_type(value) != VIEW_BOOL)
        return "dry_run must be true or false";
    *out = value.p[0] == 't';
    return NULL;
}

static const char *take_run(const struct view_want *m, bool strict, struct tools_request *out)
{
    out->args = m[M_ARGS].value;
    if (strict && out->args.n == 0)
        return "args is missing";
    return take_dry_run(m[M_DRY_RUN].value, strict, &out->dry_run);
}

static const char *take_continue(struct arena *a, const struct view_want *m,
                                 struct tools_request *out)
{
    out->args = m[M_ARGS].value;
    return tools_message_take_text(a, m[M_CURSOR].value, &out->cursor, "cursor must be a string");
}

static const char *take_members(struct arena *a, const struct view_want *m, bool strict,
                                struct tools_request *out)
{
    const char *wrong = NULL;
    if (out->type == TOOLS_PING || out->type == TOOLS_LIST)
        return NULL;
    if (out->type == TOOLS_HELLO)
        return take_hello(a, m, out);
    wrong = tools_message_take_text(a, m[M_TOOL].value, &out->tool_id, "tool_id must be a string");
    if (wrong != NULL || out->type == TOOLS_SCHEMA)
        return wrong;
    return out->type == TOOLS_RUN ? take_run(m, strict, out) : take_continue(a, m, out);
}

/* type: NULL, the message has to say. */
static int read_request(struct str text, const enum tools_request_type *type, struct arena *a,
                        struct tools_request *out, const char **why)
{
    size_t at;
    *why = "the message is no JSON object";
    if (json_check(text, &at) != 0)
        return ERR_SYNTAX;
    text = view_trim(text);
    if (view_type(text) != VIEW_OBJECT)
        return ERR_SYNTAX;
    struct view_want m[MEMBERS] = {
        [M_TYPE] = {.name = STR("type")},
        [M_CLIENT] = {.name = STR("client_id")},
        [M_CAPABILITIES] = {.name = STR("requested_capabilities")},
        [M_TOOL] = {.name = STR("tool_id")},
        [M_ARGS] = {.name = STR("args")},
        [M_CURSOR] = {.name = STR("cursor")},
        [M_DRY_RUN] = {.name = STR("dry_run")},
    };
    view_pick(text, m, MEMBERS);
    *out = (struct tools_request){.type = type != NULL ? *type : TOOLS_PING};
    *why = "unknown type of message";
    if (type == NULL && !find_type(m[M_TYPE].value, &out->type))
        return ERR_SYNTAX;
    *why = take_members(a, m, type == NULL, out);
    return *why == NULL ? 0 : ERR_SYNTAX;
}

int tools_request_read(struct str text, struct arena *a, struct tools_request *out,
                       const char **why)
{
    return read_request(text, NULL, a, out, why);
}

int tools_request_read_body(struct str text, enum tools_request_type type, struct arena *a,
                            struct tools_request *out, const char **why)
{
    return read_request(text, &type, a, out, why);
}

/* ---- answers ---- */

void tools_put_pong(struct buf *out)
{
    buf_put(out, STR("{\"type\":\"pong\"}"));
}

void tools_put_hello_ack(struct buf *out, const struct str *granted, size_t n)
{
    buf_put(out, STR("{\"type\":\"hello_ack\",\"granted_capabilities\":"));
    json_put_strings(out, granted, n);
    buf_put(out, STR(",\"server_version\":\"tidemark " TIDEMARK_VERSION
                     "\",\"supported_tiers\":[\"hot\",\"warm\",\"cold\"]}"));
}

static void tools_message_put_tool(struct buf *out, const struct tool_info *info)
{
    buf_put(out, STR("{\"id\":"));
    json_put_string(out, info->id);
    buf_put(out, STR(",\"description\":"));
    json_put_string(out, info->description);
    buf_put(out, STR(",\"input_schema\":"));
    view_put_unbroken(out, info->input_schema);
    if (info->capability.n > 0) {
        buf_put(out, STR(",\"capability\":"));
        json_put_string(out, info->capability);
    }
    buf_printf(out, ",\"paginated\":%s}", info->pages ? "true" : "false");
}

void tools_put_list(struct buf *out, const struct tools *t, const struct principal *p)
{
    buf_put(out, STR("{\"type\":\"tool_list\",\"tools\":["));
    for (size_t i = 0, n = 0; i < tools_count(t); i++) {
        if (!tools_may(tools_at(t, i), p))
            continue;
        if (n++ > 0)
            buf_putc(out, ',');
        tools_message_put_tool(out, tools_at(t, i));
    }
    buf_put(out, STR("]}"));
}

void tools_put_schema(struct buf *out, const struct tool_info *info)
{
    buf_put(out, STR("{\"type\":\"tool_schema\",\"schema\":"));
    tools_message_put_tool(out, info);
    buf_putc(out, '}');
}

static void put_result(struct buf *out, const struct tool_call *c)
{
    buf_put(out, STR("{\"type\":\"tool_result\",\"tool_id\":"));
    json_put_string(out, c->tool_id);
    buf_put(out, STR(",\"result\":"));
    buf_put(out, buf_str(&c->result));
    buf_printf(out, ",\"success\":%s,\"dry_run\":%s", c->outcome == TOOL_SUCCESS ? "true" : "false",
               c->dry_run ? "true" : "false");
    if (c->next_cursor.n > 0) {
        buf_put(out, STR(",\"next_cursor\":"));
        json_put_string(out, buf_str(&c->next_cursor));
    }
    buf_putc(out, '}');
}

/* Without its closing brace. */
static void begin_error(struct buf *out, struct str message, uint16_t code, bool retryable)
{
    buf_put(out, STR("{\"type\":\"error\",\"message\":"));
    json_put_string(out, message);
    if (code != 0)
        buf_printf(out, ",\"code\":%u", code);
    buf_printf(out, ",\"retryable\":%s", retryable ? "true" : "false");
}

void tools_put_answer(struct buf *out, const struct tool_call *c)
{
    if (c->outcome == TOOL_SUCCESS || c->outcome == TOOL_EXECUTION_FAILED) {
        put_result(out, c);
        return;
    }
    begin_error(out, buf_str(&c->message), c->code, c->retryable);
    if (c->details.n > 0) {
        buf_put(out, STR(",\"details\":"));
        buf_put(out, buf_str(&c->details));
    }
    buf_putc(out, '}');
}

void tools_put_error(struct buf *out, struct str message, uint16_t code, bool retryable)
{
    begin_error(out, message, code, retryable);
    buf_putc(out, '}');
}

void tools_put_not_found(struct buf *out, struct str tool_id)
{
    buf_put(out, STR("tool not found: "));
    buf_put(out, tool_id);
}
