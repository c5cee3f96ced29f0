// SPDX-License-Identifier: Apache-2.0
/* gateway_reader_http.c -- one reader of a generation, from where it begins to the end.
 *
 * What is stored is sent as it is; before it come notices of our own (the token, a gap, a
 * snapshot), and behind it how it ended. */
#include "base/err.h"
#include "base/mem.h"
#include "feature/gateway/gateway_http_core.h"
#include "feature/gateway/recorder.h"
#include "feature/gateway/stored_answer.h"
#include "http/heartbeat.h"
#include "http/limits.h"
#include "stream/subscriber.h"

#include <stdlib.h>

struct reader {
    struct gateway_route *route;
    struct exchange *x;
    struct subscriber subscriber;
    struct timer timer; /* of the heartbeat */
    struct heartbeat heartbeat;
    struct dialect_voice voice;
    struct buf rpc_id; /* of the voice */
    struct buf ahead;  /* our own notices, to be sent next */
    struct snapshot_lookup *look;
    struct generation_seat seat;
    struct repeat_mark *mark; /* NULL: it does not count its tries */
    uint64_t began_ms;
    char id[REQUEST_ID_TEXT];
    uint64_t recovered; /* events that it had missed */
    bool replay_only, resumes;
    bool up_to_date; /* it has all there was */
    bool trimmed;    /* there was a gap */
    bool late_gap;   /* ... which is told with the next events */
    bool over;       /* when `ahead` is out */
};

static struct str gateway_reader_id_of(const struct reader *r)
{
    return str_of(r->id, REQUEST_ID_TEXT);
}

/* ---- the end of a reader ---- */

static void reader_free(struct reader *r)
{
    timer_stop(&r->timer);
    generation_stand(&r->seat);
    subscriber_deinit(&r->subscriber);
    buf_deinit(&r->ahead);
    buf_deinit(&r->rpc_id);
    free(r->mark);
    if (r->look != NULL)
        r->look->ctx = NULL; /* it frees itself */
    free(r);
}

/* What came of its request, as long as that says whether the client has seen anything. */
static void note_fate(const struct reader *r, enum repeat_fate fate)
{
    uint64_t for_ms = r->route->gateway->setup.sched->now_ms - r->began_ms;
    if (r->mark != NULL && for_ms < REPEAT_LOST_MS)
        gateway_note_repeat(r->route,
                            &(struct repeat_note){.mark = r->mark,
                                                  .fate = fate,
                                                  .request_id = gateway_reader_id_of(r),
                                                  .connection = exchange_connection(r->x)});
}

static enum pull gateway_reader_end(struct reader *r)
{
    note_fate(r, REPEAT_DELIVERED);
    reader_free(r);
    return PULL_END;
}

/* Its end has been told. */
static void put_end_mark(struct reader *r)
{
    buf_put(&r->ahead, dialect_end_mark(r->voice.dialect));
    r->over = true;
}

static void put_end(struct reader *r, enum end_reason end, struct str notice)
{
    dialect_put_end(&r->ahead, &r->voice, end, gateway_end_message(end, notice));
    put_end_mark(r);
}

static void gateway_reader_on_final_snapshot(struct snapshot_lookup *l)
{
    struct reader *r = l->ctx;
    if (r != NULL) {
        struct dialect_diagnostics diagnostics = {.resumes = 1,
                                                  .trims = r->trimmed,
                                                  .recovered_events = r->recovered,
                                                  .correlation_id = gateway_reader_id_of(r)};
        if (l->payload.n > 0)
            dialect_put_complete(&r->ahead, &r->voice, buf_str(&l->payload), &diagnostics);
        r->look = NULL;
        put_end_mark(r);
        exchange_wake(r->x);
    }
    snapshot_lookup_free(l);
}

/* All of the stream has been sent. */
static void gateway_reader_conclude(struct reader *r, enum end_reason reason, struct str notice)
{
    bool completes = r->resumes && dialect_has_events(r->voice.dialect);
    if (reason == END_COMPLETED && completes)
        r->look = snapshot_lookup_new(r->route, gateway_reader_id_of(r),
                                      gateway_reader_on_final_snapshot, r);
    else if (reason == END_COMPLETED)
        put_end_mark(r);
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

/* What is stored before position `end`; what comes behind it, in the same slice, is
 * *rest. */
static void put_until(struct reader *r, const struct event_batch *b, uint64_t end, struct str *rest)
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

static void put_late_gap(struct reader *r, const struct event_batch *b)
{
    dialect_put_gap(&r->ahead, &r->voice,
                    &(struct dialect_gap){.requested = r->voice.seq,
                                          .earliest = b->ordinal + 1,
                                          .reason = GAP_TRIMMED});
    r->late_gap = false;
    put_ahead(r);
}

static void put_batch(struct reader *r, const struct event_batch *b)
{
    struct str last = STR_NONE;
    bool closing = b->next == b->info.tail && b->info.end != END_NONE;
    bool notice = closing && b->info.end == END_FAILED && b->n_slices > 0;
    r->up_to_date = b->next == b->info.tail;
    if (r->late_gap)
        put_late_gap(r, b);
    r->voice.seq = b->ordinal + b->events - (notice ? 1 : 0);
    put_until(r, b, notice ? b->last : b->next, &last);
    note_sent(r);
    if (closing)
        gateway_reader_conclude(r, b->info.end, recorder_notice(last));
}

static bool is_answer(const struct event_batch *b)
{
    return b->n_slices > 0 && b->ordinal == 0 && stored_answer_is(b->slices[0].bytes);
}

static void gateway_reader_on_ready(struct subscriber *s)
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

static void gateway_reader_on_cut(struct subscriber *s)
{
    reader_abort(container_of(s, struct reader, subscriber));
}

static bool gateway_reader_reserve(struct subscriber *s, size_t bytes)
{
    return exchange_reserve(container_of(s, struct reader, subscriber)->x, bytes);
}

static void gateway_reader_subscribe(struct reader *r, struct offset at)
{
    struct arena a = {0};
    subscriber_init(&r->subscriber, r->route->gateway->setup.feeds,
                    gateway_stream(&a, r->route, gateway_reader_id_of(r), ""), at,
                    gateway_reader_on_ready);
    subscriber_may_lag(&r->subscriber, gateway_reader_on_cut);
    subscriber_asks(&r->subscriber, gateway_reader_reserve);
    arena_deinit(&a);
}

/* It was slower than the stream was trimmed: it goes on with what there is. */
static void skip_gap(struct reader *r)
{
    struct offset earliest = r->subscriber.gap->earliest;
    r->trimmed = r->late_gap = true;
    subscriber_deinit(&r->subscriber);
    gateway_reader_subscribe(r, earliest);
}

static enum pull gateway_reader_fail(struct reader *r)
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

static enum pull gateway_reader_pull(struct exchange *x)
{
    struct reader *r = x->state;
    struct event_batch *b;
    put_ahead(r);
    if (r->over)
        return gateway_reader_end(r);
    if (r->look != NULL)
        return PULL_WAIT;
    switch (subscriber_next(&r->subscriber, &b)) {
    case NEXT_BATCH:
        if (is_answer(b)) { /* which has a head of its own: who comes again gets it */
            event_batch_unref(b);
            reader_abort(r);
            return PULL_WAIT;
        }
        put_batch(r, b);
        limits_count_events(x, b->events);
        event_batch_unref(b);
        subscriber_used(&r->subscriber);
        return PULL_MORE;
    case NEXT_FAILED: return gateway_reader_fail(r);
    case NEXT_WAIT: break;
    }
    bool done = r->replay_only && r->up_to_date;
    if ((r->heartbeat.due || done) && dialect_heartbeat(r->voice.dialect).n > 0)
        exchange_put(x, slice_static(dialect_heartbeat(r->voice.dialect)));
    r->heartbeat.due = false;
    return done ? gateway_reader_end(r) : PULL_WAIT;
}

static void gateway_reader_gone(struct exchange *x)
{
    note_fate(x->state, REPEAT_LOST);
    reader_free(x->state);
}

/* Nothing on drain: what is under way may come to its end, or ends as orphaned; readers are told.
 */
static const struct exchange_ops reader_ops = {.pull = gateway_reader_pull,
                                               .gone = gateway_reader_gone};

static void gateway_reader_start_timer(struct reader *r)
{
    struct sched *sched = r->route->gateway->setup.sched;
    if (r->heartbeat.every_ms > 0)
        sched_start(sched, &r->timer, heartbeat_wait_ms(&r->heartbeat, sched->now_ms));
}

static void gateway_reader_on_timer(struct timer *t)
{
    struct reader *r = container_of(t, struct reader, timer);
    heartbeat_look(&r->heartbeat, r->route->gateway->setup.sched->now_ms);
    gateway_reader_start_timer(r);
    if (r->heartbeat.due)
        exchange_wake(r->x);
}

/* ---- the beginning ---- */

uint64_t gateway_upstream_events(const struct stream_info *info)
{
    return info->events - (info->end == END_FAILED ? 1 : 0);
}

static void issue_token(const struct read_order *o, struct buf *ahead)
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
        dialect_put_resume(ahead, &o->voice, text);
        gateway_event(&g->events, RESUME_ISSUED, 1, TRACE_STR("request_id", o->request_id),
                      TRACE_INT("seq", (int64_t)o->seq), TRACE_STR("step", p.step));
    }
    buf_deinit(&token);
}

static void tell_resumed(const struct read_order *o, const struct stream_info *info,
                         uint64_t recovered)
{
    struct gateway *g = o->route->gateway;
    gateway_event(&g->events, RESUME_SUCCESS, 1, TRACE_STR("request_id", o->request_id),
                  TRACE_INT("replayed_count", (int64_t)recovered),
                  TRACE_INT("from_seq", (int64_t)o->seq),
                  TRACE_INT("to_seq", (int64_t)gateway_upstream_events(info)));
    gateway_event(&g->events, RESUME_REPLAY_COUNT, recovered,
                  TRACE_STR("request_id", o->request_id), TRACE_INT("count", (int64_t)recovered));
    histogram_observe(&g->events.replay, recovered);
    histogram_observe(&g->events.resume, (g->setup.sched->now_ms - o->started_ms) * 1000);
}

static struct repeat_mark *copy_mark(const struct repeat_mark *mark)
{
    struct repeat_mark *copy = NULL;
    if (mark != NULL && mark->counts) {
        copy = mem_alloc(sizeof *copy);
        *copy = *mark;
    }
    return copy;
}

/* Notices in their order: the token comes first. */
struct reader *reader_new(const struct read_order *o, struct store_read *read, struct str ahead,
                          bool trimmed)
{
    struct reader *r = mem_zalloc(sizeof *r);
    const struct gateway_setup *setup = &o->route->gateway->setup;
    uint64_t events = gateway_upstream_events(&read->info);
    r->route = o->route;
    r->x = o->x;
    memcpy(r->id, o->request_id.p, REQUEST_ID_TEXT);
    r->replay_only = o->replay_only;
    r->resumes = o->resumes;
    r->began_ms = setup->sched->now_ms;
    r->mark = copy_mark(o->mark);
    if (!exchange_over(o->x))
        generation_sit(o->route, o->request_id, &r->seat);
    r->trimmed = trimmed;
    r->voice = o->voice;
    r->voice.seq = o->seq;
    buf_put(&r->rpc_id, o->voice.rpc_id);
    r->voice.rpc_id = buf_str(&r->rpc_id);
    r->voice.media_type = STR_NONE; /* the head is out */
    r->voice.generation = str_of(r->id, o->voice.generation.n);
    r->recovered = events > o->seq ? events - o->seq : 0;
    gateway_event_stream(o->x, &o->voice, o->request_id);
    gateway_put_location(o->route, o->x, o->request_id);
    issue_token(o, &r->ahead);
    gateway_put_headers(o->x, o->headers, o->n_headers);
    if (o->seq == 0)
        dialect_put_prime(&r->ahead, &o->voice,
                          request_header(o->x->request, STR("MCP-Protocol-Version")));
    buf_put(&r->ahead, ahead);
    if (o->resumes)
        tell_resumed(o, &read->info, r->recovered);
    gateway_reader_subscribe(r, (struct offset){read->info.life, read->start});
    if (read->n_slices == 0 || exchange_room(o->x) > 0)
        subscriber_prime(&r->subscriber, read); /* else it would lie here until the peer takes it */
    timer_init(&r->timer, gateway_reader_on_timer);
    r->heartbeat = (struct heartbeat){.every_ms = sched_spread(setup->sched, setup->heartbeat_ms),
                                      .since_ms = setup->sched->now_ms};
    gateway_reader_start_timer(r);
    return r;
}

void reader_start(struct reader *r)
{
    struct exchange *x = r->x;
    x->ops = &reader_ops;
    x->state = r;
    if (exchange_over(x)) { /* gone while it waited, and noted then */
        reader_free(r);
    } else {
        exchange_stream(x);
        exchange_forget_request(x);
    }
    exchange_release(x);
}
