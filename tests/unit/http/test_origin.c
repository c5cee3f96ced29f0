// SPDX-License-Identifier: Apache-2.0
#include "http/origin.h"
#include "http/exchange.h"
#include "http/http.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static struct http http_named(const char *public_url, const struct option_list *hosts)
{
    return (struct http){.names = {.public_host = origin_host_of(public_url), .hosts = hosts}};
}

/* origin: NULL sends none. */
static enum origin_verdict check(struct http *http, const char *host, const char *origin,
                                 enum origin_pages pages, const struct option_list *allowed)
{
    struct header h = {STR("origin"), origin != NULL ? str_of_cstr(origin) : STR_NONE};
    struct request r = {.host = str_of_cstr(host), .headers = &h, .n_headers = origin != NULL};
    struct exchange x = {.http = http, .request = &r};
    return origin_check(&x, pages, allowed);
}

static void names_of_this_server(void **state)
{
    static const char *const ours[] = {
        "localhost",
        "LocalHost",
        "localhost:4437",
        "localhost.",
        "localhost.:80",
        "127.0.0.1",
        "127.0.0.1:4437",
        "127.0.0.2:1",
        "192.168.1.7:4437",
        "[::1]",
        "[::1]:4437",
        "[::ffff:127.0.0.1]:80",
        "203.0.113.9",
        "[2001:db8::1]",
        "us.example",
        "US.example:8443",
        "us.example.",
        "tidemark",
        "TIDEMARK:4437",
        "metrics.internal.:80",
        "tidemark.",
        "127.0.0.1.",
        "",
    };
    static const char *const others[] = {
        "evil.example",
        "evil.example:4437",
        "localhost.evil.example",
        "localhostt",
        "alocalhost",
        "127.0.0.1.evil.example",
        "127.0.0.1.nip.io",
        "us.example.evil",
        "xus.example",
        "example",
        "0x7f.1",
        "2130706433",
        "127.1",

        "[::1%25lo]",
        "[evil.example]",
        "tidemark.local",
        ".",
        "..",
        "us.example..",
    };
    char *items[] = {(char[]){"tidemark"}, (char[]){"metrics.internal"}};
    struct option_list hosts = {.items = items, .n = 2};
    struct http http = http_named("https://us.example:8443/x", &hosts);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (check(&http, ours[i], NULL, ORIGIN_OWN, NULL) != ORIGIN_FINE)
            fail_msg("%s", ours[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (check(&http, others[i], NULL, ORIGIN_OWN, NULL) != ORIGIN_WRONG_HOST)
            fail_msg("%s", others[i]);
}

/* Rebinding makes Host and Origin agree: neither is ours. */
static void a_name_of_somebody_else(void **state)
{
    struct http http = http_named(NULL, NULL);
    assert_int_equal(
        check(&http, "evil.example:4437", "http://evil.example:4437", ORIGIN_LOCAL, NULL),
        ORIGIN_WRONG_HOST);
    assert_int_equal(check(&http, "us.example", NULL, ORIGIN_LOCAL, NULL), ORIGIN_WRONG_HOST);
    http.names.any = true;
    assert_int_equal(check(&http, "evil.example", "http://x.example", ORIGIN_OWN, NULL),
                     ORIGIN_FINE);
}

static void pages(void **state)
{
    static const struct {
        const char *host, *origin;
        enum origin_verdict own, local;
    } rows[] = {
        {"localhost:4437", "http://localhost:4437", ORIGIN_FINE, ORIGIN_FINE},
        {"localhost:4437", "http://LOCALHOST:4437", ORIGIN_FINE, ORIGIN_FINE},
        {"localhost:4437", "http://localhost:3000", ORIGIN_FOREIGN_PAGE, ORIGIN_FINE},
        {"127.0.0.1:4437", "http://localhost:4437", ORIGIN_FOREIGN_PAGE, ORIGIN_FINE},
        {"127.0.0.1:4437", "http://[::1]:80", ORIGIN_FOREIGN_PAGE, ORIGIN_FINE},
        {"192.0.2.7:4437", "http://192.0.2.7:4437", ORIGIN_FINE, ORIGIN_FINE},
        {"192.0.2.7:4437", "http://192.0.2.8:4437", ORIGIN_FOREIGN_PAGE, ORIGIN_FOREIGN_PAGE},
        {"127.0.0.1:4437", "https://us.example", ORIGIN_FINE, ORIGIN_FINE},
        {"us.example", "https://us.example", ORIGIN_FINE, ORIGIN_FINE},
        {"127.0.0.1:4437", "https://us.example.evil", ORIGIN_FOREIGN_PAGE, ORIGIN_FOREIGN_PAGE},
        {"127.0.0.1:4437", "null", ORIGIN_FOREIGN_PAGE, ORIGIN_FOREIGN_PAGE},
        {"127.0.0.1:4437", "", ORIGIN_FOREIGN_PAGE, ORIGIN_FOREIGN_PAGE},
        {"127.0.0.1:4437", "127.0.0.1:4437", ORIGIN_FOREIGN_PAGE, ORIGIN_FOREIGN_PAGE},
        {"127.0.0.1:4437", "http://evil.example/127.0.0.1:4437", ORIGIN_FOREIGN_PAGE,
         ORIGIN_FOREIGN_PAGE},
        {"127.0.0.1:4437", "http://u@127.0.0.1:4437", ORIGIN_FOREIGN_PAGE, ORIGIN_FOREIGN_PAGE},
    };
    struct http http = http_named("https://us.example", NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(check(&http, rows[i].host, rows[i].origin, ORIGIN_OWN, NULL), rows[i].own);
        assert_int_equal(check(&http, rows[i].host, rows[i].origin, ORIGIN_LOCAL, NULL),
                         rows[i].local);
    }
}

static void sites_that_are_allowed(void **state)
{
    char *items[] = {(char[]){"https://friend.example"}};
    struct option_list allowed = {.items = items, .n = 1};
    struct http http = http_named(NULL, NULL);
    assert_int_equal(check(&http, "localhost", "https://friend.example", ORIGIN_OWN, &allowed),
                     ORIGIN_FINE);
    assert_int_equal(check(&http, "localhost", "http://friend.example", ORIGIN_OWN, &allowed),
                     ORIGIN_FOREIGN_PAGE);
    assert_int_equal(check(&http, "friend.example", "https://friend.example", ORIGIN_OWN, &allowed),
                     ORIGIN_WRONG_HOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_this_server),
        cmocka_unit_test(a_name_of_somebody_else),
        cmocka_unit_test(pages),
        cmocka_unit_test(sites_that_are_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
