// SPDX-License-Identifier: Apache-2.0
/* gateway_generation.c -- one request and what becomes of its answer.
 *
 * CREATING  the stream (and key) is being made; nobody has been asked yet
 * ASKING    its source has been started; the head has not come
 * RECORDING it answers with events, which go into the stream
 * PASSING   it answers with something else, which goes to who asked and nowhere else
 * ENDING    the stream is being closed
 *
 * Who asked is not answered before the first event is recorded, so that a failure until then is a
 * status, which clients know how to retry; but not later than a heartbeat after the source's head,
 * for then it has to hear something. Until it is *open* in this way, others who come for it wait as
 * well. One that came to nothing takes its key with it: the next try asks again.
 *
 * A generation belongs to the gateway: only in PASSING does it go with the client, and if it is
 * degraded: the store did not take its stream, and there is no recorder. */
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/json_view.h"
#include "feature/gateway/recorder.h"
#include "stream/subscriber.h"
#include "feature/gateway/gateway_core.h"
#include "feature/gateway/gateway_source.h"

#include <stdlib.h>

#define CHAT_MAX      256
#define PASS_PENDING  (256 * 1024)
#define PASS_SLICES   64
#define ASK_AGAIN_MAX 4     /* of those who waited for what was passed on */
#define PROBE_MS      1000  /* after a failure of the store, before it is tried again */
#define HOLD_MS       10000 /* for the first event, where there are no heartbeats */

enum state { CREATING, ASKING, RECORDING, PASSING, ENDING };

/* Somebody who wants it stopped. */
struct stopper {
    struct link link;
    struct exchange *x; /* held */
};

struct generation {
    struct gateway_route *route;
    struct arena arena; /* of its texts */
    struct str id, name, chat;
    struct generation_order *order; /* until it has been started */
    struct exchange *starter;       /* held until it is answered */
    struct link waiters;            /* of struct read_order */
    struct timer hold;              /* until it is open */
    struct recorder *recorder;
    struct pin start;                 /* of those who wait for its beginning */
    uint32_t starting;                /* of them, until they read */
    struct presence *presence;        /* NULL: nobody else shares the store */
    struct generation_source *source; /* NULL: no more is wanted of it */
    enum state state;
    bool whole; /* as the order says */
    bool open;
    bool taken; /* an event of the source */
    struct link stoppers;

    /* PASSING */
    struct exchange *to; /* held */
    struct slice pending[PASS_SLICES];
    uint32_t n_pending;
    size_t pending_bytes;
    bool passed;        /* all of it has come */
    struct doc_put key; /* to be taken back */
    struct store_put put;

    bool degraded, probes; /* probes: it tries whether the store takes something again */
    struct forward *forward;
    struct task over; /* of a degraded one */
    enum end_reason end;
    int err; /* of the source */
    struct str message;
};

static void generation_free(struct generation *gen);

/* ---- the maps ---- */

struct str generation_chat_key(struct arena *a, const struct gateway_route *r, struct str caller,
                               struct str chat)
{
    return arena_printf(a, "%.*s %.*s %.*s", (int)r->path.n, r->path.p, (int)caller.n, caller.p,
                        (int)chat.n, chat.p);
}

struct generation *generation_find(struct gateway_route *r, struct str request_id)
{
    struct generation *gen = map_get(&r->gateway->running, request_id);
    return gen != NULL && gen->route == r ? gen : NULL;
}

struct str generation_of_chat(struct gateway *g, struct arena *a, struct str key)
{
    const struct generation *gen = map_get(&g->chats, key);
    bool told = gen != NULL && gen->presence != NULL && presence_is_told(gen->presence);
    return gen == NULL || told ? STR_NONE : arena_dup(a, gen->id);
}

int generation_snapshot(const struct generation *gen, struct buf *out, uint64_t *seq)
{
    return gen->recorder == NULL ? ERR_NOT_FOUND : recorder_snapshot(gen->recorder, out, seq);
}

void generation_let_go(struct generation *gen)
{
    if (gen->starting > 0 && --gen->starting == 0)
        pin_remove(&gen->start);
}

static void leave_chats(struct generation *gen)
{
    struct map *chats = &gen->route->gateway->chats;
    if (gen->chat.n > 0 && map_get(chats, gen->chat) == gen) /* or a newer one has it */
        map_remove(chats, gen->chat);
}

static void leave_maps(struct generation *gen)
{
    struct gateway *g = gen->route->gateway;
    if (map_get(&g->running, gen->id) != gen)
        return;
    map_remove(&g->running, gen->id);
    gauge_add(gen->route->running, -1);
    leave_chats(gen);
}

/* The AI SDK names a chat in `id`. The body is looked at where it lies: as a tree it could take a
 * hundred times its size. */
static struct str chat_of(struct generation *gen, struct exchange *x, struct str body)
{
    struct view_want id = {.name = STR("id")};
    struct str chat = STR_NONE;
    struct buf text = {0};
    size_t ignored;
    body = view_trim(body);
    if (gen->route->config->dialect != ROUTE_DIALECT_UI_MESSAGE ||
        json_check(body, &ignored) != 0 || view_type(body) != VIEW_OBJECT)
        return chat;
    view_pick(body, &id, 1);
    if (view_type(id.value) == VIEW_STRING)
        view_decode(view_inside(id.value), &text);
    if (text.n > 0 && text.n <= CHAT_MAX)
        chat = generation_chat_key(&gen->arena, gen->route, gateway_caller(gen->route, x),
                                   buf_str(&text));
    buf_deinit(&text);
    return chat;
}

static void enter_running(struct generation *gen)
{
    map_put(&gen->route->gateway->running, gen->id, gen);
    gauge_add(gen->route->running, 1);
}

/* From its beginning, so that a stop right behind it finds it; but an older one of the chat stays
 * until this one has a stream. */
static void expect_chat(struct generation *gen)
{
    struct map *chats = &gen->route->gateway->chats;
    if (gen->chat.n > 0 && map_get(chats, gen->chat) == NULL)
        map_put(chats, gen->chat, gen);
}

/* Once there is something to read. */
static void enter_chats(struct generation *gen)
{
    struct map *chats = &gen->route->gateway->chats;
    if (gen->chat.n == 0)
        return;
    map_remove(chats, gen->chat); /* its key goes with the older one */
    map_put(chats, gen->chat, gen);
}

/* ---- its end ---- */

static void answer_starter(struct generation *gen)
{
    struct exchange *x = gen->starter;
    if (x == NULL)
        return;
    gen->starter = NULL;
    gen->starting++;
    struct read_order *o = arena_alloc(&x->arena, sizeof *o);
    *o = (struct read_order){.route = gen->route,
                             .x = x,
                             .request_id = arena_dup(&x->arena, gen->id),
                             .whole = gen->whole,
                             .waits = true,
                             .starts = true};
    gateway_read(o); /* takes over what holds the exchange */
}

static void open_up(struct generation *gen)
{
    gen->open = true;
    gen->starting = 1; /* until all have begun to read */
    timer_stop(&gen->hold);
    answer_starter(gen);
    while (!list_empty(&gen->waiters)) {
        struct read_order *o = list_item(gen->waiters.next, struct read_order, link);
        list_remove(&o->link);
        o->starts = true;
        gen->starting++;
        gateway_read(o);
    }
    generation_let_go(gen);
}

bool generation_keep_waiting(struct read_order *o)
{
    struct generation *gen = generation_find(o->route, o->request_id);
    if (gen == NULL || gen->open)
        return false;
    o->waited = true;
    list_push(&gen->waiters, &o->link);
    return true;
}

static void refuse_one(struct generation *gen, struct exchange *x)
{
    if (gen->degraded)
        gateway_put_degraded(x);
    gateway_send_failure(gen->route, x, gen->id, gen->end, gen->err, gen->message);
    exchange_release(x);
}

static void refuse_all(struct generation *gen)
{
    if (gen->starter != NULL)
        refuse_one(gen, gen->starter);
    gen->starter = NULL;
    while (!list_empty(&gen->waiters)) {
        struct read_order *o = list_item(gen->waiters.next, struct read_order, link);
        list_remove(&o->link);
        refuse_one(gen, o->x);
    }
}

static void answer_stoppers(struct generation *gen, enum end_reason end, int err)
{
    while (!list_empty(&gen->stoppers)) {
        struct stopper *s = list_item(gen->stoppers.next, struct stopper, link);
        list_remove(&s->link);
        if (err != 0)
            gateway_refuse(gen->route, s->x, err);
        else
            gateway_send_status(s->x, gen->id, end);
        exchange_release(s->x);
        free(s);
    }
}

/* Its stream is still open, or may be. */
static bool is_unclosed(int err)
{
    return err != 0 && err != ERR_CLOSED && err != ERR_NOT_FOUND && err != ERR_DELETED;
}

static void refuse_unclosed(struct generation *gen, int err)
{
    gen->end = END_FAILED;
    gen->err = err;
    gen->message = str_of_cstr(err_text(err));
    refuse_all(gen);
}

static void gateway_generation_on_ended(void *ctx, enum end_reason end, int err)
{
    struct generation *gen = ctx;
    struct gateway *g = gen->route->gateway;
    leave_maps(gen);
    if (is_unclosed(err) && gen->presence != NULL)
        presence_abandon(gen->presence);
    answer_stoppers(gen, end, err == ERR_CLOSED ? 0 : err);
    if (is_unclosed(err))
        refuse_unclosed(gen, err);
    else
        open_up(gen);
    generation_free(gen);
    gateway_check_stopped(g);
}

static void end_degraded(struct generation *gen);

static void drop_source(struct generation *gen)
{
    if (gen->source != NULL)
        gen->source->ops->free(gen->source);
    gen->source = NULL;
}

static void tell_nothing(struct generation *gen)
{
    refuse_all(gen);
    recorder_end(gen->recorder, gen->end, gen->message);
}

static void gateway_generation_on_key_taken_back(struct store_put *put, int err)
{
    struct generation *gen = container_of(put, struct generation, put);
    struct gateway *g = gen->route->gateway;
    tell_nothing(gen);
    gateway_end(g);
}

/* The key goes first: whoever is told tries again, and must not be led to this one. */
static void come_to_nothing(struct generation *gen)
{
    struct gateway *g = gen->route->gateway;
    if (gen->key.key.n == 0) {
        tell_nothing(gen);
        return;
    }
    gen->put = (struct store_put){
        .docs = &gen->key, .n_docs = 1, .done = gateway_generation_on_key_taken_back};
    gateway_begin(g);
    store_put(g->setup.store, &gen->put);
}

static bool is_nothing(const struct generation *gen)
{
    return !gen->open && !gen->taken && gateway_came_to_nothing(gen->end);
}

/* The message may belong to the source. */
static void gateway_generation_end(struct generation *gen, enum end_reason reason,
                                   struct str message)
{
    bool made = gen->state != CREATING;
    if (gen->state == ENDING) {
        if (gen->recorder != NULL)
            recorder_hurry(gen->recorder, reason);
        return;
    }
    gen->state = ENDING;
    gen->end = reason;
    gen->message = arena_dup(&gen->arena, message);
    timer_stop(&gen->hold);
    drop_source(gen);
    if (gen->degraded)
        end_degraded(gen);
    else if (is_nothing(gen) && !made)
        return; /* gateway_generation_on_started goes on: there is no key yet that could be taken
                   back */
    else if (is_nothing(gen))
        come_to_nothing(gen);
    else
        recorder_end(gen->recorder, reason, gen->message);
}

static void gateway_generation_on_ended_elsewhere(void *ctx, enum end_reason reason)
{
    gateway_generation_end(ctx, reason, STR_NONE);
}

static void generation_free(struct generation *gen)
{
    drop_source(gen);
    pin_remove(&gen->start);
    recorder_free(gen->recorder);
    presence_free(gen->presence);
    task_cancel(&gen->over);
    timer_stop(&gen->hold);
    for (uint32_t i = 0; i < gen->n_pending; i++)
        block_unref(gen->pending[i].owner);
    if (gen->starter != NULL)
        exchange_release(gen->starter);
    arena_deinit(&gen->arena);
    free(gen);
}

void generation_cancel(struct generation *gen, struct exchange *x)
{
    struct stopper *s = mem_alloc(sizeof *s);
    s->x = x;
    exchange_hold(x);
    list_push(&gen->stoppers, &s->link);
    gateway_generation_end(gen, END_CANCELLED, STR_NONE);
}

void generations_orphan(struct gateway *g, const struct gateway_route *r)
{
    size_t at = 0;
    for (struct generation *gen; (gen = map_next(&g->running, &at)) != NULL;)
        if (r == NULL || gen->route == r)
            gateway_generation_end(gen, END_ORPHANED, STR_NONE); /* leaves the map later */
}

/* ---- an answer that is no stream of events ---- */

/* The stream and the key were made for nothing: the next request asks the upstream again. */
struct discard {
    struct store_remove remove;
    struct store_put put;
    struct gateway *gateway;
    struct doc_put key;
    struct link waiters; /* of struct read_order: they ask for themselves */
    struct arena arena;
};

static void discard_free(struct discard *d)
{
    for (unsigned n = 0; !list_empty(&d->waiters); n++) {
        struct read_order *o = list_item(d->waiters.next, struct read_order, link);
        list_remove(&o->link);
        o->surplus = n >= ASK_AGAIN_MAX;
        o->missing(o);
    }
    gateway_end(d->gateway);
    arena_deinit(&d->arena);
    free(d);
}

static void gateway_generation_on_stream_removed(struct store_remove *r, int err)
{
    discard_free(container_of(r, struct discard, remove));
}

static void gateway_generation_on_key_removed(struct store_put *p, int err)
{
    struct discard *d = container_of(p, struct discard, put);
    store_remove(d->gateway->setup.store, &d->remove);
}

static void discard_stream(struct generation *gen)
{
    struct gateway *g = gen->route->gateway;
    struct discard *d = mem_zalloc(sizeof *d);
    recorder_free(gen->recorder);
    gen->recorder = NULL;
    presence_free(gen->presence);
    gen->presence = NULL;
    leave_maps(gen);
    list_init(&d->waiters);
    list_splice(&d->waiters, &gen->waiters);
    d->gateway = g;
    d->key = gen->key;
    d->key.key = arena_dup(&d->arena, gen->key.key);
    d->remove = (struct store_remove){.name = arena_dup(&d->arena, gen->name),
                                      .done = gateway_generation_on_stream_removed};
    d->put =
        (struct store_put){.docs = &d->key, .n_docs = 1, .done = gateway_generation_on_key_removed};
    gateway_begin(g);
    if (d->key.key.n > 0) /* first: it must not lead to a stream that is gone */
        store_put(g->setup.store, &d->put);
    else
        store_remove(g->setup.store, &d->remove);
}

static void gateway_generation_pass_over(struct generation *gen)
{
    exchange_release(gen->to);
    generation_free(gen);
}

static enum pull gateway_generation_pass_pull(struct exchange *x)
{
    struct generation *gen = x->state;
    for (uint32_t i = 0; i < gen->n_pending; i++) {
        exchange_put(x, gen->pending[i]);
        block_unref(gen->pending[i].owner);
    }
    gen->n_pending = 0;
    gen->pending_bytes = 0;
    if (!gen->passed) {
        gen->source->ops->resume(gen->source);
        return PULL_WAIT;
    }
    gateway_generation_pass_over(gen);
    return PULL_END;
}

static void gateway_generation_pass_gone(struct exchange *x)
{
    gateway_generation_pass_over(x->state);
}

static const struct exchange_ops pass_ops = {.pull = gateway_generation_pass_pull,
                                             .gone = gateway_generation_pass_gone};

static void begin_passing(struct generation *gen, const struct source_head *head)
{
    struct exchange *x = gen->starter;
    gen->state = PASSING;
    if (gen->degraded)
        leave_maps(gen);
    else
        discard_stream(gen);
    gen->starter = NULL;
    gen->to = x;
    x->ops = &pass_ops;
    x->state = gen;
    exchange_status(x, head->status);
    for (size_t i = 0; i < head->n_headers; i++)
        exchange_header(x, arena_dup(&x->arena, head->headers[i].name),
                        arena_dup(&x->arena, head->headers[i].value));
    exchange_header(x, STR("X-Correlation-ID"), arena_dup(&x->arena, gen->id));
    if (gen->degraded)
        gateway_put_degraded(x);
    gateway_put_cors(x);
    if (exchange_over(x))
        gateway_generation_pass_over(gen); /* the client has gone while the upstream thought */
    else
        exchange_stream(x);
}

static bool pass_data(struct generation *gen, struct str data)
{
    if (gen->n_pending == PASS_SLICES || gen->pending_bytes >= PASS_PENDING)
        return false;
    struct block *b = block_of(data);
    gen->pending[gen->n_pending++] = slice_of(b, 0, b->n);
    gen->pending_bytes += b->n;
    exchange_wake(gen->to);
    return true;
}

static void pass_done(struct generation *gen, int err)
{
    gen->passed = true;
    if (err == 0) {
        exchange_wake(gen->to);
        return;
    }
    struct exchange *x = gen->to;
    static const struct exchange_ops none;
    x->ops = &none;
    exchange_abort(x);
    gateway_generation_pass_over(gen);
}

/* ---- an answer that the store does not take ---- */

static void gateway_generation_on_degraded_over(struct task *t)
{
    struct generation *gen = container_of(t, struct generation, over);
    gateway_generation_on_ended(gen, gen->end, 0);
}

static void gateway_generation_on_forward_room(void *ctx)
{
    struct generation *gen = ctx;
    if (gen->source != NULL)
        gen->source->ops->resume(gen->source);
}

/* Nobody takes it any more. The source may be in the middle of an event: it is freed a task later.
 */
static void leave_degraded(struct generation *gen)
{
    if (gen->state == ENDING)
        return;
    gen->state = ENDING;
    gen->end = END_CANCELLED;
    sched_post(gen->route->gateway->setup.sched, &gen->over);
}

static void gateway_generation_on_forward_gone(void *ctx)
{
    struct generation *gen = ctx;
    gen->forward = NULL;
    leave_degraded(gen);
}

static void begin_forward(struct generation *gen)
{
    static const struct forward_ops forward_ops = {gateway_generation_on_forward_room,
                                                   gateway_generation_on_forward_gone};
    struct exchange *x = gen->starter;
    gen->open = true;
    timer_stop(&gen->hold);
    gen->starter = NULL;
    gen->forward = forward_new(gen->route, x, gen->id, &forward_ops, gen);
    if (gen->forward == NULL) /* the client has gone while the upstream thought */
        leave_degraded(gen);
}

static void end_degraded(struct generation *gen)
{
    if (is_nothing(gen))
        refuse_all(gen);
    if (gen->starter != NULL) /* there was no event, and what comes is all that there is */
        begin_forward(gen);
    if (gen->forward != NULL)
        forward_end(gen->forward, gen->end, gen->message);
    gen->forward = NULL;
    sched_post(gen->route->gateway->setup.sched, &gen->over);
}

/* The source has a copy of the request's body. */
static void ask_source(struct generation *gen)
{
    gen->state = ASKING;
    exchange_forget_body(gen->starter);
    gen->source->ops->start(gen->source);
}

/* Nothing of it will be kept, and whoever asked is told so with the answer. */
static void degrade(struct generation *gen)
{
    struct gateway *g = gen->route->gateway;
    recorder_free(gen->recorder);
    gen->recorder = NULL;
    presence_free(gen->presence);
    gen->presence = NULL;
    leave_chats(gen); /* nobody can come back to it */
    gen->degraded = true;
    gateway_event(&g->events, DEGRADED, 1, TRACE_STR("request_id", gen->id),
                  TRACE_STR("route", gen->route->path));
    ask_source(gen);
}

static bool is_trouble(int err)
{
    return ERR_IS_PASSING(err) || err == ERR_IO || err == ERR_FULL || err == ERR_UPSTREAM;
}

/* May an upstream be asked although the store does not take the stream? Not under a key: it could
 * have been there, and would ask twice. Nor for a whole answer, which is what was recorded. */
static bool may_degrade(const struct generation *gen)
{
    return gen->key.key.n == 0 && !gen->whole;
}

/* While the store takes nothing, one request a second finds out whether that has changed; the
 * others do not wait for what it says. */
static bool is_worth_trying(const struct gateway *g)
{
    return !g->failing || (!g->probing && g->setup.sched->now_ms - g->failed_ms >= PROBE_MS);
}

static void note_try(struct generation *gen, int err)
{
    struct gateway *g = gen->route->gateway;
    if (gen->probes)
        g->probing = false;
    g->failing = is_trouble(err);
    if (!g->failing)
        return;
    g->failed_ms = g->setup.sched->now_ms;
    gateway_look_for_leftovers(g);
}

/* ---- the source's answer ---- */

static void gateway_generation_on_head(void *ctx, const struct source_head *head)
{
    struct generation *gen = ctx;
    if (!head->events) {
        begin_passing(gen, head);
        return;
    }
    const struct gateway_setup *setup = &gen->route->gateway->setup;
    gen->state = RECORDING;
    sched_start(setup->sched, &gen->hold, setup->heartbeat_ms > 0 ? setup->heartbeat_ms : HOLD_MS);
}

static void gateway_generation_on_hold(struct timer *t)
{
    struct generation *gen = container_of(t, struct generation, hold);
    if (gen->degraded)
        begin_forward(gen);
    else
        open_up(gen);
}

static int gateway_generation_on_event(void *ctx, struct str type, struct str data)
{
    struct generation *gen = ctx;
    gen->taken = true;
    if (!gen->degraded)
        return recorder_event(gen->recorder, type, data);
    if (gen->starter != NULL)
        begin_forward(gen);
    return gen->forward == NULL ? 0 : forward_event(gen->forward, type, data);
}

static bool gateway_generation_on_data(void *ctx, struct str data)
{
    return pass_data(ctx, data);
}

static void gateway_generation_on_end(void *ctx, int err, struct str message)
{
    struct generation *gen = ctx;
    gen->err = err;
    if (gen->state == PASSING)
        pass_done(gen, err);
    else
        gateway_generation_end(gen, err == 0 ? END_COMPLETED : END_FAILED, message);
}

static const struct source_events source_events = {.head = gateway_generation_on_head,
                                                   .event = gateway_generation_on_event,
                                                   .data = gateway_generation_on_data,
                                                   .end = gateway_generation_on_end};

static void gateway_generation_on_room(void *ctx)
{
    struct generation *gen = ctx;
    if (gen->source != NULL)
        gen->source->ops->resume(gen->source);
}

/* ---- telling ---- */

static void gateway_generation_on_recorded(void *ctx, uint64_t n_events, uint64_t bytes,
                                           uint64_t took_ms)
{
    struct generation *gen = ctx;
    histogram_observe(&gen->route->gateway->events.append, took_ms * 1000);
    if (gen->presence != NULL)
        presence_wrote(gen->presence);
    if (!gen->open)
        open_up(gen);
}

static void gateway_generation_on_trimmed(void *ctx, const struct recorder_trim *t)
{
    struct generation *gen = ctx;
    const struct route_config *c = gen->route->config;
    bool by_count = t->kept_events >= c->buffer_max_events;
    gateway_event(&gen->route->gateway->events, BUFFER_TRIMMED, t->events,
                  TRACE_STR("request_id", gen->id),
                  TRACE_INT("trimmed_seq", (int64_t)t->first_event),
                  TRACE_INT("trimmed_size_bytes", (int64_t)t->bytes),
                  TRACE_STR("reason", by_count ? STR("count_limit") : STR("size_limit")),
                  TRACE_INT("new_buffer_size_bytes", (int64_t)t->kept_bytes),
                  TRACE_INT("new_buffer_event_count", (int64_t)t->kept_events));
}

static void gateway_generation_on_cut(void *ctx, uint64_t n_readers)
{
    struct generation *gen = ctx;
    gateway_event(&gen->route->gateway->events, READER_CUT, n_readers,
                  TRACE_STR("request_id", gen->id), TRACE_STR("route", gen->route->path),
                  TRACE_INT("readers", (int64_t)n_readers));
}

static void gateway_generation_on_snapshot(void *ctx, uint64_t bytes)
{
    struct generation *gen = ctx;
    gateway_event(&gen->route->gateway->events, SNAPSHOT_CREATED, 1,
                  TRACE_STR("request_id", gen->id), TRACE_INT("bytes", (int64_t)bytes));
}

/* ---- its beginning ---- */

static void gateway_generation_on_started(void *ctx, int err)
{
    struct generation *gen = ctx;
    struct gateway *g = gen->route->gateway;
    struct generation_order *o = gen->order;
    note_try(gen, err);
    if (err == 0 && gen->presence != NULL)
        presence_started(gen->presence);
    if (err == 0) {
        if (gen->state == CREATING) {
            enter_chats(gen);
            ask_source(gen);
        } else if (is_nothing(gen)) {
            come_to_nothing(gen);
        }
        return;
    }
    bool wanted = gen->state == CREATING && gen->starter != NULL;
    if (wanted && is_trouble(err) && may_degrade(gen)) {
        degrade(gen);
        return;
    }
    struct exchange *x = gen->starter;
    gen->starter = NULL;
    leave_maps(gen);
    answer_stoppers(gen, END_CANCELLED, err);
    refuse_unclosed(gen, err); /* the key may have been found before this was known */
    generation_free(gen);
    if (x == NULL) {
        gateway_check_stopped(g);
        return;
    }
    if (err == ERR_VERSION && o->taken != NULL) {
        o->taken(o);
    } else {
        gateway_refuse(o->route, x, err);
        exchange_release(x);
    }
    gateway_check_stopped(g);
}

/* The stream must not expire while its writer waits. */
static uint64_t reader_timeout_ms(const struct gateway *g, const struct route_config *c)
{
    uint64_t most = (uint64_t)gateway_ttl_s(c) * 900;
    return g->setup.write_timeout_ms < most ? g->setup.write_timeout_ms : most;
}

static struct recorder *make_recorder(struct generation *gen, const struct generation_order *o)
{
    static const enum fold_kind kinds[] = {[ROUTE_SNAPSHOT_LAST] = FOLD_LAST,
                                           [ROUTE_SNAPSHOT_OPENAI] = FOLD_OPENAI,
                                           [ROUTE_SNAPSHOT_UI_MESSAGE] = FOLD_UI_MESSAGE};
    const struct route_config *c = gen->route->config;
    const struct gateway *g = gen->route->gateway;
    bool bounded = g->setup.store_is_memory || c->trim == ROUTE_TRIM_STRICT;
    struct doc_put docs[2];
    size_t n_docs = 0;
    if (o->n_docs > 0)
        docs[n_docs++] = o->docs[0];
    if (gen->presence != NULL)
        docs[n_docs++] = *presence_doc(gen->presence);
    struct recorder_config config = {.name = gen->name,
                                     .ttl_s = gateway_ttl_s(c),
                                     .docs = docs,
                                     .n_docs = n_docs,
                                     .folds = c->snapshot != ROUTE_SNAPSHOT_NONE,
                                     .fold = kinds[c->snapshot],
                                     .snapshot_ttl_s = (int64_t)(c->snapshot_ttl_ms + 999) / 1000,
                                     .pins = &g->setup.feeds->pins,
                                     .reader_timeout_ms = reader_timeout_ms(g, c),
                                     .on = {.started = gateway_generation_on_started,
                                            .recorded = gateway_generation_on_recorded,
                                            .room = gateway_generation_on_room,
                                            .trimmed = gateway_generation_on_trimmed,
                                            .cut = gateway_generation_on_cut,
                                            .snapshot = gateway_generation_on_snapshot,
                                            .ended = gateway_generation_on_ended},
                                     .ctx = gen};
    /* Under a key nobody goes on without the store, and who asks again must not find what may have
     * been written here, with nobody behind it. */
    if (o->n_docs > 0 && g->setup.store->author != 0)
        config.create_patience_ms = RECORDER_PATIENCE_MS;
    if (bounded)
        config.retain = (struct retain){c->buffer_max_events, c->buffer_max_bytes, 0};
    struct recorder *recorder = recorder_new(g->setup.sched, g->setup.store, &config);
    recorder_pin(recorder, &gen->start);
    return recorder;
}

void generation_start(struct generation_order *o)
{
    struct generation *gen = mem_zalloc(sizeof *gen);
    gen->route = o->route;
    gen->order = o;
    gen->starter = o->x;
    gen->whole = o->whole;
    gen->id = arena_dup(&gen->arena, str_of(o->request_id, REQUEST_ID_TEXT));
    gen->name = gateway_stream(&gen->arena, o->route, gen->id, "");
    list_init(&gen->stoppers);
    list_init(&gen->waiters);
    timer_init(&gen->hold, gateway_generation_on_hold);
    gen->source =
        o->route->source.open(o->route->source.ctx, &(struct source_order){.route = o->route,
                                                                           .x = o->x,
                                                                           .body = o->body,
                                                                           .request_id = gen->id,
                                                                           .on = &source_events,
                                                                           .ctx = gen});
    if (o->n_docs > 0) /* taken back: removed from the version that it gets now */
        gen->key = (struct doc_put){.key = arena_dup(&gen->arena, o->docs[0].key),
                                    .expect_version = DOC_NEXT(o->docs[0].expect_version)};
    gen->chat = chat_of(gen, o->x, o->body);
    task_init(&gen->over, gateway_generation_on_degraded_over);
    enter_running(gen);
    expect_chat(gen);
    struct gateway *g = o->route->gateway;
    if (!is_worth_trying(g) && may_degrade(gen)) {
        degrade(gen);
        return;
    }
    gen->probes = g->failing && !g->probing;
    g->probing |= gen->probes;
    if (g->setup.instances != NULL)
        gen->presence =
            presence_new(&(struct presence_order){.route = o->route,
                                                  .request_id = gen->id,
                                                  .name = gen->name,
                                                  .chat = gen->chat,
                                                  .ended = gateway_generation_on_ended_elsewhere,
                                                  .ctx = gen});
    gen->recorder = make_recorder(gen, o);
}
