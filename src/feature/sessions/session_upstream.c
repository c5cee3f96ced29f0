// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/session_upstream.h"
#include "base/backoff.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/num.h"
#include "base/rand.h"
#include "base/utf8.h"
#include "http/fetch.h"
#include "http/sse_host.h"
#include "feature/sessions/session_config.h"
#include "feature/sessions/session_upstream_event.h"
#include "feature/sessions/sessions_trace.h"

#include <stdio.h>
#include <stdlib.h>

#define RETRY_MIN_MS    250
#define RETRY_MAX_MS    15000
#define RETRY_AFTER_MAX 60   /* seconds */
#define DONE_TIMEOUT_MS 1000 /* for the end of an answer that has said it is complete */
#define MESSAGE_MAX     256  /* bytes of what a client is told */
#define HEADERS_MAX     4

/* Parts of the messages: what is wrong, and why it cannot be mended. */
#define BROKE_OFF       "the upstream broke off its answer"
#define NO_END          "the upstream's answer does not say where it ends"
#define NO_IDS          "and it gives its events no ids by which it could be continued"

_Static_assert(SESSION_UPSTREAM_ID == SSE_NAME_MAX, "every id of an event can be kept");

struct session_upstream {
    struct session_upstream_setup setup;
    struct session_backend backend;
    size_t n_calls;
};

struct event_id {
    uint8_t n; /* 0: none */
    char text[SESSION_UPSTREAM_ID];
};

enum answer { ANSWER_EVENTS, ANSWER_BODY };

/* One reply: as many requests as it takes, one after the other. */
struct upstream_call {
    struct session_upstream *upstream;
    struct session_reply *reply;
    struct task begin;
    struct timer timer; /* to the next try; or see DONE_TIMEOUT_MS */
    struct fetch fetch;
    struct header headers[HEADERS_MAX];
    char idempotency_key[SESSION_KEY_MAX + 1 + NUM_TEXT_MAX + 1];
    uint32_t failures; /* in a row, without an event */

    /* the answer, over all tries */
    bool begun;                  /* events of it have been taken */
    bool full;                   /* no more of them before room() */
    bool vague;                  /* its ids do not tell events apart */
    struct event_id first, last; /* of the events taken; first: if it was seen here */

    /* this try */
    enum answer answer;
    bool continues; /* behind `last` */
    bool done;      /* all has come, as the upstream says */
    bool fresh;     /* no event has come yet */
    bool rewinding; /* it began anew: events up to `last` are known */
    struct sse_parser parser;
    size_t parsed;   /* bytes of the piece that session_upstream_on_data gave back */
    struct buf body; /* of ANSWER_BODY */
    char message[MESSAGE_MAX];
    size_t message_n; /* of an `error` event */
};

/* ---- ids ---- */

static struct str id_str(const struct event_id *id)
{
    return str_of(id->text, id->n);
}

static void set_id(struct event_id *id, struct str text)
{
    id->n = (uint8_t)text.n;
    if (text.n > 0)
        memcpy(id->text, text.p, text.n);
}

/* ---- the end of a reply ---- */

static void call_free(struct upstream_call *c)
{
    task_cancel(&c->begin);
    timer_stop(&c->timer);
    fetch_cancel(&c->fetch);
    sse_parser_deinit(&c->parser);
    buf_deinit(&c->body);
    c->upstream->n_calls--;
    c->reply->state = NULL;
    free(c);
}

/* message: MESSAGE_MAX bytes at most, also of the call. Comes last: the call is gone. */
static void session_upstream_end(struct upstream_call *c, enum end_reason reason,
                                 struct str message)
{
    const struct session_upstream *u = c->upstream;
    struct session_reply *reply = c->reply;
    char text[MESSAGE_MAX];
    must(message.n <= sizeof text);
    if (message.n > 0)
        memcpy(text, message.p, message.n);
    call_free(c);
    u->setup.end(reply, reason, message.n > 0 ? str_of(text, message.n) : STR_NONE);
}

static void session_upstream_fail(struct upstream_call *c, const char *message)
{
    session_upstream_end(c, END_FAILED, str_of_cstr(message));
}

static void session_upstream_complete(struct upstream_call *c)
{
    if (c->rewinding)
        session_upstream_fail(
            c, "the upstream began its answer anew and did not come to where it had broken off");
    else
        session_upstream_end(c, END_COMPLETED, STR_NONE);
}

/* ---- trying again ---- */

uint64_t session_upstream_retry_ms(uint32_t failures, uint64_t random)
{
    return backoff_jitter(backoff_ms(RETRY_MIN_MS, RETRY_MAX_MS, failures), 5, random);
}

/* at_least_ms: what the upstream asked for. All who were told the same come with a delay of their
 * own behind it. */
static void session_upstream_try_again(struct upstream_call *c, const char *why,
                                       uint64_t at_least_ms)
{
    const struct session_upstream_setup *setup = &c->upstream->setup;
    if (c->failures < UINT32_MAX)
        c->failures++;
    uint64_t ms = at_least_ms + session_upstream_retry_ms(c->failures, rand_u64());
    trace(setup->trace, SESSION_UPSTREAM_FAILED,
          TRACE_STR("request", str_of_cstr(c->idempotency_key)),
          TRACE_STR("error", str_of_cstr(why)), TRACE_INT("retry_ms", (int64_t)ms));
    fetch_cancel(&c->fetch);
    sched_start(setup->sched, &c->timer, ms);
}

/* To ask for an answer from its start would double the events that were taken of it. */
static bool may_ask_again(const struct upstream_call *c)
{
    return !c->begun || c->last.n > 0;
}

/* ---- events ---- */

/* One line, valid UTF-8, and short. */
static void set_message(struct upstream_call *c, struct str text)
{
    size_t n = text.n < MESSAGE_MAX ? text.n : MESSAGE_MAX;
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)text.p[i];
        c->message[i] = byte < 0x20 || byte == 0x7f ? ' ' : (char)byte;
    }
    if (n < text.n)
        n -= utf8_incomplete_tail(str_of(c->message, n));
    struct str line = str_trim(str_of(c->message, n));
    if (line.n == 0 || !utf8_valid(line))
        line = STR("the upstream reported an error");
    memmove(c->message, line.p, line.n);
    c->message_n = line.n;
}

/* Of a continued answer: was this event taken before? See the header for what is assumed. */
static bool is_known(struct upstream_call *c, struct str id)
{
    bool fresh = c->fresh;
    c->fresh = false;
    if (c->rewinding) {
        c->rewinding = !str_eq(id, id_str(&c->last));
        return true;
    }
    if (!c->continues || !fresh || id.n == 0)
        return false;
    if (str_eq(id, id_str(&c->last)))
        return true;
    c->rewinding = str_eq(id, id_str(&c->first));
    return c->rewinding;
}

static int session_upstream_take(struct upstream_call *c, struct str content, bool is_text,
                                 struct str id)
{
    if (id.n > 0 && str_eq(id, id_str(&c->last)))
        c->vague = true;
    if (c->vague)
        id = STR_NONE;
    /* It becomes a string of protobuf: a client would refuse what is none. */
    if (is_text && c->reply->service == SESSION_AISERVER && !utf8_valid(content))
        return ERR_SYNTAX;
    int taken = c->upstream->setup.event(c->reply, content, is_text, id);
    if (taken < 0)
        return taken;
    c->full = c->full || taken == 0;
    if (!c->begun)
        set_id(&c->first, id);
    set_id(&c->last, id);
    c->begun = true;
    c->failures = 0;
    return 0;
}

#define TOLD 1 /* the message says what is wrong */

static int no_such_event(struct upstream_call *c, struct str name)
{
    char text[MESSAGE_MAX];
    int n = snprintf(text, sizeof text, "the data of the upstream's event `%.*s` is malformed",
                     (int)name.n, name.p);
    set_message(c, str_of(text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1));
    return TOLD;
}

static int session_upstream_take_event(struct upstream_call *c, const struct sse_event *event,
                                       struct str id)
{
    struct buf message = {0};
    bool opaque = c->reply->service != SESSION_AISERVER;
    int got = opaque ? 0 : session_upstream_event(event->type, event->data, &message);
    if (got > 0)
        got = session_upstream_take(c, buf_str(&message), false, id);
    else if (got == 0)
        got = session_upstream_take(c, event->data, true, id);
    else
        got = no_such_event(c, event->type);
    buf_deinit(&message);
    return got;
}

static int session_upstream_on_event(void *user, const struct sse_event *event)
{
    struct upstream_call *c = user;
    struct str id = event->id;
    c->parser.n_id = 0; /* the next event is not named by the id of this one */
    if (c->done)
        return 0;
    if (str_eq(event->type, STR("error"))) {
        set_message(c, event->data);
        return TOLD;
    }
    if (str_eq(event->data, STR("[DONE]"))) {
        c->done = true;
        sched_start(c->upstream->setup.sched, &c->timer, DONE_TIMEOUT_MS);
        return 0;
    }
    if (event->data.n == 0 || is_known(c, id))
        return 0;
    return session_upstream_take_event(c, event, id);
}

static void fail_of_event(struct upstream_call *c, int err)
{
    if (err == TOLD)
        session_upstream_end(c, END_FAILED, str_of(c->message, c->message_n));
    else if (err == ERR_TOO_LARGE)
        session_upstream_fail(c, "the upstream sent an event that is too large");
    else if (err == ERR_LIMIT)
        session_upstream_fail(c, "the session holds as many bytes as it may");
    else
        session_upstream_fail(c, "the upstream sent an event that cannot be kept");
}

/* ---- the body of an answer ---- */

static size_t through_line(struct str s)
{
    size_t n = 0;
    while (n < s.n && s.p[n] != '\n' && s.p[n] != '\r')
        n++;
    return n < s.n ? n + 1 : n;
}

/* Line by line, so as to stop right behind the event that was one too many. */
static bool parse_events(struct upstream_call *c, struct str data)
{
    struct str rest = str_skip(data, c->parsed);
    while (rest.n > 0 && !c->full) {
        size_t n = through_line(rest);
        int err = sse_parser_feed(&c->parser, str_of(rest.p, n));
        if (err != 0) {
            fail_of_event(c, err);
            return true;
        }
        rest = str_skip(rest, n);
    }
    c->parsed = rest.n > 0 ? data.n - rest.n : 0;
    return rest.n == 0;
}

static bool session_upstream_on_data(struct fetch *f, struct str data)
{
    struct upstream_call *c = container_of(f, struct upstream_call, fetch);
    if (c->answer == ANSWER_EVENTS)
        return parse_events(c, data);
    if (data.n > SESSION_UPSTREAM_EVENT_MAX - c->body.n)
        fail_of_event(c, ERR_TOO_LARGE);
    else
        buf_put(&c->body, data);
    return true;
}

static struct str media_type(const struct fetch *f)
{
    struct str type = f->content_type;
    return str_trim(str_cut(&type, ';'));
}

/* Otherwise it is the text of one. */
static bool is_message(const struct fetch *f)
{
    static const struct str types[] = {STR_INIT("application/proto"),
                                       STR_INIT("application/protobuf"),
                                       STR_INIT("application/x-protobuf")};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (str_eq_nocase(media_type(f), types[i]))
            return true;
    return false;
}

static void take_body(struct upstream_call *c)
{
    if (c->body.n > 0 && c->continues) {
        session_upstream_fail(
            c, "the upstream was to continue its answer and sent something else than events");
        return;
    }
    int err = c->body.n > 0
                  ? session_upstream_take(c, buf_str(&c->body), !is_message(&c->fetch), STR_NONE)
                  : 0;
    if (err != 0)
        fail_of_event(c, err);
    else
        session_upstream_complete(c);
}

/* ---- the head of an answer ---- */

static uint64_t retry_after_ms(const struct fetch *f)
{
    uint64_t s = 0;
    num_parse(fetch_header(f, "retry-after"), NUM_SAFE_MAX, &s);
    return (s < RETRY_AFTER_MAX ? s : RETRY_AFTER_MAX) * 1000;
}

/* 409 with Retry-After: a request with the same Idempotency-Key is still being worked on. */
static bool may_pass(const struct fetch *f)
{
    int s = f->status;
    return s >= 500 || s == 408 || s == 425 || s == 429 ||
           (s == 409 && fetch_header(f, "retry-after").p != NULL);
}

static void session_upstream_on_head(struct fetch *f)
{
    struct upstream_call *c = container_of(f, struct upstream_call, fetch);
    struct str coding = fetch_header(f, "content-encoding");
    char text[64];
    snprintf(text, sizeof text, "the upstream answered with status %d", f->status);
    if (f->status < 200 || f->status > 299) {
        if (may_pass(f))
            session_upstream_try_again(c, text, retry_after_ms(f));
        else
            session_upstream_fail(c, text);
    } else if (coding.p != NULL && !str_eq_nocase(coding, STR("identity"))) {
        session_upstream_fail(c, "the upstream's answer is compressed, which it was not asked for");
    } else {
        bool events = str_eq_nocase(media_type(f), STR("text/event-stream"));
        c->answer = events ? ANSWER_EVENTS : ANSWER_BODY;
    }
}

/* ---- the end of an answer ---- */

/* Over HTTP/2 an end is marked, even where libcurl does not vouch for it. */
static bool is_whole(const struct fetch *f)
{
    return f->end_marked || f->http_version >= 20;
}

/* What no repetition will mend. */
static bool is_final(enum fetch_cause cause)
{
    return cause == FETCH_MALFORMED || cause == FETCH_FORBIDDEN || cause == FETCH_TOO_LARGE;
}

static void end_unmarked(struct upstream_call *c)
{
    if (c->answer == ANSWER_BODY)
        session_upstream_fail(c, NO_END);
    else if (!may_ask_again(c))
        session_upstream_fail(c, NO_END ", " NO_IDS);
    else
        session_upstream_try_again(c, NO_END, 0);
}

static void session_upstream_on_fetched(struct fetch *f, int err)
{
    struct upstream_call *c = container_of(f, struct upstream_call, fetch);
    if (c->done)
        session_upstream_complete(c);
    else if (err == 0 && !is_whole(f))
        end_unmarked(c);
    else if (err == 0 && c->answer == ANSWER_BODY)
        take_body(c);
    else if (err == 0)
        session_upstream_complete(c);
    else if (is_final(f->cause))
        session_upstream_fail(c, fetch_cause_text(f->cause));
    else if (!may_ask_again(c))
        session_upstream_fail(c, BROKE_OFF ", " NO_IDS);
    else
        session_upstream_try_again(c, f->error, 0);
}

/* ---- asking ---- */

static struct str content_type(const struct upstream_call *c)
{
    const char *configured = c->upstream->setup.config->content_type;
    if (configured != NULL)
        return str_of_cstr(configured);
    return c->reply->service == SESSION_AISERVER ? STR("application/proto")
                                                 : STR("application/octet-stream");
}

static size_t session_upstream_make_headers(struct upstream_call *c)
{
    size_t n = 0;
    c->headers[n++] = (struct header){STR("Content-Type"), content_type(c)};
    c->headers[n++] = (struct header){STR("Accept"), STR("text/event-stream")};
    c->headers[n++] = (struct header){STR("Idempotency-Key"), str_of_cstr(c->idempotency_key)};
    if (c->last.n > 0)
        c->headers[n++] = (struct header){STR("Last-Event-ID"), id_str(&c->last)};
    return n;
}

static void make_fetch(struct upstream_call *c)
{
    const struct session_config *config = c->upstream->setup.config;
    c->fetch = (struct fetch){.url = str_of_cstr(config->upstream),
                              .method = STR("POST"),
                              .headers = c->headers,
                              .n_headers = session_upstream_make_headers(c),
                              .body = c->reply->chunk,
                              /* as of routes: who runs the server chose it */
                              .policy = {.configured = true},
                              .version = (enum fetch_version)config->upstream_http,
                              .connect_timeout_ms = (uint32_t)config->connect_timeout_ms,
                              .first_byte_timeout_ms = (uint32_t)config->first_byte_timeout_ms,
                              .idle_timeout_ms = (uint32_t)config->idle_timeout_ms,
                              .total_timeout_ms = (uint32_t)config->total_timeout_ms,
                              .on_head = session_upstream_on_head,
                              .on_data = session_upstream_on_data,
                              .done = session_upstream_on_fetched};
}

static void session_upstream_ask(struct upstream_call *c)
{
    if (!may_ask_again(c)) { /* an earlier attempt has left events without an id */
        session_upstream_fail(c, BROKE_OFF ", " NO_IDS);
        return;
    }
    c->continues = c->last.n > 0;
    c->fresh = true;
    c->rewinding = false;
    c->parsed = 0;
    c->body.n = 0;
    sse_parser_deinit(&c->parser);
    sse_parser_init(&c->parser, &sse_server_host, NULL, SESSION_UPSTREAM_EVENT_MAX, c,
                    session_upstream_on_event);
    make_fetch(c);
    fetch_start(c->upstream->setup.fetcher, &c->fetch);
}

static void session_upstream_on_begin(struct task *t)
{
    session_upstream_ask(container_of(t, struct upstream_call, begin));
}

static void session_upstream_on_timer(struct timer *t)
{
    struct upstream_call *c = container_of(t, struct upstream_call, timer);
    if (c->done)
        session_upstream_complete(c);
    else
        session_upstream_ask(c);
}

/* ---- the backend ---- */

static void session_upstream_on_start(void *ctx, struct session_reply *reply)
{
    struct session_upstream *u = ctx;
    struct upstream_call *c = mem_zalloc(sizeof *c);
    c->upstream = u;
    c->reply = reply;
    c->begun = reply->begun;
    set_id(&c->last, reply->last_id);
    task_init(&c->begin, session_upstream_on_begin);
    timer_init(&c->timer, session_upstream_on_timer);
    snprintf(c->idempotency_key, sizeof c->idempotency_key, "%.*s/%lu", (int)reply->key.n,
             reply->key.p, (unsigned long)reply->seqno);
    reply->state = c;
    u->n_calls++;
    sched_post(u->setup.sched, &c->begin);
}

static void session_upstream_on_stop(void *ctx, struct session_reply *reply)
{
    call_free(reply->state);
}

static void session_upstream_on_room(void *ctx, struct session_reply *reply)
{
    struct upstream_call *c = reply->state;
    c->full = false;
    fetch_resume(&c->fetch);
}

struct session_upstream *session_upstream_new(const struct session_upstream_setup *setup)
{
    struct session_upstream *u = mem_zalloc(sizeof *u);
    u->setup = *setup;
    u->backend = (struct session_backend){.start = session_upstream_on_start,
                                          .stop = session_upstream_on_stop,
                                          .room = session_upstream_on_room,
                                          .ctx = u};
    return u;
}

void session_upstream_free(struct session_upstream *u)
{
    must(u == NULL || u->n_calls == 0);
    free(u);
}

const struct session_backend *session_upstream_backend(const struct session_upstream *u)
{
    return &u->backend;
}
