// SPDX-License-Identifier: Apache-2.0
/* Lifetime of a struct rpc. It is counted: one reference belongs to the exchange (`attached`) until
 * the response is complete or the peer is gone, and each function of this file that calls out and
 * goes on afterwards has one of its own. `over` is the caller's view: it has ended the call, or has
 * been told that it is gone, and nothing of its is called any more; what is left to send is sent
 * without it. The exchange is held as long as the call is there. */
#include "http/rpc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/num.h"
#include "base/sched.h"
#include "http/http.h"
#include "http/rpc_frame.h"
#include "http/rpc_head.h"
#include "http/rpc_status.h"

#include <stdlib.h>

struct rpc {
    struct exchange *x;
    struct sched *sched;
    const struct rpc_ops *ops;
    void *ctx;
    struct rpc_head head;
    struct rpc_frames in;
    size_t charged;       /* of the server's budget for bodies in memory */
    struct timer timeout; /* the call's deadline */
    struct task turn;     /* begins the response, or has it pulled */
    struct buf last;      /* ending: goes out behind all that was put */
    uint32_t refs;
    uint8_t kind;
    bool attached;
    bool over;
    bool ending;  /* over, and how is known: the next pull ends the response */
    bool begun;   /* the response's head is out, and its body is pulled */
    bool wanted;  /* rpc_next has not been answered */
    bool asked;   /* exchange_want has not been answered */
    bool pumping; /* messages are being taken: a call of rpc_next leaves it to that */
    bool pulling; /* within the caller's pull */
    bool read;    /* no more messages: rpc_next is not called again */
};

static void rpc_ref(struct rpc *r)
{
    r->refs++;
}

/* What has come of messages counts as a body in memory. */
static void charge(struct rpc *r)
{
    size_t now = rpc_frames_bytes(&r->in);
    r->x->http->inflight_bytes += now;
    r->x->http->inflight_bytes -= r->charged;
    r->charged = now;
}

static void drop_input(struct rpc *r)
{
    rpc_frames_deinit(&r->in);
    charge(r);
}

static void rpc_unref(struct rpc *r)
{
    must(r->refs > 0);
    if (--r->refs > 0)
        return;
    struct exchange *x = r->x;
    drop_input(r);
    buf_deinit(&r->last);
    free(r);
    exchange_release(x);
}

/* The exchange will call no more. */
static void rpc_detach(struct rpc *r)
{
    if (!r->attached)
        return;
    r->attached = false;
    rpc_unref(r);
}

static void set_over(struct rpc *r)
{
    r->over = true;
    timer_stop(&r->timeout);
    task_cancel(&r->turn);
    if (!r->pumping) /* else the message under way is still lent */
        drop_input(r);
}

/* ---- heads and ends of responses ---- */

static void rpc_put_head(struct exchange *x, const struct rpc_head *h)
{
    exchange_header(x, STR("Content-Type"), h->content_type);
    exchange_header(x, rpc_head_accept_encoding(h->protocol),
                    h->protocol == RPC_GRPC ? STR("identity,gzip") : STR("gzip"));
    if (h->protocol == RPC_CONNECT_STREAM) /* proxies must not hold it back */
        exchange_header(x, STR("X-Accel-Buffering"), STR("no"));
}

/* Trailers, or headers of a response that has nothing else. */
static void put_grpc_status(struct exchange *x, const struct rpc_status *status)
{
    struct buf text = {0};
    exchange_header_u64(x, STR("grpc-status"), (uint64_t)status->code);
    if (status->message.n > 0) {
        rpc_put_percent(&text, status->message);
        exchange_header(x, STR("grpc-message"), arena_dup(&x->arena, buf_str(&text)));
    }
    if (status->n_details > 0) {
        text.n = 0;
        rpc_put_details(&text, status);
        exchange_header(x, STR("grpc-status-details-bin"), arena_dup(&x->arena, buf_str(&text)));
    }
    buf_deinit(&text);
}

/* The whole response of a call that has sent nothing. */
static void send_status(struct exchange *x, const struct rpc_head *h,
                        const struct rpc_status *status)
{
    struct rpc_head as = *h;
    struct buf body = {0};
    switch (h->protocol) {
    case RPC_CONNECT_UNARY:
        as.content_type = STR("application/json");
        exchange_status(x, err_grpc_http(status->code));
        rpc_put_error(&body, status);
        break;
    case RPC_CONNECT_STREAM: rpc_put_end_stream(&body, status); break;
    case RPC_GRPC: put_grpc_status(x, status); break;
    }
    rpc_put_head(x, &as);
    exchange_send(x, buf_str(&body));
    buf_deinit(&body);
}

/* The status behind what was put; then the response is complete. */
static void end_stream(struct rpc *r, const struct rpc_status *status)
{
    if (r->head.protocol == RPC_GRPC)
        put_grpc_status(r->x, status); /* the head is out: these are trailers */
    else
        rpc_put_end_stream(&r->last, status);
    r->ending = true;
    exchange_wake(r->x);
}

/* The call is over for the caller, and the peer is told how it ended. */
static void rpc_finish(struct rpc *r, const struct rpc_status *status)
{
    rpc_ref(r);
    set_over(r);
    if (r->begun) {
        end_stream(r, status);
    } else {
        send_status(r->x, &r->head, status);
        rpc_detach(r);
    }
    rpc_unref(r);
}

/* Ends a call that cannot go on, not of the caller's will. */
static void fail_with(struct rpc *r, const struct rpc_status *status)
{
    rpc_ref(r);
    rpc_finish(r, status);
    r->ops->gone(r);
    rpc_unref(r);
}

static void rpc_fail(struct rpc *r, int code, struct str why)
{
    fail_with(r, &(struct rpc_status){.code = code, .message = why});
}

/* ---- the response ---- */

/* Nobody needs the request any more, once its body has been read. */
static void forget_request(struct rpc *r)
{
    struct exchange *x = r->x;
    if (r->begun && x->body_done && x->on_body == NULL)
        exchange_forget_request(x);
}

static void rpc_begin(struct rpc *r)
{
    rpc_ref(r);
    r->begun = true;
    rpc_put_head(r->x, &r->head);
    exchange_stream(r->x);
    forget_request(r);
    rpc_unref(r);
}

static void rpc_on_turn(struct task *t)
{
    struct rpc *r = container_of(t, struct rpc, turn);
    if (r->begun)
        exchange_wake(r->x);
    else
        rpc_begin(r);
}

static enum pull rpc_conclude(struct rpc *r)
{
    if (r->last.n > 0) {
        struct block *b = block_of(buf_str(&r->last));
        exchange_put(r->x, slice_of(b, 0, b->n));
        block_unref(b);
    }
    rpc_detach(r);
    return PULL_END;
}

static enum pull rpc_on_pull(struct exchange *x)
{
    struct rpc *r = x->state;
    enum pull result = PULL_WAIT;
    rpc_ref(r);
    if (!r->over) {
        r->pulling = true;
        result = r->ops->pull(r);
        r->pulling = false;
        must(r->over || result != PULL_END);
    }
    if (r->ending && r->attached)
        result = rpc_conclude(r);
    else if (r->over)
        result = PULL_WAIT;
    rpc_unref(r);
    return result;
}

static void rpc_on_gone(struct exchange *x)
{
    struct rpc *r = x->state;
    rpc_ref(r);
    if (!r->over) {
        set_over(r);
        r->ops->gone(r);
    }
    rpc_detach(r);
    rpc_unref(r);
}

static void rpc_on_drain(struct exchange *x)
{
    struct rpc *r = x->state;
    if (!r->over && r->ops->drain != NULL)
        r->ops->drain(r);
}

static void rpc_on_revoke(struct exchange *x)
{
    struct rpc *r = x->state;
    if (!r->over)
        rpc_fail(r, GRPC_PERMISSION_DENIED, STR("the credential has expired or was revoked"));
}

static const struct exchange_ops exchange_ops = {
    .pull = rpc_on_pull, .gone = rpc_on_gone, .drain = rpc_on_drain, .revoke = rpc_on_revoke};

static void rpc_on_timeout(struct timer *t)
{
    rpc_fail(container_of(t, struct rpc, timeout), GRPC_DEADLINE_EXCEEDED,
             STR("the call's deadline has passed"));
}

/* ---- messages of the client ---- */

static struct str too_long(struct exchange *x, size_t max)
{
    return arena_printf(&x->arena, "a message is longer than %zu bytes", max);
}

static void fail_frame(struct rpc *r, enum rpc_frame what)
{
    static const struct {
        int code;
        struct str why;
    } faults[] = {
        [RPC_FRAME_FLAGS] = {GRPC_INVALID_ARGUMENT,
                             STR_INIT("an envelope has flags that mean nothing")},
        [RPC_FRAME_END_STREAM] = {GRPC_INVALID_ARGUMENT,
                                  STR_INIT("only a server sends an end-of-stream envelope")},
        [RPC_FRAME_UNANNOUNCED] = {GRPC_INTERNAL,
                                   STR_INIT("a message is compressed, and no header said how")},
        [RPC_FRAME_INFLATES] = {GRPC_RESOURCE_EXHAUSTED,
                                STR_INIT("a compressed message is too long when decompressed")},
        [RPC_FRAME_CORRUPT_GZIP] = {GRPC_INVALID_ARGUMENT,
                                    STR_INIT("a compressed message is no valid gzip")},
        [RPC_FRAME_CUT] = {GRPC_INVALID_ARGUMENT, STR_INIT("the request ended within a message")},
        [RPC_FRAME_COUNT] = {GRPC_UNIMPLEMENTED,
                             STR_INIT("this call takes one message, no more and no less")},
    };
    struct rpc_status status;
    if (what == RPC_FRAME_TOO_LONG)
        status = (struct rpc_status){.code = GRPC_RESOURCE_EXHAUSTED,
                                     .message = too_long(r->x, r->in.max)};
    else
        status = (struct rpc_status){.code = faults[what].code, .message = faults[what].why};
    if (r->ops->fault != NULL)
        r->ops->fault(&status, &r->x->arena);
    fail_with(r, &status);
}

static void rpc_give(struct rpc *r, struct str message)
{
    r->wanted = false;
    r->read = r->kind != RPC_BIDI;
    r->ops->message(r, message);
    if (!r->over && r->kind == RPC_SERVER_STREAM)
        sched_post(r->sched, &r->turn);
}

static void half_close(struct rpc *r)
{
    r->wanted = false;
    r->read = true;
    forget_request(r);
    r->ops->half_closed(r);
}

static void rpc_on_body(struct exchange *x, struct str data, bool end);

static void want_bytes(struct rpc *r)
{
    r->asked = true;
    exchange_want(r->x, rpc_on_body);
}

/* Takes messages as long as they are wanted and there. A loop, since a caller may want the next one
 * from within message(), and one piece of the body may hold thousands. */
static void pump(struct rpc *r)
{
    if (r->pumping)
        return;
    rpc_ref(r);
    r->pumping = true;
    while (r->wanted && !r->over && !r->asked) {
        struct str message;
        enum rpc_frame what = rpc_frames_next(&r->in, &message);
        if (what == RPC_FRAME_MESSAGE)
            rpc_give(r, message);
        else if (what == RPC_FRAME_MORE)
            want_bytes(r);
        else if (what == RPC_FRAME_END)
            half_close(r);
        else
            fail_frame(r, what);
    }
    r->pumping = false;
    if (r->over)
        drop_input(r);
    rpc_frames_trim(&r->in);
    charge(r);
    rpc_unref(r);
}

static void rpc_on_body(struct exchange *x, struct str data, bool end)
{
    struct rpc *r = x->state;
    r->asked = false;
    if (r->over)
        return;
    if (data.n > x->http->limits.inflight_bytes - x->http->inflight_bytes) {
        rpc_fail(r, GRPC_UNAVAILABLE, STR("too many request bodies are in memory; retry later"));
        return;
    }
    rpc_frames_put(&r->in, data);
    charge(r);
    if (end)
        rpc_frames_end(&r->in);
    pump(r);
}

/* ---- what callers do ---- */

static void rpc_refuse(struct exchange *x, enum rpc_kind kind, int status)
{
    switch (status) {
    case 405:
        exchange_header(x, STR("Allow"), STR("POST"));
        exchange_problem(x, status, STR("METHOD"), STR("calls are made with POST"));
        break;
    case 415:
        exchange_header(x, STR("Accept-Post"), rpc_head_types(kind));
        exchange_problem(x, status, STR("CONTENT_TYPE"),
                         STR("this call has none of the types that Accept-Post lists"));
        break;
    default: exchange_problem(x, status, STR("VERSION"), STR("this call needs HTTP/2"));
    }
}

static enum rpc_framing framing_of(const struct rpc_head *h, enum rpc_kind kind)
{
    if (h->protocol == RPC_CONNECT_UNARY)
        return RPC_FRAMES_BARE;
    return kind == RPC_BIDI ? RPC_FRAMES_MANY : RPC_FRAMES_ONE;
}

static struct rpc *call_new(struct exchange *x, const struct rpc_setup *setup,
                            const struct rpc_head *h)
{
    struct rpc *r = mem_alloc(sizeof *r);
    *r = (struct rpc){.x = x,
                      .sched = setup->sched,
                      .ops = setup->ops,
                      .ctx = setup->ctx,
                      .head = *h,
                      .kind = (uint8_t)setup->kind,
                      .refs = 1,
                      .attached = true};
    rpc_frames_init(&r->in, setup->max_message, framing_of(h, setup->kind), h->gzip);
    timer_init(&r->timeout, rpc_on_timeout);
    task_init(&r->turn, rpc_on_turn);
    exchange_hold(x);
    x->ops = &exchange_ops;
    x->state = r;
    return r;
}

struct rpc *rpc_new(struct exchange *x, const struct rpc_setup *setup)
{
    struct rpc_head head;
    struct rpc_status problem = {0};
    if (exchange_over(x))
        return NULL;
    int status = rpc_head_protocol(&head, x->request, setup->kind);
    if (status != 0) {
        rpc_refuse(x, setup->kind, status);
        return NULL;
    }
    problem.code = rpc_head_read(&head, x->request, &x->arena, &problem.message);
    /* What is said to be too much is not waited for. */
    if (problem.code == 0 && setup->kind != RPC_BIDI &&
        x->body_length > RPC_ENVELOPE + setup->max_message)
        problem = (struct rpc_status){.code = GRPC_RESOURCE_EXHAUSTED,
                                      .message = too_long(x, setup->max_message)};
    if (problem.code != 0) {
        if (setup->ops->fault != NULL)
            setup->ops->fault(&problem, &x->arena);
        send_status(x, &head, &problem);
        return NULL;
    }
    struct rpc *r = call_new(x, setup, &head);
    if (head.has_timeout)
        sched_start(r->sched, &r->timeout, head.timeout_ms);
    if (r->kind == RPC_BIDI)
        sched_post(r->sched, &r->turn);
    return r;
}

void *rpc_ctx(const struct rpc *r)
{
    return r->ctx;
}

struct exchange *rpc_exchange(const struct rpc *r)
{
    return r->x;
}

void rpc_next(struct rpc *r)
{
    if (r->over)
        return;
    must(!r->wanted && !r->read);
    r->wanted = true;
    pump(r);
}

void rpc_put(struct rpc *r, struct str bytes)
{
    must(bytes.n <= UINT32_MAX - RPC_ENVELOPE);
    if (r->over)
        return;
    must(r->pulling);
    struct block *b = block_new((uint32_t)(RPC_ENVELOPE + bytes.n));
    rpc_envelope(b->bytes, 0, bytes.n);
    if (bytes.n > 0)
        memcpy(b->bytes + RPC_ENVELOPE, bytes.p, bytes.n);
    b->n = b->cap;
    exchange_put(r->x, slice_of(b, 0, b->n));
    block_unref(b);
}

/* By way of a task: some transports pull at once, and a caller must not find itself in its own
 * pull, nor the call gone, when this returns. */
void rpc_wake(struct rpc *r)
{
    if (r->begun && !r->over)
        sched_post(r->sched, &r->turn);
}

static void reply_grpc(struct rpc *r, struct str bytes)
{
    char envelope[RPC_ENVELOPE];
    rpc_envelope(envelope, 0, bytes.n);
    buf_put(&r->last, str_of(envelope, sizeof envelope));
    buf_put(&r->last, bytes);
    rpc_begin(r);
    end_stream(r, &RPC_OK);
}

void rpc_reply(struct rpc *r, struct str bytes)
{
    must(r->kind == RPC_UNARY);
    if (r->over)
        return;
    rpc_ref(r);
    set_over(r);
    if (r->head.protocol == RPC_GRPC) {
        reply_grpc(r, bytes);
    } else {
        rpc_put_head(r->x, &r->head);
        exchange_send(r->x, bytes);
        rpc_detach(r);
    }
    rpc_unref(r);
}

void rpc_end(struct rpc *r, const struct rpc_status *status)
{
    if (r->over)
        return;
    must(r->kind != RPC_UNARY || status->code != 0);
    rpc_finish(r, status);
}
