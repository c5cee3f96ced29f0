// SPDX-License-Identifier: Apache-2.0
/* HTTP/2 of the library, against nghttp2's own server side. */
#include "unit/client/client_peer.h"

#include <nghttp2/nghttp2.h>

#define STREAMS_MAX 32

/* How a stream is answered. */
struct plan {
    size_t body_n;        /* bytes of the answer; each is as body_byte says */
    bool echo;            /* the request's body comes back, as it comes */
    bool trailers;        /* x-trailer: there */
    bool no_answer;       /* yet */
    bool early;           /* before the request is complete */
    uint32_t reset;       /* instead of an answer, with this code */
    bool interim;         /* 103 before it */
    size_t large_head;    /* bytes of a header; it comes three times */
    uint32_t max_streams; /* 0: 100 */
    size_t flip;          /* a bit of this byte, from 1 on, of whatever is sent in one go */
};

struct server_stream {
    int32_t id; /* 0: free */
    struct heap body;
    bool complete, deferred;
    size_t sent;
    char path[64], token[64], length[16];
};

struct server {
    struct conn conn;
    nghttp2_session *session;
    const struct plan *plan;
    struct server_stream streams[STREAMS_MAX];
    unsigned requests, resets, pings, secrets;
};

static char body_byte(size_t i)
{
    return (char)('a' + (i * 7 + (i >> 13)) % 26);
}

static struct server_stream *stream_of(struct server *s, int32_t id)
{
    for (int i = 0; i < STREAMS_MAX; i++)
        if (s->streams[i].id == id)
            return &s->streams[i];
    return NULL;
}

static ssize_t server_body(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room,
                           uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct server *s = user;
    struct server_stream *x = stream_of(s, id);
    size_t total = s->plan->echo ? x->body.n : s->plan->body_n;
    size_t n = total - x->sent < room ? total - x->sent : room;
    for (size_t i = 0; i < n; i++)
        buf[i] = (uint8_t)(s->plan->echo ? x->body.p[x->sent + i] : body_byte(x->sent + i));
    x->sent += n;
    bool all = x->sent == total && (!s->plan->echo || x->complete);
    if (n == 0 && !all) {
        x->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (!all)
        return (ssize_t)n;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (s->plan->trailers) {
        nghttp2_nv nv = {(uint8_t *)"x-trailer", (uint8_t *)"there", 9, 5, 0};
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        assert_int_equal(nghttp2_submit_trailer(session, id, &nv, 1), 0);
    }
    return (ssize_t)n;
}

static void server_answer(struct server *s, struct server_stream *x)
{
    const struct plan *plan = s->plan;
    nghttp2_data_provider body = {.read_callback = server_body};
    char *large = calloc(1, plan->large_head + 1);
    memset(large, 'x', plan->large_head);
    nghttp2_nv nv[] = {
        {(uint8_t *)":status", (uint8_t *)"200", 7, 3, 0},
        {(uint8_t *)"content-type", (uint8_t *)"text/plain", 12, 10, 0},
        {(uint8_t *)"x-large", (uint8_t *)large, 7, plan->large_head, 0},
        {(uint8_t *)"x-large", (uint8_t *)large, 7, plan->large_head, 0},
        {(uint8_t *)"x-large", (uint8_t *)large, 7, plan->large_head, 0},
    };
    nghttp2_nv early = {(uint8_t *)":status", (uint8_t *)"103", 7, 3, 0};
    if (plan->reset != 0) {
        nghttp2_submit_rst_stream(s->session, 0, x->id, plan->reset);
    } else if (!plan->no_answer) {
        if (plan->interim)
            nghttp2_submit_headers(s->session, 0, x->id, NULL, &early, 1, NULL);
        nghttp2_submit_response(s->session, x->id, nv, plan->large_head > 0 ? 5 : 2, &body);
    }
    free(large);
}

static int server_begin(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct server *s = user;
    struct server_stream *x = stream_of(s, 0);
    assert_non_null(x);
    *x = (struct server_stream){.id = frame->hd.stream_id};
    s->requests++;
    return 0;
}

static int server_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                         size_t name_n, const uint8_t *value, size_t n, uint8_t flags, void *user)
{
    struct server *s = user;
    struct server_stream *x = stream_of(s, frame->hd.stream_id);
    s->secrets += (flags & NGHTTP2_NV_FLAG_NO_INDEX) != 0;
    char *out = strcmp((const char *)name, ":path") == 0            ? x->path
                : strcmp((const char *)name, "authorization") == 0  ? x->token
                : strcmp((const char *)name, "content-length") == 0 ? x->length
                                                                    : NULL;
    if (out != NULL)
        memcpy(out, value, n + 1);
    return 0;
}

static int server_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
                       size_t n, void *user)
{
    struct server *s = user;
    struct server_stream *x = stream_of(s, id);
    heap_put(&x->body, p, n);
    if (x->deferred) {
        x->deferred = false;
        nghttp2_session_resume_data(session, id);
    }
    return 0;
}

static int server_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct server *s = user;
    struct server_stream *x = stream_of(s, frame->hd.stream_id);
    bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (frame->hd.type == NGHTTP2_RST_STREAM)
        s->resets++;
    if (frame->hd.type == NGHTTP2_PING)
        s->pings++;
    if (x == NULL || x->id == 0 ||
        (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    x->complete |= end;
    if (x->deferred && end)
        nghttp2_session_resume_data(session, x->id);
    bool early = s->plan->echo || s->plan->early;
    if (early ? frame->hd.type == NGHTTP2_HEADERS : end)
        server_answer(s, x);
    return 0;
}

static int server_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    struct server_stream *x = stream_of(user, id);
    heap_free(&x->body);
    x->id = 0;
    return 0;
}

static void server_open(struct server *s)
{
    nghttp2_session_callbacks *calls;
    nghttp2_option *option;
    nghttp2_settings_entry max = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
                                  s->plan->max_streams != 0 ? s->plan->max_streams : 100};
    nghttp2_session_callbacks_new(&calls);
    nghttp2_session_callbacks_set_on_begin_headers_callback(calls, server_begin);
    nghttp2_session_callbacks_set_on_header_callback(calls, server_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, server_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(calls, server_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(calls, server_stream_close);
    assert_int_equal(nghttp2_option_new(&option), 0);
    nghttp2_option_set_max_send_header_block_length(option, 1 << 20);
    assert_int_equal(nghttp2_session_server_new2(&s->session, calls, s, option), 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(calls);
    assert_int_equal(nghttp2_submit_settings(s->session, 0, &max, 1), 0);
}

static void server_close(struct server *s)
{
    nghttp2_session_del(s->session);
    for (int i = 0; i < STREAMS_MAX; i++)
        heap_free(&s->streams[i].body);
    conn_close(&s->conn);
    *s = (struct server){.conn = CONN_NONE};
}

static void server_step(struct server *s)
{
    const uint8_t *p;
    ssize_t n;
    if (s->conn.out.n > 0 && s->plan->flip != 0 && s->plan->flip <= s->conn.out.n) {
        s->conn.out.p[s->plan->flip - 1] ^= (char)(1 << s->plan->flip % 8);
    }
    conn_step(&s->conn);
    if (s->conn.fd < 0)
        return;
    if (s->conn.in.n > 0) {
        n = nghttp2_session_mem_recv(s->session, (uint8_t *)s->conn.in.p, s->conn.in.n);
        assert_true(n >= 0);
        s->conn.in.n = 0;
    }
    while (s->conn.out.n < 65536 && (n = nghttp2_session_mem_send(s->session, &p)) > 0)
        conn_write(&s->conn, p, (size_t)n);
}

/* ---- a client and its servers ---- */

#define SERVERS 3

struct world {
    struct memory mem;
    struct peer peer;
    struct plan plan;
    struct server servers[SERVERS]; /* in the order of their connections */
    struct tm_client *client;
};

static int world_open(struct world *w, const struct plan *plan, size_t fail_at)
{
    struct tm_options o = TM_OPTIONS_INIT;
    *w = (struct world){.plan = *plan};
    for (int i = 0; i < SERVERS; i++)
        w->servers[i].conn = (struct conn)CONN_NONE;
    memory_init(&w->mem, fail_at);
    peer_init(&w->peer);
    o.server = w->peer.url;
    o.token = "secret";
    o.http = TM_HTTP_2;
    o.allocator = &w->mem.allocator;
    return tm_open(&o, &w->client);
}

static void world_close(struct world *w)
{
    tm_close(w->client);
    assert_int_equal(w->mem.live, 0);
    for (int i = 0; i < SERVERS; i++)
        server_close(&w->servers[i]);
    peer_deinit(&w->peer);
}

static void world_step(struct world *w)
{
    tm_turn(w->client);
    if (w->peer.accepted < SERVERS) {
        struct server *s = &w->servers[w->peer.accepted];
        if (peer_accept(&w->peer, &s->conn)) {
            s->plan = &w->plan;
            server_open(s);
        }
    }
    for (int i = 0; i < SERVERS; i++)
        if (w->servers[i].session != NULL)
            server_step(&w->servers[i]);
}

static void await_over(struct world *w, struct asked *a)
{
    struct patience p = patience_new();
    while (a->overs == 0) {
        world_step(w);
        patience_spend(&p);
    }
    assert_int_equal(a->overs, 1);
}

static void await_requests(struct world *w, int server, unsigned n)
{
    struct patience p = patience_new();
    while (w->servers[server].requests < n) {
        world_step(w);
        patience_spend(&p);
    }
}

static void await_body(struct world *w, struct asked *a, size_t n)
{
    struct patience p = patience_new();
    while (a->body.n < n) {
        assert_int_equal(a->overs, 0);
        world_step(w);
        patience_spend(&p);
    }
}

static void check_body(const struct asked *a, size_t n)
{
    assert_int_equal(a->body.n, n);
    for (size_t i = 0; i < n; i++)
        if (a->body.p[i] != body_byte(i))
            fail_msg("another byte at %zu", i);
}

/* A request whose answer is fine. */
static void ask(struct world *w)
{
    struct asked a;
    asked_init(&a, w->client, "GET", HTTP_ANY);
    assert_int_equal(http_start(&a.r), 0);
    await_over(w, &a);
    assert_int_equal(a.err, 0);
    check_body(&a, w->plan.body_n);
    asked_deinit(&a);
}

/* ---- requests and answers ---- */

static void check_exchange(const struct plan *plan, size_t slice, size_t request_n)
{
    struct world w;
    struct asked a;
    char *body = calloc(1, request_n + 1);
    assert_int_equal(world_open(&w, plan, 0), 0);
    w.peer.slice = slice;
    asked_init(&a, w.client, "POST", HTTP_ANY);
    a.r.body = str_of(body, request_n);
    assert_int_equal(http_start(&a.r), 0);
    await_over(&w, &a);
    assert_int_equal(a.err, 0);
    assert_int_equal(a.heads, 1);
    assert_int_equal(a.r.status, 200);
    assert_true(a.r.framed);
    assert_string_equal(a.type, "text/plain");
    assert_string_equal(a.trailer, plan->trailers ? "there" : "");
    if (plan->echo)
        assert_int_equal(a.body.n, request_n);
    else
        check_body(&a, plan->body_n);
    asked_deinit(&a);
    world_close(&w);
    free(body);
}

static void answers_are_read(void **state)
{
    const struct plan plans[] = {
        {.body_n = 0},
        {.body_n = 5},
        {.body_n = 100, .trailers = true, .interim = true},
        {.echo = true, .trailers = true},
    };
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        check_exchange(&plans[i], 0, 0);
        check_exchange(&plans[i], 1, 3);
        check_exchange(&plans[i], 5, 1000);
    }
}

/* Beyond every window, both ways. */
static void large_bodies_arrive(void **state)
{
    check_exchange(&(struct plan){.body_n = 20 << 20}, 0, 0);
    check_exchange(&(struct plan){.body_n = 3, .trailers = true}, 0, 4 << 20);
    check_exchange(&(struct plan){.echo = true}, 0, 4 << 20);
}

static void requests_say_what_they_should(void **state)
{
    struct world w;
    struct asked a;
    assert_int_equal(world_open(&w, &(struct plan){.no_answer = true}, 0), 0);
    asked_init(&a, w.client, "POST", HTTP_ANY);
    a.r.body = STR("four");
    a.r.headers[a.r.n_headers++] =
        (struct http_header){STR("x-idempotent-encryption-key"), STR("secret")};
    a.r.headers[a.r.n_headers++] = (struct http_header){STR("x-other"), STR("open")};
    assert_int_equal(http_start(&a.r), 0);
    await_requests(&w, 0, 1);
    struct server_stream *x = stream_of(&w.servers[0], 1);
    assert_non_null(x);
    struct patience p = patience_new();
    while (!x->complete) {
        world_step(&w);
        patience_spend(&p);
    }
    assert_string_equal(x->path, "/v1/x?y=1");
    assert_string_equal(x->token, "Bearer secret");
    assert_int_equal(w.servers[0].secrets, 2); /* are not kept in anybody's table */
    assert_string_equal(x->length, "4");
    assert_string_equal(x->body.p, "four");
    asked_deinit(&a);
    world_close(&w);
}

static int add_token(void *ctx, struct tm_request *r)
{
    (void)ctx;
    tm_request_param(r, "z", "2");
    return tm_request_header(r, "Authorization", "Bearer renewed");
}

static void programs_add_to_requests(void **state)
{
    struct world w;
    struct asked a;
    assert_int_equal(world_open(&w, &(struct plan){.no_answer = true}, 0), 0);
    w.client->options.prepare = add_token;
    asked_init(&a, w.client, "GET", HTTP_ANY);
    assert_int_equal(http_start(&a.r), 0);
    await_requests(&w, 0, 1);
    struct server_stream *x = stream_of(&w.servers[0], 1);
    assert_non_null(x);
    assert_string_equal(x->path, "/v1/x?y=1&z=2");
    assert_string_equal(x->token, "Bearer renewed");
    assert_int_equal(w.servers[0].secrets, 1);
    asked_deinit(&a);
    world_close(&w);
}

/* Cut anywhere before the last frame has come, an answer is an error. */
static void answers_cut_at_every_byte_are_errors(void **state)
{
    const struct plan plan = {.body_n = 20, .trailers = true};
    size_t left = 0;
    int err;
    do {
        struct world w;
        struct asked a;
        assert_int_equal(world_open(&w, &plan, 0), 0);
        w.peer.left = ++left;
        asked_init(&a, w.client, "GET", HTTP_ANY);
        assert_int_equal(http_start(&a.r), 0);
        await_over(&w, &a);
        err = a.err;
        assert_true(err == 0 || err == TM_E_NETWORK);
        assert_false(a.r.http2_refused);
        if (err == 0)
            assert_string_equal(a.trailer, "there");
        asked_deinit(&a);
        world_close(&w);
    } while (err != 0);
    assert_true(left > 60);
}

/* Whatever it makes of it, it comes to an end, once. */
static void changed_bits_do_no_harm(void **state)
{
    unsigned failures = 0;
    for (size_t flip = 1; flip < 90; flip++) {
        struct world w;
        struct asked a;
        const struct plan plan = {.body_n = 20, .trailers = true, .flip = flip};
        assert_int_equal(world_open(&w, &plan, 0), 0);
        w.client->options.request_timeout_ms = 20; /* it may wait for what is not to come */
        asked_init(&a, w.client, "GET", HTTP_ANY);
        assert_int_equal(http_start(&a.r), 0);
        struct patience p = patience_new();
        while (a.overs == 0) {
            tm_turn(w.client);
            if (w.peer.accepted == 0 && peer_accept(&w.peer, &w.servers[0].conn)) {
                w.servers[0].plan = &w.plan;
                server_open(&w.servers[0]);
            }
            if (w.servers[0].session != NULL)
                server_step(&w.servers[0]);
            patience_spend(&p);
        }
        assert_int_equal(a.overs, 1);
        failures += a.err != 0;
        asked_deinit(&a);
        world_close(&w);
    }
    assert_true(failures > 20);
}

static void resets_are_errors(void **state)
{
    static const struct {
        uint32_t code;
        int err;
        bool refused;
    } resets[] = {
        {NGHTTP2_CANCEL, TM_E_NETWORK, false},
        {NGHTTP2_INTERNAL_ERROR, TM_E_NETWORK, false},
        {NGHTTP2_REFUSED_STREAM, TM_E_NETWORK, false},
        {NGHTTP2_HTTP_1_1_REQUIRED, TM_E_PROTOCOL, true},
    };
    for (size_t i = 0; i < sizeof(resets) / sizeof(resets[0]); i++) {
        struct world w;
        struct asked a;
        assert_int_equal(world_open(&w, &(struct plan){.reset = resets[i].code}, 0), 0);
        asked_init(&a, w.client, "GET", HTTP_ANY);
        assert_int_equal(http_start(&a.r), 0);
        await_over(&w, &a);
        assert_int_equal(a.err, resets[i].err);
        assert_int_equal(a.r.http2_refused, resets[i].refused);
        assert_int_equal(w.servers[0].requests, 1);
        asked_deinit(&a);
        world_close(&w);
    }
}

static void large_heads_are_refused(void **state)
{
    static const size_t sizes[] = {HTTP_HEAD_MAX / 4, HTTP_HEAD_MAX / 3, HTTP_HEAD_MAX + 1};
    for (size_t i = 0; i < 3; i++) {
        struct world w;
        struct asked a;
        assert_int_equal(world_open(&w, &(struct plan){.large_head = sizes[i]}, 0), 0);
        asked_init(&a, w.client, "GET", HTTP_ANY);
        assert_int_equal(http_start(&a.r), 0);
        await_over(&w, &a);
        assert_int_equal(a.err, i == 0 ? 0 : TM_E_PROTOCOL);
        assert_int_equal(a.heads, i == 0);
        asked_deinit(&a);
        world_close(&w);
    }
}

/* ---- connections ---- */

static void requests_share_a_connection(void **state)
{
    struct world w;
    struct asked a[8];
    assert_int_equal(world_open(&w, &(struct plan){.body_n = 300000}, 0), 0);
    for (int i = 0; i < 8; i++) {
        asked_init(&a[i], w.client, "GET", HTTP_ANY);
        assert_int_equal(http_start(&a[i].r), 0);
    }
    for (int i = 0; i < 8; i++) {
        await_over(&w, &a[i]);
        assert_int_equal(a[i].err, 0);
        check_body(&a[i], 300000);
        asked_deinit(&a[i]);
    }
    ask(&w);
    assert_int_equal(w.peer.accepted, 1);
    world_close(&w);
}

static void a_full_connection_is_not_waited_for(void **state)
{
    struct world w;
    struct asked a;
    assert_int_equal(world_open(&w, &(struct plan){.max_streams = 1}, 0), 0);
    ask(&w); /* now the limit is known */
    w.plan.no_answer = true;
    asked_init(&a, w.client, "GET", HTTP_ANY);
    assert_int_equal(http_start(&a.r), 0);
    await_requests(&w, 0, 2);
    w.plan.no_answer = false;
    ask(&w);
    assert_int_equal(w.peer.accepted, 2);
    assert_int_equal(a.overs, 0);
    asked_deinit(&a);
    world_close(&w);
}

/* What is under way is finished; what comes takes another connection. */
static void goaway_sends_new_requests_elsewhere(void **state)
{
    struct world w;
    struct asked a;
    assert_int_equal(world_open(&w, &(struct plan){.echo = true}, 0), 0);
    asked_init(&a, w.client, "POST", HTTP_2);
    a.r.duplex = true;
    assert_int_equal(http_start(&a.r), 0);
    assert_int_equal(http_send(&a.r, STR("one")), 0);
    await_body(&w, &a, 3);
    nghttp2_submit_goaway(w.servers[0].session, 0, 1, NGHTTP2_NO_ERROR, NULL, 0);
    struct patience p = patience_new();
    while (w.peer.accepted < 2) {
        struct asked b;
        asked_init(&b, w.client, "GET", HTTP_ANY);
        assert_int_equal(http_start(&b.r), 0);
        await_over(&w, &b);
        assert_int_equal(b.err, 0);
        asked_deinit(&b);
        patience_spend(&p);
    }
    assert_int_equal(http_send(&a.r, STR("two")), 0);
    assert_int_equal(http_end(&a.r), 0);
    await_over(&w, &a);
    assert_int_equal(a.err, 0);
    assert_string_equal(a.body.p, "onetwo");
    p = patience_new();
    while (!w.servers[0].conn.ended) { /* of no use any more */
        world_step(&w);
        patience_spend(&p);
    }
    asked_deinit(&a);
    world_close(&w);
}

/* A request that a GOAWAY leaves out was not dealt with: it goes out again, whatever it is. */
static void what_goaway_leaves_out_goes_again(void **state)
{
    struct world w;
    struct asked a;
    assert_int_equal(world_open(&w, &(struct plan){.body_n = 3}, 0), 0);
    ask(&w);
    w.plan.no_answer = true;
    asked_init(&a, w.client, "POST", HTTP_ANY);
    a.r.resend = false;
    a.r.body = STR("again");
    assert_int_equal(http_start(&a.r), 0);
    await_requests(&w, 0, 2);
    w.plan.no_answer = false;
    nghttp2_submit_goaway(w.servers[0].session, 0, 1, NGHTTP2_NO_ERROR, NULL, 0);
    await_over(&w, &a);
    assert_int_equal(a.err, 0);
    check_body(&a, 3);
    assert_int_equal(w.peer.accepted, 2);
    asked_deinit(&a);
    world_close(&w);
}

/* However many there are, one new connection takes them. */
static void what_goes_again_goes_together(void **state)
{
    struct world w;
    struct asked a[10];
    assert_int_equal(world_open(&w, &(struct plan){.body_n = 3}, 0), 0);
    ask(&w);
    w.plan.no_answer = true;
    for (int i = 0; i < 10; i++) {
        asked_init(&a[i], w.client, "GET", HTTP_ANY);
        assert_int_equal(http_start(&a[i].r), 0);
    }
    await_requests(&w, 0, 11);
    w.plan.no_answer = false;
    conn_close(&w.servers[0].conn);
    for (int i = 0; i < 10; i++) {
        await_over(&w, &a[i]);
        assert_int_equal(a[i].err, 0);
        check_body(&a[i], 3);
        asked_deinit(&a[i]);
    }
    assert_int_equal(w.peer.accepted, 2);
    world_close(&w);
}

static void dead_connections_are_replaced(void **state)
{
    for (int once = 0; once < 2; once++) {
        struct world w;
        struct asked a;
        assert_int_equal(world_open(&w, &(struct plan){.body_n = 3}, 0), 0);
        ask(&w);
        w.plan.no_answer = true;
        asked_init(&a, w.client, "POST", HTTP_ANY);
        a.r.resend = once;
        assert_int_equal(http_start(&a.r), 0);
        await_requests(&w, 0, 2);
        w.plan.no_answer = false;
        conn_close(&w.servers[0].conn);
        await_over(&w, &a);
        assert_int_equal(a.err, once ? 0 : TM_E_NETWORK);
        assert_int_equal(w.peer.accepted, once ? 2 : 1);
        asked_deinit(&a);
        world_close(&w);
    }
}

/* ---- duplex ---- */

static void both_sides_speak_at_once(void **state)
{
    struct world w;
    struct asked a;
    size_t n = 0;
    assert_int_equal(world_open(&w, &(struct plan){.echo = true, .trailers = true}, 0), 0);
    asked_init(&a, w.client, "POST", HTTP_ANY);
    a.r.duplex = true;
    a.r.body = STR("first,");
    assert_int_equal(http_start(&a.r), 0);
    assert_int_equal(http_unsent(&a.r), 6);
    n = 6;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(http_send(&a.r, STR("more,")), 0);
        n += 5;
        if (i % 3 == 0)
            await_body(&w, &a, n);
    }
    await_body(&w, &a, n);
    assert_int_equal(http_unsent(&a.r), 0);
    assert_int_equal(a.overs, 0);
    assert_int_equal(http_end(&a.r), 0);
    assert_int_equal(http_send(&a.r, STR("late")), TM_E_INVALID);
    await_over(&w, &a);
    assert_int_equal(a.err, 0);
    assert_int_equal(a.body.n, n);
    assert_memory_equal(a.body.p, "first,more,more,", 16);
    assert_string_equal(a.trailer, "there");
    assert_int_equal(http_send(&a.r, STR("late")), TM_E_INVALID);
    assert_int_equal(http_unsent(&a.r), 0);
    asked_deinit(&a);
    world_close(&w);
}

static void a_backlog_arrives_in_order(void **state)
{
    struct world w;
    struct asked a;
    char *piece = malloc(1 << 20);
    assert_int_equal(world_open(&w, &(struct plan){.echo = true}, 0), 0);
    asked_init(&a, w.client, "POST", HTTP_ANY);
    a.r.duplex = true;
    assert_int_equal(http_start(&a.r), 0);
    for (int i = 0; i < 4; i++) {
        for (size_t j = 0; j < 1 << 20; j++)
            piece[j] = body_byte(((size_t)i << 20) + j);
        assert_int_equal(http_send(&a.r, str_of(piece, 1 << 20)), 0);
        await_body(&w, &a, (size_t)i * 500000);
    }
    assert_int_equal(http_end(&a.r), 0);
    await_over(&w, &a);
    assert_int_equal(a.err, 0);
    check_body(&a, 4 << 20);
    asked_deinit(&a);
    world_close(&w);
    free(piece);
}

/* The server's end is the end; our half of the stream goes with it. */
static void an_early_end_is_taken(void **state)
{
    struct world w;
    struct asked a;
    assert_int_equal(world_open(&w, &(struct plan){.early = true, .body_n = 10}, 0), 0);
    asked_init(&a, w.client, "POST", HTTP_ANY);
    a.r.duplex = true;
    assert_int_equal(http_start(&a.r), 0);
    await_over(&w, &a);
    assert_int_equal(a.err, 0);
    check_body(&a, 10);
    struct patience p = patience_new();
    while (w.servers[0].resets == 0) {
        world_step(&w);
        patience_spend(&p);
    }
    asked_deinit(&a);
    w.plan.early = false;
    ask(&w);
    assert_int_equal(w.peer.accepted, 1);
    world_close(&w);
}

/* ---- callbacks and time ---- */

static void data_may_refuse(void **state)
{
    struct world w;
    struct asked a;
    assert_int_equal(world_open(&w, &(struct plan){.body_n = 100000}, 0), 0);
    asked_init(&a, w.client, "GET", HTTP_ANY);
    a.refuse = TM_E_TOO_LARGE;
    assert_int_equal(http_start(&a.r), 0);
    await_over(&w, &a);
    assert_int_equal(a.err, TM_E_TOO_LARGE);
    asked_deinit(&a);
    ask(&w);
    assert_int_equal(w.peer.accepted, 1);
    world_close(&w);
}

/* Before it went out, while it waits, in head(), in data(): the connection goes on. */
static void requests_can_be_cancelled(void **state)
{
    for (int at = -2; at <= 2; at++) {
        struct world w;
        struct asked a;
        assert_int_equal(world_open(&w, &(struct plan){.echo = true}, 0), 0);
        asked_init(&a, w.client, "POST", HTTP_ANY);
        a.r.duplex = true;
        a.cancel_at = at;
        assert_int_equal(http_start(&a.r), 0);
        assert_int_equal(http_send(&a.r, STR("something")), 0);
        if (at > -2)
            await_requests(&w, 0, 1);
        struct patience p = patience_new();
        while (at > 0 && a.r.exchange != NULL) {
            world_step(&w);
            patience_spend(&p);
        }
        http_cancel(&a.r);
        assert_null(a.r.exchange);
        p = patience_new();
        while (at > -2 && w.servers[0].resets == 0) {
            world_step(&w);
            patience_spend(&p);
        }
        assert_int_equal(a.overs, 0);
        asked_deinit(&a);
        w.plan = (struct plan){.body_n = 7};
        ask(&w);
        assert_int_equal(w.peer.accepted, 1);
        world_close(&w);
    }
}

/* A connection on which a request timed out is not trusted with another. */
static void silence_ends_requests(void **state)
{
    struct world w;
    struct asked a;
    assert_int_equal(world_open(&w, &(struct plan){.no_answer = true}, 0), 0);
    w.client->options.request_timeout_ms = 60;
    asked_init(&a, w.client, "GET", HTTP_ANY);
    assert_int_equal(http_start(&a.r), 0);
    await_over(&w, &a);
    assert_int_equal(a.err, TM_E_TIMEOUT);
    asked_deinit(&a);
    w.client->options.request_timeout_ms = 30000;
    w.plan.no_answer = false;
    ask(&w);
    assert_int_equal(w.peer.accepted, 2);
    world_close(&w);
}

/* Where the silence of a server may mean nothing it is asked, and ends only what it does not
 * answer. */
static void a_server_that_is_there_may_be_silent(void **state)
{
    struct world w;
    struct asked a;
    assert_int_equal(world_open(&w, &(struct plan){.no_answer = true}, 0), 0);
    w.client->options.live_timeout_ms = 60;
    asked_init(&a, w.client, "POST", HTTP_ANY);
    a.r.duplex = a.r.live = true;
    assert_int_equal(http_start(&a.r), 0);
    struct patience p = patience_new();
    while (w.servers[0].pings < 4) {
        world_step(&w);
        patience_spend(&p);
    }
    assert_int_equal(a.overs, 0);
    w.servers[0].conn.deaf = true;
    await_over(&w, &a);
    assert_int_equal(a.err, TM_E_TIMEOUT);
    asked_deinit(&a);
    world_close(&w);
}

/* ---- servers that do not speak it ---- */

static void check_other_protocol(const char *says, size_t slice, bool refused, int err)
{
    struct world w;
    struct conn k = CONN_NONE;
    struct asked a;
    assert_int_equal(world_open(&w, &(struct plan){0}, 0), 0);
    asked_init(&a, w.client, "GET", HTTP_2);
    assert_int_equal(http_start(&a.r), 0);
    struct patience p = patience_new();
    while (a.overs == 0) {
        tm_turn(w.client);
        if (k.fd < 0 && w.peer.accepted == 0 && peer_accept(&w.peer, &k)) {
            k.slice = slice;
            k.left = strlen(says);
            conn_put(&k, says);
        }
        if (k.fd >= 0 && k.in.n == 0)
            conn_read(&k);
        if (k.in.n > 0)
            conn_step(&k);
        patience_spend(&p);
    }
    assert_int_equal(a.err, err);
    assert_int_equal(a.r.http2_refused, refused);
    asked_deinit(&a);
    conn_close(&k);
    world_close(&w);
}

static void other_protocols_are_told_apart(void **state)
{
    check_other_protocol("HTTP/1.1 400 Bad Request\r\n\r\n", 0, true, TM_E_PROTOCOL);
    check_other_protocol("HTTP/1.1 400 Bad Request\r\n\r\n", 1, true, TM_E_PROTOCOL);
    check_other_protocol("", 0, false, TM_E_NETWORK);
    check_other_protocol("HT", 0, false, TM_E_NETWORK);
}

/* ---- memory ---- */

/* A duplex request and a plain one on the same connection, with one allocation failing. */
static bool run_without_memory(size_t fail_at)
{
    struct world w;
    struct asked a, b;
    int err = world_open(&w, &(struct plan){.echo = true, .trailers = true}, fail_at);
    asked_init(&a, w.client, "POST", HTTP_ANY);
    asked_init(&b, w.client, "POST", HTTP_ANY);
    a.r.duplex = true;
    b.r.body = STR("plain");
    if (err == 0)
        err = http_start(&a.r);
    if (err == 0)
        err = http_send(&a.r, STR("duplex"));
    if (err == 0)
        err = http_end(&a.r);
    if (err == 0) {
        await_over(&w, &a);
        err = a.err;
    }
    if (err == 0)
        err = http_start(&b.r);
    if (err == 0) {
        await_over(&w, &b);
        err = b.err;
    }
    if (err != (w.mem.failed ? TM_E_NOMEM : 0))
        fail_msg("call %zu: %d, %s%s", fail_at, err, a.r.message, b.r.message);
    if (err == 0)
        assert_string_equal(b.body.p, "plain");
    bool failed = w.mem.failed;
    asked_deinit(&a);
    asked_deinit(&b);
    world_close(&w);
    return failed;
}

static void every_allocation_may_fail(void **state)
{
    size_t n = 1;
    while (run_without_memory(n))
        n++;
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_read),
        cmocka_unit_test(large_bodies_arrive),
        cmocka_unit_test(requests_say_what_they_should),
        cmocka_unit_test(programs_add_to_requests),
        cmocka_unit_test(answers_cut_at_every_byte_are_errors),
        cmocka_unit_test(changed_bits_do_no_harm),
        cmocka_unit_test(resets_are_errors),
        cmocka_unit_test(large_heads_are_refused),
        cmocka_unit_test(requests_share_a_connection),
        cmocka_unit_test(a_full_connection_is_not_waited_for),
        cmocka_unit_test(goaway_sends_new_requests_elsewhere),
        cmocka_unit_test(what_goaway_leaves_out_goes_again),
        cmocka_unit_test(what_goes_again_goes_together),
        cmocka_unit_test(dead_connections_are_replaced),
        cmocka_unit_test(both_sides_speak_at_once),
        cmocka_unit_test(a_backlog_arrives_in_order),
        cmocka_unit_test(an_early_end_is_taken),
        cmocka_unit_test(data_may_refuse),
        cmocka_unit_test(requests_can_be_cancelled),
        cmocka_unit_test(silence_ends_requests),
        cmocka_unit_test(a_server_that_is_there_may_be_silent),
        cmocka_unit_test(other_protocols_are_told_apart),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
