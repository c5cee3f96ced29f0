// SPDX-License-Identifier: Apache-2.0
/* fetch_sockets.h -- the sockets of connections, by their two ends.
 *
 * libcurl keeps connections, and before it uses one again it says where that leads, but not which
 * socket it is. A kept connection on which something has arrived is no good: whatever it is, the
 * next request would be answered with it. libcurl itself takes such a one for alive. */
#ifndef HTTP_FETCH_SOCKETS_H
#define HTTP_FETCH_SOCKETS_H

#include "base/map.h"

#include <stdbool.h>

struct fetch_sockets {
    struct map by_ends;
    struct fetch_socket **by_fd; /* NULL: not known */
    size_t n;
};

void fetch_sockets_init(struct fetch_sockets *s);
void fetch_sockets_deinit(struct fetch_sockets *s); /* none is open any more */

/* The two ends of a connection, as libcurl names them. */
#define FETCH_ENDS_MAX 128
struct fetch_ends {
    const char *ip, *own_ip;
    int port, own_port;
};

/* One of these sockets has just got a connection: the one with that port of our own. */
void fetch_sockets_note(struct fetch_sockets *s, const int *fds, size_t n,
                        const struct fetch_ends *ends);

/* Has something arrived on that connection? False also where it is not known. */
bool fetch_sockets_has_input(const struct fetch_sockets *s, const struct fetch_ends *ends);

/* It is closed. */
void fetch_sockets_close(struct fetch_sockets *s, int fd);

#endif
