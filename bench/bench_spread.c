// SPDX-License-Identifier: Apache-2.0
/* The same appends over 64 streams and over 10,000, each on a server of its own: what the number of
 * streams costs; and, where events come to rest in checkpoints, what those do to latencies and how
 * much is written in all.
 *
 * A count of appends and not a time, so that the same checkpoints fall into what is compared. The
 * first is half a checkpoint's worth away from the start, the last one as far from the end. */
#include "bench_appends.h"
#include "bench_data.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>

#define CONNECTIONS    64
#define PER_CHECKPOINT ((64u << 20) / APPEND_SIZE)
#define CHECKPOINTS    3u
#define WARM_UP        (PER_CHECKPOINT / 2)
#define MEASURED       (PER_CHECKPOINT * CHECKPOINTS)
#define LIMIT_S        25 /* on a machine too slow for that count */
#define KEY_MAX        32

struct sample {
    uint64_t sent_ns, answered_ns;
};

/* Three views of what was written. */
struct written {
    struct server_io server;
    uint64_t disk;
};

struct spread {
    struct bench *bench;
    const char *key;
    struct checkpoint_watch watch;
    bool watching, measuring;
    struct sample *samples;
    size_t n;
    struct written written;
    struct spent spent;
};

static void on_answer(struct pump *p, uint64_t sent_ns, uint64_t answered_ns)
{
    struct spread *run = p->ctx;
    if (run->watching)
        checkpoint_watch_look(&run->watch, answered_ns);
    if (run->measuring && run->n < MEASURED)
        run->samples[run->n++] = (struct sample){sent_ns, answered_ns};
}

static struct written written_so_far(const struct bench *b)
{
    return (struct written){server_written(&b->server), *b->data ? data_disk_written(b->data) : 0};
}

static struct written written_since(const struct bench *b, struct written then)
{
    struct written now = written_so_far(b);
    return (struct written){
        {now.server.disk - then.server.disk, now.server.calls - then.server.calls},
        now.disk - then.disk};
}

static void measure(struct spread *run, struct appends *appends)
{
    struct bench *b = run->bench;
    appends_open(appends);
    appends->pump.until_ns = clock_mono_ns() + (uint64_t)LIMIT_S * 1000000000u;
    pump_start(&appends->pump);
    pump_until(&appends->pump, WARM_UP);
    run->written = written_so_far(b);
    run->spent = spent_begin(b);
    run->measuring = true;
    pump_until(&appends->pump, WARM_UP + MEASURED);
    run->measuring = false;
    spent_end(b, &run->spent);
    run->written = written_since(b, run->written);
    appends->pump.until_ns = 0;
    appends_close(appends);
}

/* ---- what comes of it ---- */

static struct row *add(struct spread *run, const char *what, double value)
{
    char key[KEY_MAX];
    snprintf(key, sizeof key, "%s-%s", run->key, what);
    return report_add(&run->bench->report, key, value);
}

static double p99_us(const struct hist *h)
{
    return (double)hist_at(h, 0.99) / 1e3;
}

/* A request belongs to a checkpoint if it was under way during any part of it. */
static void report_latencies(struct spread *run)
{
    struct hist calm = {0}, rest = {0};
    for (size_t i = 0; i < run->n; i++) {
        const struct sample *s = &run->samples[i];
        bool in = run->watching && checkpoint_watch_covers(&run->watch, s->sent_ns, s->answered_ns);
        hist_add(in ? &rest : &calm, s->answered_ns - s->sent_ns);
    }
    row_note(add(run, "calm", p99_us(&calm)), "%llu appends", (unsigned long long)calm.n);
    if (rest.n == 0)
        return;
    row_note(add(run, "rest", p99_us(&rest)), "%llu appends, %u checkpoints",
             (unsigned long long)rest.n, run->watch.n);
    if (calm.n > 0)
        add(run, "times", p99_us(&rest) / p99_us(&calm));
}

/* The kernel counts too much for the process, or nothing; the disk counts others' writes too. What
 * the server made the disk write is no more than either. */
static void report_written(struct spread *run)
{
    const struct written *w = &run->written;
    double appended = (double)run->n * APPEND_SIZE;
    uint64_t least = w->server.disk;
    if (least < run->n * APPEND_SIZE || (w->disk > 0 && w->disk < least))
        least = w->disk;
    if (least > 0)
        row_note(add(run, "disk", (double)least / appended), "%s",
                 least == w->disk ? "counted by the disk, others' writes too" : "");
    add(run, "calls", (double)w->server.calls / appended);
}

static double spread_report(struct spread *run)
{
    struct bench *b = run->bench;
    struct row *row = report_add(&b->report, run->key, (double)run->n / run->spent.seconds);
    row_spent(row, b, &run->spent, (double)run->n);
    report_latencies(run);
    if (*b->data)
        report_written(run);
    return row->cpu_us;
}

/* Returns the server's CPU time per append, or 0. */
static double spread_over(struct bench *b, const char *key, unsigned streams)
{
    struct spread run = {.bench = b, .key = key};
    struct appends appends = appends_of(b, key, TYPE_BYTES, streams, CONNECTIONS, 1);
    progress("%s: %d connections, %u appends", key, CONNECTIONS, WARM_UP + MEASURED);
    appends.pump.timed = on_answer;
    appends.pump.ctx = &run;
    appends.pump.limit = WARM_UP + MEASURED;
    run.samples = mem_alloc(MEASURED * sizeof *run.samples);
    run.watching = *b->data && checkpoint_watch_open(&run.watch, b->data) == 0;
    measure(&run, &appends);
    double cost = b->swarm.failed || run.n == 0 ? 0 : spread_report(&run);
    if (run.watching)
        checkpoint_watch_close(&run.watch);
    free(run.samples);
    return cost;
}

void phase_spread(struct bench *b)
{
    double few = spread_over(b, "spread-64", 64);
    bench_renew(b);
    if (b->swarm.failed)
        return;
    double many = spread_over(b, "spread-10k", 10000);
    if (few > 0 && many > 0)
        report_add(&b->report, "spread-10k-cost", many / few);
}
