// SPDX-License-Identifier: Apache-2.0
/* HTTP/2 on a wire, by nghttp2: with prior knowledge over http://, by ALPN over https://.
 *
 * Streams find their exchanges by number, never by a pointer that nghttp2 keeps: an exchange may be
 * gone before nghttp2 has done with its stream. */
#include "client/client_http_core.h"

#include "base/num.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>

#define STREAM_WINDOW     (1024 * 1024)
#define CONNECTION_WINDOW (8 * 1024 * 1024)
#define STREAMS_MAX       100 /* at a time, until the server says otherwise */
#define NV_MAX            (HTTP_HEADERS_MAX + HTTP_ADDED_MAX + 8)

struct http2 {
    struct tm_client *client;
    nghttp2_session *session; /* NULL: not open yet */
    nghttp2_mem mem;
    size_t came;  /* bytes, as far as that is of interest */
    bool settled; /* the server's SETTINGS have come */
    bool sick;    /* there was no memory */
};

static const struct speaker http2_speaker;

/* ---- memory ----
 *
 * nghttp2 does not always say that it found none: a stream may be reset for it. So that is noted
 * here, and the connection is given up. What it frees held tokens and other secrets: each block
 * begins with its size, and is wiped. */

union block {
    size_t n; /* behind it */
    max_align_t align;
};

static void *http2_for_malloc(size_t n, void *user)
{
    struct http2 *h = user;
    union block *b = n < SIZE_MAX - sizeof(*b) ? client_alloc(h->client, sizeof(*b) + n) : NULL;
    if (b == NULL) {
        h->sick = true;
        return NULL;
    }
    b->n = n;
    return b + 1;
}

static void http2_for_free(void *p, void *user)
{
    struct http2 *h = user;
    union block *b = p != NULL ? (union block *)p - 1 : NULL;
    if (b != NULL)
        client_free_secret(h->client, b, sizeof(*b) + b->n);
}

static void *http2_for_calloc(size_t n, size_t size, void *user)
{
    bool fits = size == 0 || n <= SIZE_MAX / size;
    void *p = http2_for_malloc(fits ? n * size : SIZE_MAX, user);
    if (p != NULL)
        memset(p, 0, n * size);
    return p;
}

static void *http2_for_realloc(void *p, size_t n, void *user)
{
    void *moved = http2_for_malloc(n, user);
    if (moved != NULL && p != NULL) {
        size_t had = ((union block *)p - 1)->n;
        memcpy(moved, p, had < n ? had : n);
        http2_for_free(p, user);
    }
    return moved;
}

/* ---- wires ---- */

struct wire *http2_wire_new(struct tm_client *c)
{
    struct http2 *h = client_zalloc(c, sizeof(*h));
    if (h == NULL)
        return NULL;
    /* A server without HTTP/2 then chooses the other, which tells more than an alert. */
    struct wire *w = wire_new(c, &http2_speaker, STR("\x02h2\x08http/1.1"));
    if (w == NULL) {
        client_free(c, h);
        return NULL;
    }
    h->client = c;
    h->mem =
        (nghttp2_mem){h, http2_for_malloc, http2_for_free, http2_for_calloc, http2_for_realloc};
    w->speech = h;
    return w;
}

bool http2_speaks(const struct wire *w)
{
    return w->speaker == &http2_speaker;
}

static void http2_free(struct wire *w)
{
    struct http2 *h = w->speech;
    if (h != NULL)
        nghttp2_session_del(h->session);
    client_free(w->client, h);
}

bool http2_can_take(const struct wire *w)
{
    const struct http2 *h = w->speech;
    size_t n = 0, max = STREAMS_MAX;
    list_each (l, &w->exchanges)
        n++;
    if (h->settled)
        max = nghttp2_session_get_remote_settings(h->session,
                                                  NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
    return n < max && (h->session == NULL || nghttp2_session_check_request_allowed(h->session));
}

static struct http_exchange *http2_find(struct wire *w, int32_t stream)
{
    list_each (l, &w->exchanges) {
        struct http_exchange *x = list_item(l, struct http_exchange, link);
        if (x->stream == stream && stream != 0)
            return x;
    }
    return NULL;
}

static void mark_refused(struct wire *w)
{
    list_each (l, &w->exchanges)
        list_item(l, struct http_exchange, link)->r->http2_refused = true;
}

static void http2_on_refused(struct wire *w)
{
    mark_refused(w);
    wire_fail(w, TM_E_PROTOCOL, "the server does not speak HTTP/2");
}

static void broken(struct wire *w, int nghttp2_error)
{
    struct http2 *h = w->speech;
    if (h->sick || nghttp2_error == NGHTTP2_ERR_NOMEM)
        wire_fail(w, TM_E_NOMEM, NULL);
    else if (w->no_more) /* it was told to end */
        wire_fail(w, 0, "the server ended the connection");
    else
        wire_fail(w, TM_E_PROTOCOL, "the server broke the rules of HTTP/2");
}

/* Nothing more comes, and all has been said. */
static bool is_done(const struct wire *w)
{
    struct http2 *h = w->speech;
    return w->out.n == 0 && !nghttp2_session_want_read(h->session) &&
           !nghttp2_session_want_write(h->session);
}

/* ---- requests ---- */

/* What no proxy may keep in a table that others are compared with. */
static bool is_secret(struct str name)
{
    return str_eq(name, STR("authorization")) || str_eq(name, STR("x-idempotent-encryption-key")) ||
           str_eq(name, STR("cookie")) || str_eq(name, STR("proxy-authorization"));
}

static nghttp2_nv nv(struct str name, struct str value)
{
    return (nghttp2_nv){(uint8_t *)name.p, (uint8_t *)value.p, name.n, value.n,
                        is_secret(name) ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE};
}

static size_t body_slice(struct http_exchange *x, uint8_t *buf, size_t room)
{
    size_t n = x->r->body.n - x->body_sent;
    if (n > 0) {
        n = n < room ? n : room;
        memcpy(buf, x->r->body.p + x->body_sent, n);
        x->body_sent += n;
        return n;
    }
    n = x->more.n - x->more_taken;
    n = n < room ? n : room;
    if (n > 0)
        memcpy(buf, x->more.p + x->more_taken, n);
    x->more_taken += n;
    return n;
}

static ssize_t http2_on_body_wanted(nghttp2_session *session, int32_t stream, uint8_t *buf,
                                    size_t room, uint32_t *flags, nghttp2_data_source *source,
                                    void *user)
{
    struct http_exchange *x = http2_find(user, stream);
    if (x == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t n = body_slice(x, buf, room);
    bool empty = http_unsent(x->r) == 0;
    if (n > 0)
        exchange_progress(x);
    if (x->all && empty)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    else if (n == 0) {
        x->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

void http2_resume(struct http_exchange *x)
{
    struct http2 *h = x->wire->speech;
    if (x->deferred && x->wire->state == WIRE_OPEN) {
        x->deferred = false;
        nghttp2_session_resume_data(h->session, x->stream);
    }
    wire_wake(x->wire);
}

static size_t headers_of(struct http_exchange *x, nghttp2_nv *out, char *length)
{
    const struct http_request *r = x->r;
    const struct server_url *server = &r->client->server;
    struct str text = bytes_str(&x->text);
    size_t n = 0;
    out[n++] = nv(STR(":method"), r->method);
    out[n++] = nv(STR(":scheme"), server->tls ? STR("https") : STR("http"));
    out[n++] = nv(STR(":authority"), str_of_cstr(server->authority));
    out[n++] = nv(STR(":path"), str_of(text.p, x->path_n));
    if (text.n > x->path_n)
        out[n++] = nv(STR("authorization"), str_skip(text, x->path_n));
    if (!exchange_sets(x, STR("user-agent")))
        out[n++] = nv(STR("user-agent"), STR(HTTP_USER_AGENT));
    if (exchange_has_length(x))
        out[n++] = nv(STR("content-length"), str_of(length, num_format(r->body.n, length)));
    for (size_t i = 0; i < r->n_headers; i++)
        out[n++] = nv(r->headers[i].name, r->headers[i].value);
    struct str name, value;
    for (size_t at = 0; exchange_added(x, &at, &name, &value); n++) {
        out[n] = nv(name, value);
        out[n].flags = NGHTTP2_NV_FLAG_NO_INDEX; /* it may be a secret, and is new each time */
    }
    return n;
}

static int http2_submit(struct wire *w, struct http_exchange *x)
{
    struct http2 *h = w->speech;
    nghttp2_nv headers[NV_MAX];
    char length[NUM_TEXT_MAX];
    nghttp2_data_provider body = {.read_callback = http2_on_body_wanted};
    bool has_body = x->r->body.n > 0 || x->r->duplex;
    size_t n = headers_of(x, headers, length);
    int32_t stream =
        nghttp2_submit_request(h->session, NULL, headers, n, has_body ? &body : NULL, NULL);
    if (stream < 0)
        return stream;
    x->stream = stream;
    exchange_begin(x);
    return 0;
}

/* The numbers of streams may have run out, and a GOAWAY may have come: then another takes it. */
static void submit_new(struct wire *w)
{
    list_each_safe (l, &w->exchanges) {
        struct http_exchange *x = list_item(l, struct http_exchange, link);
        int err = x->stream == 0 ? http2_submit(w, x) : 0;
        if (err == NGHTTP2_ERR_NOMEM) {
            exchange_fail(x, TM_E_NOMEM, NULL);
            return; /* the list may be another by now; the rest goes with the next turn */
        }
        if (err != 0) {
            w->no_more = true;
            exchange_again(x);
            return;
        }
    }
}

static void http2_fill(struct wire *w)
{
    struct http2 *h = w->speech;
    if (h->session == NULL)
        return;
    submit_new(w);
    if (w->state == WIRE_OPEN && (h->sick || is_done(w))) {
        broken(w, NGHTTP2_ERR_PROTO);
        return;
    }
    while (w->state == WIRE_OPEN && wire_has_room(w)) {
        const uint8_t *p;
        ssize_t n = nghttp2_session_mem_send(h->session, &p);
        if (n < 0) {
            broken(w, (int)n);
            return;
        }
        if (n == 0)
            break;
        if (wire_write(w, str_of((const char *)p, (size_t)n)) != 0) {
            wire_fail(w, TM_E_NOMEM, NULL);
            return;
        }
    }
}

/* A request that is still in nghttp2's queue is taken out of there by a reset, too. */
void http2_drop(struct http_exchange *x)
{
    struct http2 *h = x->wire->speech;
    if (x->wire->state != WIRE_OPEN || x->stream == 0)
        return;
    nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, x->stream, NGHTTP2_CANCEL);
    wire_wake(x->wire);
}

void http2_ping(struct wire *w)
{
    struct http2 *h = w->speech;
    if (w->state == WIRE_OPEN)
        nghttp2_submit_ping(h->session, NGHTTP2_FLAG_NONE, NULL);
    wire_wake(w);
}

/* ---- answers ---- */

static void on_pong(struct wire *w)
{
    list_each (l, &w->exchanges) {
        struct http_exchange *x = list_item(l, struct http_exchange, link);
        if (x->asked)
            exchange_progress(x);
    }
}

static int http2_on_header(nghttp2_session *session, const nghttp2_frame *frame,
                           const uint8_t *name, size_t name_n, const uint8_t *value, size_t value_n,
                           uint8_t flags, void *user)
{
    struct wire *w = user;
    struct http_exchange *x = http2_find(w, frame->hd.stream_id);
    struct str n = str_of((const char *)name, name_n), v = str_of((const char *)value, value_n);
    uint64_t status;
    if (x == NULL || frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    x->received = true;
    if (str_eq(n, STR(":status"))) {
        if (num_parse(v, 599, &status) != 0)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        x->coming_status = (int)status;
        exchange_forget_answer(x); /* of an interim one */
        return 0;
    }
    int err = exchange_header(x, x->r->status != 0, n, v);
    if (err != 0)
        exchange_fail(x, err, err == TM_E_PROTOCOL ? "the answer's head is too large" : NULL);
    return 0;
}

/* The server has said all. Our half of the stream, if open, is of no use any more. */
static void http2_complete(struct wire *w, struct http_exchange *x)
{
    x->r->framed = true;
    if (!x->all || http_unsent(x->r) > 0)
        http2_drop(x);
    exchange_over(x, 0, NULL);
}

static void on_headers_complete(struct wire *w, const nghttp2_frame *frame)
{
    struct http_exchange *x = http2_find(w, frame->hd.stream_id);
    if (x == NULL)
        return;
    exchange_progress(x);
    if (x->r->status == 0 && x->coming_status >= 200) {
        x->r->framed = true;
        exchange_head(x, x->coming_status);
    }
    if (x->r != NULL && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
        http2_complete(w, x);
}

static int http2_on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct wire *w = user;
    struct http2 *h = w->speech;
    struct http_exchange *x;
    switch (frame->hd.type) {
    case NGHTTP2_SETTINGS: h->settled = true; break;
    case NGHTTP2_GOAWAY: w->no_more = true; break;
    case NGHTTP2_HEADERS: on_headers_complete(w, frame); break;
    case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0)
            on_pong(w);
        break;
    case NGHTTP2_DATA:
        x = http2_find(w, frame->hd.stream_id);
        if (x != NULL && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
            http2_complete(w, x);
        break;
    default: break;
    }
    return 0;
}

/* The window opens again when data() has taken it. */
static int http2_on_data(nghttp2_session *session, uint8_t flags, int32_t stream,
                         const uint8_t *data, size_t n, void *user)
{
    struct http_exchange *x = http2_find(user, stream);
    if (x != NULL)
        exchange_data(x, str_of((const char *)data, n));
    nghttp2_session_consume(session, stream, n);
    return 0;
}

static int http2_on_stream_close(nghttp2_session *session, int32_t stream, uint32_t code,
                                 void *user)
{
    struct wire *w = user;
    struct http2 *h = w->speech;
    struct http_exchange *x = http2_find(w, stream);
    char message[80];
    if (x == NULL)
        return 0;
    x->stream = 0; /* there is nothing left to reset */
    if (h->sick) {
        exchange_over(x, TM_E_NOMEM, NULL);
        return 0;
    }
    /* Refused means that nothing was done about it. */
    if (code == NGHTTP2_REFUSED_STREAM && x->kept && !x->received && x->more_taken == 0) {
        w->no_more = true;
        exchange_again(x);
        return 0;
    }
    x->r->http2_refused = code == NGHTTP2_HTTP_1_1_REQUIRED;
    snprintf(message, sizeof(message), "the stream was reset: %s", nghttp2_http2_strerror(code));
    exchange_over(
        x, code == NGHTTP2_PROTOCOL_ERROR || x->r->http2_refused ? TM_E_PROTOCOL : TM_E_NETWORK,
        message);
    return 0;
}

/* A request that never left, since the connection is about to end. */
static int http2_on_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int err,
                             void *user)
{
    struct wire *w = user;
    struct http2 *h = w->speech;
    struct http_exchange *x = http2_find(w, frame->hd.stream_id);
    if (x == NULL || frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    x->stream = 0;
    w->no_more = true;
    if (h->sick)
        exchange_over(x, TM_E_NOMEM, NULL);
    else if (x->kept)
        exchange_again(x);
    else
        exchange_over(x, TM_E_NETWORK, "the server takes no more requests");
    return 0;
}

/* The fourth byte of a frame is its type, and the first frame is SETTINGS. What begins otherwise is
 * another protocol, such as `HTTP/1.1 400`. */
static bool is_http2(struct http2 *h, struct str bytes)
{
    if (h->came > 3)
        return true;
    size_t at = 3 - h->came;
    h->came = bytes.n > at ? 4 : h->came + bytes.n;
    return bytes.n <= at || bytes.p[at] == NGHTTP2_SETTINGS;
}

static void http2_bytes(struct wire *w, struct str bytes)
{
    struct http2 *h = w->speech;
    if (h->session == NULL)
        return;
    if (!is_http2(h, bytes)) {
        http2_on_refused(w);
        return;
    }
    ssize_t n = nghttp2_session_mem_recv(h->session, (const uint8_t *)bytes.p, bytes.n);
    if (w->state != WIRE_OPEN)
        return;
    if (n < 0 || h->sick)
        broken(w, (int)n);
}

static int new_session(struct wire *w)
{
    struct http2 *h = w->speech;
    nghttp2_session_callbacks *calls = NULL;
    nghttp2_option *option = NULL;
    int err = nghttp2_session_callbacks_new(&calls);
    if (err == 0)
        err = nghttp2_option_new(&option);
    if (err == 0) {
        nghttp2_session_callbacks_set_on_header_callback(calls, http2_on_header);
        nghttp2_session_callbacks_set_on_frame_recv_callback(calls, http2_on_frame);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, http2_on_data);
        nghttp2_session_callbacks_set_on_stream_close_callback(calls, http2_on_stream_close);
        nghttp2_session_callbacks_set_on_frame_not_send_callback(calls, http2_on_not_sent);
        nghttp2_option_set_no_auto_window_update(option, 1);
        err = nghttp2_session_client_new3(&h->session, calls, w, option, &h->mem);
    }
    nghttp2_session_callbacks_del(calls);
    nghttp2_option_del(option);
    return err;
}

static int http2_open_session(struct wire *w)
{
    struct http2 *h = w->speech;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP_HEAD_MAX},
    };
    int err = new_session(w);
    if (err == 0)
        err = nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings,
                                      sizeof(settings) / sizeof(settings[0]));
    if (err == 0)
        err = nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0,
                                                    CONNECTION_WINDOW);
    return err;
}

static void http2_opened(struct wire *w)
{
    if (w->client->server.tls && !str_eq(wire_alpn(w), STR("h2")))
        http2_on_refused(w);
    else if (http2_open_session(w) != 0)
        wire_fail(w, TM_E_NOMEM, NULL);
}

static void http2_lost(struct wire *w, int err, const char *message)
{
    if (w->alpn_refused)
        mark_refused(w);
    http_lost(w, err, message);
}

static const struct speaker http2_speaker = {
    .opened = http2_opened,
    .bytes = http2_bytes,
    .fill = http2_fill,
    .lost = http2_lost,
    .free = http2_free,
};
