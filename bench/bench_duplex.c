// SPDX-License-Identifier: Apache-2.0
#include "bench_duplex.h"

#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ENVELOPE    5
#define HEADERS_MAX 8
#define WINDOW      (1024 * 1024) /* so that few frames are about windows */

/* ---- messages that come ---- */

static size_t length_of(const char *envelope)
{
    const unsigned char *p = (const unsigned char *)envelope;
    return (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
}

/* A whole envelope at the front. A message with flags is the call's end, which nobody asked for. */
static bool take_message(struct duplex *d, struct str *rest, struct str *message)
{
    if (rest->n < ENVELOPE)
        return false;
    size_t n = length_of(rest->p);
    if (rest->p[0] != 0 || n > DUPLEX_MESSAGE_MAX) {
        struct str told = str_skip(*rest, ENVELOPE);
        swarm_fail(d->swarm, "the server ended a call: %.*s", (int)(n < told.n ? n : told.n),
                   told.p);
        return false;
    }
    if (rest->n - ENVELOPE < n)
        return false;
    *message = str_of(rest->p + ENVELOPE, n);
    *rest = str_skip(*rest, ENVELOPE + n);
    return true;
}

static void take_messages(struct duplex *d, struct str *rest)
{
    struct str message;
    while (!d->swarm->failed && take_message(d, rest, &message))
        d->ops->message(d, message);
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                   size_t n, void *ctx)
{
    struct duplex *d = ctx;
    struct str rest = str_of((const char *)bytes, n);
    if (d->in.n > 0) {
        buf_put(&d->in, rest);
        rest = buf_str(&d->in);
    }
    take_messages(d, &rest);
    if (d->in.n > 0) {
        memmove(d->in.p, rest.p, rest.n);
        d->in.n = rest.n;
    } else if (rest.n > 0) {
        buf_put(&d->in, rest);
    }
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags, void *ctx)
{
    struct duplex *d = ctx;
    struct str text = str_of((const char *)value, value_n);
    if (str_eq(str_of((const char *)name, name_n), STR(":status")) && !str_eq(text, STR("200")))
        swarm_fail(d->swarm, "a call was answered %.*s", (int)text.n, text.p);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    struct duplex *d = ctx;
    swarm_fail(d->swarm, "the server closed a stream (HTTP/2 error %u)", code);
    return 0;
}

/* ---- what goes out ---- */

static ssize_t on_send(nghttp2_session *session, const uint8_t *bytes, size_t n, int flags,
                       void *ctx)
{
    struct duplex *d = ctx;
    buf_put(&d->out, str_of((const char *)bytes, n));
    return (ssize_t)n;
}

static ssize_t read_body(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                         uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct duplex *d = ctx;
    size_t n = d->body.n - d->body_at;
    if (n == 0) {
        d->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n > room)
        n = room;
    memcpy(to, d->body.p + d->body_at, n);
    d->body_at += n;
    if (d->body_at == d->body.n)
        d->body.n = d->body_at = 0;
    return (ssize_t)n;
}

void duplex_put(struct duplex *d, struct str message)
{
    char *p = buf_reserve(&d->body, ENVELOPE + message.n);
    p[0] = 0;
    for (int i = 1; i < ENVELOPE; i++)
        p[i] = (char)(message.n >> (8 * (ENVELOPE - 1 - i)));
    memcpy(p + ENVELOPE, message.p, message.n);
    d->body.n += ENVELOPE + message.n;
    if (d->deferred)
        nghttp2_session_resume_data(d->session, d->stream);
    d->deferred = false;
}

static void push_out(struct duplex *d)
{
    while (d->out_at < d->out.n) {
        ssize_t n = send(d->fd, d->out.p + d->out_at, d->out.n - d->out_at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOTCONN))
            break;
        if (n < 0) {
            swarm_fail(d->swarm, "the server stopped reading: %s", strerror(errno));
            return;
        }
        d->out_at += (size_t)n;
    }
    bool blocked = d->out_at < d->out.n;
    if (!blocked)
        d->out.n = d->out_at = 0;
    if (blocked != d->waits_to_write)
        swarm_rewatch(d->swarm, d->fd, EPOLLIN | (blocked ? EPOLLOUT : 0u), &d->source);
    d->waits_to_write = blocked;
}

void duplex_flush(struct duplex *d)
{
    if (d->swarm->failed)
        return;
    int err = nghttp2_session_send(d->session);
    if (err != 0)
        swarm_fail(d->swarm, "HTTP/2: %s", nghttp2_strerror(err));
    else
        push_out(d);
}

/* ---- the connection ---- */

static void pull_in(struct duplex *d)
{
    struct swarm *s = d->swarm;
    ssize_t n = recv(d->fd, s->scratch, SWARM_SCRATCH, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        swarm_fail(s, "the server closed a connection: %s", n < 0 ? strerror(errno) : "end");
        return;
    }
    ssize_t used = nghttp2_session_mem_recv(d->session, (const uint8_t *)s->scratch, (size_t)n);
    if (used < 0)
        swarm_fail(s, "HTTP/2: %s", nghttp2_strerror((int)used));
    if (s->failed)
        return;
    d->ops->after(d);
    duplex_flush(d); /* what nghttp2 has to say for itself, too */
}

static void on_ready(struct source *source, uint32_t events)
{
    struct duplex *d = container_of(source, struct duplex, source);
    if (events & EPOLLOUT)
        push_out(d);
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        pull_in(d);
}

static nghttp2_session *session_new(struct duplex *d)
{
    nghttp2_session *session = NULL;
    nghttp2_session_callbacks *c = NULL;
    if (nghttp2_session_callbacks_new(&c) != 0)
        return NULL;
    nghttp2_session_callbacks_set_send_callback(c, on_send);
    nghttp2_session_callbacks_set_on_header_callback(c, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(c, on_stream_close);
    nghttp2_session_client_new(&session, c, d);
    nghttp2_session_callbacks_del(c);
    return session;
}

static nghttp2_nv nv_of(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .namelen = strlen(name),
                        .value = (uint8_t *)(uintptr_t)value,
                        .valuelen = strlen(value)};
}

static void make_call(struct duplex *d, const char *path, const struct duplex_header *headers,
                      size_t n)
{
    const nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW};
    const nghttp2_data_provider body = {.read_callback = read_body};
    nghttp2_nv nv[6 + HEADERS_MAX] = {
        nv_of(":method", "POST"),
        nv_of(":scheme", "http"),
        nv_of(":authority", "127.0.0.1"),
        nv_of(":path", path),
        nv_of("content-type", "application/connect+proto"),
        nv_of("connect-protocol-version", "1"),
    };
    assert(n <= HEADERS_MAX);
    for (size_t i = 0; i < n; i++)
        nv[6 + i] = nv_of(headers[i].name, headers[i].value);
    nghttp2_submit_settings(d->session, NGHTTP2_FLAG_NONE, &window, 1);
    nghttp2_session_set_local_window_size(d->session, NGHTTP2_FLAG_NONE, 0, WINDOW);
    d->stream = nghttp2_submit_request(d->session, NULL, nv, 6 + n, &body, NULL);
}

void duplex_open(struct duplex *d, struct swarm *s, const struct duplex_ops *ops, const char *path,
                 const struct duplex_header *headers, size_t n)
{
    *d = (struct duplex){.source.ready = on_ready, .swarm = s, .ops = ops};
    d->fd = swarm_connect(s);
    if (d->fd < 0)
        return;
    swarm_watch(s, d->fd, EPOLLIN, &d->source);
    d->session = session_new(d);
    if (!d->session) {
        swarm_fail(s, "no memory for another HTTP/2 connection");
        return;
    }
    make_call(d, path, headers, n);
    duplex_flush(d);
}

void duplex_close(struct duplex *d)
{
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
    nghttp2_session_del(d->session);
    d->session = NULL;
    buf_deinit(&d->body);
    buf_deinit(&d->out);
    buf_deinit(&d->in);
}
