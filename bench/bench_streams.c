// SPDX-License-Identifier: Apache-2.0
/* A hundred thousand streams to which nothing happens: what one costs in memory, and how long a
 * server takes to start with them. */
#include "bench_pump.h"

#include "base/clock.h"

#define STREAMS    100000
#define EVENT_SIZE 48
#define QUIET_S    0.5
#define CHECK_STEP 997 /* every so many-th stream is read after a restart */

/* What a server without connections has. */
struct footprint {
    double memory, mapped, files, threads;
};

static struct footprint footprint(struct bench *b)
{
    swarm_run_for(&b->swarm, QUIET_S);
    return (struct footprint){.memory = (double)server_memory(&b->server),
                              .mapped = (double)server_mapped(&b->server, "/index.mdb"),
                              .files = server_files(&b->server),
                              .threads = server_threads(&b->server)};
}

static void put_create(struct buf *out, struct name stream, void *arg)
{
    request_create(out, stream, TYPE_JSON, buf_str(arg));
}

static void put_append(struct buf *out, struct name stream, void *arg)
{
    request_append(out, stream, TYPE_JSON, buf_str(arg));
}

/* Event `number` for each stream: with the first one they are created. */
static void add_event(struct bench *b, uint64_t number)
{
    struct buf body = {0};
    event_put_json(&body, number, EVENT_SIZE);
    if (number == 0)
        pump_each(b, "streams", STREAMS, put_create, &body, 201, "creating a stream");
    else
        pump_each(b, "streams", STREAMS, put_append, &body, 204, "appending");
    buf_deinit(&body);
}

static void verify(struct bench *b, uint64_t events)
{
    for (unsigned i = 0; i < STREAMS && !b->swarm.failed; i += CHECK_STEP) {
        struct tally tally = {0};
        ask_all(b, stream_name("streams", i), &tally);
        if (!b->swarm.failed && !tally_whole(&tally, events))
            swarm_fail(&b->swarm, "a stream of %llu events has %llu after a restart",
                       (unsigned long long)events, (unsigned long long)tally.seen);
    }
}

static double up_ms(const struct bench *b)
{
    return (double)(clock_mono_ns() - b->server.started_ns) / 1e6;
}

/* From executing the server to its first answer that needs the store. */
static void restart(struct bench *b, const char *key, bool by_kill)
{
    progress("streams: restart (%s)", key);
    bench_stop(b, by_kill);
    struct spent spent = spent_begin(b);
    bench_start(b);
    ask_read(b, stream_name("streams", STREAMS - 1), 200);
    double ms = up_ms(b);
    spent_end(b, &spent);
    if (!b->swarm.failed)
        row_spent(report_add(&b->report, key, ms), b, &spent, STREAMS);
}

/* Reads need no journal; the first change waits until there is one. */
static void first_change(struct bench *b)
{
    ask_create(b, stream_name("streams-more", 0), TYPE_JSON);
    double ms = up_ms(b);
    if (!b->swarm.failed)
        report_add(&b->report, "restart-change", ms);
}

/* All in the journal; at rest, with one more event each in the journal; all at rest. */
static void restarts(struct bench *b)
{
    restart(b, "restart-clean", false);
    verify(b, 1);
    add_event(b, 1);
    restart(b, "restart-kill", true);
    first_change(b);
    verify(b, 2);
    restart(b, "restart-rest", false);
    verify(b, 2);
}

static void report_footprint(struct bench *b, const struct footprint *none,
                             const struct footprint *all)
{
    struct report *r = &b->report;
    if (b->swarm.failed || none->memory <= 0)
        return;
    struct row *row = report_add(r, "streams-memory", (all->memory - none->memory) / STREAMS);
    row_note(row, "%.1f MB, without streams %.1f MB", all->memory / 1e6, none->memory / 1e6);
    if (*b->data)
        row_note(report_add(r, "streams-mapped", (all->mapped - none->mapped) / STREAMS),
                 "%.1f MB of pages that the kernel may take back", all->mapped / 1e6);
    row_note(report_add(r, "streams-files", all->files - none->files), "%.0f", all->files);
    row_note(report_add(r, "streams-threads", all->threads - none->threads), "%.0f", all->threads);
}

void phase_streams(struct bench *b)
{
    progress("streams: creating %d of them", STREAMS);
    ask_read(b, stream_name("streams", 0), 404);
    struct footprint none = footprint(b);
    add_event(b, 0);
    struct footprint all = footprint(b);
    if (*b->data) {
        double written = (all.memory - none.memory) / STREAMS;
        restarts(b);
        all = footprint(b);
        if (!b->swarm.failed)
            report_add(&b->report, "streams-written", written);
    }
    report_footprint(b, &none, &all);
    pump_delete(b, "streams", STREAMS);
}
