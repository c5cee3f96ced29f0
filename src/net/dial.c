// SPDX-License-Identifier: Apache-2.0
#include "net/dial.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/sched.h"
#include "net/addr.h"
#include "net/loop.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#define WHY_MAX 160

struct dial {
    struct loop *loop;
    uv_getaddrinfo_t resolving;
    uv_poll_t poll; /* of fd, while it connects */
    struct addrinfo *found, *next;
    struct task begin;
    struct timer timeout; /* with the present address, and while a name is resolved with that */
    uint64_t deadline_ms;
    int fd; /* -1: none */
    bool is_resolving, is_polling, is_connected, cancelled;
    void (*done)(void *ctx, int fd, const char *why);
    void *ctx;
    char why[WHY_MAX];
    uint16_t port;
    char host[];
};

static void dial_finish(struct dial *d)
{
    must(!d->is_resolving && !d->is_polling);
    if (d->cancelled && d->fd >= 0) {
        close(d->fd);
        d->fd = -1;
    }
    timer_stop(&d->timeout);
    task_cancel(&d->begin);
    uv_freeaddrinfo(d->found);
    d->done(d->ctx, d->fd, d->why);
    free(d);
}

static void try_next(struct dial *d);

/* The socket is done with the poll handle, and that with the loop. */
static void dial_on_poll_closed(uv_handle_t *h)
{
    struct dial *d = container_of((uv_poll_t *)h, struct dial, poll);
    d->is_polling = false;
    if (d->is_connected || d->cancelled) {
        dial_finish(d);
        return;
    }
    close(d->fd);
    d->fd = -1;
    try_next(d);
}

static void dial_settle(struct dial *d, int error)
{
    timer_stop(&d->timeout);
    if (uv_is_closing((uv_handle_t *)&d->poll))
        return;
    d->is_connected = error == 0;
    if (error != 0)
        snprintf(d->why, sizeof d->why, "cannot connect: %s", strerror(error));
    uv_close((uv_handle_t *)&d->poll, dial_on_poll_closed);
}

static void dial_on_writable(uv_poll_t *poll, int status, int events)
{
    struct dial *d = container_of(poll, struct dial, poll);
    int error = 0;
    socklen_t n = sizeof error;
    if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
        error = errno;
    dial_settle(d, error == 0 && status < 0 ? ECONNREFUSED : error);
}

/* 0: it connects, or has; an errno: it does not. */
static int connect_to(struct dial *d, int family, const struct sockaddr *sa, socklen_t n)
{
    int one = 1;
    d->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (d->fd < 0)
        return errno;
    if (family != AF_UNIX)
        setsockopt(d->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(d->fd, sa, n) < 0 && errno != EINPROGRESS)
        return errno;
    int err = uv_poll_init_socket(&d->loop->uv, &d->poll, d->fd);
    if (err != 0)
        return -err;
    d->is_polling = true;
    uv_poll_start(&d->poll, UV_WRITABLE, dial_on_writable);
    return 0;
}

static void fail_address(struct dial *d, int error)
{
    snprintf(d->why, sizeof d->why, "cannot connect: %s", strerror(error));
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
}

/* Each address has its share of the time that is left. */
static void allow_time(struct dial *d)
{
    uint64_t now = uv_now(&d->loop->uv), shares = 1;
    for (struct addrinfo *a = d->next; a != NULL; a = a->ai_next)
        shares++;
    sched_start(&d->loop->sched, &d->timeout,
                d->deadline_ms > now ? (d->deadline_ms - now) / shares : 0);
}

static void try_next(struct dial *d)
{
    while (d->next != NULL && !d->cancelled) {
        struct addrinfo *a = d->next;
        d->next = a->ai_next;
        int error = connect_to(d, a->ai_family, a->ai_addr, a->ai_addrlen);
        if (error == 0) {
            allow_time(d);
            return;
        }
        fail_address(d, error);
    }
    dial_finish(d);
}

static void dial_on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *found)
{
    struct dial *d = container_of(req, struct dial, resolving);
    d->is_resolving = false;
    d->found = d->next = found;
    if (status != 0)
        snprintf(d->why, sizeof d->why, "cannot resolve %s: %s", d->host, uv_strerror(status));
    try_next(d);
}

static void dial_on_timeout(struct timer *t)
{
    struct dial *d = container_of(t, struct dial, timeout);
    if (d->is_polling)
        dial_settle(d, ETIMEDOUT);
    else
        dial_cancel(d);
}

static void connect_to_path(struct dial *d)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    size_t n = strlen(d->host);
    int error = ENAMETOOLONG;
    if (n <= ADDR_PATH_MAX) {
        memcpy(un.sun_path, d->host, n);
        error = connect_to(d, AF_UNIX, (const struct sockaddr *)&un, sizeof un);
    }
    if (error == 0)
        return;
    fail_address(d, error);
    dial_finish(d);
}

static void dial_begin(struct task *t)
{
    struct dial *d = container_of(t, struct dial, begin);
    if (d->cancelled) {
        dial_finish(d);
        return;
    }
    if (d->port == 0) {
        connect_to_path(d);
        return;
    }
    char port[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    snprintf(port, sizeof port, "%u", (unsigned)d->port);
    int err = uv_getaddrinfo(&d->loop->uv, &d->resolving, dial_on_resolved, d->host, port, &hints);
    d->is_resolving = err == 0;
    if (err == 0)
        return;
    snprintf(d->why, sizeof d->why, "cannot resolve %s: %s", d->host, uv_strerror(err));
    dial_finish(d);
}

struct dial *dial_new(struct loop *loop, const char *host, uint16_t port, uint32_t timeout_ms,
                      void (*done)(void *ctx, int fd, const char *why), void *ctx)
{
    size_t n = strlen(host) + 1;
    struct dial *d = mem_zalloc(sizeof *d + n);
    d->loop = loop;
    d->fd = -1;
    d->port = port;
    d->done = done;
    d->ctx = ctx;
    memcpy(d->host, host, n);
    snprintf(d->why, sizeof d->why, "cannot connect: %s", strerror(ETIMEDOUT));
    task_init(&d->begin, dial_begin);
    timer_init(&d->timeout, dial_on_timeout);
    d->deadline_ms = uv_now(&loop->uv) + timeout_ms;
    sched_start(&loop->sched, &d->timeout, timeout_ms);
    sched_post(&loop->sched, &d->begin);
    return d;
}

void dial_cancel(struct dial *d)
{
    d->cancelled = true;
    timer_stop(&d->timeout);
    if (d->is_polling && !uv_is_closing((uv_handle_t *)&d->poll))
        uv_close((uv_handle_t *)&d->poll, dial_on_poll_closed);
    else if (d->is_resolving)
        uv_cancel((uv_req_t *)&d->resolving); /* or comes when the resolver is through */
    else if (!d->is_polling)
        sched_post(&d->loop->sched, &d->begin);
}
