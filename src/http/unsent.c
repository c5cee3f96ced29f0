// SPDX-License-Identifier: Apache-2.0
#include "http/unsent.h"
#include "base/budget.h"
#include "base/mem.h"

#include <stdlib.h>

#define SHARES       16 /* a connection has one of so many, but at least ... */
#define SHARE_MIN    ((size_t)256 * 1024)
#define LARGE_SHARES 4 /* what is large has so many together, or one of them is alone */

/* A connection's, while it holds something or waits for it. */
struct unsent_share {
    struct unsent_share **of;
    struct link link;    /* in `turns` */
    struct link waiting; /* of struct reservation */
    size_t queued, held; /* held: queued and reserved */
};

struct reservation {
    struct unsent_user user;
    struct link link;     /* in its share's `waiting`, or in `queue` */
    size_t bytes, wanted; /* wanted > 0: it waits, and bytes is 0 */
    bool large;           /* bytes are counted apart */
};

static void unsent_on_grant(struct task *t);

void unsent_init(struct unsent *u, struct sched *sched)
{
    *u = (struct unsent){.sched = sched};
    list_init(&u->turns);
    list_init(&u->queue);
    task_init(&u->grant, unsent_on_grant);
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

static struct unsent_share *share_of(struct unsent_share **of)
{
    if (*of == NULL) {
        struct unsent_share *s = *of = mem_zalloc(sizeof *s);
        s->of = of;
        list_init(&s->link);
        list_init(&s->waiting);
    }
    return *of;
}

static void drop_idle_share(struct unsent_share *s)
{
    if (s->held > 0 || !list_empty(&s->waiting))
        return;
    list_remove(&s->link);
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
    struct unsent_share *s = share_of(of);
    size_t before = s->queued;
    s->queued = bytes;
    if (bytes > before)
        share_take(u, s, bytes - before);
    else if (bytes < before)
        share_give(u, s, before - bytes);
    drop_idle_share(s);
}

bool unsent_full(const struct unsent *u, const struct unsent_share *s)
{
    return s != NULL && s->queued >= share_max(u);
}

/* ---- reservations ---- */

static void reservation_take(struct unsent *u, struct reservation *r, size_t n)
{
    r->bytes = n;
    r->large = n > share_max(u);
    if (r->large) {
        u->large += n;
        budget_pin(u->budget, n);
    } else {
        share_take(u, share_of(r->user.of), n);
    }
}

static void reservation_give(struct unsent *u, struct reservation *r)
{
    if (r->large) {
        u->large -= r->bytes;
        budget_unpin(u->budget, r->bytes);
        grant_later(u);
    } else if (r->bytes > 0) {
        share_give(u, *r->user.of, r->bytes);
        drop_idle_share(*r->user.of);
    }
    r->bytes = 0;
    r->large = false;
}

static void reservation_wait(struct unsent *u, struct reservation *r, size_t n)
{
    r->wanted = n;
    u->waiting++;
    if (n > share_max(u)) {
        list_push(&u->queue, &r->link);
        return;
    }
    struct unsent_share *s = share_of(r->user.of);
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
