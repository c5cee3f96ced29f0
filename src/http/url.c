// SPDX-License-Identifier: Apache-2.0
#include "http/url.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/hex.h"
#include "base/num.h"

#include <arpa/inet.h>

#define HOST_MAX 253 /* of a name in the DNS */

static bool has_escapes(struct str s, bool form)
{
    return s.n > 0 && (memchr(s.p, '%', s.n) != NULL || (form && memchr(s.p, '+', s.n) != NULL));
}

int url_decode(struct arena *a, struct str s, bool form, struct str *out)
{
    if (!has_escapes(s, form)) {
        *out = s;
        return 0;
    }
    char *decoded = arena_alloc(a, s.n);
    size_t n;
    if (!percent_decode(s, form, decoded, &n))
        return ERR_SYNTAX;
    *out = str_of(decoded, n);
    return 0;
}

void url_encode(struct buf *out, struct str s, bool keep_slash)
{
    out->n += percent_encode(s, keep_slash, buf_reserve(out, s.n * 3));
}

/* Is this encoded name the key? One that cannot be decoded is no name at all. */
static bool names(struct arena *a, struct str encoded, struct str key)
{
    struct str name;
    return url_decode(a, encoded, true, &name) == 0 && str_eq(name, key);
}

int url_query(struct arena *a, struct str query, struct str key, struct str *value)
{
    struct str found = STR_NONE;
    int times = 0;
    while (query.n > 0) {
        struct str encoded = str_cut(&query, '&');
        struct str name = str_cut(&encoded, '=');
        if (!names(a, name, key))
            continue;
        found = encoded;
        times++;
    }
    if (times > 1)
        return ERR_SYNTAX;
    if (times == 0)
        return 0;
    int err = url_decode(a, found, true, value);
    return err != 0 ? err : 1;
}

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
    for (size_t i = 0; i < s.n; i++)
        if (!ascii_is_alnum(s.p[i]) && s.p[i] != '-' && s.p[i] != '.' && s.p[i] != '_')
            return false;
    return s.n > 0 && s.n <= HOST_MAX;
}

/* host[:port] or [address][:port]; u->port is left alone where none is given. */
static bool parse_authority(struct str s, struct url *u)
{
    struct str port = s;
    if (str_starts(s, STR("["))) {
        port = str_skip(s, 1);
        u->host = str_cut(&port, ']');
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
    bool tls = str_eq_nocase(u.scheme, STR("https"));
    if (!ascii_is_visible(text) || (!tls && !str_eq_nocase(u.scheme, STR("http"))))
        return ERR_SYNTAX;
    struct str rest = str_skip(text, scheme);
    if (!str_starts(rest, STR("://")) || memchr(rest.p, '#', rest.n) != NULL)
        return ERR_SYNTAX;
    rest = str_skip(rest, 3);
    size_t authority = span_until(rest, "/?");
    u.port = tls ? 443 : 80;
    if (!parse_authority(str_of(rest.p, authority), &u))
        return ERR_SYNTAX;
    rest = str_skip(rest, authority);
    u.path = str_of(rest.p, span_until(rest, "?"));
    if (u.path.n < rest.n)
        u.query = str_skip(rest, u.path.n + 1);
    *out = u;
    return 0;
}
