// SPDX-License-Identifier: Apache-2.0
/* Whom a fetch may talk to: redirects, addresses, names, certificates. */
#include "unit/http/fetch_site.h"
#include "unit/http/fetch_tls_site.h"

#include <dirent.h>

/* -- redirects and addresses ------------------------------------------------------------------- */

static struct seen *get_following(struct site *site, const char *path, uint32_t max)
{
    struct seen *s = prepare(site, path);
    s->fetch.max_redirects = max;
    start(s);
    run_until_done(s);
    return s;
}

static void test_redirect_is_the_answer(void **state)
{
    struct seen *s = get_following(*state, "/to-hello", 0);
    assert_int_equal(s->err, 0);
    assert_int_equal(s->fetch.status, 302);
    assert_int_equal(s->heads, 1);
    assert_body(s, "gone");
}

static void test_redirect_is_followed(void **state)
{
    struct seen *s = get_following(*state, "/to-hello", 1);
    assert_int_equal(s->err, 0);
    assert_int_equal(s->fetch.status, 200);
    assert_int_equal(s->heads, 1);
    assert_int_equal(s->status_at_head, 200);
    assert_string_equal(s->content_type, "text/plain");
    assert_body(s, "hello");
    s = get_following(*state, "/to-big", 1); /* whose head names no type */
    assert_string_equal(s->content_type, "");
    assert_true(is_big_body(buf_str(&s->body), BIG));
}

static void test_too_many_redirects(void **state)
{
    struct seen *s = get_following(*state, "/to-itself", 3);
    assert_failed(s, FETCH_REDIRECTS);
    assert_int_equal(s->heads, 0);
    assert_int_equal(s->site->requests, 4);
}

static void test_redirected_post(void **state)
{
    struct site *site = *state;
    struct seen *s = send_body(site, "POST", "/to-echo-303", STR("payload"), NULL, 0);
    assert_int_equal(s->fetch.status, 200);
    assert_true(last_request_has(site, "GET /echo HTTP/1.1\r\n"));
    assert_false(last_request_has(site, "payload"));
    s = send_body(site, "POST", "/to-echo-307", STR("payload"), NULL, 0);
    assert_int_equal(s->fetch.status, 200);
    assert_true(last_request_has(site, "POST /echo HTTP/1.1\r\n"));
    assert_true(last_request_has(site, "\r\n\r\npayload"));
    s = send_body(site, "PUT", "/to-echo-303", STR("payload"), NULL, 0);
    assert_int_equal(s->fetch.status, 303);
}

static void test_redirect_to_a_forbidden_address(void **state)
{
    static const char *const paths[] = {"/to-private", "/to-metadata", "/to-zero"};
    struct site *site = *state;
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct seen *s = get_following(site, paths[i], 5);
        assert_int_equal(s->err, ERR_FORBIDDEN_ADDR);
        assert_int_equal(s->heads, 0);
        assert_int_equal(site->requests, i + 1);
    }
}

static void test_redirect_to_another_protocol(void **state)
{
    struct seen *s = get_following(*state, "/to-file", 5);
    assert_failed(s, FETCH_REDIRECTS);
    assert_int_equal(s->body.n, 0);
}

static void test_forbidden_addresses(void **state)
{
    static const char *const hosts[] = {
        "127.0.0.1", "127.8.9.10",  "localhost", "inner.test", "2130706433",
        "0x7f.1",    "0.0.0.0",     "[::1]",     "[::]",       "[::ffff:127.0.0.1]",
        "10.1.2.3",  "192.168.0.1", "[fe80::1]", "[fc00::1]",  "169.254.169.254"};
    struct site *site = *state;
    for (int https = 0; https < 2; https++)
        for (size_t i = 0; i < COUNT(hosts); i++) {
            char url[64];
            snprintf(url, sizeof url, "http%s://%s:%d/hello", https ? "s" : "", hosts[i],
                     site->port);
            struct seen *s = get_url(site, (struct addr_policy){0}, url);
            if (s->err != ERR_FORBIDDEN_ADDR)
                fail_msg("%s: %s (%s)", url, err_name(s->err), s->fetch.error);
            assert_non_null(strstr(s->fetch.error, "not allowed"));
        }
    assert_int_equal(site->connections, 0);
}

static void test_loopback_by_name(void **state)
{
    struct site *site = *state;
    char url[64];
    snprintf(url, sizeof url, "http://inner.test:%d/hello", site->port);
    struct seen *s = get_url(site, LOOPBACK_OK, url);
    assert_int_equal(s->err, 0);
    assert_body(s, "hello");
}

/* Whatever a client may name: not us. Only who runs the server may have it ask itself. */
static void test_our_own_listeners(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "localhost", "inner.test", "[::1]",
                                        "[::ffff:127.0.0.1]"};
    struct site *site = *state;
    struct addr_own own = {0};
    char url[64];
    addr_own_add(&own, (uint16_t)site->port);
    fetcher_own(site->fetcher, &own);
    for (size_t i = 0; i < COUNT(hosts); i++) {
        snprintf(url, sizeof url, "http://%s:%d/hello", hosts[i], site->port);
        struct addr_policy open = {.allow_loopback = true, .allow_private = true};
        struct seen *s = get_url(site, open, url);
        if (s->err != ERR_FORBIDDEN_ADDR)
            fail_msg("%s: %s (%s)", url, err_name(s->err), s->fetch.error);
        assert_non_null(strstr(s->fetch.error, "this server itself"));
    }
    assert_int_equal(site->connections, 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/hello", site->port);
    struct seen *s = get_url(site, (struct addr_policy){.configured = true}, url);
    assert_int_equal(s->err, 0);
    /* its connection is kept, and is nobody else's */
    s = get_url(site, LOOPBACK_OK, url);
    assert_int_equal(s->err, ERR_FORBIDDEN_ADDR);
    assert_int_equal(site->requests, 1);
    fetcher_own(site->fetcher, NULL);
    free(own.ports);
}

/* The strict one comes second and would find an open connection to the same host. */
static void test_kept_connection_is_checked(void **state)
{
    struct site *site = *state;
    struct seen *s = get(site, "/hello");
    assert_int_equal(s->err, 0);
    char url[256];
    snprintf(url, sizeof url, "%s", s->url);
    s = get_url(site, (struct addr_policy){.allow_private = true}, url);
    assert_int_equal(s->err, ERR_FORBIDDEN_ADDR);
    assert_int_equal(site->requests, 1);
}

static struct seen *get_rebound(struct site *site, struct addr_policy policy, int port)
{
    char url[64];
    snprintf(url, sizeof url, "http://rebound.test:%d/hello", port);
    return get_url(site, policy, url);
}

static unsigned n_refused;

static void on_refused(void *ctx, const struct fetch *fetch)
{
    assert_non_null(strstr(fetch->error, "not allowed"));
    n_refused++;
}

/* Attack 39: a name that is good when it is looked at, and points elsewhere when it is connected
 * to. It is looked up once for a connection, and what is connected to is what is checked. Another
 * port makes libcurl look it up again. */
static void test_name_that_changes(void **state)
{
    static const char *const good_then_bad[] = {"127.0.0.1", "10.1.2.3", "127.0.0.1", NULL};
    static const char *const to_metadata[] = {"127.0.0.1", "169.254.169.254", NULL};
    static const char *const *const rows[] = {good_then_bad, to_metadata};
    struct site *site = *state;
    fetcher_on_refused(site->fetcher, on_refused, NULL);
    n_refused = 0;
    for (unsigned i = 0; i < COUNT(rows); i++) {
        rebound_to = rows[i];
        rebound = 0;
        struct seen *s = get_rebound(site, LOOPBACK_OK, site->port);
        assert_int_equal(s->err, 0);
        assert_int_equal(rebound, i == 0 ? 1 : 0); /* the second time it is remembered */
        if (i > 0)
            rebound = 1;
        s = get_rebound(site, LOOPBACK_OK, 9 + (int)i);
        assert_failed(s, FETCH_FORBIDDEN);
        assert_int_equal(n_refused, i + 1);
    }
    /* What was found for one whose policy allows it is of no use to others. */
    struct seen *s = get_rebound(site, (struct addr_policy){0}, site->port);
    assert_failed(s, FETCH_FORBIDDEN);
    assert_int_equal(n_refused, COUNT(rows) + 1);
    assert_int_equal(site->requests, COUNT(rows));
    fetcher_on_refused(site->fetcher, NULL, NULL);
}

static struct seen *get_of_user(struct site *site, uid_t uid)
{
    struct seen *s = prepare(site, "/hello");
    s->fetch.check_peer = true;
    s->fetch.peer_uid = uid;
    start(s);
    run_until_done(s);
    return s;
}

/* The site is this user's. The second one who asks for it finds a kept connection. */
static void test_peer_of_another_user(void **state)
{
    struct site *site = *state;
    struct seen *s = get_of_user(site, getuid() + 1);
    assert_failed(s, FETCH_STRANGER);
    assert_int_equal(s->heads, 0);
    assert_int_equal(site->requests, 0);
    s = get_of_user(site, getuid());
    assert_int_equal(s->err, 0);
    assert_body(s, "hello");
    unsigned connections = site->connections;
    s = get_of_user(site, getuid());
    assert_int_equal(s->err, 0);
    assert_int_equal(site->connections, connections);
    s = get_of_user(site, getuid() + 1);
    assert_failed(s, FETCH_STRANGER);
    assert_int_equal(site->requests, 2);
}

/* -- slow name servers ------------------------------------------------------------------------- */

static int count_threads(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* The lookup's thread outlives the fetch; it cleans up after itself once the name server answers.
 */
static void let_lookup_end(int threads_before)
{
    sem_post(&lookup_released);
    while (count_threads() > threads_before)
        usleep(1000);
}

static void test_slow_lookup_holds_up_nobody(void **state)
{
    struct site *site = *state;
    get(site, "/hello");
    int threads = count_threads();
    for (int timeout = 0; timeout < 2; timeout++) {
        struct seen *slow = prepare(site, "");
        slow->fetch.url = STR("http://slow.test/");
        slow->fetch.total_timeout_ms = timeout ? 30 : 0;
        start(slow);
        while (sem_trywait(&lookup_entered) != 0)
            uv_run(&site->loop.uv, UV_RUN_NOWAIT);
        if (timeout) {
            run_until_done(slow);
            assert_failed(slow, FETCH_CONNECT_TIMEOUT);
        } else {
            fetch_cancel(&slow->fetch);
        }
        struct seen *s = get(site, "/hello"); /* would not get here while libcurl waits */
        assert_int_equal(s->err, 0);
        let_lookup_end(threads);
    }
}

/* -- TLS ----------------------------------------------------------------------------------------
 */

static struct seen *get_tls(struct site *site, struct tls_site *t, const char *host)
{
    char url[64];
    snprintf(url, sizeof url, "https://%s:%d/", host, t->port);
    return get_url(site, LOOPBACK_OK, url);
}

static void test_certificates_are_verified(void **state)
{
    struct site *site = *state;
    struct tls_site t;
    tls_site_init(&t, "http/1.1", STR("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret"));
    struct seen *s = get_tls(site, &t, "inner.test"); /* signed by nobody we know */
    assert_failed(s, FETCH_CERTIFICATE);
    fetcher_trust(site->fetcher, t.ca_file);
    s = get_tls(site, &t, "127.0.0.1"); /* known, but another's */
    assert_failed(s, FETCH_CERTIFICATE);
    s = get_tls(site, &t, "inner.test");
    assert_int_equal(s->err, 0);
    assert_body(s, "secret");
    assert_string_equal(t.offered, "\x08http/1.1"); /* HTTP/2 is for those who ask for it */
    tls_site_deinit(&t);
}

static void test_no_tls_where_there_is_none(void **state)
{
    struct site *site = *state;
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%d/hello", site->port);
    struct seen *s = prepare(site, "");
    s->fetch.url = str_of_cstr(url);
    s->fetch.connect_timeout_ms = 50; /* our site waits for more of what it takes for a request */
    start(s);
    run_until_done(s);
    assert_failed(s, FETCH_CONNECT_TIMEOUT);
    struct tls_site t;
    tls_site_init(&t, NULL, STR(""));
    s = get_tls(site, &t, "inner.test"); /* hangs up on the greeting */
    assert_failed(s, FETCH_TLS);
    tls_site_deinit(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SITE_TEST(test_redirect_is_the_answer),
        SITE_TEST(test_redirect_is_followed),
        SITE_TEST(test_too_many_redirects),
        SITE_TEST(test_redirected_post),
        SITE_TEST(test_redirect_to_a_forbidden_address),
        SITE_TEST(test_redirect_to_another_protocol),
        SITE_TEST(test_forbidden_addresses),
        SITE_TEST(test_loopback_by_name),
        SITE_TEST(test_our_own_listeners),
        SITE_TEST(test_kept_connection_is_checked),
        SITE_TEST(test_name_that_changes),
        SITE_TEST(test_peer_of_another_user),
        SITE_TEST(test_slow_lookup_holds_up_nobody),
        SITE_TEST(test_certificates_are_verified),
        SITE_TEST(test_no_tls_where_there_is_none),
    };
    return cmocka_run_group_tests(tests, site_once, NULL);
}
