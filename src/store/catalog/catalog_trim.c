// SPDX-License-Identifier: Apache-2.0
/* catalog_trim.c -- what streams retain, and how far they are trimmed for it. */
#include "store/catalog/catalog_core.h"

#define SLACK(n)  ((n) / 8)
#define AGE_STEPS 16 /* an age is told apart to this part of it */

bool retain_any(const struct retain *r)
{
    return r->events > 0 || r->bytes > 0 || r->age_ms > 0;
}

struct retain stream_retains(const struct catalog *c, const struct stream *s)
{
    struct retain r = s->term == NULL ? (struct retain){0} : s->term->retain;
    return (struct retain){.events = r.events > 0 ? r.events : c->store->retain.events,
                           .bytes = r.bytes > 0 ? r.bytes : c->store->retain.bytes,
                           .age_ms = r.age_ms > 0 ? r.age_ms : c->store->retain.age_ms};
}

void stream_trim(struct stream *s, uint64_t pos, uint64_t event)
{
    s->first = pos;
    s->first_event = event;
}

void stream_settle_trim(struct catalog *c, struct stream *s, uint64_t first)
{
    if (first <= s->settled_first)
        return;
    s->settled_first = first;
    stream_shed(c, s);
}

/* Is it worth to look at what rests? Not for each event by itself. */
static bool is_overdue(const struct stream *s, const struct retain *r, const struct keep *k)
{
    return (k->event > s->first_event && k->event - s->first_event > SLACK(r->events)) ||
           (k->pos > s->first && k->pos - s->first > SLACK(r->bytes)) ||
           (r->age_ms > 0 && s->term != NULL && keep_is_over(k, s->term->front_ms));
}

/* Moves out->first to where what has to be kept begins, as far as memory tells, be it that of the
 * streams it was forked from. True: what comes then rests, and has to be looked at. */
static bool seek_kept(const struct stream *s, struct trim *out)
{
    for (;;) {
        struct span span = stream_span(s, out->first);
        const struct tape *t = &span.owner->tape;
        bool own = span.owner == s, rests = out->first < t->first;
        struct trim next = {.first = span.upto, .event = own ? t->events : span.events};
        if (!rests) {
            next.first = tape_keep_from(t, span.upto, &out->keep, &next.event);
        } else if (t->first < span.upto) {
            next.first = t->first;
            next.event = tape_ordinal(t, t->first);
        }
        if (rests && out->keep.pos < next.first && out->keep.event < next.event)
            return true;
        if (next.first > out->first) {
            out->first = next.first;
            out->event = next.event;
        }
        if (!rests && (own || next.first < span.upto))
            return false;
    }
}

enum trim_verdict catalog_judge_trim(struct catalog *c, const struct stream *s, struct trim *out)
{
    struct keep *k = &out->keep;
    struct retain r = stream_retains(c, s);
    const struct tape *t = &s->tape;
    *k = (struct keep){.tail = t->tail, .ms = INT64_MIN};
    if (!retain_any(&r) || s->first == t->tail)
        return TRIM_NONE;
    if (r.events > 0 && t->events > r.events)
        k->event = t->events - r.events;
    if (r.bytes > 0 && t->tail > r.bytes)
        k->pos = t->tail - r.bytes;
    if (r.age_ms > 0) {
        int64_t now_ms = catalog_wall_ms(c);
        k->ms = now_ms - (int64_t)r.age_ms;
        k->ahead_ms = now_ms + CATALOG_LEAD_MS;
        k->ahead_goes = c->trusted_ms < k->ms;
    }
    out->first = s->first;
    out->event = s->first_event;
    bool look = seek_kept(s, out) && is_overdue(s, &r, k);
    return out->first > s->first ? TRIM_TO : look ? TRIM_LOOK : TRIM_NONE;
}

int64_t catalog_age_step(const struct catalog *c, const struct stream *s)
{
    uint64_t age_ms = stream_retains(c, s).age_ms;
    return age_ms > 0 ? (int64_t)(age_ms / AGE_STEPS) : INT64_MAX;
}

void catalog_split_by_age(struct catalog *c, struct stream *s, int64_t now_ms)
{
    int64_t step_ms = catalog_age_step(c, s);
    if (step_ms < INT64_MAX && tape_open_since(&s->tape) < now_ms - step_ms)
        tape_seal(&s->tape);
}
