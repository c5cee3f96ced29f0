// SPDX-License-Identifier: Apache-2.0
/* What a request knows of its headers without looking at them: it must never hide one. */
#include "http/h1_parse.h"
#include "http/h2_head.h"
#include "http/http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const char *const names[] = {
    "Host",
    "Content-Type",
    "Content-Length",
    "Authorization",
    "Cookie",
    "Origin",
    "Via",
    "Forwarded",
    "x-api-key",
    "X-Forwarded-For",
    "Sec-Fetch-Site",
    "Tidemark-Authorization",
    "Stream-Closed",
    "stream-CLOSED",
    "authorization",
    "x-goog-api-key",
    "X",
    "x!",
    "Aaaaaaaaaaaaa",
};

/* Without the shortcut. */
static struct str find(const struct request *req, struct str name)
{
    for (int i = 0; i < req->n_headers; i++)
        if (str_eq_nocase(req->headers[i].name, name))
            return req->headers[i].value;
    return STR_NONE;
}

static void assert_nothing_is_hidden(const struct request *req)
{
    int n = 0, at = 0;
    for (size_t i = 0; i < COUNT(names); i++) {
        struct str name = str_of_cstr(names[i]);
        assert_ptr_equal(request_header(req, name).p, find(req, name).p);
    }
    for (int i = 0; i < req->n_headers; i++) {
        assert_false(request_lacks(req, header_bit(req->headers[i].name)));
        if (str_eq_nocase(req->headers[i].name, STR("authorization"))) {
            at = i + 1;
            n++;
        }
    }
    assert_int_equal(req->authorization, n == 1 ? at : 0);
}

static void check_h1(const char *lines)
{
    char text[1024];
    struct header headers[H1_HEADERS_MAX];
    struct request req = {.headers = headers};
    struct h1_head_state state = {0};
    struct h1_framing framing;
    const char *why = "";
    int n = snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n", lines);
    for (int cut = 1; cut <= n; cut++) { /* whatever was there when */
        state = (struct h1_head_state){0};
        if (cut < n)
            h1_parse_head(&state, text, (size_t)cut, &req, &framing, &why);
        assert_int_equal(h1_parse_head(&state, text, (size_t)n, &req, &framing, &why), n);
        assert_nothing_is_hidden(&req);
    }
}

static void test_http1(void **state)
{
    check_h1("");
    check_h1("Authorization: a\r\n");
    check_h1("aUTHORIZATION: a\r\nCookie: b\r\n");
    check_h1("Authorization: a\r\nauthorization: b\r\n");
    check_h1("Aaaaaaaaaaaaa: a\r\nVia: b\r\nX: c\r\n");
    check_h1("Authorizatio\x60: a\r\nAuthorizatio~: b\r\n");
    for (size_t i = 1; i < COUNT(names); i++) {
        char line[64];
        snprintf(line, sizeof line, "%s: 1\r\n", names[i]);
        check_h1(line);
    }
}

static void check_h2(const char *const *fields, size_t n)
{
    static struct h2_head head;
    struct http http = {0};
    struct exchange x = {.http = &http};
    const char *why;
    h2_head_reset(&head);
    h2_head_add(&head, &x.arena, STR(":method"), STR("GET"));
    h2_head_add(&head, &x.arena, STR(":scheme"), STR("http"));
    h2_head_add(&head, &x.arena, STR(":path"), STR("/"));
    h2_head_add(&head, &x.arena, STR(":authority"), STR("a"));
    for (size_t i = 0; i < n; i++)
        h2_head_add(&head, &x.arena, str_of_cstr(fields[i]), STR("1"));
    assert_int_equal(h2_head_finish(&head, &x, &why), 0);
    assert_int_equal(x.request->n_headers, n);
    assert_nothing_is_hidden(x.request);
    arena_deinit(&x.arena);
}

static void test_http2(void **state)
{
    static const char *const once[] = {"cookie", "authorization", "via"};
    static const char *const twice[] = {"authorization", "x", "authorization"};
    check_h2(once, COUNT(once));
    check_h2(twice, COUNT(twice));
    check_h2(once, 0); /* of one that came before, nothing is left */
    check_h2(once, COUNT(once));
}

/* A request that was made by hand: nobody has looked, so everything may be there. */
static void test_by_hand(void **state)
{
    struct header headers[] = {{STR_INIT("Via"), STR_INIT("1")}, {STR_INIT("X"), STR_INIT("2")}};
    struct request req = {.headers = headers, .n_headers = 2};
    assert_int_equal(request_header(&req, STR("x")).n, 1);
    assert_null(request_header(&req, STR("Origin")).p);
    assert_false(request_lacks(&req, header_bit(STR("Origin"))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http1),
        cmocka_unit_test(test_http2),
        cmocka_unit_test(test_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
