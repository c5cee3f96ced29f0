// SPDX-License-Identifier: Apache-2.0
#include "http/fetch_sockets.h"
#include "base/mem.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct fetch_socket {
    int fd;
    char ends[FETCH_ENDS_MAX]; /* its key */
};

static struct str write_ends(const struct fetch_ends *e, char out[FETCH_ENDS_MAX])
{
    int n = snprintf(out, FETCH_ENDS_MAX, "%s %d %s %d", e->own_ip, e->own_port, e->ip, e->port);
    return str_of(out, n < FETCH_ENDS_MAX ? (size_t)n : FETCH_ENDS_MAX - 1);
}

/* The port of IPv6 lies at the same place. */
static int own_port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_storage room;
    } a = {.room = {0}};
    socklen_t n = sizeof a;
    return getsockname(fd, &a.any, &n) == 0 ? ntohs(a.in.sin_port) : -1;
}

static void make_place(struct fetch_sockets *s, size_t fd)
{
    if (fd < s->n)
        return;
    size_t n = (fd + 1) * 2;
    s->by_fd = mem_realloc(s->by_fd, n * sizeof *s->by_fd);
    memset(s->by_fd + s->n, 0, (n - s->n) * sizeof *s->by_fd);
    s->n = n;
}

static void fetch_sockets_forget(struct fetch_sockets *s, int fd)
{
    struct fetch_socket *known = fd >= 0 && (size_t)fd < s->n ? s->by_fd[fd] : NULL;
    if (known == NULL)
        return;
    s->by_fd[fd] = NULL;
    map_remove(&s->by_ends, str_of_cstr(known->ends));
    free(known);
}

void fetch_sockets_init(struct fetch_sockets *s)
{
    *s = (struct fetch_sockets){.n = 0};
    map_init(&s->by_ends);
}

void fetch_sockets_deinit(struct fetch_sockets *s)
{
    for (size_t fd = 0; fd < s->n; fd++)
        free(s->by_fd[fd]);
    free(s->by_fd);
    map_deinit(&s->by_ends);
}

static void enter(struct fetch_sockets *s, int fd, const struct fetch_ends *ends)
{
    struct fetch_socket *new = mem_zalloc(sizeof *new);
    struct str key = write_ends(ends, new->ends);
    new->fd = fd;
    fetch_sockets_forget(s, fd);
    const struct fetch_socket *old = map_get(&s->by_ends, key);
    if (old != NULL)
        fetch_sockets_forget(s, old->fd);
    make_place(s, (size_t)fd);
    s->by_fd[fd] = new;
    map_put(&s->by_ends, key, new);
}

void fetch_sockets_note(struct fetch_sockets *s, const int *fds, size_t n,
                        const struct fetch_ends *ends)
{
    for (size_t i = 0; i < n; i++)
        if (fds[i] >= 0 && own_port_of(fds[i]) == ends->own_port) {
            enter(s, fds[i], ends);
            return;
        }
}

bool fetch_sockets_has_input(const struct fetch_sockets *s, const struct fetch_ends *ends)
{
    char text[FETCH_ENDS_MAX], byte;
    const struct fetch_socket *known = map_get(&s->by_ends, write_ends(ends, text));
    return known != NULL && recv(known->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void fetch_sockets_close(struct fetch_sockets *s, int fd)
{
    fetch_sockets_forget(s, fd);
    close(fd);
}
