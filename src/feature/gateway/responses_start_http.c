// SPDX-License-Identifier: Apache-2.0
/* responses_start_http.c -- POST of a response, until its generation is started.
 *
 *     look     what does the body ask for?
 *     go on    is there a response before it that is ours? Then its input and output are read.
 *     build    the body for the upstream, and what is stored of the input
 *     store    the input, before the generation's stream is made
 *
 * Work on large texts is done on a lane. */
#include "base/err.h"
#include "base/json_view.h"
#include "base/mem.h"
#include "feature/gateway/responses_body.h"
#include "feature/gateway/responses_http.h"
#include "stream/durable.h"

/* ---- looking ---- */

/* Below a prefix there are other things than responses, whatever it says of its dialect. A body in
 * another coding cannot be read, and goes on as it is. */
struct responses_ask *responses_ask_new(struct gateway_route *r, struct exchange *x, void *ctx)
{
    struct str coding = request_header(x->request, STR("Content-Encoding"));
    if (gateway_voice(r, x).dialect != ROUTE_DIALECT_RESPONSES ||
        (r->config->prefix && !str_ends(gateway_path(r, x), STR("/responses"))))
        return NULL;
    if (coding.p != NULL && !str_eq_nocase(coding, STR("identity")))
        return NULL;
    struct responses_ask *a = arena_alloc(&x->arena, sizeof *a);
    *a = (struct responses_ask){.route = r, .x = x, .ctx = ctx};
    return a;
}

/* Is the response before it one of ours, by its id? */
static bool find_previous(struct responses_ask *a)
{
    struct str inside = a->request.previous.n > 0 ? view_inside(a->request.previous) : STR_NONE;
    struct buf id = {0};
    bool ours = false;
    if (inside.n > 0 && inside.n <= 6 * RESPONSE_ID_TEXT) {
        view_decode(inside, &id);
        ours = response_id_parse(buf_str(&id), a->previous_id);
    }
    buf_deinit(&id);
    return ours;
}

/* What an upstream below a prefix makes of a body that we cannot read is its own affair. */
bool responses_ask_look(struct responses_ask *a, struct str body)
{
    const struct responses_request *q = &a->request;
    a->err = responses_request_parse(&a->request, body);
    if (a->err == ERR_JSON)
        return !a->route->config->prefix;
    a->follows = find_previous(a);
    return q->stored || q->stream || q->background || a->follows;
}

bool responses_ask_is_background(const struct responses_ask *a)
{
    return a != NULL && a->request.background && !a->request.stream;
}

bool responses_ask_is_whole(const struct responses_ask *a)
{
    return a != NULL && !a->request.stream;
}

/* ---- refusing ---- */

static void drop_buffers(struct responses_ask *a)
{
    struct buf *all[] = {&a->upstream, &a->stored, &a->before, &a->before_input};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        buf_deinit(all[i]);
        *all[i] = (struct buf){0};
    }
}

static void refuse_ask(struct responses_ask *a, int status, struct str message, struct str param,
                       struct str code)
{
    struct exchange *x = a->x;
    struct buf body = {0};
    responses_put_error(&body, message, param, code);
    exchange_send_json(x, status, buf_str(&body));
    buf_deinit(&body);
    drop_buffers(a);
    exchange_release(x);
}

static void fail_ask(struct responses_ask *a, int err)
{
    struct exchange *x = a->x;
    gateway_refuse(a->route, x, err);
    drop_buffers(a);
    exchange_release(x);
}

static void refuse_too_large(struct responses_ask *a)
{
    refuse_ask(a, 413, STR("The input, with all responses before it, is larger than max-body"),
               STR("input"), STR("input_too_large"));
}

void responses_ask_end(struct responses_ask *a, bool dropped)
{
    if (a == NULL)
        return;
    if (a->kept && dropped)
        response_remove_input(a->route, str_of(a->request_id, REQUEST_ID_TEXT));
    a->kept = a->kept && !dropped;
    a->prepared = false;
    drop_buffers(a);
}

/* ---- storing ---- */

static void responses_on_input_stored(struct store_write *w, int err)
{
    struct responses_ask *a = container_of(w, struct responses_ask, write);
    struct gateway *g = a->route->gateway;
    a->kept = err == 0;
    /* Without the store an answer goes unrecorded to who asked: but not one that nobody gets. */
    if (err == 0 || (gateway_is_trouble(err) && !a->request.background)) {
        a->prepared = true;
        a->ready(a);
    } else {
        fail_ask(a, err);
    }
    gateway_end(g);
}

/* As long as its events at least, which may go on coming for as long as a generation takes. */
static int64_t input_ttl_s(const struct route_config *c)
{
    return gateway_response_ttl_s(c) +
           (int64_t)(c->total_timeout_ms + c->snapshot_ttl_ms + 999) / 1000;
}

static void store_input(struct responses_ask *a)
{
    struct gateway *g = a->route->gateway;
    bool tries = a->request.background || gateway_is_worth_trying(g);
    if (!a->request.stored || !tries) {
        a->prepared = true;
        a->ready(a);
        return;
    }
    a->stream = (struct stream_config){.content_type = STR("application/json"),
                                       .ttl_s = input_ttl_s(a->route->config),
                                       .expires_ms = STORE_TTL_NONE};
    a->write = (struct store_write){.name = gateway_stream(&a->x->arena, a->route,
                                                           str_of(a->request_id, REQUEST_ID_TEXT),
                                                           RESPONSES_INPUT_SUFFIX),
                                    .create = &a->stream,
                                    .data = buf_str(&a->stored),
                                    .ends = a->ends,
                                    .n_events = 2,
                                    .close = true,
                                    .end = END_COMPLETED,
                                    .done = responses_on_input_stored};
    gateway_begin(g);
    store_write(g->setup.store, &a->write);
}

/* ---- building: on any thread ---- */

static void build_stored(struct responses_ask *a, struct str items)
{
    struct buf *out = &a->stored;
    int64_t now_s = a->route->gateway->setup.sched->wall_ms / 1000;
    responses_put_queued(out, &a->request, str_of(a->response_id, RESPONSE_ID_TEXT), now_s);
    buf_putc(out, ',');
    a->ends[0] = (uint32_t)out->n;
    buf_putc(out, '[');
    view_put_unbroken(out, items);
    buf_put(out, STR("],"));
    a->ends[1] = (uint32_t)out->n;
}

/* The items of this turn behind those of the turns before. */
static void put_items(struct buf *out, const struct responses_ask *a)
{
    if (a->continues)
        responses_put_context(out, buf_str(&a->before_input), buf_str(&a->before));
    size_t context = out->n;
    if (context > 0)
        buf_putc(out, ',');
    size_t behind = out->n;
    responses_put_input(out, a->request.input);
    if (out->n == behind) /* there are none */
        out->n = context;
}

static void responses_build(struct job *j)
{
    struct responses_ask *a = container_of(j, struct responses_ask, job);
    size_t max = a->route->config->max_body_bytes;
    struct buf items = {0};
    put_items(&items, a);
    a->err = responses_request_put(&a->upstream, &a->request, a->continues, buf_str(&items), max);
    if (a->err == 0 && a->request.stored)
        build_stored(a, buf_str(&items));
    buf_deinit(&items);
}

static void go_on_built(struct responses_ask *a)
{
    if (a->err != 0)
        refuse_too_large(a);
    else
        store_input(a);
}

static void responses_on_built(struct job *j)
{
    struct responses_ask *a = container_of(j, struct responses_ask, job);
    struct gateway *g = a->route->gateway;
    go_on_built(a);
    gateway_end(g);
}

static void build(struct responses_ask *a)
{
    struct gateway *g = a->route->gateway;
    struct lane *lane = NULL;
    if (g->setup.durable != NULL)
        lane = durable_lane(g->setup.durable, a->before.n + a->before_input.n + a->request.body.n);
    a->job = (struct job){.run = responses_build, .done = responses_on_built};
    if (lane == NULL) {
        responses_build(&a->job);
        go_on_built(a);
        return;
    }
    gateway_begin(g);
    lane_submit(lane, &a->job);
}

/* ---- the response before ---- */

/* Who knows it, then? There are upstreams whose ids have our form. */
static void go_on_without(struct responses_ask *a)
{
    struct buf message = {0}, id = {0};
    if (a->route->config->prefix) {
        build(a);
        return;
    }
    view_decode(view_inside(a->request.previous), &id);
    buf_printf(&message, "Previous response with id '%.*s' not found.", (int)id.n, id.p);
    refuse_ask(a, 400, buf_str(&message), STR("previous_response_id"),
               STR("previous_response_not_found"));
    buf_deinit(&message);
    buf_deinit(&id);
}

static void responses_on_previous_input(struct response_input *l)
{
    struct responses_ask *a = l->ctx;
    if (l->err == ERR_NOT_FOUND) { /* it was not to be stored */
        go_on_without(a);
    } else if (l->err != 0) {
        fail_ask(a, l->err);
    } else {
        a->before_input = l->items;
        l->items = (struct buf){0};
        a->continues = true;
        build(a);
    }
}

static void responses_on_previous(struct response_load *l)
{
    struct responses_ask *a = l->ctx;
    if (l->err == ERR_NOT_FOUND) {
        go_on_without(a);
    } else if (l->err == ERR_TOO_LARGE) {
        refuse_too_large(a);
    } else if (l->err != 0) {
        fail_ask(a, l->err);
    } else if (l->end == END_NONE) {
        refuse_ask(a, 400, STR("The previous response is still in progress."),
                   STR("previous_response_id"), STR("previous_response_in_progress"));
    } else {
        a->before = l->response;
        l->response = (struct buf){0};
        response_input(a->route, str_of(a->previous_id, REQUEST_ID_TEXT),
                       responses_on_previous_input, a);
    }
}

void responses_prepare(struct responses_ask *a, void (*ready)(struct responses_ask *a))
{
    struct str previous = str_of(a->previous_id, REQUEST_ID_TEXT);
    a->ready = ready;
    gateway_id_make(a->x->principal, a->request_id);
    response_id_make(str_of(a->request_id, REQUEST_ID_TEXT), a->response_id);
    if (a->err == ERR_SYNTAX)
        refuse_ask(a, 400, STR("Background mode requires 'store' to be true."), STR("background"),
                   STR_NONE);
    else if (a->err != 0)
        refuse_ask(a, 400, STR("The body is no JSON object, or it is nested too deep."), STR_NONE,
                   STR_NONE);
    else if (!a->follows)
        build(a);
    else if (!gateway_id_is_of(previous, a->x->principal))
        go_on_without(a);
    else
        response_load(a->route, previous, responses_on_previous, a);
}

/* ---- the generation ---- */

void responses_order(struct responses_ask *a, struct generation_order *o)
{
    const struct responses_request *q = &a->request;
    memcpy(o->request_id, a->request_id, REQUEST_ID_TEXT);
    a->order = (struct responses_source_order){
        .body = buf_str(&a->upstream),
        .mend = {.response_id = str_of(a->response_id, RESPONSE_ID_TEXT),
                 .model = q->model,
                 .previous_id = a->continues ? q->previous : STR_NONE,
                 .background = q->background,
                 .stored = a->kept,
                 .created_s = a->route->gateway->setup.sched->wall_ms / 1000}};
    a->source = (struct source_kind){.open = responses_source_open, .ctx = &a->order};
    o->source = &a->source;
    o->is_response = true;
    o->unattended = q->background;
    o->kept_s = a->kept ? gateway_response_ttl_s(a->route->config) : 0;
}

void responses_on_asked(struct responses_ask *a)
{
    if (responses_ask_is_background(a)) {
        struct str id = str_of(a->request_id, REQUEST_ID_TEXT);
        exchange_header(a->x, STR("X-Correlation-ID"), arena_dup(&a->x->arena, id));
        gateway_put_location(a->route, a->x, id);
        exchange_send_json(a->x, 200, str_of(a->stored.p, a->ends[0] - 1));
    }
    drop_buffers(a);
}
