// SPDX-License-Identifier: Apache-2.0
/* Whole sessions, producers and followers with the real server, in which each allocation fails once
 * in turn, and then several in a row. Nothing may leak or be half done: every call succeeds or says
 * TM_E_NOMEM and can be made again, and at the end all has arrived exactly once. */
#include "unit/client/session_site.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#define WAIT_MS 20000
#define CALLS   1000 /* in vain, before a test is taken for hung */

/* ---- memory ---- */

struct memory {
    struct tm_allocator allocator;
    size_t asked;
    size_t fail_at, fail_for; /* from this time on, so often, there is none */
    size_t held;              /* blocks */
};

static void *memory_alloc(void *ctx, void *p, size_t n)
{
    struct memory *m = ctx;
    assert_true(n > 0);
    m->asked++;
    if (m->asked >= m->fail_at && m->asked < m->fail_at + m->fail_for)
        return NULL;
    m->held += p == NULL;
    return realloc(p, n);
}

static void memory_free(void *ctx, void *p)
{
    struct memory *m = ctx;
    m->held -= p != NULL;
    free(p);
}

/* Calls it until there is memory. What was to be made must not be there before. */
#define INSIST(call)                                                                               \
    do {                                                                                           \
        int insist_err, insist_calls = 0;                                                          \
        while ((insist_err = (call)) != 0) {                                                       \
            assert_int_equal(insist_err, TM_E_NOMEM);                                              \
            assert_true(++insist_calls < CALLS);                                                   \
        }                                                                                          \
    } while (0)

/* ---- one run ---- */

struct run {
    struct site site;
    char state_dir[96];
    enum tm_http http;
    unsigned number; /* names are not used twice */
    struct memory memory;
    struct tm_client *client;
};

static void open_client(struct run *r)
{
    struct tm_options o = TM_OPTIONS_INIT;
    o.server = r->site.url;
    o.http = r->http;
    o.allocator = &r->memory.allocator;
    o.retry_first_ms = o.retry_max_ms = 1;
    INSIST(tm_open(&o, &r->client));
    assert_non_null(r->client);
}

/* The next event but for those about connections, of which a failure may make more. */
static struct tm_event next(struct tm_session *s)
{
    struct tm_event e;
    for (int calls = 0;; calls++) {
        int got = tm_session_wait(s, &e, WAIT_MS);
        assert_true(calls < CALLS);
        if (got == TM_E_NOMEM)
            continue;
        assert_int_equal(got, 1);
        if (e.kind != TM_EVENT_WELCOME && e.kind != TM_EVENT_RECONNECT)
            return e;
    }
}

/* Chunks come in order and once; acks may come on either side of them. */
static void expect(struct tm_session *s, unsigned id, const char *text)
{
    struct tm_event e;
    while (e = next(s), e.kind == TM_EVENT_ACK)
        ;
    assert_int_equal(e.kind, TM_EVENT_CHUNK);
    assert_int_equal(strtoul(e.event_id, NULL, 10), id);
    assert_int_equal(e.n, strlen(text));
    assert_memory_equal(e.data, text, e.n);
    assert_true(e.verified);
}

static void expect_end(struct tm_session *s)
{
    struct tm_event e;
    while (e = next(s), e.kind == TM_EVENT_ACK)
        ;
    assert_int_equal(e.kind, TM_EVENT_END);
    assert_int_equal(e.err, 0);
    assert_int_equal(tm_session_next(s, &e), TM_E_CLOSED);
}

static int keep(void *ctx, struct tm_session *s, const char *generation)
{
    struct tm_session **kept = ctx;
    assert_null(*kept);
    *kept = s;
    return 0;
}

static int resume(struct run *r, struct tm_session **out)
{
    struct tm_resume_options o = TM_RESUME_INIT;
    struct tm_session_options so = TM_SESSION_INIT;
    so.reconnect_ms = 1;
    o.session = &so;
    o.resumed = keep;
    o.ctx = out;
    int err = tm_resume_all(r->client, r->state_dir, &o, NULL);
    return *out != NULL ? 0 : err; /* one that was handed out before the failure is ours */
}

/* Opened, left in the middle, resumed by another client, and finished. */
static void talk(struct run *r)
{
    struct tm_session_options o = TM_SESSION_INIT;
    struct tm_session *s = NULL;
    o.state_dir = r->state_dir;
    o.reconnect_ms = 1;
    INSIST(tm_session_new(r->client, &o, &s));
    INSIST(tm_session_send(s, "one", 3, NULL));
    INSIST(tm_session_send(s, "two", 3, NULL));
    expect(s, 1, "one");
    INSIST(tm_session_put_result(s, "call", "result", 6));
    expect(s, 2, "two");
    INSIST(tm_session_send(s, "three", 5, NULL));
    assert_int_equal(tm_session_next_seqno(s), 3);
    tm_session_free(s);
    tm_close(r->client);

    open_client(r);
    s = NULL;
    INSIST(resume(r, &s));
    assert_non_null(s);
    assert_int_equal(tm_session_next_seqno(s), 3);
    INSIST(tm_session_send(s, "four", 4, NULL));
    expect(s, 2, "two"); /* was not dealt with */
    expect(s, 3, "three");
    expect(s, 4, "four");
    INSIST(tm_session_finish(s));
    expect_end(s);
    tm_session_free(s);
}

static void finish_call(struct tm_call *call)
{
    int err, calls = 0;
    while ((err = tm_call_wait(call, WAIT_MS)) == TM_E_NOMEM && !tm_call_done(call))
        assert_true(++calls < CALLS);
    assert_int_equal(err, 0);
    tm_call_free(call);
}

/* A call that has failed for want of memory is over; another one is made. */
static void create(struct run *r, const char *name)
{
    struct tm_create_options o = TM_CREATE_INIT;
    o.content_type = "application/json";
    for (int calls = 0;; calls++) {
        struct tm_call *call = NULL;
        INSIST(tm_create(r->client, name, &o, &call));
        int err = tm_call_wait(call, WAIT_MS);
        tm_call_free(call);
        if (err == 0)
            return;
        assert_int_equal(err, TM_E_NOMEM);
        assert_true(calls < CALLS);
    }
}

static void produce(struct run *r, const char *name)
{
    struct tm_producer_options o = TM_PRODUCER_INIT;
    struct tm_producer *p = NULL;
    o.content_type = "application/json";
    o.batch_bytes = 8;
    o.linger_ms = 1;
    INSIST(tm_producer_new(r->client, name, &o, &p));
    for (unsigned i = 0; i < 12; i++) {
        char text[16];
        int n = snprintf(text, sizeof text, "%u", i);
        INSIST(tm_producer_append(p, text, (size_t)n));
    }
    INSIST(tm_producer_flush(p, WAIT_MS));
    assert_int_equal(tm_producer_error(p), 0);
    INSIST(tm_producer_close(p, "12", 2, WAIT_MS));
    assert_int_equal(tm_producer_pending(p), 0);
    tm_producer_free(p);
}

static void follow(struct run *r, const char *name, enum tm_live live)
{
    struct tm_follow_options o = TM_FOLLOW_INIT;
    struct tm_follower *f = NULL;
    unsigned got = 0;
    o.live = live;
    o.json_values = 1;
    INSIST(tm_follower_new(r->client, name, &o, &f));
    for (int calls = 0;; calls++) {
        struct tm_batch b;
        char right[16];
        int more = tm_follower_wait(f, &b, WAIT_MS);
        assert_true(calls < CALLS);
        if (more == TM_E_CLOSED)
            break;
        if (more == TM_E_NOMEM)
            continue;
        assert_int_equal(more, 1);
        if (b.n == 0)
            continue;
        snprintf(right, sizeof right, "%u", got++);
        assert_int_equal(b.n, strlen(right));
        assert_memory_equal(b.data, right, b.n);
    }
    assert_int_equal(got, 13);
    tm_follower_free(f);
}

static void stream(struct run *r)
{
    char name[32];
    struct tm_call *call = NULL;
    snprintf(name, sizeof name, "stream-%u", r->number);
    create(r, name);
    produce(r, name);
    follow(r, name, TM_LIVE_LONG_POLL);
    follow(r, name, TM_LIVE_AUTO);
    r->memory.fail_for = 0;
    INSIST(tm_delete(r->client, name, &call));
    finish_call(call);
}

/* ---- tests ---- */

/* Nothing is left of sessions that are over. */
static void assert_no_state(const struct run *r)
{
    DIR *dir = opendir(r->state_dir);
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        size_t n = strlen(entry->d_name);
        if (n > 5 && strcmp(entry->d_name + n - 5, ".json") == 0)
            fail_msg("%s was left when allocation %zu failed", entry->d_name, r->memory.fail_at);
    }
    if (dir != NULL)
        closedir(dir);
}

/* Whether the failure came about. */
static bool run_without(struct run *r, void (*part)(struct run *r), size_t fail_at, size_t fail_for)
{
    r->number++;
    r->memory = (struct memory){.allocator = {&r->memory, memory_alloc, memory_free},
                                .fail_at = fail_at,
                                .fail_for = fail_for};
    open_client(r);
    part(r);
    tm_close(r->client);
    assert_int_equal(r->memory.held, 0);
    assert_no_state(r);
    return r->memory.asked >= fail_at;
}

static void each_in_turn(void (*part)(struct run *r), enum tm_http http, size_t fail_for)
{
    struct run r = {.http = http};
    size_t fail_at = 1;
    site_init(&r.site, "sync = never\n[session]\nhandler = echo\n");
    snprintf(r.state_dir, sizeof r.state_dir, "%s/state", r.site.folder);
    while (run_without(&r, part, fail_at, fail_for))
        fail_at += fail_for == 1 ? 1 : fail_for - 1;
    print_message("%zu allocations\n", r.memory.asked);
    assert_true(r.memory.asked > 40);
    site_deinit(&r.site);
}

static void test_session_http2(void **state)
{
    each_in_turn(talk, TM_HTTP_2, 1);
}

static void test_session_http1(void **state)
{
    each_in_turn(talk, TM_HTTP_1, 1);
}

static void test_session_several(void **state)
{
    each_in_turn(talk, TM_HTTP_AUTO, 7);
}

static void test_stream_http1(void **state)
{
    each_in_turn(stream, TM_HTTP_1, 1);
}

static void test_stream_http2(void **state)
{
    each_in_turn(stream, TM_HTTP_2, 1);
}

static void test_stream_several(void **state)
{
    each_in_turn(stream, TM_HTTP_AUTO, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session_http2),   cmocka_unit_test(test_session_http1),
        cmocka_unit_test(test_session_several), cmocka_unit_test(test_stream_http1),
        cmocka_unit_test(test_stream_http2),    cmocka_unit_test(test_stream_several),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
