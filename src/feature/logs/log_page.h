// SPDX-License-Identifier: Apache-2.0
/* log_page.h -- a page of a log, for tools: its items from a cursor on, until there are enough of
 * them.
 *
 * A page looks at LOG_PAGE_SCAN_MAX bytes at most, whether there is an item among them or not, so
 * that a filter which nothing passes does not hold up its reader for the length of a file. It is
 * read in steps, so that a reader who has gone is noticed between two of them:
 *
 *     log_page_start --done--> LOG_PAGE_MORE --log_page_step--> ...
 *                        |---> LOG_PAGE_FULL
 *                        `---> LOG_PAGE_END: all there is has been read; a step looks for more */
#ifndef FEATURE_LOGS_LOG_PAGE_H
#define FEATURE_LOGS_LOG_PAGE_H

#include "base/buf.h"
#include "feature/logs/log.h"
#include "feature/logs/log_query.h"

struct builtin_page;

#define LOG_PAGE_SCAN_MAX (16 * 1024 * 1024)

/* The caller embeds it, zeroed but for what is its own, and keeps it until it is done. */
struct log_page {
    struct log log;
    struct log_query query;
    size_t max_bytes; /* of items, about */
    /* Puts the item, or what is to be given instead. False: it is none. NULL: all, as they are. */
    bool (*take)(struct buf *out, struct str item);
    void (*done)(struct log_page *p, int err);

    /* out */
    enum { LOG_PAGE_MORE, LOG_PAGE_FULL, LOG_PAGE_END } state;
    struct buf items;
    uint64_t next;    /* the cursor behind them */
    bool goes_on;     /* with FULL: there was more when it began */
    struct log_id id; /* the file. in, with has_id: the one that query.since was given for */
    bool has_id;

    /* private */
    struct log_read read;
    struct log_scan scan;
    uint64_t until; /* the end of the file when it began; 0: not known yet */
    uint64_t scanned;
};
void log_page_deinit(struct log_page *p);

/* Errors: those of log_read. */
void log_page_start(struct log_page *p);
void log_page_step(struct log_page *p);

/* {"items":[...],"nextCursor":"184"} */
void log_page_put(const struct log_page *p, struct buf *out);

/* The page of a tool cannot be made, for this error. */
void log_page_fail(const struct log_page *p, int err, struct builtin_page *page);

#endif
