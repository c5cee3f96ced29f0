// SPDX-License-Identifier: Apache-2.0
#include "net/addr.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct addr_range {
    uint8_t prefix[16];
    uint8_t bits;
    uint8_t class;
};

/* The first match decides. */
static const struct addr_range ranges4[] = {
    {{0}, 8, ADDR_UNSPECIFIED},
    {{10}, 8, ADDR_PRIVATE},
    {{100, 100, 100, 200}, 32, ADDR_METADATA}, /* Alibaba */
    {{100, 64}, 10, ADDR_SHARED},
    {{127}, 8, ADDR_LOOPBACK},
    {{168, 63, 129, 16}, 32, ADDR_METADATA}, /* Azure */
    {{169, 254}, 16, ADDR_LINK_LOCAL},
    {{172, 16}, 12, ADDR_PRIVATE},
    {{192, 0, 0}, 24, ADDR_RESERVED}, /* IETF protocol assignments */
    {{192, 0, 2}, 24, ADDR_DOCUMENTATION},
    {{192, 88, 99}, 24, ADDR_RESERVED}, /* 6to4 relays, withdrawn */
    {{192, 168}, 16, ADDR_PRIVATE},
    {{198, 18}, 15, ADDR_RESERVED}, /* benchmarks */
    {{198, 51, 100}, 24, ADDR_DOCUMENTATION},
    {{203, 0, 113}, 24, ADDR_DOCUMENTATION},
    {{224}, 4, ADDR_MULTICAST},
    {{240}, 4, ADDR_RESERVED},
    {{0}, 0, ADDR_PUBLIC},
};

static const struct addr_range ranges6[] = {
    {{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48, ADDR_PRIVATE}, /* NAT64 of a network's own */
    {{0x20, 0x01, 0x00}, 23, ADDR_RESERVED},                  /* protocol assignments, Teredo */
    {{0x20, 0x01, 0x0d, 0xb8}, 32, ADDR_DOCUMENTATION},
    {{0x3f, 0xff, 0x00}, 20, ADDR_DOCUMENTATION},
    {{0x20}, 3, ADDR_PUBLIC}, /* all that was ever given out as global unicast */
    {{0xfd, 0x00, 0x0e, 0xc2}, 32, ADDR_METADATA},                            /* AWS */
    {{0xfd, 0x20, 0x00, 0xce, [15] = 0x54, [14] = 0x02}, 128, ADDR_METADATA}, /* Google */
    {{0xfc}, 7, ADDR_PRIVATE},
    {{0xfe, 0x80}, 10, ADDR_LINK_LOCAL},
    {{0xfe, 0xc0}, 10, ADDR_PRIVATE}, /* site-local, older than fc00::/7 */
    {{0xff}, 8, ADDR_MULTICAST},
    {{0}, 0, ADDR_RESERVED},
};

static bool in_range(const struct addr_range *r, const uint8_t *ip)
{
    size_t whole = r->bits / 8;
    uint8_t mask = (uint8_t)(0xff00 >> r->bits % 8);
    return memcmp(r->prefix, ip, whole) == 0 &&
           (mask == 0 || ((r->prefix[whole] ^ ip[whole]) & mask) == 0);
}

/* The table's last row matches everything. */
static enum addr_class addr_find(const struct addr_range *r, const uint8_t *ip)
{
    while (!in_range(r, ip))
        r++;
    return r->class;
}

/* The IPv4 address inside an IPv6 one; NULL: there is none. */
static const uint8_t *embedded4(const uint8_t ip[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b};
    if (memcmp(ip, mapped, 12) == 0 || memcmp(ip, nat64, 12) == 0)
        return ip + 12;
    return ip[0] == 0x20 && ip[1] == 0x02 ? ip + 2 : NULL; /* 6to4 */
}

static enum addr_class classify6(const uint8_t ip[16])
{
    static const uint8_t zeros[15];
    const uint8_t *ip4 = embedded4(ip);
    if (ip4 != NULL)
        return addr_find(ranges4, ip4);
    if (memcmp(ip, zeros, 15) == 0 && ip[15] <= 1)
        return ip[15] == 1 ? ADDR_LOOPBACK : ADDR_UNSPECIFIED;
    return addr_find(ranges6, ip);
}

enum addr_class addr_classify(const struct sockaddr *sa, size_t size)
{
    /* Copied out: the caller's bytes need not be aligned for the wider types. */
    struct sockaddr_in in4;
    struct sockaddr_in6 in6;
    if (sa->sa_family == AF_INET && size >= sizeof in4) {
        memcpy(&in4, sa, sizeof in4);
        return addr_find(ranges4, (const uint8_t *)&in4.sin_addr);
    }
    if (sa->sa_family == AF_INET6 && size >= sizeof in6) {
        memcpy(&in6, sa, sizeof in6);
        return classify6(in6.sin6_addr.s6_addr);
    }
    return ADDR_RESERVED;
}

const char *addr_class_name(enum addr_class c)
{
    static const char *const names[] = {
        [ADDR_PUBLIC] = "public",
        [ADDR_LOOPBACK] = "loopback",
        [ADDR_PRIVATE] = "private",
        [ADDR_LINK_LOCAL] = "link-local",
        [ADDR_METADATA] = "cloud metadata",
        [ADDR_SHARED] = "shared",
        [ADDR_UNSPECIFIED] = "unspecified",
        [ADDR_MULTICAST] = "multicast",
        [ADDR_DOCUMENTATION] = "documentation",
        [ADDR_RESERVED] = "reserved",
    };
    return names[c];
}

bool addr_allowed(enum addr_class c, struct addr_policy policy)
{
    switch (c) {
    case ADDR_PUBLIC: return true;
    case ADDR_LOOPBACK: return policy.configured || policy.allow_loopback;
    case ADDR_PRIVATE:
    case ADDR_SHARED: return policy.configured || policy.allow_private;
    case ADDR_LINK_LOCAL:
    case ADDR_METADATA: return policy.configured;
    default: return false;
    }
}

void addr_own_add(struct addr_own *own, uint16_t port)
{
    own->ports = mem_realloc(own->ports, (own->n + 1) * sizeof *own->ports);
    own->ports[own->n++] = port;
}

static void set_port(struct sockaddr_storage *sa, uint16_t port)
{
    /* sin_port and sin6_port lie at the same place. */
    _Static_assert(offsetof(struct sockaddr_in, sin_port) ==
                       offsetof(struct sockaddr_in6, sin6_port),
                   "ports differ");
    ((struct sockaddr_in *)sa)->sin_port = htons(port);
}

/* Where packets to it go. */
static struct sockaddr_storage target_of(const struct sockaddr *sa, size_t size)
{
    struct sockaddr_storage at = {0};
    memcpy(&at, sa, size);
    const uint8_t *ip4 = NULL;
    if (sa->sa_family == AF_INET6)
        ip4 = embedded4(((struct sockaddr_in6 *)&at)->sin6_addr.s6_addr);
    if (ip4 != NULL) {
        struct sockaddr_in in4 = {.sin_family = AF_INET};
        memcpy(&in4.sin_addr, ip4, sizeof in4.sin_addr);
        memset(&at, 0, sizeof at);
        memcpy(&at, &in4, sizeof in4);
    }
    return at;
}

static bool same_ip(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family)
        return false;
    if (a->ss_family == AF_INET)
        return memcmp(&((const struct sockaddr_in *)a)->sin_addr,
                      &((const struct sockaddr_in *)b)->sin_addr, sizeof(struct in_addr)) == 0;
    return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

/* What is sent to an address of this machine comes from the same address; of a datagram socket the
 * system says so before anything is sent. (To try to bind one there tells nothing where a machine
 * may bind others' addresses, as its sysctl ip_nonlocal_bind says.) In doubt it is one. */
static bool is_this_machine(const struct sockaddr *sa, size_t size)
{
    enum addr_class class = addr_classify(sa, size);
    if (class == ADDR_LOOPBACK || class == ADDR_UNSPECIFIED ||
        size > sizeof(struct sockaddr_storage))
        return true;
    struct sockaddr_storage at = target_of(sa, size), from = {0};
    socklen_t n =
        at.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    set_port(&at, 1);
    int fd = socket(at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return true;
    bool here = false;
    if (connect(fd, (struct sockaddr *)&at, n) != 0)
        here = errno != ENETUNREACH && errno != EHOSTUNREACH && errno != EADDRNOTAVAIL;
    else
        here = getsockname(fd, (struct sockaddr *)&from, &n) != 0 || same_ip(&at, &from);
    close(fd);
    return here;
}

bool addr_is_own(const struct addr_own *own, const struct sockaddr *sa, size_t size, uint16_t port)
{
    for (size_t i = 0; own != NULL && i < own->n; i++)
        if (own->ports[i] == port)
            return is_this_machine(sa, size);
    return false;
}

/* inet_pton wants a NUL, which text has not; no spelling of an address is longer than this. */
static bool to_cstr(struct str text, char out[INET6_ADDRSTRLEN])
{
    if (text.n == 0 || text.n >= INET6_ADDRSTRLEN || memchr(text.p, '\0', text.n) != NULL)
        return false;
    memcpy(out, text.p, text.n);
    out[text.n] = '\0';
    return true;
}

static bool parse4(struct str text, struct sockaddr_storage *out)
{
    char z[INET6_ADDRSTRLEN];
    struct sockaddr_in in4 = {.sin_family = AF_INET};
    if (!to_cstr(text, z) || inet_pton(AF_INET, z, &in4.sin_addr) != 1)
        return false;
    *out = (struct sockaddr_storage){0};
    memcpy(out, &in4, sizeof in4);
    return true;
}

static bool parse6(struct str text, struct sockaddr_storage *out)
{
    char z[INET6_ADDRSTRLEN];
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    if (!to_cstr(text, z) || inet_pton(AF_INET6, z, &in6.sin6_addr) != 1)
        return false;
    *out = (struct sockaddr_storage){0};
    memcpy(out, &in6, sizeof in6);
    return true;
}

int addr_parse_ip(struct str text, struct sockaddr_storage *out)
{
    return parse4(text, out) || parse6(text, out) ? 0 : ERR_SYNTAX;
}

bool addr_ip_of(const struct sockaddr *sa, size_t size, uint8_t out[ADDR_IP_N])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct sockaddr_in in4;
    struct sockaddr_in6 in6;
    if (sa->sa_family == AF_INET && size >= sizeof in4) {
        memcpy(&in4, sa, sizeof in4);
        memcpy(out, mapped, 12);
        memcpy(out + 12, &in4.sin_addr, 4);
        return true;
    }
    if (sa->sa_family != AF_INET6 || size < sizeof in6)
        return false;
    memcpy(&in6, sa, sizeof in6);
    memcpy(out, in6.sin6_addr.s6_addr, ADDR_IP_N);
    return true;
}

bool addr_of_peer(int fd, uint8_t out[ADDR_IP_N])
{
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    memset(out, 0, ADDR_IP_N);
    return getpeername(fd, (struct sockaddr *)&at, &size) == 0 &&
           addr_ip_of((struct sockaddr *)&at, size, out);
}

int addr_parse_net(struct str text, struct addr_net *out)
{
    struct sockaddr_storage sa;
    struct str bits = text, ip = str_cut(&bits, '/');
    if (addr_parse_ip(ip, &sa) != 0)
        return ERR_SYNTAX;
    uint64_t all = sa.ss_family == AF_INET ? 32 : 128, n = all;
    if (bits.p != NULL && num_parse(bits, all, &n) != 0)
        return ERR_SYNTAX;
    addr_ip_of((struct sockaddr *)&sa, sizeof sa, out->ip);
    out->bits = (uint8_t)(n + 128 - all);
    return 0;
}

bool addr_net_has(const struct addr_net *net, const uint8_t ip[ADDR_IP_N])
{
    struct addr_range r = {.bits = net->bits};
    memcpy(r.prefix, net->ip, sizeof r.prefix);
    return in_range(&r, ip);
}

__attribute__((format(printf, 3, 4))) static int bad(char *why, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, size, fmt, ap);
    va_end(ap);
    return ERR_SYNTAX;
}

static int parse_unix(struct str path, struct addr *out, char *why, size_t size)
{
    if (path.n == 0)
        return bad(why, size, "unix: needs a path behind it, as in unix:/run/tidemark.sock");
    if (path.n > ADDR_PATH_MAX)
        return bad(why, size, "the path of a Unix socket has at most %d bytes, this one has %zu",
                   ADDR_PATH_MAX, path.n);
    if (memchr(path.p, '\0', path.n) != NULL)
        return bad(why, size, "the path of a Unix socket cannot contain a NUL byte");
    *out = (struct addr){.kind = ADDR_UNIX};
    memcpy(out->path, path.p, path.n);
    return 0;
}

/* Splits at the colon before the port: `host` keeps its brackets. */
static bool split_port(struct str text, struct str *host, struct str *port)
{
    const char *colon = text.n > 0 ? memrchr(text.p, ':', text.n) : NULL;
    if (colon == NULL)
        return false;
    *host = str_of(text.p, (size_t)(colon - text.p));
    *port = str_skip(text, host->n + 1);
    return true;
}

static int parse_host(struct str host, struct sockaddr_storage *out, char *why, size_t size)
{
    if (host.n == 0 || str_eq(host, STR("*")))
        return bad(why, size,
                   "say which address: 127.0.0.1 for this machine only, 0.0.0.0 or [::] "
                   "for every network");
    if (host.n >= 2 && host.p[0] == '[' && host.p[host.n - 1] == ']')
        return parse6(str_of(host.p + 1, host.n - 2), out)
                   ? 0
                   : bad(why, size, "between the brackets must stand an IPv6 address, as in [::1]");
    if (memchr(host.p, ':', host.n) != NULL)
        return bad(why, size, "an IPv6 address needs brackets, as in [::1]:4437");
    if (str_eq_nocase(host, STR("localhost")))
        host = STR("127.0.0.1");
    return parse4(host, out)
               ? 0
               : bad(why, size,
                     "the host must be an IP address or localhost, as in 127.0.0.1:4437");
}

int addr_parse_listen(struct str text, struct addr *out, char *why, size_t size)
{
    if (str_starts(text, STR("unix:")))
        return parse_unix(str_skip(text, 5), out, why, size);
    struct str host, port;
    uint64_t number;
    if (!split_port(text, &host, &port) || port.n == 0 || port.p[port.n - 1] == ']')
        return bad(why, size, "a port is missing, as in 127.0.0.1:4437");
    if (num_parse(port, 65535, &number) != 0)
        return bad(why, size, "the port must be a number from 0 to 65535");
    struct addr a = {.kind = ADDR_TCP};
    int err = parse_host(host, &a.sa, why, size);
    if (err != 0)
        return err;
    set_port(&a.sa, (uint16_t)number);
    *out = a;
    return 0;
}

void addr_format(const struct addr *a, char out[ADDR_TEXT_MAX])
{
    char ip[INET6_ADDRSTRLEN] = "";
    if (a->kind == ADDR_UNIX) {
        snprintf(out, ADDR_TEXT_MAX, "unix:%s", a->path);
        return;
    }
    bool v6 = a->sa.ss_family == AF_INET6;
    const struct sockaddr_in *in4 = (const struct sockaddr_in *)&a->sa;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a->sa;
    inet_ntop(a->sa.ss_family, v6 ? (const void *)&in6->sin6_addr : &in4->sin_addr, ip, sizeof ip);
    snprintf(out, ADDR_TEXT_MAX, v6 ? "[%s]:%u" : "%s:%u", ip, ntohs(in4->sin_port));
}

bool addr_stays_here(const struct addr *a)
{
    return a->kind == ADDR_UNIX ||
           addr_classify((const struct sockaddr *)&a->sa, sizeof a->sa) == ADDR_LOOPBACK;
}

uint16_t addr_port(const struct addr *a)
{
    return ntohs(((const struct sockaddr_in *)&a->sa)->sin_port);
}
