// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/mcp_message.h"
#include "base/arena.h"
#include "base/b64.h"
#include "base/json.h"

#include <string.h>

/* ---- reading ---- */

void mcp_pick(struct str object, struct view_want *wants, size_t n)
{
    if (view_type(object) == VIEW_OBJECT)
        view_pick(object, wants, n);
}

enum { M_JSONRPC, M_ID, M_METHOD, M_PARAMS, MEMBERS };

static bool pick_members(struct str text, struct view_want m[MEMBERS])
{
    size_t at;
    if (json_check(text, &at) != 0)
        return false;
    text = view_trim(text);
    m[M_JSONRPC].name = STR("jsonrpc");
    m[M_ID].name = STR("id");
    m[M_METHOD].name = STR("method");
    m[M_PARAMS].name = STR("params");
    mcp_pick(text, m, MEMBERS);
    return true;
}

/* A text or a whole number. */
static bool is_id(struct str value)
{
    enum view_type type = view_type(value);
    return type == VIEW_STRING || (type == VIEW_NUMBER && memchr(value.p, '.', value.n) == NULL);
}

static bool is_message(const struct view_want m[MEMBERS])
{
    enum view_type params = view_type(m[M_PARAMS].value);
    return view_text_is(m[M_JSONRPC].value, STR("2.0")) &&
           view_type(m[M_METHOD].value) == VIEW_STRING &&
           (m[M_ID].value.n == 0 || is_id(m[M_ID].value)) &&
           (params == VIEW_OBJECT || params == VIEW_NONE);
}

int mcp_message_read(struct str text, struct mcp_message *out)
{
    struct view_want m[MEMBERS] = {0};
    *out = (struct mcp_message){0};
    if (!pick_members(text, m))
        return MCP_PARSE_ERROR;
    if (is_id(m[M_ID].value))
        out->id = m[M_ID].value;
    out->method = m[M_METHOD].value;
    out->params = m[M_PARAMS].value;
    return is_message(m) ? 0 : MCP_INVALID_REQUEST;
}

struct mcp_envelope mcp_envelope_of(struct str params)
{
    struct view_want meta = {.name = STR("_meta")};
    struct view_want m[] = {{.name = STR(MCP_META "protocolVersion")},
                            {.name = STR(MCP_META "clientCapabilities")},
                            {.name = STR(MCP_META "clientInfo")}};
    mcp_pick(params, &meta, 1);
    mcp_pick(meta.value, m, 3);
    return (struct mcp_envelope){m[0].value, m[1].value, m[2].value};
}

/* ---- answers ---- */

void mcp_begin_answer(struct buf *out, struct str id)
{
    buf_put(out, STR("{\"jsonrpc\":\"2.0\",\"id\":"));
    buf_put(out, id.n > 0 ? id : STR("null"));
}

void mcp_begin_error(struct buf *out, struct str id, int code, struct str message)
{
    mcp_begin_answer(out, id);
    buf_printf(out, ",\"error\":{\"code\":%d,\"message\":", code);
    json_put_string(out, message);
}

void mcp_put_error(struct buf *out, struct str id, int code, struct str message)
{
    mcp_begin_error(out, id, code, message);
    buf_put(out, STR("}}"));
}

/* ---- handing on ---- */

struct str mcp_id_of(struct str text)
{
    struct view_want m[MEMBERS] = {0};
    return pick_members(text, m) && is_id(m[M_ID].value) ? m[M_ID].value : STR_NONE;
}

struct str mcp_cancelled_id(struct str text)
{
    struct view_want m[MEMBERS] = {0}, id = {.name = STR("requestId")};
    if (!pick_members(text, m) || m[M_ID].value.n > 0 ||
        view_type(m[M_PARAMS].value) != VIEW_OBJECT ||
        !view_text_is(m[M_METHOD].value, STR("notifications/cancelled")))
        return STR_NONE;
    view_pick(m[M_PARAMS].value, &id, 1);
    return is_id(id.value) ? id.value : STR_NONE;
}

static bool is_header_text(struct str value)
{
    for (size_t i = 0; i < value.n; i++)
        if (value.p[i] < ' ' || value.p[i] > '~')
            return false;
    return value.n > 0 && value.p[0] != ' ' && value.p[value.n - 1] != ' ' &&
           !str_starts(value, STR("=?base64?"));
}

void mcp_put_header(struct buf *out, struct str value)
{
    if (is_header_text(value)) {
        buf_put(out, value);
        return;
    }
    buf_put(out, STR("=?base64?"));
    b64_put(out, value);
    buf_put(out, STR("?="));
}

static struct str header_of(struct arena *a, struct str value)
{
    struct buf text = {0};
    if (view_type(value) != VIEW_STRING)
        return STR_NONE;
    mcp_put_header(&text, view_text(a, value));
    struct str header = arena_dup(a, buf_str(&text));
    buf_deinit(&text);
    return header;
}

struct mcp_headers mcp_headers_of(struct str text, struct arena *a)
{
    struct view_want m[MEMBERS] = {0}, name = {.name = STR("name")};
    struct mcp_headers h = {0};
    if (!pick_members(text, m) || view_type(m[M_PARAMS].value) != VIEW_OBJECT)
        return h;
    struct mcp_envelope e = mcp_envelope_of(m[M_PARAMS].value);
    if (e.version.n == 0)
        return h;
    h.version = header_of(a, e.version);
    h.method = header_of(a, m[M_METHOD].value);
    view_pick(m[M_PARAMS].value, &name, 1);
    if (view_text_is(m[M_METHOD].value, STR("tools/call")))
        h.name = header_of(a, name.value);
    return h;
}
