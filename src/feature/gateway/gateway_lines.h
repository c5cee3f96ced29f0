// SPDX-License-Identifier: Apache-2.0
/* gateway_lines.h -- lines out of bytes, in whatever pieces they arrive.
 *
 * A line ends with LF or CRLF, which are no part of it; lines of nothing but white space are passed
 * over. Loop thread only. */
#ifndef FEATURE_GATEWAY_GATEWAY_LINES_H
#define FEATURE_GATEWAY_GATEWAY_LINES_H

#include "base/buf.h"

/* The line is lent for the call. Not 0: splitting ends, and the caller gets it. */
typedef int gateway_line_fn(void *user, struct str line);

struct gateway_lines {
    struct buf rest; /* of a line whose end has not come */
    size_t max;      /* bytes of one line */
    void *user;
    gateway_line_fn *on_line;
};

void gateway_lines_deinit(struct gateway_lines *l);

/* 0, ERR_TOO_LARGE for a line above max, or what on_line returned. After a failure nothing more may
 * be fed. */
int gateway_lines_feed(struct gateway_lines *l, struct str bytes);

/* Nothing more comes: what is there is the last line. */
int gateway_lines_end(struct gateway_lines *l);

#endif
