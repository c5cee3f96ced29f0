// SPDX-License-Identifier: Apache-2.0
/* tool.h -- tools, and their results page by page.
 *
 * A call asks for one page: the first of a new result, or with a cursor the next of one that is
 * kept. A tool that makes its result in one go (a command, a URL) is run once; the rows are put
 * into a stream with a TTL, and every page but the first is read from there, so that no page is
 * computed twice and none is cut. Tools that look at what the server has anyway (streams, logs)
 * page through that.
 *
 * Loop thread only. A call completes exactly once, through done(), and never before tools_call has
 * returned. */
#ifndef FEATURE_TOOLS_TOOL_H
#define FEATURE_TOOLS_TOOL_H

#include "base/buf.h"
#include "base/list.h"
#include "base/sched.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct principal;
struct tool_looking;
struct tool_page;
struct tools;

#define TOOL_ID_MAX     128
#define TOOL_CALLER_MAX 128
#define TOOL_ID_ATD     71
#define TOOL_CALLER_ATD 64 /* with cursors of the format `atd`, which leave less room */
#define TOOL_ARGS_MAX   (1024 * 1024)
#define TOOL_ROW_MAX    (4 * 1024 * 1024) /* bytes of one row, whatever the tool's own limits */

struct tool_info {
    struct str id; /* `stream:read`, or the NAME of a section */
    struct str description;
    struct str input_schema; /* JSON text, an object; mentions __cursor where pages are possible */
    struct str capability;   /* n == 0: anybody may */
    bool pages;              /* takes cursors */
};

/* Those there are, in the order of their names; valid until tools_free. */
size_t tools_count(const struct tools *t);
const struct tool_info *tools_at(const struct tools *t, size_t i);
/* May it be called with these rights? NULL: with all. */
bool tools_may(const struct tool_info *info, const struct principal *p);
const struct tool_info *tools_find(const struct tools *t, struct str id); /* NULL: none */

/* How a call ended, as the audit calls it. */
#define TOOL_OUTCOMES(X)                                                                           \
    X(SUCCESS, "success")                                                                          \
    X(EXECUTION_FAILED, "execution_failed") /* the tool ran and failed: code, retryable */         \
    X(INVALID_ARGS, "invalid_args")                                                                \
    X(CAPABILITY_DENIED, "capability_denied") /* 1001 */                                           \
    X(RATE_LIMITED, "rate_limited")           /* 1002 */                                           \
    X(TOOL_NOT_FOUND, "tool_not_found")                                                            \
    X(CURSOR_REFUSED, "cursor_refused") /* 1020, 1021 */

enum tool_outcome {
#define X(name, text) TOOL_##name,
    TOOL_OUTCOMES(X)
#undef X
};
struct str tool_outcome_text(enum tool_outcome o);

#define TOOL_CODE_CAPABILITY 1001
#define TOOL_CODE_BUSY       1002
#define TOOL_CODE_UNHANDLED  1999

/* The caller embeds it and keeps it, and all it points to, alive until done() or tools_cancel. */
struct tool_call {
    /* in */
    struct str tool_id;
    /* JSON text without __cursor, which a wire takes out: an object, or null, which is as good as
     * none. n == 0: none were sent, which for a first page means {}; with a cursor they need not be
     * sent, but must be the same if they are. */
    struct str args;
    struct str cursor;    /* p == NULL: the first page */
    bool cursor_loose;    /* what could never have been a cursor of ours counts as none (MCP) */
    bool dry_run;         /* checks all and runs nothing */
    struct str caller_id; /* p == NULL: nobody has said who it is */
    const struct str *capabilities;
    size_t n_capabilities;
    const struct principal *principal; /* whose rights it has; NULL: all */

    /* out */
    enum tool_outcome outcome;
    /* With SUCCESS: JSON text, for tools with pages an array of rows (log:read and others may give
     * an object). With EXECUTION_FAILED: {"code","message","retryable"}. */
    struct buf result;
    struct buf next_cursor; /* n == 0: that was the last page */
    uint64_t page;          /* which one: 1 is the first */
    uint16_t code;          /* of the protocol; 0: none */
    bool retryable;
    struct buf message; /* unless SUCCESS */
    struct buf details; /* JSON text; n == 0: none */
    void (*done)(struct tool_call *c);

    /* private */
    struct link link;
    struct task task;
    struct tools *waits;          /* to be checked; NULL: it has been */
    struct tool_looking *looking; /* at its arguments, before that; NULL: nobody is */
    struct tool_page *made;       /* for it; NULL: not yet, or not any more */
};

void tools_call(struct tools *t, struct tool_call *c);

/* done() is not called. A command that runs for this call alone is ended; one whose result is being
 * kept for a cursor that was given out goes on. */
void tools_cancel(struct tools *t, struct tool_call *c);

/* Frees the out buffers. */
void tool_call_deinit(struct tool_call *c);

#endif
