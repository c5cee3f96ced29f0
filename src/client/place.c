// SPDX-License-Identifier: Apache-2.0
#include "client/place.h"

#include "base/http_url.h"

#include <stdio.h>
#include <sys/un.h>

static int copy_parts(struct tm_client *c, const struct url *u, struct server_place *place)
{
    char port[8], authority[URL_HOST_MAX + 16];
    bool named = u->port != (u->tls ? 443 : 80);
    snprintf(port, sizeof port, "%u", (unsigned)u->port);
    snprintf(authority, sizeof authority, "%s%.*s%s%s%s", u->v6 ? "[" : "", (int)u->host.n,
             u->host.p, u->v6 ? "]" : "", named ? ":" : "", named ? port : "");
    place->tls = u->tls;
    place->host = client_copy(c, u->host);
    place->port = client_copy(c, str_of_cstr(port));
    place->prefix = client_copy(c, u->path);
    place->authority = client_copy(c, str_of_cstr(authority));
    if (place->host == NULL || place->port == NULL || place->prefix == NULL ||
        place->authority == NULL)
        return TM_E_NOMEM;
    return 0;
}

static int parse_url(struct tm_client *c, struct str text, struct server_place *place)
{
    struct url u;
    if (url_parse(text, &u) != 0 || u.query.p != NULL || str_starts(u.port_text, STR("0")))
        return TM_E_INVALID;
    while (u.path.n > 0 && u.path.p[u.path.n - 1] == '/')
        u.path.n--;
    return copy_parts(c, &u, place);
}

static int parse_unix(struct tm_client *c, struct str path, struct server_place *place)
{
    const struct url u = {.host = STR("localhost"), .port = 80};
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
    struct str s = str_of_cstr(url);
    int err;
    if (str_starts(s, STR("unix:")))
        err = parse_unix(c, str_skip(s, 5), &place);
    else
        err = parse_url(c, s, &place);
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
