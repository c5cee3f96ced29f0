// SPDX-License-Identifier: Apache-2.0
/* log_query.h -- what a reader of a log asks for, and what of its lines is the answer.
 *
 * Cursors follow these rules:
 *   1. what lies before `since` is not given again;
 *   2. the cursor moves past whole lines only;
 *   3. filters choose items and do not hold up the cursor;
 *   4. with a limit it stops behind the last item that was given;
 *   5. a whole line that is no JSON object is passed over;
 *   6. a file that is not there is empty;
 *   7. a cursor ahead of the file's end, or not directly behind a newline, is refused.
 * feature/logs/log.h sees to 2, 6 and 7, this to the others. Nothing here touches a file. */
#ifndef FEATURE_LOGS_LOG_QUERY_H
#define FEATURE_LOGS_LOG_QUERY_H

#include "base/buf.h"
#include "base/str.h"

#include <stdint.h>

#define LOG_LIMIT_MAX   500
#define LOG_FILTERS_MAX 16

struct log_filter {
    struct str key, value; /* owned */
};

/* Zero-initialised asks for everything. */
struct log_query {
    uint64_t since;
    uint64_t limit; /* 0: none */
    struct log_filter filters[LOG_FILTERS_MAX];
    size_t n_filters;
};
void log_query_deinit(struct log_query *q);

/* Digits, with white space around them or not; empty is 0. More than fits is ahead of any file.
 * ERR_SYNTAX: LOG_CURSOR_MALFORMED. */
int log_query_since(struct log_query *q, struct str text);

/* The number that the text begins with, at most LOG_LIMIT_MAX; what is none, or not above 0, sets
 * no limit. */
void log_query_limit(struct log_query *q, struct str text);

/* Only objects that have this member at their top, a text, number or bool with this value. Numbers
 * are compared as such. ERR_LIMIT: too many. ERR_SYNTAX: that key was given before. */
int log_query_where(struct log_query *q, struct str key, struct str value);

/* ---- what a cursor is refused with ---- */

enum log_cursor_fault {
    LOG_CURSOR_MALFORMED,
    LOG_CURSOR_AHEAD,  /* of the file's end */
    LOG_CURSOR_WITHIN, /* not directly behind a newline */
};

/* The body of a 400: {"error":{"code":"INVALID_CURSOR",...}}. since: the text as it was given.
 * size: of the file, with LOG_CURSOR_AHEAD. */
void log_cursor_refusal(struct buf *out, enum log_cursor_fault fault, struct str since,
                        uint64_t size);

/* ---- the answer ---- */

struct log_scan {
    const struct log_query *query;
    uint64_t next;  /* the cursor behind what was looked at */
    uint64_t items; /* given so far */
};
void log_scan_init(struct log_scan *s, const struct log_query *q);

/* The next item of *rest, which log_read gave for s->next, or what is left of it. An item is the
 * text of an object as it stands in its line. False: there is none in *rest, which is used up then,
 * or the limit has been reached. */
bool log_scan_item(struct log_scan *s, struct str *rest, struct str *item);

/* Whether readers would take this text, as a line of its own, for an object. */
bool log_scan_takes(struct str line);

/* The item given last does not count: its reader wants none of it. */
void log_scan_reject(struct log_scan *s);

static inline bool log_scan_full(const struct log_scan *s)
{
    return s->query->limit > 0 && s->items >= s->query->limit;
}

#endif
