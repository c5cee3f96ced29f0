// SPDX-License-Identifier: Apache-2.0
/* fold_anthropic.c -- events of Anthropic's Messages as the Message so far.
 *
 * Input of a tool comes as pieces of JSON. Until its block ends they stand in `partial_json`, which
 * then becomes `input`; if they are no JSON they stay. */
#include "base/json.h"
#include "base/json_view.h"
#include "base/mem.h"
#include "feature/gateway/fold_draft.h"

#include <stdlib.h>

struct anthropic {
    struct draft message;
};

static void *fold_anthropic_open(void)
{
    return mem_zalloc(sizeof(struct anthropic));
}

static void fold_anthropic_close(void *state)
{
    struct anthropic *a = state;
    draft_deinit(&a->message);
    free(a);
}

/* ---- blocks ---- */

static struct draft *block_at(struct fold *f, uint64_t index)
{
    struct anthropic *a = f->state;
    f->folded = true;
    return draft_element(f, draft_member(f, &a->message, STR("content")), index);
}

enum how { GROW, PUSH };
struct rule {
    struct str type; /* of the delta */
    enum how how;
    struct str member, from;
};

static const struct rule rules[] = {
    {STR_INIT("text_delta"), GROW, STR_INIT("text"), STR_INIT("text")},
    {STR_INIT("thinking_delta"), GROW, STR_INIT("thinking"), STR_INIT("thinking")},
    {STR_INIT("signature_delta"), GROW, STR_INIT("signature"), STR_INIT("signature")},
    {STR_INIT("input_json_delta"), GROW, STR_INIT("partial_json"), STR_INIT("partial_json")},
    {STR_INIT("citations_delta"), PUSH, STR_INIT("citations"), STR_INIT("citation")},
};

static const struct rule *rule_of(struct str type)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (view_text_is(type, rules[i].type))
            return &rules[i];
    return NULL;
}

/* False: it cannot be used. Deltas of a kind that is not known are passed over. */
static bool apply(struct fold *f, uint64_t index, struct str delta)
{
    struct view_want type = {.name = STR_INIT("type")};
    if (view_type(delta) != VIEW_OBJECT)
        return false;
    view_pick(delta, &type, 1);
    const struct rule *r = rule_of(type.value);
    if (r == NULL)
        return view_type(type.value) == VIEW_STRING;
    struct view_want from = {.name = r->from};
    view_pick(delta, &from, 1);
    if (view_type(from.value) != (r->how == GROW ? VIEW_STRING : VIEW_OBJECT))
        return false;
    struct draft *member = draft_member(f, block_at(f, index), r->member);
    if (r->how == GROW)
        draft_grow(f, member, from.value);
    else
        draft_set(f, draft_push(f, member), from.value);
    return true;
}

/* The block, if it has any input; NULL: it has none. */
static struct draft *block_with_input(const struct anthropic *a, uint64_t index)
{
    const struct draft *content = draft_find(&a->message, STR("content"));
    if (content == NULL || content->kind != DRAFT_LIST || index >= content->n)
        return NULL;
    struct draft *block = content->entries[index].value;
    return draft_find(block, STR("partial_json")) != NULL ? block : NULL;
}

static void end_block(struct fold *f, struct draft *block)
{
    struct buf input = {0}, line = {0};
    size_t at;
    view_decode(buf_str(&draft_find(block, STR("partial_json"))->text), &input);
    struct str text = view_trim(buf_str(&input));
    if (text.n > 0 && json_check(text, &at) == 0 && view_depth(text) <= FOLD_DEPTH_MAX) {
        view_put_unbroken(&line, text);
        draft_remove(f, block, STR("partial_json"));
        draft_set(f, draft_member(f, block, STR("input")), buf_str(&line));
    }
    buf_deinit(&input);
    buf_deinit(&line);
}

/* ---- events ---- */

struct event {
    struct str message, block, delta, usage, error;
    uint64_t index;
    bool has_index;
};

static void start_message(struct fold *f, const struct event *e)
{
    struct anthropic *a = f->state;
    if (view_type(e->message) != VIEW_OBJECT) {
        fold_skip(f);
        return;
    }
    draft_set(f, &a->message, e->message);
    f->folded = true;
}

static void start_block(struct fold *f, const struct event *e)
{
    if (e->has_index && view_type(e->block) == VIEW_OBJECT)
        draft_set(f, block_at(f, e->index), e->block);
    else
        fold_skip(f);
}

static void change_block(struct fold *f, const struct event *e)
{
    if (!e->has_index || !apply(f, e->index, e->delta))
        fold_skip(f);
}

static void stop_block(struct fold *f, const struct event *e)
{
    struct draft *block = e->has_index ? block_with_input(f->state, e->index) : NULL;
    if (block != NULL)
        end_block(f, block);
    else if (!e->has_index)
        fold_skip(f);
}

/* Usage counts from the beginning: each number takes the place of the one before. */
static void change_message(struct fold *f, const struct event *e)
{
    struct anthropic *a = f->state;
    if (view_type(e->delta) != VIEW_OBJECT && view_type(e->usage) != VIEW_OBJECT) {
        fold_skip(f);
        return;
    }
    draft_merge(f, &a->message, e->delta);
    if (view_type(e->usage) == VIEW_OBJECT)
        draft_merge(f, draft_member(f, &a->message, STR("usage")), e->usage);
    f->folded = true;
}

static void stop_message(struct fold *f, const struct event *e)
{
    fold_ended(f, FOLD_COMPLETE);
}

static void pass_over(struct fold *f, const struct event *e)
{
}

static void note_error(struct fold *f, const struct event *e)
{
    fold_set(f, &f->error, e->error);
    fold_ended(f, FOLD_FAILED);
}

static const struct kind {
    struct str name;
    void (*take)(struct fold *f, const struct event *e);
} kinds[] = {
    {STR_INIT("content_block_delta"), change_block},
    {STR_INIT("content_block_start"), start_block},
    {STR_INIT("content_block_stop"), stop_block},
    {STR_INIT("message_start"), start_message},
    {STR_INIT("message_delta"), change_message},
    {STR_INIT("message_stop"), stop_message},
    {STR_INIT("ping"), pass_over},
    {STR_INIT("error"), note_error},
};

static void fold_anthropic_feed(struct fold *f, struct str sse_type, struct str data)
{
    enum { TYPE, MESSAGE, BLOCK, DELTA, USAGE, ERROR, INDEX, N };
    struct view_want w[N] = {
        [TYPE] = {.name = STR_INIT("type")},           [MESSAGE] = {.name = STR_INIT("message")},
        [BLOCK] = {.name = STR_INIT("content_block")}, [DELTA] = {.name = STR_INIT("delta")},
        [USAGE] = {.name = STR_INIT("usage")},         [ERROR] = {.name = STR_INIT("error")},
        [INDEX] = {.name = STR_INIT("index")}};
    view_pick(data, w, N);
    struct event e = {.message = w[MESSAGE].value,
                      .block = w[BLOCK].value,
                      .delta = w[DELTA].value,
                      .usage = w[USAGE].value,
                      .error = w[ERROR].value};
    e.has_index = draft_index(w[INDEX].value, &e.index);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!view_text_is(w[TYPE].value, kinds[i].name))
            continue;
        kinds[i].take(f, &e);
        return;
    }
    fold_skip(f);
}

static void fold_anthropic_put(const struct fold *f, struct buf *out)
{
    const struct anthropic *a = f->state;
    draft_put(&a->message, out);
}

const struct fold_ops fold_anthropic_ops = {
    .name = "anthropic",
    .json = true,
    .open = fold_anthropic_open,
    .close = fold_anthropic_close,
    .feed = fold_anthropic_feed,
    .put = fold_anthropic_put,
};
