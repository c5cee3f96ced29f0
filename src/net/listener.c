// SPDX-License-Identifier: Apache-2.0
#include "net/listener.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/addr.h"
#include "net/loop.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#define BACKLOG         4096
#define ACCEPTS_AT_ONCE 64
#define PAUSE_MS        100 /* after an accept that failed for want of descriptors or memory */

struct listener {
    uv_poll_t poll;
    struct loop *loop;
    const struct listener_ops *ops;
    void *ctx;
    struct timer pause;
    struct addr addr;
    int fd;
    char text[ADDR_TEXT_MAX];
};

static socklen_t sockaddr_of(const struct addr *a, struct sockaddr_storage *out)
{
    if (a->kind == ADDR_TCP) {
        *out = a->sa;
        return a->sa.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                           : sizeof(struct sockaddr_in);
    }
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    memcpy(un.sun_path, a->path, strlen(a->path));
    memcpy(out, &un, sizeof un);
    return sizeof un;
}

/* A socket file that nobody answers on is a dead server's. Nobody answers on a file of any other
 * kind either. */
static void remove_stale(const struct sockaddr_storage *sa, socklen_t n, const char *path)
{
    struct stat st;
    if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)sa, n) < 0 && errno == ECONNREFUSED)
        unlink(path);
    close(fd);
}

/* unix_mode is set before the file is there: there is no moment at which others can connect. */
static int open_socket(const struct addr *a, mode_t unix_mode)
{
    struct sockaddr_storage sa;
    socklen_t n = sockaddr_of(a, &sa);
    int one = 1;
    int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (a->kind == ADDR_UNIX) {
        remove_stale(&sa, n, a->path);
        if (unix_mode != 0)
            fchmod(fd, unix_mode);
    } else {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    }
    if (bind(fd, (struct sockaddr *)&sa, n) < 0 || listen(fd, BACKLOG) < 0) {
        int err = errno;
        close(fd);
        return -err;
    }
    return fd;
}

static void pause_after(struct listener *l, int error)
{
    l->ops->failed(l->ctx, error);
    uv_poll_stop(&l->poll);
    sched_start(&l->loop->sched, &l->pause, PAUSE_MS);
}

static void listener_on_connection(uv_poll_t *poll, int status, int events)
{
    struct listener *l = container_of(poll, struct listener, poll);
    if (status < 0) {
        pause_after(l, -status);
        return;
    }
    sched_io(&l->loop->sched);
    sched_work(&l->loop->sched, "accept");
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0) {
            pause_after(l, errno);
            return;
        }
        int one = 1;
        if (l->addr.kind == ADDR_TCP)
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        l->ops->accepted(l->ctx, fd);
    }
}

static void listener_on_pause_over(struct timer *t)
{
    struct listener *l = container_of(t, struct listener, pause);
    uv_poll_start(&l->poll, UV_READABLE, listener_on_connection);
}

/* With the port that was chosen for port 0. */
static void learn_address(struct listener *l)
{
    socklen_t n = sizeof l->addr.sa;
    if (l->addr.kind == ADDR_TCP)
        getsockname(l->fd, (struct sockaddr *)&l->addr.sa, &n);
    addr_format(&l->addr, l->text);
}

struct listener *listener_new(struct loop *loop, struct str address, const struct listener_ops *ops,
                              void *ctx, char *why, size_t size)
{
    struct addr addr;
    if (addr_parse_listen(address, &addr, why, size) != 0)
        return NULL;
    int fd = open_socket(&addr, ops->unix_mode);
    if (fd < 0) {
        snprintf(why, size, "%s", strerror(-fd));
        return NULL;
    }
    struct listener *l = mem_zalloc(sizeof *l);
    *l = (struct listener){.loop = loop, .ops = ops, .ctx = ctx, .addr = addr, .fd = fd};
    int err = uv_poll_init_socket(&loop->uv, &l->poll, fd);
    if (err != 0) {
        snprintf(why, size, "%s", uv_strerror(err));
        close(fd);
        free(l);
        return NULL;
    }
    timer_init(&l->pause, listener_on_pause_over);
    learn_address(l);
    uv_poll_start(&l->poll, UV_READABLE, listener_on_connection);
    return l;
}

struct str listener_address(const struct listener *l)
{
    return str_of_cstr(l->text);
}

static void listener_on_closed(uv_handle_t *h)
{
    struct listener *l = container_of((uv_poll_t *)h, struct listener, poll);
    close(l->fd);
    free(l);
}

void listener_close(struct listener *l)
{
    timer_stop(&l->pause);
    if (l->addr.kind == ADDR_UNIX)
        unlink(l->addr.path);
    uv_close((uv_handle_t *)&l->poll, listener_on_closed);
}
