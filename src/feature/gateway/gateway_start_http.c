// SPDX-License-Identifier: Apache-2.0
/* gateway_start_http.c -- POST PATH: a new generation, or the one that an idempotency key names, or
 * the one whose answer was lost on its way here.
 *
 * A key is a document: who asked for what under it, and which generation that became. It is written
 * together with the generation's stream, before the upstream is asked, so that no crash and no race
 * can make one key ask twice. */
#include "base/err.h"
#include "base/json.h"
#include "base/json_view.h"
#include "base/lane.h"
#include "base/mem.h"
#include "feature/gateway/gateway_choice.h"
#include "feature/gateway/gateway_http_core.h"
#include "feature/gateway/responses_http.h"
#include "feature/gateway/gateway_wish.h"
#include "http/http.h"
#include "http/limits.h"
#include "stream/durable.h"

#define CHAT_MAX 256 /* bytes of the id of a chat */
#define RPC_MAX  256 /* of the id of a JSON-RPC request */

struct start {
    struct exchange *x; /* held, once its body is there */
    struct generation_order order;
    struct read_order read;
    struct store_docs docs;
    struct store_stat stat;
    struct generation_seat seat;
    struct str fingerprint;
    struct key_header header; /* of the key; name.n == 0: there is none */
    int key_err;              /* it cannot be taken */
    struct doc_put key;
    struct repeat_mark mark;   /* of a request without a key */
    bool retry;                /* of what came to nothing */
    struct responses_ask *ask; /* of the Responses API; NULL: it is of none */
    struct header *headers;    /* of the upstream's answer, if it has events */
    size_t n_headers;

    /* Found in the body, on a lane if it is large. */
    struct job look;
    char digest[SHA256_HEX]; /* `fingerprint`, where it is needed */
    struct str chat;         /* the chat's id, a JSON string; n == 0: none */
    bool passes;             /* nobody asks for anything that could be recorded */
};

static int64_t gateway_start_now_ms(const struct start *s)
{
    return s->order.route->gateway->setup.sched->wall_ms;
}

static bool has_key(const struct start *s)
{
    return s->header.name.n > 0;
}

/* ---- what becomes of it, for those who repeat it ---- */

static void gateway_start_note(const struct start *s, enum repeat_fate fate, struct str request_id)
{
    gateway_note_repeat(s->order.route,
                        &(struct repeat_note){&s->mark, fate, request_id, .connection = NULL});
}

/* An error goes out: whoever repeats the request has to ask again. */
static void note_refused(const struct start *s)
{
    gateway_start_note(s, REPEAT_REFUSED, str_of(s->order.request_id, REQUEST_ID_TEXT));
}

/* The generation goes on, for whoever comes again. */
static void note_lost(const struct start *s)
{
    if (!s->mark.counts || s->seat.gen == NULL)
        return;
    generation_want_kept(s->seat.gen);
    gateway_start_note(s, REPEAT_LOST, s->read.request_id);
}

/* The client went away while it waited. */
static void gateway_start_gone(struct exchange *x)
{
    struct start *s = x->state;
    note_lost(s);
    generation_stand(&s->seat);
}

/* ---- a new generation ---- */

static void look_up_key(struct start *s);

static struct start *start_of(struct generation_order *o)
{
    return container_of(o, struct start, order);
}

static struct start *start_of_waiter(struct generation_waiter *w)
{
    return container_of(w, struct start, order.waiter);
}

/* Whoever asked has been answered. */
static void leave_running(struct start *s)
{
    struct generation *gen = generation_find(s->order.route, s->read.request_id);
    generation_stand(&s->seat);
    if (gen != NULL)
        generation_unpin(gen);
    exchange_release(s->x);
}

/* Whoever asked is a reader like any other. */
static void gateway_start_on_ready(struct generation_waiter *w)
{
    struct start *s = start_of_waiter(w);
    responses_ask_end(s->ask, false);
    if (responses_ask_is_background(s->ask)) {
        leave_running(s);
        return;
    }
    s->read = (struct read_order){.route = s->order.route,
                                  .x = s->x,
                                  .request_id = str_of(s->order.request_id, REQUEST_ID_TEXT),
                                  .whole = s->order.whole,
                                  .waits = true,
                                  .seat = &s->seat,
                                  .mark = &s->mark,
                                  .starts = true,
                                  .headers = s->headers,
                                  .n_headers = s->n_headers};
    gateway_take_voice(&s->read, w->voice);
    gateway_read(&s->read); /* takes over what holds the exchange */
}

static void gateway_start_on_failed(struct generation_waiter *w, const struct generation_failure *f)
{
    struct start *s = start_of_waiter(w);
    bool answered = responses_ask_is_background(s->ask);
    generation_stand(&s->seat);
    responses_ask_end(s->ask, !answered);
    if (!answered) {
        note_refused(s);
        gateway_send_failure(s->x, f);
    }
    exchange_release(s->x);
}

static void gateway_start_on_asked(struct generation_order *o)
{
    struct start *s = start_of(o);
    if (s->ask != NULL)
        responses_on_asked(s->ask);
    exchange_forget_body(s->x);
}

static void gateway_start_on_refused(struct generation_order *o, int err)
{
    struct start *s = start_of(o);
    generation_stand(&s->seat);
    responses_ask_end(s->ask, true);
    if (err == ERR_VERSION && has_key(s)) { /* another request has put it first: that one counts */
        look_up_key(s);
        return;
    }
    note_refused(s);
    gateway_refuse(o->route, s->x, err);
    exchange_release(s->x);
}

/* The answer begins later, or never. */
static void gateway_start_on_headed(struct generation_order *o, const struct source_head *head)
{
    struct start *s = start_of(o);
    struct arena *a = &s->x->arena;
    struct header *headers = arena_alloc(a, head->n_headers * sizeof *headers);
    for (size_t i = 0; i < head->n_headers; i++)
        headers[i] = (struct header){arena_dup(a, head->headers[i].name),
                                     arena_dup(a, head->headers[i].value)};
    s->headers = headers;
    s->n_headers = head->n_headers;
}

static struct forward *gateway_start_on_direct(struct generation_order *o, struct generation *gen,
                                               const struct source_head *head, bool degraded)
{
    struct start *s = start_of(o);
    generation_stand(&s->seat);
    responses_ask_end(s->ask, true);
    if (!head->events && head->status >= 400)
        note_refused(s);
    gateway_put_headers(s->x, s->headers, s->n_headers);
    return forward_new(s->x, str_of(o->request_id, REQUEST_ID_TEXT), gen, head, degraded);
}

/* The AI SDK names a chat in `id`, and JSON-RPC a request. The body is looked at where it lies: as
 * a tree it could take a hundred times its size. */
static struct str find_id(struct str body)
{
    struct view_want id = {.name = STR("id")};
    size_t ignored;
    body = view_trim(body);
    if (json_check(body, &ignored) != 0 || view_type(body) != VIEW_OBJECT)
        return STR_NONE;
    view_pick(body, &id, 1);
    return id.value;
}

static bool is_rpc_id(struct str value)
{
    return (view_type(value) == VIEW_STRING || view_type(value) == VIEW_NUMBER) &&
           value.n <= RPC_MAX;
}

/* What the dialect wants to know of the body. */
static void find_ids(struct start *s)
{
    struct dialect_voice *v = &s->order.voice;
    struct str id = STR_NONE;
    if (v->dialect == ROUTE_DIALECT_UI_MESSAGE || v->dialect == ROUTE_DIALECT_MCP)
        id = find_id(s->order.body);
    if (v->dialect == ROUTE_DIALECT_MCP && is_rpc_id(id))
        v->rpc_id = id;
    if (v->dialect == ROUTE_DIALECT_UI_MESSAGE && view_type(id) == VIEW_STRING)
        s->chat = view_inside(id);
}

static struct str chat_of(const struct gateway_route *r, struct exchange *x, struct str id)
{
    struct str chat = STR_NONE;
    struct buf text = {0};
    if (id.n > 0 && id.n <= CHAT_MAX * JSON_ESCAPE_MAX)
        view_decode(id, &text);
    if (text.n > 0 && text.n <= CHAT_MAX)
        chat = gateway_chat_key(&x->arena, r, gateway_caller(r, x), buf_str(&text));
    buf_deinit(&text);
    return chat;
}

/* False: it has been answered. */
static bool gateway_start_has_room(struct start *s)
{
    const struct gateway_route *r = s->order.route;
    struct exchange *x = s->x;
    if (gate_is_shut(&r->gateway->generations)) {
        gateway_refuse_draining(r, x);
        return false;
    }
    if (r->config->parallel > 0 && gateway_under_way(r) >= r->config->parallel) {
        counter_inc(r->refused_parallel);
        gateway_refuse_limit(r, x, 1, STR("Too many answers are under way on this route"));
        return false;
    }
    return true;
}

/* Whoever asks reads, too: it is asked before the upstream is. */
static bool gateway_start_admit(struct start *s)
{
    return gateway_start_has_room(s) && limits_take_live(s->x) &&
           limits_take_generation(s->x, &s->order.lease);
}

static void refuse_start(struct start *s)
{
    responses_ask_end(s->ask, true);
    note_refused(s);
    exchange_release(s->x);
}

static void put_key(struct start *s)
{
    struct generation_order *o = &s->order;
    struct buf value = {0};
    gateway_key_put(
        &value, &(struct gateway_key){.request_id = str_of(o->request_id, REQUEST_ID_TEXT),
                                      .fingerprint = s->fingerprint,
                                      .expires_ms = gateway_start_now_ms(s) +
                                                    (int64_t)o->route->config->key_lifetime_ms});
    s->key.value = arena_dup(&s->x->arena, buf_str(&value));
    buf_deinit(&value);
    o->docs = &s->key;
    o->n_docs = 1;
}

static void gateway_start_begin(struct start *s);

static void gateway_start_on_prepared(struct responses_ask *a)
{
    gateway_start_begin(a->ctx);
}

static void gateway_start_begin(struct start *s)
{
    static const struct generation_waiter_ops waiter_ops = {.ready = gateway_start_on_ready,
                                                            .failed = gateway_start_on_failed};
    static const struct generation_asker_ops ops = {.asked = gateway_start_on_asked,
                                                    .headed = gateway_start_on_headed,
                                                    .refused = gateway_start_on_refused,
                                                    .direct = gateway_start_on_direct,
                                                    .ended = limits_end_lease};
    struct generation_order *o = &s->order;
    const struct gateway_route *r = o->route;
    struct exchange *x = s->x;
    bool prepared = s->ask == NULL || s->ask->prepared;
    if (!(prepared ? gateway_start_admit(s) : gateway_start_has_room(s))) {
        refuse_start(s);
        return;
    }
    if (!prepared) {
        responses_prepare(s->ask, gateway_start_on_prepared);
        return;
    }
    if (s->ask != NULL)
        responses_order(s->ask, o);
    else
        gateway_id_make(x->principal, o->request_id);
    o->request = x->request;
    o->known = x->principal->known && x->principal->rights.n == 0;
    o->chat = chat_of(r, x, s->chat);
    o->waiter.ops = &waiter_ops;
    o->ops = &ops;
    s->read.request_id = str_of(o->request_id, REQUEST_ID_TEXT);
    if (has_key(s))
        put_key(s);
    generation_start(o);
    generation_sit(o->route, s->read.request_id, &s->seat);
    if (exchange_over(x)) /* it is gone already */
        gateway_start_gone(x);
}

/* ---- keys ---- */

static void gateway_start_on_late_snapshot(struct snapshot_lookup *l)
{
    struct start *s = l->ctx;
    struct exchange *x = s->x;
    bool anew = s->retry && gateway_came_to_nothing(l->end);
    if (anew) {
        snapshot_lookup_free(l);
        gateway_start_begin(s);
        return;
    }
    if (l->payload.n > 0)
        gateway_send_snapshot(x, &s->read.voice, s->read.request_id, l);
    else
        gateway_error(s->order.route, x, 410, STR("EXPIRED"),
                      STR("The answer under this key is no longer kept"),
                      STR("{\"gap\":{\"requested\":\"0\",\"earliest\":null,\"reason\":\"expired\","
                          "\"snapshot\":null}}"));
    snapshot_lookup_free(l);
    exchange_release(x);
}

static void gateway_start_on_missing(struct read_order *o)
{
    struct start *s = container_of(o, struct start, read);
    if (o->surplus) {
        gateway_refuse(o->route, o->x, ERR_BUSY);
        exchange_release(o->x);
        return;
    }
    if (o->waited && has_key(s)) /* what was passed on, or came to nothing: the key is free */
        look_up_key(s);
    else if (!has_key(s) || s->header.implied) /* it never said that it knows of an answer */
        gateway_start_begin(s);
    else
        snapshot_lookup_new(o->route, o->request_id, gateway_start_on_late_snapshot, s);
}

static void gateway_start_attach(struct start *s)
{
    if (responses_ask_is_background(s->ask)) {
        responses_retrieve(s->order.route, s->x, s->read.request_id);
        exchange_release(s->x);
        return;
    }
    s->read = (struct read_order){.route = s->order.route,
                                  .x = s->x,
                                  .request_id = s->read.request_id,
                                  .voice = s->order.voice,
                                  .seq = gateway_last_event_id(s->x).seq,
                                  .whole = s->order.whole,
                                  .missing = gateway_start_on_missing,
                                  .seat = &s->seat,
                                  .mark = &s->mark,
                                  .waits = true};
    gateway_read(&s->read);
}

/* A try that came to nothing may be made anew, if the client says so. Without a key nothing but a
 * whole answer is worth coming back to. */
static bool is_made_anew(const struct start *s, enum end_reason end)
{
    return has_key(s) ? gateway_came_to_nothing(end) : end != END_NONE && end != END_COMPLETED;
}

static void gateway_start_on_stat(struct store_stat *stat, int err)
{
    struct start *s = container_of(stat, struct start, stat);
    struct gateway *g = s->order.route->gateway;
    enum end_reason end = err == 0 ? stat->info.end : END_NONE;
    if (is_made_anew(s, end))
        gateway_start_begin(s);
    else
        gateway_start_attach(s);
    gateway_end(g);
}

static void look_at_stream(struct start *s)
{
    struct gateway *g = s->order.route->gateway;
    s->stat = (struct store_stat){
        .name = gateway_stream(&s->x->arena, s->order.route, s->read.request_id, ""),
        .done = gateway_start_on_stat};
    gateway_begin(g);
    store_stat(g->setup.store, &s->stat);
}

static void gateway_start_on_key(struct store_docs *docs, int err)
{
    struct start *s = container_of(docs, struct start, docs);
    struct gateway *g = s->order.route->gateway;
    struct exchange *x = s->x;
    struct gateway_key v = {0};
    bool there = err == 0 && docs->n_rows == 1;
    if (err == 0 && there)
        err = gateway_key_take(docs->rows[0].value, &v);
    s->key.expect_version = there ? docs->rows[0].version : 0;
    if (err != 0) {
        gateway_refuse(s->order.route, x, err);
        exchange_release(x);
    } else if (!there || v.expires_ms <= gateway_start_now_ms(s)) {
        gateway_start_begin(s);
    } else if (!str_eq(v.fingerprint, s->fingerprint)) {
        gateway_error(s->order.route, x, 422, STR("KEY_REUSED"),
                      STR("This Idempotency-Key was used for another request"), STR_NONE);
        exchange_release(x);
    } else {
        s->read.request_id = arena_dup(&x->arena, v.request_id);
        if (s->retry)
            look_at_stream(s);
        else
            gateway_start_attach(s);
    }
    gateway_end(g);
}

static void look_up_key(struct start *s)
{
    struct gateway *g = s->order.route->gateway;
    s->docs = (struct store_docs){
        .prefix = s->key.key, .limit = 1, .exact = true, .done = gateway_start_on_key};
    gateway_begin(g);
    store_docs(g->setup.store, &s->docs);
}

static void take_key(struct start *s)
{
    struct exchange *x = s->x;
    s->key.key = gateway_key_doc(s->order.route, x, &s->header, s->fingerprint);
    s->retry = str_eq(request_header(x->request, STR("Idempotency-Retry")), STR("?1"));
    look_up_key(s);
}

/* ---- retries without a key ---- */

/* The answer that it lost, if there is one that nobody has got. */
static bool find_lost(struct start *s)
{
    struct exchange *x = s->x;
    struct gateway *g = s->order.route->gateway;
    char id[REQUEST_ID_TEXT];
    gateway_mark_request(s->order.route, x, s->fingerprint, &s->mark);
    if (!s->mark.counts || s->mark.tries == 0 ||
        !repeats_take(&g->repeats, &s->mark, &x->http->hangups, g->setup.sched->now_ms, id))
        return false;
    s->read.request_id = arena_dup(&x->arena, str_of(id, sizeof id));
    gateway_event(&g->events, RETRY_JOINED, 1, TRACE_STR("request_id", s->read.request_id),
                  TRACE_STR("route", s->order.route->path));
    return true;
}

/* ---- the request ---- */

/* Whoever counts his tries may come again for an answer that was lost, if it was worth waiting. */
static bool need_not_be_kept(const struct start *s)
{
    enum wish wish = wish_of(gateway_path(s->order.route, s->x), s->order.body);
    return wish == WISH_NEVER_EVENTS || (wish == WISH_NO_EVENTS && !s->mark.counts);
}

/* Nothing of the answer could be recorded. */
static void pass_on(struct start *s)
{
    gateway_pass(s->order.route, s->x, &s->order.body);
    exchange_release(s->x);
}

/* On any thread: the exchange is held, and nobody else looks at s. */
static void gateway_start_look(struct job *j)
{
    struct start *s = container_of(j, struct start, look);
    const struct gateway_route *r = s->order.route;
    const struct request *req = s->x->request;
    struct str body = s->order.body;
    struct str what[] = {request_header(req, STR("Content-Type")), req->query, body};
    if (has_key(s) || s->mark.counts)
        gateway_put_digest(what, 3, s->digest);
    s->fingerprint = str_of(s->digest, sizeof s->digest);
    if (s->order.voice.dialect == ROUTE_DIALECT_AUTO)
        s->order.voice.dialect = choice_by_body(gateway_path(r, s->x), body);
    find_ids(s);
    s->order.whole = r->source.whole != NULL && r->source.whole(body);
    if (s->ask != NULL && !responses_ask_look(s->ask, body))
        s->ask = NULL;
    if (s->ask != NULL)
        s->order.whole = responses_ask_is_whole(s->ask);
    s->passes = r->config->prefix && !has_key(s) && s->ask == NULL && need_not_be_kept(s);
}

static void gateway_start_go_on(struct start *s)
{
    struct dialect_voice *v = &s->order.voice;
    v->rpc_id = arena_dup(&s->x->arena, v->rpc_id); /* the body goes before */
    if (s->passes)
        pass_on(s);
    else if (has_key(s))
        take_key(s);
    else if (find_lost(s))
        look_at_stream(s);
    else
        gateway_start_begin(s);
}

static void gateway_start_looked(struct job *j)
{
    struct start *s = container_of(j, struct start, look);
    struct gateway *g = s->order.route->gateway;
    gateway_start_go_on(s);
    gateway_end(g);
}

/* Of a large one that takes too long for the loop. */
static void look_at_body(struct start *s)
{
    struct gateway *g = s->order.route->gateway;
    struct lane *lane = NULL;
    if (g->setup.durable != NULL)
        lane = durable_lane(g->setup.durable, s->order.body.n);
    s->look = (struct job){.run = gateway_start_look, .done = gateway_start_looked};
    if (lane == NULL) {
        gateway_start_look(&s->look);
        gateway_start_go_on(s);
        return;
    }
    gateway_begin(g);
    lane_submit(lane, &s->look);
}

static void gateway_start_on_body(struct exchange *x, struct str body, int err)
{
    static const struct exchange_ops ops = {.gone = gateway_start_gone};
    struct start *s = x->state;
    if (err != 0) {
        gateway_refuse(s->order.route, x, err);
        return;
    }
    if (s->key_err != 0) {
        gateway_error(s->order.route, x, 400, STR("BAD_INPUT"),
                      STR("Idempotency-Key takes 1 to 255 bytes"), STR_NONE);
        return;
    }
    s->order.body = body;
    exchange_hold(x);
    s->ask = responses_ask_new(s->order.route, x, s);
    x->ops = &ops;
    x->peer_bound = s->mark.counts || s->order.route->config->disconnect == ROUTE_DISCONNECT_STOP;
    look_at_body(s);
}

void gateway_start(struct gateway_route *r, struct exchange *x)
{
    if (!gateway_within_quota(r, x))
        return;
    struct start *s = arena_alloc(&x->arena, sizeof *s);
    *s = (struct start){.x = x, .order = {.route = r, .voice = gateway_voice(r, x)}};
    s->key_err = gateway_key_find(x->request, &s->header);
    if (!has_key(s))
        gateway_mark_tries(r, x, &s->mark);
    bool joins = has_key(s) || s->mark.tries > 0; /* or may */
    if (gate_is_shut(&r->gateway->generations) && !joins) {
        gateway_refuse_draining(r, x);
        return;
    }
    x->state = s;
    exchange_collect(x, r->config->max_body_bytes, gateway_start_on_body);
}
