// SPDX-License-Identifier: Apache-2.0
#include "http/http.h"
#include "base/date.h"
#include "base/mem.h"
#include "base/must.h"
#include "http/peer.h"
#include "net/loop.h"

#include <stdlib.h>

void http_init(struct http *http, struct loop *loop, const struct trace *trace,
               const struct http_limits *limits)
{
    *http = (struct http){.loop = loop, .trace = trace, .limits = *limits};
    list_init(&http->connections);
    list_init(&http->undrained);
    task_init(&http->drain, http_drain_some);
    unsent_init(&http->unsent, loop != NULL ? &loop->sched : NULL);
    http->unsent.cut = peer_cut;
}

void http_deinit(struct http *http)
{
    must(http->n_connections == 0);
    task_cancel(&http->unsent.grant);
    timer_stop(&http->unsent.look);
    task_cancel(&http->drain);
    free(http->gather.items);
    free(http->routes);
    arena_cache_deinit(&http->arenas);
    slab_deinit(&http->exchanges);
    slab_deinit(&http->h1s);
    slab_deinit(&http->peers);
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
