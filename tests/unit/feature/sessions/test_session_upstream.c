// SPDX-License-Identifier: Apache-2.0
/* One job of a session at a time, against a server on the same loop that answers by a script. */
#include "feature/sessions/session_upstream.h"
#include "base/err.h"
#include "http/fetch.h"
#include "net/loop.h"
#include "feature/sessions/session_config.h"
#include "telemetry/trace.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#define PATIENCE_S   60 /* a test that hangs is killed by SIGALRM */
#define REQUESTS_MAX 8
#define KEY          "5e9c8c0a-1111"
#define SAME_KEY     "\r\nIdempotency-Key: " KEY "/7\r\n"
#define SSE          "Content-Type: text/event-stream\r\n"
#define BROKEN                                                                                     \
    "the upstream broke off its answer, and it gives its events no ids by which it could be "      \
    "continued"

enum finish {
    WHOLE,    /* says how long it is, and is */
    CUT,      /* ends before its length */
    OPEN,     /* goes on, but nothing more comes */
    UNMARKED, /* ends with its connection */
    HANG_UP,  /* no answer at all */
};

/* One answer. */
struct step {
    const char *status; /* "200 OK" */
    const char *headers;
    const char *body;
    enum finish finish;
};

struct world {
    struct loop loop;
    struct fetcher *fetcher;
    uv_tcp_t listener;
    struct link peers;
    const struct step *steps;
    size_t n_steps;
    struct buf requests[REQUESTS_MAX]; /* as they came */
    size_t n_requests;

    struct session_config config;
    char url[64];
    struct trace trace;
    char *traced;
    size_t n_traced, heard; /* heard: what was said before the job began */
    struct session_upstream *upstream;
    const struct session_backend *backend;
    struct session_reply reply;

    struct buf events; /* `id=data;` each, with a `!` in front if it is no text */
    int n_events;
    int verdicts[4]; /* on the first events; on later ones: 1 */
    size_t n_verdicts;
    int ends;
    enum end_reason end;
    char message[512];
};

/* -- the server -------------------------------------------------------------------------------- */

struct peer {
    uv_tcp_t tcp;
    struct link link;
    struct world *world;
    struct buf in;
};

struct reply {
    uv_write_t req;
    struct buf out;
    bool close;
};

static void on_peer_closed(uv_handle_t *h)
{
    struct peer *p = h->data;
    buf_deinit(&p->in);
    free(p);
}

static void peer_close(struct peer *p)
{
    if (uv_is_closing((uv_handle_t *)&p->tcp))
        return;
    list_remove(&p->link);
    uv_close((uv_handle_t *)&p->tcp, on_peer_closed);
}

static void on_written(uv_write_t *req, int status)
{
    struct reply *r = container_of(req, struct reply, req);
    if (r->close)
        peer_close(req->handle->data);
    buf_deinit(&r->out);
    free(r);
}

static void answer(struct peer *p, const struct step *s)
{
    if (s->finish == HANG_UP) {
        peer_close(p);
        return;
    }
    struct reply *r = mem_zalloc(sizeof *r);
    size_t n = strlen(s->body);
    r->close = s->finish == CUT || s->finish == UNMARKED;
    buf_printf(&r->out, "HTTP/1.1 %s\r\n%s", s->status, s->headers);
    if (s->finish == CUT || s->finish == WHOLE)
        buf_printf(&r->out, "Content-Length: %zu\r\n", n + (s->finish == CUT ? 9 : 0));
    buf_put(&r->out, STR("\r\n"));
    buf_put(&r->out, str_of(s->body, n));
    uv_buf_t b = uv_buf_init(r->out.p, (unsigned)r->out.n);
    assert_int_equal(uv_write(&r->req, (uv_stream_t *)&p->tcp, &b, 1, on_written), 0);
}

/* The size of the request in `in`; 0: not all of it is here. */
static size_t whole_request(struct str in)
{
    const char *end = memmem(in.p, in.n, "\r\n\r\n", 4);
    if (end == NULL)
        return 0;
    size_t head = (size_t)(end - in.p) + 4;
    const char *length = memmem(in.p, head, "Content-Length: ", 16);
    size_t whole = head + (length != NULL ? strtoul(length + 16, NULL, 10) : 0);
    return in.n >= whole ? whole : 0;
}

static void on_bytes(uv_stream_t *stream, ssize_t n, const uv_buf_t *b)
{
    struct peer *p = stream->data;
    struct world *w = p->world;
    if (n < 0) {
        peer_close(p);
        return;
    }
    buf_put(&p->in, str_of(b->base, (size_t)n));
    size_t whole = whole_request(buf_str(&p->in));
    if (whole == 0)
        return;
    assert_in_range(w->n_requests, 0, w->n_steps - 1); /* or nobody should have asked */
    buf_put(&w->requests[w->n_requests], str_of(p->in.p, whole));
    p->in.n = 0;
    answer(p, &w->steps[w->n_requests++]);
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *b)
{
    struct peer *p = h->data;
    *b = uv_buf_init(p->world->loop.scratch, LOOP_SCRATCH);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct world *w = listener->data;
    struct peer *p = mem_zalloc(sizeof *p);
    p->world = w;
    list_push(&w->peers, &p->link);
    uv_tcp_init(&w->loop.uv, &p->tcp);
    p->tcp.data = p;
    assert_int_equal(uv_accept(listener, (uv_stream_t *)&p->tcp), 0);
    uv_read_start((uv_stream_t *)&p->tcp, on_alloc, on_bytes);
}

/* -- the engine -------------------------------------------------------------------------------- */

static int on_event(struct session_reply *reply, struct str content, bool is_text, struct str id)
{
    struct world *w = (struct world *)reply->session;
    int verdict = (size_t)w->n_events < w->n_verdicts ? w->verdicts[w->n_events] : 1;
    if (verdict < 0)
        return verdict;
    w->n_events++;
    if (!is_text)
        buf_putc(&w->events, '!');
    buf_put(&w->events, id);
    buf_putc(&w->events, '=');
    buf_put(&w->events, content);
    buf_putc(&w->events, ';');
    return verdict;
}

static void on_end(struct session_reply *reply, enum end_reason end, struct str message)
{
    struct world *w = (struct world *)reply->session;
    w->ends++;
    w->end = end;
    snprintf(w->message, sizeof w->message, "%.*s", (int)message.n, message.n ? message.p : "");
    assert_null(reply->state);
}

/* -- the world --------------------------------------------------------------------------------- */

static void listen_on_loopback(struct world *w)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int size = sizeof at;
    uv_tcp_init(&w->loop.uv, &w->listener);
    w->listener.data = w;
    assert_int_equal(uv_tcp_bind(&w->listener, (struct sockaddr *)&at, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&w->listener, 64, on_connection), 0);
    uv_tcp_getsockname(&w->listener, (struct sockaddr *)&at, &size);
    snprintf(w->url, sizeof w->url, "http://127.0.0.1:%d/answer?a=b", ntohs(at.sin_port));
}

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    alarm(PATIENCE_S);
    list_init(&w->peers);
    assert_int_equal(loop_init(&w->loop), 0);
    listen_on_loopback(w);
    w->fetcher = fetcher_new(&w->loop);
    w->trace.to = open_memstream(&w->traced, &w->n_traced);
    w->trace.level = TRACE_DEBUG;
    w->config = (struct session_config){.upstream = w->url,
                                        .handler = SESSION_HANDLER_NONE,
                                        .upstream_http = FETCH_HTTP1,
                                        .connect_timeout_ms = 10000,
                                        .first_byte_timeout_ms = 10000,
                                        .idle_timeout_ms = 10000};
    w->upstream = session_upstream_new(&(struct session_upstream_setup){.sched = &w->loop.sched,
                                                                        .fetcher = w->fetcher,
                                                                        .trace = &w->trace,
                                                                        .config = &w->config,
                                                                        .event = on_event,
                                                                        .end = on_end});
    w->backend = session_upstream_backend(w->upstream);
    w->reply = (struct session_reply){.session = (struct session *)w,
                                      .key = STR(KEY),
                                      .service = SESSION_TIDEMARK,
                                      .seqno = 7,
                                      .chunk = STR("the chunk")};
    *state = w;
    return 0;
}

/* loop_deinit asserts that no handle is left, session_upstream_free that no job is. */
static int tear_down(void **state)
{
    struct world *w = *state;
    if (w->reply.state != NULL)
        w->backend->stop(w->backend->ctx, &w->reply);
    session_upstream_free(w->upstream);
    fetcher_free(w->fetcher);
    uv_close((uv_handle_t *)&w->listener, NULL);
    list_each_safe (l, &w->peers)
        peer_close(list_item(l, struct peer, link));
    loop_run(&w->loop);
    loop_deinit(&w->loop);
    fclose(w->trace.to);
    free(w->traced);
    for (size_t i = 0; i < REQUESTS_MAX; i++)
        buf_deinit(&w->requests[i]);
    buf_deinit(&w->events);
    free(w);
    return 0;
}

static void start(struct world *w, const struct step *steps, size_t n)
{
    assert_in_range(n, 0, REQUESTS_MAX);
    fflush(w->trace.to);
    w->heard = w->n_traced;
    w->steps = steps;
    w->n_steps = n;
    w->n_requests = 0;
    w->ends = 0;
    w->n_events = 0;
    w->events.n = 0;
    for (size_t i = 0; i < REQUESTS_MAX; i++)
        w->requests[i].n = 0;
    w->backend->start(w->backend->ctx, &w->reply);
    assert_int_equal(w->ends, 0); /* not from within */
}

static void run(struct world *w)
{
    uv_run(&w->loop.uv, UV_RUN_ONCE);
}

/* Some more rounds, in which nothing is expected to happen. */
static void run_rounds(struct world *w)
{
    for (int i = 0; i < 20; i++)
        uv_run(&w->loop.uv, UV_RUN_NOWAIT);
}

static void on_time_up(uv_timer_t *t)
{
    *(bool *)t->data = true;
}

static void run_for(struct world *w, uint64_t ms)
{
    bool up = false;
    uv_timer_t timer;
    uv_timer_init(&w->loop.uv, &timer);
    timer.data = &up;
    uv_timer_start(&timer, on_time_up, ms, 0);
    while (!up)
        run(w);
    uv_close((uv_handle_t *)&timer, NULL);
    run_rounds(w);
}

/* To its end, which takes as many requests as there are steps. */
static void play(struct world *w, const struct step *steps, size_t n)
{
    start(w, steps, n);
    sched_drain(&w->loop.sched); /* what ends at once gives the loop nothing to wake up for */
    while (w->ends == 0)
        run(w);
    run_rounds(w);
    assert_int_equal(w->ends, 1);
    assert_int_equal(w->n_requests, n);
}
#define PLAY(w, ...)                                                                               \
    play((w), (const struct step[]){__VA_ARGS__},                                                  \
         sizeof((const struct step[]){__VA_ARGS__}) / sizeof(struct step))

static void assert_events(const struct world *w, const char *expected)
{
    char text[4096];
    snprintf(text, sizeof text, "%.*s", (int)w->events.n, w->events.n ? w->events.p : "");
    assert_string_equal(text, expected);
}

static void assert_completed(const struct world *w, const char *events)
{
    assert_events(w, events);
    assert_string_equal(w->message, "");
    assert_int_equal(w->end, END_COMPLETED);
}

static void assert_failed(const struct world *w, const char *message)
{
    assert_string_equal(w->message, message);
    assert_int_equal(w->end, END_FAILED);
}

static bool request_has(const struct world *w, size_t i, const char *text)
{
    const struct buf *r = &w->requests[i];
    return r->n > 0 && memmem(r->p, r->n, text, strlen(text)) != NULL;
}

static bool is_traced(struct world *w, const char *text)
{
    fflush(w->trace.to);
    return strstr(w->traced + w->heard, text) != NULL;
}

/* What the latest trace of an answer that did not come says; 0: there is none. */
static unsigned long latest_wait(struct world *w)
{
    static const char mark[] = "; next try in ";
    unsigned long ms = 0;
    fflush(w->trace.to);
    for (const char *at = w->traced + w->heard; (at = strstr(at, mark)) != NULL;) {
        at += sizeof mark - 1;
        ms = strtoul(at, NULL, 10);
    }
    return ms;
}

/* Runs until the upstream was asked in vain; how long the next try is off. */
static unsigned long run_until_retry(struct world *w)
{
    while (latest_wait(w) == 0)
        run(w);
    assert_int_equal(w->ends, 0);
    return latest_wait(w);
}

static void stop(struct world *w)
{
    w->backend->stop(w->backend->ctx, &w->reply);
    assert_null(w->reply.state);
}

/* -- answers ----------------------------------------------------------------------------------- */

static void test_events_become_events(void **state)
{
    struct world *w = *state;
    PLAY(w, {"200 OK", "Content-Type: Text/Event-Stream; charset=utf-8\r\n",
             ": hello\n\nid: a\ndata: one\n\nevent: delta\ndata: two\ndata: lines\n\n"
             "data:\n\nid: b\r\ndata: three\r\n\r\ndata: [DONE]\n\ndata: late\n\ndata: half",
             WHOLE});
    assert_completed(w, "a=one;=two\nlines;b=three;");
    assert_true(request_has(w, 0, "POST /answer?a=b HTTP/1.1\r\n"));
    assert_true(request_has(w, 0, SAME_KEY));
    assert_true(request_has(w, 0, "\r\nAccept: text/event-stream\r\n"));
    assert_true(request_has(w, 0, "\r\nContent-Type: application/octet-stream\r\n"));
    assert_true(request_has(w, 0, "\r\n\r\nthe chunk"));
    assert_false(request_has(w, 0, "Last-Event-ID"));
}

static void test_other_answers_are_one_event(void **state)
{
    struct world *w = *state;
    PLAY(w, {"201 Created", "Content-Type: text/plain\r\n", "data: x\n\n", WHOLE});
    assert_completed(w, "=data: x\n\n;");
    PLAY(w, {"200 OK", "Content-Type: application/proto\r\n", "pb", WHOLE});
    assert_completed(w, "!=pb;");
    PLAY(w, {"200 OK", "", "bare", WHOLE});
    assert_completed(w, "=bare;");
    PLAY(w, {"200 OK", "Content-Type: text/plain\r\n", "", WHOLE});
    assert_completed(w, "");
    PLAY(w, {"200 OK", SSE, "", WHOLE});
    assert_completed(w, "");
    PLAY(w, {"204 No Content", "", "", OPEN});
    assert_completed(w, "");
}

static void test_content_types(void **state)
{
    struct world *w = *state;
    w->reply.service = SESSION_AISERVER;
    w->reply.chunk = STR("");
    PLAY(w, {"204 No Content", "", "", OPEN});
    assert_true(request_has(w, 0, "\r\nContent-Type: application/proto\r\n"));
    assert_true(request_has(w, 0, "\r\nContent-Length: 0\r\n"));
    w->config.content_type = (char[]){"text/x-own"};
    PLAY(w, {"204 No Content", "", "", OPEN});
    assert_true(request_has(w, 0, "\r\nContent-Type: text/x-own\r\n"));
}

static void test_done_is_the_end(void **state)
{
    struct world *w = *state;
    PLAY(w, {"200 OK", SSE, "data: x\n\ndata: [DONE]\n\n", UNMARKED});
    assert_completed(w, "=x;");
    PLAY(w, {"200 OK", SSE, "data: x\n\ndata: [DONE]\n\n", CUT});
    assert_completed(w, "=x;");
    PLAY(w, {"200 OK", SSE, "data: x\n\ndata: [DONE]\n\n", OPEN});
    assert_completed(w, "=x;");
}

static void test_refusals_fail(void **state)
{
    struct world *w = *state;
    PLAY(w, {"404 Not Found", "", "", WHOLE});
    assert_failed(w, "the upstream answered with status 404");
    PLAY(w, {"307 Temporary Redirect", "Location: /elsewhere\r\n", "", WHOLE});
    assert_failed(w, "the upstream answered with status 307");
    PLAY(w, {"409 Conflict", "", "", WHOLE});
    assert_failed(w, "the upstream answered with status 409");
    PLAY(w, {"200 OK", SSE "Content-Encoding: gzip\r\n", "x", WHOLE});
    assert_failed(w, "the upstream's answer is compressed, which it was not asked for");
    assert_int_equal(w->n_events, 0);
}

static void test_error_events_fail(void **state)
{
    struct world *w = *state;
    PLAY(w, {"200 OK", SSE, "data: x\n\nevent: error\ndata: no\ndata: \x1b[1mmodel\n\n", OPEN});
    assert_failed(w, "no  [1mmodel");
    assert_events(w, "=x;");
    PLAY(w, {"200 OK", SSE, "event: error\ndata:\n\n", WHOLE});
    assert_failed(w, "the upstream reported an error");
    PLAY(w, {"200 OK", SSE, "event: error\ndata: \xff\n\n", WHOLE});
    assert_failed(w, "the upstream reported an error");
}

/* At 256 bytes, and not within a character. */
static void test_long_errors_are_cut(void **state)
{
    struct world *w = *state;
    struct buf body = {0};
    buf_put(&body, STR("event: error\ndata: x"));
    for (int i = 0; i < 1000; i++)
        buf_put(&body, STR("\xc3\xa4"));
    buf_put(&body, STR("\n\n"));
    buf_putc(&body, '\0');
    PLAY(w, {"200 OK", SSE, body.p, WHOLE});
    assert_int_equal(w->end, END_FAILED);
    assert_int_equal(strlen(w->message), 255);
    assert_memory_equal(w->message, body.p + 19, 255);
    buf_deinit(&body);
}

static void test_events_that_are_not_taken_fail(void **state)
{
    struct world *w = *state;
    w->verdicts[0] = 1;
    w->verdicts[1] = ERR_TOO_LARGE;
    w->n_verdicts = 2;
    PLAY(w, {"200 OK", SSE, "data: x\n\ndata: y\n\ndata: z\n\n", WHOLE});
    assert_failed(w, "the upstream sent an event that is too large");
    assert_events(w, "=x;");
    w->verdicts[0] = ERR_SYNTAX;
    PLAY(w, {"200 OK", "Content-Type: application/x-protobuf\r\n", "x", WHOLE});
    assert_failed(w, "the upstream sent an event that cannot be kept");
    w->n_verdicts = 0;
    w->reply.service = SESSION_AISERVER; /* whose text is a string of protobuf */
    PLAY(w, {"200 OK", SSE, "data: \xc3\xa4\n\ndata: \xc3\n\n", WHOLE});
    assert_failed(w, "the upstream sent an event that cannot be kept");
    assert_events(w, "=\xc3\xa4;");
}

/* Opaque payloads have no kinds. */
static void test_events_by_name(void **state)
{
    static const char body[] = "event: thinking\nid: 1\ndata: hm\n\nevent: message\ndata: so\n\n";
    struct world *w = *state;
    PLAY(w, {"200 OK", SSE, body, WHOLE});
    assert_completed(w, "1=hm;=so;");
    w->reply.service = SESSION_AISERVER;
    PLAY(w, {"200 OK", SSE, body, WHOLE});
    assert_completed(w, "!1=\x12\x07\xca\x01\x04\x0a\x02hm;=so;");
    PLAY(w, {"200 OK", SSE, "data: a\n\nevent: tool_call\ndata: {}\n\n", WHOLE});
    assert_failed(w, "the data of the upstream's event `tool_call` is malformed");
    assert_events(w, "=a;");
}

static void test_answers_are_bounded(void **state)
{
    struct world *w = *state;
    struct buf body = {0};
    buf_put(&body, STR("data:"));
    memset(buf_reserve(&body, SESSION_UPSTREAM_EVENT_MAX), 'x', SESSION_UPSTREAM_EVENT_MAX);
    body.n += SESSION_UPSTREAM_EVENT_MAX;
    buf_put(&body, STR("\n\n\0"));
    PLAY(w, {"200 OK", SSE, body.p, WHOLE});
    assert_failed(w, "the upstream sent an event that is too large");
    PLAY(w, {"200 OK", "Content-Type: text/plain\r\n", body.p, WHOLE});
    assert_failed(w, "the upstream sent an event that is too large");
    assert_int_equal(w->n_events, 0);
    body.p[SESSION_UPSTREAM_EVENT_MAX] = '\0'; /* just fits */
    PLAY(w, {"200 OK", "Content-Type: text/plain\r\n", body.p, WHOLE});
    assert_int_equal(w->end, END_COMPLETED);
    assert_int_equal(w->events.n, SESSION_UPSTREAM_EVENT_MAX + 2);
    buf_deinit(&body);
}

/* -- trying again ------------------------------------------------------------------------------ */

static void test_asked_until_it_answers(void **state)
{
    struct world *w = *state;
    PLAY(w, {"503 Busy", "", "later", WHOLE}, {.finish = HANG_UP}, {"200 OK", SSE, "data: x", CUT},
         {"200 OK", SSE, "id: 1\ndata: x\n\n", WHOLE});
    assert_completed(w, "1=x;");
    for (size_t i = 0; i < 4; i++) {
        assert_true(request_has(w, i, SAME_KEY));
        assert_true(request_has(w, i, "\r\n\r\nthe chunk"));
        assert_false(request_has(w, i, "Last-Event-ID"));
    }
    assert_true(is_traced(w, "has not answered " KEY "/7: the upstream answered with status 503"));
    assert_in_range(latest_wait(w), 800, 1200);
}

static void test_statuses_that_pass(void **state)
{
    static const char *const statuses[] = {"408 T", "425 E", "429 M", "500 I", "502 B", "504 G"};
    struct world *w = *state;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        struct step busy = {statuses[i], "", "", WHOLE};
        start(w, &busy, 1);
        assert_in_range(run_until_retry(w), 200, 300);
        stop(w);
    }
}

static void test_retry_after_is_respected(void **state)
{
    static const struct {
        const char *header;
        unsigned long ms;
    } cases[] = {{"Retry-After: 5\r\n", 5000},
                 {"Retry-After: 3600\r\n", 60000},
                 {"Retry-After: soon\r\n", 0}};
    struct world *w = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct step busy = {"409 Conflict", cases[i].header, "", WHOLE};
        start(w, &busy, 1);
        assert_in_range(run_until_retry(w), cases[i].ms + 200, cases[i].ms + 300);
        stop(w);
    }
}

static void test_an_upstream_that_is_not_there(void **state)
{
    struct world *w = *state;
    w->config.upstream = (char[]){"http://127.0.0.1:1/"};
    start(w, NULL, 0);
    assert_in_range(run_until_retry(w), 200, 300);
    stop(w);
}

static void test_waits_grow(void **state)
{
    static const uint64_t middles[] = {250, 500, 1000, 2000, 4000, 8000, 15000, 15000};
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t fifth = middles[i] / 5;
        assert_int_equal(session_upstream_retry_ms(i + 1, 0), middles[i] - fifth);
        assert_int_equal(session_upstream_retry_ms(i + 1, 2 * fifth), middles[i] + fifth);
        assert_int_equal(session_upstream_retry_ms(i + 1, 2 * fifth + 1), middles[i] - fifth);
    }
    assert_int_equal(session_upstream_retry_ms(UINT32_MAX, 0), 12000);
}

/* -- continuing -------------------------------------------------------------------------------- */

static void test_a_broken_answer_is_continued(void **state)
{
    struct world *w = *state;
    PLAY(w, {"200 OK", SSE, "id: e1\ndata: a\n\nid: e2\ndata: b\n\nid: e3\ndata: c", CUT},
         {.finish = HANG_UP}, {"200 OK", SSE, "id: e3\ndata: c\n\n", CUT},
         {"200 OK", SSE, "id: e4\ndata: d\n\n", WHOLE});
    assert_completed(w, "e1=a;e2=b;e3=c;e4=d;");
    assert_in_range(latest_wait(w), 200, 300); /* since it went on in between */
    assert_false(request_has(w, 0, "Last-Event-ID"));
    assert_true(request_has(w, 1, "\r\nLast-Event-ID: e2\r\n"));
    assert_true(request_has(w, 2, "\r\nLast-Event-ID: e2\r\n"));
    assert_true(request_has(w, 3, "\r\nLast-Event-ID: e3\r\n"));
    for (size_t i = 0; i < 4; i++)
        assert_true(request_has(w, i, SAME_KEY));
}

static void test_a_silent_answer_is_continued(void **state)
{
    struct world *w = *state;
    w->config.idle_timeout_ms = 50;
    PLAY(w, {"200 OK", SSE, "id: e1\ndata: a\n\n", OPEN}, {"204 No Content", "", "", OPEN});
    assert_completed(w, "e1=a;");
    assert_true(request_has(w, 1, "\r\nLast-Event-ID: e1\r\n"));
}

static void test_an_earlier_attempt_is_continued(void **state)
{
    struct world *w = *state;
    w->reply.begun = true;
    w->reply.last_id = STR("e3");
    PLAY(w, {"200 OK", SSE, "id: e4\ndata: d\n\n", WHOLE});
    assert_completed(w, "e4=d;");
    assert_true(request_has(w, 0, "\r\nLast-Event-ID: e3\r\n"));
    w->reply.last_id = STR_NONE;
    play(w, NULL, 0);
    assert_failed(w, BROKEN);
}

static void test_what_has_no_ids_is_not_asked_for_again(void **state)
{
    struct world *w = *state;
    PLAY(w, {"200 OK", SSE, "data: a\n\n", CUT});
    assert_failed(w, BROKEN);
    assert_events(w, "=a;");
    /* By the standard the second event has the id of the first; behind which of them to go on? */
    PLAY(w, {"200 OK", SSE, "id: 1\ndata: a\n\ndata: b\n\n", CUT});
    assert_failed(w, BROKEN);
    assert_events(w, "1=a;=b;");
    PLAY(w, {"200 OK", SSE, "id: 1\ndata: a\n\nid: 1\ndata: b\n\nid: 1\ndata: c\n\n", CUT});
    assert_failed(w, BROKEN);
    assert_events(w, "1=a;=b;=c;");
}

static void test_repeated_events_are_passed_over(void **state)
{
    static const struct step broken = {
        "200 OK", SSE, "id: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\ndata: c\n\n", CUT};
    struct world *w = *state;
    PLAY(w, broken, {"200 OK", SSE, "id: 3\ndata: c\n\nid: 4\ndata: d\n\n", WHOLE});
    assert_completed(w, "1=a;2=b;3=c;4=d;");
    PLAY(w, broken, {"200 OK", SSE, "id: 1\ndata: a\n\nid: 2\ndata: b\n\n", CUT},
         {"200 OK", SSE, "id: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\ndata: c\n\nid: 4\ndata: d\n\n",
          WHOLE});
    assert_completed(w, "1=a;2=b;3=c;4=d;");
    assert_true(request_has(w, 2, "\r\nLast-Event-ID: 3\r\n"));
    PLAY(w, broken, {"200 OK", SSE, "id: 1\ndata: a\n\ndata: [DONE]\n\n", WHOLE});
    assert_failed(w,
                  "the upstream began its answer anew and did not come to where it had broken off");
    assert_events(w, "1=a;2=b;3=c;");
    PLAY(w, broken, {"200 OK", "Content-Type: application/json\r\n", "{}", WHOLE});
    assert_failed(w, "the upstream was to continue its answer and sent something else than events");
}

static void test_an_end_has_to_be_marked(void **state)
{
    struct world *w = *state;
    PLAY(w, {"200 OK", SSE, "data: a\n\n", UNMARKED});
    assert_failed(w, "the upstream's answer does not say where it ends, and it gives its events no "
                     "ids by which it could be continued");
    PLAY(w, {"200 OK", SSE, "id: 1\ndata: a\n\n", UNMARKED}, {"204 No Content", "", "", OPEN});
    assert_completed(w, "1=a;");
    assert_true(request_has(w, 1, "\r\nLast-Event-ID: 1\r\n"));
    PLAY(w, {"200 OK", "Content-Type: text/plain\r\n", "all of it?", UNMARKED});
    assert_failed(w, "the upstream's answer does not say where it ends");
    assert_int_equal(w->n_events, 0);
}

/* -- stop and room ----------------------------------------------------------------------------- */

static void test_stop(void **state)
{
    static const struct step open = {"200 OK", SSE, "data: a\n\n", OPEN};
    static const struct step busy = {"503 Busy", "", "", WHOLE};
    struct world *w = *state;
    start(w, &open, 1); /* before anything is sent */
    stop(w);
    run_rounds(w);
    assert_int_equal(w->n_requests, 0);

    start(w, &open, 1); /* in the middle of an answer */
    while (w->n_events == 0)
        run(w);
    stop(w);
    while (!list_empty(&w->peers)) /* the upstream notices */
        run(w);
    assert_int_equal(w->ends, 0);

    start(w, &busy, 1); /* between two tries */
    unsigned long due = run_until_retry(w);
    stop(w);
    run_for(w, due + 2 * SCHED_TICK_MS);
    assert_int_equal(w->ends, 0);
    assert_int_equal(w->n_requests, 1);
}

static void test_no_more_comes_before_there_is_room(void **state)
{
    static const struct step step = {
        "200 OK", SSE, "data: a\r\n\r\ndata: b\r\rid: 3\ndata: c\n\ndata: d\n\n", WHOLE};
    struct world *w = *state;
    memcpy(w->verdicts, (int[]){0, 1, 0, 1}, sizeof w->verdicts);
    w->n_verdicts = 4;
    start(w, &step, 1);
    while (w->n_events == 0)
        run(w);
    run_rounds(w);
    assert_events(w, "=a;");
    w->backend->room(w->backend->ctx, &w->reply);
    assert_int_equal(w->n_events, 1); /* not from within */
    while (w->n_events < 3)
        run(w);
    run_rounds(w);
    assert_events(w, "=a;=b;3=c;");
    assert_int_equal(w->ends, 0);
    w->backend->room(w->backend->ctx, &w->reply);
    while (w->ends == 0)
        run(w);
    assert_completed(w, "=a;=b;3=c;=d;");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_events_become_events),
        TEST(test_other_answers_are_one_event),
        TEST(test_content_types),
        TEST(test_done_is_the_end),
        TEST(test_refusals_fail),
        TEST(test_error_events_fail),
        TEST(test_long_errors_are_cut),
        TEST(test_events_that_are_not_taken_fail),
        TEST(test_events_by_name),
        TEST(test_answers_are_bounded),
        TEST(test_asked_until_it_answers),
        TEST(test_statuses_that_pass),
        TEST(test_retry_after_is_respected),
        TEST(test_an_upstream_that_is_not_there),
        cmocka_unit_test(test_waits_grow),
        TEST(test_a_broken_answer_is_continued),
        TEST(test_a_silent_answer_is_continued),
        TEST(test_an_earlier_attempt_is_continued),
        TEST(test_what_has_no_ids_is_not_asked_for_again),
        TEST(test_repeated_events_are_passed_over),
        TEST(test_an_end_has_to_be_marked),
        TEST(test_stop),
        TEST(test_no_more_comes_before_there_is_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
