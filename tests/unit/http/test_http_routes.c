// SPDX-License-Identifier: Apache-2.0
/* Who serves which path, and what two cannot have at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "http/http.h"
#include "http/surface.h"

#include <stdlib.h>

static const struct surface_rule rules[] = {{0}};
static const struct surface narrow = {.rules = rules}, wide = {.rules = rules, .wide = true};

static void mount(struct http *http, const char *path, const struct surface *surface, bool own)
{
    http->claimant = own ? "the server" : "the gateway";
    http_mount_at(http, surface, (struct http_place){.path = str_of_cstr(path), .configured = !own},
                  NULL, NULL);
}

static void assert_serves(const struct http *http, const char *path, const char *route)
{
    const struct http_route *r = http_route_of(http, str_of_cstr(path));
    if (r == NULL ? route != NULL : route == NULL || !str_eq(r->prefix, str_of_cstr(route)))
        fail_msg("%s is served by %.*s", path, r ? (int)r->prefix.n : 7,
                 r ? r->prefix.p : "nothing");
}

static void test_the_longest_path_counts(void **state)
{
    struct http http = {.n_routes = 0};
    mount(&http, "/v1/stream/", &narrow, true);
    mount(&http, "/v1", &wide, false);
    mount(&http, "/v1/chat", &narrow, false);
    assert_int_equal(http.clash.path.n, 0);
    assert_serves(&http, "/v1", "/v1");
    assert_serves(&http, "/v1/", "/v1");
    assert_serves(&http, "/v1/models", "/v1");
    assert_serves(&http, "/v1/stream", "/v1");
    assert_serves(&http, "/v1/stream/x", "/v1/stream/");
    assert_serves(&http, "/v1/streams", "/v1");
    assert_serves(&http, "/v1/chat/x", "/v1/chat");
    assert_serves(&http, "/v1/chats", "/v1");
    assert_serves(&http, "/v1x", NULL);
    assert_serves(&http, "*", NULL);
    free(http.routes);
}

static void test_parameters(void **state)
{
    struct http http = {.n_routes = 0};
    mount(&http, "/v1/stream/", &narrow, true);
    mount(&http, "/{a}/{b}/{c}", &narrow, false);
    mount(&http, "/m/{model}:go", &narrow, false);
    mount(&http, "/m/one:go", &narrow, false);
    mount(&http, "/m", &wide, false);
    assert_int_equal(http.clash.path.n, 0);
    assert_serves(&http, "/x/y/z", "/{a}/{b}/{c}");
    assert_serves(&http, "/v1/stream/x", "/v1/stream/"); /* which is the program's own */
    assert_serves(&http, "/m/two:go", "/m/{model}:go");
    assert_serves(&http, "/m/one:go", "/m/one:go");
    assert_serves(&http, "/m/other", "/m");
    assert_serves(&http, "/x/y", NULL);
    const struct http_route *r = http_route_of(&http, STR("/m/two:go"));
    assert_int_equal(http_route_covers(r, STR("/m/two:go/rest")), 9);
    free(http.routes);
}

static bool clashes(const char *mine, const struct surface *surface, const char *own)
{
    struct http http = {.n_routes = 0};
    mount(&http, own, &narrow, true);
    mount(&http, mine, surface, false);
    bool one = http.clash.path.n > 0;
    free(http.routes);
    http = (struct http){.n_routes = 0};
    mount(&http, mine, surface, false);
    mount(&http, own, &narrow, true);
    assert_int_equal(http.clash.path.n > 0, one); /* in whatever order they come */
    free(http.routes);
    return one;
}

static void test_clashes(void **state)
{
    assert_true(clashes("/v1", &narrow, "/v1/stream/"));
    assert_true(clashes("/v1/stream", &narrow, "/v1/stream/"));
    assert_true(clashes("/v1/stream/x", &narrow, "/v1/stream/"));
    assert_false(clashes("/v1/streams", &narrow, "/v1/stream/"));
    assert_false(clashes("/v1", &wide, "/v1/stream/")); /* it leaves room */
    assert_true(clashes("/v1/stream", &wide, "/v1/stream/"));
    assert_true(clashes("/v1/stream/x", &wide, "/v1/stream/"));
    assert_true(clashes("/mcp/{x}", &narrow, "/mcp"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_longest_path_counts),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_clashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
