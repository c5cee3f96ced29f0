// SPDX-License-Identifier: Apache-2.0
/* fetch_peer.c -- whom a request goes to: which addresses, whose process, and on which connection.
 */
#include "base/err.h"
#include "http/fetch_core.h"
#include "net/socket_owner.h"

#include <netinet/in.h>

static uint16_t port_of(const struct sockaddr *sa)
{
    struct addr a = {.kind = ADDR_TCP};
    memcpy(&a.sa, sa, sizeof(struct sockaddr_in)); /* the port of IPv6 lies at the same place */
    return addr_port(&a);
}

/* Whether the policy lets this transfer talk to that address. */
static bool check_address(struct fetch_transfer *transfer, const struct sockaddr *sa, size_t size)
{
    enum addr_class class = addr_classify(sa, size);
    if (!transfer->policy.configured && addr_is_own(transfer->owner->own, sa, size, port_of(sa))) {
        fetch_blame(transfer, FETCH_FORBIDDEN,
                    "the host is this server itself, which is not allowed");
        return false;
    }
    if (addr_allowed(class, transfer->policy)) {
        /* Another address of the same host may have been forbidden: this one will do. */
        transfer->cause = FETCH_NONE;
        return true;
    }
    /* Without the address itself: a name server's private answers are not for everyone. */
    transfer->cause = FETCH_FORBIDDEN;
    snprintf(transfer->why, sizeof transfer->why, "the host has a %s address, which is not allowed",
             addr_class_name(class));
    return false;
}

curl_socket_t fetch_peer_on_open(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct fetch_transfer *transfer = arg;
    if (transfer->fetch == NULL || !check_address(transfer, &a->addr, a->addrlen))
        return CURL_SOCKET_BAD;
    int fd = socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
    transfer->opened[transfer->n_opened++ % FETCH_OPENED] = fd;
    return fd;
}

int fetch_peer_on_close(void *fetcher, curl_socket_t fd)
{
    struct fetcher *f = fetcher;
    fetch_sockets_close(&f->sockets, fd);
    return 0;
}

/* One end of a connection. */
static bool read_end(const char *ip, int port, struct sockaddr_storage *out)
{
    if (addr_parse_ip(str_of_cstr(ip), out) != 0)
        return false;
    if (out->ss_family == AF_INET)
        ((struct sockaddr_in *)out)->sin_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in6 *)out)->sin6_port = htons((uint16_t)port);
    return true;
}

static bool check_owner(struct fetch_transfer *transfer, const struct sockaddr_storage *peer,
                        const char *own_ip, int own_port)
{
    struct sockaddr_storage own;
    uid_t uid = 0;
    int err = ERR_NOT_FOUND;
    if (read_end(own_ip, own_port, &own))
        err = socket_peer_uid((struct sockaddr *)&own, (const struct sockaddr *)peer, &uid);
    if (err == 0 && uid == transfer->fetch->peer_uid)
        return true;
    transfer->cause = FETCH_STRANGER;
    if (err == 0)
        snprintf(transfer->why, sizeof transfer->why,
                 "the process at the other end runs as user %u", uid);
    else
        snprintf(transfer->why, sizeof transfer->why,
                 "whose process is at the other end cannot be told: %s",
                 err == ERR_NOT_FOUND ? "the connection is gone" : "the kernel has no sock_diag");
    return false;
}

/* Whether the connection is a kept one on which something has arrived already. Under TLS there is
 * more to be said than answers. */
static bool is_stale(struct fetch_transfer *transfer, const struct fetch_ends *ends)
{
    struct fetch_sockets *sockets = &transfer->owner->sockets;
    size_t n = transfer->n_opened < FETCH_OPENED ? transfer->n_opened : FETCH_OPENED;
    if (!transfer->plain)
        return false;
    if (n == 0)
        return fetch_sockets_has_input(sockets, ends);
    fetch_sockets_note(sockets, transfer->opened, n, ends);
    transfer->n_opened = 0; /* what comes next is on a kept one */
    return false;
}

/* A kept connection is opened by nobody: it may be one that another policy allowed. */
bool fetch_peer_will_do(struct fetch_transfer *transfer, const struct fetch_ends *ends)
{
    struct sockaddr_storage peer;
    if (!read_end(ends->ip, ends->port, &peer) ||
        !check_address(transfer, (struct sockaddr *)&peer, sizeof peer))
        return false;
    if (transfer->fetch->check_peer && !check_owner(transfer, &peer, ends->own_ip, ends->own_port))
        return false;
    transfer->stale = is_stale(transfer, ends);
    return !transfer->stale;
}
