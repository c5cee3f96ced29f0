// SPDX-License-Identifier: Apache-2.0
/* Sessions of the library with the real server. */
#include "unit/client/failing_memory.h"
#include "unit/client/session_site.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#define WAIT_MS 20000

struct world {
    struct site site;
    char state_dir[96];
    struct tm_client *client;
};

static void open_client(struct world *w, enum tm_http http)
{
    struct tm_options o = TM_OPTIONS_INIT;
    o.server = w->site.url;
    o.http = http;
    assert_int_equal(tm_open(&o, &w->client), 0);
}

static struct world *world_of(void **state)
{
    return *state;
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    site_init(&w->site, "sync = never\n[session]\nhandler = echo\n");
    snprintf(w->state_dir, sizeof w->state_dir, "%s/state", w->site.folder);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    tm_close(w->client);
    site_deinit(&w->site);
    free(w);
    return 0;
}

static struct tm_session *begin(struct world *w, enum tm_service service, const char *key)
{
    struct tm_session_options o = TM_SESSION_INIT;
    struct tm_session *s = NULL;
    o.service = service;
    o.key = key;
    o.state_dir = w->state_dir;
    o.reconnect_ms = 50;
    int err = tm_session_new(w->client, &o, &s);
    if (err != 0)
        print_error("%s\n", tm_error(w->client));
    assert_int_equal(err, 0);
    return s;
}

/* The next event of this kind; others before it are passed over, but not an end. */
static struct tm_event next(struct tm_session *s, enum tm_event_kind kind)
{
    struct tm_event e;
    for (;;) {
        int got = tm_session_wait(s, &e, WAIT_MS);
        assert_int_equal(got, 1);
        if (e.kind == kind)
            return e;
        if (e.kind == TM_EVENT_END)
            fail_msg("ended: %d %s", e.err, e.text);
    }
}

static void send_text(struct tm_session *s, const char *text)
{
    assert_int_equal(tm_session_send(s, text, strlen(text), NULL), 0);
}

static void assert_chunk(struct tm_session *s, const char *id, const char *text)
{
    struct tm_event e = next(s, TM_EVENT_CHUNK);
    assert_string_equal(e.event_id, id);
    assert_int_equal(e.n, strlen(text));
    assert_memory_equal(e.data, text, e.n);
    assert_true(e.verified);
}

static void assert_end(struct tm_session *s, int err)
{
    struct tm_event e = next(s, TM_EVENT_END);
    assert_int_equal(e.err, err);
    assert_int_equal(tm_session_next(s, &e), TM_E_CLOSED);
}

static void converse(struct world *w, enum tm_http http)
{
    open_client(w, http);
    struct tm_session *s = begin(w, TM_SERVICE_TIDEMARK, NULL);
    assert_false(next(s, TM_EVENT_WELCOME).degraded);
    send_text(s, "one");
    assert_int_equal(next(s, TM_EVENT_ACK).seqno, 0);
    assert_chunk(s, "1", "one");
    for (int i = 0; i < 30; i++) {
        char text[32];
        snprintf(text, sizeof text, "text %d", i);
        send_text(s, text);
    }
    for (int i = 0; i < 30; i++) {
        char text[32], id[32];
        snprintf(text, sizeof text, "text %d", i);
        snprintf(id, sizeof id, "%d", i + 2);
        assert_chunk(s, id, text);
    }
    assert_int_equal(tm_session_unacknowledged(s), 0);
    assert_int_equal(tm_session_finish(s), 0);
    assert_end(s, 0);
    tm_session_free(s);
}

static void test_converse_http2(void **state)
{
    converse(world_of(state), TM_HTTP_AUTO);
}

static void test_converse_http1(void **state)
{
    converse(world_of(state), TM_HTTP_1);
}

/* The field 1 { field 1 { field 1 text } } of a StreamUnifiedChatRequestWithTools. */
static void send_chat(struct tm_session *s, const char *text)
{
    char chunk[64];
    size_t n = strlen(text);
    int k = snprintf(chunk, sizeof chunk, "\x0a%c\x0a%c\x0a%c%s", (char)(n + 4), (char)(n + 2),
                     (char)n, text);
    assert_int_equal(tm_session_send(s, chunk, (size_t)k, NULL), 0);
}

static void converse_aiserver(struct world *w, enum tm_http http)
{
    open_client(w, http);
    struct tm_session *s = begin(w, TM_SERVICE_AISERVER, NULL);
    send_chat(s, "hello");
    struct tm_event e = next(s, TM_EVENT_CHUNK);
    assert_string_equal(e.text, "hello");
    assert_string_equal(e.thinking, "");
    assert_string_equal(e.event_id, "1");
    assert_true(e.verified);
    assert_int_equal(tm_session_finish(s), 0);
    assert_end(s, 0);
    tm_session_free(s);
}

static void test_aiserver_http2(void **state)
{
    converse_aiserver(world_of(state), TM_HTTP_2);
}

static void test_aiserver_http1(void **state)
{
    converse_aiserver(world_of(state), TM_HTTP_1);
}

/* What was sent while nobody was there is answered when somebody is. */
static void survive_kill(struct world *w, enum tm_http http)
{
    open_client(w, http);
    struct tm_session *s = begin(w, TM_SERVICE_TIDEMARK, "kill");
    send_text(s, "before");
    assert_chunk(s, "1", "before");
    site_kill(&w->site);
    send_text(s, "meanwhile");
    assert_true(next(s, TM_EVENT_RECONNECT).text[0] != '\0');
    site_start(&w->site);
    assert_chunk(s, "2", "meanwhile");
    send_text(s, "after");
    assert_chunk(s, "3", "after");
    assert_int_equal(tm_session_finish(s), 0);
    assert_end(s, 0);
    tm_session_free(s);
}

static void test_kill_http2(void **state)
{
    survive_kill(world_of(state), TM_HTTP_AUTO);
}

static void test_kill_http1(void **state)
{
    survive_kill(world_of(state), TM_HTTP_1);
}

static int keep(void *ctx, struct tm_session *s, const char *generation)
{
    assert_string_equal(generation, "again");
    *(struct tm_session **)ctx = s;
    return 0;
}

/* The program lets go in the middle, and another life of it goes on. */
static void test_resume(void **state)
{
    struct world *w = world_of(state);
    open_client(w, TM_HTTP_AUTO);
    struct tm_session *s = begin(w, TM_SERVICE_TIDEMARK, "again");
    send_text(s, "one");
    send_text(s, "two");
    assert_chunk(s, "1", "one"); /* dealt with by the next line */
    assert_chunk(s, "2", "two"); /* this one is not */
    assert_string_equal(tm_session_event_id(s), "1");
    tm_session_free(s);
    tm_close(w->client);

    open_client(w, TM_HTTP_AUTO);
    struct tm_resume_options o = TM_RESUME_INIT;
    struct tm_resume_report report;
    o.resumed = keep;
    o.ctx = &s;
    s = NULL;
    assert_int_equal(tm_resume_all(w->client, w->state_dir, &o, &report), 0);
    assert_int_equal(report.resumed, 1);
    assert_non_null(s);
    assert_int_equal(tm_resume_all(w->client, w->state_dir, &o, &report), 0);
    assert_int_equal(report.in_use, 1);
    send_text(s, "three");
    assert_chunk(s, "2", "two");
    assert_chunk(s, "3", "three");
    assert_int_equal(tm_session_finish(s), 0);
    assert_end(s, 0);
    tm_session_free(s);
    assert_int_equal(tm_resume_all(w->client, w->state_dir, &o, &report), 0);
    assert_int_equal(report.resumed + report.in_use + report.refused, 0);
}

static void abort_it(struct world *w, enum tm_http http)
{
    open_client(w, http);
    struct tm_session *s = begin(w, TM_SERVICE_TIDEMARK, "stop");
    send_text(s, "one");
    assert_chunk(s, "1", "one");
    assert_int_equal(tm_session_abort(s), 0);
    assert_end(s, TM_E_CANCELLED);
    uint8_t secret[32];
    memcpy(secret, tm_session_secret(s), sizeof secret);
    tm_session_free(s);

    /* The server knows. */
    struct tm_session_options o = TM_SESSION_INIT;
    o.key = "stop";
    o.secret = secret;
    assert_int_equal(tm_session_new(w->client, &o, &s), 0);
    assert_end(s, TM_E_CANCELLED);
    tm_session_free(s);
}

static void test_abort_http2(void **state)
{
    abort_it(world_of(state), TM_HTTP_AUTO);
}

static void test_abort_http1(void **state)
{
    abort_it(world_of(state), TM_HTTP_1);
}

static void test_wrong_secret(void **state)
{
    struct world *w = world_of(state);
    struct tm_session_options o = TM_SESSION_INIT;
    struct tm_session *first, *second;
    open_client(w, TM_HTTP_AUTO);
    o.key = "mine";
    assert_int_equal(tm_session_new(w->client, &o, &first), 0);
    next(first, TM_EVENT_WELCOME);
    assert_int_equal(tm_session_new(w->client, &o, &second), 0);
    assert_end(second, TM_E_DENIED);
    o.secret = tm_session_secret(first);
    tm_session_free(second);
    assert_int_equal(tm_session_new(w->client, &o, &second), 0);
    next(second, TM_EVENT_WELCOME);
    assert_end(first, TM_E_REPLACED);
    tm_session_free(first);
    tm_session_free(second);
}

/* Calls it until there is memory: a call that failed for want of it may be made again. */
#define INSIST(call)                                                                               \
    do {                                                                                           \
        int insist_err = (call);                                                                   \
        if (insist_err == 0)                                                                       \
            break;                                                                                 \
        assert_int_equal(insist_err, TM_E_NOMEM);                                                  \
    } while (1)

/* A whole session, in which one allocation fails. Whether it was asked for. */
static bool session_without(struct world *w, enum tm_http http, size_t fail_at)
{
    struct failing_memory memory;
    struct tm_options o = TM_OPTIONS_INIT;
    struct tm_session_options so = TM_SESSION_INIT;
    struct tm_client *c;
    struct tm_session *s;
    failing_init(&memory);
    memory.fail_at = fail_at;
    o.server = w->site.url;
    o.http = http;
    o.allocator = &memory.allocator;
    so.state_dir = w->state_dir;
    so.reconnect_ms = 1;
    INSIST(tm_open(&o, &c));
    INSIST(tm_session_new(c, &so, &s));
    INSIST(tm_session_send(s, "one", 3, NULL));
    INSIST(tm_session_send(s, "two", 3, NULL));
    assert_chunk(s, "1", "one");
    INSIST(tm_session_put_result(s, "call", "result", 6));
    INSIST(tm_session_send(s, "three", 5, NULL));
    assert_chunk(s, "2", "two");
    assert_chunk(s, "3", "three");
    INSIST(tm_session_finish(s));
    assert_end(s, 0);
    tm_session_free(s);
    tm_close(c);
    assert_int_equal(memory.held, 0);
    return memory.asked >= fail_at;
}

static void test_no_memory(void **state)
{
    static const enum tm_http https[] = {TM_HTTP_AUTO, TM_HTTP_1};
    for (size_t i = 0; i < 2; i++) {
        size_t fail_at = 1;
        while (session_without(world_of(state), https[i], fail_at))
            fail_at++;
        assert_true(fail_at > 40);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_converse_http2), TEST(test_converse_http1), TEST(test_aiserver_http2),
        TEST(test_aiserver_http1), TEST(test_kill_http2),     TEST(test_kill_http1),
        TEST(test_resume),         TEST(test_abort_http2),    TEST(test_abort_http1),
        TEST(test_wrong_secret),   TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
