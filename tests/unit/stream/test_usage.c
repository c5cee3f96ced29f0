// SPDX-License-Identifier: Apache-2.0
/* What is stored below roots, counted in a store in memory whose turns the test drives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/sched.h"
#include "store/mem/mem_store.h"
#include "store/store.h"
#include "stream/usage.h"

#define START_MS 1000000

struct site {
    struct sched sched;
    struct store *store;
    struct usage *usage;
};

static void turn(struct site *s, uint64_t passed_ms)
{
    sched_turn(&s->sched, s->sched.now_ms + passed_ms, s->sched.wall_ms + (int64_t)passed_ms);
    for (int i = 0; i < 100; i++)
        sched_turn(&s->sched, s->sched.now_ms, s->sched.wall_ms);
}

static int set_up(void **state)
{
    struct site *s = mem_zalloc(sizeof *s);
    sched_init(&s->sched, START_MS, START_MS);
    s->store = mem_store_new(&s->sched);
    s->usage = usage_new(&s->sched, s->store);
    *state = s;
    return 0;
}

static void on_stopped(void *ctx)
{
}

static int tear_down(void **state)
{
    struct site *s = *state;
    usage_stop(s->usage);
    store_stop(s->store, on_stopped, NULL);
    turn(s, 0);
    usage_free(s->usage);
    store_free(s->store);
    free(s);
    return 0;
}

/* ---- the store ---- */

static void on_written(struct store_write *w, int err)
{
    assert_int_equal(err, 0);
}

static void write_stream(struct site *s, const char *name, size_t bytes)
{
    static const char data[4096];
    struct stream_config config = {.content_type = STR("application/octet-stream"),
                                   .ttl_s = STORE_TTL_NONE,
                                   .expires_ms = STORE_TTL_NONE};
    struct store_write w = {.name = str_of_cstr(name),
                            .create = &config,
                            .data = str_of(data, bytes),
                            .done = on_written};
    assert_true(bytes <= sizeof data);
    store_write(s->store, &w);
    turn(s, 0);
}

static void on_removed(struct store_remove *r, int err)
{
    assert_int_equal(err, 0);
}

static void remove_stream(struct site *s, const char *name)
{
    struct store_remove r = {.name = str_of_cstr(name), .done = on_removed};
    store_remove(s->store, &r);
    turn(s, 0);
}

/* ---- claims ---- */

struct
try {
    struct usage_claim claim;
    enum usage_answer answer;
    bool waited;
};

static void on_claim(struct usage_claim *c, enum usage_answer answer)
{
    container_of(c, struct try, claim)->answer = answer;
}

static void begin(struct site *s, struct try *t, uint64_t streams, uint64_t bytes)
{
    t->claim = (struct usage_claim){.root = STR("t/a/"),
                                    .streams = streams,
                                    .bytes = bytes,
                                    .streams_max = 10,
                                    .bytes_max = 1000,
                                    .done = on_claim};
    t->answer = usage_take(s->usage, &t->claim);
    t->waited = t->answer == USAGE_WAITS;
}

/* What is answered in the end; what was granted is settled as if it had been written, or not. */
static enum usage_answer claim(struct site *s, uint64_t streams, uint64_t bytes, bool written)
{
    struct try t;
    begin(s, &t, streams, bytes);
    if (t.waited)
        turn(s, 0);
    assert_int_not_equal(t.answer, USAGE_WAITS);
    usage_settle(s->usage, &t.claim, written ? streams : 0, written ? bytes : 0);
    return t.answer;
}

static void fill(struct site *s, int n, size_t bytes)
{
    char name[32];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "t/a/%d", i);
        write_stream(s, name, bytes);
    }
}

/* ---- tests ---- */

static void test_first_counts_what_is_there(void **state)
{
    struct site *s = *state;
    struct try t;
    fill(s, 9, 100);
    write_stream(s, "t/b/x", 4000); /* others' */
    write_stream(s, "t/a", 4000);
    begin(s, &t, 1, 100);
    assert_true(t.waited);
    turn(s, 0);
    assert_int_equal(t.answer, USAGE_GRANTED);
    assert_int_equal(claim(s, 1, 0, false), USAGE_REFUSED); /* one is on its way */
    usage_settle(s->usage, &t.claim, 0, 0);
    assert_int_equal(claim(s, 1, 101, false), USAGE_REFUSED);
    assert_int_equal(claim(s, 0, 101, false), USAGE_REFUSED);
    assert_int_equal(claim(s, 0, 100, false), USAGE_GRANTED);
}

static void test_pages(void **state)
{
    struct site *s = *state;
    struct try t;
    char name[32];
    for (int i = 0; i < 2500; i++) {
        snprintf(name, sizeof name, "t/a/%d", i);
        write_stream(s, name, 1);
    }
    begin(s, &t, 1, 0);
    t.claim.streams_max = 2500; /* it waits */
    t.claim.bytes_max = 0;
    turn(s, 0);
    assert_int_equal(t.answer, USAGE_REFUSED);
    begin(s, &t, 1, 0);
    turn(s, 0);
    assert_int_equal(t.answer, USAGE_REFUSED);
    t.claim.streams_max = 2501;
    t.claim.bytes_max = 2500;
    t.claim.bytes = 0;
    assert_int_equal(usage_take(s->usage, &t.claim), USAGE_GRANTED);
    usage_settle(s->usage, &t.claim, 0, 0);
}

static void test_own_writes_count_at_once(void **state)
{
    struct site *s = *state;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(claim(s, 1, 10, true), USAGE_GRANTED);
        fill(s, i + 1, 10); /* only the last one is new */
    }
    assert_int_equal(claim(s, 1, 10, true), USAGE_REFUSED);
    assert_int_equal(claim(s, 0, 10, false), USAGE_GRANTED);
}

/* Writes that are under way all count, whatever becomes of them. */
static void test_many_at_once(void **state)
{
    struct site *s = *state;
    struct try t[30];
    int granted = 0;
    for (int i = 0; i < 30; i++)
        begin(s, &t[i], 1, 0);
    turn(s, 0);
    for (int i = 0; i < 30; i++)
        granted += t[i].answer == USAGE_GRANTED;
    assert_int_equal(granted, 10);
    for (int i = 0; i < 30; i++)
        usage_settle(s->usage, &t[i].claim, 0, 0); /* none was created */
    assert_int_equal(claim(s, 1, 0, false), USAGE_GRANTED);
}

static void test_deleted_streams_make_room(void **state)
{
    struct site *s = *state;
    struct try t;
    fill(s, 10, 1);
    assert_int_equal(claim(s, 1, 0, false), USAGE_REFUSED);
    begin(s, &t, 1, 0);
    assert_false(t.waited); /* the count is fresh: nothing is listed for it */
    assert_int_equal(t.answer, USAGE_REFUSED);
    remove_stream(s, "t/a/3");
    usage_deleted(s->usage, STR("t/a/"));
    assert_int_equal(claim(s, 1, 0, false), USAGE_GRANTED);
    remove_stream(s, "t/a/4"); /* by another process: seen a second later */
    turn(s, USAGE_FRESH_MS);
    assert_int_equal(claim(s, 1, 0, true), USAGE_GRANTED);
    assert_int_equal(claim(s, 1, 0, true), USAGE_GRANTED);
}

static void test_others_writes_are_seen_later(void **state)
{
    struct site *s = *state;
    assert_int_equal(claim(s, 1, 0, false), USAGE_GRANTED);
    fill(s, 10, 1); /* another process */
    assert_int_equal(claim(s, 1, 0, false), USAGE_GRANTED);
    turn(s, USAGE_RECOUNT_MS);
    assert_int_equal(claim(s, 1, 0, false), USAGE_GRANTED); /* it is counted meanwhile */
    turn(s, 0);
    assert_int_equal(claim(s, 1, 0, false), USAGE_REFUSED);
}

static void test_idle_roots_are_forgotten(void **state)
{
    struct site *s = *state;
    struct try t;
    assert_int_equal(claim(s, 1, 0, false), USAGE_GRANTED);
    turn(s, USAGE_IDLE_MS);
    t.claim = (struct usage_claim){.root = STR("t/new/"), .streams = 1, .done = on_claim};
    t.answer = usage_take(s->usage, &t.claim);
    turn(s, 0);
    usage_settle(s->usage, &t.claim, 0, 0);
    begin(s, &t, 1, 0);
    assert_true(t.waited); /* it is counted anew */
    turn(s, 0);
    usage_settle(s->usage, &t.claim, 0, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_first_counts_what_is_there), TEST(test_pages),
        TEST(test_own_writes_count_at_once),   TEST(test_many_at_once),
        TEST(test_deleted_streams_make_room),  TEST(test_others_writes_are_seen_later),
        TEST(test_idle_roots_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
