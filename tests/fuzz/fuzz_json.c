// SPDX-License-Identifier: Apache-2.0
/* fuzz_json.c -- our JSON scanner against jansson, and against itself.
 *
 * It stops when we accept what jansson rejects or reject what it accepts; when json_check,
 * json_split and their code for machines without SSE2 do not agree, down to the place of an error;
 * when the events of json_split, put back into an array, are not the value that came in; and when
 * a text does not survive json_put_string.
 *
 * What we accept and jansson rejects, all of it legal by RFC 8259:
 *  - numbers beyond its integers and doubles;
 *  - a name with an escaped NUL in it;
 *  - an escaped half of a surrogate pair.
 * What we reject and jansson accepts:
 *  - nesting beyond JSON_DEPTH_MAX;
 *  - a raw NUL, which it loses behind a number or a word. */

/* First the portable code, under names of its own. */
#undef __SSE2__
#define json_check       portable_json_check
#define json_split       portable_json_split
#define json_put_string  portable_json_put_string
#define json_escape      portable_json_escape
#define json_scan_value  portable_json_scan_value
#define json_scan_end    portable_json_scan_end
#define json_put_strings portable_json_put_strings
#define json_put_problem portable_json_put_problem
#include "base/json_scan.c"
#include "base/json.c"
#undef json_check
#undef json_split
#undef json_put_string

int json_check(struct str text, size_t *at);
int json_split(struct str text, struct buf *out, struct buf *ends, size_t *at);
void json_put_string(struct buf *out, struct str s);

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define QUOTED_MAX 48 /* quoting has no state: more bytes cost time and find nothing */
#define SIDE_ONE                                                                                   \
    8 /* inputs of every eighth length also go to the portable scanner and the quoter */
#define FLAGS (JSON_DECODE_ANY | JSON_ALLOW_NUL)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_json: %s\n", what);
    abort();
}

/* What came of one text. */
struct verdict {
    int err;
    size_t at;
    struct buf out, ends;
};

static void verdict_deinit(struct verdict *v)
{
    buf_deinit(&v->out);
    buf_deinit(&v->ends);
}

static void check_agreement(struct str text, const struct verdict *v)
{
    struct verdict portable = {0};
    size_t at = 0;
    check(json_check(text, &at) == v->err && at == v->at, "json_check and json_split differ");
    if (text.n % SIDE_ONE != 0)
        return;
    portable.err = portable_json_split(text, &portable.out, &portable.ends, &portable.at);
    check(portable.err == v->err && portable.at == v->at &&
              str_eq(buf_str(&portable.out), buf_str(&v->out)) &&
              str_eq(buf_str(&portable.ends), buf_str(&v->ends)),
          "json_split is not portable");
    verdict_deinit(&portable);
}

/* Brackets open before `at`, in a text that is valid up to there. */
static size_t depth_at(struct str text, size_t at)
{
    size_t depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < at; i++) {
        char c = text.p[i];
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '[' || c == '{'))
            depth++;
        else if (!quoted && (c == ']' || c == '}'))
            depth--;
    }
    return depth;
}

static void check_acceptance(const json_error_t *error)
{
    enum json_error_code code = json_error_code(error);
    bool explained = code == json_error_numeric_overflow || code == json_error_null_byte_in_key ||
                     str_starts(str_of_cstr(error->text), STR("invalid Unicode"));
    if (!explained)
        fprintf(stderr, "jansson: %s\n", error->text);
    check(explained, "we accept what jansson rejects");
}

static void check_refusal(struct str text, size_t at)
{
    check(at <= text.n, "the place of the error lies outside");
    bool lost_nul = at < text.n && text.p[at] == '\0';
    bool deep = at < text.n && (text.p[at] == '[' || text.p[at] == '{') &&
                depth_at(text, at) == JSON_DEPTH_MAX;
    check(lost_nul || deep, "we reject what jansson accepts");
}

/* The events, without the last comma, in brackets. */
static json_t *load_events(const struct buf *out)
{
    struct buf array = {0};
    buf_putc(&array, '[');
    buf_put(&array, str_of(out->p, out->n > 0 ? out->n - 1 : 0));
    buf_putc(&array, ']');
    json_t *events = json_loadb(array.p, array.n, FLAGS, NULL);
    buf_deinit(&array);
    return events;
}

static void check_value(json_t *value, const struct verdict *v)
{
    json_t *expected = json_is_array(value) ? json_incref(value) : json_pack("[O]", value);
    json_t *events = load_events(&v->out);
    check(events != NULL, "the events are no array");
    check(json_array_size(events) == v->ends.n / sizeof(uint32_t), "another number of events");
    check(json_equal(events, expected), "the events are another value");
    json_decref(events);
    json_decref(expected);
}

static void check_events(const struct verdict *v)
{
    uint32_t from = 0, end = 0;
    for (size_t i = 0; i < v->ends.n; i += sizeof end, from = end) {
        size_t at;
        memcpy(&end, v->ends.p + i, sizeof end);
        check(end > from + 1 && end <= v->out.n && v->out.p[end - 1] == ',', "an event's end");
        struct str event = str_of(v->out.p + from, end - 1 - from);
        check(json_check(event, &at) == 0, "an event is not valid alone");
        check(memchr(event.p, '\n', event.n) == NULL && memchr(event.p, '\r', event.n) == NULL,
              "an event has a line break");
    }
    check(end == v->out.n, "bytes behind the last event");
}

static void check_quoting(struct str text)
{
    struct buf quoted = {0};
    size_t at;
    json_put_string(&quoted, text);
    check(json_check(buf_str(&quoted), &at) == 0, "json_put_string wrote no string");
    json_t *back = json_loadb(quoted.p, quoted.n, FLAGS, NULL);
    check(json_is_string(back), "json_put_string wrote no string for jansson");
    json_t *same = json_stringn(text.p, text.n); /* NULL: not UTF-8 */
    if (same != NULL)
        check(json_equal(same, back), "json_put_string changed the text");
    else
        check(memmem(json_string_value(back), json_string_length(back), "\xef\xbf\xbd", 3) != NULL,
              "json_put_string lost a byte");
    json_decref(same);
    json_decref(back);
    buf_deinit(&quoted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str text = str_of((const char *)data, n);
    struct verdict v = {0};
    json_error_t error;
    v.err = json_split(text, &v.out, &v.ends, &v.at);
    check_agreement(text, &v);
    json_t *value = json_loadb(text.p, text.n, FLAGS, &error);
    if (v.err == 0) {
        check_events(&v);
        if (value != NULL)
            check_value(value, &v);
        else
            check_acceptance(&error);
    } else {
        check(v.out.n == 0 && v.ends.n == 0, "a failure left something behind");
        if (value != NULL)
            check_refusal(text, v.at);
    }
    json_decref(value);
    if (n % SIDE_ONE == 0)
        check_quoting(str_of(text.p, n < QUOTED_MAX ? n : QUOTED_MAX));
    verdict_deinit(&v);
    return 0;
}
