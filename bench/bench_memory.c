// SPDX-License-Identifier: Apache-2.0
/* What a stream costs in memory, and how much more than in another server (--baseline) with the
 * same streams in the same run. */
#include "bench_scale.h"

#define STREAMS_MAX 250000u
#define QUIET_S     1.0

static void put_create(struct buf *out, struct name stream, void *arg)
{
    request_create(out, stream, TYPE_BYTES, STR("one event"));
}

/* Bytes per stream of a server that was started with them at rest, or that has just got them. */
struct cost {
    double rested, fresh;
};

static double memory_of(struct bench *b)
{
    swarm_run_for(&b->swarm, QUIET_S);
    return (double)server_memory(&b->server);
}

static struct cost cost_of(struct bench *b, const char *path, unsigned n)
{
    struct cost cost;
    b->plan.path = path;
    bench_renew(b);
    double none = memory_of(b);
    pump_each(b, "memory", n, put_create, NULL, 201, "creating a stream");
    cost.fresh = (memory_of(b) - none) / n;
    bench_stop(b, false);
    bench_start(b);
    cost.rested = (memory_of(b) - none) / n;
    return cost;
}

void phase_memory(struct bench *b)
{
    const char *path = b->plan.path, *given = b->plan.args;
    unsigned n = b->streams < STREAMS_MAX ? b->streams : STREAMS_MAX;
    if (!b->server.ours || !*b->data)
        return;
    b->plan.args = "--sync never";
    progress("scale-memory: %u streams%s", n, b->baseline ? ", and with the other server" : "");
    struct cost own = cost_of(b, path, n), other = {0};
    if (b->baseline)
        other = cost_of(b, b->baseline, n);
    b->plan.path = path;
    b->plan.args = given;
    if (b->swarm.failed)
        return;
    row_note(report_add(&b->report, "scale-memory", own.rested), "at rest; before that %.0f B",
             own.fresh);
    if (b->baseline)
        row_note(report_add(&b->report, "scale-memory-more", own.rested - other.rested),
                 "at rest; before that %.0f B", own.fresh - other.fresh);
}
