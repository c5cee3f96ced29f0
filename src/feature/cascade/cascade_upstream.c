// SPDX-License-Identifier: Apache-2.0
/* cascade_upstream.c -- the calls of a language server, and those whose outcome is shared. */
#include "base/err.h"
#include "base/mem.h"
#include "base/rand.h"
#include "feature/cascade/cascade_errors.h"
#include "feature/cascade/cascade_transcript.h"
#include "http/rpc_client.h"
#include "feature/cascade/cascade_core.h"
#include "feature/cascade/cascade_trace.h"

#include <stdlib.h>
#include <unistd.h>

#define ANSWER_MAX      (64 * 1024)
#define STATUS_MAX      (8 << 20)
#define TRANSCRIPT_MAX  (CASCADE_TRANSCRIPT_MAX + 1024)
#define MESSAGE_RESERVE (CASCADE_KEY_MAX + 2048) /* of a request, besides its texts */
#define HIDE_LEAST      8                        /* bytes of a secret that tell something */

static const struct {
    struct str name, path;
    uint32_t timeout_ms;
    size_t max_answer;
} calls[] = {
#define CALL(row, word, ms, max)                                                                   \
    [CASCADE_##row] = {STR_INIT(word), STR_INIT("/" CASCADE_SERVICE "/" word), (ms), (max)}
    CALL(INITIALIZE, "InitializeCascadePanelState", 10000, ANSWER_MAX),
    CALL(START, "StartCascade", 10000, ANSWER_MAX),
    CALL(SEND, "SendUserCascadeMessage", 30000, ANSWER_MAX),
    CALL(TRANSCRIPT, "GetCascadeTranscriptForTrajectoryId", 10000, TRANSCRIPT_MAX),
    CALL(ARCHIVE, "ArchiveCascadeTrajectory", 5000, ANSWER_MAX),
    CALL(USER_STATUS, "GetUserStatus", 10000, STATUS_MAX),
#undef CALL
};

/* ---- one call ---- */

static void cascade_upstream_put_message(struct buf *out, const struct cascade_call *call,
                                         const struct cascade_metadata *m)
{
    switch (call->rpc) {
    case CASCADE_INITIALIZE: cascade_put_initialize(out, m); break;
    case CASCADE_START: cascade_put_start(out, m); break;
    case CASCADE_SEND:
        cascade_put_send(out, call->cascade_id, call->text, call->model_uid, m);
        break;
    case CASCADE_TRANSCRIPT: cascade_put_transcript(out, call->cascade_id); break;
    case CASCADE_ARCHIVE: cascade_put_archive(out, call->cascade_id); break;
    case CASCADE_USER_STATUS: cascade_put_user_status(out, m); break;
    }
}

struct cascade_sent {
    struct rpc_client_call rpc;
    struct cascade_call *call;
};

static void cascade_upstream_on_done(struct rpc_client_call *rpc, int err)
{
    struct cascade_sent *sent = container_of(rpc, struct cascade_sent, rpc);
    struct cascade_call *c = sent->call;
    c->sent = NULL;
    c->answer = rpc->answer;
    c->message = rpc->message;
    c->code = rpc->code;
    c->told = rpc->told;
    c->stranger = rpc->stranger;
    free(sent);
    c->done(c, err);
}

void cascade_call_cancel(struct cascade_call *c)
{
    if (c->sent == NULL)
        return;
    rpc_client_cancel(&c->sent->rpc);
    free(c->sent);
    c->sent = NULL;
}

void cascade_call_start(struct cascade_access *a, struct cascade_call *call)
{
    struct cascade *c = a->cascade;
    char session[RAND_UUID + 1], trigger[RAND_UUID + 1];
    rand_uuid(session);
    rand_uuid(trigger);
    int64_t wall_ms = c->setup.sched->wall_ms;
    struct cascade_metadata m = {
        .version = str_of_cstr(a->version),
        .api_key = str_of_cstr(a->secrets->api_key),
        .os = STR("linux"),
        .request_id = cascade_next_request_id(&c->last_request_id, wall_ms),
        .session_id = str_of(session, RAND_UUID),
        .trigger_id = str_of(trigger, RAND_UUID),
        .wall_ms = wall_ms,
    };
    struct buf message = {0}; /* never moved, which would leave a copy of the key behind */
    buf_reserve(&message, MESSAGE_RESERVE + call->text.n);
    cascade_upstream_put_message(&message, call, &m);
    call->sent = mem_zalloc(sizeof *call->sent);
    call->sent->call = call;
    call->sent->rpc = (struct rpc_client_call){.target = str_of_cstr(a->target),
                                               .method = calls[call->rpc].path,
                                               .request = buf_str(&message),
                                               .headers = &a->csrf,
                                               .n_headers = 1,
                                               .policy = {.allow_loopback = true},
                                               .check_peer = a->found,
                                               .peer_uid = getuid(),
                                               .timeout_ms = calls[call->rpc].timeout_ms,
                                               .max_answer = calls[call->rpc].max_answer,
                                               .done = cascade_upstream_on_done};
    rpc_client_start(c->setup.fetcher, &call->sent->rpc);
    explicit_bzero(message.p, message.n);
    buf_deinit(&message);
}

/* ---- what went wrong ---- */

/* A server may repeat what it was shown; what it says is cut where it is too long, so that the
 * beginning of a secret can be its end. */
static void hide(struct buf *text, const char *secret)
{
    size_t n = strlen(secret);
    char *at = text->p;
    while (n > 0 && (at = memmem(at, text->n - (size_t)(at - text->p), secret, n)) != NULL) {
        memset(at, '*', n);
        at += n;
    }
    for (size_t part = n < text->n ? n : text->n; part >= HIDE_LEAST; part--)
        if (memcmp(text->p + text->n - part, secret, part) == 0)
            memset(text->p + text->n - part, '*', part);
}

static void hide_secrets(struct buf *text, const struct cascade_access *a)
{
    hide(text, a->secrets->csrf_token);
    hide(text, a->secrets->api_key);
}

static void put_reason(struct buf *text, const struct cascade_call *c, int err)
{
    buf_put(text, calls[c->rpc].name);
    if (c->told)
        buf_printf(text, " gRPC error %d: ", c->code);
    else if (err == ERR_UPSTREAM_TIMEOUT)
        buf_printf(text, " timed out after %ums", calls[c->rpc].timeout_ms);
    else
        buf_put(text, STR(": "));
    if (c->told || err != ERR_UPSTREAM_TIMEOUT)
        buf_put(text, c->message);
}

static bool is_auth(int code)
{
    return code == GRPC_UNAUTHENTICATED || code == GRPC_PERMISSION_DENIED;
}

void cascade_call_fault(struct cascade_access *a, const struct cascade_call *c, int err,
                        struct buf *text, struct cascade_fault *out)
{
    struct cascade_error e = {c->code, c->message};
    if (c->told)
        cascade_error_in_trailers(c->code, c->message, &e);
    text->n = 0;
    put_reason(text, c, err);
    hide_secrets(text, a);
    *out = (struct cascade_fault){err_grpc_http(e.code), STR("STREAM_ERROR"), buf_str(text)};
    if (is_auth(e.code))
        out->code = STR("AUTH_FAILED");
    else if (!c->told && err != ERR_UPSTREAM_TIMEOUT)
        out->code = STR("CONNECTION_FAILED");
    if (c->stranger)
        trace(a->cascade->setup.trace, CASCADE_STRANGER,
              TRACE_STR("target", str_of_cstr(a->target)));
    if (is_auth(e.code) || !c->told)
        cascade_access_recheck(a); /* the editor may have been started anew */
}

void cascade_said_fault(struct cascade_access *a, const struct cascade_error *e, struct buf *text,
                        struct cascade_fault *out)
{
    hide_secrets(text, a);
    *out = (struct cascade_fault){err_grpc_http(e->code), STR("STREAM_ERROR"), buf_str(text)};
    if (!is_auth(e->code))
        return;
    out->code = STR("AUTH_FAILED");
    cascade_access_recheck(a);
}

bool cascade_archive_settled(const struct cascade_call *c, int err)
{
    if (err == 0 || !c->told)
        return err == 0;
    switch (c->code) {
    case GRPC_UNAUTHENTICATED: /* with the token of another run of the editor it may work */
    case GRPC_PERMISSION_DENIED:
    case GRPC_UNAVAILABLE:
    case GRPC_DEADLINE_EXCEEDED:
    case GRPC_RESOURCE_EXHAUSTED:
    case GRPC_ABORTED: return false;
    default: return true;
    }
}

/* ---- what many wait for ---- */

/* The access is there as long as the call is. */
static void share(struct cascade_access *a, struct cascade_shared *s, enum cascade_rpc rpc,
                  void (*done)(struct cascade_call *c, int err))
{
    s->under_way = true;
    s->call = (struct cascade_call){.rpc = rpc, .done = done};
    cascade_access_ref(a);
    cascade_begin(a->cascade);
    cascade_call_start(a, &s->call);
}

static void shared_end(struct cascade_access *a, struct cascade_shared *s, int err)
{
    struct cascade *c = a->cascade;
    struct cascade_fault fault;
    struct buf text = {0};
    s->under_way = false;
    s->done = err == 0;
    s->round++;
    if (err != 0)
        cascade_call_fault(a, &s->call, err, &text, &fault);
    cascade_notify_all(&s->waiters, err == 0 ? NULL : &fault);
    buf_deinit(&text);
    cascade_access_unref(a);
    cascade_end(c);
}

static void cascade_upstream_on_panel(struct cascade_call *call, int err)
{
    struct cascade_access *a = container_of(call, struct cascade_access, panel.call);
    shared_end(a, &a->panel, err);
}

void cascade_want_panel(struct cascade_access *a, struct cascade_wait *w)
{
    if (a->panel.done) {
        w->done(w, NULL);
        return;
    }
    list_push(&a->panel.waiters, &w->link);
    if (!a->panel.under_way)
        share(a, &a->panel, CASCADE_INITIALIZE, cascade_upstream_on_panel);
}

/* Whoever was there first has had it initialised anew. */
void cascade_panel_lost(struct cascade_access *a, uint32_t round)
{
    if (a->panel.round == round)
        a->panel.done = false;
}

static void cascade_upstream_on_status(struct cascade_call *call, int err)
{
    struct cascade_access *a = container_of(call, struct cascade_access, status.call);
    struct arena arena = {0};
    struct cascade_models models;
    if (err == 0 && cascade_models_read(&arena, call->answer, &models) != 0) {
        err = ERR_UPSTREAM;
        call->code = GRPC_INTERNAL;
        call->message = STR("the answer cannot be read");
        call->told = true;
    }
    if (err == 0) {
        arena_deinit(&a->arena);
        a->arena = arena;
        a->models = models;
    } else {
        arena_deinit(&arena);
    }
    shared_end(a, &a->status, err);
}

void cascade_want_models(struct cascade_access *a, uint64_t max_age_ms, struct cascade_wait *w)
{
    uint64_t now_ms = a->cascade->setup.sched->now_ms;
    if (a->status.done && !a->status.under_way && now_ms - a->models_ms <= max_age_ms) {
        w->done(w, NULL);
        return;
    }
    list_push(&a->status.waiters, &w->link);
    if (a->status.under_way)
        return;
    a->models_ms = now_ms;
    share(a, &a->status, CASCADE_USER_STATUS, cascade_upstream_on_status);
}
