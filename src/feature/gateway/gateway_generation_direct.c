// SPDX-License-Identifier: Apache-2.0
/* gateway_generation_direct.c -- an answer that is not recorded: it goes to who asked, and ends
 * with its connection. */
#include "feature/gateway/gateway_generation_core.h"

/* ---- an answer that is no stream of events ---- */

/* The stream and the key were made for nothing: the next request asks the upstream again. */
static void discard_stream(struct generation *gen)
{
    struct gateway *g = gen->route->gateway;
    generation_drop_recording(gen);
    generation_leave_maps(gen);
    gateway_discard(g, gen->name, &gen->key, &gen->waiters);
}

/* Whoever asked gets what comes from here on. */
static void go_direct(struct generation *gen, const struct source_head *head)
{
    struct generation_order *asker = gen->asker;
    gen->asker = NULL;
    gen->forward = asker->ops->direct(asker, gen, head, gen->degraded);
}

/* Nothing is kept of it; those who wait came while its stream was still being made. */
static void leave_waiters(struct generation *gen)
{
    generation_leave_maps(gen);
    generation_notify_missing(&gen->waiters);
}

void generation_begin_passing(struct generation *gen, const struct source_head *head)
{
    gen->state = PASSING;
    if (gen->degraded)
        leave_waiters(gen);
    else
        discard_stream(gen);
    go_direct(gen, head);
}

void generation_end_passing(struct generation *gen, int err)
{
    forward_end(gen->forward, err == 0 ? END_COMPLETED : END_FAILED, STR_NONE);
    generation_free(gen);
}

/* ---- an answer that the store does not take ---- */

void gateway_generation_on_over(struct task *t)
{
    struct generation *gen = container_of(t, struct generation, over);
    gateway_generation_on_ended(gen, gen->end, 0);
}

/* Nobody takes it any more. The source may be in the middle of an event: it is freed a task later.
 */
static void leave_degraded(struct generation *gen)
{
    if (gen->state == ENDING)
        return;
    gen->state = ENDING;
    gen->end = END_CANCELLED;
    sched_post(gen->route->gateway->setup.sched, &gen->over);
}

void generation_begin_forward(struct generation *gen)
{
    static const struct source_head events = {.events = true};
    gen->open = true;
    timer_stop(&gen->hold);
    go_direct(gen, &events);
    if (gen->forward == NULL) /* the client has gone while the upstream thought */
        leave_degraded(gen);
}

void generation_detach(struct generation *gen)
{
    gen->forward = NULL;
    if (gen->state == PASSING)
        generation_free(gen);
    else
        leave_degraded(gen);
}

void generation_end_degraded(struct generation *gen)
{
    if (generation_is_nothing(gen))
        generation_refuse_all(gen);
    if (gen->asker != NULL) /* there was no event, and what comes is all that there is */
        generation_begin_forward(gen);
    if (gen->forward != NULL)
        forward_end(gen->forward, gen->end, gen->message);
    gen->forward = NULL;
    sched_post(gen->route->gateway->setup.sched, &gen->over);
}

void generation_degrade(struct generation *gen)
{
    struct gateway *g = gen->route->gateway;
    generation_drop_recording(gen);
    generation_leave_chats(gen); /* nobody can come back to it */
    gen->degraded = true;
    gateway_event(&g->events, DEGRADED, 1, TRACE_STR("request_id", gen->id),
                  TRACE_STR("route", gen->route->path));
}
