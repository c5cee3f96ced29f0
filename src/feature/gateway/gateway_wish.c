// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/gateway_wish.h"
#include "base/json.h"
#include "base/json_view.h"

/* Of OpenAI, Anthropic, Gemini, Ollama and servers like them. */
static const struct {
    struct str end;
    enum wish wish;
    bool never; /* else: with `"stream": true` it is for events */
} paths[] = {
    {STR_INIT("/chat/completions"), WISH_ANSWER, false},
    {STR_INIT("/completions"), WISH_ANSWER, false},
    {STR_INIT("/responses"), WISH_ANSWER, false},
    {STR_INIT("/messages"), WISH_ANSWER, false},
    {STR_INIT("/complete"), WISH_ANSWER, false},
    {STR_INIT("/images/generations"), WISH_ANSWER, false},
    {STR_INIT(":generateContent"), WISH_ANSWER, true},
    {STR_INIT("/embeddings"), WISH_LOOKUP, true},
    {STR_INIT("/moderations"), WISH_LOOKUP, true},
    {STR_INIT("/rerank"), WISH_LOOKUP, true},
    {STR_INIT("/tokenize"), WISH_LOOKUP, true},
    {STR_INIT("/detokenize"), WISH_LOOKUP, true},
    {STR_INIT("/input_tokens"), WISH_LOOKUP, true},
    {STR_INIT("/count_tokens"), WISH_LOOKUP, true},
    {STR_INIT("/api/embed"), WISH_LOOKUP, true},
    {STR_INIT("/api/show"), WISH_LOOKUP, true},
    {STR_INIT(":countTokens"), WISH_LOOKUP, true},
    {STR_INIT(":embedContent"), WISH_LOOKUP, true},
    {STR_INIT(":batchEmbedContents"), WISH_LOOKUP, true},
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
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (str_ends(path, paths[i].end))
            return paths[i].never || !says_stream(body) ? paths[i].wish : WISH_UNKNOWN;
    return WISH_UNKNOWN;
}
