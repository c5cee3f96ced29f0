// SPDX-License-Identifier: Apache-2.0
#include "feature/logs/log_query.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/json_view.h"
#include "base/must.h"
#include "feature/logs/log.h"

#include <stdlib.h>

#define SHOWN_MAX  100 /* bytes of a wrong cursor that its refusal repeats */
#define NUMBER_MAX 64  /* bytes of a number that is compared by its value; longer ones as text */

/* ---- the question ---- */

static struct str owned(struct str s)
{
    char *p = mem_alloc(s.n + 1);
    if (s.n > 0)
        memcpy(p, s.p, s.n);
    return str_of(p, s.n);
}

void log_query_deinit(struct log_query *q)
{
    for (size_t i = 0; i < q->n_filters; i++) {
        free((char *)(uintptr_t)q->filters[i].key.p);
        free((char *)(uintptr_t)q->filters[i].value.p);
    }
    q->n_filters = 0;
}

static struct str leading_digits(struct str s)
{
    size_t n = 0;
    while (n < s.n && ascii_is_digit(s.p[n]))
        n++;
    return str_of(s.p, n);
}

int log_query_since(struct log_query *q, struct str text)
{
    text = ascii_trim(text);
    if (leading_digits(text).n != text.n)
        return ERR_SYNTAX;
    q->since = 0;
    if (text.n > 0 && num_parse(text, UINT64_MAX, &q->since) != 0)
        q->since = UINT64_MAX; /* it has digits only, so there are too many */
    return 0;
}

void log_query_limit(struct log_query *q, struct str text)
{
    text = ascii_trim(text);
    if (text.n > 0 && *text.p == '+')
        text = str_skip(text, 1);
    text = leading_digits(text);
    q->limit = 0;
    if (text.n > 0 && num_parse(text, LOG_LIMIT_MAX, &q->limit) != 0)
        q->limit = LOG_LIMIT_MAX;
}

int log_query_where(struct log_query *q, struct str key, struct str value)
{
    if (q->n_filters == LOG_FILTERS_MAX)
        return ERR_LIMIT;
    for (size_t i = 0; i < q->n_filters; i++)
        if (str_eq(q->filters[i].key, key))
            return ERR_SYNTAX;
    q->filters[q->n_filters++] = (struct log_filter){owned(key), owned(value)};
    return 0;
}

/* ---- refusals ---- */

static struct str without_zeros(struct str digits)
{
    while (digits.n > 1 && *digits.p == '0')
        digits = str_skip(digits, 1);
    return digits;
}

static struct str log_query_shown(struct str s)
{
    return str_of(s.p, s.n < SHOWN_MAX ? s.n : SHOWN_MAX);
}

void log_cursor_refusal(struct buf *out, enum log_cursor_fault fault, struct str since,
                        uint64_t size)
{
    static const struct {
        const char *message, *fix;
    } words[] = {
        [LOG_CURSOR_MALFORMED] = {"Invalid cursor: ", "Use since=0 or a nextCursor (digits only)."},
        [LOG_CURSOR_AHEAD] = {"Cursor beyond end of file: ",
                              "Reset since=0 (cursor must be <= current file size)."},
        [LOG_CURSOR_WITHIN] = {"Cursor is not aligned to a newline boundary: ",
                               "Use since=0 or a nextCursor."},
    };
    struct buf message = {0}, extra = {0};
    buf_put(&message, str_of_cstr(words[fault].message));
    buf_put(
        &message,
        log_query_shown(fault == LOG_CURSOR_MALFORMED ? since : without_zeros(ascii_trim(since))));
    buf_printf(&extra, ",\"context\":{\"fix\":\"%s\"", words[fault].fix);
    if (fault == LOG_CURSOR_AHEAD)
        buf_printf(&extra, ",\"sizeBytes\":%llu", (unsigned long long)size);
    buf_putc(&extra, '}');
    json_put_problem(out, STR("INVALID_CURSOR"), buf_str(&message), buf_str(&extra));
    buf_deinit(&message);
    buf_deinit(&extra);
}

/* ---- the answer ---- */

void log_scan_init(struct log_scan *s, const struct log_query *q)
{
    *s = (struct log_scan){.query = q, .next = q->since};
}

static bool is_number(struct str s)
{
    size_t at;
    return s.n > 0 && (*s.p == '-' || (*s.p >= '0' && *s.p <= '9')) && json_check(s, &at) == 0;
}

static double number_of(struct str s)
{
    char text[NUMBER_MAX + 1];
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    return strtod(text, NULL);
}

static bool is_whole(struct str number)
{
    for (size_t i = 0; i < number.n; i++)
        if (number.p[i] == '.' || number.p[i] == 'e' || number.p[i] == 'E')
            return false;
    return true;
}

/* Of two whole numbers the digits are the value, whatever a double would make of them; but -0 is 0.
 */
static bool same_number(struct str number, struct str text)
{
    if (str_eq(number, text))
        return true;
    if (number.n > NUMBER_MAX || text.n > NUMBER_MAX || !is_number(text))
        return false;
    double value = number_of(number);
    return (value == 0 || !is_whole(number) || !is_whole(text)) && value == number_of(text);
}

static bool is_value(struct str value, struct str text)
{
    switch (view_type(value)) {
    case VIEW_STRING: return view_text_is(value, text);
    case VIEW_NUMBER: return same_number(value, text);
    case VIEW_BOOL: return str_eq(value, text);
    default: return false;
    }
}

static bool log_query_matches(const struct log_query *q, struct str object)
{
    struct view_want wants[LOG_FILTERS_MAX];
    if (q->n_filters == 0)
        return true;
    for (size_t i = 0; i < q->n_filters; i++)
        wants[i].name = q->filters[i].key;
    view_pick(object, wants, q->n_filters);
    for (size_t i = 0; i < q->n_filters; i++)
        if (!is_value(wants[i].value, q->filters[i].value))
            return false;
    return true;
}

static bool log_query_is_object(struct str line)
{
    size_t at;
    return line.n > 0 && *line.p == '{' && json_check(line, &at) == 0;
}

bool log_scan_takes(struct str line)
{
    return line.n < LOG_LINE_MAX && log_query_is_object(line);
}

bool log_scan_item(struct log_scan *s, struct str *rest, struct str *item)
{
    struct str line;
    while (!log_scan_full(s)) {
        size_t before = rest->n;
        if (!log_line(rest, &line))
            return false;
        s->next += before - rest->n;
        if (log_query_is_object(line) && log_query_matches(s->query, line)) {
            s->items++;
            *item = line;
            return true;
        }
    }
    return false;
}

void log_scan_reject(struct log_scan *s)
{
    must(s->items > 0);
    s->items--;
}
