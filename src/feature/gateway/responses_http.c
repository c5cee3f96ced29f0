// SPDX-License-Identifier: Apache-2.0
/* responses_http.c -- what is asked of a response by its id.
 *
 *     GET    PATH/ID               the response as it is; with ?stream=true its events
 *     POST   PATH/ID/cancel        stops it
 *     DELETE PATH/ID               removes all of it
 *     GET    PATH/ID/input_items   what it was made from
 *
 * To whoever may not have it, it is not there. */
#include "feature/gateway/responses_http.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "feature/gateway/responses_body.h"
#include "http/url.h"
#include "stream/durable.h"

/* In the arena of its exchange, which it holds. */
struct response_request {
    struct gateway_route *route;
    struct exchange *x;
    struct str id, request_id;
    struct generation_stopper stopper;
    struct store_write close;
    bool removes;

    struct responses_page page;
    struct job job;
    struct buf items, list;
    int err;
};

/* ---- answers ---- */

static void responses_refuse(struct response_request *q, int status, struct str message,
                             struct str param)
{
    struct buf body = {0};
    responses_put_error(&body, message, param, STR_NONE);
    exchange_send_json(q->x, status, buf_str(&body));
    buf_deinit(&body);
}

static void send_missing(struct exchange *x, struct str id)
{
    struct buf body = {0};
    responses_put_missing(&body, id);
    exchange_send_json(x, 404, buf_str(&body));
    buf_deinit(&body);
}

static void responses_fail(struct response_request *q, int err)
{
    if (err == ERR_NOT_FOUND)
        send_missing(q->x, q->id);
    else if (err == ERR_TOO_LARGE)
        gateway_error(q->route, q->x, 502, STR("TOO_LARGE"),
                      STR("the response is too large for one body; ask for its events"), STR_NONE);
    else
        gateway_refuse(q->route, q->x, err);
}

/* ---- retrieve ---- */

static void responses_on_loaded(struct response_load *l)
{
    struct response_request *q = l->ctx;
    struct exchange *x = q->x;
    if (l->err != 0) {
        responses_fail(q, l->err);
    } else {
        exchange_header(x, STR("X-Correlation-ID"), q->request_id);
        exchange_send_json(x, 200, buf_str(&l->response));
    }
    exchange_release(x);
}

static void load(struct response_request *q)
{
    response_load(q->route, q->request_id, responses_on_loaded, q);
}

static struct response_request *response_request_new(struct gateway_route *r, struct exchange *x,
                                                     struct str request_id)
{
    struct response_request *q = arena_alloc(&x->arena, sizeof *q);
    char *id = arena_alloc(&x->arena, RESPONSE_ID_TEXT);
    response_id_make(request_id, id);
    *q = (struct response_request){.route = r,
                                   .x = x,
                                   .id = str_of(id, RESPONSE_ID_TEXT),
                                   .request_id = arena_dup(&x->arena, request_id)};
    return q;
}

void responses_retrieve(struct gateway_route *r, struct exchange *x, struct str request_id)
{
    exchange_hold(x);
    load(response_request_new(r, x, request_id));
}

/* ---- ... its events ---- */

static void responses_on_missing(struct read_order *o)
{
    char id[RESPONSE_ID_TEXT];
    response_id_make(o->request_id, id);
    send_missing(o->x, str_of(id, RESPONSE_ID_TEXT));
    exchange_release(o->x);
}

/* Events are numbered from 0 in the dialect, and from 1 here. */
static bool find_start(struct response_request *q, uint64_t *seq)
{
    struct exchange *x = q->x;
    struct str after;
    uint64_t n;
    int found = url_query(&x->arena, x->request->query, STR("starting_after"), &after);
    if (found == 0) {
        *seq = gateway_seq_of(x, q->request_id);
        return true;
    }
    if (found < 0 || num_parse(after, NUM_SAFE_MAX, &n) != 0) {
        responses_refuse(q, 400, STR("'starting_after' is the number of an event."),
                         STR("starting_after"));
        return false;
    }
    *seq = n + 1;
    return true;
}

static void read_response(struct response_request *q)
{
    struct exchange *x = q->x;
    struct read_order *o = arena_alloc(&x->arena, sizeof *o);
    uint64_t seq;
    if (!find_start(q, &seq))
        return;
    *o = (struct read_order){.route = q->route,
                             .x = x,
                             .request_id = q->request_id,
                             .voice.dialect = ROUTE_DIALECT_RESPONSES,
                             .seq = seq,
                             .waits = true,
                             .missing = responses_on_missing};
    exchange_hold(x);
    gateway_read(o);
}

static bool wants_stream(struct exchange *x)
{
    struct str value;
    int found = url_query(&x->arena, x->request->query, STR("stream"), &value);
    return found == 1 && (str_eq(value, STR("true")) || str_eq(value, STR("1")));
}

static void get_response(struct response_request *q)
{
    if (wants_stream(q->x))
        read_response(q);
    else
        responses_retrieve(q->route, q->x, q->request_id);
}

/* ---- cancel, and delete ---- */

static void responses_on_deleted(void *ctx, int err)
{
    struct response_request *q = ctx;
    struct exchange *x = q->x;
    struct buf body = {0};
    if (err != 0) {
        responses_fail(q, err);
    } else {
        responses_put_deleted(&body, q->id);
        exchange_send_json(x, 200, buf_str(&body));
        buf_deinit(&body);
    }
    exchange_release(x);
}

/* It is not under way any more. */
static void go_on_stopped(struct response_request *q)
{
    if (q->removes)
        response_remove(q->route, q->request_id, responses_on_deleted, q);
    else
        load(q);
}

static void responses_on_stopped(struct generation_stopper *s, enum end_reason end, int err)
{
    struct response_request *q = container_of(s, struct response_request, stopper);
    if (err == 0 || ERR_IS_GONE(err)) {
        go_on_stopped(q);
        return;
    }
    responses_fail(q, err);
    exchange_release(q->x);
}

/* Whoever runs it finds its stream closed. One that has ended stays as it is. */
static void responses_on_closed(struct store_write *w, int err)
{
    struct response_request *q = container_of(w, struct response_request, close);
    struct gateway *g = q->route->gateway;
    responses_on_stopped(&q->stopper, END_CANCELLED, err == ERR_CLOSED ? 0 : err);
    gateway_end(g);
}

static void close_elsewhere(struct response_request *q)
{
    struct gateway *g = q->route->gateway;
    q->close =
        (struct store_write){.name = gateway_stream(&q->x->arena, q->route, q->request_id, ""),
                             .close = true,
                             .end = END_CANCELLED,
                             .done = responses_on_closed};
    gateway_begin(g);
    store_write(g->setup.store, &q->close);
}

static void stop_response(struct response_request *q, bool removes)
{
    struct generation *gen = generation_find(q->route, q->request_id);
    q->removes = removes;
    q->stopper.done = responses_on_stopped;
    exchange_hold(q->x);
    if (gen != NULL)
        generation_cancel(gen, &q->stopper);
    else if (q->route->gateway->setup.instances != NULL && !removes)
        close_elsewhere(q);
    else
        go_on_stopped(q);
}

static void cancel_response(struct response_request *q)
{
    stop_response(q, false);
}

static void delete_response(struct response_request *q)
{
    stop_response(q, true);
}

/* ---- input items ---- */

static void send_list(struct response_request *q)
{
    struct exchange *x = q->x;
    if (q->err == 0)
        exchange_send_json(x, 200, buf_str(&q->list));
    else
        responses_refuse(q, 404, STR("There is no input item of the id in 'after'."), STR("after"));
    buf_deinit(&q->items);
    buf_deinit(&q->list);
    exchange_release(x);
}

/* On any thread. */
static void responses_list(struct job *j)
{
    struct response_request *q = container_of(j, struct response_request, job);
    q->err = responses_put_list(&q->list, buf_str(&q->items), &q->page);
}

static void responses_on_listed(struct job *j)
{
    struct response_request *q = container_of(j, struct response_request, job);
    struct gateway *g = q->route->gateway;
    send_list(q);
    gateway_end(g);
}

static void responses_on_input(struct response_input *l)
{
    struct response_request *q = l->ctx;
    struct gateway *g = q->route->gateway;
    struct lane *lane = NULL;
    if (l->err != 0) {
        responses_fail(q, l->err);
        exchange_release(q->x);
        return;
    }
    q->items = l->items;
    l->items = (struct buf){0};
    q->job = (struct job){.run = responses_list, .done = responses_on_listed};
    if (g->setup.durable != NULL)
        lane = durable_lane(g->setup.durable, q->items.n);
    if (lane == NULL) {
        responses_list(&q->job);
        send_list(q);
        return;
    }
    gateway_begin(g);
    lane_submit(lane, &q->job);
}

/* False: it was refused. */
static bool find_page(struct response_request *q)
{
    struct arena *a = &q->x->arena;
    struct str query = q->x->request->query, text;
    uint64_t limit = RESPONSES_LIMIT_DEFAULT;
    q->page = (struct responses_page){.id = q->id, .descending = true};
    if (url_query(a, query, STR("order"), &text) == 1)
        q->page.descending = !str_eq(text, STR("asc"));
    if (url_query(a, query, STR("after"), &text) == 1)
        q->page.after = text;
    int found = url_query(a, query, STR("limit"), &text);
    bool ok = found == 0 ||
              (found == 1 && num_parse(text, RESPONSES_LIMIT_MAX, &limit) == 0 && limit > 0);
    q->page.limit = (uint32_t)limit;
    if (!ok)
        responses_refuse(q, 400, STR("'limit' is a number from 1 to 100."), STR("limit"));
    return ok;
}

static void list_input(struct response_request *q)
{
    if (!find_page(q))
        return;
    exchange_hold(q->x);
    response_input(q->route, q->request_id, responses_on_input, q);
}

/* ---- what is asked for ---- */

static const struct member_row {
    struct str what; /* behind the id */
    enum method method;
    void (*handle)(struct response_request *q);
} member_rows[] = {
    {STR_INIT(""), METHOD_GET, get_response},
    {STR_INIT(""), METHOD_DELETE, delete_response},
    {STR_INIT("cancel"), METHOD_POST, cancel_response},
    {STR_INIT("input_items"), METHOD_GET, list_input},
};

/* NULL: there is none; *known: for another method there is. */
static const struct member_row *find_member_row(enum method m, struct str what, bool *known)
{
    *known = false;
    for (size_t i = 0; i < sizeof member_rows / sizeof *member_rows; i++) {
        if (!str_eq(what, member_rows[i].what))
            continue;
        *known = true;
        if (member_rows[i].method == m)
            return &member_rows[i];
    }
    return NULL;
}

bool responses_has_member(enum method m, struct str what)
{
    bool ignored;
    return find_member_row(m, what, &ignored) != NULL;
}

static bool may_have(struct gateway_route *r, struct exchange *x, struct str request_id)
{
    return x->request->method == METHOD_GET ? gateway_may_read(r, x, request_id)
                                            : gateway_id_is_of(request_id, x->principal);
}

bool responses_member(struct gateway_route *r, struct exchange *x, struct str id, struct str what)
{
    char request_id[REQUEST_ID_TEXT];
    bool known;
    const struct member_row *row = find_member_row(x->request->method, what, &known);
    if (!known || gateway_is_request_id(id))
        return false;
    bool ours =
        response_id_parse(id, request_id) && may_have(r, x, str_of(request_id, REQUEST_ID_TEXT));
    if (row == NULL)
        return false;
    if (ours)
        row->handle(response_request_new(r, x, str_of(request_id, REQUEST_ID_TEXT)));
    else
        send_missing(x, id);
    return true;
}
