// SPDX-License-Identifier: Apache-2.0
/* Which headers are passed on, in both directions. */
#include "feature/gateway/pass_header.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void assert_pass(enum pass pass, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (pass_request_header(str_of_cstr(names[i])) != pass)
            fail_msg("%s", names[i]);
}

static void test_requests(void **state)
{
    static const char *const always[] = {
        "Accept",         "Content-Type",      "Content-Encoding",
        "User-Agent",     "Authorization",     "x-api-key",
        "x-goog-api-key", "anthropic-version", "anthropic-beta",
        "OpenAI-Beta",    "traceparent",       "Idempotency-Key",
        "Last-Event-ID",  "X-Stainless-Lang",  "Range",
        "If-None-Match",  "Mcp-Session-Id",    "MCP-Protocol-Version",
        "X-Request-Id",   "Accept-Language",
    };
    static const char *const asked[] = {
        "Cookie",
        "cookie",
        "Origin",
        "Referer",
        "Sec-Fetch-Site",
        "Sec-CH-UA",
        "Forwarded",
        "X-Forwarded-For",
        "x-forwarded-host",
        "X-Real-IP",
        "Via",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-HTTP-Method-Override",
        "X-Method-Override",
        "Access-Control-Request-Method",
        "x_api_key",
        "Content_Length",
        "Tidemark_Authorization",
    };
    static const char *const never[] = {
        "Connection",
        "Keep-Alive",
        "Proxy-Authorization",
        "Proxy-Connection",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "transfer-ENCODING",
        "Upgrade",
        "Host",
        "Content-Length",
        "Expect",
        "Accept-Encoding",
        "Tidemark-Authorization",
        "X-Resume-Token",
        "X-Correlation-ID",
        "HTTP2-Settings",
    };
    assert_pass(PASS_ALWAYS, always, COUNT(always));
    assert_pass(PASS_ASKED, asked, COUNT(asked));
    assert_pass(PASS_NEVER, never, COUNT(never));
}

static bool passes(const char *name, const char *value)
{
    struct header h = {str_of_cstr(name), str_of_cstr(value)};
    return pass_answer_header(&h);
}

static void test_answers(void **state)
{
    static const char *const passed[] = {
        "Content-Type",
        "Content-Encoding",
        "Content-Range",
        "Content-Disposition",
        "x-request-id",
        "request-id",
        "retry-after-ms",
        "Retry-After",
        "x-should-retry",
        "x-ratelimit-remaining-tokens",
        "anthropic-ratelimit-tokens-limit",
        "openai-version",
        "Mcp-Session-Id",
        "Location",
        "Content-Location",
        "ETag",
        "Vary",
        "WWW-Authenticate",
        "Link",
        "Cache-Control",
        "x-vercel-ai-ui-message-stream",
        "Server",
    };
    static const char *const kept[] = {
        "Set-Cookie",
        "set-cookie2",
        "Access-Control-Allow-Origin",
        "Clear-Site-Data",
        "Service-Worker-Allowed",
        "Strict-Transport-Security",
        "Public-Key-Pins",
        "Public-Key-Pins-Report-Only",
        "Alt-Svc",
        "NEL",
        "Report-To",
        "Reporting-Endpoints",
        "Content-Security-Policy",
        "Content-Security-Policy-Report-Only",
        "X-Content-Type-Options",
        "Cross-Origin-Opener-Policy",
        "Refresh",
        "X-Accel-Redirect",
        "X-Sendfile",
        "Connection",
        "Transfer-Encoding",
        "Content-Length",
        "Trailer",
        "Upgrade",
        "Proxy-Authenticate",
        "Date",
        "X-Resume-Token",
        "X-Tidemark-Degraded",
        "Tidemark-Anything",
        "X-Correlation-ID",
    };
    for (size_t i = 0; i < COUNT(passed); i++)
        if (!passes(passed[i], "x"))
            fail_msg("%s does not pass", passed[i]);
    for (size_t i = 0; i < COUNT(kept); i++)
        if (passes(kept[i], "x"))
            fail_msg("%s passes", kept[i]);
}

/* What could end a line for somebody is no header. */
static void test_values(void **state)
{
    assert_true(passes("X-A", ""));
    assert_true(passes("X-A", "a\tb \xc3\xa9"));
    assert_false(passes("X-A", "a\rSet-Cookie: b"));
    assert_false(passes("X-A", "a\nb"));
    assert_false(passes("X-A", "a\x01"));
    assert_false(passes("X-A", "a\x7f"));
    assert_false(passes("X A", "b"));
    assert_false(passes("X-A\r", "b"));
    assert_false(passes("", "b"));
}

static void test_streams(void **state)
{
    static const char *const own[] = {"Content-Type", "Cache-Control",    "ETag",
                                      "Location",     "Content-Encoding", "Vary"};
    struct header id = {STR("x-request-id"), STR("1")}, at = {STR("Content-Location"), STR("/r")};
    assert_true(pass_stream_header(&id));
    assert_true(pass_stream_header(&at));
    for (size_t i = 0; i < COUNT(own); i++) {
        struct header h = {str_of_cstr(own[i]), STR("x")};
        assert_false(pass_stream_header(&h));
    }
}

static void test_named_by_connection(void **state)
{
    const struct header headers[] = {{STR("Connection"), STR("close, X-One ,x-two")},
                                     {STR("X-One"), STR("1")},
                                     {STR("connection"), STR("X-Three")}};
    assert_true(pass_is_named(headers, 3, STR("x-one")));
    assert_true(pass_is_named(headers, 3, STR("X-Two")));
    assert_true(pass_is_named(headers, 3, STR("X-Three")));
    assert_false(pass_is_named(headers, 3, STR("X-Four")));
    assert_false(pass_is_named(headers, 0, STR("X-One")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_named_by_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
