// SPDX-License-Identifier: Apache-2.0
#include "http/unsent.h"
#include "base/budget.h"
#include "base/mem.h"

#include <stdlib.h>

#define SHARES       16 /* a connection has one of so many, but at least ... */
#define SHARE_MIN    ((size_t)256 * 1024)
#define LARGE_SHARES 4 /* what is large has so many together, or one of them is alone */
#define LOOK_MS      5000
#define TAKEN_ENOUGH ((size_t)64 * 1024) /* from one look to the next */
#define LOOK_SLICE   1024                /* shares; then others have their turn */

/* A connection's, while it holds something or waits for it. */
struct unsent_share {
    struct unsent_share **of;
    struct link link;    /* in `turns` */
    struct link waiting; /* of struct reservation */
    struct link all;     /* in `shares` or `unlooked` */
    size_t queued, held; /* held: queued and reserved */
    size_t large;        /* reserved, and counted apart */
    size_t had, taken;   /* at the last look; since then, about */
};

struct reservation {
    struct unsent_user user;
    struct link link;     /* in its share's `waiting`, or in `queue` */
    size_t bytes, wanted; /* wanted > 0: it waits, and bytes is 0 */
    bool large;           /* bytes are counted apart */
};

static void unsent_on_grant(struct task *t);
static void unsent_on_look(struct timer *t);

void unsent_init(struct unsent *u, struct sched *sched)
{
    *u = (struct unsent){.sched = sched};
    list_init(&u->turns);
    list_init(&u->queue);
    list_init(&u->shares);
    list_init(&u->unlooked);
    task_init(&u->grant, unsent_on_grant);
    timer_init(&u->look, unsent_on_look);
}

static size_t share_max(const struct unsent *u)
{
    size_t share = u->budget->max / SHARES;
    return share > SHARE_MIN ? share : SHARE_MIN;
}

static bool fits_large(const struct unsent *u, size_t n)
{
    return u->large == 0 || u->large + n <= LARGE_SHARES * share_max(u);
}

static bool fits_share(const struct unsent *u, const struct unsent_share *s, size_t n)
{
    return s->held + n <= share_max(u);
}

static bool fits_server(const struct unsent *u, size_t n)
{
    return u->held == 0 || u->held + n <= u->budget->max;
}

static void grant_later(struct unsent *u)
{
    if (u->waiting > 0)
        sched_post(u->sched, &u->grant);
}

/* ---- shares ---- */

static struct unsent_share *share_of(struct unsent *u, struct unsent_share **of)
{
    if (*of == NULL) {
        struct unsent_share *s = *of = mem_zalloc(sizeof *s);
        s->of = of;
        list_init(&s->link);
        list_init(&s->waiting);
        list_init(&s->all);
        list_push(&u->shares, &s->all);
    }
    return *of;
}

static void drop_idle_share(struct unsent_share *s)
{
    if (s->held > 0 || s->large > 0 || !list_empty(&s->waiting))
        return;
    list_remove(&s->link);
    list_remove(&s->all);
    *s->of = NULL;
    free(s);
}

static struct reservation *first_of(struct link *waiting)
{
    return list_item(waiting->next, struct reservation, link);
}

/* A connection gets a turn when its first reservation fits into its own share. */
static void share_line_up(struct unsent *u, struct unsent_share *s)
{
    bool next = !list_empty(&s->waiting) && fits_share(u, s, first_of(&s->waiting)->wanted);
    if (next && list_empty(&s->link))
        list_push(&u->turns, &s->link);
    else if (!next)
        list_remove(&s->link);
}

static void share_give(struct unsent *u, struct unsent_share *s, size_t n)
{
    s->held -= n;
    u->held -= n;
    budget_unpin(u->budget, n);
    share_line_up(u, s);
    grant_later(u);
}

static void share_take(struct unsent *u, struct unsent_share *s, size_t n)
{
    s->held += n;
    u->held += n;
    budget_pin(u->budget, n);
    share_line_up(u, s);
}

void unsent_queued(struct unsent *u, struct unsent_share **of, size_t bytes)
{
    if (u->budget == NULL || (*of == NULL && bytes == 0))
        return;
    struct unsent_share *s = share_of(u, of);
    size_t before = s->queued;
    s->queued = bytes;
    if (bytes > before)
        share_take(u, s, bytes - before);
    else if (bytes < before)
        share_give(u, s, before - bytes);
    s->taken += bytes < before ? before - bytes : 0;
    drop_idle_share(s);
}

void unsent_took(struct unsent_share *s, size_t bytes)
{
    s->taken += bytes;
}

bool unsent_full(const struct unsent *u, const struct unsent_share *s)
{
    return s != NULL && s->queued >= share_max(u);
}

/* ---- reservations ---- */

static void reservation_take(struct unsent *u, struct reservation *r, size_t n)
{
    struct unsent_share *s = share_of(u, r->user.of);
    r->bytes = n;
    r->large = n > share_max(u);
    if (r->large) {
        s->large += n;
        u->large += n;
        budget_pin(u->budget, n);
    } else {
        share_take(u, s, n);
    }
}

static void reservation_give(struct unsent *u, struct reservation *r)
{
    struct unsent_share *s = *r->user.of;
    if (r->large) {
        s->large -= r->bytes;
        u->large -= r->bytes;
        budget_unpin(u->budget, r->bytes);
        grant_later(u);
    } else if (r->bytes > 0) {
        share_give(u, s, r->bytes);
    }
    if (r->bytes > 0)
        drop_idle_share(s);
    r->bytes = 0;
    r->large = false;
}

static void reservation_wait(struct unsent *u, struct reservation *r, size_t n)
{
    r->wanted = n;
    u->waiting++;
    if (!timer_running(&u->look))
        sched_start(u->sched, &u->look, LOOK_MS);
    if (n > share_max(u)) {
        list_push(&u->queue, &r->link);
        return;
    }
    struct unsent_share *s = share_of(u, r->user.of);
    list_push(&s->waiting, &r->link);
    share_line_up(u, s);
}

/* It may have stood before others. */
static void reservation_leave(struct unsent *u, struct reservation *r)
{
    struct unsent_share *s = *r->user.of;
    if (r->wanted == 0)
        return;
    r->wanted = 0;
    u->waiting--;
    list_remove(&r->link);
    if (s != NULL) {
        share_line_up(u, s);
        drop_idle_share(s);
    }
    grant_later(u);
}

static void reservation_grant(struct unsent *u, struct reservation *r)
{
    size_t n = r->wanted;
    r->wanted = 0;
    u->waiting--;
    list_remove(&r->link);
    reservation_take(u, r, n);
    r->user.granted(r->user.ctx); /* which may end anything */
}

/* Who gets nothing now is looked at again when something is given back. */
static void unsent_on_grant(struct task *t)
{
    struct unsent *u = container_of(t, struct unsent, grant);
    while (!list_empty(&u->queue) && fits_large(u, first_of(&u->queue)->wanted))
        reservation_grant(u, first_of(&u->queue));
    while (!list_empty(&u->turns)) {
        struct unsent_share *s = list_item(u->turns.next, struct unsent_share, link);
        struct reservation *r = first_of(&s->waiting);
        if (!fits_server(u, r->wanted))
            return;
        list_remove(&s->link); /* and to the end, if another one of it waits */
        reservation_grant(u, r);
    }
}

/* ---- who takes nothing while others wait ---- */

static bool is_scarce(const struct unsent *u)
{
    if (list_empty(&u->turns))
        return false;
    struct unsent_share *next = list_item(u->turns.next, struct unsent_share, link);
    return !fits_server(u, first_of(&next->waiting)->wanted);
}

static bool is_scarce_for_large(struct unsent *u)
{
    return !list_empty(&u->queue) && !fits_large(u, first_of(&u->queue)->wanted);
}

static void share_look(struct unsent *u, struct unsent_share *s)
{
    size_t has = s->held + s->large, kept = s->had < has ? s->had : has;
    bool slow = s->taken < kept / 4 && s->taken < TAKEN_ENOUGH;
    bool in_the_way = (s->held > 0 && is_scarce(u)) || (s->large > 0 && is_scarce_for_large(u));
    s->had = has;
    s->taken = 0;
    if (slow && in_the_way)
        u->cut(s->of); /* and it is gone */
}

static void unsent_on_look(struct timer *t)
{
    struct unsent *u = container_of(t, struct unsent, look);
    if (list_empty(&u->unlooked))
        list_splice(&u->unlooked, &u->shares);
    for (int n = 0; n < LOOK_SLICE && !list_empty(&u->unlooked); n++) {
        struct unsent_share *s = list_item(u->unlooked.next, struct unsent_share, all);
        list_remove(&s->all);
        list_push(&u->shares, &s->all);
        share_look(u, s);
    }
    if (!list_empty(&u->unlooked))
        sched_start(u->sched, t, 0);
    else if (u->waiting > 0)
        sched_start(u->sched, t, LOOK_MS);
}

static bool fits_now(const struct unsent *u, const struct unsent_share *s, size_t n)
{
    if (n > share_max(u))
        return list_empty(&u->queue) && fits_large(u, n);
    return (s == NULL || (list_empty(&s->waiting) && fits_share(u, s, n))) &&
           list_empty(&u->turns) && fits_server(u, n);
}

static struct reservation *reservation_new(const struct unsent_user *user)
{
    struct reservation *r = mem_zalloc(sizeof *r);
    r->user = *user;
    list_init(&r->link);
    return r;
}

bool unsent_reserve(struct unsent *u, struct reservation **at, const struct unsent_user *user,
                    size_t bytes)
{
    struct reservation *r = *at;
    if (r == NULL)
        r = *at = reservation_new(user);
    if (r->wanted > 0 || bytes <= r->bytes)
        return r->wanted == 0;
    reservation_give(u, r);
    bool fits = fits_now(u, *r->user.of, bytes);
    if (fits)
        reservation_take(u, r, bytes);
    else
        reservation_wait(u, r, bytes);
    return fits;
}

void unsent_give_back(struct unsent *u, struct reservation **r)
{
    if (*r == NULL)
        return;
    reservation_leave(u, *r);
    reservation_give(u, *r);
    free(*r);
    *r = NULL;
}
