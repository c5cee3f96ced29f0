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
        enum wish wish;
    } samples[] = {
        {"/v1/chat/completions", "{\"model\":\"m\"}", WISH_NO_EVENTS},
        {"/v1/chat/completions", "{\"stream\":false}", WISH_NO_EVENTS},
        {"/v1/chat/completions", " {\"stream\": null} ", WISH_NO_EVENTS},
        {"/v1/chat/completions", "{\"stream\":true}", WISH_UNKNOWN},
        {"/v1/chat/completions", "{\"stream\":false,\"stream\":true}",
         WISH_UNKNOWN}, /* the last counts */
        {"/v1/chat/completions", "{\"stream\":1}", WISH_UNKNOWN},
        {"/v1/chat/completions", "{\"a\":{\"stream\":true}}", WISH_NO_EVENTS},
        {"/v1/chat/completions", "{\"str\\u0065am\":true}", WISH_UNKNOWN},
        {"/v1/chat/completions", "", WISH_UNKNOWN},
        {"/v1/chat/completions", "stream=true", WISH_UNKNOWN},
        {"/v1/chat/completions", "{\"stream\":false", WISH_UNKNOWN},
        {"/v1/chat/completions", "[]", WISH_UNKNOWN},
        {"/v1/responses", "{}", WISH_NO_EVENTS},
        {"/v1/messages", "{}", WISH_NO_EVENTS},
        {"/v1/messages/count_tokens", "{\"stream\":true}", WISH_NEVER_EVENTS},
        {"/v1/embeddings", "anything", WISH_NEVER_EVENTS},
        {"/v1beta/models/g:generateContent", "{}", WISH_NEVER_EVENTS},
        {"/v1beta/models/g:streamGenerateContent", "{}", WISH_UNKNOWN},
        {"/api/chat", "{}", WISH_UNKNOWN}, /* Ollama streams unless it is told not to */
        {"/run", "{}", WISH_UNKNOWN},
        {"/xembeddings", "{}", WISH_UNKNOWN},
    };
    for (size_t i = 0; i < COUNT(samples); i++)
        if (wish_of(str_of_cstr(samples[i].path), str_of_cstr(samples[i].body)) != samples[i].wish)
            fail_msg("%s %s", samples[i].path, samples[i].body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wishes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
