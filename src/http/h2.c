// SPDX-License-Identifier: Apache-2.0
/* What the peer is waited for, and how a connection ends:
 *
 *   WAIT_HEAD      its first SETTINGS, or the rest of a header list: else GOAWAY
 *   WAIT_IDLE      a request, while no stream is open: else GOAWAY
 *   WAIT_LEAVE     drained: until it has seen the first GOAWAY; then the last one goes out
 *
 * After the last GOAWAY nghttp2 wants neither to read nor to write as soon as no stream is open;
 * then the peer lingers. */
#include "http/h2.h"
#include "base/mem.h"
#include "http/h2_core.h"
#include "http/http.h"
#include "net/loop.h"
#include "telemetry/trace.h"

#include <stdlib.h>

#define OUT_BLOCK     4096
#define FEED          (16 * 1024) /* bytes at a time, so that who is sent away is not read on */
#define ROUNDS        4           /* then the other connections have their turn */
#define LEAVE_MS      500
#define REST_MS       500
#define REST_LOOKS    2
#define ACKS_MAX      64

/* Frames that a peer may have caused and not taken; then it is not read from. */
#define UNSENT_FRAMES 128

enum wait { WAIT_NOTHING, WAIT_HEAD, WAIT_IDLE, WAIT_LEAVE };

static struct h2 *h2_of(struct conn *c)
{
    return peer_of(c)->session;
}

static struct sched *sched_of(const struct h2 *h)
{
    return &h2_http(h)->loop->sched;
}

void h2_flush_later(struct h2 *h)
{
    conn_flush_later(&h->peer->conn);
}

/* ---- the end ---- */

/* Nothing more is sent or taken; the memory stays as it is, since nghttp2 may be at work. */
static void h2_detach_all(struct h2 *h)
{
    h->condemned = true;
    timer_stop(&h->sweep);
    timer_stop(&h->rest);
    list_each (l, &h->streams) {
        struct h2_stream *s = list_item(l, struct h2_stream, link);
        s->cut = true;
        h2_stream_detach(s, true);
    }
}

static void end_connection(struct h2 *h)
{
    peer_close(h->peer);
    h2_detach_all(h);
}

/* Says why and goes, whatever is under way. */
static void send_away(struct h2 *h, uint32_t code, const char *why)
{
    if (h->condemned)
        return;
    h->condemned = true;
    if (code != NGHTTP2_NO_ERROR)
        trace(h2_http(h)->trace, BAD_REQUEST, TRACE_STR("why", str_of_cstr(why)));
    nghttp2_session_terminate_session(h->session, code);
    conn_want_read(&h->peer->conn, false);
    h2_flush_later(h);
}

static void pay(struct h2 *h, int32_t cost)
{
    if (!h->condemned && !h2_guard_pay(&h->guard, sched_of(h)->now_ms, cost))
        send_away(h, NGHTTP2_ENHANCE_YOUR_CALM, "an HTTP/2 peer sends too much that means nothing");
}

/* ---- what nghttp2 tells of what has come in ---- */

static struct h2_stream *stream_of(struct h2 *h, int32_t id)
{
    return nghttp2_session_get_stream_user_data(h->session, id);
}

static int h2_on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct h2 *h = ctx;
    if (h->condemned)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    h2_head_reset(&h->head);
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) /* trailers are ignored */
        return 0;
    h->receiving = h2_stream_new(h, frame->hd.stream_id);
    return h->receiving != NULL ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int h2_on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                        size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags,
                        void *ctx)
{
    struct h2 *h = ctx;
    h2_head_add(&h->head, h->receiving != NULL ? &h->receiving->x->arena : NULL,
                str_of((const char *)name, name_n), str_of((const char *)value, value_n));
    if (h->head.size <= H2_LIST_BOMB)
        return 0;
    pay(h, H2_COST_BOMB);
    h->receiving = NULL;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* A name or value that HTTP does not allow: nghttp2 alone would only leave it out. */
static int h2_on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
                                const uint8_t *name, size_t name_n, const uint8_t *value,
                                size_t value_n, uint8_t flags, void *ctx)
{
    struct h2 *h = ctx;
    h->receiving = NULL;
    nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                              NGHTTP2_PROTOCOL_ERROR);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int h2_on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                      size_t n, void *ctx)
{
    struct h2 *h = ctx;
    struct h2_stream *s = stream_of(h, id);
    if (s != NULL)
        h2_stream_data(s, str_of((const char *)data, n));
    else
        nghttp2_session_consume_connection(session, n);
    return 0;
}

static void h2_leave(struct h2 *h);

static int h2_on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct h2 *h = ctx;
    if (frame->hd.type == NGHTTP2_DATA && frame->hd.length > 0 &&
        frame->hd.length == frame->data.padlen)
        pay(h, H2_COST_FRAME); /* nothing but padding; the guard has not seen that */
    if (frame->hd.type == NGHTTP2_SETTINGS)
        h->greeted = true;
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) && h->leaving)
        h2_leave(h);
    if (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    struct h2_stream *s = stream_of(h, frame->hd.stream_id);
    if (s == NULL)
        return 0;
    bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (s == h->receiving) {
        h->receiving = NULL;
        h2_stream_request(s, !end);
    } else if (end) {
        h2_stream_end(s);
    }
    return 0;
}

static int h2_on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code,
                               void *ctx)
{
    struct h2 *h = ctx;
    if (h->receiving != NULL && h->receiving->id == frame->hd.stream_id)
        h->receiving = NULL;
    pay(h, H2_COST_FRAME);
    return 0;
}

static int h2_on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    struct h2_stream *s = stream_of(ctx, id);
    if (s != NULL)
        h2_stream_free(s);
    return 0;
}

/* ---- and of what has gone out ---- */

static void watch_rest(struct h2 *h)
{
    if (!timer_running(&h->rest))
        sched_start(sched_of(h), &h->rest, REST_MS);
}

static int h2_on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct h2 *h = ctx;
    struct h2_stream *s = stream_of(h, frame->hd.stream_id);
    if (frame->hd.type == NGHTTP2_RST_STREAM) {
        /* Not those that are our own idea; the others the peer has provoked. */
        if (frame->rst_stream.error_code != NGHTTP2_NO_ERROR && (s == NULL || !s->cut))
            pay(h, H2_COST_FRAME);
        return 0;
    }
    bool answered = (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
                    (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (answered && s != NULL && !s->remote_done) {
        s->answered = true;
        watch_rest(h);
    }
    return 0;
}

static void flush_out(struct h2 *h)
{
    if (h->out != NULL && h->out_from < h->out->n)
        conn_put(&h->peer->conn, slice_of(h->out, h->out_from, h->out->n));
    if (h->out != NULL)
        h->out_from = h->out->n;
}

static void drop_out(struct h2 *h)
{
    block_unref(h->out);
    h->out = NULL;
    h->out_from = 0;
}

void h2_put(struct h2 *h, const void *bytes, size_t n)
{
    if (h->out == NULL || h->out->cap - h->out->n < n) {
        flush_out(h);
        drop_out(h);
        h->out = block_new((uint32_t)(n > OUT_BLOCK ? n : OUT_BLOCK));
    }
    memcpy(h->out->bytes + h->out->n, bytes, n);
    h->out->n += (uint32_t)n;
    h->queued += n;
}

void h2_give(struct h2 *h, struct slice s)
{
    flush_out(h);
    h->queued += s.bytes.n;
    conn_give(&h->peer->conn, s);
}

static ssize_t h2_on_send(nghttp2_session *session, const uint8_t *bytes, size_t n, int flags,
                          void *ctx)
{
    h2_put(ctx, bytes, n);
    return (ssize_t)n;
}

/* ---- turns ---- */

static void wait_for(struct h2 *h, enum wait what, uint64_t ms)
{
    if (h->wait == what)
        return;
    h->wait = what;
    if (what == WAIT_NOTHING || ms == 0)
        timer_stop(&h->peer->timer);
    else
        sched_start(sched_of(h), &h->peer->timer, ms);
}

static bool unread_frames(const struct h2 *h)
{
    return h->peer->conn.blocked &&
           nghttp2_session_get_outbound_queue_size(h->session) > UNSENT_FRAMES;
}

/* After anything that happened: what is waited for now. */
static void h2_settle(struct h2 *h)
{
    const struct http_limits *limits = &h2_http(h)->limits;
    if (h->peer->conn.closing)
        return;
    peer_queued(h->peer, h->unsent + (h->peer->conn.blocked ? conn_pending(&h->peer->conn) : 0));
    conn_want_read(&h->peer->conn, !h->condemned && !unread_frames(h));
    if (!list_empty(&h->streams) && !timer_running(&h->sweep) && limits->write_timeout_ms > 0)
        sched_start(sched_of(h), &h->sweep, limits->write_timeout_ms);
    if (h->leaving)
        return;
    if (!h->greeted || h->receiving != NULL)
        wait_for(h, WAIT_HEAD, limits->head_timeout_ms);
    else if (list_empty(&h->streams))
        wait_for(h, WAIT_IDLE, limits->idle_timeout_ms);
    else
        wait_for(h, WAIT_NOTHING, 0);
}

static void charge(struct h2 *h, struct str bytes)
{
    struct h2_frame frame;
    int32_t last = nghttp2_session_get_last_proc_stream_id(h->session);
    while (h2_scan_next(&h->scan, &bytes, &frame)) {
        bool closed =
            frame.stream != 0 && frame.stream <= last && stream_of(h, frame.stream) == NULL;
        pay(h, h2_frame_cost(&frame, closed));
    }
}

static void h2_feed(struct h2 *h, struct str bytes)
{
    while (bytes.n > 0) {
        size_t n = bytes.n < FEED ? bytes.n : FEED;
        charge(h, str_of(bytes.p, n));
        if (h->condemned)
            break;
        ssize_t used = nghttp2_session_mem_recv(h->session, (const uint8_t *)bytes.p, n);
        if (used < 0) {
            /* nghttp2 is out of memory, or will have no more of this peer. */
            uint32_t code =
                used == NGHTTP2_ERR_FLOODED ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_PROTOCOL_ERROR;
            send_away(h, code, nghttp2_strerror((int)used));
            return;
        }
        bytes = str_skip(bytes, n);
    }
    h2_flush_later(h);
}

static void h2_on_readable(struct conn *c)
{
    struct h2 *h = h2_of(c);
    char *bytes = h2_http(h)->loop->scratch;
    ssize_t got = conn_read(c, bytes, LOOP_SCRATCH);
    if (got == CONN_AGAIN)
        return;
    if (got <= 0) {
        end_connection(h);
        return;
    }
    h2_feed(h, str_of(bytes, (size_t)got));
    h2_settle(h);
}

static void resume_pulled(struct h2 *h)
{
    h->pull_again = false;
    list_each (l, &h->streams) {
        struct h2_stream *s = list_item(l, struct h2_stream, link);
        if (s->deferred && s->pull_again && !s->cut) {
            s->deferred = false;
            nghttp2_session_resume_data(h->session, s->id);
        }
    }
    h2_flush_later(h);
}

/* False: the connection has ended. */
static bool send_round(struct h2 *h)
{
    h->queued = 0;
    h->full = false;
    int err = nghttp2_session_send(h->session);
    flush_out(h);
    if (err != 0 && err != NGHTTP2_ERR_PAUSE) {
        end_connection(h);
        return false;
    }
    if (h->pull_again)
        resume_pulled(h);
    return true;
}

static void h2_on_drained(struct conn *c)
{
    struct h2 *h = h2_of(c);
    peer_end_stall(h->peer);
    if (h->full && ++h->rounds % ROUNDS == 0) {
        h->full = false;
        conn_yield(c);
        return;
    }
    if (h->peer->share != NULL)
        unsent_took(h->peer->share, h->queued);
    if (!send_round(h))
        return;
    if (h->queued == 0) {
        drop_out(h);
        if (!nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session)) {
            h2_detach_all(h);
            peer_linger(h->peer);
            return;
        }
    }
    h2_settle(h);
}

static void h2_on_stalled(struct conn *c)
{
    peer_stalled(c);
    h2_settle(h2_of(c));
}

static void h2_on_failed(struct conn *c)
{
    end_connection(h2_of(c));
}

static const struct conn_ops ops = {
    .readable = h2_on_readable,
    .drained = h2_on_drained,
    .stalled = h2_on_stalled,
    .failed = h2_on_failed,
    .closed = peer_closed,
};

/* ---- time ---- */

static bool window_is_shut(const struct h2 *h, int32_t id)
{
    return nghttp2_session_get_stream_remote_window_size(h->session, id) <= 0 ||
           nghttp2_session_get_remote_window_size(h->session) <= 0;
}

/* The rest of a request whose answer does not depend on it is not waited for, or only a moment:
 * some clients take a reset right behind the answer for a failure of it, and some an end that comes
 * before a body which they send without asking. */
bool h2_stream_awaits(struct h2_stream *s)
{
    if (!s->small_body || s->remote_done || s->rest_looks >= REST_LOOKS)
        return false;
    watch_rest(s->h2);
    return true;
}

static void h2_on_rest(struct timer *t)
{
    struct h2 *h = container_of(t, struct h2, rest);
    list_each (l, &h->streams) {
        struct h2_stream *s = list_item(l, struct h2_stream, link);
        bool held_back = s->ended && s->deferred;
        if (s->remote_done || s->cut || (!s->answered && !held_back))
            continue;
        if (++s->rest_looks < REST_LOOKS)
            watch_rest(h);
        else if (held_back)
            h2_stream_resume(s);
        else
            nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR);
    }
    h2_flush_later(h);
}

/* A stream whose window the peer keeps shut, though there is something to send, from one sweep to
 * the next is cut off. One that only waits for its turn is not: whether the peer takes anything at
 * all, `stall` sees to. */
static void h2_on_sweep(struct timer *t)
{
    struct h2 *h = container_of(t, struct h2, sweep);
    list_each (l, &h->streams) {
        struct h2_stream *s = list_item(l, struct h2_stream, link);
        bool shut = h2_stream_pending(s) && window_is_shut(h, s->id);
        if (shut && s->late)
            h2_stream_cut(s, NGHTTP2_CANCEL);
        s->late = shut;
    }
    h2_settle(h);
}

/* The last GOAWAY, with the number of the last stream that was taken. */
static void h2_leave(struct h2 *h)
{
    if (h->wait != WAIT_LEAVE)
        return;
    wait_for(h, WAIT_NOTHING, 0);
    nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(h->session), NGHTTP2_NO_ERROR,
                          NULL, 0);
    h2_flush_later(h);
}

static void h2_on_timeout(struct timer *t)
{
    struct h2 *h = container_of(t, struct peer, timer)->session;
    if (h->wait == WAIT_LEAVE)
        h2_leave(h);
    else if (h->wait == WAIT_HEAD)
        send_away(h, NGHTTP2_ENHANCE_YOUR_CALM, "the request head took too long");
    else
        send_away(h, NGHTTP2_NO_ERROR, "");
}

/* ---- the whole ---- */

/* Requests that crossed the first GOAWAY on their way are still taken. */
static void h2_drain(struct peer *p)
{
    struct h2 *h = p->session;
    if (h->leaving || h->condemned)
        return;
    h->leaving = true;
    nghttp2_submit_shutdown_notice(h->session);
    nghttp2_submit_ping(h->session, NGHTTP2_FLAG_NONE, NULL);
    wait_for(h, WAIT_LEAVE, LEAVE_MS);
    list_each_safe (l, &h->streams) {
        struct exchange *x = list_item(l, struct h2_stream, link)->x;
        if (x != NULL && x->ops != NULL && x->ops->drain != NULL)
            x->ops->drain(x);
    }
    h2_flush_later(h);
}

static void h2_close(struct peer *p)
{
    end_connection(p->session);
}

static void h2_free(void *session)
{
    struct h2 *h = session;
    list_each_safe (l, &h->streams)
        h2_stream_free(list_item(l, struct h2_stream, link));
    nghttp2_session_del(h->session);
    block_unref(h->out);
    free(h);
}

static const struct protocol protocol = {.drain = h2_drain, .close = h2_close, .free = h2_free};

static void set_callbacks(nghttp2_session_callbacks *c)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(c, h2_on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(c, h2_on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(c, h2_on_invalid_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, h2_on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(c, h2_on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(c, h2_on_invalid_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(c, h2_on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(c, h2_on_frame_sent);
    nghttp2_session_callbacks_set_send_callback(c, h2_on_send);
    nghttp2_session_callbacks_set_send_data_callback(c, h2_send_data);
}

static void set_options(nghttp2_option *o)
{
    nghttp2_option_set_no_auto_window_update(o, 1);
    nghttp2_option_set_no_closed_streams(o, 1);
    nghttp2_option_set_max_outbound_ack(o, ACKS_MAX);
    nghttp2_option_set_stream_reset_rate_limit(o, H2_GUARD_BURST, H2_GUARD_PER_SECOND);
}

static nghttp2_session *session_new(struct h2 *h)
{
    nghttp2_session *session = NULL;
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    if (nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0) {
        set_callbacks(callbacks);
        set_options(option);
        nghttp2_session_server_new2(&session, callbacks, h, option);
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return session;
}

static int h2_submit_settings(struct h2 *h)
{
    uint64_t streams = h2_http(h)->limits.streams;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, streams > 0 ? (uint32_t)streams : H2_STREAMS},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, H2_LIST_MAX},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    int err = nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings,
                                      sizeof settings / sizeof settings[0]);
    if (err == 0)
        err = nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0, H2_WINDOW);
    return err;
}

void h2_start(struct peer *p, struct str bytes)
{
    struct h2 *h = mem_zalloc(sizeof *h);
    h->peer = p;
    list_init(&h->streams);
    timer_init(&h->sweep, h2_on_sweep);
    timer_init(&h->rest, h2_on_rest);
    h2_guard_init(&h->guard, sched_of(h)->now_ms);
    h->scan.skip = PEER_PREFACE;
    peer_speaks(p, &protocol, h, &ops, h2_on_timeout);
    h->session = session_new(h);
    if (h->session == NULL || h2_submit_settings(h) != 0) {
        end_connection(h);
        return;
    }
    h2_feed(h, bytes);
    h2_settle(h);
}
