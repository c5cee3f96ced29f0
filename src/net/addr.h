// SPDX-License-Identifier: Apache-2.0
/* addr.h -- what kind of network address this is, who may connect to it, and where to listen.
 *
 * The ranges are those of the IANA special-purpose registries. What is in no registry and no
 * public range counts as reserved, so that a range assigned later is refused until we know it. */
#ifndef NET_ADDR_H
#define NET_ADDR_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum addr_class {
    ADDR_PUBLIC,
    ADDR_LOOPBACK,      /* 127.0.0.0/8, ::1 */
    ADDR_PRIVATE,       /* RFC 1918, fc00::/7, fec0::/10, 64:ff9b:1::/48 */
    ADDR_LINK_LOCAL,    /* 169.254.0.0/16 (clouds serve credentials there), fe80::/10 */
    ADDR_METADATA,      /* the same of clouds, in ranges that look like others */
    ADDR_SHARED,        /* 100.64.0.0/10, behind a carrier's NAT */
    ADDR_UNSPECIFIED,   /* 0.0.0.0/8 and ::, which a connect takes for this host */
    ADDR_MULTICAST,     /* 224.0.0.0/4, ff00::/8 */
    ADDR_DOCUMENTATION, /* 192.0.2.0/24 and its like, 2001:db8::/32, 3fff::/20 */
    ADDR_RESERVED,      /* all else; also any address that is neither IPv4 nor IPv6 */
};

/* An IPv6 address that carries an IPv4 one (mapped, NAT64 64:ff9b::/96, 6to4) is what the IPv4
 * address is, since that is where the packets go. sa: size bytes, at least a sa_family. */
enum addr_class addr_classify(const struct sockaddr *sa, size_t size);

/* As a person would say it: "loopback", "link-local". Static. */
const char *addr_class_name(enum addr_class c);

/* Zero-initialised: public addresses only. */
struct addr_policy {
    /* Who runs the server has named the target, no client: all of the below, link-local addresses,
     * and our own listeners. */
    bool configured;
    bool allow_loopback;
    bool allow_private; /* private and shared */
};

/* Unspecified, multicast, documentation and reserved addresses are never allowed, link-local ones
 * and what clouds serve credentials at only to who runs the server. */
bool addr_allowed(enum addr_class c, struct addr_policy policy);

/* The TCP ports that this process listens on. */
struct addr_own {
    uint16_t *ports;
    size_t n;
};
void addr_own_add(struct addr_own *own, uint16_t port);

/* Whether a connection there could reach one of them: such a port, at any address of this machine.
 * Asks the system if need be. own: NULL has none. */
bool addr_is_own(const struct addr_own *own, const struct sockaddr *sa, size_t size, uint16_t port);

/* An IPv4 or IPv6 address without port, brackets or zone. 0 or ERR_SYNTAX. */
int addr_parse_ip(struct str text, struct sockaddr_storage *out);

/* An address of either family as one of IPv6: an IPv4 one as `::ffff:a.b.c.d`. */
#define ADDR_IP_N 16
/* False: it is neither. */
bool addr_ip_of(const struct sockaddr *sa, size_t size, uint8_t out[ADDR_IP_N]);

/* The same of the other end of a socket. False: it has none, as a Unix socket; then all is zero. */
bool addr_of_peer(int fd, uint8_t out[ADDR_IP_N]);

/* A network: `10.0.0.0/8`, `fd00::/8`, or one address. */
struct addr_net {
    uint8_t ip[ADDR_IP_N];
    uint8_t bits; /* of ip, 0 to 128 */
};
/* 0 or ERR_SYNTAX; bits behind the prefix do not count. */
int addr_parse_net(struct str text, struct addr_net *out);
bool addr_net_has(const struct addr_net *net, const uint8_t ip[ADDR_IP_N]);

enum addr_kind { ADDR_TCP, ADDR_UNIX };

#define ADDR_PATH_MAX 107 /* of a Unix socket, what sockaddr_un holds with its NUL */

struct addr {
    enum addr_kind kind;
    struct sockaddr_storage sa;   /* ADDR_TCP: sockaddr_in or sockaddr_in6 */
    char path[ADDR_PATH_MAX + 1]; /* ADDR_UNIX */
};

/* Where to listen: `127.0.0.1:4437`, `[::1]:4437`, `localhost:4437` (127.0.0.1), `unix:PATH`. No
 * name is looked up. Port 0 lets the system choose. ERR_SYNTAX: `why` (size bytes) says what was
 * wrong and what is expected, and *out is as it was. */
int addr_parse_listen(struct str text, struct addr *out, char *why, size_t size);

/* The same spelling back, `[v6]:port` for IPv6, NUL-terminated. */
#define ADDR_TEXT_MAX (sizeof "unix:" + ADDR_PATH_MAX)
void addr_format(const struct addr *a, char out[ADDR_TEXT_MAX]);

/* Nobody else's machine can reach it: a Unix socket, or a loopback address. */
bool addr_stays_here(const struct addr *a);

/* Of ADDR_TCP; port 0 of others. */
uint16_t addr_port(const struct addr *a);

#endif
