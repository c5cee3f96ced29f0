// SPDX-License-Identifier: Apache-2.0
#include "fault/simlane.h"
#include "base/mem.h"
#include "base/sched.h"
#include "model/seeds.h"

#include <assert.h>
#include <stdlib.h>

struct simlane {
    struct lane lane;
    struct sched *sched;
    struct rng rng;
    unsigned max_turns;
    bool held;
    struct link waiting, ran;
    size_t n;
    unsigned to_run, to_done; /* turns until the first of each list goes on */
    struct timer turn;
    struct task now; /* in place of the timer when there are no turns to wait */
};

static struct simlane *simlane_of(const struct lane *l)
{
    return container_of(l, struct simlane, lane);
}

static unsigned draw(struct simlane *s)
{
    return (unsigned)rng_between(&s->rng, 0, s->max_turns);
}

static void go_on(struct simlane *s)
{
    if (s->held || s->n == 0)
        return;
    if (s->max_turns == 0)
        sched_post(s->sched, &s->now);
    else if (!timer_running(&s->turn))
        sched_start(s->sched, &s->turn, 1);
}

static void run_first(struct simlane *s)
{
    struct job *j = list_item(s->waiting.next, struct job, link);
    list_remove(&j->link);
    if (list_empty(&s->ran))
        s->to_done = draw(s);
    list_push(&s->ran, &j->link);
    s->to_run = draw(s);
    j->run(j);
}

static void run_due(struct simlane *s)
{
    while (!list_empty(&s->waiting) && s->to_run == 0)
        run_first(s);
    s->to_run -= s->to_run > 0;
}

/* The last done() may free the lane, so it is not looked at after that. */
static void finish_due(struct simlane *s)
{
    while (!s->held && !list_empty(&s->ran) && s->to_done == 0) {
        struct job *j = list_item(s->ran.next, struct job, link);
        list_remove(&j->link);
        s->to_done = draw(s);
        bool last = --s->n == 0;
        j->done(j);
        if (last)
            return;
    }
    s->to_done -= s->to_done > 0;
}

static void step_turn(struct timer *t)
{
    struct simlane *s = container_of(t, struct simlane, turn);
    go_on(s);
    run_due(s);
    finish_due(s);
}

static void step_now(struct task *t)
{
    struct simlane *s = container_of(t, struct simlane, now);
    run_due(s);
    finish_due(s);
}

static void simlane_submit(struct lane *l, struct job *j)
{
    struct simlane *s = simlane_of(l);
    s->n++;
    if (list_empty(&s->waiting))
        s->to_run = draw(s);
    list_push(&s->waiting, &j->link);
    if (!s->held && s->waiting.next == &j->link && s->to_run == 0)
        run_first(s);
    go_on(s);
}

static void simlane_free(struct lane *l)
{
    struct simlane *s = simlane_of(l);
    assert(s->n == 0);
    timer_stop(&s->turn);
    task_cancel(&s->now);
    free(s);
}

struct lane *simlane_new(struct sched *sched, uint64_t seed, unsigned max_turns)
{
    struct simlane *s = mem_zalloc(sizeof *s);
    s->lane.submit = simlane_submit;
    s->lane.free = simlane_free;
    s->sched = sched;
    s->rng.state = seed;
    s->max_turns = max_turns;
    list_init(&s->waiting);
    list_init(&s->ran);
    timer_init(&s->turn, step_turn);
    task_init(&s->now, step_now);
    return &s->lane;
}

void simlane_hold(struct lane *l, bool held)
{
    struct simlane *s = simlane_of(l);
    s->held = held;
    if (held) {
        timer_stop(&s->turn);
        task_cancel(&s->now);
    }
    go_on(s);
}

size_t simlane_pending(const struct lane *l)
{
    return simlane_of(l)->n;
}
