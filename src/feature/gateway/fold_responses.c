// SPDX-License-Identifier: Apache-2.0
/* fold_responses.c -- the events of OpenAI's Responses API as the Response that they have made so
 * far. */
#include "base/json.h"
#include "base/json_edit.h"
#include "base/json_view.h"
#include "base/mem.h"
#include "base/num.h"
#include "feature/gateway/fold_core.h"

#include <stdio.h>
#include <stdlib.h>

#define ITEM_COST 512 /* what an item and a part are counted as, besides their text */
#define PART_COST 256
#define INDEX_MAX 1000000

/* A string member that comes in pieces, as it stands between its quotes. */
struct grown {
    const char *member; /* NULL: there is none */
    struct buf inside;
};

struct part {
    struct str base; /* JSON, owned */
    struct grown text;
    struct buf annotations; /* elements of an array, with commas between them */
};

struct parts {
    struct part **list;
    size_t n;
};

enum place { CONTENT, SUMMARY, N_PLACES };
static const char *const place_names[] = {[CONTENT] = "content", [SUMMARY] = "summary"};

struct item {
    struct str base;              /* JSON, owned */
    struct parts parts[N_PLACES]; /* none, once it is done: all is in base */
    struct grown text;
    struct str status; /* a JSON string, owned; n == 0: as base has it */
};

struct responses {
    struct str response; /* of the last event that had one; owned */
    bool final;          /* that is how it ended */
    struct item **items;
    size_t n_items;
};

static void *fold_responses_open(void)
{
    return mem_zalloc(sizeof(struct responses));
}

/* ---- letting go ---- */

static void part_free(struct part *p)
{
    free((char *)p->base.p);
    buf_deinit(&p->text.inside);
    buf_deinit(&p->annotations);
    free(p);
}

static void parts_deinit(struct parts *all)
{
    for (size_t i = 0; i < all->n; i++)
        part_free(all->list[i]);
    free(all->list);
    *all = (struct parts){0};
}

static void item_free(struct item *item)
{
    free((char *)item->base.p);
    free((char *)item->status.p);
    for (size_t i = 0; i < N_PLACES; i++)
        parts_deinit(&item->parts[i]);
    buf_deinit(&item->text.inside);
    free(item);
}

static void fold_responses_close(void *state)
{
    struct responses *r = state;
    for (size_t i = 0; i < r->n_items; i++)
        item_free(r->items[i]);
    free(r->items);
    free((char *)r->response.p);
    free(r);
}

/* What was put together from pieces has come whole. */
static void drop_part(struct fold *f, struct part *p)
{
    fold_clear(f, &p->base);
    fold_drop(f, &p->text.inside);
    fold_drop(f, &p->annotations);
    p->text = (struct grown){0};
    p->annotations = (struct buf){0};
}

static void drop_pieces(struct fold *f, struct item *item)
{
    for (size_t place = 0; place < N_PLACES; place++) {
        struct parts *all = &item->parts[place];
        for (size_t i = 0; i < all->n; i++) {
            drop_part(f, all->list[i]);
            fold_release(f, PART_COST);
        }
        parts_deinit(all);
    }
    fold_drop(f, &item->text.inside);
    item->text = (struct grown){0};
    fold_clear(f, &item->status);
}

static void drop_items(struct fold *f, struct responses *r)
{
    for (size_t i = 0; i < r->n_items; i++) {
        drop_pieces(f, r->items[i]);
        fold_clear(f, &r->items[i]->base);
        fold_release(f, ITEM_COST);
        item_free(r->items[i]);
    }
    free(r->items);
    r->items = NULL;
    r->n_items = 0;
}

/* ---- items and parts ---- */

static void add_part(struct fold *f, struct item *item, enum place place, struct str base)
{
    struct parts *all = &item->parts[place];
    if (!fold_hold(f, PART_COST))
        return;
    all->list = mem_realloc(all->list, (all->n + 1) * sizeof(struct part *));
    struct part *p = all->list[all->n++] = mem_zalloc(sizeof *p);
    fold_set(f, &p->base, base);
}

/* Parts that an item comes with. */
static void take_parts(struct fold *f, struct item *item, struct str object)
{
    for (size_t place = 0; place < N_PLACES; place++) {
        struct view_want list = {.name = str_of_cstr(place_names[place])};
        struct str rest, value;
        view_pick(object, &list, 1);
        if (view_type(list.value) != VIEW_ARRAY)
            continue;
        for (rest = view_inside(list.value); view_element(&rest, &value);)
            if (view_type(value) == VIEW_OBJECT)
                add_part(f, item, (enum place)place, value);
    }
}

static struct item *item_at(const struct fold *f, struct str index)
{
    const struct responses *r = f->state;
    uint64_t at;
    bool ok = num_parse_canonical(index, INDEX_MAX, &at) == 0 && at < r->n_items;
    return ok ? r->items[at] : NULL;
}

static struct part *part_at(const struct item *item, enum place place, struct str index)
{
    const struct parts *all = &item->parts[place];
    uint64_t at;
    bool ok = num_parse_canonical(index, INDEX_MAX, &at) == 0 && at < all->n;
    return ok ? all->list[at] : NULL;
}

/* ---- text that grows ---- */

/* What the object has of it already comes first. */
static void grown_open(struct fold *f, struct grown *g, const char *member, struct str base)
{
    struct view_want want = {.name = str_of_cstr(member)};
    if (g->member != NULL)
        return;
    g->member = member;
    view_pick(base, &want, 1);
    if (view_type(want.value) == VIEW_STRING)
        fold_append(f, &g->inside, view_inside(want.value));
}

static void grown_set(struct fold *f, struct grown *g, const char *member)
{
    fold_drop(f, &g->inside);
    *g = (struct grown){.member = member};
}

/* ---- events ---- */

enum member {
    TYPE,
    RESPONSE,
    ITEM,
    PART,
    DELTA,
    ANNOTATION,
    OUTPUT_INDEX,
    CONTENT_INDEX,
    SUMMARY_INDEX,
    ERROR,
    N_MEMBERS,
};

struct responses_event {
    struct str object;
    struct view_want members[N_MEMBERS];
};

struct event_row;

/* false: it cannot be used, and nothing was changed. */
typedef bool responses_take_fn(struct fold *f, const struct responses_event *e,
                               const struct event_row *row);
struct event_row {
    struct str name; /* behind `response.` */
    responses_take_fn *take;
    int place;          /* of parts: enum place; -1: the item itself */
    const char *member; /* of the part or item, where text grows */
    bool whole;         /* it comes whole, under the member's own name, instead of as `delta` */
    enum fold_end end;  /* of the stream */
};

/* What ended with an output of its own needs none of ours. */
static bool has_output(const struct responses *r)
{
    struct view_want output = {.name = STR("output")};
    if (!r->final || r->response.n == 0)
        return false;
    view_pick(r->response, &output, 1);
    return view_type(output.value) == VIEW_ARRAY && view_trim(view_inside(output.value)).n > 0;
}

static bool take_response(struct fold *f, const struct responses_event *e,
                          const struct event_row *row)
{
    struct responses *r = f->state;
    struct str response = e->members[RESPONSE].value;
    if (view_type(response) != VIEW_OBJECT)
        return false;
    fold_set(f, &r->response, response);
    f->folded = true;
    r->final = row->end != FOLD_RUNNING;
    fold_ended(f, row->end);
    if (has_output(r))
        drop_items(f, r);
    return true;
}

static bool take_item_added(struct fold *f, const struct responses_event *e,
                            const struct event_row *row)
{
    struct responses *r = f->state;
    struct str object = e->members[ITEM].value;
    if (view_type(object) != VIEW_OBJECT)
        return false;
    if (!fold_hold(f, ITEM_COST))
        return true;
    r->items = mem_realloc(r->items, (r->n_items + 1) * sizeof(struct item *));
    struct item *item = r->items[r->n_items++] = mem_zalloc(sizeof *item);
    f->folded = true;
    fold_set(f, &item->base, object);
    take_parts(f, item, object);
    return true;
}

static bool take_item_done(struct fold *f, const struct responses_event *e,
                           const struct event_row *row)
{
    struct item *item = item_at(f, e->members[OUTPUT_INDEX].value);
    struct str object = e->members[ITEM].value;
    if (item == NULL || view_type(object) != VIEW_OBJECT)
        return false;
    drop_pieces(f, item);
    fold_set(f, &item->base, object);
    return true;
}

static bool take_part_added(struct fold *f, const struct responses_event *e,
                            const struct event_row *row)
{
    struct item *item = item_at(f, e->members[OUTPUT_INDEX].value);
    struct str part = e->members[PART].value;
    if (item == NULL || view_type(part) != VIEW_OBJECT)
        return false;
    add_part(f, item, (enum place)row->place, part);
    return true;
}

/* The part that an event names; NULL: there is none. */
static struct part *part_of(const struct fold *f, const struct responses_event *e, int place)
{
    const struct item *item = item_at(f, e->members[OUTPUT_INDEX].value);
    struct str at = e->members[place == SUMMARY ? SUMMARY_INDEX : CONTENT_INDEX].value;
    return item == NULL ? NULL : part_at(item, (enum place)place, at);
}

static bool take_part_done(struct fold *f, const struct responses_event *e,
                           const struct event_row *row)
{
    struct part *p = part_of(f, e, row->place);
    struct str part = e->members[PART].value;
    if (p == NULL || view_type(part) != VIEW_OBJECT)
        return false;
    drop_part(f, p);
    fold_set(f, &p->base, part);
    return true;
}

/* Where the row's text grows, and what it is a member of. */
static struct grown *grown_of(const struct fold *f, const struct responses_event *e,
                              const struct event_row *row, struct str *base)
{
    struct item *item = item_at(f, e->members[OUTPUT_INDEX].value);
    struct part *p = row->place < 0 ? NULL : part_of(f, e, row->place);
    if (item == NULL || (row->place >= 0 && p == NULL))
        return NULL;
    *base = p != NULL ? p->base : item->base;
    return p != NULL ? &p->text : &item->text;
}

static bool take_text(struct fold *f, const struct responses_event *e, const struct event_row *row)
{
    struct str base, text = e->members[DELTA].value;
    struct grown *g = grown_of(f, e, row, &base);
    if (row->whole) {
        struct view_want want = {.name = str_of_cstr(row->member)};
        view_pick(e->object, &want, 1);
        text = want.value;
    }
    bool other = g != NULL && g->member != NULL && strcmp(g->member, row->member) != 0;
    if (g == NULL || other || view_type(text) != VIEW_STRING)
        return false;
    if (row->whole)
        grown_set(f, g, row->member);
    else
        grown_open(f, g, row->member, base);
    fold_append(f, &g->inside, view_inside(text));
    return true;
}

static bool take_annotation(struct fold *f, const struct responses_event *e,
                            const struct event_row *row)
{
    struct part *p = part_of(f, e, row->place);
    struct str annotation = e->members[ANNOTATION].value;
    if (p == NULL || view_type(annotation) != VIEW_OBJECT)
        return false;
    if (p->annotations.n > 0)
        fold_append(f, &p->annotations, STR(","));
    fold_append(f, &p->annotations, annotation);
    return true;
}

static const struct event_row event_rows[] = {
    {STR_INIT("output_text.delta"), take_text, CONTENT, "text", false, FOLD_RUNNING},
    {STR_INIT("output_text.done"), take_text, CONTENT, "text", true, FOLD_RUNNING},
    {STR_INIT("output_text.annotation.added"), take_annotation, CONTENT, NULL, false, FOLD_RUNNING},
    {STR_INIT("refusal.delta"), take_text, CONTENT, "refusal", false, FOLD_RUNNING},
    {STR_INIT("refusal.done"), take_text, CONTENT, "refusal", true, FOLD_RUNNING},
    {STR_INIT("reasoning_text.delta"), take_text, CONTENT, "text", false, FOLD_RUNNING},
    {STR_INIT("reasoning_text.done"), take_text, CONTENT, "text", true, FOLD_RUNNING},
    {STR_INIT("reasoning_summary_text.delta"), take_text, SUMMARY, "text", false, FOLD_RUNNING},
    {STR_INIT("reasoning_summary_text.done"), take_text, SUMMARY, "text", true, FOLD_RUNNING},
    {STR_INIT("function_call_arguments.delta"), take_text, -1, "arguments", false, FOLD_RUNNING},
    {STR_INIT("function_call_arguments.done"), take_text, -1, "arguments", true, FOLD_RUNNING},
    {STR_INIT("mcp_call_arguments.delta"), take_text, -1, "arguments", false, FOLD_RUNNING},
    {STR_INIT("mcp_call_arguments.done"), take_text, -1, "arguments", true, FOLD_RUNNING},
    {STR_INIT("custom_tool_call_input.delta"), take_text, -1, "input", false, FOLD_RUNNING},
    {STR_INIT("custom_tool_call_input.done"), take_text, -1, "input", true, FOLD_RUNNING},
    {STR_INIT("code_interpreter_call_code.delta"), take_text, -1, "code", false, FOLD_RUNNING},
    {STR_INIT("code_interpreter_call_code.done"), take_text, -1, "code", true, FOLD_RUNNING},
    {STR_INIT("output_item.added"), take_item_added, -1, NULL, false, FOLD_RUNNING},
    {STR_INIT("output_item.done"), take_item_done, -1, NULL, false, FOLD_RUNNING},
    {STR_INIT("content_part.added"), take_part_added, CONTENT, NULL, false, FOLD_RUNNING},
    {STR_INIT("content_part.done"), take_part_done, CONTENT, NULL, false, FOLD_RUNNING},
    {STR_INIT("reasoning_summary_part.added"), take_part_added, SUMMARY, NULL, false, FOLD_RUNNING},
    {STR_INIT("reasoning_summary_part.done"), take_part_done, SUMMARY, NULL, false, FOLD_RUNNING},
    {STR_INIT("created"), take_response, -1, NULL, false, FOLD_RUNNING},
    {STR_INIT("queued"), take_response, -1, NULL, false, FOLD_RUNNING},
    {STR_INIT("in_progress"), take_response, -1, NULL, false, FOLD_RUNNING},
    {STR_INIT("completed"), take_response, -1, NULL, false, FOLD_COMPLETE},
    {STR_INIT("incomplete"), take_response, -1, NULL, false, FOLD_COMPLETE},
    {STR_INIT("failed"), take_response, -1, NULL, false, FOLD_FAILED},
};

/* `TYPE.STATUS`, of an item of that type: a call of a tool that the backend runs itself. */
static bool take_status(struct fold *f, const struct responses_event *e, struct str name)
{
    static const struct str words[] = {STR_INIT("in_progress"),  STR_INIT("searching"),
                                       STR_INIT("interpreting"), STR_INIT("generating"),
                                       STR_INIT("completed"),    STR_INIT("failed")};
    struct item *item = item_at(f, e->members[OUTPUT_INDEX].value);
    struct view_want type = {.name = STR("type")};
    struct str kind = str_cut(&name, '.');
    char text[32];
    if (item == NULL)
        return false;
    view_pick(item->base, &type, 1);
    if (!view_text_is(type.value, kind))
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!str_eq(name, words[i]))
            continue;
        int n = snprintf(text, sizeof text, "\"%s\"", words[i].p);
        fold_set(f, &item->status, str_of(text, (size_t)n));
        return true;
    }
    return false;
}

/* An error of the stream: {type,code,message}, or the same nested as `error`. */
static bool note_error(struct fold *f, const struct responses_event *e, struct str name)
{
    struct str nested = e->members[ERROR].value;
    bool failed = view_type(nested) > VIEW_NULL;
    if (!failed && !str_eq(name, STR("error")))
        return false;
    fold_set(f, &f->error, failed ? nested : e->object);
    fold_ended(f, FOLD_FAILED);
    f->folded = true;
    return true;
}

static bool take_event(struct fold *f, const struct responses_event *e, struct str name)
{
    struct str prefix = STR("response.");
    if (!str_starts(name, prefix))
        return note_error(f, e, name);
    name = str_skip(name, prefix.n);
    for (size_t i = 0; i < sizeof event_rows / sizeof *event_rows; i++)
        if (str_eq(name, event_rows[i].name))
            return event_rows[i].take(f, e, &event_rows[i]);
    return take_status(f, e, name);
}

static void fold_responses_feed(struct fold *f, struct str type, struct str data)
{
    static const struct str names[] = {
        [TYPE] = STR_INIT("type"),
        [RESPONSE] = STR_INIT("response"),
        [ITEM] = STR_INIT("item"),
        [PART] = STR_INIT("part"),
        [DELTA] = STR_INIT("delta"),
        [ANNOTATION] = STR_INIT("annotation"),
        [OUTPUT_INDEX] = STR_INIT("output_index"),
        [CONTENT_INDEX] = STR_INIT("content_index"),
        [SUMMARY_INDEX] = STR_INIT("summary_index"),
        [ERROR] = STR_INIT("error"),
    };
    const struct responses *r = f->state;
    struct responses_event e = {.object = data};
    for (size_t i = 0; i < N_MEMBERS; i++)
        e.members[i].name = names[i];
    view_pick(data, e.members, N_MEMBERS);
    struct str name = e.members[TYPE].value;
    name = view_type(name) == VIEW_STRING ? view_inside(name) : type;
    if (r->final || !take_event(f, &e, name))
        fold_skip(f);
}

/* ---- the snapshot ---- */

static struct str string_value(struct buf *out, const struct grown *g)
{
    out->n = 0;
    buf_putc(out, '"');
    buf_put(out, buf_str(&g->inside));
    buf_putc(out, '"');
    return buf_str(out);
}

static void put_part(struct buf *out, const struct part *p)
{
    struct json_edit edits[2];
    struct buf text = {0}, annotations = {0};
    size_t n = 0;
    if (p->text.member != NULL)
        edits[n++] =
            (struct json_edit){str_of_cstr(p->text.member), string_value(&text, &p->text), false};
    if (p->annotations.n > 0) {
        buf_putc(&annotations, '[');
        buf_put(&annotations, buf_str(&p->annotations));
        buf_putc(&annotations, ']');
        edits[n++] = (struct json_edit){STR("annotations"), buf_str(&annotations), false};
    }
    json_edit_put(out, p->base, edits, n);
    buf_deinit(&text);
    buf_deinit(&annotations);
}

static void put_parts(struct buf *out, const struct parts *all)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < all->n; i++) {
        if (i > 0)
            buf_putc(out, ',');
        put_part(out, all->list[i]);
    }
    buf_putc(out, ']');
}

static void put_item(struct buf *out, const struct item *item)
{
    struct json_edit edits[N_PLACES + 2];
    struct buf lists[N_PLACES] = {{0}}, text = {0};
    size_t n = 0;
    for (size_t i = 0; i < N_PLACES; i++) {
        if (item->parts[i].n == 0)
            continue;
        put_parts(&lists[i], &item->parts[i]);
        edits[n++] = (struct json_edit){str_of_cstr(place_names[i]), buf_str(&lists[i]), false};
    }
    if (item->text.member != NULL)
        edits[n++] = (struct json_edit){str_of_cstr(item->text.member),
                                        string_value(&text, &item->text), false};
    if (item->status.n > 0)
        edits[n++] = (struct json_edit){STR("status"), item->status, false};
    json_edit_put(out, item->base, edits, n);
    for (size_t i = 0; i < N_PLACES; i++)
        buf_deinit(&lists[i]);
    buf_deinit(&text);
}

static void put_output(struct buf *out, const struct responses *r)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < r->n_items; i++) {
        if (i > 0)
            buf_putc(out, ',');
        put_item(out, r->items[i]);
    }
    buf_putc(out, ']');
}

/* As a response has it. */
static void put_response_error(struct buf *out, struct str error)
{
    struct view_want wants[] = {{.name = STR("code")}, {.name = STR("message")}};
    if (view_type(error) == VIEW_OBJECT)
        view_pick(error, wants, 2);
    bool coded = view_type(wants[0].value) == VIEW_STRING;
    bool told = view_type(wants[1].value) == VIEW_STRING;
    buf_put(out, STR("{\"code\":"));
    buf_put(out, coded ? wants[0].value : STR("\"server_error\""));
    buf_put(out, STR(",\"message\":"));
    buf_put(out, told ? wants[1].value : STR("\"the upstream failed\""));
    buf_putc(out, '}');
}

static void fold_responses_put(const struct fold *f, struct buf *out)
{
    const struct responses *r = f->state;
    struct json_edit edits[3];
    struct buf output = {0}, error = {0};
    size_t n = 0;
    if (!has_output(r)) {
        put_output(&output, r);
        edits[n++] = (struct json_edit){STR("output"), buf_str(&output), false};
    }
    if (f->error.n > 0 && !r->final) {
        put_response_error(&error, f->error);
        edits[n++] = (struct json_edit){STR("status"), STR("\"failed\""), false};
        edits[n++] = (struct json_edit){STR("error"), buf_str(&error), false};
    }
    json_edit_put(out, r->response.n > 0 ? r->response : STR("{}"), edits, n);
    buf_deinit(&output);
    buf_deinit(&error);
}

const struct fold_ops fold_responses_ops = {
    .name = "responses",
    .json = true,
    .open = fold_responses_open,
    .close = fold_responses_close,
    .feed = fold_responses_feed,
    .put = fold_responses_put,
};
