// SPDX-License-Identifier: Apache-2.0
#include "bench_backend.h"

#include "bench_tally.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define HEAD_MAX 16384
#define BACKLOG  4096
#define BURST    64 /* events in a row before receivers have their turn */

/* One connection, one request. */
struct backend_conn {
    struct source source;
    struct link link;
    struct backend *backend;
    struct backend_stream *stream; /* NULL: its request has not come yet */
    int fd;
    struct buf in, out; /* out: what the kernel has not taken yet */
};

static const struct str answer_head = STR_INIT("HTTP/1.1 200 OK\r\n"
                                               "Content-Type: text/event-stream\r\n"
                                               "Cache-Control: no-cache\r\n"
                                               "Transfer-Encoding: chunked\r\n"
                                               "Connection: close\r\n\r\n");
static const struct str answer_end = STR_INIT("0\r\n\r\n");

/* ---- connections ---- */

static void conn_free(struct backend_conn *c)
{
    if (c->stream)
        c->stream->conn = NULL;
    list_remove(&c->link);
    close(c->fd);
    buf_deinit(&c->in);
    buf_deinit(&c->out);
    free(c);
}

/* Returns how many bytes the kernel took. */
static size_t conn_push(struct backend_conn *c, struct str bytes)
{
    ssize_t n = send(c->fd, bytes.p, bytes.n, MSG_NOSIGNAL);
    if (n >= 0)
        return (size_t)n;
    if (errno != EAGAIN && errno != EINTR)
        swarm_fail(c->backend->swarm, "a client of the backend went away: %s", strerror(errno));
    return 0;
}

static void conn_send(struct backend_conn *c, struct str bytes)
{
    if (c->out.n == 0) {
        bytes = str_skip(bytes, conn_push(c, bytes));
        if (bytes.n == 0)
            return;
        swarm_rewatch(c->backend->swarm, c->fd, EPOLLIN | EPOLLOUT, &c->source);
    }
    buf_put(&c->out, bytes);
}

static void conn_flush(struct backend_conn *c)
{
    size_t taken = conn_push(c, buf_str(&c->out));
    c->out.n -= taken;
    memmove(c->out.p, c->out.p + taken, c->out.n);
    if (c->out.n == 0)
        swarm_rewatch(c->backend->swarm, c->fd, EPOLLIN, &c->source);
}

/* `POST /path?n=17 HTTP/1.1` asks for stream 17. */
static void take_request(struct backend_conn *c, struct str head)
{
    struct backend *b = c->backend;
    struct str query = str_cut(&head, '\r');
    str_cut(&query, '=');
    uint64_t number;
    if (num_parse(str_cut(&query, ' '), UINT32_MAX, &number) != 0 || number >= b->n) {
        swarm_fail(b->swarm, "the backend was asked for a stream that it does not have");
        return;
    }
    struct backend_stream *s = &b->streams[number];
    if (s->conn || s->sent > 0) {
        swarm_fail(b->swarm, "the backend was asked twice for one stream");
        return;
    }
    s->conn = c;
    c->stream = s;
    b->asked++;
    conn_send(c, answer_head);
}

/* What comes behind the head is the request's body, and of no interest. */
static void take_bytes(struct backend_conn *c, struct str bytes)
{
    if (c->stream)
        return;
    buf_put(&c->in, bytes);
    const char *end = memmem(c->in.p, c->in.n, "\r\n\r\n", 4);
    if (end)
        take_request(c, str_of(c->in.p, (size_t)(end - c->in.p)));
    else if (c->in.n > HEAD_MAX)
        swarm_fail(c->backend->swarm, "the backend was sent a head that does not end");
}

static void conn_read(struct backend_conn *c)
{
    char bytes[4096];
    struct backend *b = c->backend;
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        take_bytes(c, str_of(bytes, (size_t)n));
        return;
    }
    if (c->stream && c->stream->sent < b->events)
        swarm_fail(b->swarm, "a client of the backend left before the end of its stream");
    conn_free(c);
}

static void conn_ready(struct source *source, uint32_t events)
{
    struct backend_conn *c = container_of(source, struct backend_conn, source);
    if (events & EPOLLOUT)
        conn_flush(c);
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        conn_read(c);
}

static void conn_new(struct backend *b, int fd)
{
    struct backend_conn *c = mem_zalloc(sizeof *c);
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->source.ready = conn_ready;
    c->backend = b;
    c->fd = fd;
    list_push(&b->conns, &c->link);
    swarm_watch(b->swarm, fd, EPOLLIN, &c->source);
}

static void accept_ready(struct source *source, uint32_t events)
{
    struct backend *b = container_of(source, struct backend, listener);
    for (int fd; (fd = accept4(b->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;)
        conn_new(b, fd);
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        swarm_fail(b->swarm, "the backend cannot accept: %s", strerror(errno));
}

/* ---- events ---- */

static uint64_t due_ns(const struct backend *b)
{
    return b->start_ns + b->turn * b->interval_ns / b->n;
}

static bool all_sent(const struct backend *b)
{
    return b->turn == (uint64_t)b->n * b->events;
}

static void send_next(struct backend *b, uint64_t now)
{
    struct backend_stream *s = &b->streams[b->turn % b->n];
    hist_add(&b->late, now - due_ns(b));
    b->turn++;
    if (!s->conn)
        return; /* the swarm has failed */
    event_renumber(b->event.p, b->event.n, s->sent);
    s->sent_ns[s->sent++] = now;
    conn_send(s->conn, buf_str(&b->event));
    if (s->sent == b->events)
        conn_send(s->conn, answer_end);
}

/* Sets the timer to the next event, or stops it; in both cases it is not ready any more. */
static void timer_set(struct backend *b)
{
    struct itimerspec at = {0};
    if (b->n > 0 && !all_sent(b)) {
        uint64_t due = due_ns(b);
        at.it_value = (struct timespec){(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
    }
    timerfd_settime(b->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

static void timer_ready(struct source *source, uint32_t events)
{
    struct backend *b = container_of(source, struct backend, timer);
    for (unsigned i = 0; i < BURST && !all_sent(b) && !b->swarm->failed; i++) {
        uint64_t now = clock_mono_ns();
        if (now < due_ns(b))
            break;
        send_next(b, now);
    }
    timer_set(b);
}

/* ---- rounds ---- */

static int listen_anywhere(struct sockaddr_in *at)
{
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)at, n) == 0 && listen(fd, BACKLOG) == 0 &&
        getsockname(fd, (struct sockaddr *)at, &n) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* One event in one chunk, as most backends write them. */
static void put_event(struct buf *out, size_t size)
{
    struct buf event = {0};
    buf_put(&event, STR("event: token\ndata: "));
    event_put_json(&event, 0, size);
    buf_put(&event, STR("\n\n"));
    buf_printf(out, "%zx\r\n%.*s\r\n", event.n, (int)event.n, event.p);
    buf_deinit(&event);
}

void backend_init(struct backend *b, struct swarm *s, size_t event_size)
{
    *b = (struct backend){.swarm = s, .listener.ready = accept_ready, .timer.ready = timer_ready};
    list_init(&b->conns);
    put_event(&b->event, event_size);
    b->listen_fd = listen_anywhere(&b->at);
    b->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (b->listen_fd < 0 || b->timer_fd < 0) {
        swarm_fail(s, "cannot start a backend: %s", strerror(errno));
        return;
    }
    swarm_watch(s, b->listen_fd, EPOLLIN, &b->listener);
    swarm_watch(s, b->timer_fd, EPOLLIN, &b->timer);
}

static void round_clear(struct backend *b)
{
    while (!list_empty(&b->conns))
        conn_free(container_of(b->conns.next, struct backend_conn, link));
    for (unsigned i = 0; i < b->n; i++)
        free(b->streams[i].sent_ns);
    free(b->streams);
    b->streams = NULL;
    b->n = b->asked = 0;
    b->turn = 0;
    memset(&b->late, 0, sizeof b->late);
    timer_set(b);
}

void backend_deinit(struct backend *b)
{
    round_clear(b);
    if (b->listen_fd >= 0)
        close(b->listen_fd);
    if (b->timer_fd >= 0)
        close(b->timer_fd);
    buf_deinit(&b->event);
}

void backend_expect(struct backend *b, unsigned streams, unsigned events)
{
    round_clear(b);
    b->n = streams;
    b->events = events;
    b->streams = mem_zalloc(streams * sizeof *b->streams);
    for (unsigned i = 0; i < streams; i++)
        b->streams[i].sent_ns = mem_zalloc(events * sizeof *b->streams[i].sent_ns);
}

void backend_go(struct backend *b, unsigned per_second)
{
    b->interval_ns = 1000000000u / per_second;
    b->start_ns = clock_mono_ns();
    if (!b->swarm->failed)
        timer_set(b);
}
