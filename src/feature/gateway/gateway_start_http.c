// SPDX-License-Identifier: Apache-2.0
/* gateway_start_http.c -- POST PATH: a new generation, or the one that an idempotency key names.
 *
 * A key is a document: who asked for what under it, and which generation that became. It is written
 * together with the generation's stream, before the upstream is asked, so that no crash and no race
 * can make one key ask twice. */
#include "base/err.h"
#include "base/json.h"
#include "base/json_view.h"
#include "base/lane.h"
#include "base/mem.h"
#include "feature/gateway/gateway_http_core.h"
#include "feature/gateway/gateway_wish.h"
#include "http/limits.h"
#include "stream/durable.h"

#define KEY_MAX  255 /* bytes of an Idempotency-Key */
#define CHAT_MAX 256 /* of the id of a chat */

struct start {
    struct exchange *x; /* held, once its body is there */
    struct generation_order order;
    struct read_order read;
    struct store_docs docs;
    struct store_stat stat;
    struct str fingerprint;
    struct doc_put key;
    bool has_key, retry;
    struct header *headers; /* of the upstream's answer, if it has events */
    size_t n_headers;

    /* Found in the body, on a lane if it is large. */
    struct job look;
    char digest[SHA256_HEX]; /* with has_key: `fingerprint` */
    struct str chat;         /* the chat's id, a JSON string; n == 0: none */
    bool passes;             /* nobody asks for anything that could be recorded */
};

static int64_t gateway_start_now_ms(const struct start *s)
{
    return s->order.route->gateway->setup.sched->wall_ms;
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

/* Whoever asked is a reader like any other. */
static void gateway_start_on_ready(struct generation_waiter *w)
{
    struct start *s = start_of_waiter(w);
    s->read = (struct read_order){.route = s->order.route,
                                  .x = s->x,
                                  .request_id = str_of(s->order.request_id, REQUEST_ID_TEXT),
                                  .whole = s->order.whole,
                                  .waits = true,
                                  .starts = true,
                                  .headers = s->headers,
                                  .n_headers = s->n_headers};
    gateway_read(&s->read); /* takes over what holds the exchange */
}

static void gateway_start_on_failed(struct generation_waiter *w, const struct generation_failure *f)
{
    struct start *s = start_of_waiter(w);
    gateway_send_failure(s->order.route, s->x, f);
    exchange_release(s->x);
}

static void gateway_start_on_asked(struct generation_order *o)
{
    exchange_forget_body(start_of(o)->x);
}

static void gateway_start_on_refused(struct generation_order *o, int err)
{
    struct start *s = start_of(o);
    if (err == ERR_VERSION && s->has_key) { /* another request has put it first: that one counts */
        look_up_key(s);
        return;
    }
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
    gateway_put_headers(s->x, s->headers, s->n_headers);
    return forward_new(o->route, s->x, str_of(o->request_id, REQUEST_ID_TEXT), gen, head, degraded);
}

/* The AI SDK names a chat in `id`. The body is looked at where it lies: as a tree it could take a
 * hundred times its size. */
static struct str find_chat(const struct gateway_route *r, struct str body)
{
    struct view_want id = {.name = STR("id")};
    size_t ignored;
    body = view_trim(body);
    if (r->config->dialect != ROUTE_DIALECT_UI_MESSAGE || json_check(body, &ignored) != 0 ||
        view_type(body) != VIEW_OBJECT)
        return STR_NONE;
    view_pick(body, &id, 1);
    return view_type(id.value) == VIEW_STRING ? view_inside(id.value) : STR_NONE;
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
    if (gate_is_shut(&r->gateway->generations)) {
        gateway_refuse_draining(r, x);
        exchange_release(x);
        return;
    }
    if (r->config->parallel > 0 && gateway_under_way(r) >= r->config->parallel) {
        counter_inc(r->refused_parallel);
        gateway_refuse_limit(r, x, 1, STR("Too many answers are under way on this route"));
        exchange_release(x);
        return;
    }
    /* Whoever asks reads, too: it is asked before the upstream is. */
    if (!limits_take_live(x) || !limits_take_generation(x, &o->lease)) {
        exchange_release(x);
        return;
    }
    gateway_id_make(x->principal, o->request_id);
    o->request = x->request;
    o->known = x->principal->known && x->principal->rights.n == 0;
    o->chat = chat_of(r, x, s->chat);
    o->waiter.ops = &waiter_ops;
    o->ops = &ops;
    if (s->has_key) {
        struct buf value = {0};
        gateway_key_put(&value,
                        &(struct gateway_key){.request_id = str_of(o->request_id, REQUEST_ID_TEXT),
                                              .fingerprint = s->fingerprint,
                                              .expires_ms = gateway_start_now_ms(s) +
                                                            (int64_t)r->config->key_lifetime_ms});
        s->key.value = arena_dup(&x->arena, buf_str(&value));
        buf_deinit(&value);
        o->docs = &s->key;
        o->n_docs = 1;
    }
    generation_start(o);
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
        gateway_send_snapshot(s->order.route, x, s->read.request_id, l);
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
    if (o->waited) { /* for an answer that was passed on, or came to nothing: the key is free */
        look_up_key(s);
        return;
    }
    snapshot_lookup_new(o->route, o->request_id, gateway_start_on_late_snapshot, s);
}

static void gateway_start_attach(struct start *s)
{
    s->read = (struct read_order){.route = s->order.route,
                                  .x = s->x,
                                  .request_id = s->read.request_id,
                                  .seq = gateway_last_event_id(s->x),
                                  .whole = s->order.whole,
                                  .missing = gateway_start_on_missing,
                                  .waits = true};
    gateway_read(&s->read);
}

/* A try that came to nothing may be made anew, if the client says so. */
static void gateway_start_on_stat(struct store_stat *stat, int err)
{
    struct start *s = container_of(stat, struct start, stat);
    struct gateway *g = s->order.route->gateway;
    enum end_reason end = err == 0 ? stat->info.end : END_NONE;
    if (gateway_came_to_nothing(end))
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

static void take_key(struct start *s, struct str key)
{
    struct exchange *x = s->x;
    struct str who[] = {gateway_path(s->order.route, x), gateway_caller(s->order.route, x), key};
    struct str digest = gateway_digest(x, who, 3);
    s->key.key = arena_printf(&x->arena, GATEWAY_KEYS "%.*s", (int)digest.n, digest.p);
    s->has_key = true;
    s->retry = str_eq(request_header(x->request, STR("Idempotency-Retry")), STR("?1"));
}

/* ---- the request ---- */

/* On any thread: the exchange is held, and nobody else looks at s. */
static void gateway_start_look(struct job *j)
{
    struct start *s = container_of(j, struct start, look);
    const struct gateway_route *r = s->order.route;
    const struct request *req = s->x->request;
    struct str body = s->order.body;
    struct str what[] = {request_header(req, STR("Content-Type")), req->query, body};
    if (s->has_key)
        gateway_put_digest(what, 3, s->digest);
    s->fingerprint = str_of(s->digest, sizeof s->digest);
    s->chat = find_chat(r, body);
    s->order.whole = r->source.whole != NULL && r->source.whole(body);
    s->passes =
        r->config->prefix && !s->has_key && wish_is_for_no_events(gateway_path(r, s->x), body);
}

static void gateway_start_go_on(struct start *s)
{
    if (s->passes) {
        gateway_pass(s->order.route, s->x, &s->order.body);
        exchange_release(s->x);
    } else if (s->has_key)
        look_up_key(s);
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
    struct start *s = x->state;
    struct str key = request_header(x->request, STR("Idempotency-Key"));
    if (err != 0) {
        gateway_refuse(s->order.route, x, err);
        return;
    }
    if (key.p != NULL && (key.n == 0 || key.n > KEY_MAX)) {
        gateway_error(s->order.route, x, 400, STR("BAD_INPUT"),
                      STR("Idempotency-Key takes 1 to 255 bytes"), STR_NONE);
        return;
    }
    s->order.body = body;
    exchange_hold(x);
    if (key.p != NULL)
        take_key(s, key);
    look_at_body(s);
}

void gateway_start(struct gateway_route *r, struct exchange *x)
{
    if (!gateway_within_quota(r, x))
        return;
    bool joins = request_header(x->request, STR("Idempotency-Key")).p != NULL; /* or may */
    if (gate_is_shut(&r->gateway->generations) && !joins) {
        gateway_refuse_draining(r, x);
        return;
    }
    struct start *s = arena_alloc(&x->arena, sizeof *s);
    *s = (struct start){.x = x, .order.route = r};
    x->state = s;
    exchange_collect(x, r->config->max_body_bytes, gateway_start_on_body);
}
