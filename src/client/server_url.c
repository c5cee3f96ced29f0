// SPDX-License-Identifier: Apache-2.0
#include "client/server_url.h"

#include "base/http_url.h"

#include <stdio.h>
#include <sys/un.h>

static int copy_parts(struct tm_client *c, const struct url *u, struct server_url *server)
{
    char port[8], authority[URL_HOST_MAX + 16];
    bool named = u->port != (u->tls ? 443 : 80);
    snprintf(port, sizeof port, "%u", (unsigned)u->port);
    snprintf(authority, sizeof authority, "%s%.*s%s%s%s", u->v6 ? "[" : "", (int)u->host.n,
             u->host.p, u->v6 ? "]" : "", named ? ":" : "", named ? port : "");
    server->tls = u->tls;
    server->host = client_copy(c, u->host);
    server->port = client_copy(c, str_of_cstr(port));
    server->prefix = client_copy(c, u->path);
    server->authority = client_copy(c, str_of_cstr(authority));
    if (server->host == NULL || server->port == NULL || server->prefix == NULL ||
        server->authority == NULL)
        return TM_E_NOMEM;
    return 0;
}

static int parse_url(struct tm_client *c, struct str text, struct server_url *server)
{
    struct url u;
    if (url_parse(text, &u) != 0 || u.query.p != NULL || str_starts(u.port_text, STR("0")))
        return TM_E_INVALID;
    while (u.path.n > 0 && u.path.p[u.path.n - 1] == '/')
        u.path.n--;
    return copy_parts(c, &u, server);
}

static int parse_unix(struct tm_client *c, struct str path, struct server_url *server)
{
    const struct url u = {.host = STR("localhost"), .port = 80};
    if (path.n == 0 || path.n >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return TM_E_INVALID;
    server->unix_path = client_copy(c, path);
    if (server->unix_path == NULL)
        return TM_E_NOMEM;
    return copy_parts(c, &u, server);
}

int server_url_parse(struct tm_client *c, const char *url, struct server_url *out)
{
    struct server_url server = {0};
    struct str s = str_of_cstr(url);
    int err;
    if (str_starts(s, STR("unix:")))
        err = parse_unix(c, str_skip(s, 5), &server);
    else
        err = parse_url(c, s, &server);
    if (err != 0) {
        server_url_free(c, &server);
        return err == TM_E_INVALID ? client_fail(c, err, "not a server's address: %s", url) : err;
    }
    *out = server;
    return 0;
}

void server_url_free(struct tm_client *c, struct server_url *server)
{
    client_free(c, server->host);
    client_free(c, server->port);
    client_free(c, server->unix_path);
    client_free(c, server->prefix);
    client_free(c, server->authority);
    *server = (struct server_url){0};
}
