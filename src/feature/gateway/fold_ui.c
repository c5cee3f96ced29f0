// SPDX-License-Identifier: Apache-2.0
/* fold_ui.c -- the chunks of a UI message stream, and the message. */
#include "feature/gateway/fold_ui.h"
#include "base/mem.h"
#include "base/json_view.h"

#include <stdlib.h>

/* What a part is counted as besides its texts: the struct and its place in a map. */
#define PART_COST 256
#define TOOL_COST 640

/* ---- the state ---- */

static void *ui_open(void)
{
    struct ui *ui = mem_zalloc(sizeof *ui);
    fold_meta_init(&ui->metadata);
    list_init(&ui->parts);
    map_init(&ui->texts);
    map_init(&ui->reasonings);
    map_init(&ui->calls);
    map_init(&ui->data);
    return ui;
}

static size_t part_members(enum part_kind kind)
{
    switch (kind) {
    case PART_TEXT:
    case PART_REASONING: return PART_TEXT_N;
    case PART_TOOL:
    case PART_DYNAMIC_TOOL: return PART_TOOL_N;
    default: return 0;
    }
}

static size_t part_cost(enum part_kind kind)
{
    return part_members(kind) == PART_TOOL_N ? TOOL_COST : PART_COST;
}

struct part *part_new(struct ui_chunk *c, enum part_kind kind)
{
    if (!fold_hold(c->f, part_cost(kind)))
        return NULL;
    struct part *p = mem_zalloc(sizeof *p + part_members(kind) * sizeof *p->values);
    p->kind = kind;
    p->step = c->ui->step;
    list_push(&c->ui->parts, &p->link);
    return p;
}

void part_set(struct ui_chunk *c, struct part *p, enum part_member to, enum ui_chunk_member from)
{
    fold_set(c->f, &p->values[to], c->values[from]);
}

static size_t part_free(struct part *p)
{
    size_t held = part_cost(p->kind) + p->key.n + p->text.n + p->data.n;
    free((char *)p->key.p);
    free((char *)p->data.p);
    buf_deinit(&p->text);
    for (size_t i = 0; i < part_members(p->kind); i++) {
        held += p->values[i].n;
        free((char *)p->values[i].p);
    }
    free(p);
    return held;
}

/* The seed stays: drawing one is a system call. */
static void empty_map(struct map *m)
{
    uint64_t seed = m->seed;
    map_deinit(m);
    m->seed = seed;
}

/* f may be NULL: nothing is counted any more. */
static void empty(struct fold *f, struct ui *ui)
{
    tool_calls_free(f, ui);
    empty_map(&ui->calls);
    empty_map(&ui->texts);
    empty_map(&ui->reasonings);
    empty_map(&ui->data);
    list_each_safe (l, &ui->parts) {
        size_t held = part_free(list_item(l, struct part, link));
        if (f != NULL)
            fold_release(f, held);
    }
    list_init(&ui->parts);
}

static void ui_close(void *state)
{
    struct ui *ui = state;
    empty(NULL, ui);
    fold_meta_deinit(&ui->metadata);
    free((char *)ui->id.p);
    buf_deinit(&ui->scratch);
    free(ui);
}

struct str ui_decode(struct ui *ui, struct str string)
{
    buf_deinit(&ui->scratch); /* one long id must not stay for good */
    view_decode(view_inside(string), &ui->scratch);
    return buf_str(&ui->scratch);
}

/* ---- text and reasoning ---- */

static bool start_text(struct ui_chunk *c, enum part_kind kind, struct map *open)
{
    struct part *p = part_new(c, kind);
    if (p == NULL)
        return true;
    p->state = "streaming";
    if (kind == PART_REASONING)
        part_set(c, p, PART_ID, UI_CHUNK_ID);
    part_set(c, p, PART_PROVIDER_METADATA, UI_CHUNK_PROVIDER_METADATA);
    fold_set(c->f, &p->key, ui_decode(c->ui, c->values[UI_CHUNK_ID]));
    map_put(open, p->key, p);
    return true;
}

static bool go_on_with_text(struct ui_chunk *c, struct map *open, bool end)
{
    struct str id = ui_decode(c->ui, c->values[UI_CHUNK_ID]);
    struct part *p = end ? map_remove(open, id) : map_get(open, id);
    if (p == NULL)
        return false;
    if (c->values[UI_CHUNK_PROVIDER_METADATA].n > 0)
        part_set(c, p, PART_PROVIDER_METADATA, UI_CHUNK_PROVIDER_METADATA);
    if (end)
        p->state = "done";
    else
        fold_append(c->f, &p->text, view_inside(c->values[UI_CHUNK_DELTA]));
    return true;
}

static bool fold_ui_text_start(struct ui_chunk *c)
{
    return start_text(c, PART_TEXT, &c->ui->texts);
}

static bool fold_ui_text_delta(struct ui_chunk *c)
{
    return go_on_with_text(c, &c->ui->texts, false);
}

static bool fold_ui_text_end(struct ui_chunk *c)
{
    return go_on_with_text(c, &c->ui->texts, true);
}

static bool fold_ui_reasoning_start(struct ui_chunk *c)
{
    return start_text(c, PART_REASONING, &c->ui->reasonings);
}

static bool fold_ui_reasoning_delta(struct ui_chunk *c)
{
    return go_on_with_text(c, &c->ui->reasonings, false);
}

static bool fold_ui_reasoning_end(struct ui_chunk *c)
{
    return go_on_with_text(c, &c->ui->reasonings, true);
}

/* ---- parts that come whole ---- */

static const struct str member_names[] = {
#define X(name, text, type) [UI_CHUNK_##name] = STR_INIT(text),
    UI_CHUNK_MEMBERS(X)
#undef X
};

/* The members that the chunk's type uses, in the order of the table, type first. */
static bool fold_ui_add_whole(struct ui_chunk *c)
{
    struct part *p = part_new(c, PART_WHOLE);
    if (p == NULL)
        return true;
    for (size_t i = 0; i < UI_CHUNK_N; i++) {
        if (c->values[i].n == 0)
            continue;
        fold_append(c->f, &p->text, p->text.n > 0 ? STR(",\"") : STR("{\""));
        fold_append(c->f, &p->text, member_names[i]);
        fold_append(c->f, &p->text, STR("\":"));
        fold_append(c->f, &p->text, c->values[i]);
    }
    fold_append(c->f, &p->text, STR("}"));
    return true;
}

static bool fold_ui_start_step(struct ui_chunk *c)
{
    struct part *p = part_new(c, PART_WHOLE);
    c->ui->step++;
    if (p != NULL)
        fold_append(c->f, &p->text, STR("{\"type\":\"step-start\"}"));
    return true;
}

static bool fold_ui_finish_step(struct ui_chunk *c)
{
    empty_map(&c->ui->texts);
    empty_map(&c->ui->reasonings);
    return true;
}

/* ---- data ---- */

static void data_key(struct ui_chunk *c, struct buf *out)
{
    buf_printf(out, "%zu:", c->type.n); /* so that no type and id read as another */
    buf_put(out, c->type);
    view_decode(view_inside(c->values[UI_CHUNK_ID]), out);
}

/* The chunk itself is the part, whatever else it has. Its data is kept apart, for the next of the
 * same id to replace. */
static struct part *add_data(struct ui_chunk *c)
{
    struct part *p = part_new(c, PART_DATA);
    struct str data = c->values[UI_CHUNK_DATA];
    if (p == NULL)
        return NULL;
    size_t at = data.n > 0 ? (size_t)(data.p - c->object.p) : c->object.n - 1;
    p->data_at = at;
    p->lacks_data = data.n == 0;
    fold_append(c->f, &p->text, str_of(c->object.p, at));
    fold_append(c->f, &p->text, str_skip(c->object, at + data.n));
    fold_set(c->f, &p->data, data);
    return p;
}

static bool fold_ui_add_or_replace_data(struct ui_chunk *c)
{
    struct buf key = {0};
    if (str_eq(c->values[UI_CHUNK_TRANSIENT], STR("true")))
        return true;
    if (c->values[UI_CHUNK_ID].n == 0) {
        add_data(c);
        return true;
    }
    data_key(c, &key);
    struct part *p = map_get(&c->ui->data, buf_str(&key));
    if (p != NULL) {
        fold_set(c->f, &p->data, c->values[UI_CHUNK_DATA]);
    } else if ((p = add_data(c)) != NULL) {
        fold_set(c->f, &p->key, buf_str(&key));
        map_put(&c->ui->data, p->key, p);
    }
    buf_deinit(&key);
    return true;
}

/* ---- the message ---- */

static void merge_metadata(struct ui_chunk *c)
{
    struct str metadata = c->values[UI_CHUNK_MESSAGE_METADATA];
    if (view_type(metadata) > VIEW_NULL)
        fold_meta_merge(c->f, &c->ui->metadata, metadata);
}

static struct str message_id(const struct ui *ui)
{
    return ui->id.n > 0 ? ui->id : STR("\"\"");
}

/* Another id is another message: nothing of the one before belongs to it. */
static bool fold_ui_start_message(struct ui_chunk *c)
{
    struct str id = c->values[UI_CHUNK_MESSAGE_ID];
    struct ui *ui = c->ui;
    if (id.n > 0 && !view_text_is(message_id(ui), ui_decode(ui, id))) {
        empty(c->f, ui);
        fold_meta_reset(c->f, &ui->metadata);
        fold_set(c->f, &ui->id, id);
    }
    merge_metadata(c);
    return true;
}

static bool fold_ui_change_metadata(struct ui_chunk *c)
{
    merge_metadata(c);
    return true;
}

static bool fold_ui_finish_message(struct ui_chunk *c)
{
    bool failed = view_text_is(c->values[UI_CHUNK_FINISH_REASON], STR("error"));
    fold_ended(c->f, failed ? FOLD_FAILED : FOLD_COMPLETE);
    merge_metadata(c);
    return true;
}

static bool fold_ui_note_error(struct ui_chunk *c)
{
    fold_set(c->f, &c->f->error, c->values[UI_CHUNK_ERROR_TEXT]);
    fold_ended(c->f, FOLD_FAILED);
    return true;
}

static bool fold_ui_note_abort(struct ui_chunk *c)
{
    fold_ended(c->f, FOLD_ABORTED);
    return true;
}

/* ---- chunks ---- */

#define BIT(name) (UINT32_C(1) << UI_CHUNK_##name)
#define TOOL                                                                                       \
    (BIT(TOOL_CALL_ID) | BIT(PROVIDER_EXECUTED) | BIT(PROVIDER_METADATA) | BIT(TOOL_METADATA))
#define NAMED (BIT(TOOL_CALL_ID) | BIT(TOOL_NAME))

/* type, what it does, members it must have, members it may have */
static const struct row {
    struct str type;
    bool (*apply)(struct ui_chunk *c);
    uint32_t needs, uses;
} rows[] = {
    {STR_INIT("text-start"), fold_ui_text_start, BIT(ID), BIT(PROVIDER_METADATA)},
    {STR_INIT("text-delta"), fold_ui_text_delta, BIT(ID) | BIT(DELTA), BIT(PROVIDER_METADATA)},
    {STR_INIT("text-end"), fold_ui_text_end, BIT(ID), BIT(PROVIDER_METADATA)},
    {STR_INIT("reasoning-start"), fold_ui_reasoning_start, BIT(ID), BIT(PROVIDER_METADATA)},
    {STR_INIT("reasoning-delta"), fold_ui_reasoning_delta, BIT(ID) | BIT(DELTA),
     BIT(PROVIDER_METADATA)},
    {STR_INIT("reasoning-end"), fold_ui_reasoning_end, BIT(ID), BIT(PROVIDER_METADATA)},
    {STR_INIT("tool-input-start"), tool_input_start, NAMED,
     TOOL | BIT(DYNAMIC) | BIT(TITLE) | BIT(INPUT_ENCODING)},
    {STR_INIT("tool-input-delta"), tool_input_delta, BIT(TOOL_CALL_ID) | BIT(INPUT_TEXT_DELTA), 0},
    {STR_INIT("tool-input-available"), tool_input_available, NAMED,
     TOOL | BIT(DYNAMIC) | BIT(TITLE) | BIT(INPUT)},
    {STR_INIT("tool-input-error"), tool_input_error, NAMED | BIT(ERROR_TEXT),
     TOOL | BIT(DYNAMIC) | BIT(INPUT)},
    {STR_INIT("tool-approval-request"), tool_approval_request, BIT(TOOL_CALL_ID) | BIT(APPROVAL_ID),
     BIT(APPROVAL_DESCRIPTOR) | BIT(INPUT_SCHEMA_INPUT) | BIT(SIGNATURE)},
    {STR_INIT("tool-output-available"), tool_output_available, BIT(TOOL_CALL_ID),
     TOOL | BIT(OUTPUT) | BIT(PRELIMINARY)},
    {STR_INIT("tool-output-error"), tool_output_error, BIT(TOOL_CALL_ID) | BIT(ERROR_TEXT), TOOL},
    {STR_INIT("tool-output-denied"), tool_output_denied, BIT(TOOL_CALL_ID), 0},
    {STR_INIT("source-url"), fold_ui_add_whole, BIT(TYPE) | BIT(SOURCE_ID) | BIT(URL),
     BIT(TITLE) | BIT(PROVIDER_METADATA)},
    {STR_INIT("source-document"), fold_ui_add_whole,
     BIT(TYPE) | BIT(SOURCE_ID) | BIT(MEDIA_TYPE) | BIT(TITLE),
     BIT(FILENAME) | BIT(PROVIDER_METADATA)},
    {STR_INIT("file"), fold_ui_add_whole, BIT(TYPE) | BIT(URL) | BIT(MEDIA_TYPE),
     BIT(PROVIDER_METADATA)},
    {STR_INIT("start-step"), fold_ui_start_step, 0, 0},
    {STR_INIT("finish-step"), fold_ui_finish_step, 0, 0},
    {STR_INIT("start"), fold_ui_start_message, 0, BIT(MESSAGE_ID) | BIT(MESSAGE_METADATA)},
    {STR_INIT("finish"), fold_ui_finish_message, 0, BIT(FINISH_REASON) | BIT(MESSAGE_METADATA)},
    {STR_INIT("message-metadata"), fold_ui_change_metadata, 0, BIT(MESSAGE_METADATA)},
    {STR_INIT("error"), fold_ui_note_error, BIT(ERROR_TEXT), 0},
    {STR_INIT("abort"), fold_ui_note_abort, 0, 0},
};

static const struct row data_row = {STR_INIT("data-*"), fold_ui_add_or_replace_data, 0,
                                    BIT(ID) | BIT(DATA) | BIT(TRANSIENT)};

static const struct row *find_row(struct str type)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (str_eq(type, rows[i].type))
            return &rows[i];
    return str_starts(type, STR("data-")) ? &data_row : NULL;
}

/* Leaves what the row uses. false: something is missing or of the wrong type. */
static bool fold_ui_fits(struct ui_chunk *c, const struct row *row)
{
    static const enum view_type types[] = {
#define X(name, text, type) [UI_CHUNK_##name] = VIEW_##type,
        UI_CHUNK_MEMBERS(X)
#undef X
    };
    for (size_t i = 0; i < UI_CHUNK_N; i++) {
        uint32_t bit = UINT32_C(1) << i;
        enum view_type type = view_type(c->values[i]);
        bool any = types[i] == VIEW_NONE;
        if (!((row->needs | row->uses) & bit) || (type == VIEW_NULL && !any))
            c->values[i] = STR_NONE;
        else if (type != VIEW_NONE && !any && type != types[i])
            return false;
        if ((row->needs & bit) && c->values[i].n == 0)
            return false;
    }
    return true;
}

static void pick_members(struct ui_chunk *c)
{
    struct view_want wants[UI_CHUNK_N];
    for (size_t i = 0; i < UI_CHUNK_N; i++)
        wants[i].name = member_names[i];
    view_pick(c->object, wants, UI_CHUNK_N);
    for (size_t i = 0; i < UI_CHUNK_N; i++)
        c->values[i] = wants[i].value;
}

static void ui_feed(struct fold *f, struct str sse_type, struct str object)
{
    struct ui_chunk c = {.f = f, .ui = f->state, .object = object};
    struct buf type = {0};
    pick_members(&c);
    if (view_type(c.values[UI_CHUNK_TYPE]) == VIEW_STRING)
        view_decode(view_inside(c.values[UI_CHUNK_TYPE]), &type);
    c.type = buf_str(&type);
    const struct row *row = find_row(c.type);
    if (row == NULL || !fold_ui_fits(&c, row) || !row->apply(&c))
        fold_skip(f);
    f->folded = !list_empty(&c.ui->parts) || c.ui->id.n > 0 || c.ui->metadata.root != NULL;
    buf_deinit(&type);
}

/* ---- the snapshot ---- */

static void fold_ui_put_member(struct buf *out, const char *name, struct str value)
{
    if (value.n == 0)
        return;
    buf_printf(out, ",\"%s\":", name);
    buf_put(out, value);
}

static void put_quoted(struct buf *out, const char *name, struct str inside)
{
    buf_printf(out, ",\"%s\":\"", name);
    buf_put(out, inside);
    buf_putc(out, '"');
}

static void fold_ui_put_text(struct buf *out, const struct part *p)
{
    bool reasoning = p->kind == PART_REASONING;
    buf_put(out, reasoning ? STR("{\"type\":\"reasoning\"") : STR("{\"type\":\"text\""));
    if (reasoning)
        fold_ui_put_member(out, "id", p->values[PART_ID]);
    put_quoted(out, "text", buf_str(&p->text));
    fold_ui_put_member(out, "providerMetadata", p->values[PART_PROVIDER_METADATA]);
    buf_printf(out, ",\"state\":\"%s\"}", p->state);
}

static void put_live_input(struct buf *out, const struct part *p)
{
    struct buf input = {0};
    tool_put_live_input(p, &input);
    fold_ui_put_member(out, "input", buf_str(&input));
    put_quoted(out, "rawInput", buf_str(&p->text));
    buf_deinit(&input);
}

static void fold_ui_put_tool(struct buf *out, const struct part *p)
{
    static const struct {
        const char *name;
        enum part_member member;
    } members[] = {
        {"title", PART_TITLE},
        {"toolMetadata", PART_TOOL_METADATA},
        {"input", PART_INPUT},
        {"inputEncoding", PART_INPUT_ENCODING},
        {"output", PART_OUTPUT},
        {"rawInput", PART_RAW_INPUT},
        {"errorText", PART_ERROR_TEXT},
        {"providerExecuted", PART_PROVIDER_EXECUTED},
        {"preliminary", PART_PRELIMINARY},
        {"callProviderMetadata", PART_CALL_METADATA},
        {"resultProviderMetadata", PART_RESULT_METADATA},
        {"approval", PART_APPROVAL},
    };
    if (p->kind == PART_DYNAMIC_TOOL) {
        buf_put(out, STR("{\"type\":\"dynamic-tool\""));
        fold_ui_put_member(out, "toolName", p->values[PART_TOOL_NAME]);
    } else {
        buf_put(out, STR("{\"type\":\"tool-"));
        buf_put(out, str_skip(p->values[PART_TOOL_NAME], 1)); /* with its closing quote */
    }
    fold_ui_put_member(out, "toolCallId", p->values[PART_TOOL_CALL_ID]);
    buf_printf(out, ",\"state\":\"%s\"", p->state);
    if (p->live)
        put_live_input(out, p);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        fold_ui_put_member(out, members[i].name, p->values[members[i].member]);
    buf_putc(out, '}');
}

static void fold_ui_put_data(struct buf *out, const struct part *p)
{
    struct str text = buf_str(&p->text);
    buf_put(out, str_of(text.p, p->data_at));
    if (!p->lacks_data)
        buf_put(out, p->data.n > 0 ? p->data : STR("null"));
    else if (p->data.n > 0)
        fold_ui_put_member(out, "data", p->data);
    buf_put(out, str_skip(text, p->data_at));
}

static void fold_ui_put_part(struct buf *out, const struct part *p)
{
    switch (p->kind) {
    case PART_TEXT:
    case PART_REASONING: fold_ui_put_text(out, p); break;
    case PART_TOOL:
    case PART_DYNAMIC_TOOL: fold_ui_put_tool(out, p); break;
    case PART_DATA: fold_ui_put_data(out, p); break;
    case PART_WHOLE: buf_put(out, buf_str(&p->text)); break;
    }
}

static void ui_put(const struct fold *f, struct buf *out)
{
    const struct ui *ui = f->state;
    buf_put(out, STR("{\"id\":"));
    buf_put(out, message_id(ui));
    if (ui->metadata.root != NULL) {
        buf_put(out, STR(",\"metadata\":"));
        fold_meta_put(&ui->metadata, out);
    }
    buf_put(out, STR(",\"role\":\"assistant\",\"parts\":["));
    list_each (l, &ui->parts) {
        if (l != ui->parts.next)
            buf_putc(out, ',');
        fold_ui_put_part(out, list_item(l, struct part, link));
    }
    buf_put(out, STR("]}"));
}

const struct fold_ops fold_ui_ops = {
    .name = "ui-message",
    .json = true,
    .open = ui_open,
    .close = ui_close,
    .feed = ui_feed,
    .put = ui_put,
};
