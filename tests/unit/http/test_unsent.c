// SPDX-License-Identifier: Apache-2.0
#include "base/budget.h"
#include "http/unsent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define KIB   ((size_t)1024)
#define SHARE (256 * KIB)
#define MAX   (16 * SHARE)

/* What waits, and the order in which it was granted. */
struct world {
    struct sched sched;
    struct budget budget;
    struct unsent unsent;
    size_t cached; /* what a cache would still have */
    char granted[64];
};

struct user {
    struct world *world;
    struct reservation *r;
    char name;
};

static void give_way(void *ctx)
{
    struct world *w = ctx;
    size_t rest = budget_rest(&w->budget);
    if (w->cached > rest)
        w->cached = rest;
}

static void init(struct world *w)
{
    *w = (struct world){.budget = {.max = MAX, .give_way = give_way, .ctx = w}, .cached = MAX};
    sched_init(&w->sched, 0, 0);
    unsent_init(&w->unsent, &w->sched);
    w->unsent.budget = &w->budget;
}

static void on_granted(void *ctx)
{
    struct user *u = ctx;
    strncat(u->world->granted, &u->name, 1);
}

static bool reserve(struct user *u, struct unsent_share **of, size_t bytes)
{
    return unsent_reserve(&u->world->unsent, &u->r,
                          &(struct unsent_user){.of = of, .granted = on_granted, .ctx = u}, bytes);
}

static void give_back(struct user *u)
{
    unsent_give_back(&u->world->unsent, &u->r);
    sched_drain(&u->world->sched);
}

static void assert_empty(const struct world *w)
{
    assert_int_equal(w->unsent.held, 0);
    assert_int_equal(w->unsent.large, 0);
    assert_int_equal(w->unsent.waiting, 0);
    assert_int_equal(w->budget.pinned, 0);
}

static void test_a_connection_has_a_share(void **state)
{
    struct world w;
    struct unsent_share *one = NULL, *other = NULL;
    init(&w);
    struct user a = {.world = &w, .name = 'a'}, b = {.world = &w, .name = 'b'},
                c = {.world = &w, .name = 'c'}, d = {.world = &w, .name = 'd'};
    assert_true(reserve(&a, &one, SHARE - 1));
    assert_false(reserve(&b, &one, 2));
    assert_false(reserve(&c, &one, 1)); /* there is room, but not before b */
    assert_true(reserve(&d, &other, 2));
    assert_int_equal(w.unsent.waiting, 2);
    give_back(&d);
    assert_string_equal(w.granted, "");
    give_back(&a);
    assert_string_equal(w.granted, "bc");
    assert_true(reserve(&b, &one, 2)); /* as it was granted */
    give_back(&b);
    give_back(&c);
    assert_null(one);
    assert_null(other);
    assert_empty(&w);
}

static void test_connections_take_turns(void **state)
{
    struct world w;
    struct unsent_share *full[16] = {0}, *first = NULL, *second = NULL;
    struct user u[16], wait[5];
    init(&w);
    for (int i = 0; i < 16; i++) {
        u[i] = (struct user){.world = &w, .name = '-'};
        assert_true(reserve(&u[i], &full[i], SHARE));
    }
    assert_int_equal(w.budget.pinned, MAX);
    assert_int_equal(w.cached, 0);
    for (int i = 0; i < 5; i++)
        wait[i] = (struct user){.world = &w, .name = (char)('a' + i)};
    for (int i = 0; i < 3; i++)
        assert_false(reserve(&wait[i], &first, SHARE / 4)); /* a, b, c */
    for (int i = 3; i < 5; i++)
        assert_false(reserve(&wait[i], &second, SHARE / 4)); /* d, e */
    give_back(&u[0]);
    assert_string_equal(w.granted, "adbe");
    assert_int_equal(w.budget.pinned, MAX);
    give_back(&wait[1]);
    assert_string_equal(w.granted, "adbec");
    for (int i = 1; i < 16; i++)
        give_back(&u[i]);
    for (int i = 0; i < 5; i++)
        give_back(&wait[i]);
    assert_empty(&w);
}

static void test_what_is_queued_counts_and_never_waits(void **state)
{
    struct world w;
    struct unsent_share *one = NULL, *other = NULL;
    init(&w);
    struct user a = {.world = &w, .name = 'a'}, b = {.world = &w, .name = 'b'};
    unsent_queued(&w.unsent, &one, MAX + 1);
    assert_true(unsent_full(&w.unsent, one));
    assert_int_equal(w.budget.pinned, MAX + 1);
    assert_false(reserve(&a, &one, 1));
    assert_false(reserve(&b, &other, 1));
    unsent_queued(&w.unsent, &one, MAX - 1);
    sched_drain(&w.sched);
    assert_string_equal(w.granted, "b");
    unsent_queued(&w.unsent, &one, 0);
    sched_drain(&w.sched);
    assert_string_equal(w.granted, "ba");
    assert_false(unsent_full(&w.unsent, one));
    give_back(&a);
    give_back(&b);
    assert_null(one);
    assert_empty(&w);
}

static void test_large_ones_go_one_at_a_time_and_apart(void **state)
{
    struct world w;
    struct unsent_share *one = NULL, *other = NULL, *third = NULL;
    init(&w);
    struct user a = {.world = &w, .name = 'a'}, b = {.world = &w, .name = 'b'},
                c = {.world = &w, .name = 'c'};
    assert_true(reserve(&a, &one, 2 * MAX)); /* more than there is */
    assert_true(reserve(&c, &third, SHARE)); /* and nobody else waits for it */
    assert_false(reserve(&b, &other, SHARE + 1));
    assert_int_equal(w.budget.pinned, 2 * MAX + SHARE);
    give_back(&a);
    assert_string_equal(w.granted, "b");
    give_back(&b);
    give_back(&c);
    assert_empty(&w);
}

static void test_who_grows_too_much_holds_nothing_while_it_waits(void **state)
{
    struct world w;
    struct unsent_share *one = NULL, *other = NULL;
    init(&w);
    struct user a = {.world = &w, .name = 'a'}, b = {.world = &w, .name = 'b'};
    assert_true(reserve(&b, &other, SHARE + 1));
    assert_true(reserve(&a, &one, SHARE));
    assert_false(reserve(&a, &one, MAX));
    assert_int_equal(w.budget.pinned, SHARE + 1);
    assert_null(one);
    assert_false(reserve(&a, &one, 1)); /* it waits, whatever it asks for meanwhile */
    give_back(&b);
    assert_string_equal(w.granted, "a");
    assert_true(reserve(&a, &one, MAX));
    give_back(&a);
    assert_empty(&w);
}

static void test_who_leaves_the_line_lets_the_next_one_go(void **state)
{
    struct world w;
    struct unsent_share *one = NULL;
    init(&w);
    struct user a = {.world = &w, .name = 'a'}, b = {.world = &w, .name = 'b'},
                c = {.world = &w, .name = 'c'};
    assert_true(reserve(&a, &one, SHARE - 1));
    assert_false(reserve(&b, &one, SHARE));
    assert_false(reserve(&c, &one, 1));
    give_back(&b);
    assert_string_equal(w.granted, "c");
    give_back(&c);
    give_back(&a);
    assert_empty(&w);
}

/* ---- who takes nothing while others wait ---- */

/* A connection, that of all which have something queued. */
struct peer {
    struct unsent_share *share;
    struct world *world;
    size_t queued;
    bool is_cut;
};

static void queue(struct peer *p, size_t bytes)
{
    p->queued = bytes;
    unsent_queued(&p->world->unsent, &p->share, bytes);
}

static void on_cut(struct unsent_share **of)
{
    struct peer *p = container_of(of, struct peer, share);
    assert_false(p->is_cut);
    p->is_cut = true;
    queue(p, 0);
}

static void pass(struct world *w, uint64_t ms)
{
    for (uint64_t at = w->sched.now_ms; ms > 0; ms -= 100)
        sched_turn(&w->sched, at += 100, 0);
}

static void test_who_takes_too_little_while_others_wait_is_cut_off(void **state)
{
    struct world w;
    struct unsent_share *one = NULL;
    init(&w);
    w.unsent.cut = on_cut;
    struct user a = {.world = &w, .name = 'a'};
    struct peer slow = {.world = &w}, stuck = {.world = &w}, good = {.world = &w};
    queue(&good, 4 * SHARE); /* which is looked at first */
    queue(&slow, 16 * SHARE);
    queue(&stuck, 4 * SHARE);
    pass(&w, 60000); /* nobody waits */
    assert_false(reserve(&a, &one, SHARE));
    queue(&good, 4 * SHARE - SHARE / 2);
    pass(&w, 6000); /* the first look */
    assert_false(slow.is_cut || stuck.is_cut || good.is_cut);
    for (int i = 0; i < 10; i++) { /* 20 bytes of it a look, and a good one */
        queue(&slow, slow.queued - (slow.is_cut ? 0 : 20));
        queue(&good, good.queued - SHARE / 10);
        pass(&w, 500);
    }
    assert_true(slow.is_cut);
    assert_false(stuck.is_cut || good.is_cut); /* that was enough */
    assert_string_equal(w.granted, "a");
    give_back(&a);
    pass(&w, 60000);
    assert_false(stuck.is_cut || good.is_cut);
    assert_false(timer_running(&w.unsent.look));
    queue(&stuck, 0);
    queue(&good, 0);
    assert_empty(&w);
}

static void test_who_is_not_in_the_way_is_left_alone(void **state)
{
    struct world w;
    struct unsent_share *other = NULL;
    init(&w);
    w.unsent.cut = on_cut;
    struct user a = {.world = &w, .name = 'a'}, b = {.world = &w, .name = 'b'},
                own = {.world = &w, .name = 'o'};
    struct peer small = {.world = &w}, large = {.world = &w};
    queue(&small, SHARE);
    assert_false(reserve(&own, &small.share, SHARE)); /* its own share is full, nothing else */
    pass(&w, 60000);
    assert_false(small.is_cut);
    assert_true(reserve(&a, &large.share, MAX));
    assert_false(reserve(&b, &other, MAX));
    for (int i = 0; i < 250 && !large.is_cut; i++) /* what is large waits for what is large */
        pass(&w, 100);
    assert_false(small.is_cut);
    assert_true(large.is_cut);
    give_back(&a);
    assert_string_equal(w.granted, "b");
    give_back(&b);
    give_back(&own);
    queue(&small, 0);
    assert_empty(&w);
}

/* A large event goes piece by piece, and the last of it is held until the end. */
static void test_who_takes_what_was_never_queued_is_left_alone(void **state)
{
    struct world w;
    struct unsent_share *other = NULL;
    init(&w);
    w.unsent.cut = on_cut;
    struct user a = {.world = &w, .name = 'a'}, b = {.world = &w, .name = 'b'};
    struct peer large = {.world = &w};
    assert_true(reserve(&a, &large.share, 64 * MAX));
    assert_false(reserve(&b, &other, MAX));
    for (int i = 0; i < 60; i++) {
        unsent_took(large.share, 16 * KIB);
        pass(&w, 1000);
    }
    assert_false(large.is_cut);
    give_back(&a);
    assert_string_equal(w.granted, "b");
    give_back(&b);
    assert_empty(&w);
}

#define T(f) cmocka_unit_test(f)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_a_connection_has_a_share),
        T(test_connections_take_turns),
        T(test_what_is_queued_counts_and_never_waits),
        T(test_large_ones_go_one_at_a_time_and_apart),
        T(test_who_grows_too_much_holds_nothing_while_it_waits),
        T(test_who_leaves_the_line_lets_the_next_one_go),
        T(test_who_takes_too_little_while_others_wait_is_cut_off),
        T(test_who_is_not_in_the_way_is_left_alone),
        T(test_who_takes_what_was_never_queued_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
