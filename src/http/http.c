// SPDX-License-Identifier: Apache-2.0
#include "http/http.h"
#include "base/date.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "http/exchange.h"
#include "http/peer.h"
#include "net/loop.h"

#include <stdlib.h>

void http_init(struct http *http, struct loop *loop, const struct trace *trace,
               const struct http_limits *limits)
{
    *http = (struct http){.loop = loop, .trace = trace, .limits = *limits};
    list_init(&http->connections);
}

void http_deinit(struct http *http)
{
    must(http->n_connections == 0);
    free(http->gather.items);
    free(http->routes);
    arena_cache_deinit(&http->arenas);
}

/* ---- routes ---- */

/* As `/v1/log` covers itself, `/v1/log/` and `/v1/log/x`, but not `/v1/logs`. */
static bool path_covers(struct str path, struct str other)
{
    if (path.n > 0 && path.p[path.n - 1] == '/')
        path.n--;
    return str_starts(other, path) && (other.n == path.n || other.p[path.n] == '/');
}

static bool routes_clash(const struct http_route *a, const struct http_route *b)
{
    bool above = path_covers(a->prefix, b->prefix), below = path_covers(b->prefix, a->prefix);
    if (above && below)
        return true;
    return (above || below) && a->claimant != b->claimant && (a->configured || b->configured);
}

static void http_claim(struct http *http, struct http_route route)
{
    route.claimant = http->claimant != NULL ? http->claimant : "the server";
    for (size_t i = 0; i < http->n_routes && http->clash.path.n == 0; i++)
        if (routes_clash(&http->routes[i], &route))
            http->clash =
                (struct http_clash){route.prefix, http->routes[i].claimant, route.claimant};
    http->routes = mem_realloc(http->routes, (http->n_routes + 1) * sizeof *http->routes);
    http->routes[http->n_routes++] = route;
}

void http_route(struct http *http, struct str prefix, void (*handle)(void *ctx, struct exchange *x),
                void *ctx)
{
    http_claim(http, (struct http_route){.prefix = prefix, .handle = handle, .ctx = ctx});
}

void http_route_configured(struct http *http, struct str prefix,
                           void (*handle)(void *ctx, struct exchange *x), void *ctx)
{
    http_claim(http, (struct http_route){
                         .prefix = prefix, .handle = handle, .ctx = ctx, .configured = true});
}

static const struct http_route *route_of(const struct http *http, struct str path)
{
    const struct http_route *best = NULL;
    for (size_t i = 0; i < http->n_routes; i++) {
        const struct http_route *r = &http->routes[i];
        if (str_starts(path, r->prefix) && (best == NULL || r->prefix.n > best->prefix.n))
            best = r;
    }
    return best;
}

void http_dispatch(struct http *http, struct exchange *x)
{
    const struct http_route *r = route_of(http, x->request->path);
    exchange_hold(x);
    if (http->principals != NULL)
        x->principal = principals_find(http->principals, x->request);
    if (r != NULL) {
        r->handle(r->ctx, x);
    } else if (str_eq(x->request->path, STR("*"))) { /* OPTIONS *: is anybody there? */
        exchange_status(x, 204);
        exchange_send(x, STR_NONE);
    } else {
        exchange_problem(x, 404, STR("NO_ROUTE"),
                         STR("nothing is served under this path; streams are under /v1/stream/"));
    }
    exchange_release(x);
}

void http_accept(struct http *http, int fd, struct tls *tls)
{
    peer_accept(http, fd, tls);
}

void http_drain(struct http *http)
{
    http->closing = true;
    http_drain_begin(http);
}

void http_drain_begin(struct http *http)
{
    http->draining = true;
    list_each_safe (l, &http->connections)
        peer_drain(l);
}

void http_close_all(struct http *http)
{
    list_each_safe (l, &http->connections)
        peer_end(l);
}

struct str http_date(struct http *http)
{
    int64_t now_s = http->loop->sched.wall_ms / 1000;
    if (now_s != http->date_s) {
        http->date_s = now_s;
        date_format_http(now_s * 1000, http->date);
    }
    return str_of(http->date, DATE_HTTP_TEXT);
}
