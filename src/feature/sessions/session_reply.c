// SPDX-License-Identifier: Apache-2.0
/* session_reply.c -- chunks given to the backend, one at a time in the order of `in`, and what it
 * answers.
 *
 * How far the backend has got is in the document (`answered`), written together with the last
 * events of an answer. A crash in between leaves an answer that has begun: the backend is asked
 * again under the same name, and told how much of it there is.
 *
 *     NONE    --what is next has just been written---> ACTIVE
 *     NONE    --what is next was written before------> READING --read--> NONE, then ACTIVE
 *     ACTIVE  --too much waits to be written---------> FULL --there is room--> ACTIVE
 *     ACTIVE, FULL  --answered, failed, stopped------> NONE
 *
 * What needs no answer, such as the record of a close, leads from NONE to NONE. */
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/utf8.h"
#include "feature/sessions/session_core.h"

static bool session_is_replying(const struct session *s)
{
    return s->reply_state == SESSION_REPLY_ACTIVE || s->reply_state == SESSION_REPLY_FULL;
}

static struct session *session_of(struct session_reply *reply)
{
    struct session *s = reply->session;
    must(session_is_replying(s));
    return s;
}

bool session_is_answered(const struct session *s)
{
    return s->all->setup.backend != NULL && !session_is_replying(s) && s->next == s->in_queued &&
           list_empty(&s->in.queue) && list_empty(&s->out.queue);
}

/* ---- one chunk ---- */

static void start_reply(struct session *s, uint32_t seqno)
{
    const struct session_backend *backend = s->all->setup.backend;
    s->reply_state = SESSION_REPLY_ACTIVE;
    s->reply = (struct session_reply){.session = s,
                                      .key = s->key,
                                      .service = s->doc.service,
                                      .seqno = seqno,
                                      .chunk = buf_str(&s->chunk),
                                      .begun = s->answer_begun,
                                      .last_id = buf_str(&s->last_id)};
    backend->start(backend->ctx, &s->reply);
}

/* What cannot be put into a chunk is found out now, while there is somebody to tell. */
static int try_content(enum session_service service, struct str content, bool is_text)
{
    struct buf trial = {0};
    size_t covered;
    if (is_text)
        return service == SESSION_AISERVER && !utf8_valid(content) ? ERR_SYNTAX : 0;
    int err = session_put_chunk(&trial, service, content, false, 1, &covered);
    buf_deinit(&trial);
    return err;
}

int session_reply_event(struct session_reply *reply, struct str content, bool is_text,
                        struct str id)
{
    struct session *s = session_of(reply);
    if (content.n > SESSION_CONTENT_MAX)
        return ERR_TOO_LARGE;
    if (s->out.bytes + s->out.pending + content.n > s->all->setup.max_bytes)
        return ERR_LIMIT;
    int err = try_content(s->doc.service, content, is_text);
    if (err != 0)
        return err;
    session_put_out(s, content, is_text, id.n > SESSION_UPSTREAM_ID ? STR_NONE : id, s->next);
    if (s->out.pending < SESSION_PENDING_MAX)
        return 1;
    s->reply_state = SESSION_REPLY_FULL;
    return 0;
}

static void reply_over(struct session *s)
{
    s->reply_state = SESSION_REPLY_NONE;
    s->answer_begun = false;
    s->last_id.n = 0;
    s->next++;
}

void session_reply_end(struct session_reply *reply, enum end_reason end, struct str message)
{
    struct session *s = session_of(reply);
    reply_over(s);
    if (end == END_FAILED)
        session_put_end(s, END_FAILED, message);
    else
        session_put_answered(s, s->next);
    session_buf_rest(&s->chunk);
    session_settle(s);
}

void session_reply_stop(struct session *s)
{
    const struct session_backend *backend = s->all->setup.backend;
    if (!session_is_replying(s))
        return;
    reply_over(s);
    backend->stop(backend->ctx, &s->reply);
    session_buf_rest(&s->chunk);
}

void session_reply_room(struct session *s)
{
    const struct session_backend *backend = s->all->setup.backend;
    if (s->reply_state != SESSION_REPLY_FULL || s->out.pending >= SESSION_PENDING_MAX / 2)
        return;
    s->reply_state = SESSION_REPLY_ACTIVE;
    backend->room(backend->ctx, &s->reply);
}

/* ---- what comes next ---- */

/* The record that is next is in s->chunk. */
static void take_next(struct session *s, enum session_record_type type, uint64_t a)
{
    if (type == SESSION_RECORD_CHUNK) {
        start_reply(s, (uint32_t)a);
        return;
    }
    if (type == SESSION_RECORD_MOVED && s->doc.answered == s->next)
        s->doc.answered++; /* there is nothing to answer, and so nothing to wait for */
    s->next++;
    if (type == SESSION_RECORD_CLOSE)
        session_put_end(s, END_COMPLETED, STR_NONE);
}

struct next_record {
    struct session *session;
    bool found;
    enum session_record_type type;
    uint64_t a;
};

static int session_reply_open_next(void *ctx, const struct session_record *r)
{
    struct next_record *next = ctx;
    struct session *s = next->session;
    next->found = true;
    next->type = r->type;
    next->a = r->a;
    s->chunk.n = 0;
    return session_open(s->keys, SESSION_IN, s->next, r, &s->chunk);
}

static void session_reply_on_read(struct store_read *r, int err)
{
    struct session *s = container_of(r, struct session, reply_read);
    struct next_record next = {.session = s};
    bool wanted = s->state != SESSION_STATE_DYING && s->out_state == SESSION_OUT_OPEN;
    if (wanted && err == 0)
        err = session_each_record(r->slices, r->n_slices, &next, session_reply_open_next);
    store_read_release(r);
    s->reply_state = SESSION_REPLY_NONE; /* the read may be used again */
    if (wanted && err != 0)
        session_kill(s, SESSION_FAILED, err);
    else if (wanted && next.found)
        take_next(s, next.type, next.a);
    if (s->state != SESSION_STATE_DYING) {
        session_pump(s);
        session_wake(s);
        session_settle(s);
    }
    session_release(s);
}

/* The backend can be given what is next. Its last answer must be durable: a crash would bring back
 * more than one chunk. */
static bool is_free(const struct session *s)
{
    return s->all->setup.backend != NULL && session_is_open(s) &&
           s->reply_state == SESSION_REPLY_NONE && s->out_state == SESSION_OUT_OPEN &&
           s->keys != NULL && s->next <= s->doc.answered;
}

void session_reply_offer(struct session *s, uint64_t ordinal, enum session_record_type type,
                         uint64_t a, struct str content)
{
    if (!is_free(s) || s->next != ordinal)
        return;
    s->chunk.n = 0;
    buf_put(&s->chunk, content);
    take_next(s, type, a);
}

void session_pump(struct session *s)
{
    if (!is_free(s) || s->next >= s->in.events)
        return;
    s->reply_state = SESSION_REPLY_READING;
    s->reply_read = (struct store_read){.name = s->in.name,
                                        .from = READ_EVENT,
                                        .event = s->next,
                                        .max_bytes = 1, /* one event at least, so one */
                                        .done = session_reply_on_read};
    session_hold(s);
    store_read(s->home->store, &s->reply_read);
}

/* ---- echo ---- */

static void session_reply_echo_start(void *ctx, struct session_reply *reply)
{
    struct arena a = {0};
    struct str text;
    int err = session_chunk_text(&a, reply->service, reply->chunk, &text);
    if (err == 0 && !reply->begun)
        err = session_reply_event(reply, text, true, STR_NONE);
    if (err < 0)
        session_reply_end(reply, END_FAILED, STR("the chunk is no message that could be echoed"));
    else
        session_reply_end(reply, END_COMPLETED, STR_NONE);
    arena_deinit(&a);
}

static void session_reply_echo_ignore(void *ctx, struct session_reply *reply)
{
}

const struct session_backend session_echo = {.start = session_reply_echo_start,
                                             .stop = session_reply_echo_ignore,
                                             .room = session_reply_echo_ignore};
