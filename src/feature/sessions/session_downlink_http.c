// SPDX-License-Identifier: Apache-2.0
/* The downlink where one call cannot go both ways: a stream that lasts as long as its connection,
 * or polls that each give what there is. */
#include "base/arena.h"
#include "base/mem.h"
#include "http/exchange.h"
#include "http/rpc.h"
#include "feature/sessions/sessions_http_core.h"

#include <stdlib.h>

#define BODY_MAX (64 * 1024) /* a request id, and what we do not know */

struct session_downlink {
    struct sessions_http *surface;
    enum session_service service;
    struct rpc *rpc;
    struct channel *channel; /* NULL: the message that names it has not come */
    struct session_headers headers;
    bool proves; /* it came with a secret, */
    uint8_t proof[SESSION_PROOF_SIZE];
    bool greets;              /* and the headers are as they must be */
    enum session_refusal why; /* otherwise */
    struct timer timeout;     /* a poll's */
};

static void downlink_free(struct session_downlink *d)
{
    timer_stop(&d->timeout);
    session_headers_wipe(&d->headers);
    free(d);
}

void downlink_wake(struct session_downlink *d)
{
    rpc_wake(d->rpc);
}

void downlink_end(struct session_downlink *d, const struct rpc_status *status)
{
    rpc_end(d->rpc, status);
    downlink_free(d);
}

static void session_downlink_refuse(struct session_downlink *d, enum session_refusal why)
{
    session_refuse(d->rpc, why);
    downlink_free(d);
}

static void session_downlink_on_timeout(struct timer *t);

static struct session_downlink *downlink_new(struct sessions_http *s, enum session_service service,
                                             struct exchange *x)
{
    struct session_downlink *d = mem_zalloc(sizeof *d);
    d->surface = s;
    d->service = service;
    d->proves = session_proof_read(s, x->request, d->proof);
    d->greets = session_headers_read(x->request, &d->headers, &d->why) &&
                session_headers_enter(x, &d->headers, &d->why);
    if (d->greets && d->headers.key_n == 0) {
        d->greets = false;
        d->why = REFUSE_KEY;
    }
    timer_init(&d->timeout, session_downlink_on_timeout);
    return d;
}

static void downlink_begin(struct sessions_http *s, enum session_service service,
                           struct exchange *x, const struct rpc_ops *ops)
{
    struct session_downlink *d = downlink_new(s, service, x);
    d->rpc = rpc_new(x, &(struct rpc_setup){.sched = s->sched,
                                            .kind = RPC_SERVER_STREAM,
                                            .max_message = BODY_MAX,
                                            .ops = ops,
                                            .ctx = d});
    if (d->rpc == NULL)
        downlink_free(d);
    else
        rpc_next(d->rpc);
}

static struct channel_name session_downlink_name_of(const struct session_downlink *d,
                                                    struct str request_id)
{
    return (struct channel_name){.service = d->service,
                                 .proof = d->proof,
                                 .request_id = request_id,
                                 .caller = rpc_exchange(d->rpc)->principal->id};
}

static bool is_request_id(struct str id)
{
    return id.n > 0 && id.n <= SESSION_REQUEST_ID_MAX;
}

static void session_downlink_on_drain(struct rpc *r)
{
    struct session_downlink *d = rpc_ctx(r);
    if (d->channel == NULL)
        session_downlink_refuse(d, REFUSE_DRAINING);
}

/* Begins the session's connection. false: it has been refused. */
static bool session_downlink_attach(struct session_downlink *d, struct str request_id,
                                    enum channel_state state)
{
    struct channel_name name = session_downlink_name_of(d, request_id);
    struct channel *ch = d->greets ? channel_get(d->surface, &name) : NULL;
    if (ch == NULL) {
        session_downlink_refuse(d, d->greets ? REFUSE_BUSY : d->why);
        return false;
    }
    d->channel = ch;
    channel_attach(ch, state, d, &d->headers, d->service);
    rpc_wake(d->rpc);
    return true;
}

static void put_poll(struct session_downlink *d, struct str message, bool eof)
{
    struct buf response = {0};
    session_put_poll(&response, (int64_t)++d->channel->polls_given, message, eof);
    rpc_put(d->rpc, buf_str(&response));
    buf_deinit(&response);
}

/* The session's connection is over. */
static void end_over(struct session_downlink *d)
{
    struct channel *ch = d->channel;
    struct session_status status, ended;
    session_status_over(&status, &ch->client, ch->position);
    session_status_refusal(&ended, REFUSE_ENDED);
    if (ch->state == CHANNEL_POLLED && status.rpc.code == 0)
        put_poll(d, STR_NONE, true);
    rpc_end(d->rpc, &status.rpc);
    bool over = ch->client.over == SESSION_ENDED;
    channel_detach(ch, over ? CHANNEL_ENDED : CHANNEL_LINGERING,
                   status.rpc.code == 0 ? &ended.rpc : &status.rpc);
    session_status_deinit(&ended);
    session_status_deinit(&status);
    downlink_free(d);
}

/* ---- a stream ---- */

static void session_downlink_on_stream_message(struct rpc *r, struct str bytes)
{
    struct session_downlink *d = rpc_ctx(r);
    struct arena arena = {0};
    struct str id;
    if (session_request_id_read(&arena, bytes, &id) == 0 && is_request_id(id))
        session_downlink_attach(d, id, CHANNEL_STREAMED);
    else
        session_downlink_refuse(d, REFUSE_REQUEST_ID);
    arena_deinit(&arena);
}

static enum pull session_downlink_on_stream_pull(struct rpc *r)
{
    struct session_downlink *d = rpc_ctx(r);
    if (d->channel == NULL)
        return PULL_WAIT;
    enum session_next next = session_pull(r, &d->channel->client, session_put_rpc, r);
    if (next == SESSION_NEXT_OVER)
        end_over(d);
    return next == SESSION_NEXT_MESSAGE ? PULL_MORE : PULL_WAIT;
}

static void session_downlink_on_stream_gone(struct rpc *r)
{
    struct session_downlink *d = rpc_ctx(r);
    if (d->channel != NULL)
        channel_drop(d->channel);
    downlink_free(d);
}

void session_stream_begin(struct sessions_http *s, enum session_service service, struct exchange *x)
{
    static const struct rpc_ops ops = {.message = session_downlink_on_stream_message,
                                       .pull = session_downlink_on_stream_pull,
                                       .gone = session_downlink_on_stream_gone,
                                       .drain = session_downlink_on_drain,
                                       .fault = session_fault};
    downlink_begin(s, service, x, &ops);
}

/* ---- polls ---- */

/* The poll is answered; the next one is expected. */
static void leave_channel(struct session_downlink *d)
{
    struct channel *ch = d->channel;
    ch->downlink = NULL;
    sched_start(ch->surface->sched, &ch->timer, CHANNEL_POLL_AWAY_MS);
}

static void finish_poll(struct session_downlink *d)
{
    leave_channel(d);
    downlink_end(d, &RPC_OK);
}

static void session_downlink_on_timeout(struct timer *t)
{
    finish_poll(container_of(t, struct session_downlink, timeout));
}

static void session_downlink_give_poll(void *downlink, struct str message)
{
    put_poll(downlink, message, false);
}

static enum pull session_downlink_on_poll_pull(struct rpc *r)
{
    struct session_downlink *d = rpc_ctx(r);
    if (d->channel == NULL)
        return PULL_WAIT;
    struct channel *ch = d->channel;
    uint64_t before = ch->polls_given;
    if (session_pull(r, &ch->client, session_downlink_give_poll, d) == SESSION_NEXT_OVER)
        end_over(d);
    else if (ch->polls_given > before)
        finish_poll(d);
    return PULL_WAIT;
}

static void session_downlink_on_poll_gone(struct rpc *r)
{
    struct session_downlink *d = rpc_ctx(r);
    if (d->channel != NULL)
        leave_channel(d);
    downlink_free(d);
}

/* Another poll of a downlink that is there. false: it has been refused. */
static bool session_downlink_resume(struct session_downlink *d, struct str request_id)
{
    struct channel_name name = session_downlink_name_of(d, request_id);
    struct channel *ch = d->proves ? channel_find(d->surface, &name) : NULL;
    if (ch == NULL || ch->state != CHANNEL_POLLED) {
        session_downlink_refuse(d, d->proves ? REFUSE_POLL_UNKNOWN : REFUSE_SECRET);
        return false;
    }
    if (ch->downlink != NULL)
        finish_poll(ch->downlink);
    timer_stop(&ch->timer);
    ch->downlink = d;
    d->channel = ch;
    session_headers_wipe(&d->headers);
    rpc_wake(d->rpc);
    return true;
}

static void session_downlink_on_poll_message(struct rpc *r, struct str bytes)
{
    struct session_downlink *d = rpc_ctx(r);
    struct arena arena = {0};
    struct session_poll poll;
    if (session_poll_read(&arena, bytes, &poll) != 0 || !is_request_id(poll.request_id))
        session_downlink_refuse(d, REFUSE_REQUEST_ID);
    else if (poll.start ? session_downlink_attach(d, poll.request_id, CHANNEL_POLLED)
                        : session_downlink_resume(d, poll.request_id))
        sched_start(d->surface->sched, &d->timeout, d->surface->long_poll_ms);
    arena_deinit(&arena);
}

void session_poll_begin(struct sessions_http *s, enum session_service service, struct exchange *x)
{
    static const struct rpc_ops ops = {.message = session_downlink_on_poll_message,
                                       .pull = session_downlink_on_poll_pull,
                                       .gone = session_downlink_on_poll_gone,
                                       .drain = session_downlink_on_drain,
                                       .fault = session_fault};
    downlink_begin(s, service, x, &ops);
}
