// SPDX-License-Identifier: Apache-2.0
/* fold_openai.c -- chat completion chunks as one chat completion. */
#include "base/mem.h"
#include "base/num.h"
#include "feature/gateway/fold_core.h"
#include "base/json_view.h"

#include <inttypes.h>
#include <stdlib.h>

#define INDEX_MAX   127  /* of a choice, and of a tool call in it */
#define CHOICE_COST 1024 /* what a choice and a tool call are counted as, besides their text */
#define CALL_COST   512

/* A string that comes in pieces, as it stands between its quotes. */
struct pieces {
    bool there; /* maybe empty, but not null */
    struct buf inside;
};

struct call {
    uint64_t index;
    struct str id, type, name; /* owned */
    struct pieces arguments;
};

/* What is joined from the deltas of a choice. The last two are what makers of models that show
 * their reasoning send it as. */
enum text { CONTENT, REFUSAL, REASONING_CONTENT, REASONING, N_TEXTS };
static const char *const text_names[] = {
    [CONTENT] = "content",
    [REFUSAL] = "refusal",
    [REASONING_CONTENT] = "reasoning_content",
    [REASONING] = "reasoning",
};

struct choice {
    uint64_t index;
    struct str role, finish_reason; /* owned */
    struct pieces texts[N_TEXTS];
    struct pieces logprobs, refusal_logprobs; /* elements of arrays rather than of strings */
    struct call function;                     /* function_call, which tool calls came after */
    bool has_function;
    struct call **calls; /* by index */
    size_t n_calls;
};

/* Taken from the first chunk with a choice that has it. */
enum head { ID, CREATED, MODEL, SERVICE_TIER, FINGERPRINT, N_HEADS };
static const char *const head_names[] = {
    [ID] = "id",
    [CREATED] = "created",
    [MODEL] = "model",
    [SERVICE_TIER] = "service_tier",
    [FINGERPRINT] = "system_fingerprint",
};

struct openai {
    struct str heads[N_HEADS], usage; /* owned */
    struct choice **choices;          /* by index */
    size_t n_choices;
};

static void *fold_openai_open(void)
{
    return mem_zalloc(sizeof(struct openai));
}

static void free_str(struct str s)
{
    free((char *)s.p);
}

static void call_deinit(struct call *c)
{
    free_str(c->id);
    free_str(c->type);
    free_str(c->name);
    buf_deinit(&c->arguments.inside);
}

static void choice_free(struct choice *c)
{
    free_str(c->role);
    free_str(c->finish_reason);
    for (size_t i = 0; i < N_TEXTS; i++)
        buf_deinit(&c->texts[i].inside);
    buf_deinit(&c->logprobs.inside);
    buf_deinit(&c->refusal_logprobs.inside);
    call_deinit(&c->function);
    for (size_t i = 0; i < c->n_calls; i++) {
        call_deinit(c->calls[i]);
        free(c->calls[i]);
    }
    free(c->calls);
    free(c);
}

static void fold_openai_close(void *state)
{
    struct openai *o = state;
    for (size_t i = 0; i < N_HEADS; i++)
        free_str(o->heads[i]);
    free_str(o->usage);
    for (size_t i = 0; i < o->n_choices; i++)
        choice_free(o->choices[i]);
    free(o->choices);
    free(o);
}

/* ---- folding ---- */

static void join_text(struct fold *f, struct pieces *p, struct str value)
{
    if (view_type(value) != VIEW_STRING)
        return;
    p->there = true;
    fold_append(f, &p->inside, view_inside(value));
}

static void join_array(struct fold *f, struct pieces *p, struct str value)
{
    if (view_type(value) != VIEW_ARRAY)
        return;
    p->there = true;
    struct str inside = view_trim(view_inside(value));
    if (inside.n > 0 && p->inside.n > 0)
        fold_append(f, &p->inside, STR(","));
    fold_append(f, &p->inside, inside);
}

/* A non-empty string takes the place of what was there. */
static void fold_openai_set_text(struct fold *f, struct str *slot, struct str value)
{
    if (view_type(value) == VIEW_STRING && value.n > 2)
        fold_set(f, slot, value);
}

static void join_function(struct fold *f, struct call *c, struct str function)
{
    enum { NAME, ARGUMENTS, N };
    struct view_want wants[N] = {
        [NAME] = {.name = STR_INIT("name")}, [ARGUMENTS] = {.name = STR_INIT("arguments")}};
    if (view_type(function) != VIEW_OBJECT)
        return;
    view_pick(function, wants, N);
    fold_openai_set_text(f, &c->name, wants[NAME].value);
    join_text(f, &c->arguments, wants[ARGUMENTS].value);
}

/* Room for one more pointer, at place `at` of n. */
static void **insert(void **list, size_t n, size_t at)
{
    list = mem_realloc(list, (n + 1) * sizeof *list);
    memmove(list + at + 1, list + at, (n - at) * sizeof *list);
    return list;
}

static struct call *find_call(struct fold *f, struct choice *c, uint64_t index)
{
    size_t at = 0;
    while (at < c->n_calls && c->calls[at]->index < index)
        at++;
    if (at < c->n_calls && c->calls[at]->index == index)
        return c->calls[at];
    if (!fold_hold(f, CALL_COST))
        return NULL;
    c->calls = (struct call **)insert((void **)c->calls, c->n_calls++, at);
    c->calls[at] = mem_zalloc(sizeof **c->calls);
    c->calls[at]->index = index;
    return c->calls[at];
}

static struct choice *find_choice(struct fold *f, struct openai *o, uint64_t index)
{
    size_t at = 0;
    while (at < o->n_choices && o->choices[at]->index < index)
        at++;
    if (at < o->n_choices && o->choices[at]->index == index)
        return o->choices[at];
    if (!fold_hold(f, CHOICE_COST))
        return NULL;
    o->choices = (struct choice **)insert((void **)o->choices, o->n_choices++, at);
    o->choices[at] = mem_zalloc(sizeof **o->choices);
    o->choices[at]->index = index;
    return o->choices[at];
}

static void join_call(struct fold *f, struct choice *c, struct str value)
{
    enum { INDEX, CALL_ID, TYPE, FUNCTION, N };
    struct view_want wants[N] = {[INDEX] = {.name = STR_INIT("index")},
                                 [CALL_ID] = {.name = STR_INIT("id")},
                                 [TYPE] = {.name = STR_INIT("type")},
                                 [FUNCTION] = {.name = STR_INIT("function")}};
    uint64_t index = 0;
    view_pick(value, wants, N);
    num_parse_canonical(wants[INDEX].value, INDEX_MAX, &index);
    struct call *call = find_call(f, c, index);
    if (call == NULL)
        return;
    fold_openai_set_text(f, &call->id, wants[CALL_ID].value);
    fold_openai_set_text(f, &call->type, wants[TYPE].value);
    join_function(f, call, wants[FUNCTION].value);
}

/* Is it an object with a usable index? */
static bool has_index(struct str value, uint64_t *index)
{
    struct view_want want = {.name = STR_INIT("index")};
    if (view_type(value) != VIEW_OBJECT)
        return false;
    view_pick(value, &want, 1);
    return num_parse_canonical(want.value, INDEX_MAX, index) == 0;
}

static bool calls_fit(struct str calls)
{
    struct str rest, value;
    uint64_t index;
    if (view_type(calls) != VIEW_ARRAY)
        return true;
    for (rest = view_inside(calls); view_element(&rest, &value);)
        if (!has_index(value, &index))
            return false;
    return true;
}

enum delta { ROLE = N_TEXTS, FUNCTION_CALL, TOOL_CALLS, N_DELTAS };

static void pick_delta(struct str delta, struct view_want *wants)
{
    static const struct str names[] = {
        [CONTENT] = STR_INIT("content"),
        [REFUSAL] = STR_INIT("refusal"),
        [REASONING_CONTENT] = STR_INIT("reasoning_content"),
        [REASONING] = STR_INIT("reasoning"),
        [ROLE] = STR_INIT("role"),
        [FUNCTION_CALL] = STR_INIT("function_call"),
        [TOOL_CALLS] = STR_INIT("tool_calls"),
    };
    for (size_t i = 0; i < N_DELTAS; i++)
        wants[i] = (struct view_want){.name = names[i]};
    if (view_type(delta) == VIEW_OBJECT)
        view_pick(delta, wants, N_DELTAS);
}

static void join_delta(struct fold *f, struct choice *c, const struct view_want *delta)
{
    struct str calls = delta[TOOL_CALLS].value, function = delta[FUNCTION_CALL].value, rest, value;
    for (size_t i = 0; i < N_TEXTS; i++)
        join_text(f, &c->texts[i], delta[i].value);
    fold_openai_set_text(f, &c->role, delta[ROLE].value);
    if (view_type(function) == VIEW_OBJECT) {
        c->has_function = true;
        join_function(f, &c->function, function);
    }
    if (view_type(calls) == VIEW_ARRAY)
        for (rest = view_inside(calls); view_element(&rest, &value);)
            join_call(f, c, value);
}

static void join_logprobs(struct fold *f, struct choice *c, struct str logprobs)
{
    struct view_want wants[] = {{.name = STR_INIT("content")}, {.name = STR_INIT("refusal")}};
    if (view_type(logprobs) != VIEW_OBJECT)
        return;
    view_pick(logprobs, wants, 2);
    join_array(f, &c->logprobs, wants[0].value);
    join_array(f, &c->refusal_logprobs, wants[1].value);
}

/* false: it cannot be used, and nothing was changed. */
static bool join_choice(struct fold *f, struct str value)
{
    enum { DELTA, LOGPROBS, FINISH_REASON, N };
    struct view_want wants[N] = {[DELTA] = {.name = STR_INIT("delta")},
                                 [LOGPROBS] = {.name = STR_INIT("logprobs")},
                                 [FINISH_REASON] = {.name = STR_INIT("finish_reason")}};
    struct view_want delta[N_DELTAS];
    uint64_t index;
    if (!has_index(value, &index))
        return false;
    view_pick(value, wants, N);
    pick_delta(wants[DELTA].value, delta);
    if (!calls_fit(delta[TOOL_CALLS].value))
        return false;
    struct choice *c = find_choice(f, f->state, index);
    if (c == NULL)
        return true;
    f->folded = true;
    join_logprobs(f, c, wants[LOGPROBS].value);
    fold_openai_set_text(f, &c->finish_reason, wants[FINISH_REASON].value);
    join_delta(f, c, delta);
    return true;
}

/* The first that says so is believed. */
static void take_heads(struct fold *f, struct str chunk)
{
    struct openai *o = f->state;
    struct view_want wants[N_HEADS];
    for (size_t i = 0; i < N_HEADS; i++)
        wants[i].name = str_of_cstr(head_names[i]);
    view_pick(chunk, wants, N_HEADS);
    for (size_t i = 0; i < N_HEADS; i++) {
        enum view_type type = i == CREATED ? VIEW_NUMBER : VIEW_STRING;
        if (o->heads[i].n == 0 && view_type(wants[i].value) == type)
            fold_set(f, &o->heads[i], wants[i].value);
    }
}

static void join_choices(struct fold *f, struct str chunk, struct str choices)
{
    struct str rest, value;
    bool all = true, any = false;
    for (rest = view_inside(choices); view_element(&rest, &value);) {
        bool used = join_choice(f, value);
        all = all && used;
        any = any || used;
    }
    if (!all)
        fold_skip(f);
    if (any)
        take_heads(f, chunk);
}

/* An error instead of a chunk, or with one. */
static void note_error(struct fold *f, struct str error)
{
    fold_set(f, &f->error, error);
    fold_ended(f, FOLD_FAILED);
}

static void fold_openai_feed(struct fold *f, struct str type, struct str data)
{
    enum { CHOICES, USAGE, ERROR, N };
    struct view_want wants[N] = {[CHOICES] = {.name = STR_INIT("choices")},
                                 [USAGE] = {.name = STR_INIT("usage")},
                                 [ERROR] = {.name = STR_INIT("error")}};
    struct openai *o = f->state;
    view_pick(data, wants, N);
    bool failed = view_type(wants[ERROR].value) > VIEW_NULL;
    bool chunk = view_type(wants[CHOICES].value) == VIEW_ARRAY;
    if (failed)
        note_error(f, wants[ERROR].value);
    if (!failed && !chunk) {
        fold_skip(f);
        return;
    }
    if (view_type(wants[USAGE].value) == VIEW_OBJECT) {
        fold_set(f, &o->usage, wants[USAGE].value);
        f->folded = true;
    }
    if (chunk && view_trim(view_inside(wants[CHOICES].value)).n > 0)
        join_choices(f, data, wants[CHOICES].value);
}

static bool fold_openai_is_complete(const struct fold *f)
{
    const struct openai *o = f->state;
    for (size_t i = 0; i < o->n_choices; i++)
        if (o->choices[i]->finish_reason.n == 0)
            return false;
    return o->n_choices > 0;
}

/* ---- the snapshot ---- */

static void put_pieces(struct buf *out, const struct pieces *p, const char *brackets)
{
    if (!p->there) {
        buf_put(out, STR("null"));
        return;
    }
    buf_putc(out, brackets[0]);
    buf_put(out, buf_str(&p->inside));
    buf_putc(out, brackets[1]);
}

static void put_or(struct buf *out, struct str value, struct str otherwise)
{
    buf_put(out, value.n > 0 ? value : otherwise);
}

static void put_function(struct buf *out, const struct call *c)
{
    buf_put(out, STR("{\"name\":"));
    put_or(out, c->name, STR("\"\""));
    buf_put(out, STR(",\"arguments\":\""));
    buf_put(out, buf_str(&c->arguments.inside));
    buf_put(out, STR("\"}"));
}

static void put_calls(struct buf *out, const struct choice *c)
{
    for (size_t i = 0; i < c->n_calls; i++) {
        buf_put(out, i == 0 ? STR(",\"tool_calls\":[") : STR(","));
        buf_put(out, STR("{\"id\":"));
        put_or(out, c->calls[i]->id, STR("\"\""));
        buf_put(out, STR(",\"type\":"));
        put_or(out, c->calls[i]->type, STR("\"function\""));
        buf_put(out, STR(",\"function\":"));
        put_function(out, c->calls[i]);
        buf_putc(out, '}');
    }
    if (c->n_calls > 0)
        buf_putc(out, ']');
}

static void fold_openai_put_message(struct buf *out, const struct choice *c)
{
    buf_put(out, STR("{\"role\":"));
    put_or(out, c->role, STR("\"assistant\""));
    for (size_t i = 0; i < N_TEXTS; i++) {
        if (!c->texts[i].there && i != CONTENT && i != REFUSAL)
            continue;
        buf_printf(out, ",\"%s\":", text_names[i]);
        put_pieces(out, &c->texts[i], "\"\"");
    }
    if (c->has_function) {
        buf_put(out, STR(",\"function_call\":"));
        put_function(out, &c->function);
    }
    put_calls(out, c);
    buf_putc(out, '}');
}

static void put_choice(struct buf *out, const struct choice *c)
{
    buf_printf(out, "{\"index\":%" PRIu64 ",\"message\":", c->index);
    fold_openai_put_message(out, c);
    buf_put(out, STR(",\"logprobs\":"));
    if (c->logprobs.there || c->refusal_logprobs.there) {
        buf_put(out, STR("{\"content\":"));
        put_pieces(out, &c->logprobs, "[]");
        buf_put(out, STR(",\"refusal\":"));
        put_pieces(out, &c->refusal_logprobs, "[]");
        buf_putc(out, '}');
    } else {
        buf_put(out, STR("null"));
    }
    buf_put(out, STR(",\"finish_reason\":"));
    put_or(out, c->finish_reason, STR("null"));
    buf_putc(out, '}');
}

static void fold_openai_put(const struct fold *f, struct buf *out)
{
    const struct openai *o = f->state;
    buf_put(out, STR("{\"object\":\"chat.completion\""));
    for (size_t i = 0; i < N_HEADS; i++) {
        if (o->heads[i].n == 0)
            continue;
        buf_printf(out, ",\"%s\":", head_names[i]);
        buf_put(out, o->heads[i]);
    }
    buf_put(out, STR(",\"choices\":["));
    for (size_t i = 0; i < o->n_choices; i++) {
        if (i > 0)
            buf_putc(out, ',');
        put_choice(out, o->choices[i]);
    }
    buf_putc(out, ']');
    if (o->usage.n > 0) {
        buf_put(out, STR(",\"usage\":"));
        buf_put(out, o->usage);
    }
    buf_putc(out, '}');
}

const struct fold_ops fold_openai_ops = {
    .name = "openai",
    .json = true,
    .open = fold_openai_open,
    .close = fold_openai_close,
    .feed = fold_openai_feed,
    .put = fold_openai_put,
    .is_complete = fold_openai_is_complete,
};
