// SPDX-License-Identifier: Apache-2.0
/* gateway_resume_http.c -- POST PATH/resume: on from where a signed token says. */
#include "base/err.h"
#include "base/mem.h"
#include "http/url.h"
#include "feature/gateway/gateway_http_core.h"

#define UPGRADE "{\"upgrade\":\"resume=unsupported\"}"

struct resume {
    struct read_order read;
    struct store_stat stat;
    struct str step;
    bool by_step; /* the step does not fit: only a snapshot will do */
};

static void expired(struct gateway *g, struct str request_id, const char *reason)
{
    gateway_event(&g->events, RESUME_EXPIRED, 1, TRACE_STR("request_id", request_id),
                  TRACE_STR("reason", str_of_cstr(reason)));
}

/* ---- when the events are gone ---- */

static void refuse_state(struct resume *r)
{
    struct exchange *x = r->read.x;
    struct gateway *g = r->read.route->gateway;
    if (!r->by_step) {
        expired(g, r->read.request_id, "state_expired");
        gateway_error(r->read.route, x, 426, STR("INTERNAL"),
                      STR("Stream state expired, resume not available"), STR(UPGRADE));
        return;
    }
    gateway_event(&g->events, RESUME_INCOMPATIBLE, 1, TRACE_STR("request_id", r->read.request_id),
                  TRACE_STR("step", r->step));
    gateway_error(r->read.route, x, 426, STR("INTERNAL"),
                  arena_printf(&x->arena, "Stream state incompatible: expected %.*s, got %s",
                               (int)r->step.n, r->step.p, r->read.route->config->step),
                  STR(UPGRADE));
}

static void gateway_resume_on_snapshot(struct snapshot_lookup *l)
{
    struct resume *r = l->ctx;
    struct exchange *x = r->read.x;
    struct gateway *g = r->read.route->gateway;
    if (l->payload.n > 0) {
        gateway_event(&g->events, PARTIAL_RECOVERY, 1, TRACE_STR("request_id", r->read.request_id),
                      TRACE_STR("recovery_type", r->by_step ? STR("snapshot_step_mismatch")
                                                            : STR("snapshot_fallback")));
        gateway_send_snapshot(x, &r->read.voice, r->read.request_id, l);
    } else {
        refuse_state(r);
    }
    snapshot_lookup_free(l);
    exchange_release(x);
}

static void fall_back(struct resume *r)
{
    snapshot_lookup_new(r->read.route, r->read.request_id, gateway_resume_on_snapshot, r);
}

static void gateway_resume_on_missing(struct read_order *o)
{
    fall_back(container_of(o, struct resume, read));
}

/* ---- the token ---- */

static void gateway_resume_refuse(struct resume *r, int err)
{
    struct exchange *x = r->read.x;
    gateway_refuse(r->read.route, x, err);
    exchange_release(x);
}

/* A generation is in its route's step until it completes, and then in any. */
static void gateway_resume_on_stat(struct store_stat *stat, int err)
{
    struct resume *r = container_of(stat, struct resume, stat);
    struct gateway *g = r->read.route->gateway;
    bool known = err == 0 || ERR_IS_GONE(err);
    bool fits = str_eq_nocase(r->step, str_of_cstr(r->read.route->config->step));
    r->by_step = err == 0 && !fits && stat->info.end != END_COMPLETED;
    if (!known)
        gateway_resume_refuse(r, err);
    else if (err == 0 && !r->by_step)
        gateway_read(&r->read);
    else
        fall_back(r);
    gateway_end(g);
}

static void gateway_resume_refuse_token(struct gateway_route *route, struct exchange *x,
                                        enum resume_verdict v)
{
    const char *word = resume_verdict_text(v);
    if (v == RESUME_NO_SECRET) {
        gateway_error(route, x, 426, STR("INTERNAL"),
                      STR("Resume functionality not available (secrets not configured)"),
                      STR(UPGRADE));
        return;
    }
    expired(route->gateway, STR(""), word);
    struct str message = arena_printf(&x->arena, "Invalid resume token: %s", word);
    if (v == RESUME_TOKEN_EXPIRED)
        gateway_error(route, x, 426, STR("INTERNAL"), message, STR(UPGRADE));
    else
        gateway_error(route, x, 401, STR("UNAUTHENTICATED"), message, STR_NONE);
}

static bool wants_replay_only(struct exchange *x)
{
    struct str mode = STR_NONE;
    if (url_query(&x->arena, x->request->query, STR("mode"), &mode) != 1)
        mode = request_header(x->request, STR("X-Resume-Mode"));
    return str_eq_nocase(mode, STR("replay"));
}

void gateway_resume(struct gateway_route *route, struct exchange *x)
{
    struct gateway *g = route->gateway;
    struct str token = request_header(x->request, STR("X-Resume-Token"));
    struct resume_payload p;
    if (!gateway_within_quota(route, x))
        return;
    if (token.n == 0) {
        gateway_error(route, x, 400, STR("BAD_INPUT"),
                      STR("Missing or invalid X-Resume-Token header"), STR_NONE);
        return;
    }
    enum resume_verdict v =
        resume_verify(&g->keys, &x->arena, token, sched_awake_wall_ms(g->setup.sched), &p);
    if (v != RESUME_OK) {
        gateway_resume_refuse_token(route, x, v);
        return;
    }
    if (gateway_is_request_id(p.request_id) && !gateway_may_read(route, x, p.request_id)) {
        gateway_refuse(route, x, ERR_NOT_FOUND);
        return;
    }
    uint64_t last = gateway_seq_of(x, p.request_id);
    struct resume *r = arena_alloc(&x->arena, sizeof *r);
    *r = (struct resume){.step = p.step,
                         .read = {.route = route,
                                  .x = x,
                                  .request_id = p.request_id,
                                  .voice = gateway_voice(route, x),
                                  .seq = last > p.seq ? last : p.seq,
                                  .replay_only = wants_replay_only(x),
                                  .resumes = true,
                                  .started_ms = g->setup.sched->now_ms,
                                  .missing = gateway_resume_on_missing}};
    gateway_event(&g->events, RESUME_ATTEMPT, 1, TRACE_STR("request_id", p.request_id),
                  TRACE_INT("from_seq", (int64_t)r->read.seq), TRACE_STR("step", p.step));
    exchange_hold(x);
    if (!gateway_is_request_id(p.request_id)) { /* signed with our secret, but not by us */
        refuse_state(r);
        exchange_release(x);
        return;
    }
    r->stat = (struct store_stat){.name = gateway_stream(&x->arena, route, p.request_id, ""),
                                  .done = gateway_resume_on_stat};
    gateway_begin(g);
    store_stat(g->setup.store, &r->stat);
}
