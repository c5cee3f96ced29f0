// SPDX-License-Identifier: Apache-2.0
#include "bench_hooks.h"

#include "base/mem.h"
#include "base/num.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG   1024
#define LOCAL_NET 0x7f000000u

struct hook_conn {
    struct source source;
    struct hooks *hooks;
    struct link link;
    int fd;
    struct buf in;
};

static void conn_close(struct hook_conn *c)
{
    close(c->fd);
    list_remove(&c->link);
    buf_deinit(&c->in);
    free(c);
}

/* The bytes of the first request in `in`, or 0 if it is not whole. */
static size_t whole(struct str in)
{
    static const char length[] = "\r\nContent-Length: ";
    const char *end = memmem(in.p, in.n, "\r\n\r\n", 4);
    const char *at = end ? memmem(in.p, (size_t)(end - in.p), length, sizeof length - 1) : NULL;
    uint64_t n = at ? strtoull(at + sizeof length - 1, NULL, 10) : 0;
    size_t head = end ? (size_t)(end - in.p) + 4 : 0;
    return end && in.n >= head + n ? head + n : 0;
}

static void answer(struct hook_conn *c)
{
    static const char done[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                               "Content-Length: 13\r\n\r\n{\"done\":true}";
    if (c->hooks->answers && send(c->fd, done, sizeof done - 1, MSG_NOSIGNAL) < 0)
        swarm_fail(c->hooks->swarm, "a webhook's answer was not taken: %s", strerror(errno));
}

static void hook_ready(struct source *source, uint32_t events)
{
    struct hook_conn *c = container_of(source, struct hook_conn, source);
    char bytes[16384];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        conn_close(c);
        return;
    }
    buf_put(&c->in, str_of(bytes, (size_t)n));
    for (size_t used; (used = whole(buf_str(&c->in))) > 0;) {
        c->hooks->got++;
        answer(c);
        memmove(c->in.p, c->in.p + used, c->in.n - used);
        c->in.n -= used;
    }
}

static void hooks_accept(struct source *source, uint32_t events)
{
    struct hooks *h = container_of(source, struct hooks, listener);
    int fd = accept4(h->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct hook_conn *c = mem_zalloc(sizeof *c);
    *c = (struct hook_conn){.source.ready = hook_ready, .hooks = h, .fd = fd};
    list_push(&h->conns, &c->link);
    swarm_watch(h->swarm, fd, EPOLLIN, &c->source);
}

void hooks_init(struct hooks *h, struct swarm *s, unsigned host, bool answers)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(LOCAL_NET | host)};
    socklen_t n = sizeof at;
    *h = (struct hooks){
        .swarm = s, .host = host, .answers = answers, .listener.ready = hooks_accept};
    list_init(&h->conns);
    h->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (h->fd < 0 || bind(h->fd, (struct sockaddr *)&at, n) != 0 || listen(h->fd, BACKLOG) != 0 ||
        getsockname(h->fd, (struct sockaddr *)&at, &n) != 0) {
        swarm_fail(s, "cannot listen for webhooks: %s", strerror(errno));
        return;
    }
    h->port = ntohs(at.sin_port);
    swarm_watch(s, h->fd, EPOLLIN, &h->listener);
}

void hooks_deinit(struct hooks *h)
{
    while (!list_empty(&h->conns))
        conn_close(list_item(h->conns.next, struct hook_conn, link));
    if (h->fd >= 0)
        close(h->fd);
}
