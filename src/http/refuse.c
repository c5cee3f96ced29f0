// SPDX-License-Identifier: Apache-2.0
#include "http/refuse.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/surface.h"

/* `Bearer`, or with a parameter: others follow. */
static struct str refuse_challenge(struct exchange *x, struct str challenge)
{
    const struct http_route *route = x->route;
    if (route == NULL || route->surface->challenge == NULL)
        return challenge;
    struct str more = route->surface->challenge(route->ctx, x);
    const char *between = memchr(challenge.p, '=', challenge.n) != NULL ? ", " : " ";
    return arena_printf(&x->arena, "%.*s%s%.*s", (int)challenge.n, challenge.p, between,
                        (int)more.n, more.p);
}

void refuse(struct exchange *x, const struct surface_refusal *why)
{
    const struct http_route *route = x->route;
    if (why->challenge.n > 0)
        exchange_header(x, STR("WWW-Authenticate"), refuse_challenge(x, why->challenge));
    if (why->retry_after_s > 0)
        exchange_header_u64(x, STR("Retry-After"), why->retry_after_s);
    if (route != NULL && route->surface->refuse != NULL)
        route->surface->refuse(route->ctx, x, why);
    else
        exchange_problem(x, why->status, why->code, why->message);
}
