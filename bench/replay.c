// SPDX-License-Identifier: Apache-2.0
/* A long history, read from its start: as SSE that catches up, and by plain GETs. */
#include "reader.h"

#include "base/clock.h"
#include "base/mem.h"

#define EVENTS     1000000
#define EVENT_SIZE 64
#define BATCH      1000 /* events in one append while the stream is filled */

static void fill(struct bench *b, struct name stream)
{
    struct buf body = {0};
    progress("replay: filling a stream with %d events of %d bytes", EVENTS, EVENT_SIZE);
    ask_create(b, stream, TYPE_JSON);
    for (uint64_t at = 0; at < EVENTS && !b->swarm.failed; at += BATCH) {
        body.n = 0;
        event_put_array(&body, at, BATCH, EVENT_SIZE);
        ask_append(b, stream, TYPE_JSON, buf_str(&body), NULL);
    }
    buf_deinit(&body);
}

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

/* ---- plain GETs: what is measured counts bytes only; one reading before it counts events ---- */

struct getter {
    struct peer peer;
    struct name stream;
    struct buf request;
    uint64_t bytes; /* of body, since the start of the stream */
    bool done;
};

static void getter_ask(struct getter *g, const char *offset)
{
    g->request.n = 0;
    request_read(&g->request, g->stream, offset, false);
    peer_send(&g->peer, buf_str(&g->request));
}

static void getter_body(struct peer *p, struct str piece)
{
    container_of(p, struct getter, peer)->bytes += piece.n;
}

static void getter_end(struct peer *p)
{
    peer_expect(p, 200, "reading a stream");
    container_of(p, struct getter, peer)->done = true;
}

static void getter_after(struct peer *p)
{
    struct getter *g = container_of(p, struct getter, peer);
    if (!g->done || p->answer.up_to_date)
        return;
    g->done = false;
    getter_ask(g, p->answer.next_offset);
}

static bool getter_done(void *arg)
{
    return ((const struct getter *)arg)->done;
}

static const struct peer_ops getter_ops = {
    .body = getter_body, .end = getter_end, .after = getter_after};

static void verify(struct bench *b, struct name stream, uint64_t *bytes)
{
    struct tally tally = {0};
    ask_all(b, stream, &tally);
    if (!b->swarm.failed && !tally_whole(&tally, EVENTS))
        swarm_fail(&b->swarm, "reading by GET: %llu events lost, %llu twice, %llu in all",
                   (unsigned long long)tally.lost, (unsigned long long)tally.twice,
                   (unsigned long long)tally.seen);
    *bytes = tally.bytes;
}

static void replay_get(struct bench *b, struct name stream)
{
    struct getter g = {.stream = stream};
    uint64_t total = 0, want = 0;
    verify(b, stream, &want);
    progress("replay: GET from the start, again and again");
    peer_open(&g.peer, &b->swarm, &getter_ops);
    uint64_t until = clock_mono_ns() + (uint64_t)(b->seconds * 1e9);
    struct spent spent = spent_begin(b);
    do {
        g.done = false;
        g.bytes = 0;
        getter_ask(&g, "-1");
        swarm_run(&b->swarm, "all events by GET", getter_done, &g);
        if (g.bytes != want)
            swarm_fail(&b->swarm, "a reading by GET had %llu bytes, an earlier one %llu",
                       (unsigned long long)g.bytes, (unsigned long long)want);
        total += g.bytes;
    } while (!b->swarm.failed && clock_mono_ns() < until);
    spent_end(b, &spent);
    double rate = (double)total / spent.seconds;
    row_spent(report_add(&b->report, "replay-get", rate), b, &spent, (double)total / 1e6);
    peer_close(&g.peer);
    buf_deinit(&g.request);
}

void phase_replay(struct bench *b)
{
    struct name stream = stream_name("replay", 0);
    fill(b, stream);
    replay_sse(b, stream);
    replay_get(b, stream);
    ask_delete(b, stream);
}
