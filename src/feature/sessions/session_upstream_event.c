// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/session_upstream_event.h"
#include "base/b64.h"
#include "base/err.h"
#include "base/utf8.h"
#include "feature/sessions/session_messages.h"

#include <jansson.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- tool calls ---- */

static bool session_upstream_event_read_text(const json_t *v, struct str *out)
{
    if (!json_is_string(v))
        return false;
    *out = str_of(json_string_value(v), json_string_length(v));
    return true;
}

static bool session_upstream_event_read_id(const json_t *v, struct session_tool_call *c)
{
    return session_upstream_event_read_text(v, &c->id);
}

static bool session_upstream_event_read_name(const json_t *v, struct session_tool_call *c)
{
    return session_upstream_event_read_text(v, &c->name);
}

static bool session_upstream_event_read_args(const json_t *v, struct session_tool_call *c)
{
    return session_upstream_event_read_text(v, &c->raw_args);
}

static bool session_upstream_event_read_timeout(const json_t *v, struct session_tool_call *c)
{
    c->has_timeout = true;
    c->timeout_ms = json_number_value(v);
    return json_is_number(v);
}

static bool session_upstream_event_read_index(const json_t *v, struct session_tool_call *c)
{
    json_int_t n = json_integer_value(v);
    c->has_index = true;
    c->index = (uint32_t)n;
    return json_is_integer(v) && n >= 0 && n <= UINT32_MAX;
}

static bool session_upstream_event_read_streaming(const json_t *v, struct session_tool_call *c)
{
    c->is_streaming = json_is_true(v);
    return json_is_boolean(v);
}

static bool session_upstream_event_read_last(const json_t *v, struct session_tool_call *c)
{
    c->is_last_message = json_is_true(v);
    return json_is_boolean(v);
}

/* As the schema has them, and as protobuf spells them in JSON. */
static const struct member_row {
    const char *name, *json_name;
    bool (*read)(const json_t *v, struct session_tool_call *c);
} members[] = {
    {"tool_call_id", "toolCallId", session_upstream_event_read_id},
    {"name", "name", session_upstream_event_read_name},
    {"raw_args", "rawArgs", session_upstream_event_read_args},
    {"timeout_ms", "timeoutMs", session_upstream_event_read_timeout},
    {"tool_index", "toolIndex", session_upstream_event_read_index},
    {"is_streaming", "isStreaming", session_upstream_event_read_streaming},
    {"is_last_message", "isLastMessage", session_upstream_event_read_last},
};

static const struct member_row *member_of(const char *name)
{
    for (size_t i = 0; i < COUNT(members); i++)
        if (strcmp(name, members[i].name) == 0 || strcmp(name, members[i].json_name) == 0)
            return &members[i];
    return NULL;
}

/* A member that we do not know would be lost without a word. */
static bool read_call(json_t *object, struct session_tool_call *c)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        const struct member_row *row = member_of(name);
        if (row == NULL || !row->read(value, c))
            return false;
    }
    return json_is_object(object) && c->id.n > 0;
}

static int session_upstream_event_put_tool_call(struct str data, struct buf *out)
{
    struct session_tool_call call = {0};
    json_t *object = json_loadb(data.p, data.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    bool read = object != NULL && read_call(object, &call);
    if (read)
        session_put_tool_call(out, &call);
    json_decref(object);
    return read ? 1 : ERR_SYNTAX;
}

/* ---- the others ---- */

static int session_upstream_event_put_thinking(struct str data, struct buf *out)
{
    if (!utf8_valid(data))
        return ERR_SYNTAX;
    session_put_thinking(out, data);
    return 1;
}

static int session_upstream_event_put_data(struct str data, struct buf *out)
{
    int err = b64_take(out, data);
    return err == 0 ? 1 : err;
}

static const struct {
    struct str name;
    int (*put)(struct str data, struct buf *out);
} names[] = {
    {STR_INIT("thinking"), session_upstream_event_put_thinking},
    {STR_INIT("tool_call"), session_upstream_event_put_tool_call},
    {STR_INIT("data"), session_upstream_event_put_data},
};

int session_upstream_event(struct str name, struct str data, struct buf *out)
{
    for (size_t i = 0; i < COUNT(names); i++)
        if (str_eq(name, names[i].name))
            return names[i].put(data, out);
    return 0;
}
