// SPDX-License-Identifier: Apache-2.0
/* Large appends, whose data the store keeps and writes from where it lies: the same in memory,
 * after a crash, and after a checkpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/embedded/embedded_core.h"
#include "unit/store/store_bench.h"

#define EVENTS 5000

struct large {
    struct block *block;
    uint32_t ends[EVENTS];
};

/* Events of several lengths, all together about this many bytes. */
static void large_init(struct large *l, size_t bytes)
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

static struct store_write write_of(const struct large *l)
{
    return (struct store_write){.name = STR("a"),
                                .block = l->block,
                                .data = str_of(l->block->bytes, l->block->n),
                                .ends = l->ends,
                                .n_events = EVENTS,
                                .claim = {STR("p"), 0, 0},
                                .seq = STR("s")};
}

static void assert_kept(struct bench *b, const struct large *l)
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

static void check(size_t bytes)
{
    struct bench *b = bench_new(1);
    struct large l;
    b->config.journal.file_bytes = 8 << 20;
    large_init(&l, bytes);
    assert_true(bench_open(b));
    assert_int_equal(create(b, "a", NULL), 0);
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
    check(200 << 10);
}

static void test_in_a_batch_of_its_own(void **state)
{
    check(3 << 20);
}

/* A scratch buffer of the size of the largest append ever would stay for good. */
static void test_no_copy_is_left(void **state)
{
    struct bench *b = bench_new(1);
    struct large l;
    b->config.journal.file_bytes = 8 << 20;
    large_init(&l, 3 << 20);
    assert_true(bench_open(b));
    assert_int_equal(create(b, "a", NULL), 0);
    assert_int_equal(write_op(b, write_of(&l)), 0);
    assert_true(embedded_of(b->store)->scratch.cap < 1 << 20);
    block_unref(l.block);
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_a_batch_with_others),
        cmocka_unit_test(test_in_a_batch_of_its_own),
        cmocka_unit_test(test_no_copy_is_left),
    };
    return cmocka_run_group_tests_name("unit/store/embedded/large", tests, NULL, NULL);
}
