// SPDX-License-Identifier: Apache-2.0
/* The recorder of a bounded stream and those who read it: it never trims what one of them has yet
 * to read, and who holds it up for too long is cut off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "feature/gateway/recorder.h"
#include "stream/subscriber.h"
#include "model/delay.c"
#include "model/engines.h"
#include "model/seeds.h"
#include "store/mem/mem_store.h"

#define NAME       STR("gen/1")
#define START_MONO 5000
#define START_WALL 1700000000000
#define TURNS_MAX  50000
#define READERS    6
#define TIMEOUT_MS 1000

struct world;

struct reader {
    struct world *world;
    struct subscriber sub;
    struct pin place; /* until it reads */
    struct store_read read;
    uint64_t next;       /* the number that must come next */
    enum end_reason end; /* as it was told */
    bool asked, begun, lazy, gone, gap;
};

struct world {
    struct sched sched;
    struct store *store;
    struct feeds feeds;
    struct recorder_config config;
    struct recorder *r;
    struct reader readers[READERS];
    size_t n_readers;
    uint64_t taken; /* events */
    uint64_t cut;
    bool wait, started;
    enum end_reason end;
    bool ended;
};

/* ---- what the recorder tells ---- */

static void on_started(void *ctx, int err)
{
    assert_int_equal(err, 0);
    ((struct world *)ctx)->started = true;
}

static void on_room(void *ctx)
{
    ((struct world *)ctx)->wait = false;
}

static void on_cut(void *ctx, uint64_t n)
{
    ((struct world *)ctx)->cut += n;
}

static void on_ended(void *ctx, enum end_reason end, int err)
{
    struct world *w = ctx;
    assert_int_equal(err, 0);
    w->ended = true;
    w->end = end;
}

static void pass(struct world *w, uint64_t ms)
{
    sched_turn(&w->sched, w->sched.now_ms + ms, w->sched.wall_ms + (int64_t)ms);
}

static void world_prepare(struct world *w, struct retain retain)
{
    *w = (struct world){
        .config = {
            .name = NAME,
            .ttl_s = 900,
            .retain = retain,
            .reader_timeout_ms = TIMEOUT_MS,
            .on = {.started = on_started, .room = on_room, .cut = on_cut, .ended = on_ended}}};
    w->config.ctx = w;
    sched_init(&w->sched, START_MONO, START_WALL);
}

static void world_begin(struct world *w, struct store *store)
{
    w->store = store;
    feeds_init(&w->feeds, store);
    w->config.pins = &w->feeds.pins;
    w->r = recorder_new(&w->sched, store, &w->config);
}

static void world_init(struct world *w, struct retain retain)
{
    world_prepare(w, retain);
    world_begin(w, mem_store_new(&w->sched));
    sched_drain(&w->sched);
    assert_true(w->started);
}

static void reader_leave(struct reader *r)
{
    pin_remove(&r->place);
    if (r->begun && !r->gone)
        subscriber_deinit(&r->sub);
    r->gone = true;
}

static void world_end(struct world *w)
{
    for (size_t i = 0; i < w->n_readers; i++)
        reader_leave(&w->readers[i]);
    recorder_free(w->r);
    w->r = NULL;
}

static void world_deinit(struct world *w)
{
    world_end(w);
    sched_drain(&w->sched);
    feeds_deinit(&w->feeds);
    store_free(w->store);
}

/* ---- readers ---- */

static void take_event(struct reader *r, struct str *rest)
{
    struct str line = str_cut(rest, '\n');
    uint64_t number = 0;
    assert_true(str_starts(line, STR("id: ")));
    assert_int_equal(num_parse(str_skip(line, 4), INT64_MAX, &number), 0);
    if (r->next == 0)
        r->next = number; /* it came late */
    assert_int_equal(number, r->next++);
    while (str_cut(rest, '\n').n > 0)
        ;
}

static void take_batch(struct reader *r, const struct event_batch *b)
{
    struct buf text = {0};
    for (uint32_t i = 0; i < b->n_slices; i++)
        buf_put(&text, b->slices[i].bytes);
    struct str rest = buf_str(&text);
    while (rest.n > 0 && rest.p[0] != ':')
        take_event(r, &rest);
    if (b->next == b->info.tail)
        r->end = b->info.end;
    buf_deinit(&text);
}

/* One batch, if there is one. */
static bool take_next(struct reader *r)
{
    struct event_batch *b;
    if (!r->begun || r->gone || r->gap || r->end != END_NONE)
        return false;
    switch (subscriber_next(&r->sub, &b)) {
    case NEXT_WAIT: return false;
    case NEXT_FAILED:
        assert_int_equal(r->sub.err, ERR_GAP);
        r->gap = true;
        reader_leave(r);
        return false;
    case NEXT_BATCH: break;
    }
    take_batch(r, b);
    event_batch_unref(b);
    return true;
}

static void on_ready(struct subscriber *s)
{
    struct reader *r = container_of(s, struct reader, sub);
    if (!r->lazy)
        while (take_next(r))
            ;
}

static void on_lagged(struct subscriber *s)
{
    struct reader *r = container_of(s, struct reader, sub);
    assert_true(r->lazy);
    reader_leave(r);
}

static void reader_start(struct reader *r, struct store_read *read)
{
    if (r->gone)
        return;
    subscriber_init(&r->sub, &r->world->feeds, NAME, (struct offset){read->info.life, read->start},
                    on_ready);
    subscriber_may_lag(&r->sub, on_lagged);
    subscriber_prime(&r->sub, read);
    r->begun = true;
    pin_remove(&r->place);
    on_ready(&r->sub);
}

static void on_read(struct store_read *read, int err)
{
    struct reader *r = container_of(read, struct reader, read);
    if (err == ERR_GAP && r->next == 0) { /* trimmed while it was being read */
        reader_leave(r);
        return;
    }
    assert_int_equal(err, 0);
    reader_start(r, read);
    store_read_release(read);
}

/* lazy: it takes what it is told to. places: from the first event on, whatever comes meanwhile. */
static struct reader *reader_new(struct world *w, bool lazy, bool places)
{
    struct reader *r = &w->readers[w->n_readers++];
    *r = (struct reader){.world = w, .lazy = lazy, .next = places ? 1 : 0};
    if (places)
        recorder_pin(w->r, &r->place);
    r->read = (struct store_read){
        .name = NAME, .from = READ_START, .max_bytes = EVENT_BATCH_BYTES, .done = on_read};
    return r;
}

static void reader_ask(struct reader *r)
{
    r->asked = true;
    store_read(r->world->store, &r->read);
}

static struct reader *reader_begin(struct world *w, bool lazy)
{
    struct reader *r = reader_new(w, lazy, true);
    reader_ask(r);
    sched_drain(&w->sched);
    return r;
}

/* ---- the upstream ---- */

static void events(struct world *w, uint64_t n, size_t size)
{
    char *data = mem_alloc(size + 1);
    memset(data, 'x', size);
    for (uint64_t i = 0; i < n; i++, w->taken++)
        w->wait |= recorder_event(w->r, STR_NONE, str_of(data, size)) == 0;
    free(data);
    sched_drain(&w->sched);
}

/* ---- one by one ---- */

/* All that is there, as far as a batch goes; and what the recorder does then. */
static void take_one(struct world *w, struct reader *r)
{
    for (int i = 0; i < 5 && !take_next(r); i++)
        sched_drain(&w->sched);
    sched_drain(&w->sched);
}

#define EVENTS(n) ((struct retain){.events = n})

static void test_no_reader_no_wait(void **state)
{
    struct world w;
    world_init(&w, EVENTS(10));
    events(&w, 500, 20);
    assert_int_equal(recorder_seq(w.r), 500);
    world_deinit(&w);
}

static void test_who_reads_gets_all(void **state)
{
    struct world w;
    world_init(&w, EVENTS(10));
    struct reader *r = reader_begin(&w, false);
    events(&w, 500, 20);
    assert_int_equal(recorder_seq(w.r), 500);
    assert_int_equal(r->next, 501);
    world_deinit(&w);
}

static void test_waits_for_who_does_not(void **state)
{
    struct world w;
    world_init(&w, EVENTS(10));
    struct reader *quick = reader_begin(&w, false), *slow = reader_begin(&w, true);
    take_next(slow);
    events(&w, 25, 20);
    assert_int_equal(recorder_seq(w.r), 10);
    assert_int_equal(quick->next, 11);
    take_one(&w, slow);
    assert_int_equal(recorder_seq(w.r), 20);
    take_one(&w, slow);
    assert_int_equal(recorder_seq(w.r), 25);
    take_one(&w, slow);
    assert_int_equal(slow->next, 26);
    assert_int_equal(quick->next, 26);
    assert_int_equal(w.cut, 0);
    world_deinit(&w);
}

static void test_bytes_and_the_largest(void **state)
{
    struct world w;
    world_init(&w, (struct retain){.bytes = 1000});
    struct reader *slow = reader_begin(&w, true);
    take_next(slow);
    events(&w, 3, 5000); /* each of them is more than all that is kept */
    for (uint64_t n = 1; n <= 3; n++) {
        assert_int_equal(recorder_seq(w.r), n);
        take_one(&w, slow);
    }
    assert_int_equal(slow->next, 4);
    world_deinit(&w);
}

static void test_bounds_of_the_store(void **state)
{
    struct world w;
    world_prepare(&w, (struct retain){0});
    struct store *store = mem_store_new(&w.sched);
    store->retain = EVENTS(10);
    world_begin(&w, store);
    sched_drain(&w.sched);
    struct reader *slow = reader_begin(&w, true);
    take_next(slow);
    events(&w, 30, 20);
    assert_int_equal(recorder_seq(w.r), 10);
    world_deinit(&w);
}

static void test_who_is_to_come_has_a_place(void **state)
{
    struct world w;
    world_init(&w, EVENTS(10));
    struct reader *r = reader_new(&w, false, true);
    events(&w, 30, 20);
    assert_int_equal(recorder_seq(w.r), 10);
    pass(&w, 10 * TIMEOUT_MS); /* nobody is there to be cut off */
    pass(&w, 10 * TIMEOUT_MS);
    assert_int_equal(recorder_seq(w.r), 10);
    reader_ask(r);
    sched_drain(&w.sched);
    assert_int_equal(recorder_seq(w.r), 30);
    assert_int_equal(r->next, 31);
    world_deinit(&w);
}

static void test_upstream_is_held_back(void **state)
{
    struct world w;
    world_prepare(&w, EVENTS(10));
    w.config.pending_max = 4096;
    world_begin(&w, mem_store_new(&w.sched));
    sched_drain(&w.sched);
    struct reader *slow = reader_begin(&w, true);
    take_next(slow);
    while (!w.wait)
        events(&w, 1, 100);
    assert_true(w.taken < 60);
    pass(&w, TIMEOUT_MS / 2);
    assert_true(w.wait);
    take_one(&w, slow);
    take_one(&w, slow);
    take_one(&w, slow);
    assert_false(w.wait);
    world_deinit(&w);
}

static void test_laggard_is_cut_off(void **state)
{
    struct world w;
    world_init(&w, EVENTS(10));
    struct reader *quick = reader_begin(&w, false), *slow = reader_begin(&w, true);
    events(&w, 25, 20);
    pass(&w, TIMEOUT_MS - 2 * SCHED_TICK_MS);
    assert_false(slow->gone);
    struct reader *late = reader_begin(&w, true); /* has a time of its own */
    pass(&w, 3 * SCHED_TICK_MS);
    assert_true(slow->gone);
    assert_false(late->gone);
    assert_int_equal(w.cut, 1);
    pass(&w, TIMEOUT_MS + SCHED_TICK_MS);
    assert_true(late->gone);
    sched_drain(&w.sched);
    assert_int_equal(w.cut, 2);
    assert_int_equal(quick->next, 26);
    world_deinit(&w);
}

/* However many come, one after the other, and take nothing: the answer goes on. */
static void test_newcomers_do_not_hold_it_for_ever(void **state)
{
    struct world w;
    world_init(&w, EVENTS(10));
    struct reader *quick = reader_begin(&w, false);
    reader_begin(&w, true);
    events(&w, 25, 20);
    for (int i = 0; i < 4; i++) {
        pass(&w, TIMEOUT_MS / 2);
        reader_begin(&w, true);
    }
    pass(&w, 3 * SCHED_TICK_MS);
    assert_true(quick->next > 11);
    world_deinit(&w);
}

/* Taking something is not enough: the answer must be able to go on. */
static void test_progress_counts(void **state)
{
    struct world w;
    world_init(&w, EVENTS(10));
    struct reader *quick = reader_begin(&w, false), *slow = reader_begin(&w, true);
    take_next(slow);
    events(&w, 200, 20);
    for (uint64_t n = 10; n < 200; n += 10) {
        assert_int_equal(recorder_seq(w.r), n);
        pass(&w, TIMEOUT_MS - 2 * SCHED_TICK_MS);
        take_one(&w, slow);
    }
    assert_int_equal(w.cut, 0);
    assert_int_equal(quick->next, 201);
    world_deinit(&w);
}

static void test_who_leaves_lets_go(void **state)
{
    struct world w;
    world_init(&w, EVENTS(10));
    struct reader *slow = reader_begin(&w, true);
    events(&w, 25, 20);
    assert_int_equal(recorder_seq(w.r), 10);
    reader_leave(slow);
    sched_drain(&w.sched);
    assert_int_equal(recorder_seq(w.r), 25);
    assert_int_equal(w.cut, 0);
    world_deinit(&w);
}

static void test_ends_of_the_upstream_wait(void **state)
{
    static const enum end_reason ends[] = {END_COMPLETED, END_FAILED};
    for (int i = 0; i < 2; i++) {
        struct world w;
        world_prepare(&w, EVENTS(10));
        w.config.folds = i == 0;
        world_begin(&w, mem_store_new(&w.sched));
        sched_drain(&w.sched);
        struct reader *slow = reader_begin(&w, true);
        take_next(slow);
        events(&w, 25, 20);
        recorder_end(w.r, ends[i], STR("why"));
        sched_drain(&w.sched);
        assert_false(w.ended);
        for (unsigned turns = 0; !w.ended; turns++) {
            assert_true(turns < 100);
            take_one(&w, slow);
        }
        take_one(&w, slow);
        assert_int_equal(slow->next, 26);
        assert_int_equal(slow->end, ends[i]);
        assert_int_equal(w.end, ends[i]);
        assert_false(slow->gap);
        world_deinit(&w);
    }
}

static void test_a_stop_does_not_wait(void **state)
{
    static const enum end_reason ends[] = {END_CANCELLED, END_ORPHANED};
    for (int i = 0; i < 2; i++) {
        struct world w;
        world_prepare(&w, EVENTS(10));
        w.config.folds = i == 0;
        world_begin(&w, mem_store_new(&w.sched));
        sched_drain(&w.sched);
        struct reader *slow = reader_begin(&w, true);
        events(&w, 25, 20);
        recorder_end(w.r, ends[i], STR_NONE);
        sched_drain(&w.sched);
        assert_true(w.ended);
        while (take_next(slow) || slow->sub.load != NULL)
            sched_drain(&w.sched);
        assert_int_equal(slow->next, 11);
        assert_int_equal(slow->end, ends[i]);
        world_deinit(&w);
    }
}

/* The upstream has said all, and its end waits; then somebody wants no more. */
static void test_a_stop_behind_an_end(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct world w;
        world_prepare(&w, EVENTS(10));
        w.config.folds = i == 0;
        world_begin(&w, mem_store_new(&w.sched));
        sched_drain(&w.sched);
        struct reader *slow = reader_begin(&w, true);
        events(&w, 25, 20);
        recorder_end_now(w.r, END_CANCELLED); /* there is no end yet */
        recorder_end(w.r, END_COMPLETED, STR_NONE);
        sched_drain(&w.sched);
        assert_false(w.ended);
        recorder_end_now(w.r, END_CANCELLED);
        sched_drain(&w.sched);
        assert_true(w.ended);
        assert_int_equal(w.end, END_CANCELLED);
        while (take_next(slow) || slow->sub.load != NULL)
            sched_drain(&w.sched);
        assert_int_equal(slow->next, 11);
        world_deinit(&w);
    }
}

static void test_free_while_it_waits(void **state)
{
    struct world w;
    world_init(&w, EVENTS(10));
    struct reader *slow = reader_begin(&w, true), *to_come = reader_new(&w, false, true);
    events(&w, 25, 20);
    recorder_free(w.r);
    w.r = NULL;
    pass(&w, 2 * TIMEOUT_MS);
    assert_false(slow->gone);
    reader_leave(to_come);
    while (take_next(slow) || slow->sub.load != NULL)
        sched_drain(&w.sched);
    assert_int_equal(slow->next, 11);
    world_deinit(&w);
}

/* ---- anything at any time ---- */

static struct retain random_retain(struct rng *r)
{
    struct retain retain = {0};
    if (rng_one_in(r, 2))
        retain.events = rng_between(r, 1, 40);
    if (retain.events == 0 || rng_one_in(r, 2))
        retain.bytes = rng_between(r, 1, rng_one_in(r, 3) ? 200000 : 3000);
    return retain;
}

static void random_take(struct world *w, struct rng *r)
{
    for (size_t i = 0; i < w->n_readers; i++)
        if (w->readers[i].lazy && rng_one_in(r, 1 + i))
            take_next(&w->readers[i]);
}

/* Who was there from the start gets every event; who comes later may find that its beginning is
 * gone, or lose a race for it, but from where it reads there is no hole. */
static void random_run(struct world *w, struct rng *r)
{
    uint64_t n = rng_between(r, 1, 400), turns = 0;
    bool ended = false;
    for (uint64_t i = rng_between(r, 1, READERS - 2); i > 0; i--)
        reader_new(w, rng_one_in(r, 2), true);
    size_t starters = w->n_readers;
    while (!w->ended) {
        assert_true(turns++ < TURNS_MAX);
        for (size_t i = 0; i < w->n_readers; i++)
            if (w->started && !w->readers[i].asked && rng_one_in(r, 5))
                reader_ask(&w->readers[i]);
        for (uint64_t more = rng_below(r, 30); more > 0 && w->taken < n && !w->wait; more--) {
            char data[3000] = "";
            size_t size = rng_one_in(r, 20) ? rng_below(r, sizeof data) : rng_below(r, 60);
            memset(data, 'x', size);
            w->wait |= recorder_event(w->r, STR_NONE, str_of(data, size)) == 0;
            w->taken++;
        }
        if (w->taken == n && !ended) {
            recorder_end(w->r, rng_one_in(r, 2) ? END_COMPLETED : END_FAILED, STR("why"));
            ended = true;
        }
        if (w->started && w->n_readers < READERS && rng_one_in(r, 20))
            reader_new(w, rng_one_in(r, 2), false);
        random_take(w, r);
        pass(w, SCHED_TICK_MS);
    }
    for (size_t i = 0; i < starters; i++) {
        struct reader *one = &w->readers[i];
        if (!one->asked)
            reader_ask(one);
        for (turns = 0; one->end == END_NONE && !one->gap; turns++) {
            assert_true(turns < TURNS_MAX);
            take_next(one);
            pass(w, SCHED_TICK_MS);
        }
        assert_false(one->gap);
        assert_int_equal(one->next, n + 1);
    }
    assert_int_equal(w->cut, 0);
}

static void random_world(struct world *w, struct rng *r)
{
    world_prepare(w, random_retain(r));
    w->config.folds = rng_one_in(r, 2);
    w->config.pending_max = rng_one_in(r, 2) ? 2000 : 0;
    w->config.reader_timeout_ms = 3600 * 1000;
}

static void random_delayed(struct rng *r)
{
    struct world w;
    random_world(&w, r);
    world_begin(&w, delay_store_new(mem_store_new(&w.sched), rng_next(r), 5));
    random_run(&w, r);
    world_end(&w);
    while (delay_pending(w.store) > 0)
        pass(&w, SCHED_TICK_MS);
    world_deinit(&w);
}

static void test_random(void **state)
{
    seeds_run(300, random_delayed);
}

static void on_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static void random_embedded(struct rng *r)
{
    struct world w;
    void *ctx;
    bool stopped = false;
    random_world(&w, r);
    world_begin(&w, disk_make(&w.sched, rng_next(r), &ctx));
    random_run(&w, r);
    world_end(&w);
    sched_drain(&w.sched);
    store_stop(w.store, on_stopped, &stopped);
    for (unsigned turns = 0; !stopped; turns++) {
        assert_true(turns < TURNS_MAX);
        pass(&w, SCHED_TICK_MS);
    }
    feeds_deinit(&w.feeds);
    store_free(w.store);
    disk_release(ctx);
}

static void test_random_embedded(void **state)
{
    seeds_run(40, random_embedded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_reader_no_wait),
        cmocka_unit_test(test_who_reads_gets_all),
        cmocka_unit_test(test_waits_for_who_does_not),
        cmocka_unit_test(test_bytes_and_the_largest),
        cmocka_unit_test(test_bounds_of_the_store),
        cmocka_unit_test(test_who_is_to_come_has_a_place),
        cmocka_unit_test(test_upstream_is_held_back),
        cmocka_unit_test(test_laggard_is_cut_off),
        cmocka_unit_test(test_newcomers_do_not_hold_it_for_ever),
        cmocka_unit_test(test_progress_counts),
        cmocka_unit_test(test_who_leaves_lets_go),
        cmocka_unit_test(test_ends_of_the_upstream_wait),
        cmocka_unit_test(test_a_stop_does_not_wait),
        cmocka_unit_test(test_a_stop_behind_an_end),
        cmocka_unit_test(test_free_while_it_waits),
        cmocka_unit_test_teardown(test_random, seeds_teardown),
        cmocka_unit_test_teardown(test_random_embedded, seeds_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
