// SPDX-License-Identifier: Apache-2.0
/* Subscriptions that concern everybody: ten thousand that match every stream, and what an append
 * takes then; a thousand webhooks to a receiver that never answers, and what the deliveries of
 * another subscription take then. Each against the same server without them. */
#include "bench_appends.h"
#include "bench_hooks.h"
#include "bench_scale.h"

#include "base/clock.h"

#include <stdlib.h>

#define ALL        10000
#define SLOW       1000
#define HOSTS      100
#define FAST_HOST  0x0001 /* 127.0.0.1 */
#define SLOW_HOST  0x0101 /* 127.0.1.1, and those behind it */
#define FRESH_HOST 0x0201
#define FRESH      20
#define ROUNDS_MAX 500
#define DELIVERY_S 5 /* that a delivery may take; then it counts as so long */
#define LOOK_S     0.25
#define DRAIN_S    60
#define PATIENCE_S 300

struct receivers {
    const char *name, *stream; /* of their subscriptions, and of what those are about */
    unsigned n;
    bool answers, one_each; /* one_each: each subscription has a stream of its own */
    struct hooks all[HOSTS];
};

/* ---- ten thousand that match every stream ---- */

static void put_subscription(struct buf *out, const char *id, const char *body)
{
    buf_printf(out,
               "PUT /v1/stream/__ds/subscriptions/%s HTTP/1.1\r\nHost: 127.0.0.1\r\n"
               "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
               id, strlen(body), body);
}

/* The number in an id can be tallied in the stream of wakes. */
static void put_everything(struct buf *out, struct name stream, void *arg)
{
    char id[32], body[256];
    snprintf(id, sizeof id, "all%%23%010u", (unsigned)atoi(strrchr(stream.text, '-') + 1));
    snprintf(body, sizeof body,
             "{\"type\":\"pull-wake\",\"pattern\":\"**/*\",\"wake_stream\":\"%s\"}",
             stream_name("wakes", 0).text);
    put_subscription(out, id, body);
}

/* Appends to one stream, one under way, for so long. */
static struct spent time_appends(struct bench *b, const char *phase, struct hist *latency)
{
    struct appends a = appends_of(b, phase, TYPE_BYTES, 1, 1, 1);
    appends_open(&a);
    struct spent spent = spent_begin(b);
    pump_start(&a.pump);
    swarm_run_for(&b->swarm, b->seconds);
    a.pump.limit = 0;
    pump_finish(&a.pump);
    spent_end(b, &spent);
    *latency = a.pump.latency;
    pump_close(&a.pump);
    return spent;
}

/* Until all have been woken; returns how many were. */
static uint64_t await_wakes(struct bench *b)
{
    uint64_t until = clock_mono_ns() + DRAIN_S * 1000000000ull, seen = 0;
    while (!b->swarm.failed) {
        struct tally wakes = {0};
        ask_all(b, stream_name("wakes", 0), &wakes);
        seen = wakes.seen;
        if (seen >= ALL || clock_mono_ns() > until)
            break;
        swarm_run_for(&b->swarm, LOOK_S);
    }
    return seen;
}

static double part_us(const struct hist *h, double part)
{
    return (double)hist_at(h, part) / 1e3;
}

static struct row *report_times(struct bench *b, const char *key, const struct hist *without,
                                const struct hist *with)
{
    double before = part_us(without, 0.5), after = part_us(with, 0.5);
    struct row *row = report_add(&b->report, key, after / before);
    row_note(row, "p50 %.0f us : %.0f us, p99 %.0f us : %.0f us, %llu with", after, before,
             part_us(with, 0.99), part_us(without, 0.99), (unsigned long long)with->n);
    progress("  p50 %.1f x, p99 %.1f x", after / before,
             part_us(with, 0.99) / part_us(without, 0.99));
    return row;
}

static void subscribe_all(struct bench *b)
{
    struct hist without, with;
    struct turns before, after, sum = {0};
    progress("scale-subs: %d subscriptions on **/*", ALL);
    ask_create(b, stream_name("wakes", 0), TYPE_JSON);
    time_appends(b, "without", &without);
    pump_each(b, "all", ALL, put_everything, NULL, 201, "creating a subscription");
    scale_await_idle(b);
    turns_look(b, &before);
    struct spent spent = time_appends(b, "with", &with);
    uint64_t start = clock_mono_ns(), woken = await_wakes(b);
    double ms = (double)(clock_mono_ns() - start) / 1e6;
    turns_look(b, &after);
    turns_add(&sum, &before, &after);
    if (b->swarm.failed)
        return;
    row_spent(report_times(b, "scale-subs", &without, &with), b, &spent, (double)with.n);
    report_add(&b->report, "scale-subs-woken", (double)woken);
    report_add(&b->report, "scale-subs-drain", ms);
    scale_report_turns(b, "scale-subs", &sum);
}

/* ---- a thousand webhooks to somebody slow ---- */

static void put_webhook(struct buf *out, struct name name, void *arg)
{
    const struct receivers *r = arg;
    unsigned number = (unsigned)atoi(strrchr(name.text, '-') + 1);
    const struct hooks *to = &r->all[number % r->n];
    char body[256];
    snprintf(body, sizeof body,
             "{\"type\":\"webhook\",\"streams\":[\"%s\"],\"webhook\":{\"url\":"
             "\"http://127.0.%u.%u:%u/%s\"}}",
             stream_name(r->stream, r->one_each ? number : 0).text, to->host >> 8, to->host & 255,
             to->port, name.text);
    put_subscription(out, name.text, body);
}

struct delivery {
    const struct hooks *hooks;
    uint64_t want, until_ns;
};

static bool delivered(void *arg)
{
    const struct delivery *d = arg;
    return d->hooks->got >= d->want || clock_mono_ns() > d->until_ns;
}

/* From an append to its webhook. */
static void time_delivery(struct bench *b, struct name stream, const struct hooks *to,
                          struct hist *latency)
{
    uint64_t start = clock_mono_ns();
    struct delivery d = {to, to->got + 1, start + DELIVERY_S * 1000000000ull};
    ask_append(b, stream, TYPE_BYTES, STR("news"), NULL);
    swarm_run(&b->swarm, "a webhook", delivered, &d);
    hist_add(latency, clock_mono_ns() - start);
}

/* Again and again. */
static void time_deliveries(struct bench *b, const struct receivers *fast, struct hist *latency)
{
    uint64_t until = clock_mono_ns() + (uint64_t)(b->seconds * 1e9);
    *latency = (struct hist){0};
    for (unsigned i = 0; i < ROUNDS_MAX && clock_mono_ns() < until && !b->swarm.failed; i++)
        time_delivery(b, stream_name(fast->stream, 0), &fast->all[0], latency);
}

/* Of receivers that never had one. */
static void time_first(struct bench *b, const struct receivers *fresh, unsigned from, unsigned to,
                       struct hist *latency)
{
    *latency = (struct hist){0};
    for (unsigned i = from; i < to && !b->swarm.failed; i++)
        time_delivery(b, stream_name(fresh->stream, i), &fresh->all[i], latency);
}

static void put_create(struct buf *out, struct name stream, void *arg)
{
    request_create(out, stream, TYPE_BYTES, STR_NONE);
}

/* n webhooks to these receivers, of one stream or of one each. */
static void receivers_init(struct receivers *r, struct bench *b, unsigned host, unsigned n)
{
    for (unsigned i = 0; i < r->n; i++)
        hooks_init(&r->all[i], &b->swarm, host + i, r->answers);
    pump_each(b, r->stream, r->one_each ? n : 1, put_create, NULL, 201, "creating a stream");
    pump_each(b, r->name, n, put_webhook, r, 201, "creating a webhook");
}

static void receivers_deinit(struct receivers *r)
{
    for (unsigned i = 0; i < r->n; i++)
        hooks_deinit(&r->all[i]);
}

/* So many slow receivers share the slow webhooks. */
static void hook_slowly(struct bench *b, const char *key, const char *first_key, unsigned hosts)
{
    struct receivers slow = {.name = "slow", .stream = "slow-events", .n = hosts};
    struct receivers fast = {.name = "fast", .stream = "fast-events", .n = 1, .answers = true};
    struct receivers fresh = {
        .name = "fresh", .stream = "fresh-events", .n = FRESH, .answers = true, .one_each = true};
    struct hist without, with, first_without, first_with;
    progress("%s: %d webhooks that are never answered, at %u hosts", key, SLOW, hosts);
    receivers_init(&slow, b, SLOW_HOST, SLOW);
    receivers_init(&fast, b, FAST_HOST, 1);
    receivers_init(&fresh, b, FRESH_HOST, FRESH);
    time_first(b, &fresh, 0, FRESH / 2, &first_without);
    time_deliveries(b, &fast, &without);
    ask_append(b, stream_name(slow.stream, 0), TYPE_BYTES, STR("news"), NULL);
    swarm_run_for(&b->swarm, 1);
    time_deliveries(b, &fast, &with);
    time_first(b, &fresh, FRESH / 2, FRESH, &first_with);
    if (!b->swarm.failed) {
        report_times(b, key, &without, &with);
        report_times(b, first_key, &first_without, &first_with);
    }
    receivers_deinit(&slow);
    receivers_deinit(&fast);
    receivers_deinit(&fresh);
}

static void hook_hosts(struct bench *b)
{
    hook_slowly(b, "scale-hooks", "scale-hooks-first", 1);
    bench_renew(b);
    hook_slowly(b, "scale-hooks-hosts", "scale-hooks-hosts-first", HOSTS);
}

/* ---- the phases ---- */

static void with_args(struct bench *b, void (*run)(struct bench *b))
{
    struct buf args = {0};
    const char *given = b->plan.args;
    if (!b->server.ours) {
        progress("left out, it needs a server of ours");
        return;
    }
    buf_printf(&args, "%s --sync never --allow-loopback-targets%c", given ? given : "", '\0');
    b->plan.args = args.p;
    b->swarm.patience_s = PATIENCE_S;
    bench_renew(b);
    run(b);
    b->swarm.patience_s = SWARM_PATIENCE_S;
    b->plan.args = given;
    buf_deinit(&args);
}

void phase_subs(struct bench *b)
{
    with_args(b, subscribe_all);
}

void phase_hooks(struct bench *b)
{
    with_args(b, hook_hosts);
}
