// SPDX-License-Identifier: Apache-2.0
/* What goes on beside a steady load: as fast as a few connections go that wait for each answer, so
 * that an append waits for a few other requests at most, or at a fixed pace. */
#include "bench_scale.h"

#include "base/clock.h"

#include <stdlib.h>
#include <time.h>

#define LISTINGS_PER_SECOND 100
#define PAGE_ROUNDS         41 /* of which the median counts */
#define CHECKPOINT_EVENT    1024
#define CHECKPOINT_STEP     100 /* appends between two looks */
#define CHECKPOINT_LOOK_S   0.005
#define CHECKPOINT_AFTER_NS 500000000u
#define CHECKPOINT_LIMIT_S  60
#define BODY_BYTES          60000000u
#define EXPIRE_SPARE_S      3
#define EXPIRE_BEFORE_S     1.0 /* that the load begins before streams expire */

const unsigned scale_pages[SCALE_PAGES] = {1, 100, 1000};

static struct pump_range gently(uint64_t first, uint64_t count)
{
    return (struct pump_range){
        .first = first, .count = count, .connections = SCALE_GENTLE, .depth = 1};
}

/* ---- streams come and go ---- */

static void put_create(struct buf *out, struct name stream, void *arg)
{
    request_create(out, stream, TYPE_BYTES, STR_NONE);
}

static void put_delete(struct buf *out, struct name stream, void *arg)
{
    request_delete(out, stream);
}

/* This try's part of what can be done but once: streams from .. to - 1 of so many. */
struct part {
    unsigned from, to;
};

static struct part part_of(const struct scale *s, unsigned all)
{
    return (struct part){(unsigned)((uint64_t)all * s->try / SCALE_TRIES),
                         (unsigned)((uint64_t)all * (s->try + 1) / SCALE_TRIES)};
}

static void create_part(struct scale *s, const char *phase, struct part part)
{
    if (part.from < part.to)
        pump_range(s->bench, phase, gently(part.from, part.to - part.from), put_create, NULL, 201,
                   "creating a stream");
}

/* A thousand are there already. Those that the subscription matches come last. */
void scale_grow(struct scale *s, uint64_t until_ns)
{
    uint64_t start = clock_mono_ns();
    unsigned bulk = s->streams - s->some;
    struct part part = part_of(s, s->streams), match = {0};
    match.from = part.from > bulk ? part.from - bulk : 0;
    match.to = part.to > bulk ? part.to - bulk : 0;
    create_part(
        s, SCALE_BULK,
        (struct part){part.from > 1000 ? part.from : 1000, part.to < bulk ? part.to : bulk});
    create_part(s, SCALE_MATCH, match);
    s->create_us = (double)(clock_mono_ns() - start) / 1e3 / (part.to - part.from);
}

void scale_delete(struct scale *s, uint64_t until_ns)
{
    struct part part = part_of(s, s->some);
    pump_range(s->bench, SCALE_BULK, gently(part.from, part.to - part.from), put_delete, NULL, 204,
               "deleting a stream");
}

static void put_brief(struct buf *out, struct name stream, void *arg)
{
    buf_printf(out,
               "PUT /v1/stream/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: %s\r\n"
               "Stream-Expires-At: %s\r\nContent-Length: 0\r\n\r\n",
               stream.text, TYPE_BYTES, (const char *)arg);
}

static const char *const brief[SCALE_TRIES] = {"brief-a", "brief-b", "brief-c"};

static double until_expiry_s(const struct scale *s)
{
    return (double)s->expires_s - (double)clock_wall_ms() / 1e3;
}

/* Streams that all expire at one moment, which is near when this returns. */
void scale_brief(struct scale *s)
{
    char text[32];
    uint64_t start = clock_mono_ns();
    double need_s = EXPIRE_SPARE_S + 2 * s->create_us * s->some / 1e6;
    time_t at = time(NULL) + (time_t)need_s;
    struct tm utc;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &utc));
    s->expires_s = (uint64_t)at;
    pump_each(s->bench, brief[s->try], s->some, put_brief, text, 201,
              "creating a stream that expires");
    s->create_us = (double)(clock_mono_ns() - start) / 1e3 / s->some;
    if (until_expiry_s(s) > EXPIRE_BEFORE_S)
        swarm_run_for(&s->bench->swarm, until_expiry_s(s) - EXPIRE_BEFORE_S);
}

void scale_expire(struct scale *s, uint64_t until_ns)
{
    double left_s = until_expiry_s(s);
    if (left_s < 0)
        swarm_fail(&s->bench->swarm, "streams expired before all of them were created");
    swarm_run_for(&s->bench->swarm, left_s + s->try_s);
}

void scale_expired(struct scale *s)
{
    ask_read(s->bench, stream_name(brief[s->try], 0), 404);
    ask_read(s->bench, stream_name(brief[s->try], s->some - 1), 404);
}

/* ---- looking for streams ---- */

static void ask_page(struct scale *s, unsigned limit, const char *prefix, const char *after)
{
    struct buf request = {0};
    buf_printf(&request,
               "GET /v1/stream/?limit=%u&prefix=%s&after=%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
               limit, prefix, after);
    ask_for(s->bench, &request, 200, "listing streams", NULL);
}

void scale_list(struct scale *s, uint64_t until_ns)
{
    const struct name middle = stream_name(SCALE_BULK, s->streams / 2);
    struct name some = stream_name(SCALE_BULK, 7);
    some.text[strlen(some.text) - 1] = '\0';
    const char *const prefixes[] = {"", "bench-", middle.text, some.text, "none"};
    const char *const afters[] = {"", middle.text};
    uint64_t next = clock_mono_ns();
    for (unsigned i = 0; clock_mono_ns() < until_ns && !s->bench->swarm.failed; i++) {
        ask_page(s, scale_pages[i % SCALE_PAGES], prefixes[i % 5], afters[i % 2]);
        next += 1000000000u / LISTINGS_PER_SECOND;
        uint64_t now = clock_mono_ns();
        if (now < next)
            swarm_run_for(&s->bench->swarm, (double)(next - now) / 1e9);
    }
}

static void put_head(struct buf *out, struct name stream, void *arg)
{
    buf_printf(out, "HEAD /v1/stream/%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", stream.text);
}

void scale_head(struct scale *s, uint64_t until_ns)
{
    struct pump_range range = gently(0, UINT32_MAX);
    range.until_ns = until_ns;
    range.heads = true;
    pump_range(s->bench, "absent", range, put_head, NULL, 404, "asking for no stream");
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void scale_time_pages(struct scale *s, double us[SCALE_PAGES])
{
    for (unsigned k = 0; k < SCALE_PAGES; k++) {
        double took[PAGE_ROUNDS];
        unsigned n = 0;
        uint64_t until = clock_mono_ns() + 5000000000u;
        for (; n < PAGE_ROUNDS && (n == 0 || clock_mono_ns() < until); n++) {
            uint64_t start = clock_mono_ns();
            ask_page(s, scale_pages[k], "bench-", "");
            took[n] = (double)(clock_mono_ns() - start) / 1e3;
        }
        qsort(took, n, sizeof *took, by_value);
        us[k] = took[n / 2];
    }
}

/* ---- the rest ---- */

/* That of the try before. */
void scale_unsubscribe(struct scale *s)
{
    if (s->try == 0)
        return;
    scale_drop_subscription(s->bench, "scale");
    scale_await_idle(s->bench);
}

void scale_subscribe(struct scale *s, uint64_t until_ns)
{
    struct name pattern = stream_name(SCALE_MATCH, 0);
    strcpy(strchr(pattern.text, '/'), "/*");
    scale_put_subscription(s->bench, "scale", pattern.text);
}

static void put_append(struct buf *out, struct name stream, void *arg)
{
    request_append(out, stream, TYPE_BYTES, buf_str(arg));
}

static bool is_over(const struct checkpoint_watch *w, uint64_t now)
{
    return w->n > 0 && w->spans[0].to_ns < now && now - w->spans[0].to_ns > CHECKPOINT_AFTER_NS;
}

/* One append to a stream after the other until a checkpoint begins, and on to its end. */
void scale_checkpoint(struct scale *s, uint64_t until_ns)
{
    struct bench *b = s->bench;
    struct checkpoint_watch watch;
    struct buf body = {0};
    uint64_t limit = clock_mono_ns() + CHECKPOINT_LIMIT_S * 1000000000ull;
    if (!*b->data || checkpoint_watch_open(&watch, b->data) != 0)
        return;
    while (body.n < CHECKPOINT_EVENT)
        buf_putc(&body, (char)(body.n * 37 + 128));
    unsigned span =
        s->streams - 2 * s->some; /* those that are not deleted, and that none matches */
    for (unsigned i = 0; !is_over(&watch, clock_mono_ns()) && !b->swarm.failed; i++) {
        uint64_t first = s->some + (uint64_t)i * CHECKPOINT_STEP % (span - CHECKPOINT_STEP);
        if (watch.n == 0)
            pump_range(b, SCALE_BULK, gently(first, CHECKPOINT_STEP), put_append, &body, 204,
                       "appending");
        else
            swarm_run_for(&b->swarm, CHECKPOINT_LOOK_S);
        checkpoint_watch_look(&watch, clock_mono_ns());
        if (clock_mono_ns() > limit)
            swarm_fail(&b->swarm, "waited %d s in vain for a checkpoint", CHECKPOINT_LIMIT_S);
    }
    checkpoint_watch_close(&watch);
    buf_deinit(&body);
}

/* Elements of so many bytes, the comma included, in one JSON array. */
static void append_array(struct scale *s, unsigned element, int status)
{
    struct buf request = {0};
    struct name stream = stream_name("body", element);
    unsigned n = BODY_BYTES / element, bytes = n * element + 1;
    ask_confirm(s->bench, stream, TYPE_JSON);
    buf_printf(&request,
               "POST /v1/stream/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: %s\r\n"
               "Content-Length: %u\r\n\r\n",
               stream.text, TYPE_JSON, bytes);
    char *p = buf_reserve(&request, bytes);
    memset(p, '1', bytes);
    for (unsigned i = 0; i < n; i++)
        p[i * element] = i == 0 ? '[' : ',';
    p[bytes - 1] = ']';
    request.n += bytes;
    ask_for(s->bench, &request, status, "appending a large body", NULL);
}

/* More events than a server may want to take in one append: it may refuse them. */
void scale_body_small(struct scale *s, uint64_t until_ns)
{
    append_array(s, 2, ASK_ANY);
}

void scale_body_large(struct scale *s, uint64_t until_ns)
{
    append_array(s, 64, 204);
}
