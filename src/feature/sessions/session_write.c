// SPDX-License-Identifier: Apache-2.0
/* session_write.c -- what goes into a session's two streams.
 *
 * Each stream has a lane: one write is under way at a time, and what comes meanwhile goes into the
 * next one together. A write is sealed when its turn has come: ordinals, the associated data and
 * the chain of MACs depend on all that was written before it. Its effects on the session in memory
 * come when it is durable.
 *
 * The end of `out` is the last write there:
 *
 *     OPEN --close, abort, a backend that fails--> ENDING --it is durable--> ENDED
 *     OPEN, ENDING --a worker was faster, or another process--> ENDED
 */
#include "base/err.h"
#include "base/mem.h"
#include "base/units.h"
#include "feature/sessions/session_core.h"
#include "feature/sessions/session_view.h"

#include <assert.h>
#include <stdlib.h>

#define RETRY_FOR_MS (60 * SECOND_MS) /* with a store that is busy or full */

static void session_write_on_stream_flush(struct task *t);
static void session_write_on_stream_written(struct writer *writer, int err);

void session_stream_init(struct session_stream *l, struct session *s, enum session_direction d,
                         struct str name)
{
    *l = (struct session_stream){.session = s, .direction = d, .name = name};
    list_init(&l->queue);
    task_init(&l->flush, session_write_on_stream_flush);
    writer_init(&l->writer, RETRY_FOR_MS, session_write_on_stream_written);
}

static void add_pending(struct session_stream *l, size_t n)
{
    l->pending += n;
    if (l->direction == SESSION_IN)
        l->session->all->said += n;
}

static void write_free(struct session_write *w)
{
    list_remove(&w->link);
    add_pending(w->lane, -(w->contents.n + w->again.n));
    buf_deinit(&w->contents);
    buf_deinit(&w->again);
    ranges_deinit(&w->seqnos);
    buf_deinit(&w->sealed);
    buf_deinit(&w->ends);
    buf_deinit(&w->doc);
    free(w);
}

static void session_write_refuse(struct session_write *w, int err)
{
    struct store_write *asked = w->asked;
    write_free(w);
    if (asked != NULL)
        asked->done(asked, err);
}

/* All but what is under way. */
void session_stream_deinit(struct session_stream *l, int err)
{
    task_cancel(&l->flush);
    if (writer_stop(&l->writer)) { /* nobody knows whether it was done: it is read anew */
        l->going = NULL;
        session_release(l->session);
    }
    list_each_safe (at, &l->queue) {
        struct session_write *w = list_item(at, struct session_write, link);
        if (w != l->going)
            session_write_refuse(w, err);
    }
}

/* ---- sealing ---- */

/* The next of a write's contents. */
static struct session_content cut_content(struct str *rest, struct str *id, struct str *bytes)
{
    struct session_content c;
    memcpy(&c, rest->p, sizeof c);
    *rest = str_skip(*rest, sizeof c);
    *id = str_of(rest->p, c.n_id);
    *bytes = str_of(rest->p + c.n_id, c.n);
    *rest = str_skip(*rest, c.n_id + c.n);
    return c;
}

/* An event of ours as its record holds it, with its number and its place in the chain. */
static int session_write_put_event(struct session *s, const struct session_content *c,
                                   struct str id, struct str bytes, uint64_t ordinal,
                                   uint8_t mac[SESSION_MAC_SIZE], struct buf *out)
{
    struct buf chunk = {0};
    size_t covered;
    int err = session_put_chunk(&chunk, s->doc.service, bytes, c->is_text, ordinal + 1, &covered);
    if (err == 0) {
        session_chain(s->keys, mac, str_of(chunk.p, covered), mac);
        session_set_mac(&chunk, mac);
        buf_putc(out, (char)c->n_id);
        buf_put(out, id);
        buf_put(out, buf_str(&chunk));
    }
    buf_deinit(&chunk);
    return err;
}

static int session_write_seal(struct session_write *w)
{
    struct session *s = w->session;
    struct session_stream *l = w->lane;
    struct str rest = buf_str(&w->contents), id, bytes;
    uint64_t ordinal = l->events;
    struct buf event = {0};
    bool too_much = w->asked != NULL && l->bytes + w->contents.n > s->all->setup.max_bytes;
    int err = too_much ? ERR_TOO_LARGE : 0;
    memcpy(w->mac, s->mac, sizeof w->mac);
    while (rest.n > 0 && err == 0) {
        struct session_content c = cut_content(&rest, &id, &bytes);
        event.n = 0;
        if (l->direction == SESSION_OUT) {
            err = session_write_put_event(s, &c, id, bytes, ordinal, w->mac, &event);
            bytes = buf_str(&event);
        }
        if (err == 0)
            session_seal(s->keys, l->direction, ordinal++, c.type, c.a, bytes, &w->sealed);
        uint32_t end = (uint32_t)w->sealed.n;
        buf_put(&w->ends, str_of((const char *)&end, sizeof end));
    }
    buf_deinit(&event);
    return err;
}

/* The document as it will be when this is written. */
static void session_write_put_doc(struct session_write *w)
{
    struct session *s = w->session;
    struct session_doc doc = s->doc;
    struct buf message = {0};
    if (w->sets_answered)
        doc.answered = w->answered;
    if (w->end == END_FAILED)
        session_seal(s->keys, SESSION_OUT, UINT64_MAX, SESSION_RECORD_EVENT, 0,
                     buf_str(&s->message), &message);
    doc.message = buf_str(&message);
    session_doc_put(&w->doc, &doc);
    w->doc_put = (struct doc_put){
        .key = s->doc_key, .value = buf_str(&w->doc), .expect_version = s->doc_version};
    w->lane->writer.write.docs = &w->doc_put;
    w->lane->writer.write.n_docs = 1;
    buf_deinit(&message);
}

/* ---- writing ---- */

static void set_preconditions(struct session_write *w)
{
    const struct store_write *asked = w->asked;
    struct store_write *write = &w->lane->writer.write;
    write->if_match = true;
    write->match = (struct offset){w->lane->life, w->lane->tail};
    if (asked == NULL)
        return;
    write->claim = asked->claim;
    write->seq = asked->seq;
    if (asked->if_match)
        write->match = asked->match;
}

/* A worker is told at once of a store that takes nothing, but not of one that may have taken it. */
static void set_retry(struct session_write *w)
{
    struct writer *writer = &w->lane->writer;
    bool waits = w->asked == NULL || w->session->home->store->author != 0;
    writer->retry_for_ms = waits ? RETRY_FOR_MS : 0;
    writer->waits_for_room = w->asked == NULL;
}

static void session_write_start(struct session_write *w)
{
    struct session_stream *l = w->lane;
    l->writer.write = (struct store_write){.name = l->name,
                                           .data = buf_str(&w->sealed),
                                           .ends = (const uint32_t *)w->ends.p,
                                           .n_events = w->n,
                                           .close = w->close,
                                           .end = w->end};
    l->writer.events = l->events;
    set_preconditions(w);
    set_retry(w);
    /* Nobody reads the document of a degraded session. */
    if ((w->sets_answered || w->end == END_FAILED) && !session_is_degraded(w->session))
        session_write_put_doc(w);
    l->going = w;
    session_hold(w->session);
    writer_start(&l->writer, w->session->home->store);
}

static void session_write_next(struct session_stream *l)
{
    while (l->going == NULL && !list_empty(&l->queue)) {
        struct session_write *w = list_item(l->queue.next, struct session_write, link);
        int err = session_write_seal(w);
        if (err == 0)
            session_write_start(w);
        else
            session_write_refuse(w,
                                 err); /* a worker's: the backend's were checked when they came */
    }
}

static void session_write_on_stream_flush(struct task *t)
{
    struct session_stream *l = container_of(t, struct session_stream, flush);
    session_write_next(l);
    session_settle(l->session); /* what was refused may have been all there was */
}

/* ---- what has been written ---- */

/* The records are the client's: what they lead to comes now that they are durable. */
static void apply_in(struct session *s, const struct session_write *w)
{
    struct str rest = buf_str(&w->contents), id, bytes;
    uint64_t ordinal = s->in.events - w->n;
    while (rest.n > 0) {
        struct session_content c = cut_content(&rest, &id, &bytes);
        if (c.type == SESSION_RECORD_CHUNK)
            session_notify_ack(s, (uint32_t)c.a);
        session_reply_offer(s, ordinal++, c.type, c.a, bytes);
        if (c.type == SESSION_RECORD_ABORT) {
            session_reply_stop(s);
            session_put_end(s, END_CANCELLED, STR_NONE);
        }
    }
    for (size_t i = 0; i < w->again.n; i += sizeof(uint32_t)) {
        uint32_t seqno;
        memcpy(&seqno, w->again.p + i, sizeof seqno);
        session_notify_ack(s, seqno);
    }
}

static void apply_out(struct session *s, const struct session_write *w)
{
    memcpy(s->mac, w->mac, sizeof s->mac);
    if (w->lane->writer.write.n_docs > 0)
        s->doc_version = DOC_NEXT(s->doc_version);
    if (w->sets_answered)
        s->doc.answered = w->answered;
}

static void session_write_apply(struct session_write *w)
{
    struct session *s = w->session;
    struct session_stream *l = w->lane;
    const struct stream_info *info = &l->writer.write.info;
    bool moved = l->tail != info->tail;
    s->written_ms = s->all->setup.sched->now_ms;
    s->all->failed &= session_is_degraded(s);
    l->tail = info->tail;
    l->events = info->events;
    l->bytes = info->bytes;
    if (l == &s->out)
        session_set_end(s, info->end);
    bool behind = l->writer.followed || (l->writer.write.duplicate && moved);
    if (behind && l == &s->in && s->own != SESSION_OWN_UNWATCHED)
        session_taken(s);
    else if (behind) /* another process has written it, or a worker what we thought was not done */
        session_kill(s, SESSION_FAILED, ERR_VERSION);
    if (behind || l->writer.write.duplicate)
        return;
    if (l == &s->in)
        apply_in(s, w);
    else
        apply_out(s, w);
}

static void answer_asked(struct session_write *w, int err)
{
    struct store_write *asked = w->asked;
    const struct store_write *write = &w->lane->writer.write;
    asked->info = write->info;
    asked->duplicate = write->duplicate;
    asked->producer = write->producer;
    asked->expected_seq = write->expected_seq;
    asked->done(asked, err);
}

/* What the preconditions of a worker's write can lead to says nothing against our copy; but a write
 * that may have been done does. */
static bool is_workers_fault(const struct session_write *w, int err)
{
    bool in_doubt = ERR_IS_PASSING(err) && w->session->home->store->author != 0;
    if (w->asked == NULL || in_doubt)
        return false;
    return err != ERR_IO && err != ERR_NOT_FOUND && err != ERR_DELETED &&
           (err != ERR_TAIL_MOVED || w->asked->if_match);
}

static void done_with(struct session_write *w)
{
    struct session *s = w->session;
    struct session_stream *l = w->lane;
    const uint64_t by = w->by, said = w->said;
    l->going = NULL;
    write_free(w);
    if (s->state == SESSION_STATE_DYING)
        return;
    if (l == &s->out)
        session_reply_room(s);
    session_write_next(l);
    session_own_look(s);
    session_pump(s); /* before a client goes away who needs no more than this */
    if (l == &s->in)
        session_notify_settled(s, by, said);
    session_wake(s);
    session_settle(s);
}

static void session_write_failed(struct session_write *w, int err, bool workers_fault)
{
    struct session *s = w->session;
    struct session_stream *l = w->lane;
    if (s->state == SESSION_STATE_DYING || workers_fault) {
        done_with(w);
    } else if (err == ERR_CLOSED && l == &s->out) {
        session_set_end(s, l->writer.write.info.end); /* a worker was faster */
        done_with(w);
    } else if (err == ERR_TAIL_MOVED && l == &s->in && s->own != SESSION_OWN_UNWATCHED) {
        session_taken(s);
        done_with(w);
    } else {
        s->all->failed |= err == ERR_IO;
        session_kill(s, SESSION_FAILED, err);
        done_with(w);
    }
}

static void session_write_on_stream_written(struct writer *writer, int err)
{
    struct session_write *w = container_of(writer, struct session_stream, writer)->going;
    struct session *s = w->session;
    bool alive = s->state != SESSION_STATE_DYING;
    bool workers_fault = is_workers_fault(w, err);
    if (w->asked != NULL)
        answer_asked(w, err); /* what was asked is gone behind it */
    if (err != 0) {
        session_write_failed(w, err, workers_fault);
    } else {
        if (alive)
            session_write_apply(w);
        done_with(w);
    }
    session_release(s);
}

/* ---- the queue ---- */

static struct session_write *session_write_push(struct session *s, struct session_stream *l)
{
    struct session_write *w = mem_zalloc(sizeof *w);
    w->session = s;
    w->lane = l;
    ranges_init(&w->seqnos, SIZE_MAX); /* bounded as the contents are */
    list_push(&l->queue, &w->link);
    sched_post(s->all->setup.sched, &l->flush); /* with what else comes in this turn */
    return w;
}

/* The last write of ours that has not begun, or a new one. */
static struct session_write *last(struct session *s, struct session_stream *l)
{
    struct session_write *w = list_item(l->queue.prev, struct session_write, link);
    bool free_to_grow = !list_empty(&l->queue) && w != l->going && w->asked == NULL && !w->close &&
                        w->contents.n < SESSION_PENDING_MAX;
    return free_to_grow ? w : session_write_push(s, l);
}

static void put_content(struct session_write *w, const struct session_content *c, struct str id,
                        struct str bytes)
{
    size_t before = w->contents.n;
    buf_put(&w->contents, str_of((const char *)c, sizeof *c));
    buf_put(&w->contents, id);
    buf_put(&w->contents, bytes);
    add_pending(w->lane, w->contents.n - before);
    w->n++;
}

void session_put_in(struct session *s, enum session_record_type type, uint32_t seqno,
                    struct str content)
{
    struct session_write *w = last(s, &s->in);
    struct session_content c = {.type = type, .n = (uint32_t)content.n, .a = seqno};
    put_content(w, &c, STR_NONE, content);
    if (type == SESSION_RECORD_CHUNK)
        ranges_add(&w->seqnos, seqno);
    w->by = session_visit_no(s);
    w->said = session_received(s);
    s->in_queued++;
}

void session_put_again(struct session *s, uint32_t seqno)
{
    list_each (l, &s->in.queue) {
        struct session_write *w = list_item(l, struct session_write, link);
        if (ranges_contains(&w->seqnos, seqno)) {
            buf_put(&w->again, str_of((const char *)&seqno, sizeof seqno));
            add_pending(&s->in, sizeof seqno);
            return;
        }
    }
    session_notify_ack(s, seqno);
}

void session_put_out(struct session *s, struct str content, bool is_text, struct str id,
                     uint64_t in_ordinal)
{
    struct session_content c = {.type = SESSION_RECORD_EVENT,
                                .is_text = is_text,
                                .n_id = (uint8_t)id.n,
                                .n = (uint32_t)content.n,
                                .a = in_ordinal};
    put_content(last(s, &s->out), &c, id, content);
}

void session_put_answered(struct session *s, uint64_t answered)
{
    struct session_write *w = last(s, &s->out);
    w->sets_answered = true;
    w->answered = answered;
}

void session_put_end(struct session *s, enum end_reason end, struct str message)
{
    if (s->out_state != SESSION_OUT_OPEN)
        return;
    struct session_write *w = last(s, &s->out);
    s->out_state = SESSION_OUT_ENDING;
    s->message.n = 0;
    buf_put(&s->message, message);
    w->close = true;
    w->end = end;
}

void session_set_end(struct session *s, enum end_reason end)
{
    s->end = end;
    if (end != END_NONE)
        s->out_state = SESSION_OUT_ENDED;
}

/* ---- for workers ---- */

static struct session_keys *session_write_keys_of(void *ctx, struct str key)
{
    struct session *s = session_find(ctx, key);
    return s == NULL || !session_is_open(s) ? NULL : s->keys;
}

static void session_write_out(void *ctx, struct str key, struct store_write *asked,
                              struct str contents)
{
    struct session *s = session_find(ctx, key);
    struct session_write *w = session_write_push(s, &s->out);
    struct session_content c = {.type = SESSION_RECORD_EVENT, .a = UINT64_MAX};
    struct str content;
    w->asked = asked;
    w->close = asked->close;
    w->end = asked->end;
    while (session_content_cut(&contents, &c.is_text, &content)) {
        c.n = (uint32_t)content.n;
        put_content(w, &c, STR_NONE, content);
    }
    session_settle(s);
}

const struct session_view_ops sessions_view_ops = {.keys = session_write_keys_of,
                                                   .write_out = session_write_out};
