// SPDX-License-Identifier: Apache-2.0
/* tool_core.h -- what the files of the tools share.
 *
 * tool.c has the tools and the order in which a call is checked; a call that passes becomes a
 * *job*. Jobs of built-in tools are done by tool_streams.c and tool_logs.c; they make a page from a
 * *position*, which is theirs to understand, and tool_state.c puts that and the arguments into a
 * cursor. Jobs of other tools are done by tool_run.c, which has the result made and kept, and
 * tool_kept.c, which reads the pages behind the first. */
#ifndef FEATURE_TOOLS_TOOL_CORE_H
#define FEATURE_TOOLS_TOOL_CORE_H

#include "base/arena.h"
#include "base/map.h"
#include "base/sha256.h"
#include "feature/logs/log.h"
#include "feature/logs/log_query.h"
#include "feature/tools/tool.h"
#include "feature/tools/tool_args.h"
#include "feature/tools/tool_rows.h"
#include "feature/tools/tools_setup.h"
#include "store/store.h"

#define TOOL_BUILTIN_PARALLEL   64
#define TOOL_BUILTIN_PAGE_ROWS  100
#define TOOL_BUILTIN_PAGE_BYTES (64 * 1024)

/* What is kept for a cursor outlives it by this much: nobody may find it gone who came in time. */
#define TOOL_KEEP_SLACK_S       60

/* `.tool/` and the id in hexadecimal. */
#define TOOL_KEEP_ID            16
#define TOOL_KEEP_NAME          (sizeof STORE_TOOLS - 1 + 2 * TOOL_KEEP_ID)
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

struct tool_making;
struct tool_job;

struct tool_builtin {
    const char *id, *description;
    const struct tool_arg *args;
    size_t n_args;
    const char *capability; /* NULL: anybody may */
    bool pages;
    bool bare; /* takes no arguments, so that a cursor's state is the position and nothing else */
    bool (*is_there)(const struct tools_setup *s);
    /* Makes a page, at once or later, and says so with one of the functions below. */
    void (*start)(struct tool_job *j);
};

struct tool {
    struct tool_info info;
    const struct tool_builtin *builtin; /* or NULL, and then */
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
    struct link calls; /* that have no job yet */
    struct link jobs;
    struct link runs;
    struct link kept; /* of tool_keep.c */
    struct map kept_by_name;
    uint64_t kept_bytes;
    uint32_t removing; /* of what was kept */
    struct task quit;
    void (*stopped)(void *ctx); /* NULL: not asked for */
    void *ctx;
};

/* One call that is being answered. */
struct tool_job {
    struct tools *all;
    struct tool *tool;
    struct tool_call *call; /* NULL: cancelled; the job goes when what is under way is done */
    struct link link;
    struct arena arena;
    struct str args;      /* in one line; with a cursor they come from there, if at all */
    struct str caller_id; /* p == NULL: nobody */
    uint8_t fingerprint[SHA256_SIZE];
    uint64_t page;
    bool continues;
    struct str state;    /* of the cursor */
    struct str position; /* where the page begins; n == 0: at the beginning */
    bool under_way;      /* an operation of the store or the lane */
    struct timer timer;

    /* of built-in tools */
    struct tool_args given;
    struct store_read read;
    struct store_list list;
    struct store_write write;
    struct stream_config keep;
    struct buf blob; /* a state that is kept */
    struct log log;
    struct log_read lines;
    struct log_query query;
    struct log_scan scan;
    uint64_t until, scanned; /* of a file */
    uint64_t ends_at_ms;     /* of waiting for feedback */
    struct buf items;

    /* of results that are made and kept */
    struct tool_making *run; /* that makes the first page; NULL: none does */
    struct tool_rows rows;
    struct store_watch watch;
    struct str name;
    uint64_t row;
    int64_t deadline_s;
    uint64_t trouble_ms; /* since when the store has not answered; 0: it does */
    bool watches, changed;
};

/* ---- how a job ends: one of these, exactly once; the job is gone then ---- */

/* With what stands in call->result. more.n > 0: the page behind begins there. */
void tool_job_page(struct tool_job *j, struct str more);

/* The same with a state that is ready for the cursor. */
void tool_job_page_state(struct tool_job *j, struct str state);

void tool_job_invalid(struct tool_job *j, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void tool_job_failed(struct tool_job *j, bool retryable, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* failure: as tool_put_failure makes it. */
void tool_job_failed_with(struct tool_job *j, struct str failure);

void tool_job_expired(struct tool_job *j);   /* 1020 */
void tool_job_malformed(struct tool_job *j); /* 1021: it says what we never said */

/* ---- while it lasts ---- */

static inline void tool_job_begin(struct tool_job *j)
{
    j->under_way = true;
}

/* The operation is done. False: so is the job, since its call was cancelled. */
bool tool_job_back(struct tool_job *j);

/* ---- results that are made ---- */

void tool_run_start(struct tool_job *j);
void tool_kept_start(struct tool_job *j);

/* Its job goes away. */
void tool_run_abandon(struct tool_making *r);

/* All are stopped, and what was promised of them is marked as failed. */
void tool_runs_stop(struct tools *t);

/* The state of a cursor into a result: id, number of the row, and when whoever makes it has ended
 * at the latest, in seconds since 1970. All big-endian. */
#define TOOL_KEPT_STATE (TOOL_KEEP_ID + 8 + 4)
void tool_kept_state(const uint8_t id[TOOL_KEEP_ID], uint64_t row, int64_t deadline_s,
                     uint8_t out[TOOL_KEPT_STATE]);

/* {"code":N,"message":"...","retryable":B} */
void tool_put_failure(struct buf *out, uint16_t code, struct str message, bool retryable);

/* ---- built-in tools ---- */

extern const struct tool_builtin tool_page_gen, tool_stream_read, tool_stream_list,
    tool_session_read, tool_log_read, tool_feedback_wait;

/* Starts the job: at once, or when the state that is kept for it has been read. */
void tool_state_start(struct tool_job *j);

/* Of what is there in the setup: t->stopped is called when nothing is under way. */
void tool_quit_if_idle(struct tools *t);

void tool_put_be(uint8_t *out, uint64_t v, size_t n);
uint64_t tool_get_be(const uint8_t *from, size_t n);

#endif
