// SPDX-License-Identifier: Apache-2.0
/* gateway_read_http.c -- readers of a generation: those who started it, who resume it, who join
 * late.
 *
 * What is stored is sent as it is; before it come notices of our own (the token, a gap, a
 * snapshot), and behind it how it ended. */
#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "feature/gateway/recorder.h"
#include "stream/subscriber.h"
#include "http/heartbeat.h"
#include "feature/gateway/gateway_http_core.h"
#include "feature/gateway/gateway_dialect.h"

#include <stdlib.h>

struct reader {
    struct gateway_route *route;
    struct exchange *x;
    struct subscriber subscriber;
    struct timer timer; /* of the heartbeat */
    struct heartbeat heartbeat;
    struct buf ahead; /* our own notices, to be sent next */
    struct snapshot_look *look;
    char id[REQUEST_ID_TEXT];
    uint64_t seq;       /* of the last event that was sent */
    uint64_t recovered; /* events that it had missed */
    bool replay_only, resumes;
    bool up_to_date; /* it has all there was */
    bool trimmed;    /* there was a gap */
    bool late_gap;   /* ... which is told with the next events */
    bool over;       /* when `ahead` is out */
};

static struct str gateway_read_id_of(const struct reader *r)
{
    return str_of(r->id, REQUEST_ID_TEXT);
}

static enum route_dialect dialect_of(const struct gateway_route *r)
{
    return (enum route_dialect)r->config->dialect;
}

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
    gateway_put_cors(x);
}

/* What has not completed is not told as if it had. */
void gateway_send_snapshot(struct gateway_route *r, struct exchange *x, struct str request_id,
                           const struct snapshot_look *l)
{
    struct buf out = {0};
    struct str payload = buf_str(&l->payload);
    struct dialect_diagnostics diagnostics = {.resumes = 1, .correlation_id = request_id};
    if (l->end == END_COMPLETED) {
        dialect_put_complete(&out, dialect_of(r), payload, &diagnostics);
    } else {
        dialect_put_snapshot(&out, dialect_of(r), payload, 0);
        dialect_put_end(&out, dialect_of(r), l->end, gateway_end_message(l->end, STR_NONE));
    }
    gateway_event_stream(r, x, request_id);
    exchange_send(x, buf_str(&out));
    buf_deinit(&out);
}

/* ---- the end of a reader ---- */

static void reader_free(struct reader *r)
{
    timer_stop(&r->timer);
    subscriber_deinit(&r->subscriber);
    buf_deinit(&r->ahead);
    if (r->look != NULL)
        r->look->ctx = NULL; /* it frees itself */
    free(r);
}

static enum pull gateway_read_end(struct reader *r)
{
    reader_free(r);
    return PULL_END;
}

static void put_end(struct reader *r, enum end_reason end, struct str notice)
{
    dialect_put_end(&r->ahead, dialect_of(r->route), end, gateway_end_message(end, notice));
    r->over = true;
}

static void gateway_read_on_final_snapshot(struct snapshot_look *l)
{
    struct reader *r = l->ctx;
    if (r != NULL) {
        struct dialect_diagnostics diagnostics = {.resumes = 1,
                                                  .trims = r->trimmed,
                                                  .recovered_events = r->recovered,
                                                  .correlation_id = gateway_read_id_of(r)};
        if (l->payload.n > 0)
            dialect_put_complete(&r->ahead, dialect_of(r->route), buf_str(&l->payload),
                                 &diagnostics);
        r->look = NULL;
        r->over = true;
        exchange_wake(r->x);
    }
    snapshot_look_free(l);
}

/* All of the stream has been sent. */
static void gateway_read_conclude(struct reader *r, enum end_reason reason, struct str notice)
{
    bool completes = r->resumes && r->route->config->dialect == ROUTE_DIALECT_SSE;
    if (reason == END_COMPLETED && completes)
        r->look =
            snapshot_look_new(r->route, gateway_read_id_of(r), gateway_read_on_final_snapshot, r);
    else if (reason == END_COMPLETED)
        r->over = true;
    else
        put_end(r, reason, notice);
}

/* ---- reading ---- */

static void note_sent(struct reader *r)
{
    heartbeat_sent(&r->heartbeat, r->route->gateway->setup.sched->now_ms);
}

static void put_ahead(struct reader *r)
{
    if (r->ahead.n == 0)
        return;
    struct block *b = block_of(buf_str(&r->ahead));
    exchange_put(r->x, slice_of(b, 0, b->n));
    block_unref(b);
    r->ahead.n = 0;
    note_sent(r);
}

/* What is stored before position `gateway_read_end`; what comes behind it, in the same slice, is
 * *rest. */
static void put_until(struct reader *r, const struct batch *b, uint64_t end, struct str *rest)
{
    uint64_t at = b->start;
    for (uint32_t i = 0; i < b->n_slices; i++) {
        struct slice s = b->slices[i];
        uint64_t behind = at + s.bytes.n;
        if (behind > end) {
            size_t n = end > at ? (size_t)(end - at) : 0;
            *rest = str_skip(s.bytes, n);
            s.bytes.n = n;
        }
        if (s.bytes.n > 0)
            exchange_put(r->x, s);
        at = behind;
    }
}

/* The number of the stored event at this position: it begins with `id: N`. 0: it is our notice. */
static uint64_t number_at(const struct batch *b, uint64_t pos)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < b->n_slices; i++) {
        struct str s = b->slices[i].bytes;
        if (pos - b->start >= s.n) {
            pos -= s.n;
            continue;
        }
        s = str_skip(s, (size_t)(pos - b->start));
        struct str line = str_cut(&s, '\n');
        return str_starts(line, STR("id: ")) && num_parse(str_skip(line, 4), INT64_MAX, &n) == 0
                   ? n
                   : 0;
    }
    return 0;
}

static void put_late_gap(struct reader *r, const struct batch *b)
{
    dialect_put_gap(&r->ahead, dialect_of(r->route),
                    &(struct dialect_gap){.requested = r->seq,
                                          .earliest = number_at(b, b->start),
                                          .reason = GAP_TRIMMED});
    r->late_gap = false;
    put_ahead(r);
}

static void put_batch(struct reader *r, const struct batch *b)
{
    struct str last = STR_NONE;
    bool closing = b->next == b->info.tail && b->info.end != END_NONE;
    bool notice = closing && b->info.end == END_FAILED && b->n_slices > 0;
    r->up_to_date = b->next == b->info.tail;
    if (r->late_gap)
        put_late_gap(r, b);
    uint64_t seq = number_at(b, b->last);
    if (seq > 0)
        r->seq = seq;
    put_until(r, b, notice ? b->last : b->next, &last);
    note_sent(r);
    if (closing)
        gateway_read_conclude(r, b->info.end, recorder_notice(last));
}

static void gateway_read_on_ready(struct subscriber *s)
{
    exchange_wake(container_of(s, struct reader, subscriber)->x);
}

/* The client sees that there is more, and asks again. */
static void reader_abort(struct reader *r)
{
    struct exchange *x = r->x;
    x->ops = NULL;
    reader_free(r);
    exchange_abort(x);
}

static void gateway_read_reader_on_cut(struct subscriber *s)
{
    reader_abort(container_of(s, struct reader, subscriber));
}

static void gateway_read_subscribe(struct reader *r, struct offset at)
{
    struct arena a = {0};
    subscriber_init(&r->subscriber, r->route->gateway->setup.feeds,
                    gateway_stream(&a, r->route, gateway_read_id_of(r), ""), at,
                    gateway_read_on_ready);
    subscriber_may_lag(&r->subscriber, gateway_read_reader_on_cut);
    arena_deinit(&a);
}

/* It was slower than the stream was trimmed: it goes on with what there is. */
static void skip_gap(struct reader *r)
{
    struct offset earliest = r->subscriber.gap->earliest;
    r->trimmed = r->late_gap = true;
    subscriber_deinit(&r->subscriber);
    gateway_read_subscribe(r, earliest);
}

static enum pull gateway_read_fail(struct reader *r)
{
    int err = r->subscriber.err;
    if (err == ERR_GAP && r->subscriber.gap->reason == GAP_TRIMMED) {
        skip_gap(r);
        return PULL_MORE;
    }
    if (err != ERR_GAP && !ERR_IS_GONE(err)) {
        reader_abort(r);
        return PULL_WAIT;
    }
    put_end(r, END_EXPIRED, STR_NONE);
    return PULL_MORE;
}

static enum pull gateway_read_reader_pull(struct exchange *x)
{
    struct reader *r = x->state;
    struct batch *b;
    put_ahead(r);
    if (r->over)
        return gateway_read_end(r);
    if (r->look != NULL)
        return PULL_WAIT;
    switch (subscriber_next(&r->subscriber, &b)) {
    case NEXT_BATCH:
        put_batch(r, b);
        batch_unref(b);
        return PULL_MORE;
    case NEXT_FAILED: return gateway_read_fail(r);
    case NEXT_WAIT: break;
    }
    bool done = r->replay_only && r->up_to_date;
    if (r->heartbeat.due || done)
        exchange_put(x, slice_static(HEARTBEAT));
    r->heartbeat.due = false;
    return done ? gateway_read_end(r) : PULL_WAIT;
}

static void gateway_read_reader_gone(struct exchange *x)
{
    reader_free(x->state);
}

/* Nothing on drain: what is under way may come to its end, or ends as orphaned; readers are told.
 */
static const struct exchange_ops reader_ops = {.pull = gateway_read_reader_pull,
                                               .gone = gateway_read_reader_gone};

static void gateway_read_start_timer(struct reader *r)
{
    struct sched *sched = r->route->gateway->setup.sched;
    if (r->heartbeat.every_ms > 0)
        sched_start(sched, &r->timer, heartbeat_wait_ms(&r->heartbeat, sched->now_ms));
}

static void gateway_read_on_timer(struct timer *t)
{
    struct reader *r = container_of(t, struct reader, timer);
    heartbeat_look(&r->heartbeat, r->route->gateway->setup.sched->now_ms);
    gateway_read_start_timer(r);
    if (r->heartbeat.due)
        exchange_wake(r->x);
}

/* ---- the beginning ---- */

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
    buf_deinit(&s->ahead);
    buf_deinit(&s->snapshot);
    arena_deinit(&s->arena);
    free(s);
}

static void issue_token(struct read_order *o, struct buf *ahead)
{
    struct gateway *g = o->route->gateway;
    const struct route_config *c = o->route->config;
    struct exchange *x = o->x;
    struct resume_payload p = {.request_id = o->request_id,
                               .step = str_of_cstr(c->step),
                               .seq = o->seq,
                               .expires_at_ms =
                                   g->setup.sched->wall_ms + (int64_t)c->resume_ttl_ms};
    struct buf token = {0};
    if (resume_issue(&g->keys, &p, &token) == RESUME_OK) {
        struct str text = arena_dup(&x->arena, buf_str(&token));
        exchange_header(x, STR("X-Resume-Token"), text);
        dialect_put_resume(ahead, dialect_of(o->route), text);
        gateway_event(&g->events, RESUME_ISSUED, 1, TRACE_STR("request_id", o->request_id),
                      TRACE_INT("seq", (int64_t)o->seq), TRACE_STR("step", p.step));
    }
    buf_deinit(&token);
}

static uint64_t upstream_events(const struct stream_info *info)
{
    return info->events - (info->end == END_FAILED ? 1 : 0);
}

static void tell_resumed(struct read_order *o, const struct stream_info *info, uint64_t recovered)
{
    struct gateway *g = o->route->gateway;
    gateway_event(&g->events, RESUME_SUCCESS, 1, TRACE_STR("request_id", o->request_id),
                  TRACE_INT("replayed_count", (int64_t)recovered),
                  TRACE_INT("from_seq", (int64_t)o->seq),
                  TRACE_INT("to_seq", (int64_t)upstream_events(info)));
    gateway_event(&g->events, RESUME_REPLAY_COUNT, recovered,
                  TRACE_STR("request_id", o->request_id), TRACE_INT("count", (int64_t)recovered));
    histogram_observe(&g->events.replay, recovered);
    histogram_observe(&g->events.resume, (g->setup.sched->now_ms - o->started_ms) * 1000);
}

/* Notices in their order: the token comes first. */
static void gateway_read_begin(struct read_start *s)
{
    struct read_order *o = s->order;
    struct exchange *x = o->x;
    struct reader *r = mem_zalloc(sizeof *r);
    const struct gateway_setup *setup = &o->route->gateway->setup;
    uint64_t events = upstream_events(&s->read.info);
    r->route = o->route;
    r->x = x;
    memcpy(r->id, o->request_id.p, REQUEST_ID_TEXT);
    r->replay_only = o->replay_only;
    r->resumes = o->resumes;
    r->trimmed = s->trimmed;
    r->seq = o->seq;
    r->recovered = events > o->seq ? events - o->seq : 0;
    gateway_event_stream(o->route, x, o->request_id);
    issue_token(o, &r->ahead);
    buf_put(&r->ahead, buf_str(&s->ahead));
    if (o->resumes)
        tell_resumed(o, &s->read.info, r->recovered);
    gateway_read_subscribe(r, (struct offset){s->read.info.life, s->read.start});
    subscriber_prime(&r->subscriber, &s->read);
    timer_init(&r->timer, gateway_read_on_timer);
    r->heartbeat =
        (struct heartbeat){.every_ms = setup->heartbeat_ms, .since_ms = setup->sched->now_ms};
    gateway_read_start_timer(r);
    x->ops = &reader_ops;
    x->state = r;
    start_free(s);
    if (exchange_over(x)) {
        reader_free(r);
    } else {
        exchange_stream(x);
        exchange_forget_request(x);
    }
    exchange_release(x);
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
    dialect_put_gap(&s->ahead, dialect_of(o->route),
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
    gateway_put_cors(x);
    exchange_send(x, STR_NONE);
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

static bool is_begun_elsewhere(const struct read_order *o, const struct stream_info *info)
{
    return info->end == END_NONE && o->route->gateway->setup.instances != NULL &&
           generation_find(o->route, o->request_id) == NULL;
}

/* Told once; the reader goes on behind it. */
static void put_snapshot(struct read_start *s)
{
    struct read_order *o = s->order;
    if (s->snapshot.n == 0)
        return;
    dialect_put_snapshot(&s->ahead, dialect_of(o->route), buf_str(&s->snapshot), s->snapshot_seq);
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
    uint64_t events = err == 0 ? upstream_events(&read->info) : 0;
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
static void gateway_read_on_old_snapshot(struct snapshot_look *l)
{
    struct read_start *s = l->ctx;
    buf_put(&s->snapshot, buf_str(&l->payload));
    snapshot_look_free(l);
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
    gateway_send_failure(o->route, o->x, f);
    exchange_release(o->x);
}

static void gateway_read_on_generation_missing(struct generation_waiter *w, bool surplus)
{
    struct read_order *o = order_of(w);
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

void gateway_read(struct read_order *o)
{
    if (waits_here(o))
        return;
    if (o->whole) {
        gateway_read_whole(o);
        return;
    }
    struct read_start *s = mem_zalloc(sizeof *s);
    s->order = o;
    s->read = (struct store_read){.name = gateway_stream(&s->arena, o->route, o->request_id, ""),
                                  .max_bytes = BATCH_BYTES,
                                  .done = gateway_on_start_read};
    struct generation *gen = generation_find(o->route, o->request_id);
    if (o->from_snapshot && gen == NULL) {
        snapshot_look_new(o->route, o->request_id, gateway_read_on_old_snapshot, s);
        return;
    }
    if (o->from_snapshot && generation_snapshot(gen, &s->snapshot, &s->snapshot_seq) != 0)
        s->snapshot.n = 0;
    start_read(s, READ_EVENT);
}
