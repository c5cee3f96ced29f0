// SPDX-License-Identifier: Apache-2.0
#include "feature/cascade/cascade_prompt.h"
#include "base/json.h"
#include "feature/cascade/cascade_transcript.h"
#include "base/json_view.h"

#define MODEL_MAX 256

enum role { ROLE_NONE, ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL };

static enum role role_of(struct str value)
{
    static const struct {
        struct str name;
        enum role role;
    } roles[] = {
        {STR_INIT("system"), ROLE_SYSTEM}, {STR_INIT("developer"), ROLE_SYSTEM},
        {STR_INIT("user"), ROLE_USER},     {STR_INIT("assistant"), ROLE_ASSISTANT},
        {STR_INIT("tool"), ROLE_TOOL},     {STR_INIT("function"), ROLE_TOOL},
    };
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (view_text_is(value, roles[i].name))
            return roles[i].role;
    return ROLE_NONE;
}

/* ---- contents ---- */

/* One part of a content that has several: its text, or what is wrong with it. */
static const char *cascade_prompt_put_part(struct buf *out, struct str part)
{
    struct view_want wants[] = {{.name = STR("type")}, {.name = STR("text")}};
    if (view_type(part) != VIEW_OBJECT)
        return "A part of a message's content is not an object";
    view_pick(part, wants, 2);
    if (view_text_is(wants[0].value, STR("refusal")))
        return NULL;
    if (!view_text_is(wants[0].value, STR("text")))
        return "Only text can be sent: a part of a message's content is something else";
    if (view_type(wants[1].value) != VIEW_STRING)
        return "A part of a message's content has no text";
    view_decode(view_inside(wants[1].value), out);
    return NULL;
}

static const char *put_content(struct buf *out, struct str content)
{
    const char *wrong = NULL;
    struct str rest, part;
    switch (view_type(content)) {
    case VIEW_NONE:
    case VIEW_NULL: return NULL; /* as of an assistant that calls tools */
    case VIEW_STRING: view_decode(view_inside(content), out); return NULL;
    case VIEW_ARRAY: break;
    default: return "A message's content is neither a text nor a list of parts";
    }
    rest = view_inside(content);
    while (wrong == NULL && view_element(&rest, &part)) {
        if (out->n > 0)
            buf_putc(out, '\n');
        wrong = cascade_prompt_put_part(out, part);
    }
    return wrong;
}

/* ---- messages ---- */

struct message {
    enum role role;
    struct str content;
};

static const char *cascade_prompt_take_message(struct str *rest, struct message *m, bool *there)
{
    struct view_want wants[] = {{.name = STR("role")}, {.name = STR("content")}};
    struct str value;
    *there = view_element(rest, &value);
    if (!*there)
        return NULL;
    if (view_type(value) != VIEW_OBJECT)
        return "A message is not an object";
    view_pick(value, wants, 2);
    *m = (struct message){role_of(wants[0].value), wants[1].value};
    return m->role == ROLE_NONE ? "A message has none of the roles system, developer, user, "
                                  "assistant and tool"
                                : NULL;
}

/* What messages are made into while they are gone through. */
struct flat {
    struct buf systems, before, question;
};

static void cascade_prompt_put_block(struct buf *out, const char *heading, struct str text)
{
    if (out->n > 0)
        buf_put(out, STR("\n\n"));
    buf_put(out, str_of_cstr(heading));
    buf_put(out, text);
}

/* The last of the user is known when the next one comes, or none does. */
static void cascade_prompt_put_message(struct flat *f, enum role role, struct str text)
{
    switch (role) {
    case ROLE_SYSTEM: cascade_prompt_put_block(&f->systems, "", text); break;
    case ROLE_ASSISTANT:
        cascade_prompt_put_block(&f->before, "Previous assistant reply:\n", text);
        break;
    case ROLE_TOOL: cascade_prompt_put_block(&f->before, "Previous tool result:\n", text); break;
    case ROLE_USER: cascade_prompt_put_block(&f->before, "Previous user message:\n", text); break;
    case ROLE_NONE: break;
    }
}

static const char *find_question(struct str messages, size_t *last)
{
    struct buf text = {0};
    const char *wrong = NULL;
    struct message m;
    bool there = true, found = false;
    for (size_t i = 0; wrong == NULL && there; i++) {
        wrong = cascade_prompt_take_message(&messages, &m, &there);
        text.n = 0;
        if (wrong == NULL && there)
            wrong = put_content(&text, m.content);
        if (wrong == NULL && there && m.role == ROLE_USER && text.n > 0) {
            *last = i;
            found = true;
        }
    }
    buf_deinit(&text);
    return wrong != NULL ? wrong : found ? NULL : "There is no message of the user in `messages`";
}

/* All contents have been looked at: nothing is wrong with them. */
static void flatten(struct buf *out, struct str messages, size_t last)
{
    struct flat f = {0};
    struct buf text = {0};
    struct message m;
    bool there;
    for (size_t i = 0; cascade_prompt_take_message(&messages, &m, &there) == NULL && there; i++) {
        text.n = 0;
        put_content(&text, m.content);
        if (i == last)
            buf_put(&f.question, buf_str(&text));
        else if (text.n > 0)
            cascade_prompt_put_message(&f, m.role, buf_str(&text));
    }
    if (f.systems.n > 0)
        cascade_prompt_put_block(out, "Instructions:\n", buf_str(&f.systems));
    if (f.before.n > 0)
        cascade_prompt_put_block(out, "", buf_str(&f.before));
    cascade_prompt_put_block(out, "", buf_str(&f.question));
    buf_deinit(&text);
    buf_deinit(&f.systems);
    buf_deinit(&f.before);
    buf_deinit(&f.question);
}

/* ---- the request ---- */

enum {
    MODEL,
    MESSAGES,
    TOOLS,
    FUNCTIONS,
    TOOL_CHOICE,
    FUNCTION_CALL,
    STREAM_OPTIONS,
    N,
    WANTS,
};

static bool is_filled(struct str list)
{
    struct str rest = view_type(list) == VIEW_ARRAY ? view_inside(list) : STR_NONE, ignored;
    return view_element(&rest, &ignored);
}

static bool offers(struct str tools, struct str choice)
{
    return is_filled(tools) && !view_text_is(choice, STR("none"));
}

/* Any tool, or the one that is named. */
static bool demands(struct str choice)
{
    return view_text_is(choice, STR("required")) || view_type(choice) == VIEW_OBJECT;
}

static bool wants_usage(struct str options)
{
    struct view_want usage = {.name = STR("include_usage")};
    if (view_type(options) != VIEW_OBJECT)
        return false;
    view_pick(options, &usage, 1);
    return str_eq(usage.value, STR("true"));
}

static const char *check(const struct view_want *w, bool tools, bool refuse_tools)
{
    bool demanded = demands(w[TOOL_CHOICE].value) || demands(w[FUNCTION_CALL].value);
    if (tools && (refuse_tools || demanded))
        return "A Cascade uses tools of its own and can be given none: leave `tools` out, or say "
               "`tool_choice`: \"none\"";
    if (view_type(w[N].value) == VIEW_NUMBER && !str_eq(w[N].value, STR("1")))
        return "A Cascade gives one answer: leave `n` out";
    if (view_type(w[MODEL].value) > VIEW_NULL && view_type(w[MODEL].value) != VIEW_STRING)
        return "`model` is not a text";
    return view_type(w[MESSAGES].value) == VIEW_ARRAY ? NULL : "`messages` is not a list";
}

static bool cascade_prompt_is_object(struct str *body)
{
    size_t at;
    *body = view_trim(*body);
    return json_check(*body, &at) == 0 && view_type(*body) == VIEW_OBJECT;
}

/* Half a surrogate pair, which JSON can spell and UTF-8 cannot, becomes U+FFFD: view_decode gives
 * it three bytes that begin as nothing else does, and that is as long. */
static void mend(struct buf *text)
{
    for (size_t i = 0; i + 2 < text->n; i++)
        if ((unsigned char)text->p[i] == 0xed && (unsigned char)text->p[i + 1] >= 0xa0)
            memcpy(text->p + i, "\xef\xbf\xbd", 3);
}

/* The transcript repeats what was asked and escapes nothing: a line that begins as its headers do
 * would be taken for another message, the model's for instance, so it is moved in by a space. */
static void put_guarded(struct buf *out, struct str text)
{
    while (text.n > 0) {
        const char *end = memchr(text.p, '\n', text.n);
        struct str line = end == NULL ? text : str_of(text.p, (size_t)(end - text.p) + 1);
        if (str_starts(line, STR(CASCADE_HEADER_START)))
            buf_putc(out, ' ');
        buf_put(out, line);
        text = str_skip(text, line.n);
    }
}

void cascade_prompt_read(struct cascade_prompt *p, struct str body, bool refuse_tools)
{
    struct view_want wants[WANTS] = {
        [MODEL] = {.name = STR("model")},
        [MESSAGES] = {.name = STR("messages")},
        [TOOLS] = {.name = STR("tools")},
        [FUNCTIONS] = {.name = STR("functions")},
        [TOOL_CHOICE] = {.name = STR("tool_choice")},
        [FUNCTION_CALL] = {.name = STR("function_call")},
        [STREAM_OPTIONS] = {.name = STR("stream_options")},
        [N] = {.name = STR("n")},
    };
    struct buf text = {0};
    size_t last = 0;
    *p = (struct cascade_prompt){0};
    if (!cascade_prompt_is_object(&body)) {
        p->wrong = "The body is not a JSON object";
        return;
    }
    view_pick(body, wants, WANTS);
    p->tools = offers(wants[TOOLS].value, wants[TOOL_CHOICE].value) ||
               offers(wants[FUNCTIONS].value, wants[FUNCTION_CALL].value);
    p->usage = wants_usage(wants[STREAM_OPTIONS].value);
    p->wrong = check(wants, p->tools, refuse_tools);
    if (p->wrong != NULL)
        return;
    struct str messages = view_inside(wants[MESSAGES].value);
    if (view_type(wants[MODEL].value) == VIEW_STRING)
        view_decode(view_inside(wants[MODEL].value), &p->model);
    p->wrong = p->model.n > MODEL_MAX ? "`model` is too long" : find_question(messages, &last);
    if (p->wrong == NULL)
        flatten(&text, messages, last);
    mend(&p->model);
    mend(&text);
    put_guarded(&p->text, buf_str(&text));
    buf_deinit(&text);
}

void cascade_prompt_deinit(struct cascade_prompt *p)
{
    buf_deinit(&p->model);
    buf_deinit(&p->text);
}

bool cascade_prompt_is_whole(struct str body)
{
    struct view_want stream = {.name = STR("stream")};
    if (!cascade_prompt_is_object(&body))
        return false;
    view_pick(body, &stream, 1);
    return !str_eq(stream.value, STR("true"));
}
