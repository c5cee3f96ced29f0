// SPDX-License-Identifier: Apache-2.0
/* The server as a gateway: what it adds to an event's way from a backend to a client, and how many
 * generations of 50 tokens a second it carries before one event in a hundred takes more than 50 ms.
 *
 * The backend is within this process (bench_backend.h), so the same thread sends an event and
 * receives it, and what this thread costs is in every latency. So the added latency is told from
 * streams that go directly, in the same seconds, turn by turn with those that go through the
 * gateway; and a number of generations that is too large goes directly once, which is the same work
 * for this thread: if it is not quick either, the limit found is this thread's.
 *
 * Every round has a server of its own: generations that have ended stay in it for a while. */
#include "bench_backend.h"
#include "bench_reader.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>
#include <time.h>

#define PATH       "/bench/tokens"
#define EVENT_SIZE 64 /* of JSON */
#define PER_SECOND 50
#define STREAMS    64 /* each way */
#define WARM_UP    20 /* events of a stream that are not counted */
#define PRIMING    32 /* generations on a new server, before its memory is told */
#define LIMIT_MS   50.0
#define FIRST_STEP 100
#define MOST       9000 /* the server takes 10,000 connections */
#define HALVINGS   2    /* between the last step that held and the first that did not */
#define TRIES      2

/* Less than the memory store keeps of a generation, or what a reader that lags behind has lost
 * would be told as a gap. */
#define EVENTS_MAX 240

enum way { DIRECT, THROUGH };

struct round;

struct generation {
    struct reader reader;
    struct round *round;
    const struct backend_stream *source;
    enum way way;
};

struct round {
    struct bench *bench;
    struct backend *backend;
    unsigned n, ended;
    unsigned events; /* of each stream */
    struct generation *all;
    struct hist latency[2]; /* ns, of all events but the first WARM_UP of each stream */
    uint64_t arrived[2];

    /* What was seen while it was measured. */
    struct spent spent;
    double seen[2]; /* events that arrived */
    double memory;  /* that the server had more than before, at the beginning */
    double busy;    /* part of the time that this process was on a processor */
    double late_ms; /* p99, by how much events were sent too late */
};

/* ---- events that arrive ---- */

static void count(struct generation *g, uint64_t number, uint64_t now)
{
    struct round *r = g->round;
    if (number >= g->source->sent) {
        swarm_fail(&r->bench->swarm, "event %llu came before it was sent",
                   (unsigned long long)number);
        return;
    }
    r->arrived[g->way]++;
    if (number >= WARM_UP)
        hist_add(&r->latency[g->way], now - g->source->sent_ns[number]);
}

static void on_body(struct peer *p, struct str piece)
{
    struct generation *g =
        container_of(container_of(p, struct reader, peer), struct generation, reader);
    uint64_t number = g->reader.tally.next, now = clock_mono_ns();
    reader_body(p, piece);
    for (; number < g->reader.tally.next && !p->swarm->failed; number++)
        count(g, number, now);
}

static void on_end(struct peer *p)
{
    container_of(container_of(p, struct reader, peer), struct generation, reader)->round->ended++;
}

static const struct peer_ops generation_ops = {.head = reader_head, .body = on_body, .end = on_end};

/* ---- a round ---- */

static void generation_open(struct generation *g, unsigned number)
{
    static const char body[] = "{\"prompt\":\"Why does the tide come twice a day?\"}";
    struct bench *b = g->round->bench;
    struct sockaddr_in server = b->swarm.to;
    buf_printf(&g->reader.request,
               "POST " PATH
               "?n=%u HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\n\r\n%s",
               number, sizeof body - 1, body);
    g->source = &g->round->backend->streams[number];
    if (g->way == DIRECT)
        b->swarm.to = g->round->backend->at;
    reader_ask(&g->reader, b, &generation_ops, 0);
    b->swarm.to = server;
}

static bool all_asked(void *arg)
{
    const struct round *r = arg;
    return r->backend->asked == r->n;
}

static bool all_ended(void *arg)
{
    const struct round *r = arg;
    return r->ended == r->n;
}

static void round_open(struct round *r)
{
    backend_expect(r->backend, r->n, r->events);
    r->all = mem_zalloc(r->n * sizeof *r->all);
    for (unsigned i = 0; i < r->n; i++) {
        r->all[i].reader.peer.fd = -1;
        r->all[i].round = r;
    }
}

/* The given ways in turn. */
static void round_ask(struct round *r, const enum way *ways, unsigned n_ways)
{
    for (unsigned i = 0; i < r->n; i++) {
        r->all[i].way = ways[i % n_ways];
        generation_open(&r->all[i], i);
    }
    swarm_run(&r->bench->swarm, "all requests to reach the backend", all_asked, r);
}

static uint64_t own_cpu_ns(void)
{
    struct timespec t = {0, 0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void round_measure(struct round *r, uint64_t memory_before)
{
    struct bench *b = r->bench;
    backend_go(r->backend, PER_SECOND);
    swarm_run_for(&b->swarm, (double)WARM_UP / PER_SECOND);
    r->memory = (double)server_memory(&b->server) - (double)memory_before;
    double before[2] = {(double)r->arrived[DIRECT], (double)r->arrived[THROUGH]};
    uint64_t own = own_cpu_ns();
    r->spent = spent_begin(b);
    swarm_run_for(&b->swarm, (double)(r->events - WARM_UP) / PER_SECOND);
    spent_end(b, &r->spent);
    r->busy = (double)(own_cpu_ns() - own) / 1e9 / r->spent.seconds;
    for (unsigned way = DIRECT; way <= THROUGH; way++)
        r->seen[way] = (double)r->arrived[way] - before[way];
}

static void round_close(struct round *r)
{
    swarm_run(&r->bench->swarm, "all generations to end", all_ended, r);
    for (unsigned i = 0; i < r->n; i++) {
        readers_verify(r->bench, &r->all[i].reader, 1, r->events);
        reader_close(&r->all[i].reader);
    }
    free(r->all);
    r->all = NULL;
}

/* The first generations make a server allocate what all of them share. */
static void prime(struct bench *b, struct backend *backend)
{
    struct round r = {.bench = b, .backend = backend, .n = PRIMING, .events = 2};
    round_open(&r);
    round_ask(&r, &(const enum way){THROUGH}, 1);
    backend_go(backend, PER_SECOND);
    round_close(&r);
}

static void round_run(struct round *r, double seconds, const enum way *ways, unsigned n_ways)
{
    r->events = WARM_UP + (unsigned)(seconds * PER_SECOND);
    if (r->events > EVENTS_MAX)
        r->events = EVENTS_MAX;
    bench_renew(r->bench);
    prime(r->bench, r->backend);
    uint64_t before = server_memory(&r->bench->server);
    round_open(r);
    round_ask(r, ways, n_ways);
    round_measure(r, before);
    round_close(r);
    r->late_ms = (double)hist_at(&r->backend->late, 0.99) / 1e6;
}

static double latency_us(const struct round *r, enum way way, double part)
{
    return (double)hist_at(&r->latency[way], part) / 1e3;
}

static double server_busy(const struct round *r)
{
    return r->spent.cpu_seconds / r->spent.seconds;
}

/* ---- what the gateway adds ---- */

static void added_report(const struct round *r)
{
    static const struct {
        const char *direct, *through, *added;
        double part;
    } rows[] = {
        {"gateway-direct-p50", "gateway-through-p50", "gateway-added-p50", 0.5},
        {"gateway-direct-p99", "gateway-through-p99", "gateway-added-p99", 0.99},
    };
    struct report *report = &r->bench->report;
    double events = r->seen[THROUGH];
    row_spent(report_add(report, "gateway", events / r->spent.seconds), r->bench, &r->spent,
              events);
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        double direct = latency_us(r, DIRECT, rows[i].part);
        double through = latency_us(r, THROUGH, rows[i].part);
        report_add(report, rows[i].direct, direct);
        report_add(report, rows[i].through, through);
        report_add(report, rows[i].added, through - direct);
    }
}

static void measure_added(struct bench *b, struct backend *backend)
{
    static const enum way both[] = {DIRECT, THROUGH};
    struct round r = {.bench = b, .backend = backend, .n = 2 * STREAMS};
    progress("gateway: %d streams of %d events a second directly, %d through the gateway", STREAMS,
             PER_SECOND, STREAMS);
    round_run(&r, b->seconds, both, 2);
    if (!b->swarm.failed)
        added_report(&r);
}

/* ---- how many it carries ---- */

struct climb {
    struct bench *bench;
    struct backend *backend;
    unsigned held, broke;     /* the most that did; the least that did not, 0: none */
    struct round best, worst; /* what was seen there */
    double direct_ms;         /* p99 of `broke` streams that went directly */
};

static struct round step_once(const struct climb *c, unsigned n, enum way way)
{
    struct round r = {.bench = c->bench, .backend = c->backend, .n = n};
    round_run(&r, c->bench->seconds / 3, &way, 1);
    if (!c->bench->swarm.failed)
        progress("gateway: %u %s: p50 %.1f ms, p99 %.1f ms; server %.0f %% busy, generator %.0f %% "
                 "(p99 %.1f ms late), others %.0f %%",
                 n, way == THROUGH ? "generations" : "streams directly",
                 latency_us(&r, way, 0.5) / 1e3, latency_us(&r, way, 0.99) / 1e3,
                 server_busy(&r) * 100, r.busy * 100, r.late_ms, r.spent.others * 100);
    return r;
}

/* Events that were sent late were fewer than 50 a second, whatever became of them. */
static bool holds(const struct round *r)
{
    return latency_us(r, THROUGH, 0.99) / 1e3 <= LIMIT_MS && r->late_ms <= LIMIT_MS;
}

/* One try may fall into a moment in which the machine does something else. */
static void step(struct climb *c, unsigned n)
{
    struct round r = {0};
    for (unsigned i = 0; i < TRIES && !c->bench->swarm.failed; i++) {
        r = step_once(c, n, THROUGH);
        if (holds(&r)) {
            c->held = n;
            c->best = r;
            return;
        }
    }
    c->broke = n;
    c->worst = r;
}

static unsigned most_streams(const struct bench *b)
{
    size_t most = b->sockets / 2; /* of each both ends are ours, or both the server's */
    return most < MOST ? (unsigned)most : MOST;
}

static void climb(struct climb *c)
{
    unsigned most = most_streams(c->bench);
    for (unsigned n = FIRST_STEP; n <= most && !c->broke && !c->bench->swarm.failed; n *= 2)
        step(c, n);
    if (!c->broke || c->bench->swarm.failed)
        return;
    struct round control = step_once(c, c->broke, DIRECT);
    c->direct_ms = latency_us(&control, DIRECT, 0.99) / 1e3;
    for (unsigned i = 0; i < HALVINGS && !c->bench->swarm.failed; i++)
        step(c, (c->held + c->broke) / 2);
}

/* Who set the limit. A process that is slow without being on a processor all the time waited for
 * one, unless nobody else wanted it: then for its disk, or the machine paused. */
static const char *limit_of(const struct climb *c)
{
    const struct round *r = &c->worst;
    bool contended = r->spent.others > 0.05;
    if (c->direct_ms > LIMIT_MS / 2 || r->late_ms > LIMIT_MS)
        return contended ? "other processes" : "the generator";
    if (!c->bench->server.timed || server_busy(r) > 0.8)
        return "the server";
    return contended ? "other processes" : "unclear";
}

static void climb_report(const struct climb *c)
{
    struct report *report = &c->bench->report;
    const struct round *r = &c->best;
    struct row *row = report_add(report, "gateway-most", c->held);
    if (c->broke)
        row_note(row, "%u: p99 %.0f ms, server %.0f %% busy; the limit is %s", c->broke,
                 latency_us(&c->worst, THROUGH, 0.99) / 1e3, server_busy(&c->worst) * 100,
                 limit_of(c));
    else
        row_note(row, "not enough sockets to try more");
    if (c->held == 0)
        return;
    row_spent(row, c->bench, &r->spent, r->seen[THROUGH]);
    if (row->measured)
        report_add(report, "gateway-core", 1e6 / (row->cpu_us * PER_SECOND));
    report_add(report, "gateway-most-p50", latency_us(r, THROUGH, 0.5) / 1e3);
    report_add(report, "gateway-most-p99", latency_us(r, THROUGH, 0.99) / 1e3);
    if (c->bench->server.timed)
        row_note(report_add(report, "gateway-memory", r->memory / r->n), "%d events in each",
                 WARM_UP);
}

static void measure_most(struct bench *b, struct backend *backend)
{
    struct climb *c = mem_zalloc(sizeof *c);
    c->bench = b;
    c->backend = backend;
    climb(c);
    if (!b->swarm.failed)
        climb_report(c);
    free(c);
}

void phase_gateway(struct bench *b)
{
    if (!b->server.ours) {
        progress("gateway: left out, only a server of ours has the route");
        return;
    }
    struct backend backend;
    struct buf args = {0};
    const char *given = b->plan.args;
    backend_init(&backend, &b->swarm, EVENT_SIZE);
    buf_printf(&args, "%s --route " PATH "=http://127.0.0.1:%u" PATH "%c", given ? given : "",
               ntohs(backend.at.sin_port), '\0');
    b->plan.args = args.p;
    measure_added(b, &backend);
    measure_most(b, &backend);
    b->plan.args = given;
    backend_deinit(&backend);
    buf_deinit(&args);
}
