// SPDX-License-Identifier: Apache-2.0
#include "net/socket_owner.h"
#include "base/err.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_MAX 4096 /* bytes; there is one socket in it */

struct question {
    struct nlmsghdr head;
    struct inet_diag_req_v2 socket;
};

/* The socket of this address and port, as seen from its own end. */
static void set_end(const struct sockaddr *sa, __be32 address[4], __be16 *port)
{
    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
        memcpy(address, &in->sin_addr, sizeof in->sin_addr);
        *port = in->sin_port;
    } else {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;
        memcpy(address, &in6->sin6_addr, sizeof in6->sin6_addr);
        *port = in6->sin6_port;
    }
}

static struct question question_of(const struct sockaddr *own, const struct sockaddr *peer)
{
    struct question q = {
        .head = {.nlmsg_len = sizeof q,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST},
        .socket = {.sdiag_family = own->sa_family, .sdiag_protocol = IPPROTO_TCP},
    };
    struct inet_diag_sockid *id = &q.socket.id;
    set_end(peer, id->idiag_src, &id->idiag_sport);
    set_end(own, id->idiag_dst, &id->idiag_dport);
    id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    return q;
}

/* The kernel answers within send(). */
static int socket_owner_ask(int fd, const struct question *q, struct inet_diag_msg *out)
{
    union {
        struct nlmsghdr head;
        char bytes[ANSWER_MAX];
    } answer;
    if (send(fd, q, sizeof *q, 0) != sizeof *q)
        return ERR_IO;
    ssize_t n = recv(fd, &answer, sizeof answer, MSG_DONTWAIT);
    if (n < (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)))
        return ERR_IO;
    if (answer.head.nlmsg_type == NLMSG_ERROR) {
        const struct nlmsgerr *e = NLMSG_DATA(&answer.head);
        return e->error == -ENOENT ? ERR_NOT_FOUND : ERR_IO;
    }
    if (answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY || n < (ssize_t)NLMSG_LENGTH(sizeof *out))
        return ERR_IO;
    memcpy(out, NLMSG_DATA(&answer.head), sizeof *out);
    return 0;
}

static bool is_open(const struct inet_diag_msg *m)
{
    return m->idiag_state == TCP_ESTABLISHED || m->idiag_state == TCP_SYN_RECV;
}

/* The other end has no inode, and on many kernels no user, until it is accepted: then the
 * listener's user counts. The listener is asked for first. A connection that waits after that waits
 * at a listener that was there all the time, since it is reset when its listener closes, and two
 * users cannot listen on one port at once. */
static int find_user(int fd, const struct question *accepted, uid_t *uid)
{
    struct question listening = *accepted;
    struct inet_diag_msg listener, other;
    listening.socket.id.idiag_dport = 0;
    int err_listener = socket_owner_ask(fd, &listening, &listener);
    int err = socket_owner_ask(fd, accepted, &other);
    if (err != 0)
        return err;
    if (!is_open(&other)) /* a listener is found where there is no connection */
        return ERR_NOT_FOUND;
    if (other.idiag_inode == 0 && err_listener != 0)
        return err_listener;
    *uid = other.idiag_inode != 0 ? other.idiag_uid : listener.idiag_uid;
    return 0;
}

int socket_peer_uid(const struct sockaddr *own, const struct sockaddr *peer, uid_t *uid)
{
    if (own->sa_family != peer->sa_family ||
        (own->sa_family != AF_INET && own->sa_family != AF_INET6))
        return ERR_NOT_FOUND;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0)
        return ERR_IO;
    struct question q = question_of(own, peer);
    int err = find_user(fd, &q, uid);
    close(fd);
    return err;
}
