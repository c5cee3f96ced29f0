// SPDX-License-Identifier: Apache-2.0
/* What stays in Redis, what goes, and what of it is listed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/store/redis/redis_store_world.h"

/* One event each, many at a time. */
static void append_many(struct place *p, struct store *s, size_t n, struct str data)
{
    enum { AT_ONCE = 500 };
    struct waited *ops = mem_zalloc(AT_ONCE * sizeof *ops);
    for (size_t begun = 0; begun < n; begun += AT_ONCE) {
        size_t now = n - begun < AT_ONCE ? n - begun : AT_ONCE;
        for (size_t i = 0; i < now; i++) {
            ops[i] = (struct waited){.u.write = {.name = STR("s"), .data = data, .done = on_write}};
            store_write(s, &ops[i].u.write);
        }
        for (size_t i = 0; i < now; i++) {
            turn_until(p, &ops[i].done);
            assert_int_equal(ops[i].err, 0);
        }
    }
    free(ops);
}

/* Entries that Redis holds of a stream. */
static long long held(struct place *p, uint64_t life)
{
    return ask(p, "XLEN t:sse:buffer:{s}:%llu", (unsigned long long)life);
}

/* However much is trimmed at a time, all of it leaves. */
static void test_much_that_is_trimmed_leaves_redis(void **state)
{
    enum { KEEP = 16000, NODE = 128 };
    struct place *p = enter("");
    struct stream_config c = plain;
    c.retain.events = KEEP;
    make(p, "s", &c);
    append_many(p, p->a, 2 * KEEP + KEEP / 2, STR("x"));
    struct stream_info info = look(p, "s", 0);
    assert_in_range(info.events - info.first_event, KEEP, KEEP + KEEP / 8);
    assert_in_range(held(p, info.life), KEEP, KEEP + KEEP / 8 + NODE);
    leave(p);
}

static void test_what_no_fork_needs_leaves_redis(void **state)
{
    enum { KEEP = 800 };
    struct place *p = enter("");
    struct stream_config c = plain, f = plain;
    c.retain.events = KEEP;
    make(p, "s", &c);
    append(p, "s", "shared");
    f.fork_of = STR("s");
    f.fork_at_tail = true;
    make(p, "f", &f);
    append_many(p, p->a, 5 * KEEP, STR("x"));
    struct stream_info info = look(p, "s", 0);
    assert_true(info.first_event > KEEP);
    assert_in_range(held(p, info.life), KEEP, KEEP + KEEP / 4);
    struct store_read r = {.from = READ_START};
    assert_int_equal(read_at(p, "f", &r), 0);
    expect_text(&r, "shared");
    leave(p);
}

/* ---- by age ---- */

/* Nobody writes any more: it is a sweep that trims, and it does not take forever. */
static void test_old_events_of_an_idle_stream_go(void **state)
{
    enum { EVENTS = 2000, HOUR_MS = 3600 * 1000 };
    struct place *p = enter("");
    struct sched clock;
    struct store *s = open_with_clock(p, &clock);
    struct stream_config c = plain;
    c.retain.age_ms = HOUR_MS;
    struct store_write w = {.name = STR("s"), .create = &c};
    assert_int_equal(do_write(p, s, &w), 0);
    append_many(p, s, EVENTS, STR("x"));
    pass(p, &clock, HOUR_MS / 2);
    append_many(p, s, 1, STR("young"));

    for (int i = 0; i < 8; i++)
        pass(p, &clock, HOUR_MS / 10);
    struct stream_info info = look(p, "s", 0);
    assert_int_equal(info.first_event, EVENTS);
    assert_int_equal(info.events, EVENTS + 1);
    assert_in_range(held(p, info.life), 1, 128);
    close_store(p, s);
    leave(p);
}

/* ---- holes ---- */

/* As if another Redis had taken the last append. */
static void be_another(struct place *p, const char *name)
{
    assert_int_equal(ask(p, "HSET t:sse:state:{%s}:%s run another", name, name), 0);
}

static void test_a_fork_knows_the_holes_of_its_source(void **state)
{
    struct place *p = enter("");
    struct stream_config c = plain, f = plain;
    c.retain.bytes = 8;
    make(p, "s", &c);
    append(p, "s", "aaaa");
    be_another(p, "s");
    append(p, "s", "b");
    f.fork_of = STR("s");
    f.fork_at_tail = true;
    make(p, "f", &f);
    append(p, "f", "cc");
    assert_int_equal(look(p, "f", 0).first_event, 0);
    append(p, "f", "ddd");
    assert_int_equal(look(p, "f", 0).first_event, 1);
    leave(p);
}

/* More of them than are remembered: what is kept is not less for it. */
static void test_many_holes(void **state)
{
    enum { HOLES = 40 };
    struct place *p = enter("");
    struct stream_config c = plain;
    c.retain.bytes = 2 * HOLES;
    make(p, "s", &c);
    for (int i = 0; i < HOLES; i++) {
        append(p, "s", "x");
        be_another(p, "s");
    }
    struct stream_info info = look(p, "s", 0);
    assert_int_equal(info.events, HOLES);
    assert_int_equal(info.first_event, 0);
    leave(p);
}

/* A fork that was made right behind one has nothing there yet. */
static void test_a_fork_behind_a_hole(void **state)
{
    struct place *p = enter("");
    struct stream_config f = plain;
    make(p, "s", &plain);
    append(p, "s", "a");
    be_another(p, "s");
    struct offset behind = append(p, "s", "b");
    f.fork_of = STR("s");
    f.fork_at = (struct offset){behind.life, behind.pos - 1};
    make(p, "f", &f);
    struct store_read r = {.from = READ_START};
    assert_int_equal(read_at(p, "f", &r), 0);
    expect_text(&r, "a");
    struct offset edge = {r.info.life, r.next};
    r = expect_read(p, "f", edge, "");
    assert_int_equal(r.next, r.info.tail);
    append(p, "f", "c");
    r = expect_read(p, "f", edge, "c");
    assert_int_equal(r.ordinal, 1);
    leave(p);
}

/* More than Redis can count to is as good as no bound. */
static void test_bounds_beyond_counting(void **state)
{
    struct place *p = enter("");
    struct stream_config c = plain;
    c.retain.events = INT64_MAX;
    make(p, "s", &c);
    append(p, "s", "a");
    assert_in_range(look(p, "s", 0).retain.events, INT32_MAX, INT64_MAX);
    leave(p);
}

/* ---- listings ---- */

static void on_list(struct store_list *l, int err)
{
    struct waited *w = container_of(l, struct waited, u.list);
    w->err = err;
    w->done = true;
    assert_int_equal(l->n_rows, 2);
    assert_true(str_eq(l->rows[0].name, STR("-")));
    assert_true(str_eq(l->rows[1].name, STR("t")));
    assert_false(l->more);
}

/* Names that nobody is to see, pages of them, are passed over once. */
static void test_reserved_names_are_passed_over(void **state)
{
    static const char *const kinds[] = {".route/", ".tool/", "sessions/"};
    struct place *p = enter("");
    make(p, "-", &plain);
    make(p, "t", &plain);
    for (int i = 0; i < 3 * 80; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%d", kinds[i % 3], i);
        make(p, name, &plain);
    }
    struct waited list = {.u.list = {.limit = 9, .done = on_list}};
    store_list(p->b, &list.u.list);
    turn_until(p, &list.done);
    assert_int_equal(list.err, 0);
    leave(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_much_that_is_trimmed_leaves_redis),
        cmocka_unit_test(test_what_no_fork_needs_leaves_redis),
        cmocka_unit_test(test_old_events_of_an_idle_stream_go),
        cmocka_unit_test(test_a_fork_knows_the_holes_of_its_source),
        cmocka_unit_test(test_many_holes),
        cmocka_unit_test(test_a_fork_behind_a_hole),
        cmocka_unit_test(test_bounds_beyond_counting),
        cmocka_unit_test(test_reserved_names_are_passed_over),
    };
    signal(SIGPIPE, SIG_IGN);
    if (!redis_server_installed()) {
        print_message("redis-server is not installed: skipped\n");
        return 0;
    }
    return cmocka_run_group_tests_name("redis_store_retain", tests, NULL, NULL);
}
