// SPDX-License-Identifier: Apache-2.0
#include "http/origin.h"
#include "base/err.h"
#include "http/http.h"
#include "http/url.h"
#include "net/addr.h"

#include <stdio.h>

/* A host without port, brackets and the dot that ends a name. */
static struct str bare_host(struct str host)
{
    if (host.n > 0 && host.p[0] == '[') {
        host = str_skip(host, 1);
        return str_cut(&host, ']');
    }
    host = str_cut(&host, ':');
    if (host.n > 1 && host.p[host.n - 1] == '.')
        host.n--;
    return host;
}

static bool is_address(struct str host)
{
    struct sockaddr_storage ignored;
    return addr_parse_ip(host, &ignored) == 0;
}

static bool is_name_in(struct str host, const struct option_list *names)
{
    for (size_t i = 0; names != NULL && i < names->n; i++)
        if (str_eq_nocase(host, str_of_cstr(names->items[i])))
            return true;
    return false;
}

static bool is_public_host(const struct http_names *names, struct str host)
{
    return names->public_host.n > 0 && str_eq_nocase(host, bare_host(names->public_host));
}

bool origin_is_our_host(const struct http_names *names, struct str host)
{
    host = bare_host(host);
    return host.n == 0 || str_eq_nocase(host, STR("localhost")) || is_address(host) ||
           is_public_host(names, host) || is_name_in(host, names->hosts);
}

bool origin_is_same(struct str origin, struct str host, bool secure)
{
    struct url url;
    const char *at = memmem(origin.p, origin.n, "://", 3);
    if (at == NULL || url_parse(origin, &url) != 0)
        return false;
    struct str scheme = str_of(origin.p, (size_t)(at - origin.p));
    struct str authority = str_skip(origin, scheme.n + 3);
    return str_eq_nocase(authority, host) && (!secure || str_eq_nocase(scheme, STR("https")));
}

bool origin_is_public(const struct http_names *names, struct str origin)
{
    struct url url;
    return url_parse(origin, &url) == 0 && is_public_host(names, bare_host(url.host));
}

bool origin_is_local(struct str origin)
{
    struct url url;
    struct sockaddr_storage sa;
    if (url_parse(origin, &url) != 0)
        return false;
    struct str host = bare_host(url.host);
    return str_eq_nocase(host, STR("localhost")) ||
           (addr_parse_ip(url.host, &sa) == 0 &&
            addr_classify((struct sockaddr *)&sa, sizeof sa) == ADDR_LOOPBACK);
}

bool origin_in(struct str origin, const struct option_list *list)
{
    return is_name_in(origin, list);
}

int origin_check_setting(struct str value, char *reason, size_t size)
{
    struct url url;
    if (str_eq(value, STR("*")))
        return 0;
    if (url_parse(value, &url) == 0 && url.path.n == 0 && url.query.p == NULL)
        return 0;
    snprintf(reason, size,
             "expected an origin as browsers send it, https://HOST or http://HOST:PORT without a "
             "path, or * for all of them");
    return ERR_SYNTAX;
}

struct str origin_host_of(const char *url)
{
    struct url parts;
    bool is_url = url != NULL && url_parse(str_of_cstr(url), &parts) == 0;
    return is_url ? parts.host : STR_NONE;
}
