// SPDX-License-Identifier: Apache-2.0
/* session_next.c -- what a client is sent, as it is pulled: welcome, then acknowledgements as they
 * come up, and the events behind its position, opened one by one. */
#include "base/err.h"
#include "feature/sessions/session_visit.h"

size_t session_visit_acks(const struct session_visit *v)
{
    return (v->acks.n - v->acks_at) / sizeof(uint32_t);
}

static void put_welcome(struct session_visit *v, struct buf *out)
{
    struct str text = v->position > 0 ? STR("welcome back") : STR("welcome");
    bool degraded = session_is_degraded(v->session);
    v->state = VISIT_WELCOMED;
    session_put_welcome(
        out, degraded ? STR("welcome; this session is not kept and cannot be resumed") : text,
        degraded);
}

static bool take_ack(struct session_visit *v, struct buf *out)
{
    uint32_t seqno;
    if (v->acks_at == v->acks.n)
        return false;
    memcpy(&seqno, v->acks.p + v->acks_at, sizeof seqno);
    v->acks_at += sizeof seqno;
    if (session_visit_acks(v) == SESSION_ACKS_MAX - 1)
        session_visit_wake(v); /* there is room to speak again */
    if (v->acks_at == v->acks.n)
        v->acks_at = v->acks.n = 0;
    session_put_ack(out, seqno);
    return true;
}

static void subscriber_failed(struct session_visit *v)
{
    int err = v->subscriber.err;
    session_visit_over(v, session_is_gone(err) ? SESSION_EXPIRED : SESSION_FAILED, err);
}

/* Makes v->rest begin with a record. False: there is none now. */
bool session_visit_read(struct session_visit *v)
{
    while (v->rest.n == 0) {
        if (v->batch != NULL && v->slice < v->batch->n_slices) {
            v->rest = v->batch->slices[v->slice++].bytes;
            continue;
        }
        if (v->batch != NULL && v->batch->next == v->batch->info.tail)
            v->end = v->batch->info.end;
        event_batch_unref(v->batch);
        v->batch = NULL;
        v->slice = 0;
        if (v->end != END_NONE || v->subscriber.feed == NULL)
            return false;
        enum next next = subscriber_next(&v->subscriber, &v->batch);
        if (next == NEXT_FAILED)
            subscriber_failed(v);
        if (next != NEXT_BATCH) {
            v->batch = NULL;
            return false;
        }
    }
    return true;
}

static bool session_next_take_event(struct session_visit *v, struct buf *out)
{
    struct session_record r;
    if (!session_visit_read(v))
        return false;
    v->plain.n = 0;
    int err = session_record_cut(&v->rest, &r);
    if (err == 0)
        err = session_open(v->session->keys, SESSION_OUT, v->ordinal, &r, &v->plain);
    struct str content = buf_str(&v->plain);
    if (err == 0 && (content.n == 0 || content.n < 1 + (size_t)(uint8_t)content.p[0]))
        err = ERR_CORRUPT;
    if (err != 0) {
        session_visit_over(v, SESSION_FAILED, err);
        return false;
    }
    v->ordinal++;
    if (v->session->shown < v->ordinal)
        v->session->shown = v->ordinal;
    session_put_event(out, str_skip(content, 1 + (size_t)(uint8_t)content.p[0]));
    session_buf_rest(&v->plain);
    return true;
}

/* ---- the last word ----
 *
 * Whoever comes back to a session that has completed may be about to send another chunk. Told at
 * once that all is well it would never hear that the chunk was not taken. So it is waited for, if
 * it has not said that it sends no more. */

#define LATE_CHUNK_MS 2000

static void session_next_on_late_timer(struct timer *t)
{
    struct session_visit *v = container_of(t, struct session_visit, late_timer);
    v->late_chunk_due = false;
    session_visit_wake(v);
}

void session_visit_init_next(struct session_visit *v)
{
    timer_init(&v->late_timer, session_next_on_late_timer);
}

void session_visit_active(struct session_visit *v)
{
    if (!timer_running(&v->late_timer))
        return;
    timer_stop(&v->late_timer);
    session_visit_wake(v);
}

static bool may_speak(struct session_visit *v)
{
    if (!v->late_chunk_due || v->half_closed || v->said_last != VISIT_SAYS_MORE)
        return false;
    if (!timer_running(&v->late_timer))
        sched_start(v->sched, &v->late_timer, LATE_CHUNK_MS);
    return true;
}

static void session_next_conclude(struct session_visit *v)
{
    struct session *s = v->session;
    if (v->end == END_COMPLETED && v->late > 0) {
        session_visit_late(v);
    } else if (v->end == END_COMPLETED && may_speak(v)) {
        return;
    } else if (v->end != END_NONE) {
        v->client->end = v->end;
        v->client->aborted = v->said_last == VISIT_SAID_ABORT;
        session_visit_over(v, SESSION_ENDED, 0);
    } else if (v->half_closed && s->out_state != SESSION_OUT_ENDED && v->ordinal == s->out.events &&
               session_is_answered(s)) {
        session_visit_over(v, SESSION_IDLE, 0);
    }
}

enum session_next session_next(struct session_client *c, struct buf *out)
{
    struct session_visit *v = c->visit;
    struct session *s = v->session;
    if (session_visit_is_admitted(v)) {
        if (v->state == VISIT_ADMITTED) {
            put_welcome(v, out);
            return SESSION_NEXT_MESSAGE;
        }
        if (take_ack(v, out))
            return SESSION_NEXT_MESSAGE;
        if (session_next_take_event(v, out)) {
            c->given++;
            return SESSION_NEXT_MESSAGE;
        }
        if (v->session != NULL)
            session_next_conclude(v);
        session_settle(s); /* it may be over */
    }
    return v->state == VISIT_OVER ? SESSION_NEXT_OVER : SESSION_NEXT_WAIT;
}
