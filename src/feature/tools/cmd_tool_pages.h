// SPDX-License-Identifier: Apache-2.0
/* cmd_tool_pages.h -- the pages of a tool's result, put together into one. */
#ifndef FEATURE_TOOLS_CMD_TOOL_PAGES_H
#define FEATURE_TOOLS_CMD_TOOL_PAGES_H

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

enum tool_merge {
    TOOL_MERGE_CONCAT, /* each page is an array */
    TOOL_MERGE_FIELD,  /* a member of each is one; the others are those of the last page */
    TOOL_MERGE_FIRST,  /* only the first is kept, though all are asked for */
};

/* Zero-initialised but for the settings; tool_pages_deinit is due. */
struct tool_pages {
    enum tool_merge merge;
    struct str field;              /* of MERGE_FIELD */
    uint64_t max_pages, max_bytes; /* of JSON without white space */
    uint64_t pages, bytes;         /* that came */
    struct buf rows;               /* elements with commas between them */
    struct buf last;               /* the page that the other members are of, or the first */
};

/* `concat`, `field:NAME` or `first`; field points into text. ERR_SYNTAX. */
int tool_merge_parse(struct str text, enum tool_merge *merge, struct str *field);

/* One more page, valid JSON, behind which there are others or not. ERR_LIMIT: more than max_bytes,
 * or others behind max_pages. ERR_TYPE_MISMATCH: it cannot be put to the others. */
int tool_pages_add(struct tool_pages *p, struct str page, bool more);

/* All that was added. */
void tool_pages_put(const struct tool_pages *p, struct buf *out);
void tool_pages_deinit(struct tool_pages *p);

#endif
