// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab_json.h"
#include "base/ascii.h"
#include "base/json.h"
#include "base/num.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PRETTY_MAX      16 /* levels; what is nested deeper would be white space mostly */
#define NUMBER_TEXT_MAX 64 /* bytes of a text that may be a number */

/* Numbers that no integer can hold are still numbers. */
json_t *lab_json_load(struct str text)
{
    json_error_t why;
    size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_t *v = json_loadb(text.p, text.n, flags, &why);
    return v != NULL ? v : json_loadb(text.p, text.n, flags | JSON_DECODE_INT_AS_REAL, &why);
}

/* ---- writing ---- */

/* The fewest digits that are read as the same number again. */
static void put_real(struct buf *out, double v)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    buf_put(out, str_of_cstr(text));
}

static void put_break(struct buf *out, int level)
{
    if (level < 0)
        return;
    buf_putc(out, '\n');
    for (int i = 0; i < level; i++)
        buf_put(out, STR("  "));
}

static void lab_json_put_value(struct buf *out, const json_t *v, int level);

static int inner_level(int level)
{
    return level < 0 ? -1 : level + 1;
}

static void put_array(struct buf *out, const json_t *v, int level)
{
    size_t n = json_array_size(v);
    int inner = inner_level(level);
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_putc(out, ',');
        put_break(out, inner);
        lab_json_put_value(out, json_array_get(v, i), inner);
    }
    if (n > 0)
        put_break(out, level);
    buf_putc(out, ']');
}

static void put_object(struct buf *out, const json_t *v, int level)
{
    int inner = inner_level(level);
    const char *key;
    json_t *member;
    bool first = true;
    buf_putc(out, '{');
    json_object_foreach((json_t *)(uintptr_t)v, key, member)
    {
        if (!first)
            buf_putc(out, ',');
        first = false;
        put_break(out, inner);
        json_put_string(out, str_of_cstr(key));
        buf_put(out, level < 0 ? STR(":") : STR(": "));
        lab_json_put_value(out, member, inner);
    }
    if (!first)
        put_break(out, level);
    buf_putc(out, '}');
}

/* level < 0: in one line. As deep as the parser allows. */
static void lab_json_put_value(struct buf *out, const json_t *v, int level)
{
    if (level >= PRETTY_MAX)
        level = -1;
    switch (json_typeof(v)) {
    case JSON_OBJECT: put_object(out, v, level); break;
    case JSON_ARRAY: put_array(out, v, level); break;
    case JSON_STRING:
        json_put_string(out, str_of(json_string_value(v), json_string_length(v)));
        break;
    case JSON_INTEGER: buf_printf(out, "%lld", (long long)json_integer_value(v)); break;
    case JSON_REAL: put_real(out, json_real_value(v)); break;
    case JSON_TRUE: buf_put(out, STR("true")); break;
    case JSON_FALSE: buf_put(out, STR("false")); break;
    default: buf_put(out, STR("null"));
    }
}

void lab_json_put(struct buf *out, const json_t *value)
{
    lab_json_put_value(out, value, -1);
}

void lab_json_put_pretty(struct buf *out, const json_t *value, int level)
{
    lab_json_put_value(out, value, level);
}

json_t *lab_json_text(struct str s)
{
    return json_stringn_nocheck(s.n > 0 ? s.p : "", s.n);
}

/* ---- members ---- */

struct str lab_json_get(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return json_is_string(v) ? str_of(json_string_value(v), json_string_length(v)) : STR_NONE;
}

struct str lab_json_trimmed(const json_t *object, const char *key)
{
    return ascii_trim(lab_json_get(object, key));
}

/* ---- numbers ---- */

static double number_of_text(struct str s)
{
    char text[NUMBER_TEXT_MAX + 1], *end;
    s = ascii_trim(s);
    if (s.n == 0 || s.n > NUMBER_TEXT_MAX || memchr(s.p, '\0', s.n) != NULL)
        return NAN;
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    if (strspn(text, "+-.0123456789eExXabcdefABCDEF") != s.n)
        return NAN; /* strtod also knows words */
    double v = strtod(text, &end);
    return *end == '\0' ? v : NAN;
}

double lab_json_number(const json_t *value)
{
    switch (value != NULL ? json_typeof(value) : JSON_NULL) {
    case JSON_INTEGER:
    case JSON_REAL: return json_number_value(value);
    case JSON_STRING:
        return number_of_text(str_of(json_string_value(value), json_string_length(value)));
    case JSON_TRUE: return 1;
    case JSON_FALSE: return 0;
    default: return NAN;
    }
}
