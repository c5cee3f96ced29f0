// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/gateway_wish.h"
#include "base/json.h"
#include "base/json_view.h"

/* Of OpenAI, Anthropic, Gemini, Ollama and servers like them. */
static const struct {
    struct str end;
    bool never; /* else: with `"stream": true` */
} paths[] = {
    {STR_INIT("/chat/completions"), false},
    {STR_INIT("/completions"), false},
    {STR_INIT("/responses"), false},
    {STR_INIT("/messages"), false},
    {STR_INIT("/complete"), false},
    {STR_INIT("/images/generations"), false},
    {STR_INIT("/embeddings"), true},
    {STR_INIT("/moderations"), true},
    {STR_INIT("/rerank"), true},
    {STR_INIT("/tokenize"), true},
    {STR_INIT("/detokenize"), true},
    {STR_INIT("/input_tokens"), true},
    {STR_INIT("/count_tokens"), true},
    {STR_INIT("/api/embed"), true},
    {STR_INIT("/api/show"), true},
    {STR_INIT(":generateContent"), true},
    {STR_INIT(":countTokens"), true},
    {STR_INIT(":embedContent"), true},
    {STR_INIT(":batchEmbedContents"), true},
};

static bool says_stream(struct str body)
{
    struct view_want stream = {.name = STR("stream")};
    size_t ignored;
    body = view_trim(body);
    if (view_type(body) != VIEW_OBJECT || json_check(body, &ignored) != 0)
        return true; /* it may */
    view_pick(body, &stream, 1);
    return !(view_type(stream.value) == VIEW_NONE || view_type(stream.value) == VIEW_NULL ||
             str_eq(stream.value, STR("false")));
}

enum wish wish_of(struct str path, struct str body)
{
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        if (!str_ends(path, paths[i].end))
            continue;
        if (paths[i].never)
            return WISH_NEVER_EVENTS;
        return says_stream(body) ? WISH_UNKNOWN : WISH_NO_EVENTS;
    }
    return WISH_UNKNOWN;
}
