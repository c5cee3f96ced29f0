// SPDX-License-Identifier: Apache-2.0
/* tool_core.h -- what the files of the tools share.
 *
 * tool.c has the tools. A call becomes a *page* that is being made, if it passes the checks of
 * tool_check.c; tool_page.c has how pages end. Those of built-in tools are made by the tool
 * (feature/builtin.h) from a *position*, which is the tool's to understand, and tool_state.c puts
 * that and the arguments into a cursor. Of other tools, tool_run.c has the result made and kept,
 * and tool_kept.c reads the pages behind the first. */
#ifndef FEATURE_TOOLS_TOOL_CORE_H
#define FEATURE_TOOLS_TOOL_CORE_H

#include "base/arena.h"
#include "base/gate.h"
#include "base/map.h"
#include "base/sha256.h"
#include "feature/builtin.h"
#include "feature/tools/tool.h"
#include "feature/tools/tools.h"
#include "store/store.h"

#define TOOL_BUILTIN_PARALLEL 64

/* What is kept for a cursor outlives it by this much: nobody may find it gone who came in time. */
#define TOOL_KEEP_SLACK_S     60

#define TOOL_STREAMS          ".tool/" /* store/names.h */
/* TOOL_STREAMS and the id in hexadecimal. */
#define TOOL_KEEP_ID          16
#define TOOL_KEEP_NAME        (sizeof TOOL_STREAMS - 1 + 2 * TOOL_KEEP_ID)
void tool_keep_name(const uint8_t id[TOOL_KEEP_ID], char out[TOOL_KEEP_NAME]);

/* How a stream is made that keeps at most max_bytes for cursors; wait_s: how long nothing may
 * happen to it besides. */
struct stream_config tool_keep_config(const struct tools *t, struct str content_type,
                                      uint64_t max_bytes, uint64_t wait_s);

/* ---- tool_keep.c ---- */

/* What a stream costs besides its bytes, about. */
#define TOOL_KEEP_COST 1024

/* Counts a stream of such a name that has just been finished; others may go for it. */
void tool_keep_add(struct tools *t, struct str name, uint64_t bytes);
void tool_keep_use(struct tools *t, struct str name); /* it has been read from */
void tool_keep_deinit(struct tools *t);

struct tool_kept;
struct tool_making;

struct tool {
    struct tool_info info;
    const struct builtin_tool *builtin; /* or NULL, and then spec */
    void *feature;                      /* the state of the one that offers it */
    const struct tool_spec *spec;
    struct buf schema;
    uint64_t parallel;
    uint64_t running;    /* first pages, and results that are being made behind them */
    uint64_t continuing; /* further pages */
};

struct tools {
    struct tools_setup setup;
    struct tool *rows; /* in the order of their names */
    size_t n;
    struct link calls; /* that have no page yet */
    struct link pages;
    struct link runs;
    struct link kept; /* of tool_keep.c */
    struct map kept_by_name;
    uint64_t kept_bytes;
    struct gate work; /* pages, runs, and what is being removed of what was kept */
};

/* One page that is being made, which a call waits for. */
struct tool_page {
    struct tools *all;
    struct tool *tool;      /* NULL: there is none, and it will be refused */
    struct tool_call *call; /* NULL: cancelled; the page goes when what is under way is done */
    struct link link;
    struct arena arena;
    struct str args;      /* in one line; with a cursor they come from there, if at all */
    struct str caller_id; /* p == NULL: nobody */
    uint8_t fingerprint[SHA256_SIZE];
    bool looked;       /* at the arguments that came with the call: tool_look */
    const char *wrong; /* with them; NULL: nothing */
    const char *unfit; /* what the tool, which is built in, has against them; NULL: nothing */
    uint64_t number;
    bool continues;
    struct str state; /* of the cursor */

    /* Whoever makes it. */
    struct builtin_page lent; /* to a built-in tool; under_way counts for the others, too */
    struct tool_making *run;  /* the first page of a result; NULL: none */
    struct tool_kept *kept;   /* of one that is kept; NULL: none */
};

static inline struct tool_page *tool_page_of(struct builtin_page *p)
{
    return container_of(p, struct tool_page, lent);
}

struct tool *tool_find(const struct tools *t, struct str id); /* NULL: none */

/* ---- tool_check.c ---- */

/* Looks at the arguments that came with the call, which takes the longer the more of them there
 * are. On any thread, to which the page belongs meanwhile. */
void tool_look(struct tool_page *p, struct str args);

/* Looks whether the call may have its page, and puts what it finds there. False: it is refused. */
bool tool_check(struct tool_page *p, struct tool_call *c);

/* The longest id of a caller that leaves room in a cursor. */
size_t tool_caller_max(const struct tools *t);

/* Gives a built-in tool its state, with the arguments. ERR_SYNTAX with a sentence in why. */
int tool_take_args(struct tool_page *p, char *why, size_t size);

/* ---- tool_page.c: how a page ends: one of these, exactly once; it is gone then ---- */

/* With what stands in call->result. state: of the cursor for the next page; n == 0: there is none.
 */
void tool_page_done(struct tool_page *p, struct str state);

void tool_page_invalid(struct tool_page *p, const char *why);
void tool_page_failed(struct tool_page *p, bool retryable, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* failure: as tool_put_failure makes it. */
void tool_page_failed_with(struct tool_page *p, struct str failure);

void tool_page_denied(struct tool_page *p);    /* 1001 */
void tool_page_expired(struct tool_page *p);   /* 1020 */
void tool_page_malformed(struct tool_page *p); /* 1021: it says what we never said */

/* Nobody waits for it any more. */
void tool_page_cancel(struct tool_page *p);

/* ---- while it lasts ---- */

static inline void tool_page_begin(struct tool_page *p)
{
    p->lent.under_way = true;
}

/* What was under way is done. False: so is the page, since its call was cancelled. */
bool tool_page_back(struct tool_page *p);

/* ---- refusals ---- */

void tool_refuse(struct tool_call *c, enum tool_outcome outcome, uint16_t code, bool retryable,
                 const char *fmt, ...) __attribute__((format(printf, 5, 6)));
#define TOOL_DENIED_TEXT  "the credential does not grant this"
#define TOOL_EXPIRED_TEXT "cursor expired; re-issue the original RunTool"

/* ---- results that are made ---- */

void tool_run_start(struct tool_page *p);

/* Its page goes away. */
void tool_run_abandon(struct tool_making *r);

/* All are stopped, and what was promised of them is marked as failed. */
void tool_runs_stop(struct tools *t);

void tool_kept_start(struct tool_page *p);
void tool_kept_end(struct tool_kept *k);

/* The state of a cursor into a result: id, number of the row, and when whoever makes it has ended
 * at the latest, in seconds since 1970. All big-endian. */
#define TOOL_KEPT_STATE (TOOL_KEEP_ID + 8 + 4)
void tool_kept_state(const uint8_t id[TOOL_KEEP_ID], uint64_t row, int64_t deadline_s,
                     uint8_t out[TOOL_KEPT_STATE]);

/* {"code":N,"message":"...","retryable":B} */
void tool_put_failure(struct buf *out, uint16_t code, struct str message, bool retryable);

/* ---- built-in tools ---- */

extern const struct builtin_ops tool_builtin_ops;

/* Has the tool make the page: at once, or when the state that is kept for it has been read. */
void tool_state_start(struct tool_page *p);

/* What the tool has said of a page. more: where the one behind it begins. */
void tool_state_done(struct builtin_page *p, struct str more);

/* tool_streams.c; struct builtin_ops has it. */
void tool_read_stream(struct builtin_page *p, const struct builtin_stream *s);

#endif
