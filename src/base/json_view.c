// SPDX-License-Identifier: Apache-2.0
#include "base/json_view.h"
#include "base/ascii.h"
#include "base/hex.h"
#include "base/utf8.h"

#include <stdint.h>

struct str view_trim(struct str s)
{
    while (s.n > 0 && ascii_is_space(s.p[0]))
        s = str_skip(s, 1);
    while (s.n > 0 && ascii_is_space(s.p[s.n - 1]))
        s.n--;
    return s;
}

enum view_type view_type(struct str value)
{
    if (value.n == 0)
        return VIEW_NONE;
    switch (value.p[0]) {
    case '{': return VIEW_OBJECT;
    case '[': return VIEW_ARRAY;
    case '"': return VIEW_STRING;
    case 't':
    case 'f': return VIEW_BOOL;
    case 'n': return VIEW_NULL;
    default: return VIEW_NUMBER;
    }
}

/* The three below take where a token begins and return the place behind it. The text is valid, so
 * that brackets and quotes need no bounds; only a number or word can stand at its end. */

/* memchr stops at the quote that ends it, which is there: so it needs no bound. */
static const char *json_view_skip_string(const char *p)
{
    for (const char *open = p++;; p++) {
        p = memchr(p, '"', PTRDIFF_MAX / 2);
        const char *slash = p;
        while (slash > open + 1 && slash[-1] == '\\')
            slash--;
        if ((p - slash) % 2 == 0)
            return p + 1;
    }
}

static const char *skip_brackets(const char *p)
{
    size_t depth = 0;
    do {
        if (*p == '"') {
            p = json_view_skip_string(p);
            continue;
        }
        if (*p == '{' || *p == '[')
            depth++;
        else if (*p == '}' || *p == ']')
            depth--;
        p++;
    } while (depth > 0);
    return p;
}

static const char *skip_word(const char *p, const char *end)
{
    while (p < end && *p != ',' && *p != '}' && *p != ']' && !ascii_is_space(*p))
        p++;
    return p;
}

size_t view_depth(struct str value)
{
    size_t depth = 0, deepest = 0;
    for (const char *p = value.p, *end = p + value.n; p < end;) {
        if (*p == '"') {
            p = json_view_skip_string(p);
            continue;
        }
        if ((*p == '{' || *p == '[') && ++depth > deepest)
            deepest = depth;
        else if (*p == '}' || *p == ']')
            depth--;
        p++;
    }
    return deepest;
}

struct str view_inside(struct str value)
{
    return str_of(value.p + 1, value.n - 2);
}

static void json_view_skip_space(struct str *s)
{
    while (s->n > 0 && ascii_is_space(s->p[0]))
        *s = str_skip(*s, 1);
}

static struct str json_view_take_value(struct str *rest)
{
    const char *p = rest->p, *end;
    if (*p == '"')
        end = json_view_skip_string(p);
    else if (*p == '{' || *p == '[')
        end = skip_brackets(p);
    else
        end = skip_word(p, p + rest->n);
    struct str value = str_of(p, (size_t)(end - p));
    *rest = str_skip(*rest, value.n);
    return value;
}

/* Behind a value: past the comma, if another one follows. */
static void skip_comma(struct str *rest)
{
    json_view_skip_space(rest);
    if (rest->n > 0)
        *rest = str_skip(*rest, 1);
}

bool view_element(struct str *rest, struct str *value)
{
    json_view_skip_space(rest);
    if (rest->n == 0)
        return false;
    *value = json_view_take_value(rest);
    skip_comma(rest);
    return true;
}

bool view_member(struct str *rest, struct str *name, struct str *value)
{
    json_view_skip_space(rest);
    if (rest->n == 0)
        return false;
    *name = view_inside(json_view_take_value(rest));
    skip_comma(rest); /* the colon */
    return view_element(rest, value);
}

/* ---- strings ---- */

/* The four digits of a \u at p, in a text that is valid. */
static uint32_t unit_at(const char *p)
{
    uint32_t unit = 0;
    for (int i = 2; i < 6; i++)
        unit = unit << 4 | (uint32_t)hex_value(p[i]);
    return unit;
}

/* A \u escape, and the second half of its pair. */
static size_t unescape_unit(struct str *inside, char out[4])
{
    struct str s = *inside;
    uint32_t c = unit_at(s.p), low = 0;
    if (c >= 0xd800 && c < 0xdc00 && s.n >= 12 && s.p[6] == '\\' && s.p[7] == 'u')
        low = unit_at(s.p + 6);
    bool paired = low >= 0xdc00 && low < 0xe000;
    *inside = str_skip(s, paired ? 12 : 6);
    return utf8_encode(paired ? 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00)) : c, out);
}

size_t view_unescape(struct str *inside, char out[4])
{
    char c = inside->p[1];
    switch (c) {
    case 'u': return unescape_unit(inside, out);
    case 'b': c = '\b'; break;
    case 'f': c = '\f'; break;
    case 'n': c = '\n'; break;
    case 'r': c = '\r'; break;
    case 't': c = '\t'; break;
    default: break;
    }
    out[0] = c;
    *inside = str_skip(*inside, 2);
    return 1;
}

bool view_decode_to(struct str inside, char *out, size_t *n)
{
    char *to = out;
    bool paired = true;
    while (inside.n > 0) {
        const char *slash = memchr(inside.p, '\\', inside.n);
        size_t run = slash != NULL ? (size_t)(slash - inside.p) : inside.n;
        memmove(to, inside.p, run);
        to += run;
        inside = str_skip(inside, run);
        if (inside.n == 0)
            break;
        char c[4];
        size_t size = view_unescape(&inside, c);
        paired = paired && !view_is_half(c);
        memcpy(to, c, size);
        to += size;
    }
    *n = (size_t)(to - out);
    return paired;
}

static bool is_escaped(struct str inside)
{
    return inside.n > 0 && memchr(inside.p, '\\', inside.n) != NULL;
}

static bool decodes_to(struct str inside, struct str text)
{
    while (inside.n > 0) {
        char c[4] = {inside.p[0]};
        size_t n = 1;
        if (inside.p[0] == '\\')
            n = view_unescape(&inside, c);
        else
            inside = str_skip(inside, 1);
        if (!str_starts(text, str_of(c, n)))
            return false;
        text = str_skip(text, n);
    }
    return text.n == 0;
}

bool view_name_is(struct str name, struct str text)
{
    return is_escaped(name) ? decodes_to(name, text) : str_eq(name, text);
}

bool view_text_is(struct str value, struct str text)
{
    if (view_type(value) != VIEW_STRING)
        return false;
    return view_name_is(view_inside(value), text);
}

void view_pick(struct str object, struct view_want *wants, size_t n)
{
    struct str rest = view_inside(object), name, value;
    for (size_t i = 0; i < n; i++)
        wants[i].value = STR_NONE;
    while (view_member(&rest, &name, &value)) {
        bool escaped = is_escaped(name);
        for (size_t i = 0; i < n; i++) {
            if (escaped ? decodes_to(name, wants[i].name) : str_eq(name, wants[i].name)) {
                wants[i].value = value;
                break;
            }
        }
    }
}
