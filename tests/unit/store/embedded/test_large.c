// SPDX-License-Identifier: Apache-2.0
/* Large appends, whose data the store keeps and writes from where it lies: the same in memory,
 * after a crash, and after a checkpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/pack.h"
#include "store/embedded/embedded_core.h"
#include "unit/store/store_bench.h"

#include <sys/mman.h>

#define EVENTS 5000

struct items {
    struct block *block;
    uint32_t ends[EVENTS];
};

/* Events of several lengths, all together about this many bytes. */
static void large_init(struct items *l, size_t bytes)
{
    struct rng rng = {.state = bytes};
    struct buf data = {0};
    for (uint32_t i = 0; i < EVENTS; i++) {
        size_t n = rng_between(&rng, 1, 2 * bytes / EVENTS);
        memset(buf_reserve(&data, n), 'a' + (int)(i % 26), n);
        data.n += n;
        l->ends[i] = (uint32_t)data.n;
    }
    l->block = block_of(buf_str(&data));
    buf_deinit(&data);
}

static struct store_write write_of(const struct items *l)
{
    return (struct store_write){.name = STR("a"),
                                .block = l->block,
                                .data = str_of(l->block->bytes, l->block->n),
                                .ends = l->ends,
                                .n_events = EVENTS,
                                .claim = {STR("p"), 0, 0},
                                .seq = STR("s")};
}

static void assert_kept(struct bench *b, const struct items *l)
{
    struct buf shown = {0}, expected = {0};
    buf_put(&expected, str_of(l->block->bytes, l->block->n));
    buf_printf(&expected, "\na: 0, life 1, tail %u\n", l->block->n);
    show_stream(b, "a", &shown);
    assert_true(str_eq(buf_str(&shown), buf_str(&expected)));
    buf_deinit(&shown);
    buf_deinit(&expected);
    /* each event is found by its number: its end is known */
    for (uint64_t i = 1; i < EVENTS; i += 777) {
        struct buf one = {0};
        struct reading r = {.op = {.name = STR("a"),
                                   .from = READ_EVENT,
                                   .event = i,
                                   .max_bytes = 1,
                                   .done = on_read},
                            .out = &one,
                            .err = PENDING};
        store_read(b->store, &r.op);
        assert_int_equal(await(b, &r.err), 0);
        assert_int_equal(r.op.start, l->ends[i - 1]);
        assert_int_equal(r.op.next, l->ends[i]);
        buf_deinit(&one);
    }
    struct store_write again = write_of(l);
    again.data_err = ERR_JSON; /* a duplicate, or it would be refused */
    assert_int_equal(write_op(b, again), 0);
}

static void die(struct bench *b)
{
    simfs_cut_power_at(b->fs, 1);
    create(b, "lost", NULL);
    bench_close(b);
    simfs_crash(b->fs, 3);
    assert_true(bench_open(b));
}

/* There may be a million events, so the loop goes through none of them: the store keeps the memory
 * of their ends, and writes down the steps as they are. Whoever looks at `ends` itself dies. */
static void write_prepared(struct bench *b, const struct items *l)
{
    struct buf ends = {0}, steps = {0};
    struct store_write w = write_of(l);
    void *closed = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(closed, MAP_FAILED);
    buf_put(&ends, str_of((const char *)l->ends, sizeof l->ends));
    pack_steps(&steps, l->ends, EVENTS - 1);
    w.ends = closed;
    w.ends_in = &ends;
    w.steps = buf_str(&steps);
    assert_int_equal(write_op(b, w), 0);
    assert_null(ends.p);
    buf_deinit(&steps);
    munmap(closed, 4096);
}

static void check(size_t bytes, bool prepared)
{
    struct bench *b = bench_new(1);
    struct items l;
    b->config.journal.file_bytes = 8 << 20;
    large_init(&l, bytes);
    assert_true(bench_open(b));
    assert_int_equal(create(b, "a", NULL), 0);
    if (prepared)
        write_prepared(b, &l);
    else
        assert_int_equal(write_op(b, write_of(&l)), 0);
    assert_int_equal(l.block->refs, 2); /* not copied, and the journal has let go of it */
    assert_kept(b, &l);
    die(b);
    assert_kept(b, &l);
    assert_int_equal(l.block->refs, 1);
    checkpoint(b);
    assert_kept(b, &l);
    die(b);
    assert_kept(b, &l);
    block_unref(l.block);
    bench_free(b);
}

static void test_in_a_batch_with_others(void **state)
{
    check(200 << 10, false);
    check(200 << 10, true);
}

static void test_in_parts(void **state)
{
    check(3 << 20, false);
    check(3 << 20, true);
}

/* ---- in parts, with others and with accidents ---- */

#define PART  (16 << 10)
#define PARTS 20 /* at least */

static struct bench *bench_with_parts(uint64_t seed)
{
    struct bench *b = bench_new(seed);
    b->config.journal.file_bytes = 64 << 10;
    b->config.large_bytes = 70000;
    b->config.part_bytes = PART;
    assert_true(bench_open(b));
    assert_int_equal(create(b, "a", NULL), 0);
    assert_int_equal(create(b, "b", NULL), 0);
    return b;
}

static void begin(struct bench *b, const struct items *l, struct writing *w)
{
    *w = (struct writing){.op = write_of(l), .err = PENDING};
    w->op.done = on_written;
    store_write(b->store, &w->op);
}

/* Small writes of others do not wait for it: each is answered while it is under way. */
static void test_others_are_answered_meanwhile(void **state)
{
    struct bench *b = bench_with_parts(1);
    struct items l;
    struct writing w;
    unsigned n = 0;
    large_init(&l, (PARTS + 2) * PART);
    begin(b, &l, &w);
    for (; w.err == PENDING && n < 1000; n++)
        assert_int_equal(append(b, "b", STR("x")), 0);
    assert_true(n >= PARTS / 4);
    assert_int_equal(w.err, 0);
    assert_kept(b, &l);
    block_unref(l.block);
    bench_free(b);
}

/* What cannot be applied is not put; what cannot be any more when all is there, is not applied. */
static void test_is_judged_before_and_behind(void **state)
{
    struct bench *b = bench_with_parts(1);
    struct items l;
    struct writing w;
    large_init(&l, (PARTS + 2) * PART);
    begin(b, &l, &w);
    pass_turns(b, 5);
    assert_int_equal(w.err, PENDING);
    assert_int_equal(remove_stream(b, "a"), 0);
    assert_int_equal(await(b, &w.err), ERR_NOT_FOUND);
    uint64_t writes = simfs_calls(b->fs, SIMFS_WRITE);
    begin(b, &l, &w);
    assert_int_equal(await(b, &w.err), ERR_NOT_FOUND);
    assert_int_equal(simfs_calls(b->fs, SIMFS_WRITE), writes);
    block_unref(l.block);
    bench_free(b);
}

static void test_several_at_once_and_a_stop(void **state)
{
    struct bench *b = bench_with_parts(1);
    struct items l;
    struct writing w[3];
    large_init(&l, (PARTS + 2) * PART);
    for (int i = 0; i < 3; i++) {
        begin(b, &l, &w[i]);
        w[i].op.claim = (struct producer_claim){0};
        w[i].op.seq = STR_NONE;
    }
    pass_turns(b, 10);
    bench_close(b);
    for (int i = 0; i < 3; i++)
        assert_int_equal(w[i].err, 0);
    assert_true(bench_open(b));
    struct buf shown = {0};
    show_stream(b, "a", &shown);
    assert_true(shown.n > 3 * l.block->n && shown.p[3 * l.block->n] == '\n');
    buf_deinit(&shown);
    block_unref(l.block);
    bench_free(b);
}

/* Whatever is cut off where, a crash leaves all of it or nothing, and what was told is there. */
static bool crash_at(uint64_t calls, unsigned checkpoint_after)
{
    struct bench *b = bench_with_parts(calls);
    struct items l;
    struct writing w;
    unsigned small = 0;
    large_init(&l, (PARTS + 2) * PART);
    begin(b, &l, &w);
    simfs_cut_power_at(b->fs, calls);
    for (unsigned i = 0; i < 60 && !simfs_is_off(b->fs); i++) {
        if (i == checkpoint_after)
            embedded_checkpoint(b->store);
        small += append(b, "b", STR("x")) == 0;
    }
    bool cut = simfs_is_off(b->fs);
    bench_close(b);
    simfs_crash(b->fs, calls);
    assert_true(bench_open(b));
    struct buf shown = {0};
    show_stream(b, "a", &shown);
    bool whole = shown.n > l.block->n;
    assert_true(whole || w.err != 0);
    if (whole)
        assert_kept(b, &l);
    else
        assert_int_equal(shown.p[0], '\n');
    shown.n = 0;
    show_stream(b, "b", &shown);
    assert_true(strspn(shown.p, "x") >= small);
    buf_deinit(&shown);
    block_unref(l.block);
    bench_free(b);
    return cut;
}

static void test_crashes(void **state)
{
    static const unsigned checkpoints[] = {1000, 3, 12};
    for (size_t i = 0; i < 3; i++)
        for (uint64_t n = 1; crash_at(n, checkpoints[i]) && n < 200; n += 3)
            ;
}

/* A checkpoint comes between its parts again and again: then it is put as one, and waits for a file
 * that has the room. */
static void test_it_is_put_in_the_end(void **state)
{
    struct bench *b = bench_with_parts(1);
    struct items l;
    struct writing w;
    unsigned turns = 0;
    large_init(&l, (PARTS + 2) * PART);
    begin(b, &l, &w);
    for (; w.err == PENDING && turns < TURNS_MAX; turns++) {
        pass_turns(b, 1);
        embedded_checkpoint(b->store);
    }
    assert_int_equal(w.err, 0);
    assert_true(embedded_of(b->store)->large.tries > 0);
    assert_kept(b, &l);
    block_unref(l.block);
    bench_free(b);
}

/* One that waits for room waits no more when the journal has ended. */
static void test_it_does_not_wait_for_a_journal_that_failed(void **state)
{
    struct bench *b = bench_new(1);
    struct items l;
    struct writing w;
    b->config.journal.file_bytes = 64 << 10;
    b->config.journal_max = (PARTS + 2) * PART;
    b->config.large_bytes = 70000;
    b->config.part_bytes = PART;
    assert_true(bench_open(b));
    assert_int_equal(create(b, "a", NULL), 0);
    large_init(&l, (PARTS + 2) * PART);
    simlane_hold(b->lanes.rest, true);
    begin(b, &l, &w);
    pass_turns(b, 10);
    assert_int_equal(w.err, PENDING);
    simfs_fail(b->fs, SIMFS_SYNC, 1, ERR_IO);
    assert_int_equal(create(b, "b", NULL), ERR_IO);
    pass_turns(b, 10);
    assert_int_equal(w.err, ERR_IO);
    simlane_hold(b->lanes.rest, false);
    block_unref(l.block);
    bench_free(b);
}

/* Several wait for room in vain, and as long as one of them would. */
static void test_they_wait_for_room_together(void **state)
{
    struct bench *b = bench_new(1);
    struct items l;
    struct writing w[4];
    unsigned turns = 0, first = 0, n = 0;
    b->config.journal.file_bytes = 64 << 10;
    b->config.journal_max = (PARTS + 2) * PART;
    b->config.large_bytes = 70000;
    b->config.part_bytes = PART;
    assert_true(bench_open(b));
    assert_int_equal(create(b, "a", NULL), 0);
    large_init(&l, (PARTS + 2) * PART);
    simlane_hold(b->lanes.rest, true);
    for (size_t i = 0; i < 4; i++) {
        w[i] = (struct writing){.op = write_of(&l), .err = PENDING};
        w[i].op.claim = (struct producer_claim){0};
        w[i].op.seq = STR_NONE;
        w[i].op.done = on_written;
        store_write(b->store, &w[i].op);
    }
    for (; n < 4 && turns < 4 * TURNS_MAX; turns++) {
        pass_turns(b, 1);
        n = 0;
        for (size_t i = 0; i < 4; i++)
            n += w[i].err != PENDING;
        if (n > 0 && first == 0)
            first = turns;
    }
    assert_int_equal(n, 4);
    assert_true(first > 0 && turns < first + 100);
    simlane_hold(b->lanes.rest, false);
    block_unref(l.block);
    bench_free(b);
}

/* ---- no answer before it is durable ---- */

#define BIG (JOURNAL_BATCH_BYTES - 4000) /* the ends of so many events do not fit in beside it */

/* A write that begins again when it is answered, so that each batch has one. */
struct pinger {
    struct store_write op;
    struct bench *bench;
    bool last;
    int err;
};

static void on_ping(struct store_write *w, int err)
{
    struct pinger *p = container_of(w, struct pinger, op);
    p->err = err;
    if (err == 0 && !p->last)
        store_write(p->bench->store, w);
}

static void on_told(struct store_write *w, int err)
{
    container_of(w, struct writing, op)->err = err;
    assert_true(w->call.batch <= journal_durable(embedded_of(w->call.store)->journal));
}

/* The last part becomes durable, and with it a write of somebody else. Two batches are full behind
 * it, so that the record comes into a third. */
static void test_is_answered_when_its_own_batch_is_durable(void **state)
{
    struct bench *b = bench_new(1);
    struct items l;
    struct writing w, big[2];
    char *bytes = mem_zalloc(BIG);
    struct pinger p = {.op = {.name = STR("b"), .data = STR("x"), .n_events = 1, .done = on_ping},
                       .bench = b};
    b->config.journal.file_bytes = b->config.journal.first_bytes = 16 << 20;
    b->config.large_bytes = 70000;
    b->config.part_bytes = PART;
    large_init(&l, 6 * PART);
    assert_true(bench_open(b));
    struct embedded *e = embedded_of(b->store);
    assert_int_equal(create(b, "a", NULL), 0);
    assert_int_equal(create(b, "b", NULL), 0);
    store_write(b->store, &p.op);
    begin(b, &l, &w);
    w.op.done = on_told;
    for (int i = 0; i < 100 && e->large.at < l.block->n; i++)
        pass_turns(b, 1);
    simlane_hold(b->lanes.journal, true);
    p.last = true;
    for (int i = 0; i < 2; i++) {
        big[i] = (struct writing){.op = {.name = STR("b"), .data = str_of(bytes, BIG)}};
        big[i].op.n_events = 1;
        big[i].op.done = on_written;
        store_write(b->store, &big[i].op);
    }
    pass_turns(b, 2);
    assert_int_equal(e->large.at, l.block->n);
    assert_int_equal(p.op.call.batch, journal_durable(e->journal) + 1); /* as the last part */
    simlane_hold(b->lanes.journal, false);
    assert_int_equal(await(b, &w.err), 0);
    assert_true(w.op.call.batch > big[1].op.call.batch);
    block_unref(l.block);
    free(bytes);
    bench_free(b);
}

/* A scratch buffer of the size of the largest append ever would stay for good. */
static void test_no_copy_is_left(void **state)
{
    struct bench *b = bench_new(1);
    struct items l;
    b->config.journal.file_bytes = 8 << 20;
    large_init(&l, 3 << 20);
    assert_true(bench_open(b));
    assert_int_equal(create(b, "a", NULL), 0);
    assert_int_equal(write_op(b, write_of(&l)), 0);
    assert_true(embedded_of(b->store)->scratch.cap <= 1 << 20);
    block_unref(l.block);
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_a_batch_with_others),
        cmocka_unit_test(test_in_parts),
        cmocka_unit_test(test_others_are_answered_meanwhile),
        cmocka_unit_test(test_is_judged_before_and_behind),
        cmocka_unit_test(test_several_at_once_and_a_stop),
        cmocka_unit_test(test_crashes),
        cmocka_unit_test(test_it_is_put_in_the_end),
        cmocka_unit_test(test_it_does_not_wait_for_a_journal_that_failed),
        cmocka_unit_test(test_they_wait_for_room_together),
        cmocka_unit_test(test_is_answered_when_its_own_batch_is_durable),
        cmocka_unit_test(test_no_copy_is_left),
    };
    return cmocka_run_group_tests_name("unit/store/embedded/large", tests, NULL, NULL);
}
