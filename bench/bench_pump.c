// SPDX-License-Identifier: Apache-2.0
#include "bench_pump.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>

#define EACH_CONNECTIONS 64
#define STEP             10000

static void spout_send(struct spout *s, unsigned count)
{
    struct pump *p = s->pump;
    uint64_t left = p->limit > p->sent ? p->limit - p->sent : 0;
    if (count > left)
        count = (unsigned)left;
    if (count == 0)
        return;
    struct str bytes = p->next(s, p->sent, count);
    uint64_t now = clock_mono_ns();
    for (unsigned i = 0; i < count; i++)
        s->sent_ns[(s->oldest + s->under_way++) % PUMP_DEPTH_MAX] = now;
    s->sent += count;
    p->sent += count;
    peer_send(&s->peer, bytes);
}

static void spout_end(struct peer *peer)
{
    struct spout *s = container_of(peer, struct spout, peer);
    struct pump *p = s->pump;
    if (p->lenient)
        p->refused += peer->answer.status != p->status;
    else if (!peer_expect(peer, p->status, p->what))
        return;
    uint64_t now = clock_mono_ns(), sent_ns = s->sent_ns[s->oldest++ % PUMP_DEPTH_MAX];
    hist_add(&p->latency, now - sent_ns);
    if (p->timed)
        p->timed(p, sent_ns, now);
    s->under_way--;
    s->owed++;
    s->answered++;
    p->answered++;
}

static void spout_after(struct peer *peer)
{
    struct spout *s = container_of(peer, struct spout, peer);
    unsigned owed = s->owed;
    if (owed == 0 || peer->out.n > 0)
        return;
    s->owed = 0;
    spout_send(s, owed);
}

static const struct peer_ops spout_ops = {.end = spout_end, .after = spout_after};

void pump_open(struct pump *p)
{
    p->spouts = mem_zalloc(p->n * sizeof *p->spouts);
    for (unsigned i = 0; i < p->n; i++) {
        p->spouts[i].pump = p;
        p->spouts[i].number = i;
        peer_open(&p->spouts[i].peer, &p->bench->swarm, &spout_ops);
    }
}

void pump_start(struct pump *p)
{
    for (unsigned i = 0; i < p->n; i++)
        spout_send(&p->spouts[i], p->depth);
}

struct goal {
    const struct pump *pump;
    uint64_t answered;
};

static bool late(const struct pump *p)
{
    return p->until_ns > 0 && clock_mono_ns() > p->until_ns;
}

static bool reached(void *arg)
{
    const struct goal *g = arg;
    return g->pump->answered >= g->answered || late(g->pump);
}

/* In steps, as the swarm's patience is for one thing and not for a hundred thousand. */
void pump_until(struct pump *p, uint64_t answered)
{
    while (!p->bench->swarm.failed && p->answered < answered && !late(p)) {
        uint64_t step = answered - p->answered < STEP ? answered - p->answered : STEP;
        struct goal goal = {p, p->answered + step};
        swarm_run(&p->bench->swarm, "answers", reached, &goal);
    }
}

void pump_finish(struct pump *p)
{
    pump_until(p, p->limit > p->sent ? p->limit : p->sent);
}

void pump_close(struct pump *p)
{
    for (unsigned i = 0; i < p->n; i++) {
        peer_close(&p->spouts[i].peer);
        buf_deinit(&p->spouts[i].requests);
    }
    free(p->spouts);
}

struct each {
    const char *phase;
    uint64_t first;
    void (*make)(struct buf *out, struct name stream, void *arg);
    void *arg;
};

static struct str each_next(struct spout *s, uint64_t first, unsigned count)
{
    const struct each *each = s->pump->ctx;
    s->requests.n = 0;
    for (unsigned i = 0; i < count; i++)
        each->make(&s->requests, stream_name(each->phase, (unsigned)(each->first + first) + i),
                   each->arg);
    return buf_str(&s->requests);
}

void pump_range(struct bench *b, const char *phase, struct pump_range range,
                void (*make)(struct buf *out, struct name stream, void *arg), void *arg, int status,
                const char *what)
{
    struct each each = {phase, range.first, make, arg};
    struct pump p = {.bench = b,
                     .n = range.connections,
                     .depth = range.depth,
                     .status = status,
                     .what = what,
                     .limit = range.count,
                     .until_ns = range.until_ns,
                     .next = each_next,
                     .ctx = &each};
    pump_open(&p);
    for (unsigned i = 0; i < p.n; i++)
        p.spouts[i].peer.answer.to_head = range.heads;
    pump_start(&p);
    pump_finish(&p);
    pump_close(&p);
}

void pump_each(struct bench *b, const char *phase, uint64_t count,
               void (*make)(struct buf *out, struct name stream, void *arg), void *arg, int status,
               const char *what)
{
    struct pump_range all = {
        .count = count, .connections = EACH_CONNECTIONS, .depth = PUMP_DEPTH_MAX};
    pump_range(b, phase, all, make, arg, status, what);
}

static void put_delete(struct buf *out, struct name stream, void *arg)
{
    request_delete(out, stream);
}

void pump_delete(struct bench *b, const char *phase, uint64_t count)
{
    if (!b->server.ours)
        pump_each(b, phase, count, put_delete, NULL, 204, "deleting a stream");
}
