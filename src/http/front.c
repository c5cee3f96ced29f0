// SPDX-License-Identifier: Apache-2.0
#include "http/front.h"
#include "base/err.h"
#include "base/mem.h"
#include "http/audit.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/origin.h"
#include "http/peer.h"
#include "http/refuse.h"
#include "http/rules.h"
#include "http/share.h"
#include "http/surface.h"

#include <stdlib.h>

/* ---- refusals ---- */

static const struct surface_refusal elsewhere = {
    404, STR_INIT("NO_ROUTE"), STR_INIT("nothing is served under this path"), STR_INIT(""), 0};
static const struct surface_refusal wrong_host = {
    421, STR_INIT("WRONG_HOST"),
    STR_INIT("this server does not know itself by the name in Host; use an IP address or "
             "localhost, or name it with public-url or allow-host"),
    STR_INIT(""), 0};
static const struct surface_refusal through_proxy = {
    403, STR_INIT("PROTECTED"),
    STR_INIT("this server lets everybody do everything, so it takes no requests that came through "
             "a proxy; configure access, or say access = open"),
    STR_INIT(""), 0};
static const struct surface_refusal two_sources = {
    400, STR_INIT("BAD_REQUEST"),
    STR_INIT("X-Forwarded-For and Forwarded are both there; a proxy sends one of them"),
    STR_INIT(""), 0};
static const struct surface_refusal foreign_page = {
    403, STR_INIT("FORBIDDEN"),
    STR_INIT("pages of other sites may not ask this; allow-origin names those that may"),
    STR_INIT(""), 0};

/* ---- what a request says of itself ---- */

struct front_seen {
    struct str origin; /* p == NULL: none */
    bool cross_site, via, forwarded, forwarded_for;
};

static void front_note(struct str name, struct str value, struct front_seen *s)
{
    if (str_eq_nocase(name, STR("Via")))
        s->via = true;
    else if (str_eq_nocase(name, STR("Forwarded")))
        s->forwarded = true;
    else if (str_eq_nocase(name, STR("X-Forwarded-For")))
        s->forwarded_for = true;
    else if (str_eq_nocase(name, STR("Origin")) && s->origin.p == NULL)
        s->origin = value;
    else if (str_eq_nocase(name, STR("Sec-Fetch-Site")))
        s->cross_site |= str_eq_nocase(value, STR("cross-site"));
}

/* One pass, where one of those may be there. */
static void front_look(const struct request *r, struct front_seen *s)
{
    const uint64_t noted = header_bit(STR("Via")) | header_bit(STR("Forwarded")) |
                           header_bit(STR("X-Forwarded-For")) | header_bit(STR("Origin")) |
                           header_bit(STR("Sec-Fetch-Site"));
    if (request_lacks(r, noted))
        return;
    for (int i = 0; i < r->n_headers; i++)
        front_note(r->headers[i].name, r->headers[i].value, s);
}

/* ---- listeners ---- */

static bool is_admin_surface(const struct surface *s)
{
    const struct surface_rule *rule = s->rules;
    while (rule->id != NULL && (rule->how & RULE_ADMIN) != 0)
        rule++;
    return rule != s->rules && rule->id == NULL;
}

/* Is it served at the listener that it came by? */
static bool is_here(struct exchange *x)
{
    if (!x->http->front.admin_apart)
        return true;
    if (x->route == NULL || x->route->surface->probe)
        return true;
    bool admin = is_admin_surface(x->route->surface) || (rules_how(x, x->route) & RULE_ADMIN) != 0;
    return admin == x->admin;
}

/* ---- names ---- */

/* Names of the settings may be as long as they like; they are just looked up each time. */
static bool is_our_host(struct http *http, struct str host)
{
    struct front *f = &http->front;
    if (host.n > 0 && str_eq(host, str_of(f->host, f->host_n)))
        return true;
    if (!origin_is_our_host(&http->names, host))
        return false;
    if (host.n > 0 && host.n <= sizeof f->host) {
        memcpy(f->host, host.p, host.n);
        f->host_n = (uint8_t)host.n;
    }
    return true;
}

/* A server that is open on purpose may be called anything, but where a request acts. */
static bool host_counts(const struct exchange *x)
{
    return !x->http->front.open || (x->route != NULL && x->route->surface->strict);
}

/* ---- pages ---- */

static enum front_page page_of(const struct exchange *x, struct str origin)
{
    const struct front *f = &x->http->front;
    if (origin.p == NULL)
        return FRONT_NO_PAGE;
    if (origin_is_same(origin, x->request->host, x->secure))
        return FRONT_SAME;
    if (!str_eq(origin, STR("*")) && origin_in(origin, f->origins))
        return FRONT_LISTED;
    if (origin_is_public(&x->http->names, origin) ||
        (share_befriends_local(f) && origin_is_local(origin)))
        return FRONT_FRIEND;
    return share_allows_any(f) ? FRONT_ANY : FRONT_FOREIGN;
}

/* `*` is for what can only be read and written, not for what acts. */
static bool page_may_ask(const struct exchange *x, const struct front_seen *seen)
{
    bool strict = x->route != NULL && x->route->surface->strict;
    bool writes = !x->reads && x->request->method != METHOD_OPTIONS;
    if (x->page == FRONT_NO_PAGE)
        return !writes || !seen->cross_site;
    if (strict)
        return x->page != FRONT_FOREIGN && x->page != FRONT_ANY;
    return !writes || x->page != FRONT_FOREIGN;
}

/* The request goes before its answer does. */
static void keep_origin(struct exchange *x, struct str origin)
{
    if (x->page != FRONT_FRIEND && x->page != FRONT_LISTED)
        return;
    x->origin = mem_alloc(origin.n + 1);
    memcpy(x->origin, origin.p, origin.n);
    x->origin[origin.n] = '\0';
}

/* ---- answers ---- */

/* A preflight asks for nothing but whether it may ask. */
static void answer_preflight(struct exchange *x, const struct surface_share *s)
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

/* ---- the client's address ---- */

/* False: there is none. *proxied: a proxy asks whose word counts. */
static bool peer_address(const struct exchange *x, uint8_t ip[ADDR_IP_N], bool *proxied)
{
    const struct front *f = &x->http->front;
    struct sockaddr_storage sa = {0};
    socklen_t n = sizeof sa;
    *proxied = false;
    if (x->over || x->via->peer == NULL ||
        getpeername(x->via->peer(x)->conn.fd, (struct sockaddr *)&sa, &n) != 0)
        return false;
    if (addr_ip_of((struct sockaddr *)&sa, sizeof sa, ip)) {
        *proxied = forwarded_trusts(&f->proxies, ip);
        return true;
    }
    *proxied = f->local_proxy && sa.ss_family == AF_UNIX;
    return false;
}

static bool is_proxied(const struct exchange *x)
{
    const struct front *f = &x->http->front;
    uint8_t ignored[ADDR_IP_N];
    bool proxied = false;
    if (f->proxies.n > 0 || f->local_proxy)
        peer_address(x, ignored, &proxied);
    return proxied;
}

bool front_address(const struct exchange *x, uint8_t ip[ADDR_IP_N])
{
    static const uint8_t none[ADDR_IP_N];
    bool proxied;
    memset(ip, 0, ADDR_IP_N);
    peer_address(x, ip, &proxied);
    if (proxied && x->request != NULL)
        forwarded_client(&x->http->front.proxies, x->request, ip);
    return memcmp(ip, none, ADDR_IP_N) != 0;
}

void front_client(const struct exchange *x, uint8_t key[ADDR_IP_N])
{
    static const struct addr_net mapped = {.ip = {[10] = 0xff, [11] = 0xff}, .bits = 96};
    front_address(x, key);
    if (!addr_net_has(&mapped, key))
        memset(key + 8, 0, 8);
}

/* ---- the whole ---- */

static const struct surface_refusal *front_judge(struct exchange *x, const struct front_seen *seen)
{
    const struct front *f = &x->http->front;
    if (!is_our_host(x->http, x->request->host) && host_counts(x))
        return &wrong_host;
    if (!f->guarded && !f->open && (seen->via || seen->forwarded || seen->forwarded_for))
        return &through_proxy;
    if (seen->forwarded && seen->forwarded_for && is_proxied(x))
        return &two_sources;
    return page_may_ask(x, seen) ? NULL : &foreign_page;
}

bool front_admit(struct exchange *x)
{
    const struct surface *surface = x->route != NULL ? x->route->surface : NULL;
    enum method method = x->request->method;
    struct front_seen seen = {0};
    x->reads = method == METHOD_GET || method == METHOD_HEAD;
    if (!is_here(x)) {
        x->route = NULL;
        refuse(x, &elsewhere);
        return false;
    }
    if (x->http->names.any || (surface != NULL && surface->probe))
        return true;
    front_look(x->request, &seen);
    x->page = page_of(x, seen.origin);
    const struct surface_refusal *why = front_judge(x, &seen);
    if (why != NULL) {
        audit_note(x->http->audit, AUDIT_PROTECTED, x, why->code);
        refuse(x, why);
        return false;
    }
    keep_origin(x, seen.origin);
    if (method != METHOD_OPTIONS || surface == NULL || surface->share == NULL ||
        (surface->strict && x->page == FRONT_NO_PAGE))
        return true;
    answer_preflight(x, surface->share);
    return false;
}

int front_check_proxy(struct str value, char *reason, size_t size)
{
    struct addr_net ignored;
    if (str_eq(value, STR("unix")) || addr_parse_net(value, &ignored) == 0)
        return 0;
    snprintf(reason, size, "expected a network as 10.0.0.0/8, an address, or unix");
    return ERR_SYNTAX;
}

void front_set_proxies(struct front *f, const struct option_list *from)
{
    struct addr_net *nets = mem_alloc((from->n + 1) * sizeof *nets);
    size_t n = 0;
    free((void *)f->proxies.nets);
    f->local_proxy = false;
    for (size_t i = 0; i < from->n; i++) {
        struct str text = str_of_cstr(from->items[i]);
        if (str_eq(text, STR("unix")))
            f->local_proxy = true;
        else if (addr_parse_net(text, &nets[n]) == 0)
            n++;
    }
    f->proxies = (struct forwarded_proxies){nets, n};
}

void front_forget(struct front *f)
{
    f->host_n = 0;
}

void front_deinit(struct front *f)
{
    free((void *)f->proxies.nets);
    f->proxies = (struct forwarded_proxies){0};
}
