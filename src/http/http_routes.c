// SPDX-License-Identifier: Apache-2.0
/* http_routes.c -- who serves which path. */
#include "base/mem.h"
#include "http/exchange.h"
#include "http/front.h"
#include "http/guard.h"
#include "http/http.h"
#include "http/path_pattern.h"
#include "http/rules.h"
#include "http/surface.h"

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
    if ((above && a->surface->wide) || (below && b->surface->wide))
        return false;
    return (above || below) && a->claimant != b->claimant && (a->configured || b->configured);
}

/* The first bytes of a path as a number: most routes are told from it at once. */
static uint64_t route_start(struct str path)
{
    uint64_t start = 0;
    memcpy(&start, path.p, path.n < sizeof start ? path.n : sizeof start);
    return start;
}

/* Those that have to be the same: of a route with parameters, none. */
static uint64_t route_mask(const struct http_route *r)
{
    static const char every[] = "\xff\xff\xff\xff\xff\xff\xff\xff";
    size_t n = r->literal < r->prefix.n ? 0 : r->prefix.n;
    return route_start(str_of(every, n < sizeof every - 1 ? n : sizeof every - 1));
}

static void http_claim(struct http *http, struct http_route route)
{
    route.plain = route.authorization == CREDENTIAL_OURS && !route.surface->has_tickets;
    route.claimant = http->claimant != NULL ? http->claimant : "the server";
    route.literal = path_pattern_literal(route.prefix);
    route.start = route_start(route.prefix);
    route.mask = route_mask(&route);
    rules_prepare(route.surface, &route.rules);
    for (size_t i = 0; i < http->n_routes && http->clash.path.n == 0; i++)
        if (routes_clash(&http->routes[i], &route))
            http->clash =
                (struct http_clash){route.prefix, http->routes[i].claimant, route.claimant};
    http->routes = mem_realloc(http->routes, (http->n_routes + 1) * sizeof *http->routes);
    http->routes[http->n_routes++] = route;
}

void http_mount_at(struct http *http, const struct surface *surface, struct http_place place,
                   void (*handle)(void *ctx, struct exchange *x), void *ctx)
{
    http_claim(http, (struct http_route){.prefix = place.path,
                                         .surface = surface,
                                         .handle = handle,
                                         .ctx = ctx,
                                         .configured = place.configured,
                                         .authorization = place.authorization});
}

void http_mount(struct http *http, const struct surface *surface,
                void (*handle)(void *ctx, struct exchange *x), void *ctx)
{
    struct http_place place = {.path = str_of_cstr(surface->path)};
    http_mount_at(http, surface, place, handle, ctx);
}

size_t http_route_covers(const struct http_route *r, struct str path)
{
    size_t n = r->prefix.n;
    if (r->literal < n)
        return path_pattern_covers(r->prefix, path);
    if (!str_starts(path, r->prefix))
        return 0;
    return path.n == n || path.p[n] == '/' || path.p[n - 1] == '/' ? n : 0;
}

/* Parameters do not reach into what the program has for itself. */
static bool route_yields(const struct http_route *r, const struct http_route *other)
{
    struct str rest = r->prefix;
    return r->literal < r->prefix.n && !other->configured &&
           other->prefix.n > str_cut(&rest, '{').n;
}

/* n, other_n: bytes of the path that are each one's. */
static bool route_beats(const struct http_route *r, size_t n, const struct http_route *other,
                        size_t other_n)
{
    if (other == NULL || route_yields(other, r))
        return true;
    if (route_yields(r, other))
        return false;
    return n > other_n || (n == other_n && r->literal > other->literal);
}

const struct http_route *http_route_of(const struct http *http, struct str path)
{
    const struct http_route *best = NULL, *end = http->routes + http->n_routes;
    uint64_t start = route_start(path);
    size_t most = 0;
    for (const struct http_route *r = http->routes; r < end; r++) {
        size_t n = ((r->start ^ start) & r->mask) == 0 ? http_route_covers(r, path) : 0;
        if (n == 0 || !route_beats(r, n, best, most))
            continue;
        best = r;
        most = n;
    }
    return best;
}

void http_hand_over(struct exchange *x)
{
    const struct http_route *r = x->route;
    if (r != NULL) {
        r->handle(r->ctx, x);
    } else if (str_eq(x->request->path, STR("*"))) { /* OPTIONS *: is anybody there? */
        exchange_status(x, 204);
        exchange_send(x, STR_NONE);
    } else {
        exchange_problem(x, 404, STR("NO_ROUTE"),
                         STR("nothing is served under this path; streams are under /v1/stream/"));
    }
}

void http_dispatch(struct http *http, struct exchange *x)
{
    x->route = http_route_of(http, x->request->path);
    exchange_hold(x);
    if (front_admit(x) && (http->guard == NULL || guard_admit(http->guard, x)))
        http_hand_over(x);
    exchange_release(x);
}
