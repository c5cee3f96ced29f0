// SPDX-License-Identifier: Apache-2.0
/* A long history, read from its start: as SSE that catches up, and by plain GETs. */
#include "bench_bulk.h"
#include "bench_reader.h"

#include "base/clock.h"

#define EVENTS 1000000

static const struct peer_ops reader_ops = {.head = reader_head, .body = reader_body};

static bool has_all(void *arg)
{
    return ((const struct reader *)arg)->tally.next >= EVENTS;
}

static void replay_sse(struct bench *b, struct name stream)
{
    uint64_t events = 0, until = clock_mono_ns() + (uint64_t)(b->seconds * 1e9);
    struct reader reader = {.peer.fd = -1};
    progress("replay: SSE from the start, again and again");
    struct spent spent = spent_begin(b);
    do {
        reader_open(&reader, b, &reader_ops, stream, "-1", 0);
        swarm_run(&b->swarm, "all events by SSE", has_all, &reader);
        readers_verify(b, &reader, 1, EVENTS);
        events += reader.tally.seen;
        reader_close(&reader);
    } while (!b->swarm.failed && clock_mono_ns() < until);
    spent_end(b, &spent);
    double rate = (double)events / spent.seconds;
    row_spent(report_add(&b->report, "replay-sse", rate), b, &spent, (double)events);
}

static void replay_get(struct bench *b, struct bulk *history)
{
    bulk_verify(b, history);
    progress("replay: GET from the start, again and again, %d at a time", BULK_GETTERS);
    struct spent spent = spent_begin(b);
    double bytes = (double)bulk_get(b, history, b->seconds);
    spent_end(b, &spent);
    double rate = bytes / spent.seconds;
    row_spent(report_add(&b->report, "replay-get", rate), b, &spent, bytes / 1e6);
}

void phase_replay(struct bench *b)
{
    struct bulk history = {.phase = "replay", .streams = 1, .events = EVENTS};
    progress("replay: filling a stream with %d events of %d bytes", EVENTS, BULK_EVENT_SIZE);
    bulk_fill(b, &history);
    replay_sse(b, stream_name("replay", 0));
    replay_get(b, &history);
    bulk_delete(b, &history);
}
