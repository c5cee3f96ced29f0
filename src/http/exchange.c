// SPDX-License-Identifier: Apache-2.0
#include "http/exchange.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/num.h"
#include "http/http.h"
#include "http/account.h"
#include "http/inert.h"
#include "http/share.h"
#include "http/status.h"

#include <stdlib.h>

struct exchange *exchange_new(struct http *http, const struct transport_ops *via, void *transport)
{
    struct exchange *x = slab_zalloc(&http->exchanges, sizeof *x);
    x->http = http;
    x->principal = &principal_anonymous;
    list_init(&x->answer);
    x->via = via;
    x->transport = transport;
    x->arena.cache = &http->arenas;
    x->status = 200;
    x->holds = 1;
    return x;
}

void exchange_hold(struct exchange *x)
{
    x->holds++;
}

static void forget_memory(struct exchange *x);

void exchange_release(struct exchange *x)
{
    must(x->holds > 0);
    if (--x->holds > 0)
        return;
    forget_memory(x);
    if (x->account != NULL)
        account_leave(x->account, ACCOUNT_UNDER_WAY);
    free(x->origin);
    principal_unref(x->principal);
    slab_free(&x->http->exchanges, x);
}

/* The answer ends with the right to it: whoever can lose his knows his exchanges. Linking them is
 * no change that anybody sees. */
static void exchange_enter(struct exchange *x)
{
    struct principal *p = (struct principal *)x->principal;
    if (!x->http->rights_end || x->over || !p->known || p->refs == 0)
        return;
    list_push(&p->answers, &x->answer);
    if (list_empty(&p->active))
        list_push(&x->http->active, &p->active);
}

static void exchange_leave(struct exchange *x)
{
    struct principal *p = (struct principal *)x->principal;
    if (list_empty(&x->answer))
        return;
    list_remove(&x->answer);
    if (list_empty(&p->answers))
        list_remove(&p->active);
}

void exchange_set_principal(struct exchange *x, const struct principal *p)
{
    principal_ref(p);
    if (x->principal != &principal_anonymous) {
        exchange_leave(x);
        principal_unref(x->principal);
    }
    x->principal = p;
    exchange_enter(x);
}

void exchange_revoke(struct exchange *x)
{
    const struct exchange_ops *ops = x->ops;
    exchange_leave(x);
    if (x->over)
        return;
    x->revoked = true;
    if (ops != NULL && ops->revoke != NULL)
        ops->revoke(x);
    else if (ops != NULL && ops->drain != NULL)
        ops->drain(x);
    else if (x->streaming && !x->sized)
        exchange_abort(x);
}

bool exchange_can(struct exchange *x, enum access_verb verb, enum access_kind kind, struct str name)
{
    x->undecided = false;
    return principal_may(x->principal, verb, kind, name);
}

bool exchange_covers(struct exchange *x, enum access_verb verb, enum access_kind kind,
                     struct str pattern)
{
    x->undecided = false;
    return access_contains(&x->principal->rights, verb, kind, pattern);
}

bool exchange_draining(const struct exchange *x)
{
    return x->http->draining;
}

bool exchange_closing(const struct exchange *x)
{
    return x->http->closing || x->revoked;
}

void exchange_finish(struct exchange *x, bool peer_gone)
{
    if (x->over)
        return;
    unsent_give_back(&x->http->unsent, &x->reserved);
    if (x->is_live) /* what was asked for counts until nobody holds it: exchange_release */
        account_leave(x->account, ACCOUNT_LIVE);
    x->is_live = false;
    x->over = true;
    exchange_leave(x);
    if (peer_gone && x->ops != NULL && x->ops->gone != NULL)
        x->ops->gone(x);
    exchange_release(x);
}

const void *exchange_connection(const struct exchange *x)
{
    return x->over || x->via->peer == NULL ? NULL : x->via->peer(x);
}

/* ---- request body ---- */

struct collect {
    exchange_collected_fn *done;
    struct buf body;
    size_t max, charged; /* charged: of the server's budget for bodies in memory */
};

void exchange_want(struct exchange *x, exchange_body_fn *on_body)
{
    must(x->on_body == NULL);
    if (x->over)
        return;
    x->on_body = on_body;
    x->via->want(x);
}

void exchange_deliver(struct exchange *x, struct str data, bool end, bool stable)
{
    exchange_body_fn *on_body = x->on_body;
    x->on_body = NULL;
    x->stable = stable;
    x->body_done = end;
    on_body(x, data, end);
}

static void forget_collect(struct exchange *x)
{
    if (x->collect == NULL)
        return;
    x->http->inflight_bytes -= x->collect->charged;
    buf_deinit(&x->collect->body);
    free(x->collect);
    x->collect = NULL;
}

static void forget_memory(struct exchange *x)
{
    forget_collect(x);
    x->request = NULL;
    block_unref(x->request_bytes);
    x->request_bytes = NULL;
    arena_deinit(&x->arena);
}

static void collect_failed(struct exchange *x, int err)
{
    exchange_collected_fn *done = x->collect->done;
    forget_collect(x);
    done(x, STR_NONE, err);
}

static void exchange_on_collected(struct exchange *x, struct str data, bool end)
{
    struct collect *c = x->collect;
    exchange_collected_fn *done = c->done;
    if (data.n > c->max - c->body.n) {
        collect_failed(x, ERR_TOO_LARGE);
        return;
    }
    if (end && c->body.n == 0 && x->stable) {
        forget_collect(x);
        done(x, data, 0);
        return;
    }
    if (data.n > x->http->limits.inflight_bytes - x->http->inflight_bytes) {
        collect_failed(x, ERR_BUSY);
        return;
    }
    x->http->inflight_bytes += data.n;
    c->charged += data.n;
    buf_put(&c->body, data);
    if (end)
        done(x, buf_str(&c->body), 0); /* kept until the exchange goes */
    else
        exchange_want(x, exchange_on_collected);
}

void exchange_collect(struct exchange *x, size_t max, exchange_collected_fn *collected)
{
    if (x->over)
        return;
    /* What is said to be too much is not waited for. */
    if (x->body_length > max) {
        collected(x, STR_NONE, ERR_TOO_LARGE);
        return;
    }
    x->collect = mem_zalloc(sizeof *x->collect);
    x->collect->done = collected;
    x->collect->max = max;
    exchange_want(x, exchange_on_collected);
}

/* ---- response ---- */

void exchange_status(struct exchange *x, int status)
{
    x->status = (uint16_t)status;
}

void exchange_header(struct exchange *x, struct str name, struct str value)
{
    if (x->over)
        return;
    struct exchange_header *h = arena_alloc(&x->arena, sizeof *h);
    *h = (struct exchange_header){{name, value}, NULL};
    struct exchange_header **last = &x->headers;
    while (*last != NULL)
        last = &(*last)->next;
    *last = h;
}

void exchange_header_u64(struct exchange *x, struct str name, uint64_t value)
{
    char *text = arena_alloc(&x->arena, NUM_TEXT_MAX);
    exchange_header(x, name, str_of(text, num_format(value, text)));
}

static struct str response_header(const struct exchange *x, struct str name)
{
    for (const struct exchange_header *h = x->headers; h != NULL; h = h->next)
        if (str_eq_nocase(h->header.name, name))
            return h->header.value;
    return STR_NONE;
}

bool exchange_has_header(const struct exchange *x, struct str name)
{
    return response_header(x, name).p != NULL;
}

/* Every body, unless its handler has set a policy: what is stored must not act in our origin, and
 * no handler can forget to say so. */
static void put_inert(struct exchange *x)
{
    static const struct str policy = STR_INIT("Content-Security-Policy");
    static const struct str disposition = STR_INIT("Content-Disposition");
    struct str type = response_header(x, STR("Content-Type"));
    if (status_has_no_body(x->status) || exchange_has_header(x, policy))
        return;
    exchange_header(x, policy, STR(INERT_POLICY));
    if (type.p != NULL && !inert_type(type) && !exchange_has_header(x, disposition))
        exchange_header(x, disposition, STR("attachment"));
}

/* The same of who else may read and keep it. */
static void put_shared(struct exchange *x)
{
    struct header headers[SHARE_HEADERS_MAX];
    bool guarded = x->http->front.guarded;
    x->kind = guarded ? RESPONSE_GUARDED : RESPONSE_OPEN;
    if (!x->reads && x->page == FRONT_NO_PAGE) { /* a program has written */
        x->kind = guarded ? RESPONSE_PRIVATE : RESPONSE_OPEN;
        return;
    }
    size_t n = share_headers(
        &(struct share_ask){.front = &x->http->front,
                            .share = x->route != NULL ? x->route->surface->share : NULL,
                            .origin = x->origin,
                            .page = (enum front_page)x->page,
                            .reads = x->reads,
                            .public = x->http->names.public_host.n > 0},
        headers);
    for (size_t i = 0; i < n; i++)
        exchange_header(x, headers[i].name, headers[i].value);
}

static void exchange_begin_response(struct exchange *x, int64_t length, bool streaming)
{
    must(!x->begun);
    must(!x->undecided || x->status >= 400); /* nobody has asked whether he may */
    put_inert(x);
    put_shared(x);
    x->begun = true;
    x->streaming = streaming;
    x->head_only = x->head_only || status_has_no_body(x->status);
    http_count_response(x->http, x->status);
    x->via->begin(x, length);
    x->headers = NULL; /* what comes now are trailers */
}

void exchange_send(struct exchange *x, struct str body)
{
    if (x->over)
        return;
    if (body.n == 0) {
        exchange_send_slices(x, NULL, 0);
        return;
    }
    struct block *b = block_of(body);
    struct slice s = slice_of(b, 0, b->n);
    exchange_send_slices(x, &s, 1);
    block_unref(b);
}

void exchange_send_slices(struct exchange *x, const struct slice *slices, size_t n)
{
    if (x->over)
        return;
    int64_t length = 0;
    for (size_t i = 0; i < n; i++)
        length += (int64_t)slices[i].bytes.n;
    exchange_begin_response(x, length, false);
    for (size_t i = 0; i < n && !x->head_only; i++)
        x->via->put(x, slices[i]);
    x->via->end(x);
}

void exchange_send_json(struct exchange *x, int status, struct str body)
{
    exchange_status(x, status);
    exchange_header(x, STR("Content-Type"), STR("application/json"));
    exchange_header(x, STR("Cache-Control"), STR("no-store"));
    exchange_send(x, body);
}

void exchange_problem(struct exchange *x, int status, struct str code, struct str message)
{
    if (x->over)
        return;
    struct buf body = {0};
    json_put_problem(&body, code, message, STR_NONE);
    buf_putc(&body, '\n');
    exchange_send_json(x, status, buf_str(&body));
    buf_deinit(&body);
}

void exchange_error(struct exchange *x, int err)
{
    int status = err_http_status(err);
    if (status == 429 || status == 503)
        exchange_header(x, STR("Retry-After"), STR("1"));
    exchange_problem(x, status, str_of_cstr(err_name(err)), str_of_cstr(err_text(err)));
}

static void stream(struct exchange *x, int64_t length)
{
    if (x->over)
        return;
    must(x->ops != NULL && x->ops->pull != NULL);
    exchange_begin_response(x, length, true);
    if (!x->head_only) {
        x->via->wake(x);
        return;
    }
    if (x->ops->gone != NULL)
        x->ops->gone(x);
    x->via->end(x);
}

void exchange_stream(struct exchange *x)
{
    stream(x, -1);
}

void exchange_stream_sized(struct exchange *x, uint64_t length)
{
    must(length > 0);
    x->sized = true;
    stream(x, (int64_t)length);
}

void exchange_put(struct exchange *x, struct slice s)
{
    if (!x->over)
        x->via->put(x, s);
}

void exchange_wake(struct exchange *x)
{
    if (!x->over && x->streaming)
        x->via->wake(x);
}

size_t exchange_room(const struct exchange *x)
{
    if (x->over)
        return 0;
    return x->via->room != NULL ? x->via->room(x) : EXCHANGE_ROOM;
}

static void exchange_on_granted(void *ctx)
{
    exchange_wake(ctx);
}

bool exchange_reserve(struct exchange *x, size_t bytes)
{
    struct unsent *u = &x->http->unsent;
    if (x->via->share == NULL || u->budget == NULL)
        return true;
    if (bytes == 0 || x->over)
        unsent_give_back(u, &x->reserved);
    else
        return unsent_reserve(
            u, &x->reserved,
            &(struct unsent_user){.of = x->via->share(x), .granted = exchange_on_granted, .ctx = x},
            bytes);
    return !x->over;
}

void exchange_abort(struct exchange *x)
{
    if (!x->over)
        x->via->abort(x);
}

void exchange_trailer(struct exchange *x, struct str name, struct str value)
{
    exchange_header(x, name, value);
}

void exchange_forget_request(struct exchange *x)
{
    if (x->over || x->headers != NULL)
        return;
    must(x->body_done && x->on_body == NULL);
    forget_memory(x);
}

void exchange_forget_body(struct exchange *x)
{
    if (x->body_done)
        forget_collect(x);
}

bool exchange_take_body(struct exchange *x, struct buf *out)
{
    if (!x->body_done || x->collect == NULL)
        return false;
    *out = x->collect->body;
    x->collect->body = (struct buf){0};
    return true;
}
