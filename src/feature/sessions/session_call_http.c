// SPDX-License-Identifier: Apache-2.0
/* A call that goes both ways: what the client sends is said to its session as long as there is room
 * there, and what the session has is pulled. */
#include "base/arena.h"
#include "base/mem.h"
#include "http/exchange.h"
#include "http/limits.h"
#include "http/rpc.h"
#include "feature/sessions/sessions_http_core.h"

#include <stdlib.h>

struct session_call {
    struct sessions_http *surface;
    struct rpc *rpc;
    enum session_service service;
    struct session_headers headers;
    struct session_client client;
    bool connected; /* otherwise the key is still awaited, in the first message */
    enum { CALL_PAUSED, CALL_ASKED, CALL_HALF_CLOSED } reading; /* asked: for the next message */
};

static struct session_call *call_of(struct session_client *c)
{
    return container_of(c, struct session_call, client);
}

static void session_call_leave(struct session_call *call)
{
    if (call->connected)
        session_disconnect(&call->client);
    session_headers_wipe(&call->headers);
    free(call);
}

static void session_call_refuse(struct session_call *call, enum session_refusal why)
{
    session_refuse(call->rpc, why);
    session_call_leave(call);
}

/* The last thing a caller does. */
static void session_call_read_on(struct session_call *call)
{
    if (call->reading != CALL_PAUSED || (call->connected && !session_room(&call->client)))
        return;
    call->reading = CALL_ASKED;
    rpc_next(call->rpc);
}

static void session_call_on_ready(struct session_client *c)
{
    struct session_call *call = call_of(c);
    rpc_wake(call->rpc);
    session_call_read_on(call);
}

static const struct session_client_ops client_ops = {.ready = session_call_on_ready};

static void connect_to(struct session_call *call)
{
    call->client = (struct session_client){.ops = &client_ops};
    call->connected = true;
    session_connect_headers(call->surface, &call->client, &call->headers, call->service);
    rpc_wake(call->rpc);
}

/* The key in the first message. false: it has been refused. */
static bool connect_by(struct session_call *call, struct str message)
{
    struct arena arena = {0};
    struct session_request request;
    struct session_headers *h = &call->headers;
    bool read = session_request_read(&arena, message, &request) == 0;
    enum session_refusal why = read ? REFUSE_KEY : REFUSE_FIRST_MESSAGE;
    bool valid = read && session_key_valid(request.key);
    if (valid) {
        memcpy(h->key, request.key.p, request.key.n);
        h->key_n = request.key.n;
        valid = session_headers_enter(rpc_exchange(call->rpc), h, &why);
    }
    arena_deinit(&arena);
    if (valid)
        connect_to(call);
    else
        session_call_refuse(call, why);
    return valid;
}

static void session_call_on_message(struct rpc *r, struct str bytes)
{
    struct session_call *call = rpc_ctx(r);
    call->reading = CALL_PAUSED;
    if (!call->connected && !connect_by(call, bytes))
        return;
    limits_count_bytes(rpc_exchange(r), bytes.n);
    session_receive(&call->client, bytes);
    session_call_read_on(call);
}

static void session_call_on_half_closed(struct rpc *r)
{
    struct session_call *call = rpc_ctx(r);
    call->reading = CALL_HALF_CLOSED;
    if (call->connected)
        session_half_close(&call->client);
    else
        session_call_refuse(call, REFUSE_KEY);
}

static void end_over(struct session_call *call)
{
    struct session_status status;
    session_status_over(&status, &call->client, call->headers.position);
    rpc_end(call->rpc, &status.rpc);
    session_status_deinit(&status);
    session_call_leave(call);
}

static enum pull session_call_on_pull(struct rpc *r)
{
    struct session_call *call = rpc_ctx(r);
    if (!call->connected)
        return PULL_WAIT;
    enum session_next next = session_pull(r, &call->client, session_put_rpc, r);
    if (next == SESSION_NEXT_OVER)
        end_over(call);
    return next == SESSION_NEXT_MESSAGE ? PULL_MORE : PULL_WAIT;
}

static void session_call_on_gone(struct rpc *r)
{
    session_call_leave(rpc_ctx(r));
}

/* The sessions tell their clients; who has none yet is told here. */
static void session_call_on_drain(struct rpc *r)
{
    struct session_call *call = rpc_ctx(r);
    if (!call->connected)
        session_call_refuse(call, REFUSE_DRAINING);
}

static const struct rpc_ops call_ops = {.message = session_call_on_message,
                                        .half_closed = session_call_on_half_closed,
                                        .pull = session_call_on_pull,
                                        .gone = session_call_on_gone,
                                        .drain = session_call_on_drain,
                                        .fault = session_fault};

void session_call_begin(struct sessions_http *s, enum session_service service, struct exchange *x)
{
    enum session_refusal why;
    struct session_call *call = mem_zalloc(sizeof *call);
    bool valid = session_headers_read(x->request, &call->headers, &why) &&
                 session_headers_enter(x, &call->headers, &why);
    call->surface = s;
    call->service = service;
    call->rpc = rpc_new(x, &(struct rpc_setup){.sched = s->sched,
                                               .kind = RPC_BIDI,
                                               .max_message = s->max_message,
                                               .ops = &call_ops,
                                               .ctx = call});
    if (call->rpc == NULL) {
        session_call_leave(call);
        return;
    }
    if (!valid) {
        session_call_refuse(call, why);
        return;
    }
    if (call->headers.key_n > 0)
        connect_to(call);
    session_call_read_on(call);
}
