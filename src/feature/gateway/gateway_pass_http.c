// SPDX-License-Identifier: Apache-2.0
/* gateway_pass_http.c -- a request that goes on as it is, and its answer, byte by byte. Nothing is
 * recorded and nothing stored.
 *
 *     ASKING ---> ANSWERING ---> ENDING ---> gone
 *        |            |            ^
 *        |            `--> gone    |
 *        `-------------------------'
 *
 * ASKING     the request goes up; there is no head yet. A failure is a status
 * ANSWERING  the answer comes down. A failure cuts it off
 * ENDING     the client has all of it, or there is nothing more to come; the source may not know
 * yet
 *
 * Both directions are pulled. The upload is wanted when the upstream can take more, and the answer
 * is taken when the client can: what is held is one piece of each. A client that goes away takes
 * the request with it. */
#include "base/mem.h"
#include "feature/gateway/gateway_http_core.h"
#include "http/http.h"
#include "http/inert.h"
#include "http/limits.h"
#include "http/status.h"

#include <stdlib.h>

#define HELD_MAX (64 * 1024) /* of an answer, before the client takes more */

struct pass {
    struct link link; /* in the gateway's list */
    struct gateway_route *route;
    struct exchange *x;               /* held; NULL: it is over */
    struct generation_source *source; /* NULL: no more is wanted of it */
    struct account *lease;
    char id[REQUEST_ID_TEXT];

    struct buf up; /* of the body, from up_from on to be sent */
    size_t up_from;
    bool uploads;    /* the body comes piece by piece */
    bool up_ended;   /* behind that comes nothing more */
    bool up_wanted;  /* of the exchange */
    bool up_starved; /* the source waits for it */
    struct task want;

    struct buf down; /* to be taken by the client */
    uint64_t left;   /* of a body of known length */
    bool sized;
    bool full;      /* the source waits for room */
    bool beginning; /* the head is being sent */
    bool answering; /* ... and it is out */
    bool ended;     /* that was all */
};

/* ---- its end ---- */

static void pass_drop_source(struct pass *p)
{
    struct generation_source *source = p->source;
    p->source = NULL;
    if (source != NULL)
        source->ops->free(source);
}

static void pass_free(struct pass *p)
{
    struct gateway *g = p->route->gateway;
    struct exchange *x = p->x;
    pass_drop_source(p);
    list_remove(&p->link);
    task_cancel(&p->want);
    limits_end_lease(&p->lease);
    gauge_add(p->route->passing, -1);
    buf_deinit(&p->up);
    buf_deinit(&p->down);
    free(p);
    if (x != NULL)
        exchange_release(x);
    gate_leave(&g->generations);
}

/* The exchange knows it no more. */
static void pass_leave(struct pass *p)
{
    struct exchange *x = p->x;
    x->ops = NULL;
    x->state = NULL;
    p->x = NULL;
    exchange_release(x);
}

/* The client sees that there should be more. */
static void pass_cut(struct pass *p)
{
    p->x->ops = NULL;
    exchange_abort(p->x);
    pass_free(p);
}

static void pass_fail(struct pass *p, int err, struct str message)
{
    struct generation_failure f = {.request_id = str_of(p->id, sizeof p->id),
                                   .end = END_FAILED,
                                   .err = err,
                                   .message = message,
                                   .voice = gateway_voice(p->route, p->x)};
    p->x->ops = NULL;
    gateway_send_failure(p->x, &f);
    pass_free(p);
}

void gateway_pass_stop(struct gateway *g)
{
    list_each_safe (l, &g->passes)
        pass_free(list_item(l, struct pass, link));
}

/* ---- up ---- */

static void pass_on_piece(struct exchange *x, struct str data, bool end)
{
    struct pass *p = x->state;
    p->up_wanted = false;
    p->up_ended = end;
    buf_put(&p->up, data);
    if (p->up_starved && p->source != NULL)
        p->source->ops->feed(p->source);
    p->up_starved = false;
}

/* Not from within the source: the exchange may end when it is asked for more. */
static void pass_want(struct task *t)
{
    struct pass *p = container_of(t, struct pass, want);
    if (p->x == NULL || p->up_wanted)
        return;
    p->up_wanted = true;
    exchange_want(p->x, pass_on_piece);
}

static size_t pass_read(void *ctx, char *out, size_t room)
{
    struct pass *p = ctx;
    size_t n = p->up.n - p->up_from;
    n = n < room ? n : room;
    if (n > 0)
        memcpy(out, p->up.p + p->up_from, n);
    p->up_from += n;
    if (p->up_from == p->up.n)
        p->up_from = p->up.n = 0;
    if (n > 0 || p->up_ended)
        return n;
    p->up_starved = true;
    sched_post(p->route->gateway->setup.sched, &p->want);
    return SIZE_MAX;
}

/* ---- down ---- */

static void pass_put(struct pass *p)
{
    struct block *b = block_of(buf_str(&p->down));
    exchange_put(p->x, slice_of(b, 0, b->n));
    block_unref(b);
    buf_deinit(&p->down);
    p->down = (struct buf){0};
    exchange_reserve(p->x, 0);
}

static enum pull pass_pull(struct exchange *x)
{
    struct pass *p = x->state;
    if (p->down.n > 0) {
        pass_put(p);
        return PULL_MORE;
    }
    if (p->ended) {
        pass_leave(p);
        pass_free(p);
        return PULL_END;
    }
    if (p->full)
        p->source->ops->resume(p->source);
    p->full = false;
    return PULL_WAIT;
}

/* Also of an answer that has no more than its head; then the source has yet to end. */
static void pass_gone(struct exchange *x)
{
    struct pass *p = x->state;
    if (p->beginning)
        pass_leave(p);
    else
        pass_free(p);
}

static void pass_revoke(struct exchange *x)
{
    exchange_abort(x);
}

static const struct exchange_ops exchange_ops = {
    .pull = pass_pull, .gone = pass_gone, .revoke = pass_revoke};

/* ---- heads ---- */

/* A page that says it is no download would be shown in our origin. */
static bool may_show(const struct header *headers, size_t n, struct str disposition)
{
    struct str type = STR_NONE, word = str_trim(str_cut(&disposition, ';'));
    for (size_t i = 0; type.p == NULL && i < n; i++)
        if (str_eq_nocase(headers[i].name, STR("Content-Type")))
            type = headers[i].value;
    return str_eq_nocase(word, STR("attachment")) || inert_type(type);
}

static bool has_directive(struct str list, struct str wanted)
{
    while (list.p != NULL) {
        struct str rest = str_trim(str_cut(&list, ','));
        if (str_eq_nocase(str_cut(&rest, '='), wanted))
            return true;
    }
    return false;
}

/* What one was granted no cache may give to another. */
static struct str cache_control(const struct exchange *x, struct str value)
{
    bool shared = has_directive(value, STR("public")) || has_directive(value, STR("s-maxage"));
    return x->http->front.guarded && shared ? STR("no-store") : value;
}

/* Browsers take the last of several, and what is said of a body here goes by the first. */
static bool is_second_type(const struct exchange *x, struct str name)
{
    return str_eq_nocase(name, STR("Content-Type")) && exchange_has_header(x, name);
}

void gateway_put_headers(struct exchange *x, const struct header *headers, size_t n)
{
    bool *known = arena_alloc(&x->arena, n + 1); /* what is set before; theirs may be several */
    for (size_t i = 0; i < n; i++)
        known[i] = exchange_has_header(x, headers[i].name);
    for (size_t i = 0; i < n; i++) {
        struct str name = headers[i].name, value = headers[i].value;
        if (known[i] || is_second_type(x, name) ||
            (str_eq_nocase(name, STR("Content-Disposition")) && !may_show(headers, n, value)))
            continue;
        if (str_eq_nocase(name, STR("Cache-Control")))
            value = cache_control(x, value);
        exchange_header(x, arena_dup(&x->arena, name), arena_dup(&x->arena, value));
    }
}

static void pass_begin(struct pass *p, int64_t length)
{
    struct exchange *x = p->x;
    if (length == 0) {
        pass_leave(p);
        exchange_send(x, STR_NONE);
    } else if (length > 0) {
        p->sized = true;
        p->left = (uint64_t)length;
        exchange_stream_sized(x, p->left);
    } else {
        exchange_stream(x);
    }
}

/* ---- what the source says ---- */

static void pass_on_head(void *ctx, const struct source_head *head)
{
    struct pass *p = ctx;
    struct exchange *x = p->x;
    exchange_status(x, head->status);
    gateway_put_headers(x, head->headers, head->n_headers);
    exchange_header(x, STR("X-Correlation-ID"), arena_dup(&x->arena, str_of(p->id, sizeof p->id)));
    exchange_hold(x);
    p->beginning = true;
    pass_begin(p, head->length);
    p->beginning = false;
    p->answering = true;
    exchange_release(x);
}

static void pass_complete(struct pass *p)
{
    pass_drop_source(p);
    p->ended = true;
    exchange_wake(p->x);
}

static bool pass_on_data(void *ctx, struct str data)
{
    struct pass *p = ctx;
    if (p->x == NULL)
        return true;
    p->full = p->down.n >= HELD_MAX || !exchange_reserve(p->x, p->down.n + data.n);
    if (p->full)
        return false;
    if (p->sized && data.n > p->left) {
        pass_cut(p);
        return true;
    }
    p->left -= p->sized ? data.n : 0;
    buf_put(&p->down, data);
    if (p->sized && p->left == 0 && p->uploads && !p->up_ended)
        pass_complete(p); /* nobody waits for the rest of the request */
    else
        exchange_wake(p->x);
    return true;
}

static void pass_on_end(void *ctx, int err, struct str message)
{
    struct pass *p = ctx;
    if (p->x == NULL) {
        pass_free(p);
    } else if (!p->answering) {
        pass_fail(p, err, message);
    } else if (err != 0 || (p->sized && p->left > 0)) {
        pass_cut(p);
    } else {
        pass_complete(p);
    }
}

/* ---- its beginning ---- */

/* Whatever the route has under way counts. */
static bool pass_admits(struct gateway_route *r, struct exchange *x, struct account **lease)
{
    if (gate_is_shut(&r->gateway->generations)) {
        gateway_refuse_draining(r, x);
        return false;
    }
    if (r->config->parallel > 0 && gateway_under_way(r) >= r->config->parallel) {
        counter_inc(r->refused_parallel);
        gateway_refuse_limit(r, x, 1, STR("Too many answers are under way on this route"));
        return false;
    }
    return limits_take_generation(x, lease);
}

static void pass_open(struct pass *p, const struct str *body)
{
    static const struct source_events events = {
        .head = pass_on_head, .data = pass_on_data, .end = pass_on_end};
    struct exchange *x = p->x;
    const struct source_kind *kind = &p->route->source;
    struct source_upload upload = {.length = exchange_body_length(x), .read = pass_read};
    bool streams = body == NULL && x->has_body && x->request->method != METHOD_HEAD;
    struct source_order o = {.route = p->route,
                             .request = x->request,
                             .known = x->principal->known && x->principal->rights.n == 0,
                             .body = body != NULL ? *body : STR_NONE,
                             .request_id = str_of(p->id, sizeof p->id),
                             .upload = streams ? &upload : NULL,
                             .passes = true,
                             .on = &events,
                             .ctx = p};
    p->uploads = streams;
    p->source = kind->open(kind->ctx, &o);
    if (body != NULL)
        exchange_forget_body(x);
}

void gateway_pass(struct gateway_route *r, struct exchange *x, const struct str *body)
{
    struct account *lease = NULL;
    if (!pass_admits(r, x, &lease))
        return;
    struct pass *p = mem_zalloc(sizeof *p);
    *p = (struct pass){.route = r, .x = x, .lease = lease};
    task_init(&p->want, pass_want);
    list_push(&r->gateway->passes, &p->link);
    gauge_add(r->passing, 1);
    gate_enter(&r->gateway->generations);
    gateway_id_make(x->principal, p->id);
    exchange_hold(x);
    x->ops = &exchange_ops;
    x->state = p;
    x->peer_bound = true; /* what is asked for is for nobody else */
    pass_open(p, body);
    p->source->ops->start(p->source);
}
