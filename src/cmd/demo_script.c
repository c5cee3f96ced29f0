// SPDX-License-Identifier: Apache-2.0
#include "cmd/demo_script.h"
#include "base/json.h"

#include <assert.h>
#include <inttypes.h>

static const char story[] =
    "The tide does not hurry. Twice a day the sea leans toward the land, lifts the boats that were "
    "lying on their sides, and fills the pools that children had dug in the morning. Then it goes "
    "back the way it came, and leaves a line of shells to show how far it got. That line is worth "
    "more than it looks. Whoever walks the beach in the evening need not have watched the water "
    "all day long: the mark says where it has been, and the next wave says where it is. A stream "
    "of words is not so different. It comes in small pieces, it is heard by people who are on "
    "their way somewhere, and every now and then a tunnel swallows half a sentence. If nobody has "
    "kept the words, the whole story must be told again from its beginning, and no story is ever "
    "told quite the same way twice. So somebody stands on the shore with a notebook. Every word is "
    "written down before it is passed on, and every listener holds a small card with the number of "
    "the last word that was heard. Show the card, and the reading goes on with the very next word, "
    "as if there had been no tunnel at all.";

/* ---- the text ---- */

static uint64_t count_words(void)
{
    uint64_t n = 1;
    for (const char *p = story; *p != '\0'; p++)
        n += *p == ' ';
    return n;
}

/* A long text is the story again and again. */
static struct str word_at(uint64_t i)
{
    struct str rest = str_of(story, sizeof story - 1), word = STR_NONE;
    for (uint64_t k = i % count_words(); rest.p != NULL; k--) {
        word = str_cut(&rest, ' ');
        if (k == 0)
            break;
    }
    return word;
}

void demo_put_token(uint64_t i, struct buf *out)
{
    if (i > 0)
        buf_putc(out, ' ');
    buf_put(out, word_at(i));
}

void demo_put_text(uint64_t tokens, struct buf *out)
{
    struct str rest = STR_NONE;
    for (uint64_t i = 0; i < tokens; i++) {
        if (rest.p == NULL)
            rest = str_of(story, sizeof story - 1);
        if (i > 0)
            buf_putc(out, ' ');
        buf_put(out, str_cut(&rest, ' '));
    }
}

static void put_token_json(uint64_t i, struct buf *out)
{
    struct buf token = {0};
    demo_put_token(i, &token);
    json_put_string(out, buf_str(&token));
    buf_deinit(&token);
}

/* ---- the dialects ---- */

static void demo_script_put_stage_drafting(const struct demo_script *s, struct buf *out)
{
    buf_put(out, STR("event: stage\ndata: {\"stage\":\"DRAFTING\"}"));
}

static void demo_script_put_sse_token(const struct demo_script *s, uint64_t i, struct buf *out)
{
    buf_put(out, STR("event: token\ndata: {\"text\":"));
    put_token_json(i, out);
    buf_putc(out, '}');
}

static void demo_script_put_stage_complete(const struct demo_script *s, struct buf *out)
{
    struct buf text = {0};
    demo_put_text(s->tokens, &text);
    buf_put(out, STR("event: stage\ndata: {\"stage\":\"COMPLETE\",\"payload\":{\"text\":"));
    json_put_string(out, buf_str(&text));
    buf_printf(out, ",\"tokens\":%" PRIu64 "}}", s->tokens);
    buf_deinit(&text);
}

/* Up to the delta's members. */
static void put_chunk(const struct demo_script *s, struct buf *out)
{
    buf_printf(out,
               "data: {\"id\":\"chatcmpl-demo-%" PRIu64
               "\",\"object\":\"chat.completion.chunk\",\"created\":%" PRId64
               ",\"model\":\"demo\",\"choices\":[{\"index\":0,\"delta\":{",
               s->number, s->created_s);
}

static void demo_script_put_role(const struct demo_script *s, struct buf *out)
{
    put_chunk(s, out);
    buf_put(out, STR("\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}"));
}

static void demo_script_put_openai_token(const struct demo_script *s, uint64_t i, struct buf *out)
{
    put_chunk(s, out);
    buf_put(out, STR("\"content\":"));
    put_token_json(i, out);
    buf_put(out, STR("},\"finish_reason\":null}]}"));
}

static void demo_script_put_stop(const struct demo_script *s, struct buf *out)
{
    put_chunk(s, out);
    buf_put(out, STR("},\"finish_reason\":\"stop\"}]}"));
}

static void demo_script_put_done(const struct demo_script *s, struct buf *out)
{
    buf_put(out, STR("data: [DONE]"));
}

static void demo_script_put_start(const struct demo_script *s, struct buf *out)
{
    buf_printf(out, "data: {\"type\":\"start\",\"messageId\":\"demo-%" PRIu64 "\"}", s->number);
}

static void demo_script_put_text_start(const struct demo_script *s, struct buf *out)
{
    buf_put(out, STR("data: {\"type\":\"text-start\",\"id\":\"text\"}"));
}

static void demo_script_put_ui_token(const struct demo_script *s, uint64_t i, struct buf *out)
{
    buf_put(out, STR("data: {\"type\":\"text-delta\",\"id\":\"text\",\"delta\":"));
    put_token_json(i, out);
    buf_putc(out, '}');
}

static void demo_script_put_text_end(const struct demo_script *s, struct buf *out)
{
    buf_put(out, STR("data: {\"type\":\"text-end\",\"id\":\"text\"}"));
}

static void demo_script_put_finish(const struct demo_script *s, struct buf *out)
{
    buf_put(out, STR("data: {\"type\":\"finish\"}"));
}

typedef void put_fn(const struct demo_script *s, struct buf *out);

/* What stands around the tokens; NULL behind the last. */
#define AROUND_MAX 3
static const struct form {
    put_fn *before[AROUND_MAX + 1];
    void (*token)(const struct demo_script *s, uint64_t i, struct buf *out);
    put_fn *after[AROUND_MAX + 1];
} forms[] = {
    [DEMO_SSE] = {{demo_script_put_stage_drafting},
                  demo_script_put_sse_token,
                  {demo_script_put_stage_complete}},
    [DEMO_OPENAI] = {{demo_script_put_role},
                     demo_script_put_openai_token,
                     {demo_script_put_stop, demo_script_put_done}},
    [DEMO_UI_MESSAGE] = {{demo_script_put_start, demo_script_put_text_start},
                         demo_script_put_ui_token,
                         {demo_script_put_text_end, demo_script_put_finish, demo_script_put_done}},
};

static uint64_t demo_script_count(put_fn *const *steps)
{
    uint64_t n = 0;
    while (steps[n] != NULL)
        n++;
    return n;
}

/* ---- events ---- */

uint64_t demo_events(const struct demo_script *s)
{
    const struct form *f = &forms[s->dialect];
    return demo_script_count(f->before) + s->tokens + demo_script_count(f->after);
}

void demo_put_event(const struct demo_script *s, uint64_t i, struct buf *out)
{
    const struct form *f = &forms[s->dialect];
    uint64_t before = demo_script_count(f->before);
    assert(i < demo_events(s));
    if (i < before)
        f->before[i](s, out);
    else if (i < before + s->tokens)
        f->token(s, i - before, out);
    else
        f->after[i - before - s->tokens](s, out);
    buf_put(out, STR("\n\n"));
}

uint64_t demo_tokens_upto(const struct demo_script *s, uint64_t i)
{
    uint64_t before = demo_script_count(forms[s->dialect].before);
    if (i < before)
        return 0;
    return i - before < s->tokens ? i - before + 1 : s->tokens;
}
