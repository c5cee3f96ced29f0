// SPDX-License-Identifier: Apache-2.0
/* tools_service.c -- calls and their audit. */
#include "feature/tools/tools_service.h"
#include "base/err.h"
#include "base/gate.h"
#include "base/must.h"
#include "feature/logs/logs.h"
#include "feature/tools/tools_audit.h"
#include "feature/tools/tools_trace.h"

#include <stdlib.h>

TRACE_TABLE_DEFINE(tools_traces, TOOLS_TRACES);

struct tools_service {
    struct tools_service_setup setup;
    struct log audit;
    struct gate lines; /* of the audit, being written */
};

/* ---- the audit's file ---- */

struct audit_line {
    struct log_append append;
    struct tools_service *service;
    struct tool_ask *ask; /* that waits for it; NULL: none */
    struct buf text;
};

static void tools_service_finish(struct tool_ask *a)
{
    a->over = true;
    a->done(a);
}

/* A call that has been made is answered even if it cannot be put on record: whoever made it would
 * make it again. */
static void tools_service_on_line(struct log_append *append, int err)
{
    struct audit_line *line = container_of(append, struct audit_line, append);
    struct tools_service *s = line->service;
    struct tool_ask *a = line->ask;
    if (err != 0)
        trace(s->setup.trace, AUDIT_FAILED, TRACE_STR("file", str_of_cstr(s->setup.audit)),
              TRACE_STR("error", str_of_cstr(err_text(err))));
    buf_deinit(&line->text);
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
    struct audit_event e = {.call = &a->call,
                            .begun_ms = a->begun_wall_ms,
                            .duration_ms = s->setup.sched->now_ms - a->begun_ms,
                            .cancelled = cancelled};
    line->service = s;
    audit_put(&line->text, &e);
    line->append = (struct log_append){
        .log = &s->audit, .lines = buf_str(&line->text), .done = tools_service_on_line};
    gate_enter(&s->lines);
    log_append(&line->append);
    return line;
}

/* ---- calls ---- */

static void tools_service_on_called(struct tool_call *c)
{
    struct tool_ask *a = container_of(c, struct tool_ask, call);
    if (a->service->setup.audit == NULL || !audit_wants(c)) {
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
    s->audit = (struct log){.lane = setup->lane, .path = setup->audit};
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
