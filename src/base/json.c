// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/must.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* A scan_ function takes the place where its token begins and returns the place behind it, or
 * NULL with s->bad set. Nothing is looked at twice but by memcpy. */
struct scan {
    const char *end, *bad;
    bool broken; /* a CR or LF stood between two tokens */
    unsigned depth, depth_max;
    char close[JSON_DEPTH_MAX]; /* what ends each open array or object */
};

static void scan_init(struct scan *s, struct str text)
{
    /* Field by field: clearing close[] would cost as much as scanning a small document. */
    s->end = text.p + text.n;
    s->bad = NULL;
    s->broken = false;
    s->depth = 0;
    s->depth_max = JSON_DEPTH_MAX;
}

static const char *json_fail(struct scan *s, const char *at)
{
    s->bad = at;
    return NULL;
}

static bool is_hex(char c)
{
    return ascii_is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

static bool is_between(unsigned char c, unsigned char low, unsigned char high)
{
    return c >= low && c <= high;
}

/* The length of the well-formed UTF-8 sequence at p (not ASCII), 0 if there is none. The first byte
 * narrows the second, which shuts out overlong forms, surrogates and what lies above U+10FFFF. */
static size_t utf8_length(const char *text, size_t left)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0xc2 || p[0] > 0xf4 || left < 2)
        return 0;
    unsigned char low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (!is_between(p[1], low, high))
        return 0;
    if (p[0] < 0xe0)
        return 2;
    if (left < 3 || !is_between(p[2], 0x80, 0xbf))
        return 0;
    if (p[0] < 0xf0)
        return 3;
    return left >= 4 && is_between(p[3], 0x80, 0xbf) ? 4 : 0;
}

/* A plain byte of a string means itself and needs no check: ASCII but for control bytes, the quote
 * and the backslash. find_odd gives a mask with a bit set for bytes that are not plain, BITS apart;
 * exact for the first such byte of STEP. */
static bool json_is_plain(char c)
{
    return (unsigned char)c >= 0x20 && (unsigned char)c < 0x80 && c != '"' && c != '\\';
}

#ifdef __SSE2__
#define STEP 16
#define BITS 1

static inline uint64_t find_odd(const char *p)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    __m128i below = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20)); /* signed: from 0x80 up as well */
    __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
    __m128i slash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(below, _mm_or_si128(quote, slash)));
}

#else
#define STEP         8
#define BITS         8
#define EACH_BYTE(c) (0x0101010101010101u * (c))

/* A byte's top bit ends up set if it was set (not ASCII) or if a subtraction went below zero: 0x20
 * from a control byte, 1 from a quote or backslash that the XOR made zero. A borrow can only blame
 * bytes behind the first that is not plain. */
static inline uint64_t find_odd(const char *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    w = __builtin_bswap64(w);
#endif
    return (w | (w - EACH_BYTE(0x20)) | ((w ^ EACH_BYTE('"')) - EACH_BYTE(1)) |
            ((w ^ EACH_BYTE('\\')) - EACH_BYTE(1))) &
           EACH_BYTE(0x80);
}
#endif

static inline const char *skip_plain(const char *p, const char *end)
{
    for (; end - p >= STEP; p += STEP) {
        uint64_t odd = find_odd(p);
        if (odd != 0)
            return p + __builtin_ctzll(odd) / BITS;
    }
    while (p < end && json_is_plain(*p))
        p++;
    return p;
}

static const char *json_skip_space(struct scan *s, const char *p)
{
    for (; p < s->end; p++) {
        if (*p == '\n' || *p == '\r')
            s->broken = true;
        else if (*p != ' ' && *p != '\t')
            break;
    }
    return p;
}

/* Moves *p past white space; is c there? Most documents have no white space. */
static inline bool next_is(struct scan *s, const char **p, char c)
{
    if (*p < s->end && **p == c)
        return true;
    *p = json_skip_space(s, *p);
    return *p < s->end && **p == c;
}

/* A \u escape of half a surrogate pair is legal JSON, so it passes. */
static const char *scan_escape(struct scan *s, const char *p)
{
    p++;
    if (p == s->end || *p == '\0' || strchr("\"\\/bfnrtu", *p) == NULL)
        return json_fail(s, p);
    if (*p++ != 'u')
        return p;
    for (int i = 0; i < 4; i++, p++)
        if (p == s->end || !is_hex(*p))
            return json_fail(s, p);
    return p;
}

static const char *scan_utf8(struct scan *s, const char *p)
{
    while (p < s->end && (unsigned char)*p >= 0x80) {
        size_t n = utf8_length(p, (size_t)(s->end - p));
        if (n == 0)
            return json_fail(s, p);
        p += n;
    }
    return p;
}

/* From a byte within a string that is not plain to behind its closing quote. */
static const char *scan_string_rest(struct scan *s, const char *p)
{
    while (p < s->end && *p != '"') {
        if (*p == '\\')
            p = scan_escape(s, p);
        else
            p = (unsigned char)*p >= 0x80 ? scan_utf8(s, p) : json_fail(s, p);
        if (p == NULL)
            return NULL;
        p = skip_plain(p, s->end);
    }
    return p < s->end ? p + 1 : json_fail(s, p);
}

static inline const char *scan_string(struct scan *s, const char *p)
{
    p = skip_plain(p + 1, s->end);
    return p < s->end && *p == '"' ? p + 1 : scan_string_rest(s, p);
}

static const char *scan_digits(struct scan *s, const char *p)
{
    if (p == s->end || !ascii_is_digit(*p))
        return json_fail(s, p);
    do
        p++;
    while (p < s->end && ascii_is_digit(*p));
    return p;
}

static const char *scan_number(struct scan *s, const char *p)
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

static const char *scan_word(struct scan *s, const char *p, const char *word)
{
    for (; *word != '\0'; word++, p++)
        if (p == s->end || *p != *word)
            return json_fail(s, p);
    return p;
}

/* A member's name and its colon. */
static const char *scan_name(struct scan *s, const char *p)
{
    if (!next_is(s, &p, '"'))
        return json_fail(s, p);
    p = scan_string(s, p);
    if (p == NULL)
        return NULL;
    return next_is(s, &p, ':') ? p + 1 : json_fail(s, p);
}

/* An opening bracket: to its first value with the depth one up, or past its closing bracket. */
static const char *scan_open(struct scan *s, const char *p)
{
    if (s->depth == s->depth_max)
        return json_fail(s, p);
    char close = *p++ == '{' ? '}' : ']';
    if (next_is(s, &p, close))
        return p + 1;
    s->close[s->depth++] = close;
    return close == '}' ? scan_name(s, p) : p;
}

/* Behind a value: past closing brackets and a comma to the next value or, when none is open any
 * more (depth 0), behind the whole. */
static const char *scan_after(struct scan *s, const char *p)
{
    while (s->depth > 0) {
        char close = s->close[s->depth - 1];
        if (next_is(s, &p, ','))
            return close == '}' ? scan_name(s, p + 1) : p + 1;
        if (p == s->end || *p != close)
            return json_fail(s, p);
        s->depth--;
        p++;
    }
    return p;
}

/* One value with all it contains, behind any white space. */
static const char *json_scan_value(struct scan *s, const char *p)
{
    for (;;) {
        unsigned depth = s->depth;
        if (p == s->end)
            return json_fail(s, p);
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
        case '\r': p = json_skip_space(s, p); continue;
        default: p = *p == '-' || ascii_is_digit(*p) ? scan_number(s, p) : json_fail(s, p); break;
        }
        if (p != NULL && s->depth == depth)
            p = scan_after(s, p);
        if (p == NULL || s->depth == 0)
            return p;
    }
}

/* Nothing but white space may follow. */
static int scan_end(struct scan *s, const char *p, const char *start, size_t *at)
{
    if (p != NULL)
        p = json_skip_space(s, p);
    if (p == s->end)
        return 0;
    *at = (size_t)((p != NULL ? p : s->bad) - start);
    return ERR_JSON;
}

int json_check(struct str text, size_t *at)
{
    struct scan s;
    if (text.n == 0) {
        *at = 0;
        return ERR_JSON;
    }
    scan_init(&s, text);
    return scan_end(&s, json_scan_value(&s, json_skip_space(&s, text.p)), text.p, at);
}

/* Line breaks stand between tokens only, or the value would not have been valid. */
static char *copy_unbroken(char *to, const char *p, const char *end)
{
    for (; p < end; p++)
        if (*p != '\n' && *p != '\r')
            *to++ = *p;
    return to;
}

/* One value into *out, which has the room, as an event. */
static const char *split_value(struct scan *s, const char *p, struct buf *out, struct buf *ends)
{
    s->broken = false;
    const char *end = json_scan_value(s, p);
    if (end == NULL)
        return NULL;
    char *to = out->p + out->n;
    if (s->broken) {
        to = copy_unbroken(to, p, end);
    } else {
        memcpy(to, p, (size_t)(end - p));
        to += end - p;
    }
    *to++ = ',';
    uint32_t event_end = (uint32_t)(to - out->p);
    out->n = event_end;
    memcpy(buf_reserve(ends, sizeof event_end), &event_end, sizeof event_end);
    ends->n += sizeof event_end;
    return end;
}

static const char *split_array(struct scan *s, const char *p, struct buf *out, struct buf *ends)
{
    s->depth_max--; /* its own brackets are not counted by json_scan_value */
    p = json_skip_space(s, p + 1);
    if (p < s->end && *p == ']')
        return p + 1;
    while ((p = split_value(s, p, out, ends)) != NULL) {
        p = json_skip_space(s, p);
        if (p < s->end && *p == ']')
            return p + 1;
        if (p == s->end || *p != ',')
            return json_fail(s, p);
        p = json_skip_space(s, p + 1);
    }
    return NULL;
}

int json_split(struct str text, struct buf *out, struct buf *ends, size_t *at)
{
    struct scan s;
    size_t out_n = out->n, ends_n = ends->n;
    if (text.n == 0) {
        *at = 0;
        return ERR_JSON;
    }
    must(out_n + text.n < UINT32_MAX);
    buf_reserve(out, text.n + 1); /* a comma takes a separator's place, but for a lone value */
    scan_init(&s, text);
    const char *p = json_skip_space(&s, text.p);
    bool array = p < s.end && *p == '[';
    p = array ? split_array(&s, p, out, ends) : split_value(&s, p, out, ends);
    int err = scan_end(&s, p, text.p, at);
    if (err != 0) {
        out->n = out_n;
        ends->n = ends_n;
    }
    return err;
}

static void json_put_escaped(struct buf *out, unsigned char c)
{
    static const char letters[0x20] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    if (c >= 0x20 || letters[c] != 0) {
        buf_putc(out, '\\');
        buf_putc(out, c >= 0x20 ? (char)c : letters[c]);
    } else {
        buf_printf(out, "\\u%04x", (unsigned)c);
    }
}

void json_put_string(struct buf *out, struct str s)
{
    const char *p = s.p, *end = s.n > 0 ? s.p + s.n : s.p;
    buf_putc(out, '"');
    while (p < end) {
        const char *odd = skip_plain(p, end);
        buf_put(out, str_of(p, (size_t)(odd - p)));
        p = odd;
        if (p == end)
            break;
        if ((unsigned char)*p < 0x80) {
            json_put_escaped(out, (unsigned char)*p++);
            continue;
        }
        size_t n = utf8_length(p, (size_t)(end - p));
        buf_put(out, n > 0 ? str_of(p, n) : STR("\xef\xbf\xbd"));
        p += n > 0 ? n : 1;
    }
    buf_putc(out, '"');
}
