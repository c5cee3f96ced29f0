// SPDX-License-Identifier: Apache-2.0
/* gateway_generation.c -- one request to an upstream and what becomes of its answer.
 *
 * CREATING  the stream (and key) is being made; nobody has been asked yet
 * ASKING    the upstream has been asked; its head has not come
 * RECORDING it answers with events, which go into the stream
 * PASSING   it answers with something else, which goes to who asked and nowhere else
 * ENDING    the stream is being closed
 *
 * A generation belongs to the gateway: only in PASSING does it go with the client. */
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/json_view.h"
#include "engine/recorder.h"
#include "http/sse_parse.h"
#include "surface/gateway_core.h"

#include <stdlib.h>

#define CHAT_MAX     256
#define PASS_PENDING (256 * 1024)
#define PASS_SLICES  64

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
    struct recorder *recorder;
    struct fetch fetch;
    struct sse_parser parser;
    enum state state;
    bool full; /* no more events before room() */
    struct link stoppers;

    /* PASSING */
    struct exchange *to; /* held */
    struct slice pending[PASS_SLICES];
    uint32_t n_pending;
    size_t pending_bytes;
    bool passed;        /* all of it has come */
    struct doc_put key; /* to be taken back */
};

static void generation_free(struct generation *gen);

/* ---- the maps ---- */

static struct str chat_key(struct arena *a, const struct gateway_route *r, struct str caller,
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

struct generation *generation_of_chat(struct gateway_route *r, struct str caller, struct str chat)
{
    struct arena a = {0};
    struct generation *gen = map_get(&r->gateway->chats, chat_key(&a, r, caller, chat));
    arena_deinit(&a);
    return gen;
}

struct str generation_id(const struct generation *gen)
{
    return gen->id;
}

int generation_snapshot(const struct generation *gen, struct buf *out, uint64_t *seq)
{
    return gen->recorder == NULL ? ERR_NOT_FOUND : recorder_snapshot(gen->recorder, out, seq);
}

static void leave_maps(struct generation *gen)
{
    struct gateway *g = gen->route->gateway;
    if (map_get(&g->running, gen->id) != gen)
        return;
    map_remove(&g->running, gen->id);
    gauge_add(gen->route->running, -1);
    if (gen->chat.n > 0 && map_get(&g->chats, gen->chat) == gen) /* or a newer one has it */
        map_remove(&g->chats, gen->chat);
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
        chat = chat_key(&gen->arena, gen->route, gateway_caller(gen->route, x), buf_str(&text));
    buf_deinit(&text);
    return chat;
}

static void enter_running(struct generation *gen)
{
    map_put(&gen->route->gateway->running, gen->id, gen);
    gauge_add(gen->route->running, 1);
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
    struct read_order *o = arena_alloc(&x->arena, sizeof *o);
    *o = (struct read_order){
        .route = gen->route, .x = x, .request_id = arena_dup(&x->arena, gen->id)};
    gateway_read(o); /* takes over what holds the exchange */
}

static void answer_stoppers(struct generation *gen, enum end_reason end, int err)
{
    while (!list_empty(&gen->stoppers)) {
        struct stopper *s = list_item(gen->stoppers.next, struct stopper, link);
        list_remove(&s->link);
        if (err != 0)
            gateway_refuse(s->x, err);
        else
            gateway_send_status(s->x, gen->id, end);
        exchange_release(s->x);
        free(s);
    }
}

static void on_ended(void *ctx, enum end_reason end, int err)
{
    struct generation *gen = ctx;
    struct gateway *g = gen->route->gateway;
    leave_maps(gen);
    answer_stoppers(gen, end, err);
    generation_free(gen);
    gateway_check_stopped(g);
}

static void end(struct generation *gen, enum end_reason reason, struct str message)
{
    if (gen->state == ENDING)
        return;
    gen->state = ENDING;
    fetch_cancel(&gen->fetch);
    recorder_end(gen->recorder, reason, message);
    answer_starter(gen);
}

static void generation_free(struct generation *gen)
{
    fetch_cancel(&gen->fetch);
    recorder_free(gen->recorder);
    sse_parser_deinit(&gen->parser);
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
    end(gen, END_CANCELLED, STR_NONE);
}

void generations_orphan(struct gateway *g)
{
    size_t at = 0;
    for (struct generation *gen; (gen = map_next(&g->running, &at)) != NULL;)
        end(gen, END_ORPHANED, STR_NONE); /* leaves the map later */
}

/* ---- an answer that is no stream of events ---- */

/* The stream and the key were made for nothing: the next request asks the upstream again. */
struct discard {
    struct store_remove remove;
    struct store_put put;
    struct gateway *gateway;
    struct doc_put key;
    struct arena arena;
};

static void discard_free(struct discard *d)
{
    gateway_end(d->gateway);
    arena_deinit(&d->arena);
    free(d);
}

static void on_stream_removed(struct store_remove *r, int err)
{
    discard_free(container_of(r, struct discard, remove));
}

static void on_key_removed(struct store_put *p, int err)
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
    leave_maps(gen);
    d->gateway = g;
    d->key = gen->key;
    d->key.key = arena_dup(&d->arena, gen->key.key);
    d->remove =
        (struct store_remove){.name = arena_dup(&d->arena, gen->name), .done = on_stream_removed};
    d->put = (struct store_put){.docs = &d->key, .n_docs = 1, .done = on_key_removed};
    gateway_begin(g);
    if (d->key.key.n > 0) /* first: it must not lead to a stream that is gone */
        store_put(g->setup.store, &d->put);
    else
        store_remove(g->setup.store, &d->remove);
}

static void pass_over(struct generation *gen)
{
    exchange_release(gen->to);
    generation_free(gen);
}

static enum pull pass_pull(struct exchange *x)
{
    struct generation *gen = x->state;
    for (uint32_t i = 0; i < gen->n_pending; i++) {
        exchange_put(x, gen->pending[i]);
        block_unref(gen->pending[i].owner);
    }
    gen->n_pending = 0;
    gen->pending_bytes = 0;
    if (!gen->passed) {
        fetch_resume(&gen->fetch);
        return PULL_WAIT;
    }
    pass_over(gen);
    return PULL_END;
}

static void pass_gone(struct exchange *x)
{
    pass_over(x->state);
}

static const struct exchange_ops pass_ops = {.pull = pass_pull, .gone = pass_gone};

static void begin_passing(struct generation *gen)
{
    static const char *const kept[] = {
        "Content-Type", "Content-Encoding", "Content-Language", "Cache-Control",
        "Retry-After",  "Location",         "WWW-Authenticate", "ETag",
        "Vary"};
    struct exchange *x = gen->starter;
    gen->state = PASSING;
    discard_stream(gen);
    gen->starter = NULL;
    gen->to = x;
    x->ops = &pass_ops;
    x->state = gen;
    exchange_status(x, gen->fetch.status);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        struct str value = fetch_header(&gen->fetch, kept[i]);
        if (value.p != NULL)
            exchange_header(x, str_of_cstr(kept[i]), arena_dup(&x->arena, value));
    }
    exchange_header(x, STR("X-Correlation-ID"), arena_dup(&x->arena, gen->id));
    gateway_put_cors(x);
    if (exchange_over(x))
        pass_over(gen); /* the client has gone while the upstream thought */
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
    pass_over(gen);
}

/* ---- the upstream's answer ---- */

/* A compressed one cannot be taken apart here. */
static bool is_event_stream(const struct fetch *f)
{
    struct str type = f->content_type, coding = fetch_header(f, "Content-Encoding");
    return f->status >= 200 && f->status < 300 && type.p != NULL &&
           (coding.p == NULL || str_eq_nocase(coding, STR("identity"))) &&
           str_eq_nocase(str_trim(str_cut(&type, ';')), STR("text/event-stream"));
}

static void on_head(struct fetch *f)
{
    struct generation *gen = container_of(f, struct generation, fetch);
    if (!is_event_stream(f)) {
        begin_passing(gen);
        return;
    }
    gen->state = RECORDING;
    answer_starter(gen);
}

static int on_event(void *user, const struct sse_event *event)
{
    struct generation *gen = user;
    int taken = recorder_event(gen->recorder, event->type, event->data);
    gen->full = gen->full || taken == 0;
    return taken < 0 ? taken : 0;
}

static bool on_data(struct fetch *f, struct str data)
{
    struct generation *gen = container_of(f, struct generation, fetch);
    if (gen->state == PASSING)
        return pass_data(gen, data);
    if (gen->full)
        return false;
    int err = sse_parser_feed(&gen->parser, data);
    if (err != 0)
        end(gen, END_FAILED,
            err == ERR_TOO_LARGE ? STR("the upstream sent an event that is too large")
                                 : STR("the upstream sent an event that cannot be kept"));
    return true;
}

static void on_room(void *ctx)
{
    struct generation *gen = ctx;
    gen->full = false;
    fetch_resume(&gen->fetch);
}

static void on_fetched(struct fetch *f, int err)
{
    struct generation *gen = container_of(f, struct generation, fetch);
    if (gen->state == PASSING)
        pass_done(gen, err);
    else if (err == 0)
        end(gen, END_COMPLETED, STR_NONE);
    else
        end(gen, END_FAILED, str_of_cstr(fetch_cause_text(f->cause)));
}

/* ---- telling ---- */

static void on_recorded(void *ctx, uint64_t n_events, uint64_t bytes, uint64_t took_ms)
{
    struct generation *gen = ctx;
    histogram_observe(&gen->route->gateway->events.append, took_ms * 1000);
}

static void on_trimmed(void *ctx, const struct recorder_trim *t)
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

static void on_snapshot(void *ctx, uint64_t bytes)
{
    struct generation *gen = ctx;
    gateway_event(&gen->route->gateway->events, SNAPSHOT_CREATED, 1,
                  TRACE_STR("request_id", gen->id), TRACE_INT("bytes", (int64_t)bytes));
}

/* ---- its beginning ---- */

static void add_header(struct generation *gen, struct header *headers, struct str name,
                       struct str value)
{
    if (value.p != NULL)
        headers[gen->fetch.n_headers++] =
            (struct header){arena_dup(&gen->arena, name), arena_dup(&gen->arena, value)};
}

static void make_headers(struct generation *gen, const struct exchange *x)
{
    const struct option_list *more = &gen->route->config->forward;
    const struct request *req = x->request;
    struct header *headers = arena_alloc(&gen->arena, (more->n + 5) * sizeof *headers);
    static const char *const always[] = {"Content-Type", "Content-Encoding", "Accept"};
    for (int i = 0; i < 3; i++)
        add_header(gen, headers, str_of_cstr(always[i]),
                   request_header(req, str_of_cstr(always[i])));
    if (x->principal == &principal_anonymous) /* or the token was meant for us */
        add_header(gen, headers, STR("Authorization"), request_header(req, STR("Authorization")));
    for (size_t i = 0; i < more->n; i++)
        add_header(gen, headers, str_of_cstr(more->items[i]),
                   request_header(req, str_of_cstr(more->items[i])));
    add_header(gen, headers, STR("X-Correlation-ID"), gen->id);
    gen->fetch.headers = headers;
}

static struct str make_url(struct generation *gen, const struct request *req)
{
    struct str url = str_of_cstr(gen->route->config->upstream);
    if (req->query.n == 0)
        return url;
    bool has = memchr(url.p, '?', url.n) != NULL;
    return arena_printf(&gen->arena, "%.*s%c%.*s", (int)url.n, url.p, has ? '&' : '?',
                        (int)req->query.n, req->query.p);
}

static int64_t ttl_s(const struct route_config *c)
{
    return (int64_t)(c->state_ttl_ms + 999) / 1000;
}

/* Silence ends before the stream expires under it. */
static uint32_t patience_ms(const struct route_config *c, uint64_t timeout_ms)
{
    uint64_t most = (uint64_t)ttl_s(c) * 900;
    return (uint32_t)(timeout_ms < most ? timeout_ms : most);
}

static void make_fetch(struct generation *gen, const struct generation_order *o)
{
    static const enum fetch_version versions[] = {[ROUTE_HTTP1] = FETCH_HTTP1,
                                                  [ROUTE_HTTP_AUTO] = FETCH_HTTP_AUTO,
                                                  [ROUTE_HTTP2] = FETCH_HTTP2};
    const struct route_config *c = gen->route->config;
    gen->fetch = (struct fetch){.url = make_url(gen, o->x->request),
                                .method = STR("POST"),
                                .body = arena_dup(&gen->arena, o->body),
                                .policy = {.allow_loopback = true, .allow_private = true},
                                .version = versions[c->upstream_http],
                                .connect_timeout_ms = (uint32_t)c->connect_timeout_ms,
                                .first_byte_timeout_ms = patience_ms(c, c->first_byte_timeout_ms),
                                .idle_timeout_ms = patience_ms(c, c->idle_timeout_ms),
                                .total_timeout_ms = (uint32_t)c->total_timeout_ms,
                                .on_head = on_head,
                                .on_data = on_data,
                                .done = on_fetched};
    make_headers(gen, o->x);
}

static void on_started(void *ctx, int err)
{
    struct generation *gen = ctx;
    struct gateway *g = gen->route->gateway;
    struct generation_order *o = gen->order;
    if (err == 0) {
        if (gen->state == CREATING) {
            enter_chats(gen);
            gen->state = ASKING;
            fetch_start(g->setup.fetcher, &gen->fetch);
        }
        return;
    }
    struct exchange *x = gen->starter;
    gen->starter = NULL;
    leave_maps(gen);
    answer_stoppers(gen, END_CANCELLED, err);
    generation_free(gen);
    if (x == NULL) {
        gateway_check_stopped(g);
        return;
    }
    if (err == ERR_VERSION && o->taken != NULL) {
        o->taken(o);
    } else {
        gateway_refuse(x, err);
        exchange_release(x);
    }
    gateway_check_stopped(g);
}

static struct recorder *make_recorder(struct generation *gen, const struct generation_order *o)
{
    static const enum fold_kind kinds[] = {[ROUTE_SNAPSHOT_LAST] = FOLD_LAST,
                                           [ROUTE_SNAPSHOT_OPENAI] = FOLD_OPENAI,
                                           [ROUTE_SNAPSHOT_UI_MESSAGE] = FOLD_UI_MESSAGE};
    const struct route_config *c = gen->route->config;
    const struct gateway *g = gen->route->gateway;
    bool bounded = g->setup.store_is_memory || c->trim == ROUTE_TRIM_STRICT;
    struct recorder_config config = {.name = gen->name,
                                     .ttl_s = ttl_s(c),
                                     .docs = o->docs,
                                     .n_docs = o->n_docs,
                                     .folds = c->snapshot != ROUTE_SNAPSHOT_NONE,
                                     .fold = kinds[c->snapshot],
                                     .snapshot_ttl_s = (int64_t)(c->snapshot_ttl_ms + 999) / 1000,
                                     .on = {.started = on_started,
                                            .recorded = on_recorded,
                                            .room = on_room,
                                            .trimmed = on_trimmed,
                                            .snapshot = on_snapshot,
                                            .ended = on_ended},
                                     .ctx = gen};
    if (bounded)
        config.retain = (struct retain){c->buffer_max_events, c->buffer_max_bytes, 0};
    return recorder_new(g->setup.sched, g->setup.store, &config);
}

void generation_start(struct generation_order *o)
{
    struct generation *gen = mem_zalloc(sizeof *gen);
    gen->route = o->route;
    gen->order = o;
    gen->starter = o->x;
    gen->id = arena_dup(&gen->arena, str_of(o->request_id, REQUEST_ID_TEXT));
    gen->name = gateway_stream(&gen->arena, o->route, gen->id, "");
    list_init(&gen->stoppers);
    sse_parser_init(&gen->parser, RECORDER_EVENT_MAX, gen, on_event);
    make_fetch(gen, o);
    if (o->n_docs > 0) /* taken back: removed from the version that it gets now */
        gen->key = (struct doc_put){.key = arena_dup(&gen->arena, o->docs[0].key),
                                    .expect_version = DOC_NEXT(o->docs[0].expect_version)};
    gen->chat = chat_of(gen, o->x, o->body);
    enter_running(gen);
    gen->recorder = make_recorder(gen, o);
}
