// SPDX-License-Identifier: Apache-2.0
/* tool_page.c -- a page that is being made: how it ends, and what a built-in tool may say of it. */
#include "access/principal.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/must.h"
#include "feature/tools/tool_core.h"
#include "token/cursor.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define TEXT_MAX 1024 /* of a sentence: names of tools and callers, and words of ours */

/* ---- refusals ---- */

void tool_refuse(struct tool_call *c, enum tool_outcome outcome, uint16_t code, bool retryable,
                 const char *fmt, ...)
{
    char text[TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->outcome = outcome;
    c->code = code;
    c->retryable = retryable;
    buf_put(&c->message, str_of_cstr(text));
}

void tool_put_failure(struct buf *out, uint16_t code, struct str message, bool retryable)
{
    buf_printf(out, "{\"code\":%u,\"message\":", code);
    json_put_string(out, message);
    buf_printf(out, ",\"retryable\":%s}", retryable ? "true" : "false");
}

/* ---- lifetime ---- */

static void tool_page_free(struct tool_page *p)
{
    struct tools *t = p->all;
    const struct builtin_tool *b = p->tool->builtin;
    must(!p->lent.under_way);
    if (p->continues)
        p->tool->continuing--;
    else if (b != NULL)
        p->tool->running--; /* of a run: when that ends */
    if (p->lent.ops != NULL && b->end != NULL)
        b->end(&p->lent);
    if (p->kept != NULL)
        tool_kept_end(p->kept);
    list_remove(&p->link);
    principal_unref(p->lent.principal);
    arena_deinit(&p->arena);
    free(p);
    gate_leave(&t->work);
}

/* The call has its answer; it may be gone when this returns. */
static void tool_page_end(struct tool_page *p)
{
    struct tool_call *c = p->call;
    c->made = NULL;
    c->page = p->number;
    tool_page_free(p);
    c->done(c);
}

bool tool_page_back(struct tool_page *p)
{
    p->lent.under_way = false;
    if (p->call != NULL)
        return true;
    tool_page_free(p);
    return false;
}

void tool_page_cancel(struct tool_page *p)
{
    p->call = NULL;
    p->lent.result = NULL;
    if (p->run != NULL)
        tool_run_abandon(p->run);
    if (!p->lent.under_way)
        tool_page_free(p);
}

/* ---- how it ends ---- */

static enum cursor_verdict issue(const struct tool_page *p, struct str state, struct buf *out)
{
    const struct tools_setup *s = &p->all->setup;
    struct cursor_payload payload = {.tool_id = p->tool->info.id,
                                     .caller_id = p->caller_id,
                                     .page = p->number + 1,
                                     .issued_at_s = s->sched->wall_ms / 1000,
                                     .state = state};
    memcpy(payload.args, p->fingerprint, sizeof payload.args);
    return cursor_issue(s->issuer, &payload, out);
}

void tool_page_done(struct tool_page *p, struct str state)
{
    struct tool_call *c = p->call;
    c->outcome = TOOL_SUCCESS;
    if (state.n > 0 && issue(p, state, &c->next_cursor) != CURSOR_OK) {
        c->result.n = 0;
        tool_page_failed(p, false, "the page cannot be continued: its cursor would be too large");
        return;
    }
    tool_page_end(p);
}

void tool_page_failed_with(struct tool_page *p, struct str failure)
{
    struct tool_call *c = p->call;
    json_t *f = json_loadb(failure.p, failure.n, 0, NULL);
    c->outcome = TOOL_EXECUTION_FAILED;
    c->code = (uint16_t)json_integer_value(json_object_get(f, "code"));
    c->retryable = json_is_true(json_object_get(f, "retryable"));
    const char *message = json_string_value(json_object_get(f, "message"));
    buf_put(&c->message, str_of_cstr(message != NULL ? message : ""));
    json_decref(f);
    c->result.n = 0;
    buf_put(&c->result, failure);
    tool_page_end(p);
}

static void tool_page_vfailed(struct tool_page *p, bool retryable, const char *fmt, va_list args)
{
    struct buf failure = {0};
    char text[TEXT_MAX];
    vsnprintf(text, sizeof text, fmt, args);
    tool_put_failure(&failure, TOOL_CODE_UNHANDLED, str_of_cstr(text), retryable);
    tool_page_failed_with(p, buf_str(&failure));
    buf_deinit(&failure);
}

void tool_page_failed(struct tool_page *p, bool retryable, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    tool_page_vfailed(p, retryable, fmt, args);
    va_end(args);
}

void tool_page_invalid(struct tool_page *p, const char *why)
{
    tool_refuse(p->call, TOOL_INVALID_ARGS, 0, false, "invalid arguments: %s", why);
    tool_page_end(p);
}

void tool_page_denied(struct tool_page *p)
{
    tool_refuse(p->call, TOOL_CAPABILITY_DENIED, TOOL_CODE_CAPABILITY, false, TOOL_DENIED_TEXT);
    tool_page_end(p);
}

void tool_page_expired(struct tool_page *p)
{
    tool_refuse(p->call, TOOL_CURSOR_REFUSED, (uint16_t)cursor_verdict_code(CURSOR_EXPIRED), false,
                TOOL_EXPIRED_TEXT);
    tool_page_end(p);
}

void tool_page_malformed(struct tool_page *p)
{
    tool_refuse(p->call, TOOL_CURSOR_REFUSED, (uint16_t)cursor_verdict_code(CURSOR_FORMAT), false,
                "cursor invalid");
    tool_page_end(p);
}

/* ---- for built-in tools ---- */

static void tool_builtin_invalid(struct builtin_page *p, const char *fmt, ...)
{
    char text[TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    tool_page_invalid(tool_page_of(p), text);
}

static void tool_builtin_failed(struct builtin_page *p, bool retryable, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    tool_page_vfailed(tool_page_of(p), retryable, fmt, args);
    va_end(args);
}

static void tool_builtin_denied(struct builtin_page *p)
{
    tool_page_denied(tool_page_of(p));
}

static void tool_builtin_malformed(struct builtin_page *p)
{
    tool_page_malformed(tool_page_of(p));
}

static bool tool_builtin_back(struct builtin_page *p)
{
    return tool_page_back(tool_page_of(p));
}

const struct builtin_ops tool_builtin_ops = {
    .done = tool_state_done,
    .invalid = tool_builtin_invalid,
    .failed = tool_builtin_failed,
    .denied = tool_builtin_denied,
    .malformed = tool_builtin_malformed,
    .read_stream = tool_read_stream,
    .back = tool_builtin_back,
};
