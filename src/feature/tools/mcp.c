// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/mcp.h"
#include "access/principal.h"
#include "base/ascii.h"
#include "base/json.h"
#include "base/json_view.h"
#include "base/must.h"
#include "feature/tools/mcp_params.h"

#define METHOD_NOT_FOUND    (-32601)
#define INVALID_PARAMS      (-32602)
#define HEADER_MISMATCH     (-32020)
#define VERSION_UNSUPPORTED (-32022)

#define SERVER_INFO         "{\"name\":\"tidemark\",\"version\":\"" TIDEMARK_VERSION "\"}"
#define VERSIONS            "[\"2026-07-28\",\"2025-11-25\",\"2025-06-18\"]"
#define CAPABILITIES        "{\"tools\":{}}"
/* The tools are those of the configuration, or of them those that somebody may call. */
#define CACHING             ",\"ttlMs\":60000,\"cacheScope\":\"public\""
#define CACHING_OWN         ",\"ttlMs\":60000,\"cacheScope\":\"private\""
#define INSTRUCTIONS                                                                               \
    "Results come in pages. Where nextCursor is given, call the same tool again with it as the "   \
    "only argument, __cursor, for the next page."

static const struct str legacy_versions[] = {STR_INIT("2025-11-25"), STR_INIT("2025-06-18")};

/* Whoever starts a bridge may be older: on standard input nothing of what we speak has changed. */
static const struct str old_versions[] = {STR_INIT("2025-03-26"), STR_INIT("2024-11-05")};

/* ---- answers ---- */

static bool mcp_fail(struct mcp_request *r, int status, int code, struct str message)
{
    r->status = status;
    mcp_put_error(&r->answer, r->id, code, message);
    return true;
}

static bool fail_header(struct mcp_request *r, const char *what)
{
    return mcp_fail(r, 400, HEADER_MISMATCH, arena_printf(&r->arena, "Header mismatch: %s", what));
}

/* A result is opened here and closed by end_result. */
static void begin_result(struct mcp_request *r)
{
    r->status = 200;
    mcp_begin_answer(&r->answer, r->id);
    buf_put(&r->answer, STR(",\"result\":{"));
    if (r->modern)
        buf_put(&r->answer, STR("\"resultType\":\"complete\",\"_meta\":{\"" MCP_META
                                "serverInfo\":" SERVER_INFO "},"));
}

static bool end_result(struct mcp_request *r)
{
    buf_put(&r->answer, STR("}}"));
    return true;
}

/* ---- names ---- */

static bool mcp_is_plain(char c)
{
    return ascii_is_alnum(c) || c == '_' || c == '-';
}

void mcp_put_plain_name(struct buf *out, struct str id)
{
    for (size_t i = 0; i < id.n; i++)
        buf_putc(out, mcp_is_plain(id.p[i]) ? id.p[i] : '_');
}

static bool is_plain_name_of(struct str name, struct str id)
{
    if (name.n != id.n)
        return false;
    for (size_t i = 0; i < id.n; i++)
        if (name.p[i] != (mcp_is_plain(id.p[i]) ? id.p[i] : '_'))
            return false;
    return true;
}

/* The first one, where several have the same plain name. */
static const struct tool_info *find_plain(const struct tools *t, struct str name)
{
    for (size_t i = 0; i < tools_count(t); i++)
        if (is_plain_name_of(name, tools_at(t, i)->id))
            return tools_at(t, i);
    return NULL;
}

/* Another one has its name there, and is called by it. */
static bool is_hidden(const struct tools *t, const struct tool_info *info)
{
    struct buf plain = {0};
    mcp_put_plain_name(&plain, info->id);
    bool hidden = find_plain(t, buf_str(&plain)) != info;
    buf_deinit(&plain);
    return hidden;
}

/* ---- what there is ---- */

static struct str choose_version(const struct mcp_request *r, struct str asked)
{
    for (size_t i = 0; i < sizeof legacy_versions / sizeof *legacy_versions; i++)
        if (view_text_is(asked, legacy_versions[i]))
            return legacy_versions[i];
    for (size_t i = 0; r->bridge && i < sizeof old_versions / sizeof *old_versions; i++)
        if (view_text_is(asked, old_versions[i]))
            return old_versions[i];
    return STR(MCP_VERSION_LEGACY);
}

static bool initialize(struct mcp_request *r, struct str params)
{
    struct view_want version = {.name = STR("protocolVersion")};
    mcp_pick(params, &version, 1);
    struct str chosen = choose_version(r, version.value);
    begin_result(r);
    buf_printf(&r->answer, "\"protocolVersion\":\"%.*s\"", (int)chosen.n, chosen.p);
    buf_put(&r->answer, STR(",\"capabilities\":" CAPABILITIES ",\"serverInfo\":" SERVER_INFO
                            ",\"instructions\":\"" INSTRUCTIONS "\""));
    return end_result(r);
}

static bool discover(struct mcp_request *r)
{
    begin_result(r);
    buf_put(&r->answer, STR("\"supportedVersions\":" VERSIONS ",\"capabilities\":" CAPABILITIES
                            ",\"instructions\":\"" INSTRUCTIONS "\"" CACHING));
    return end_result(r);
}

static void mcp_put_tool(struct mcp_request *r, const struct tool_info *info)
{
    struct buf *out = &r->answer, plain = {0};
    mcp_put_plain_name(&plain, info->id);
    buf_put(out, STR("{\"name\":"));
    json_put_string(out, r->bridge ? buf_str(&plain) : info->id);
    buf_deinit(&plain);
    buf_put(out, STR(",\"description\":"));
    json_put_string(out, info->description);
    buf_put(out, STR(",\"inputSchema\":"));
    view_put_unbroken(out, info->input_schema);
    buf_putc(out, '}');
}

static bool mcp_list(struct tools_service *s, struct mcp_request *r, struct str params)
{
    struct view_want cursor = {.name = STR("cursor")};
    const struct tools *t = tools_service_tools(s);
    const struct principal *who = r->ask.call.principal;
    mcp_pick(params, &cursor, 1);
    if (cursor.value.n > 0)
        return mcp_fail(r, 200, INVALID_PARAMS,
                        STR("the list of tools has one page, and no cursors"));
    begin_result(r);
    buf_put(&r->answer, STR("\"tools\":["));
    for (size_t i = 0, n = 0; i < tools_count(t); i++) {
        const struct tool_info *info = tools_at(t, i);
        if ((r->bridge && is_hidden(t, info)) || !tools_may(info, who))
            continue;
        if (n++ > 0)
            buf_putc(&r->answer, ',');
        mcp_put_tool(r, info);
    }
    buf_putc(&r->answer, ']');
    if (r->modern)
        buf_put(&r->answer, who == NULL || who->rights.n == 0 ? STR(CACHING) : STR(CACHING_OWN));
    return end_result(r);
}

/* ---- calls ---- */

static void put_text_block(struct buf *out, struct str text)
{
    buf_put(out, STR("{\"type\":\"text\",\"text\":"));
    json_put_string(out, text);
    buf_putc(out, '}');
}

/* For models, which see the content and not what stands beside it. */
static void put_note(struct mcp_request *r, struct str cursor)
{
    struct buf note = {0};
    buf_printf(&note,
               "\n\nThere is more. For the next page call this tool again with one argument, "
               "{\"__cursor\":\"%.*s\"}.",
               (int)cursor.n, cursor.p);
    buf_putc(&r->answer, ',');
    put_text_block(&r->answer, buf_str(&note));
    buf_deinit(&note);
}

static void put_result(struct mcp_request *r, const struct tool_call *c)
{
    struct buf *out = &r->answer;
    struct str next = buf_str(&c->next_cursor);
    begin_result(r);
    buf_put(out, STR("\"content\":["));
    put_text_block(out, buf_str(&c->result));
    if (next.n > 0 && !r->quiet)
        put_note(r, next);
    buf_printf(out, "],\"isError\":%s", c->outcome == TOOL_SUCCESS ? "false" : "true");
    if (next.n > 0) {
        buf_put(out, STR(",\"nextCursor\":"));
        json_put_string(out, next);
    }
    end_result(r);
}

/* As clients of other bridges of this kind know it. */
static void put_failed(struct mcp_request *r, const struct tool_call *c)
{
    struct buf text = {0};
    buf_put(&text, STR("atd-sdk error: server error code="));
    if (c->code != 0)
        buf_printf(&text, "Some(%u)", c->code);
    else
        buf_put(&text, STR("None"));
    buf_printf(&text, " retryable=Some(%s): %.*s", c->retryable ? "true" : "false",
               (int)c->message.n, c->message.p);
    begin_result(r);
    buf_put(&r->answer, STR("\"content\":["));
    put_text_block(&r->answer, buf_str(&text));
    buf_put(&r->answer, STR("],\"isError\":true"));
    end_result(r);
    buf_deinit(&text);
}

static void put_refused(struct mcp_request *r, const struct tool_call *c)
{
    struct buf *out = &r->answer;
    r->status = 200;
    mcp_begin_error(out, r->id, MCP_INTERNAL, buf_str(&c->message));
    buf_put(out, STR(",\"data\":{\"atd_code\":"));
    if (c->code != 0)
        buf_printf(out, "%u", c->code);
    else
        buf_put(out, STR("null"));
    buf_printf(out, ",\"retryable\":%s,\"details\":", c->retryable ? "true" : "false");
    buf_put(out, c->details.n > 0 ? buf_str(&c->details) : STR("null"));
    buf_put(out, STR("}}}"));
}

static void mcp_on_called(struct tool_ask *a)
{
    struct mcp_request *r = container_of(a, struct mcp_request, ask);
    const struct tool_call *c = &a->call;
    if (c->outcome == TOOL_SUCCESS || c->outcome == TOOL_EXECUTION_FAILED)
        put_result(r, c);
    else if (r->bridge)
        put_failed(r, c);
    else
        put_refused(r, c);
    r->done(r);
}

/* Arguments as they came, but for the cursor, which is none if it is not a text. With a cursor and
 * nothing else none were sent. */
static void split_arguments(struct mcp_request *r, struct str arguments, struct tool_call *c)
{
    struct str rest = view_inside(arguments), name, value;
    struct buf args = {0};
    size_t n = 0;
    buf_putc(&args, '{');
    while (view_member(&rest, &name, &value)) {
        if (view_name_is(name, STR("__cursor"))) {
            c->cursor = view_type(value) == VIEW_STRING ? view_text(&r->arena, value) : STR_NONE;
            continue;
        }
        buf_printf(&args, "%s\"", n++ > 0 ? "," : "");
        buf_put(&args, name);
        buf_put(&args, STR("\":"));
        buf_put(&args, value);
    }
    buf_putc(&args, '}');
    if (n > 0 || c->cursor.p == NULL)
        c->args = arena_dup(&r->arena, buf_str(&args));
    buf_deinit(&args);
}

/* A bridge's client has no headers. */
static bool has_param_headers(const struct tools_service *s, const struct mcp_request *r,
                              struct str arguments)
{
    const struct request *req = r->headers != NULL ? r->headers->request : NULL;
    const struct tool_info *info = tools_find(tools_service_tools(s), r->ask.call.tool_id);
    if (!r->modern || r->bridge || req == NULL || info == NULL)
        return true;
    return mcp_params_match(info->input_schema, arguments, req);
}

static bool call(struct tools_service *s, struct mcp_request *r, struct str params)
{
    struct view_want m[] = {{.name = STR("name")}, {.name = STR("arguments")}};
    struct tool_call *c = &r->ask.call;
    mcp_pick(params, m, 2);
    if (view_type(m[0].value) != VIEW_STRING)
        return mcp_fail(r, 200, INVALID_PARAMS, STR("missing `name` parameter"));
    enum view_type type = view_type(m[1].value);
    if (type != VIEW_OBJECT && type != VIEW_NONE && type != VIEW_NULL)
        return mcp_fail(r, 200, INVALID_PARAMS, STR("`arguments` must be an object"));
    c->tool_id = view_text(&r->arena, m[0].value);
    if (r->bridge) {
        const struct tool_info *info = find_plain(tools_service_tools(s), c->tool_id);
        if (info == NULL)
            return mcp_fail(r, 200, INVALID_PARAMS,
                            arena_printf(&r->arena, "unknown tool name: %.*s", (int)c->tool_id.n,
                                         c->tool_id.p));
        c->tool_id = info->id;
    }
    if (c->principal != NULL &&
        !principal_may(c->principal, ACCESS_VERB_TOOL, ACCESS_TOOL, c->tool_id)) {
        r->denied = true;
        return true;
    }
    if (!has_param_headers(s, r, m[1].value))
        return fail_header(r, "an Mcp-Param header is missing, or not the argument");
    if (type == VIEW_OBJECT)
        split_arguments(r, m[1].value, c);
    c->cursor_loose = true;
    r->ask.done = mcp_on_called;
    r->asked = true;
    tools_ask(s, &r->ask);
    return false;
}

/* ---- versions ---- */

static bool is_legacy(struct str version)
{
    for (size_t i = 0; i < sizeof legacy_versions / sizeof *legacy_versions; i++)
        if (str_eq(version, legacy_versions[i]))
            return true;
    return false;
}

static bool fail_version(struct mcp_request *r, struct str requested)
{
    r->status = 400;
    mcp_begin_error(&r->answer, r->id, VERSION_UNSUPPORTED, STR("Unsupported protocol version"));
    buf_put(&r->answer, STR(",\"data\":{\"supported\":" VERSIONS ",\"requested\":"));
    json_put_string(&r->answer, requested);
    buf_put(&r->answer, STR("}}}"));
    return true;
}

/* What proxies have seen must be what is done. True: it is, otherwise it has been answered. */
static bool check_headers(struct mcp_request *r, struct str method, struct str params)
{
    const struct mcp_headers *h = r->headers;
    struct view_want name = {.name = STR("name")};
    if (h == NULL)
        return true;
    if (h->version.p == NULL)
        return !fail_header(r, "MCP-Protocol-Version is missing");
    if (h->method.p == NULL || !view_text_is(method, h->method))
        return !fail_header(r, "Mcp-Method is missing, or not the method of the message");
    mcp_pick(params, &name, 1);
    if (!view_text_is(method, STR("tools/call")) || view_type(name.value) != VIEW_STRING)
        return true;
    struct str value = mcp_header_value(&r->arena, h->name);
    if (value.p == NULL || !view_text_is(name.value, value))
        return !fail_header(r, "Mcp-Name is missing, or not the name in the message");
    return true;
}

/* True: it may be dealt with, otherwise it has been answered. */
static bool check_envelope(struct mcp_request *r, const struct mcp_envelope *e)
{
    struct str header = r->headers != NULL ? r->headers->version : STR_NONE;
    bool is_text = view_type(e->version) == VIEW_STRING;
    struct str version = is_text ? view_text(&r->arena, e->version) : header;
    if (is_text && header.p != NULL && !str_eq(version, header))
        return !fail_header(r, "MCP-Protocol-Version is not the version in _meta");
    if (version.p != NULL && !str_eq(version, STR(MCP_VERSION)))
        return !fail_version(r, version);
    if (!is_text)
        return !mcp_fail(r, 400, INVALID_PARAMS,
                         STR("_meta has no " MCP_META "protocolVersion, or it is not a string"));
    if (view_type(e->capabilities) != VIEW_OBJECT)
        return !mcp_fail(
            r, 400, INVALID_PARAMS,
            STR("_meta has no " MCP_META "clientCapabilities, or it is not an object"));
    if (e->client.n > 0 && view_type(e->client) != VIEW_OBJECT)
        return !mcp_fail(r, 400, INVALID_PARAMS,
                         STR(MCP_META "clientInfo in _meta is not an object"));
    return true;
}

/* ---- messages ---- */

static bool not_found(struct mcp_request *r, int status)
{
    return mcp_fail(r, status, METHOD_NOT_FOUND, STR("Method not found"));
}

static bool handle_modern(struct tools_service *s, struct mcp_request *r, struct str method,
                          struct str params, const struct mcp_envelope *e)
{
    if (!check_envelope(r, e) || !check_headers(r, method, params))
        return true;
    if (view_text_is(method, STR("server/discover")))
        return discover(r);
    if (view_text_is(method, STR("tools/list")))
        return mcp_list(s, r, params);
    if (view_text_is(method, STR("tools/call")))
        return call(s, r, params);
    return not_found(r, 404);
}

static bool handle_legacy(struct tools_service *s, struct mcp_request *r, struct str method,
                          struct str params)
{
    if (view_text_is(method, STR("initialize")))
        return initialize(r, params);
    if (view_text_is(method, STR("ping")) ||
        view_text_is(method, STR("notifications/initialized"))) {
        begin_result(r);
        return end_result(r);
    }
    if (view_text_is(method, STR("tools/list")))
        return mcp_list(s, r, params);
    if (view_text_is(method, STR("tools/call")))
        return call(s, r, params);
    return not_found(r, 200);
}

static bool is_modern(const struct mcp_request *r, struct str method, const struct mcp_envelope *e)
{
    struct str header = r->headers != NULL ? r->headers->version : STR_NONE;
    for (size_t i = 0; i < sizeof legacy_versions / sizeof *legacy_versions; i++)
        if (view_text_is(e->version, legacy_versions[i]))
            return false;
    return e->version.n > 0 || (header.p != NULL && !is_legacy(header)) ||
           view_text_is(method, STR("server/discover"));
}

bool mcp_handle(struct tools_service *s, struct mcp_request *r)
{
    struct mcp_message m;
    int err = mcp_message_read(r->text, &m);
    r->id = m.id;
    if (err != 0)
        return mcp_fail(r, 400, err,
                        err == MCP_PARSE_ERROR ? STR("Parse error") : STR("Invalid Request"));
    if (r->id.n == 0) { /* nobody waits for an answer */
        r->status = 202;
        return true;
    }
    struct mcp_envelope e = mcp_envelope_of(m.params);
    r->modern = is_modern(r, m.method, &e);
    return r->modern ? handle_modern(s, r, m.method, m.params, &e)
                     : handle_legacy(s, r, m.method, m.params);
}

void mcp_cancel(struct mcp_request *r)
{
    must(r->asked);
    tools_ask_cancel(&r->ask);
}

void mcp_request_deinit(struct mcp_request *r)
{
    if (r->asked)
        tools_ask_deinit(&r->ask);
    buf_deinit(&r->answer);
    arena_deinit(&r->arena);
}
