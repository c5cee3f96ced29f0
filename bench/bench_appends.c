// SPDX-License-Identifier: Apache-2.0
#include "bench_appends.h"

#include "base/mem.h"

/* How many streams this connection appends to in turn. */
static unsigned turns(const struct appends *a, unsigned i)
{
    unsigned n = a->pump.n;
    return a->streams > i ? (a->streams - i + n - 1) / n : 1;
}

/* All its requests are of one size and stand one behind the other, the first ones once more at the
 * end: whichever comes next, `depth` of them are one piece. */
static struct str appends_next(struct spout *s, uint64_t first, unsigned count)
{
    const struct appends *a = container_of(s->pump, struct appends, pump);
    unsigned cycle = turns(a, s->number);
    size_t size = s->requests.n / (cycle + a->pump.depth - 1);
    return str_of(s->requests.p + s->sent % cycle * size, count * size);
}

struct appends appends_of(struct bench *b, const char *phase, const char *type, unsigned streams,
                          unsigned connections, unsigned depth)
{
    struct pump pump = {.bench = b,
                        .n = connections,
                        .depth = depth,
                        .status = 204,
                        .what = "appending",
                        .limit = UINT64_MAX,
                        .next = appends_next};
    return (struct appends){.pump = pump, .phase = phase, .type = type, .streams = streams};
}

static void put_body(struct buf *out, const char *type)
{
    if (strcmp(type, TYPE_JSON) == 0)
        event_put_json(out, 0, APPEND_SIZE);
    else
        while (out->n < APPEND_SIZE) /* neither text nor anything that compresses to nothing */
            buf_putc(out, (char)(out->n * 37 + 128));
}

static void prepare(struct appends *a, struct spout *s, struct str body)
{
    unsigned cycle = turns(a, s->number);
    for (unsigned k = 0; k < cycle + a->pump.depth - 1; k++) {
        unsigned stream = s->number % a->streams + k % cycle * a->pump.n;
        request_append(&s->requests, stream_name(a->phase, stream), a->type, body);
    }
}

static void put_create(struct buf *out, struct name stream, void *arg)
{
    request_create(out, stream, arg, STR_NONE);
}

void appends_open(struct appends *a)
{
    struct buf body = {0};
    put_body(&body, a->type);
    pump_each(a->pump.bench, a->phase, a->streams, put_create, (void *)(uintptr_t)a->type, 201,
              "creating a stream");
    pump_open(&a->pump);
    for (unsigned i = 0; i < a->pump.n; i++)
        prepare(a, &a->pump.spouts[i], buf_str(&body));
    buf_deinit(&body);
}

/* Answered appends to this stream: a connection begins each turn with the same one. */
static uint64_t expected(const struct appends *a, unsigned stream)
{
    unsigned n = a->pump.n, before = stream / n;
    uint64_t sum = 0;
    for (unsigned i = stream % n; i < n; i += a->streams) {
        unsigned cycle = turns(a, i);
        sum += (a->pump.spouts[i].answered + cycle - 1 - before) / cycle;
    }
    return sum;
}

static void verify(const struct appends *a, unsigned stream)
{
    struct bench *b = a->pump.bench;
    struct tally tally = {0};
    uint64_t want = expected(a, stream);
    ask_all(b, stream_name(a->phase, stream), &tally);
    bool json = strcmp(a->type, TYPE_JSON) == 0;
    uint64_t found = json ? tally.seen : tally.bytes / APPEND_SIZE;
    if (!b->swarm.failed && found != want)
        swarm_fail(&b->swarm, "%llu appends to a stream were answered, but it holds %llu events",
                   (unsigned long long)want, (unsigned long long)found);
}

void appends_close(struct appends *a)
{
    a->pump.limit = 0;
    pump_finish(&a->pump);
    for (unsigned i = 0; i < a->streams && !a->pump.bench->swarm.failed; i++)
        verify(a, i);
    pump_close(&a->pump);
    pump_delete(a->pump.bench, a->phase, a->streams);
}
