// SPDX-License-Identifier: Apache-2.0
#include "net/socket_set.h"
#include "base/list.h"
#include "base/must.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#define AT_ONCE 1024 /* sockets a round, as libuv has it */

/* A hangup cannot be left out. Where it is not asked for it is told once at most, and not passed
 * on. */
static struct epoll_event socket_set_interest(void *owner, int events)
{
    uint32_t in = events & UV_READABLE ? EPOLLIN : 0, out = events & UV_WRITABLE ? EPOLLOUT : 0;
    return (struct epoll_event){.events = events != 0 ? in | out : EPOLLONESHOT, .data.ptr = owner};
}

/* A hangup alone is news for whoever waits for anything. */
static int socket_set_events(uint32_t got)
{
    if (got & EPOLLERR)
        return UV_EBADF;
    if ((got & (EPOLLIN | EPOLLOUT)) == 0)
        return UV_READABLE | UV_WRITABLE;
    return (got & EPOLLIN ? UV_READABLE : 0) | (got & EPOLLOUT ? UV_WRITABLE : 0);
}

static void socket_set_on_poll(uv_poll_t *poll, int status, int events)
{
    struct socket_set *s = container_of(poll, struct socket_set, poll);
    struct epoll_event got[AT_ONCE];
    int n = epoll_wait(s->fd, got, AT_ONCE, 0);
    for (int i = 0; i < n; i++)
        s->ready(got[i].data.ptr, socket_set_events(got[i].events));
}

int socket_set_init(struct socket_set *s, uv_loop_t *uv)
{
    *s = (struct socket_set){.fd = epoll_create1(EPOLL_CLOEXEC)};
    if (s->fd < 0)
        return -errno;
    int err = uv_poll_init(uv, &s->poll, s->fd);
    if (err != 0) {
        close(s->fd);
        return err;
    }
    must(uv_poll_start(&s->poll, UV_READABLE, socket_set_on_poll) == 0);
    uv_unref((uv_handle_t *)&s->poll);
    return 0;
}

static void socket_set_on_closed(uv_handle_t *h)
{
    close(container_of((uv_poll_t *)h, struct socket_set, poll)->fd);
}

void socket_set_close(struct socket_set *s)
{
    must(s->n == 0);
    uv_close((uv_handle_t *)&s->poll, socket_set_on_closed);
}

int socket_set_add(struct socket_set *s, int fd, void *owner, int events,
                   void (*ready)(void *owner, int events))
{
    struct epoll_event e = socket_set_interest(owner, events);
    if (epoll_ctl(s->fd, EPOLL_CTL_ADD, fd, &e) != 0)
        return -errno;
    s->ready = ready;
    if (s->n++ == 0)
        uv_ref((uv_handle_t *)&s->poll);
    return 0;
}

void socket_set_change(struct socket_set *s, int fd, void *owner, int events)
{
    struct epoll_event e = socket_set_interest(owner, events);
    must(epoll_ctl(s->fd, EPOLL_CTL_MOD, fd, &e) == 0);
}

void socket_set_remove(struct socket_set *s, int fd)
{
    must(epoll_ctl(s->fd, EPOLL_CTL_DEL, fd, NULL) == 0);
}

void socket_set_release(struct socket_set *s)
{
    if (--s->n == 0)
        uv_unref((uv_handle_t *)&s->poll);
}
