// SPDX-License-Identifier: Apache-2.0
/* session_client.c -- a client comes to its session and goes: it waits until the session is there,
 * is admitted if its secret is right, and takes the place of the one before it. */
#include "base/err.h"
#include "base/mem.h"
#include "feature/sessions/session_visit.h"
#include "token/mac.h"

#include <stdlib.h>

struct visit_open {
    struct store_read read;
    struct session *session;
    struct session_visit *visit; /* NULL: it has gone */
};

/* What there is to read is read now and not only when it is pulled, which is late in a turn: so
 * acknowledgements and events of one turn leave together. */
static void session_client_on_wake(struct task *t)
{
    struct session_visit *v = container_of(t, struct session_visit, wake);
    struct session_client *c = v->client;
    struct session *s = v->session;
    if (session_visit_is_admitted(v)) {
        session_visit_read(v);
        session_settle(s); /* it may be over */
    }
    c->ops->ready(c);
}

void session_visit_wake(struct session_visit *v)
{
    sched_post(v->sched, &v->wake);
}

/* ---- over ---- */

static void drop_early(struct session_visit *v)
{
    struct buf early = session_visit_take_early(v);
    buf_deinit(&early);
}

static void forget_secret(struct session_visit *v)
{
    explicit_bzero(v->secret, sizeof v->secret);
}

/* It is detached from its session, but stays until its client has gone. */
static void session_client_leave(struct session_visit *v)
{
    struct session *s = v->session;
    if (s != NULL)
        drop_early(v);
    list_remove(&v->link);
    timer_stop(&v->late_timer);
    subscriber_deinit(&v->subscriber);
    event_batch_unref(v->batch);
    v->batch = NULL;
    v->rest = STR_NONE;
    if (v->open != NULL)
        v->open->visit = NULL;
    v->open = NULL;
    v->session = NULL;
    forget_secret(v);
    if (s != NULL && s->visit == v) {
        s->visit = NULL;
        s->left_ms = v->sched->now_ms;
    }
}

void session_visit_over(struct session_visit *v, enum session_over why, int err)
{
    struct session_client *c = v->client;
    if (v->state == VISIT_OVER)
        return;
    v->state = VISIT_OVER;
    c->over = why;
    c->err = err;
    if (v->session != NULL && v->message.n == 0 && why == SESSION_ENDED)
        buf_put(&v->message, buf_str(&v->session->message));
    c->message = buf_str(&v->message);
    session_client_leave(v);
    session_visit_wake(v);
}

static void over_gap(struct session_visit *v)
{
    uint64_t events = v->session->out.events;
    v->client->earliest = events > 0 ? 1 : 0;
    v->client->latest = events;
    session_visit_over(v, SESSION_GAP, ERR_GAP);
}

void session_visit_malformed(struct session_visit *v, const char *why)
{
    buf_put(&v->message, str_of_cstr(why));
    session_visit_over(v, SESSION_MALFORMED, ERR_SYNTAX);
}

void session_visits_over(struct session *s, enum session_over why, int err)
{
    list_each_safe (l, &s->waiting)
        session_visit_over(list_item(l, struct session_visit, link), why, err);
    if (s->visit != NULL)
        session_visit_over(s->visit, why, err);
    session_settle(s);
}

/* ---- admission ---- */

static bool secret_fits(const struct session *s, const struct session_visit *v)
{
    uint8_t check[SESSION_CHECK_SIZE];
    session_check(v->secret, s->doc.salt, check);
    bool fits = mac_equal(str_of((const char *)check, sizeof check),
                          str_of((const char *)s->doc.check, sizeof check));
    explicit_bzero(check, sizeof check);
    return fits;
}

static void take_keys(struct session *s, const struct session_visit *v)
{
    if (s->keys == NULL)
        s->keys = session_keys_new(v->secret, s->doc.salt, s->key);
}

void session_check_waiting(struct session *s)
{
    list_each_safe (l, &s->waiting) {
        struct session_visit *v = list_item(l, struct session_visit, link);
        if (secret_fits(s, v))
            take_keys(s, v);
        else
            session_visit_over(v, SESSION_WRONG_SECRET, ERR_DENIED);
    }
}

void session_refuse_positions(struct session *s)
{
    list_each_safe (l, &s->waiting) {
        struct session_visit *v = list_item(l, struct session_visit, link);
        if (v->position > 0)
            session_visit_over(v, SESSION_UNKNOWN, ERR_NOT_FOUND);
    }
}

const struct session_visit *session_waiting_first(const struct session *s)
{
    return list_item(s->waiting.next, struct session_visit, link);
}

const uint8_t *session_visit_secret(const struct session_visit *v)
{
    return v->secret;
}

enum session_service session_visit_service(const struct session_visit *v)
{
    return v->service;
}

static void session_client_on_ready(struct subscriber *subscriber)
{
    session_visit_wake(container_of(subscriber, struct session_visit, subscriber));
}

static void begin_events(struct session_visit *v, struct store_read *r)
{
    struct session *s = v->session;
    v->ordinal = v->position;
    subscriber_init(&v->subscriber, s->home->feeds, s->out.name,
                    (struct offset){r->info.life, r->start}, session_client_on_ready);
    subscriber_prime(&v->subscriber, r);
    session_visit_wake(v);
}

static void session_client_on_opened(struct store_read *r, int err)
{
    struct visit_open *o = container_of(r, struct visit_open, read);
    struct session *s = o->session;
    struct session_visit *v = o->visit;
    if (v != NULL)
        v->open = NULL;
    if (v != NULL && err == 0)
        begin_events(v, r);
    else if (v != NULL && err == ERR_GAP)
        over_gap(v);
    else if (v != NULL)
        session_visit_over(v, session_is_gone(err) ? SESSION_EXPIRED : SESSION_FAILED, err);
    if (err == 0)
        store_read_release(r);
    free(o);
    session_settle(s);
    session_release(s);
}

static void open_events(struct session_visit *v)
{
    struct session *s = v->session;
    struct visit_open *o = mem_zalloc(sizeof *o);
    o->session = s;
    o->visit = v;
    o->read = (struct store_read){.name = s->out.name,
                                  .from = READ_EVENT,
                                  .event = v->position,
                                  .max_bytes = EVENT_BATCH_BYTES,
                                  .touch = true,
                                  .done = session_client_on_opened};
    v->open = o;
    session_hold(s);
    store_read(s->home->store, &o->read);
}

static void admit(struct session *s, struct session_visit *v)
{
    if (session_is_degraded(s)) /* it began anew: what this one has seen is not of this session */
        v->position = 0;
    if (!secret_fits(s, v)) {
        session_visit_over(v, SESSION_WRONG_SECRET, ERR_DENIED);
    } else if (v->service != s->doc.service) {
        session_visit_malformed(v,
                                "this idempotency key belongs to a session of the other service");
    } else if (v->position > s->out.events && v->position > s->shown) {
        over_gap(v);
    } else {
        take_keys(s, v);
        forget_secret(v);
        list_remove(&v->link);
        if (s->visit != NULL)
            session_visit_over(s->visit, SESSION_REPLACED, 0);
        s->visit = v;
        v->state = VISIT_ADMITTED;
        v->late_chunk_due = s->out_state == SESSION_OUT_ENDED;
        open_events(v);
        session_visit_receive_early(v);
        session_visit_wake(v);
        session_pump(s);
        if (v->session != NULL && list_empty(&s->in.queue))
            session_visit_settled(v, v->said); /* v may be gone behind it */
    }
}

void session_admit(struct session *s)
{
    while (session_is_open(s) && !list_empty(&s->waiting))
        admit(s, list_item(s->waiting.next, struct session_visit, link));
    if (session_is_open(s)) {
        session_pump(s);
        session_settle(s);
    }
}

void session_connect(struct sessions *all, struct session_client *c,
                     const struct session_hello *hello)
{
    struct session_visit *v = mem_zalloc(sizeof *v);
    c->visit = v;
    v->client = c;
    v->sched = all->setup.sched;
    v->no = ++all->visits;
    v->service = hello->service;
    v->position = hello->position;
    memcpy(v->secret, hello->secret, sizeof v->secret);
    list_init(&v->link);
    task_init(&v->wake, session_client_on_wake);
    session_visit_init_next(v);
    if (all->phase != SESSIONS_OPEN) {
        session_visit_over(v, SESSION_DRAINING, 0);
        return;
    }
    struct session *s = session_find_or_create(all, hello->key);
    v->session = s;
    list_push(&s->waiting, &v->link);
    session_settle(s);
    if (session_is_open(s))
        session_own_admit(s);
    else if (s->state == SESSION_STATE_QUEUED)
        session_load(s);
}

void session_disconnect(struct session_client *c)
{
    struct session_visit *v = c->visit;
    if (v == NULL)
        return;
    struct session *s = v->session;
    session_client_leave(v);
    task_cancel(&v->wake);
    buf_deinit(&v->acks);
    buf_deinit(&v->plain);
    buf_deinit(&v->message);
    free(v);
    c->visit = NULL;
    if (s != NULL)
        session_settle(s);
}
