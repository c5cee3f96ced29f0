// SPDX-License-Identifier: Apache-2.0
#include "bench_reader.h"

#include "base/mem.h"

#include <stdlib.h>

void reader_head(struct peer *p)
{
    peer_expect(p, 200, "opening an SSE reader");
}

static void notice_ready(struct reader *r, struct str piece)
{
    if (r->ready || piece.n == 0)
        return;
    r->ready = (r->last == '\n' && piece.p[0] == '\n') || memmem(piece.p, piece.n, "\n\n", 2);
    r->last = piece.p[piece.n - 1];
}

void reader_body(struct peer *p, struct str piece)
{
    struct reader *r = container_of(p, struct reader, peer);
    notice_ready(r, piece);
    tally_feed(&r->tally, piece);
    if (r->tally.lost > 0 || r->tally.twice > 0)
        swarm_fail(p->swarm, "before event %llu a reader lost %llu events and got %llu twice",
                   (unsigned long long)r->tally.next, (unsigned long long)r->tally.lost,
                   (unsigned long long)r->tally.twice);
}

void reader_open(struct reader *r, struct bench *b, const struct peer_ops *ops, struct name stream,
                 const char *offset, uint64_t first)
{
    r->request.n = 0;
    request_read(&r->request, stream, offset, true);
    reader_ask(r, b, ops, first);
}

void reader_ask(struct reader *r, struct bench *b, const struct peer_ops *ops, uint64_t first)
{
    r->tally = (struct tally){.next = first};
    r->ready = false;
    r->last = '\0';
    peer_open(&r->peer, &b->swarm, ops);
    peer_send(&r->peer, buf_str(&r->request));
}

void reader_close(struct reader *r)
{
    peer_close(&r->peer);
    buf_deinit(&r->request);
}

struct reader *readers_new(unsigned n, void *owner)
{
    struct reader *all = mem_zalloc(n * sizeof *all);
    for (unsigned i = 0; i < n; i++) {
        all[i].peer.fd = -1;
        all[i].owner = owner;
    }
    return all;
}

void readers_close(struct reader *all, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        reader_close(&all[i]);
}

struct readiness {
    struct reader *all;
    unsigned n, at; /* those before `at` are ready */
};

static bool all_ready(void *arg)
{
    struct readiness *r = arg;
    while (r->at < r->n && r->all[r->at].ready)
        r->at++;
    return r->at == r->n;
}

void readers_wait(struct bench *b, struct reader *all, unsigned n)
{
    struct readiness r = {all, n, 0};
    swarm_run(&b->swarm, "all readers to be connected", all_ready, &r);
}

void readers_verify(struct bench *b, const struct reader *all, unsigned n, uint64_t end)
{
    for (unsigned i = 0; i < n && !b->swarm.failed; i++) {
        const struct tally *t = &all[i].tally;
        if (!tally_whole(t, end))
            swarm_fail(&b->swarm, "reader %u got the events up to %llu, not to %llu", i,
                       (unsigned long long)t->next, (unsigned long long)end);
    }
}
