// SPDX-License-Identifier: Apache-2.0
#include "feature/cascade/cascade_http.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/secret.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/origin.h"
#include "feature/cascade/cascade_core.h"
#include "feature/cascade/cascade_prompt.h"
#include "feature/gateway/gateway_core.h"
#include "feature/gateway/gateway_dialect.h"

#include <assert.h>
#include <stdlib.h>

#define SWEEP_MS (60 * 1000)

/* ---- small things that all parts use ---- */

void cascade_tell_all(struct link *waiters, const struct cascade_fault *fault)
{
    struct link all;
    list_init(&all);
    list_splice(&all, waiters);
    while (!list_empty(&all)) {
        struct cascade_wait *w = list_item(all.next, struct cascade_wait, link);
        list_remove(&w->link);
        w->done(w, fault);
    }
}

void cascade_put_fault(struct buf *out, const struct cascade_fault *fault)
{
    dialect_put_openai_body(
        out, &(struct dialect_problem){fault->status, fault->code, fault->message, STR_NONE});
}

void cascade_refuse(struct exchange *x, const struct cascade_fault *fault)
{
    struct buf body = {0};
    cascade_put_fault(&body, fault);
    exchange_status(x, fault->status);
    exchange_header(x, STR("Content-Type"), STR("application/json"));
    exchange_header(x, STR("Cache-Control"), STR("no-store"));
    if (fault->status != 403) /* what a page of this machine asked, it may read */
        gateway_put_cors(x);
    exchange_send(x, buf_str(&body));
    buf_deinit(&body);
}

bool cascade_admit(void *ctx, struct exchange *x)
{
    struct str origin = request_header(x->request, STR("Origin"));
    if (origin.p == NULL || origin_is_local(origin))
        return true;
    cascade_refuse(x,
                   &(struct cascade_fault){403, STR("ORIGIN"),
                                           STR("Pages of other sites may not use this account")});
    return false;
}

/* ---- the whole ---- */

void cascade_begin(struct cascade *c)
{
    c->background++;
}

static void cascade_check_stopped(struct cascade *c)
{
    if (c->stopping && c->background == 0)
        sched_post(c->setup.sched, &c->stop);
}

void cascade_end(struct cascade *c)
{
    c->background--;
    cascade_check_stopped(c);
}

static void cascade_run_stop(struct task *t)
{
    struct cascade *c = container_of(t, struct cascade, stop);
    c->stopped(c->stopped_ctx);
}

static void cascade_on_sweep(struct timer *t)
{
    struct cascade *c = container_of(t, struct cascade, sweep);
    cascade_sweep(c);
    sched_start(c->setup.sched, &c->sweep, SWEEP_MS);
}

static void cascade_copy(char *to, size_t size, struct str text)
{
    assert(text.n < size);
    if (text.n > 0)
        memcpy(to, text.p, text.n);
    to[text.n] = '\0';
}

struct cascade *cascade_new(const struct cascade_setup *setup)
{
    struct cascade *c = mem_zalloc(sizeof *c);
    c->setup = *setup;
    c->setup.target = c->setup.csrf_token = c->setup.api_key = c->setup.version = STR_NONE;
    c->given = secret_alloc(sizeof *c->given);
    cascade_copy(c->target, sizeof c->target, setup->target);
    cascade_copy(c->version, sizeof c->version, setup->version);
    cascade_copy(c->given->csrf_token, sizeof c->given->csrf_token, setup->csrf_token);
    cascade_copy(c->given->api_key, sizeof c->given->api_key, setup->api_key);
    list_init(&c->lookers);
    map_init(&c->flows);
    task_init(&c->stop, cascade_run_stop);
    timer_init(&c->sweep, cascade_on_sweep);
    sched_start(setup->sched, &c->sweep, 0);
    return c;
}

void cascade_mount(struct cascade *c, struct http *http)
{
    http_route(http, STR(CASCADE_MODELS_PATH), cascade_models_handle, c);
}

struct source_kind cascade_source(struct cascade *c)
{
    return (struct source_kind){.open = cascade_chat_open,
                                .ctx = c,
                                .admit = cascade_admit,
                                .whole = cascade_prompt_is_whole};
}

void cascade_stop(struct cascade *c, void (*stopped)(void *ctx), void *ctx)
{
    c->stopping = true;
    c->stopped = stopped;
    c->stopped_ctx = ctx;
    timer_stop(&c->sweep);
    cascade_check_stopped(c);
}

void cascade_free(struct cascade *c)
{
    if (c == NULL)
        return;
    timer_stop(&c->sweep);
    task_cancel(&c->stop);
    cascade_access_unref(c->access);
    secret_free(c->given, sizeof *c->given);
    map_deinit(&c->flows);
    free(c);
}
