// SPDX-License-Identifier: Apache-2.0
/* fuzz_log_query.c -- what a reader gets of a log, however it comes by it.
 *
 * The first line of the input asks, as `SINCE&LIMIT&KEY=VALUE&KEY=VALUE...`; what follows is the
 * file. Whatever the limit, page after page gives the same items as one answer without, and ends at
 * the same cursor, which lies behind a newline; each item is an object by jansson's judgement, too,
 * that passes the filters as jansson reads it. */
#include "base/err.h"
#include "feature/logs/log_query.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "fuzz_log_query: %s\n", what);
        abort();
    }
}

/* A text is the filter's, or a number's or bool's: then it is spelt in some way that we need not
 * know here. */
static void check_filters(const struct log_query *q, struct str item)
{
    json_error_t error;
    json_t *object = json_loadb(item.p, item.n, JSON_ALLOW_NUL, &error);
    /* jansson refuses numbers that no double holds, half surrogates, and deeper nesting. */
    if (object == NULL)
        return;
    check(json_is_object(object), "an item that is no object");
    for (size_t i = 0; i < q->n_filters; i++) {
        const struct log_filter *f = &q->filters[i];
        json_t *member = memchr(f->key.p, '\0', f->key.n) != NULL
                             ? NULL
                             : json_object_getn(object, f->key.p, f->key.n);
        if (member == NULL)
            continue; /* jansson stops names at a NUL */
        check(!json_is_null(member) && !json_is_array(member) && !json_is_object(member),
              "a filter has matched what it cannot");
        if (json_is_string(member))
            check(str_eq(str_of(json_string_value(member), json_string_length(member)), f->value),
                  "a filter has matched another text");
    }
    json_decref(object);
}

static uint64_t scan(const struct log_query *q, struct str lines, struct buf *items, uint64_t *n)
{
    struct log_scan s;
    struct str item;
    log_scan_init(&s, q);
    while (log_scan_item(&s, &lines, &item)) {
        check_filters(q, item);
        buf_put(items, item);
        buf_putc(items, '\n');
    }
    if (!log_scan_full(&s))
        check(lines.n == 0 || memchr(lines.p, '\n', lines.n) == NULL, "lines were left");
    *n = s.items;
    return s.next;
}

static void check_pages(struct log_query *q, struct str file)
{
    struct buf whole = {0}, pages = {0};
    uint64_t limit = q->limit > 0 ? q->limit : 1, n, since = q->since;
    q->limit = 0;
    uint64_t end = scan(q, file, &whole, &n);
    check(end == since || file.p[end - since - 1] == '\n', "a cursor within a line");
    q->limit = limit;
    for (;;) {
        uint64_t next = scan(q, str_skip(file, (size_t)(q->since - since)), &pages, &n);
        check(n <= limit && next >= q->since && next <= end, "a page that is too long");
        q->since = next;
        if (n < limit)
            break;
    }
    check(q->since == end, "pages end elsewhere");
    check(str_eq(buf_str(&pages), buf_str(&whole)), "pages give other items");
    buf_deinit(&whole);
    buf_deinit(&pages);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str file = str_of((const char *)data, n), asks = str_cut(&file, '\n');
    struct log_query q = {0};
    struct buf refusal = {0};
    json_error_t error;
    struct str since = str_cut(&asks, '&');
    if (log_query_since(&q, since) != 0)
        q.since = 0;
    for (int fault = LOG_CURSOR_MALFORMED; fault <= LOG_CURSOR_WITHIN; fault++) {
        refusal.n = 0;
        log_cursor_refusal(&refusal, (enum log_cursor_fault)fault, since, n);
        json_t *body = json_loadb(refusal.p, refusal.n, JSON_ALLOW_NUL, &error);
        check(json_is_object(body), "a refusal that is no JSON");
        json_decref(body);
    }
    log_query_limit(&q, str_cut(&asks, '&'));
    check(q.limit <= LOG_LIMIT_MAX, "a limit above all");
    while (asks.p != NULL) {
        struct str value = str_cut(&asks, '&'), key = str_cut(&value, '=');
        (void)log_query_where(&q, key, value);
    }
    q.since %= UINT64_MAX - n; /* where no file could end */
    if (file.p != NULL)
        check_pages(&q, file);
    log_query_deinit(&q);
    buf_deinit(&refusal);
    return 0;
}
