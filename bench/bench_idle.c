// SPDX-License-Identifier: Apache-2.0
/* Readers to whom nothing happens: what one costs in memory, and what all cost in time. */
#include "bench_reader.h"

#include "base/mem.h"

#include <stdlib.h>

#define READERS    5000
#define WARM_UP    50 /* connected before memory is first looked at */
#define STREAMS    50
#define EVENT_SIZE 64
#define REST_S     2.5 /* queues empty, pages touched, what requests needed given back */
#define QUIET_S    5.0

static const struct peer_ops reader_ops = {.head = reader_head, .body = reader_body};

struct idle {
    struct reader *readers;
    unsigned n, at;
};

static void open_some(struct bench *b, struct idle *run, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        reader_open(&run->readers[i], b, &reader_ops, stream_name("idle", i % STREAMS), "now", 0);
    readers_wait(b, run->readers, to);
    swarm_run_for(&b->swarm, REST_S);
}

static bool all_reached(void *arg)
{
    struct idle *run = arg;
    while (run->at < run->n && run->readers[run->at].tally.next > 0)
        run->at++;
    return run->at == run->n;
}

/* An idle reader must still be one: each gets one event at the end. */
static void wake_all(struct bench *b, struct idle *run)
{
    struct buf body = {0};
    event_put_json(&body, 0, EVENT_SIZE);
    for (unsigned i = 0; i < STREAMS; i++)
        ask_append(b, stream_name("idle", i), TYPE_JSON, buf_str(&body), NULL);
    swarm_run(&b->swarm, "all readers to get one event", all_reached, run);
    readers_verify(b, run->readers, run->n, 1);
    buf_deinit(&body);
}

static void idle_measure(struct bench *b, struct idle *run)
{
    open_some(b, run, 0, WARM_UP);
    uint64_t before = server_memory(&b->server);
    open_some(b, run, WARM_UP, run->n);
    double grown = (double)server_memory(&b->server) - (double)before;

    struct spent spent = spent_begin(b);
    swarm_run_for(&b->swarm, QUIET_S);
    spent_end(b, &spent);
    wake_all(b, run);
    if (b->swarm.failed || before == 0)
        return;
    report_add(&b->report, "idle-memory", grown / (run->n - WARM_UP));
    report_add(&b->report, "idle-cpu", spent.cpu_seconds / spent.seconds * 100);
}

void phase_idle(struct bench *b)
{
    struct idle run = {.n = READERS};
    if (run.n > b->sockets)
        run.n = (unsigned)b->sockets;
    if (run.n <= WARM_UP) {
        swarm_fail(&b->swarm, "too few open files are allowed for idle readers");
        return;
    }
    progress("idle: %u SSE readers to whom nothing happens", run.n);
    for (unsigned i = 0; i < STREAMS; i++)
        ask_create(b, stream_name("idle", i), TYPE_JSON);
    run.readers = readers_new(run.n, NULL);
    idle_measure(b, &run);
    readers_close(run.readers, run.n);
    free(run.readers);
    for (unsigned i = 0; i < STREAMS; i++)
        ask_delete(b, stream_name("idle", i));
}
