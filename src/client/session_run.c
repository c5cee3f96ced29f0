// SPDX-License-Identifier: Apache-2.0
/* The connections of a session, one after the other, and what is heard on them. */
#include "client/client_session_core.h"
#include "base/num.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>

#define SAVE_MS       250
#define SAVE_AGAIN_MS 2000 /* after a failure */
#define GARBLED_MAX   5    /* connections; the same is not going to be understood by and by */
#define ABORT_TRIES   3

static void lost(struct tm_session *s, int err, const char *why);

/* ---- news for the caller ---- */

static void session_run_push(struct tm_session *s, struct state_item *item, size_t n)
{
    s->queue_bytes += n;
    list_push(&s->queue, &item->link);
    client_happened(s->client);
}

static void push_note(struct tm_session *s, struct session_notice *n, int err, const char *text)
{
    list_remove(&n->item.link);
    n->err = err;
    snprintf(n->text, sizeof n->text, "%s", text);
    text_make_safe(n->text);
    session_run_push(s, &n->item, 0);
}

/* Whether there is room for what comes next. */
static int check_room(struct tm_session *s)
{
    if (s->queue_bytes <= s->client->options.answer_max)
        return 0;
    if (s->degraded || !s->resumes) {
        s->why = "the events that nobody takes are larger than answer_max";
        return TM_E_TOO_LARGE;
    }
    s->full = true;
    return TM_E_BUSY;
}

/* ---- saving ---- */

static void session_run_on_save(struct timer *t)
{
    struct tm_session *s = container_of(t, struct tm_session, save);
    if (!s->dirty || !s->saves)
        return;
    if (state_save(s->client, &s->dir, &s->state) == 0) {
        s->dirty = false;
        return;
    }
    client_notice(s->client, "%s", s->client->error);
    sched_start(&s->client->sched, &s->save, SAVE_AGAIN_MS);
}

void sess_dirty(struct tm_session *s)
{
    s->dirty = true;
    if (s->saves && !timer_running(&s->save))
        sched_start(&s->client->sched, &s->save, SAVE_MS);
}

void sess_drop_state(struct tm_session *s)
{
    if (!s->saves)
        return;
    s->saves = false;
    timer_stop(&s->save);
    if (state_remove(s->client, &s->dir, s->name) != 0)
        client_notice(s->client, "%s", s->client->error);
}

/* ---- the end ---- */

static void end_session(struct tm_session *s, int err, const char *text)
{
    if (s->over)
        return;
    slink_close(&s->link);
    task_cancel(&s->connect);
    timer_stop(&s->retry);
    timer_stop(&s->alone);
    s->over = true;
    push_note(s, &s->end, err, text[0] != '\0' ? text : err == 0 ? "" : tm_error_text(err));
}

static void session_run_on_alone(struct timer *t)
{
    struct tm_session *s = container_of(t, struct tm_session, alone);
    char text[ERROR_SIZE];
    snprintf(text, sizeof text, "no connection for %llu ms: %.400s",
             (unsigned long long)s->give_up_ms,
             s->reconnect.text[0] != '\0' ? s->reconnect.text : "the server did not answer");
    end_session(s, TM_E_NETWORK, text);
}

static void alone(struct tm_session *s)
{
    if (s->give_up_ms > 0 && !timer_running(&s->alone))
        sched_start(&s->client->sched, &s->alone, s->give_up_ms);
}

/* ---- what is heard ---- */

/* Numbers tell what is old. Ids of another kind are all new: whoever cares knows them. */
static bool was_received(struct tm_session *s, struct str id)
{
    uint64_t no;
    if (s->degraded || num_parse_canonical(id, UINT64_MAX, &no) != 0)
        return false;
    if (no <= s->seen)
        return true;
    s->seen = no;
    return false;
}

/* Goes on in the chain of MACs, or finds that somebody has cut it. */
static int follow_chain(struct tm_session *s, const struct swire_chunk *w, bool *verified)
{
    uint8_t right[MAC_SIZE];
    *verified = false;
    if (!w->has_mac) {
        s->why = "an event has no MAC, though the server signs";
        s->chain_known = false;
        return s->signs ? TM_E_TAMPERED : 0;
    }
    if (!s->chain_known)
        return 0;
    int err = smac_chain(s->mac_key, s->chain, w->covered, right);
    if (err != 0)
        return err;
    if (!smac_same(right, w->mac)) {
        s->why = "an event's MAC is wrong: events were changed, left out, or made by somebody else";
        return TM_E_TAMPERED;
    }
    memcpy(s->chain, w->mac, MAC_SIZE);
    *verified = s->signs = true;
    return 0;
}

static const char *session_run_put_text(char **to, struct str s)
{
    char *at = *to;
    if (s.n > 0)
        memcpy(at, s.p, s.n);
    at[s.n] = '\0';
    *to = at + s.n + 1;
    return at;
}

static struct received_chunk *chunk_new(struct tm_client *c, const struct swire_chunk *w)
{
    size_t texts = w->event_id.n + w->text.n + w->thinking.n + w->tool_call_id.n;
    struct received_chunk *h = client_alloc(c, sizeof *h + w->payload.n + texts + 5);
    if (h == NULL)
        return NULL;
    char *to = h->bytes;
    h->item.kind = TM_EVENT_CHUNK;
    h->moves = w->moves;
    h->n = w->payload.n;
    h->data = session_run_put_text(&to, w->payload);
    h->event_id = session_run_put_text(&to, w->event_id);
    h->text = session_run_put_text(&to, w->text);
    h->thinking = session_run_put_text(&to, w->thinking);
    h->tool_call_id = session_run_put_text(&to, w->tool_call_id);
    return h;
}

/* The next connection begins behind it. */
static void advance_received(struct tm_session *s, const struct received_chunk *h)
{
    snprintf(s->received.id, sizeof s->received.id, "%s", h->event_id);
    s->received.known = h->verified;
    memcpy(s->received.mac, h->mac, MAC_SIZE);
}

static int receive_chunk(struct tm_session *s, struct str bytes)
{
    struct swire_chunk w;
    bool verified;
    if (swire_read_chunk(s->state.service, bytes, &w) != 0) {
        s->why = "an event could not be understood";
        return TM_E_PROTOCOL;
    }
    if (w.event_id.n == 0 && !s->degraded) {
        s->why = "an event has no id";
        return TM_E_PROTOCOL;
    }
    int err = follow_chain(s, &w, &verified);
    if (err != 0)
        return err;
    struct received_chunk *h = chunk_new(s->client, &w);
    if (h == NULL)
        return TM_E_NOMEM;
    if (was_received(s, w.event_id)) {
        client_free(s->client, h);
        return 0;
    }
    h->verified = verified;
    if (verified)
        memcpy(h->mac, w.mac, MAC_SIZE);
    else
        memset(h->mac, 0, MAC_SIZE);
    if (h->moves)
        advance_received(s, h);
    s->garbled = 0;
    session_run_push(s, &h->item, sizeof *h + h->n);
    return check_room(s);
}

static int receive_ack(struct tm_session *s, uint32_t seqno)
{
    struct state_chunk *chunk = state_take_chunk(&s->state, seqno);
    if (chunk == NULL)
        return 0;
    session_run_push(s, &chunk->item, sizeof *chunk + chunk->n);
    sess_dirty(s);
    return check_room(s);
}

/* Events begin anew, and there will be nothing to come back to. */
static void degrade(struct tm_session *s)
{
    s->degraded = true;
    s->received = (struct received_position){.id = "0", .known = true};
    s->seen = 0;
    s->signs = false;
    s->chain_known = true;
    memset(s->chain, 0, MAC_SIZE);
    sess_drop_state(s);
    client_notice(s->client, "the session is in degraded mode: it cannot be resumed");
}

static void receive_welcome(struct tm_session *s, const struct swire_response *r)
{
    char text[ERROR_SIZE];
    s->welcomed = s->connected = true;
    s->failures = 0;
    timer_stop(&s->alone);
    if (r->degraded && !s->degraded)
        degrade(s);
    snprintf(text, sizeof text, "%.*s", (int)(r->message.n < 256 ? r->message.n : 256),
             r->message.n > 0 ? r->message.p : "");
    s->welcome.degraded = r->degraded;
    push_note(s, &s->welcome, 0, text);
}

static int session_run_on_message(struct slink *l, struct str bytes)
{
    struct tm_session *s = container_of(l, struct tm_session, link);
    struct swire_response r;
    s->why = NULL;
    if (s->aborting)
        return 0;
    if (swire_read_response(bytes, &r) != 0) {
        s->why = "a message could not be understood";
        return TM_E_PROTOCOL;
    }
    switch (r.kind) {
    case SWIRE_CHUNK: return receive_chunk(s, r.chunk);
    case SWIRE_ACK: return receive_ack(s, r.seqno);
    case SWIRE_WELCOME: receive_welcome(s, &r); return 0;
    case SWIRE_NOTHING: break;
    }
    return 0;
}

/* ---- a connection is over ---- */

/* Answers that another attempt would get again, redirections among them. A session that has worked
 * before waits: what is in between may be being replaced. */
static bool refused_for_good(const struct tm_session *s, int status)
{
    if (s->welcomed || status == 0)
        return false;
    return (status < 500 && status != 408 && status != 425 && status != 429) || status == 501 ||
           status == 505;
}

static int status_code(int status)
{
    return status == 401 || status == 403 ? TM_E_DENIED : TM_E_REFUSED;
}

/* The server could be told, or there is nobody to tell. */
static void abort_over(struct tm_session *s, const struct slink_end *end)
{
    if (end->err == 0 && (!end->rpc.failed || end->rpc.final))
        end_session(s, TM_E_CANCELLED, "");
    else if (++s->failures >= ABORT_TRIES)
        end_session(s, TM_E_CANCELLED, "stopped here; the server could not be told");
    else
        sched_start(&s->client->sched, &s->retry, s->reconnect_ms);
}

static bool falls_back(struct tm_session *s, const struct slink_end *end)
{
    if (s->http1 || s->client->options.http != TM_HTTP_AUTO ||
        !(end->http2_refused || end->status == 505))
        return false;
    s->http1 = true;
    return true;
}

static void said_over(struct tm_session *s, const struct slink_end *end)
{
    if (!end->rpc.failed)
        end_session(s, 0, "");
    else if (end->rpc.final)
        end_session(s, swire_error_code(end->rpc.code), end->rpc.message);
    else if (refused_for_good(s, end->status))
        end_session(s, status_code(end->status), end->rpc.message);
    else
        lost(s, end->status != 0 ? status_code(end->status) : swire_error_code(end->rpc.code),
             end->rpc.message[0] != '\0' ? end->rpc.message : end->rpc.code);
}

static void broke_off(struct tm_session *s, const struct slink_end *end)
{
    const char *why = s->why != NULL                                    ? s->why
                      : end->message != NULL && end->message[0] != '\0' ? end->message
                                                                        : tm_error_text(end->err);
    bool garbled = end->err == TM_E_PROTOCOL && ++s->garbled >= GARBLED_MAX;
    bool final = end->err == TM_E_TAMPERED || end->err == TM_E_TOO_LARGE ||
                 end->err == TM_E_INVALID || (end->err == TM_E_TLS && !s->welcomed);
    if (final || garbled)
        end_session(s, end->err, why);
    else
        lost(s, end->err, why);
}

static void session_run_on_over(struct slink *l, const struct slink_end *end)
{
    struct tm_session *s = container_of(l, struct tm_session, link);
    if (falls_back(s, end))
        sess_connect_soon(s);
    else if (s->aborting)
        abort_over(s, end);
    else if (s->full && end->err == TM_E_BUSY)
        client_happened(s->client);
    else if (end->err == 0)
        said_over(s, end);
    else
        broke_off(s, end);
}

/* ---- and another one ---- */

static uint64_t retry_ms(struct tm_session *s)
{
    uint32_t draw;
    if (!s->backoff)
        return s->reconnect_ms;
    uint64_t bound = client_backoff_bound_ms(s->client, s->reconnect_ms, s->failures);
    if (RAND_bytes((unsigned char *)&draw, sizeof draw) != 1)
        return bound;
    return bound - draw % (bound / 2 + 1);
}

static void lost(struct tm_session *s, int err, const char *why)
{
    if (s->degraded || !s->resumes) {
        end_session(s, err, why);
        return;
    }
    /* A server that has nothing to say is silent, and over HTTP/1.1 it cannot be asked. */
    bool idle = s->http1 && s->connected && err == TM_E_TIMEOUT;
    s->failures++;
    alone(s);
    sched_start(&s->client->sched, &s->retry, idle ? 0 : retry_ms(s));
    if (idle)
        return;
    push_note(s, &s->reconnect, err, why);
    client_notice(s->client, "session: %s; connecting again", why);
}

static int session_run_send(struct tm_session *s)
{
    return slink_send(&s->link, bytes_str(&s->message));
}

static int send_chunk(struct tm_session *s, const struct state_chunk *chunk)
{
    s->message.n = 0;
    int err = swire_put_chunk(s->client, &s->message, str_of(chunk->bytes, chunk->n), chunk->seqno);
    return err != 0 ? err : session_run_send(s);
}

static int send_close(struct tm_session *s)
{
    s->message.n = 0;
    int err = swire_put_close(s->client, &s->message);
    if (err == 0)
        err = session_run_send(s);
    return err != 0 ? err : slink_finish(&s->link);
}

static int send_abort(struct tm_session *s)
{
    s->message.n = 0;
    int err = swire_put_abort(s->client, &s->message);
    if (err == 0)
        err = session_run_send(s);
    return err != 0 ? err : slink_finish(&s->link);
}

/* Whatever the server may not have, in order, and what was decided meanwhile. */
static int send_all(struct tm_session *s)
{
    int err = 0;
    if (s->aborting)
        return send_abort(s);
    list_each (l, &s->state.chunks) {
        err = send_chunk(s, list_item(l, struct state_chunk, item.link));
        if (err != 0)
            return err;
    }
    return s->state.finished ? send_close(s) : 0;
}

static void connect_now(struct tm_session *s)
{
    if (s->over || s->link.open)
        return;
    s->connected = false;
    s->tried = true;
    s->why = NULL;
    s->chain_known = s->received.known;
    memcpy(s->chain, s->received.mac, MAC_SIZE);
    s->link.http1 = s->http1;
    s->link.event_id = str_of_cstr(s->received.id);
    s->link.request.message[0] = '\0';
    int err = slink_open(&s->link);
    if (err == 0)
        err = send_all(s);
    if (err == 0)
        return;
    slink_close(&s->link);
    const char *why = s->link.request.message; /* "": it was not the request */
    session_run_on_over(&s->link, &(struct slink_end){.err = err, .message = why});
}

static void session_run_on_connect(struct task *t)
{
    connect_now(container_of(t, struct tm_session, connect));
}

static void session_run_on_retry(struct timer *t)
{
    connect_now(container_of(t, struct tm_session, retry));
}

void sess_connect_soon(struct tm_session *s)
{
    sched_post(&s->client->sched, &s->connect);
}

/* The rest of what must be said waits for the next connection. */
static void check_said(struct tm_session *s, int err)
{
    if (err == 0)
        return;
    slink_close(&s->link);
    lost(s, err, tm_error_text(err));
}

void sess_send_chunk(struct tm_session *s, const struct state_chunk *chunk)
{
    if (s->link.open)
        check_said(s, send_chunk(s, chunk));
}

void sess_send_close(struct tm_session *s)
{
    if (s->link.open)
        check_said(s, send_close(s));
}

void sess_abort(struct tm_session *s)
{
    slink_close(&s->link);
    timer_stop(&s->retry);
    timer_stop(&s->alone);
    sess_drop_queue(s);
    sess_drop_state(s);
    s->aborting = true;
    s->full = false;
    s->failures = 0;
    if (s->tried)
        sess_connect_soon(s);
    else
        end_session(s, TM_E_CANCELLED, "");
}

void sess_run_init(struct tm_session *s)
{
    s->link.client = s->client;
    s->link.service = s->state.service;
    s->link.key = str_of_cstr(s->state.key);
    s->link.secret = s->state.secret;
    s->link.message = session_run_on_message;
    s->link.over = session_run_on_over;
    slink_init(&s->link);
    task_init(&s->connect, session_run_on_connect);
    timer_init(&s->retry, session_run_on_retry);
    timer_init(&s->alone, session_run_on_alone);
    timer_init(&s->save, session_run_on_save);
    s->http1 = s->client->options.http == TM_HTTP_1;
    alone(s);
}

void sess_run_deinit(struct tm_session *s)
{
    slink_close(&s->link);
    task_cancel(&s->connect);
    timer_stop(&s->retry);
    timer_stop(&s->alone);
    timer_stop(&s->save);
    bytes_free_secret(s->client, &s->message);
}
