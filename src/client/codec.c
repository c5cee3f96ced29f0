// SPDX-License-Identifier: Apache-2.0
#include "client/codec.h"
#include "base/num.h"
#include "base/utf8.h"

int codec_put_base64(struct tm_client *c, struct bytes *out, struct str s)
{
    char *to = bytes_room(c, out, b64_size(s.n));
    if (to == NULL)
        return TM_E_NOMEM;
    out->n += b64_encode(s, to);
    out->p[out->n] = '\0';
    return 0;
}

int codec_put_base64url(struct tm_client *c, struct bytes *out, struct str s)
{
    char *to = bytes_room(c, out, b64url_size(s.n));
    if (to == NULL)
        return TM_E_NOMEM;
    out->n += b64url_encode(s, to);
    out->p[out->n] = '\0';
    return 0;
}

int codec_put_hex(struct tm_client *c, struct bytes *out, struct str s)
{
    char *to = s.n > SIZE_MAX / 4 ? NULL : bytes_room(c, out, 2 * s.n);
    if (to == NULL)
        return TM_E_NOMEM;
    hex_encode(s.p, s.n, to);
    out->n += 2 * s.n;
    out->p[out->n] = '\0';
    return 0;
}

/* ---- writing JSON ---- */

static int codec_put_escaped(struct tm_client *c, struct bytes *out, char ch)
{
    if (ch == '"' || ch == '\\')
        return bytes_printf(c, out, "\\%c", ch);
    return bytes_printf(c, out, "\\u%04x", (unsigned char)ch);
}

static bool needs_escape(char ch)
{
    return (unsigned char)ch < 0x20 || ch == '"' || ch == '\\' || ch == 0x7f;
}

int codec_put_json(struct tm_client *c, struct bytes *out, struct str s)
{
    size_t before = out->n, from = 0;
    int err = bytes_put(c, out, STR("\""));
    for (size_t i = 0; i <= s.n && err == 0; i++) {
        if (i < s.n && !needs_escape(s.p[i]))
            continue;
        if (i > from)
            err = bytes_put(c, out, str_of(s.p + from, i - from));
        if (i < s.n && err == 0)
            err = codec_put_escaped(c, out, s.p[i]);
        from = i + 1;
    }
    if (err == 0)
        err = bytes_put(c, out, STR("\""));
    if (err != 0)
        out->n = before;
    return err;
}

/* ---- reading JSON ---- */

static bool codec_is_space(char ch)
{
    return ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r';
}

char json_read_peek(struct json_read *r)
{
    while (r->rest.n > 0 && codec_is_space(*r->rest.p))
        r->rest = str_skip(r->rest, 1);
    return r->rest.n > 0 ? *r->rest.p : '\0';
}

int json_read_char(struct json_read *r, char c)
{
    if (json_read_peek(r) != c || r->rest.n == 0)
        return TM_E_PROTOCOL;
    r->rest = str_skip(r->rest, 1);
    return 0;
}

int json_read_item(struct json_read *r, char close, size_t *n)
{
    if (json_read_peek(r) == close)
        return json_read_char(r, close);
    if (*n > 0 && json_read_char(r, ',') != 0)
        return TM_E_PROTOCOL;
    (*n)++;
    return r->rest.n > 0 ? 1 : TM_E_PROTOCOL;
}

static int read_unit(struct json_read *r, uint32_t *unit)
{
    if (r->rest.n < 4)
        return TM_E_PROTOCOL;
    *unit = 0;
    for (size_t i = 0; i < 4; i++) {
        int d = hex_value(r->rest.p[i]);
        if (d < 0)
            return TM_E_PROTOCOL;
        *unit = *unit << 4 | (uint32_t)d;
    }
    r->rest = str_skip(r->rest, 4);
    return 0;
}

/* What follows \u, both halves of a pair. */
static int read_character(struct json_read *r, uint32_t *ch)
{
    uint32_t low;
    int err = read_unit(r, ch);
    if (err != 0 || *ch < 0xd800 || *ch > 0xdfff)
        return err;
    if (*ch > 0xdbff || !str_starts(r->rest, STR("\\u")))
        return TM_E_PROTOCOL;
    r->rest = str_skip(r->rest, 2);
    if (read_unit(r, &low) != 0 || low < 0xdc00 || low > 0xdfff)
        return TM_E_PROTOCOL;
    *ch = 0x10000 + ((*ch - 0xd800) << 10) + (low - 0xdc00);
    return 0;
}

static int put_character(struct tm_client *c, struct bytes *out, uint32_t ch)
{
    char text[4];
    size_t n = ch < 0x80 ? 1 : ch < 0x800 ? 2 : ch < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; ch >>= 6)
        text[i] = (char)(0x80 | (ch & 63));
    text[0] = (char)(first[n] | ch);
    return bytes_put(c, out, str_of(text, n));
}

static int read_escape(struct tm_client *c, struct json_read *r, struct bytes *out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (r->rest.n == 0)
        return TM_E_PROTOCOL;
    char name = *r->rest.p;
    r->rest = str_skip(r->rest, 1);
    if (name == 'u') {
        uint32_t ch;
        int err = read_character(r, &ch);
        return err != 0 ? err : put_character(c, out, ch);
    }
    const char *at = name == '\0' ? NULL : strchr(names, name);
    return at == NULL ? TM_E_PROTOCOL : bytes_put(c, out, str_of(&values[at - names], 1));
}

/* The characters up to the next quote, backslash or byte that may not be there. */
static struct str plain_run(struct json_read *r)
{
    size_t n = 0;
    while (n < r->rest.n && (unsigned char)r->rest.p[n] >= 0x20 && r->rest.p[n] != '"' &&
           r->rest.p[n] != '\\')
        n++;
    struct str run = str_of(r->rest.p, n);
    r->rest = str_skip(r->rest, n);
    return run;
}

int json_read_string(struct tm_client *c, struct json_read *r, struct bytes *out)
{
    int err = json_read_char(r, '"');
    while (err == 0) {
        struct str run = plain_run(r);
        if (!utf8_valid(run) || r->rest.n == 0)
            return TM_E_PROTOCOL;
        err = bytes_put(c, out, run);
        if (err != 0)
            return err;
        char ch = *r->rest.p;
        if (ch != '"' && ch != '\\')
            return TM_E_PROTOCOL;
        r->rest = str_skip(r->rest, 1);
        if (ch == '"')
            return 0;
        err = read_escape(c, r, out);
    }
    return err;
}

int json_read_number(struct json_read *r, uint64_t max, uint64_t *out)
{
    size_t n = 0;
    json_read_peek(r);
    while (n < r->rest.n && r->rest.p[n] >= '0' && r->rest.p[n] <= '9')
        n++;
    if (num_parse_canonical(str_of(r->rest.p, n), max, out) != 0)
        return TM_E_PROTOCOL;
    r->rest = str_skip(r->rest, n);
    return 0;
}

static bool codec_take_word(struct json_read *r, struct str word)
{
    json_read_peek(r);
    if (!str_starts(r->rest, word))
        return false;
    r->rest = str_skip(r->rest, word.n);
    return true;
}

int json_read_bool(struct json_read *r, bool *out)
{
    bool yes = codec_take_word(r, STR("true"));
    if (!yes && !codec_take_word(r, STR("false")))
        return TM_E_PROTOCOL;
    *out = yes;
    return 0;
}

static int codec_skip_string(struct json_read *r)
{
    int err = json_read_char(r, '"');
    while (err == 0) {
        plain_run(r);
        if (r->rest.n == 0 || (*r->rest.p != '"' && *r->rest.p != '\\'))
            return TM_E_PROTOCOL;
        bool ends = *r->rest.p == '"';
        if (!ends && r->rest.n < 2)
            return TM_E_PROTOCOL;
        r->rest = str_skip(r->rest, ends ? 1 : 2);
        if (ends)
            return 0;
    }
    return err;
}

static bool is_scalar(char ch)
{
    return (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || ch == 'E' || ch == '+' ||
           ch == '-' || ch == '.';
}

/* Numbers and words are only told from what may follow them. */
static int skip_scalar(struct json_read *r)
{
    size_t n = 0;
    while (n < r->rest.n && is_scalar(r->rest.p[n]))
        n++;
    if (n == 0)
        return TM_E_PROTOCOL;
    r->rest = str_skip(r->rest, n);
    return 0;
}

static int skip_value(struct json_read *r, unsigned depth)
{
    char open = json_read_peek(r);
    if (open == '"')
        return codec_skip_string(r);
    if (open != '[' && open != '{')
        return skip_scalar(r);
    if (depth == 0)
        return TM_E_PROTOCOL;
    size_t n = 0;
    int more, err = json_read_char(r, open);
    while (err == 0 && (more = json_read_item(r, open == '[' ? ']' : '}', &n)) != 0) {
        err = more < 0 ? more : 0;
        if (err == 0 && open == '{')
            err = codec_skip_string(r);
        if (err == 0 && open == '{')
            err = json_read_char(r, ':');
        if (err == 0)
            err = skip_value(r, depth - 1);
    }
    return err;
}

int json_read_skip(struct json_read *r)
{
    return skip_value(r, JSON_READ_DEPTH);
}

int json_read_end(struct json_read *r)
{
    json_read_peek(r);
    return r->rest.n == 0 ? 0 : TM_E_PROTOCOL;
}
