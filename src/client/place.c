// SPDX-License-Identifier: Apache-2.0
#include "client/place.h"

#include "base/ascii.h"
#include "base/num.h"

#include <stdio.h>
#include <sys/un.h>

#define HOST_MAX 253

/* The pieces of a URL before anything is copied. */
struct parts {
    bool tls, v6;
    struct str host, port, prefix;
};

static bool host_ok(const struct parts *u)
{
    return u->host.n <= HOST_MAX && ascii_is_word(u->host, u->v6 ? ":." : "-._");
}

/* Goes into every request line as it is: nothing that would end it, and no query or fragment. */
static bool prefix_ok(struct str prefix)
{
    for (size_t i = 0; i < prefix.n; i++)
        if (prefix.p[i] <= 0x20 || prefix.p[i] >= 0x7f || prefix.p[i] == '?' || prefix.p[i] == '#')
            return false;
    return true;
}

static bool take_scheme(struct str *rest, bool *tls)
{
    static const struct str schemes[] = {STR_INIT("http://"), STR_INIT("https://")};
    for (int i = 0; i < 2; i++) {
        struct str s = schemes[i];
        if (rest->n >= s.n && str_eq_nocase_n(rest->p, s.p, s.n)) {
            *rest = str_skip(*rest, s.n);
            *tls = i == 1;
            return true;
        }
    }
    return false;
}

/* What stands before the first `/`: HOST, HOST:PORT, or the same with [V6]. */
static bool split_authority(struct str authority, struct parts *u)
{
    struct str rest = authority;
    if (rest.n > 0 && rest.p[0] == '[') {
        const char *end = memchr(rest.p, ']', rest.n);
        if (end == NULL)
            return false;
        u->v6 = true;
        u->host = str_of(rest.p + 1, (size_t)(end - rest.p) - 1);
        rest = str_skip(rest, u->host.n + 2);
        if (rest.n == 0)
            return true;
        if (rest.p[0] != ':')
            return false;
        u->port = str_skip(rest, 1);
        return u->port.n > 0;
    }
    u->host = str_cut(&rest, ':');
    if (rest.p == NULL)
        return true;
    u->port = rest;
    return u->port.n > 0;
}

static bool split(struct str url, struct parts *u)
{
    struct str rest = url;
    uint64_t port;
    if (!take_scheme(&rest, &u->tls))
        return false;
    const char *slash = memchr(rest.p, '/', rest.n);
    struct str authority = slash == NULL ? rest : str_of(rest.p, (size_t)(slash - rest.p));
    u->prefix = str_skip(rest, authority.n);
    while (u->prefix.n > 0 && u->prefix.p[u->prefix.n - 1] == '/')
        u->prefix.n--;
    if (!split_authority(authority, u) || !host_ok(u) || !prefix_ok(u->prefix))
        return false;
    return u->port.n == 0 || (num_parse_canonical(u->port, 65535, &port) == 0 && port > 0);
}

static int copy_parts(struct tm_client *c, const struct parts *u, struct server_place *place)
{
    struct str standard = u->tls ? STR("443") : STR("80");
    struct str port = u->port.n > 0 ? u->port : standard;
    char authority[HOST_MAX + 16];
    bool named = !str_eq(port, standard);
    snprintf(authority, sizeof(authority), "%s%.*s%s%s%.*s", u->v6 ? "[" : "", (int)u->host.n,
             u->host.p, u->v6 ? "]" : "", named ? ":" : "", named ? (int)port.n : 0, port.p);
    place->tls = u->tls;
    place->host = client_copy(c, u->host);
    place->port = client_copy(c, port);
    place->prefix = client_copy(c, u->prefix);
    place->authority = client_copy(c, str_of_cstr(authority));
    if (place->host == NULL || place->port == NULL || place->prefix == NULL ||
        place->authority == NULL)
        return TM_E_NOMEM;
    return 0;
}

static int parse_unix(struct tm_client *c, struct str path, struct server_place *place)
{
    struct parts u = {.host = STR("localhost")};
    if (path.n == 0 || path.n >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return TM_E_INVALID;
    place->unix_path = client_copy(c, path);
    if (place->unix_path == NULL)
        return TM_E_NOMEM;
    return copy_parts(c, &u, place);
}

int place_parse(struct tm_client *c, const char *url, struct server_place *out)
{
    struct server_place place = {0};
    struct parts u = {0};
    struct str s = str_of_cstr(url);
    int err;
    if (str_starts(s, STR("unix:")))
        err = parse_unix(c, str_skip(s, 5), &place);
    else
        err = split(s, &u) ? copy_parts(c, &u, &place) : TM_E_INVALID;
    if (err != 0) {
        place_free(c, &place);
        return err == TM_E_INVALID ? client_fail(c, err, "not a server's address: %s", url) : err;
    }
    *out = place;
    return 0;
}

void place_free(struct tm_client *c, struct server_place *place)
{
    client_free(c, place->host);
    client_free(c, place->port);
    client_free(c, place->unix_path);
    client_free(c, place->prefix);
    client_free(c, place->authority);
    *place = (struct server_place){0};
}
