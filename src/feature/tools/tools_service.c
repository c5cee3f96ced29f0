// SPDX-License-Identifier: Apache-2.0
/* tools_service.c -- calls and their audit. */
#include "feature/tools/tools_service.h"
#include "base/err.h"
#include "base/gate.h"
#include "base/must.h"
#include "feature/tools/tools_audit.h"
#include "feature/tools/tools_trace.h"
#include "http/audit.h"

#include <stdlib.h>

TRACE_TABLE_DEFINE(tools_traces, TOOLS_TRACES);

struct tools_service {
    struct tools_service_setup setup;
    struct gate lines; /* of the audit, being written */
};

/* ---- the audit ---- */

struct audit_line {
    struct audit_wait wait;
    struct tools_service *service;
    struct tool_ask *ask; /* that waits for it; NULL: none */
};

static void tools_service_finish(struct tool_ask *a)
{
    a->over = true;
    a->done(a);
}

/* A call that has been made is answered even if it cannot be put on record: whoever made it would
 * make it again. A trace has told. */
static void tools_service_on_line(struct audit_wait *wait, int err)
{
    struct audit_line *line = container_of(wait, struct audit_line, wait);
    struct tools_service *s = line->service;
    struct tool_ask *a = line->ask;
    free(line);
    if (a != NULL) {
        a->line = NULL;
        tools_service_finish(a);
    }
    gate_leave(&s->lines);
}

static struct audit_line *write_line(struct tool_ask *a, bool cancelled)
{
    struct tools_service *s = a->service;
    struct audit_line *line = mem_zalloc(sizeof *line);
    struct tool_record e = {.call = &a->call,
                            .begun_ms = a->begun_wall_ms,
                            .duration_ms = s->setup.sched->now_ms - a->begun_ms,
                            .cancelled = cancelled};
    struct buf text = {0};
    line->service = s;
    line->wait.done = tools_service_on_line;
    tools_audit_put(&text, &e);
    audit_put_line(s->setup.audit, buf_str(&text));
    buf_deinit(&text);
    gate_enter(&s->lines);
    audit_sync(s->setup.audit, &line->wait);
    return line;
}

/* ---- calls ---- */

static void tools_service_on_called(struct tool_call *c)
{
    struct tool_ask *a = container_of(c, struct tool_ask, call);
    if (a->service->setup.audit == NULL || !tools_audit_wants(c)) {
        tools_service_finish(a);
        return;
    }
    a->line = write_line(a, false);
    a->line->ask = a;
}

void tools_ask(struct tools_service *s, struct tool_ask *a)
{
    a->service = s;
    a->begun_ms = s->setup.sched->now_ms;
    a->begun_wall_ms = s->setup.sched->wall_ms;
    a->call.done = tools_service_on_called;
    tools_call(s->setup.tools, &a->call);
}

void tools_ask_cancel(struct tool_ask *a)
{
    struct tools_service *s = a->service;
    must(!a->over);
    a->over = true;
    if (a->line != NULL) {
        a->line->ask = NULL;
        a->line = NULL;
        return;
    }
    tools_cancel(s->setup.tools, &a->call);
    if (s->setup.audit != NULL)
        write_line(a, true);
}

void tools_ask_deinit(struct tool_ask *a)
{
    tool_call_deinit(&a->call);
}

/* ---- the whole ---- */

const struct tools *tools_service_tools(const struct tools_service *s)
{
    return s->setup.tools;
}

struct tools_service *tools_service_new(const struct tools_service_setup *setup)
{
    struct tools_service *s = mem_zalloc(sizeof *s);
    s->setup = *setup;
    gate_init(&s->lines, setup->sched);
    return s;
}

void tools_service_stop(struct tools_service *s, void (*stopped)(void *ctx), void *ctx)
{
    gate_shut(&s->lines, stopped, ctx);
}

void tools_service_free(struct tools_service *s)
{
    free(s);
}
