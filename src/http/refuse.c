// SPDX-License-Identifier: Apache-2.0
#include "http/refuse.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/surface.h"

void refuse(struct exchange *x, const struct surface_refusal *why)
{
    const struct http_route *route = x->route;
    if (why->challenge.n > 0)
        exchange_header(x, STR("WWW-Authenticate"), why->challenge);
    if (why->retry_after_s > 0)
        exchange_header_u64(x, STR("Retry-After"), why->retry_after_s);
    if (route != NULL && route->surface->refuse != NULL)
        route->surface->refuse(route->ctx, x, why);
    else
        exchange_problem(x, why->status, why->code, why->message);
}
