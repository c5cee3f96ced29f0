// SPDX-License-Identifier: Apache-2.0
/* session_model.h -- clients of sessions who lose their connections and come back, a backend that
 * takes its time, and what must hold all the while:
 *
 *   - a chunk is acknowledged only when it is in the store, and is there once
 *   - chunks come to the backend in the order in which they got into the store, each once; only the
 *     first that is not answered for good may come again, and the backend is told how far it was
 *   - a client sees each event once, in order, with its MAC; an event's number never means another
 *   - what is answered is what the chunks ask for, from the first to the last
 *   - no nonce seals two records
 *   - nobody gets in with another secret
 *
 * The store is told of below the engine: its front (session_bench.h) reports each write. All is
 * drawn from one generator. To be included after cmocka.h. */
#ifndef MODEL_SESSION_MODEL_H
#define MODEL_SESSION_MODEL_H

#include "base/arena.h"
#include "base/map.h"
#include "base/sha256.h"
#include "feature/sessions/session_core.h"
#include "model/seeds.h"
#include "unit/feature/sessions/session_bench.h"

#define TALKS         3 /* at once */
#define CHUNKS_MAX    10
#define EVENTS_MAX_OF 3 /* events of an answer */
#define SEEN_MAX      (CHUNKS_MAX * EVENTS_MAX_OF * 40)
#define BIG_EVENT     (70 * 1024)

/* What a client wants to send, and what is known of it. */
struct talk_chunk {
    uint32_t seqno;
    char text[64];
    unsigned n_events;
    size_t event_bytes;
    bool has_ids; /* its events have names by which the backend goes on */
    bool fails;
    bool said, acked, stored;
    unsigned starts;
};

enum talk_end { WANTS_CLOSE, WANTS_HALF_CLOSE, WANTS_ABORT };

/* One idempotency key: its client, and what the store has of it. */
struct talk {
    struct session_model *m;
    char key[32];
    struct visitor now, old, thief;
    uint64_t seen;
    struct talk_chunk chunks[CHUNKS_MAX];
    size_t n_chunks, next_new; /* chunks from next_new on were never said */
    enum talk_end wants;
    size_t abort_at; /* with WANTS_ABORT: behind so many chunks */
    /* of this connection */
    uint64_t resend; /* chunks that were said before and go first */
    bool said_end;
    bool welcomed_once;
    enum end_reason end; /* as it was told; then somebody looks at all of it once more */
    bool finished;
    /* below the engine */
    size_t arrived[CHUNKS_MAX], n_arrived;
    uint64_t n_in;     /* records of `in` */
    struct buf moved;  /* uint64_t: which of them say that another process has it */
    uint64_t answered; /* chunks */
    /* the backend's */
    struct session_reply *reply;
    size_t job_chunk, job_event;
    bool job_waits;
    /* what was seen: the answer to which chunk, how far, and each event's hash */
    size_t at_chunk, at_event;
    struct talk_event {
        uint8_t mac[SESSION_MAC_SIZE], hash[SHA256_SIZE];
    } events[SEEN_MAX + 1]; /* by number */
};

struct session_model {
    struct rng rng;
    struct sched *sched;
    struct sessions *all;
    struct session_backend backend;
    struct facade *front;
    struct talk *talks[TALKS];
    unsigned serial;
    bool creates; /* the write that came last */
    bool harsh;   /* the store may fail: clients may be sent away, or degraded */
    bool shared;  /* by several processes: an older connection to another may win */
    bool (*is_off)(const struct session_model *m); /* nobody hears anything any more */
    struct map nonces;                             /* of struct nonce */
    struct arena arena;
    bool failed;
    char verdict[400];
    uint64_t n_acks, n_events, n_again, n_finished, n_replaced, n_dropped, n_degraded, n_failed,
        n_moved;
};

static void blame(struct session_model *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void blame(struct session_model *m, const char *fmt, ...)
{
    va_list args;
    if (m->failed)
        return;
    m->failed = true;
    va_start(args, fmt);
    vsnprintf(m->verdict, sizeof m->verdict, fmt, args);
    va_end(args);
}

static struct talk *talk_of(struct session_model *m, struct str key)
{
    for (size_t i = 0; i < TALKS; i++)
        if (m->talks[i] != NULL && str_eq(key, str_of_cstr(m->talks[i]->key)))
            return m->talks[i];
    return NULL;
}

static struct talk_chunk *chunk_of(struct talk *t, uint32_t seqno)
{
    for (size_t i = 0; i < t->n_chunks; i++)
        if (t->chunks[i].seqno == seqno)
            return &t->chunks[i];
    return NULL;
}

/* ---- below the engine ---- */

struct nonce {
    char bytes[12];
    uint8_t record[SHA256_SIZE]; /* its hash, with the stream's name */
};

/* A write that is tried again is the same; all else has a nonce of its own. */
static void note_nonce(struct session_model *m, struct str name, const struct session_record *r)
{
    struct buf all = {0};
    uint8_t digest[SHA256_SIZE];
    buf_put(&all, name);
    buf_put(&all, r->head);
    buf_put(&all, r->sealed);
    sha256(buf_str(&all), digest);
    buf_deinit(&all);
    struct nonce *n = map_get(&m->nonces, str_of(r->sealed.p, sizeof n->bytes));
    if (n != NULL && memcmp(n->record, digest, sizeof digest) != 0)
        blame(m, "%.*s: a nonce comes twice", (int)name.n, name.p);
    if (n != NULL)
        return;
    n = arena_alloc(&m->arena, sizeof *n);
    memcpy(n->bytes, r->sealed.p, sizeof n->bytes);
    memcpy(n->record, digest, sizeof digest);
    map_put(&m->nonces, str_of(n->bytes, sizeof n->bytes), n);
}

/* The key in `sessions/KEY/in`. */
static struct str key_in(struct str name, bool *is_in)
{
    size_t prefix = sizeof SESSION_PREFIX - 1, at = name.n;
    while (at > prefix && name.p[at - 1] != '/')
        at--;
    *is_in = name.p[at] == 'i';
    return str_of(name.p + prefix, at - 1 - prefix);
}

static void note_arrival(struct talk *t, const struct session_record *r)
{
    uint64_t ordinal = t->n_in++;
    if (r->type == SESSION_RECORD_MOVED) {
        buf_put(&t->moved, str_of((const char *)&ordinal, sizeof ordinal));
        t->m->n_moved++;
    }
    if (r->type != SESSION_RECORD_CHUNK)
        return;
    struct talk_chunk *c = chunk_of(t, (uint32_t)r->a);
    if (c == NULL || !c->said)
        blame(t->m, "%s: stored a chunk %" PRIu64 " that nobody said", t->key, r->a);
    else if (c->stored)
        blame(t->m, "%s: stored chunk %u twice", t->key, c->seqno);
    else
        t->arrived[t->n_arrived++] = (size_t)(c - t->chunks);
    if (c != NULL)
        c->stored = true;
}

static void on_asked(void *ctx, const struct store_write *w)
{
    struct session_model *m = ctx;
    struct str rest = w->data;
    struct session_record r;
    m->creates = w->create != NULL;
    while (rest.n > 0 && session_record_cut(&rest, &r) == 0)
        note_nonce(m, w->name, &r);
}

static uint64_t moved_before(const struct talk *t, uint64_t ordinal)
{
    uint64_t n = 0, at;
    for (size_t i = 0; i < t->moved.n; i += sizeof at) {
        memcpy(&at, t->moved.p + i, sizeof at);
        n += at < ordinal;
    }
    return n;
}

static void on_stored(void *ctx, const struct store_write *w, int err)
{
    struct session_model *m = ctx;
    bool is_in;
    struct talk *t = talk_of(m, key_in(w->name, &is_in));
    struct str rest = w->data;
    struct session_record r;
    struct session_doc doc;
    if (err != 0 || t == NULL || w->duplicate)
        return;
    while (is_in && rest.n > 0 && session_record_cut(&rest, &r) == 0)
        note_arrival(t, &r);
    if (w->n_docs > 0 && session_doc_read(w->docs[0].value, &doc) == 0)
        t->answered = doc.answered - moved_before(t, doc.answered);
}

/* ---- the backend ---- */

static void event_text(const struct talk_chunk *c, size_t i, struct buf *out)
{
    buf_printf(out, "%s#%zu", c->text, i);
    while (out->n < c->event_bytes)
        buf_putc(out, (char)('a' + out->n % 26));
}

static bool is_foreign(const struct session_reply *reply)
{
    return session_is_degraded(reply->session);
}

/* Which chunk, in the order of arrival, this is; it must be one that may come now. */
static void check_start(struct talk *t, const struct session_reply *reply)
{
    struct arena a = {0};
    struct str text = STR_NONE;
    size_t at = t->answered;
    int err = session_chunk_text(&a, reply->service, reply->chunk, &text);
    const struct talk_chunk *c = chunk_of(t, reply->seqno);
    if (err != 0 || c == NULL || !str_eq(text, str_of_cstr(c->text)))
        blame(t->m, "%s: the backend gets a chunk %u that nobody sent", t->key, reply->seqno);
    else if (at >= t->n_arrived || &t->chunks[t->arrived[at]] != c)
        blame(t->m, "%s: the backend gets chunk %u, but %zu of %zu are answered", t->key,
              reply->seqno, at, t->n_arrived);
    else if (c->starts == 0 && reply->begun)
        blame(t->m, "%s: chunk %u is said to have begun", t->key, reply->seqno);
    else if (t->at_chunk == at && t->at_event > 0 && !reply->begun)
        blame(t->m, "%s: events of chunk %u were seen, but it has not begun", t->key, reply->seqno);
    arena_deinit(&a);
}

/* Where an answer goes on that had begun: behind the event of that name, or from the start. */
static size_t resume_at(struct talk *t, const struct talk_chunk *c,
                        const struct session_reply *reply)
{
    if (!reply->begun || !c->has_ids)
        return 0;
    struct str prefix = str_of_cstr(c->text), id = reply->last_id;
    uint64_t i;
    if (!str_starts(id, prefix) || num_parse(str_skip(id, prefix.n + 1), c->n_events, &i) != 0 ||
        i >= c->n_events) {
        blame(t->m, "%s: %.*s is no event of chunk %u", t->key, (int)id.n, id.p, reply->seqno);
        return 0;
    }
    if (t->at_chunk == t->answered && i + 1 < t->at_event)
        blame(t->m, "%s: told to go on behind event %" PRIu64 ", but %zu were seen", t->key, i,
              t->at_event);
    return i + 1;
}

static void emit(struct talk *t)
{
    const struct talk_chunk *c = &t->chunks[t->job_chunk];
    struct buf text = {0}, id = {0};
    event_text(c, t->job_event, &text);
    if (c->has_ids)
        buf_printf(&id, "%s#%zu", c->text, t->job_event);
    int result = session_reply_event(t->reply, buf_str(&text), true, buf_str(&id));
    if (result < 0)
        blame(t->m, "%s: event refused: %d", t->key, result);
    t->job_waits = result == 0;
    t->job_event++;
    buf_deinit(&text);
    buf_deinit(&id);
}

static void end_job(struct talk *t)
{
    const struct talk_chunk *c = &t->chunks[t->job_chunk];
    struct session_reply *reply = t->reply;
    struct buf message = {0};
    buf_printf(&message, "failed: %s", c->text);
    t->reply = NULL;
    session_reply_end(reply, c->fails ? END_FAILED : END_COMPLETED,
                      c->fails ? buf_str(&message) : STR_NONE);
    buf_deinit(&message);
}

static void work(struct talk *t)
{
    if (t->reply == NULL || t->job_waits)
        return;
    if (t->job_event < t->chunks[t->job_chunk].n_events)
        emit(t);
    else
        end_job(t);
}

static void backend_start(void *ctx, struct session_reply *reply)
{
    struct session_model *m = ctx;
    struct talk *t = talk_of(m, reply->key);
    if (t == NULL || is_foreign(reply)) {
        session_reply_end(reply, END_COMPLETED, STR_NONE);
        return;
    }
    check_start(t, reply);
    struct talk_chunk *c = chunk_of(t, reply->seqno);
    if (t->reply != NULL)
        blame(m, "%s: a second job", t->key);
    if (m->failed)
        return;
    m->n_again += c->starts++ > 0;
    t->reply = reply;
    t->job_chunk = (size_t)(c - t->chunks);
    t->job_event = resume_at(t, c, reply);
    t->job_waits = false;
    if (rng_one_in(&m->rng, 3)) /* at once, or even all of it */
        for (uint64_t n = rng_between(&m->rng, 1, EVENTS_MAX_OF + 1); n > 0; n--)
            work(t);
}

static void backend_stop(void *ctx, struct session_reply *reply)
{
    struct talk *t = talk_of(ctx, reply->key);
    if (t != NULL && t->reply == reply)
        t->reply = NULL;
}

static void backend_room(void *ctx, struct session_reply *reply)
{
    struct talk *t = talk_of(ctx, reply->key);
    if (t == NULL || t->reply != reply || !t->job_waits)
        blame(ctx, "room for nobody");
    else
        t->job_waits = false;
}

/* ---- what a client is told ---- */

static bool hears(const struct talk *t, const struct visitor *v)
{
    return v == &t->now && !v->degraded;
}

static struct talk *talk_with(struct visitor *v)
{
    return container_of(v, struct talk, now);
}

static void on_acked(struct visitor *v, uint32_t seqno)
{
    struct talk *t = talk_with(v);
    if (!hears(t, v))
        return;
    struct talk_chunk *c = chunk_of(t, seqno);
    if (c == NULL || !c->said)
        blame(t->m, "%s: acknowledged %u, which was not said", t->key, seqno);
    else if (!c->stored)
        blame(t->m, "%s: acknowledged %u, which is not stored", t->key, seqno);
    else
        c->acked = true;
    t->m->n_acks++;
}

static struct talk_chunk *chunk_at(struct talk *t)
{
    return t->at_chunk < t->n_arrived ? &t->chunks[t->arrived[t->at_chunk]] : NULL;
}

/* The answer that is being seen is complete, or the next one that says anything begins. */
static void skip_answered(struct talk *t)
{
    const struct talk_chunk *c;
    while ((c = chunk_at(t)) != NULL && t->at_event == c->n_events) {
        t->at_chunk++;
        t->at_event = 0;
    }
}

static bool is_event(const struct talk_chunk *c, size_t i, struct str content)
{
    struct buf text = {0};
    event_text(c, i, &text);
    bool same = str_eq(buf_str(&text), content);
    buf_deinit(&text);
    return same;
}

/* An event that was not seen before: it goes on where the last one was, or begins an answer again
 * that has no names in it. */
static void follow(struct talk *t, uint64_t id, struct str content)
{
    const struct talk_chunk *c = chunk_at(t);
    bool begins_again = c != NULL && !c->has_ids && c->starts > 1 && is_event(c, 0, content);
    if (begins_again && t->at_event > 0) {
        t->at_event = 1;
        return;
    }
    skip_answered(t);
    c = chunk_at(t);
    if (c == NULL || !is_event(c, t->at_event, content))
        blame(t->m, "%s: event %" PRIu64 " is %.*s, but %s#%zu is expected", t->key, id,
              content.n < 40 ? (int)content.n : 40, content.p, c == NULL ? "nothing, not" : c->text,
              t->at_event);
    t->at_event++;
}

/* Seen before: it is the same. Otherwise it goes on from what was seen. */
static void on_told(struct visitor *v, uint64_t id, struct str content, struct str chunk)
{
    struct talk *t = talk_with(v);
    uint8_t hash[SHA256_SIZE];
    if (!hears(t, v) || t->m->failed)
        return;
    if (id > SEEN_MAX || id > t->seen + 1) {
        blame(t->m, "%s: event %" PRIu64 " behind %" PRIu64, t->key, id, t->seen);
        return;
    }
    sha256(chunk, hash);
    t->m->n_events++;
    if (id <= t->seen) {
        if (memcmp(hash, t->events[id].hash, sizeof hash) != 0)
            blame(t->m, "%s: event %" PRIu64 " is another than it was", t->key, id);
        return;
    }
    follow(t, id, content);
    t->seen = id;
    memcpy(t->events[id].hash, hash, sizeof hash);
    memcpy(t->events[id].mac, v->mac, sizeof v->mac);
}

static void on_wrong(struct visitor *v, const char *why)
{
    blame(talk_with(v)->m, "%s: %s", v->key, why);
}

/* ---- the client ---- */

static void draw_chunks(struct talk *t)
{
    struct rng *rng = &t->m->rng;
    uint32_t seqno = rng_one_in(rng, 5) ? (uint32_t)rng_next(rng) / 2 : 0;
    t->n_chunks = rng_between(rng, 0, CHUNKS_MAX);
    for (size_t i = 0; i < t->n_chunks; i++) {
        struct talk_chunk *c = &t->chunks[i];
        c->seqno = seqno;
        seqno += rng_one_in(rng, 6) ? (uint32_t)rng_between(rng, 2, 9) : 1;
        snprintf(c->text, sizeof c->text, "%s.%zu", t->key, i);
        c->n_events = (unsigned)rng_between(rng, 0, EVENTS_MAX_OF);
        c->event_bytes = rng_one_in(rng, 30) ? BIG_EVENT : 0;
        c->has_ids = rng_one_in(rng, 2);
        c->fails = rng_one_in(rng, 40);
    }
    uint64_t end = rng_below(rng, 10);
    t->wants = end == 0 ? WANTS_ABORT : end < 4 ? WANTS_HALF_CLOSE : WANTS_CLOSE;
    t->abort_at = rng_below(rng, t->n_chunks + 1);
}

static struct talk *talk_new(struct session_model *m)
{
    struct talk *t = mem_zalloc(sizeof *t);
    enum session_service service = rng_one_in(&m->rng, 2) ? SESSION_TIDEMARK : SESSION_AISERVER;
    t->m = m;
    snprintf(t->key, sizeof t->key, "k%u", ++m->serial);
    visitor_init(&t->now, &m->all, t->key, service, (uint8_t)m->serial);
    visitor_init(&t->old, &m->all, t->key, service, (uint8_t)m->serial);
    visitor_init(&t->thief, &m->all, t->key, service, (uint8_t)~m->serial);
    t->now.acked = on_acked;
    t->now.told = on_told;
    t->now.wrong = on_wrong;
    draw_chunks(t);
    return t;
}

static void talk_free(struct talk *t)
{
    if (t == NULL)
        return;
    visitor_deinit(&t->now);
    visitor_deinit(&t->old);
    visitor_deinit(&t->thief);
    buf_deinit(&t->moved);
    free(t);
}

static void talk_place(struct talk *t, struct visitor *v, uint64_t position)
{
    v->seen = position;
    memcpy(v->mac, t->events[position].mac, sizeof v->mac);
    visitor_connect_at(v, position);
}

/* Where it was; or further back, as a client is that keeps only what was worth keeping. */
static void talk_connect(struct talk *t)
{
    struct rng *rng = &t->m->rng;
    t->now.idle_hands = rng_one_in(rng, 4);
    t->resend = 0;
    t->said_end = false;
    talk_place(t, &t->now, rng_one_in(rng, 5) ? rng_below(rng, t->seen + 1) : t->seen);
}

/* A connection that its client knows nothing of any more, until it is overtaken. */
static void talk_replace(struct talk *t)
{
    t->old.idle_hands = true;
    talk_place(t, &t->old, t->seen);
    talk_connect(t);
    t->m->n_replaced++;
}

static void check_old(struct talk *t)
{
    enum session_over why = t->old.client.over;
    if (!t->old.here || visitor_take(&t->old) || !t->old.over)
        return;
    if (why != SESSION_REPLACED && why != SESSION_ENDED && why != SESSION_DRAINING &&
        !(why == SESSION_FAILED && t->m->harsh))
        blame(t->m, "%s: an old connection is over: %d", t->key, (int)why);
    visitor_disconnect(&t->old);
}

static void say_chunk(struct talk *t, size_t i)
{
    struct talk_chunk *c = &t->chunks[i];
    c->said = true;
    visitor_say(&t->now, c->seqno, str_of_cstr(c->text));
}

static void say_end(struct talk *t)
{
    t->said_end = true;
    if (t->wants == WANTS_ABORT)
        visitor_abort(&t->now);
    else if (t->wants == WANTS_HALF_CLOSE)
        session_half_close(&t->now.client);
    else
        visitor_close(&t->now);
}

/* What a client sends next: what was not acknowledged, then what is new, then that there is no
 * more. */
static void say_next(struct talk *t)
{
    struct rng *rng = &t->m->rng;
    while (t->resend < t->next_new && t->chunks[t->resend].acked && !rng_one_in(rng, 10))
        t->resend++;
    if (t->wants == WANTS_ABORT && t->next_new >= t->abort_at)
        say_end(t);
    else if (t->resend < t->next_new)
        say_chunk(t, t->resend++);
    else if (t->next_new < t->n_chunks)
        say_chunk(t, (t->resend++, t->next_new++));
    else
        say_end(t);
}

static void talk_speak(struct talk *t)
{
    struct rng *rng = &t->m->rng;
    if (!t->said_end && (session_room(&t->now.client) || rng_one_in(rng, 8)))
        say_next(t);
    else if (!t->said_end && t->next_new > 0 && rng_one_in(rng, 10))
        say_chunk(t, rng_below(rng, t->next_new));
}

/* ---- when a connection is over ---- */

static bool all_seen(struct talk *t)
{
    skip_answered(t);
    return t->at_chunk == t->n_arrived;
}

static void check_completed(struct talk *t)
{
    if (t->wants == WANTS_HALF_CLOSE)
        blame(t->m, "%s: has ended, but was not closed", t->key);
    if (t->n_arrived < t->n_chunks && t->wants != WANTS_ABORT)
        blame(t->m, "%s: has ended with %zu of %zu chunks", t->key, t->n_arrived, t->n_chunks);
    if (!all_seen(t))
        blame(t->m, "%s: has ended, but %zu of %zu answers were seen", t->key, t->at_chunk,
              t->n_arrived);
}

static void check_failed(struct talk *t)
{
    const struct talk_chunk *c = NULL;
    struct str message = t->now.client.message;
    for (size_t i = 0; i < t->n_chunks && c == NULL; i++) {
        struct str text = str_of_cstr(t->chunks[i].text);
        if (t->chunks[i].fails && message.n > 8 && str_eq(str_skip(message, 8), text))
            c = &t->chunks[i];
    }
    if (c == NULL || c->starts == 0)
        blame(t->m, "%s: failed with %.*s", t->key, (int)message.n, message.p);
}

static void check_ended(struct talk *t)
{
    switch (t->now.client.end) {
    case END_COMPLETED: check_completed(t); break;
    case END_FAILED: check_failed(t); break;
    case END_CANCELLED:
        if (t->wants != WANTS_ABORT)
            blame(t->m, "%s: was not aborted", t->key);
        break;
    default: blame(t->m, "%s: ended: %d", t->key, (int)t->now.client.end);
    }
    if (t->end != END_NONE) {
        t->finished = true;
        if (t->end != t->now.client.end || t->now.seen != t->seen)
            blame(t->m, "%s: ended twice, and not in the same way", t->key);
    }
    t->end = t->now.client.end;
}

static void check_idle(struct talk *t)
{
    if (t->wants != WANTS_HALF_CLOSE || !t->said_end)
        blame(t->m, "%s: idle, but its client did not say so", t->key);
    for (size_t i = 0; i < t->next_new; i++)
        if (!t->chunks[i].stored)
            blame(t->m, "%s: idle without chunk %u", t->key, t->chunks[i].seqno);
    if (!all_seen(t))
        blame(t->m, "%s: idle, but %zu of %zu answers were seen", t->key, t->at_chunk,
              t->n_arrived);
    t->wants = WANTS_CLOSE; /* the next time */
}

/* A degraded session does not know what was acknowledged elsewhere: what is said again is new to
 * it, even behind a close. Its client may not have had its welcome. Sessions run degraded after a
 * write has failed, and when the store is off, even if no session had anything to write. */
static bool may_be_degraded(const struct session_model *m)
{
    return m->all->failed || (m->is_off(m) && sessions_degraded(m->all) > 0);
}

static void talk_over(struct talk *t)
{
    struct session_model *m = t->m;
    enum session_over why = t->now.client.over;
    if (why == SESSION_ENDED)
        check_ended(t);
    else if (why == SESSION_IDLE)
        check_idle(t);
    else if ((why == SESSION_FAILED && m->harsh) ||
             (why == SESSION_MALFORMED && may_be_degraded(m)))
        m->n_failed++;
    else if (why != SESSION_DRAINING && !(why == SESSION_REPLACED && m->shared))
        blame(m, "%s: over: %d (%d), with %" PRIu64 " seen", t->key, (int)why, t->now.client.err,
              t->seen);
    visitor_disconnect(&t->now);
}

/* ---- life ---- */

static void check_thief(struct talk *t)
{
    if (t->thief.welcomed && !t->thief.degraded)
        blame(t->m, "%s: somebody got in with another secret", t->key);
}

static void intrude(struct talk *t)
{
    visitor_disconnect(&t->thief);
    if (!t->welcomed_once || t->m->is_off(t->m)) /* or it would be the thief's */
        return;
    visitor_connect_at(&t->thief, rng_below(&t->m->rng, t->seen + 2));
    visitor_abort(&t->thief);
}

static void talk_step(struct talk *t)
{
    struct session_model *m = t->m;
    struct rng *rng = &m->rng;
    struct visitor *v = &t->now;
    check_thief(t);
    if (rng_one_in(rng, 10))
        check_old(t);
    if (rng_one_in(rng, 40))
        intrude(t);
    if (v->here && v->idle_hands && rng_one_in(rng, 3))
        visitor_take(v);
    if (v->here && v->degraded) {
        if (!m->harsh)
            blame(m, "%s: degraded", t->key);
        m->n_degraded++;
        t->finished |= !m->is_off(m); /* it cannot be resumed */
        visitor_disconnect(v);
    }
    t->welcomed_once |= v->here && v->welcomed && !v->degraded;
    if (v->here && v->over)
        talk_over(t);
    if (!v->here && t->end != END_NONE && !t->finished)
        talk_place(t, v, 0); /* all of it once more */
    else if (!v->here && !t->finished && rng_one_in(rng, 5))
        talk_connect(t);
    else if (v->here && rng_one_in(rng, 60) && ++m->n_dropped > 0)
        visitor_disconnect(v);
    else if (v->here && rng_one_in(rng, 80))
        talk_replace(t);
    if (v->here && !v->over && rng_one_in(rng, 2))
        talk_speak(t);
    if (rng_one_in(rng, 3))
        work(t);
}

static void model_init(struct session_model *m, uint64_t seed, struct sched *sched)
{
    *m = (struct session_model){.rng = {seed}, .sched = sched};
    m->backend = (struct session_backend){backend_start, backend_stop, backend_room, m};
    map_init(&m->nonces);
}

/* The store under the engine: all that is written passes here. */
static void model_listen(struct session_model *m, struct facade *f)
{
    m->front = f;
    f->asked = on_asked;
    f->written = on_stored;
    f->ctx = m;
}

static void model_deinit(struct session_model *m)
{
    for (size_t i = 0; i < TALKS; i++)
        talk_free(m->talks[i]);
    map_deinit(&m->nonces);
    arena_deinit(&m->arena);
}

/* Everybody does something. begin: those who are done begin another talk. True: somebody is not
 * done. */
static bool model_step(struct session_model *m, bool begin)
{
    bool busy = false;
    for (size_t i = 0; i < TALKS && !m->failed; i++) {
        struct talk **t = &m->talks[i];
        if (*t != NULL && (*t)->finished && (*t)->reply == NULL && begin) {
            talk_free(*t);
            *t = NULL;
            m->n_finished++;
        }
        if (*t == NULL && begin)
            *t = talk_new(m);
        if (*t != NULL)
            talk_step(*t);
        busy |= *t != NULL && !(*t)->finished;
    }
    return busy;
}

#endif
