// SPDX-License-Identifier: Apache-2.0
/* HTTP/1.1 of the library, against a peer that says what it is told to. */
#include "unit/client/client_peer.h"

struct world {
    struct memory mem;
    struct peer peer;
    struct tm_client *client; /* NULL: it could not be opened */
};

static int world_open(struct world *w, size_t fail_at)
{
    struct tm_options o = TM_OPTIONS_INIT;
    char url[96];
    w->client = NULL;
    memory_init(&w->mem, fail_at);
    peer_init(&w->peer);
    snprintf(url, sizeof(url), "%s/pre/", w->peer.url);
    o.server = url;
    o.token = "secret";
    o.allocator = &w->mem.allocator;
    return tm_open(&o, &w->client);
}

static void world_close(struct world *w)
{
    tm_close(w->client);
    w->client = NULL;
    assert_int_equal(w->mem.live, 0);
    peer_deinit(&w->peer);
}

static bool has_request(const struct conn *k)
{
    return k->in.n > 0 && strstr(k->in.p, "\r\n\r\n") != NULL;
}

/* Turns both until the request is there, with a connection of its own or on *k. */
static void await_request(struct world *w, struct conn *k)
{
    struct patience p = patience_new();
    while (!has_request(k)) {
        tm_turn(w->client);
        if (k->fd < 0)
            peer_accept(&w->peer, k);
        else
            conn_step(k);
        patience_spend(&p);
    }
}

static void await_over(struct world *w, struct conn *k, struct asked *a)
{
    struct patience p = patience_new();
    while (a->overs == 0) {
        conn_step(k);
        tm_turn(w->client);
        patience_spend(&p);
    }
}

static void answer(struct conn *k, const char *text)
{
    k->in.n = 0;
    conn_put(k, text);
}

/* One request, one answer, on a new connection. left: bytes of it that go before it is closed. */
static void exchange_once(const char *method, const char *text, size_t slice, size_t left,
                          struct asked *a)
{
    struct world w;
    struct conn k = CONN_NONE;
    assert_int_equal(world_open(&w, 0), 0);
    w.peer.slice = slice;
    asked_init(a, w.client, method, HTTP_1);
    assert_int_equal(http_start(&a->r), 0);
    assert_int_equal(a->overs, 0);
    await_request(&w, &k);
    answer(&k, text);
    k.left = left;
    await_over(&w, &k, a);
    assert_int_equal(a->overs, 1);
    assert_null(a->r.exchange);
    conn_close(&k);
    world_close(&w);
}

/* ---- answers that are fine ---- */

struct fine {
    const char *method, *answer, *body;
    int status;
    bool framed, until_close;
};

static const struct fine fine[] = {
    {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: text/plain\r\n\r\nhello",
     "hello", 200, true, false},
    {"GET", "HTTP/1.1 200\r\ncontent-length:0\r\nContent-Type:\ttext/plain \r\n\r\n", "", 200, true,
     false},
    {"GET",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\ncontent-type: text/plain\r\n\r\n"
     "3\r\nhel\r\n2;ext=\"a b\"\r\nlo\r\n0\r\nX-Trailer: there\r\n\r\n",
     "hello", 200, true, false},
    {"GET",
     "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\ncontent-type: text/plain\r\n\r\n"
     "00a ; x\r\n0123456789\r\n0\r\n\r\n",
     "0123456789", 200, true, false},
    {"GET", "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nto the end", "to the end", 200,
     false, true},
    {"GET", "HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok", "ok", 200,
     true, false},
    {"HEAD", "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 500\r\n\r\n", "", 200,
     true, false},
    {"POST", "HTTP/1.1 204 No Content\r\ncontent-type: text/plain\r\n\r\n", "", 204, true, false},
    {"GET", "HTTP/1.1 304 Not Modified\r\ncontent-type: text/plain\r\ncontent-length: 7\r\n\r\n",
     "", 304, true, false},
    {"POST",
     "HTTP/1.1 100 Continue\r\nx: y\r\n\r\nHTTP/1.1 103 Early Hints\r\ncontent-type: no\r\n\r\n"
     "HTTP/1.1 201 Created\r\ncontent-type: text/plain\r\ncontent-length: 1\r\n\r\n!",
     "!", 201, true, false},
    {"GET",
     "HTTP/1.1 503 Busy\r\ncontent-length: 2\r\ncontent-length: 2\r\ncontent-type: "
     "text/plain\r\n\r\nno",
     "no", 503, true, false},
};

static void check_fine(const struct fine *f, size_t slice)
{
    struct asked a;
    exchange_once(f->method, f->answer, slice, f->until_close ? strlen(f->answer) : SIZE_MAX, &a);
    assert_int_equal(a.err, 0);
    assert_int_equal(a.heads, 1);
    assert_int_equal(a.r.status, f->status);
    assert_string_equal(a.body.p, f->body);
    assert_string_equal(a.type, "text/plain");
    assert_int_equal(a.r.framed, f->framed);
    assert_string_equal(a.trailer, strstr(f->answer, "X-Trailer") != NULL ? "there" : "");
    asked_deinit(&a);
}

static void answers_are_read(void **state)
{
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++) {
        check_fine(&fine[i], 0);
        check_fine(&fine[i], 1);
        check_fine(&fine[i], 7);
    }
}

/* Whatever is missing, it is never taken for complete. */
static void answers_cut_at_every_byte_are_errors(void **state)
{
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++) {
        size_t n = strlen(fine[i].answer);
        const char *body = strstr(fine[i].answer, "\r\n\r\n") + 4;
        for (size_t left = 1; left < n; left++) {
            struct asked a;
            bool in_body = fine[i].until_close && left >= (size_t)(body - fine[i].answer);
            exchange_once(fine[i].method, fine[i].answer, 0, left, &a);
            assert_int_equal(a.err, in_body ? 0 : TM_E_NETWORK);
            assert_int_equal(strncmp(a.body.p, fine[i].body, a.body.n), 0);
            asked_deinit(&a);
        }
    }
}

/* ---- answers that are not ---- */

static const char *const malformed[] = {
    "SSH-2.0-OpenSSH_9.2\r\n",
    "\r\n",
    "HTTP/2.0 200 OK\r\n\r\n",
    "HTTP/1.2 200 OK\r\n\r\n",
    "HTTP/1.1  200 OK\r\n\r\n",
    "HTTP/1.1 20 OK\r\n\r\n",
    "HTTP/1.1 2000 OK\r\n\r\n",
    "HTTP/1.1 099 OK\r\n\r\n",
    "HTTP/1.1 600 OK\r\n\r\n",
    "HTTP/1.1 +20 OK\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "HTTP/1.1 200 OK\n\r\n",
    "HTTP/1.1 200 OK\rx\r\n\r\n",
    "HTTP/1.1 200 OK\r\nname\r\n\r\n",
    "HTTP/1.1 200 OK\r\n: value\r\n\r\n",
    "HTTP/1.1 200 OK\r\nname : value\r\n\r\n",
    "HTTP/1.1 200 OK\r\na: b\r\n folded\r\n\r\n",
    "HTTP/1.1 200 OK\r\na: b\nc: d\r\n\r\n",
    "HTTP/1.1 200 OK\r\na: b\x01\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n;x\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1 1\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nbad trailer\r\n\r\n",
};

static void malformed_answers_are_refused(void **state)
{
    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++) {
        for (size_t slice = 0; slice < 2; slice++) {
            struct asked a;
            exchange_once("GET", malformed[i], slice, SIZE_MAX, &a);
            if (a.err != TM_E_PROTOCOL)
                fail_msg("taken: %s", malformed[i]);
            asked_deinit(&a);
        }
    }
}

/* n bytes of `fill` between two texts. */
static char *stretched(const char *before, char fill_with, size_t n, const char *after)
{
    size_t b = strlen(before);
    char *p = malloc(b + n + strlen(after) + 1);
    assert_non_null(p);
    memcpy(p, before, b);
    memset(p + b, fill_with, n);
    strcpy(p + b + n, after);
    return p;
}

static void check_stretched(const char *before, size_t n, const char *after, int err)
{
    struct asked a;
    char *text = stretched(before, 'x', n, after);
    exchange_once("GET", text, 0, SIZE_MAX, &a);
    assert_int_equal(a.err, err);
    asked_deinit(&a);
    free(text);
}

static void heads_and_extensions_are_bounded(void **state)
{
    const char *head = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\na: ";
    const char *chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    char ext[128], trailer[128];
    snprintf(ext, sizeof(ext), "%s0;", chunked);
    snprintf(trailer, sizeof(trailer), "%s0\r\na: ", chunked);
    check_stretched(head, HTTP_HEAD_MAX - 200, "\r\n\r\n", 0);
    check_stretched(head, HTTP_HEAD_MAX, "\r\n\r\n", TM_E_PROTOCOL);
    check_stretched("HTTP/1.1 200 ", HTTP_HEAD_MAX, "", TM_E_PROTOCOL);
    check_stretched(ext, 900, "\r\n\r\n", 0);
    check_stretched(ext, 1100, "\r\n\r\n", TM_E_PROTOCOL);
    check_stretched(trailer, HTTP_HEAD_MAX, "\r\n\r\n", TM_E_PROTOCOL);
}

static void interim_answers_are_bounded(void **state)
{
    struct asked a;
    struct heap h = {0};
    for (int i = 0; i < 4000; i++)
        heap_put(&h, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    exchange_once("GET", h.p, 0, SIZE_MAX, &a);
    assert_int_equal(a.err, TM_E_PROTOCOL);
    asked_deinit(&a);
    heap_free(&h);
}

/* Answers with a few bytes changed, dropped or doubled, from a fixed beginning: whatever is made of
 * them, it ends once, and what is told of a body is bounded by what came. */
static void changed_answers_do_no_harm(void **state)
{
    static const char alphabet[] = "\r\n:; \t0159aAfFxX,\0\xff-HTP/.";
    uint32_t seed = 1;
    unsigned failures = 0;
    for (int i = 0; i < 600; i++) {
        struct asked a;
        struct heap h = {0};
        const char *text = fine[(size_t)i % (sizeof(fine) / sizeof(fine[0]))].answer;
        heap_put(&h, text, strlen(text));
        for (int changes = 0; changes < 1 + i % 3; changes++) {
            seed = seed * 1664525 + 1013904223;
            h.p[(seed >> 8) % h.n] = alphabet[(seed >> 20) % (sizeof(alphabet) - 1)];
        }
        h.n = strlen(h.p); /* up to a NUL, when there is one now */
        heap_put(&h, "", 0);
        exchange_once("GET", h.n > 0 ? h.p : "x", 0, h.n > 0 ? h.n : 1, &a);
        assert_true(a.body.n <= h.n);
        assert_true(a.err == 0 || a.err == TM_E_PROTOCOL || a.err == TM_E_NETWORK);
        failures += a.err != 0;
        asked_deinit(&a);
        heap_free(&h);
    }
    assert_true(failures > 100);
}

/* ---- requests ---- */

static void requests_say_what_they_should(void **state)
{
    struct world w;
    struct conn k = CONN_NONE;
    struct asked a;
    char expect[512];
    assert_int_equal(world_open(&w, 0), 0);
    asked_init(&a, w.client, "POST", HTTP_ANY);
    a.r.headers[a.r.n_headers++] = (struct http_header){STR("x-a"), STR("b \xc3\xa9")};
    a.r.body = STR("four");
    assert_int_equal(http_start(&a.r), 0);
    assert_int_equal(tm_deadline_ms(w.client), 0);
    await_request(&w, &k);
    snprintf(expect, sizeof(expect),
             "POST /pre/v1/x?y=1 HTTP/1.1\r\nhost: %s\r\nauthorization: Bearer secret\r\n"
             "user-agent: libtidemark/%s\r\nx-a: b \xc3\xa9\r\ncontent-length: 4\r\n\r\nfour",
             w.peer.url + 7, tm_version());
    assert_string_equal(k.in.p, expect);
    answer(&k, "HTTP/1.1 204 No\r\n\r\n");
    await_over(&w, &k, &a);
    assert_int_equal(a.err, 0);
    asked_deinit(&a);
    conn_close(&k);
    world_close(&w);
}

static void check_invalid(struct http_request *r)
{
    assert_int_equal(http_start(r), TM_E_INVALID);
    assert_null(r->exchange);
}

static void what_cannot_be_sent_is_refused(void **state)
{
    struct world w;
    struct asked a;
    assert_int_equal(world_open(&w, 0), 0);
    static const struct http_header bad[] = {
        {STR_INIT("a"), STR_INIT("b\r\nc: d")}, {STR_INIT("A"), STR_INIT("b")},
        {STR_INIT(""), STR_INIT("b")},          {STR_INIT("a b"), STR_INIT("b")},
        {STR_INIT("a"), STR_INIT("\0")},        {STR_INIT("a:"), STR_INIT("b")},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        asked_init(&a, w.client, "GET", HTTP_1);
        a.r.headers[a.r.n_headers++] = bad[i];
        check_invalid(&a.r);
        asked_deinit(&a);
    }
    static const struct str paths[] = {STR_INIT(""),          STR_INIT("x"),
                                       STR_INIT("/a b"),      STR_INIT("/a#b"),
                                       STR_INIT("/\xc3\xa9"), STR_INIT("/a\r\nb")};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        asked_init(&a, w.client, "GET", HTTP_1);
        a.r.path = paths[i];
        check_invalid(&a.r);
        asked_deinit(&a);
    }
    asked_init(&a, w.client, "GE T", HTTP_1);
    check_invalid(&a.r);
    a.r.method = STR("GET");
    a.r.duplex = true;
    check_invalid(&a.r);
    asked_deinit(&a);
    world_close(&w);
}

/* ---- connections ---- */

/* Starts a request, and answers it on k (or a new connection, where k has none). */
static void ask(struct world *w, struct conn *k, const char *text)
{
    struct asked a;
    asked_init(&a, w->client, "GET", HTTP_1);
    assert_int_equal(http_start(&a.r), 0);
    await_request(w, k);
    answer(k, text);
    await_over(w, k, &a);
    assert_int_equal(a.err, 0);
    asked_deinit(&a);
}

#define OK_ANSWER "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

static void connections_are_kept(void **state)
{
    struct world w;
    struct conn k = CONN_NONE;
    assert_int_equal(world_open(&w, 0), 0);
    for (int i = 0; i < 5; i++)
        ask(&w, &k, OK_ANSWER);
    ask(&w, &k, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    ask(&w, &k, OK_ANSWER);
    assert_int_equal(w.peer.accepted, 1);
    conn_close(&k);
    world_close(&w);
}

static void connections_without_a_clean_end_are_not_kept(void **state)
{
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nConnection: a, Close\r\n\r\nok",
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK_ANSWER "HTTP/1.1 200 OK\r\n",
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct world w;
        struct conn k = CONN_NONE;
        assert_int_equal(world_open(&w, 0), 0);
        ask(&w, &k, answers[i]);
        struct patience p = patience_new();
        while (!k.ended) {
            tm_turn(w.client);
            conn_step(&k);
            patience_spend(&p);
        }
        assert_int_equal(tm_descriptors(w.client, NULL, 0), 0);
        conn_close(&k);
        world_close(&w);
    }
}

/* Whether the end of the kept connection is noticed before or after the next request was written,
 * it goes out on a new one; before, that is no second time. */
static void dead_connections_are_replaced(void **state)
{
    for (int noticed = 0; noticed < 2; noticed++) {
        struct world w;
        struct conn k = CONN_NONE, k2 = CONN_NONE;
        struct asked a;
        assert_int_equal(world_open(&w, 0), 0);
        ask(&w, &k, OK_ANSWER);
        asked_init(&a, w.client, "POST", HTTP_1);
        a.r.body = STR("once more");
        a.r.resend = !noticed;
        if (noticed)
            conn_close(&k);
        assert_int_equal(http_start(&a.r), 0);
        if (!noticed) {
            await_request(&w, &k);
            conn_close(&k);
        }
        await_request(&w, &k2);
        assert_non_null(strstr(k2.in.p, "once more"));
        answer(&k2, OK_ANSWER);
        await_over(&w, &k2, &a);
        assert_int_equal(a.err, 0);
        assert_int_equal(w.peer.accepted, 2);
        asked_deinit(&a);
        conn_close(&k2);
        world_close(&w);
    }
}

static void what_must_not_be_sent_twice_is_not(void **state)
{
    for (int heard = 0; heard < 2; heard++) {
        struct world w;
        struct conn k = CONN_NONE;
        struct asked a;
        assert_int_equal(world_open(&w, 0), 0);
        ask(&w, &k, OK_ANSWER);
        asked_init(&a, w.client, "POST", HTTP_1);
        a.r.resend = heard; /* the first byte of an answer ends the licence, too */
        assert_int_equal(http_start(&a.r), 0);
        await_request(&w, &k);
        if (heard)
            answer(&k, "H");
        k.left = heard;
        await_over(&w, &k, &a);
        assert_int_equal(a.err, TM_E_NETWORK);
        assert_int_equal(w.peer.accepted, 1);
        asked_deinit(&a);
        conn_close(&k);
        world_close(&w);
    }
}

/* The caller's own appends: one that was not numbered may stand there already. */
static void appends_that_may_stand_there_are_not_sent_again(void **state)
{
    for (int numbered = 0; numbered < 2; numbered++) {
        struct world w;
        struct conn k = CONN_NONE, k2 = CONN_NONE;
        struct tm_append_options o = TM_APPEND_INIT;
        struct tm_call *call;
        assert_int_equal(world_open(&w, 0), 0);
        ask(&w, &k, OK_ANSWER);
        o.data = "hello";
        o.n = 5;
        o.producer_id = numbered ? "p" : NULL;
        assert_int_equal(tm_append(w.client, "a", &o, &call), 0);
        await_request(&w, &k);
        conn_close(&k);
        if (numbered) {
            await_request(&w, &k2);
            answer(&k2, "HTTP/1.1 204 No Content\r\n\r\n");
        }
        struct patience p = patience_new();
        while (!tm_call_done(call)) {
            tm_turn(w.client);
            conn_step(&k2);
            patience_spend(&p);
        }
        assert_int_equal(tm_call_error(call), numbered ? 0 : TM_E_NETWORK);
        assert_int_equal(w.peer.accepted, 1 + numbered);
        tm_call_free(call);
        conn_close(&k2);
        world_close(&w);
    }
}

/* A second time is the last time: the new connection has no excuse. */
static void a_request_is_sent_again_once(void **state)
{
    struct world w;
    struct conn k = CONN_NONE;
    struct asked a;
    assert_int_equal(world_open(&w, 0), 0);
    ask(&w, &k, OK_ANSWER);
    asked_init(&a, w.client, "GET", HTTP_1);
    assert_int_equal(http_start(&a.r), 0);
    for (int i = 0; i < 2; i++) {
        await_request(&w, &k);
        assert_int_equal(a.overs, 0);
        conn_close(&k);
    }
    await_over(&w, &k, &a);
    assert_int_equal(a.err, TM_E_NETWORK);
    assert_int_equal(w.peer.accepted, 2);
    asked_deinit(&a);
    world_close(&w);
}

static void an_answer_before_the_end_of_the_request_is_taken(void **state)
{
    struct world w;
    struct conn k = CONN_NONE;
    struct asked a;
    char *body = calloc(1, 16 << 20);
    assert_int_equal(world_open(&w, 0), 0);
    asked_init(&a, w.client, "POST", HTTP_1);
    a.r.body = str_of(body, 16 << 20);
    assert_int_equal(http_start(&a.r), 0);
    await_request(&w, &k);
    k.deaf = true;
    answer(&k, "HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno");
    await_over(&w, &k, &a);
    assert_int_equal(a.err, 0);
    assert_int_equal(a.r.status, 413);
    tm_turn(w.client);
    assert_int_equal(tm_descriptors(w.client, NULL, 0), 0);
    asked_deinit(&a);
    conn_close(&k);
    world_close(&w);
    free(body);
}

static void large_bodies_arrive(void **state)
{
    size_t n = 5 << 20;
    struct world w;
    struct conn k = CONN_NONE;
    struct asked a;
    struct heap text = {0};
    char *body = malloc(n);
    for (size_t i = 0; i < n; i++)
        body[i] = (char)(i * 31 + (i >> 12));
    assert_int_equal(world_open(&w, 0), 0);
    asked_init(&a, w.client, "POST", HTTP_1);
    a.r.body = str_of(body, n);
    assert_int_equal(http_start(&a.r), 0);
    struct patience p = patience_new();
    while (k.in.n < n || memcmp(k.in.p + k.in.n - n, body, n) != 0) {
        tm_turn(w.client);
        if (k.fd < 0)
            peer_accept(&w.peer, &k);
        else
            conn_step(&k);
        patience_spend(&p);
    }
    heap_put(&text, "HTTP/1.1 200 OK\r\ncontent-length: 5242880\r\n\r\n", 44);
    heap_put(&text, body, n);
    conn_write(&k, text.p, text.n);
    await_over(&w, &k, &a);
    assert_int_equal(a.err, 0);
    assert_int_equal(a.body.n, n);
    assert_memory_equal(a.body.p, body, n);
    asked_deinit(&a);
    conn_close(&k);
    world_close(&w);
    heap_free(&text);
    free(body);
}

static void hang_up(struct asked *a)
{
    struct conn *k = a->ctx;
    k->deaf = false;
    conn_read(k);
    shutdown(k->fd, SHUT_RDWR);
}

/* SIGPIPE is at its default, and would end this program. A connection ends while another's answer
 * is looked at, so that the next thing that is done with it is to write, twice. */
static void a_peer_that_hangs_up_raises_no_signal(void **state)
{
    struct world w;
    struct conn first = CONN_NONE, second = CONN_NONE;
    struct asked a, b;
    char *body = calloc(1, 64 << 20);
    assert_int_equal(world_open(&w, 0), 0);
    asked_init(&a, w.client, "GET", HTTP_1);
    asked_init(&b, w.client, "POST", HTTP_1);
    a.then = hang_up;
    a.ctx = &second;
    b.r.body = str_of(body, 64 << 20);
    assert_int_equal(http_start(&a.r), 0);
    await_request(&w, &first);
    assert_int_equal(http_start(&b.r), 0);
    await_request(&w, &second);
    second.deaf = true;
    for (int i = 0; i < 20; i++) /* until the peer's ears are full */
        tm_turn(w.client);
    answer(&first, OK_ANSWER);
    await_over(&w, &first, &a);
    assert_int_equal(a.err, 0);
    await_over(&w, &first, &b);
    assert_int_equal(b.err, TM_E_NETWORK);
    asked_deinit(&a);
    asked_deinit(&b);
    conn_close(&first);
    conn_close(&second);
    world_close(&w);
    free(body);
}

/* ---- callbacks ---- */

static void data_may_refuse(void **state)
{
    struct world w;
    struct conn k = CONN_NONE;
    struct asked a;
    assert_int_equal(world_open(&w, 0), 0);
    asked_init(&a, w.client, "GET", HTTP_1);
    a.refuse = TM_E_TOO_LARGE;
    assert_int_equal(http_start(&a.r), 0);
    await_request(&w, &k);
    answer(&k, OK_ANSWER);
    await_over(&w, &k, &a);
    assert_int_equal(a.err, TM_E_TOO_LARGE);
    assert_int_equal(tm_descriptors(w.client, NULL, 0), 0);
    asked_deinit(&a);
    conn_close(&k);
    world_close(&w);
}

/* At every point: before it went out, while it waits, in head(), in data(). */
static void requests_can_be_cancelled(void **state)
{
    for (int at = -2; at <= 2; at++) {
        struct world w;
        struct conn k = CONN_NONE;
        struct asked a;
        assert_int_equal(world_open(&w, 0), 0);
        asked_init(&a, w.client, "GET", HTTP_1);
        a.cancel_at = at;
        assert_int_equal(http_start(&a.r), 0);
        if (at > -2)
            await_request(&w, &k);
        if (at > 0)
            answer(&k, OK_ANSWER);
        struct patience p = patience_new();
        while (at > 0 && a.r.exchange != NULL) {
            conn_step(&k);
            tm_turn(w.client);
            patience_spend(&p);
        }
        http_cancel(&a.r);
        assert_null(a.r.exchange);
        for (int i = 0; i < 3; i++)
            tm_turn(w.client);
        assert_int_equal(a.overs, 0);
        assert_int_equal(tm_descriptors(w.client, NULL, 0), 0);
        asked_deinit(&a);
        conn_close(&k);
        world_close(&w);
    }
}

static void start_again(struct asked *a)
{
    a->then = NULL;
    assert_int_equal(http_start(&a->r), 0);
}

static void over_may_start_the_next(void **state)
{
    struct world w;
    struct conn k = CONN_NONE;
    struct asked a;
    assert_int_equal(world_open(&w, 0), 0);
    asked_init(&a, w.client, "GET", HTTP_1);
    a.then = start_again;
    assert_int_equal(http_start(&a.r), 0);
    await_request(&w, &k);
    answer(&k, OK_ANSWER);
    await_over(&w, &k, &a);
    a.overs = 0;
    await_request(&w, &k);
    answer(&k, OK_ANSWER);
    await_over(&w, &k, &a);
    assert_int_equal(a.err, 0);
    assert_string_equal(a.body.p, "okok");
    assert_int_equal(w.peer.accepted, 1);
    asked_deinit(&a);
    conn_close(&k);
    world_close(&w);
}

static void closing_the_client_ends_requests_without_a_word(void **state)
{
    struct world w;
    struct conn k = CONN_NONE;
    struct asked a, b;
    assert_int_equal(world_open(&w, 0), 0);
    asked_init(&a, w.client, "GET", HTTP_1);
    asked_init(&b, w.client, "GET", HTTP_1);
    assert_int_equal(http_start(&a.r), 0);
    await_request(&w, &k);
    assert_int_equal(http_start(&b.r), 0);
    world_close(&w);
    assert_null(a.r.exchange);
    assert_null(b.r.exchange);
    assert_int_equal(a.overs + b.overs, 0);
    asked_deinit(&a);
    asked_deinit(&b);
    conn_close(&k);
}

/* ---- time ---- */

static void check_timeout(int request_ms, int total_ms, const char *text)
{
    struct peer peer;
    struct conn k = CONN_NONE;
    struct asked a;
    struct tm_options o = TM_OPTIONS_INIT;
    struct world w = {0};
    peer_init(&peer);
    o.server = peer.url;
    o.request_timeout_ms = request_ms;
    assert_int_equal(tm_open(&o, &w.client), 0);
    w.peer = peer;
    asked_init(&a, w.client, "GET", HTTP_1);
    a.r.timeout_ms = total_ms;
    assert_int_equal(http_start(&a.r), 0);
    await_request(&w, &k);
    answer(&k, text);
    conn_step(&k);
    while (a.overs == 0)
        assert_int_equal(tm_wait(w.client, 10000), 1);
    assert_int_equal(a.err, TM_E_TIMEOUT);
    assert_int_equal(tm_descriptors(w.client, NULL, 0), 0);
    asked_deinit(&a);
    tm_close(w.client);
    conn_close(&k);
    peer_deinit(&peer);
}

static void silence_and_slowness_end_requests(void **state)
{
    check_timeout(60, 0, "");
    check_timeout(60, 0, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
    check_timeout(0, 60, "");
}

static void refused_connections_are_errors(void **state)
{
    struct world w;
    struct asked a;
    assert_int_equal(world_open(&w, 0), 0);
    close(w.peer.fd);
    asked_init(&a, w.client, "GET", HTTP_1);
    assert_int_equal(http_start(&a.r), 0);
    assert_int_equal(tm_wait(w.client, 10000), 1);
    assert_int_equal(a.overs, 1);
    assert_int_equal(a.err, TM_E_NETWORK);
    assert_non_null(strstr(a.r.message, "refused"));
    asked_deinit(&a);
    w.peer.fd = dup(2);
    world_close(&w);
}

/* ---- memory ---- */

/* Two requests, the second on the kept connection, with one allocation failing. */
static bool run_without_memory(size_t fail_at)
{
    struct world w;
    struct conn k = CONN_NONE;
    int err = world_open(&w, fail_at);
    for (int i = 0; err == 0 && i < 2; i++) {
        struct asked a;
        asked_init(&a, w.client, "POST", HTTP_1);
        a.r.body = STR("body");
        err = http_start(&a.r);
        struct patience p = patience_new();
        while (err == 0 && a.overs == 0) {
            tm_turn(w.client);
            if (k.fd < 0 || k.ended) {
                conn_close(&k);
                peer_accept(&w.peer, &k);
            }
            conn_step(&k);
            if (has_request(&k))
                answer(&k, fine[2].answer);
            patience_spend(&p);
        }
        if (err == 0)
            err = a.err;
        assert_int_equal(a.overs <= 1, 1);
        if (err == 0)
            assert_string_equal(a.body.p, "hello");
        asked_deinit(&a);
    }
    assert_int_equal(err, w.mem.failed ? TM_E_NOMEM : 0);
    bool failed = w.mem.failed;
    world_close(&w);
    conn_close(&k);
    return failed;
}

static void every_allocation_may_fail(void **state)
{
    size_t n = 1;
    while (run_without_memory(n))
        n++;
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_read),
        cmocka_unit_test(answers_cut_at_every_byte_are_errors),
        cmocka_unit_test(malformed_answers_are_refused),
        cmocka_unit_test(heads_and_extensions_are_bounded),
        cmocka_unit_test(interim_answers_are_bounded),
        cmocka_unit_test(changed_answers_do_no_harm),
        cmocka_unit_test(requests_say_what_they_should),
        cmocka_unit_test(what_cannot_be_sent_is_refused),
        cmocka_unit_test(connections_are_kept),
        cmocka_unit_test(connections_without_a_clean_end_are_not_kept),
        cmocka_unit_test(dead_connections_are_replaced),
        cmocka_unit_test(what_must_not_be_sent_twice_is_not),
        cmocka_unit_test(appends_that_may_stand_there_are_not_sent_again),
        cmocka_unit_test(a_request_is_sent_again_once),
        cmocka_unit_test(an_answer_before_the_end_of_the_request_is_taken),
        cmocka_unit_test(large_bodies_arrive),
        cmocka_unit_test(a_peer_that_hangs_up_raises_no_signal),
        cmocka_unit_test(data_may_refuse),
        cmocka_unit_test(requests_can_be_cancelled),
        cmocka_unit_test(over_may_start_the_next),
        cmocka_unit_test(closing_the_client_ends_requests_without_a_word),
        cmocka_unit_test(silence_and_slowness_end_requests),
        cmocka_unit_test(refused_connections_are_errors),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
