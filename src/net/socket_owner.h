// SPDX-License-Identifier: Apache-2.0
/* socket_owner.h -- whose process is at the other end of a connection within this machine.
 *
 * By the kernel's sock_diag, which finds one socket in constant time; /proc/net/tcp lists them all.
 * Any thread; does not block. */
#ifndef NET_SOCKET_OWNER_H
#define NET_SOCKET_OWNER_H

#include <sys/socket.h>
#include <sys/types.h>

/* own and peer: the two ends of an open TCP connection of ours, both IPv4 or both IPv6. *uid is the
 * user who has accepted it, or whose listener will hand it out if nobody has yet: nobody else can
 * read what is sent on it from now on. ERR_NOT_FOUND: the other end is not on this machine, or not
 * there any more. ERR_IO: this kernel does not say. */
int socket_peer_uid(const struct sockaddr *own, const struct sockaddr *peer, uid_t *uid);

#endif
