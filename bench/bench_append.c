// SPDX-License-Identifier: Apache-2.0
/* Appends as fast as they are answered: so many connections, each with so many requests under way,
 * over 64 streams. */
#include "bench_access.h"
#include "bench_appends.h"

#define STREAMS   64
#define WARM_UP_S 0.5
#define KEY_MAX   32

static void append_report(const struct pump *p, const char *key, const struct spent *spent)
{
    struct report *r = &p->bench->report;
    char sub[KEY_MAX];
    double answered = (double)p->latency.n;
    row_spent(report_add(r, key, answered / spent->seconds), p->bench, spent, answered);
    snprintf(sub, sizeof sub, "%s-p50", key);
    report_add(r, sub, (double)hist_at(&p->latency, 0.5) / 1e3);
    snprintf(sub, sizeof sub, "%s-p99", key);
    report_add(r, sub, (double)hist_at(&p->latency, 0.99) / 1e3);
}

void measure_appends(struct bench *b, const char *key, const char *type, unsigned streams,
                     unsigned n, unsigned depth, double seconds)
{
    struct appends run = appends_of(b, key, type, streams, n, depth);
    progress("%s: %u connections, at most %u under way on each", key, n, depth);
    appends_open(&run);
    pump_start(&run.pump);
    swarm_run_for(&b->swarm, WARM_UP_S);
    memset(&run.pump.latency, 0, sizeof run.pump.latency);
    struct spent spent = spent_begin(b);
    swarm_run_for(&b->swarm, seconds);
    spent_end(b, &spent);
    if (!b->swarm.failed)
        append_report(&run.pump, key, &spent);
    appends_close(&run);
}

static void measure(struct bench *b, const char *key, const char *type, unsigned n, unsigned depth)
{
    measure_appends(b, key, type, STREAMS, n, depth, b->seconds);
}

void phase_append_64(struct bench *b)
{
    measure(b, "append-64", TYPE_BYTES, 64, 1);
}

void phase_append_256(struct bench *b)
{
    measure(b, "append-256", TYPE_BYTES, 256, 1);
}

void phase_append_64x16(struct bench *b)
{
    measure(b, "append-64x16", TYPE_BYTES, 64, 16);
}

void phase_json_64(struct bench *b)
{
    measure(b, "json-64", TYPE_JSON, 64, 1);
}

void phase_json_256(struct bench *b)
{
    measure(b, "json-256", TYPE_JSON, 256, 1);
}

void phase_json_64x16(struct bench *b)
{
    measure(b, "json-64x16", TYPE_JSON, 64, 16);
}

void run_appends(struct bench *b, const char *token, uint64_t count)
{
    char headers[1024] = TYPE_BYTES;
    if (token != NULL) {
        snprintf(headers, sizeof headers, TYPE_BYTES "\r\nAuthorization: Bearer %s", token);
        access_await(b, token);
    }
    struct appends run = appends_of(b, "count", headers, STREAMS, 64, 1);
    run.pump.limit = count;
    appends_open(&run);
    pump_start(&run.pump);
    pump_finish(&run.pump);
    pump_close(&run.pump);
}
