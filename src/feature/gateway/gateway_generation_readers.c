// SPDX-License-Identifier: Apache-2.0
/* gateway_generation_readers.c -- who reads a generation in this process, and what becomes of it
 * when nobody does.
 *
 * A seat is taken by whoever asks, joins or resumes, until its connection is over. When the last
 * one is left before the end, the route's on-disconnect decides. */
#include "feature/gateway/gateway_generation_core.h"

void generation_sit(struct gateway_route *r, struct str request_id, struct generation_seat *s)
{
    struct generation *gen = generation_find(r, request_id);
    if (gen == NULL || s->gen == gen)
        return;
    generation_stand(s);
    s->gen = gen;
    list_push(&gen->seats, &s->link);
    timer_stop(&gen->alone);
}

void generation_stand(struct generation_seat *s)
{
    struct generation *gen = s->gen;
    if (gen == NULL)
        return;
    const struct route_config *c = gen->route->config;
    s->gen = NULL;
    list_remove(&s->link);
    if (list_empty(&gen->seats) && c->disconnect == ROUTE_DISCONNECT_STOP && !gen->unattended)
        sched_start(gen->route->gateway->setup.sched, &gen->alone, c->disconnect_ms);
}

void generation_clear_seats(struct generation *gen)
{
    while (!list_empty(&gen->seats)) {
        struct generation_seat *s = list_item(gen->seats.next, struct generation_seat, link);
        s->gen = NULL;
        list_remove(&s->link);
    }
}

/* What is passed on has its client, and goes with it. */
void gateway_generation_on_alone(struct timer *t)
{
    struct generation *gen = container_of(t, struct generation, alone);
    if (gen->forward != NULL || gen->state == ENDING)
        return;
    gateway_event(&gen->route->gateway->events, ABANDONED, 1, TRACE_STR("request_id", gen->id),
                  TRACE_STR("route", gen->route->path));
    gen->abandoned = true;
    gateway_generation_end(gen, END_CANCELLED, STR_NONE);
}
