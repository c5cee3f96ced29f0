// SPDX-License-Identifier: Apache-2.0
/* Checkpoints beside traffic: what goes into one whose work on the loop comes in slices, and the
 * last one before a stop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/catalog/extent.h"
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

/* ---- what a turn of the loop does for one ---- */

#define MANY 60

/* A lane that stands before the store's and counts, whenever it is given a job, what the loop has
 * done since it was given the last. */
struct counter {
    struct lane lane, *inner;
    struct embedded *embedded;
    size_t unseen, held, dirty; /* then: to be looked at, not let go of, to be done again */
    size_t most;                /* that was done at a time */
    size_t cached, most_pushed; /* extents then; that left the cache at a time */
};

static size_t apart(size_t a, size_t b)
{
    return a > b ? a - b : b - a;
}

static void count_work(struct counter *c)
{
    struct embedded *e = c->embedded;
    size_t unseen = 0, held = 0, dirty = 0, at = 0;
    for (struct stream *s; (s = map_next(&e->catalog.streams, &at)) != NULL;) {
        unseen += !list_empty(&s->dirty) && s->dirty_turn != e->dirty_turn;
        dirty += !list_empty(&s->dirty) && s->dirty_turn == e->dirty_turn;
        held += s->pins > 0;
    }
    at = 0;
    for (struct doc *d; (d = map_next(&e->catalog.docs, &at)) != NULL;) {
        unseen += !list_empty(&d->dirty) && d->dirty_turn != e->dirty_turn;
        dirty += !list_empty(&d->dirty) && d->dirty_turn == e->dirty_turn;
    }
    size_t did = apart(unseen, c->unseen) + (apart(held, c->held) + apart(dirty, c->dirty));
    if (c->most < did)
        c->most = did;
    size_t cached = e->cache.extents.n, pushed = c->cached > cached ? c->cached - cached : 0;
    if (c->most_pushed < pushed)
        c->most_pushed = pushed;
    c->cached = cached;
    c->unseen = unseen;
    c->held = held;
    c->dirty = dirty;
}

static void counter_submit(struct lane *l, struct job *j)
{
    struct counter *c = container_of(l, struct counter, lane);
    task_cancel(
        &c->embedded->cache.shrinking); /* what is done in the background is not its doing */
    count_work(c);
    lane_submit(c->inner, j);
}

static void counter_begin(struct counter *c, struct bench *b)
{
    struct embedded *e = embedded_of(b->store);
    *c =
        (struct counter){.lane = {.submit = counter_submit}, .inner = e->lanes.rest, .embedded = e};
    e->lanes.rest = &c->lane;
    count_work(c);
    c->unseen = c->dirty; /* what is dirty when it begins is what it has to look at */
    c->dirty = c->most = 0;
}

static struct bench *begin_with_many(uint32_t slice)
{
    struct bench *b = begin(slice);
    char name[32];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "many/%d", i);
        assert_int_equal(put_doc(b, str_of_cstr(name), STR("value"), 0), 0);
        assert_int_equal(create(b, name, NULL), 0);
    }
    return b;
}

static void await_checkpoint(struct bench *b)
{
    for (int i = 0; embedded_of(b->store)->checkpoint != NULL && i < 10000; i++)
        pass_turns(b, 1);
    assert_null(embedded_of(b->store)->checkpoint);
}

static void run_checkpoint(struct bench *b)
{
    embedded_checkpoint(b->store);
    await_checkpoint(b);
}

/* Streams and documents alike, when it looks at them, lets go of them, or takes them back. A stream
 * that is looked at is held from then on, and one that is taken back is let go of: both count. */
static void test_no_turn_does_much(void **state)
{
    for (int fails = 0; fails < 2; fails++) {
        struct bench *b = begin_with_many(4);
        struct counter c;
        counter_begin(&c, b);
        if (fails)
            simfs_fail(b->fs, SIMFS_CREATE, 1, ERR_IO);
        run_checkpoint(b);
        count_work(&c);
        assert_in_range(c.most, 4, 2 * 4 + 1);
        assert_int_equal(c.unseen + c.held, 0);
        assert_int_equal(c.dirty, fails ? 2 * MANY + NAMES : 0);
        bench_free(b);
    }
}

/* One stream with many producers, or extents, takes a turn for itself. */
static void test_large_streams_are_alone(void **state)
{
    struct bench *b = begin(64);
    struct counter c;
    char id[16];
    for (size_t i = 0; i < NAMES; i++)
        for (int k = 0; k < 512; k++) {
            snprintf(id, sizeof id, "%d", k);
            struct store_write w = {.name = str_of_cstr(name_of(i)),
                                    .data = STR("x"),
                                    .n_events = 1,
                                    .claim = {str_of_cstr(id), 0, 0}};
            assert_int_equal(write_op(b, w), 0);
        }
    counter_begin(&c, b);
    run_checkpoint(b);
    assert_in_range(c.most, 1, 2); /* seen, and held */
    bench_free(b);
}

static void fill_cache(struct cache *c, unsigned n)
{
    c->max = 1 << 20;
    for (unsigned i = 0; i < n; i++) {
        struct extent *x = extent_new(i * 100, i, 8);
        extent_append(x, STR("x"), NULL, 1, 1);
        cache_put(c, 1000000, x);
        extent_unref(x);
    }
    assert_int_equal(c->extents.n, n);
}

/* Where a large extent has come into the cache, each that comes behind it pushes out some: not one
 * slice all of them. */
static void test_what_the_cache_lets_go_of_counts(void **state)
{
    struct bench *b = begin(64);
    struct embedded *e = embedded_of(b->store);
    struct counter c;
    fill_cache(&e->cache, 1000);
    e->cache.max = 4096;
    counter_begin(&c, b);
    run_checkpoint(b);
    assert_in_range(c.most_pushed, 32, 2 * 64);
    bench_free(b);
}

/* ---- documents ---- */

static int show_doc(void *ctx, struct str key, uint64_t version, struct str value)
{
    struct buf *out = ctx;
    buf_put(out, key);
    buf_printf(out, " %" PRIu64 " ", version);
    buf_put(out, value);
    buf_putc(out, '\n');
    return 0;
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The documents that rest, by their keys: the index has them by their digests. */
static void assert_docs_at_rest(struct bench *b, const char *expected)
{
    struct buf found = {0}, sorted = {0};
    char *lines[64];
    size_t n = 0;
    struct index_load load = {.ctx = &found, .doc = show_doc};
    struct index_meta meta;
    assert_int_equal(index_load(embedded_of(b->store)->index, &load, &meta), 0);
    buf_putc(&found, '\0');
    for (char *at = strtok(found.p, "\n"); at != NULL && n < 64; at = strtok(NULL, "\n"))
        lines[n++] = at;
    qsort(lines, n, sizeof *lines, compare_lines);
    for (size_t i = 0; i < n; i++)
        buf_printf(&sorted, "%s\n", lines[i]);
    buf_putc(&sorted, '\0');
    assert_string_equal(sorted.p, expected);
    buf_deinit(&found);
    buf_deinit(&sorted);
}

static void assert_docs(struct bench *b, const char *expected)
{
    struct buf shown = {0};
    struct listing l = {.op = {.limit = 100, .done = on_docs}, .out = &shown, .err = PENDING};
    store_docs(b->store, &l.op);
    assert_int_equal(await(b, &l.err), 0);
    buf_putc(&shown, '\0');
    assert_string_equal(shown.p, expected);
    buf_deinit(&shown);
}

static void put_first_docs(struct bench *b)
{
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(put_doc(b, str_of_cstr(name_of(i)), STR("before"), 0), 0);
}

/* One is changed, one removed, one removed and made anew, one made and one left as it is. */
static void change_docs(struct bench *b)
{
    assert_int_equal(put_doc(b, STR("a"), STR("after"), 1), 0);
    assert_int_equal(put_doc(b, STR("b"), STR_NONE, 1), 0);
    assert_int_equal(put_doc(b, STR("c"), STR_NONE, 1), 0);
    assert_int_equal(put_doc(b, STR("c"), STR("anew"), 0), 0);
    assert_int_equal(put_doc(b, STR("f"), STR("first"), 0), 0);
}
static const char *const docs_before =
    "a 1 before\nb 1 before\nc 1 before\nd 1 before\ne 1 before\n";
static const char *const docs_after = "a 2 after\nc 1 anew\nd 1 before\ne 1 before\nf 1 first\n";

/* Documents that change after the cut, and before the checkpoint has looked at them. */
static void test_documents_of_one_moment(void **state)
{
    struct bench *b = begin(1);
    put_first_docs(b);
    simlane_hold(b->lanes.rest, true);
    embedded_checkpoint(b->store);
    change_docs(b);
    assert_docs(b, docs_after);
    simlane_hold(b->lanes.rest, false);
    pass_turns(b, 300);
    assert_null(embedded_of(b->store)->checkpoint);
    assert_docs_at_rest(b, docs_before);
    run_checkpoint(b);
    assert_docs_at_rest(b, docs_after);
    assert_int_equal(embedded_of(b->store)->catalog.docs.n, 5); /* what is gone is forgotten */
    die(b);
    assert_true(bench_open(b));
    assert_docs(b, docs_after);
    bench_free(b);
}

static void assert_known(struct bench *b, const char *name)
{
    struct writing w = {.op = {.name = str_of_cstr(name),
                               .data = STR("claimed"),
                               .n_events = 1,
                               .claim = {STR("p"), 0, 0},
                               .done = on_written},
                        .err = PENDING};
    store_write(b->store, &w.op);
    assert_int_equal(await(b, &w.err), 0);
    assert_true(w.op.duplicate);
}

/* It fails, and is taken back a little at a time, while streams and documents change, go, and are
 * made anew. The next one has all of it, for the journal is not asked for it any more. */
static void test_taken_back_beside_changes(void **state)
{
    struct bench *b = begin(1);
    struct embedded *e = embedded_of(b->store);
    run_checkpoint(b);
    put_first_docs(b);
    assert_int_equal(remove_stream(b, "h"), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(write_op(b, (struct store_write){.name = str_of_cstr(name_of(i)),
                                                          .data = STR(" claimed"),
                                                          .n_events = 1,
                                                          .claim = {STR("p"), 0, 0}}),
                         0);
    simfs_fail(b->fs, SIMFS_CREATE, 1, ERR_IO);
    embedded_checkpoint(b->store);
    for (int i = 0; e->n_dirty + e->n_dirty_docs == 0 && i < 1000; i++)
        pass_turns(b, 1); /* until the first is taken back */
    simlane_hold(b->lanes.rest, true);
    assert_int_equal(e->n_dirty + e->n_dirty_docs, 1);
    change_docs(b);
    assert_int_equal(append(b, "a", STR(" after")), 0);
    assert_int_equal(remove_stream(b, "b"), 0);
    assert_int_equal(remove_stream(b, "g"), 0);
    assert_int_equal(create(b, "g", NULL), 0);
    simlane_hold(b->lanes.rest, false);
    await_checkpoint(b);
    assert_docs_at_rest(b, "");
    run_checkpoint(b);
    assert_docs_at_rest(b, docs_after);
    assert_int_equal(journal_bytes(e->journal), 0);
    die(b);
    assert_true(bench_open(b));
    assert_docs(b, docs_after);
    assert_shows(b, "a", "before claimed after\n");
    assert_shows(b, "c", "before claimed\n");
    assert_shows(b, "f", "before\n");
    assert_shows(b, "g", "\n");
    assert_known(b, "a");
    assert_known(b, "d");
    assert_int_equal(append(b, "b", STR("x")), ERR_NOT_FOUND);
    assert_int_equal(append(b, "h", STR("x")), ERR_NOT_FOUND);
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_snapshot_is_of_one_moment),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_changes_while_it_ends),
        cmocka_unit_test(test_last_before_a_stop),
        cmocka_unit_test(test_last_comes_to_nothing),
        cmocka_unit_test(test_no_turn_does_much),
        cmocka_unit_test(test_large_streams_are_alone),
        cmocka_unit_test(test_what_the_cache_lets_go_of_counts),
        cmocka_unit_test(test_documents_of_one_moment),
        cmocka_unit_test(test_taken_back_beside_changes),
    };
    return cmocka_run_group_tests_name("store/rest", tests, NULL, NULL);
}
