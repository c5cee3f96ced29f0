// SPDX-License-Identifier: Apache-2.0
#include "http/rpc_client.h"
#include "base/err.h"
#include "base/list.h"
#include "base/must.h"
#include "base/num.h"
#include "http/url.h"

static void rpc_client_forget(struct rpc_owned *o)
{
    if (o->body.p != NULL)
        explicit_bzero(o->body.p, o->body.n);
    buf_deinit(&o->body);
    rpc_frames_deinit(&o->frames);
    arena_deinit(&o->arena);
    *o = (struct rpc_owned){0};
}

/* ---- what comes ---- */

/* Not within an escape, which would spoil the rest. */
static struct str rpc_client_cut(struct str text)
{
    size_t n = text.n < RPC_CLIENT_MESSAGE_MAX ? text.n : RPC_CLIENT_MESSAGE_MAX;
    const char *escape = n < text.n ? memchr(text.p + n - 2, '%', 2) : NULL;
    return str_of(text.p, escape != NULL ? (size_t)(escape - text.p) : n);
}

/* The first of each counts. An answer without a message has them in its head. */
static void on_field(struct rpc_client_call *c, struct str name, struct str value)
{
    if (c->own.status.p == NULL && str_eq_nocase(name, STR("grpc-status")))
        c->own.status = arena_dup(&c->own.arena, rpc_client_cut(value));
    if (c->own.status_message.p == NULL && str_eq_nocase(name, STR("grpc-message")))
        c->own.status_message = arena_dup(&c->own.arena, rpc_client_cut(value));
}

static void rpc_client_on_head(struct fetch *f)
{
    struct rpc_client_call *c = container_of(f, struct rpc_client_call, fetch);
    struct header h;
    for (void *at = NULL; fetch_next_header(f, &at, &h);)
        on_field(c, h.name, h.value);
}

static void rpc_client_on_trailer(struct fetch *f, struct header h)
{
    on_field(container_of(f, struct rpc_client_call, fetch), h.name, h.value);
}

static bool rpc_client_on_data(struct fetch *f, struct str data)
{
    rpc_frames_put(&container_of(f, struct rpc_client_call, fetch)->own.frames, data);
    return true;
}

/* ---- what it means ---- */

static int rpc_client_fail(struct rpc_client_call *c, int err, int code, struct str message)
{
    c->code = code;
    c->message = message;
    return err;
}

static int code_of_http(int status)
{
    switch (status) {
    case 400: return GRPC_INTERNAL;
    case 401: return GRPC_UNAUTHENTICATED;
    case 403: return GRPC_PERMISSION_DENIED;
    case 404: return GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504: return GRPC_UNAVAILABLE;
    default: return GRPC_UNKNOWN;
    }
}

/* A broken escape leaves the message as it came. */
static int fail_as_told(struct rpc_client_call *c, uint64_t code)
{
    struct str text = c->own.status_message;
    if (url_decode(&c->own.arena, c->own.status_message, false, &text) != 0)
        text = c->own.status_message;
    c->told = true;
    return rpc_client_fail(c, ERR_UPSTREAM, code <= GRPC_UNAUTHENTICATED ? (int)code : GRPC_UNKNOWN,
                           text);
}

static int rpc_client_take_message(struct rpc_client_call *c)
{
    rpc_frames_end(&c->own.frames);
    switch (rpc_frames_next(&c->own.frames, &c->answer)) {
    case RPC_FRAME_MESSAGE: return 0;
    case RPC_FRAME_TOO_LONG:
        return rpc_client_fail(c, ERR_TOO_LARGE, GRPC_RESOURCE_EXHAUSTED,
                               STR("the answer is too large"));
    default:
        return rpc_client_fail(c, ERR_UPSTREAM, GRPC_INTERNAL,
                               STR("the answer is not one message"));
    }
}

static bool speaks_grpc(const struct fetch *f)
{
    return f->status == 200 && str_starts(f->content_type, STR("application/grpc"));
}

/* A status that is missing is taken for a good one, as the callers of these servers do; what must
 * be there in any case is the message. */
static int rpc_client_judge(struct rpc_client_call *c)
{
    uint64_t code = 0;
    if (c->own.status.p != NULL && num_parse(c->own.status, UINT32_MAX, &code) != 0)
        return rpc_client_fail(c, ERR_UPSTREAM, GRPC_UNKNOWN,
                               STR("the answer's grpc-status is no number"));
    if (code != 0)
        return fail_as_told(c, code);
    if (!speaks_grpc(&c->fetch))
        return rpc_client_fail(
            c, ERR_UPSTREAM, code_of_http(c->fetch.status),
            arena_printf(&c->own.arena, "the answer is not gRPC: HTTP status %d", c->fetch.status));
    return rpc_client_take_message(c);
}

/* done() may start it anew: what it owned by then is another's. */
static void rpc_client_on_fetched(struct fetch *f, int err)
{
    struct rpc_client_call *c = container_of(f, struct rpc_client_call, fetch);
    if (err == 0)
        err = rpc_client_judge(c);
    else
        rpc_client_fail(c, err, err_grpc_status(err), str_of_cstr(fetch_cause_text(f->cause)));
    c->stranger = f->cause == FETCH_STRANGER;
    struct rpc_owned mine = c->own;
    c->own = (struct rpc_owned){0};
    c->done(c, err);
    rpc_client_forget(&mine);
}

/* ---- what goes ---- */

static void rpc_client_make_headers(struct rpc_client_call *c)
{
    static const struct header own[] = {
        {STR_INIT("Content-Type"), STR_INIT("application/grpc")},
        {STR_INIT("TE"), STR_INIT("trailers")},
    };
    size_t n = sizeof own / sizeof *own;
    struct header *all = arena_alloc(&c->own.arena, (n + c->n_headers) * sizeof *all);
    memcpy(all, own, sizeof own);
    if (c->n_headers > 0)
        memcpy(all + n, c->headers, c->n_headers * sizeof *all);
    c->fetch.headers = all;
    c->fetch.n_headers = n + c->n_headers;
}

static void put_envelope(struct rpc_client_call *c)
{
    rpc_envelope(buf_reserve(&c->own.body, RPC_ENVELOPE + c->request.n), 0, c->request.n);
    c->own.body.n = RPC_ENVELOPE;
    buf_put(&c->own.body, c->request);
}

void rpc_client_start(struct fetcher *f, struct rpc_client_call *c)
{
    must(!rpc_client_busy(c));
    c->answer = c->message = STR_NONE;
    c->code = 0;
    c->told = c->stranger = false;
    put_envelope(c);
    rpc_frames_init(&c->own.frames, c->max_answer, RPC_FRAMES_ONE, false);
    c->fetch = (struct fetch){
        .url = arena_printf(&c->own.arena, "%.*s%.*s", (int)c->target.n, c->target.p,
                            (int)c->method.n, c->method.p),
        .method = STR("POST"),
        .body = buf_str(&c->own.body),
        .policy = c->policy,
        .check_peer = c->check_peer,
        .peer_uid = c->peer_uid,
        .version = FETCH_HTTP2,
        .connect_timeout_ms = c->timeout_ms,
        .total_timeout_ms = c->timeout_ms,
        .max_answer = RPC_ENVELOPE + c->max_answer,
        .on_head = rpc_client_on_head,
        .on_trailer = rpc_client_on_trailer,
        .on_data = rpc_client_on_data,
        .done = rpc_client_on_fetched,
    };
    rpc_client_make_headers(c);
    fetch_start(f, &c->fetch);
}

void rpc_client_cancel(struct rpc_client_call *c)
{
    if (!rpc_client_busy(c))
        return;
    fetch_cancel(&c->fetch);
    rpc_client_forget(&c->own);
}
