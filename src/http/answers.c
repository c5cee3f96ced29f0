// SPDX-License-Identifier: Apache-2.0
#include "http/answers.h"
#include "access/principal.h"
#include "http/exchange.h"
#include "http/http.h"

#define END_SLICE 64 /* exchanges that are ended at once */

static void answers_run_end(struct task *t)
{
    struct answers *a = container_of(t, struct answers, end);
    for (int n = 0; n < END_SLICE && !list_empty(&a->ending); n++)
        exchange_revoke(list_item(a->ending.next, struct exchange, answer));
    if (!list_empty(&a->ending))
        sched_post(a->sched, t);
}

static bool is_over(const struct answers *a, const struct principal *p)
{
    return p->gone || p->expires_ms <= a->sched->wall_ms || (a->all && a->revoked(a->ctx, p));
}

static void answers_on_look(struct timer *t)
{
    struct answers *a = container_of(t, struct answers, look);
    list_each_safe (l, &a->http->active) {
        struct principal *p = list_item(l, struct principal, active);
        if (!is_over(a, p))
            continue;
        list_splice(&a->ending, &p->answers);
        list_remove(&p->active);
    }
    a->all = false;
    if (!list_empty(&a->ending))
        sched_post(a->sched, &a->end);
    sched_start(a->sched, t, ANSWERS_LOOK_MS);
}

void answers_look_now(struct answers *a)
{
    a->all = true;
    if (!a->stopped)
        sched_start(a->sched, &a->look, 0);
}

void answers_init(struct answers *a, struct http *http, struct sched *sched,
                  bool (*revoked)(void *ctx, const struct principal *p), void *ctx)
{
    *a = (struct answers){.http = http, .sched = sched, .revoked = revoked, .ctx = ctx};
    list_init(&a->ending);
    timer_init(&a->look, answers_on_look);
    task_init(&a->end, answers_run_end);
    sched_start(sched, &a->look, ANSWERS_LOOK_MS);
    http->rights_end = true;
}

void answers_stop(struct answers *a)
{
    a->stopped = true;
    timer_stop(&a->look);
    task_cancel(&a->end);
}
