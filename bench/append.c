// SPDX-License-Identifier: Apache-2.0
/* Appends as fast as they are answered: so many connections, each with so many requests under way,
 * over 64 streams. */
#include "bench.h"
#include "hist.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>

#define STREAMS   64
#define BODY_SIZE 256
#define DEPTH_MAX 16
#define WARM_UP_S 0.5
#define KEY_MAX   32

struct append_run;

struct writer {
    struct peer peer;
    struct append_run *run;
    struct buf requests; /* `depth` times the same one */
    size_t request_size;
    uint64_t sent_ns[DEPTH_MAX]; /* a ring: answers come in the order of the requests */
    unsigned oldest, under_way, owed;
    uint64_t answered;
};

struct append_run {
    struct bench *bench;
    const char *phase, *type;
    unsigned depth, n;
    struct writer *writers;
    uint64_t sent, limit; /* limit: no more requests once so many are sent */
    unsigned under_way;
    struct hist latency;
};

static void writer_send(struct writer *w, unsigned count)
{
    struct append_run *run = w->run;
    uint64_t now = clock_mono_ns();
    for (unsigned i = 0; i < count; i++)
        w->sent_ns[(w->oldest + w->under_way++) % DEPTH_MAX] = now;
    run->under_way += count;
    run->sent += count;
    peer_send(&w->peer, str_of(w->requests.p, count * w->request_size));
}

static void writer_end(struct peer *p)
{
    struct writer *w = container_of(p, struct writer, peer);
    if (!peer_expect(p, 204, "appending"))
        return;
    hist_add(&w->run->latency, clock_mono_ns() - w->sent_ns[w->oldest % DEPTH_MAX]);
    w->oldest++;
    w->under_way--;
    w->owed++;
    w->answered++;
    w->run->under_way--;
}

static void writer_after(struct peer *p)
{
    struct writer *w = container_of(p, struct writer, peer);
    unsigned owed = w->owed;
    if (owed == 0 || p->out.n > 0)
        return;
    w->owed = 0;
    if (w->run->sent < w->run->limit)
        writer_send(w, owed);
}

static const struct peer_ops writer_ops = {.end = writer_end, .after = writer_after};

static void writer_init(struct writer *w, struct append_run *run, unsigned i, struct str body)
{
    w->run = run;
    for (unsigned k = 0; k < run->depth; k++)
        request_append(&w->requests, stream_name(run->phase, i % STREAMS), run->type, body);
    w->request_size = w->requests.n / run->depth;
    peer_open(&w->peer, &run->bench->swarm, &writer_ops);
}

static void append_open(struct append_run *run)
{
    struct buf body = {0};
    if (strcmp(run->type, TYPE_JSON) == 0)
        event_put_json(&body, 0, BODY_SIZE);
    else
        while (body.n < BODY_SIZE) /* neither text nor anything that compresses to nothing */
            buf_putc(&body, (char)(body.n * 37 + 128));
    for (unsigned i = 0; i < STREAMS; i++)
        ask_create(run->bench, stream_name(run->phase, i), run->type);
    run->writers = mem_zalloc(run->n * sizeof *run->writers);
    for (unsigned i = 0; i < run->n; i++)
        writer_init(&run->writers[i], run, i, buf_str(&body));
    for (unsigned i = 0; i < run->n; i++)
        writer_send(&run->writers[i], run->depth);
    buf_deinit(&body);
}

static bool all_answered(void *arg)
{
    return ((struct append_run *)arg)->under_way == 0;
}

static void append_finish(struct append_run *run)
{
    run->limit = 0;
    swarm_run(&run->bench->swarm, "the last answers", all_answered, run);
}

static void append_close(struct append_run *run)
{
    for (unsigned i = 0; i < run->n; i++) {
        peer_close(&run->writers[i].peer);
        buf_deinit(&run->writers[i].requests);
    }
    free(run->writers);
}

/* What was answered must be there. */
static void append_verify(struct append_run *run, unsigned stream)
{
    struct tally tally = {0};
    uint64_t want = 0;
    for (unsigned i = stream; i < run->n; i += STREAMS)
        want += run->writers[i].answered;
    ask_all(run->bench, stream_name(run->phase, stream), &tally);
    bool json = strcmp(run->type, TYPE_JSON) == 0;
    uint64_t found = json ? tally.seen : tally.bytes / BODY_SIZE;
    if (!run->bench->swarm.failed && found != want)
        swarm_fail(&run->bench->swarm,
                   "%llu appends to a stream were answered, but it holds %llu events",
                   (unsigned long long)want, (unsigned long long)found);
}

static void append_report(struct append_run *run, const char *key, const struct spent *spent)
{
    struct report *r = &run->bench->report;
    char sub[KEY_MAX];
    double answered = (double)run->latency.n;
    row_spent(report_add(r, key, answered / spent->seconds), run->bench, spent, answered);
    snprintf(sub, sizeof sub, "%s-p50", key);
    report_add(r, sub, (double)hist_at(&run->latency, 0.5) / 1e3);
    snprintf(sub, sizeof sub, "%s-p99", key);
    report_add(r, sub, (double)hist_at(&run->latency, 0.99) / 1e3);
}

static void measure(struct bench *b, const char *key, const char *type, unsigned n, unsigned depth)
{
    struct append_run run = {.bench = b, .phase = key, .type = type, .n = n, .depth = depth};
    run.limit = UINT64_MAX;
    progress("%s: %u connections, at most %u under way on each", key, n, depth);
    append_open(&run);
    swarm_run_for(&b->swarm, WARM_UP_S);
    memset(&run.latency, 0, sizeof run.latency);
    struct spent spent = spent_begin(b);
    swarm_run_for(&b->swarm, b->seconds);
    spent_end(b, &spent);
    if (!b->swarm.failed)
        append_report(&run, key, &spent);
    append_finish(&run);
    for (unsigned i = 0; i < STREAMS; i++) {
        append_verify(&run, i);
        ask_delete(b, stream_name(key, i));
    }
    append_close(&run);
}

void phase_append_64(struct bench *b)
{
    measure(b, "append-64", TYPE_BYTES, 64, 1);
}

void phase_append_256(struct bench *b)
{
    measure(b, "append-256", TYPE_BYTES, 256, 1);
}

void phase_append_64x16(struct bench *b)
{
    measure(b, "append-64x16", TYPE_BYTES, 64, 16);
}

void phase_json_64(struct bench *b)
{
    measure(b, "json-64", TYPE_JSON, 64, 1);
}

void phase_json_256(struct bench *b)
{
    measure(b, "json-256", TYPE_JSON, 256, 1);
}

void phase_json_64x16(struct bench *b)
{
    measure(b, "json-64x16", TYPE_JSON, 64, 16);
}

void run_appends(struct bench *b, uint64_t count)
{
    struct append_run run = {.bench = b, .phase = "count", .type = TYPE_BYTES, .n = 64, .depth = 1};
    run.limit = count;
    append_open(&run);
    /* count >= 64, so none is under way only at the end */
    swarm_run(&b->swarm, "the last answers", all_answered, &run);
    append_close(&run);
}
