// SPDX-License-Identifier: Apache-2.0
#include "client/follower_core.h"

#include <stdarg.h>
#include <stdio.h>

int follower_complain(struct tm_follower *f, int err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->message, sizeof f->message, fmt, ap);
    va_end(ap);
    return err;
}

void follower_note_life(struct tm_follower *f)
{
    f->ever_good = true;
    f->good_ms = stream_now_ms(f->client);
}

/* -- pieces ----------------------------------------------------------------------------------- */

void follower_free_piece(struct tm_follower *f, struct piece *p)
{
    list_remove(&p->link);
    bytes_free(f->client, &p->data);
    client_free(f->client, p);
}

void follower_drop_held(struct tm_follower *f)
{
    if (f->held)
        follower_free_piece(f, f->held);
    f->held = NULL;
}

static int need_held(struct tm_follower *f)
{
    if (f->held)
        return 0;
    f->held = client_zalloc(f->client, sizeof *f->held);
    if (f->held == NULL)
        return TM_E_NOMEM;
    list_init(&f->held->link);
    return 0;
}

/* -- what an answer brings -------------------------------------------------------------------- */

static bool is_json(const struct tm_follower *f)
{
    return f->has_type && f->kind == STREAM_JSON;
}

static void put_in_queue(struct tm_follower *f, const char *next, bool up_to_date, bool closed)
{
    struct piece *p = f->held;
    f->held = NULL;
    memcpy(p->next_offset, next, strlen(next) + 1);
    p->up_to_date = f->told_tail = up_to_date;
    p->closed = closed;
    p->gap = f->gap;
    f->gap = false;
    f->gaps = 0;
    /* Its bytes do not move any more, so that values can point into them. */
    p->is_split = f->json_values && p->data.n > 0 && is_json(f) &&
                  json_array_begin(&p->values, bytes_str(&p->data));
    f->queued += sizeof *p + p->data.n;
    list_push(&f->queue, &p->link);
    client_happened(f->client);
}

/* All that is held stands before `next`. */
static int follower_answer_advance(struct tm_follower *f, const char *next, bool up_to_date,
                                   bool closed)
{
    if (next[0] == '\0')
        return follower_complain(f, TM_E_PROTOCOL,
                                 "the answer does not say which offset comes next");
    bool moved = strcmp(next, f->offset) != 0;
    if (f->held && !moved)
        return follower_complain(f, TM_E_PROTOCOL, "the answer has data, but ends where it began");
    bool is_news = moved || closed || f->gap || f->held || (up_to_date && !f->told_tail);
    if (is_news && need_held(f) != 0)
        return TM_E_NOMEM;
    f->moved = f->moved || moved || f->held;
    f->ended = closed || (up_to_date && f->live_option == TM_LIVE_NO);
    if (f->held)
        put_in_queue(f, next, up_to_date, closed);
    memcpy(f->offset, next, strlen(next) + 1);
    return 0;
}

/* [..] and [..] become one array; both are known to be valid, and not empty. */
static int join_arrays(struct tm_follower *f, struct bytes *to, struct str more)
{
    const char *inside = (const char *)memchr(more.p, '[', more.n) + 1;
    size_t n = (size_t)(more.p + more.n - inside);
    if (bytes_room(f->client, to, n + 1) == NULL)
        return TM_E_NOMEM;
    while (to->p[to->n - 1] != ']')
        to->n--;
    to->p[to->n - 1] = ',';
    return bytes_put(f->client, to, str_of(inside, n));
}

/* Text, bytes or a whole array, behind what is held already. */
static int follower_answer_hold(struct tm_follower *f, struct str data)
{
    struct json_array values;
    if (is_json(f) && !json_array_begin(&values, data))
        return follower_complain(f, TM_E_PROTOCOL, "the answer is not a JSON array");
    if (data.n == 0 || (is_json(f) && json_array_ended(&values)))
        return 0;
    if (f->held && data.n > f->client->options.answer_max - f->held->data.n)
        return follower_complain(f, TM_E_TOO_LARGE, "more came at once than answer_max allows");
    if (need_held(f) != 0)
        return TM_E_NOMEM;
    if (is_json(f) && f->held->data.n > 0)
        return join_arrays(f, &f->held->data, data);
    return bytes_put(f->client, &f->held->data, data);
}

/* -- gaps ------------------------------------------------------------------------------------- */

static int take_gap(struct tm_follower *f, const struct stream_refusal *gap)
{
    follower_complain(f, TM_E_GAP, "%s", gap->message);
    /* To be sent where we were just sent away from would go on for ever. */
    if (!f->skip_gap || strcmp(gap->earliest, f->offset) == 0)
        return TM_E_GAP;
    memcpy(f->offset, gap->earliest, sizeof f->offset);
    f->cursor[0] = '\0';
    f->live = follower_starts_live(f);
    f->told_tail = false;
    f->gap = f->moved = true;
    f->gaps++;
    return 0;
}

/* -- live events ------------------------------------------------------------------------------ */

/* Whether two texts are joined or two arrays depends on the type, which only a plain answer tells.
 */
static bool must_learn_type(struct tm_follower *f)
{
    if (f->has_type || f->answer.base64 || f->held == NULL)
        return false;
    f->live = false;
    return true;
}

static int take_data_event(struct tm_follower *f, struct str data)
{
    if (must_learn_type(f)) {
        f->leave = f->moved = true;
        return 0;
    }
    if (!f->answer.base64)
        return follower_answer_hold(f, data);
    f->body.n = 0;
    int err = bytes_put(f->client, &f->body, data);
    if (err)
        return err;
    if (stream_unbase64(f->body.p, &f->body.n) != 0)
        return follower_complain(f, TM_E_PROTOCOL, "the server sent broken base64");
    return follower_answer_hold(f, bytes_str(&f->body));
}

static int take_control_event(struct tm_follower *f, struct str data)
{
    char next[STREAM_OFFSET_SIZE], cursor[STREAM_CURSOR_SIZE];
    if (!json_member_text(data, STR("streamNextOffset"), next, sizeof next))
        return follower_complain(f, TM_E_PROTOCOL, "a control event cannot be understood");
    if (json_member_text(data, STR("streamCursor"), cursor, sizeof cursor))
        memcpy(f->cursor, cursor, sizeof cursor);
    bool closed = json_member_is_true(data, STR("streamClosed"));
    if (closed)
        json_member_text(data, STR("endReason"), f->end_reason, sizeof f->end_reason);
    int err = follower_answer_advance(f, next, closed || json_member_is_true(data, STR("upToDate")),
                                      closed);
    /* Nobody takes what is there: it can wait at the server. */
    f->leave = err == 0 && (closed || f->queued > f->client->options.answer_max);
    return err;
}

static int take_gap_event(struct tm_follower *f, struct str data)
{
    struct stream_refusal gap;
    if (!stream_gap_read(&gap, data))
        return follower_complain(f, TM_E_PROTOCOL,
                                 "the server reports a gap that cannot be understood");
    f->leave = f->skip_gap;
    return take_gap(f, &gap);
}

int follower_event(void *ctx, const struct sse_event *event)
{
    struct tm_follower *f = ctx;
    int err = 0;
    f->sse_worked = true;
    if (str_eq(event->type, STR("data")))
        err = take_data_event(f, event->data);
    else if (str_eq(event->type, STR("control")))
        err = take_control_event(f, event->data);
    else if (str_eq(event->type, STR("gap")))
        err = take_gap_event(f, event->data);
    return err == 0 && f->leave ? TM_E_CANCELLED : err;
}

/* -- one answer ------------------------------------------------------------------------------- */

/* The content type is the stream's own in all answers but SSE. */
static void learn_type(struct tm_follower *f)
{
    if (f->has_type || f->mode == LIVE_SSE || f->answer.content_type[0] == '\0')
        return;
    memcpy(f->content_type, f->answer.content_type, sizeof f->content_type);
    f->has_type = true;
    f->kind = stream_kind(str_of_cstr(f->content_type));
    /* SSE changes the line ends of a text. */
    if (f->live_option == TM_LIVE_AUTO)
        f->polls = f->kind == STREAM_TEXT;
}

static bool is_event_stream(const struct tm_follower *f)
{
    return stream_type_is(str_of_cstr(f->answer.content_type), STR("text/event-stream"));
}

/* Bytes as bare text do not survive SSE, and not every server speaks it. */
static bool cannot_use_sse(const struct tm_follower *f)
{
    return f->live_option == TM_LIVE_AUTO &&
           (!is_event_stream(f) || (f->kind == STREAM_BYTES && !f->answer.base64));
}

void follower_head(struct http_request *r)
{
    struct tm_follower *f = container_of(r, struct tm_follower, request);
    f->last_status = r->status;
    f->head_err = stream_answer_read(&f->answer, r);
    if (f->head_err)
        follower_complain(f, f->head_err, "the answer has a header that is too long");
    if (stream_is_success(r->status))
        learn_type(f);
}

static int keep_body(struct tm_follower *f, struct str bytes, size_t max, bool cut)
{
    size_t room = max - f->body.n;
    if (bytes.n > room && !cut)
        return follower_complain(f, TM_E_TOO_LARGE, "the answer is larger than answer_max");
    return bytes_put(f->client, &f->body, str_of(bytes.p, bytes.n < room ? bytes.n : room));
}

int follower_data(struct http_request *r, struct str bytes)
{
    struct tm_follower *f = container_of(r, struct tm_follower, request);
    if (f->head_err)
        return f->head_err;
    if (stream_is_success(r->status))
        follower_note_life(f); /* heartbeats count */
    else
        return keep_body(f, bytes, STREAM_REFUSAL_MAX, true);
    if (f->mode != LIVE_SSE)
        return keep_body(f, bytes, f->client->options.answer_max, false);
    if (cannot_use_sse(f)) {
        f->polls = f->leave = true;
        return TM_E_CANCELLED;
    }
    if (!is_event_stream(f))
        return follower_complain(f, TM_E_PROTOCOL, "the answer is not an event stream");
    return sse_parser_feed(&f->sse, bytes);
}

/* The body is not copied. */
static int take_body(struct tm_follower *f)
{
    struct json_array values;
    if (f->body.n == 0)
        return 0;
    if (is_json(f) && !json_array_begin(&values, bytes_str(&f->body)))
        return follower_complain(f, TM_E_PROTOCOL, "the answer is not a JSON array");
    if (is_json(f) && json_array_ended(&values))
        return 0;
    if (need_held(f) != 0)
        return TM_E_NOMEM;
    f->held->data = f->body;
    f->body = (struct bytes){0};
    return 0;
}

/* A whole answer that is not SSE: its headers say where it ends. */
static int finish_read(struct tm_follower *f)
{
    const struct stream_answer *a = &f->answer;
    if (f->body.n > 0 && !f->request.framed)
        return follower_complain(f, TM_E_PROTOCOL, "the answer does not say where it ends");
    int err = take_body(f);
    if (err)
        return err;
    if (a->cursor[0])
        memcpy(f->cursor, a->cursor, sizeof f->cursor);
    if (a->closed)
        memcpy(f->end_reason, a->end_reason, sizeof f->end_reason);
    /* An answer with nothing new is at the tail, whether it says so or not. */
    bool is_same = f->held == NULL && strcmp(a->next_offset, f->offset) == 0;
    bool at_tail = a->up_to_date || a->closed || is_same;
    err = follower_answer_advance(f, a->next_offset, at_tail, a->closed);
    if (err == 0 && at_tail && f->live_option != TM_LIVE_NO)
        f->live = true;
    return err;
}

/* A server without SSE, or without SSE for this stream. */
static bool falls_back(struct tm_follower *f, int status)
{
    bool refused =
        status == 400 || status == 405 || status == 406 || status == 415 || status == 501;
    if (f->mode != LIVE_SSE || f->live_option != TM_LIVE_AUTO || f->sse_worked || !refused)
        return false;
    f->polls = true;
    return true;
}

/* Not 0: it failed, in the way that is returned. */
static int follower_answer_refused(struct tm_follower *f)
{
    struct stream_refusal why;
    if (falls_back(f, f->request.status))
        return 0;
    stream_refusal_read(&why, &f->request, &f->answer, bytes_str(&f->body));
    if (why.err == TM_E_GAP)
        return take_gap(f, &why);
    return follower_complain(f, why.err, "%s (the server answered %d)", why.message,
                             f->request.status);
}

/* Not 0: it failed, in the way that is returned. */
static int follower_answer_finish(struct tm_follower *f, int status)
{
    if (f->head_err)
        return f->head_err;
    if (!stream_is_success(status))
        return follower_answer_refused(f);
    if (f->mode != LIVE_SSE)
        return finish_read(f);
    if (cannot_use_sse(f))
        f->polls = true;
    return 0;
}

int follower_end(struct tm_follower *f, int err, bool *may_pass)
{
    int status = err ? 0 : f->request.status;
    if (f->leave && err == TM_E_CANCELLED)
        return 0;
    if (err == 0)
        err = follower_answer_finish(f, status);
    *may_pass = stream_may_retry(err, stream_is_success(status) ? 0 : status) ||
                (err == TM_E_TLS && f->ever_good);
    return err;
}
