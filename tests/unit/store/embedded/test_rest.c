// SPDX-License-Identifier: Apache-2.0
/* Checkpoints beside traffic: what goes into one whose work on the loop comes in slices, and the
 * last one before a stop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/embedded/embedded_core.h"
#include "unit/store/store_bench.h"

static struct bench *begin(uint32_t slice)
{
    struct bench *b = bench_new(1);
    b->config.rest_slice = slice;
    b->config.rest_at_stop = true;
    assert_true(bench_open(b));
    for (size_t i = 0; i < NAMES; i++) {
        assert_int_equal(create(b, name_of(i), NULL), 0);
        assert_int_equal(append(b, name_of(i), STR("before")), 0);
    }
    return b;
}

static int add_block(void *ctx, const struct block_info *info)
{
    *(uint64_t *)ctx += info->end - info->first;
    return 0;
}

static uint64_t bytes_at_rest(struct bench *b)
{
    uint64_t n = 0;
    struct segment_scan scan = {.ctx = &n, .block = add_block};
    assert_int_equal(segment_scan(simfs_vfs(b->fs), 1, &scan), 0);
    return n;
}

static void die(struct bench *b)
{
    simfs_cut_power_at(b->fs, 1);
    append(b, "h", STR("lost"));
    bench_close(b);
    simfs_kill(b->fs);
}

/* Streams that change, go and are forked after the cut, and before the checkpoint has looked at
 * them: it has them as they were. */
static void test_snapshot_is_of_one_moment(void **state)
{
    struct bench *b = begin(1);
    simlane_hold(b->lanes.rest, true);
    embedded_checkpoint(b->store);
    assert_non_null(embedded_of(b->store)->checkpoint);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(append(b, name_of(i), STR(" after")), 0);
    assert_int_equal(remove_stream(b, "e"), 0);
    assert_int_equal(remove_stream(b, "f"), 0);
    assert_int_equal(create(b, "f", "g"), 0);
    assert_int_equal(append(b, "f", STR(" fork")), 0);
    simlane_hold(b->lanes.rest, false);
    pass_turns(b, 300);
    assert_null(embedded_of(b->store)->checkpoint);
    assert_int_equal(bytes_at_rest(b), NAMES * 6);
    assert_int_equal(embedded_unrested(b->store), 4 * 6 + 5);
    die(b);
    assert_true(bench_open(b)); /* what came after the cut is replayed upon what came before */
    for (size_t i = 0; i < 4; i++)
        assert_shows(b, name_of(i), "before after\n");
    assert_int_equal(append(b, "e", STR("x")), ERR_NOT_FOUND);
    assert_shows(b, "f", "before fork\n");
    assert_shows(b, "g", "before\n");
    bench_free(b);
}

/* Each slice lets the loop go on; with large ones there is none but the first. */
static unsigned turns_of_a_checkpoint(uint32_t slice)
{
    struct bench *b = begin(slice);
    unsigned turns = 0;
    embedded_checkpoint(b->store);
    while (embedded_of(b->store)->checkpoint != NULL && turns++ < 1000)
        pass_turns(b, 1);
    assert_int_equal(embedded_unrested(b->store), 0);
    bench_free(b);
    return turns;
}

static void test_slices(void **state)
{
    unsigned whole = turns_of_a_checkpoint(100), sliced = turns_of_a_checkpoint(1);
    assert_true(whole < 10);
    assert_true(sliced >= whole + 2 * (NAMES - 1) / 2); /* a lane takes a turn, or none */
}

/* What is let go of some at a time can be read, changed and removed meanwhile. */
static void test_changes_while_it_ends(void **state)
{
    struct bench *b = begin(1);
    uint64_t turns = 0;
    embedded_checkpoint(b->store);
    while (simfs_content(b->fs, "segments/00000001.s").p == NULL && turns++ < 1000)
        pass_turns(b, 1);
    simlane_hold(b->lanes.rest, true);
    assert_non_null(embedded_of(b->store)->checkpoint);
    assert_int_equal(append(b, "a", STR(" after")), 0);
    assert_int_equal(append(b, "h", STR(" after")), 0);
    assert_int_equal(remove_stream(b, "d"), 0);
    assert_int_equal(create(b, "d", "h"), 0);
    assert_int_equal(remove_stream(b, "h"), 0);
    assert_shows(b, "a", "before after\n");
    assert_shows(b, "d", "before after\n");
    simlane_hold(b->lanes.rest, false);
    pass_turns(b, 300);
    assert_null(embedded_of(b->store)->checkpoint);
    assert_shows(b, "d", "before after\n");
    checkpoint(b);
    die(b);
    assert_true(bench_open(b));
    assert_shows(b, "a", "before after\n");
    assert_shows(b, "d", "before after\n");
    assert_shows(b, "c", "before\n");
    assert_int_equal(append(b, "h", STR("x")), ERR_DELETED);
    bench_free(b);
}

static uint64_t last_segment(struct bench *b)
{
    uint64_t *ids, last;
    size_t n;
    assert_int_equal(segment_list(simfs_vfs(b->fs), &ids, &n), 0);
    last = n > 0 ? ids[n - 1] : 0;
    free(ids);
    return last;
}

/* How many segments there are when a store has been stopped, and when it has been opened again. */
static void count_segments(bool rest_at_stop, bool under_way, uint64_t *stopped, uint64_t *opened)
{
    struct bench *b = begin(1);
    struct embedded *e = embedded_of(b->store);
    e->config.rest_at_stop = rest_at_stop;
    if (under_way) {
        embedded_checkpoint(b->store);
        assert_int_equal(append(b, "a", STR(" after")), 0);
    }
    bench_close(b);
    *stopped = last_segment(b);
    assert_true(bench_open(b));
    *opened = embedded_of(b->store)->meta.next_segment - 1;
    assert_shows(b, "a", under_way ? "before after\n" : "before\n");
    bench_free(b);
}

static void test_last_before_a_stop(void **state)
{
    uint64_t stopped, opened;
    count_segments(true, false, &stopped, &opened);
    assert_int_equal(stopped, 1);
    assert_int_equal(opened, 1); /* there was nothing to replay */
    count_segments(true, true, &stopped, &opened);
    assert_int_equal(stopped, 2); /* what came behind the one under way as well */
    assert_int_equal(opened, 2);
    count_segments(false, false, &stopped, &opened);
    assert_int_equal(stopped, 0);
    assert_int_equal(opened, 1);
}

/* A disk that fails does not keep it from stopping. */
static void test_last_comes_to_nothing(void **state)
{
    struct bench *b = begin(1);
    simfs_fail(b->fs, SIMFS_CREATE, 1, ERR_IO);
    bench_close(b);
    assert_int_equal(last_segment(b), 0);
    assert_true(bench_open(b));
    assert_shows(b, "a", "before\n");
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_snapshot_is_of_one_moment), cmocka_unit_test(test_slices),
        cmocka_unit_test(test_changes_while_it_ends),     cmocka_unit_test(test_last_before_a_stop),
        cmocka_unit_test(test_last_comes_to_nothing),
    };
    return cmocka_run_group_tests_name("store/rest", tests, NULL, NULL);
}
