// SPDX-License-Identifier: Apache-2.0
#include "base/buf.h"
#include "base/mem.h"
#include "http/h2_core.h"
#include "http/http.h"
#include "net/loop.h"
#include "telemetry/trace.h"

#include <stdlib.h>

struct h2_stream *h2_stream_new(struct h2 *h, int32_t id)
{
    struct h2_stream *s = mem_zalloc(sizeof *s);
    s->h2 = h;
    s->id = id;
    if (nghttp2_session_set_stream_user_data(h->session, id, s) != 0) {
        free(s);
        return NULL;
    }
    /* Each in its turn, whatever the peer thinks of it: a long answer must not keep the others. */
    nghttp2_extpri turns = {.urgency = NGHTTP2_EXTPRI_DEFAULT_URGENCY, .inc = 1};
    nghttp2_session_change_extpri_stream_priority(h->session, id, &turns, 1);
    s->x = exchange_new(h2_http(h), &h2_via, s);
    s->x->secure = conn_is_secure(&h->peer->conn);
    s->x->certificate = conn_peer_names(&h->peer->conn);
    s->x->admin = h->peer->admin;
    list_push(&h->streams, &s->link);
    return s;
}

void h2_stream_detach(struct h2_stream *s, bool gone)
{
    struct exchange *x = s->x;
    if (x == NULL)
        return;
    h2_stream_drop_body(s);
    s->x = NULL;
    exchange_finish(x, gone);
}

void h2_stream_free(struct h2_stream *s)
{
    if (s->h2->receiving == s)
        s->h2->receiving = NULL;
    list_remove(&s->link);
    h2_stream_detach(s, true);
    h2_stream_drop_queue(s);
    free(s->trailers);
    free(s);
}

void h2_stream_cut(struct h2_stream *s, uint32_t code)
{
    if (s->cut)
        return;
    s->cut = true;
    nghttp2_submit_rst_stream(s->h2->session, NGHTTP2_FLAG_NONE, s->id, code);
    h2_stream_drop_queue(s);
    h2_flush_later(s->h2);
    h2_stream_detach(s, true);
}

void h2_stream_fail(struct h2_stream *s, int status, const char *why)
{
    trace(h2_http(s->h2)->trace, BAD_REQUEST, TRACE_STR("why", str_of_cstr(why)));
    if (s->x->begun) {
        h2_stream_cut(s, NGHTTP2_CANCEL);
        return;
    }
    h2_respond_problem(s, status, why);
    h2_stream_detach(s, true);
}

/* ---- the request ---- */

/* In a duplex exchange the handler may wait for the peer's next word as long as it likes: what the
 * peer holds is then a response, whose own limits apply. */
static bool is_duplex(const struct h2_stream *s)
{
    return s->x->streaming;
}

static void h2_stream_on_slow(struct timer *t)
{
    struct h2_body *b = container_of(t, struct h2_body, slow);
    const struct http_limits *limits = &h2_http(b->stream->h2)->limits;
    if (is_duplex(b->stream))
        return;
    if (b->seen - b->seen_at_timer < limits->body_min_bytes) {
        h2_stream_fail(b->stream, 408, "the request body came too slowly");
        return;
    }
    b->seen_at_timer = b->seen;
    sched_start(&h2_http(b->stream->h2)->loop->sched, t, limits->body_timeout_ms);
}

static struct h2_body *body_new(struct h2_stream *s)
{
    struct h2_body *b = arena_alloc(&s->x->arena, sizeof *b);
    *b = (struct h2_body){.stream = s, .expect_continue = s->h2->head.expect.p != NULL};
    timer_init(&b->slow, h2_stream_on_slow);
    return b;
}

void h2_stream_request(struct h2_stream *s, bool has_body)
{
    struct h2 *h = s->h2;
    const char *why;
    s->remote_done = !has_body;
    int status = h2_head_finish(&h->head, s->x, &why);
    if (status == 0 && unsent_full(&h2_http(h)->unsent, h->peer->share)) {
        status = 503;
        why = "take the answers that wait on this connection first";
    }
    if (status != 0) {
        h2_stream_fail(s, status, why);
        return;
    }
    s->x->has_body = has_body;
    if (has_body)
        s->body = body_new(s);
    s->small_body =
        s->x->body_length > 0 && s->x->body_length <= H2_STREAM_WINDOW && h->head.expect.p == NULL;
    http_dispatch(h2_http(h), s->x);
}

/* ---- its body ---- */

/* What waited has been taken, or is wanted no more. */
static void release(struct h2_stream *s, size_t n)
{
    h2_http(s->h2)->inflight_bytes -= n;
}

void h2_stream_drop_body(struct h2_stream *s)
{
    struct h2_body *b = s->body;
    if (b == NULL)
        return;
    s->body = NULL;
    timer_stop(&b->slow);
    release(s, b->waiting.n);
    /* The stream's window stays shut; the connection's is for the others. */
    nghttp2_session_consume_connection(s->h2->session, b->waiting.n);
    h2_flush_later(s->h2);
    buf_deinit(&b->waiting);
}

static void open_window(struct h2_stream *s, size_t n)
{
    nghttp2_session_consume(s->h2->session, s->id, n);
    h2_flush_later(s->h2);
}

static void deliver(struct h2_stream *s, struct str data, bool end)
{
    struct exchange *x = s->x;
    if (end)
        h2_stream_drop_body(s);
    exchange_deliver(x, data, end, false);
    /* A handler that is busy is no fault of the peer's. */
    if (s->body != NULL && s->x->on_body == NULL)
        timer_stop(&s->body->slow);
}

static void h2_stream_keep(struct h2_stream *s, struct str data)
{
    struct http *http = h2_http(s->h2);
    if (data.n > http->limits.inflight_bytes - http->inflight_bytes) {
        nghttp2_session_consume_connection(s->h2->session, data.n);
        h2_stream_fail(s, 503, "too many request bodies are in memory; try again in a moment");
        return;
    }
    http->inflight_bytes += data.n;
    buf_put(&s->body->waiting, data);
}

void h2_stream_data(struct h2_stream *s, struct str data)
{
    if (s->body == NULL) { /* nobody wants it any more */
        nghttp2_session_consume_connection(s->h2->session, data.n);
        h2_flush_later(s->h2);
        return;
    }
    s->body->seen += data.n;
    if (s->x->on_body == NULL) {
        h2_stream_keep(s, data);
        return;
    }
    open_window(s, data.n);
    deliver(s, data, false);
}

void h2_stream_end(struct h2_stream *s)
{
    s->remote_done = true;
    if (s->x == NULL)
        h2_stream_resume(s); /* its end may have waited for this */
    if (s->body == NULL)
        return;
    if (s->x->on_body != NULL)
        deliver(s, STR_NONE, true);
    else
        s->body->ended = true;
}

static void watch_rate(struct h2_stream *s)
{
    struct h2_body *b = s->body;
    if (timer_running(&b->slow) || is_duplex(s))
        return;
    b->seen_at_timer = b->seen;
    struct http *http = h2_http(s->h2);
    sched_start(&http->loop->sched, &b->slow, http->limits.body_timeout_ms);
}

static void say_continue(struct h2_stream *s)
{
    nghttp2_nv status = {.name = (uint8_t *)":status",
                         .namelen = sizeof ":status" - 1,
                         .value = (uint8_t *)"100",
                         .valuelen = 3};
    nghttp2_submit_headers(s->h2->session, NGHTTP2_FLAG_NONE, s->id, NULL, &status, 1, NULL);
    h2_flush_later(s->h2);
}

void h2_stream_want(struct exchange *x)
{
    struct h2_stream *s = x->transport;
    struct h2_body *b = s->body;
    if (b == NULL) {
        exchange_deliver(x, STR_NONE, true, true);
        return;
    }
    if (b->waiting.n > 0) {
        struct buf taken = b->waiting;
        b->waiting = (struct buf){0};
        release(s, taken.n);
        open_window(s, taken.n);
        deliver(s, buf_str(&taken), b->ended);
        buf_deinit(&taken);
        return;
    }
    if (b->ended) {
        deliver(s, STR_NONE, true);
        return;
    }
    if (b->expect_continue && !x->begun)
        say_continue(s);
    b->expect_continue = false;
    watch_rate(s);
}
