// SPDX-License-Identifier: Apache-2.0
/* Who asks for no events. */
#include "feature/gateway/gateway_wish.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void test_wishes(void **state)
{
    static const struct {
        const char *path, *body;
        bool none;
    } samples[] = {
        {"/v1/chat/completions", "{\"model\":\"m\"}", true},
        {"/v1/chat/completions", "{\"stream\":false}", true},
        {"/v1/chat/completions", " {\"stream\": null} ", true},
        {"/v1/chat/completions", "{\"stream\":true}", false},
        {"/v1/chat/completions", "{\"stream\":false,\"stream\":true}", false}, /* the last counts */
        {"/v1/chat/completions", "{\"stream\":1}", false},
        {"/v1/chat/completions", "{\"a\":{\"stream\":true}}", true},
        {"/v1/chat/completions", "{\"str\\u0065am\":true}", false},
        {"/v1/chat/completions", "", false},
        {"/v1/chat/completions", "stream=true", false},
        {"/v1/chat/completions", "{\"stream\":false", false},
        {"/v1/chat/completions", "[]", false},
        {"/v1/responses", "{}", true},
        {"/v1/messages", "{}", true},
        {"/v1/messages/count_tokens", "{\"stream\":true}", true},
        {"/v1/embeddings", "anything", true},
        {"/v1beta/models/g:generateContent", "{}", true},
        {"/v1beta/models/g:streamGenerateContent", "{}", false},
        {"/api/chat", "{}", false}, /* Ollama streams unless it is told not to */
        {"/run", "{}", false},
        {"/xembeddings", "{}", false},
    };
    for (size_t i = 0; i < COUNT(samples); i++)
        if (wish_is_for_no_events(str_of_cstr(samples[i].path), str_of_cstr(samples[i].body)) !=
            samples[i].none)
            fail_msg("%s %s", samples[i].path, samples[i].body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wishes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
