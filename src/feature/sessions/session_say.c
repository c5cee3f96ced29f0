// SPDX-License-Identifier: Apache-2.0
/* session_say.c -- what a client says to its session. */
#include "base/err.h"
#include "base/pack.h"
#include "feature/sessions/session_visit.h"

struct buf session_visit_take_early(struct session_visit *v)
{
    struct buf early = v->early;
    v->early = (struct buf){0};
    v->session->all->said -= early.n;
    return early;
}

/* While the store is full or slow, one message of every session would be more than there is memory.
 */
static bool is_too_much(const struct sessions *all, size_t n)
{
    return all->said > SESSION_SAID_MAX || n > SESSION_SAID_MAX - all->said;
}

static void busy(struct session_visit *v)
{
    buf_put(&v->message, STR("too much waits to be written; come back later"));
    session_visit_over(v, SESSION_BUSY, ERR_BUSY);
}

void session_visit_late(struct session_visit *v)
{
    session_visit_malformed(v, v->session->closed
                                   ? "a new client_chunk came after close"
                                   : "a new client_chunk came after the end of the session");
}

/* It is told when it has had all that there is: session_next. */
static void mark_late(struct session_visit *v)
{
    if (v->late == 0)
        v->late = v->processed;
}

static void receive_chunk(struct session_visit *v, const struct session_request *r)
{
    struct session *s = v->session;
    if (!r->has_seqno) {
        session_visit_malformed(v, "a client_chunk needs a seqno (field 5)");
        return;
    }
    if (ranges_contains(&s->seen, r->seqno)) {
        session_put_again(s, r->seqno);
        return;
    }
    if (s->out_state == SESSION_OUT_ENDED || s->aborted)
        mark_late(v);
    else if (s->closed)
        session_visit_late(v);
    else if (s->in.bytes + s->in.pending + r->chunk.n > s->all->setup.max_bytes)
        session_visit_malformed(v, "the session holds as many bytes as it may; begin another one");
    else if (is_too_much(s->all, r->chunk.n))
        busy(v);
    else if (ranges_add(&s->seen, r->seqno) < 0)
        session_visit_malformed(v, "the seqnos have too many gaps; count them from 0 by one");
    else
        session_put_in(s, SESSION_RECORD_CHUNK, r->seqno, r->chunk);
}

static void receive_abort(struct session_visit *v)
{
    struct session *s = v->session;
    v->said_last = VISIT_SAID_ABORT;
    if (s->aborted || s->out_state == SESSION_OUT_ENDED)
        return;
    s->aborted = true;
    session_put_in(s, SESSION_RECORD_ABORT, 0, STR_NONE);
}

static void receive_close(struct session_visit *v)
{
    struct session *s = v->session;
    if (v->said_last == VISIT_SAYS_MORE)
        v->said_last = VISIT_SAID_CLOSE;
    if (s->closed || s->aborted || s->out_state == SESSION_OUT_ENDED)
        return;
    s->closed = true;
    session_put_in(s, SESSION_RECORD_CLOSE, 0, STR_NONE);
}

static void receive(struct session_visit *v, struct str message)
{
    struct arena a = {0};
    struct session_request r;
    v->processed++;
    session_visit_active(v);
    if (session_request_read(&a, message, &r) != 0)
        session_visit_malformed(v, "a message is neither client_chunk nor abort nor close");
    else if (r.kind == SESSION_CHUNK)
        receive_chunk(v, &r);
    else if (r.kind == SESSION_ABORT)
        receive_abort(v);
    else
        receive_close(v);
    arena_deinit(&a);
}

static uint64_t before_late(const struct session_visit *v, uint64_t settled)
{
    return v->late > 0 && settled >= v->late ? v->late - 1 : settled;
}

void session_visit_settled(struct session_visit *v, uint64_t settled)
{
    settled = before_late(v, settled);
    if (settled <= v->settled)
        return;
    v->settled = settled;
    if (v->client->ops->settled != NULL)
        v->client->ops->settled(v->client);
}

void session_receive(struct session_client *c, struct str message)
{
    struct session_visit *v = c->visit;
    struct session *s = v->session;
    v->said++;
    if (s == NULL)
        return;
    if (v->state == VISIT_WAITING && is_too_much(s->all, message.n)) {
        busy(v);
        session_settle(s);
        return;
    }
    if (v->state == VISIT_WAITING) {
        size_t before = v->early.n;
        pack_str(&v->early, message);
        s->all->said += v->early.n - before;
        return;
    }
    receive(v, message);
    if (v->session != NULL && list_empty(&s->in.queue))
        v->settled = before_late(v, v->said);
    session_settle(s); /* it may be over */
}

void session_visit_receive_early(struct session_visit *v)
{
    struct buf early = session_visit_take_early(v);
    struct unpack u = {.rest = buf_str(&early)};
    while (u.rest.n > 0 && v->session != NULL)
        receive(v, unpack_str(&u));
    buf_deinit(&early);
}

bool session_room(const struct session_client *c)
{
    const struct session_visit *v = c->visit;
    return session_visit_is_admitted(v) && v->session->in.pending < SESSION_PENDING_MAX &&
           session_visit_acks(v) < SESSION_ACKS_MAX;
}

uint64_t session_settled(const struct session_client *c)
{
    return c->visit->settled;
}

void session_half_close(struct session_client *c)
{
    c->visit->half_closed = true;
    session_visit_wake(c->visit);
}

uint64_t session_visit_no(const struct session *s)
{
    return s->visit == NULL ? 0 : s->visit->no;
}

uint64_t session_received(const struct session *s)
{
    return s->visit == NULL ? 0 : s->visit->processed;
}

void session_notify_settled(struct session *s, uint64_t by, uint64_t said)
{
    struct session_visit *v = s->visit;
    if (v != NULL)
        session_visit_settled(v, list_empty(&s->in.queue) ? v->said : v->no == by ? said : 0);
}

/* Those that were taken must not pile up before a client that never takes all. */
static void drop_taken_acks(struct session_visit *v)
{
    if (v->acks_at < v->acks.n / 2 || v->acks_at < SESSION_ACKS_MAX * sizeof(uint32_t))
        return;
    memmove(v->acks.p, v->acks.p + v->acks_at, v->acks.n - v->acks_at);
    v->acks.n -= v->acks_at;
    v->acks_at = 0;
}

void session_notify_ack(struct session *s, uint32_t seqno)
{
    struct session_visit *v = s->visit;
    if (v == NULL)
        return;
    drop_taken_acks(v);
    buf_put(&v->acks, str_of((const char *)&seqno, sizeof seqno));
    session_visit_wake(v);
}

void session_wake(struct session *s)
{
    if (s->visit != NULL)
        session_visit_wake(s->visit);
}
