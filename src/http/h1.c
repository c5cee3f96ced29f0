// SPDX-License-Identifier: Apache-2.0
/* What a connection is doing, by its fields:
 *
 *   between requests         x == NULL, wait == IDLE (nothing of the next one is there) or HEAD
 *   unsent responses first   x == NULL, wait == NOTHING: drained() goes on with the next request
 *   a request's body         x, body, wait == BODY while the handler wants it, else NOTHING
 *   its response             x; streaming: pulled when woken and nothing of the last pull is queued
 *   ending                   close_when_sent until all is sent, then the peer lingers
 *
 * A response may begin while the body is still being read. The stall timer runs beside all of it.
 */
#include "http/h1.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/must.h"
#include "http/exchange.h"
#include "http/h1_body.h"
#include "http/h1_head.h"
#include "http/h1_parse.h"
#include "http/http.h"
#include "http/peer.h"
#include "http/status.h"
#include "net/conn.h"
#include "net/loop.h"
#include "telemetry/trace.h"

#include <stdlib.h>

#define READ_BLOCK       H1_HEAD_MAX /* a head fits in one block */
#define PULLS_AT_ONCE    4           /* then the other connections have their turn */
#define PIPELINE_BYTES   (64 * 1024) /* unsent responses that keep the next request waiting */
#define REQUESTS_AT_ONCE 16 /* of a peer that does not wait for answers; then others come */

/* What the peer is to send, and so what its timeout means. */
enum wait { WAIT_NOTHING, WAIT_HEAD, WAIT_IDLE, WAIT_BODY };

struct h1 {
    struct peer *peer;    /* its timer is that of `wait` */
    struct block *in;     /* bytes read; from `at` on not taken yet. NULL: none */
    struct exchange *x;   /* under way; NULL: between requests */
    struct h1_body *body; /* of the exchange's arena; NULL: no body, or read to its end */
    uint32_t at;
    struct h1_head_state head;
    char size_line[H1_CHUNK_SIZE_MAX]; /* of the chunk in the queue */
    uint8_t wait : 2, pulls : 6;
    bool parsing : 1;    /* within next_request: a response must not enter it again */
    bool keep_alive : 1; /* after the response under way */
    bool version_10 : 1;
    bool chunked_out : 1;
    bool chunk_queued : 1; /* size_line is in use */
    bool pull_again : 1;   /* woken, or there was more */
    bool slow : 1;         /* the peer did not take all at once of the response under way */
    bool close_when_sent : 1;
};

static void next_request(struct h1 *h);
static void pull(struct h1 *h);

static struct h1 *h1_of(struct conn *c)
{
    return peer_of(c)->session;
}

static void wait_for(struct h1 *h, enum wait what, uint64_t ms)
{
    h->wait = what;
    if (what == WAIT_NOTHING || ms == 0)
        timer_stop(&h->peer->timer);
    else
        sched_start(&h->peer->http->loop->sched, &h->peer->timer, ms);
}

static void drop_input(struct h1 *h)
{
    block_unref(h->in);
    h->in = NULL;
    h->at = 0;
}

static void end_connection(struct h1 *h)
{
    struct exchange *x = h->x;
    h->x = NULL;
    h->body = NULL;
    peer_close(h->peer);
    if (x != NULL)
        exchange_finish(x, true);
}

/* ---- ending ---- */

static void close_later(struct h1 *h)
{
    h->close_when_sent = true;
    wait_for(h, WAIT_NOTHING, 0);
    conn_want_read(&h->peer->conn, false);
    conn_flush_later(&h->peer->conn);
}

/* Answers outside of any exchange, and closes. */
static void h1_refuse_with(struct h1 *h, int status, const char *why)
{
    trace(h->peer->http->trace, BAD_REQUEST, TRACE_STR("why", str_of_cstr(why)));
    http_count_response(h->peer->http, status);
    struct buf body = {0};
    json_put_problem(&body, status_code(status), str_of_cstr(why), STR_NONE);
    buf_putc(&body, '\n');
    struct exchange_header retry = {{STR("Retry-After"), STR("1")}, NULL};
    struct exchange_header type = {{STR("Content-Type"), STR("application/json")},
                                   status == 503 ? &retry : NULL};
    conn_put_take(&h->peer->conn, h1_head_block(&(struct h1_head){.status = status,
                                                                  .date = http_date(h->peer->http),
                                                                  .headers = &type,
                                                                  .length = (int64_t)body.n,
                                                                  .close = true}));
    conn_put_take(&h->peer->conn, block_of(buf_str(&body)));
    buf_deinit(&body);
    close_later(h);
}

/* The exchange cannot go on for a reason of the peer's. If it was not answered, this answers. */
static void fail_exchange(struct h1 *h, int status, const char *why)
{
    struct exchange *x = h->x;
    bool begun = x->begun;
    h->x = NULL;
    h->body = NULL;
    exchange_finish(x, true);
    if (begun)
        end_connection(h);
    else
        h1_refuse_with(h, status, why);
}

static void finish_exchange(struct h1 *h)
{
    struct exchange *x = h->x;
    h->x = NULL;
    h->body = NULL;
    exchange_finish(x, false);
    if (!h->keep_alive) {
        close_later(h);
    } else if (!h->parsing) {
        next_request(h);
    }
}

/* ---- request bodies ---- */

static void body_ended(struct h1 *h)
{
    h->body = NULL;
    wait_for(h, WAIT_NOTHING, 0);
    conn_want_read(&h->peer->conn, true); /* for the end of the peer, and pipelined requests */
}

/* Keeps bytes that belong to the next request. */
static void keep_surplus(struct h1 *h, const char *bytes, size_t n)
{
    if (n == 0)
        return;
    must(n <= READ_BLOCK);
    drop_input(h);
    h->in = block_new(READ_BLOCK);
    memcpy(h->in->bytes, bytes, n);
    h->in->n = (uint32_t)n;
}

/* Hands the handler what bytes[0..n) hold of the body; they are the connection's block from `at`
 * on, or just read. False: nothing to hand over yet. The exchange may be gone afterwards. */
static bool deliver_body(struct h1 *h, char *bytes, size_t n, bool in_block)
{
    size_t used;
    struct str data;
    bool end;
    if (h1_body_take(h->body, bytes, n, &used, &data, &end) != 0) {
        fail_exchange(h, 400, "malformed chunked body");
        return true;
    }
    /* The surplus is kept first: the handler may answer at once, and the next request begin. */
    if (in_block)
        h->at += (uint32_t)used;
    else
        keep_surplus(h, bytes + used, n - used);
    h->body->seen += data.n;
    if (end)
        body_ended(h);
    else if (data.n > 0)
        conn_want_read(&h->peer->conn, false); /* until the handler wants more */
    if (data.n == 0 && !end)
        return false;
    exchange_deliver(h->x, data, end, in_block);
    if (h->body != NULL && h->x->on_body == NULL)
        wait_for(h, WAIT_NOTHING, 0); /* the handler is busy: that is no fault of the peer's */
    return true;
}

static void read_body(struct h1 *h)
{
    /* No more than can belong to this body, or than a block can keep for the next request. */
    size_t room = READ_BLOCK;
    if (!h->body->chunked)
        room = h->body->left < LOOP_SCRATCH ? (size_t)h->body->left : LOOP_SCRATCH;
    char *bytes = h->peer->http->loop->scratch;
    ssize_t got = conn_read(&h->peer->conn, bytes, room);
    if (got > 0)
        deliver_body(h, bytes, (size_t)got, false);
    else if (got != CONN_AGAIN)
        end_connection(h);
}

static void h1_via_want(struct exchange *x)
{
    struct h1 *h = x->transport;
    if (h->body == NULL) {
        exchange_deliver(x, STR_NONE, true, true);
        return;
    }
    if (h->body->ready.n > 0) {
        struct str all = h->body->ready;
        body_ended(h);
        exchange_deliver(x, all, true, true);
        return;
    }
    if (h->in != NULL && h->at < h->in->n) {
        if (deliver_body(h, h->in->bytes + h->at, h->in->n - h->at, true))
            return;
    } else if (h->body->expect_continue && !x->begun) {
        conn_put(&h->peer->conn, slice_static(STR("HTTP/1.1 100 Continue\r\n\r\n")));
    }
    h->body->expect_continue = false;
    if (h->wait != WAIT_BODY) { /* else it goes on: a byte now and then must not start it anew */
        h->body->seen_at_timer = h->body->seen;
        wait_for(h, WAIT_BODY, h->peer->http->limits.body_timeout_ms);
    }
    conn_want_read(&h->peer->conn, true);
}

/* ---- responses ---- */

static void h1_via_begin(struct exchange *x, int64_t length)
{
    struct h1 *h = x->transport;
    /* A body that the handler did not want to see to its end cannot be skipped safely. */
    if (h->body != NULL && length >= 0)
        h->keep_alive = false;
    if (h->peer->http->draining || (length < 0 && h->version_10))
        h->keep_alive = false;
    h->chunked_out = length < 0 && !h->version_10 && !x->head_only;
    if (status_has_no_body(x->status) || (x->head_only && length == 0))
        length = -1;
    conn_put_take(&h->peer->conn,
                  h1_head_block(&(struct h1_head){.status = x->status,
                                                  .date = http_date(h->peer->http),
                                                  .headers = x->headers,
                                                  .length = length,
                                                  .chunked = h->chunked_out,
                                                  .kind = x->kind,
                                                  .close = !h->keep_alive,
                                                  .keep_alive = h->keep_alive && h->version_10}));
}

static void h1_via_put(struct exchange *x, struct slice s)
{
    struct h1 *h = x->transport;
    if (s.bytes.n == 0)
        return;
    if (!x->streaming) {
        conn_put(&h->peer->conn, s);
        return;
    }
    struct http_gather *g = &h->peer->http->gather;
    must(g->from == x);
    if (g->n == g->cap) {
        g->cap = g->cap ? g->cap * 2 : 32;
        g->items = mem_realloc(g->items, g->cap * sizeof *g->items);
    }
    block_ref(s.owner);
    g->items[g->n++] = s;
    g->bytes += s.bytes.n;
}

static void put_chunk(struct h1 *h)
{
    struct http_gather *g = &h->peer->http->gather;
    if (g->n > 0 && h->chunked_out) {
        must(g->bytes <= UINT32_MAX);
        size_t n = h1_chunk_size(h->size_line, g->bytes);
        conn_give(&h->peer->conn, slice_static(str_of(h->size_line, n)));
    }
    for (size_t i = 0; i < g->n; i++)
        conn_give(&h->peer->conn, g->items[i]);
    if (g->n > 0 && h->chunked_out)
        conn_give(&h->peer->conn, slice_static(STR("\r\n")));
    h->chunk_queued = g->n > 0;
    g->n = g->bytes = 0;
}

static void put_last_chunk(struct h1 *h)
{
    if (!h->chunked_out)
        return;
    if (h->x->headers == NULL) {
        conn_put(&h->peer->conn, slice_static(STR("0\r\n\r\n")));
        return;
    }
    conn_put_take(&h->peer->conn, h1_last_chunk_block(h->x->headers));
}

static void h1_via_end(struct exchange *x)
{
    struct h1 *h = x->transport;
    if (x->streaming && h->body != NULL)
        h->keep_alive = false;
    finish_exchange(h);
}

static void pull(struct h1 *h)
{
    struct exchange *x = h->x;
    struct http_gather *g = &h->peer->http->gather;
    enum pull result;
    must(g->from == NULL && g->n == 0);
    exchange_hold(x);
    h->pull_again = false;
    g->from = x;
    do
        result = x->ops->pull(x);
    while (result == PULL_MORE && g->bytes < EXCHANGE_PULL && h->x == x);
    g->from = NULL;
    put_chunk(h);
    if (h->x == x && result == PULL_END) {
        put_last_chunk(h);
        h1_via_end(x);
    } else if (result == PULL_MORE || h->pull_again) { /* or woken meanwhile */
        h->pull_again = true;
        conn_flush_later(&h->peer->conn);
    }
    exchange_release(x);
}

static void h1_via_wake(struct exchange *x)
{
    struct h1 *h = x->transport;
    h->pull_again = true;
    if (h->chunk_queued || h->peer->conn.blocked || h->peer->conn.closing)
        return; /* drained() pulls */
    if (h->peer->http->gather.from == NULL)
        pull(h);
    else if (h->peer->http->gather.from != x)
        conn_flush_later(&h->peer->conn); /* not within the pull of another */
}

static void h1_via_abort(struct exchange *x)
{
    struct h1 *h = x->transport;
    end_connection(h);
}

static size_t h1_via_room(const struct exchange *x)
{
    const struct h1 *h = x->transport;
    if (h->peer->conn.blocked)
        return 0;
    return h->slow ? EXCHANGE_PULL : EXCHANGE_ROOM;
}

static struct unsent_share **h1_via_share(const struct exchange *x)
{
    const struct h1 *h = x->transport;
    return &h->peer->share;
}

static const struct peer *h1_via_peer(const struct exchange *x)
{
    const struct h1 *h = x->transport;
    return h->peer;
}

static const struct transport_ops via_h1 = {
    .want = h1_via_want,
    .begin = h1_via_begin,
    .put = h1_via_put,
    .wake = h1_via_wake,
    .end = h1_via_end,
    .abort = h1_via_abort,
    .room = h1_via_room,
    .peer = h1_via_peer,
    .share = h1_via_share,
};

/* ---- requests ---- */

/* bytes: those that the request's slices point into, unless they are in the block: body included,
 * they move to the exchange's arena. */
static void take_request(struct h1 *h, const struct request *parsed, struct str bytes)
{
    struct exchange *x = h->x;
    struct request *req = arena_alloc(&x->arena, sizeof *req);
    *req = *parsed;
    req->headers = arena_alloc(&x->arena, req->n_headers * sizeof *req->headers);
    memcpy(req->headers, parsed->headers, req->n_headers * sizeof *req->headers);
    x->request = req;
    if (bytes.n > 0)
        request_move(req, bytes, arena_dup(&x->arena, bytes).p);
    else
        x->request_bytes = block_ref(h->in);
}

static void start_exchange(struct h1 *h, const struct request *parsed,
                           const struct h1_framing *framing, struct str bytes, size_t head_n)
{
    struct exchange *x = h->x = exchange_new(h->peer->http, &via_h1, h);
    take_request(h, parsed, bytes);
    x->head_only = parsed->method == METHOD_HEAD;
    x->secure = conn_is_secure(&h->peer->conn);
    x->certificate = conn_peer_names(&h->peer->conn);
    x->admin = h->peer->admin;
    x->body_length = framing->content_length;
    x->has_body = framing->chunked || framing->content_length > 0;
    h->version_10 = parsed->version == 10;
    h->keep_alive = framing->keep_alive && !h->peer->surplus;
    h->pull_again = h->slow = false;
    if (framing->chunked || framing->content_length > 0) {
        h->body = arena_alloc(&x->arena, sizeof *h->body);
        *h->body = (struct h1_body){.left = framing->content_length,
                                    .chunked = framing->chunked,
                                    .expect_continue = framing->expect_continue};
        if (bytes.n > head_n)
            h->body->ready = str_of(x->request->method_text.p + head_n, bytes.n - head_n);
        conn_want_read(&h->peer->conn, false); /* until the handler wants it */
    }
    wait_for(h, WAIT_NOTHING, 0);
    http_dispatch(h->peer->http, x);
}

/* Between requests: nothing is kept but the connection itself. */
static void park(struct h1 *h)
{
    drop_input(h);
    h->head = (struct h1_head_state){0};
    if (h->peer->http->draining || h->peer->conn.ended) {
        close_later(h);
        return;
    }
    wait_for(h, WAIT_IDLE, h->peer->http->limits.idle_timeout_ms);
    conn_want_read(&h->peer->conn, true);
}

/* The rest of an incomplete head moves to the front of a block of its own. */
static void h1_make_room(struct h1 *h)
{
    if (h->in == NULL) {
        h->in = block_new(READ_BLOCK);
        h->at = 0;
    } else if (h->in->n == h->in->cap && h->at > 0) {
        struct block *fresh = block_new(READ_BLOCK);
        fresh->n = h->in->n - h->at;
        memcpy(fresh->bytes, h->in->bytes + h->at, fresh->n);
        block_unref(h->in);
        h->in = fresh;
        h->at = 0;
    }
}

/* drained() goes on. */
static void pause_requests(struct h1 *h)
{
    wait_for(h, WAIT_NOTHING, 0);
    conn_want_read(&h->peer->conn, false);
}

static void next_request(struct h1 *h)
{
    unsigned n_taken = 0;
    h->parsing = true;
    while (h->x == NULL && !h->peer->conn.closing && !h->close_when_sent) {
        if (conn_pending(&h->peer->conn) > PIPELINE_BYTES) {
            pause_requests(h);
            break;
        }
        if (h->in == NULL || h->at == h->in->n) {
            park(h);
            break;
        }
        if (n_taken++ == REQUESTS_AT_ONCE) {
            pause_requests(h);
            conn_flush_later(&h->peer->conn);
            break;
        }
        struct header headers[H1_HEADERS_MAX];
        struct request req = {.headers = headers};
        struct h1_framing framing;
        const char *why = "";
        int n =
            h1_parse_head(&h->head, h->in->bytes + h->at, h->in->n - h->at, &req, &framing, &why);
        if (n < 0) {
            h1_refuse_with(h, -n, why);
            break;
        }
        if (n == 0) {
            if (h->wait != WAIT_HEAD)
                wait_for(h, WAIT_HEAD, h->peer->http->limits.head_timeout_ms);
            conn_want_read(&h->peer->conn, true);
            break;
        }
        h->at += (uint32_t)n;
        h->head = (struct h1_head_state){0};
        start_exchange(h, &req, &framing, STR_NONE, 0);
    }
    h->parsing = false;
}

/* The usual case, without a block: bytes are one whole request and nothing more. False: they are
 * not, and nothing has been done. */
static bool take_whole_request(struct h1 *h, struct str bytes)
{
    struct header headers[H1_HEADERS_MAX];
    struct request req = {.headers = headers};
    struct h1_head_state state = {0};
    struct h1_framing framing;
    const char *why;
    int n = h1_parse_head(&state, bytes.p, bytes.n, &req, &framing, &why);
    if (n <= 0 || framing.chunked || framing.content_length != bytes.n - (size_t)n)
        return false;
    h->parsing = true;
    start_exchange(h, &req, &framing, bytes, (size_t)n);
    h->parsing = false;
    if (h->x == NULL) /* answered already */
        next_request(h);
    return true;
}

/* Bytes with nothing before them. */
static void h1_take_bytes(struct h1 *h, struct str bytes)
{
    if (take_whole_request(h, bytes))
        return;
    h1_make_room(h);
    memcpy(h->in->bytes, bytes.p, bytes.n);
    h->in->n = (uint32_t)bytes.n;
    next_request(h);
}

static void h1_read_head(struct h1 *h)
{
    bool fresh = h->in == NULL;
    if (!fresh)
        h1_make_room(h);
    char *into = fresh ? h->peer->http->loop->scratch : h->in->bytes + h->in->n;
    ssize_t got = conn_read(&h->peer->conn, into, fresh ? READ_BLOCK : h->in->cap - h->in->n);
    if (got == CONN_AGAIN)
        return;
    if (got < 0) {
        end_connection(h);
        return;
    }
    if (got == 0) { /* responses may still be on their way out */
        close_later(h);
        return;
    }
    if (fresh) {
        h1_take_bytes(h, str_of(into, (size_t)got));
        return;
    }
    h->in->n += (uint32_t)got;
    next_request(h);
}

/* Bytes while a response is under way: the next request, kept until its turn, or the end. */
static void read_ahead(struct h1 *h)
{
    if (h->in != NULL && h->at == h->in->n && h->in->n == h->in->cap)
        drop_input(h);
    h1_make_room(h);
    if (h->in->n == h->in->cap) {
        conn_want_read(&h->peer->conn, false);
        return;
    }
    ssize_t got = conn_read(&h->peer->conn, h->in->bytes + h->in->n, h->in->cap - h->in->n);
    if (got > 0) {
        h->in->n += (uint32_t)got;
        return;
    }
    if (h->at == h->in->n)
        drop_input(h);
    /* A peer that only finished sending still gets an answer, unless it would wait for ever. */
    bool endless = h->x->peer_bound || (h->x->streaming && !h->x->sized);
    if (got == CONN_GONE || (got == 0 && endless))
        end_connection(h);
}

static void h1_on_readable(struct conn *c)
{
    struct h1 *h = h1_of(c);
    if (h->x == NULL)
        h1_read_head(h);
    else if (h->body != NULL)
        read_body(h);
    else
        read_ahead(h);
}

static void h1_on_drained(struct conn *c)
{
    struct h1 *h = h1_of(c);
    if (h->chunk_queued && h->peer->share != NULL)
        unsent_took(h->peer->share, EXCHANGE_PULL);
    h->chunk_queued = false;
    peer_drained(h->peer);
    if (h->close_when_sent) {
        drop_input(h);
        peer_linger(h->peer);
    } else if (h->x != NULL && h->x->streaming && h->pull_again) {
        if (++h->pulls % PULLS_AT_ONCE == 0)
            conn_yield(c);
        else
            pull(h);
    } else if (h->x == NULL && h->wait == WAIT_NOTHING) {
        next_request(h);
    }
}

static void h1_on_stalled(struct conn *c)
{
    h1_of(c)->slow = true;
    peer_stalled(c);
}

static void h1_on_failed(struct conn *c)
{
    end_connection(h1_of(c));
}

static const struct conn_ops ops = {
    .readable = h1_on_readable,
    .drained = h1_on_drained,
    .stalled = h1_on_stalled,
    .failed = h1_on_failed,
    .closed = peer_closed,
};

static void check_body_rate(struct h1 *h)
{
    struct h1_body *b = h->body;
    if (b->seen - b->seen_at_timer < h->peer->http->limits.body_min_bytes) {
        fail_exchange(h, 408, "the request body came too slowly");
        return;
    }
    b->seen_at_timer = b->seen;
    wait_for(h, WAIT_BODY, h->peer->http->limits.body_timeout_ms);
}

static void h1_on_timeout(struct timer *t)
{
    struct h1 *h = container_of(t, struct peer, timer)->session;
    if (h->wait == WAIT_HEAD)
        h1_refuse_with(h, 408, "the request head took too long");
    else if (h->wait == WAIT_BODY)
        check_body_rate(h);
    else if (h->wait == WAIT_IDLE && h->peer->stall != NULL)
        wait_for(h, WAIT_IDLE,
                 h->peer->http->limits.idle_timeout_ms); /* it is busy with an answer */
    else {
        conn_shutdown_write(&h->peer->conn); /* it has got all there is */
        end_connection(h);
    }
}

static void h1_close(struct peer *p)
{
    end_connection(p->session);
}

static void h1_free(void *session)
{
    struct h1 *h = session;
    block_unref(h->in);
    slab_free(&h->peer->http->h1s, h);
}

static void h1_drain(struct peer *p)
{
    struct h1 *h = p->session;
    if (h->x == NULL) {
        if (h->in == NULL)
            close_later(h);
    } else if (h->x->ops != NULL && h->x->ops->drain != NULL) {
        h->x->ops->drain(h->x);
    }
}

static const struct protocol protocol = {.drain = h1_drain, .close = h1_close, .free = h1_free};

static struct h1 *h1_new(struct peer *p)
{
    struct h1 *h = slab_zalloc(&p->http->h1s, sizeof *h);
    h->peer = p;
    peer_speaks(p, &protocol, h, &ops, h1_on_timeout);
    return h;
}

void h1_start(struct peer *p, struct str bytes)
{
    struct h1 *h = h1_new(p);
    wait_for(h, WAIT_HEAD, p->http->limits.head_timeout_ms);
    h1_take_bytes(h, bytes);
}

void h1_refuse(struct peer *p, int status, const char *why)
{
    h1_refuse_with(h1_new(p), status, why);
}
