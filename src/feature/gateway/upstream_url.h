// SPDX-License-Identifier: Apache-2.0
/* upstream_url.h -- where a request of a route is sent on to.
 *
 *     route                        upstream                   request          is sent to
 *     /chat                        http://h/v1/chat           /chat            http://h/v1/chat
 *     /m/{model}:go                http://h/x/{model}         /m/a:go          http://h/x/a
 *     /v1, prefix = yes            http://h                   /v1/models       http://h/v1/models
 *     /v1, prefix = yes            http://h/                  /v1/models       http://h/models
 *     /v1, prefix = yes            http://h/api/v2            /v1/models http://h/api/v2/models
 *
 * An upstream without a path keeps the request's; one with a path has it in place of the prefix, as
 * nginx does it. The request's query goes behind the upstream's own. Whatever the request says, the
 * scheme, host and port are the upstream's. Pure. */
#ifndef FEATURE_GATEWAY_UPSTREAM_URL_H
#define FEATURE_GATEWAY_UPSTREAM_URL_H

#include "base/arena.h"
#include "base/str.h"

#include <stdbool.h>

struct upstream_place {
    struct str path;     /* of the route: a pattern of http/path_pattern.h */
    struct str upstream; /* as url_parse takes it */
    bool prefix;
};

/* Are the upstream's parameters those of the route, and in its path? 0, or ERR_SYNTAX with a
 * reason. */
int upstream_url_check(const struct upstream_place *p, char *reason, size_t size);

/* The path is one that the route covers; it and the query are as they came. In the arena. */
struct str upstream_url(struct arena *a, const struct upstream_place *p, struct str path,
                        struct str query);

#endif
