// SPDX-License-Identifier: Apache-2.0
#include "app/watch.h"
#include "base/err.h"
#include "base/units.h"
#include "feature/sessions/session.h"
#include "feature/gateway/gateway.h"
#include "feature/gateway/gateway_trace.h"
#include "feature/sessions/sessions_trace.h"
#include "telemetry/trace.h"

#define LOOK_MS  1000
#define AGAIN_MS MINUTE_MS

static void look_at_health(struct watch *w)
{
    struct str why;
    int err = store_health(w->store, &why);
    if (err == w->health)
        return;
    w->health = err;
    if (err == 0)
        trace(w->trace, STORE_WELL, TRACE_STR("why", STR("writes are taken again")));
    else if (why.n == 0)
        trace(w->trace, STORE_UNWELL, TRACE_STR("error", str_of_cstr(err_text(err))));
    else
        trace(w->trace, STORE_UNWELL, TRACE_STR("error", str_of_cstr(err_text(err))),
              TRACE_STR("why", why));
}

static uint64_t watch_count(const struct watch *w, int kind)
{
    if (kind < STORE_TROUBLE_KINDS)
        return w->store->refused[kind];
    return kind == WATCH_ANSWERS ? gateway_degraded(w->gateway) : sessions_degraded(w->sessions);
}

static void watch_tell(const struct watch *w, int kind, uint64_t n)
{
    static const struct str troubles[] = {
#define X(kind, word) STR_INIT(word),
        STORE_TROUBLES(X)
#undef X
    };
    if (kind < STORE_TROUBLE_KINDS)
        trace(w->trace, STORE_REFUSED, TRACE_INT("n", (int64_t)n),
              TRACE_STR("error", troubles[kind]));
    else if (kind == WATCH_ANSWERS)
        trace(w->trace, ANSWERS_DEGRADED, TRACE_INT("n", (int64_t)n));
    else
        trace(w->trace, SESSIONS_DEGRADED, TRACE_INT("n", (int64_t)n));
}

static void watch_look_at(struct watch *w, int kind)
{
    struct watch_seen *s = &w->seen[kind];
    uint64_t n = watch_count(w, kind), now = w->sched->now_ms;
    if (n == s->n || (s->told && now - s->told_ms < AGAIN_MS))
        return;
    watch_tell(w, kind, n - s->n);
    *s = (struct watch_seen){.n = n, .told_ms = now, .told = true};
}

static void watch_look(struct timer *t)
{
    struct watch *w = container_of(t, struct watch, tick);
    look_at_health(w);
    for (int kind = 0; kind < WATCH_KINDS; kind++)
        watch_look_at(w, kind);
    sched_start(w->sched, t, LOOK_MS);
}

void watch_start(struct watch *w)
{
    timer_init(&w->tick, watch_look);
    sched_start(w->sched, &w->tick, LOOK_MS);
}

void watch_stop(struct watch *w)
{
    if (w->sched != NULL)
        timer_stop(&w->tick);
}
