// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/tool_args.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/suggest.h"
#include "base/json_view.h"
#include "feature/builtin.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define CURSOR_KEY "__cursor"
#define CURSOR_HELP                                                                                \
    "The cursor that came with the page before, as it is; leave it out for the first page. The "   \
    "other arguments are then the same again, or none."

/* ---- taking ---- */

static const struct builtin_arg *tool_args_find(const struct builtin_arg *rows, size_t n,
                                                const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

static int refuse_unknown(const struct builtin_arg *rows, size_t n, const char *name, char *why,
                          size_t size)
{
    struct suggest s = {.word = str_of_cstr(name)};
    for (size_t i = 0; i < n; i++)
        suggest_offer(&s, rows[i].name);
    if (s.best != NULL)
        snprintf(why, size, "unknown argument '%.60s'; did you mean '%s'?", name, s.best);
    else
        snprintf(why, size, "unknown argument '%.60s'", name);
    return ERR_SYNTAX;
}

static bool is_choice(const char *choices, struct str value)
{
    struct str rest = str_of_cstr(choices);
    while (rest.p != NULL)
        if (str_eq(str_cut(&rest, '|'), value))
            return true;
    return false;
}

static int tool_args_take_text(void *field, const struct builtin_arg *r, const json_t *value,
                               struct arena *a, char *why, size_t size)
{
    struct str s = str_of(json_string_value(value), json_string_length(value));
    if (!json_is_string(value) || s.n == 0)
        snprintf(why, size, "argument '%s' must be a text that is not empty", r->name);
    else if (s.n > r->max)
        snprintf(why, size, "argument '%s' has more than %llu bytes", r->name,
                 (unsigned long long)r->max);
    else if (r->choices != NULL && !is_choice(r->choices, s))
        snprintf(why, size, "argument '%s' must be one of %s", r->name, r->choices);
    else {
        *(struct str *)field = arena_dup(a, s);
        return 0;
    }
    return ERR_SYNTAX;
}

/* 3.0 and 3e0 are integers as well. */
static int tool_args_take_number(void *field, const struct builtin_arg *r, const json_t *value,
                                 char *why, size_t size)
{
    double v = json_is_number(value) ? json_number_value(value) : -1;
    if (v >= (double)r->min && v <= (double)r->max && v == (double)(uint64_t)v) {
        *(uint64_t *)field = (uint64_t)v;
        return 0;
    }
    snprintf(why, size, "argument '%s' must be an integer between %llu and %llu", r->name,
             (unsigned long long)r->min, (unsigned long long)r->max);
    return ERR_SYNTAX;
}

static int take_object(void *field, const struct builtin_arg *r, json_t *value, struct str text,
                       char *why, size_t size)
{
    struct view_want want = {.name = str_of_cstr(r->name)};
    const char *key;
    json_t *member;
    bool plain = json_is_object(value);
    json_object_foreach(value, key, member) plain =
        plain && (json_is_string(member) || json_is_number(member) || json_is_boolean(member));
    if (!plain) {
        snprintf(why, size, "argument '%s' must be an object of texts, numbers and bools", r->name);
        return ERR_SYNTAX;
    }
    view_pick(text, &want, 1);
    *(struct str *)field = want.value;
    return 0;
}

static int take_one(void *state, const struct builtin_arg *r, json_t *value, struct str text,
                    struct arena *a, char *why, size_t size)
{
    void *field = (char *)state + r->field;
    switch (r->type) {
    case BUILTIN_TEXT: return tool_args_take_text(field, r, value, a, why, size);
    case BUILTIN_NUMBER: return tool_args_take_number(field, r, value, why, size);
    case BUILTIN_OBJECT: return take_object(field, r, value, text, why, size);
    }
    return ERR_SYNTAX;
}

static int take_defaults(void *state, const struct builtin_arg *rows, size_t n, const json_t *root,
                         char *why, size_t size)
{
    for (size_t i = 0; i < n; i++) {
        if (rows[i].type == BUILTIN_NUMBER)
            *(uint64_t *)((char *)state + rows[i].field) = rows[i].fallback;
        if (rows[i].required && json_object_get(root, rows[i].name) == NULL) {
            snprintf(why, size, "argument '%s' is missing", rows[i].name);
            return ERR_SYNTAX;
        }
    }
    return 0;
}

static int take_all(void *state, const struct builtin_arg *rows, size_t n, struct str text,
                    json_t *root, struct arena *a, char *why, size_t size)
{
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value)
    {
        if (tool_args_find(rows, n, name) == NULL)
            return refuse_unknown(rows, n, name, why, size);
    }
    int err = take_defaults(state, rows, n, root, why, size);
    for (size_t i = 0; err == 0 && i < n; i++)
        if ((value = json_object_get(root, rows[i].name)) != NULL)
            err = take_one(state, &rows[i], value, text, a, why, size);
    return err;
}

int tool_args_take(void *state, const struct builtin_arg *rows, size_t n, struct str text,
                   struct arena *a, char *why, size_t size)
{
    json_error_t e;
    json_t *root = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, &e);
    int err = ERR_SYNTAX;
    if (json_is_object(root))
        err = take_all(state, rows, n, text, root, a, why, size);
    else
        snprintf(why, size, "the arguments cannot be used: %s", e.text);
    json_decref(root);
    return err;
}

/* ---- schemas ---- */

static void put_choices(struct buf *out, const char *choices)
{
    struct str rest = str_of_cstr(choices);
    buf_put(out, STR(",\"enum\":["));
    for (bool first = true; rest.p != NULL; first = false) {
        if (!first)
            buf_putc(out, ',');
        json_put_string(out, str_cut(&rest, '|'));
    }
    buf_putc(out, ']');
}

static void put_property(struct buf *out, const struct builtin_arg *r)
{
    static const char *const types[] = {
        [BUILTIN_TEXT] = "string", [BUILTIN_NUMBER] = "integer", [BUILTIN_OBJECT] = "object"};
    buf_printf(out, "\"%s\":{\"type\":\"%s\",\"description\":", r->name, types[r->type]);
    json_put_string(out, str_of_cstr(r->help));
    if (r->type == BUILTIN_NUMBER)
        buf_printf(out, ",\"minimum\":%llu,\"maximum\":%llu,\"default\":%llu",
                   (unsigned long long)r->min, (unsigned long long)r->max,
                   (unsigned long long)r->fallback);
    if (r->choices != NULL)
        put_choices(out, r->choices);
    buf_putc(out, '}');
}

static void put_cursor(struct buf *out)
{
    buf_put(out, STR("\"" CURSOR_KEY "\":{\"type\":\"string\",\"description\":"));
    json_put_string(out, STR(CURSOR_HELP));
    buf_putc(out, '}');
}

void tool_args_schema(const struct builtin_arg *rows, size_t n, bool pages, struct buf *out)
{
    bool first = true;
    buf_put(out, STR("{\"type\":\"object\",\"properties\":{"));
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_putc(out, ',');
        put_property(out, &rows[i]);
    }
    if (pages && n > 0)
        buf_putc(out, ',');
    if (pages)
        put_cursor(out);
    buf_put(out, STR("},\"required\":["));
    for (size_t i = 0; i < n; i++) {
        if (!rows[i].required)
            continue;
        buf_printf(out, "%s\"%s\"", first ? "" : ",", rows[i].name);
        first = false;
    }
    buf_put(out, STR("],\"additionalProperties\":false}"));
}

/* The members of an object but for one, as they came, each with a comma behind it. */
static void put_others(struct buf *out, struct str object, struct str but)
{
    struct str rest = view_inside(object), name, value;
    while (view_member(&rest, &name, &value)) {
        if (view_name_is(name, but))
            continue;
        buf_putc(out, '"');
        buf_put(out, name);
        buf_put(out, STR("\":"));
        buf_put(out, value);
        buf_putc(out, ',');
    }
}

void tool_args_add_cursor(struct str schema, struct buf *out)
{
    struct view_want m[] = {{.name = STR("type")}, {.name = STR("properties")}};
    schema = view_trim(schema);
    view_pick(schema, m, 2);
    buf_putc(out, '{');
    if (m[0].value.n == 0)
        buf_put(out, STR("\"type\":\"object\","));
    put_others(out, schema, STR("properties"));
    buf_put(out, STR("\"properties\":{"));
    if (view_type(m[1].value) == VIEW_OBJECT)
        put_others(out, m[1].value, STR(CURSOR_KEY));
    put_cursor(out);
    buf_put(out, STR("}}"));
}
