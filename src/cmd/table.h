// SPDX-License-Identifier: Apache-2.0
/* table.h -- rows in columns on standard output.
 *
 *     struct table t = {.columns = 2};
 *     table_cell(&t, name), table_cell(&t, type);
 *     ...
 *     table_end(&t);
 */
#ifndef CMD_TABLE_H
#define CMD_TABLE_H

#include "base/buf.h"

#define TABLE_COLUMNS 8

struct table {
    size_t columns; /* set first; at most TABLE_COLUMNS */
    int failed;     /* out: errno of writing; nothing is written then any more */
    /* private */
    struct buf cells;            /* each with a NUL behind it, row after row */
    size_t n;                    /* cells */
    size_t width[TABLE_COLUMNS]; /* only grows, so that later rows stay aligned where they can */
    struct buf out;
};

/* The next cell, from left to right and from top to bottom. Bytes that could steer a terminal are
 * replaced. */
void table_cell(struct table *t, const char *text);

/* For output that has lines instead of cells: where to put the next one, with its end. */
struct buf *table_line(struct table *t);

/* Writes what there is, and gives back the memory. Twice is fine. */
void table_end(struct table *t);

#endif
