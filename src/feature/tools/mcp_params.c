// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/mcp_params.h"
#include "base/arena.h"
#include "base/b64.h"
#include "base/json_view.h"
#include "http/message.h"

#include <stdlib.h>

#define PREFIX     "Mcp-Param-"
#define DEPTH_MAX  16 /* of properties within properties; what is deeper is not looked at */
#define NUMBER_MAX 64 /* characters of a number that is compared as one */

static bool mcp_params_is_printable(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((s.p[i] < ' ' && s.p[i] != '\t') || s.p[i] > '~')
            return false;
    return true;
}

struct str mcp_header_value(struct arena *a, struct str given)
{
    static const struct str begin = STR_INIT("=?base64?"), end = STR_INIT("?=");
    struct buf decoded = {0};
    if (!mcp_params_is_printable(given))
        return STR_NONE;
    if (!str_starts(given, begin) || given.n < begin.n + end.n ||
        !str_eq(str_skip(given, given.n - end.n), end))
        return given;
    struct str inside = str_of(given.p + begin.n, given.n - begin.n - end.n), value = STR_NONE;
    if (b64_take(&decoded, inside) == 0)
        value = decoded.n > 0 ? arena_dup(a, buf_str(&decoded)) : STR("");
    buf_deinit(&decoded);
    return value;
}

/* 42 and 42.0 are the same. */
static bool same_number(struct str a, struct str b)
{
    char one[NUMBER_MAX + 1], other[NUMBER_MAX + 1], *end;
    if (str_eq(a, b))
        return true;
    if (a.n == 0 || a.n > NUMBER_MAX || b.n > NUMBER_MAX)
        return false;
    memcpy(one, a.p, a.n);
    one[a.n] = '\0';
    memcpy(other, b.p, b.n);
    other[b.n] = '\0';
    double v = strtod(one, &end);
    return *end == '\0' && strpbrk(one, "xXnN ") == NULL && v == strtod(other, NULL);
}

static bool is_repeated(struct arena *a, struct str header, struct str argument)
{
    struct str value = mcp_header_value(a, header);
    if (value.p == NULL)
        return false;
    switch (view_type(argument)) {
    case VIEW_STRING: return view_text_is(argument, value);
    case VIEW_NUMBER: return same_number(value, argument);
    case VIEW_BOOL: return str_eq(value, argument);
    default: return false;
    }
}

static bool check_one(struct arena *a, struct str name, struct str argument,
                      const struct request *req)
{
    struct str full = arena_printf(a, PREFIX "%.*s", (int)name.n, name.p);
    struct str header = request_header(req, full);
    enum view_type type = view_type(argument);
    if (type == VIEW_NONE || type == VIEW_NULL)
        return header.p == NULL;
    return header.p != NULL && is_repeated(a, header, argument);
}

static struct str argument_of(struct arena *a, struct str arguments, struct str name)
{
    struct view_want want = {.name = arena_dup(a, name)};
    if (view_type(arguments) == VIEW_OBJECT)
        view_pick(arguments, &want, 1);
    return want.value;
}

static bool check_properties(struct arena *a, struct str schema, struct str arguments,
                             const struct request *req, int depth)
{
    struct view_want properties = {.name = STR("properties")};
    struct str rest, name, property;
    view_pick(schema, &properties, 1);
    if (view_type(properties.value) != VIEW_OBJECT || depth == DEPTH_MAX)
        return true;
    rest = view_inside(properties.value);
    while (view_member(&rest, &name, &property)) {
        struct view_want header = {.name = STR("x-mcp-header")};
        struct view_want within = {.name = STR("properties")};
        struct buf decoded = {0};
        if (view_type(property) != VIEW_OBJECT)
            continue;
        view_pick(property, &header, 1);
        view_pick(property, &within, 1);
        if (header.value.n == 0 && within.value.n == 0)
            continue; /* the arguments may be large: they are looked through only if need be */
        view_decode(name, &decoded);
        struct str argument = argument_of(a, arguments, buf_str(&decoded));
        buf_deinit(&decoded);
        if (view_type(header.value) == VIEW_STRING &&
            !check_one(a, view_text(a, header.value), argument, req))
            return false;
        if (!check_properties(a, property, argument, req, depth + 1))
            return false;
    }
    return true;
}

bool mcp_params_match(struct str schema, struct str arguments, const struct request *req)
{
    struct arena a = {0};
    bool match =
        view_type(schema) != VIEW_OBJECT || check_properties(&a, schema, arguments, req, 0);
    arena_deinit(&a);
    return match;
}
