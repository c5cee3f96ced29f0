// SPDX-License-Identifier: Apache-2.0
/* fold_ui_tool.c -- tool calls of a UI message: input in pieces, then whole, then an outcome. */
#include "base/mem.h"
#include "feature/gateway/fold_ui.h"
#include "base/json_repair.h"
#include "base/json_view.h"

#include <stdlib.h>

#define CALL_COST 256 /* a tool_call and its place in the map, besides its key */

/* ---- finding ---- */

static struct ui_tool_call *find_call(struct ui_chunk *c)
{
    return map_get(&c->ui->calls, ui_decode(c->ui, c->values[UI_CHUNK_TOOL_CALL_ID]));
}

static struct ui_tool_call *find_or_add_call(struct ui_chunk *c)
{
    struct ui_tool_call *call = find_call(c);
    if (call != NULL || !fold_hold(c->f, CALL_COST))
        return call;
    call = mem_zalloc(sizeof *call);
    fold_set(c->f, &call->key, ui_decode(c->ui, c->values[UI_CHUNK_TOOL_CALL_ID]));
    if (c->f->given_up) {
        free(call);
        return NULL;
    }
    map_put(&c->ui->calls, call->key, call);
    return call;
}

void tool_calls_free(struct fold *f, struct ui *ui)
{
    size_t at = 0;
    struct ui_tool_call *call;
    while ((call = map_next(&ui->calls, &at)) != NULL) {
        if (f != NULL)
            fold_release(f, CALL_COST + call->key.n);
        free((char *)call->key.p);
        free(call);
    }
}

/* The call's part of this kind in the current step. A call has at most one of each there. */
static struct part *find_in_step(const struct ui *ui, const struct ui_tool_call *call,
                                 enum part_kind kind)
{
    for (struct part *p = call->newest; p != NULL && p->step == ui->step; p = p->older)
        if (p->kind == kind)
            return p;
    return NULL;
}

/* The first of either kind in the current step. */
static struct part *find_first_in_step(const struct ui *ui, const struct ui_tool_call *call)
{
    struct part *first = NULL;
    for (struct part *p = call->newest; p != NULL && p->step == ui->step; p = p->older)
        first = p;
    return first;
}

/* The part that an outcome belongs to; NULL: nobody called. */
static struct part *find_invocation(struct ui_chunk *c, struct ui_tool_call **call)
{
    *call = find_call(c);
    if (*call == NULL)
        return NULL;
    struct part *p = find_first_in_step(c->ui, *call);
    return p != NULL ? p : (*call)->newest;
}

static struct part *add_part(struct ui_chunk *c, struct ui_tool_call *call, enum part_kind kind)
{
    struct part *p = part_new(c, kind);
    if (p == NULL)
        return NULL;
    part_set(c, p, PART_TOOL_CALL_ID, UI_CHUNK_TOOL_CALL_ID);
    p->older = call->newest;
    call->newest = p;
    return p;
}

static enum part_kind kind_of(const struct ui_chunk *c)
{
    return str_eq(c->values[UI_CHUNK_DYNAMIC], STR("true")) ? PART_DYNAMIC_TOOL : PART_TOOL;
}

/* ---- changing ---- */

static void fold_ui_tool_clear(struct ui_chunk *c, struct part *p, enum part_member m)
{
    fold_clear(c->f, &p->values[m]);
}

static void put_quoted(struct buf *out, struct str inside)
{
    buf_putc(out, '"');
    buf_put(out, inside);
    buf_putc(out, '"');
}

static void drop_live_input(struct ui_chunk *c, struct part *p)
{
    fold_drop(c->f, &p->text);
    p->live = false;
}

/* The input so far becomes the input for good, and its text too where that is kept. */
static void settle_input(struct ui_chunk *c, struct part *p, bool keep_text)
{
    struct buf input = {0}, raw = {0};
    if (p->live) {
        tool_put_live_input(p, &input);
        put_quoted(&raw, buf_str(&p->text));
        drop_live_input(c, p); /* first, so that nothing is counted twice */
        fold_set(c->f, &p->values[PART_INPUT], buf_str(&input));
        fold_set(c->f, &p->values[PART_RAW_INPUT], keep_text ? buf_str(&raw) : STR_NONE);
        buf_deinit(&input);
        buf_deinit(&raw);
    }
    if (!keep_text)
        fold_ui_tool_clear(c, p, PART_RAW_INPUT);
}

static void set_if_there(struct ui_chunk *c, struct part *p, enum part_member to,
                         enum ui_chunk_member from)
{
    if (c->values[from].n > 0)
        part_set(c, p, to, from);
}

/* What every chunk but a delta does to its part; the input is the caller's. */
static void update(struct ui_chunk *c, struct part *p, const char *state, enum part_member metadata)
{
    p->state = state;
    set_if_there(c, p, PART_TOOL_NAME, UI_CHUNK_TOOL_NAME);
    part_set(c, p, PART_OUTPUT, UI_CHUNK_OUTPUT);
    part_set(c, p, PART_ERROR_TEXT, UI_CHUNK_ERROR_TEXT);
    part_set(c, p, PART_INPUT_ENCODING, UI_CHUNK_INPUT_ENCODING);
    part_set(c, p, PART_PRELIMINARY, UI_CHUNK_PRELIMINARY);
    set_if_there(c, p, PART_TITLE, UI_CHUNK_TITLE);
    set_if_there(c, p, PART_TOOL_METADATA, UI_CHUNK_TOOL_METADATA);
    set_if_there(c, p, PART_PROVIDER_EXECUTED, UI_CHUNK_PROVIDER_EXECUTED);
    set_if_there(c, p, metadata, UI_CHUNK_PROVIDER_METADATA);
}

/* ---- chunks ---- */

/* The part for new input of the call, which is made if need be. */
static struct part *begin_input(struct ui_chunk *c, struct ui_tool_call *call, enum part_kind kind,
                                const char *state, enum part_member metadata)
{
    struct part *p = find_in_step(c->ui, call, kind);
    if (p == NULL)
        p = add_part(c, call, kind);
    if (p == NULL)
        return NULL;
    drop_live_input(c, p);
    update(c, p, state, metadata);
    fold_ui_tool_clear(c, p, PART_INPUT);
    fold_ui_tool_clear(c, p, PART_RAW_INPUT);
    return p;
}

bool tool_input_start(struct ui_chunk *c)
{
    struct str encoding = c->values[UI_CHUNK_INPUT_ENCODING];
    if (encoding.n > 0 && !view_text_is(encoding, STR("json")) &&
        !view_text_is(encoding, STR("text")))
        return false;
    struct ui_tool_call *call = find_or_add_call(c);
    if (call != NULL)
        call->streaming = begin_input(c, call, kind_of(c), "input-streaming", PART_CALL_METADATA);
    return true;
}

/* In a later step the input goes on in another part, which begins with what the first one has. */
static struct part *carry_over(struct ui_chunk *c, struct ui_tool_call *call)
{
    static const enum part_member carried[] = {PART_TOOL_NAME, PART_TITLE, PART_TOOL_METADATA,
                                               PART_INPUT_ENCODING};
    const struct part *from = call->streaming;
    struct part *p = add_part(c, call, from->kind);
    if (p == NULL)
        return NULL;
    for (size_t i = 0; i < sizeof carried / sizeof *carried; i++)
        fold_set(c->f, &p->values[carried[i]], from->values[carried[i]]);
    fold_append(c->f, &p->text, buf_str(&from->text));
    return p;
}

bool tool_input_delta(struct ui_chunk *c)
{
    struct ui_tool_call *call = find_call(c);
    if (call == NULL || call->streaming == NULL)
        return false;
    if (call->streaming->step != c->ui->step)
        call->streaming = carry_over(c, call);
    struct part *p = call->streaming;
    if (p == NULL)
        return true;
    p->state = "input-streaming";
    p->live = true;
    fold_append(c->f, &p->text, view_inside(c->values[UI_CHUNK_INPUT_TEXT_DELTA]));
    return true;
}

bool tool_input_available(struct ui_chunk *c)
{
    struct ui_tool_call *call = find_or_add_call(c);
    if (call == NULL)
        return true;
    call->streaming = NULL;
    struct part *p = begin_input(c, call, kind_of(c), "input-available", PART_CALL_METADATA);
    if (p != NULL)
        part_set(c, p, PART_INPUT, UI_CHUNK_INPUT);
    return true;
}

/* Input that is not what the tool takes. A part that is there decides which kind of tool it is. */
bool tool_input_error(struct ui_chunk *c)
{
    struct ui_tool_call *call = find_or_add_call(c);
    if (call == NULL)
        return true;
    call->streaming = NULL;
    const struct part *first = find_first_in_step(c->ui, call);
    enum part_kind kind = first != NULL ? first->kind : kind_of(c);
    struct part *p = begin_input(c, call, kind, "output-error", PART_RESULT_METADATA);
    if (p != NULL)
        part_set(c, p, kind == PART_TOOL ? PART_RAW_INPUT : PART_INPUT, UI_CHUNK_INPUT);
    return true;
}

static bool settle_output(struct ui_chunk *c, bool failed)
{
    struct ui_tool_call *call;
    struct part *p = find_invocation(c, &call);
    if (p == NULL)
        return false;
    call->streaming = NULL;
    settle_input(c, p, failed && p->kind == PART_TOOL);
    update(c, p, failed ? "output-error" : "output-available", PART_RESULT_METADATA);
    return true;
}

bool tool_output_available(struct ui_chunk *c)
{
    return settle_output(c, false);
}

bool tool_output_error(struct ui_chunk *c)
{
    return settle_output(c, true);
}

bool tool_output_denied(struct ui_chunk *c)
{
    struct ui_tool_call *call;
    struct part *p = find_invocation(c, &call);
    if (p != NULL)
        p->state = "output-denied";
    return p != NULL;
}

static void fold_ui_tool_put_member(struct buf *out, struct str name, struct str value)
{
    if (value.n == 0)
        return;
    buf_putc(out, out->n > 1 ? ',' : '{');
    buf_put(out, name);
    buf_put(out, value);
}

bool tool_approval_request(struct ui_chunk *c)
{
    struct ui_tool_call *call;
    struct part *p = find_invocation(c, &call);
    if (p == NULL)
        return false;
    struct str descriptor = c->values[UI_CHUNK_APPROVAL_DESCRIPTOR];
    struct buf approval = {0};
    fold_ui_tool_put_member(&approval, STR("\"id\":"), c->values[UI_CHUNK_APPROVAL_ID]);
    if (view_type(descriptor) != VIEW_NULL)
        fold_ui_tool_put_member(&approval, STR("\"descriptor\":"), descriptor);
    fold_ui_tool_put_member(&approval, STR("\"inputSchemaInput\":"),
                            c->values[UI_CHUNK_INPUT_SCHEMA_INPUT]);
    fold_ui_tool_put_member(&approval, STR("\"signature\":"), c->values[UI_CHUNK_SIGNATURE]);
    buf_putc(&approval, '}');
    fold_set(c->f, &p->values[PART_APPROVAL], buf_str(&approval));
    buf_deinit(&approval);
    p->state = "approval-requested";
    return true;
}

void tool_put_live_input(const struct part *p, struct buf *out)
{
    if (view_text_is(p->values[PART_INPUT_ENCODING], STR("text"))) {
        put_quoted(out, buf_str(&p->text));
        return;
    }
    struct buf text = {0};
    view_decode(buf_str(&p->text), &text);
    json_repair(buf_str(&text), out);
    buf_deinit(&text);
}
