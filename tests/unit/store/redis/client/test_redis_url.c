// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "store/redis/client/redis_url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct redis_url *parse(const char *text)
{
    struct redis_url *u = NULL;
    char why[200];
    if (redis_url_parse(str_of_cstr(text), &u, why, sizeof why) != 0)
        fail_msg("%s: %s", text, why);
    return u;
}

static void assert_place(const struct redis_url *u, size_t i, const char *host, unsigned port)
{
    assert_true(i < u->n_addrs);
    assert_string_equal(u->addrs[i].host, host);
    assert_int_equal(u->addrs[i].port, port);
}

static void assert_str(struct str got, const char *expected)
{
    if (!str_eq(got, str_of_cstr(expected)))
        fail_msg("`%.*s` instead of `%s`", (int)got.n, got.p, expected);
}

static void test_one_server(void **state)
{
    static const struct {
        const char *text, *host;
        unsigned port, db;
        bool tls;
    } rows[] = {
        {"redis://localhost", "localhost", 6379, 0, false},
        {"redis://localhost/", "localhost", 6379, 0, false},
        {"redis://10.0.0.1:7000/15", "10.0.0.1", 7000, 15, false},
        {"redis://[::1]", "::1", 6379, 0, false},
        {"rediss://[2001:db8::1]:7000/2", "2001:db8::1", 7000, 2, true},
        {"redis://h?db=3&prefix=", "h", 6379, 3, false},
        {"unix:/run/redis.sock", "/run/redis.sock", 0, 0, false},
        {"unix:redis.sock?db=1", "redis.sock", 0, 1, false},
        {"redis+unix:///run/a%20b.sock", "/run/a b.sock", 0, 0, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct redis_url *u = parse(rows[i].text);
        assert_int_equal(u->kind, REDIS_ONE);
        assert_int_equal(u->n_addrs, 1);
        assert_place(u, 0, rows[i].host, rows[i].port);
        assert_int_equal(u->db, rows[i].db);
        assert_int_equal(u->tls, rows[i].tls);
        assert_null(u->password.p);
        assert_false(redis_url_is_cluster(u));
        redis_url_free(u);
    }
}

static void test_credentials(void **state)
{
    struct redis_url *u = parse("redis://us%40er:p%3Aa:ss%2F@h:1/2");
    assert_str(u->user, "us@er");
    assert_str(u->password, "p:a:ss/");
    assert_place(u, 0, "h", 1);
    assert_str(redis_url_shown(u), "redis://***@h:1/2");
    redis_url_free(u);
    u = parse("redis://:a@b@h"); /* the last `@` counts */
    assert_null(u->user.p);
    assert_str(u->password, "a@b");
    assert_str(redis_url_shown(u), "redis://***@h");
    redis_url_free(u);
    u = parse("redis+unix://:secret@/run/x?prefix=p");
    assert_str(u->password, "secret");
    assert_place(u, 0, "/run/x", 0);
    assert_str(redis_url_shown(u), "redis+unix://***@/run/x");
    redis_url_free(u);
    u = parse("redis://:@h"); /* an empty password is one */
    assert_non_null(u->password.p);
    assert_int_equal(u->password.n, 0);
    redis_url_free(u);
}

static void test_sentinels_and_clusters(void **state)
{
    struct redis_url *u = parse("rediss+sentinel://:p@a,b:1,[::1]:2/my%20main/4?ca=/etc/ca.pem");
    assert_int_equal(u->kind, REDIS_SENTINEL);
    assert_true(u->tls);
    assert_int_equal(u->n_addrs, 3);
    assert_place(u, 0, "a", 26379);
    assert_place(u, 1, "b", 1);
    assert_place(u, 2, "::1", 2);
    assert_str(u->name, "my main");
    assert_int_equal(u->db, 4);
    assert_str(redis_url_setting(u, STR("ca")), "/etc/ca.pem");
    redis_url_free(u);
    u = parse("redis+cluster://a:7000,b?prefix=x%3Ay&wait=2");
    assert_true(redis_url_is_cluster(u));
    assert_place(u, 0, "a", 7000);
    assert_place(u, 1, "b", 6379);
    assert_str(redis_url_setting(u, STR("prefix")), "x:y");
    assert_str(redis_url_setting(u, STR("wait")), "2");
    assert_null(redis_url_setting(u, STR("ca")).p);
    redis_url_free(u);
}

static void test_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "redis:",
        "http://h",
        "redis://",
        "redis:///1",
        "redis://h:0",
        "redis://h:65536",
        "redis://h:",
        "redis://h:1:2",
        "redis://h/x",
        "redis://h/1/2",
        "redis://h/99999",
        "redis://h,i",
        "redis://user@h",
        "redis://:top%2secret@h",
        "redis://:topsecret%@h",
        "redis://:topsecret%00@h",
        "redis://[::1",
        "redis://[::1]x",
        "redis://[127.0.0.1]",
        "redis://h h",
        "redis://h\n",
        "redis://h#x",
        "redis://h?colour=red",
        "redis://h?prefix=a&prefix=b",
        "redis://h?ca=/x",
        "redis://h?db=",
        "redis+sentinel://a,b",
        "redis+sentinel://a,b/",
        "redis+sentinel://a,,b/main",
        "redis+sentinel://a/main/x",
        "redis+cluster://a/1",
        "redis+cluster://a?db=1",
        "unix:",
        "unix:/"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaa"
        "aaaaaaaaaaaaaaaaaaaaaaa",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct redis_url *u = NULL;
        char why[200] = "";
        if (redis_url_parse(str_of_cstr(texts[i]), &u, why, sizeof why) != ERR_SYNTAX)
            fail_msg("%s was taken", texts[i]);
        assert_null(u);
        assert_true(strlen(why) > 0);
        assert_null(strstr(why, "secret"));
    }
}

static void test_too_many_hosts(void **state)
{
    char text[2000] = "redis+cluster://a";
    struct redis_url *u = NULL;
    char why[200];
    for (int i = 1; i < REDIS_ADDRS_MAX; i++)
        strcat(text, ",a");
    redis_url_free(parse(text));
    strcat(text, ",a");
    assert_int_equal(redis_url_parse(str_of_cstr(text), &u, why, sizeof why), ERR_SYNTAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_server),
        cmocka_unit_test(test_credentials),
        cmocka_unit_test(test_sentinels_and_clusters),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_too_many_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
