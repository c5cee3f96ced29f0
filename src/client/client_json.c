// SPDX-License-Identifier: Apache-2.0
#include "client/client_json.h"
#include "base/utf8.h"

#include <stdint.h>

/* A scan_ function takes the place where its token begins and returns the place behind it, or NULL
 * when there is no such token. */
struct scan {
    const char *end;
    unsigned depth;
    uint8_t is_object[JSON_DEPTH_MAX / 8]; /* a bit for each level that is open */
};

static const char *client_json_skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
        p++;
    return p;
}

static bool client_json_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int client_json_hex_value(char c)
{
    if (client_json_is_digit(c))
        return c - '0';
    char low = (char)(c | 0x20);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

static const char *scan_escape(const char *p, const char *end)
{
    if (++p == end || *p == '\0' || strchr("\"\\/bfnrtu", *p) == NULL)
        return NULL;
    if (*p++ != 'u')
        return p;
    for (int i = 0; i < 4; i++, p++)
        if (p == end || client_json_hex_value(*p) < 0)
            return NULL;
    return p;
}

/* p stands on the opening quote. */
static const char *scan_string(const char *p, const char *end)
{
    const char *from = ++p;
    while (p && p < end && *p != '"') {
        if ((unsigned char)*p < 0x20)
            return NULL;
        p = *p == '\\' ? scan_escape(p, end) : p + 1;
    }
    if (p == NULL || p == end || !utf8_valid(str_of(from, (size_t)(p - from))))
        return NULL;
    return p + 1;
}

static const char *scan_digits(const char *p, const char *end)
{
    if (p == end || !client_json_is_digit(*p))
        return NULL;
    while (p < end && client_json_is_digit(*p))
        p++;
    return p;
}

static const char *scan_number(const char *p, const char *end)
{
    if (*p == '-')
        p++;
    p = p < end && *p == '0' ? p + 1 : scan_digits(p, end);
    if (p && p < end && *p == '.')
        p = scan_digits(p + 1, end);
    if (p == NULL || p == end || (*p | 0x20) != 'e')
        return p;
    p++;
    if (p < end && (*p == '+' || *p == '-'))
        p++;
    return scan_digits(p, end);
}

static const char *scan_word(const char *p, const char *end, struct str word)
{
    return str_starts(str_of(p, (size_t)(end - p)), word) ? p + word.n : NULL;
}

/* A member's name and its colon. */
static const char *scan_name(const char *p, const char *end)
{
    p = client_json_skip_space(p, end);
    if (p == end || *p != '"')
        return NULL;
    p = scan_string(p, end);
    if (p == NULL)
        return NULL;
    p = client_json_skip_space(p, end);
    return p < end && *p == ':' ? p + 1 : NULL;
}

static bool in_object(const struct scan *s)
{
    unsigned level = s->depth - 1;
    return s->is_object[level / 8] >> level % 8 & 1;
}

/* An opening bracket: to its first value with the depth one up, or past its closing bracket. */
static const char *scan_open(struct scan *s, const char *p)
{
    bool object = *p == '{';
    if (s->depth == JSON_DEPTH_MAX)
        return NULL;
    p = client_json_skip_space(p + 1, s->end);
    if (p < s->end && *p == (object ? '}' : ']'))
        return p + 1;
    uint8_t bit = (uint8_t)(1u << s->depth % 8);
    if (object)
        s->is_object[s->depth / 8] |= bit;
    else
        s->is_object[s->depth / 8] &= (uint8_t)~bit;
    s->depth++;
    return object ? scan_name(p, s->end) : p;
}

/* Behind a value: past closing brackets and a comma to the next value or, when nothing is open any
 * more, behind the whole. */
static const char *scan_after(struct scan *s, const char *p)
{
    while (s->depth > 0) {
        p = client_json_skip_space(p, s->end);
        if (p == s->end)
            return NULL;
        bool object = in_object(s);
        if (*p == ',')
            return object ? scan_name(p + 1, s->end) : p + 1;
        if (*p != (object ? '}' : ']'))
            return NULL;
        s->depth--;
        p++;
    }
    return p;
}

static const char *scan_scalar(const char *p, const char *end)
{
    switch (*p) {
    case '"': return scan_string(p, end);
    case 't': return scan_word(p, end, STR("true"));
    case 'f': return scan_word(p, end, STR("false"));
    case 'n': return scan_word(p, end, STR("null"));
    default: return *p == '-' || client_json_is_digit(*p) ? scan_number(p, end) : NULL;
    }
}

/* One value with all it contains, white space before it included. */
static const char *client_json_scan_value(const char *p, const char *end)
{
    struct scan s;
    s.end = end;
    s.depth = 0;
    do {
        p = client_json_skip_space(p, end);
        if (p == end)
            return NULL;
        unsigned depth = s.depth;
        p = *p == '{' || *p == '[' ? scan_open(&s, p) : scan_scalar(p, end);
        if (p && s.depth == depth)
            p = scan_after(&s, p);
    } while (p && s.depth > 0);
    return p;
}

bool json_valid(struct str text)
{
    if (text.n == 0)
        return false;
    const char *end = text.p + text.n;
    const char *p = client_json_scan_value(text.p, end);
    return p && client_json_skip_space(p, end) == end;
}

/* -- arrays and objects ----------------------------------------------------------------------- */

/* Behind the opening bracket of a valid text. */
static bool enter(struct json_array *a, struct str text, char bracket)
{
    if (!json_valid(text))
        return false;
    a->end = text.p + text.n;
    a->p = client_json_skip_space(text.p, a->end);
    return *a->p++ == bracket;
}

bool json_array_begin(struct json_array *a, struct str text)
{
    return enter(a, text, '[');
}

/* The text is known to be valid, so a value is there, or the end. */
static bool client_json_take_value(struct json_array *a, struct str *value)
{
    const char *from = client_json_skip_space(a->p, a->end);
    const char *end = client_json_scan_value(from, a->end);
    if (end == NULL)
        return false;
    *value = str_of(from, (size_t)(end - from));
    a->p = client_json_skip_space(end, a->end);
    if (a->p < a->end && *a->p == ',')
        a->p++;
    return true;
}

static bool at_end(struct json_array *a, char bracket)
{
    a->p = client_json_skip_space(a->p, a->end);
    return a->p == a->end || *a->p == bracket;
}

bool json_array_ended(struct json_array *a)
{
    return at_end(a, ']');
}

bool json_array_next(struct json_array *a, struct str *value)
{
    return !at_end(a, ']') && client_json_take_value(a, value);
}

bool json_member(struct str object, struct str name, struct str *value)
{
    struct json_array a;
    if (!enter(&a, object, '{'))
        return false;
    while (!at_end(&a, '}')) {
        const char *quote = a.p;
        a.p = scan_string(quote, a.end);
        struct str found = str_of(quote + 1, (size_t)(a.p - quote) - 2);
        a.p = client_json_skip_space(a.p, a.end) + 1; /* past the colon */
        if (!client_json_take_value(&a, value))
            return false;
        if (str_eq(found, name))
            return true;
    }
    return false;
}

bool json_member_is_true(struct str object, struct str name)
{
    struct str value;
    return json_member(object, name, &value) && str_eq(value, STR("true"));
}

/* -- texts ------------------------------------------------------------------------------------ */

struct text_out {
    char *p;
    size_t room; /* the NUL's place not counted */
    bool full;
};

static void client_json_put(struct text_out *o, unsigned byte)
{
    if (o->room == 0) {
        o->full = true;
        return;
    }
    *o->p++ = (char)byte;
    o->room--;
}

static void put_utf8(struct text_out *o, uint32_t c)
{
    if (c < 0x80) {
        client_json_put(o, c);
    } else if (c < 0x800) {
        client_json_put(o, 0xc0 | c >> 6);
        client_json_put(o, 0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        client_json_put(o, 0xe0 | c >> 12);
        client_json_put(o, 0x80 | (c >> 6 & 0x3f));
        client_json_put(o, 0x80 | (c & 0x3f));
    } else {
        client_json_put(o, 0xf0 | c >> 18);
        client_json_put(o, 0x80 | (c >> 12 & 0x3f));
        client_json_put(o, 0x80 | (c >> 6 & 0x3f));
        client_json_put(o, 0x80 | (c & 0x3f));
    }
}

static uint32_t hex4(const char *p)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v = v << 4 | (uint32_t)client_json_hex_value(p[i]);
    return v;
}

/* p stands behind `\u`; a pair of surrogates is one character, half a pair is U+FFFD. */
static const char *put_unicode(struct text_out *o, const char *p, const char *end)
{
    uint32_t c = hex4(p);
    p += 4;
    if (c < 0xd800 || c > 0xdfff) {
        put_utf8(o, c);
        return p;
    }
    uint32_t low = c <= 0xdbff && end - p >= 6 && p[0] == '\\' && p[1] == 'u' ? hex4(p + 2) : 0;
    if (low < 0xdc00 || low > 0xdfff) {
        put_utf8(o, 0xfffd);
        return p;
    }
    put_utf8(o, 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00));
    return p + 6;
}

static const char *put_escape(struct text_out *o, const char *p, const char *end)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    if (*p == 'u')
        return put_unicode(o, p + 1, end);
    const char *letter = strchr(from, *p);
    client_json_put(o, (unsigned char)(letter ? to[letter - from] : *p));
    return p + 1;
}

bool json_member_text(struct str object, struct str name, char *out, size_t size)
{
    struct str value;
    out[0] = '\0';
    if (!json_member(object, name, &value) || value.p[0] != '"')
        return false;
    struct text_out o = {.p = out, .room = size - 1};
    const char *p = value.p + 1, *end = value.p + value.n - 1;
    while (p < end)
        if (*p == '\\')
            p = put_escape(&o, p + 1, end);
        else
            client_json_put(&o, (unsigned char)*p++);
    *o.p = '\0';
    bool ok = !o.full && strlen(out) == (size_t)(o.p - out);
    if (!ok)
        out[0] = '\0';
    return ok;
}
