// SPDX-License-Identifier: Apache-2.0
/* cascade_http.c -- GET /v1/models, and one of them by its id. */
#include "base/json.h"
#include "base/mem.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/surface.h"
#include "http/url.h"
#include "feature/cascade/cascade_core.h"

#include <inttypes.h>
#include <stdlib.h>

#define MODELS_AGE_MS 10000 /* a client that asks often is no reason to ask as often */

/* An error as OpenAI's API has them. */
static void cascade_refuse(struct exchange *x, const struct cascade_fault *fault)
{
    struct buf body = {0};
    gateway_put_openai_error(&body, fault->status, fault->code, fault->message);
    exchange_send_json(x, fault->status, buf_str(&body));
    buf_deinit(&body);
}

static void cascade_on_refused(void *ctx, struct exchange *x, const struct surface_refusal *why)
{
    cascade_refuse(x, &(struct cascade_fault){why->status, why->code, why->message});
}

/* ---- models ---- */

struct models_request {
    struct cascade *cascade;
    struct cascade_access *access;
    struct cascade_wait wait;
    struct cascade_second_try second;
    struct exchange *x; /* held */
    struct str id;      /* p == NULL: all */
};

static void over(struct models_request *r)
{
    struct cascade *c = r->cascade;
    struct exchange *x = r->x;
    cascade_access_unref(r->access);
    arena_deinit(&r->second.arena);
    free(r);
    exchange_release(x);
    cascade_end(c);
}

static const char *cascade_models_truth(bool b)
{
    return b ? "true" : "false";
}

static void put_model(struct buf *out, const struct cascade_model *m, bool is_default)
{
    buf_put(out, STR("{\"id\":"));
    json_put_string(out, m->uid);
    buf_put(out, STR(",\"object\":\"model\",\"created\":0,\"owned_by\":\"windsurf\",\"label\":"));
    json_put_string(out, m->label);
    buf_printf(out,
               ",\"number\":%" PRId64 ",\"is_private\":%s,\"is_new\":%s,\"is_default\":%s,"
               "\"disabled\":%s",
               m->number, cascade_models_truth(m->is_private), cascade_models_truth(m->is_new),
               cascade_models_truth(is_default), cascade_models_truth(m->disabled));
    if (m->disabled_reason.n > 0) {
        buf_put(out, STR(",\"disabled_reason\":"));
        json_put_string(out, m->disabled_reason);
    }
    buf_putc(out, '}');
}

static void send_all(struct exchange *x, const struct cascade_models *models)
{
    struct buf body = {0};
    buf_put(&body, STR("{\"object\":\"list\",\"data\":["));
    for (size_t i = 0; i < models->n; i++) {
        if (i > 0)
            buf_putc(&body, ',');
        put_model(&body, &models->items[i], str_eq(models->items[i].uid, models->default_uid));
    }
    buf_put(&body, STR("]}\n"));
    exchange_send_json(x, 200, buf_str(&body));
    buf_deinit(&body);
}

static void send_one(struct exchange *x, const struct cascade_models *models, struct str id)
{
    const struct cascade_model *m = cascade_models_find(models, id);
    struct buf body = {0};
    if (m == NULL) {
        cascade_refuse(
            x, &(struct cascade_fault){404, STR("model_not_found"), STR("There is no such model")});
        return;
    }
    put_model(&body, m, str_eq(m->uid, models->default_uid));
    exchange_send_json(x, 200, buf_str(&body));
    buf_deinit(&body);
}

static void cascade_models_on_access(struct cascade_wait *w, const struct cascade_fault *fault);

static void cascade_on_models(struct cascade_wait *w, const struct cascade_fault *fault)
{
    struct models_request *r = container_of(w, struct models_request, wait);
    if (fault != NULL && cascade_second_try(&r->second, r->access, fault)) {
        r->wait.done = cascade_models_on_access;
        cascade_want_access(r->cascade, &r->wait);
        return;
    }
    if (fault != NULL)
        cascade_refuse(r->x, fault);
    else if (r->id.p == NULL)
        send_all(r->x, &r->access->models);
    else
        send_one(r->x, &r->access->models, r->id);
    over(r);
}

static void cascade_models_on_access(struct cascade_wait *w, const struct cascade_fault *fault)
{
    struct models_request *r = container_of(w, struct models_request, wait);
    if (fault == NULL && r->access == r->cascade->access)
        fault = &r->second.fault;
    if (fault != NULL) {
        cascade_refuse(r->x, fault);
        over(r);
        return;
    }
    cascade_access_unref(r->access);
    r->access = cascade_access_ref(r->cascade->access);
    r->wait.done = cascade_on_models;
    cascade_want_models(r->access, MODELS_AGE_MS, &r->wait);
}

/* The answer is waited for even if the client is not there any more: a call or two, with their
 * timeouts. */
static void cascade_models_handle(void *ctx, struct exchange *x)
{
    struct cascade *c = ctx;
    struct str rest = str_skip(x->request->path, sizeof CASCADE_MODELS_PATH - 1);
    struct str id = STR_NONE;
    if (x->request->method != METHOD_GET) {
        exchange_header(x, STR("Allow"), STR("GET"));
        cascade_refuse(x, &(struct cascade_fault){405, STR("METHOD"), STR("This path takes GET")});
        return;
    }
    if (rest.n > 0 &&
        (rest.p[0] != '/' || url_decode(&x->arena, str_skip(rest, 1), false, &id) != 0)) {
        cascade_refuse(x, &(struct cascade_fault){404, STR("NO_ROUTE"), STR("Nothing is here")});
        return;
    }
    if (exchange_draining(x) || cascade_is_stopping(c)) {
        cascade_refuse(x, &(struct cascade_fault){503, STR("BUSY"), STR("The server is stopping")});
        return;
    }
    struct models_request *r = mem_zalloc(sizeof *r);
    *r = (struct models_request){
        .cascade = c, .x = x, .id = id, .wait.done = cascade_models_on_access};
    list_init(&r->wait.link);
    exchange_hold(x);
    cascade_begin(c);
    cascade_want_access(c, &r->wait);
}

static const struct surface_rule rules[] = {
    {"cascade.models", "GET HEAD", "", ACCESS_VERB_CALL, ACCESS_ROUTE, 0, NULL},
    {"cascade.model", "GET HEAD", "{name...}", ACCESS_VERB_CALL, ACCESS_ROUTE, 0, NULL},
    {0},
};
/* Pages of other sites may not use this account. */
const struct surface cascade_models_surface = {.path = CASCADE_MODELS_PATH,
                                               .rules = rules,
                                               .share = &gateway_share,
                                               .strict = true,
                                               .refuse = cascade_on_refused};

/* The gateway serves it. */
const struct surface cascade_chat_surface = {.path = CASCADE_CHAT_PATH, .rules = gateway_rules};

void cascade_mount(struct cascade *c, struct http *http)
{
    struct http_place place = {.path = STR(CASCADE_MODELS_PATH),
                               .authorization = CREDENTIAL_PROVIDER};
    http_mount_at(http, &cascade_models_surface, place, cascade_models_handle, c);
}
