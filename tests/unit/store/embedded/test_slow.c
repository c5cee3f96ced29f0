// SPDX-License-Identifier: Apache-2.0
/* A stream that got one event a checkpoint, read whole, against the same bytes written at once:
 * what is counted are answers, blocks, and reads of the disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "store/embedded/embedded_core.h"
#include "unit/store/store_bench.h"

#define EVENTS     20000
#define STEPS      4
#define EVENT_SIZE 100
#define MAX_BYTES  (64 * 1024) /* of an answer */

struct cost {
    uint64_t answers, blocks, reads, ns;
};

static int count_block(void *ctx, const struct block_info *b)
{
    ++*(uint64_t *)ctx;
    return 0;
}

/* With nothing in memory. */
static struct cost read_whole(struct bench *b, uint64_t events)
{
    struct cost cost = {.reads = simfs_calls(b->fs, SIMFS_READ)};
    struct offset at = {0};
    struct buf out = {0};
    uint64_t began = clock_mono_ns();
    for (bool more = true; more; cost.answers++) {
        struct reading r = {.op = {.name = STR("a"),
                                   .from = READ_AT,
                                   .at = at,
                                   .max_bytes = MAX_BYTES,
                                   .done = on_read},
                            .out = &out,
                            .err = PENDING};
        store_read(b->store, &r.op);
        assert_int_equal(await(b, &r.err), 0);
        at = (struct offset){r.op.info.life, r.op.next};
        more = r.op.next < r.op.info.tail;
    }
    cost.ns = clock_mono_ns() - began;
    cost.reads = simfs_calls(b->fs, SIMFS_READ) - cost.reads;
    assert_int_equal(
        index_blocks(embedded_of(b->store)->index, at.life, 0, count_block, &cost.blocks), 0);
    assert_int_equal(out.n, events * EVENT_SIZE);
    for (uint64_t i = 0; i < events; i++)
        assert_int_equal(strtoull(out.p + i * EVENT_SIZE, NULL, 10), i);
    buf_deinit(&out);
    return cost;
}

static void add_event(struct bench *b, uint64_t i)
{
    char text[EVENT_SIZE + 1];
    memset(text, ' ', sizeof text);
    text[snprintf(text, sizeof text, "%" PRIu64, i)] = ' ';
    assert_int_equal(append(b, "a", str_of(text, EVENT_SIZE)), 0);
}

static void bring_to_rest(struct bench *b)
{
    embedded_checkpoint(b->store);
    for (int i = 0; i < TURNS_MAX && embedded_of(b->store)->checkpoint != NULL; i++)
        pass_turns(b, 1);
}

static struct bench *begin(void)
{
    struct bench *b = bench_new(1);
    b->config.rest = EMBEDDED_DEFAULTS.rest;
    b->config.journal.file_bytes = JOURNAL_FILE_BYTES;
    assert_true(bench_open(b));
    assert_int_equal(create(b, "a", NULL), 0);
    return b;
}

static struct cost cost_at_once(uint64_t events)
{
    struct bench *b = begin();
    for (uint64_t i = 0; i < events; i++)
        add_event(b, i);
    bring_to_rest(b);
    struct cost cost = read_whole(b, events);
    bench_free(b);
    return cost;
}

static void say(const char *what, uint64_t events, const struct cost *c)
{
    print_message("%" PRIu64 " events %s: %" PRIu64 " answers, %" PRIu64 " blocks, %" PRIu64
                  " reads, %.1f ms\n",
                  events, what, c->answers, c->blocks, c->reads, (double)c->ns / 1e6);
}

static void test_slow_stream(void **state)
{
    struct bench *b = begin();
    struct cost costs[STEPS];
    uint64_t n = 0;
    for (int step = 0; step < STEPS; step++) {
        for (; n < (uint64_t)EVENTS * (step + 1) / STEPS; n++) {
            add_event(b, n);
            bring_to_rest(b);
        }
        costs[step] = read_whole(b, n);
        say("one a checkpoint", n, &costs[step]);
    }
    const struct cost *slow = &costs[STEPS - 1], *first = &costs[0], fast = cost_at_once(EVENTS);
    say("at once", EVENTS, &fast);
    print_message("%" PRIu64 " blocks merged, %" PRIu64 " moved, %" PRIu64 " segments of %" PRIu64
                  " bytes\n",
                  embedded_merged(b->store), embedded_rewritten(b->store), segments_there(b),
                  embedded_of(b->store)->segment_bytes);
    assert_true(slow->answers <= 2 * fast.answers);
    assert_true(slow->blocks <= 2 * fast.blocks);
    assert_true(slow->reads <= 2 * fast.reads);
    assert_true(slow->answers <= STEPS * first->answers);
    assert_true(slow->reads <= STEPS * first->reads);
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_stream),
    };
    return cmocka_run_group_tests_name("store/embedded/slow", tests, NULL, NULL);
}
