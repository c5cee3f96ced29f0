// SPDX-License-Identifier: Apache-2.0
/* How calls wait, and are answered: many that one sync has made durable, or that had no room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/embedded/embedded_core.h"
#include "unit/store/store_bench.h"

#define CALLS 1000

/* Calls of one turn, and how many were answered before somebody else had his turn. */
struct crowd {
    struct bench *bench;
    struct store_put puts[CALLS];
    struct doc_put docs[CALLS];
    char keys[CALLS][12];
    struct task other;
    unsigned done, failed, largest, last; /* last: when the other had his turn */
    unsigned next;                        /* in order, this one is answered */
    uint64_t answer_us;                   /* what an answer takes */
};

static uint64_t now_ns; /* cmocka runs one test at a time */

static uint64_t read_clock(void)
{
    return now_ns;
}

static void on_other(struct task *t)
{
    struct crowd *c = container_of(t, struct crowd, other);
    if (c->done - c->last > c->largest)
        c->largest = c->done - c->last;
    c->last = c->done;
}

static struct crowd *the_crowd;

static void on_one(struct store_put *p, int err)
{
    struct crowd *c = the_crowd;
    assert_int_equal(p - c->puts, c->next++);
    c->done++;
    c->failed += err != 0;
    now_ns += c->answer_us * 1000;
    sched_post(&c->bench->sched, &c->other);
}

static void put_all(struct crowd *c)
{
    for (unsigned i = 0; i < CALLS; i++) {
        snprintf(c->keys[i], sizeof c->keys[i], "%u", i);
        c->docs[i] = (struct doc_put){str_of_cstr(c->keys[i]), STR("value"), 0};
        c->puts[i] = (struct store_put){.docs = &c->docs[i], .n_docs = 1, .done = on_one};
        store_put(c->bench->store, &c->puts[i]);
    }
}

static struct crowd *crowd_new(uint64_t first_bytes)
{
    struct crowd *c = the_crowd = mem_zalloc(sizeof *c);
    c->bench = bench_new(1);
    c->bench->config.journal.file_bytes = 1u << 20;
    c->bench->config.journal.first_bytes = first_bytes;
    task_init(&c->other, on_other);
    assert_true(bench_open(c->bench));
    return c;
}

static void crowd_free(struct crowd *c)
{
    bench_free(c->bench);
    free(c);
}

/* One sync answers all of them, in order; but others are served in between. */
static void test_answers_come_in_slices(void **state)
{
    struct crowd *c = crowd_new(1u << 20);
    put_all(c);
    pass_turns(c->bench, 50);
    assert_int_equal(c->done, CALLS);
    assert_int_equal(c->failed, 0);
    assert_in_range(c->largest, 1, c->bench->config.call_slice);
    crowd_free(c);
}

static void pass_timed_turns(struct crowd *c, int n)
{
    while (n-- > 0) {
        sched_look(&c->bench->sched);
        pass_turns(c->bench, 1);
        sched_end_turn(&c->bench->sched);
    }
}

/* Fewer where one takes long: what comes of it is done there and then. */
static void test_slow_answers_come_in_short_slices(void **state)
{
    struct crowd *c = crowd_new(1u << 20);
    c->answer_us = SCHED_PIECE_US / 4;
    c->bench->sched.clock_ns = read_clock;
    put_all(c);
    pass_timed_turns(c, 50 + CALLS);
    assert_int_equal(c->done, CALLS);
    assert_in_range(c->largest, 4, 8);
    c->bench->sched.clock_ns = NULL;
    crowd_free(c);
}

/* The sync fails: so many are told so, some at a time. */
static void test_failures_come_in_slices(void **state)
{
    struct crowd *c = crowd_new(1u << 20);
    simlane_hold(c->bench->lanes.prepare, true);
    simfs_fail(c->bench->fs, SIMFS_SYNC, 1, ERR_IO);
    put_all(c);
    pass_turns(c->bench, 50);
    simlane_hold(c->bench->lanes.prepare, false);
    assert_int_equal(c->done, CALLS);
    assert_int_equal(c->failed, CALLS);
    assert_in_range(c->largest, 1, c->bench->config.call_slice);
    crowd_free(c);
}

/* There was no room for any of them; then there is room for all. */
static void test_stalled_calls_run_in_slices(void **state)
{
    struct crowd *c = crowd_new(JOURNAL_FILE_MIN);
    struct embedded *e = embedded_of(c->bench->store);
    simlane_hold(c->bench->lanes.prepare, true);
    simlane_hold(c->bench->lanes.journal, true);
    put_all(c);
    pass_turns(c->bench, 2);
    assert_int_equal(c->done, 0);
    bool stalled = !list_empty(&e->stalled);
    simlane_hold(c->bench->lanes.prepare, false);
    simlane_hold(c->bench->lanes.journal, false);
    pass_turns(c->bench, 50);
    assert_true(stalled);
    assert_int_equal(c->done, CALLS);
    assert_int_equal(c->failed, 0);
    assert_in_range(c->largest, 1, c->bench->config.call_slice);
    crowd_free(c);
}

/* ---- beside a checkpoint ---- */

#define APPENDS 200

struct appending {
    struct bench *bench;
    struct store_write writes[APPENDS];
    unsigned done;
    const struct stream *stream;
};

static struct appending *the_appending;

static void on_append(struct store_write *w, int err)
{
    struct appending *a = the_appending;
    assert_int_equal(err, 0);
    assert_int_equal(w - a->writes, a->done++);
    assert_true(a->stream->tape.first <= a->stream->settled_tail);
    assert_int_equal(stream_info_of(a->stream).events, a->done);
}

/* The lane is quick, and those whose answers wait are many: what they have written comes to rest,
 * but not out of memory before it is settled. */
static void test_what_rests_is_settled(void **state)
{
    struct appending *a = the_appending = mem_zalloc(sizeof *a);
    struct bench *b = a->bench = bench_new(1);
    b->config.journal.file_bytes = 1u << 20;
    b->config.call_slice = 1;
    assert_true(bench_open(b));
    struct embedded *e = embedded_of(b->store);
    lane_free(b->lanes.rest);
    e->lanes.rest = b->lanes.rest = simlane_new(&b->sched, 1, 0);
    assert_int_equal(create(b, "a", NULL), 0);
    a->stream = map_get(&e->catalog.streams, STR("a"));
    simlane_hold(b->lanes.journal, true);
    for (unsigned i = 0; i < APPENDS; i++) {
        a->writes[i] = (struct store_write){
            .name = STR("a"), .data = STR("x"), .n_events = 1, .done = on_append};
        store_write(b->store, &a->writes[i]);
    }
    pass_turns(b, 1);
    embedded_checkpoint(b->store);
    simlane_hold(b->lanes.journal, false);
    pass_turns(b, 50);
    assert_int_equal(a->done, APPENDS);
    assert_null(e->checkpoint);
    assert_int_equal(a->stream->tape.first, APPENDS);
    bench_free(b);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_come_in_slices),
        cmocka_unit_test(test_slow_answers_come_in_short_slices),
        cmocka_unit_test(test_failures_come_in_slices),
        cmocka_unit_test(test_stalled_calls_run_in_slices),
        cmocka_unit_test(test_what_rests_is_settled),
    };
    return cmocka_run_group_tests_name("store/call", tests, NULL, NULL);
}
