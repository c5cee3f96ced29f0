// SPDX-License-Identifier: Apache-2.0
/* fold_ag_ui.c -- events of AG-UI as the messages and the state that they amount to:
 *
 *     {"messages":[..],"state":STATE,"stateDelta":[..]}
 *
 * stateDelta has the operations (JSON Patch) that came behind the last STATE_SNAPSHOT: they are not
 * applied here. Calls of tools stand in the message that they belong to, and a result is a message.
 * Activities, reasoning and events of other kinds are passed over. */
#include "base/json_view.h"
#include "base/mem.h"
#include "feature/gateway/fold_draft.h"

#include <stdlib.h>

#define LOOK_MAX 64 /* of the newest messages, and of the calls in each, are looked through */

struct ag_ui {
    struct draft run;
};

static void *fold_ag_ui_open(void)
{
    return mem_zalloc(sizeof(struct ag_ui));
}

static void fold_ag_ui_close(void *state)
{
    struct ag_ui *a = state;
    draft_deinit(&a->run);
    free(a);
}

/* ---- messages ---- */

enum { TYPE, MESSAGE_ID, CALL_ID, CALL_NAME, PARENT, ROLE, DELTA, CONTENT, SNAPSHOT, MESSAGES, N };

static struct draft *messages_of(struct fold *f)
{
    struct ag_ui *a = f->state;
    f->folded = true;
    return draft_member(f, &a->run, STR("messages"));
}

/* As far as there are any. */
static const struct draft *messages_so_far(const struct fold *f)
{
    const struct ag_ui *a = f->state;
    return draft_find(&a->run, STR("messages"));
}

/* Where to begin, and to end, among the newest of a list. */
static size_t newest(const struct draft *list)
{
    return list != NULL && list->kind == DRAFT_LIST ? list->n : 0;
}
static size_t oldest(const struct draft *list)
{
    return newest(list) > LOOK_MAX ? newest(list) - LOOK_MAX : 0;
}

/* The newest is nearly always the one. NULL: there is none. */
static struct draft *find_by_id(const struct draft *list, struct str id)
{
    for (size_t i = newest(list); i > oldest(list); i--)
        if (draft_member_is(list->entries[i - 1].value, STR("id"), id))
            return list->entries[i - 1].value;
    return NULL;
}

static struct draft *message_of(struct fold *f, struct str id, struct str role)
{
    struct draft *list = messages_of(f);
    struct draft *message = find_by_id(list, id);
    if (message != NULL)
        return message;
    message = draft_push(f, list);
    draft_set(f, draft_member(f, message, STR("id")), id);
    draft_set(f, draft_member(f, message, STR("role")), role.n > 0 ? role : STR("\"assistant\""));
    return message;
}

static bool is_text(struct str value)
{
    return view_type(value) == VIEW_STRING;
}

static bool start_message(struct fold *f, const struct view_want *w)
{
    if (!is_text(w[MESSAGE_ID].value) || (w[ROLE].value.n > 0 && !is_text(w[ROLE].value)))
        return false;
    struct draft *message = message_of(f, w[MESSAGE_ID].value, w[ROLE].value);
    draft_grow(f, draft_member(f, message, STR("content")), STR("\"\""));
    return true;
}

static bool grow_message(struct fold *f, const struct view_want *w)
{
    if (!is_text(w[MESSAGE_ID].value) || !is_text(w[DELTA].value))
        return false;
    struct draft *message = message_of(f, w[MESSAGE_ID].value, STR_NONE);
    draft_grow(f, draft_member(f, message, STR("content")), w[DELTA].value);
    return true;
}

/* ---- calls of tools ---- */

/* In whatever message. NULL: there is none. */
static struct draft *find_call(const struct draft *messages, struct str id)
{
    for (size_t i = newest(messages); i > oldest(messages); i--) {
        const struct draft *calls = draft_find(messages->entries[i - 1].value, STR("toolCalls"));
        struct draft *call = find_by_id(calls, id);
        if (call != NULL)
            return call;
    }
    return NULL;
}

static bool start_call(struct fold *f, const struct view_want *w)
{
    struct str id = w[CALL_ID].value, parent = w[PARENT].value;
    if (!is_text(id) || !is_text(w[CALL_NAME].value) || find_call(messages_so_far(f), id) != NULL)
        return false;
    struct draft *message = message_of(f, is_text(parent) ? parent : id, STR_NONE);
    struct draft *call = draft_push(f, draft_member(f, message, STR("toolCalls")));
    draft_set(f, draft_member(f, call, STR("id")), id);
    draft_set(f, draft_member(f, call, STR("type")), STR("\"function\""));
    struct draft *function = draft_member(f, call, STR("function"));
    draft_set(f, draft_member(f, function, STR("name")), w[CALL_NAME].value);
    draft_grow(f, draft_member(f, function, STR("arguments")), STR("\"\""));
    return true;
}

static bool grow_call(struct fold *f, const struct view_want *w)
{
    struct draft *call =
        is_text(w[CALL_ID].value) ? find_call(messages_so_far(f), w[CALL_ID].value) : NULL;
    if (call == NULL || !is_text(w[DELTA].value))
        return false;
    struct draft *function = draft_member(f, call, STR("function"));
    draft_grow(f, draft_member(f, function, STR("arguments")), w[DELTA].value);
    return true;
}

static bool add_result(struct fold *f, const struct view_want *w)
{
    if (!is_text(w[MESSAGE_ID].value) || !is_text(w[CALL_ID].value) || !is_text(w[CONTENT].value))
        return false;
    struct draft *message = message_of(f, w[MESSAGE_ID].value, STR("\"tool\""));
    draft_set(f, draft_member(f, message, STR("toolCallId")), w[CALL_ID].value);
    draft_set(f, draft_member(f, message, STR("content")), w[CONTENT].value);
    return true;
}

/* ---- all at once ---- */

static bool set_messages(struct fold *f, const struct view_want *w)
{
    if (view_type(w[MESSAGES].value) != VIEW_ARRAY)
        return false;
    struct draft *messages = messages_of(f);
    draft_set(f, messages, w[MESSAGES].value);
    draft_as_list(f, messages);
    for (size_t i = oldest(messages); !f->given_up && i < newest(messages); i++)
        draft_as_object(f, messages->entries[i].value); /* to be found by its id */
    return true;
}

static bool set_state(struct fold *f, const struct view_want *w)
{
    struct ag_ui *a = f->state;
    if (w[SNAPSHOT].value.n == 0)
        return false;
    messages_of(f);
    draft_set(f, draft_member(f, &a->run, STR("state")), w[SNAPSHOT].value);
    draft_remove(f, &a->run, STR("stateDelta"));
    return true;
}

static bool change_state(struct fold *f, const struct view_want *w)
{
    struct ag_ui *a = f->state;
    struct str operation;
    if (view_type(w[DELTA].value) != VIEW_ARRAY)
        return false;
    messages_of(f);
    struct draft *delta = draft_member(f, &a->run, STR("stateDelta"));
    for (struct str rest = view_inside(w[DELTA].value); view_element(&rest, &operation);)
        draft_set(f, draft_push(f, delta), operation);
    return true;
}

static bool finish(struct fold *f, const struct view_want *w)
{
    fold_ended(f, FOLD_COMPLETE);
    return true;
}

/* ---- events ---- */

static const struct kind {
    struct str name;
    bool (*take)(struct fold *f, const struct view_want *w); /* false: it cannot be used */
} kinds[] = {
    {STR_INIT("TEXT_MESSAGE_CONTENT"), grow_message},
    {STR_INIT("TEXT_MESSAGE_CHUNK"), grow_message},
    {STR_INIT("TEXT_MESSAGE_START"), start_message},
    {STR_INIT("TOOL_CALL_ARGS"), grow_call},
    {STR_INIT("TOOL_CALL_START"), start_call},
    {STR_INIT("TOOL_CALL_RESULT"), add_result},
    {STR_INIT("STATE_DELTA"), change_state},
    {STR_INIT("STATE_SNAPSHOT"), set_state},
    {STR_INIT("MESSAGES_SNAPSHOT"), set_messages},
    {STR_INIT("RUN_FINISHED"), finish},
};

static void fold_ag_ui_feed(struct fold *f, struct str type, struct str data)
{
    struct view_want w[N] = {[TYPE] = {.name = STR_INIT("type")},
                             [MESSAGE_ID] = {.name = STR_INIT("messageId")},
                             [CALL_ID] = {.name = STR_INIT("toolCallId")},
                             [CALL_NAME] = {.name = STR_INIT("toolCallName")},
                             [PARENT] = {.name = STR_INIT("parentMessageId")},
                             [ROLE] = {.name = STR_INIT("role")},
                             [DELTA] = {.name = STR_INIT("delta")},
                             [CONTENT] = {.name = STR_INIT("content")},
                             [SNAPSHOT] = {.name = STR_INIT("snapshot")},
                             [MESSAGES] = {.name = STR_INIT("messages")}};
    view_pick(data, w, N);
    if (!is_text(w[TYPE].value)) {
        fold_skip(f);
        return;
    }
    if (view_text_is(w[TYPE].value, STR("RUN_ERROR"))) {
        fold_set(f, &f->error, data);
        fold_ended(f, FOLD_FAILED);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (view_text_is(w[TYPE].value, kinds[i].name) && !kinds[i].take(f, w))
            fold_skip(f);
}

static void fold_ag_ui_put(const struct fold *f, struct buf *out)
{
    const struct ag_ui *a = f->state;
    draft_put(&a->run, out);
}

const struct fold_ops fold_ag_ui_ops = {
    .name = "ag-ui",
    .json = true,
    .open = fold_ag_ui_open,
    .close = fold_ag_ui_close,
    .feed = fold_ag_ui_feed,
    .put = fold_ag_ui_put,
};
