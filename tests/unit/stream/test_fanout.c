// SPDX-License-Identifier: Apache-2.0
/* Very many readers of one stream, on a schedule with a budget: the clock is moved by each reader
 * that is woken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/mem.h"
#include "store/mem/mem_store.h"
#include "stream/subscriber.h"

#define READERS 5000
#define WAKE_US 20  /* what a reader costs */
#define SLICE   200 /* more than are woken at once, and far less than all */

static uint64_t now_ns;

static uint64_t read_clock(void)
{
    return now_ns;
}

struct reader {
    struct subscriber sub;
    struct crowd *crowd;
    uint64_t pos;
    unsigned n_batches;
    bool here, stays_away; /* stays_away: does not ask when it is woken */
};

struct crowd {
    struct sched sched;
    struct store *store;
    struct feeds feeds;
    struct reader readers[READERS];
    uint64_t tail;
    unsigned woken; /* in this turn */
    unsigned turns;
};

static void pull(struct reader *r)
{
    struct event_batch *b;
    while (subscriber_next(&r->sub, &b) == NEXT_BATCH) {
        assert_int_equal(b->start, r->pos); /* nothing is left out, nothing comes twice */
        r->pos = b->next;
        r->n_batches++;
        event_batch_unref(b);
    }
}

static void on_ready(struct subscriber *s)
{
    struct reader *r = container_of(s, struct reader, sub);
    r->crowd->woken++;
    now_ns += WAKE_US * 1000;
    if (!r->stays_away)
        pull(r);
}

static void join(struct reader *r)
{
    struct crowd *c = r->crowd;
    r->here = true;
    r->pos = c->tail;
    r->n_batches = 0;
    subscriber_init(&r->sub, &c->feeds, STR("s"), (struct offset){1, r->pos}, on_ready);
    pull(r);
}

static void leave(struct reader *r)
{
    r->here = false;
    subscriber_deinit(&r->sub);
}

/* One turn, in which few are woken. */
static void turn(struct crowd *c)
{
    c->woken = 0;
    c->turns++;
    sched_look(&c->sched);
    sched_turn(&c->sched, now_ns / 1000000, 0);
    sched_end_turn(&c->sched);
    assert_true(c->woken <= SLICE);
}

static void settle(struct crowd *c)
{
    do
        turn(c);
    while (sched_is_busy(&c->sched));
}

struct change {
    struct store_write write;
    struct stream_config config;
};

static void on_written(struct store_write *w, int err)
{
    assert_int_equal(err, 0);
    free(container_of(w, struct change, write));
}

static void append(struct crowd *c, bool create)
{
    struct change *a = mem_zalloc(sizeof *a);
    a->write = (struct store_write){.name = STR("s"), .done = on_written};
    a->config = (struct stream_config){
        .content_type = STR("text/plain"), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    if (create)
        a->write.create = &a->config;
    else
        a->write.data = STR("x");
    c->tail += !create;
    store_write(c->store, &a->write);
}

static int set_up(void **state)
{
    struct crowd *c = mem_zalloc(sizeof *c);
    now_ns = 1000000000;
    sched_init(&c->sched, now_ns / 1000000, 0);
    c->sched.clock_ns = read_clock;
    c->store = mem_store_new(&c->sched);
    feeds_init(&c->feeds, c->store);
    append(c, true);
    settle(c);
    for (int i = 0; i < READERS; i++) {
        c->readers[i].crowd = c;
        join(&c->readers[i]);
        if (i % 50 == 0)
            settle(c); /* each asks for itself at first */
    }
    settle(c);
    *state = c;
    return 0;
}

static int tear_down(void **state)
{
    struct crowd *c = *state;
    for (int i = 0; i < READERS; i++)
        if (c->readers[i].here)
            leave(&c->readers[i]);
    settle(c);
    feeds_deinit(&c->feeds);
    store_free(c->store);
    free(c);
    return 0;
}

static void assert_all_have_all(struct crowd *c, unsigned batches_max)
{
    for (int i = 0; i < READERS; i++) {
        struct reader *r = &c->readers[i];
        if (!r->here || r->stays_away)
            continue;
        assert_int_equal(r->pos, c->tail);
        assert_true(r->n_batches <= batches_max);
    }
}

static unsigned count_woken(const struct crowd *c, uint64_t pos)
{
    unsigned n = 0;
    for (int i = 0; i < READERS; i++)
        n += c->readers[i].here && c->readers[i].pos >= pos;
    return n;
}

static void test_a_change_is_told_in_slices(void **state)
{
    struct crowd *c = *state;
    c->turns = 0;
    append(c, false);
    turn(c);
    assert_in_range(count_woken(c, 1), 1, SLICE);
    assert_true(sched_is_busy(&c->sched));
    settle(c);
    assert_all_have_all(c, 1);
    assert_true(c->turns >= READERS / SLICE);
}

/* They come when this one has been told to all, as one: no reader sees more than two batches, and
 * the last one in line has its first before anybody has the second. */
static void test_changes_meanwhile_are_one_more_wave(void **state)
{
    struct crowd *c = *state;
    append(c, false);
    for (int i = 0; i < 10; i++) {
        turn(c);
        append(c, false);
    }
    while (count_woken(c, 1) < READERS) {
        assert_int_equal(count_woken(c, 2), 0);
        turn(c);
    }
    settle(c);
    assert_all_have_all(c, 2);
}

/* Endless changes keep nobody from anything. */
static void test_a_change_each_turn(void **state)
{
    struct crowd *c = *state;
    for (int i = 0; i < 400; i++) {
        append(c, false);
        turn(c);
    }
    for (int i = 0; i < READERS; i++)
        assert_true(c->readers[i].pos > 100);
    settle(c);
    assert_all_have_all(c, 400 / (READERS / SLICE) + 2);
}

static void test_some_leave_and_some_come_meanwhile(void **state)
{
    struct crowd *c = *state;
    for (int i = 0; i < READERS; i += 3)
        leave(&c->readers[i]);
    append(c, false);
    for (int i = 0; i < READERS; i += 3) {
        if (i % 60 == 0)
            turn(c);
        join(&c->readers[i]); /* behind the change that is being told ... */
        leave(&c->readers[READERS - 1 - i]);
        if (i % 300 == 0)
            append(c, false); /* ... or before another */
    }
    for (int i = 0; i < READERS; i += 3) {
        c->readers[i].stays_away = i % 2 == 0;
        append(c, false);
        if (i % 10 == 0)
            turn(c);
    }
    settle(c);
    assert_all_have_all(c, READERS);
    for (int i = 0; i < READERS; i++) { /* who comes late gets the rest */
        c->readers[i].stays_away = false;
        if (c->readers[i].here)
            pull(&c->readers[i]);
        if (i % 50 == 0)
            settle(c);
    }
    settle(c);
    assert_all_have_all(c, READERS);
}

/* The last that are to be woken leave: nothing is left of it. */
static void test_all_leave_in_the_middle(void **state)
{
    struct crowd *c = *state;
    append(c, false);
    turn(c);
    for (int i = 0; i < READERS; i++)
        leave(&c->readers[i]);
    assert_false(feeds_has(&c->feeds, STR("s")));
    settle(c);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_a_change_is_told_in_slices), T(test_changes_meanwhile_are_one_more_wave),
        T(test_a_change_each_turn),         T(test_some_leave_and_some_come_meanwhile),
        T(test_all_leave_in_the_middle),
    };
    return cmocka_run_group_tests_name("unit/fanout", tests, NULL, NULL);
}
