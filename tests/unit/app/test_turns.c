// SPDX-License-Identifier: Apache-2.0
#include "app/turns.h"
#include "base/clock.h"
#include "net/loop.h"
#include "telemetry/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct bench {
    struct loop loop;
    struct metrics metrics;
    struct turns turns;
    struct trace trace;
    char *traces;
    size_t n_traces;
    struct task burn;
};

static void bench_open(struct bench *b)
{
    *b = (struct bench){0};
    assert_int_equal(loop_init(&b->loop), 0);
    b->trace = (struct trace){.to = open_memstream(&b->traces, &b->n_traces), .level = TRACE_WARN};
    metrics_init(&b->metrics);
    b->turns = (struct turns){.loop = &b->loop, .trace = &b->trace};
    turns_init(&b->turns, &b->metrics);
}

static void bench_close(struct bench *b)
{
    b->loop.turned = NULL;
    loop_deinit(&b->loop);
    metrics_deinit(&b->metrics);
    fclose(b->trace.to);
    free(b->traces);
}

static void assert_says(const struct bench *b, const char *line, bool says)
{
    struct buf text = {0};
    metrics_put(&b->metrics, &text);
    buf_putc(&text, '\0');
    assert_int_equal(strstr(text.p, line) != NULL, says);
    buf_deinit(&text);
}

static int count_traces(struct bench *b)
{
    int n = 0;
    fflush(b->trace.to);
    for (const char *at = b->traces; at != NULL && (at = strstr(at, "nothing else")) != NULL; at++)
        n++;
    return n;
}

static void test_long_turns_are_counted_by_their_work(void **state)
{
    struct bench b;
    bench_open(&b);
    turns_count(&b.turns, 90, "task");
    turns_count(&b.turns, TURN_BLOCKED_US, "io");
    assert_says(&b, "tidemark_loop_blocked_total{work=\"io\"} 0\n", true);
    assert_says(&b, "tidemark_loop_blocked_total{work=\"list\"}", false);
    turns_count(&b.turns, TURN_BLOCKED_US + 1, "list");
    turns_count(&b.turns, 50000, "list");
    turns_count(&b.turns, 50000, "sweep");
    assert_says(&b, "tidemark_loop_blocked_total{work=\"list\"} 2\n", true);
    assert_says(&b, "tidemark_loop_blocked_total{work=\"sweep\"} 1\n", true);
    assert_says(&b, "tidemark_loop_turn_seconds_bucket{le=\"0.0001\"} 1\n", true);
    assert_says(&b, "tidemark_loop_turn_seconds_bucket{le=\"0.01\"} 2\n", true);
    assert_says(&b, "tidemark_loop_turn_seconds_count 5\n", true);
    assert_int_equal(count_traces(&b), 0);
    bench_close(&b);
}

static void test_a_trace_now_and_then(void **state)
{
    struct bench b;
    bench_open(&b);
    uint64_t start_ms = b.loop.sched.now_ms;
    for (int i = 0; i < 5; i++)
        turns_count(&b.turns, TURN_TOLD_US + 1000, "list");
    assert_int_equal(count_traces(&b), 1);
    assert_non_null(strstr(b.traces, "nothing else was served for 101 ms: list"));
    b.loop.sched.now_ms = start_ms + TURN_QUIET_MS;
    turns_count(&b.turns, TURN_TOLD_US + 1000, "list");
    assert_int_equal(count_traces(&b), 2);
    bench_close(&b);
}

/* The loop itself: a task that takes the thread's time is seen under its name, and one turn. */
static void burn(struct task *t)
{
    struct bench *b = container_of(t, struct bench, burn);
    uint64_t start_ns = clock_thread_ns();
    sched_work(&b->loop.sched, "burn");
    while (clock_thread_ns() - start_ns < (TURN_BLOCKED_US + 1000) * 1000ull)
        ;
}

static void on_alive(uv_timer_t *t)
{
    uv_close((uv_handle_t *)t, NULL);
}

static void test_the_loop_tells(void **state)
{
    struct bench b;
    bench_open(&b);
    task_init(&b.burn, burn);
    sched_post(&b.loop.sched, &b.burn);
    uv_timer_t alive; /* a loop without active handles would not turn */
    uv_timer_init(&b.loop.uv, &alive);
    uv_timer_start(&alive, on_alive, 1, 0);
    loop_run(&b.loop);
    assert_says(&b, "tidemark_loop_blocked_total{work=\"burn\"} 1\n", true);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_turns_are_counted_by_their_work),
        cmocka_unit_test(test_a_trace_now_and_then),
        cmocka_unit_test(test_the_loop_tells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
