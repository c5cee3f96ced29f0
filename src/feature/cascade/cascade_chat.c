// SPDX-License-Identifier: Apache-2.0
/* cascade_chat.c -- POST /v1/chat/completions: a Cascade's answer as chunks of a chat completion.
 *
 * What goes wrong before anything was said is an answer with a status of its own. So the head waits
 * for the first text, but not for long: the client learns its generation's id from it, and gets
 * heartbeats from then on. For somebody who wants the answer in one piece, it waits for the end;
 * then a text that was written anew later is not said as it was at first.
 *
 * A rewrite is a chunk without choices, which clients pass over that do not know it:
 *
 *     "choices":[],"tidemark":{"rewrite":{"index":N,"text":TEXT[,"more":true]}}
 *
 * more: the text is so large that the next chunk of this kind goes on with it.
 *
 * Nobody says what was used. Who asks for it gets an estimate, with a mark that it is one:
 *
 *     "choices":[],"usage":{"prompt_tokens":P,"completion_tokens":C,"total_tokens":P+C,
 *                           "tidemark":{"estimated":true}} */
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "http/message.h"
#include "feature/cascade/cascade_core.h"
#include "feature/cascade/cascade_prompt.h"
#include "feature/cascade/cascade_trace.h"

#include <inttypes.h>
#include <stdlib.h>

#define HEAD_HOLD_MS 2000
#define PIECE_MAX    (128 * 1024) /* of a text in one event, which JSON makes up to six times it */
#define TOKEN_BYTES  4            /* of text, more or less */

/* A message of the Assistant as it is now; of those who want all at once. */
struct text {
    uint64_t index;
    struct buf buf;
};

struct chat {
    struct generation_source source;
    struct cascade *cascade;
    const struct source_events *on;
    void *ctx;
    struct cascade_prompt prompt;
    struct cascade_flow *flow; /* NULL: not begun, or over */
    struct arena arena;
    struct str id, model;
    int64_t created_s;
    uint64_t said; /* bytes of the answer's text, as they came */
    bool whole;
    bool headed;
    bool full;  /* no more before cascade_chat_resume() */
    bool *gone; /* set when it is freed; NULL: nobody has to know */
    struct timer hold;
    struct task refuse; /* of a request that cannot be used */
    struct text *texts; /* by index */
    size_t n_texts;
};

/* ---- events ---- */

/* False: that was the end of it. */
static bool emit(struct chat *chat, struct str data)
{
    int taken = chat->on->event(chat->ctx, STR_NONE, data);
    chat->full = chat->full || taken == 0;
    return taken >= 0;
}

static void open_chunk(const struct chat *chat, struct buf *out)
{
    buf_put(out, STR("{\"id\":\"chatcmpl-"));
    buf_put(out, chat->id);
    buf_printf(out, "\",\"object\":\"chat.completion.chunk\",\"created\":%" PRId64 ",\"model\":",
               chat->created_s);
    json_put_string(out, chat->model);
}

/* As OpenAI does it: once a stream is to end with what was used, all chunks have a word on it. */
static struct str chunk_end(const struct chat *chat)
{
    return !chat->whole && chat->prompt.usage ? STR(",\"usage\":null}") : STR("}");
}

/* delta: its members. */
static bool emit_choice(struct chat *chat, const char *delta, struct str text, const char *finish)
{
    struct buf chunk = {0};
    open_chunk(chat, &chunk);
    buf_printf(&chunk, ",\"choices\":[{\"index\":0,\"delta\":{%s", delta);
    if (text.p != NULL)
        json_put_string(&chunk, text);
    buf_printf(&chunk, "},\"logprobs\":null,\"finish_reason\":%s}]", finish);
    buf_put(&chunk, chunk_end(chat));
    bool taken = emit(chat, buf_str(&chunk));
    buf_deinit(&chunk);
    return taken;
}

static bool emit_rewrite(struct chat *chat, uint64_t index, struct str text, bool more)
{
    struct buf chunk = {0};
    open_chunk(chat, &chunk);
    buf_printf(&chunk,
               ",\"choices\":[],\"tidemark\":{\"rewrite\":{\"index\":%" PRIu64 ",\"text\":", index);
    json_put_string(&chunk, text);
    buf_put(&chunk, more ? STR(",\"more\":true}}") : STR("}}"));
    buf_put(&chunk, chunk_end(chat));
    bool taken = emit(chat, buf_str(&chunk));
    buf_deinit(&chunk);
    return taken;
}

static bool emit_usage(struct chat *chat)
{
    struct buf chunk = {0};
    uint64_t asked = (chat->prompt.text.n + TOKEN_BYTES - 1) / TOKEN_BYTES;
    uint64_t said = (chat->said + TOKEN_BYTES - 1) / TOKEN_BYTES;
    open_chunk(chat, &chunk);
    buf_printf(&chunk,
               ",\"choices\":[],\"usage\":{\"prompt_tokens\":%" PRIu64
               ",\"completion_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64
               ",\"tidemark\":{\"estimated\":true}}}",
               asked, said, asked + said);
    bool taken = emit(chat, buf_str(&chunk));
    buf_deinit(&chunk);
    return taken;
}

/* Up to PIECE_MAX bytes, and no half of a character. */
static struct str cut_piece(struct str *rest)
{
    size_t n = rest->n < PIECE_MAX ? rest->n : PIECE_MAX;
    while (n < rest->n && n > 0 && ((unsigned char)rest->p[n] & 0xc0) == 0x80)
        n--;
    struct str piece = str_of(rest->p, n);
    *rest = str_skip(*rest, n);
    return piece;
}

static bool emit_text(struct chat *chat, struct str text)
{
    while (text.n > 0)
        if (!emit_choice(chat, "\"content\":", cut_piece(&text), "null"))
            return false;
    return true;
}

static bool emit_rewrites(struct chat *chat, uint64_t index, struct str text)
{
    do {
        struct str piece = cut_piece(&text);
        if (!emit_rewrite(chat, index, piece, text.n > 0))
            return false;
    } while (text.n > 0);
    return true;
}

static bool open_answer(struct chat *chat)
{
    if (chat->headed)
        return true;
    chat->headed = true;
    timer_stop(&chat->hold);
    chat->on->head(chat->ctx, &(struct source_head){.events = true});
    return emit_choice(chat, "\"role\":\"assistant\",\"content\":\"\"", STR_NONE, "null");
}

static bool close_answer(struct chat *chat)
{
    bool usage = chat->whole || chat->prompt.usage;
    return emit_choice(chat, "", STR_NONE, "\"stop\"") && (!usage || emit_usage(chat)) &&
           emit(chat, STR("[DONE]"));
}

/* ---- all at once ---- */

static struct buf *cascade_chat_text_of(struct chat *chat, uint64_t index)
{
    size_t at = 0;
    while (at < chat->n_texts && chat->texts[at].index < index)
        at++;
    if (at < chat->n_texts && chat->texts[at].index == index)
        return &chat->texts[at].buf;
    chat->texts = mem_realloc(chat->texts, (chat->n_texts + 1) * sizeof *chat->texts);
    memmove(chat->texts + at + 1, chat->texts + at, (chat->n_texts - at) * sizeof *chat->texts);
    chat->texts[at] = (struct text){.index = index};
    chat->n_texts++;
    return &chat->texts[at].buf;
}

static void cascade_chat_keep(struct chat *chat, const struct cascade_turn_event *e)
{
    struct buf *text = cascade_chat_text_of(chat, e->index);
    if (e->kind == CASCADE_REWRITE)
        text->n = 0;
    buf_put(text, e->text);
}

static bool emit_kept(struct chat *chat)
{
    struct buf all = {0};
    for (size_t i = 0; i < chat->n_texts; i++) {
        if (all.n > 0 && chat->texts[i].buf.n > 0)
            buf_put(&all, STR("\n\n"));
        buf_put(&all, buf_str(&chat->texts[i].buf));
    }
    bool taken = emit_text(chat, buf_str(&all));
    buf_deinit(&all);
    return taken;
}

/* ---- what goes wrong ---- */

/* The chat may be gone when these return. */
static void pass_fault(struct chat *chat, const struct cascade_fault *fault)
{
    static const struct header headers[] = {
        {STR_INIT("Content-Type"), STR_INIT("application/json")},
        {STR_INIT("Cache-Control"), STR_INIT("no-store")},
    };
    struct buf body = {0};
    const struct source_events *on = chat->on;
    void *ctx = chat->ctx;
    bool gone = false;
    gateway_put_openai_error(&body, fault->status, fault->code, fault->message);
    chat->gone = &gone;
    on->head(ctx,
             &(struct source_head){.status = fault->status, .headers = headers, .n_headers = 2});
    if (!gone) {
        chat->gone = NULL;
        on->data(ctx, buf_str(&body));
        on->end(ctx, 0, STR_NONE);
    }
    buf_deinit(&body);
}

static void cascade_chat_fail(struct chat *chat, const struct cascade_fault *fault)
{
    timer_stop(&chat->hold);
    if (chat->headed)
        chat->on->end(chat->ctx, ERR_UPSTREAM, fault->message);
    else
        pass_fault(chat, fault);
}

static void cascade_chat_run_refuse(struct task *t)
{
    struct chat *chat = container_of(t, struct chat, refuse);
    pass_fault(chat, &(struct cascade_fault){400, STR("invalid_request"),
                                             str_of_cstr(chat->prompt.wrong)});
}

/* An event that the recorder does not take: it has said so to nobody but us. */
static void cascade_chat_abort(struct chat *chat)
{
    struct cascade_flow *flow = chat->flow;
    chat->flow = NULL;
    if (flow != NULL)
        cascade_flow_leave(flow);
    chat->on->end(chat->ctx, ERR_TOO_LARGE, STR("the answer cannot be kept"));
}

/* ---- the flow ---- */

static void cascade_chat_on_begun(void *ctx, struct str model_uid)
{
    struct chat *chat = ctx;
    chat->model = arena_dup(&chat->arena, model_uid);
    if (!chat->whole)
        sched_start(chat->cascade->setup.sched, &chat->hold, HEAD_HOLD_MS);
}

static void cascade_chat_on_hold(struct timer *t)
{
    struct chat *chat = container_of(t, struct chat, hold);
    if (!open_answer(chat))
        cascade_chat_abort(chat);
}

static void cascade_chat_on_event(void *ctx, const struct cascade_turn_event *e)
{
    struct chat *chat = ctx;
    bool taken;
    chat->said += e->text.n;
    if (chat->whole) {
        cascade_chat_keep(chat, e);
        return;
    }
    taken = open_answer(chat);
    if (taken && e->kind == CASCADE_REWRITE)
        taken = emit_rewrites(chat, e->index, e->text);
    else if (taken)
        taken = (!e->apart || emit_text(chat, STR("\n\n"))) && emit_text(chat, e->text);
    if (!taken)
        cascade_chat_abort(chat);
}

static bool cascade_chat_on_polled(void *ctx)
{
    struct chat *chat = ctx;
    return !chat->full;
}

static void cascade_chat_on_end(void *ctx, const struct cascade_fault *fault)
{
    struct chat *chat = ctx;
    chat->flow = NULL;
    if (fault != NULL)
        cascade_chat_fail(chat, fault);
    else if (open_answer(chat) && (!chat->whole || emit_kept(chat)) && close_answer(chat))
        chat->on->end(chat->ctx, 0, STR_NONE);
    else
        cascade_chat_abort(chat);
}

static const struct cascade_flow_ops flow_ops = {.begun = cascade_chat_on_begun,
                                                 .event = cascade_chat_on_event,
                                                 .polled = cascade_chat_on_polled,
                                                 .end = cascade_chat_on_end};

/* ---- as a source ---- */

static struct chat *chat_of(struct generation_source *s)
{
    return container_of(s, struct chat, source);
}

static void cascade_chat_start(struct generation_source *s)
{
    struct chat *chat = chat_of(s);
    struct sched *sched = chat->cascade->setup.sched;
    chat->created_s = sched->wall_ms / 1000;
    if (chat->prompt.wrong != NULL)
        sched_post(sched, &chat->refuse);
    else
        chat->flow = cascade_flow_new(chat->cascade,
                                      &(struct cascade_ask){.model = buf_str(&chat->prompt.model),
                                                            .text = buf_str(&chat->prompt.text),
                                                            .ops = &flow_ops,
                                                            .ctx = chat});
}

static void cascade_chat_resume(struct generation_source *s)
{
    struct chat *chat = chat_of(s);
    chat->full = false;
    if (chat->flow != NULL)
        cascade_flow_resume(chat->flow);
}

static void cascade_chat_free(struct generation_source *s)
{
    struct chat *chat = chat_of(s);
    if (chat->gone != NULL)
        *chat->gone = true;
    if (chat->flow != NULL)
        cascade_flow_leave(chat->flow);
    timer_stop(&chat->hold);
    task_cancel(&chat->refuse);
    for (size_t i = 0; i < chat->n_texts; i++)
        buf_deinit(&chat->texts[i].buf);
    free(chat->texts);
    cascade_prompt_deinit(&chat->prompt);
    arena_deinit(&chat->arena);
    free(chat);
}

static const struct source_ops ops = {
    .start = cascade_chat_start, .resume = cascade_chat_resume, .free = cascade_chat_free};

/* Some clients offer them with each request. */
static void tell_of_tools(struct cascade *c)
{
    if (!c->told_of_tools)
        trace(c->setup.trace, CASCADE_TOOLS, TRACE_STR("setting", STR("tools = refuse")));
    c->told_of_tools = true;
}

struct generation_source *cascade_chat_open(void *ctx, const struct source_order *o)
{
    struct chat *chat = mem_zalloc(sizeof *chat);
    chat->source.ops = &ops;
    chat->cascade = ctx;
    chat->on = o->on;
    chat->ctx = o->ctx;
    chat->id = arena_dup(&chat->arena, o->request_id);
    chat->whole = cascade_prompt_is_whole(o->body);
    cascade_prompt_read(&chat->prompt, o->body, chat->cascade->setup.refuse_tools);
    if (chat->prompt.tools && chat->prompt.wrong == NULL)
        tell_of_tools(chat->cascade);
    timer_init(&chat->hold, cascade_chat_on_hold);
    task_init(&chat->refuse, cascade_chat_run_refuse);
    return &chat->source;
}
