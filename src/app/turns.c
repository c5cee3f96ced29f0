// SPDX-License-Identifier: Apache-2.0
#include "app/turns.h"
#include "base/must.h"
#include "net/loop.h"
#include "telemetry/trace.h"

#define WORKS_MAX 64 /* names of work; the tree has fewer */

static const uint64_t bounds[] = {100,   250,   500,    1000,   2500,   5000,
                                  10000, 25000, 100000, 250000, 1000000};
static const struct histogram_shape shape = {
    .bounds = bounds, .n = sizeof bounds / sizeof *bounds, .decimals = 6};

static const struct metric_info seconds_info = {
    .name = "loop_turn_seconds",
    .help = "Processor time of the loop between two looks at its sockets",
    .shape = &shape};

static const struct metric_info blocked_info = {
    .name = "loop_blocked",
    .help = "Turns of the loop above 10 ms of processor time, by what took the most of it",
    .labels = {"work"},
    .series_max = WORKS_MAX};

void turns_count(void *turns, uint64_t us, const char *work)
{
    struct turns *t = turns;
    histogram_observe(&t->seconds, us);
    if (us <= TURN_BLOCKED_US)
        return;
    struct str name = str_of_cstr(work);
    counter_inc(metric_family_counter(t->blocked, &name));
    uint64_t now_ms = t->loop->sched.now_ms;
    if (us <= TURN_TOLD_US || now_ms < t->quiet_until_ms)
        return;
    t->quiet_until_ms = now_ms + TURN_QUIET_MS;
    trace(t->trace, LOOP_BLOCKED, TRACE_INT("ms", (int64_t)(us / 1000)), TRACE_STR("work", name));
}

void turns_init(struct turns *t, struct metrics *m)
{
    int err = metrics_add_histogram(m, STR("tidemark"), &seconds_info, &t->seconds);
    if (err == 0)
        err = metrics_add_family(m, STR("tidemark"), &blocked_info, METRIC_COUNTER, &t->blocked);
    must(err == 0);                                                 /* the names are ours */
    metric_family_counter(t->blocked, &(struct str)STR_INIT("io")); /* there from the start, as 0 */
    t->loop->turned = turns_count;
    t->loop->turned_ctx = t;
}
