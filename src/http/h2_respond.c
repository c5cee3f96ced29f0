// SPDX-License-Identifier: Apache-2.0
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/num.h"
#include "http/h2_core.h"
#include "http/http.h"
#include "http/status.h"

#include <stdlib.h>

#define COPIED_MAX  512 /* a DATA frame up to this size is copied: cheaper than its slices */
#define QUEUE_FIRST 8

/* ---- what is queued ---- */

void h2_stream_drop_queue(struct h2_stream *s)
{
    struct h2_queue *q = &s->out;
    for (uint32_t i = q->first; i < q->n; i++)
        block_unref(q->items[i].owner);
    s->h2->unsent -= q->bytes;
    free(q->items);
    *q = (struct h2_queue){0};
}

static void queue_put(struct h2_stream *to, struct slice s)
{
    struct h2_queue *q = &to->out;
    if (q->n == q->cap) {
        q->cap = q->cap ? q->cap * 2 : QUEUE_FIRST;
        q->items = mem_realloc(q->items, q->cap * sizeof *q->items);
    }
    block_ref(s.owner);
    q->items[q->n++] = s;
    q->bytes += s.bytes.n;
    to->h2->unsent += s.bytes.n;
}

/* The next slice, n bytes of it at most; with a reference. */
static struct slice queue_take(struct h2_stream *s, size_t n)
{
    struct h2_queue *q = &s->out;
    struct slice *next = &q->items[q->first], taken = *next;
    if (next->bytes.n > n) {
        taken.bytes.n = n;
        next->bytes = str_skip(next->bytes, n);
        block_ref(taken.owner);
    } else {
        q->first++;
    }
    q->bytes -= taken.bytes.n;
    s->h2->unsent -= taken.bytes.n;
    if (q->bytes == 0)
        h2_stream_drop_queue(s);
    return taken;
}

/* ---- heads ---- */

static nghttp2_nv nv_of(struct str name, struct str value)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name.p,
                        .namelen = name.n,
                        .value = (uint8_t *)(uintptr_t)value.p,
                        .valuelen = value.n};
}

/* Headers that speak of a connection have no place here. */
static bool forbidden(struct str name)
{
    static const struct str names[] = {STR_INIT("Connection"), STR_INIT("Keep-Alive"),
                                       STR_INIT("Proxy-Connection"), STR_INIT("Transfer-Encoding"),
                                       STR_INIT("Upgrade")};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (str_eq_nocase(name, names[i]))
            return true;
    return false;
}

static size_t h2_respond_count(const struct exchange_header *headers)
{
    size_t n = 0;
    for (; headers != NULL; headers = headers->next)
        n++;
    return n;
}

static size_t h2_respond_put_headers(nghttp2_nv *nv, const struct exchange_header *headers)
{
    size_t n = 0;
    for (; headers != NULL; headers = headers->next)
        if (!forbidden(headers->header.name))
            nv[n++] = nv_of(headers->header.name, headers->header.value);
    return n;
}

static ssize_t h2_respond_read_data(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room,
                                    uint32_t *flags, nghttp2_data_source *source, void *ctx);

/* length < 0: none is said. */
static void submit_head(struct h2_stream *s, int status, const struct exchange_header *headers,
                        int64_t length, bool body)
{
    struct h2 *h = s->h2;
    size_t room = 3 + RESPONSE_COMMON_HEADERS + h2_respond_count(headers), n = 0;
    nghttp2_nv *nv = arena_alloc(&s->x->arena, room * sizeof *nv);
    char code[NUM_TEXT_MAX], bytes[NUM_TEXT_MAX];
    nv[n++] = nv_of(STR(":status"), str_of(code, num_format((uint64_t)status, code)));
    nv[n++] = nv_of(STR("date"), http_date(h2_http(h)));
    const struct response_common *common = &response_common[s->x->kind];
    for (size_t i = 0; i < common->n; i++)
        nv[n++] = nv_of(common->headers[i].name, common->headers[i].value);
    if (length >= 0)
        nv[n++] = nv_of(STR("content-length"), str_of(bytes, num_format((uint64_t)length, bytes)));
    n += h2_respond_put_headers(nv + n, headers);
    nghttp2_data_provider provider = {.source.ptr = s, .read_callback = h2_respond_read_data};
    nghttp2_submit_response(h->session, s->id, nv, n, body ? &provider : NULL);
    h2_flush_later(h);
}

static void h2_respond_via_begin(struct exchange *x, int64_t length)
{
    struct h2_stream *s = x->transport;
    bool body = length != 0 && !x->head_only;
    if (status_has_no_body(x->status) || (x->head_only && length == 0))
        length = -1;
    submit_head(s, x->status, x->headers, length, body);
}

void h2_respond_problem(struct h2_stream *s, int status, const char *why)
{
    struct buf body = {0};
    json_put_problem(&body, status_code(status), str_of_cstr(why), STR_NONE);
    buf_putc(&body, '\n');
    struct exchange_header retry = {{STR("Retry-After"), STR("1")}, NULL};
    struct exchange_header type = {{STR("Content-Type"), STR("application/json")},
                                   status == 503 ? &retry : NULL};
    http_count_response(h2_http(s->h2), status);
    s->x->kind = h2_http(s->h2)->front.guarded ? RESPONSE_GUARDED : RESPONSE_OPEN;
    submit_head(s, status, &type, (int64_t)body.n, true);
    struct block *b = block_of(buf_str(&body));
    queue_put(s, slice_of(b, 0, b->n));
    block_unref(b);
    buf_deinit(&body);
    s->ended = true;
}

/* ---- trailers ---- */

struct h2_trailers {
    size_t n;
    nghttp2_nv nv[];
};

static char *h2_respond_copy(char *to, struct str s)
{
    memcpy(to, s.p, s.n);
    return to + s.n;
}

/* They go out behind all that is queued, and the exchange does not last until then. */
static struct h2_trailers *trailers_of(const struct exchange_header *headers)
{
    if (headers == NULL)
        return NULL;
    size_t n = h2_respond_count(headers), bytes = 0;
    for (const struct exchange_header *h = headers; h != NULL; h = h->next)
        bytes += h->header.name.n + h->header.value.n;
    struct h2_trailers *t = mem_alloc(sizeof *t + n * sizeof *t->nv + bytes);
    char *to = (char *)(t->nv + n);
    t->n = h2_respond_put_headers(t->nv, headers);
    for (size_t i = 0; i < t->n; i++) {
        nghttp2_nv *nv = &t->nv[i];
        struct str name = str_of((char *)nv->name, nv->namelen);
        struct str value = str_of((char *)nv->value, nv->valuelen);
        nv->name = (uint8_t *)to;
        nv->value = (uint8_t *)h2_respond_copy(to, name);
        to = h2_respond_copy((char *)nv->value, value);
    }
    return t;
}

static void send_trailers(struct h2_stream *s, uint32_t *flags)
{
    struct h2_trailers *t = s->trailers;
    if (t == NULL)
        return;
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    s->trailers = NULL;
    nghttp2_submit_trailer(s->h2->session, s->id, t->nv, t->n);
    free(t);
}

/* ---- bodies ---- */

bool h2_stream_pending(const struct h2_stream *s)
{
    return !s->cut && (s->out.bytes > 0 || (s->x != NULL && s->x->streaming && s->pull_again));
}

void h2_stream_resume(struct h2_stream *s)
{
    if (s->deferred)
        nghttp2_session_resume_data(s->h2->session, s->id);
    s->deferred = false;
    h2_flush_later(s->h2);
}

static void h2_respond_via_put(struct exchange *x, struct slice piece)
{
    struct h2_stream *s = x->transport;
    if (piece.bytes.n > 0)
        queue_put(s, piece);
}

/* What the windows let through; while the socket takes nothing, they say nothing. */
static size_t h2_respond_via_room(const struct exchange *x)
{
    const struct h2_stream *s = x->transport;
    const struct h2 *h = s->h2;
    int32_t room = nghttp2_session_get_stream_remote_window_size(h->session, s->id);
    int32_t all = nghttp2_session_get_remote_window_size(h->session);
    room = room < all ? room : all;
    if (h->peer->conn.blocked || room <= 0)
        return 0;
    return room < EXCHANGE_ROOM ? (size_t)room : EXCHANGE_ROOM;
}

static struct unsent_share **h2_respond_via_share(const struct exchange *x)
{
    const struct h2_stream *s = x->transport;
    return &s->h2->peer->share;
}

static const struct peer *h2_respond_via_peer(const struct exchange *x)
{
    const struct h2_stream *s = x->transport;
    return s->h2->peer;
}

/* The response is complete, but for being sent. */
static void h2_respond_via_end(struct exchange *x)
{
    struct h2_stream *s = x->transport;
    s->ended = true;
    h2_stream_detach(s, false);
    h2_stream_resume(s);
}

static void pull(struct h2_stream *s)
{
    struct exchange *x = s->x;
    struct http_gather *g = &x->http->gather;
    enum pull result;
    must(g->from == NULL);
    size_t room = h2_respond_via_room(x);
    size_t enough = room < EXCHANGE_PULL ? room : EXCHANGE_PULL;
    exchange_hold(x);
    s->pulled = true;
    s->pull_again = false;
    g->from = x; /* others that are woken now wait until this is done */
    do
        result = x->ops->pull(x);
    while (result == PULL_MORE && s->out.bytes < enough && s->x == x);
    g->from = NULL;
    if (s->x == x && result == PULL_END) {
        s->trailers = trailers_of(x->headers);
        h2_respond_via_end(x);
    } else if (result == PULL_MORE) {
        s->pull_again = true;
    }
    exchange_release(x);
}

static ssize_t h2_respond_read_data(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room,
                                    uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct h2_stream *s = source->ptr;
    if (s->out.bytes == 0 && s->x != NULL && s->x->streaming && s->pull_again)
        pull(s);
    if (s->cut || (s->out.bytes == 0 && !s->ended)) {
        s->deferred = true;
        s->h2->pull_again |= s->pull_again;
        return NGHTTP2_ERR_DEFERRED;
    }
    bool awaits = s->ended && h2_stream_awaits(s);
    if (s->out.bytes == 0 && awaits) {
        s->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    size_t n = s->out.bytes < room ? s->out.bytes : room;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (n == s->out.bytes && s->ended && !awaits) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        send_trailers(s, flags);
    }
    return (ssize_t)n;
}

int h2_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t n,
                 nghttp2_data_source *source, void *ctx)
{
    struct h2_stream *s = source->ptr;
    struct h2 *h = s->h2;
    bool copied = n <= COPIED_MAX;
    if (s->cut)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    h2_put(h, head, 9);
    while (n > 0) {
        struct slice piece = queue_take(s, n);
        n -= piece.bytes.n;
        if (copied) {
            h2_put(h, piece.bytes.p, piece.bytes.n);
            block_unref(piece.owner);
        } else {
            h2_give(h, piece);
        }
    }
    s->late = false;
    h2_guard_gain(&h->guard, H2_GAIN_DATA);
    h->full = h->queued >= H2_ROUND;
    return h->full ? NGHTTP2_ERR_PAUSE : 0;
}

static void h2_respond_via_wake(struct exchange *x)
{
    struct h2_stream *s = x->transport;
    s->pull_again = true;
    /* A handler has something at hand when it begins, which it may not keep for later. */
    if (!s->pulled && x->http->gather.from == NULL && h2_respond_via_room(x) > 0)
        pull(s);
    h2_stream_resume(s);
}

static void h2_respond_via_abort(struct exchange *x)
{
    h2_stream_cut(x->transport, NGHTTP2_INTERNAL_ERROR);
}

const struct transport_ops h2_via = {
    .want = h2_stream_want,
    .begin = h2_respond_via_begin,
    .put = h2_respond_via_put,
    .wake = h2_respond_via_wake,
    .end = h2_respond_via_end,
    .abort = h2_respond_via_abort,
    .room = h2_respond_via_room,
    .peer = h2_respond_via_peer,
    .share = h2_respond_via_share,
};
