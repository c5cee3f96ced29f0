// SPDX-License-Identifier: Apache-2.0
/* What is sent, what comes back, and what goes wrong on the way. */
#include "unit/http/fetch_site.h"

/* -- answers ----------------------------------------------------------------------------------- */

static void test_whole_answer(void **state)
{
    struct seen *s = get(*state, "/hello");
    assert_int_equal(s->err, 0);
    assert_int_equal(s->fetch.status, 200);
    assert_int_equal(s->heads, 1);
    assert_string_equal(s->content_type, "text/plain");
    assert_body(s, "hello");
    run_rounds(*state);
    assert_int_equal(s->dones, 1);
    assert_null(s->fetch.transfer);
}

static void test_any_status_is_an_answer(void **state)
{
    struct seen *s = get(*state, "/missing");
    assert_int_equal(s->err, 0);
    assert_int_equal(s->fetch.status, 404);
    assert_string_equal(s->retry_after, "7");
    assert_body(s, "no");
    s = get(*state, "/nothing");
    assert_int_equal(s->err, 0);
    assert_int_equal(s->fetch.status, 204);
    assert_int_equal(s->heads, 1);
    assert_string_equal(s->retry_after, "");
}

static void test_interim_answers_are_passed_over(void **state)
{
    struct seen *s = get(*state, "/hints");
    assert_int_equal(s->heads, 1);
    assert_int_equal(s->status_at_head, 200);
    assert_string_equal(s->content_type, "");
    assert_body(s, "ok");
}

/* Nobody has asked for another protocol. */
static void test_a_switch_is_no_answer(void **state)
{
    struct seen *s = prepare(*state, "/switch");
    s->fetch.on_data = on_data;
    start(s);
    run_until_done(s);
    assert_failed(s, FETCH_NOT_HTTP);
    assert_int_equal(s->heads, 0);
    assert_int_equal(s->body.n, 0);
}

static void test_trailers_are_passed_over(void **state)
{
    struct seen *s = get(*state, "/trailers");
    assert_int_equal(s->err, 0);
    assert_int_equal(s->heads, 1);
    assert_string_equal(s->content_type, "");
    assert_body(s, "abcde");
}

static void test_head_comes_before_the_body(void **state)
{
    struct seen *s = prepare(*state, "/head-only");
    start(s);
    while (s->heads == 0)
        uv_run(&s->site->loop.uv, UV_RUN_ONCE);
    assert_int_equal(s->dones, 0);
    assert_true(str_eq(s->fetch.content_type, STR("text/event-stream")));
    fetch_cancel(&s->fetch);
}

static void list_headers(struct fetch *f)
{
    struct seen *s = container_of(f, struct seen, fetch);
    struct header h;
    for (void *at = NULL; fetch_next_header(f, &at, &h);) {
        buf_put(&s->body, h.name);
        buf_putc(&s->body, '=');
        buf_put(&s->body, h.value);
        buf_putc(&s->body, ';');
    }
}

/* All of them, repeated ones too, and of the final answer only. */
static void test_headers_can_be_walked(void **state)
{
    struct seen *s = prepare(*state, "/many-headers");
    s->fetch.on_head = list_headers;
    s->fetch.on_data = on_data;
    start(s);
    run_until_done(s);
    assert_int_equal(s->err, 0);
    assert_body(s, "Set-Cookie=a=1;X-Request-Id=7;Set-Cookie=b=2;Content-Length=0;");
    void *at = NULL;
    struct header h;
    assert_false(fetch_next_header(&s->fetch, &at, &h)); /* over */
}

static void test_whether_the_end_is_marked(void **state)
{
    static const struct {
        const char *path;
        int version;
        bool marked;
    } cases[] = {{"/hello", 11, true},
                 {"/trailers", 11, true},
                 {"/nothing", 11, true},
                 {"/no-end", 11, false},
                 {"/old", 10, false}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct seen *s = get(*state, cases[i].path);
        assert_int_equal(s->err, 0);
        assert_int_equal(s->fetch.http_version, cases[i].version);
        assert_int_equal(s->fetch.end_marked, cases[i].marked);
    }
}

static void test_connection_is_kept(void **state)
{
    struct site *site = *state;
    get(site, "/hello");
    get(site, "/missing");
    assert_int_equal(site->connections, 1);
    assert_int_equal(site->requests, 2);
}

/* What comes behind an answer is not the next one. */
static void test_connection_with_more_on_it_is_not_used_again(void **state)
{
    struct site *site = *state;
    const struct peer *p;
    get(site, "/and-more");
    p = list_item(site->peers.next, struct peer, link);
    while (p->drips > 0)
        uv_run(&site->loop.uv, UV_RUN_ONCE);
    run_rounds(site);
    struct seen *s = get(site, "/hello");
    assert_int_equal(s->err, 0);
    assert_body(s, "hello");
    assert_int_equal(site->connections, 2);
    assert_int_equal(site->requests, 2);
    get(site, "/hello");
    assert_int_equal(site->connections, 2); /* which is as good as any */
}

static void test_connection_is_not_kept_behind_a_head(void **state)
{
    struct site *site = *state;
    get(site, "/nothing");
    get(site, "/hello");
    assert_int_equal(site->connections, 2);
}

static void test_many_at_once(void **state)
{
    struct seen *all[50];
    for (size_t i = 0; i < COUNT(all); i++) {
        all[i] = prepare(*state, i % 2 ? "/hello" : "/big");
        start(all[i]);
    }
    for (size_t i = 0; i < COUNT(all); i++) {
        run_until_done(all[i]);
        assert_int_equal(all[i]->err, 0);
        assert_int_equal(all[i]->body.n, i % 2 ? 5 : BIG);
        assert_int_equal(all[i]->dones, 1);
    }
}

/* -- requests ---------------------------------------------------------------------------------- */

static void test_post(void **state)
{
    struct site *site = *state;
    const struct header headers[] = {{STR("Content-Type"), STR("application/json")},
                                     {STR("Webhook-Signature"), STR("t=1,kid=x")},
                                     {STR("X-Empty"), STR("")}};
    send_body(site, "POST", "/echo", STR("{\"a\":1}"), headers, COUNT(headers));
    assert_true(last_request_has(site, "POST /echo HTTP/1.1\r\n"));
    assert_true(last_request_has(site, "Content-Length: 7\r\n"));
    assert_true(last_request_has(site, "Content-Type: application/json\r\n"));
    assert_true(last_request_has(site, "Webhook-Signature: t=1,kid=x\r\n"));
    assert_true(last_request_has(site, "X-Empty:\r\n"));
    assert_true(last_request_has(site, "\r\n\r\n{\"a\":1}"));
}

static void test_large_post_is_sent_at_once(void **state)
{
    struct site *site = *state;
    struct buf body = {0};
    put_body(&body, 2 << 20);
    struct seen *s = prepare(site, "/hello");
    s->fetch.method = STR("POST");
    s->fetch.body = buf_str(&body);
    start(s);
    run_until_done(s);
    assert_int_equal(s->err, 0);
    assert_false(last_request_has(site, "Expect:"));
    assert_false(last_request_has(site, "Content-Type:"));
    const char *at = memmem(site->last.p, site->last.n, "\r\n\r\n", 4);
    assert_non_null(at);
    size_t head = (size_t)(at - site->last.p) + 4;
    assert_true(is_big_body(str_skip(buf_str(&site->last), head), body.n));
    buf_deinit(&body);
}

static void test_other_methods(void **state)
{
    struct site *site = *state;
    send_body(site, "PUT", "/echo", STR("abc"), NULL, 0);
    assert_true(last_request_has(site, "PUT /echo HTTP/1.1\r\n"));
    assert_true(last_request_has(site, "\r\n\r\nabc"));
    send_body(site, "DELETE", "/echo", STR_NONE, NULL, 0);
    assert_true(last_request_has(site, "DELETE /echo HTTP/1.1\r\n"));
    send_body(site, "POST", "/echo", STR_NONE, NULL, 0);
    assert_true(last_request_has(site, "Content-Length: 0\r\n"));
    struct seen *s = send_body(site, "HEAD", "/nothing", STR_NONE, NULL, 0);
    assert_true(last_request_has(site, "HEAD /nothing HTTP/1.1\r\n"));
    assert_int_equal(s->heads, 1);
}

static void test_nonsense_is_not_sent(void **state)
{
    struct site *site = *state;
    static const char *const urls[] = {
        "",
        "hello",
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "http://a b/",
        "http://u:p@127.0.0.1/",
    };
    for (size_t i = 0; i < COUNT(urls); i++) {
        struct seen *s = get_url(site, LOOPBACK_OK, urls[i]);
        assert_int_equal(s->err, ERR_SYNTAX);
    }
    const struct header wrong[] = {{STR("X"), STR("a\r\nInjected: 1")},
                                   {STR("X\r\nY"), STR("a")},
                                   {STR("X:"), STR("a")},
                                   {STR(""), STR("a")},
                                   {STR("X"), STR("a\0b")}};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct seen *s = prepare(site, "/hello");
        s->fetch.headers = &wrong[i];
        s->fetch.n_headers = 1;
        start(s);
        run_until_done(s);
        assert_int_equal(s->err, ERR_SYNTAX);
    }
    struct seen *s = prepare(site, "/hello");
    s->fetch.method = STR("GET / HTTP/1.1\r\n");
    start(s);
    run_until_done(s);
    assert_int_equal(s->err, ERR_SYNTAX);
    assert_int_equal(site->requests, 0);
}

static void test_environment_is_ignored(void **state)
{
    setenv("http_proxy", "http://127.0.0.1:1/", 1);
    setenv("all_proxy", "http://127.0.0.1:1/", 1);
    struct seen *s = get(*state, "/hello");
    unsetenv("http_proxy");
    unsetenv("all_proxy");
    assert_int_equal(s->err, 0);
    assert_body(s, "hello");
}

/* -- streaming --------------------------------------------------------------------------------- */

static void stream_big(struct site *site, int pauses, bool at_once)
{
    struct seen *s = prepare(site, "/big");
    s->fetch.on_data = on_data;
    s->fetch.max_answer = 0;
    s->pauses = pauses;
    s->resume_at_once = at_once;
    start(s);
    run_until_done(s);
    assert_int_equal(s->err, 0);
    assert_int_equal(s->pauses, 0);
    assert_true(is_big_body(buf_str(&s->body), BIG));
}

static void test_streaming(void **state)
{
    stream_big(*state, 0, false);
}

static void test_pause_and_resume(void **state)
{
    stream_big(*state, 1, false);
    stream_big(*state, 5, false);
}

static void test_resume_from_on_data(void **state)
{
    stream_big(*state, 3, true);
}

static bool pause_every_time(struct fetch *f, struct str data)
{
    struct seen *s = container_of(f, struct seen, fetch);
    s->pauses++;
    if (s->pauses % 2 == 1) {
        uv_timer_start(&s->later, on_later, 0, 0);
        return false;
    }
    buf_put(&s->body, data);
    return true;
}

static void test_pause_before_every_piece(void **state)
{
    struct seen *s = prepare(*state, "/big");
    s->fetch.on_data = pause_every_time;
    start(s);
    run_until_done(s);
    assert_int_equal(s->err, 0);
    assert_true(s->pauses >= 4);
    assert_true(is_big_body(buf_str(&s->body), BIG));
}

static void test_paused_stays_paused(void **state)
{
    struct seen *s = prepare(*state, "/big");
    s->fetch.on_data = on_data;
    s->pauses = 1;
    s->stay_paused = true;
    start(s);
    while (s->pauses > 0)
        uv_run(&s->site->loop.uv, UV_RUN_ONCE);
    run_rounds(*state);
    assert_int_equal(s->body.n, 0);
    assert_int_equal(s->dones, 0);
    fetch_resume(&s->fetch);
    assert_int_equal(s->body.n, 0); /* never from within the call */
    run_until_done(s);
    assert_true(is_big_body(buf_str(&s->body), BIG));
}

static void test_resume_without_pause(void **state)
{
    struct seen *s = prepare(*state, "/hello");
    start(s);
    fetch_resume(&s->fetch);
    run_until_done(s);
    assert_int_equal(s->err, 0);
    assert_body(s, "hello");
    fetch_resume(&s->fetch); /* over: does nothing */
}

/* -- limits ------------------------------------------------------------------------------------ */

static struct seen *get_bounded(struct site *site, const char *path, size_t max, bool streaming)
{
    struct seen *s = prepare(site, path);
    s->fetch.max_answer = max;
    s->fetch.on_data = streaming ? on_data : NULL;
    start(s);
    run_until_done(s);
    return s;
}

static void test_too_large(void **state)
{
    for (int streaming = 0; streaming < 2; streaming++) {
        struct seen *s = get_bounded(*state, "/big", BIG - 1, streaming);
        assert_int_equal(s->err, ERR_TOO_LARGE);
        assert_true(s->body.n < BIG);
        s = get_bounded(*state, "/big", BIG, streaming);
        assert_int_equal(s->err, 0);
        assert_int_equal(s->body.n, BIG);
    }
    struct seen *s = get_bounded(*state, "/hello", 0, false);
    assert_int_equal(s->err, ERR_TOO_LARGE);
    s = get_bounded(*state, "/nothing", 0, false);
    assert_int_equal(s->err, 0);
}

/* What libcurl kept while paused comes with what followed it, and may end the fetch: in the second
 * case nothing more arrives that could. */
static void test_too_large_after_a_pause(void **state)
{
    static const struct {
        const char *path;
        size_t max;
    } cases[] = {{"/big", BIG - 1}, {"/trailers", 4}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct seen *s = prepare(*state, cases[i].path);
        s->fetch.on_data = on_data;
        s->fetch.max_answer = cases[i].max;
        s->pauses = 1;
        start(s);
        run_until_done(s);
        assert_int_equal(s->err, ERR_TOO_LARGE);
        assert_int_equal(s->dones, 1);
        assert_int_equal(s->pauses, 0);
    }
}

static void test_head_too_large(void **state)
{
    static const char *const paths[] = {"/huge-head", "/huge-line"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct seen *s = get(*state, paths[i]);
        assert_int_equal(s->err, ERR_TOO_LARGE);
        assert_non_null(strstr(s->fetch.error, "header"));
        assert_int_equal(s->heads, 0);
    }
}

static void test_total_timeout(void **state)
{
    struct seen *s = prepare(*state, "/never");
    s->fetch.total_timeout_ms = 50;
    start(s);
    run_until_done(s);
    assert_failed(s, FETCH_TOTAL_TIMEOUT);
    assert_int_equal(s->site->requests, 1);
    assert_int_equal(s->heads, 0);
}

static void test_total_timeout_while_paused(void **state)
{
    struct seen *s = prepare(*state, "/big");
    s->fetch.on_data = on_data;
    s->fetch.total_timeout_ms = 50;
    s->pauses = 1;
    s->stay_paused = true;
    start(s);
    run_until_done(s);
    assert_failed(s, FETCH_TOTAL_TIMEOUT);
    assert_int_equal(s->pauses, 0);
    assert_int_equal(s->body.n, 0);
}

/* Nobody takes the connection from a queue that is full. */
static void test_connect_timeout(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0), fill[4];
    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(fd, 0), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    for (size_t i = 0; i < COUNT(fill); i++) {
        fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(fill[i], (struct sockaddr *)&at, size);
    }
    struct seen *s = prepare(*state, "");
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d/", ntohs(at.sin_port));
    s->fetch.url = str_of_cstr(s->url);
    s->fetch.connect_timeout_ms = 50;
    start(s);
    run_until_done(s);
    assert_failed(s, FETCH_CONNECT_TIMEOUT);
    for (size_t i = 0; i < COUNT(fill); i++)
        close(fill[i]);
    close(fd);
}

static void test_first_byte_timeout(void **state)
{
    /* the second says something, but not the answer */
    static const char *const paths[] = {"/never", "/hints-only"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct seen *s = prepare(*state, paths[i]);
        s->fetch.first_byte_timeout_ms = 50;
        s->fetch.idle_timeout_ms = 1;
        start(s);
        run_until_done(s);
        assert_failed(s, FETCH_FIRST_BYTE_TIMEOUT);
        assert_int_equal(s->site->requests, i + 1);
        assert_int_equal(s->heads, 0);
    }
}

static void test_idle_timeout(void **state)
{
    static const char *const paths[] = {"/head-only", "/stall"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct seen *s = prepare(*state, paths[i]);
        s->fetch.on_data = on_data;
        s->fetch.first_byte_timeout_ms = 60000;
        s->fetch.idle_timeout_ms = 50;
        start(s);
        run_until_done(s);
        assert_failed(s, FETCH_IDLE_TIMEOUT);
        assert_int_equal(s->heads, 1);
        assert_int_equal(s->body.n, i == 0 ? 0 : 3);
    }
}

/* Each byte comes in time, all of them together take longer. */
static void test_slow_is_not_idle(void **state)
{
    struct seen *s = prepare(*state, "/drip");
    s->fetch.on_data = on_data;
    s->fetch.idle_timeout_ms = DRIPS * DRIP_MS / 3;
    start(s);
    run_until_done(s);
    assert_int_equal(s->err, 0);
    assert_int_equal(s->body.n, DRIPS);
}

/* It is us who are silent. */
static void test_paused_is_not_idle(void **state)
{
    struct seen *s = prepare(*state, "/big");
    s->fetch.on_data = on_data;
    s->fetch.idle_timeout_ms = 20;
    s->pauses = 1;
    s->stay_paused = true;
    start(s);
    while (s->pauses > 0)
        uv_run(&s->site->loop.uv, UV_RUN_ONCE);
    uv_timer_start(&s->later, on_later, 100, 0); /* resumes */
    run_until_done(s);
    assert_int_equal(s->err, 0);
    assert_true(is_big_body(buf_str(&s->body), BIG));
}

/* -- failures ---------------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* bound but not listening: nobody else's */
    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", ntohs(at.sin_port));
    struct seen *s = get_url(*state, LOOPBACK_OK, url);
    assert_failed(s, FETCH_REFUSED);
    assert_non_null(strstr(s->fetch.error, "127.0.0.1"));
    close(fd);
}

static void test_unknown_name(void **state)
{
    struct seen *s = get_url(*state, LOOPBACK_OK, "http://unknown.test/");
    assert_failed(s, FETCH_UNRESOLVED);
    assert_non_null(strstr(s->fetch.error, "unknown.test"));
}

static void test_broken_answers(void **state)
{
    static const struct {
        const char *path;
        enum fetch_cause cause;
    } cases[] = {
        {"/short", FETCH_CUT},           {"/short-chunks", FETCH_CUT}, {"/cut-chunk", FETCH_CUT},
        {"/hang-up", FETCH_NO_ANSWER},   {"/garbage", FETCH_NOT_HTTP}, {"/half-head", FETCH_CUT},
        {"/half-line", FETCH_NO_ANSWER},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int streaming = 0; streaming < 2; streaming++) {
            struct seen *s = prepare(*state, cases[i].path);
            s->fetch.on_data = streaming ? on_data : NULL;
            start(s);
            run_until_done(s);
            if (s->fetch.cause != cases[i].cause)
                fail_msg("%s: %s (%s)", cases[i].path, fetch_cause_text(s->fetch.cause),
                         s->fetch.error);
            assert_int_equal(s->err, ERR_UPSTREAM);
            assert_int_equal(s->heads, s->fetch.status != 0);
            assert_int_equal(s->dones, 1);
        }
}

/* One transfer pays for it, and the next one finds everything in order. */
static void test_no_watches_left(void **state)
{
    struct seen *s = prepare(*state, "/hello");
    watches_to_refuse = 1;
    start(s);
    run_until_done(s);
    assert_int_equal(watches_to_refuse, 0);
    assert_failed(s, FETCH_BUSY);
    assert_non_null(strstr(s->fetch.error, "sockets"));
    s = get(*state, "/hello");
    assert_int_equal(s->err, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SITE_TEST(test_whole_answer),
        SITE_TEST(test_any_status_is_an_answer),
        SITE_TEST(test_interim_answers_are_passed_over),
        SITE_TEST(test_a_switch_is_no_answer),
        SITE_TEST(test_trailers_are_passed_over),
        SITE_TEST(test_head_comes_before_the_body),
        SITE_TEST(test_headers_can_be_walked),
        SITE_TEST(test_whether_the_end_is_marked),
        SITE_TEST(test_connection_is_kept),
        SITE_TEST(test_connection_with_more_on_it_is_not_used_again),
        SITE_TEST(test_connection_is_not_kept_behind_a_head),
        SITE_TEST(test_many_at_once),
        SITE_TEST(test_post),
        SITE_TEST(test_large_post_is_sent_at_once),
        SITE_TEST(test_other_methods),
        SITE_TEST(test_nonsense_is_not_sent),
        SITE_TEST(test_environment_is_ignored),
        SITE_TEST(test_streaming),
        SITE_TEST(test_pause_and_resume),
        SITE_TEST(test_resume_from_on_data),
        SITE_TEST(test_pause_before_every_piece),
        SITE_TEST(test_paused_stays_paused),
        SITE_TEST(test_resume_without_pause),
        SITE_TEST(test_too_large),
        SITE_TEST(test_too_large_after_a_pause),
        SITE_TEST(test_head_too_large),
        SITE_TEST(test_total_timeout),
        SITE_TEST(test_total_timeout_while_paused),
        SITE_TEST(test_connect_timeout),
        SITE_TEST(test_first_byte_timeout),
        SITE_TEST(test_idle_timeout),
        SITE_TEST(test_slow_is_not_idle),
        SITE_TEST(test_paused_is_not_idle),
        SITE_TEST(test_refused),
        SITE_TEST(test_unknown_name),
        SITE_TEST(test_broken_answers),
        SITE_TEST(test_no_watches_left),
    };
    return cmocka_run_group_tests(tests, site_once, NULL);
}
