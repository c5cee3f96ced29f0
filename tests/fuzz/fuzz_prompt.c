// SPDX-License-Identifier: Apache-2.0
/* fuzz_prompt.c -- whatever a client asks of the Cascade bridge becomes one message or is refused,
 * and the message is what jansson and a plainer way of putting it together make of it. */
#include "base/json.h"
#include "base/utf8.h"
#include "feature/cascade/cascade_transcript.h"
#include "feature/cascade/cascade_prompt.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_prompt: %s\n", what);
    abort();
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static void put_text(struct buf *out, const json_t *value)
{
    if (json_is_string(value))
        buf_put(out, str_of(json_string_value(value), json_string_length(value)));
}

static void put_content(struct buf *out, const json_t *content)
{
    put_text(out, content);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        if (out->n > 0)
            buf_putc(out, '\n');
        if (is_text(json_object_get(part, "type"), "text"))
            put_text(out, json_object_get(part, "text"));
    }
}

static const char *heading_of(const json_t *role)
{
    if (is_text(role, "user"))
        return "Previous user message:\n";
    if (is_text(role, "assistant"))
        return "Previous assistant reply:\n";
    if (is_text(role, "tool") || is_text(role, "function"))
        return "Previous tool result:\n";
    return NULL; /* an instruction */
}

static void put_block(struct buf *out, const char *heading, const struct buf *text)
{
    if (text->n == 0)
        return;
    if (out->n > 0)
        buf_put(out, STR("\n\n"));
    buf_put(out, str_of_cstr(heading));
    buf_put(out, buf_str(text));
}

/* Instructions only, or all but them, the last question left out; and that one. */
static void put_messages(struct buf *out, const json_t *messages, bool instructions,
                         struct buf *last)
{
    size_t question = SIZE_MAX;
    struct buf text = {0};
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < json_array_size(messages); i++) {
            const json_t *m = json_array_get(messages, i), *role = json_object_get(m, "role");
            const char *heading = heading_of(role);
            text.n = 0;
            put_content(&text, json_object_get(m, "content"));
            if (pass == 0 && is_text(role, "user") && text.n > 0)
                question = i;
            else if (pass == 1 && i != question && (heading == NULL) == instructions)
                put_block(out, heading ? heading : "", &text);
        }
    if (question != SIZE_MAX)
        put_content(last, json_object_get(json_array_get(messages, question), "content"));
    buf_deinit(&text);
}

/* What the transcript will show of it is one message, whatever is in its lines. */
static void check_transcript(const struct buf *text)
{
    struct buf transcript = {0}, lines = {0};
    struct cascade_message m;
    buf_put(&transcript, STR("=== MESSAGE 0 - User ===\n"));
    buf_put(&transcript, buf_str(text));
    struct str rest = cascade_transcript_lines(buf_str(&transcript), &lines);
    check(cascade_transcript_next(&rest, &m) && m.role == CASCADE_ROLE_USER &&
              !cascade_transcript_next(&rest, &m),
          "it looks like several messages");
    buf_deinit(&transcript);
    buf_deinit(&lines);
}

/* With the space in front of lines that need it taken out again. */
static void put_unguarded(struct buf *out, struct str text)
{
    struct str guarded = STR(" === MESSAGE ");
    for (size_t i = 0; i < text.n; i++)
        if ((i > 0 && text.p[i - 1] != '\n') || !str_starts(str_skip(text, i), guarded))
            buf_putc(out, text.p[i]);
}

static void compare_texts(const struct buf *ours, const struct buf *plain)
{
    struct buf a = {0}, b = {0};
    put_unguarded(&a, buf_str(ours));
    put_unguarded(&b, buf_str(plain));
    check(str_eq(buf_str(&a), buf_str(&b)), "the message is another");
    buf_deinit(&a);
    buf_deinit(&b);
}

static void compare(const struct cascade_prompt *p, const json_t *body)
{
    const json_t *messages = json_object_get(body, "messages");
    struct buf instructions = {0}, others = {0}, last = {0}, ignored = {0}, all = {0}, model = {0};
    put_messages(&instructions, messages, true, &last);
    put_messages(&others, messages, false, &ignored);
    put_block(&all, "Instructions:\n", &instructions);
    put_block(&all, "", &others);
    put_block(&all, "", &last);
    put_text(&model, json_object_get(body, "model"));
    compare_texts(&p->text, &all);
    check(str_eq(buf_str(&p->model), buf_str(&model)), "the model is another");
    buf_deinit(&instructions);
    buf_deinit(&others);
    buf_deinit(&last);
    buf_deinit(&ignored);
    buf_deinit(&all);
    buf_deinit(&model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str body = str_of((const char *)data, n);
    struct cascade_prompt p;
    size_t ignored;
    cascade_prompt_read(&p, body, n % 2 == 0);
    bool whole = cascade_prompt_is_whole(body);
    json_t *tree = json_loadb((const char *)data, n, JSON_ALLOW_NUL, NULL);
    if (p.wrong == NULL) {
        check(p.text.n > 0 && utf8_valid(buf_str(&p.text)), "no text to send");
        check_transcript(&p.text);
    }
    if (tree != NULL && p.wrong == NULL)
        compare(&p, tree);
    if (json_is_object(tree) && json_check(body, &ignored) == 0) /* jansson passes over a NUL */
        check(whole == !json_is_true(json_object_get(tree, "stream")), "whole, or not");
    json_decref(tree);
    cascade_prompt_deinit(&p);
    return 0;
}
