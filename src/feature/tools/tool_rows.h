// SPDX-License-Identifier: Apache-2.0
/* tool_rows.h -- what a tool gives, cut into rows.
 *
 *     [ROW, ROW, ...]        one JSON array, or
 *     ROW LF ROW LF ...      JSON lines; blank ones are passed over, and a value may go on over
 *                            several lines
 *
 * What begins with `[` is an array: rows that are arrays themselves come in one. A row is stored as
 * the event of a JSON stream is: its bytes, without line breaks between tokens, and a comma. */
#ifndef FEATURE_TOOLS_TOOL_ROWS_H
#define FEATURE_TOOLS_TOOL_ROWS_H

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* Rows, one behind the other. Zero-initialised is empty. */
struct tool_rows {
    struct buf bytes;
    struct buf ends; /* uint32_t: where each ends in bytes, its comma included */
};
void tool_rows_deinit(struct tool_rows *r);
void tool_rows_clear(struct tool_rows *r);

static inline size_t tool_rows_count(const struct tool_rows *r)
{
    return r->ends.n / sizeof(uint32_t);
}
struct str tool_rows_at(const struct tool_rows *r, size_t i); /* with its comma */
void tool_rows_add(struct tool_rows *r, struct str row);      /* without one */

/* How many of them, from the first on, make a page: at most `rows`, of at most `bytes` unless it is
 * one. */
size_t tool_rows_page(const struct tool_rows *r, uint64_t rows, uint64_t bytes);

/* The first n as a JSON array. */
void tool_rows_put(const struct tool_rows *r, size_t n, struct buf *out);

/* ---- the splitter ---- */

enum tool_rows_fault {
    TOOL_ROWS_FINE,
    TOOL_ROWS_JSON,  /* a row is no JSON */
    TOOL_ROWS_LARGE, /* a row has more than row_max bytes */
    TOOL_ROWS_AFTER, /* something stands behind the array */
    TOOL_ROWS_CUT,   /* it ended within the array */
};

/* Zero-initialised but for row_max. */
struct tool_splitter {
    size_t row_max;
    struct buf row; /* that is coming in */
    uint64_t rows;  /* that came */
    uint32_t depth; /* within the row */
    enum { SPLIT_START, SPLIT_LINES, SPLIT_ARRAY, SPLIT_AFTER } form;
    bool in_string, escaped, expects; /* expects: a comma came, and so must a row */
};
void tool_splitter_deinit(struct tool_splitter *s);

/* Takes bytes, cut anywhere, and adds the rows that are complete to *out. After a fault that is all
 * it will do. */
enum tool_rows_fault tool_splitter_feed(struct tool_splitter *s, struct str bytes,
                                        struct tool_rows *out);

/* There is no more: the last line need not have a newline. */
enum tool_rows_fault tool_splitter_end(struct tool_splitter *s, struct tool_rows *out);

/* Cuts the first row, without its comma, off rows as they are stored; false: there is none. */
bool tool_rows_cut(struct str *stored, struct str *row);

#endif
