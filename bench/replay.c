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

/* ---- plain GETs: what is measured counts bytes only; one reading before it counts events ----
 *
 * Several read at a time, or the server would wait for each one's next request. */

#define GETTERS 4

struct getting;

struct getter {
    struct peer peer;
    struct getting *run;
    struct buf request;
    uint64_t bytes; /* of body, since the start of the stream */
    bool answered;
};

struct getting {
    struct bench *bench;
    struct name stream;
    uint64_t want; /* bytes in one reading of the whole */
    uint64_t total, until_ns;
    unsigned reading; /* getters that have not stopped */
    struct getter getters[GETTERS];
};

static void getter_ask(struct getter *g, const char *offset)
{
    g->answered = false;
    g->request.n = 0;
    request_read(&g->request, g->run->stream, offset, false);
    peer_send(&g->peer, buf_str(&g->request));
}

static void getter_body(struct peer *p, struct str piece)
{
    container_of(p, struct getter, peer)->bytes += piece.n;
}

static void getter_end(struct peer *p)
{
    peer_expect(p, 200, "reading a stream");
    container_of(p, struct getter, peer)->answered = true;
}

/* One has read the whole: again, or no more. */
static void getter_whole(struct getter *g)
{
    struct getting *run = g->run;
    if (g->bytes != run->want)
        swarm_fail(&run->bench->swarm, "a reading by GET had %llu bytes, an earlier one %llu",
                   (unsigned long long)g->bytes, (unsigned long long)run->want);
    run->total += g->bytes;
    g->bytes = 0;
    if (clock_mono_ns() < run->until_ns)
        getter_ask(g, "-1");
    else
        run->reading--;
}

static void getter_after(struct peer *p)
{
    struct getter *g = container_of(p, struct getter, peer);
    if (!g->answered)
        return;
    g->answered = false;
    if (p->answer.up_to_date)
        getter_whole(g);
    else
        getter_ask(g, p->answer.next_offset);
}

static const struct peer_ops getter_ops = {
    .body = getter_body, .end = getter_end, .after = getter_after};

static bool none_reading(void *arg)
{
    return ((const struct getting *)arg)->reading == 0;
}

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
    struct getting run = {.bench = b, .stream = stream, .reading = GETTERS};
    verify(b, stream, &run.want);
    progress("replay: GET from the start, again and again, %d at a time", GETTERS);
    struct spent spent = spent_begin(b);
    run.until_ns = spent.start_ns + (uint64_t)(b->seconds * 1e9);
    for (unsigned i = 0; i < GETTERS; i++) {
        run.getters[i].run = &run;
        peer_open(&run.getters[i].peer, &b->swarm, &getter_ops);
        getter_ask(&run.getters[i], "-1");
    }
    swarm_run(&b->swarm, "all events by GET", none_reading, &run);
    spent_end(b, &spent);
    double rate = (double)run.total / spent.seconds;
    row_spent(report_add(&b->report, "replay-get", rate), b, &spent, (double)run.total / 1e6);
    for (unsigned i = 0; i < GETTERS; i++) {
        peer_close(&run.getters[i].peer);
        buf_deinit(&run.getters[i].request);
    }
}

void phase_replay(struct bench *b)
{
    struct name stream = stream_name("replay", 0);
    fill(b, stream);
    replay_sse(b, stream);
    replay_get(b, stream);
    ask_delete(b, stream);
}
