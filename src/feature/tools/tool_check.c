// SPDX-License-Identifier: Apache-2.0
/* tool_check.c -- whether a call may have its page: the checks, in their order. */
#include "base/err.h"
#include "base/json.h"
#include "base/json_view.h"
#include "base/utf8.h"
#include "feature/tools/tool_args.h"
#include "feature/tools/tool_core.h"
#include "token/cursor.h"

#include <string.h>

size_t tool_caller_max(const struct tools *t)
{
    return cursor_issuer_format(t->setup.issuer) == CURSOR_ATD ? TOOL_CALLER_ATD : TOOL_CALLER_MAX;
}

static bool is_given(struct str args)
{
    args = str_trim(args);
    return args.n > 0 && !str_eq(args, STR("null"));
}

/* ---- the arguments ---- */

int tool_take_args(struct tool_page *p, char *why, size_t size)
{
    const struct builtin_tool *b = p->tool->builtin;
    p->lent.state = arena_alloc(&p->arena, b->size);
    memset(p->lent.state, 0, b->size);
    return tool_args_take(p->lent.state, b->args, b->n_args, p->args, &p->arena, why, size);
}

/* The tool gets them as they came, but in one line: their one spelling, which a cursor knows them
 * by, has no integers above 2^53. */
static const char *look_at_text(struct tool_page *p, struct str args)
{
    struct buf text = {0};
    int err = cursor_fingerprint(args, STR_NONE, p->fingerprint);
    args = view_trim(args);
    if (err == ERR_TOO_LARGE)
        return "there are more than 1 MiB of them";
    if (err != 0)
        return "they are not valid JSON without repeated names";
    if (view_type(args) != VIEW_OBJECT)
        return "a JSON object is expected";
    view_put_unbroken(&text, args);
    p->args = arena_dup(&p->arena, buf_str(&text));
    buf_deinit(&text);
    return NULL;
}

/* Built-in tools know their arguments; the others check them themselves. */
void tool_look(struct tool_page *p, struct str args)
{
    char why[256];
    p->looked = true;
    p->wrong = look_at_text(p, is_given(args) ? args : STR("{}"));
    if (p->wrong == NULL && p->tool != NULL && p->tool->builtin != NULL &&
        tool_take_args(p, why, sizeof why) != 0)
        p->unfit = arena_printf(&p->arena, "%s", why).p;
}

static bool check_args(struct tool_page *p, struct tool_call *c)
{
    if (!p->looked)
        tool_look(p, c->args);
    if (p->wrong != NULL)
        tool_refuse(c, TOOL_INVALID_ARGS, 0, false, "invalid arguments: %s", p->wrong);
    return p->wrong == NULL;
}

/* ---- the checks ---- */

static bool check_caller(struct tool_page *p, struct tool_call *c)
{
    struct str id = c->caller_id;
    if (id.n <= tool_caller_max(p->all) && utf8_valid(id)) {
        p->caller_id = id.n > 0 || id.p == NULL ? arena_dup(&p->arena, id) : STR("");
        return true;
    }
    tool_refuse(c, TOOL_INVALID_ARGS, 0, false, "a caller's id has at most %zu bytes of UTF-8",
                tool_caller_max(p->all));
    return false;
}

static void tool_refuse_cursor(struct tool_call *c, enum cursor_verdict v,
                               const struct cursor_payload *p)
{
    uint16_t code = (uint16_t)cursor_verdict_code(v);
    struct str asked = c->tool_id;
    if (v == CURSOR_EXPIRED || v == CURSOR_SESSION)
        tool_refuse(c, TOOL_CURSOR_REFUSED, code, false, TOOL_EXPIRED_TEXT);
    else if (v == CURSOR_TOOL)
        tool_refuse(c, TOOL_CURSOR_REFUSED, code, false,
                    "cursor tool_id mismatch: cursor=%.*s request=%.*s", (int)p->tool_id.n,
                    p->tool_id.p, asked.n < 200 ? (int)asked.n : 200, asked.p);
    else if (v == CURSOR_CALLER || v == CURSOR_ARGS)
        tool_refuse(c, TOOL_CURSOR_REFUSED, code, false, "%s", cursor_verdict_text(v));
    else
        tool_refuse(c, TOOL_CURSOR_REFUSED, code, false, "cursor invalid");
}

/* All that it is bound to: the tool, the caller, the arguments if any were sent, and us. */
static bool tool_check_cursor(struct tool_page *p, struct tool_call *c)
{
    const struct tools_setup *s = &p->all->setup;
    struct cursor_payload held;
    if (c->cursor.p == NULL)
        return true;
    if (is_given(c->args) && !check_args(p, c))
        return false;
    struct cursor_asked asked = {.tool_id = c->tool_id,
                                 .caller_id = p->caller_id,
                                 .args = is_given(c->args) ? p->fingerprint : NULL};
    enum cursor_verdict v = cursor_verify(s->issuer, &p->arena, c->cursor, &asked,
                                          s->sched->wall_ms / 1000, s->cursor_ttl_s, &held);
    if (v == CURSOR_NO_CURSOR && c->cursor_loose)
        return true;
    if (v != CURSOR_OK) {
        tool_refuse_cursor(c, v, &held);
        return false;
    }
    memcpy(p->fingerprint, held.args, sizeof p->fingerprint);
    p->number = held.page;
    p->state = held.state;
    p->continues = true;
    return true;
}

static bool check_tool(struct tool_page *p, struct tool_call *c)
{
    struct str id = c->tool_id;
    if (p->tool == NULL)
        tool_refuse(c, TOOL_TOOL_NOT_FOUND, 0, false, "tool not found: %.*s",
                    id.n < 200 ? (int)id.n : 200, id.p);
    else if (p->continues && !p->tool->info.pages)
        tool_refuse(c, TOOL_CURSOR_REFUSED, (uint16_t)cursor_verdict_code(CURSOR_TOOL), false,
                    "tool %.*s does not support pagination but received a cursor", (int)id.n, id.p);
    else
        return true;
    return false;
}

static void put_missing(struct tool_call *c, struct str needed)
{
    struct buf *out = &c->details;
    buf_put(out, STR("{\"required\":"));
    json_put_strings(out, &needed, 1);
    buf_put(out, STR(",\"granted\":"));
    json_put_strings(out, c->capabilities, c->n_capabilities);
    buf_put(out, STR(",\"missing\":"));
    json_put_strings(out, &needed, 1);
    buf_putc(out, '}');
}

static bool check_grant(struct tool_page *p, struct tool_call *c)
{
    if (tools_may(&p->tool->info, c->principal))
        return true;
    tool_refuse(c, TOOL_CAPABILITY_DENIED, TOOL_CODE_CAPABILITY, false, TOOL_DENIED_TEXT);
    return false;
}

static bool check_capability(struct tool_page *p, struct tool_call *c)
{
    struct str needed = p->tool->info.capability, id = p->tool->info.id;
    if (needed.n == 0)
        return true;
    for (size_t i = 0; i < c->n_capabilities; i++)
        if (str_eq(c->capabilities[i], needed))
            return true;
    tool_refuse(c, TOOL_CAPABILITY_DENIED, TOOL_CODE_CAPABILITY, false,
                "capability denied: %.*s requires %.*s", (int)id.n, id.p, (int)needed.n, needed.p);
    put_missing(c, needed);
    return false;
}

static bool check_slots(struct tool_page *p, struct tool_call *c)
{
    struct tool *tool = p->tool;
    struct str id = tool->info.id;
    uint64_t taken = p->continues ? tool->continuing : tool->running;
    if (taken < tool->parallel)
        return true;
    tool_refuse(c, TOOL_RATE_LIMITED, TOOL_CODE_BUSY, true, "rate limited for %.*s%s", (int)id.n,
                id.p, p->continues ? " (continuation)" : "");
    return false;
}

/* Of a first page. */
static bool check_given(struct tool_page *p, struct tool_call *c)
{
    if (p->continues)
        return true;
    if (!check_args(p, c))
        return false;
    if (p->unfit != NULL)
        tool_refuse(c, TOOL_INVALID_ARGS, 0, false, "invalid arguments: %s", p->unfit);
    return p->unfit == NULL;
}

bool tool_check(struct tool_page *p, struct tool_call *c)
{
    return check_caller(p, c) && tool_check_cursor(p, c) && check_tool(p, c) && check_grant(p, c) &&
           check_capability(p, c) && check_given(p, c) && check_slots(p, c);
}
