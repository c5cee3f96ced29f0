// SPDX-License-Identifier: Apache-2.0
/* cascade_flow.c -- one answer of a Cascade, from the question to the archive.
 *
 *     LOOKING -> CHOOSING -> OPENING -> STARTING -> NOTING -> SENDING -> POLLING
 *        |          |           |        |    |         |         |         |
 *        `----------+-----------+--------'    `---------+---------+---------'
 *                   |                                   |
 *                   v                                   v
 *                 gone <---------- FORGETTING <---- ARCHIVING
 *
 * CHOOSING, OPENING and STARTING go back to LOOKING once, for an editor that was started anew. What
 * cannot be archived now is gone without FORGETTING: the document is there for the next sweep.
 *
 * LOOKING    which server, and as whom
 * CHOOSING   which model is meant
 * OPENING    the panel, which all flows share
 * STARTING   StartCascade: from its answer on there is something to archive
 * NOTING     the document is put that makes sure of that
 * SENDING    the question
 * POLLING    the transcript, until the turn is over
 * ARCHIVING  also when it failed or nobody wants it any more
 * FORGETTING the document goes
 *
 * A process that is killed between the answer of StartCascade and the document leaves behind a
 * Cascade without a question in it; from the document on it leaves none. */
#include "base/err.h"
#include "base/mem.h"
#include "feature/cascade/cascade_core.h"
#include "feature/cascade/cascade_trace.h"

#include <stdlib.h>

#define MODELS_AGE_MS   (5 * 60 * 1000)
#define MODELS_FRESH_MS 5000 /* a name that is not among them may be this new */

enum state {
    LOOKING,
    CHOOSING,
    OPENING,
    STARTING,
    NOTING,
    SENDING,
    POLLING,
    ARCHIVING,
    FORGETTING,
};

struct cascade_flow {
    struct cascade *cascade;
    struct arena arena;  /* of its texts */
    struct str asked;    /* name of a model; n == 0: the account's */
    struct str model;    /* its UID, once it is chosen */
    struct str text, id; /* id.n == 0: nothing to archive yet */
    const struct cascade_flow_ops *ops;
    void *ctx;
    enum state state;
    bool left;    /* nobody is told anything any more */
    bool retried; /* StartCascade, with a new panel of this access */
    bool noted;   /* the document may be there */
    bool paused;
    uint64_t paused_ms; /* since when */
    struct cascade_access *access;
    struct cascade_second_try second;
    struct cascade_wait wait;
    uint32_t panel_round;
    struct cascade_call call;
    struct cascade_turn *turn;
    struct timer timer;
    struct task begin;
    struct store_put put;
    struct doc_put doc;
    struct buf doc_value, reason, poll_error;
};

static struct sched *sched_of(const struct cascade_flow *f)
{
    return f->cascade->setup.sched;
}

/* Answers come before the turn that their round of the loop ends with. */
static uint64_t cascade_flow_now_ms(const struct cascade_flow *f)
{
    const struct sched *s = sched_of(f);
    return s->awake_ms != NULL ? s->awake_ms(s) : s->now_ms;
}

static void flow_free(struct cascade_flow *f)
{
    struct cascade *c = f->cascade;
    if (f->id.n > 0 && map_get(&c->flows, f->id) == f)
        map_remove(&c->flows, f->id);
    task_cancel(&f->begin);
    list_remove(&f->wait.link);
    cascade_call_cancel(&f->call);
    timer_stop(&f->timer);
    cascade_turn_free(f->turn);
    cascade_access_unref(f->access);
    buf_deinit(&f->doc_value);
    buf_deinit(&f->reason);
    buf_deinit(&f->poll_error);
    arena_deinit(&f->second.arena);
    arena_deinit(&f->arena);
    free(f);
    cascade_end(c);
}

static void start_call(struct cascade_flow *f, enum cascade_rpc rpc,
                       void (*done)(struct cascade_call *c, int err))
{
    f->call = (struct cascade_call){
        .rpc = rpc, .cascade_id = f->id, .text = f->text, .model_uid = f->model, .done = done};
    cascade_call_start(f->access, &f->call);
}

/* ---- the end ---- */

/* Changed by nobody but us: whatever the store says, there is no more to do. */
static void cascade_flow_on_forgotten(struct store_put *put, int err)
{
    flow_free(container_of(put, struct cascade_flow, put));
}

static void cascade_flow_forget(struct cascade_flow *f)
{
    if (!f->noted) {
        flow_free(f);
        return;
    }
    f->state = FORGETTING;
    f->doc = (struct doc_put){.key = f->doc.key, .expect_version = DOC_NEXT(0)};
    f->put = (struct store_put){.docs = &f->doc, .n_docs = 1, .done = cascade_flow_on_forgotten};
    store_put(f->cascade->setup.store, &f->put);
}

/* A server that cannot be reached, or does not know us now, may be back later, and the document is
 * there for the next sweep. */
static void cascade_flow_on_archived(struct cascade_call *c, int err)
{
    struct cascade_flow *f = container_of(c, struct cascade_flow, call);
    if (err != 0) {
        struct cascade_fault fault;
        cascade_call_fault(f->access, c, err, &f->reason, &fault);
        trace(f->cascade->setup.trace, CASCADE_LEFT, TRACE_STR("id", f->id),
              TRACE_STR("error", fault.message));
    }
    if (cascade_archive_settled(c, err))
        cascade_flow_forget(f);
    else
        flow_free(f);
}

static void archive(struct cascade_flow *f)
{
    cascade_call_cancel(&f->call);
    timer_stop(&f->timer);
    if (f->id.n == 0) {
        flow_free(f);
        return;
    }
    f->state = ARCHIVING;
    start_call(f, CASCADE_ARCHIVE, cascade_flow_on_archived);
}

/* Of the client, whom it is told. */
static bool is_mistake(const struct cascade_fault *fault)
{
    return fault->status == 400 || fault->status == 404;
}

static void cascade_flow_finish(struct cascade_flow *f, const struct cascade_fault *fault)
{
    bool told = f->left;
    f->left = true;
    if (fault != NULL && !is_mistake(fault))
        trace(f->cascade->setup.trace, CASCADE_FLOW_FAILED, TRACE_STR("id", f->id),
              TRACE_STR("code", fault->code), TRACE_STR("error", fault->message));
    if (!told)
        f->ops->end(f->ctx, fault);
    archive(f);
}

/* What is wrong with the session shows in any place, and may be the key as well: the next question
 * begins with a new panel, and with a look at what the editor uses now. */
static void suspect(struct cascade_flow *f, struct str said)
{
    if (!cascade_error_is_session(said))
        return;
    cascade_panel_lost(f->access, f->panel_round);
    cascade_access_recheck(f->access);
}

static void call_fault(struct cascade_flow *f, int err, struct cascade_fault *fault)
{
    if (f->call.told)
        suspect(f, f->call.message);
    cascade_call_fault(f->access, &f->call, err, &f->reason, fault);
}

static void cascade_flow_fail(struct cascade_flow *f, int status, const char *code,
                              struct str message)
{
    cascade_flow_finish(f, &(struct cascade_fault){status, str_of_cstr(code), message});
}

/* ---- polling ---- */

static void poll(struct cascade_flow *f);

static void cascade_flow_on_time(struct timer *t)
{
    poll(container_of(t, struct cascade_flow, timer));
}

static void fail_said(struct cascade_flow *f, const struct cascade_error *e)
{
    struct cascade_fault fault;
    suspect(f, e->text);
    buf_printf(&f->reason, "%s: ", err_grpc_name(e->code));
    buf_put(&f->reason, e->text);
    cascade_said_fault(f->access, e, &f->reason, &fault);
    cascade_flow_finish(f, &fault);
}

static void end_turn(struct cascade_flow *f, const struct cascade_turn_step *step)
{
    f->reason.n = 0;
    switch (step->state) {
    case CASCADE_TURN_FAILED: fail_said(f, &step->error); break;
    case CASCADE_TURN_LOST:
        buf_put(&f->reason, STR("too many polls have failed: "));
        buf_put(&f->reason, buf_str(&f->poll_error));
        cascade_flow_fail(f, 502, "STREAM_ERROR", buf_str(&f->reason));
        break;
    case CASCADE_TURN_TIMED_OUT:
        buf_printf(&f->reason, "the answer of the Cascade %.*s was not complete in time%s",
                   (int)f->id.n, f->id.p, f->poll_error.n > 0 ? "; the last error: " : "");
        buf_put(&f->reason, buf_str(&f->poll_error));
        cascade_flow_fail(f, 504, "STREAM_ERROR", buf_str(&f->reason));
        break;
    case CASCADE_TURN_TOO_LARGE:
        cascade_flow_fail(f, 502, "STREAM_ERROR", STR("the transcript is too large"));
        break;
    case CASCADE_TURN_GOING:
    case CASCADE_TURN_ENDED: cascade_flow_finish(f, NULL); break;
    }
}

static void take_step(struct cascade_flow *f, const struct cascade_turn_step *step)
{
    for (size_t i = 0; i < step->n_events && !f->left; i++)
        f->ops->event(f->ctx, &step->events[i]);
    if (f->left) /* for what it was told */
        return;
    f->paused = !f->ops->polled(f->ctx);
    f->paused_ms = cascade_flow_now_ms(f);
    if (step->state != CASCADE_TURN_GOING)
        end_turn(f, step);
    else if (!f->paused)
        sched_start(sched_of(f), &f->timer, step->wait_ms);
}

static void note_failed_poll(struct cascade_flow *f, int err, bool read)
{
    struct cascade_fault ignored;
    f->poll_error.n = 0;
    if (read)
        buf_put(&f->poll_error, STR("a transcript cannot be read"));
    else
        cascade_call_fault(f->access, &f->call, err, &f->poll_error, &ignored);
}

static void cascade_flow_on_polled(struct cascade_call *c, int err)
{
    struct cascade_flow *f = container_of(c, struct cascade_flow, call);
    struct arena a = {0};
    struct cascade_transcript_answer answer;
    struct cascade_turn_step step;
    bool came = err == 0;
    if (came)
        err = cascade_transcript_answer_read(&a, c->answer, &answer);
    if (err == 0) {
        cascade_turn_polled(f->turn, cascade_flow_now_ms(f), answer.text, answer.num_total_steps,
                            &step);
    } else {
        note_failed_poll(f, err, came);
        cascade_turn_poll_failed(f->turn, cascade_flow_now_ms(f), &step);
    }
    take_step(f, &step);
    arena_deinit(&a);
}

static void poll(struct cascade_flow *f)
{
    start_call(f, CASCADE_TRANSCRIPT, cascade_flow_on_polled);
}

/* The time that it was held up for is more than any wait. */
void cascade_flow_resume(struct cascade_flow *f)
{
    if (!f->paused)
        return;
    f->paused = false;
    if (f->state != POLLING || f->call.sent != NULL)
        return;
    cascade_turn_held(f->turn, cascade_flow_now_ms(f) - f->paused_ms);
    sched_start(sched_of(f), &f->timer, cascade_turn_first_wait_ms(f->turn));
}

/* ---- asking ---- */

static void cascade_flow_on_sent(struct cascade_call *c, int err)
{
    struct cascade_flow *f = container_of(c, struct cascade_flow, call);
    if (err != 0) {
        struct cascade_fault fault;
        call_fault(f, err, &fault);
        cascade_flow_finish(f, &fault);
        return;
    }
    struct cascade_turn_rules rules = cascade_turn_defaults;
    rules.timeout_ms = f->cascade->setup.timeout_ms;
    f->turn = cascade_turn_new(&rules, cascade_flow_now_ms(f));
    f->state = POLLING;
    f->ops->begun(f->ctx, f->model);
    if (!f->left)
        sched_start(sched_of(f), &f->timer, cascade_turn_first_wait_ms(f->turn));
}

/* A document that is there already, as of a server that gives an id twice, will do. */
static void cascade_flow_on_noted(struct store_put *put, int err)
{
    struct cascade_flow *f = container_of(put, struct cascade_flow, put);
    f->noted = err == 0;
    if (f->left) {
        archive(f);
    } else if (err != 0 && err != ERR_VERSION) {
        cascade_flow_fail(f, err_http_status(err), err_name(err), str_of_cstr(err_text(err)));
    } else {
        f->state = SENDING;
        start_call(f, CASCADE_SEND, cascade_flow_on_sent);
    }
}

static void cascade_flow_note(struct cascade_flow *f)
{
    f->state = NOTING;
    cascade_doc_put(&f->doc_value, sched_of(f)->wall_ms);
    f->doc = (struct doc_put){
        .key = arena_printf(&f->arena, CASCADE_DOC_PREFIX "%.*s", (int)f->id.n, f->id.p),
        .value = buf_str(&f->doc_value)};
    f->put = (struct store_put){.docs = &f->doc, .n_docs = 1, .done = cascade_flow_on_noted};
    store_put(f->cascade->setup.store, &f->put);
}

static void cascade_flow_on_access(struct cascade_wait *w, const struct cascade_fault *fault);

/* No Cascade has begun. */
static void fail_early(struct cascade_flow *f, const struct cascade_fault *fault)
{
    if (f->left || !cascade_second_try(&f->second, f->access, fault)) {
        cascade_flow_finish(f, fault);
        return;
    }
    f->state = LOOKING;
    f->wait.done = cascade_flow_on_access;
    cascade_want_access(f->cascade, &f->wait);
}

static void open_panel(struct cascade_flow *f);

/* True: it is tried once more. */
static bool start_again(struct cascade_flow *f)
{
    if (f->left || f->retried || !f->call.told || !cascade_error_is_session(f->call.message))
        return false;
    f->retried = true;
    cascade_panel_lost(f->access, f->panel_round);
    open_panel(f);
    return true;
}

static void cascade_flow_on_started(struct cascade_call *c, int err)
{
    struct cascade_flow *f = container_of(c, struct cascade_flow, call);
    if (err != 0) {
        struct cascade_fault fault;
        if (start_again(f))
            return;
        call_fault(f, err, &fault);
        fail_early(f, &fault);
        return;
    }
    err = cascade_started_read(&f->arena, c->answer, &f->id);
    if (err != 0) {
        cascade_flow_fail(f, 502, "STREAM_ERROR",
                          STR("StartCascade returned without a cascade_id"));
        return;
    }
    map_put(&f->cascade->flows, f->id, f);
    if (f->left)
        archive(f);
    else
        cascade_flow_note(f);
}

static void cascade_flow_on_panel(struct cascade_wait *w, const struct cascade_fault *fault)
{
    struct cascade_flow *f = container_of(w, struct cascade_flow, wait);
    if (fault != NULL) {
        fail_early(f, fault);
        return;
    }
    f->panel_round = f->access->panel.round;
    f->state = STARTING;
    start_call(f, CASCADE_START, cascade_flow_on_started);
}

static void open_panel(struct cascade_flow *f)
{
    f->state = OPENING;
    f->wait.done = cascade_flow_on_panel;
    cascade_want_panel(f->access, &f->wait);
}

/* ---- which model ---- */

static void refuse_model(struct cascade_flow *f, const struct cascade_model *m)
{
    f->reason.n = 0;
    buf_printf(&f->reason, "The model `%.*s` ", (int)f->asked.n, f->asked.p);
    if (m == NULL)
        buf_put(&f->reason, STR("does not exist; GET " CASCADE_MODELS_PATH " lists those that do"));
    else
        buf_put(&f->reason, STR("is disabled for this account"));
    if (m != NULL && m->disabled_reason.n > 0) {
        buf_put(&f->reason, STR(": "));
        buf_put(&f->reason, m->disabled_reason);
    }
    cascade_flow_fail(f, 404, "model_not_found", buf_str(&f->reason));
}

static void cascade_flow_on_fresh_models(struct cascade_wait *w, const struct cascade_fault *fault);

static void choose(struct cascade_flow *f, bool fresh)
{
    const struct cascade_models *models = &f->access->models;
    struct str name = f->asked.n > 0 ? f->asked : models->default_uid;
    const struct cascade_model *m = cascade_models_find(models, name);
    if (m == NULL && name.n == 0) {
        cascade_flow_fail(f, 400, "model_missing",
                          STR("The account has no default model: name one as `model`"));
    } else if (m == NULL && !fresh) {
        f->wait.done = cascade_flow_on_fresh_models;
        cascade_want_models(f->access, MODELS_FRESH_MS, &f->wait);
    } else if (m == NULL || m->disabled) {
        refuse_model(f, m);
    } else {
        f->model = arena_dup(&f->arena, m->uid);
        open_panel(f);
    }
}

/* A server that does not list its models judges for itself. */
static bool can_list(const struct cascade_flow *f, const struct cascade_fault *fault)
{
    if (fault == NULL)
        return f->access->models.n > 0;
    return !f->access->status.call.told || fault->status == 401 || fault->status == 403;
}

static void take_models(struct cascade_flow *f, const struct cascade_fault *fault, bool fresh)
{
    if (f->asked.n > 0 && !can_list(f, fault)) {
        f->model = f->asked;
        open_panel(f);
    } else if (fault == NULL) {
        choose(f, fresh);
    } else {
        fail_early(f, fault);
    }
}

static void cascade_flow_on_fresh_models(struct cascade_wait *w, const struct cascade_fault *fault)
{
    take_models(container_of(w, struct cascade_flow, wait), fault, true);
}

static void cascade_flow_on_models(struct cascade_wait *w, const struct cascade_fault *fault)
{
    take_models(container_of(w, struct cascade_flow, wait), fault, false);
}

static void cascade_flow_on_access(struct cascade_wait *w, const struct cascade_fault *fault)
{
    struct cascade_flow *f = container_of(w, struct cascade_flow, wait);
    if (fault == NULL && f->access == f->cascade->access)
        fault = &f->second.fault;
    if (fault != NULL) {
        cascade_flow_finish(f, fault);
        return;
    }
    cascade_access_unref(f->access);
    f->access = cascade_access_ref(f->cascade->access);
    f->retried = false;
    f->state = CHOOSING;
    f->wait.done = cascade_flow_on_models;
    cascade_want_models(f->access, MODELS_AGE_MS, &f->wait);
}

/* ---- the whole ---- */

static void cascade_flow_run_begin(struct task *t)
{
    struct cascade_flow *f = container_of(t, struct cascade_flow, begin);
    f->wait.done = cascade_flow_on_access;
    cascade_want_access(f->cascade, &f->wait);
}

struct cascade_flow *cascade_flow_new(struct cascade *c, const struct cascade_ask *ask)
{
    struct cascade_flow *f = mem_zalloc(sizeof *f);
    f->cascade = c;
    f->asked = arena_dup(&f->arena, ask->model);
    f->text = arena_dup(&f->arena, ask->text);
    f->ops = ask->ops;
    f->ctx = ask->ctx;
    list_init(&f->wait.link);
    timer_init(&f->timer, cascade_flow_on_time);
    task_init(&f->begin, cascade_flow_run_begin);
    cascade_begin(c);
    sched_post(c->setup.sched, &f->begin);
    return f;
}

/* What is on its way to a Cascade, or to a document, is waited for: else nobody would know of it.
 */
void cascade_flow_leave(struct cascade_flow *f)
{
    f->left = true;
    switch (f->state) {
    case LOOKING:
    case CHOOSING:
    case OPENING:
    case SENDING:
    case POLLING: archive(f); break;
    case STARTING:
    case NOTING:
    case ARCHIVING:
    case FORGETTING: break;
    }
}
