// SPDX-License-Identifier: Apache-2.0
/* Request bodies that come piece by piece. */
#include "unit/http/fetch_site.h"

/* What an upload gives, and how it behaves on the way. */
struct upload {
    struct seen *seen;
    size_t left, given;
    size_t piece;          /* at most so much at a time */
    bool waits;            /* before each piece, until a timer goes off */
    bool resumes;          /* from within on_body */
    bool hangs;            /* at `left` == 0, until the test ends it */
    bool cancels;          /* in the middle */
    unsigned asked, early; /* early: asked while it waited */
    bool waiting;
    uv_timer_t timer;
};

static struct upload up;

static void on_more(uv_timer_t *t)
{
    up.waiting = false;
    fetch_resume_body(&up.seen->fetch);
}

static size_t wait_for_more(struct fetch *f)
{
    up.waiting = true;
    if (up.resumes) {
        up.waiting = false;
        fetch_resume_body(f);
    } else {
        uv_timer_start(&up.timer, on_more, 2, 0);
    }
    return FETCH_BODY_WAIT;
}

static size_t on_body(struct fetch *f, char *out, size_t room)
{
    up.early += up.waiting;
    up.asked++;
    if (up.cancels && up.given > 0) {
        fetch_cancel(f);
        return 0;
    }
    if (up.left == 0 && up.hangs)
        return FETCH_BODY_WAIT;
    if (up.waits && up.asked % 2 == 1)
        return wait_for_more(f);
    size_t n = up.left < up.piece ? up.left : up.piece;
    n = n < room ? n : room;
    for (size_t i = 0; i < n; i++)
        out[i] = (char)('a' + (up.given + i) % 26);
    up.given += n;
    up.left -= n;
    return n;
}

static struct seen *prepare_upload(struct site *site, const char *path, size_t n, int64_t length)
{
    struct seen *s = prepare(site, path);
    up = (struct upload){.seen = s, .left = n, .piece = SIZE_MAX};
    uv_timer_init(&site->loop.uv, &up.timer);
    s->fetch.method = STR("POST");
    s->fetch.on_body = on_body;
    s->fetch.body_length = length;
    s->fetch.max_redirects = 3;
    return s;
}

static void end_upload(struct site *site)
{
    fetch_cancel(&up.seen->fetch);
    uv_close((uv_handle_t *)&up.timer, NULL);
    run_rounds(site);
}

/* The body of the last request, of so many bytes. */
static bool last_body_is(const struct site *site, size_t n)
{
    const char *end = memmem(site->last.p, site->last.n, "\r\n\r\n", 4);
    struct str body = str_skip(buf_str(&site->last), (size_t)(end + 4 - site->last.p));
    return is_big_body(body, n);
}

static void test_known_length(void **state)
{
    for (int waits = 0; waits < 3; waits++) {
        struct seen *s = prepare_upload(*state, "/echo", BIG, BIG);
        up.piece = waits > 0 ? 10000 : SIZE_MAX;
        up.waits = waits > 0;
        up.resumes = waits == 2;
        start(s);
        run_until_done(s);
        assert_int_equal(s->err, 0);
        assert_true(last_request_has(*state, "POST /echo HTTP/1.1\r\n"));
        assert_true(last_request_has(*state, "Content-Length: 300000\r\n"));
        assert_false(last_request_has(*state, "Transfer-Encoding"));
        assert_false(last_request_has(*state, "Expect"));
        assert_true(last_body_is(*state, BIG));
        assert_int_equal(up.early, 0);
        end_upload(*state);
    }
}

static void test_unknown_length(void **state)
{
    static const char *const methods[] = {"POST", "PUT", "DELETE", "GET", "QUERY"};
    for (size_t i = 0; i < COUNT(methods); i++) {
        struct seen *s = prepare_upload(*state, "/echo", 7, -1);
        char line[64];
        up.waits = i % 2 == 0;
        s->fetch.method = str_of_cstr(methods[i]);
        start(s);
        run_until_done(s);
        assert_int_equal(s->err, 0);
        snprintf(line, sizeof line, "%s /echo HTTP/1.1\r\n", methods[i]);
        assert_true(last_request_has(*state, line));
        assert_false(last_request_has(*state, "Content-Length"));
        assert_true(last_request_has(*state, "\r\n\r\n7\r\nabcdefg\r\n0\r\n\r\n"));
        end_upload(*state);
    }
}

static void test_empty(void **state)
{
    struct seen *s = prepare_upload(*state, "/echo", 0, -1);
    start(s);
    run_until_done(s);
    assert_int_equal(s->err, 0);
    assert_true(last_request_has(*state, "\r\n\r\n0\r\n\r\n"));
    end_upload(*state);
}

/* Nothing that was kept may turn out dead under it. */
static void test_connection_is_new(void **state)
{
    struct site *site = *state;
    get(site, "/hello");
    struct seen *s = prepare_upload(site, "/hello", 5, 5);
    start(s);
    run_until_done(s);
    assert_int_equal(site->connections, 2);
    end_upload(site);
}

static void test_redirect_is_the_answer(void **state)
{
    struct seen *s = prepare_upload(*state, "/to-echo-307", 5, 5);
    start(s);
    run_until_done(s);
    assert_int_equal(s->err, 0);
    assert_int_equal(s->fetch.status, 307);
    end_upload(*state);
}

static void test_cancel_in_the_middle(void **state)
{
    struct seen *s = prepare_upload(*state, "/echo", BIG, BIG);
    up.piece = 1000;
    up.cancels = true;
    start(s);
    while (s->fetch.transfer != NULL)
        uv_run(&s->site->loop.uv, UV_RUN_ONCE);
    run_rounds(*state);
    assert_int_equal(s->dones, 0);
    assert_int_equal(up.given, 1000);
    end_upload(*state);
}

/* Nobody wants the rest of the body, and there is none to come for now. */
static void test_an_error_before_the_end(void **state)
{
    static const char *const paths[] = {"/early-413", "/early-413-chunked"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct seen *s = prepare_upload(*state, paths[i], 5, BIG);
        up.hangs = true;
        start(s);
        run_until_done(s);
        assert_int_equal(s->err, 0);
        assert_int_equal(s->fetch.status, 413);
        assert_body(s, "no");
        end_upload(*state);
    }
}

/* Whoever is slow to send is no reason to blame the peer. */
static void test_waiting_is_no_silence(void **state)
{
    struct seen *s = prepare_upload(*state, "/echo", 5, 10);
    s->fetch.first_byte_timeout_ms = 20;
    up.hangs = true;
    start(s);
    for (uint64_t from = uv_hrtime(); uv_hrtime() - from < 100 * 1000000;)
        uv_run(&s->site->loop.uv, UV_RUN_NOWAIT);
    assert_int_equal(up.given, 5);
    assert_int_equal(s->dones, 0);
    end_upload(*state);
}

static void test_silence_behind_the_body(void **state)
{
    struct seen *s = prepare_upload(*state, "/never", 20, 20);
    s->fetch.first_byte_timeout_ms = 30;
    up.waits = true;
    start(s);
    run_until_done(s);
    assert_failed(s, FETCH_FIRST_BYTE_TIMEOUT);
    end_upload(*state);
}

/* A body that nobody brings to its end ends with the time that all of it may take. */
static void test_total_timeout_while_starved(void **state)
{
    struct seen *s = prepare_upload(*state, "/echo", 5, 10);
    s->fetch.total_timeout_ms = 50;
    up.hangs = true;
    start(s);
    run_until_done(s);
    assert_failed(s, FETCH_TOTAL_TIMEOUT);
    end_upload(*state);
}

/* Both directions wait for us, and each goes on by itself. */
static void test_both_directions_pause(void **state)
{
    struct seen *s = prepare_upload(*state, "/echo", BIG, BIG);
    s->fetch.on_data = on_data;
    s->pauses = 5;
    up.piece = 50000;
    up.waits = true;
    start(s);
    run_until_done(s);
    assert_int_equal(s->err, 0);
    assert_int_equal(s->pauses, 0);
    assert_true(s->body.n > BIG);
    end_upload(*state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SITE_TEST(test_known_length),
        SITE_TEST(test_unknown_length),
        SITE_TEST(test_empty),
        SITE_TEST(test_connection_is_new),
        SITE_TEST(test_redirect_is_the_answer),
        SITE_TEST(test_cancel_in_the_middle),
        SITE_TEST(test_an_error_before_the_end),
        SITE_TEST(test_waiting_is_no_silence),
        SITE_TEST(test_silence_behind_the_body),
        SITE_TEST(test_total_timeout_while_starved),
        SITE_TEST(test_both_directions_pause),
    };
    return cmocka_run_group_tests(tests, site_once, NULL);
}
