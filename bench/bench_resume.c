// SPDX-License-Identifier: Apache-2.0
/* All clients lose their connection and come back at once, each some events behind. */
#include "bench_reader.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>

#define CLIENTS    2000
#define STREAMS    20
#define BEFORE     400 /* events that every client has seen */
#define MISSED     100
#define EVENT_SIZE 64
#define ROUNDS_MIN 3
#define ROUNDS_MAX 64

struct resume {
    struct bench *bench;
    struct reader *clients;
    unsigned n, caught_up;
    char offsets[STREAMS][ANSWER_OFFSET_MAX];
};

static void fill(struct resume *run, unsigned i)
{
    struct name stream = stream_name("resume", i);
    struct buf body = {0};
    ask_create(run->bench, stream, TYPE_JSON);
    event_put_array(&body, 0, BEFORE, EVENT_SIZE);
    ask_append(run->bench, stream, TYPE_JSON, buf_str(&body), run->offsets[i]);
    for (unsigned k = 0; k < MISSED; k++) {
        body.n = 0;
        event_put_json(&body, BEFORE + k, EVENT_SIZE);
        ask_append(run->bench, stream, TYPE_JSON, buf_str(&body), NULL);
    }
    buf_deinit(&body);
}

static void client_body(struct peer *p, struct str piece)
{
    struct reader *r = container_of(p, struct reader, peer);
    bool before = r->tally.next >= BEFORE + MISSED;
    reader_body(p, piece);
    if (!before && r->tally.next >= BEFORE + MISSED)
        ((struct resume *)r->owner)->caught_up++;
}

static const struct peer_ops client_ops = {.head = reader_head, .body = client_body};

static bool all_caught_up(void *arg)
{
    const struct resume *run = arg;
    return run->caught_up == run->n;
}

/* Milliseconds until the last client has all it missed. */
static double storm(struct resume *run)
{
    run->caught_up = 0;
    uint64_t start = clock_mono_ns();
    for (unsigned i = 0; i < run->n; i++)
        reader_open(&run->clients[i], run->bench, &client_ops, stream_name("resume", i % STREAMS),
                    run->offsets[i % STREAMS], BEFORE);
    swarm_run(&run->bench->swarm, "all clients to catch up", all_caught_up, run);
    double ms = (double)(clock_mono_ns() - start) / 1e6;
    readers_verify(run->bench, run->clients, run->n, BEFORE + MISSED);
    for (unsigned i = 0; i < run->n; i++)
        peer_close(&run->clients[i].peer);
    return ms;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void resume_report(const struct resume *run, double *took, unsigned rounds,
                          const struct spent *spent)
{
    if (run->bench->swarm.failed)
        return;
    qsort(took, rounds, sizeof *took, by_value);
    progress("resume: %u times, fastest %.1f ms, slowest %.1f ms", rounds, took[0],
             took[rounds - 1]);
    struct row *row = report_add(&run->bench->report, "resume", took[rounds / 2]);
    row_spent(row, run->bench, spent, (double)run->n * rounds);
}

void phase_resume(struct bench *b)
{
    struct resume run = {.bench = b, .n = CLIENTS};
    double took[ROUNDS_MAX];
    unsigned rounds = 0;
    if (run.n > b->sockets)
        run.n = (unsigned)b->sockets;
    progress("resume: %u clients come back at once, %d events behind", run.n, MISSED);
    for (unsigned i = 0; i < STREAMS; i++)
        fill(&run, i);
    run.clients = readers_new(run.n, &run);

    struct spent spent = spent_begin(b);
    uint64_t until = clock_mono_ns() + (uint64_t)(b->seconds * 1e9);
    while (!b->swarm.failed &&
           (rounds < ROUNDS_MIN || (rounds < ROUNDS_MAX && clock_mono_ns() < until))) {
        took[rounds++] = storm(&run);
        swarm_run_for(&b->swarm, 0.05); /* the server sees that they are gone */
    }
    spent_end(b, &spent);
    resume_report(&run, took, rounds, &spent);
    readers_close(run.clients, run.n);
    free(run.clients);
    for (unsigned i = 0; i < STREAMS; i++)
        ask_delete(b, stream_name("resume", i));
}
