// SPDX-License-Identifier: Apache-2.0
/* One message of the uplink in a call of its own. It waits for its downlink, for those before it,
 * for room in the session, and then until its message is durable. */
#include "base/arena.h"
#include "base/mem.h"
#include "http/exchange.h"
#include "http/limits.h"
#include "http/rpc.h"
#include "feature/sessions/sessions_http_core.h"

#include <stdlib.h>

static void append_free(struct session_append_call *a)
{
    timer_stop(&a->early);
    list_remove(&a->link);
    buf_deinit(&a->data);
    free(a);
}

/* ---- waiting ---- */

static void release_data(struct session_append_call *a)
{
    struct channel *ch = a->channel;
    ch->n_waiting--;
    ch->waiting_bytes -= a->data.n;
    ch->surface->waiting_bytes -= a->data.n;
    buf_deinit(&a->data);
    a->data = (struct buf){0};
}

void append_is_due(struct session_append_call *a)
{
    if (a->state != APPEND_EARLY)
        return;
    a->state = APPEND_WAITING;
    timer_stop(&a->early);
    a->surface->n_early--;
}

/* It waits no more, for whatever reason. */
static void stop_waiting(struct session_append_call *a)
{
    append_is_due(a);
    if (a->state == APPEND_WAITING)
        release_data(a);
}

void append_delivered(struct session_append_call *a, uint64_t ordinal)
{
    if (a->rpc != NULL)
        limits_count_bytes(rpc_exchange(a->rpc), a->data.n);
    stop_waiting(a);
    a->state = APPEND_DELIVERED;
    a->ordinal = ordinal;
    if (a->rpc != NULL)
        list_push(&a->channel->said, &a->link);
    else
        append_free(a);
}

void append_answer(struct session_append_call *a)
{
    rpc_reply(a->rpc, STR_NONE);
    append_free(a);
}

void append_end(struct session_append_call *a, const struct rpc_status *status)
{
    stop_waiting(a);
    if (a->rpc != NULL)
        rpc_end(a->rpc, status);
    append_free(a);
}

static void session_append_refuse(struct session_append_call *a, enum session_refusal why)
{
    struct session_status status;
    session_status_refusal(&status, why);
    append_end(a, &status.rpc);
    session_status_deinit(&status);
}

/* Out of its channel, which may be of no use without it. */
static void session_append_drop(struct session_append_call *a, enum session_refusal why)
{
    struct channel *ch = a->channel;
    session_window_put(&ch->window, a->number, NULL);
    session_append_refuse(a, why);
    channel_tidy(ch);
}

static void session_append_on_early(struct timer *t)
{
    session_append_drop(container_of(t, struct session_append_call, early), REFUSE_NO_DOWNLINK);
}

/* ---- coming in ---- */

/* Into its channel's window. */
static void wait_there(struct session_append_call *a, struct channel *ch, struct str data)
{
    struct session_append_call *before = session_window_put(&ch->window, a->number, a);
    if (before != NULL)
        session_append_refuse(before, REFUSE_SENT_AGAIN);
    buf_put(&a->data, data);
    a->channel = ch;
    ch->n_waiting++;
    ch->waiting_bytes += data.n;
    ch->surface->waiting_bytes += data.n;
    a->state = channel_is_attached(ch) ? APPEND_WAITING : APPEND_EARLY;
    if (a->state == APPEND_WAITING)
        return;
    a->surface->n_early++;
    sched_start(a->surface->sched, &a->early, CHANNEL_EARLY_MS);
}

/* What can be said at once takes no memory. */
static bool has_room(const struct channel *ch, uint64_t number, size_t n)
{
    const struct sessions_http *s = ch->surface;
    if (channel_is_attached(ch) && number == ch->window.next && session_room(&ch->client))
        return true;
    return s->waiting_bytes + n <= CHANNEL_WAITING_BYTES &&
           ch->waiting_bytes + n <= 2 * s->max_message &&
           (channel_is_attached(ch) || s->n_early < CHANNEL_EARLY_MAX);
}

static void arrive(struct session_append_call *a, struct channel *ch, struct str data)
{
    enum session_window_place place = session_window_place(&ch->window, a->number);
    if (data.n > a->surface->max_message)
        session_append_refuse(a, REFUSE_TOO_LARGE);
    else if (ch->state == CHANNEL_ENDED)
        session_append_refuse(a, REFUSE_ENDED);
    else if (place == WINDOW_STALE)
        append_answer(a);
    else if (place == WINDOW_AHEAD)
        session_append_refuse(a, REFUSE_AHEAD);
    else if (!channel_is_attached(ch) && exchange_draining(rpc_exchange(a->rpc)))
        session_append_refuse(a, REFUSE_DRAINING);
    else if (!has_room(ch, a->number, data.n))
        session_append_refuse(a, REFUSE_BUSY);
    else
        wait_there(a, ch, data);
    channel_deliver(ch);
    channel_tidy(ch);
}

static void session_append_on_message(struct rpc *r, struct str bytes)
{
    struct session_append_call *a = rpc_ctx(r);
    struct arena arena = {0};
    struct session_append append;
    if (!a->proves) {
        session_append_refuse(a, REFUSE_SECRET);
    } else if (session_append_read(&arena, bytes, &append) != 0 || append.request_id.n == 0 ||
               append.request_id.n > SESSION_REQUEST_ID_MAX) {
        session_append_refuse(a, REFUSE_APPEND);
    } else {
        struct channel *ch = channel_get(
            a->surface, &(struct channel_name){.service = a->service,
                                               .proof = a->proof,
                                               .request_id = append.request_id,
                                               .caller = rpc_exchange(r)->principal->id});
        a->number = (uint64_t)append.seqno;
        if (ch == NULL)
            session_append_refuse(a, REFUSE_BUSY);
        else
            arrive(a, ch, append.data);
    }
    arena_deinit(&arena);
}

/* A message that has come whole is said all the same; nobody is told. */
static void session_append_on_gone(struct rpc *r)
{
    struct session_append_call *a = rpc_ctx(r);
    a->rpc = NULL;
    if (a->state == APPEND_READING || a->state == APPEND_DELIVERED)
        append_free(a);
}

static void session_append_on_drain(struct rpc *r)
{
    struct session_append_call *a = rpc_ctx(r);
    if (a->state == APPEND_EARLY)
        session_append_drop(a, REFUSE_DRAINING);
}

static const struct rpc_ops append_ops = {.message = session_append_on_message,
                                          .gone = session_append_on_gone,
                                          .drain = session_append_on_drain,
                                          .fault = session_fault};

void session_append_begin(struct sessions_http *s, enum session_service service, struct exchange *x)
{
    struct session_headers nothing = {0}; /* its downlink has said which session it is */
    enum session_refusal why;
    struct session_append_call *a = mem_zalloc(sizeof *a);
    a->surface = s;
    a->service = service;
    timer_init(&a->early, session_append_on_early);
    list_init(&a->link);
    a->proves = session_proof_read(s, x->request, a->proof);
    session_headers_drop(x->request);
    /* Hex takes twice as much, and the rest of the message some. */
    a->rpc = rpc_new(x, &(struct rpc_setup){.sched = s->sched,
                                            .kind = RPC_UNARY,
                                            .max_message = 2 * s->max_message + APPEND_EXTRA,
                                            .ops = &append_ops,
                                            .ctx = a});
    if (a->rpc == NULL)
        append_free(a);
    else if (!session_headers_enter(x, &nothing, &why))
        session_append_refuse(a, why);
    else
        rpc_next(a->rpc);
}
