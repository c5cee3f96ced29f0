// SPDX-License-Identifier: Apache-2.0
/* tools_service.h -- tools for programs: what their three wires share, calls and their audit. The
 * wires are /atd/v1/ and /mcp (tools_http.h), and a Unix socket (tools_socket.h). */
#ifndef FEATURE_TOOLS_TOOLS_SERVICE_H
#define FEATURE_TOOLS_TOOLS_SERVICE_H

#include "base/list.h"
#include "base/str.h"
#include "feature/tools/tool.h"

struct audit;
struct sched;
struct tools_service;
struct trace;

/* All of it is kept by reference. */
struct tools_service_setup {
    struct tools *tools;
    struct sched *sched;
    const struct trace *trace;
    struct audit *audit; /* that calls are told to; NULL: to none */
};

struct tools_service *tools_service_new(const struct tools_service_setup *setup);

/* Nobody asks any more. stopped() comes from the schedule, when the last line of the audit is in
 * its file; then tools_service_free is due. */
void tools_service_stop(struct tools_service *s, void (*stopped)(void *ctx), void *ctx);
void tools_service_free(struct tools_service *s); /* NULL is fine */

/* ---- for the wires ---- */

const struct tools *tools_service_tools(const struct tools_service *s);

/* One call of a wire, which embeds it: zero-initialised, with the `in` part of the call filled.
 * Done when its line is in the audit, if there is one: what somebody has been told of is on record.
 */
struct tool_ask {
    struct tool_call call;
    void (*done)(struct tool_ask *a);
    /* private */
    struct tools_service *service; /* NULL: not begun */
    struct audit_line *line;       /* being written; NULL: none is */
    int64_t begun_wall_ms;
    uint64_t begun_ms;
    bool over;
};

/* Calls done() once, and never before this has returned. */
void tools_ask(struct tools_service *s, struct tool_ask *a);

/* Before done(): that is not called any more. It stands in the audit all the same. */
void tools_ask_cancel(struct tool_ask *a);

/* Begun or not; it is done or cancelled. */
void tools_ask_deinit(struct tool_ask *a);

#endif
