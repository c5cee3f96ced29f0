// SPDX-License-Identifier: Apache-2.0
/* Small blocks of a stream that become larger ones, and what is read of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/embedded/embedded_core.h"
#include "store/embedded/merge.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_few),
    };
    return cmocka_run_group_tests_name("store/embedded/merge", tests, NULL, NULL);
}
