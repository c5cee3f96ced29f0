// SPDX-License-Identifier: Apache-2.0
/* Cancelling, starting and freeing from every callback. */
#include "unit/http/fetch_site.h"

/* -- cancelling and starting, everywhere ------------------------------------------------------- */

static void cancel_in_head(struct fetch *f)
{
    on_head(f);
    fetch_cancel(f);
    fetch_cancel(f);
}

static bool cancel_in_data(struct fetch *f, struct str data)
{
    struct seen *s = container_of(f, struct seen, fetch);
    s->heads += 100;
    fetch_cancel(f);
    return true;
}

static bool cancel_and_pause(struct fetch *f, struct str data)
{
    cancel_in_data(f, data);
    return false;
}

static void run_until_heads(struct seen *s, int heads)
{
    while (s->heads < heads)
        uv_run(&s->site->loop.uv, UV_RUN_ONCE);
    run_rounds(s->site);
}

static void test_cancel_in_head(void **state)
{
    struct seen *s = prepare(*state, "/big");
    s->fetch.on_head = cancel_in_head;
    start(s);
    run_until_heads(s, 1);
    assert_int_equal(s->dones, 0);
    assert_null(s->fetch.transfer);
}

static void test_cancel_in_data(void **state)
{
    bool (*const ways[])(struct fetch *, struct str) = {cancel_in_data, cancel_and_pause};
    for (size_t i = 0; i < COUNT(ways); i++) {
        struct seen *s = prepare(*state, "/big");
        s->fetch.on_data = ways[i];
        start(s);
        run_until_heads(s, 101);
        assert_int_equal(s->heads, 101); /* called once */
        assert_int_equal(s->dones, 0);
    }
}

static void test_cancel_in_done(void **state)
{
    struct seen *other = prepare(*state, "/never"), *s = prepare(*state, "/hello");
    s->to_cancel = other;
    start(other);
    start(s);
    run_until_done(s);
    run_rounds(*state);
    assert_int_equal(s->err, 0);
    assert_int_equal(other->dones, 0);
    assert_null(other->fetch.transfer);
    s->to_cancel = s; /* its own, which is over */
    s->dones = 0;
    start(s);
    run_until_done(s);
    assert_int_equal(s->dones, 1);
}

/* Both are done in the same round; the first done() cancels the second. */
static void test_cancel_what_is_about_to_be_done(void **state)
{
    struct seen *a = prepare(*state, "bad url"), *b = prepare(*state, "bad url");
    a->to_cancel = b;
    start(a);
    start(b);
    run_until_done(a);
    run_rounds(*state);
    assert_int_equal(a->dones, 1);
    assert_int_equal(b->dones, 0);
}

static bool cancel_other_in_data(struct fetch *f, struct str data)
{
    struct seen *s = container_of(f, struct seen, fetch);
    if (s->to_cancel != NULL) {
        fetch_cancel(&s->to_cancel->fetch);
        free((char *)s->to_cancel->fetch.body.p); /* libcurl must not look there any more */
        s->to_cancel = NULL;
    }
    return true;
}

static void test_cancel_another_in_data(void **state)
{
    struct seen *s = prepare(*state, "/big"), *other = prepare(*state, "/hello");
    struct buf body = {0};
    put_body(&body, 8 << 20);
    other->fetch.method = STR("POST");
    other->fetch.body = buf_str(&body);
    s->fetch.on_data = cancel_other_in_data;
    s->to_cancel = other;
    start(s);
    start(other);
    run_until_done(s);
    run_rounds(*state);
    assert_int_equal(s->err, 0);
    assert_int_equal(other->dones, 0);
}

static void test_cancel_from_outside(void **state)
{
    struct site *site = *state;
    struct seen *s = prepare(site, "/never");
    start(s);
    fetch_cancel(&s->fetch); /* before it began */
    run_rounds(site);
    assert_int_equal(site->requests, 0);
    start(s);
    while (site->requests == 0)
        uv_run(&site->loop.uv, UV_RUN_ONCE);
    fetch_cancel(&s->fetch); /* while it waits */
    fetch_cancel(&s->fetch);
    run_rounds(site);
    assert_int_equal(s->dones, 0);
}

static void test_cancel_while_paused(void **state)
{
    struct seen *s = prepare(*state, "/big");
    s->fetch.on_data = on_data;
    s->pauses = 1;
    s->stay_paused = true;
    start(s);
    while (s->pauses > 0)
        uv_run(&s->site->loop.uv, UV_RUN_ONCE);
    fetch_resume(&s->fetch);
    fetch_cancel(&s->fetch);
    fetch_resume(&s->fetch);
    run_rounds(*state);
    assert_int_equal(s->body.n, 0);
    assert_int_equal(s->dones, 0);
}

static void spoil_in_done(struct fetch *f, int err)
{
    struct seen *s = container_of(f, struct seen, fetch);
    s->heads = 100;
    memset(f, 0xee, sizeof *f); /* as if it were freed and taken by somebody else */
}

static void test_fetch_may_go_in_done(void **state)
{
    struct seen *s = prepare(*state, "/hello");
    s->fetch.done = spoil_in_done;
    start(s);
    run_until_heads(s, 100);
    for (size_t i = 0; i < sizeof s->fetch; i++)
        assert_int_equal(((unsigned char *)&s->fetch)[i], 0xee); /* nobody wrote there */
    s->fetch.transfer = NULL;
}

static void test_start_from_done(void **state)
{
    struct seen *s = prepare(*state, "/hello"), *next = prepare(*state, "/missing");
    s->restarts = 2; /* the same struct again */
    start(s);
    while (s->dones < 3)
        uv_run(&s->site->loop.uv, UV_RUN_ONCE);
    assert_body(s, "hellohellohello");
    s->to_start = next; /* another one */
    start(next);
    fetch_cancel(&next->fetch);
    s->dones = 0;
    start(s);
    run_until_done(next);
    assert_int_equal(next->fetch.status, 404);
    assert_int_equal(s->dones, 1);
}

/* A fetch that fails at once and is started again for ever must leave the loop to the others. */
static void test_restarting_does_not_starve(void **state)
{
    struct seen *mad = prepare(*state, " "), *s = prepare(*state, "/hello");
    mad->restarts = INT32_MAX;
    start(mad);
    start(s);
    run_until_done(s);
    assert_int_equal(s->err, 0);
    fetch_cancel(&mad->fetch);
}

static bool start_in_data(struct fetch *f, struct str data)
{
    struct seen *s = container_of(f, struct seen, fetch);
    if (s->to_start != NULL)
        fetch_start(s->site->fetcher, &s->to_start->fetch);
    s->to_start = NULL;
    return true;
}

static void test_start_from_on_data(void **state)
{
    struct seen *s = prepare(*state, "/big"), *next = prepare(*state, "/hello");
    s->fetch.on_data = start_in_data;
    s->to_start = next;
    start(s);
    run_until_done(s);
    run_until_done(next);
    assert_int_equal(s->err, 0);
    assert_body(next, "hello");
}

static void free_fetcher_in_done(struct fetch *f, int err)
{
    struct seen *s = container_of(f, struct seen, fetch);
    fetcher_free(s->site->fetcher);
    s->site->fetcher = NULL;
    s->dones++;
}

static bool free_fetcher_in_data(struct fetch *f, struct str data)
{
    fetch_cancel(f);
    free_fetcher_in_done(f, 0);
    return true;
}

static void test_free_fetcher_in_done(void **state)
{
    struct seen *s = prepare(*state, "/hello");
    s->fetch.done = free_fetcher_in_done;
    start(s);
    run_until_done(s);
}

static void test_free_fetcher_in_data(void **state)
{
    struct seen *s = prepare(*state, "/big");
    s->fetch.on_data = free_fetcher_in_data;
    start(s);
    run_until_done(s);
}

static void test_free_fetcher_after_cancel(void **state)
{
    struct site *site = *state;
    struct seen *s = prepare(site, "/never");
    start(s);
    while (site->requests == 0)
        uv_run(&site->loop.uv, UV_RUN_ONCE);
    fetch_cancel(&s->fetch);
    fetcher_free(site->fetcher); /* in the same breath */
    site->fetcher = NULL;
}

/* A loop with nothing else to do still finishes a fetch, a failed one included. */
static void test_fetch_keeps_the_loop_alive(void **state)
{
    struct site *site = *state;
    struct seen *s = prepare(site, " ");
    uv_unref((uv_handle_t *)&site->listener);
    start(s);
    loop_run(&site->loop);
    assert_int_equal(s->dones, 1);
    s = get_url(site, LOOPBACK_OK, "http://unknown.test/");
    s = prepare(site, "/hello");
    start(s);
    while (s->dones == 0)
        assert_int_not_equal(uv_run(&site->loop.uv, UV_RUN_ONCE) == 0 && s->dones == 0, 1);
    uv_ref((uv_handle_t *)&site->listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SITE_TEST(test_cancel_in_head),
        SITE_TEST(test_cancel_in_data),
        SITE_TEST(test_cancel_in_done),
        SITE_TEST(test_cancel_what_is_about_to_be_done),
        SITE_TEST(test_cancel_another_in_data),
        SITE_TEST(test_cancel_from_outside),
        SITE_TEST(test_cancel_while_paused),
        SITE_TEST(test_fetch_may_go_in_done),
        SITE_TEST(test_start_from_done),
        SITE_TEST(test_restarting_does_not_starve),
        SITE_TEST(test_start_from_on_data),
        SITE_TEST(test_free_fetcher_in_done),
        SITE_TEST(test_free_fetcher_in_data),
        SITE_TEST(test_free_fetcher_after_cancel),
        SITE_TEST(test_fetch_keeps_the_loop_alive),
    };
    return cmocka_run_group_tests(tests, site_once, NULL);
}
