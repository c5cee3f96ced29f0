// SPDX-License-Identifier: Apache-2.0
/* session_client.c -- one client's connection to its session: a *visit*.
 *
 * A visit waits until the session is there, is admitted if its secret is right, and takes the place
 * of the one before it. What it is sent is pulled: welcome, then acknowledgements as they come up,
 * and the events behind its position, opened one by one. */
#include "base/err.h"
#include "base/mem.h"
#include "base/pack.h"
#include "engine/session_core.h"
#include "token/mac.h"

#include <stdlib.h>

struct session_visit {
    struct link link; /* among those who wait */
    struct session_client *client;
    struct session *session; /* NULL: over */
    struct sched *sched;
    struct task kick;
    uint64_t no;
    uint8_t secret[SESSION_SECRET_SIZE]; /* until it is admitted */
    enum session_service service;
    uint64_t position;
    bool admitted, welcomed, half_closed, aborted, over;
    struct buf early;              /* messages said before it was admitted */
    uint64_t said, heard, settled; /* messages; heard: not early any more */
    struct buf acks;               /* seqnos, uint32_t */
    size_t acks_at;
    struct visit_open *open; /* the read that finds its position, under way */
    struct subscriber subscriber;
    struct batch *batch; /* being sent */
    uint32_t slice;
    struct str rest;
    uint64_t ordinal;    /* of the next event */
    enum end_reason end; /* of the stream, when all of it has been sent */
    struct buf plain, message;
};

struct visit_open {
    struct store_read read;
    struct session *session;
    struct session_visit *visit; /* NULL: it has gone */
};

static bool has_record(struct session_visit *v);

/* What there is to read is read now and not only when it is pulled, which is late in a turn: so
 * acknowledgements and events of one turn leave together. */
static void on_kick(struct task *t)
{
    struct session_visit *v = container_of(t, struct session_visit, kick);
    struct session_client *c = v->client;
    if (v->session != NULL && v->admitted)
        has_record(v);
    c->ops->ready(c);
}

static void kick(struct session_visit *v)
{
    sched_post(v->sched, &v->kick);
}

/* ---- over ---- */

/* What was said early is the caller's now. */
static struct buf take_early(struct session_visit *v)
{
    struct buf early = v->early;
    v->early = (struct buf){0};
    v->session->all->said -= early.n;
    return early;
}

static void drop_early(struct session_visit *v)
{
    struct buf early = take_early(v);
    buf_deinit(&early);
}

static void forget_secret(struct session_visit *v)
{
    explicit_bzero(v->secret, sizeof v->secret);
}

/* It lets go of its session, but stays until its client has gone. */
static void leave(struct session_visit *v)
{
    struct session *s = v->session;
    if (s != NULL)
        drop_early(v);
    list_remove(&v->link);
    subscriber_deinit(&v->subscriber);
    batch_unref(v->batch);
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

static void over(struct session_visit *v, enum session_over why, int err)
{
    struct session_client *c = v->client;
    if (v->over)
        return;
    v->over = true;
    c->over = why;
    c->err = err;
    if (v->session != NULL && v->message.n == 0 && why == SESSION_ENDED)
        buf_put(&v->message, buf_str(&v->session->message));
    c->message = buf_str(&v->message);
    leave(v);
    kick(v);
}

static void over_gap(struct session_visit *v, uint64_t earliest, uint64_t latest)
{
    v->client->earliest = earliest;
    v->client->latest = latest;
    over(v, SESSION_GAP, ERR_GAP);
}

static void malformed(struct session_visit *v, const char *why)
{
    buf_put(&v->message, str_of_cstr(why));
    over(v, SESSION_MALFORMED, ERR_SYNTAX);
}

void session_visits_over(struct session *s, enum session_over why, int err)
{
    list_each_safe (l, &s->waiting)
        over(list_item(l, struct session_visit, link), why, err);
    if (s->visit != NULL)
        over(s->visit, why, err);
    session_settle(s);
}

/* ---- what the client says ---- */

/* While the store is full or slow, one message of every session would be more than there is memory.
 */
static bool is_too_much(const struct sessions *all, size_t n)
{
    return all->said > SESSION_SAID_MAX || n > SESSION_SAID_MAX - all->said;
}

static void busy(struct session_visit *v)
{
    buf_put(&v->message, STR("too much waits to be written; come back later"));
    over(v, SESSION_BUSY, ERR_BUSY);
}

static void hear_chunk(struct session_visit *v, const struct session_request *r)
{
    struct session *s = v->session;
    if (!r->has_seqno) {
        malformed(v, "a client_chunk needs a seqno (field 5)");
        return;
    }
    if (ranges_contains(&s->seen, r->seqno)) {
        session_put_again(s, r->seqno);
        return;
    }
    if (s->end != END_NONE || s->aborted)
        return; /* which it is about to be told */
    if (s->closed)
        malformed(v, "a new client_chunk came after close");
    else if (s->in.tail + s->in.pending + r->chunk.n > s->all->setup.max_bytes)
        malformed(v, "the session holds as many bytes as it may; begin another one");
    else if (is_too_much(s->all, r->chunk.n))
        busy(v);
    else if (ranges_add(&s->seen, r->seqno) < 0)
        malformed(v, "the seqnos have too many gaps; count them from 0 by one");
    else
        session_put_in(s, SESSION_RECORD_CHUNK, r->seqno, r->chunk);
}

static void hear_abort(struct session_visit *v)
{
    struct session *s = v->session;
    v->aborted = true;
    if (s->aborted || s->end != END_NONE)
        return;
    s->aborted = true;
    session_put_in(s, SESSION_RECORD_ABORT, 0, STR_NONE);
}

static void hear_close(struct session_visit *v)
{
    struct session *s = v->session;
    if (s->closed || s->aborted || s->end != END_NONE)
        return;
    s->closed = true;
    session_put_in(s, SESSION_RECORD_CLOSE, 0, STR_NONE);
}

static void hear(struct session_visit *v, struct str message)
{
    struct arena a = {0};
    struct session_request r;
    v->heard++;
    if (session_request_read(&a, message, &r) != 0)
        malformed(v, "a message is neither client_chunk nor abort nor close");
    else if (r.kind == SESSION_CHUNK)
        hear_chunk(v, &r);
    else if (r.kind == SESSION_ABORT)
        hear_abort(v);
    else
        hear_close(v);
    arena_deinit(&a);
}

static void settle_said(struct session_visit *v, uint64_t settled)
{
    if (settled <= v->settled)
        return;
    v->settled = settled;
    if (v->client->ops->settled != NULL)
        v->client->ops->settled(v->client);
}

void session_say(struct session_client *c, struct str message)
{
    struct session_visit *v = c->visit;
    struct session *s = v->session;
    v->said++;
    if (s == NULL)
        return;
    if (!v->admitted && is_too_much(s->all, message.n)) {
        busy(v);
        session_settle(s);
        return;
    }
    if (!v->admitted) {
        size_t before = v->early.n;
        pack_str(&v->early, message);
        s->all->said += v->early.n - before;
        return;
    }
    hear(v, message);
    if (v->session != NULL && list_empty(&s->in.queue))
        v->settled = v->said;
    session_settle(s); /* it may be over */
}

static void hear_early(struct session_visit *v)
{
    struct buf early = take_early(v);
    struct unpack u = {.rest = buf_str(&early)};
    while (u.rest.n > 0 && v->session != NULL)
        hear(v, unpack_str(&u));
    buf_deinit(&early);
}

static size_t n_acks(const struct session_visit *v)
{
    return (v->acks.n - v->acks_at) / sizeof(uint32_t);
}

bool session_room(const struct session_client *c)
{
    const struct session_visit *v = c->visit;
    return v->admitted && v->session != NULL && v->session->in.pending < SESSION_PENDING_MAX &&
           n_acks(v) < SESSION_ACKS_MAX;
}

uint64_t session_settled(const struct session_client *c)
{
    return c->visit->settled;
}

void session_half_close(struct session_client *c)
{
    c->visit->half_closed = true;
    kick(c->visit);
}

uint64_t session_visit_no(const struct session *s)
{
    return s->visit == NULL ? 0 : s->visit->no;
}

uint64_t session_said(const struct session *s)
{
    return s->visit == NULL ? 0 : s->visit->heard;
}

void session_tell_settled(struct session *s, uint64_t by, uint64_t said)
{
    struct session_visit *v = s->visit;
    if (v != NULL)
        settle_said(v, list_empty(&s->in.queue) ? v->said : v->no == by ? said : 0);
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

void session_tell_ack(struct session *s, uint32_t seqno)
{
    struct session_visit *v = s->visit;
    if (v == NULL)
        return;
    drop_taken_acks(v);
    buf_put(&v->acks, str_of((const char *)&seqno, sizeof seqno));
    kick(v);
}

void session_nudge(struct session *s)
{
    if (s->visit != NULL)
        kick(s->visit);
}

/* ---- being let in ---- */

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
            over(v, SESSION_WRONG_SECRET, ERR_DENIED);
    }
}

void session_refuse_positions(struct session *s)
{
    list_each_safe (l, &s->waiting) {
        struct session_visit *v = list_item(l, struct session_visit, link);
        if (v->position > 0)
            over(v, SESSION_UNKNOWN, ERR_NOT_FOUND);
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

static void on_ready(struct subscriber *subscriber)
{
    kick(container_of(subscriber, struct session_visit, subscriber));
}

static void begin_events(struct session_visit *v, struct store_read *r)
{
    struct session *s = v->session;
    v->ordinal = v->position;
    subscriber_init(&v->subscriber, s->home->feeds, s->out.name,
                    (struct offset){r->info.life, r->start}, on_ready);
    subscriber_prime(&v->subscriber, r);
    kick(v);
}

static void on_opened(struct store_read *r, int err)
{
    struct visit_open *o = container_of(r, struct visit_open, read);
    struct session *s = o->session;
    struct session_visit *v = o->visit;
    if (v != NULL)
        v->open = NULL;
    if (v != NULL && err == 0)
        begin_events(v, r);
    else if (v != NULL && err == ERR_GAP)
        over_gap(v, s->out.events + 1, s->out.events);
    else if (v != NULL)
        over(v, err == ERR_NOT_FOUND ? SESSION_EXPIRED : SESSION_FAILED, err);
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
                                  .max_bytes = BATCH_BYTES,
                                  .touch = true,
                                  .done = on_opened};
    v->open = o;
    session_hold(s);
    store_read(s->home->store, &o->read);
}

static void admit(struct session *s, struct session_visit *v)
{
    if (s->degraded) /* it began anew: what this one has seen is not of this session */
        v->position = 0;
    if (!secret_fits(s, v)) {
        over(v, SESSION_WRONG_SECRET, ERR_DENIED);
    } else if (v->service != s->doc.service) {
        malformed(v, "this idempotency key belongs to a session of the other service");
    } else if (v->position > s->out.events && v->position > s->shown) {
        over_gap(v, s->out.events > 0 ? 1 : 0, s->out.events);
    } else {
        take_keys(s, v);
        forget_secret(v);
        list_remove(&v->link);
        if (s->visit != NULL)
            over(s->visit, SESSION_REPLACED, 0);
        s->visit = v;
        v->admitted = true;
        open_events(v);
        hear_early(v);
        kick(v);
        session_pump(s);
        if (v->session != NULL && list_empty(&s->in.queue))
            settle_said(v, v->said); /* v may be gone behind it */
    }
}

void session_admit(struct session *s)
{
    while (s->state == SESSION_READY && !list_empty(&s->waiting))
        admit(s, list_item(s->waiting.next, struct session_visit, link));
    if (s->state == SESSION_READY) {
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
    task_init(&v->kick, on_kick);
    if (all->draining) {
        over(v, SESSION_DRAINING, 0);
        return;
    }
    struct session *s = session_summon(all, hello->key);
    v->session = s;
    list_push(&s->waiting, &v->link);
    session_settle(s);
    if (s->state == SESSION_READY)
        sched_post(v->sched, &s->admit);
    else if (s->load == NULL)
        session_load(s);
}

void session_disconnect(struct session_client *c)
{
    struct session_visit *v = c->visit;
    if (v == NULL)
        return;
    struct session *s = v->session;
    leave(v);
    task_cancel(&v->kick);
    buf_deinit(&v->acks);
    buf_deinit(&v->plain);
    buf_deinit(&v->message);
    free(v);
    c->visit = NULL;
    if (s != NULL)
        session_settle(s);
}

/* ---- what the client is sent ---- */

static void put_welcome(struct session_visit *v, struct buf *out)
{
    struct str text = v->position > 0 ? STR("welcome back") : STR("welcome");
    bool degraded = v->session->degraded;
    v->welcomed = true;
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
    if (n_acks(v) == SESSION_ACKS_MAX - 1)
        kick(v); /* there is room to speak again */
    if (v->acks_at == v->acks.n)
        v->acks_at = v->acks.n = 0;
    session_put_ack(out, seqno);
    return true;
}

static void subscriber_failed(struct session_visit *v)
{
    int err = v->subscriber.err;
    bool gone = err == ERR_GAP || err == ERR_NOT_FOUND || err == ERR_DELETED;
    over(v, gone ? SESSION_EXPIRED : SESSION_FAILED, err);
}

/* Makes v->rest begin with a record. False: there is none now. */
static bool has_record(struct session_visit *v)
{
    while (v->rest.n == 0) {
        if (v->batch != NULL && v->slice < v->batch->n_slices) {
            v->rest = v->batch->slices[v->slice++].bytes;
            continue;
        }
        if (v->batch != NULL && v->batch->next == v->batch->info.tail)
            v->end = v->batch->info.end;
        batch_unref(v->batch);
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

static bool take_event(struct session_visit *v, struct buf *out)
{
    struct session_record r;
    if (!has_record(v))
        return false;
    v->plain.n = 0;
    int err = session_record_cut(&v->rest, &r);
    if (err == 0)
        err = session_open(v->session->keys, SESSION_OUT, v->ordinal, &r, &v->plain);
    struct str content = buf_str(&v->plain);
    if (err == 0 && (content.n == 0 || content.n < 1 + (size_t)(uint8_t)content.p[0]))
        err = ERR_CORRUPT;
    if (err != 0) {
        over(v, SESSION_FAILED, err);
        return false;
    }
    v->ordinal++;
    if (v->session->shown < v->ordinal)
        v->session->shown = v->ordinal;
    session_put_event(out, str_skip(content, 1 + (size_t)(uint8_t)content.p[0]));
    session_buf_rest(&v->plain);
    return true;
}

static void conclude(struct session_visit *v)
{
    struct session *s = v->session;
    if (v->end != END_NONE) {
        v->client->end = v->end;
        v->client->aborted = v->aborted;
        over(v, SESSION_ENDED, 0);
    } else if (v->half_closed && s->end == END_NONE && v->ordinal == s->out.events &&
               session_is_answered(s)) {
        over(v, SESSION_IDLE, 0);
    }
}

enum session_next session_next(struct session_client *c, struct buf *out)
{
    struct session_visit *v = c->visit;
    struct session *s = v->session;
    if (s != NULL && v->admitted) {
        if (!v->welcomed) {
            put_welcome(v, out);
            return SESSION_NEXT_MESSAGE;
        }
        if (take_ack(v, out) || take_event(v, out))
            return SESSION_NEXT_MESSAGE;
        if (v->session != NULL)
            conclude(v);
        session_settle(s); /* it may be over */
    }
    return v->over ? SESSION_NEXT_OVER : SESSION_NEXT_WAIT;
}
