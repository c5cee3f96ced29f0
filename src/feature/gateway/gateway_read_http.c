// SPDX-License-Identifier: Apache-2.0
/* gateway_read_http.c -- where those begin who read a generation: who started it, who resume it,
 * who join late. What follows is gateway_reader_http.c. */
#include "base/err.h"
#include "base/mem.h"
#include "feature/gateway/gateway_dialect.h"
#include "feature/gateway/gateway_http_core.h"
#include "feature/gateway/recorder.h"
#include "http/limits.h"
#include "stream/subscriber.h"

#include <stdlib.h>

/* ---- whole answers ---- */

void gateway_event_stream(struct gateway_route *r, struct exchange *x, struct str request_id)
{
    exchange_status(x, 200);
    exchange_header(x, STR("Content-Type"), STR("text/event-stream"));
    exchange_header(x, STR("Cache-Control"), STR("no-cache"));
    exchange_header(x, STR("X-Accel-Buffering"), STR("no")); /* proxies must not hold it back */
    exchange_header(x, STR("X-Correlation-ID"), arena_dup(&x->arena, request_id));
    if (r->config->dialect == ROUTE_DIALECT_UI_MESSAGE)
        exchange_header(x, STR("X-Vercel-AI-UI-Message-Stream"), STR("v1"));
}

/* What has not completed is not told as if it had. */
void gateway_send_snapshot(struct gateway_route *r, struct exchange *x, struct str request_id,
                           const struct snapshot_lookup *l)
{
    struct buf out = {0};
    struct str payload = buf_str(&l->payload);
    struct dialect_diagnostics diagnostics = {.resumes = 1, .correlation_id = request_id};
    if (l->end == END_COMPLETED) {
        dialect_put_complete(&out, gateway_dialect_of(r), payload, &diagnostics);
    } else {
        dialect_put_snapshot(&out, gateway_dialect_of(r), payload, 0);
        dialect_put_end(&out, gateway_dialect_of(r), l->end, gateway_end_message(l->end, STR_NONE));
    }
    gateway_event_stream(r, x, request_id);
    exchange_send(x, buf_str(&out));
    buf_deinit(&out);
}

/* ---- where a reader begins ---- */

/* The read that finds where a reader goes on. */
struct read_start {
    struct read_order *order;
    struct store_read read;
    struct buf ahead;
    struct buf snapshot;   /* that comes before the events; n == 0: none */
    uint64_t snapshot_seq; /* number of the last event in it */
    struct arena arena;
    bool trimmed;
};

static void start_free(struct read_start *s)
{
    struct read_order *o = s->order;
    struct generation *gen = o->starts ? generation_find(o->route, o->request_id) : NULL;
    if (gen != NULL)
        generation_unpin(gen);
    o->starts = false;
    generation_stand(o->seat); /* a reader has its own */
    buf_deinit(&s->ahead);
    buf_deinit(&s->snapshot);
    arena_deinit(&s->arena);
    free(s);
}

static void gateway_read_begin(struct read_start *s)
{
    struct exchange *x = s->order->x;
    if (!limits_take_live(x)) {
        store_read_release(&s->read);
        start_free(s);
        exchange_release(x);
        return;
    }
    struct reader *r = reader_new(s->order, &s->read, buf_str(&s->ahead), s->trimmed);
    store_read_release(&s->read); /* what it had no room for */
    start_free(s);
    reader_start(r);
}

static void start_read(struct read_start *s, enum read_from from)
{
    struct gateway *g = s->order->route->gateway;
    s->read.from = from;
    s->read.event = s->snapshot.n > 0 ? s->snapshot_seq : s->order->seq;
    gateway_begin(g);
    store_read(g->setup.store, &s->read);
}

/* What it needs is not there any more, or never was: it is told, and gets all there is. */
static void begin_with_gap(struct read_start *s, enum gap_reason reason)
{
    struct read_order *o = s->order;
    dialect_put_gap(&s->ahead, gateway_dialect_of(o->route),
                    &(struct dialect_gap){.requested = o->seq,
                                          .earliest = s->read.info.first_event + 1,
                                          .reason = reason});
    s->trimmed = true;
    o->seq = s->read.info.first_event;
    start_read(s, READ_START);
}

static void gateway_read_refuse(struct read_start *s, int err)
{
    struct read_order *o = s->order;
    start_free(s);
    if (ERR_IS_GONE(err) && o->missing != NULL) {
        o->missing(o);
        return;
    }
    gateway_refuse(o->route, o->x, err);
    exchange_release(o->x);
}

static void nothing_more(struct read_start *s)
{
    struct exchange *x = s->order->x;
    store_read_release(&s->read);
    start_free(s);
    exchange_status(x, 204);
    exchange_send(x, STR_NONE);
    exchange_release(x);
}

/* It is no stream of events, and comes as it is, whatever the reader said of positions. */
static void send_answer(struct read_start *s)
{
    struct exchange *x = s->order->x;
    gateway_send_answer(s->order, &s->read);
    start_free(s);
    exchange_release(x);
}

/* No event of it was recorded; why, stands in its notice. */
static void send_failure(struct read_start *s)
{
    struct read_order *o = s->order;
    struct exchange *x = o->x;
    struct str why = s->read.n_slices > 0 ? recorder_notice(s->read.slices[0].bytes) : STR_NONE;
    why = arena_dup(&x->arena, why);
    gateway_send_failure(o->route, x,
                         &(struct generation_failure){.request_id = o->request_id,
                                                      .end = s->read.info.end,
                                                      .err = gateway_notice_err(why),
                                                      .message = why});
    store_read_release(&s->read);
    start_free(s);
    exchange_release(x);
}

/* Another process runs it; or it is being taken back here, since its answer is no stream of
 * events, and whoever comes with its key in that moment must not read what is never written. */
static bool is_begun_elsewhere(const struct read_order *o, const struct stream_info *info)
{
    return info->end == END_NONE && generation_find(o->route, o->request_id) == NULL;
}

/* Told once; the reader goes on behind it. */
static void put_snapshot(struct read_start *s)
{
    struct read_order *o = s->order;
    if (s->snapshot.n == 0)
        return;
    dialect_put_snapshot(&s->ahead, gateway_dialect_of(o->route), buf_str(&s->snapshot),
                         s->snapshot_seq);
    o->seq = s->snapshot_seq;
    s->snapshot.n = 0;
}

static void gateway_read_on_awaited(void *ctx, bool late)
{
    struct read_order *o = ctx;
    o->waits = o->waits && !late;
    gateway_read(o);
}

static void gateway_on_start_read(struct store_read *read, int err)
{
    struct read_start *s = container_of(read, struct read_start, read);
    struct read_order *o = s->order;
    struct gateway *g = o->route->gateway;
    uint64_t events = err == 0 ? gateway_upstream_events(&read->info) : 0;
    if (read->from == READ_TAIL)
        s->snapshot_seq = events;
    if (err == ERR_GAP) {
        put_snapshot(s);
        begin_with_gap(s, read->gap.reason);
    } else if (err != 0) {
        gateway_read_refuse(s, err);
    } else if (read->event > events && read->from == READ_EVENT) { /* it counts our notice */
        store_read_release(read);
        begin_with_gap(s, GAP_UNKNOWN);
    } else if (gateway_is_answer(read)) {
        send_answer(s);
    } else if (o->waits && events == 0 && gateway_came_to_nothing(read->info.end)) {
        send_failure(s);
    } else if (o->waits && events == 0 && is_begun_elsewhere(o, &read->info)) {
        store_read_release(read);
        start_free(s);
        o->waited = true;
        gateway_await(o->route, o->request_id, gateway_read_on_awaited, o);
    } else if (o->polite && read->info.end == END_COMPLETED && o->seq >= events) {
        nothing_more(s);
    } else {
        put_snapshot(s);
        gateway_read_begin(s);
    }
    gateway_end(g);
}

/* Of one that has ended: nothing comes behind it but how it did. */
static void gateway_read_on_old_snapshot(struct snapshot_lookup *l)
{
    struct read_start *s = l->ctx;
    buf_put(&s->snapshot, buf_str(&l->payload));
    snapshot_lookup_free(l);
    start_read(s, s->snapshot.n > 0 ? READ_TAIL : READ_EVENT);
}

/* ---- waiting for a generation that has just begun ---- */

static struct read_order *order_of(struct generation_waiter *w)
{
    return container_of(w, struct read_order, waiter);
}

static void gateway_read_on_generation_ready(struct generation_waiter *w)
{
    struct read_order *o = order_of(w);
    o->starts = true;
    gateway_read(o);
}

static void gateway_read_on_generation_failed(struct generation_waiter *w,
                                              const struct generation_failure *f)
{
    struct read_order *o = order_of(w);
    generation_stand(o->seat);
    gateway_send_failure(o->route, o->x, f);
    exchange_release(o->x);
}

static void gateway_read_on_generation_missing(struct generation_waiter *w, bool surplus)
{
    struct read_order *o = order_of(w);
    generation_stand(o->seat);
    o->surplus = surplus;
    o->missing(o);
}

static bool waits_here(struct read_order *o)
{
    static const struct generation_waiter_ops ops = {.ready = gateway_read_on_generation_ready,
                                                     .failed = gateway_read_on_generation_failed,
                                                     .missing = gateway_read_on_generation_missing};
    o->waiter.ops = &ops;
    if (!o->waits || !generation_wait(o->route, o->request_id, &o->waiter))
        return false;
    o->waited = true;
    return true;
}

/* ---- seats ---- */

static void gateway_read_gone(struct exchange *x)
{
    generation_stand(x->state);
}

/* It counts as a reader from now on, also while it waits. */
static void sit_down(struct read_order *o)
{
    static const struct exchange_ops ops = {.gone = gateway_read_gone};
    struct exchange *x = o->x;
    if (o->seat == NULL) {
        o->seat = arena_alloc(&x->arena, sizeof *o->seat);
        *o->seat = (struct generation_seat){0};
        x->ops = &ops;
        x->state = o->seat;
    }
    if (o->route->config->disconnect == ROUTE_DISCONNECT_STOP)
        x->peer_bound = true;
    if (!exchange_over(x))
        generation_sit(o->route, o->request_id, o->seat);
}

void gateway_read(struct read_order *o)
{
    sit_down(o);
    if (waits_here(o))
        return;
    if (o->whole) {
        gateway_read_whole(o);
        return;
    }
    struct read_start *s = mem_zalloc(sizeof *s);
    s->order = o;
    s->read = (struct store_read){.name = gateway_stream(&s->arena, o->route, o->request_id, ""),
                                  .max_bytes = EVENT_BATCH_BYTES,
                                  .done = gateway_on_start_read};
    struct generation *gen = generation_find(o->route, o->request_id);
    if (o->from_snapshot && gen == NULL) {
        snapshot_lookup_new(o->route, o->request_id, gateway_read_on_old_snapshot, s);
        return;
    }
    if (o->from_snapshot && generation_snapshot(gen, &s->snapshot, &s->snapshot_seq) != 0)
        s->snapshot.n = 0;
    start_read(s, READ_EVENT);
}
