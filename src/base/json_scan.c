// SPDX-License-Identifier: Apache-2.0
#include "base/json_core.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/hex.h"
#include "base/utf8.h"

/* Moves *p past white space; is c there? Most documents have no white space. */
static inline bool next_is(struct json_scan *s, const char **p, char c)
{
    if (*p < s->end && **p == c)
        return true;
    *p = json_scan_space(s, *p);
    return *p < s->end && **p == c;
}

/* A \u escape of half a surrogate pair is legal JSON, so it passes. */
static const char *scan_escape(struct json_scan *s, const char *p)
{
    p++;
    if (p == s->end || *p == '\0' || strchr("\"\\/bfnrtu", *p) == NULL)
        return json_scan_fail(s, p);
    if (*p++ != 'u')
        return p;
    for (int i = 0; i < 4; i++, p++)
        if (p == s->end || hex_value(*p) < 0)
            return json_scan_fail(s, p);
    return p;
}

static const char *scan_utf8(struct json_scan *s, const char *p)
{
    while (p < s->end && (unsigned char)*p >= 0x80) {
        size_t n = utf8_length(p, (size_t)(s->end - p));
        if (n == 0)
            return json_scan_fail(s, p);
        p += n;
    }
    return p;
}

/* From a byte within a string that is not plain to behind its closing quote. */
static const char *scan_string_rest(struct json_scan *s, const char *p)
{
    while (p < s->end && *p != '"') {
        if (*p == '\\')
            p = scan_escape(s, p);
        else
            p = (unsigned char)*p >= 0x80 ? scan_utf8(s, p) : json_scan_fail(s, p);
        if (p == NULL)
            return NULL;
        p = skip_plain(p, s->end);
    }
    return p < s->end ? p + 1 : json_scan_fail(s, p);
}

static inline const char *scan_string(struct json_scan *s, const char *p)
{
    p = skip_plain(p + 1, s->end);
    return p < s->end && *p == '"' ? p + 1 : scan_string_rest(s, p);
}

static const char *scan_digits(struct json_scan *s, const char *p)
{
    if (p == s->end || !ascii_is_digit(*p))
        return json_scan_fail(s, p);
    do
        p++;
    while (p < s->end && ascii_is_digit(*p));
    return p;
}

static const char *scan_number(struct json_scan *s, const char *p)
{
    if (*p == '-')
        p++;
    p = p < s->end && *p == '0' ? p + 1 : scan_digits(s, p);
    if (p != NULL && p < s->end && *p == '.')
        p = scan_digits(s, p + 1);
    if (p == NULL || p == s->end || (*p | 0x20) != 'e')
        return p;
    p++;
    if (p < s->end && (*p == '+' || *p == '-'))
        p++;
    return scan_digits(s, p);
}

static const char *scan_word(struct json_scan *s, const char *p, const char *word)
{
    for (; *word != '\0'; word++, p++)
        if (p == s->end || *p != *word)
            return json_scan_fail(s, p);
    return p;
}

/* A member's name and its colon. */
static const char *scan_name(struct json_scan *s, const char *p)
{
    if (!next_is(s, &p, '"'))
        return json_scan_fail(s, p);
    p = scan_string(s, p);
    if (p == NULL)
        return NULL;
    return next_is(s, &p, ':') ? p + 1 : json_scan_fail(s, p);
}

/* An opening bracket: to its first value with the depth one up, or past its closing bracket. */
static const char *scan_open(struct json_scan *s, const char *p)
{
    if (s->depth == s->depth_max)
        return json_scan_fail(s, p);
    char close = *p++ == '{' ? '}' : ']';
    if (next_is(s, &p, close))
        return p + 1;
    s->close[s->depth++] = close;
    return close == '}' ? scan_name(s, p) : p;
}

/* Behind a value: past closing brackets and a comma to the next value or, when none is open any
 * more (depth 0), behind the whole. */
static const char *scan_after(struct json_scan *s, const char *p)
{
    while (s->depth > 0) {
        char close = s->close[s->depth - 1];
        if (next_is(s, &p, ','))
            return close == '}' ? scan_name(s, p + 1) : p + 1;
        if (p == s->end || *p != close)
            return json_scan_fail(s, p);
        s->depth--;
        p++;
    }
    return p;
}

const char *json_scan_value(struct json_scan *s, const char *p)
{
    for (;;) {
        unsigned depth = s->depth;
        if (p == s->end)
            return json_scan_fail(s, p);
        switch (*p) {
        case '{':
        case '[': p = scan_open(s, p); break;
        case '"': p = scan_string(s, p); break;
        case 't': p = scan_word(s, p, "true"); break;
        case 'f': p = scan_word(s, p, "false"); break;
        case 'n': p = scan_word(s, p, "null"); break;
        case ' ':
        case '\t':
        case '\n':
        case '\r': p = json_scan_space(s, p); continue;
        default:
            p = *p == '-' || ascii_is_digit(*p) ? scan_number(s, p) : json_scan_fail(s, p);
            break;
        }
        if (p != NULL && s->depth == depth)
            p = scan_after(s, p);
        if (p == NULL || s->depth == 0)
            return p;
    }
}

int json_scan_end(struct json_scan *s, const char *p, const char *start, size_t *at)
{
    if (p != NULL)
        p = json_scan_space(s, p);
    if (p == s->end)
        return 0;
    *at = (size_t)((p != NULL ? p : s->bad) - start);
    return ERR_JSON;
}

int json_check(struct str text, size_t *at)
{
    struct json_scan s;
    if (text.n == 0) {
        *at = 0;
        return ERR_JSON;
    }
    json_scan_init(&s, text);
    return json_scan_end(&s, json_scan_value(&s, json_scan_space(&s, text.p)), text.p, at);
}

size_t json_escape(char c, char out[JSON_ESCAPE_MAX])
{
    static const char letters[0x20] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    unsigned char i = (unsigned char)c;
    out[0] = '\\';
    if (i >= 0x20 || letters[i] != 0) {
        out[1] = i >= 0x20 ? c : letters[i];
        return 2;
    }
    memcpy(out + 1, "u00", 3);
    hex_encode(&i, 1, out + 4);
    return 6;
}
