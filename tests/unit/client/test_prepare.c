// SPDX-License-Identifier: Apache-2.0
/* tm_options.prepare: what a program adds to its requests, as the server sees it. HTTP/2 is in
 * test_http2.c. */
#include "unit/client/failing_memory.h"
#include "unit/client/client_peer.h"

struct adding {
    unsigned calls;
    int (*add)(struct adding *a, struct tm_request *r);
    int last; /* what the last tm_request_ function said */
};

static int prepare(void *ctx, struct tm_request *r)
{
    struct adding *a = ctx;
    a->calls++;
    return a->add(a, r);
}

struct world {
    struct failing_memory mem;
    struct peer peer;
    struct conn conn;
    struct adding adding;
    struct tm_client *client;
};

static void world_open(struct world *w, int (*add)(struct adding *a, struct tm_request *r))
{
    struct tm_options o = TM_OPTIONS_INIT;
    *w = (struct world){.conn = CONN_NONE, .adding = {.add = add}};
    failing_init(&w->mem);
    peer_init(&w->peer);
    o.server = w->peer.url;
    o.token = "fixed";
    o.retry_first_ms = o.retry_max_ms = 1;
    o.allocator = &w->mem.allocator;
    o.prepare = prepare;
    o.prepare_ctx = &w->adding;
    assert_int_equal(tm_open(&o, &w->client), 0);
}

static void world_close(struct world *w)
{
    tm_close(w->client);
    assert_int_equal(w->mem.held, 0);
    assert_int_equal(w->mem.leaks, 0);
    conn_close(&w->conn);
    peer_deinit(&w->peer);
}

/* The next request, and `answer` to it. A pointer to what it said, until the next one. */
static const char *serve(struct world *w, const char *answer)
{
    static char request[4096];
    struct conn *k = &w->conn;
    struct patience p = patience_new();
    while (k->in.n == 0 || strstr(k->in.p, "\r\n\r\n") == NULL) {
        tm_turn(w->client);
        if (k->fd < 0)
            peer_accept(&w->peer, k);
        conn_step(k);
        patience_spend(&p);
    }
    snprintf(request, sizeof request, "%s", k->in.p);
    k->in.n = 0;
    conn_put(k, answer);
    conn_step(k);
    return request;
}

static int finish(struct world *w, struct tm_call *call)
{
    struct patience p = patience_new();
    while (!tm_call_done(call)) {
        conn_step(&w->conn);
        tm_turn(w->client);
        patience_spend(&p);
    }
    int err = tm_call_wait(call, 0);
    tm_call_free(call);
    return err;
}

#define OK   "HTTP/1.1 200 OK\r\nstream-next-offset: 1\r\ncontent-length: 0\r\n\r\n"
#define BUSY "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n"

static void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("no %s in %s", part, text);
}

/* ---- each request ---- */

static int add_count(struct adding *a, struct tm_request *r)
{
    char text[16];
    snprintf(text, sizeof text, "%u", a->calls);
    assert_int_equal(tm_request_header(r, "X-Count", text), 0);
    return tm_request_param(r, "n", text);
}

static void each_request_is_prepared_anew(void **state)
{
    struct world w;
    struct tm_call *call = NULL;
    (void)state;
    world_open(&w, add_count);
    assert_int_equal(tm_head(w.client, "a", &call), 0);
    const char *said = serve(&w, BUSY);
    assert_has(said, "HEAD /v1/stream/a?n=1 HTTP/1.1\r\n");
    assert_has(said, "\r\nx-count: 1\r\n");
    /* A retry is another request. */
    said = serve(&w, OK);
    assert_has(said, "HEAD /v1/stream/a?n=2 HTTP/1.1\r\n");
    assert_has(said, "\r\nx-count: 2\r\n");
    assert_has(said, "\r\nauthorization: Bearer fixed\r\n");
    assert_int_equal(finish(&w, call), 0);
    world_close(&w);
}

static void followers_and_producers_are_prepared(void **state)
{
    struct world w;
    struct tm_follower *f = NULL;
    struct tm_producer *p = NULL;
    struct tm_batch b;
    (void)state;
    world_open(&w, add_count);
    assert_int_equal(tm_follower_new(w.client, "a", NULL, &f), 0);
    assert_has(serve(&w, BUSY), "GET /v1/stream/a?offset=-1&n=1 HTTP/1.1\r\n");
    assert_has(serve(&w, OK), "GET /v1/stream/a?offset=-1&n=2 HTTP/1.1\r\n");
    struct patience patience = patience_new();
    while (tm_follower_next(f, &b) == 0) {
        conn_step(&w.conn);
        tm_turn(w.client);
        patience_spend(&patience);
    }
    tm_follower_free(f);
    conn_close(&w.conn);
    assert_int_equal(tm_producer_new(w.client, "a", NULL, &p), 0);
    assert_int_equal(tm_producer_append(p, "x", 1), 0);
    assert_has(serve(&w, BUSY), "POST /v1/stream/a?n=3 HTTP/1.1\r\n");
    assert_has(serve(&w, OK), "POST /v1/stream/a?n=4 HTTP/1.1\r\n");
    tm_producer_free(p);
    world_close(&w);
}

/* ---- what can be added ---- */

static int add_token(struct adding *a, struct tm_request *r)
{
    assert_string_equal(tm_request_method(r), "POST");
    assert_string_equal(tm_request_path(r), "/v1/stream/a");
    assert_int_equal(tm_request_header(r, "Authorization", "Bearer renewed-secret"), 0);
    assert_int_equal(tm_request_header(r, "User-Agent", "mine"), 0);
    assert_int_equal(tm_request_param(r, "sig", "a b&c=/"), 0);
    assert_int_equal(tm_request_param(r, "two", "renewed-secret"), 0);
    /* What the request has stays, and so does what was added before. */
    assert_int_equal(tm_request_header(r, "CONTENT-type", "text/html"), TM_E_CONFLICT);
    assert_int_equal(tm_request_header(r, "authorization", "Bearer other"), TM_E_CONFLICT);
    (void)a;
    return 0;
}

static void what_is_added_goes_in_place_of_ours(void **state)
{
    struct world w;
    struct tm_append_options o = TM_APPEND_INIT;
    struct tm_call *call = NULL;
    (void)state;
    world_open(&w, add_token);
    w.mem.secret = "renewed-secret"; /* is wiped */
    o.content_type = "text/plain";
    o.data = "x";
    o.n = 1;
    assert_int_equal(tm_append(w.client, "a", &o, &call), 0);
    const char *said = serve(&w, OK);
    assert_has(said, "POST /v1/stream/a?sig=a%20b%26c%3D%2F&two=renewed-secret HTTP/1.1\r\n");
    assert_has(said, "\r\nauthorization: Bearer renewed-secret\r\n");
    assert_has(said, "\r\nuser-agent: mine\r\n");
    assert_has(said, "\r\ncontent-type: text/plain\r\n");
    assert_null(strstr(said, "fixed"));
    assert_null(strstr(said, "libtidemark"));
    assert_null(strstr(said, "html"));
    assert_null(strstr(said, "other"));
    assert_int_equal(finish(&w, call), 0);
    world_close(&w);
}

static int add_nothing(struct adding *a, struct tm_request *r)
{
    (void)a, (void)r;
    return 0;
}

/* A token of one call goes before that of the client. */
static void a_call_may_have_its_own_token(void **state)
{
    struct world w;
    struct tm_call *call = NULL;
    (void)state;
    world_open(&w, add_nothing);
    assert_int_equal(tm_head(w.client, "a", &call), 0);
    assert_int_equal(tm_call_header(call, "Authorization", "Bearer own"), 0);
    const char *said = serve(&w, OK);
    assert_has(said, "\r\nauthorization: Bearer own\r\n");
    assert_null(strstr(said, "fixed"));
    assert_int_equal(finish(&w, call), 0);
    world_close(&w);
}

static int add_odd_names(struct adding *a, struct tm_request *r)
{
    static char large[2000];
    (void)a;
    memset(large, 'x', sizeof large - 1);
    int err = tm_request_param(r, "a b\r\nc: d&e=", "renewed-secret");
    return err ? err : tm_request_param(r, "large", large);
}

/* A name cannot become anything else, and what the parameters grow out of is wiped. */
static void names_of_parameters_are_encoded(void **state)
{
    struct world w;
    struct tm_call *call = NULL;
    (void)state;
    world_open(&w, add_odd_names);
    w.mem.secret = "renewed-secret";
    assert_int_equal(tm_head(w.client, "a", &call), 0);
    const char *said = serve(&w, OK);
    assert_has(said, "HEAD /v1/stream/a?a%20b%0D%0Ac%3A%20d%26e%3D=renewed-secret&large=xxx");
    assert_int_equal(finish(&w, call), 0);
    world_close(&w);
}

/* ---- what cannot ---- */

static int add_bad_name(struct adding *a, struct tm_request *r)
{
    a->last = tm_request_header(r, "a b", "c");
    return 0; /* though it went wrong */
}

static int add_bad_value(struct adding *a, struct tm_request *r)
{
    return a->last = tm_request_header(r, "a", "b\r\nc: d");
}

static int add_length(struct adding *a, struct tm_request *r)
{
    return a->last = tm_request_header(r, "Content-Length", "7");
}

static int add_host(struct adding *a, struct tm_request *r)
{
    return a->last = tm_request_header(r, "host", "elsewhere");
}

static int add_nameless(struct adding *a, struct tm_request *r)
{
    return a->last = tm_request_param(r, "", "x");
}

static int add_many(struct adding *a, struct tm_request *r)
{
    char name[16];
    for (int i = 0; i < 16; i++) {
        snprintf(name, sizeof name, "x-%d", i);
        assert_int_equal(tm_request_header(r, name, "v"), 0);
    }
    return a->last = tm_request_header(r, "x-16", "v");
}

static int add_large(struct adding *a, struct tm_request *r)
{
    static char large[32 * 1024 + 1];
    memset(large, 'x', sizeof large - 1);
    a->last = tm_request_header(r, "x", large);
    assert_int_equal(tm_request_param(r, "x", large), TM_E_TOO_LARGE);
    return 0;
}

static int refuse(struct adding *a, struct tm_request *r)
{
    (void)r;
    return a->last = TM_E_DENIED;
}

static const struct bad {
    int (*add)(struct adding *a, struct tm_request *r);
    int err;
    const char *sentence;
} bads[] = {
    {add_bad_name, TM_E_INVALID, "/v1/stream/a: prepare has set what cannot be a header"},
    {add_bad_value, TM_E_INVALID, "/v1/stream/a: prepare has set what cannot be a header"},
    {add_length, TM_E_INVALID, "/v1/stream/a: prepare has set what cannot be a header"},
    {add_host, TM_E_INVALID, "/v1/stream/a: prepare has set what cannot be a header"},
    {add_nameless, TM_E_INVALID,
     "/v1/stream/a: prepare has set a parameter without a name or value"},
    {add_many, TM_E_TOO_LARGE, "/v1/stream/a: prepare has set too many headers"},
    {add_large, TM_E_TOO_LARGE, "/v1/stream/a: prepare has set too many headers"},
    {refuse, TM_E_DENIED, "/v1/stream/a: prepare has refused the request"},
};

static void what_cannot_be_added_is_not_sent(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        struct world w;
        struct tm_call *call = NULL;
        struct tm_follower *f = NULL;
        struct tm_producer *p = NULL;
        struct tm_batch b;
        world_open(&w, bads[i].add);
        assert_int_equal(tm_head(w.client, "a", &call), 0);
        assert_int_equal(tm_call_wait(call, 1000), bads[i].err);
        assert_string_equal(tm_error(w.client), bads[i].sentence);
        assert_int_equal(w.adding.last, bads[i].err);
        assert_int_equal(w.adding.calls, 1);
        tm_call_free(call);
        assert_int_equal(tm_follower_new(w.client, "a", NULL, &f), 0);
        assert_int_equal(tm_follower_wait(f, &b, 1000), bads[i].err);
        assert_string_equal(tm_error(w.client), bads[i].sentence);
        tm_follower_free(f);
        assert_int_equal(tm_producer_new(w.client, "a", NULL, &p), 0);
        assert_int_equal(tm_producer_append(p, "x", 1), 0);
        assert_int_equal(tm_producer_flush(p, 1000), bads[i].err);
        assert_string_equal(tm_error(w.client), bads[i].sentence);
        tm_producer_free(p);
        assert_false(peer_accept(&w.peer, &w.conn));
        world_close(&w);
    }
}

static int refuse_oddly(struct adding *a, struct tm_request *r)
{
    (void)a, (void)r;
    return 1;
}

/* A session tries again, as after a lost connection. */
static void sessions_are_prepared(void **state)
{
    struct world w;
    struct tm_session *s = NULL;
    struct tm_event e = {0};
    (void)state;
    world_open(&w, refuse_oddly);
    assert_int_equal(tm_session_new(w.client, NULL, &s), 0);
    assert_int_equal(tm_session_wait(s, &e, 3000), 1);
    assert_int_equal(e.kind, TM_EVENT_RECONNECT);
    assert_int_equal(e.err, TM_E_CANCELLED);
    assert_string_equal(e.text, "prepare has refused the request");
    w.adding.add = add_count;
    struct patience p = patience_new();
    while (!peer_accept(&w.peer, &w.conn)) {
        tm_wait(w.client, 50);
        patience_spend(&p);
    }
    assert_int_equal(w.adding.calls, 2);
    tm_session_free(s);
    world_close(&w);
}

/* ---- memory ---- */

static int add_token_or_fail(struct adding *a, struct tm_request *r)
{
    (void)a;
    int err = tm_request_header(r, "Authorization", "Bearer renewed-secret");
    if (err == 0)
        err = tm_request_param(r, "sig", "a b&c=/");
    return err ? err : tm_request_param(r, "two", "renewed-secret");
}

/* Fails, or goes as it should: with all or not at all. False: nothing has failed any more. */
static bool run_without(size_t nth)
{
    struct world w;
    struct tm_call *call = NULL;
    world_open(&w, add_token_or_fail);
    w.mem.secret = "renewed-secret";
    struct tm_append_options o = TM_APPEND_INIT;
    o.content_type = "text/plain";
    o.data = "x";
    o.n = 1;
    assert_int_equal(tm_append(w.client, "a", &o, &call), 0);
    w.mem.fail_at = w.mem.asked + nth;
    struct patience p = patience_new();
    while (!tm_call_done(call) && w.conn.in.n == 0) {
        tm_turn(w.client);
        if (w.conn.fd < 0)
            peer_accept(&w.peer, &w.conn);
        conn_step(&w.conn);
        patience_spend(&p);
    }
    bool failed = w.mem.asked >= w.mem.fail_at;
    if (!tm_call_done(call))
        assert_has(w.conn.in.p, "?sig=a%20b%26c%3D%2F&two=renewed-secret HTTP/1.1\r\n");
    else
        assert_int_equal(tm_call_error(call), TM_E_NOMEM);
    tm_call_free(call);
    world_close(&w);
    return failed;
}

static void every_allocation_may_fail(void **state)
{
    size_t nth = 1;
    (void)state;
    while (run_without(nth))
        nth++;
    assert_true(nth > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_request_is_prepared_anew),
        cmocka_unit_test(followers_and_producers_are_prepared),
        cmocka_unit_test(what_is_added_goes_in_place_of_ours),
        cmocka_unit_test(names_of_parameters_are_encoded),
        cmocka_unit_test(a_call_may_have_its_own_token),
        cmocka_unit_test(what_cannot_be_added_is_not_sent),
        cmocka_unit_test(sessions_are_prepared),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
