// SPDX-License-Identifier: Apache-2.0
/* listener.h -- a listening socket, TCP or Unix. */
#ifndef NET_LISTENER_H
#define NET_LISTENER_H

#include "base/str.h"

#include <stdbool.h>
#include <sys/types.h>

struct listener;
struct loop;

/* accepted() takes over fd, a non-blocking connected socket. failed() gets the errno of an accept
 * that could not be made (descriptors used up, say); the listener pauses for a moment and goes on.
 */
struct listener_ops {
    void (*accepted)(void *ctx, int fd);
    void (*failed)(void *ctx, int error);
    mode_t unix_mode; /* of a Unix socket's file; 0: what the umask leaves */
};

/* address: `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH` (a stale socket file of a dead server is
 * replaced, any other file is not). NULL with a sentence in why. */
struct listener *listener_new(struct loop *loop, struct str address, const struct listener_ops *ops,
                              void *ctx, char *why, size_t size);

/* What it listens on, with the port the system chose for port 0. */
struct str listener_address(const struct listener *l);

/* Stops accepting. Frees itself when libuv lets go. A Unix socket's file is removed. */
void listener_close(struct listener *l);

#endif
