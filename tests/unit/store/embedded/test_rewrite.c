// SPDX-License-Identifier: Apache-2.0
/* Segments of which little is live, whose blocks are taken elsewhere so that the files can go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/embedded/embedded_core.h"
#include "unit/store/store_bench.h"

#define BIG  20000
#define LONG 300 /* turns: more than a checkpoint for the sake of the disk waits */

static char big[BIG];

/* Segment 1 has "kept", of stream a, and much of stream b; the stores that follow are tidy at the
 * slightest occasion. */
static struct bench *begin(uint64_t rewrite_bytes)
{
    struct bench *b = bench_new(1);
    memset(big, 'x', sizeof big);
    b->config.rest.base_bytes = 2000;
    b->config.rest.rewrite_bytes = rewrite_bytes;
    assert_true(bench_open(b));
    assert_int_equal(create(b, "a", NULL), 0);
    assert_int_equal(append(b, "a", STR("kept")), 0);
    assert_int_equal(create(b, "b", NULL), 0);
    assert_int_equal(append(b, "b", str_of(big, BIG)), 0);
    checkpoint(b);
    return b;
}

static bool is_there(struct bench *b, uint64_t segment)
{
    char name[SEGMENT_NAME_MAX];
    segment_name(segment, name);
    return simfs_content(b->fs, name).p != NULL;
}

static int add_live_bytes(void *ctx, const struct index_segment *s)
{
    *(uint64_t *)ctx += s->live_bytes;
    return 0;
}

static uint64_t live_bytes(struct bench *b)
{
    uint64_t n = 0;
    struct index_load load = {.ctx = &n, .segment = add_live_bytes};
    struct index_meta meta;
    assert_int_equal(index_load(embedded_of(b->store)->index, &load, &meta), 0);
    return n;
}

/* What the store takes its files to be is what they are. */
static void assert_accounted(struct bench *b)
{
    uint64_t *ids, bytes = simfs_content(b->fs, "segments/reserve").n;
    size_t n;
    assert_int_equal(segment_list(simfs_vfs(b->fs), &ids, &n), 0);
    for (size_t i = 0; i < n; i++) {
        char name[SEGMENT_NAME_MAX];
        segment_name(ids[i], name);
        bytes += simfs_content(b->fs, name).n;
    }
    free(ids);
    assert_int_equal(embedded_of(b->store)->segment_bytes, bytes);
}

static void test_sparse_segment_goes(void **state)
{
    struct bench *b = begin(1 << 20);
    uint64_t before = simfs_bytes(b->fs);
    assert_true(is_there(b, 1));
    assert_int_equal(embedded_rewritten(b->store), 0);
    assert_int_equal(remove_stream(b, "b"), 0);
    checkpoint(b);
    pass_turns(b, LONG);
    assert_int_equal(embedded_rewritten(b->store), 1);
    assert_false(is_there(b, 1));
    assert_true(simfs_bytes(b->fs) < before - BIG);
    assert_shows(b, "a", "kept\na: 0");
    assert_accounted(b);
    /* and that was all: nothing is moved for nothing, and no checkpoint is made */
    uint64_t next = embedded_of(b->store)->meta.next_segment;
    pass_turns(b, 10 * LONG);
    assert_int_equal(embedded_of(b->store)->meta.next_segment, next);
    assert_int_equal(embedded_rewritten(b->store), 1);
    bench_close(b);
    assert_true(bench_open(b));
    assert_shows(b, "a", "kept\na: 0");
    bench_free(b);
}

/* Rows of forks, of which one ends within the block, all follow it; its bytes are copied once. */
static void test_forks_share_what_is_moved(void **state)
{
    struct bench *b = begin(1 << 20);
    assert_int_equal(append(b, "a", STR("more")), 0);
    assert_int_equal(create(b, "c", "a"), 0);
    checkpoint(b);
    assert_int_equal(create(b, "d", "c"), 0);
    checkpoint(b);
    struct stream_config config = {.fork_of = STR("a"),
                                   .fork_at = {1, 0},
                                   .fork_sub = 2, /* bytes */
                                   .ttl_s = STORE_TTL_NONE,
                                   .expires_ms = STORE_TTL_NONE};
    assert_int_equal(write_op(b, (struct store_write){.name = STR("e"), .create = &config}), 0);
    checkpoint(b);
    uint64_t live = live_bytes(b);
    assert_int_equal(remove_stream(b, "a"), 0); /* its name stays, for the forks */
    assert_int_equal(remove_stream(b, "b"), 0);
    checkpoint(b);
    pass_turns(b, LONG);
    assert_true(embedded_rewritten(b->store) >= 1);
    assert_false(is_there(b, 1));
    assert_true(live_bytes(b) < live - BIG && live_bytes(b) < 200); /* two blocks, not six */
    assert_accounted(b);
    for (int again = 0; again < 2; again++) {
        assert_shows(b, "c", "keptmore\nc: 0");
        assert_shows(b, "d", "keptmore\nd: 0");
        assert_shows(b, "e", "ke\ne: 0");
        bench_close(b);
        struct rebuild r = {0};
        assert_true(index_is_rebuilt(simfs_vfs(b->fs), b->index, &r));
        index_forget(b->index);
        assert_true(bench_open(b));
    }
    bench_free(b);
}

/* More is live than may be moved at a time. */
static void test_a_little_at_a_time(void **state)
{
    struct bench *b = begin(1000);
    static const char *const names[] = {"c", "d", "e", "f", "g"};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(create(b, names[i], NULL), 0);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(append(b, names[i], str_of(big, 700)), 0);
    assert_int_equal(append(b, "b", str_of(big, BIG)), 0);
    checkpoint(b); /* segment 2 */
    assert_int_equal(remove_stream(b, "b"), 0);
    embedded_checkpoint(b->store);
    uint64_t steps = 0, before = 0;
    for (int i = 0; i < 1000 && (is_there(b, 1) || is_there(b, 2)); i++) {
        pass_turns(b, 1);
        uint64_t now = embedded_rewritten(b->store);
        assert_true(now - before <= 3); /* 1000 bytes are passed with the second or third */
        steps += now > before;
        before = now;
    }
    assert_false(is_there(b, 1) || is_there(b, 2));
    pass_turns(b, LONG);
    assert_in_range(steps, 2, 6);
    assert_int_equal(embedded_rewritten(b->store), 6); /* each once */
    for (size_t i = 0; i < 5; i++)
        assert_shows(b, names[i], "xxxxxxx");
    assert_accounted(b);
    bench_free(b);
}

/* What does not verify stays where it is, and nobody tries it again and again. */
static void test_damaged_block_is_left(void **state)
{
    struct bench *b = begin(1 << 20);
    assert_int_equal(create(b, "c", NULL), 0);
    assert_int_equal(append(b, "c", STR("broken")), 0);
    assert_int_equal(append(b, "b", str_of(big, BIG)), 0);
    assert_int_equal(append(b, "a", STR("too")), 0);
    checkpoint(b); /* segment 2 */
    damage_text(b, 2, STR("broken"));
    assert_int_equal(remove_stream(b, "b"), 0);
    checkpoint(b);
    pass_turns(b, LONG);
    assert_int_equal(embedded_rewritten(b->store), 2);
    assert_false(is_there(b, 1));
    assert_true(is_there(b, 2));
    uint64_t next = embedded_of(b->store)->meta.next_segment;
    pass_turns(b, 10 * LONG);
    assert_int_equal(embedded_of(b->store)->meta.next_segment, next);
    assert_shows(b, "a", "kepttoo\na: 0");
    struct buf shown = {0};
    show_stream(b, "c", &shown);
    assert_false(str_starts(buf_str(&shown), STR("broken")));
    shown.n = 0;
    damage_text(b, 2, STR("croken")); /* undone */
    show_stream(b, "c", &shown);
    assert_true(str_starts(buf_str(&shown), STR("broken\nc: 0")));
    assert_int_equal(append(b, "c", STR(" no more")), 0);
    checkpoint(b);
    pass_turns(b, LONG);
    assert_false(is_there(b, 2)); /* with the next checkpoint it is moved as well */
    assert_shows(b, "c", "broken no more\nc: 0");
    buf_deinit(&shown);
    bench_free(b);
}

/* Removed by the checkpoint that moves it: it does not come back. */
static void test_removed_while_it_moves(void **state)
{
    struct bench *b = begin(0);
    struct rebuild r = {0};
    assert_int_equal(remove_stream(b, "b"), 0);
    checkpoint(b);
    pass_turns(b, LONG); /* a base, so that segment 1 could be rewritten */
    bench_close(b);
    b->config.rest.rewrite_bytes = 1 << 20;
    assert_true(bench_open(b));
    assert_true(is_there(b, 1));
    assert_int_equal(remove_stream(b, "a"), 0);
    checkpoint(b);
    assert_int_equal(embedded_rewritten(b->store), 1); /* in vain, but so it was */
    assert_false(is_there(b, 1));
    assert_int_equal(live_bytes(b), 0);
    assert_int_equal(append(b, "a", STR("x")), ERR_NOT_FOUND);
    bench_close(b);
    assert_true(index_is_rebuilt(simfs_vfs(b->fs), b->index, &r));
    assert_int_equal(r.blocks + r.streams, 0);
    bench_free(b);
}

/* Between the look at the index and that into the file the block has moved, and the file is gone;
 * one that is nowhere is damage after all. */
static void test_read_beside_a_move(void **state)
{
    struct bench *b = begin(1 << 20);
    bench_close(b);
    assert_true(bench_open(b)); /* nothing of it in memory */
    simfs_fail(b->fs, SIMFS_OPEN, 1, ERR_NOT_FOUND);
    uint64_t opens = simfs_calls(b->fs, SIMFS_OPEN);
    assert_shows(b, "a", "kept\na: 0");
    assert_int_equal(simfs_calls(b->fs, SIMFS_OPEN), opens + 2);
    assert_int_equal(segment_remove(simfs_vfs(b->fs), 1), 0);
    opens = simfs_calls(b->fs, SIMFS_OPEN);
    struct buf shown = {0};
    show_stream(b, "a", &shown);
    assert_true(str_starts(buf_str(&shown), STR("\na: -")));
    assert_true(simfs_calls(b->fs, SIMFS_OPEN) <= opens + 5);
    buf_deinit(&shown);
    bench_free(b);
}

/* A full disk on which everything is half dead: the reserve is enough to get out of that. */
static void test_full_disk(void **state)
{
    struct bench *b = begin(1 << 20);
    checkpoint(b);
    uint64_t full = simfs_bytes(b->fs);
    simfs_set_capacity(b->fs, full);
    assert_int_equal(remove_stream(b, "b"), 0);
    checkpoint(b);
    pass_turns(b, LONG);
    assert_false(is_there(b, 1));
    assert_true(simfs_bytes(b->fs) < full - BIG / 2);
    assert_shows(b, "a", "kept\na: 0");
    assert_accounted(b);
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sparse_segment_goes),
        cmocka_unit_test(test_forks_share_what_is_moved),
        cmocka_unit_test(test_a_little_at_a_time),
        cmocka_unit_test(test_damaged_block_is_left),
        cmocka_unit_test(test_removed_while_it_moves),
        cmocka_unit_test(test_read_beside_a_move),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests_name("store/rewrite", tests, NULL, NULL);
}
