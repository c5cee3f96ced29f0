// SPDX-License-Identifier: Apache-2.0
/* Sessions as those see them who look after them: a transport of our own hands requests to the
 * surface, and sessions are made as a client makes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/units.h"
#include "feature/sessions/session.h"
#include "feature/sessions/session_doc.h"
#include "stream/subscriber.h"
#include "http/exchange.h"
#include "http/http.h"
#include "feature/sessions/session_status_http.h"
#include "store/mem/mem_store.h"
#include "telemetry/trace.h"

#include <jansson.h>

#define LIFETIME_MS (2 * HOUR_MS)
#define CREATED     "2027-01-15T08:00:00.000Z" /* the clock's first moment */

struct site {
    struct sched sched;
    struct store *store;
    struct feeds feeds;
    struct trace trace;
    struct sessions *sessions;
    struct http http;
    bool stopped;
    /* the last answer */
    int status;
    struct buf body;
    json_t *json; /* NULL: none */
    char allow[64];
};

/* ---- the server ---- */

static void on_stopped(void *ctx)
{
    ((struct site *)ctx)->stopped = true;
}

static int set_up(void **state)
{
    struct site *s = mem_zalloc(sizeof *s);
    sched_init(&s->sched, 1000, 1800000000000);
    s->store = mem_store_new(&s->sched);
    feeds_init(&s->feeds, s->store);
    s->trace = (struct trace){.to = stderr, .level = TRACE_ERROR};
    s->sessions = sessions_new(&(struct sessions_setup){.sched = &s->sched,
                                                        .store = s->store,
                                                        .feeds = &s->feeds,
                                                        .trace = &s->trace,
                                                        .backend = &session_echo,
                                                        .lifetime_ms = LIFETIME_MS,
                                                        .key_hold_ms = MINUTE_MS,
                                                        .max_open = 100,
                                                        .max_bytes = 1 << 20});
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct site *s = *state;
    sessions_stop(s->sessions, on_stopped, s);
    sched_drain(&s->sched);
    assert_true(s->stopped);
    sessions_free(s->sessions);
    feeds_deinit(&s->feeds);
    store_free(s->store);
    arena_cache_deinit(&s->http.arenas);
    json_decref(s->json);
    buf_deinit(&s->body);
    free(s);
    return 0;
}

static void pass(struct site *s, uint64_t ms)
{
    sched_turn(&s->sched, s->sched.now_ms + ms, s->sched.wall_ms + (int64_t)ms);
}

/* ---- asking ---- */

static void on_begin(struct exchange *x, int64_t length)
{
    struct site *s = x->transport;
    s->status = x->status;
    for (struct exchange_header *h = x->headers; h != NULL; h = h->next)
        if (str_eq_nocase(h->header.name, STR("Allow")))
            snprintf(s->allow, sizeof s->allow, "%.*s", (int)h->header.value.n, h->header.value.p);
}

static void on_put(struct exchange *x, struct slice slice)
{
    buf_put(&((struct site *)x->transport)->body, slice.bytes);
}

static void on_end(struct exchange *x)
{
    exchange_finish(x, false);
}

static const struct transport_ops via = {.begin = on_begin, .put = on_put, .end = on_end};

static const struct str worker_can[] = {STR_INIT("tool"), STR_INIT("worker")};
static const struct principal worker = {.name = STR_INIT("w"),
                                        .capabilities = worker_can,
                                        .n_capabilities = 2},
                              tool = {.name = STR_INIT("t"),
                                      .capabilities = worker_can,
                                      .n_capabilities = 1};

static void ask_as(struct site *s, const struct principal *who, enum method method,
                   const char *target, bool leaves)
{
    struct str rest = str_of_cstr(target), path = str_cut(&rest, '?');
    struct request req = {.method = method, .path = path, .query = rest};
    json_decref(s->json);
    s->body.n = 0;
    s->status = 0;
    *s->allow = '\0';
    struct exchange *x = exchange_new(&s->http, &via, s);
    x->request = &req;
    x->principal = who;
    x->head_only = method == METHOD_HEAD;
    exchange_hold(x);
    session_status_handle(s->sessions, x);
    if (leaves)
        exchange_finish(x, true);
    exchange_release(x);
    sched_drain(&s->sched);
    s->json = json_loadb(s->body.p ? s->body.p : "", s->body.n, 0, NULL);
}

static const json_t *get(struct site *s, const char *target)
{
    ask_as(s, &worker, METHOD_GET, target, false);
    assert_int_equal(s->status, 200);
    assert_non_null(s->json);
    return s->json;
}

static void assert_body(struct site *s, const char *expected)
{
    buf_putc(&s->body, '\0');
    assert_string_equal(s->body.p, expected);
}

static bool mentions(const struct site *s, const void *bytes, size_t n)
{
    return memmem(s->body.p, s->body.n, bytes, n) != NULL;
}

/* ---- a session's client ---- */

static const uint8_t secret[SESSION_SECRET_SIZE] = "one secret of thirty-two bytes..";

static void on_ready(struct session_client *c)
{
}

static const struct session_client_ops client_ops = {.ready = on_ready};

static void join(struct site *s, struct session_client *c, const char *key,
                 enum session_service service)
{
    *c = (struct session_client){.ops = &client_ops};
    session_connect(
        s->sessions, c,
        &(struct session_hello){.key = str_of_cstr(key), .secret = secret, .service = service});
    sched_drain(&s->sched);
}

static void hear(struct site *s, struct session_client *c)
{
    struct buf out = {0};
    sched_drain(&s->sched);
    while (session_next(c, &out) == SESSION_NEXT_MESSAGE)
        sched_drain(&s->sched);
    buf_deinit(&out);
}

static void say(struct site *s, struct session_client *c, struct str message)
{
    session_receive(c, message);
    hear(s, c);
}

/* A session that was used, and left. */
static void make(struct site *s, const char *key)
{
    struct session_client c;
    join(s, &c, key, SESSION_TIDEMARK);
    say(s, &c, STR("\x0a\x02hi\x28\x01"));
    session_disconnect(&c);
    sched_drain(&s->sched);
}

/* ---- what the store holds ---- */

static void on_put_done(struct store_put *p, int err)
{
    assert_int_equal(err, 0);
}

static void put_doc(struct site *s, const char *key, struct str value)
{
    struct doc_put doc = {.key = str_of_cstr(key), .value = value};
    struct store_put put = {.docs = &doc, .n_docs = 1, .done = on_put_done};
    store_put(s->store, &put);
    sched_drain(&s->sched);
}

/* The key of each row of a page. */
static void assert_keys(struct site *s, const char *target, const char *expected, const char *next)
{
    struct buf keys = {0};
    json_t *row;
    size_t i;
    const json_t *page = get(s, target);
    json_array_foreach(json_object_get(page, "sessions"), i, row)
        buf_printf(&keys, "%s ", json_string_value(json_object_get(row, "key")));
    buf_putc(&keys, '\0');
    assert_string_equal(keys.p, expected);
    if (next == NULL)
        assert_true(json_is_null(json_object_get(page, "next")));
    else
        assert_string_equal(json_string_value(json_object_get(page, "next")), next);
    buf_deinit(&keys);
}

/* ---- tests ---- */

static void a_server_without_sessions(void **state)
{
    struct site *s = *state;
    get(s, "/v1/session/");
    assert_body(s, "{\"sessions\":[],\"next\":null}\n");
}

static void others_find_nothing(void **state)
{
    struct site *s = *state;
    static const struct principal *const others[] = {&principal_anonymous, &tool};
    static const char *const targets[] = {"/v1/session/", "/v1/session/?limit=x", "/v1/session/a",
                                          "/v1/session/b"};
    make(s, "a");
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < 4; k++)
            for (int method = METHOD_GET; method <= METHOD_DELETE; method++) {
                if (method == METHOD_HEAD)
                    continue; /* without a body to compare */
                ask_as(s, others[i], (enum method)method, targets[k], false);
                assert_int_equal(s->status, 404);
                assert_body(
                    s, "{\"error\":{\"code\":\"NOT_FOUND\",\"message\":\"no such session\"}}\n");
            }
}

static void one_session_from_its_beginning_to_its_end(void **state)
{
    struct site *s = *state;
    struct session_client c;
    join(s, &c, "chat-1", SESSION_AISERVER);
    hear(s, &c);
    get(s, "/v1/session/");
    assert_body(s, "{\"sessions\":[{\"key\":\"chat-1\",\"service\":\"aiserver.v1\",\"created\":"
                   "\"" CREATED "\",\"connected\":true,\"keyHeld\":true,\"expired\":false,"
                   "\"answered\":0}],\"next\":null}\n");
    get(s, "/v1/session/chat-1");
    assert_body(s, "{\"key\":\"chat-1\",\"service\":\"aiserver.v1\",\"created\":\"" CREATED
                   "\",\"connected\":true,\"keyHeld\":true,\"expired\":false,\"answered\":0,"
                   "\"in\":{\"events\":0,\"bytes\":0,\"closed\":false},"
                   "\"out\":{\"events\":0,\"bytes\":0,\"end\":null}}\n");
    /* Its text, within a request of this service: see session_wire.proto. */
    say(s, &c, STR("\x0a\x0c\x0a\x0a\x0a\x08\x0a\x06please\x28\x07"));
    const json_t *row = get(s, "/v1/session/chat-1"), *in = json_object_get(row, "in");
    assert_int_equal(json_integer_value(json_object_get(row, "answered")), 1);
    assert_int_equal(json_integer_value(json_object_get(in, "events")), 1);
    assert_in_range(json_integer_value(json_object_get(in, "bytes")), 6, 200);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(row, "out"), "events")), 1);
    assert_false(mentions(s, "please", 6));
    assert_false(mentions(s, secret, 8));
    say(s, &c, STR("\x1a\x00")); /* close */
    assert_int_equal(c.over, SESSION_ENDED);
    session_disconnect(&c);
    pass(s, 5 * MINUTE_MS); /* the key is not held that long */
    row = get(s, "/v1/session/chat-1");
    assert_string_equal(json_string_value(json_object_get(json_object_get(row, "out"), "end")),
                        "completed");
    assert_true(json_is_false(json_object_get(row, "connected")));
    assert_true(json_is_false(json_object_get(row, "keyHeld")));
    assert_true(json_is_false(json_object_get(row, "expired")));
}

static void pages_in_order_of_keys(void **state)
{
    struct site *s = *state;
    static const char *const keys[] = {"b2", "a", "b1", "c", "b3"};
    for (size_t i = 0; i < 5; i++)
        make(s, keys[i]);
    assert_keys(s, "/v1/session/", "a b1 b2 b3 c ", NULL);
    assert_keys(s, "/v1/session/?limit=2", "a b1 ", "b1");
    assert_keys(s, "/v1/session/?limit=2&after=b1", "b2 b3 ", "b3");
    assert_keys(s, "/v1/session/?limit=2&after=b3", "c ", NULL);
    assert_keys(s, "/v1/session/?prefix=b", "b1 b2 b3 ", NULL);
    assert_keys(s, "/v1/session/?prefix=b&after=b1&limit=1", "b2 ", "b2");
    assert_keys(s, "/v1/session/?prefix=b&after=a", "b1 b2 b3 ", NULL);
    assert_keys(s, "/v1/session/?prefix=x", "", NULL);
}

/* One bad document must neither hide the others nor hold up who walks over them. */
static void a_document_that_cannot_be_read(void **state)
{
    struct site *s = *state;
    make(s, "a");
    put_doc(s, SESSION_DOC_PREFIX "b", STR("rubbish"));
    make(s, "c");
    assert_keys(s, "/v1/session/", "a c ", NULL);
    assert_keys(s, "/v1/session/?limit=1&after=a", "", "b");
    assert_keys(s, "/v1/session/?limit=1&after=b", "c ", NULL);
    ask_as(s, &worker, METHOD_GET, "/v1/session/b", false);
    assert_int_equal(s->status, 500);
}

static void wrong_questions(void **state)
{
    struct site *s = *state;
    static const struct {
        enum method method;
        int status;
        const char *target;
    } rows[] = {
        {METHOD_GET, 400, "/v1/session/?limit=0"},
        {METHOD_GET, 400, "/v1/session/?limit=1001"},
        {METHOD_GET, 400, "/v1/session/?limit="},
        {METHOD_GET, 400, "/v1/session/?limit=1&limit=2"},
        {METHOD_GET, 400, "/v1/session/?prefix=a%00"},
        {METHOD_GET, 400, "/v1/session/?prefix=a%2Fb"},
        {METHOD_GET, 400, "/v1/session/?after=%"},
        {METHOD_GET, 404, "/v1/session/b"},
        {METHOD_GET, 404, "/v1/session/a%00"},
        {METHOD_GET, 404, "/v1/session/a/in"},
        {METHOD_GET, 404, "/v1/session/%"},
        {METHOD_GET, 404, "/v1/session/%2e%2e"},
        {METHOD_POST, 405, "/v1/session/"},
        {METHOD_DELETE, 405, "/v1/session/a"},
        {METHOD_HEAD, 200, "/v1/session/a"},
        {METHOD_HEAD, 404, "/v1/session/b"},
        {METHOD_GET, 200, "/v1/session/?limit=1000&prefix=&after="},
        {METHOD_GET, 200, "/v1/session/%61"},
    };
    make(s, "a");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ask_as(s, &worker, rows[i].method, rows[i].target, false);
        if (s->status != rows[i].status)
            fail_msg("%s: %d", rows[i].target, s->status);
        assert_string_equal(s->allow, rows[i].status == 405 ? "GET, HEAD" : "");
    }
}

/* The streams go first. The list learns of it by the next sweep, who asks for one at once. */
static void expired_sessions(void **state)
{
    struct site *s = *state;
    make(s, "old");
    pass(s, LIFETIME_MS / 2);
    make(s, "new");
    pass(s, LIFETIME_MS / 2 + MINUTE_MS);
    const json_t *row = get(s, "/v1/session/old");
    assert_true(json_is_true(json_object_get(row, "expired")));
    assert_true(json_is_null(json_object_get(row, "in")));
    assert_true(json_is_null(json_object_get(row, "out")));
    row = get(s, "/v1/session/new");
    assert_true(json_is_false(json_object_get(row, "expired")));
    assert_true(json_is_object(json_object_get(row, "in")));
    pass(s, 11 * MINUTE_MS);
    row = json_object_get(get(s, "/v1/session/"), "sessions");
    assert_true(json_is_false(json_object_get(json_array_get(row, 0), "expired")));
    assert_true(json_is_true(json_object_get(json_array_get(row, 1), "expired")));
}

static void who_asks_may_leave(void **state)
{
    struct site *s = *state;
    make(s, "a");
    ask_as(s, &worker, METHOD_GET, "/v1/session/", true);
    assert_int_equal(s->status, 0);
    ask_as(s, &worker, METHOD_GET, "/v1/session/a", true);
    assert_int_equal(s->status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_server_without_sessions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(others_find_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_session_from_its_beginning_to_its_end, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(pages_in_order_of_keys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_document_that_cannot_be_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_questions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(expired_sessions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_asks_may_leave, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
