// SPDX-License-Identifier: Apache-2.0
/* Where requests are sent on to. */
#include "feature/gateway/upstream_url.h"
#include "base/err.h"
#include "base/http_url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define GEMINI   "/v1beta/models/{model}:streamGenerateContent"

static struct upstream_place place_of(const char *path, bool prefix, const char *upstream)
{
    return (struct upstream_place){str_of_cstr(path), str_of_cstr(upstream), prefix};
}

static void assert_url(const char *path, bool prefix, const char *upstream, const char *asked,
                       const char *wanted)
{
    struct arena a = {0};
    struct upstream_place p = place_of(path, prefix, upstream);
    char why[128];
    struct str query = str_of_cstr(asked), request = str_cut(&query, '?');
    assert_int_equal(upstream_url_check(&p, why, sizeof why), 0);
    struct str url = upstream_url(&a, &p, request, query);
    if (!str_eq(url, str_of_cstr(wanted)))
        fail_msg("%s of %s: %.*s, not %s", asked, upstream, (int)url.n, url.p, wanted);
    arena_deinit(&a);
}

static void test_exact(void **state)
{
    assert_url("/chat", false, "http://h/v1/chat", "/chat", "http://h/v1/chat");
    assert_url("/chat", false, "http://h/v1/chat", "/chat?a=1", "http://h/v1/chat?a=1");
    assert_url("/chat", false, "http://h/v1/chat?k=2", "/chat?a=1", "http://h/v1/chat?k=2&a=1");
    assert_url("/chat", false, "http://h/v1/chat?k=2", "/chat", "http://h/v1/chat?k=2");
    assert_url("/chat", false, "http://h", "/chat", "http://h");
    assert_url("/chat", false, "http://h:81?k", "/chat?a", "http://h:81?k&a");
    assert_url("/chat", false, "http://h/x", "/chat?", "http://h/x?");
}

static void test_prefix(void **state)
{
    static const char *const samples[][3] = {
        {"http://h", "/v1/models", "http://h/v1/models"},
        {"http://h:8080", "/v1/models?limit=2", "http://h:8080/v1/models?limit=2"},
        {"https://[::1]:8080", "/v1", "https://[::1]:8080/v1"},
        {"http://h", "/v1/", "http://h/v1/"},
        {"http://h/", "/v1/models", "http://h/models"},
        {"http://h/", "/v1", "http://h/"},
        {"http://h/", "/v1/", "http://h/"},
        {"http://h/v1", "/v1/models", "http://h/v1/models"},
        {"http://h/v1/", "/v1/models", "http://h/v1/models"},
        {"http://h/api/v2", "/v1/models", "http://h/api/v2/models"},
        {"http://h/api/v2", "/v1", "http://h/api/v2"},
        {"http://h/api?k=1", "/v1/x?a=2", "http://h/api/x?k=1&a=2"},
        {"http://h?k=1", "/v1/x?a=2", "http://h/v1/x?k=1&a=2"},
        /* bytes as they came, and never another host */
        {"http://h", "/v1/a%2Fb%20c", "http://h/v1/a%2Fb%20c"},
        {"http://h", "/v1//evil.test/", "http://h/v1//evil.test/"},
        {"http://h/", "/v1//evil.test/", "http://h//evil.test/"},
        {"http://h", "/v1/@evil.test/:80", "http://h/v1/@evil.test/:80"},
        {"http://h/x", "/v1/http://evil.test", "http://h/x/http://evil.test"},
    };
    for (size_t i = 0; i < COUNT(samples); i++)
        assert_url("/v1", true, samples[i][0], samples[i][1], samples[i][2]);
}

static void test_parameters(void **state)
{
    assert_url(GEMINI, false, "https://g" GEMINI "?alt=sse",
               "/v1beta/models/gemini-2.5:streamGenerateContent",
               "https://g/v1beta/models/gemini-2.5:streamGenerateContent?alt=sse");
    assert_url("/m/{a}/{b}", false, "http://h/{b}-x/{a}", "/m/1/2%2F3", "http://h/2%2F3-x/1");
    assert_url("/m/{a}", false, "http://h/fixed", "/m/1", "http://h/fixed");
    assert_url("/t/{id}", true, "http://h/of/{id}/api", "/t/7/runs/1", "http://h/of/7/api/runs/1");
    assert_url("/t/{id}", true, "http://h", "/t/7/runs", "http://h/t/7/runs");
}

static void test_what_is_refused(void **state)
{
    static const char *const upstreams[] = {
        "http://h/{other}", "http://h/{a",   "http://h/x?k={a}",
        "http://{a}/x",     "http://h:{a}/", "ftp://h/{a}",
    };
    char why[128];
    for (size_t i = 0; i < COUNT(upstreams); i++) {
        struct upstream_place p = place_of("/m/{a}", false, upstreams[i]);
        if (upstream_url_check(&p, why, sizeof why) == 0)
            fail_msg("%s is taken", upstreams[i]);
    }
}

/* Whatever a client asks for, the answer comes from the upstream that was configured. */
static void test_host_stays(void **state)
{
    static const char bytes[] = "/:@?#%.\\a1;&=[]{}";
    static const char *const upstreams[] = {"http://up.test:81", "http://up.test:81/",
                                            "http://up.test:81/x/{p}"};
    srand(1);
    for (int i = 0; i < 20000; i++) {
        struct arena a = {0};
        struct upstream_place p = place_of("/v1/{p}", true, upstreams[i % 3]);
        char path[32] = "/v1/p";
        struct url parts;
        size_t n = 5, more = (size_t)rand() % 20;
        if (more > 0)
            path[n++] = '/';
        while (n < 5 + more)
            path[n++] = bytes[(size_t)rand() % (sizeof bytes - 1)];
        struct str query = str_of(path, n), request = str_cut(&query, '?');
        struct str url = upstream_url(&a, &p, request, query);
        if (url_parse(url, &parts) == 0) { /* else the fetch fails */
            assert_true(str_eq(parts.host, STR("up.test")));
            assert_int_equal(parts.port, 81);
        }
        arena_deinit(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),      cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_parameters), cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_host_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
