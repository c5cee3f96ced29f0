// SPDX-License-Identifier: Apache-2.0
/* gateway_generation.c -- one request and what becomes of its answer.
 *
 *     CREATING ---> ASKING -+-> RECORDING ---> ENDING ---> gone
 *        |            |     |                  ^ ^ ^
 *        |            |     +-> KEEPING -------' | |
 *        |            |     |      |             | |
 *        |            |     `------+-> PASSING --|-|--> gone
 *        |            `--------------------------' |
 *        `-----------------------------------------'
 *
 * CREATING   the stream (and key) is being made; nobody has been asked yet
 * ASKING     its source has been started; the head has not come
 * RECORDING  it answers with events, which go into the stream
 * KEEPING    it answers with something else, which is collected to be recorded as a whole
 * PASSING    it answers with something else, which goes to who asked and nowhere else
 * ENDING     the source is through, or it was cancelled; the stream is being closed
 *
 * Who asked is not answered before the first event is recorded, so that a failure until then is a
 * status, which clients know how to retry; but not later than a heartbeat after the source's head,
 * for then it has to hear something. Until it is *open* in this way, others who come for it wait as
 * well. One that came to nothing takes its key with it: the next try asks again. An answer that is
 * kept is whole and durable before anybody gets it.
 *
 * A generation belongs to the gateway: only in PASSING does it go with the client, and if it is
 * degraded: the store did not take its stream, there is no recorder, and its events go to who asked
 * and nowhere else. It knows no exchange: who asked, who waits and who wants it stopped are told by
 * callbacks. */
#include "base/err.h"
#include "base/mem.h"
#include "feature/gateway/gateway_choice.h"
#include "feature/gateway/gateway_generation_core.h"
#include "stream/subscriber.h"

#include <stdlib.h>

#define HOLD_MS       10000 /* for the first event, where there are no heartbeats */
#define ASK_AGAIN_MAX 4     /* of those who waited for what was passed on */

/* ---- the maps ---- */

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

const struct dialect_voice *generation_voice(const struct generation *gen)
{
    return &gen->voice;
}

int generation_snapshot(const struct generation *gen, struct buf *out, uint64_t *seq)
{
    return gen->recorder == NULL ? ERR_NOT_FOUND : recorder_snapshot(gen->recorder, out, seq);
}

void generation_unpin(struct generation *gen)
{
    if (gen->starting > 0 && --gen->starting == 0)
        pin_remove(&gen->start);
}

void generation_leave_chats(struct generation *gen)
{
    struct map *chats = &gen->route->gateway->chats;
    if (gen->chat.n > 0 && map_get(chats, gen->chat) == gen) /* or a newer one has it */
        map_remove(chats, gen->chat);
}

void generation_leave_maps(struct generation *gen)
{
    struct gateway *g = gen->route->gateway;
    if (map_get(&g->running, gen->id) != gen)
        return;
    map_remove(&g->running, gen->id);
    gauge_add(gen->route->running, -1);
    gate_leave(&g->generations);
    generation_leave_chats(gen);
}

static void enter_running(struct generation *gen)
{
    struct gateway *g = gen->route->gateway;
    map_put(&g->running, gen->id, gen);
    gate_enter(&g->generations);
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

static struct generation_waiter *generation_take_waiter(struct link *waiters)
{
    if (list_empty(waiters))
        return NULL;
    struct generation_waiter *w = list_item(waiters->next, struct generation_waiter, link);
    list_remove(&w->link);
    return w;
}

void generation_notify_missing(struct link *waiters)
{
    struct generation_waiter *w;
    for (unsigned n = 0; (w = generation_take_waiter(waiters)) != NULL; n++)
        w->ops->missing(w, n >= ASK_AGAIN_MAX);
}

static void notify_ready(struct generation *gen, struct generation_waiter *w)
{
    gen->starting++;
    w->voice = &gen->voice;
    w->ops->ready(w);
}

static void open_up(struct generation *gen)
{
    struct generation_order *asker = gen->asker;
    gen->open = true;
    gen->asker = NULL;
    gen->starting = 1; /* until all have begun to read */
    timer_stop(&gen->hold);
    if (asker != NULL)
        notify_ready(gen, &asker->waiter);
    for (struct generation_waiter *w; (w = generation_take_waiter(&gen->waiters)) != NULL;)
        notify_ready(gen, w);
    generation_unpin(gen);
}

bool generation_wait(struct gateway_route *r, struct str request_id, struct generation_waiter *w)
{
    struct generation *gen = generation_find(r, request_id);
    if (gen == NULL || gen->open)
        return false;
    list_push(&gen->waiters, &w->link);
    return true;
}

void generation_refuse_all(struct generation *gen)
{
    struct generation_failure f = {.request_id = gen->id,
                                   .end = gen->end,
                                   .err = gen->err,
                                   .message = gen->message,
                                   .degraded = gen->degraded,
                                   .voice = gen->voice};
    struct generation_order *asker = gen->asker;
    gen->asker = NULL;
    if (asker != NULL)
        asker->waiter.ops->failed(&asker->waiter, &f);
    for (struct generation_waiter *w; (w = generation_take_waiter(&gen->waiters)) != NULL;)
        w->ops->failed(w, &f);
}

static void answer_stoppers(struct generation *gen, enum end_reason end, int err)
{
    while (!list_empty(&gen->stoppers)) {
        struct generation_stopper *s =
            list_item(gen->stoppers.next, struct generation_stopper, link);
        list_remove(&s->link);
        s->done(s, end, err);
    }
}

/* Its stream is still open, or may be. */
static bool is_unclosed(int err)
{
    return err != 0 && err != ERR_CLOSED && !ERR_IS_GONE(err);
}

static void refuse_unclosed(struct generation *gen, int err)
{
    gen->end = END_FAILED;
    gen->err = err;
    gen->message = str_of_cstr(err_text(err));
    generation_refuse_all(gen);
}

static void refuse_cancelled(struct generation *gen)
{
    gen->end = END_CANCELLED;
    generation_refuse_all(gen);
}

void gateway_generation_on_ended(void *ctx, enum end_reason end, int err)
{
    struct generation *gen = ctx;
    generation_leave_maps(gen);
    if (is_unclosed(err) && gen->presence != NULL)
        presence_abandon(gen->presence);
    answer_stoppers(gen, end, err == ERR_CLOSED ? 0 : err);
    if (is_unclosed(err))
        refuse_unclosed(gen, err);
    else if (gen->kept_head > 0 && end == END_CANCELLED)
        refuse_cancelled(gen); /* somebody was faster than the answer */
    else
        open_up(gen);
    generation_free(gen);
}

static void drop_source(struct generation *gen)
{
    if (gen->source != NULL)
        gen->source->ops->free(gen->source);
    gen->source = NULL;
}

void generation_drop_recording(struct generation *gen)
{
    recorder_free(gen->recorder);
    gen->recorder = NULL;
    presence_free(gen->presence);
    gen->presence = NULL;
}

static void tell_nothing(struct generation *gen)
{
    generation_refuse_all(gen);
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

bool generation_is_nothing(const struct generation *gen)
{
    return !gen->open && !gen->taken && (gateway_came_to_nothing(gen->end) || gen->abandoned);
}

void gateway_generation_end(struct generation *gen, enum end_reason reason, struct str message)
{
    bool made = gen->state != CREATING;
    bool cut = gen->state == KEEPING && reason != END_COMPLETED;
    if (gen->state == ENDING) {
        drop_source(gen); /* of leave_degraded */
        if (gen->recorder != NULL)
            recorder_end_now(gen->recorder, reason);
        return;
    }
    gen->state = ENDING;
    gen->end = reason;
    gen->message = arena_dup(&gen->arena, message);
    timer_stop(&gen->hold);
    drop_source(gen);
    if (gen->degraded)
        generation_end_degraded(gen);
    else if (generation_is_nothing(gen) && !made)
        return; /* gateway_generation_on_started goes on: there is no key yet that could be taken
                   back */
    else if (generation_is_nothing(gen))
        come_to_nothing(gen);
    else if (cut) /* who waits for a whole answer takes no stream that has ended */
        tell_nothing(gen);
    else
        recorder_end(gen->recorder, reason, gen->message);
}

static void gateway_generation_on_ended_elsewhere(void *ctx, enum end_reason reason)
{
    gateway_generation_end(ctx, reason, STR_NONE);
}

void generation_free(struct generation *gen)
{
    drop_source(gen);
    pin_remove(&gen->start);
    generation_drop_recording(gen);
    generation_drop_kept(gen);
    generation_clear_seats(gen);
    task_cancel(&gen->over);
    timer_stop(&gen->hold);
    timer_stop(&gen->alone);
    arena_deinit(&gen->arena);
    if (gen->ended != NULL)
        gen->ended(&gen->lease);
    free(gen);
}

void generation_cancel(struct generation *gen, struct generation_stopper *s)
{
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

/* ---- asking ---- */

static void ask_source(struct generation *gen)
{
    gen->state = ASKING;
    gen->asker->ops->asked(gen->asker);
    gen->source->ops->start(gen->source);
}

static void ask_degraded(struct generation *gen)
{
    generation_degrade(gen);
    ask_source(gen);
}

/* May an upstream be asked although the store does not take the stream? Not under a key: it could
 * have been there, and would ask twice. Nor for a whole answer, which is what was recorded. */
static bool may_degrade(const struct generation *gen)
{
    return gen->key.key.n == 0 && !gen->asker->whole;
}

/* ---- its dialect ---- */

/* Lines of JSON are told by the head alone, whatever was expected. */
static void choose_by_head(struct generation *gen, const struct source_head *head)
{
    enum route_dialect *d = &gen->voice.dialect;
    if (dialect_form(*d) == DIALECT_LINES)
        *d = ROUTE_DIALECT_AUTO;
    if (*d == ROUTE_DIALECT_AUTO)
        *d = head->dialect;
    gen->voice.media_type = arena_dup(&gen->arena, head->media_type);
}

static enum fold_kind fold_of(const struct generation *gen)
{
    static const enum fold_kind kinds[] = {[ROUTE_SNAPSHOT_LAST] = FOLD_LAST,
                                           [ROUTE_SNAPSHOT_OPENAI] = FOLD_OPENAI,
                                           [ROUTE_SNAPSHOT_UI_MESSAGE] = FOLD_UI_MESSAGE};
    int set = gen->route->config->snapshot;
    return set == ROUTE_SNAPSHOT_UNSET ? dialect_fold(gen->voice.dialect) : kinds[set];
}

static struct recorder_form form_of(const struct generation *gen)
{
    enum dialect_form form = dialect_form(gen->voice.dialect);
    return (struct recorder_form){.lines = form == DIALECT_LINES,
                                  .bare = form == DIALECT_BARE,
                                  .generation = gen->voice.generation};
}

/* From now on it stays: what is stored, and what readers are told, depends on it. */
static void settle_dialect(struct generation *gen)
{
    if (gen->chosen)
        return;
    gen->chosen = true;
    if (!gen->degraded && gateway_has_full_ids(gen->route, gen->voice.dialect))
        gen->voice.generation = gen->id;
    struct recorder_form form = form_of(gen);
    if (gen->recorder != NULL)
        recorder_settle(gen->recorder, &form, fold_of(gen));
}

static void choose_by_event(struct generation *gen, struct str type, struct str data)
{
    if (!gen->chosen && gen->voice.dialect == ROUTE_DIALECT_AUTO)
        gen->voice.dialect = choice_by_event(type, data);
    settle_dialect(gen);
}

/* ---- the source's answer ---- */

static void gateway_generation_on_head(void *ctx, const struct source_head *head)
{
    struct generation *gen = ctx;
    if (!head->events && generation_keeps(gen, head)) {
        generation_begin_keeping(gen, head);
        return;
    }
    if (!head->events) {
        generation_begin_passing(gen, head);
        if (gen->forward == NULL) /* the client has gone while the upstream thought */
            generation_free(gen);
        return;
    }
    choose_by_head(gen, head);
    const struct gateway_setup *setup = &gen->route->gateway->setup;
    gen->state = RECORDING;
    if (gen->asker != NULL && gen->asker->ops->headed != NULL)
        gen->asker->ops->headed(gen->asker, head);
    sched_start(setup->sched, &gen->hold, setup->heartbeat_ms > 0 ? setup->heartbeat_ms : HOLD_MS);
}

static void gateway_generation_on_hold(struct timer *t)
{
    struct generation *gen = container_of(t, struct generation, hold);
    settle_dialect(gen);
    if (gen->degraded)
        generation_begin_forward(gen);
    else
        open_up(gen);
}

static int gateway_generation_on_event(void *ctx, struct str type, struct str data)
{
    struct generation *gen = ctx;
    gen->taken = true;
    choose_by_event(gen, type, data);
    if (!gen->degraded)
        return recorder_event(gen->recorder, type, data);
    if (gen->asker != NULL)
        generation_begin_forward(gen);
    return gen->forward == NULL ? 0 : forward_event(gen->forward, type, data);
}

static bool gateway_generation_on_data(void *ctx, struct str data)
{
    struct generation *gen = ctx;
    return gen->state == KEEPING ? generation_keep(gen, data) : forward_data(gen->forward, data);
}

static void gateway_generation_on_end(void *ctx, int err, struct str message)
{
    struct generation *gen = ctx;
    gen->err = err;
    if (gen->state == PASSING) {
        generation_end_passing(gen, err);
        return;
    }
    if (gen->state == KEEPING && err == 0)
        generation_end_keeping(gen);
    gateway_generation_end(gen, err == 0 ? END_COMPLETED : END_FAILED, message);
}

static const struct source_events source_events = {.head = gateway_generation_on_head,
                                                   .event = gateway_generation_on_event,
                                                   .data = gateway_generation_on_data,
                                                   .end = gateway_generation_on_end};

void generation_resume(struct generation *gen)
{
    if (gen->source != NULL)
        gen->source->ops->resume(gen->source);
}

static void gateway_generation_on_room(void *ctx)
{
    generation_resume(ctx);
}

/* ---- telling ---- */

static void gateway_generation_on_recorded(void *ctx, uint64_t n_events, uint64_t bytes,
                                           uint64_t took_ms)
{
    struct generation *gen = ctx;
    histogram_observe(&gen->route->gateway->events.append, took_ms * 1000);
    if (gen->presence != NULL)
        presence_wrote(gen->presence);
    if (gen->kept_head > 0)
        gateway_event(&gen->route->gateway->events, ANSWER_RECORDED, 1,
                      TRACE_STR("request_id", gen->id), TRACE_INT("bytes", (int64_t)bytes));
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

/* Its stream could not be made. */
static void fail_start(struct generation *gen, int err)
{
    struct generation_order *asker = gen->asker;
    gen->asker = NULL;
    generation_leave_maps(gen);
    answer_stoppers(gen, END_CANCELLED, err);
    refuse_unclosed(gen, err); /* the key may have been found before this was known */
    generation_free(gen);
    asker->ops->refused(asker, err);
}

static void gateway_generation_on_started(void *ctx, int err)
{
    struct generation *gen = ctx;
    gateway_tried(gen->route->gateway, gen->probes, err);
    if (err == 0 && gen->presence != NULL)
        presence_started(gen->presence);
    if (err == 0 && gen->state == CREATING) {
        enter_chats(gen);
        ask_source(gen);
    } else if (err == 0 && generation_is_nothing(gen)) {
        come_to_nothing(gen);
    } else if (err != 0 && gen->state == CREATING && gateway_is_trouble(err) && may_degrade(gen)) {
        ask_degraded(gen);
    } else if (err != 0) {
        fail_start(gen, err);
    }
}

/* The stream must not expire while its writer waits. */
static uint64_t reader_timeout_ms(const struct gateway *g, const struct route_config *c)
{
    uint64_t most = (uint64_t)gateway_ttl_s(c) * 900;
    return g->setup.write_timeout_ms < most ? g->setup.write_timeout_ms : most;
}

static struct recorder *make_recorder(struct generation *gen, const struct generation_order *o)
{
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
        config.create_retry_for_ms = RECORDER_RETRY_FOR_MS;
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
    gen->asker = o;
    gen->lease = o->lease;
    gen->ended = o->ops->ended;
    gen->id = arena_dup(&gen->arena, str_of(o->request_id, REQUEST_ID_TEXT));
    gen->name = gateway_stream(&gen->arena, o->route, gen->id, "");
    gen->voice = o->voice;
    gen->voice.rpc_id = arena_dup(&gen->arena, o->voice.rpc_id);
    list_init(&gen->stoppers);
    list_init(&gen->waiters);
    list_init(&gen->seats);
    timer_init(&gen->hold, gateway_generation_on_hold);
    timer_init(&gen->alone, gateway_generation_on_alone);
    gen->source = o->route->source.open(o->route->source.ctx,
                                        &(struct source_order){.route = o->route,
                                                               .request = o->request,
                                                               .known = o->known,
                                                               .plain = o->n_docs > 0,
                                                               .body = o->body,
                                                               .request_id = gen->id,
                                                               .dialect = gen->voice.dialect,
                                                               .on = &source_events,
                                                               .ctx = gen});
    if (o->n_docs > 0) /* taken back: removed from the version that it gets now */
        gen->key = (struct doc_put){.key = arena_dup(&gen->arena, o->docs[0].key),
                                    .expect_version = DOC_NEXT(o->docs[0].expect_version)};
    gen->chat = arena_dup(&gen->arena, o->chat);
    task_init(&gen->over, gateway_generation_on_over);
    enter_running(gen);
    expect_chat(gen);
    struct gateway *g = o->route->gateway;
    if (!gateway_is_worth_trying(g) && may_degrade(gen)) {
        ask_degraded(gen);
        return;
    }
    gen->probes = gateway_try(g);
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
