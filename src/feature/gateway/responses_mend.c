// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/responses_mend.h"
#include "base/arena.h"
#include "base/json.h"
#include "base/json_edit.h"
#include "base/json_view.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/num.h"

#include <stdlib.h>

#define ID_MAX     256         /* bytes of an item's id; a longer one is not looked for */
#define INDEX_MAX  1000000     /* a place beyond it is none */
#define KEEP_BYTES (16 * 1024) /* of a buffer between two events */

enum item_kind { ITEM_OTHER, ITEM_MESSAGE, ITEM_REASONING };

/* In the arena. */
struct mend_item {
    struct str id;    /* JSON, with its quotes; no other item has it */
    struct str given; /* what the backend calls it; n == 0: nothing that can be used */
    enum item_kind kind;
    size_t index;
    uint64_t parts, summaries; /* that were announced */
};

struct responses_mend {
    struct responses_mend_config config;
    struct arena texts; /* of config and items */
    struct mend_item **items;
    size_t n_items, items_cap;
    struct map by_id;
    uint64_t seq; /* of the next event */
    bool begun, ended;
    /* The event that is being made, an object in it, and one that lacked its type. */
    struct buf out, inner, named;

    responses_emit_fn *emit; /* during a call, as is what follows */
    void *ctx;
    int answer;
};

/* ---- what events there are ---- */

enum event_kind {
    EVENT_OTHER,
    EVENT_LIFECYCLE,
    EVENT_FINAL, /* the same, and the last */
    EVENT_ITEM_ADDED,
    EVENT_ITEM_DONE,
    EVENT_PART_ADDED,
    EVENT_PART,
    EVENT_SUMMARY_ADDED,
    EVENT_SUMMARY,
    EVENT_OF_ITEM,
};

struct event_row {
    struct str name; /* behind `response.`; one that ends with a dot or underscore begins names */
    enum event_kind kind;
    enum item_kind item; /* that its events belong to, if they say nothing themselves */
    const char *status;  /* of the response */
    const char *part;    /* that its first event announces */
};

#define TEXT_PART      "{\"type\":\"output_text\",\"text\":\"\",\"annotations\":[]}"
#define REFUSAL_PART   "{\"type\":\"refusal\",\"refusal\":\"\"}"
#define REASONING_PART "{\"type\":\"reasoning_text\",\"text\":\"\"}"
#define SUMMARY_PART   "{\"type\":\"summary_text\",\"text\":\"\"}"

static const struct event_row event_rows[] = {
    {STR_INIT("output_text."), EVENT_PART, ITEM_MESSAGE, NULL, TEXT_PART},
    {STR_INIT("reasoning_text."), EVENT_PART, ITEM_REASONING, NULL, REASONING_PART},
    {STR_INIT("reasoning_summary_text."), EVENT_SUMMARY, ITEM_REASONING, NULL, SUMMARY_PART},
    {STR_INIT("function_call_arguments."), EVENT_OF_ITEM, ITEM_OTHER, NULL, NULL},
    {STR_INIT("output_item.added"), EVENT_ITEM_ADDED, ITEM_OTHER, NULL, NULL},
    {STR_INIT("output_item.done"), EVENT_ITEM_DONE, ITEM_OTHER, NULL, NULL},
    {STR_INIT("content_part.added"), EVENT_PART_ADDED, ITEM_MESSAGE, NULL, NULL},
    {STR_INIT("content_part.done"), EVENT_PART, ITEM_MESSAGE, NULL, TEXT_PART},
    {STR_INIT("refusal."), EVENT_PART, ITEM_MESSAGE, NULL, REFUSAL_PART},
    {STR_INIT("reasoning_summary_part.added"), EVENT_SUMMARY_ADDED, ITEM_REASONING, NULL, NULL},
    {STR_INIT("reasoning_summary_part.done"), EVENT_SUMMARY, ITEM_REASONING, NULL, SUMMARY_PART},
    {STR_INIT("created"), EVENT_LIFECYCLE, ITEM_OTHER, "\"in_progress\"", NULL},
    {STR_INIT("queued"), EVENT_LIFECYCLE, ITEM_OTHER, "\"queued\"", NULL},
    {STR_INIT("in_progress"), EVENT_LIFECYCLE, ITEM_OTHER, "\"in_progress\"", NULL},
    {STR_INIT("completed"), EVENT_FINAL, ITEM_OTHER, "\"completed\"", NULL},
    {STR_INIT("failed"), EVENT_FINAL, ITEM_OTHER, "\"failed\"", NULL},
    {STR_INIT("incomplete"), EVENT_FINAL, ITEM_OTHER, "\"incomplete\"", NULL},
    {STR_INIT("custom_tool_call_input."), EVENT_OF_ITEM, ITEM_OTHER, NULL, NULL},
    {STR_INIT("mcp_"), EVENT_OF_ITEM, ITEM_OTHER, NULL, NULL},
    {STR_INIT("web_search_call."), EVENT_OF_ITEM, ITEM_OTHER, NULL, NULL},
    {STR_INIT("file_search_call."), EVENT_OF_ITEM, ITEM_OTHER, NULL, NULL},
    {STR_INIT("code_interpreter_"), EVENT_OF_ITEM, ITEM_OTHER, NULL, NULL},
    {STR_INIT("image_generation_call."), EVENT_OF_ITEM, ITEM_OTHER, NULL, NULL},
    {STR_INIT("shell_call_"), EVENT_OF_ITEM, ITEM_OTHER, NULL, NULL},
};

static const struct event_row *find_row(struct str name)
{
    struct str prefix = STR("response.");
    if (!str_starts(name, prefix))
        return NULL;
    name = str_skip(name, prefix.n);
    for (size_t i = 0; i < sizeof event_rows / sizeof *event_rows; i++) {
        struct str row = event_rows[i].name;
        bool begins = row.p[row.n - 1] == '.' || row.p[row.n - 1] == '_';
        if (begins ? str_starts(name, row) : str_eq(name, row))
            return &event_rows[i];
    }
    return NULL;
}

/* ---- one event ---- */

enum member {
    TYPE,
    RESPONSE,
    ITEM,
    PART,
    ITEM_ID,
    OUTPUT_INDEX,
    CONTENT_INDEX,
    SUMMARY_INDEX,
    ERROR,
    N
};

struct mend_event {
    struct str type; /* of SSE */
    struct str object;
    const struct event_row *row; /* NULL: nothing is known of it */
    struct view_want members[N];
};

/* Changes of one object, with room for the numbers in them. */
struct mend_edits {
    struct json_edit list[12];
    size_t n;
    char digits[4][NUM_TEXT_MAX];
    size_t n_digits;
};

static void edit_set(struct mend_edits *e, const char *name, struct str value)
{
    e->list[e->n++] = (struct json_edit){str_of_cstr(name), value, false};
}

static void edit_default(struct mend_edits *e, const char *name, struct str value)
{
    e->list[e->n++] = (struct json_edit){str_of_cstr(name), value, true};
}

static struct str edit_number(struct mend_edits *e, uint64_t value)
{
    char *digits = e->digits[e->n_digits++];
    return str_of(digits, num_format(value, digits));
}

/* The object with these changes and its number goes to who takes it. */
static void mend_emit(struct responses_mend *m, struct str type, struct str object,
                      struct mend_edits *e)
{
    if (m->answer < 0)
        return;
    edit_set(e, "sequence_number", edit_number(e, m->seq));
    m->out.n = 0;
    json_edit_put(&m->out, object, e->list, e->n);
    int taken = m->emit(m->ctx, type, buf_str(&m->out));
    m->seq++;
    if (taken < m->answer)
        m->answer = taken;
}

static void mend_emit_as_is(struct responses_mend *m, struct str type, struct str data)
{
    m->answer = m->emit(m->ctx, type, data);
    m->seq++;
}

/* The object in `inner`, changed; lent until the next. */
static struct str mend_inner(struct responses_mend *m, struct str object,
                             const struct mend_edits *e)
{
    m->inner.n = 0;
    json_edit_put(&m->inner, object, e->list, e->n);
    return buf_str(&m->inner);
}

static struct str object_or_none(struct str value)
{
    return view_type(value) == VIEW_OBJECT ? value : STR("{}");
}

/* ---- items ---- */

static enum item_kind item_kind_of(struct str item)
{
    struct view_want type = {.name = STR("type")};
    view_pick(item, &type, 1);
    if (view_text_is(type.value, STR("message")))
        return ITEM_MESSAGE;
    return view_text_is(type.value, STR("reasoning")) ? ITEM_REASONING : ITEM_OTHER;
}

static bool is_usable_id(struct str id)
{
    return view_type(id) == VIEW_STRING && id.n > 2 && id.n <= ID_MAX;
}

static struct str name_item(struct responses_mend *m, enum item_kind kind)
{
    static const char *const prefixes[] = {
        [ITEM_OTHER] = "item", [ITEM_MESSAGE] = "msg", [ITEM_REASONING] = "rs"};
    struct str id = m->config.response_id;
    return arena_printf(&m->texts, "\"%s_%.*s_%zu\"", prefixes[kind], (int)id.n, id.p, m->n_items);
}

/* NULL: there are too many. */
static struct mend_item *add_item(struct responses_mend *m, struct str id, enum item_kind kind)
{
    if (m->n_items == RESPONSES_ITEMS_MAX)
        return NULL;
    if (m->n_items == m->items_cap) {
        m->items_cap = m->items_cap == 0 ? 8 : 2 * m->items_cap;
        m->items = mem_realloc(m->items, m->items_cap * sizeof(struct mend_item *));
    }
    struct mend_item *item = arena_alloc(&m->texts, sizeof *item);
    struct str given = is_usable_id(id) ? arena_dup(&m->texts, id) : STR_NONE;
    bool own = given.n > 0 && map_get(&m->by_id, given) == NULL;
    *item = (struct mend_item){
        .id = own ? given : name_item(m, kind), .given = given, .kind = kind, .index = m->n_items};
    m->items[m->n_items++] = item;
    map_put(&m->by_id, item->id, item);
    return item;
}

/* The item that an event is about: by its id, by its place, or the last one. */
static struct mend_item *find_item(const struct responses_mend *m, struct str id, struct str index)
{
    uint64_t at = 0;
    bool named = is_usable_id(id), placed = num_parse_canonical(index, INDEX_MAX, &at) == 0;
    struct mend_item *there = placed && at < m->n_items ? m->items[at] : NULL;
    struct mend_item *item = named ? map_get(&m->by_id, id) : NULL;
    if (item == NULL || (there != NULL && str_eq(there->given, id))) /* one of several so called */
        item = there;
    if (item == NULL && !named && !placed && m->n_items > 0)
        item = m->items[m->n_items - 1];
    return item;
}

static void edit_item(struct mend_edits *e, const struct mend_item *item)
{
    edit_set(e, "item_id", item->id);
    edit_set(e, "output_index", edit_number(e, item->index));
}

static uint64_t count_elements(struct str item, struct str name)
{
    struct view_want list = {.name = name};
    struct str rest, value;
    uint64_t n = 0;
    view_pick(item, &list, 1);
    if (view_type(list.value) != VIEW_ARRAY)
        return 0;
    for (rest = view_inside(list.value); view_element(&rest, &value);)
        n++;
    return n;
}

/* What clients read of an item of this kind without looking whether it is there. */
static struct str mend_item_object(struct responses_mend *m, struct str object,
                                   const struct mend_item *item)
{
    struct mend_edits e = {.n = 0};
    edit_set(&e, "id", item->id);
    if (item->kind == ITEM_MESSAGE)
        edit_default(&e, "content", STR("[]"));
    if (item->kind == ITEM_REASONING)
        edit_default(&e, "summary", STR("[]"));
    return mend_inner(m, object, &e);
}

static void emit_item(struct responses_mend *m, struct str type, struct str event,
                      struct str object, const struct mend_item *item)
{
    struct mend_edits e = {.n = 0};
    if (item != NULL) {
        edit_set(&e, "output_index", edit_number(&e, item->index));
        edit_set(&e, "item", mend_item_object(m, object, item));
    }
    mend_emit(m, type, event, &e);
}

static struct mend_item *take_item(struct responses_mend *m, struct str object)
{
    struct view_want id = {.name = STR("id")};
    view_pick(object, &id, 1);
    struct mend_item *item = add_item(m, id.value, item_kind_of(object));
    if (item != NULL) {
        item->parts = count_elements(object, STR("content"));
        item->summaries = count_elements(object, STR("summary"));
    }
    return item;
}

/* ---- what comes before ---- */

#define ADDED_EVENT "{\"type\":\"response.output_item.added\"}"

static struct mend_item *announce_item(struct responses_mend *m, struct str object)
{
    struct mend_item *item = take_item(m, object);
    if (item != NULL)
        emit_item(m, STR("response.output_item.added"), STR(ADDED_EVENT), object, item);
    return item;
}

/* Of the kinds that are nothing without their text. */
static struct mend_item *announce_kind(struct responses_mend *m, enum item_kind kind)
{
    switch (kind) {
    case ITEM_MESSAGE:
        return announce_item(m, STR("{\"type\":\"message\",\"status\":\"in_progress\",\"role\":"
                                    "\"assistant\",\"content\":[]}"));
    case ITEM_REASONING:
        return announce_item(
            m, STR("{\"type\":\"reasoning\",\"status\":\"in_progress\",\"summary\":[]}"));
    case ITEM_OTHER: break;
    }
    return NULL;
}

static void announce_part(struct responses_mend *m, const struct event_row *row,
                          struct mend_item *item)
{
    bool summary = row->kind == EVENT_SUMMARY;
    uint64_t *n = summary ? &item->summaries : &item->parts;
    const char *part = row->part;
    if (!summary && item->kind == ITEM_REASONING)
        part = REASONING_PART;
    struct mend_edits e = {.n = 0};
    edit_item(&e, item);
    edit_set(&e, summary ? "summary_index" : "content_index", edit_number(&e, (*n)++));
    edit_set(&e, "part", str_of_cstr(part));
    if (summary)
        mend_emit(m, STR("response.reasoning_summary_part.added"),
                  STR("{\"type\":\"response.reasoning_summary_part.added\"}"), &e);
    else
        mend_emit(m, STR("response.content_part.added"),
                  STR("{\"type\":\"response.content_part.added\"}"), &e);
}

/* ---- events, by kind ---- */

static void mend_other(struct responses_mend *m, const struct mend_event *event)
{
    struct mend_edits e = {.n = 0};
    mend_emit(m, event->type, event->object, &e);
}

static void edit_response(const struct responses_mend *m, struct mend_edits *e,
                          const struct event_row *row, struct str id)
{
    const struct responses_mend_config *c = &m->config;
    edit_set(e, "id", id);
    edit_default(e, "object", STR("\"response\""));
    edit_default(e, "created_at", edit_number(e, (uint64_t)c->created_s));
    edit_default(e, "status", str_of_cstr(row->status));
    if (c->model.n > 0)
        edit_default(e, "model", c->model);
    edit_default(e, "output", STR("[]"));
    if (c->background)
        edit_set(e, "background", STR("true"));
    if (c->stored)
        edit_set(e, "store", STR("true"));
    if (c->previous_id.n > 0)
        edit_set(e, "previous_response_id", c->previous_id);
}

static void mend_lifecycle(struct responses_mend *m, const struct mend_event *event)
{
    struct mend_edits inner = {.n = 0}, e = {.n = 0};
    struct buf id = {0};
    json_put_string(&id, m->config.response_id);
    edit_response(m, &inner, event->row, buf_str(&id));
    edit_set(&e, "response", mend_inner(m, object_or_none(event->members[RESPONSE].value), &inner));
    buf_deinit(&id);
    mend_emit(m, event->type, event->object, &e);
    m->ended = m->ended || event->row->kind == EVENT_FINAL;
}

static void mend_item_added(struct responses_mend *m, const struct mend_event *event)
{
    struct str object = object_or_none(event->members[ITEM].value);
    emit_item(m, event->type, event->object, object, take_item(m, object));
}

static void mend_item_done(struct responses_mend *m, const struct mend_event *event)
{
    struct str object = object_or_none(event->members[ITEM].value);
    struct view_want id = {.name = STR("id")};
    view_pick(object, &id, 1);
    struct mend_item *item = find_item(m, id.value, event->members[OUTPUT_INDEX].value);
    if (item == NULL)
        item = announce_item(m, object);
    emit_item(m, event->type, event->object, object, item);
}

/* The place of a part that exists by then. */
static uint64_t find_part(struct responses_mend *m, const struct mend_event *event,
                          struct mend_item *item, struct str given)
{
    const struct event_row *row = event->row;
    bool summary = row->kind == EVENT_SUMMARY || row->kind == EVENT_SUMMARY_ADDED;
    uint64_t *n = summary ? &item->summaries : &item->parts, at = *n;
    if (row->kind == EVENT_PART_ADDED || row->kind == EVENT_SUMMARY_ADDED)
        return (*n)++;
    bool told = num_parse_canonical(given, INDEX_MAX, &at) == 0;
    if (told && at < *n)
        return at;
    if (*n == 0 || (told && at == *n))
        announce_part(m, row, item);
    return *n - 1;
}

static enum item_kind kind_for(const struct mend_event *event)
{
    struct view_want type = {.name = STR("type")};
    struct str part = event->members[PART].value;
    if (view_type(part) == VIEW_OBJECT)
        view_pick(part, &type, 1);
    return view_text_is(type.value, STR("reasoning_text")) ? ITEM_REASONING : event->row->item;
}

static void mend_part(struct responses_mend *m, const struct mend_event *event)
{
    bool summary = event->row->kind == EVENT_SUMMARY || event->row->kind == EVENT_SUMMARY_ADDED;
    struct str given = event->members[summary ? SUMMARY_INDEX : CONTENT_INDEX].value;
    struct mend_item *item =
        find_item(m, event->members[ITEM_ID].value, event->members[OUTPUT_INDEX].value);
    if (item == NULL)
        item = announce_kind(m, kind_for(event));
    if (item == NULL) {
        mend_other(m, event);
        return;
    }
    uint64_t at = find_part(m, event, item, given);
    struct mend_edits e = {.n = 0};
    edit_item(&e, item);
    edit_set(&e, summary ? "summary_index" : "content_index", edit_number(&e, at));
    mend_emit(m, event->type, event->object, &e);
}

static void mend_of_item(struct responses_mend *m, const struct mend_event *event)
{
    const struct mend_item *item =
        find_item(m, event->members[ITEM_ID].value, event->members[OUTPUT_INDEX].value);
    struct mend_edits e = {.n = 0};
    if (item != NULL)
        edit_item(&e, item);
    mend_emit(m, event->type, event->object, &e);
}

static void (*const menders[])(struct responses_mend *m, const struct mend_event *event) = {
    [EVENT_OTHER] = mend_other,         [EVENT_LIFECYCLE] = mend_lifecycle,
    [EVENT_FINAL] = mend_lifecycle,     [EVENT_ITEM_ADDED] = mend_item_added,
    [EVENT_ITEM_DONE] = mend_item_done, [EVENT_PART_ADDED] = mend_part,
    [EVENT_PART] = mend_part,           [EVENT_SUMMARY_ADDED] = mend_part,
    [EVENT_SUMMARY] = mend_part,        [EVENT_OF_ITEM] = mend_of_item,
};

/* ---- from outside ---- */

struct responses_mend *responses_mend_new(const struct responses_mend_config *config)
{
    struct responses_mend *m = mem_zalloc(sizeof *m);
    m->config = *config;
    m->config.response_id = arena_dup(&m->texts, config->response_id);
    m->config.model = arena_dup(&m->texts, config->model);
    m->config.previous_id = arena_dup(&m->texts, config->previous_id);
    map_init(&m->by_id);
    return m;
}

void responses_mend_free(struct responses_mend *m)
{
    if (m == NULL)
        return;
    map_deinit(&m->by_id);
    buf_deinit(&m->out);
    buf_deinit(&m->inner);
    buf_deinit(&m->named);
    arena_deinit(&m->texts);
    free(m->items);
    free(m);
}

/* Clients take an event by the type in its data; some backends give it to SSE alone, some do not.
 */
static void read_event(struct mend_event *event, struct str type, struct str object)
{
    static const struct str names[] = {
        [TYPE] = STR_INIT("type"),
        [RESPONSE] = STR_INIT("response"),
        [ITEM] = STR_INIT("item"),
        [PART] = STR_INIT("part"),
        [ITEM_ID] = STR_INIT("item_id"),
        [OUTPUT_INDEX] = STR_INIT("output_index"),
        [CONTENT_INDEX] = STR_INIT("content_index"),
        [SUMMARY_INDEX] = STR_INIT("summary_index"),
        [ERROR] = STR_INIT("error"),
    };
    for (size_t i = 0; i < N; i++)
        event->members[i].name = names[i];
    view_pick(object, event->members, N);
    struct str inside = event->members[TYPE].value;
    bool named = view_type(inside) == VIEW_STRING;
    event->row = find_row(named ? view_inside(inside) : type);
    bool plain = named && memchr(inside.p, '\\', inside.n) == NULL;
    event->type = event->row != NULL && plain ? view_inside(inside) : type;
    event->object = object;
}

static bool mend_is_error(const struct mend_event *event)
{
    struct str type = event->members[TYPE].value;
    if (event->row != NULL)
        return false;
    return view_text_is(type, STR("error")) || str_eq(event->type, STR("error")) ||
           view_type(event->members[ERROR].value) > VIEW_NULL;
}

static void announce_response(struct responses_mend *m)
{
    struct mend_event created;
    read_event(&created, STR("response.created"), STR("{\"type\":\"response.created\"}"));
    mend_lifecycle(m, &created);
}

/* An event whose type only SSE has, with it inside as well. */
static struct str name_inside(struct responses_mend *m, struct str type, struct str object)
{
    struct buf text = {0};
    json_put_string(&text, type);
    struct json_edit edit = {STR("type"), buf_str(&text), false};
    m->named.n = 0;
    json_edit_put(&m->named, object, &edit, 1);
    buf_deinit(&text);
    return buf_str(&m->named);
}

static void mend_object(struct responses_mend *m, struct str type, struct str object)
{
    struct mend_event event;
    read_event(&event, type, object);
    if (event.row != NULL && view_type(event.members[TYPE].value) != VIEW_STRING)
        read_event(&event, type, name_inside(m, type, object));
    bool error = mend_is_error(&event);
    bool first = event.row != NULL && str_eq(event.row->name, STR("created"));
    if (!m->begun && !error && !first)
        announce_response(m);
    m->begun = true;
    m->ended = m->ended || error;
    menders[event.row != NULL ? event.row->kind : EVENT_OTHER](m, &event);
}

static void drop_large(struct buf *b)
{
    if (b->cap > KEEP_BYTES)
        buf_deinit(b);
}

int responses_mend_event(struct responses_mend *m, struct str type, struct str data,
                         responses_emit_fn *emit, void *ctx)
{
    size_t at;
    struct str object = view_trim(data);
    m->emit = emit;
    m->ctx = ctx;
    m->answer = 1;
    if (object.n > 0 && object.p[0] == '{' && json_check(object, &at) == 0)
        mend_object(m, type, object);
    else
        mend_emit_as_is(m, type, data);
    drop_large(&m->out);
    drop_large(&m->inner);
    drop_large(&m->named);
    return m->answer;
}

bool responses_mend_has_ended(const struct responses_mend *m)
{
    return m->ended;
}
