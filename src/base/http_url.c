// SPDX-License-Identifier: Apache-2.0
#include "base/http_url.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/num.h"

#include <arpa/inet.h>

/* s is printable: no NUL in it can hide what follows. */
static bool is_ipv6(struct str s)
{
    char text[INET6_ADDRSTRLEN];
    unsigned char address[16];
    if (s.n >= sizeof text)
        return false;
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    return inet_pton(AF_INET6, text, address) == 1;
}

static bool is_host_name(struct str s)
{
    return s.n <= URL_HOST_MAX && ascii_is_word(s, "-._");
}

/* host[:port] or [address][:port]; u->port is left alone where none is given. */
static bool parse_authority(struct str s, struct url *u)
{
    struct str port = s;
    if (str_starts(s, STR("["))) {
        port = str_skip(s, 1);
        u->host = str_cut(&port, ']');
        u->v6 = true;
        if (port.p == NULL || !is_ipv6(u->host))
            return false;
    } else {
        u->host = str_cut(&port, ':');
        if (!is_host_name(u->host))
            return false;
        port = str_skip(s, u->host.n);
    }
    uint64_t v;
    if (port.n == 0)
        return true;
    if (port.p[0] != ':' || num_parse(str_skip(port, 1), UINT16_MAX, &v) != 0 || v == 0)
        return false;
    u->port_text = str_skip(port, 1);
    u->port = (uint16_t)v;
    return true;
}

static size_t span_until(struct str s, const char *stops)
{
    size_t n = 0;
    while (n < s.n && strchr(stops, s.p[n]) == NULL)
        n++;
    return n;
}

int url_parse(struct str text, struct url *out)
{
    struct url u = {.query = STR_NONE};
    size_t scheme = span_until(text, ":");
    u.scheme = str_of(text.p, scheme);
    u.tls = str_eq_nocase(u.scheme, STR("https"));
    if (!ascii_is_visible(text) || (!u.tls && !str_eq_nocase(u.scheme, STR("http"))))
        return ERR_SYNTAX;
    struct str rest = str_skip(text, scheme);
    if (!str_starts(rest, STR("://")) || memchr(rest.p, '#', rest.n) != NULL)
        return ERR_SYNTAX;
    rest = str_skip(rest, 3);
    size_t authority = span_until(rest, "/?");
    u.port = u.tls ? 443 : 80;
    if (!parse_authority(str_of(rest.p, authority), &u))
        return ERR_SYNTAX;
    rest = str_skip(rest, authority);
    u.path = str_of(rest.p, span_until(rest, "?"));
    if (u.path.n < rest.n)
        u.query = str_skip(rest, u.path.n + 1);
    *out = u;
    return 0;
}
