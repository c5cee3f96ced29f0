// SPDX-License-Identifier: Apache-2.0
/* gateway_whole_http.c -- readers that want an answer when it is complete, and as one body. */
#include "base/err.h"
#include "base/mem.h"
#include "feature/gateway/recorder.h"
#include "stream/subscriber.h"
#include "feature/gateway/gateway_http_core.h"

#include <stdlib.h>

/* It waits whether or not its client does: at most as long as the generation takes, which another
 * process may run, or until the gateway stops. */
struct whole {
    struct link link; /* in gateway.wholes, while it follows */
    struct read_order *order;
    struct subscriber subscriber;
    struct store_read read;
    struct arena arena;
    struct buf notice; /* why the generation failed */
    enum end_reason end;
};

static void whole_free(struct whole *w)
{
    struct gateway *g = w->order->route->gateway;
    struct exchange *x = w->order->x; /* the order is in its arena */
    generation_stand(w->order->seat);
    buf_deinit(&w->notice);
    arena_deinit(&w->arena);
    free(w);
    exchange_release(x);
    gateway_end(g);
}

static void send_snapshot(struct whole *w, struct str body)
{
    struct exchange *x = w->order->x;
    exchange_header(x, STR("X-Correlation-ID"), w->order->request_id);
    gateway_put_location(w->order->route, x, w->order->request_id);
    exchange_send_json(x, 200, body);
}

static void gateway_whole_refuse(struct whole *w, int status, struct str code, struct str message)
{
    struct exchange *x = w->order->x;
    exchange_header(x, STR("X-Correlation-ID"), w->order->request_id);
    gateway_error(w->order->route, x, status, code, message, STR_NONE);
}

static void refuse_end(struct whole *w)
{
    struct read_order *o = w->order;
    struct str notice = buf_str(&w->notice);
    switch (w->end) {
    case END_CANCELLED:
        gateway_whole_refuse(w, 409, STR("CANCELLED"), STR("the answer was stopped"));
        break;
    case END_ORPHANED:
    case END_FAILED:
        gateway_send_failure(o->x, &(struct generation_failure){.request_id = o->request_id,
                                                                .end = w->end,
                                                                .err = gateway_notice_err(notice),
                                                                .message = notice,
                                                                .voice = o->voice});
        break;
    case END_COMPLETED:
        gateway_whole_refuse(
            w, 502, STR("TOO_LARGE"),
            STR("the answer is too large for one body, or no longer kept; ask for a stream"));
        break;
    case END_NONE:
    case END_EXPIRED:
        gateway_whole_refuse(w, 410, STR("EXPIRED"), STR("the answer is no longer kept"));
        break;
    }
}

static void gateway_whole_on_snapshot(struct snapshot_lookup *l)
{
    struct whole *w = l->ctx;
    if (l->payload.n > 0 && l->end == END_COMPLETED)
        send_snapshot(w, buf_str(&l->payload));
    else
        refuse_end(w);
    snapshot_lookup_free(l);
    whole_free(w);
}

static void gateway_whole_conclude(struct whole *w)
{
    list_remove(&w->link);
    subscriber_deinit(&w->subscriber);
    if (w->end == END_COMPLETED) {
        snapshot_lookup_new(w->order->route, w->order->request_id, gateway_whole_on_snapshot, w);
        return;
    }
    refuse_end(w);
    whole_free(w);
}

/* Why it failed stands in the last event, in one slice with its beginning. */
static void note_failure(struct whole *w, const struct event_batch *b)
{
    uint64_t at = b->start;
    for (uint32_t i = 0; i < b->n_slices; i++) {
        struct str s = b->slices[i].bytes;
        if (b->last >= at && b->last - at < s.n)
            buf_put(&w->notice, recorder_notice(str_skip(s, (size_t)(b->last - at))));
        at += s.n;
    }
}

/* Nothing of a batch is of interest but whether it is the last. False: it has ended. */
static bool gateway_whole_pass_over(struct whole *w, struct event_batch *b)
{
    bool last = b->next == b->info.tail && b->info.end != END_NONE;
    if (last)
        w->end = b->info.end;
    if (last && w->end == END_FAILED && b->n_slices > 0)
        note_failure(w, b);
    event_batch_unref(b);
    return !last;
}

static void gateway_whole_on_ready(struct subscriber *s);

static void gateway_whole_subscribe(struct whole *w, struct offset at)
{
    subscriber_init(&w->subscriber, w->order->route->gateway->setup.feeds, w->read.name, at,
                    gateway_whole_on_ready);
}

/* The events cannot be read, or not any more. */
static void gateway_whole_fail(struct whole *w, int err)
{
    struct read_order *o = w->order;
    list_remove(&w->link);
    if (ERR_IS_GONE(err) || err == ERR_GAP) {
        /* its snapshot may have outlived them */
        snapshot_lookup_new(o->route, o->request_id, gateway_whole_on_snapshot, w);
    } else {
        gateway_refuse(o->route, o->x, err);
        whole_free(w);
    }
}

/* True: on behind what was trimmed, which does not matter here. */
static bool skip_gap(struct whole *w)
{
    int err = w->subscriber.err;
    bool trimmed = err == ERR_GAP && w->subscriber.gap->reason == GAP_TRIMMED;
    struct offset earliest = trimmed ? w->subscriber.gap->earliest : (struct offset){0};
    subscriber_deinit(&w->subscriber);
    if (trimmed)
        gateway_whole_subscribe(w, earliest);
    else
        gateway_whole_fail(w, err);
    return trimmed;
}

static void gateway_whole_follow(struct whole *w)
{
    struct event_batch *b;
    for (;;) {
        switch (subscriber_next(&w->subscriber, &b)) {
        case NEXT_BATCH:
            if (gateway_whole_pass_over(w, b))
                continue;
            gateway_whole_conclude(w);
            return;
        case NEXT_WAIT: return;
        case NEXT_FAILED:
            if (skip_gap(w))
                continue;
            return;
        }
    }
}

static void gateway_whole_on_ready(struct subscriber *s)
{
    gateway_whole_follow(container_of(s, struct whole, subscriber));
}

static void gateway_whole_on_read(struct store_read *read, int err)
{
    struct whole *w = container_of(read, struct whole, read);
    if (err != 0) {
        gateway_whole_fail(w, err);
        return;
    }
    gateway_whole_subscribe(w, (struct offset){read->info.life, read->start});
    subscriber_prime(&w->subscriber, read);
    list_push(&w->order->route->gateway->wholes, &w->link);
    gateway_whole_follow(w);
}

void gateway_read_whole(struct read_order *o)
{
    struct gateway *g = o->route->gateway;
    struct generation *gen = generation_find(o->route, o->request_id);
    struct whole *w = mem_zalloc(sizeof *w);
    if (o->starts && gen != NULL)
        generation_unpin(gen); /* what is trimmed does not matter here */
    w->order = o;
    list_init(&w->link);
    w->read = (struct store_read){.name = gateway_stream(&w->arena, o->route, o->request_id, ""),
                                  .from = READ_START,
                                  .max_bytes = EVENT_BATCH_BYTES,
                                  .done = gateway_whole_on_read};
    gateway_begin(g);
    store_read(g->setup.store, &w->read);
}

void gateway_whole_stop(struct gateway *g)
{
    while (!list_empty(&g->wholes)) {
        struct whole *w = list_item(g->wholes.next, struct whole, link);
        list_remove(&w->link);
        subscriber_deinit(&w->subscriber);
        whole_free(w);
    }
}
