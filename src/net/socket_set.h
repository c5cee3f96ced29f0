// SPDX-License-Identifier: Apache-2.0
/* socket_set.h -- the sockets of a loop's connections, at no memory of ours for each.
 *
 * They are in an epoll set of their own, and libuv watches the set: with a handle of libuv's each
 * would take 160 bytes. Level triggered, as libuv's. The loop lives on while a socket is in the set
 * or about to be closed. */
#ifndef NET_SOCKET_SET_H
#define NET_SOCKET_SET_H

#include <stdint.h>
#include <uv.h>

struct socket_set {
    uv_poll_t poll;
    int fd;
    uint32_t n; /* sockets that were added and not released */
    void (*ready)(void *owner, int events);
};

/* 0 or a negative libuv code. */
int socket_set_init(struct socket_set *s, uv_loop_t *uv);
void socket_set_close(struct socket_set *s); /* all were released */

/* ready(), the same function for all, gets the owner and UV_READABLE, UV_WRITABLE or both; or a
 * negative libuv code: the socket has failed. It may come once more for a socket that was changed
 * or removed within the same round of I/O, so the owner stays in memory until that is over. 0 or a
 * negative libuv code. */
int socket_set_add(struct socket_set *s, int fd, void *owner, int events,
                   void (*ready)(void *owner, int events));
/* events 0: nothing is told. */
void socket_set_change(struct socket_set *s, int fd, void *owner, int events);
void socket_set_remove(struct socket_set *s, int fd); /* before it is closed */
void socket_set_release(struct socket_set *s); /* the last thing, once for each that was added */

#endif
