// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/gateway.h"
#include "base/err.h"
#include "base/mem.h"
#include "http/http.h"
#include "http/surface.h"
#include "http/url.h"
#include "feature/gateway/gateway_choice.h"
#include "feature/gateway/gateway_http_core.h"

#define IGNORED_BODY_MAX (64 * 1024)

/* ---- small things that all parts use ---- */

struct dialect_voice gateway_voice(const struct gateway_route *r, const struct exchange *x)
{
    struct dialect_voice v = {.dialect = (enum route_dialect)r->config->dialect};
    if (v.dialect == ROUTE_DIALECT_AUTO)
        v.dialect = choice_by_request(gateway_path(r, x), x->request);
    return v;
}

static void send_problem(const struct dialect_voice *v, struct exchange *x,
                         const struct dialect_problem *problem)
{
    struct buf body = {0};
    dialect_put_problem(&body, v, problem);
    exchange_send_json(x, problem->status, buf_str(&body));
    buf_deinit(&body);
}

void gateway_problem(const struct dialect_voice *v, struct exchange *x,
                     const struct dialect_problem *problem)
{
    if (problem->status == 503)
        exchange_header(x, STR("Retry-After"), STR("1"));
    send_problem(v, x, problem);
}

void gateway_error(const struct gateway_route *r, struct exchange *x, int status, struct str code,
                   struct str message, struct str details)
{
    struct dialect_voice v = gateway_voice(r, x);
    gateway_problem(&v, x, &(struct dialect_problem){status, code, message, details});
}

/* What the server refuses before the route is asked; headers are set. */
void gateway_on_refused(void *ctx, struct exchange *x, const struct surface_refusal *why)
{
    struct dialect_problem problem = {
        .status = why->status, .code = why->code, .message = why->message};
    if (why->retry_after_s > 0)
        problem.details = arena_printf(&x->arena, "{\"retry_after_seconds\":%llu}",
                                       (unsigned long long)why->retry_after_s);
    struct dialect_voice v = gateway_voice(ctx, x);
    send_problem(&v, x, &problem);
}

void gateway_refuse(const struct gateway_route *r, struct exchange *x, int err)
{
    gateway_error(r, x, err_http_status(err), str_of_cstr(err_name(err)),
                  str_of_cstr(err_text(err)), STR_NONE);
}

void gateway_refuse_draining(const struct gateway_route *r, struct exchange *x)
{
    gateway_error(r, x, 503, STR("DRAINING"), STR("The server is being stopped; try again"),
                  STR_NONE);
}

static struct dialect_problem failure_problem(const struct generation_failure *f)
{
    struct str message = gateway_end_message(f->end, f->message);
    int err = f->err;
    if (f->end == END_CANCELLED)
        return (struct dialect_problem){409, STR("CANCELLED"), message, STR_NONE};
    if (f->end == END_ORPHANED)
        return (struct dialect_problem){503, STR("ORPHANED"), message, STR_NONE};
    if (ERR_IS_PASSING(err) || err == ERR_IO || err == ERR_FULL)
        return (struct dialect_problem){err_http_status(err), str_of_cstr(err_name(err)), message,
                                        STR_NONE};
    if (err == ERR_UPSTREAM_TIMEOUT)
        return (struct dialect_problem){504, STR("UPSTREAM_TIMEOUT"), message, STR_NONE};
    return (struct dialect_problem){502, STR("UPSTREAM_ERROR"), message, STR_NONE};
}

void gateway_send_failure(struct exchange *x, const struct generation_failure *f)
{
    struct dialect_problem problem = failure_problem(f);
    if (f->degraded)
        gateway_put_degraded(x);
    exchange_header(x, STR("X-Correlation-ID"), arena_dup(&x->arena, f->request_id));
    if (f->end == END_CANCELLED) /* SDKs take a 409 for a reason to try again */
        exchange_header(x, STR("X-Should-Retry"), STR("false"));
    gateway_problem(&f->voice, x, &problem);
}

void gateway_put_degraded(struct exchange *x)
{
    exchange_header(x, STR("X-Tidemark-Degraded"), STR("store"));
}

void gateway_send_status(struct exchange *x, struct str request_id, enum end_reason end)
{
    struct str status = end == END_NONE ? STR("running") : end_reason_text(end);
    exchange_send_json(x, 200,
                       arena_printf(&x->arena, "{\"request_id\":\"%.*s\",\"status\":\"%.*s\"}\n",
                                    (int)request_id.n, request_id.p, (int)status.n, status.p));
}

/* ---- chats: the newest generation of one, by the id that its client has ---- */

struct chat_request {
    struct chat_lookup look;
    struct exchange *x; /* held */
    chat_found_fn *found;
};

static void gateway_on_chat_looked(struct chat_lookup *l, int err)
{
    struct chat_request *c = container_of(l, struct chat_request, look);
    struct exchange *x = c->x;
    if (err != 0)
        gateway_refuse(l->route, x, err);
    else
        c->found(l->route, x, l->request_id);
    exchange_release(x);
}

void gateway_find_chat(struct gateway_route *r, struct exchange *x, struct str encoded,
                       chat_found_fn *found)
{
    struct str chat;
    if (url_decode(&x->arena, encoded, false, &chat) != 0) {
        found(r, x, STR_NONE);
        return;
    }
    struct str key = gateway_chat_key(&x->arena, r, gateway_caller(r, x), chat);
    if (r->gateway->setup.instances == NULL) {
        found(r, x, generation_of_chat(r->gateway, &x->arena, key));
        return;
    }
    struct chat_request *c = arena_alloc(&x->arena, sizeof *c);
    *c = (struct chat_request){
        .look = {.route = r, .chat = key, .arena = &x->arena, .done = gateway_on_chat_looked},
        .x = x,
        .found = found};
    exchange_hold(x);
    presence_find_chat(&c->look);
}

static bool has_chats(const struct gateway_route *r)
{
    return r->config->dialect == ROUTE_DIALECT_UI_MESSAGE ||
           r->config->dialect == ROUTE_DIALECT_AUTO;
}

static void send_nothing(struct exchange *x)
{
    exchange_status(x, 204);
    exchange_send(x, STR_NONE);
}

/* ---- stop: POST PATH/{id}/stop, DELETE PATH/{id} ---- */

struct stop_request {
    struct generation_stopper stopper;
    struct store_stat stat;
    struct store_write close;
    struct gateway_route *route;
    struct exchange *x;
    struct str id;
    bool may_be_chat; /* the id, if it is no generation's */
};

static void gateway_on_chat_to_stop(struct gateway_route *r, struct exchange *x,
                                    struct str request_id);

static void refuse_stop(struct stop_request *r, int err)
{
    if (ERR_IS_GONE(err) && r->may_be_chat)
        gateway_find_chat(r->route, r->x, r->id, gateway_on_chat_to_stop);
    else
        gateway_refuse(r->route, r->x, err);
}

static void answer_stop(struct stop_request *r, int err, enum end_reason end)
{
    struct gateway *g = r->route->gateway;
    if (err != 0)
        refuse_stop(r, err);
    else
        gateway_send_status(r->x, r->id, end);
    exchange_release(r->x);
    gateway_end(g);
}

/* It has ended already, maybe of itself: that is what was wanted. */
static void gateway_on_stop_stat(struct store_stat *stat, int err)
{
    answer_stop(container_of(stat, struct stop_request, stat), err, stat->info.end);
}

static void gateway_on_stop_closed(struct store_write *w, int err)
{
    /* it may have ended before */
    answer_stop(container_of(w, struct stop_request, close), err, w->info.end);
}

static void gateway_on_generation_stopped(struct generation_stopper *s, enum end_reason end,
                                          int err)
{
    struct stop_request *r = container_of(s, struct stop_request, stopper);
    if (err != 0)
        gateway_refuse(r->route, r->x, err);
    else
        gateway_send_status(r->x, r->id, end);
    exchange_release(r->x);
}

/* Another process may run it: it drops its source when it finds the stream closed. */
static void stop_elsewhere(struct gateway_route *r, struct stop_request *s)
{
    s->close = (struct store_write){
        .name = s->stat.name, .close = true, .end = END_CANCELLED, .done = gateway_on_stop_closed};
    store_write(r->gateway->setup.store, &s->close);
}

static void stop_generation(struct gateway_route *r, struct exchange *x, struct str id,
                            bool may_be_chat)
{
    if (!gateway_id_is_of(id, x->principal)) { /* for him there is none */
        if (may_be_chat)
            gateway_find_chat(r, x, id, gateway_on_chat_to_stop);
        else
            gateway_refuse(r, x, ERR_NOT_FOUND);
        return;
    }
    struct generation *gen = generation_find(r, id);
    struct stop_request *s = arena_alloc(&x->arena, sizeof *s);
    *s = (struct stop_request){
        .stopper.done = gateway_on_generation_stopped,
        .stat = {.name = gateway_stream(&x->arena, r, id, ""), .done = gateway_on_stop_stat},
        .route = r,
        .x = x,
        .id = id,
        .may_be_chat = may_be_chat};
    exchange_hold(x);
    if (gen != NULL) {
        generation_cancel(gen, &s->stopper);
        return;
    }
    gateway_begin(r->gateway);
    if (r->gateway->setup.instances != NULL)
        stop_elsewhere(r, s);
    else
        store_stat(r->gateway->setup.store, &s->stat);
}

/* Nothing is under way: it is as it should be. */
static void gateway_on_chat_to_stop(struct gateway_route *r, struct exchange *x,
                                    struct str request_id)
{
    if (request_id.n > 0)
        stop_generation(r, x, request_id, false);
    else
        send_nothing(x);
}

/* The client of a chat knows no other id. Where it is a generation's as well, that one is meant. */
static void stop_member(struct gateway_route *r, struct exchange *x, struct str id)
{
    if (gateway_is_request_id(id))
        stop_generation(r, x, id, has_chats(r));
    else
        gateway_find_chat(r, x, id, gateway_on_chat_to_stop);
}

/* ---- reading: GET PATH/{id} ---- */

static void gateway_on_late_snapshot(struct snapshot_lookup *l)
{
    struct read_order *o = l->ctx;
    if (l->payload.n > 0)
        gateway_send_snapshot(o->x, &o->voice, o->request_id, l);
    else
        gateway_refuse(o->route, o->x, ERR_NOT_FOUND);
    snapshot_lookup_free(l);
    exchange_release(o->x);
}

static void gateway_on_missing(struct read_order *o)
{
    snapshot_lookup_new(o->route, o->request_id, gateway_on_late_snapshot, o);
}

static void gateway_on_chat_missing(struct read_order *o)
{
    send_nothing(o->x);
    exchange_release(o->x);
}

static void read_generation(struct gateway_route *r, struct exchange *x, struct str id)
{
    struct event_id last = gateway_last_event_id(x);
    struct str from = STR_NONE;
    if (!gateway_may_read(r, x, id)) {
        gateway_refuse(r, x, ERR_NOT_FOUND);
        return;
    }
    if (last.generation.n > 0 && !str_eq(last.generation, id)) {
        gateway_refuse_position(r, x, last.seq);
        return;
    }
    struct read_order *o = arena_alloc(&x->arena, sizeof *o);
    url_query(&x->arena, x->request->query, STR("from"), &from);
    *o = (struct read_order){.route = r,
                             .x = x,
                             .request_id = id,
                             .voice = gateway_voice(r, x),
                             .seq = last.seq,
                             .from_snapshot = str_eq(from, STR("snapshot")),
                             .missing = gateway_on_missing,
                             .polite = request_header(x->request, STR("Last-Event-ID")).p != NULL};
    exchange_hold(x);
    gateway_read(o);
}

/* The AI SDK's way to come back to a chat: 204 when nothing is under way. */
static void gateway_on_chat_found(struct gateway_route *r, struct exchange *x,
                                  struct str request_id)
{
    if (request_id.n == 0) {
        send_nothing(x);
        return;
    }
    struct read_order *o = arena_alloc(&x->arena, sizeof *o);
    *o = (struct read_order){.route = r,
                             .x = x,
                             .request_id = request_id,
                             .voice = gateway_voice(r, x),
                             .missing = gateway_on_chat_missing,
                             .waits = true};
    exchange_hold(x);
    gateway_read(o);
}

/* ---- what is asked for ---- */

static void allow(const struct gateway_route *r, struct exchange *x, const char *methods)
{
    exchange_header(x, STR("Allow"), str_of_cstr(methods));
    gateway_error(r, x, 405, STR("METHOD"), arena_printf(&x->arena, "This path takes %s", methods),
                  STR_NONE);
}

static void nowhere(const struct gateway_route *r, struct exchange *x)
{
    gateway_error(r, x, 404, STR("NO_ROUTE"), STR("This route has nothing under this path"),
                  STR_NONE);
}

void gateway_member(struct gateway_route *r, struct exchange *x, struct str id, struct str what)
{
    enum method m = x->request->method;
    bool chat = str_eq(what, STR("stream")) && has_chats(r), stop = str_eq(what, STR("stop"));
    bool known = what.p == NULL || stop;
    if (chat && m == METHOD_GET)
        gateway_find_chat(r, x, id, gateway_on_chat_found);
    else if (chat && m == METHOD_DELETE)
        gateway_find_chat(r, x, id, gateway_on_chat_to_stop);
    else if (chat)
        allow(r, x, "GET, DELETE");
    else if (!known || !(gateway_is_request_id(id) || (stop && has_chats(r))))
        nowhere(r, x);
    else if (stop && m != METHOD_POST)
        allow(r, x, "POST");
    else if (stop)
        stop_member(r, x, id);
    else if (m == METHOD_DELETE)
        stop_generation(r, x, id, false);
    else if (m == METHOD_GET)
        read_generation(r, x, id);
    else
        allow(r, x, "GET, DELETE");
}

/* Below the route's own path bodies say nothing: what comes is not looked at. */
static void gateway_on_ignored_body(struct exchange *x, struct str body, int err)
{
    struct gateway_route *r = x->state;
    struct str rest = str_skip(x->request->path, gateway_path(r, x).n + 1);
    struct str id = str_cut(&rest, '/');
    if (err != 0)
        gateway_refuse(r, x, err);
    else if (!str_eq(id, STR("resume")) || rest.p != NULL)
        gateway_member(r, x, id, rest);
    else if (x->request->method == METHOD_POST)
        gateway_resume(r, x);
    else
        allow(r, x, "POST");
}

static void gateway_handle(void *ctx, struct exchange *x)
{
    struct gateway_route *r = ctx;
    enum method m = x->request->method;
    struct str rest = str_skip(x->request->path, gateway_path(r, x).n);
    x->state = r;
    if (!gateway_admit_path(r, x))
        return;
    if (rest.n > 0)
        exchange_collect(x, IGNORED_BODY_MAX, gateway_on_ignored_body);
    else if ((m == METHOD_POST || m == METHOD_GET) && gateway_last_event_id(x).generation.n > 0)
        gateway_continue(r, x);
    else if (m == METHOD_POST)
        gateway_start(r, x);
    else
        allow(r, x, "POST");
}

/* What belongs to somebody is looked at where it is found: his generations, keys and chats. */
const struct surface_rule gateway_rules[] = {
    {"route.generate", "POST", "", ACCESS_VERB_GENERATE, ACCESS_ROUTE, 0, NULL},
    {"route.resume", "POST", "resume", ACCESS_VERB_GENERATE, ACCESS_ROUTE, 0, NULL},
    {"route.continue", "GET HEAD", "", ACCESS_VERB_GENERATE, ACCESS_ROUTE, RULE_LINK, NULL},
    {"route.read", "GET HEAD", "{id}", ACCESS_VERB_GENERATE, ACCESS_ROUTE, RULE_LINK, NULL},
    {"route.chat", "GET HEAD", "{id}/stream", ACCESS_VERB_GENERATE, ACCESS_ROUTE, RULE_LINK, NULL},
    {"route.stop", "POST", "{id}/stop", ACCESS_VERB_STOP, ACCESS_ROUTE, 0, NULL},
    {"route.delete", "DELETE", "{id}", ACCESS_VERB_STOP, ACCESS_ROUTE, 0, NULL},
    {"route.chat.stop", "DELETE", "{id}/stream", ACCESS_VERB_STOP, ACCESS_ROUTE, 0, NULL},
    {0},
};

/* What request headers the upstream takes is not ours to say. */
const struct surface_share gateway_share = {
    .exposed = STR_INIT("Content-Location, Location, Retry-After, X-Correlation-ID, "
                        "X-RateLimit-Limit, X-RateLimit-Remaining, X-Request-Id, X-Resume-Token, "
                        "X-Tidemark-Degraded"),
    .methods = STR_INIT("GET, POST, DELETE, OPTIONS"),
    .keep_s = STR_INIT(SURFACE_KEEP_S),
};

const struct surface gateway_surface = {
    .rules = gateway_rules, .share = &gateway_share, .refuse = gateway_on_refused};

/* Where no upstream wants the client's Authorization, it is for us. */
void gateway_mount(struct gateway_route *r)
{
    struct http *http = r->gateway->setup.http;
    bool ours = r->local != NULL || r->added.n > 0;
    struct http_place place = {.path = r->path,
                               .configured = r->local == NULL,
                               .authorization = ours ? CREDENTIAL_PROVIDER : CREDENTIAL_THEIRS};
    if (r->config->prefix)
        http_mount_at(http, &gateway_prefix_surface, place, gateway_prefix_handle, r);
    else
        http_mount_at(http, &gateway_surface, place, gateway_handle, r);
}
