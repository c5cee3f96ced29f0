// SPDX-License-Identifier: Apache-2.0
/* tools_socket.h -- tools over a Unix socket, for programs of the same user.
 *
 * Each message (tools_message.h) is a frame: its length in four bytes, the first the highest, then
 * so many bytes of JSON. A client sends one request at a time and gets one answer. What is no
 * message is answered with an error of code 400, and the connection ends. A client that lets too
 * much time pass between two requests, or before the first, is disconnected. */
#ifndef FEATURE_TOOLS_TOOLS_SOCKET_H
#define FEATURE_TOOLS_TOOLS_SOCKET_H

#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

struct loop;
struct option_list;
struct tools_socket;
struct tools_service;
struct trace;

#define TOOLS_FRAME_MAX    (10 * 1024 * 1024) /* bytes of JSON */
#define TOOLS_FRAME_HEAD   4
#define TOOLS_HELLO_MS     5000  /* for each request of a client that has not said hello */
#define TOOLS_ACTIVE_MS    30000 /* for each request afterwards */
#define TOOLS_SOCKET_CONNS 64    /* at a time; more are closed at once */

/* The first frame of these bytes: 1 and its JSON, 0 if there is more to come, or ERR_TOO_LARGE,
 * which its head is enough to tell. */
int tools_frame_take(struct str bytes, struct str *json);

/* All of it is kept by reference. */
struct tools_socket_setup {
    struct loop *loop;
    struct tools_service *service;
    const struct trace *trace;
    const char *path;                       /* made with mode 0600; NULL: tools_socket_accept */
    const struct option_list *capabilities; /* what a hello may be granted */
    uint64_t hello_ms, active_ms;           /* 0: as above */
};

/* NULL with a sentence in why: somebody listens there already, say. */
struct tools_socket *tools_socket_new(const struct tools_socket_setup *setup, char *why,
                                      size_t size);

/* Takes over a connected, non-blocking socket. */
void tools_socket_accept(struct tools_socket *s, int fd);

/* No new clients; those that wait for no answer are disconnected, and the others when they have
 * it. */
void tools_socket_drain(struct tools_socket *s);

/* Disconnects the others, too. */
void tools_socket_cut(struct tools_socket *s);

/* Drains. stopped() comes from the schedule, when nobody is connected any more; then
 * tools_socket_free is due. */
void tools_socket_stop(struct tools_socket *s, void (*stopped)(void *ctx), void *ctx);
void tools_socket_free(struct tools_socket *s); /* NULL is fine */

#endif
