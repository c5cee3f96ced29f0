// SPDX-License-Identifier: Apache-2.0
#include "base/json_view.h"
#include "base/arena.h"

#include <stdint.h>

static bool json_view_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

struct str view_trim(struct str s)
{
    while (s.n > 0 && json_view_is_space(s.p[0]))
        s = str_skip(s, 1);
    while (s.n > 0 && json_view_is_space(s.p[s.n - 1]))
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

static const char *json_view_skip_string(const char *p)
{
    for (p++; *p != '"'; p++)
        if (*p == '\\')
            p++;
    return p + 1;
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
    while (p < end && *p != ',' && *p != '}' && *p != ']' && !json_view_is_space(*p))
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
    while (s->n > 0 && json_view_is_space(s->p[0]))
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

static unsigned json_view_hex_digit(char c)
{
    return c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a' + 10);
}

/* The four digits of a \u at p. */
static unsigned unit_at(const char *p)
{
    return json_view_hex_digit(p[2]) << 12 | json_view_hex_digit(p[3]) << 8 |
           json_view_hex_digit(p[4]) << 4 | json_view_hex_digit(p[5]);
}

static void put_point(struct buf *out, uint32_t c)
{
    char *p = buf_reserve(out, 4);
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6)
        p[i] = (char)(0x80 | (c & 0x3f));
    p[0] = (char)(lead[n] | c);
    out->n += n;
}

/* A \u escape, and the second half of its pair. Returns the bytes it took. */
static size_t decode_unit(struct str s, struct buf *out)
{
    uint32_t c = unit_at(s.p);
    if (c >= 0xd800 && c < 0xdc00 && s.n >= 12 && s.p[6] == '\\' && s.p[7] == 'u') {
        unsigned low = unit_at(s.p + 6);
        if (low >= 0xdc00 && low < 0xe000) {
            put_point(out, 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00)));
            return 12;
        }
    }
    put_point(out, c);
    return 6;
}

static size_t decode_escape(struct str s, struct buf *out)
{
    switch (s.p[1]) {
    case 'b': buf_putc(out, '\b'); return 2;
    case 'f': buf_putc(out, '\f'); return 2;
    case 'n': buf_putc(out, '\n'); return 2;
    case 'r': buf_putc(out, '\r'); return 2;
    case 't': buf_putc(out, '\t'); return 2;
    case 'u': return decode_unit(s, out);
    default: buf_putc(out, s.p[1]); return 2;
    }
}

void view_decode(struct str inside, struct buf *out)
{
    while (inside.n > 0) {
        const char *slash = memchr(inside.p, '\\', inside.n);
        size_t n = slash != NULL ? (size_t)(slash - inside.p) : inside.n;
        buf_put(out, str_of(inside.p, n));
        inside = str_skip(inside, n);
        if (inside.n > 0)
            inside = str_skip(inside, decode_escape(inside, out));
    }
}

struct str view_text(struct arena *a, struct str value)
{
    struct buf decoded = {0};
    view_decode(view_inside(value), &decoded);
    struct str text = decoded.n > 0 ? arena_dup(a, buf_str(&decoded)) : STR("");
    buf_deinit(&decoded);
    return text;
}

static bool is_escaped(struct str inside)
{
    return inside.n > 0 && memchr(inside.p, '\\', inside.n) != NULL;
}

static bool decodes_to(struct str inside, struct str text)
{
    /* An escape is at most six times as long as what it stands for. */
    if (inside.n > 6 * text.n)
        return false;
    struct buf decoded = {0};
    view_decode(inside, &decoded);
    bool same = str_eq(buf_str(&decoded), text);
    buf_deinit(&decoded);
    return same;
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

void view_put_unbroken(struct buf *out, struct str value)
{
    char *to = buf_reserve(out, value.n);
    size_t n = 0;
    for (size_t i = 0; i < value.n; i++)
        if (value.p[i] != '\n' && value.p[i] != '\r')
            to[n++] = value.p[i];
    out->n += n;
}
