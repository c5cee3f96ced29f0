// SPDX-License-Identifier: Apache-2.0
#include "bench_bulk.h"

#include "base/clock.h"
#include "base/mem.h"

#define BATCH 1000 /* events in one append while a stream is filled */

void bulk_fill(struct bench *b, const struct bulk *h)
{
    struct buf body = {0};
    for (unsigned i = 0; i < h->streams; i++)
        ask_create(b, stream_name(h->phase, i), TYPE_JSON);
    for (uint64_t at = 0; at < h->events && !b->swarm.failed; at += BATCH) {
        body.n = 0;
        event_put_array(&body, at, BATCH, BULK_EVENT_SIZE);
        for (unsigned i = 0; i < h->streams; i++)
            ask_append(b, stream_name(h->phase, i), TYPE_JSON, buf_str(&body), NULL);
    }
    buf_deinit(&body);
}

void bulk_verify(struct bench *b, struct bulk *h)
{
    for (unsigned i = 0; i < h->streams; i++) {
        struct tally tally = {0};
        ask_all(b, stream_name(h->phase, i), &tally);
        if (!b->swarm.failed && !tally_whole(&tally, h->events))
            swarm_fail(&b->swarm, "reading by GET: %llu events lost, %llu twice, %llu in all",
                       (unsigned long long)tally.lost, (unsigned long long)tally.twice,
                       (unsigned long long)tally.seen);
        h->bytes = tally.bytes;
    }
}

/* ---- what is measured counts bytes only ----
 *
 * Several read at a time, or the server would wait for each one's next request. */

struct getting;

struct getter {
    struct peer peer;
    struct getting *run;
    struct name stream;
    struct buf request;
    uint64_t bytes; /* of body, since the start of the stream */
    bool answered;
};

struct getting {
    struct bench *bench;
    uint64_t want; /* bytes in one reading of the whole */
    uint64_t total, until_ns;
    unsigned reading; /* getters that have not stopped */
    struct getter getters[BULK_GETTERS];
};

static void getter_ask(struct getter *g, const char *offset)
{
    g->answered = false;
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

uint64_t bulk_get(struct bench *b, const struct bulk *h, double seconds)
{
    struct getting run = {.bench = b, .want = h->bytes, .reading = BULK_GETTERS};
    run.until_ns = clock_mono_ns() + (uint64_t)(seconds * 1e9);
    for (unsigned i = 0; i < BULK_GETTERS; i++) {
        struct getter *g = &run.getters[i];
        g->run = &run;
        g->stream = stream_name(h->phase, i % h->streams);
        peer_open(&g->peer, &b->swarm, &getter_ops);
        getter_ask(g, "-1");
    }
    swarm_run(&b->swarm, "all events by GET", none_reading, &run);
    for (unsigned i = 0; i < BULK_GETTERS; i++) {
        peer_close(&run.getters[i].peer);
        buf_deinit(&run.getters[i].request);
    }
    return run.total;
}

void bulk_delete(struct bench *b, const struct bulk *h)
{
    for (unsigned i = 0; i < h->streams; i++)
        ask_delete(b, stream_name(h->phase, i));
}
