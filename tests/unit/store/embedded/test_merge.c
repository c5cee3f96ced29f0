// SPDX-License-Identifier: Apache-2.0
/* Small blocks of a stream that become larger ones, and what is read of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/embedded/embedded_core.h"
#include "store/embedded/merge.h"
#include "store/embedded/pace.h"
#include "unit/store/store_bench.h"

#define SEEDS 20

static struct bench *begin(uint64_t seed)
{
    struct bench *b = bench_new(seed);
    b->config.rest.rewrite_bytes = 1 << 20;
    assert_true(bench_open(b));
    return b;
}

static struct index *index_of(struct bench *b)
{
    return embedded_of(b->store)->index;
}

/* A checkpoint, with no more turns than it takes. */
static void rest(struct bench *b)
{
    embedded_checkpoint(b->store);
    for (int i = 0; i < TURNS_MAX && embedded_of(b->store)->checkpoint != NULL; i++)
        pass_turns(b, 1);
}

/* ---- rows ---- */

struct rows {
    struct block_info items[2000];
    size_t n;
};

static int take_row(void *ctx, const struct block_info *b)
{
    struct rows *r = ctx;
    assert_true(r->n < sizeof r->items / sizeof *r->items);
    r->items[r->n++] = *b;
    return 0;
}

/* Of a life; they follow one another without a gap. */
static struct rows rows_of(struct bench *b, uint64_t life)
{
    struct rows r = {.n = 0};
    assert_int_equal(index_blocks(index_of(b), life, 0, take_row, &r), 0);
    for (size_t i = 1; i < r.n; i++) {
        assert_int_equal(r.items[i].first, r.items[i - 1].end);
        assert_int_equal(r.items[i].ordinal, r.items[i - 1].ordinal + r.items[i - 1].events);
        assert_true(r.items[i].oldest_ms >= r.items[i - 1].newest_ms);
    }
    return r;
}

static void assert_rebuilds(struct bench *b)
{
    bench_close(b);
    struct rebuild r = {0};
    assert_true(index_is_rebuilt(simfs_vfs(b->fs), b->index, &r));
    assert_true(bench_open(b));
}

/* ---- one event a checkpoint ---- */

static struct str event_text(char *out, unsigned i)
{
    return str_of(out, (size_t)snprintf(out, 64, "event %u of a stream;", i));
}

static void append_slowly(struct bench *b, const char *name, unsigned from, unsigned to)
{
    char text[64];
    for (unsigned i = from; i < to; i++) {
        assert_int_equal(append(b, name, event_text(text, i)), 0);
        rest(b);
    }
}

static void assert_events(struct bench *b, const char *name, unsigned n)
{
    struct buf want = {0};
    char text[64];
    for (unsigned i = 0; i < n; i++)
        buf_put(&want, event_text(text, i));
    buf_putc(&want, '\0');
    assert_shows(b, name, want.p);
    buf_deinit(&want);
}

/* By their ordinals. */
static void assert_ordinals(struct bench *b, const char *name, unsigned n)
{
    char text[64];
    for (unsigned i = 0; i < n; i += 1 + i / 50) {
        struct buf out = {0};
        struct reading r = {.op = {.name = str_of_cstr(name),
                                   .from = READ_EVENT,
                                   .event = i,
                                   .max_bytes = 1,
                                   .done = on_read},
                            .out = &out,
                            .err = PENDING};
        store_read(b->store, &r.op);
        assert_int_equal(await(b, &r.err), 0);
        assert_int_equal(r.op.ordinal, i);
        assert_true(str_eq(buf_str(&out), event_text(text, i)));
        buf_deinit(&out);
    }
}

static unsigned logarithm(uint64_t n, unsigned base)
{
    unsigned levels = 0;
    for (; n > 0; n /= base)
        levels++;
    return levels;
}

static void test_blocks_are_few(void **state)
{
    struct bench *b = begin(1);
    const unsigned all = 1200, fan = b->config.rest.merge_fan;
    assert_int_equal(create(b, "a", NULL), 0);
    for (unsigned n = 0; n < all; n += 100) {
        append_slowly(b, "a", n, n + 100);
        struct rows r = rows_of(b, 1);
        uint64_t bytes = r.items[r.n - 1].end;
        assert_int_equal(r.items[0].first, 0);
        assert_int_equal(r.items[r.n - 1].ordinal + r.items[r.n - 1].events, n + 100);
        assert_true(r.n <= fan * logarithm(n + 100, fan) + 2 * bytes / MERGE_BYTES);
    }
    print_message("%u events, %zu blocks, %" PRIu64 " merged\n", all, rows_of(b, 1).n,
                  embedded_merged(b->store));
    assert_true(embedded_merged(b->store) > all);
    assert_events(b, "a", all);
    assert_ordinals(b, "a", all);
    assert_rebuilds(b);
    assert_events(b, "a", all);
    assert_ordinals(b, "a", all);
    bench_free(b);
}

/* ---- against a plain list ---- */

struct append_made {
    uint64_t end;    /* position */
    uint64_t events; /* in the stream, with it */
    int64_t ms;
};

struct model {
    struct buf bytes;   /* of the stream */
    struct buf ends;    /* uint64_t: where each event ends */
    struct buf appends; /* struct append_made */
};

static void model_free(struct model *m)
{
    buf_deinit(&m->bytes);
    buf_deinit(&m->ends);
    buf_deinit(&m->appends);
}

static size_t events_in(const struct model *m)
{
    return m->ends.n / sizeof(uint64_t);
}

static uint64_t event_end(const struct model *m, size_t i)
{
    return ((const uint64_t *)(const void *)m->ends.p)[i];
}

/* By the extent in memory. */
static int64_t last_append_ms(struct bench *b, const char *name)
{
    const struct stream *s = map_get(&embedded_of(b->store)->catalog.streams, str_of_cstr(name));
    uint64_t end;
    return tape_extent(&s->tape, s->tape.n - 1, &end)->newest_ms;
}

static void append_some(struct bench *b, struct model *m, const char *name)
{
    char bytes[4000];
    uint32_t ends[5], n = (uint32_t)rng_between(&b->rng, 1, 5), total = 0;
    for (uint32_t i = 0; i < n; i++)
        ends[i] = total += (uint32_t)rng_between(&b->rng, 1, rng_one_in(&b->rng, 8) ? 700 : 30);
    for (uint32_t i = 0; i < total; i++)
        bytes[i] = (char)rng_next(&b->rng);
    assert_int_equal(write_op(b, (struct store_write){.name = str_of_cstr(name),
                                                      .data = str_of(bytes, total),
                                                      .n_events = n,
                                                      .ends = n == 1 ? NULL : ends}),
                     0);
    uint64_t before = m->bytes.n;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t end = before + ends[i];
        buf_put(&m->ends, str_of((const char *)&end, sizeof end));
    }
    buf_put(&m->bytes, str_of(bytes, total));
    struct append_made made = {m->bytes.n, events_in(m), last_append_ms(b, name)};
    buf_put(&m->appends, str_of((const char *)&made, sizeof made));
}

/* The append that ends at a position; NULL: none does. */
static const struct append_made *append_at(const struct model *m, uint64_t end)
{
    const struct append_made *all = (const struct append_made *)(const void *)m->appends.p;
    for (size_t i = 0; i < m->appends.n / sizeof *all; i++)
        if (all[i].end == end)
            return &all[i];
    return NULL;
}

static const struct append_made *append_from(const struct model *m, uint64_t first)
{
    const struct append_made *all = (const struct append_made *)(const void *)m->appends.p;
    return first == 0 ? all : append_at(m, first) + 1;
}

/* Every byte, mark, ordinal and time. */
static void assert_block(struct bench *b, const struct model *m, const struct block_info *row)
{
    struct extent *c;
    assert_int_equal(segment_read(simfs_vfs(b->fs), row->life, row->first, row->place, &c), 0);
    assert_int_equal(extent_end(c), row->end);
    assert_memory_equal(c->bytes->bytes, m->bytes.p + row->first, c->bytes->n);
    assert_int_equal(c->ordinal, row->ordinal);
    assert_int_equal(c->n_marks, row->events);
    for (uint32_t i = 0; i < c->n_marks; i++) {
        uint64_t end = row->first + MARK_END(c->marks[i]);
        assert_int_equal(end, event_end(m, c->ordinal + i));
        assert_int_equal((c->marks[i] & MARK_APPEND_END) != 0, append_at(m, end) != NULL);
    }
    assert_int_equal(c->oldest_ms, append_from(m, row->first)->ms);
    assert_int_equal(c->newest_ms, append_at(m, row->end)->ms);
    assert_int_equal(row->oldest_ms, c->oldest_ms);
    assert_int_equal(row->newest_ms, c->newest_ms);
    extent_unref(c);
}

static void assert_blocks(struct bench *b, const struct model *m, uint64_t life)
{
    struct rows r = rows_of(b, life);
    for (size_t i = 0; i < r.n; i++)
        assert_block(b, m, &r.items[i]);
}

static void model_body(struct rng *rng)
{
    struct bench *b = bench_new(rng_next(rng));
    struct model models[3] = {0};
    b->rng = *rng;
    b->config.rest.base_bytes = 2000;
    b->config.rest.rewrite_bytes = 1 << 20;
    b->config.rest.merge_fan = (uint32_t)rng_between(rng, 2, 8);
    assert_true(bench_open(b));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(create(b, name_of(i), NULL), 0);
    for (int round = 0; round < 60; round++) {
        for (size_t i = 0; i < 3; i++)
            for (uint64_t n = rng_below(&b->rng, 3); n > 0; n--)
                append_some(b, &models[i], name_of(i));
        rest(b);
    }
    assert_true(embedded_merged(b->store) > 0);
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < 3; i++) {
            struct rows r = rows_of(b, i + 1);
            assert_int_equal(r.items[r.n - 1].end, models[i].bytes.n);
            assert_blocks(b, &models[i], i + 1);
        }
        assert_rebuilds(b);
    }
    for (size_t i = 0; i < 3; i++)
        model_free(&models[i]);
    bench_free(b);
}

static void test_nothing_is_lost_but_blocks(void **state)
{
    seeds_run(SEEDS, model_body);
}

/* ---- families, trims, damage ---- */

/* Forks read what was merged of their source, also when it is deleted. */
static void test_forks(void **state)
{
    struct bench *b = begin(3);
    assert_int_equal(create(b, "a", NULL), 0);
    append_slowly(b, "a", 0, 30);
    assert_int_equal(create(b, "b", "a"), 0);
    append_slowly(b, "a", 30, 60);
    append_slowly(b, "b", 30, 90);
    assert_events(b, "a", 60);
    assert_events(b, "b", 90);
    assert_ordinals(b, "b", 90);
    assert_int_equal(remove_stream(b, "a"), 0);
    rest(b);
    append_slowly(b, "b", 90, 100);
    assert_events(b, "b", 100);
    assert_ordinals(b, "b", 100);
    assert_rebuilds(b);
    assert_events(b, "b", 100);
    bench_free(b);
}

/* A fork of version 0.1 has rows of its own for its source's blocks: those stay as they are. */
static void test_shared_blocks_are_left_alone(void **state)
{
    struct bench *b = begin(4);
    struct index_write *w;
    assert_int_equal(create(b, "a", NULL), 0);
    append_slowly(b, "a", 0, 7);
    uint64_t upto = rows_of(b, 1).items[5].end;
    assert_int_equal(index_begin(index_of(b), &w), 0);
    assert_int_equal(index_copy_blocks(w, 1, 99, upto), 0);
    assert_int_equal(index_commit(w), 0);
    append_slowly(b, "a", 7, 40);
    struct rows r = rows_of(b, 1);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(r.items[i].events, 1);
    assert_true(r.n < 6 + 3 * 8 && embedded_merged(b->store) > 0);
    assert_events(b, "a", 40);
    bench_free(b);
}

static int create_with(struct bench *b, const char *name, struct retain retain)
{
    struct stream_config config = {.content_type = STR("text/plain"),
                                   .ttl_s = STORE_TTL_NONE,
                                   .expires_ms = STORE_TTL_NONE,
                                   .retain = retain};
    return write_op(b, (struct store_write){.name = str_of_cstr(name), .create = &config});
}

/* What a stream has no more is not written again, nor does it come back. */
static void test_trims(void **state)
{
    struct bench *b = begin(5);
    assert_int_equal(create_with(b, "a", (struct retain){.events = 20}), 0);
    append_slowly(b, "a", 0, 200);
    pass_turns(b, 300);
    rest(b);
    const struct stream *s = map_get(&embedded_of(b->store)->catalog.streams, STR("a"));
    assert_true(s->first_event >= 150);
    struct rows r = rows_of(b, 1);
    assert_true(r.items[0].end > s->first && r.n < 20);
    for (size_t i = 0; i < r.n; i++) /* as many as there were at one time */
        assert_true(r.items[i].events <= 24);
    assert_true(embedded_merged(b->store) > 0);
    bench_free(b);
}

static void keep_merged(void *ctx, uint64_t life, const struct block_info *b)
{
    assert_int_equal(life, 1);
    *(struct block_info *)ctx = *b;
}

/* What goes with this checkpoint, and a block of which a part does, are left alone. */
static void test_what_goes_is_left_alone(void **state)
{
    struct bench *b = begin(10);
    b->config.rest.merge_bytes = 0;
    bench_close(b);
    assert_true(bench_open(b));
    assert_int_equal(create(b, "a", NULL), 0);
    append_slowly(b, "a", 0, 10);
    struct rows r = rows_of(b, 1);
    assert_int_equal(r.n, 10);
    struct block_info got = {0};
    struct merge m = {
        .index = index_of(b), .budget = 1 << 20, .fan = 3, .merged = keep_merged, .ctx = &got};
    merge_init(&m, simfs_vfs(b->fs));
    assert_int_equal(segment_create(simfs_vfs(b->fs), 999, &m.to), 0);
    assert_int_equal(merge_stream(&m, 1, r.items[4].first + 1, MERGE_SPAN_MS), 0);
    assert_int_equal(m.blocks, 5);
    assert_int_equal(got.first, r.items[5].first);
    assert_int_equal(got.end, r.items[9].end);
    assert_int_equal(got.events, 5);
    assert_int_equal(merge_stream(&m, 1, r.items[8].first, MERGE_SPAN_MS), 0);
    assert_int_equal(m.blocks, 5); /* two are too few */
    segment_close(m.to);
    merge_deinit(&m);
    bench_free(b);
}

/* Where a stream is trimmed by age, no block is of more than a sixteenth of it. */
static void test_ages(void **state)
{
    struct bench *b = begin(6);
    const int64_t age_ms = 160000;
    assert_int_equal(create_with(b, "a", (struct retain){.age_ms = (uint64_t)age_ms}), 0);
    for (unsigned i = 0; i < 60; i++) {
        char text[64];
        assert_int_equal(append(b, "a", event_text(text, i)), 0);
        rest(b);
        pass_turns(b, i < 30 ? 5 : 600);
    }
    struct rows r = rows_of(b, 1);
    assert_true(embedded_merged(b->store) > 0 && r.n < 60);
    for (size_t i = 0; i < r.n; i++)
        assert_true(r.items[i].newest_ms - r.items[i].oldest_ms <= age_ms / 16);
    bench_free(b);
}

/* A block that cannot be read stays where it is, and what comes after it is merged all the same. */
static void test_damage(void **state)
{
    struct bench *b = begin(7);
    assert_int_equal(create(b, "a", NULL), 0);
    append_slowly(b, "a", 0, 5);
    struct place bad = rows_of(b, 1).items[3].place;
    damage_text(b, bad.segment, STR("event 3"));
    append_slowly(b, "a", 5, 40);
    struct rows r = rows_of(b, 1);
    assert_int_equal(r.items[3].events, 1);
    assert_int_equal(r.items[3].place.segment, bad.segment);
    assert_int_equal(r.items[3].place.offset, bad.offset);
    assert_true(embedded_merged(b->store) > 0 && r.n < 30);
    bench_free(b);
}

/* The disk is full when the first merged block is written: then nothing is merged, and the rest of
 * the checkpoint is made. */
static void test_full_disk(void **state)
{
    static char some[MERGE_BYTES - 1000];
    struct bench *b = bench_new(1);
    b->config.rest.reserve_bytes = 0;
    b->config.journal.file_bytes = 4 << 20;
    assert_true(bench_open(b));
    struct embedded *e = embedded_of(b->store);
    assert_int_equal(create(b, "a", NULL), 0);
    assert_int_equal(create(b, "b", NULL), 0);
    for (unsigned i = 0; i < b->config.rest.merge_fan; i++) {
        assert_int_equal(append(b, "a", str_of(some, 1000)), 0);
        rest(b);
    }
    uint64_t left = PACE_STEP_BYTES - 5000;
    for (; left > sizeof some; left -= sizeof some)
        assert_int_equal(append(b, "b", str_of(some, sizeof some)), 0);
    assert_int_equal(append(b, "b", str_of(some, left)), 0);
    assert_int_equal(append(b, "a", STR("x")), 0);
    simlane_hold(b->lanes.rest, true);
    embedded_checkpoint(b->store);
    pass_turns(b, 10);
    simfs_fail(b->fs, SIMFS_WRITE, 1, ERR_FULL);
    simlane_hold(b->lanes.rest, false);
    for (int i = 0; i < TURNS_MAX && e->checkpoint != NULL; i++)
        pass_turns(b, 1);
    assert_int_equal(embedded_merged(b->store), 0);
    assert_false(e->rest_failed);
    assert_int_equal(embedded_unrested(b->store), 0);
    bench_free(b);
}

/* ---- crashes ---- */

/* The power goes at each call that changes something, from before a checkpoint that merges until
 * after it; then the index is as it was, or lost. */
static void test_power_cuts(void **state)
{
    bool merged = false;
    for (uint64_t n = 1; !merged; n++) {
        struct bench *b = begin(n);
        assert_int_equal(create(b, "a", NULL), 0);
        append_slowly(b, "a", 0, 8);
        assert_int_equal(embedded_merged(b->store), 0);
        char text[64];
        assert_int_equal(append(b, "a", event_text(text, 8)), 0);
        simfs_cut_power_at(b->fs, n);
        rest(b);
        merged = !simfs_is_off(b->fs);
        assert_int_equal(embedded_merged(b->store), merged ? 8 : 0);
        simfs_cut_power_at(b->fs, 0);
        bench_close(b);
        if (!merged)
            simfs_crash(b->fs, n);
        if (n % 2 == 0)
            index_forget(b->index);
        assert_true(bench_open(b));
        assert_events(b, "a", 9);
        append_slowly(b, "a", 9, 40);
        assert_true(rows_of(b, 1).n < 24);
        assert_events(b, "a", 40);
        assert_rebuilds(b);
        bench_free(b);
    }
}

/* ---- the index ---- */

static void test_events_are_found(void **state)
{
    struct bench *b = begin(8);
    b->config.rest.merge_bytes = 0;
    bench_close(b);
    assert_true(bench_open(b));
    struct model m = {0};
    assert_int_equal(create(b, "a", NULL), 0);
    for (int i = 0; i < 100; i++) {
        append_some(b, &m, "a");
        rest(b);
    }
    struct rows r = rows_of(b, 1);
    assert_int_equal(r.n, 100);
    for (size_t from = 0; from < r.n; from += 7)
        for (uint64_t event = r.items[from].ordinal; event < events_in(&m); event++) {
            struct block_info found;
            assert_int_equal(
                index_find_event(index_of(b), 1, r.items[from].first, m.bytes.n, event, &found), 0);
            assert_true(found.ordinal <= event && event < found.ordinal + found.events);
        }
    model_free(&m);
    bench_free(b);
}

/* ---- reading ---- */

struct cost {
    uint64_t answers, reads, blocks;
};

static struct cost read_all(struct bench *b, size_t max_bytes, uint64_t *bytes)
{
    struct cost cost = {.reads = simfs_calls(b->fs, SIMFS_READ)};
    struct offset at = {0};
    for (bool more = true; more; cost.answers++) {
        struct buf out = {0};
        struct reading r = {.op = {.name = STR("a"),
                                   .from = READ_AT,
                                   .at = at,
                                   .max_bytes = max_bytes,
                                   .done = on_read},
                            .out = &out,
                            .err = PENDING};
        store_read(b->store, &r.op);
        assert_int_equal(await(b, &r.err), 0);
        at = (struct offset){r.op.info.life, r.op.next};
        more = r.op.next < r.op.info.tail;
        *bytes += out.n;
        buf_deinit(&out);
    }
    cost.reads = simfs_calls(b->fs, SIMFS_READ) - cost.reads;
    cost.blocks = rows_of(b, 1).n;
    return cost;
}

/* Of an event that is in one of many blocks, by its ordinal. */
static void assert_one_read(struct bench *b, uint64_t event)
{
    struct buf out = {0};
    char text[64];
    struct reading r = {.op = {.name = STR("a"),
                               .from = READ_EVENT,
                               .event = event,
                               .max_bytes = 1,
                               .done = on_read},
                        .out = &out,
                        .err = PENDING};
    uint64_t reads = simfs_calls(b->fs, SIMFS_READ), opens = simfs_calls(b->fs, SIMFS_OPEN);
    store_read(b->store, &r.op);
    assert_int_equal(await(b, &r.err), 0);
    assert_true(str_eq(buf_str(&out), event_text(text, (unsigned)event)));
    assert_int_equal(simfs_calls(b->fs, SIMFS_READ) - reads, 1);
    assert_int_equal(simfs_calls(b->fs, SIMFS_OPEN) - opens, 1);
    buf_deinit(&out);
}

/* Small blocks that were never merged, on disk and in the cache. */
static void test_many_blocks_in_an_answer(void **state)
{
    for (int cached = 0; cached < 2; cached++) {
        struct bench *b = begin(9);
        b->config.rest.merge_bytes = 0;
        b->config.rest.rewrite_bytes = 0;
        b->config.cache_bytes = cached ? 8 << 20 : 0;
        bench_close(b);
        assert_true(bench_open(b));
        assert_int_equal(create(b, "a", NULL), 0);
        append_slowly(b, "a", 0, 600);
        uint64_t bytes = 0;
        struct cost cost = read_all(b, 4096, &bytes);
        print_message("%s: %" PRIu64 " answers, %" PRIu64 " blocks, %" PRIu64 " reads\n",
                      cached ? "cached" : "on disk", cost.answers, cost.blocks, cost.reads);
        assert_int_equal(cost.blocks, 600);
        assert_true(cost.answers <= bytes / 4000 + 1);
        assert_true(cached ? cost.reads == 0 : cost.reads <= 600 + cost.answers);
        if (!cached)
            assert_one_read(b, 433);
        assert_events(b, "a", 600);
        bench_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_few),
        cmocka_unit_test_teardown(test_nothing_is_lost_but_blocks, seeds_teardown),
        cmocka_unit_test(test_forks),
        cmocka_unit_test(test_shared_blocks_are_left_alone),
        cmocka_unit_test(test_trims),
        cmocka_unit_test(test_what_goes_is_left_alone),
        cmocka_unit_test(test_ages),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_power_cuts),
        cmocka_unit_test(test_events_are_found),
        cmocka_unit_test(test_many_blocks_in_an_answer),
    };
    return cmocka_run_group_tests_name("store/embedded/merge", tests, NULL, NULL);
}
