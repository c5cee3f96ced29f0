// SPDX-License-Identifier: Apache-2.0
/* catalog_term.c -- how long streams are kept, and how much of them.
 *
 * Two heaps say whose turn is next. A date is a date, whatever the clock jumps. A TTL counts what
 * time has passed, and so does the next look at what a stream retains: by steady time, which no
 * jump moves. To use a stream is to note when, and nothing else: so it may stand in `due` too
 * early, and is put where it belongs when its turn comes. It never stands there too late.
 *
 * Who asks for a stream finds out by himself that it has expired; the sweep is for those that
 * nobody asks for. It does what is due in slices. */
#include "store/catalog/catalog_core.h"

#define SWEEP_MS      1000

/* What a slice may cost, in looks. */
#define SLICE         64
#define REMOVAL_COST  4

#define LOOK_SOON_MS  1000
#define LOOK_LATE_MS  (60 * 60 * 1000)
#define LOOK_AGE_PART 16 /* of an age passes between two looks */
#define LOOKS_PER_MS  64 /* at most: or more time passes */
#define LOADED_PER_MS 4  /* the same of those that were loaded: what rests has to be looked at */

/* While streams are loaded it is not known yet what time it will be: not before this. */
static int64_t steady_ms(struct catalog *c)
{
    return c->ticking ? catalog_wall_ms(c) - c->stepped_ms : c->sched->wall_ms;
}

static int64_t ttl_ends_ms(const struct catalog *c, const struct stream_term *t)
{
    int64_t from = t->touched_ms > c->started_ms ? t->touched_ms : c->started_ms;
    return t->ttl_s < 0 ? INT64_MAX : from + t->ttl_s * 1000;
}

bool stream_expired(struct catalog *c, const struct stream *s)
{
    const struct stream_term *t = s->term;
    if (t == NULL)
        return false;
    return steady_ms(c) >= ttl_ends_ms(c, t) ||
           (t->expires_ms >= 0 && catalog_wall_ms(c) >= t->expires_ms);
}

void stream_touch(struct catalog *c, struct stream *s)
{
    if (s->term != NULL && c->ticking)
        s->term->touched_ms = steady_ms(c);
}

/* ---- who is next ---- */

static void enqueue(struct catalog *c, struct stream_term *t)
{
    int64_t ttl_ms = ttl_ends_ms(c, t);
    heap_put(&c->due, &t->due, ttl_ms < t->look_ms ? ttl_ms : t->look_ms);
}

void catalog_add_term(struct catalog *c, struct stream *s, const struct stream_config *config)
{
    bool retains = retain_any(&config->retain) || retain_any(&c->store->retain);
    if (config->ttl_s < 0 && config->expires_ms < 0 && !retains)
        return;
    struct stream_term *t = s->term = mem_zalloc(sizeof *t);
    t->stream = s;
    t->ttl_s = config->ttl_s;
    t->expires_ms = config->expires_ms;
    t->retain = config->retain;
    t->touched_ms = t->look_ms = steady_ms(c);
    if (!c->ticking)
        t->look_ms += c->due.n / LOADED_PER_MS;
    if (!retains)
        t->look_ms = INT64_MAX;
    if (t->ttl_s >= 0 || retains)
        enqueue(c, t);
    if (t->expires_ms >= 0)
        heap_put(&c->dated, &t->dated, t->expires_ms);
    if (!c->ticking)
        t->touched_ms = 0; /* it counts as touched when the clock starts */
}

void catalog_end_term(struct catalog *c, struct stream *s)
{
    if (s->term == NULL)
        return;
    heap_remove(&c->due, &s->term->due);
    heap_remove(&c->dated, &s->term->dated);
}

static void look_within(struct catalog *c, struct stream *s, int64_t ms)
{
    struct stream_term *t = s->term;
    if (t == NULL || t->due.place == 0 || t->look_ms <= steady_ms(c) + ms)
        return;
    t->look_ms = steady_ms(c) + ms;
    enqueue(c, t);
}

/* ---- looking at what it retains ---- */

void stream_look_soon(struct catalog *c, struct stream *s)
{
    look_within(c, s, LOOK_SOON_MS);
}

/* Where nothing is kept, or nothing ages, a write has to come first. */
static int64_t look_after_ms(const struct catalog *c, const struct stream *s)
{
    int64_t age_ms = (int64_t)stream_retains(c, s).age_ms, least_ms = c->due.n / LOOKS_PER_MS;
    int64_t ms = age_ms == 0 || s->first == s->tape.tail ? LOOK_LATE_MS : age_ms / LOOK_AGE_PART;
    if (least_ms < LOOK_SOON_MS)
        least_ms = LOOK_SOON_MS;
    return ms < least_ms ? least_ms : ms > LOOK_LATE_MS ? LOOK_LATE_MS : ms;
}

void stream_look_for_age(struct catalog *c, struct stream *s)
{
    if (stream_retains(c, s).age_ms > 0)
        look_within(c, s, look_after_ms(c, s));
}

static void look(struct catalog *c, struct stream_term *t)
{
    enum trim_verdict v = c->trim(c, t->stream);
    t->look_ms = steady_ms(c) + (v == TRIM_NONE ? look_after_ms(c, t->stream) : LOOK_SOON_MS);
}

/* ---- the sweep ---- */

static struct stream_term *next_due(struct catalog *c)
{
    struct heap_item *dated = heap_first(&c->dated), *due = heap_first(&c->due);
    if (dated != NULL && dated->key <= catalog_wall_ms(c))
        return container_of(dated, struct stream_term, dated);
    if (due != NULL && due->key <= steady_ms(c))
        return container_of(due, struct stream_term, due);
    return NULL;
}

static void catalog_run_sweep(struct task *task)
{
    struct catalog *c = container_of(task, struct catalog, sweeping);
    int budget = SLICE;
    sched_work(c->sched, "expiry");
    for (struct stream_term *t; budget > 0 && (t = next_due(c)) != NULL; budget--) {
        if (stream_expired(c, t->stream)) {
            catalog_remove(c, t->stream);
            budget -= REMOVAL_COST - 1;
            continue;
        }
        if (t->look_ms <= steady_ms(c))
            look(c, t);
        enqueue(c, t);
    }
    if (next_due(c) != NULL)
        sched_post_background(c->sched, &c->sweeping);
}

static void catalog_on_sweep(struct timer *timer)
{
    struct catalog *c = container_of(timer, struct catalog, sweep);
    sched_post_background(c->sched, &c->sweeping);
    sched_start(c->sched, &c->sweep, SWEEP_MS);
}

void catalog_init_sweep(struct catalog *c)
{
    timer_init(&c->sweep, catalog_on_sweep);
    task_init(&c->sweeping, catalog_run_sweep);
}

void catalog_start_sweep(struct catalog *c)
{
    sched_start(c->sched, &c->sweep, SWEEP_MS);
}

void catalog_stop_sweep(struct catalog *c)
{
    timer_stop(&c->sweep);
    task_cancel(&c->sweeping);
}
