// SPDX-License-Identifier: Apache-2.0
/* New streams as fast as they are answered, over 64 connections. */
#include "bench_pump.h"

#define CONNECTIONS 64
#define WARM_UP_S   0.5

static struct str create_next(struct spout *s, uint64_t first, unsigned count)
{
    s->requests.n = 0;
    for (unsigned i = 0; i < count; i++)
        request_create(&s->requests, stream_name("create", (unsigned)first + i), TYPE_JSON,
                       STR_NONE);
    return buf_str(&s->requests);
}

static void create_report(const struct pump *p, const struct spent *spent)
{
    struct report *r = &p->bench->report;
    double answered = (double)p->latency.n;
    struct row *row = report_add(r, "create", answered / spent->seconds);
    row_spent(row, p->bench, spent, answered);
    report_add(r, "create-p99", (double)hist_at(&p->latency, 0.99) / 1e3);
}

void phase_create(struct bench *b)
{
    struct pump pump = {.bench = b,
                        .n = CONNECTIONS,
                        .depth = 1,
                        .status = 201,
                        .what = "creating a stream",
                        .limit = UINT64_MAX,
                        .next = create_next};
    progress("create: %d connections", CONNECTIONS);
    pump_open(&pump);
    pump_start(&pump);
    swarm_run_for(&b->swarm, WARM_UP_S);
    memset(&pump.latency, 0, sizeof pump.latency);
    struct spent spent = spent_begin(b);
    swarm_run_for(&b->swarm, b->seconds);
    spent_end(b, &spent);
    if (!b->swarm.failed)
        create_report(&pump, &spent);
    pump.limit = 0;
    pump_finish(&pump);
    pump_close(&pump);
    for (unsigned i = 0; i < pump.sent && !b->swarm.failed; i += 1000)
        ask_read(b, stream_name("create", i), 200);
    pump_delete(b, "create", pump.sent);
}
