// SPDX-License-Identifier: Apache-2.0
/* gateway_await.c -- waiting for the first event of a generation that another process runs.
 *
 * That process has answered whoever asked for it when the upstream had time to connect, to begin
 * and for one heartbeat. So long at most it is waited for here as well. */
#include "base/mem.h"
#include "feature/gateway/gateway_core.h"

#include <stdlib.h>

struct await {
    struct link link; /* in gateway.awaits */
    struct gateway *gateway;
    void (*done)(void *ctx, bool late);
    void *ctx;
    struct store_watch watch;
    struct store_stat stat;
    struct timer limit;
    struct arena arena;
    bool looking, news; /* news: since the look began */
    bool over;
};

static void await_free(struct await *a)
{
    struct gateway *g = a->gateway;
    arena_deinit(&a->arena);
    free(a);
    gateway_end(g);
}

static void await_end(struct await *a, bool late)
{
    a->over = true;
    list_remove(&a->link);
    timer_stop(&a->limit);
    store_unwatch(a->gateway->setup.store, &a->watch);
    a->done(a->ctx, late);
    if (!a->looking)
        await_free(a);
}

static void await_look(struct await *a);

static void gateway_await_on_stat(struct store_stat *st, int err)
{
    struct await *a = container_of(st, struct await, stat);
    a->looking = false;
    if (a->over)
        await_free(a);
    else if (err != 0 || st->info.end != END_NONE || st->info.events > 0)
        await_end(a, false); /* whatever it is, reading finds out */
    else if (a->news)
        await_look(a);
}

static void await_look(struct await *a)
{
    a->looking = true;
    a->news = false;
    a->stat = (struct store_stat){.name = a->watch.name, .done = gateway_await_on_stat};
    store_stat(a->gateway->setup.store, &a->stat);
}

static void gateway_await_on_changed(struct store_watch *w, struct str name)
{
    struct await *a = container_of(w, struct await, watch);
    a->news = true;
    if (!a->looking)
        await_look(a);
}

static void gateway_await_on_limit(struct timer *t)
{
    await_end(container_of(t, struct await, limit), true);
}

void gateway_await(struct gateway_route *r, struct str request_id,
                   void (*done)(void *ctx, bool late), void *ctx)
{
    struct await *a = mem_zalloc(sizeof *a);
    struct gateway *g = r->gateway;
    const struct route_config *c = r->config;
    a->gateway = g;
    a->done = done;
    a->ctx = ctx;
    a->watch = (struct store_watch){.name = gateway_stream(&a->arena, r, request_id, ""),
                                    .changed = gateway_await_on_changed};
    timer_init(&a->limit, gateway_await_on_limit);
    sched_start(g->setup.sched, &a->limit,
                c->connect_timeout_ms + c->first_byte_timeout_ms + g->setup.heartbeat_ms);
    list_push(&g->awaits, &a->link);
    gateway_begin(g);
    store_watch(g->setup.store, &a->watch);
    await_look(a); /* something may have come since it was read */
}

void gateway_await_stop(struct gateway *g)
{
    while (!list_empty(&g->awaits))
        await_end(list_item(g->awaits.next, struct await, link), true);
}
