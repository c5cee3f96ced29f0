// SPDX-License-Identifier: Apache-2.0
#include "app/watch.h"
#include "base/err.h"
#include "base/units.h"
#include "feature/feature.h"
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

const struct feature_trouble *watch_trouble(const struct feature_state *states, size_t i,
                                            uint64_t *count)
{
    if (states == NULL || i >= WATCH_TROUBLES_MAX)
        return NULL;
    for (const struct feature_state *f = states; f->feature != NULL; f++) {
        const struct feature_trouble *t = f->feature->troubles;
        for (; t != NULL && t->count != NULL; t++) {
            if (i-- > 0)
                continue;
            *count = f->state == NULL ? 0 : t->count(f->state);
            return t;
        }
    }
    return NULL;
}

/* How many there are that are to be told now; 0: none. */
static uint64_t watch_news(const struct watch *w, struct watch_seen *s, uint64_t n)
{
    uint64_t more = n - s->n, now = w->sched->now_ms;
    if (more == 0 || (s->told && now - s->told_ms < AGAIN_MS))
        return 0;
    *s = (struct watch_seen){.n = n, .told_ms = now, .told = true};
    return more;
}

static void look_at_refused(struct watch *w)
{
    for (int i = 0; i < STORE_TROUBLE_KINDS; i++) {
        uint64_t more = watch_news(w, &w->refused[i], w->store->refused[i]);
        if (more > 0)
            trace(w->trace, STORE_REFUSED, TRACE_INT("n", (int64_t)more),
                  TRACE_STR("error", store_trouble_text((enum store_trouble)i)));
    }
}

static void look_at_features(struct watch *w)
{
    const struct feature_trouble *t;
    uint64_t n;
    for (size_t i = 0; (t = watch_trouble(w->states, i, &n)) != NULL; i++) {
        uint64_t more = watch_news(w, &w->troubles[i], n);
        if (more > 0)
            trace_line(w->trace, t->told, &TRACE_INT("n", (int64_t)more), 1);
    }
}

static void watch_look(struct timer *t)
{
    struct watch *w = container_of(t, struct watch, tick);
    look_at_health(w);
    look_at_refused(w);
    look_at_features(w);
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
