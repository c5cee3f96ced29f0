// SPDX-License-Identifier: Apache-2.0
/* gateway_read_http.c -- where those begin who read a generation: who started it, who resume it,
 * who join late. What follows is gateway_reader_http.c. */
#include "base/err.h"
#include "base/mem.h"
#include "feature/gateway/gateway_choice.h"
#include "feature/gateway/gateway_http_core.h"
#include "feature/gateway/recorder.h"
#include "http/limits.h"
#include "stream/subscriber.h"

#include <stdlib.h>

/* ---- whole answers ---- */

void gateway_event_stream(struct exchange *x, const struct dialect_voice *v, struct str request_id)
{
    struct dialect_header more = dialect_header(v->dialect);
    exchange_status(x, 200);
    exchange_header(x, STR("Content-Type"), arena_dup(&x->arena, dialect_media_type(v)));
    exchange_header(x, STR("Cache-Control"), STR("no-cache"));
    exchange_header(x, STR("X-Accel-Buffering"), STR("no")); /* proxies must not hold it back */
    exchange_header(x, STR("X-Correlation-ID"), arena_dup(&x->arena, request_id));
    if (more.name != NULL)
        exchange_header(x, str_of_cstr(more.name), str_of_cstr(more.value));
}

void gateway_put_location(const struct gateway_route *r, struct exchange *x, struct str request_id)
{
    struct str path = gateway_path(r, x);
    exchange_header(
        x, STR("Location"),
        arena_printf(&x->arena, "%.*s/%.*s", (int)path.n, path.p, (int)request_id.n, request_id.p));
}

/* What has not completed is not told as if it had. */
void gateway_send_snapshot(struct exchange *x, const struct dialect_voice *v, struct str request_id,
                           const struct snapshot_lookup *l)
{
    struct buf out = {0};
    struct str payload = buf_str(&l->payload);
    struct dialect_diagnostics diagnostics = {.resumes = 1, .correlation_id = request_id};
    if (l->end == END_COMPLETED) {
        dialect_put_complete(&out, v, payload, &diagnostics);
    } else {
        dialect_put_snapshot(&out, v, payload, 0);
        dialect_put_end(&out, v, l->end, gateway_end_message(l->end, STR_NONE));
    }
    buf_put(&out, dialect_end_mark(v->dialect));
    gateway_event_stream(x, v, request_id);
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
    dialect_put_gap(&s->ahead, &o->voice,
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
    gateway_send_failure(x, &(struct generation_failure){.request_id = o->request_id,
                                                         .end = s->read.info.end,
                                                         .err = gateway_notice_err(why),
                                                         .message = why,
                                                         .voice = o->voice});
    store_read_release(&s->read);
    start_free(s);
    exchange_release(x);
}

/* It has all there is, and was told how that ended. */
static bool was_told(const struct read_order *o, const struct stream_info *info, uint64_t events)
{
    if (info->end == END_COMPLETED)
        return o->polite && o->seq == events;
    return info->end != END_NONE && dialect_counts_error(o->voice.dialect) && o->seq == events + 1;
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
    dialect_put_snapshot(&s->ahead, &o->voice, buf_str(&s->snapshot), s->snapshot_seq);
    o->seq = s->snapshot_seq;
    s->snapshot.n = 0;
}

static void gateway_read_on_awaited(void *ctx, bool late)
{
    struct read_order *o = ctx;
    o->waits = o->waits && !late;
    o->looked = false;
    gateway_read(o);
}

static void gateway_on_start_read(struct store_read *read, int err)
{
    struct read_start *s = container_of(read, struct read_start, read);
    struct read_order *o = s->order;
    struct gateway *g = o->route->gateway;
    bool known = err == 0 || err == ERR_GAP;
    uint64_t events = known ? gateway_upstream_events(&read->info) : 0;
    if (read->from == READ_TAIL)
        s->snapshot_seq = events;
    if (known && was_told(o, &read->info, events)) {
        nothing_more(s);
    } else if (err == ERR_GAP) {
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
    gateway_take_voice(o, w->voice);
    o->starts = true;
    gateway_read(o);
}

static void gateway_read_on_generation_failed(struct generation_waiter *w,
                                              const struct generation_failure *f)
{
    struct read_order *o = order_of(w);
    generation_stand(o->seat);
    gateway_send_failure(o->x, f);
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

/* ---- its dialect ---- */

/* The generation may be gone when it is used. */
void gateway_take_voice(struct read_order *o, const struct dialect_voice *v)
{
    o->voice = *v;
    o->voice.rpc_id = arena_dup(&o->x->arena, v->rpc_id);
    o->voice.media_type = arena_dup(&o->x->arena, v->media_type);
}

/* The first event that is kept tells what the request does not. */
struct dialect_look {
    struct read_order *order;
    struct store_read read;
    struct arena arena;
};

static void gateway_read_on_first_event(struct store_read *read, int err)
{
    struct dialect_look *l = container_of(read, struct dialect_look, read);
    struct read_order *o = l->order;
    struct gateway *g = o->route->gateway;
    if (err == 0 && read->n_slices > 0)
        o->voice.dialect = choice_by_stored(read->slices[0].bytes);
    if (err == 0)
        store_read_release(read);
    arena_deinit(&l->arena);
    free(l);
    gateway_read(o);
    gateway_end(g);
}

static void look_at_first_event(struct read_order *o)
{
    struct gateway *g = o->route->gateway;
    struct dialect_look *l = mem_zalloc(sizeof *l);
    o->looked = true;
    l->order = o;
    l->read = (struct store_read){.name = gateway_stream(&l->arena, o->route, o->request_id, ""),
                                  .from = READ_START,
                                  .max_bytes = 1,
                                  .done = gateway_read_on_first_event};
    gateway_begin(g);
    store_read(g->setup.store, &l->read);
}

/* False: it is being looked for. */
static bool knows_dialect(struct read_order *o)
{
    const struct generation *gen = generation_find(o->route, o->request_id);
    enum route_dialect d = o->voice.dialect;
    if (gen != NULL)
        gateway_take_voice(o, generation_voice(gen));
    else if (!o->starts && !o->looked && (d == ROUTE_DIALECT_AUTO || d == ROUTE_DIALECT_NDJSON)) {
        look_at_first_event(o);
        return false;
    }
    if (gateway_has_full_ids(o->route, o->voice.dialect))
        o->voice.generation = o->request_id;
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
    if (waits_here(o) || !knows_dialect(o))
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
