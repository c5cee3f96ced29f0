// SPDX-License-Identifier: Apache-2.0
#include "base/gate.h"
#include "base/mem.h"
#include "base/must.h"

static void gate_on_notify(struct task *t)
{
    struct gate *g = container_of(t, struct gate, notify);
    if (g->inside > 0)
        return;
    g->told = true;
    g->empty(g->ctx);
}

void gate_init(struct gate *g, struct sched *sched)
{
    *g = (struct gate){.sched = sched};
    task_init(&g->notify, gate_on_notify);
}

static void gate_look(struct gate *g)
{
    if (g->inside == 0 && gate_is_shut(g) && !g->told)
        sched_post(g->sched, &g->notify);
}

void gate_enter(struct gate *g)
{
    g->inside++;
}

void gate_leave(struct gate *g)
{
    must(g->inside > 0);
    g->inside--;
    gate_look(g);
}

void gate_shut(struct gate *g, void (*empty)(void *ctx), void *ctx)
{
    g->empty = empty;
    g->ctx = ctx;
    g->told = false;
    gate_look(g);
}
