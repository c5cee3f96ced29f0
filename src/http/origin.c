// SPDX-License-Identifier: Apache-2.0
#include "http/origin.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/url.h"
#include "net/addr.h"

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

/* None at all, as in HTTP/1.0, is no browser's. */
static bool is_our_host(const struct http_names *names, struct str host)
{
    host = bare_host(host);
    return host.n == 0 || str_eq_nocase(host, STR("localhost")) || is_address(host) ||
           is_public_host(names, host) || is_name_in(host, names->hosts);
}

static struct str authority_of(struct str origin)
{
    const char *at = memmem(origin.p, origin.n, "://", 3);
    return at == NULL ? STR_NONE : str_skip(origin, (size_t)(at + 3 - origin.p));
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

/* The Host has been found to be ours: a page from there is, too. */
static bool is_our_page(const struct exchange *x, enum origin_pages pages, struct str origin)
{
    struct url url;
    if (url_parse(origin, &url) != 0)
        return false;
    return str_eq_nocase(authority_of(origin), x->request->host) ||
           is_public_host(&x->http->names, bare_host(url.host)) ||
           (pages == ORIGIN_LOCAL && origin_is_local(origin));
}

enum origin_verdict origin_check(const struct exchange *x, enum origin_pages pages,
                                 const struct option_list *allowed)
{
    const struct http_names *names = &x->http->names;
    struct str origin = request_header(x->request, STR("Origin"));
    if (names->any)
        return ORIGIN_FINE;
    if (!is_our_host(names, x->request->host))
        return ORIGIN_WRONG_HOST;
    if (origin.p == NULL || origin_in(origin, allowed) || is_our_page(x, pages, origin))
        return ORIGIN_FINE;
    return ORIGIN_FOREIGN_PAGE;
}

bool origin_admit(struct exchange *x, enum origin_pages pages)
{
    switch (origin_check(x, pages, NULL)) {
    case ORIGIN_FINE: return true;
    case ORIGIN_WRONG_HOST:
        exchange_problem(x, 421, STR("HOST"), STR(ORIGIN_WRONG_HOST_TEXT));
        return false;
    case ORIGIN_FOREIGN_PAGE:
        exchange_problem(x, 403, STR("FORBIDDEN"), STR("pages of other sites may not ask this"));
        return false;
    }
    return false;
}

void origin_share(struct exchange *x, struct str origin, const struct origin_share *s)
{
    exchange_header(x, STR("Access-Control-Allow-Origin"), origin);
    if (s->exposed.n > 0)
        exchange_header(x, STR("Access-Control-Expose-Headers"), s->exposed);
    if (!str_eq(origin, STR("*")))
        exchange_header(x, STR("Vary"), STR("Origin"));
}

void origin_preflight(struct exchange *x, const struct origin_share *s)
{
    struct str headers = s->headers.n > 0
                             ? s->headers
                             : request_header(x->request, STR("Access-Control-Request-Headers"));
    exchange_status(x, 204);
    exchange_header(x, STR("Access-Control-Allow-Methods"), s->methods);
    if (headers.p != NULL)
        exchange_header(x, STR("Access-Control-Allow-Headers"), headers);
    exchange_header(x, STR("Access-Control-Max-Age"), s->keep_s);
    exchange_send(x, STR_NONE);
}

struct str origin_host_of(const char *url)
{
    struct url parts;
    bool is_url = url != NULL && url_parse(str_of_cstr(url), &parts) == 0;
    return is_url ? parts.host : STR_NONE;
}
