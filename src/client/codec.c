// SPDX-License-Identifier: Apache-2.0
#include "client/codec.h"
#include "base/num.h"
#include "base/utf8.h"

static const char standard[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url_safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* ---- base64 ---- */

/* Characters of n bytes without padding. */
static size_t text_size(size_t n)
{
    return n / 3 * 4 + (n % 3 > 0 ? n % 3 + 1 : 0);
}

static void encode(const char *alphabet, struct str s, char *to)
{
    const unsigned char *p = (const unsigned char *)s.p;
    for (size_t i = 0; i < s.n; i += 3) {
        size_t n = s.n - i < 3 ? s.n - i : 3;
        uint32_t v = (uint32_t)p[i] << 16;
        if (n > 1)
            v |= (uint32_t)p[i + 1] << 8;
        if (n > 2)
            v |= p[i + 2];
        for (size_t k = 0; k <= n; k++)
            *to++ = alphabet[v >> (18 - 6 * k) & 63];
    }
}

int codec_put_base64(struct tm_client *c, struct bytes *out, struct str s)
{
    size_t n = text_size(s.n), padded = (n + 3) / 4 * 4;
    char *to = bytes_room(c, out, padded);
    if (to == NULL)
        return TM_E_NOMEM;
    encode(standard, s, to);
    memset(to + n, '=', padded - n);
    out->n += padded;
    out->p[out->n] = '\0';
    return 0;
}

size_t codec_write_base64url(struct str s, char *out)
{
    encode(url_safe, s, out);
    return text_size(s.n);
}

int codec_put_base64url(struct tm_client *c, struct bytes *out, struct str s)
{
    size_t n = text_size(s.n);
    char *to = bytes_room(c, out, n);
    if (to == NULL)
        return TM_E_NOMEM;
    encode(url_safe, s, to);
    out->n += n;
    out->p[out->n] = '\0';
    return 0;
}

static int codec_value_of(const char *alphabet, char ch)
{
    const char *at = ch == '\0' ? NULL : strchr(alphabet, ch);
    return at == NULL ? -1 : (int)(at - alphabet);
}

/* text without padding. The bits that stand for nothing must be zero. */
static int codec_decode(const char *alphabet, struct str text, char *out, size_t *n)
{
    uint32_t v = 0;
    unsigned bits = 0;
    size_t put = 0;
    if (text.n % 4 == 1)
        return TM_E_PROTOCOL;
    for (size_t i = 0; i < text.n; i++) {
        int d = codec_value_of(alphabet, text.p[i]);
        if (d < 0)
            return TM_E_PROTOCOL;
        v = v << 6 | (uint32_t)d;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out[put++] = (char)(v >> bits);
            v &= (1u << bits) - 1;
        }
    }
    if (v != 0)
        return TM_E_PROTOCOL;
    *n = put;
    return 0;
}

int codec_take_base64(struct str text, char *out, size_t *n)
{
    if (text.n % 4 != 0)
        return TM_E_PROTOCOL;
    for (int i = 0; i < 2 && text.n > 0 && text.p[text.n - 1] == '='; i++)
        text.n--;
    return codec_decode(standard, text, out, n);
}

int codec_take_base64url(struct str text, uint8_t *out, size_t n)
{
    size_t put;
    if (text.n != text_size(n))
        return TM_E_PROTOCOL;
    return codec_decode(url_safe, text, (char *)out, &put);
}

/* ---- hex ---- */

static const char digits[] = "0123456789abcdef";

int codec_put_hex(struct tm_client *c, struct bytes *out, struct str s)
{
    char *to = s.n > SIZE_MAX / 4 ? NULL : bytes_room(c, out, 2 * s.n);
    if (to == NULL)
        return TM_E_NOMEM;
    for (size_t i = 0; i < s.n; i++) {
        *to++ = digits[(unsigned char)s.p[i] >> 4];
        *to++ = digits[(unsigned char)s.p[i] & 15];
    }
    out->n += 2 * s.n;
    out->p[out->n] = '\0';
    return 0;
}

int codec_take_hex(struct str text, uint8_t *out, size_t n)
{
    if (text.n != 2 * n)
        return TM_E_PROTOCOL;
    for (size_t i = 0; i < n; i++) {
        int high = codec_value_of(digits, text.p[2 * i]),
            low = codec_value_of(digits, text.p[2 * i + 1]);
        if (high < 0 || low < 0)
            return TM_E_PROTOCOL;
        out[i] = (uint8_t)(high << 4 | low);
    }
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
        char ch = r->rest.p[i];
        if (ch >= 'A' && ch <= 'F')
            ch = (char)(ch - 'A' + 'a');
        int d = codec_value_of(digits, ch);
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
    int i = codec_value_of(names, name);
    return i < 0 ? TM_E_PROTOCOL : bytes_put(c, out, str_of(&values[i], 1));
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
