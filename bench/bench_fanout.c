// SPDX-License-Identifier: Apache-2.0
/* One stream, many readers: the next event goes out when the last has reached all of them. */
#include "bench_reader.h"

#include "base/mem.h"

#include <stdlib.h>

#define READERS    500
#define EVENT_SIZE 100
#define WARM_UP_S  0.5

struct fanout {
    struct bench *bench;
    struct name stream;
    struct peer writer;
    struct buf request;
    struct reader *readers;
    unsigned n;
    uint64_t sent, answered, delivered;
    uint64_t limit; /* no more events once so many are sent */
};

static bool round_done(const struct fanout *f)
{
    return f->answered == f->sent && f->delivered == f->sent * f->n;
}

static void next_round(struct fanout *f)
{
    if (!round_done(f) || f->sent >= f->limit)
        return;
    event_renumber(f->request.p, f->request.n, f->sent++);
    peer_send(&f->writer, buf_str(&f->request));
}

static void writer_end(struct peer *p)
{
    peer_expect(p, 204, "appending");
    container_of(p, struct fanout, writer)->answered++;
}

static void writer_after(struct peer *p)
{
    next_round(container_of(p, struct fanout, writer));
}

static void fanout_body(struct peer *p, struct str piece)
{
    struct reader *r = container_of(p, struct reader, peer);
    uint64_t before = r->tally.seen;
    reader_body(p, piece);
    ((struct fanout *)r->owner)->delivered += r->tally.seen - before;
}

static void fanout_after(struct peer *p)
{
    next_round(container_of(p, struct reader, peer)->owner);
}

static const struct peer_ops writer_ops = {.end = writer_end, .after = writer_after};
static const struct peer_ops reader_ops = {
    .head = reader_head, .body = fanout_body, .after = fanout_after};

static bool finished(void *arg)
{
    const struct fanout *f = arg;
    return round_done(f) && f->sent >= f->limit;
}

/* Leaves all readers connected and no event sent. */
static void fanout_open(struct fanout *f)
{
    struct buf body = {0};
    uint64_t limit = f->limit;
    f->limit = 0; /* readers that become ready must not start the first round */
    ask_create(f->bench, f->stream, TYPE_JSON);
    event_put_json(&body, 0, EVENT_SIZE);
    request_append(&f->request, f->stream, TYPE_JSON, buf_str(&body));
    buf_deinit(&body);
    peer_open(&f->writer, &f->bench->swarm, &writer_ops);
    f->readers = readers_new(f->n, f);
    for (unsigned i = 0; i < f->n; i++)
        reader_open(&f->readers[i], f->bench, &reader_ops, f->stream, "now", 0);
    readers_wait(f->bench, f->readers, f->n);
    f->limit = limit;
}

static void fanout_close(struct fanout *f)
{
    f->limit = 0;
    swarm_run(&f->bench->swarm, "all readers to get an event", finished, f);
    readers_verify(f->bench, f->readers, f->n, f->sent);
    readers_close(f->readers, f->n);
    free(f->readers);
    peer_close(&f->writer);
    buf_deinit(&f->request);
}

void measure_fanout(struct bench *b, const char *key, unsigned readers, double seconds)
{
    struct fanout f = {
        .bench = b, .stream = stream_name(key, 0), .n = readers, .limit = UINT64_MAX};
    progress("%s: one writer, %u SSE readers", key, f.n);
    fanout_open(&f);
    next_round(&f);
    swarm_run_for(&b->swarm, WARM_UP_S);
    uint64_t before = f.delivered;
    struct spent spent = spent_begin(b);
    swarm_run_for(&b->swarm, seconds);
    spent_end(b, &spent);
    double delivered = (double)(f.delivered - before);
    row_spent(report_add(&b->report, key, delivered / spent.seconds), b, &spent, delivered);
    fanout_close(&f);
    ask_delete(b, f.stream);
}

void phase_fanout(struct bench *b)
{
    measure_fanout(b, "fanout", READERS, b->seconds);
}

void run_deliveries(struct bench *b, unsigned readers, uint64_t count)
{
    struct fanout f = {
        .bench = b, .stream = stream_name("count", 1000), .n = readers, .limit = count};
    fanout_open(&f);
    next_round(&f);
    swarm_run(&b->swarm, "all readers to get all events", finished, &f);
    fanout_close(&f);
}
