// SPDX-License-Identifier: Apache-2.0
#include "bench_swarm.h"

#include "base/clock.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define BATCH 512

int swarm_init(struct swarm *s, struct sockaddr_in to)
{
    *s = (struct swarm){
        .epoll = epoll_create1(EPOLL_CLOEXEC), .to = to, .patience_s = SWARM_PATIENCE_S};
    if (s->epoll < 0)
        return -1;
    s->scratch = mem_alloc(SWARM_SCRATCH);
    return 0;
}

void swarm_deinit(struct swarm *s)
{
    close(s->epoll);
    free(s->scratch);
}

void swarm_fail(struct swarm *s, const char *fmt, ...)
{
    if (s->failed)
        return;
    s->failed = true;
    va_list args;
    va_start(args, fmt);
    vsnprintf(s->failure, sizeof s->failure, fmt, args);
    va_end(args);
}

static void control(struct swarm *s, int op, int fd, uint32_t events, struct source *source)
{
    struct epoll_event e = {.events = events, .data.ptr = source};
    if (epoll_ctl(s->epoll, op, fd, &e) != 0)
        swarm_fail(s, "epoll refuses a descriptor: %s", strerror(errno));
}

void swarm_watch(struct swarm *s, int fd, uint32_t events, struct source *source)
{
    control(s, EPOLL_CTL_ADD, fd, events, source);
}

void swarm_rewatch(struct swarm *s, int fd, uint32_t events, struct source *source)
{
    control(s, EPOLL_CTL_MOD, fd, events, source);
}

static void peer_ready(struct source *source, uint32_t events);

int swarm_connect(struct swarm *s)
{
    if (s->failed)
        return -1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        swarm_fail(s, "cannot open another socket: %s", strerror(errno));
        return -1;
    }
    int one = 1;
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    const struct sockaddr_in *to = s->to_also && s->also.sin_family ? &s->also : &s->to;
    s->to_also = !s->to_also;
    if (connect(fd, (const struct sockaddr *)to, sizeof *to) != 0 && errno != EINPROGRESS)
        swarm_fail(s, "cannot connect: %s", strerror(errno));
    return fd;
}

void peer_open(struct peer *p, struct swarm *s, const struct peer_ops *ops)
{
    *p = (struct peer){.source.ready = peer_ready, .swarm = s, .ops = ops};
    p->fd = swarm_connect(s);
    if (p->fd >= 0)
        swarm_watch(s, p->fd, EPOLLIN, &p->source);
}

void peer_close(struct peer *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    answer_deinit(&p->answer);
}

static void push_out(struct peer *p)
{
    while (p->out.n > 0) {
        ssize_t n = send(p->fd, p->out.p, p->out.n, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            swarm_fail(p->swarm, "the server stopped reading: %s", strerror(errno));
            return;
        }
        p->out = str_skip(p->out, (size_t)n);
    }
    bool blocked = p->out.n > 0;
    if (blocked != p->waits_to_write)
        swarm_rewatch(p->swarm, p->fd, EPOLLIN | (blocked ? EPOLLOUT : 0u), &p->source);
    p->waits_to_write = blocked;
}

void peer_send(struct peer *p, struct str bytes)
{
    if (p->swarm->failed)
        return;
    assert(p->out.n == 0);
    p->out = bytes;
    push_out(p);
}

bool peer_expect(struct peer *p, int status, const char *what)
{
    if (p->answer.status != status)
        swarm_fail(p->swarm, "%s: the server answered %d where %d was expected", what,
                   p->answer.status, status);
    return !p->swarm->failed;
}

static void on_head(void *ctx, const struct answer *a)
{
    struct peer *p = ctx;
    if (p->ops->head)
        p->ops->head(p);
}

static void on_body(void *ctx, struct str piece)
{
    struct peer *p = ctx;
    if (p->ops->body)
        p->ops->body(p, piece);
}

static void on_end(void *ctx, const struct answer *a)
{
    struct peer *p = ctx;
    if (p->ops->end)
        p->ops->end(p);
}

static const struct answer_sink peer_sink = {on_head, on_body, on_end};

static void pull_in(struct peer *p)
{
    struct swarm *s = p->swarm;
    ssize_t n = recv(p->fd, s->scratch, SWARM_SCRATCH, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        swarm_fail(s, "the server closed a connection: %s", n < 0 ? strerror(errno) : "end");
        return;
    }
    const char *wrong = answer_feed(&p->answer, str_of(s->scratch, (size_t)n), &peer_sink, p);
    if (wrong)
        swarm_fail(s, "%s", wrong);
    else if (p->ops->after)
        p->ops->after(p);
}

static void peer_ready(struct source *source, uint32_t events)
{
    struct peer *p = container_of(source, struct peer, source);
    if (events & EPOLLOUT)
        push_out(p);
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        pull_in(p);
}

static void turn(struct swarm *s, int timeout_ms)
{
    struct epoll_event events[BATCH];
    int n = epoll_wait(s->epoll, events, BATCH, timeout_ms);
    for (int i = 0; i < n && !s->failed; i++) {
        struct source *source = events[i].data.ptr;
        source->ready(source, events[i].events);
    }
}

void swarm_run(struct swarm *s, const char *awaited, bool (*done)(void *arg), void *arg)
{
    uint64_t until = clock_mono_ms() + s->patience_s * 1000u;
    while (!s->failed && !done(arg)) {
        turn(s, 1000);
        if (clock_mono_ms() > until)
            swarm_fail(s, "waited %u s in vain for %s", s->patience_s, awaited);
    }
}

void swarm_run_for(struct swarm *s, double seconds)
{
    uint64_t now = clock_mono_ns(), until = now + (uint64_t)(seconds * 1e9);
    while (!s->failed && now < until) {
        turn(s, (int)((until - now) / 1000000) + 1);
        now = clock_mono_ns();
    }
}
