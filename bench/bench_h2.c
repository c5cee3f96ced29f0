// SPDX-License-Identifier: Apache-2.0
#include "bench_h2.h"

#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTION_WINDOW (1 << 30)

/* ---- what comes in ---- */

static int h2_on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                        size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags,
                        void *ctx)
{
    struct h2 *c = ctx;
    if (!str_eq(str_of((const char *)name, name_n), STR(":status")))
        return 0;
    if (str_eq(str_of((const char *)value, value_n), STR("200")))
        c->begun++;
    else
        c->refused++;
    return 0;
}

static int h2_on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                      size_t n, void *ctx)
{
    ((struct h2 *)ctx)->bytes += n;
    return 0;
}

static int h2_on_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    struct h2 *c = ctx;
    c->ended++;
    c->refused += code != NGHTTP2_NO_ERROR;
    return 0;
}

/* ---- what goes out ---- */

static ssize_t h2_on_send(nghttp2_session *session, const uint8_t *bytes, size_t n, int flags,
                          void *ctx)
{
    buf_put(&((struct h2 *)ctx)->out, str_of((const char *)bytes, n));
    return (ssize_t)n;
}

static void push_out(struct h2 *c)
{
    while (c->out_at < c->out.n) {
        ssize_t n = send(c->fd, c->out.p + c->out_at, c->out.n - c->out_at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOTCONN))
            break;
        if (n < 0) {
            swarm_fail(c->swarm, "the server stopped reading: %s", strerror(errno));
            return;
        }
        c->out_at += (size_t)n;
    }
    bool blocked = c->out_at < c->out.n;
    if (!blocked)
        c->out.n = c->out_at = 0;
    if (blocked != c->waits_to_write)
        swarm_rewatch(c->swarm, c->fd, EPOLLIN | (blocked ? EPOLLOUT : 0u), &c->source);
    c->waits_to_write = blocked;
}

void h2_flush(struct h2 *c)
{
    if (c->swarm->failed)
        return;
    int err = nghttp2_session_send(c->session);
    if (err != 0)
        swarm_fail(c->swarm, "HTTP/2: %s", nghttp2_strerror(err));
    else
        push_out(c);
}

static nghttp2_nv nv_of(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .namelen = strlen(name),
                        .value = (uint8_t *)(uintptr_t)value,
                        .valuelen = strlen(value)};
}

void h2_call(struct h2 *c, const char *method, const char *path, const struct h2_header *headers,
             size_t n)
{
    nghttp2_nv nv[4 + H2_HEADERS_MAX] = {
        nv_of(":method", method),
        nv_of(":scheme", "http"),
        nv_of(":authority", "127.0.0.1"),
        nv_of(":path", path),
    };
    assert(n <= H2_HEADERS_MAX);
    if (c->swarm->failed)
        return;
    for (size_t i = 0; i < n; i++)
        nv[4 + i] = nv_of(headers[i].name, headers[i].value);
    c->asked++;
    nghttp2_submit_request(c->session, NULL, nv, 4 + n, NULL, NULL);
}

/* ---- the connection ---- */

static void pull_in(struct h2 *c)
{
    struct swarm *s = c->swarm;
    ssize_t n = recv(c->fd, s->scratch, SWARM_SCRATCH, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        swarm_fail(s, "the server closed a connection: %s", n < 0 ? strerror(errno) : "end");
        return;
    }
    ssize_t used = nghttp2_session_mem_recv(c->session, (const uint8_t *)s->scratch, (size_t)n);
    if (used < 0)
        swarm_fail(s, "HTTP/2: %s", nghttp2_strerror((int)used));
    if (s->failed)
        return;
    if (c->after)
        c->after(c);
    h2_flush(c);
}

static void h2_ready(struct source *source, uint32_t events)
{
    struct h2 *c = container_of(source, struct h2, source);
    if (events & EPOLLOUT)
        push_out(c);
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        pull_in(c);
}

static nghttp2_session *session_new(struct h2 *c)
{
    nghttp2_session *session = NULL;
    nghttp2_session_callbacks *calls = NULL;
    if (nghttp2_session_callbacks_new(&calls) != 0)
        return NULL;
    nghttp2_session_callbacks_set_send_callback(calls, h2_on_send);
    nghttp2_session_callbacks_set_on_header_callback(calls, h2_on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, h2_on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(calls, h2_on_close);
    nghttp2_session_client_new(&session, calls, c);
    nghttp2_session_callbacks_del(calls);
    return session;
}

void h2_open(struct h2 *c, struct swarm *s, uint32_t window, void (*after)(struct h2 *c))
{
    const nghttp2_settings_entry setting = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window};
    *c = (struct h2){.source.ready = h2_ready, .swarm = s, .after = after};
    c->fd = swarm_connect(s);
    if (c->fd < 0)
        return;
    swarm_watch(s, c->fd, EPOLLIN, &c->source);
    c->session = session_new(c);
    if (!c->session) {
        swarm_fail(s, "no memory for another HTTP/2 connection");
        return;
    }
    nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, &setting, 1);
    nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW);
}

void h2_close(struct h2 *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    nghttp2_session_del(c->session);
    c->session = NULL;
    buf_deinit(&c->out);
}
