// SPDX-License-Identifier: Apache-2.0
/* A session driven from somebody else's loop, by nothing but tm_descriptors, tm_deadline_ms and
 * tm_turn: once with epoll, once with libuv. The server is killed in the middle, so that for a
 * while there is no descriptor and only the deadline leads on. */
#include "unit/client/session_site.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <uv.h>

#include <cmocka.h>

#define CHUNKS      40
#define KILL_AT     15
#define DESCRIPTORS 8
#define WAIT_MS     20000 /* without anything; ends a test that hangs */
/* A loop that is woken for nothing, or never waits, comes by far more often than this. */
#define TURNS_MAX   4000

struct talk {
    struct site site;
    struct tm_client *client;
    struct tm_session *session;
    unsigned sent, got, turns, lost;
    bool killed, down, over;
};

static void talk_init(struct talk *t, enum tm_http http)
{
    struct tm_options o = TM_OPTIONS_INIT;
    struct tm_session_options so = TM_SESSION_INIT;
    *t = (struct talk){0};
    site_init(&t->site, "sync = never\n[session]\nhandler = echo\n");
    o.server = t->site.url;
    o.http = http;
    so.reconnect_ms = 50;
    assert_int_equal(tm_open(&o, &t->client), 0);
    assert_int_equal(tm_session_new(t->client, &so, &t->session), 0);
}

static void talk_deinit(struct talk *t)
{
    assert_int_equal(t->got, CHUNKS);
    assert_true(t->lost > 1);
    print_message("%u turns\n", t->turns);
    tm_session_free(t->session);
    tm_close(t->client);
    site_deinit(&t->site);
}

static void say_next(struct talk *t)
{
    char text[32];
    int n = snprintf(text, sizeof text, "chunk %u", t->sent);
    assert_int_equal(tm_session_send(t->session, text, (size_t)n, NULL), 0);
    if (++t->sent == CHUNKS)
        assert_int_equal(tm_session_finish(t->session), 0);
}

static void take_chunk(struct talk *t, const struct tm_event *e)
{
    char right[32];
    int n = snprintf(right, sizeof right, "chunk %u", t->got);
    assert_int_equal(e->n, n);
    assert_memory_equal(e->data, right, e->n);
    assert_true(e->verified);
    t->got++;
}

/* What a program does when its loop has come around. One chunk is said for each that came back. */
static void talk_turn(struct talk *t)
{
    struct tm_event e;
    int got;
    assert_true(++t->turns < TURNS_MAX);
    tm_turn(t->client);
    while ((got = tm_session_next(t->session, &e)) == 1) {
        if (e.kind == TM_EVENT_CHUNK)
            take_chunk(t, &e);
        t->lost += e.kind == TM_EVENT_RECONNECT;
        if (e.kind == TM_EVENT_END)
            assert_int_equal(e.err, 0);
    }
    t->over = got == TM_E_CLOSED;
    assert_true(got == 0 || t->over);
    if (t->sent == t->got && t->sent < CHUNKS)
        say_next(t);
    if (t->got == KILL_AT && !t->killed) {
        t->killed = t->down = true;
        site_kill(&t->site);
    } else if (t->down && t->lost > 1) {
        t->down = false;
        site_start(&t->site);
    }
}

/* ---- epoll ---- */

static size_t wanted_of(struct talk *t, struct tm_descriptor *wanted)
{
    size_t n = tm_descriptors(t->client, wanted, DESCRIPTORS);
    assert_true(n <= DESCRIPTORS);
    for (size_t i = 0; i < n; i++)
        assert_true(wanted[i].readable || wanted[i].writable);
    return n;
}

/* The set changes with every turn, and a number may stand for another socket than before, so each
 * wait has a set of its own. */
static void wait_epoll(struct talk *t)
{
    struct tm_descriptor wanted[DESCRIPTORS];
    struct epoll_event event;
    size_t n = wanted_of(t, wanted);
    int deadline = tm_deadline_ms(t->client), set = epoll_create1(EPOLL_CLOEXEC);
    assert_true(set >= 0);
    assert_true(n > 0 || deadline != TM_FOREVER); /* or nothing would ever lead on */
    for (size_t i = 0; i < n; i++) {
        event = (struct epoll_event){.data.fd = wanted[i].fd};
        event.events = (wanted[i].readable ? EPOLLIN : 0u) | (wanted[i].writable ? EPOLLOUT : 0u);
        assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, wanted[i].fd, &event), 0);
    }
    bool bounded = deadline >= 0 && deadline <= WAIT_MS;
    int woken = epoll_wait(set, &event, 1, bounded ? deadline : WAIT_MS);
    assert_true(woken > 0 || bounded);
    close(set);
}

static void talk_epoll(enum tm_http http)
{
    struct talk t;
    talk_init(&t, http);
    while (talk_turn(&t), !t.over)
        wait_epoll(&t);
    talk_deinit(&t);
}

static void test_epoll_http2(void **state)
{
    talk_epoll(TM_HTTP_2);
}

static void test_epoll_http1(void **state)
{
    talk_epoll(TM_HTTP_1);
}

/* ---- libuv ---- */

struct loop {
    uv_loop_t uv;
    uv_timer_t deadline, patience;
    uv_prepare_t prepare; /* before each wait: says what to wait for */
    uv_poll_t *polls[DESCRIPTORS];
    size_t n;
    struct talk talk;
};

static void free_poll(uv_handle_t *handle)
{
    free(handle);
}

/* Before the library is called, which may close any of them. */
static void forget(struct loop *l)
{
    while (l->n > 0)
        uv_close((uv_handle_t *)l->polls[--l->n], free_poll);
    uv_timer_stop(&l->deadline);
}

static void end_loop(struct loop *l)
{
    uv_close((uv_handle_t *)&l->deadline, NULL);
    uv_close((uv_handle_t *)&l->patience, NULL);
    uv_close((uv_handle_t *)&l->prepare, NULL);
}

static void hung(uv_timer_t *timer)
{
    fail_msg("nothing leads on");
}

static void come_around(struct loop *l)
{
    forget(l);
    talk_turn(&l->talk);
    uv_timer_start(&l->patience, hung, WAIT_MS, 0);
    if (l->talk.over)
        end_loop(l);
}

static void on_descriptor(uv_poll_t *poll, int status, int events)
{
    come_around(poll->data);
}

static void on_deadline(uv_timer_t *timer)
{
    come_around(timer->data);
}

static void watch(struct loop *l, const struct tm_descriptor *d)
{
    uv_poll_t *poll = malloc(sizeof *poll);
    assert_non_null(poll);
    assert_int_equal(uv_poll_init(&l->uv, poll, d->fd), 0);
    poll->data = l;
    l->polls[l->n++] = poll;
    int events = (d->readable ? UV_READABLE : 0) | (d->writable ? UV_WRITABLE : 0);
    assert_int_equal(uv_poll_start(poll, events, on_descriptor), 0);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct loop *l = prepare->data;
    struct tm_descriptor wanted[DESCRIPTORS];
    forget(l);
    size_t n = wanted_of(&l->talk, wanted);
    for (size_t i = 0; i < n; i++)
        watch(l, &wanted[i]);
    int deadline = tm_deadline_ms(l->talk.client);
    if (deadline != TM_FOREVER)
        uv_timer_start(&l->deadline, on_deadline, (uint64_t)deadline, 0);
}

static void talk_uv(enum tm_http http)
{
    struct loop l = {0};
    talk_init(&l.talk, http);
    assert_int_equal(uv_loop_init(&l.uv), 0);
    uv_timer_init(&l.uv, &l.deadline);
    uv_timer_init(&l.uv, &l.patience);
    uv_prepare_init(&l.uv, &l.prepare);
    l.deadline.data = l.prepare.data = &l;
    uv_prepare_start(&l.prepare, on_prepare);
    come_around(&l);
    uv_run(&l.uv, UV_RUN_DEFAULT);
    assert_true(l.talk.over);
    assert_int_equal(uv_loop_close(&l.uv), 0);
    talk_deinit(&l.talk);
}

static void test_uv_http2(void **state)
{
    talk_uv(TM_HTTP_2);
}

static void test_uv_http1(void **state)
{
    talk_uv(TM_HTTP_1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epoll_http2),
        cmocka_unit_test(test_epoll_http1),
        cmocka_unit_test(test_uv_http2),
        cmocka_unit_test(test_uv_http1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
