// SPDX-License-Identifier: Apache-2.0
/* Fetches over HTTP/2, by prior knowledge and by ALPN, and next to HTTP/1.1 on the same host. */
#include "unit/http/fetch_site.h"
#include "unit/http/fetch_tls_site.h"

/* -- frames ------------------------------------------------------------------------------------ */

enum { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, GOAWAY = 7 };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4 };
enum { NO_ERROR = 0, INTERNAL_ERROR = 2, REFUSED_STREAM = 7, CANCEL = 8 };

#define PREFACE    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define PREFACE_N  (sizeof PREFACE - 1)
#define FRAME_HEAD 9

static void put_u32(struct buf *out, uint32_t v)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        buf_putc(out, (char)(v >> shift));
}

static void put_frame(struct buf *out, int type, int flags, uint32_t stream, struct str payload)
{
    buf_putc(out, (char)(payload.n >> 16));
    buf_putc(out, (char)(payload.n >> 8));
    buf_putc(out, (char)payload.n);
    buf_putc(out, (char)type);
    buf_putc(out, (char)flags);
    put_u32(out, stream);
    buf_put(out, payload);
}

/* RST_STREAM, or GOAWAY with the stream as the last one that is served. */
static void put_code(struct buf *out, int type, uint32_t stream, uint32_t code)
{
    struct buf payload = {0};
    if (type == GOAWAY)
        put_u32(&payload, stream);
    put_u32(&payload, code);
    put_frame(out, type, 0, type == GOAWAY ? 0 : stream, buf_str(&payload));
    buf_deinit(&payload);
}

/* :status 200, and a header spelt out if there is one; the longest here has 127 bytes. */
static void put_head(struct buf *out, uint32_t stream, const char *name, const char *value)
{
    struct buf block = {0};
    buf_putc(&block, (char)0x88);
    if (name != NULL) {
        buf_putc(&block, 0);
        buf_putc(&block, (char)strlen(name));
        buf_put(&block, str_of_cstr(name));
        buf_putc(&block, (char)strlen(value));
        buf_put(&block, str_of_cstr(value));
    }
    put_frame(out, HEADERS, END_HEADERS, stream, buf_str(&block));
    buf_deinit(&block);
}

/* A whole frame at the start of `in`; 0: not yet. */
static size_t whole_frame(struct str in)
{
    if (in.n < FRAME_HEAD)
        return 0;
    const unsigned char *u = (const unsigned char *)in.p;
    size_t whole = FRAME_HEAD + ((size_t)u[0] << 16 | (size_t)u[1] << 8 | u[2]);
    return in.n >= whole ? whole : 0;
}

/* -- a site that speaks HTTP/2, or HTTP/1.1 to those who do, at one port ----------------------- */

struct h2_site;
typedef void h2_answer_fn(struct h2_site *h, struct buf *out, uint32_t stream, unsigned number);

struct h2_site {
    struct site *site; /* for its loop and its fetcher */
    uv_tcp_t listener;
    int port;
    struct link peers;
    /* What to say once a request has come (its body, too), on this stream; the number counts
     * requests from 0. */
    h2_answer_fn *answer;
    uint32_t reset_code;
    bool at_once;      /* not to wait for the body */
    bool close_after;  /* what was said */
    unsigned requests; /* over HTTP/2 */
    unsigned connections;
    struct buf body;        /* of the last request */
    unsigned most_at_once;  /* HTTP/1.1 requests on one connection without an answer */
    struct h2_peer *talker; /* who had a request last */
};

struct h2_peer {
    uv_tcp_t tcp;
    struct link link;
    struct h2_site *h;
    struct buf in;
    struct buf late; /* for h2_say_more */
    bool greeted, answered;
    unsigned waiting; /* HTTP/1.1 requests */
};

struct h2_write {
    uv_write_t req;
    struct buf out;
    bool close; /* afterwards */
};

static void on_h2_peer_closed(uv_handle_t *handle)
{
    struct h2_peer *p = handle->data;
    buf_deinit(&p->in);
    buf_deinit(&p->late);
    free(p);
}

static void h2_peer_close(struct h2_peer *p)
{
    if (uv_is_closing((uv_handle_t *)&p->tcp))
        return;
    if (p->h->talker == p)
        p->h->talker = NULL;
    list_remove(&p->link);
    uv_close((uv_handle_t *)&p->tcp, on_h2_peer_closed);
}

static void on_h2_written(uv_write_t *req, int status)
{
    struct h2_write *w = container_of(req, struct h2_write, req);
    if (w->close)
        h2_peer_close(req->handle->data);
    buf_deinit(&w->out);
    free(w);
}

/* Takes over `out`. */
static void h2_say(struct h2_peer *p, struct buf out, bool close_after)
{
    struct h2_write *w = mem_zalloc(sizeof *w);
    w->out = out;
    w->close = close_after;
    uv_buf_t b = uv_buf_init(out.p, (unsigned)out.n);
    uv_write(&w->req, (uv_stream_t *)&p->tcp, &b, 1, on_h2_written);
}

static void h2_say_more(struct h2_site *h)
{
    list_each (l, &h->peers) {
        struct h2_peer *p = list_item(l, struct h2_peer, link);
        struct buf out = p->late;
        p->late = (struct buf){0};
        if (out.n > 0)
            h2_say(p, out, false);
    }
}

static void h2_answer(struct h2_peer *p, uint32_t stream)
{
    struct h2_site *h = p->h;
    struct buf out = {0};
    h->talker = p;
    p->answered = true;
    h->answer(h, &out, stream, h->requests++);
    if (out.n > 0)
        h2_say(p, out, h->close_after);
}

static void h2_frame(struct h2_peer *p, struct str frame)
{
    const unsigned char *u = (const unsigned char *)frame.p;
    int type = u[3], flags = u[4];
    uint32_t stream = (uint32_t)u[7] << 8 | u[8];
    struct buf out = {0};
    if (type == SETTINGS && !(flags & ACK)) {
        put_frame(&out, SETTINGS, 0, 0, STR_NONE);
        put_frame(&out, SETTINGS, ACK, 0, STR_NONE);
        h2_say(p, out, false);
    }
    if (type == HEADERS)
        p->h->body.n = 0;
    if (type == DATA && !p->answered)
        buf_put(&p->h->body, str_skip(frame, FRAME_HEAD));
    bool complete = (type == HEADERS || type == DATA) && flags & END_STREAM;
    if (!p->answered && (p->h->at_once ? type == HEADERS : complete))
        h2_answer(p, stream); /* no more than one to a connection, as fetch has it */
}

static void on_h1_late(uv_timer_t *t);

/* Answers to HTTP/1.1 come late, each with its path, in the order of the requests. */
struct h1_late {
    uv_timer_t timer;
    struct h2_peer *peer;
    char path[32];
};

static void on_h1_late_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_h1_late(uv_timer_t *t)
{
    struct h1_late *late = t->data;
    struct buf out = {0};
    buf_printf(&out, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(late->path),
               late->path);
    late->peer->waiting--;
    h2_say(late->peer, out, false);
    uv_close((uv_handle_t *)t, on_h1_late_closed);
}

static void h1_request(struct h2_peer *p, struct str request)
{
    struct h1_late *late = mem_zalloc(sizeof *late);
    struct str rest = request;
    str_cut(&rest, ' ');
    struct str path = str_cut(&rest, ' ');
    snprintf(late->path, sizeof late->path, "%.*s", (int)path.n, path.p);
    late->peer = p;
    late->timer.data = late;
    if (++p->waiting > p->h->most_at_once)
        p->h->most_at_once = p->waiting;
    uv_timer_init(&p->h->site->loop.uv, &late->timer);
    uv_timer_start(&late->timer, on_h1_late, 20, 0);
}

/* The size of what could be taken from the start of `in`; 0: more is needed. */
static size_t h2_take(struct h2_peer *p, struct str in)
{
    size_t n = 0;
    if (p->greeted && (n = whole_frame(in)) > 0) {
        h2_frame(p, str_of(in.p, n));
    } else if (!p->greeted && str_starts(in, STR(PREFACE))) {
        p->greeted = true;
        n = PREFACE_N;
    } else if (!p->greeted && in.n > 0 && in.p[0] == 'G' && (n = whole_request(in)) > 0) {
        h1_request(p, str_of(in.p, n));
    }
    return n;
}

static void on_h2_bytes(uv_stream_t *stream, ssize_t n, const uv_buf_t *b)
{
    struct h2_peer *p = stream->data;
    if (n < 0)
        return h2_peer_close(p);
    buf_put(&p->in, str_of(b->base, (size_t)n));
    size_t done = 0;
    for (size_t took; (took = h2_take(p, str_skip(buf_str(&p->in), done))) > 0;)
        done += took;
    struct buf rest = {0};
    buf_put(&rest, str_skip(buf_str(&p->in), done));
    buf_deinit(&p->in);
    p->in = rest;
}

static void on_h2_alloc(uv_handle_t *handle, size_t hint, uv_buf_t *b)
{
    struct h2_peer *p = handle->data;
    *b = uv_buf_init(p->h->site->loop.scratch, LOOP_SCRATCH);
}

static void on_h2_connection(uv_stream_t *listener, int status)
{
    struct h2_site *h = listener->data;
    struct h2_peer *p = mem_zalloc(sizeof *p);
    p->h = h;
    h->connections++;
    list_push(&h->peers, &p->link);
    uv_tcp_init(&h->site->loop.uv, &p->tcp);
    p->tcp.data = p;
    assert_int_equal(uv_accept(listener, (uv_stream_t *)&p->tcp), 0);
    uv_read_start((uv_stream_t *)&p->tcp, on_h2_alloc, on_h2_bytes);
}

static int h2_set_up(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int size = sizeof at;
    struct h2_site *h = mem_zalloc(sizeof *h);
    set_up((void **)&h->site);
    list_init(&h->peers);
    uv_tcp_init(&h->site->loop.uv, &h->listener);
    h->listener.data = h;
    assert_int_equal(uv_tcp_bind(&h->listener, (struct sockaddr *)&at, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&h->listener, 64, on_h2_connection), 0);
    uv_tcp_getsockname(&h->listener, (struct sockaddr *)&at, &size);
    h->port = ntohs(at.sin_port);
    *state = h;
    return 0;
}

static int h2_tear_down(void **state)
{
    struct h2_site *h = *state;
    uv_close((uv_handle_t *)&h->listener, NULL);
    list_each_safe (l, &h->peers)
        h2_peer_close(list_item(l, struct h2_peer, link));
    tear_down((void **)&h->site);
    buf_deinit(&h->body);
    free(h);
    return 0;
}

static struct seen *prepare_h2(struct h2_site *h, const char *path)
{
    struct seen *s = prepare(h->site, "");
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d%s", h->port, path);
    s->fetch.url = str_of_cstr(s->url);
    s->fetch.version = FETCH_HTTP2;
    s->fetch.on_data = on_data;
    s->fetch.total_timeout_ms = 20000; /* a stall is a failure, not a hang */
    return s;
}

static struct seen *get_h2(struct h2_site *h)
{
    struct seen *s = prepare_h2(h, "/");
    start(s);
    while (s->dones == 0) {
        if (s->body.n > 0)
            h2_say_more(h);
        uv_run(&s->site->loop.uv, UV_RUN_ONCE);
    }
    return s;
}

/* -- answers ----------------------------------------------------------------------------------- */

static void say_hello(struct h2_site *h, struct buf *out, uint32_t stream, unsigned number)
{
    put_head(out, stream, "content-type", "text/plain");
    put_frame(out, DATA, END_STREAM, stream, STR("hello"));
}

static void say_head(struct h2_site *h, struct buf *out, uint32_t stream, unsigned number)
{
    put_head(out, stream, "content-type", "text/event-stream");
    put_frame(&h->talker->late, DATA, 0, stream, STR("one"));
}

#define PIECE 1996

/* A size of its own for each request. */
static size_t big_size(unsigned number)
{
    return 10000 + number * 4000;
}

/* First a piece, then all the others at once. */
static void say_big(struct h2_site *h, struct buf *out, uint32_t stream, unsigned number)
{
    struct buf body = {0};
    put_body(&body, big_size(number));
    put_head(out, stream, NULL, NULL);
    for (size_t at = 0; at < body.n; at += PIECE) {
        struct str rest = str_skip(buf_str(&body), at);
        struct str piece = str_of(rest.p, rest.n < PIECE ? rest.n : PIECE);
        put_frame(at == 0 ? out : &h->talker->late, DATA, 0, stream, piece);
    }
    put_frame(&h->talker->late, DATA, END_STREAM, stream, STR_NONE);
    buf_deinit(&body);
}

static void test_prior_knowledge(void **state)
{
    struct h2_site *h = *state;
    h->answer = say_hello;
    for (unsigned i = 1; i <= 3; i++) {
        struct seen *s = get_h2(h);
        assert_failed(s, FETCH_NONE);
        assert_int_equal(s->fetch.status, 200);
        assert_int_equal(s->fetch.http_version, 20);
        assert_string_equal(s->content_type, "text/plain");
        assert_body(s, "hello");
        assert_int_equal(h->connections, i); /* each has its own: see fetch_request.c */
    }
    while (!list_empty(&h->peers)) /* and none is kept */
        uv_run(&h->site->loop.uv, UV_RUN_ONCE);
}

static void test_what_comes_is_handed_on(void **state)
{
    struct h2_site *h = *state;
    h->answer = say_head;
    struct seen *s = prepare_h2(h, "/");
    start(s);
    while (s->heads == 0)
        uv_run(&h->site->loop.uv, UV_RUN_ONCE);
    assert_true(str_eq(s->fetch.content_type, STR("text/event-stream")));
    assert_int_equal(s->body.n, 0);
    h2_say_more(h);
    while (s->body.n == 0)
        uv_run(&h->site->loop.uv, UV_RUN_ONCE);
    assert_body(s, "one");
    assert_int_equal(s->dones, 0);
    fetch_cancel(&s->fetch);
}

/* The rest of all of them comes at once: libcurl's buffers decide whether all of it is seen, see
 * fetch_request.c. */
static void get_big_answers(struct h2_site *h, int pauses)
{
    struct seen *all[30];
    h->answer = say_big;
    for (size_t i = 0; i < COUNT(all); i++) {
        all[i] = prepare_h2(h, "/");
        start(all[i]);
        while (all[i]->body.n == 0)
            uv_run(&h->site->loop.uv, UV_RUN_ONCE);
        all[i]->pauses = pauses > 0 ? pauses + (int)i % 4 : 0;
        all[i]->resume_at_once = i % 8 >= 4;
    }
    h2_say_more(h);
    for (size_t i = 0; i < COUNT(all); i++) {
        run_until_done(all[i]);
        assert_failed(all[i], FETCH_NONE);
        assert_true(is_big_body(buf_str(&all[i]->body), big_size((unsigned)i)));
    }
}

static void test_big_answers(void **state)
{
    get_big_answers(*state, 0);
}

static void test_big_answers_with_pauses(void **state)
{
    get_big_answers(*state, 1);
}

/* -- broken answers ---------------------------------------------------------------------------- */

/* One at a time, so that what went before has been handed on. */
static void say_and_reset(struct h2_site *h, struct buf *out, uint32_t stream, unsigned number)
{
    put_head(out, stream, NULL, NULL);
    put_frame(out, DATA, 0, stream, STR("part"));
    put_code(&h->talker->late, RST_STREAM, stream, h->reset_code);
}

static void reset_at_once(struct h2_site *h, struct buf *out, uint32_t stream, unsigned number)
{
    put_code(out, RST_STREAM, stream, INTERNAL_ERROR);
}

static void say_part(struct h2_site *h, struct buf *out, uint32_t stream, unsigned number)
{
    put_head(out, stream, NULL, NULL);
    put_frame(out, DATA, 0, stream, STR("part"));
}

static void say_short(struct h2_site *h, struct buf *out, uint32_t stream, unsigned number)
{
    put_head(out, stream, "content-length", "50");
    put_frame(out, DATA, 0, stream, STR("not fifty"));
    put_frame(&h->talker->late, DATA, END_STREAM, stream, STR_NONE);
}

static void say_goaway(struct h2_site *h, struct buf *out, uint32_t stream, unsigned number)
{
    put_head(out, stream, NULL, NULL);
    put_code(out, GOAWAY, stream, NO_ERROR);
    put_frame(out, DATA, END_STREAM, stream, STR("to the end"));
}

static void say_goaway_unserved(struct h2_site *h, struct buf *out, uint32_t stream,
                                unsigned number)
{
    put_code(out, GOAWAY, 0, INTERNAL_ERROR);
}

static void say_garbage(struct h2_site *h, struct buf *out, uint32_t stream, unsigned number)
{
    buf_put(out, STR("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"));
}

static void test_broken_answers(void **state)
{
    static const struct {
        h2_answer_fn *answer;
        uint32_t code;
        bool close_after;
        enum fetch_cause cause;
    } cases[] = {
        {say_and_reset, INTERNAL_ERROR, false, FETCH_CUT},
        {say_and_reset, CANCEL, false, FETCH_CUT},
        {say_part, 0, true, FETCH_CUT},
        {say_short, 0, false, FETCH_CUT},
        {say_goaway, 0, false, FETCH_NONE},
        {say_goaway_unserved, 0, true, FETCH_NO_ANSWER},
        {reset_at_once, 0, false, FETCH_NO_ANSWER},
        {say_garbage, 0, true, FETCH_NO_ANSWER},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct h2_site *h = *state;
        h->answer = cases[i].answer;
        h->close_after = cases[i].close_after;
        h->reset_code = cases[i].code;
        struct seen *s = get_h2(h);
        if (s->fetch.cause != cases[i].cause)
            fail_msg("case %zu: %s (%s)", i, fetch_cause_text(s->fetch.cause), s->fetch.error);
    }
}

/* A reset that says there was no error is an error all the same; a libcurl that does not see it
 * must at least not be believed. */
static void test_reset_without_an_error_is_no_proven_end(void **state)
{
    struct h2_site *h = *state;
    h->answer = say_and_reset;
    h->reset_code = NO_ERROR;
    struct seen *s = get_h2(h);
    assert_true(s->fetch.cause == FETCH_CUT || !s->fetch.end_marked);
}

static void refuse_once(struct h2_site *h, struct buf *out, uint32_t stream, unsigned number)
{
    if (number == 0)
        put_code(out, RST_STREAM, stream, REFUSED_STREAM);
    else
        say_hello(h, out, stream, number);
    h->at_once = false;
}

/* The body is sent from its start, though libcurl had read some of it for the first attempt. */
static void test_refused_stream_is_tried_again(void **state)
{
    struct h2_site *h = *state;
    struct buf body = {0};
    put_body(&body, 50000); /* within the window that every stream has */
    h->answer = refuse_once;
    h->at_once = true;
    struct seen *s = prepare_h2(h, "/");
    s->fetch.method = STR("POST");
    s->fetch.body = buf_str(&body);
    start(s);
    run_until_done(s);
    assert_failed(s, FETCH_NONE);
    assert_int_equal(h->requests, 2);
    assert_true(is_big_body(buf_str(&h->body), body.n));
    buf_deinit(&body);
}

static void say_nothing(struct h2_site *h, struct buf *out, uint32_t stream, unsigned number)
{
}

static void test_silence(void **state)
{
    static const struct {
        h2_answer_fn *answer;
        enum fetch_cause cause;
    } cases[] = {{say_nothing, FETCH_FIRST_BYTE_TIMEOUT}, {say_part, FETCH_IDLE_TIMEOUT}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct h2_site *h = *state;
        h->answer = cases[i].answer;
        struct seen *s = prepare_h2(h, "/");
        s->fetch.first_byte_timeout_ms = 50;
        s->fetch.idle_timeout_ms = 50;
        start(s);
        run_until_done(s);
        assert_failed(s, cases[i].cause);
        assert_int_equal(s->err, ERR_UPSTREAM_TIMEOUT);
    }
}

/* -- back-pressure ----------------------------------------------------------------------------- */

#define FLOOD_MAX (64 << 20)

static void say_flood(struct h2_site *h, struct buf *out, uint32_t stream, unsigned number)
{
    struct buf piece = {0};
    put_body(&piece, 16384);
    put_head(out, stream, NULL, NULL);
    while (out->n < FLOOD_MAX / 4) /* within the 32 MiB that libcurl allows for */
        put_frame(out, DATA, 0, stream, buf_str(&piece));
    buf_deinit(&piece);
}

/* Most of it stays with the site: what libcurl would keep for us it would have read. */
static void test_pause_holds_the_peer_back(void **state)
{
    struct h2_site *h = *state;
    h->answer = say_flood;
    struct seen *s = prepare_h2(h, "/");
    s->pauses = 1;
    s->stay_paused = true;
    start(s);
    while (s->pauses > 0)
        uv_run(&h->site->loop.uv, UV_RUN_ONCE);
    for (int i = 0; i < 200; i++) {
        uv_run(&h->site->loop.uv, UV_RUN_NOWAIT);
        usleep(500);
    }
    size_t left = uv_stream_get_write_queue_size((uv_stream_t *)&h->talker->tcp);
    assert_true(left > FLOOD_MAX / 8);
    fetch_cancel(&s->fetch);
}

/* -- next to HTTP/1.1 -------------------------------------------------------------------------- */

static struct seen *start_auto(struct h2_site *h, const char *path)
{
    struct seen *s = prepare_h2(h, path);
    s->fetch.version = FETCH_HTTP_AUTO;
    start(s);
    return s;
}

/* The host has a kept connection that speaks HTTP/1.1 and one that speaks HTTP/2: no reason to put
 * two requests on the first. */
static void test_answers_are_not_mixed_up(void **state)
{
    struct h2_site *h = *state;
    struct seen *all[8];
    h->answer = say_head;
    run_until_done(start_auto(h, "/kept"));
    struct seen *h2 = prepare_h2(h, "/");
    start(h2);
    while (h2->heads == 0)
        uv_run(&h->site->loop.uv, UV_RUN_ONCE);
    for (size_t i = 0; i < COUNT(all); i++) {
        char path[16];
        snprintf(path, sizeof path, "/%zu", i);
        all[i] = start_auto(h, path);
    }
    for (size_t i = 0; i < COUNT(all); i++) {
        run_until_done(all[i]);
        assert_failed(all[i], FETCH_NONE);
        assert_int_equal(all[i]->fetch.http_version, 11); /* never by an upgrade */
        assert_body(all[i], strrchr(all[i]->url, '/'));
    }
    assert_int_equal(h->most_at_once, 1);
    assert_int_equal(h2->dones, 0);
    fetch_cancel(&h2->fetch);
}

/* Nor does a request that must speak HTTP/2 take the kept connection, which does not. */
static void test_prior_knowledge_beside_a_kept_connection(void **state)
{
    struct h2_site *h = *state;
    h->answer = say_hello;
    run_until_done(start_auto(h, "/kept"));
    struct seen *s = get_h2(h);
    assert_failed(s, FETCH_NONE);
    assert_int_equal(s->fetch.http_version, 20);
    assert_body(s, "hello");
    assert_int_equal(h->connections, 2);
}

/* -- ALPN -------------------------------------------------------------------------------------- */

static bool h2_asked(struct str in)
{
    if (in.n < PREFACE_N)
        return false;
    in = str_skip(in, PREFACE_N);
    for (size_t n; (n = whole_frame(in)) > 0; in = str_skip(in, n))
        if (in.p[3] == HEADERS)
            return true;
    return false;
}

static void test_alpn(void **state)
{
    struct site *site = ((struct h2_site *)*state)->site;
    struct buf h2 = {0};
    put_frame(&h2, SETTINGS, 0, 0, STR_NONE);
    put_frame(&h2, SETTINGS, ACK, 0, STR_NONE);
    put_head(&h2, 1, "content-length", "6");
    put_frame(&h2, DATA, END_STREAM, 1, STR("secret"));
    for (int chosen = 0; chosen < 2; chosen++)
        for (int version = FETCH_HTTP_AUTO; version <= FETCH_HTTP2; version++) {
            struct tls_site t;
            tls_site_init(&t, chosen ? "h2" : "http/1.1",
                          chosen ? buf_str(&h2)
                                 : STR("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret"));
            t.asked = chosen ? h2_asked : NULL;
            fetcher_trust(site->fetcher, t.ca_file);
            struct seen *s = prepare(site, "");
            snprintf(s->url, sizeof s->url, "https://inner.test:%d/", t.port);
            s->fetch.url = str_of_cstr(s->url);
            s->fetch.version = (enum fetch_version)version;
            start(s);
            run_until_done(s);
            assert_failed(s, FETCH_NONE);
            assert_int_equal(s->fetch.http_version, chosen ? 20 : 11);
            assert_true(s->fetch.end_marked);
            assert_body(s, "secret");
            assert_string_equal(t.offered, "\x02h2\x08http/1.1");
            tls_site_deinit(&t);
        }
    buf_deinit(&h2);
}

#define H2_TEST(f) cmocka_unit_test_setup_teardown(f, h2_set_up, h2_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        H2_TEST(test_prior_knowledge),
        H2_TEST(test_what_comes_is_handed_on),
        H2_TEST(test_big_answers),
        H2_TEST(test_big_answers_with_pauses),
        H2_TEST(test_broken_answers),
        H2_TEST(test_reset_without_an_error_is_no_proven_end),
        H2_TEST(test_refused_stream_is_tried_again),
        H2_TEST(test_silence),
        H2_TEST(test_pause_holds_the_peer_back),
        H2_TEST(test_answers_are_not_mixed_up),
        H2_TEST(test_prior_knowledge_beside_a_kept_connection),
        H2_TEST(test_alpn),
    };
    return cmocka_run_group_tests(tests, site_once, NULL);
}
