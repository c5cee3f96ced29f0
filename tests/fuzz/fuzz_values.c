// SPDX-License-Identifier: Apache-2.0
/* fuzz_values.c -- the small parsers: what they accept must survive being written and read again,
 * and must be what a plainer way of reading gives. Its bytes decide to which of them an input
 * goes. */
#include "base/b64.h"
#include "base/date.h"
#include "base/err.h"
#include "base/num.h"
#include "http/url.h"
#include "store/offset.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define INPUT_MAX 160 /* values are short; more bytes cost time and find nothing */

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_values: %s\n", what);
    abort();
}

/* ---- offset ---- */

static void fuzz_offset(struct str text)
{
    struct offset o;
    char written[OFFSET_TEXT];
    if (offset_parse(text, &o) != 0)
        return;
    offset_format(o, written);
    check(str_eq(text, str_of(written, sizeof written)), "an offset has two spellings");
    check(o.life > 0 || o.pos == 0, "an offset in no life");
}

static void fuzz_offset_parts(uint64_t life, uint64_t pos)
{
    struct offset o = {life % (OFFSET_PART_MAX + 1), pos % (OFFSET_PART_MAX + 1)}, back;
    char written[OFFSET_TEXT];
    if (o.life == 0)
        o.pos = 0;
    offset_format(o, written);
    check(offset_parse(str_of(written, sizeof written), &back) == 0, "an offset is not read back");
    check(back.life == o.life && back.pos == o.pos, "an offset changed");
}

/* ---- num ---- */

typedef unsigned __int128 wide;

/* The number s begins with, as a wide one that stops growing long before it could wrap; *digits:
 * how many. */
static wide wide_number(struct str s, size_t *digits)
{
    wide v = 0, stop = (wide)1 << 80;
    for (*digits = 0; *digits < s.n && s.p[*digits] >= '0' && s.p[*digits] <= '9'; ++*digits)
        v = v < stop ? v * 10 + (wide)(s.p[*digits] - '0') : stop;
    return v;
}

static void check_number(int err, uint64_t v, bool valid, wide expected, const char *what)
{
    valid = valid && expected <= UINT64_MAX;
    check(err == (valid ? 0 : ERR_SYNTAX) && (!valid || v == expected), what);
}

static wide unit_of(struct str s, const char *const *names, const uint64_t *factors)
{
    for (size_t i = 0; names[i] != NULL; i++)
        if (str_eq(s, str_of_cstr(names[i])))
            return factors[i];
    return 0;
}

static void fuzz_num(struct str s, uint64_t max)
{
    static const char *const sizes[] = {"", "k", "K", "m", "M", "g", "G", NULL};
    static const uint64_t size_factors[] = {1,       1024,       1024,      1048576,
                                            1048576, 1073741824, 1073741824};
    static const char *const durations[] = {"ms", "s", "m", "h", "d", NULL};
    static const uint64_t duration_factors[] = {1, 1000, 60000, 3600000, 86400000};
    uint64_t v = 0;
    size_t digits;
    wide number = wide_number(s, &digits);
    struct str rest = str_skip(s, digits);

    bool all = digits > 0 && rest.n == 0;
    check_number(num_parse(s, UINT64_MAX, &v), v, all, number, "num_parse");
    check_number(num_parse(s, max, &v), v, all && number <= max, number, "num_parse with a limit");
    bool canonical = all && (digits == 1 || s.p[0] != '0');
    int err = num_parse_canonical(s, UINT64_MAX, &v);
    check_number(err, v, canonical, number, "num_parse_canonical");
    char written[NUM_TEXT_MAX];
    if (err == 0)
        check(str_eq(s, str_of(written, num_format(v, written))), "num_format");

    wide unit = unit_of(rest, sizes, size_factors);
    check_number(num_parse_size(s, &v), v, digits > 0 && unit > 0, number * unit, "a size");
    unit = unit_of(rest, durations, duration_factors);
    if (!str_eq(s, STR("0")))
        check_number(num_parse_duration_ms(s, &v), v, digits > 0 && unit > 0, number * unit,
                     "a duration");
}

/* ---- date ---- */

static void fuzz_date(struct str text)
{
    int64_t ms, back;
    char written[DATE_RFC3339_TEXT], http[DATE_HTTP_TEXT];
    if (date_parse_rfc3339(text, &ms) != 0)
        return;
    date_format_rfc3339(ms, written);
    check(date_parse_rfc3339(str_of(written, sizeof written), &back) == 0 && back == ms,
          "a date changed");
    date_format_http(ms, http);
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    char expected[64];
    gmtime_r(&seconds, &tm);
    check(strftime(expected, sizeof expected, "%a, %d %b %Y %T GMT", &tm) == sizeof http &&
              memcmp(expected, http, sizeof http) == 0,
          "not the date that the C library writes");
    if ((text.p[text.n - 1] | 0x20) == 'z') /* then the digits stay as they came */
        check(memcmp(text.p, written, 10) == 0 && memcmp(text.p + 11, written + 11, 8) == 0,
              "a date in UTC changed");
}

static void fuzz_date_number(int64_t ms)
{
    int64_t back, last = INT64_C(253402300799999);
    char written[DATE_RFC3339_TEXT];
    date_format_rfc3339(ms, written);
    check(date_parse_rfc3339(str_of(written, sizeof written), &back) == 0, "a date not read back");
    check(back == (ms < 0 ? 0 : ms > last ? last : ms), "another date read back");
}

/* ---- base64 ---- */

static void fuzz_b64(struct str s)
{
    struct buf bytes = {0}, text = {0}, padded = {0};
    if (b64url_take(&bytes, s) == 0) {
        b64url_put(&text, buf_str(&bytes));
        check(str_eq(buf_str(&text), s), "base64url has two spellings");
    } else {
        check(bytes.n == 0, "a failed b64url_take left something behind");
    }
    bytes.n = text.n = 0;
    b64url_put(&text, s);
    check(b64url_take(&bytes, buf_str(&text)) == 0 && str_eq(buf_str(&bytes), s),
          "base64url changed");
    b64_put(&padded, s);
    check(padded.n == (s.n + 2) / 3 * 4, "the length of base64");
    for (size_t i = 0; i < padded.n; i++) {
        char c = padded.p[i] == '+' ? '-' : padded.p[i] == '/' ? '_' : padded.p[i];
        check(i < text.n ? c == text.p[i] : c == '=', "base64 is not base64url, padded");
    }
    buf_deinit(&bytes);
    buf_deinit(&text);
    buf_deinit(&padded);
}

/* ---- url ---- */

static void fuzz_encoding(struct arena *a, struct str s)
{
    struct buf encoded = {0};
    struct str bytes, back;
    for (int form = 0; form < 2; form++) {
        encoded.n = 0;
        url_encode(&encoded, s, form == 0);
        check(url_decode(a, buf_str(&encoded), form, &back) == 0 && str_eq(back, s),
              "encoded and decoded, it changed");
        if (url_decode(a, s, form, &bytes) != 0)
            continue;
        check(bytes.n <= s.n, "decoding made it longer");
        encoded.n = 0;
        url_encode(&encoded, bytes, false);
        check(url_decode(a, buf_str(&encoded), form, &back) == 0 && str_eq(back, bytes),
              "decoded, encoded and decoded, it changed");
    }
    buf_deinit(&encoded);
}

/* The input's halves as a name and a value among others. */
static void fuzz_query(struct arena *a, struct str s)
{
    struct str name = str_of(s.p, s.n / 2), value = str_skip(s, s.n / 2), found = STR_NONE;
    struct buf query = {0};
    buf_put(&query, STR("other=1&"));
    url_encode(&query, name, false);
    buf_putc(&query, '=');
    url_encode(&query, value, false);
    int result = url_query(a, buf_str(&query), name, &found);
    if (str_eq(name, STR("other")))
        check(result == ERR_SYNTAX, "a parameter given twice");
    else
        check(result == 1 && str_eq(found, value), "a parameter is not found");
    buf_deinit(&query);

    result = url_query(a, s, STR("k"), &found); /* and the input as a query of its own */
    check(result == 0 || result == 1 || result == ERR_SYNTAX, "url_query");
    if (s.n > 0 && memchr(s.p, 'k', s.n) == NULL && memchr(s.p, '%', s.n) == NULL)
        check(result == 0, "a parameter out of nowhere");
}

static void fuzz_url(struct str text)
{
    struct url u, again;
    if (url_parse(text, &u) != 0)
        return;
    for (size_t i = 0; i < text.n; i++)
        check(text.p[i] > ' ' && text.p[i] <= '~' && text.p[i] != '#', "a byte no URL has");
    check(u.port > 0 && u.host.n > 0 && memchr(u.host.p, '@', u.host.n) == NULL, "a host");
    check(u.path.n == 0 || u.path.p[0] == '/', "a path");
    struct buf b = {0};
    bool ipv6 = memchr(u.host.p, ':', u.host.n) != NULL;
    buf_put(&b, u.scheme);
    buf_put(&b, ipv6 ? STR("://[") : STR("://"));
    buf_put(&b, u.host);
    buf_printf(&b, "%s:%u", ipv6 ? "]" : "", u.port);
    buf_put(&b, u.path);
    if (u.query.p != NULL) {
        buf_putc(&b, '?');
        buf_put(&b, u.query);
    }
    check(url_parse(buf_str(&b), &again) == 0, "a URL cannot be put together again");
    check(str_eq(u.scheme, again.scheme) && str_eq(u.host, again.host) && u.port == again.port &&
              str_eq(u.path, again.path) && str_eq(u.query, again.query) &&
              (u.query.p == NULL) == (again.query.p == NULL),
          "a URL changed");
    buf_deinit(&b);
}

static unsigned sum_of(struct str s)
{
    unsigned sum = 0;
    for (size_t i = 0; i < s.n; i++)
        sum += (unsigned char)s.p[i];
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n > INPUT_MAX)
        return 0;
    struct str s = str_of((const char *)data, n);
    struct arena a = {0};
    uint64_t numbers[2] = {0};
    memcpy(numbers, data, n < sizeof numbers ? n : sizeof numbers);
    switch (sum_of(s) % 4) {
    case 0:
        fuzz_offset(s);
        fuzz_offset_parts(numbers[0], numbers[1]);
        fuzz_num(s, numbers[0]);
        break;
    case 1:
        fuzz_date(s);
        fuzz_date_number((int64_t)numbers[0]);
        fuzz_date_number((int64_t)(numbers[0] % 253402300800000));
        break;
    case 2:
        fuzz_b64(s);
        fuzz_encoding(&a, s);
        break;
    default: fuzz_query(&a, s); fuzz_url(s);
    }
    arena_deinit(&a);
    return 0;
}
