// SPDX-License-Identifier: Apache-2.0
/* fuzz_json_canonical.c -- the canonical form of a JSON text, against jansson and against itself.
 *
 * It stops when we accept what jansson rejects or reject what it accepts; when the canonical form
 * is another value than the text; when members are not in the order that UTF-16 gives them, found
 * out the long way; when it is not its own canonical form, or has a number that a byte less would
 * spell; and when leaving out a member leaves out more or less than that.
 *
 * What we accept and jansson rejects: a name with an escaped NUL in it. What we reject and jansson
 * accepts: nesting beyond JSON_DEPTH_MAX, and a raw NUL, which it loses behind a number. */
#include "base/json.h"
#include "base/json_canonical.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* All numbers are doubles, as they are to us. */
#define FLAGS     (JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL)
#define UNITS_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_json_canonical: %s\n", what);
    abort();
}

static json_t *load(struct str text)
{
    json_error_t error;
    return json_loadb(text.n > 0 ? text.p : "", text.n, FLAGS, &error);
}

/* ---- the order of names ---- */

static size_t units_of(const char *z, uint16_t *out)
{
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)z; *p != '\0' && n + 2 < UNITS_MAX;) {
        int more = *p < 0x80 ? 0 : *p < 0xe0 ? 1 : *p < 0xf0 ? 2 : 3;
        uint32_t c = more == 0 ? *p : *p & (0x3fu >> more);
        for (p++; more > 0; more--)
            c = c << 6 | (*p++ & 0x3f);
        if (c >= 0x10000) {
            out[n++] = (uint16_t)(0xd800 + ((c - 0x10000) >> 10));
            c = 0xdc00 + ((c - 0x10000) & 0x3ff);
        }
        out[n++] = (uint16_t)c;
    }
    return n;
}

static bool is_before(const char *a, const char *b)
{
    static uint16_t left[UNITS_MAX], right[UNITS_MAX];
    size_t n = units_of(a, left), m = units_of(b, right);
    for (size_t i = 0; i < n && i < m; i++)
        if (left[i] != right[i])
            return left[i] < right[i];
    return n < m;
}

static void check_order(json_t *value)
{
    const char *name, *before = NULL;
    json_t *child;
    size_t i;
    json_object_foreach(value, name, child)
    {
        check(before == NULL || is_before(before, name), "names are out of order");
        before = name;
        check_order(child);
    }
    json_array_foreach(value, i, child) check_order(child);
}

/* ---- numbers ---- */

/* One digit less, rounded down or up, is another number. */
static void check_shortest(struct str number)
{
    char text[64];
    size_t digits = 0, last = 0;
    check(number.n < 40, "a long number");
    memcpy(text, number.p, number.n);
    text[number.n] = '\0';
    double v = strtod(text, NULL);
    for (size_t i = 0; i < number.n && text[i] != 'e'; i++)
        if (text[i] >= '1' && text[i] <= '9') {
            last = i;
            digits++;
        } else if (text[i] == '0' && digits > 0) {
            digits++;
        }
    if (digits < 2)
        return;
    text[last] = '0';
    check(strtod(text, NULL) != v, "a digit too many");
    size_t i = last;
    while (i > 0 && (text[i - 1] == '9' || text[i - 1] == '.')) {
        i--;
        text[i] = text[i] == '.' ? '.' : '0';
    }
    if (i == 0 || text[i - 1] < '0' || text[i - 1] > '8')
        return; /* 9.99: there is no digit to count up */
    text[i - 1]++;
    check(strtod(text, NULL) != v, "a digit too many");
}

static void check_numbers(struct str canonical)
{
    bool quoted = false;
    for (size_t i = 0; i < canonical.n; i++) {
        char c = canonical.p[i];
        if (c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '-' || (c >= '0' && c <= '9'))) {
            size_t n = 1;
            while (i + n < canonical.n && strchr("0123456789.e+-", canonical.p[i + n]) != NULL)
                n++;
            check_shortest(str_of(canonical.p + i, n));
            i += n - 1;
        }
    }
}

/* ---- ---- */

/* A text of which jansson has another opinion, and may. */
static bool is_exempt(struct str text)
{
    return memchr(text.p, '\0', text.n) != NULL || memmem(text.p, text.n, "\\u0000", 6) != NULL ||
           text.n > JSON_DEPTH_MAX;
}

static void check_without(struct str text, json_t *value)
{
    struct buf out = {0};
    check(json_canonical(text, STR("a"), &out) == 0, "refused without a member");
    json_t *left = load(buf_str(&out));
    json_object_del(value, "a");
    check(left != NULL && json_equal(left, value), "another value without a member");
    json_decref(left);
    buf_deinit(&out);
}

static void check_accepted(struct str text, struct str canonical)
{
    struct buf again = {0};
    check(json_canonical(canonical, STR_NONE, &again) == 0, "its form is refused");
    check(str_eq(buf_str(&again), canonical), "its form has another form");
    buf_deinit(&again);
    check_numbers(canonical);
    if (is_exempt(text))
        return;
    json_t *before = load(text), *after = load(canonical);
    check(before != NULL, "accepted what jansson rejects");
    check(after != NULL && json_equal(before, after), "another value");
    check_order(after);
    check_without(text, before);
    json_decref(before);
    json_decref(after);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str text = str_of((const char *)data, n);
    struct buf out = {0};
    if (n == 0)
        return 0;
    if (json_canonical(text, STR_NONE, &out) == 0) {
        check_accepted(text, buf_str(&out));
    } else {
        check(out.n == 0, "half a form");
        json_t *value = is_exempt(text) ? NULL : load(text);
        check(value == NULL, "rejected what jansson accepts");
        json_decref(value);
    }
    buf_deinit(&out);
    return 0;
}
