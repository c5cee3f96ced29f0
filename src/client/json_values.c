// SPDX-License-Identifier: Apache-2.0
#include "client/json_values.h"
#include "base/err.h"
#include "base/json.h"

void json_values_init(struct json_values *v, size_t max, void *user, json_value_fn *on_value)
{
    *v = (struct json_values){.max = max, .on_value = on_value, .user = user};
}

void json_values_deinit(struct json_values *v)
{
    buf_deinit(&v->value);
}

void json_values_reset(struct json_values *v)
{
    v->value.n = 0;
    v->state = JSON_VALUES_BEFORE;
    v->depth = 0;
    v->in_string = v->escaped = false;
    v->failed = 0;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int keep(struct json_values *v, char c)
{
    if (v->value.n == v->max)
        return ERR_TOO_LARGE;
    buf_putc(&v->value, c);
    return 0;
}

static int end_value(struct json_values *v)
{
    while (v->value.n > 0 && is_space(v->value.p[v->value.n - 1]))
        v->value.n--;
    size_t at;
    int err = json_check(buf_str(&v->value), &at);
    if (err == 0)
        err = v->on_value(v->user, buf_str(&v->value));
    v->value.n = 0;
    return err;
}

static int take_in_string(struct json_values *v, char c)
{
    if (v->escaped)
        v->escaped = false;
    else if (c == '\\')
        v->escaped = true;
    else if (c == '"')
        v->in_string = false;
    return keep(v, c);
}

/* Which kind of bracket closes which is left to json_check: counting them is enough to know where a
 * value ends. */
static int take_in_value(struct json_values *v, char c)
{
    switch (c) {
    case '"': v->in_string = true; break;
    case '[':
    case '{': v->depth++; break;
    case ',':
        if (v->depth == 0)
            return end_value(v);
        break;
    case ']':
        if (v->depth == 0) {
            v->state = JSON_VALUES_AFTER;
            return end_value(v);
        }
        v->depth--;
        break;
    case '}':
        if (v->depth == 0)
            return ERR_JSON;
        v->depth--;
        break;
    case ' ':
    case '\t':
    case '\n':
    case '\r': return v->value.n == 0 ? 0 : keep(v, c == '\t' ? '\t' : ' ');
    }
    return keep(v, c);
}

static int take(struct json_values *v, char c)
{
    if (v->in_string)
        return take_in_string(v, c);
    if (v->state == JSON_VALUES_VALUE)
        return take_in_value(v, c);
    if (is_space(c))
        return 0;
    if (v->state == JSON_VALUES_BEFORE && c == '[') {
        v->state = JSON_VALUES_FIRST;
        return 0;
    }
    if (v->state != JSON_VALUES_FIRST)
        return ERR_JSON;
    v->state = c == ']' ? JSON_VALUES_AFTER : JSON_VALUES_VALUE;
    return c == ']' ? 0 : take_in_value(v, c);
}

int json_values_feed(struct json_values *v, struct str bytes)
{
    for (size_t i = 0; i < bytes.n && v->failed == 0; i++)
        v->failed = take(v, bytes.p[i]);
    return v->failed;
}

int json_values_end(const struct json_values *v)
{
    if (v->failed)
        return v->failed;
    return v->state == JSON_VALUES_AFTER ? 0 : ERR_JSON;
}
