// SPDX-License-Identifier: Apache-2.0
#include "feature/subscriptions/subscriptions_http.h"
#include "access/pattern.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "feature/subscriptions/subscription.h"
#include "feature/subscriptions/subscription_pattern.h"
#include "http/audit.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/limits.h"
#include "http/surface.h"
#include "http/url.h"
#include "store/names.h"
#include "store/store.h"
#include "stream/durable.h"
#include "feature/subscriptions/subscription_json.h"
#include "feature/subscriptions/subscription_token.h"
#include "token/signer.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

/* One request while it is being answered. */
struct request_call {
    struct subscription_call call;
    struct exchange *x; /* held */
    const struct route *route;
    json_t *body;
    struct subscription_config config;
    struct str *names;             /* owned */
    struct subscription_ack *acks; /* owned */
    struct str stream;
    struct buf shown; /* the streams that are linked, as the answer has them */
};

/* ---- answers ---- */

struct refusal {
    int status;
    struct str code, message;
};

static struct refusal refusal_of(int result)
{
    switch (result) {
#define X(name, code, http, text)                                                                  \
    case SUBSCRIPTION_##name: return (struct refusal){http, STR(#name), STR(text)};
        SUBSCRIPTION_REFUSALS(X)
#undef X
    }
    return (struct refusal){500, STR("INTERNAL"), STR("unknown refusal")};
}

static void subscriptions_refuse(struct exchange *x, int result, struct str message)
{
    struct refusal r = refusal_of(result);
    if (r.status == 401)
        exchange_header(x, STR("WWW-Authenticate"), STR("Bearer"));
    exchange_problem(x, r.status, r.code, message.p != NULL ? message : r.message);
}

static void subscriptions_answer_empty(struct request_call *r, struct buf *body)
{
    exchange_status(r->x, 204);
    exchange_send(r->x, STR_NONE);
}

static void subscriptions_on_shown(struct subscription_call *c, const struct subscription_stream *s)
{
    subscription_json_link(&container_of(c, struct request_call, call)->shown, s, c->root);
}

static void subscriptions_answer_view(struct request_call *r, struct buf *body)
{
    const struct subscription_call *c = &r->call;
    const struct subscriptions_http *surface = r->x->state;
    subscription_json_put(body, c->id, &c->view, buf_str(&r->shown), c->root,
                          subscriptions_signer(surface->subscriptions));
    exchange_send_json(r->x, c->created ? 201 : 200, buf_str(body));
}

static void subscriptions_answer_claim(struct request_call *r, struct buf *body)
{
    subscription_json_claim(body, &r->call.view, r->call.root);
    exchange_send_json(r->x, 200, buf_str(body));
}

static void subscriptions_answer_ack(struct request_call *r, struct buf *body)
{
    buf_printf(body, "{\"ok\":true,\"next_wake\":%s}\n", r->call.next_wake ? "true" : "false");
    exchange_send_json(r->x, 200, buf_str(body));
}

static void subscriptions_answer_keys(struct request_call *r, struct buf *body)
{
    const struct subscriptions_http *surface = r->x->state;
    buf_put(body, STR("{\"keys\":["));
    buf_put(body, signer_jwk(subscriptions_signer(surface->subscriptions)));
    buf_put(body, STR("]}\n"));
    exchange_header(r->x, STR("Content-Type"), STR("application/jwk-set+json"));
    exchange_header(r->x, STR("Cache-Control"), STR("public, max-age=300"));
    exchange_send(r->x, buf_str(body));
}

static void answer_claimed(struct request_call *r, struct buf *body)
{
    const struct subscription_view *v = &r->call.view;
    struct refusal of = refusal_of(SUBSCRIPTION_ALREADY_CLAIMED);
    struct buf extra = {0};
    buf_put(&extra, STR(",\"current_holder\":"));
    json_put_string(&extra, v->holder);
    buf_printf(&extra, ",\"generation\":%" PRIu64, v->generation);
    json_put_problem(body, of.code, of.message, buf_str(&extra));
    buf_putc(body, '\n');
    buf_deinit(&extra);
    exchange_send_json(r->x, of.status, buf_str(body));
}

/* ---- routes ---- */

struct route {
    enum method method;
    struct str action; /* behind the id; `streams/` has the stream's path behind it */
    void (*start)(struct subscriptions *s, struct subscription_call *c);
    bool (*parse)(struct request_call *r); /* the body; false: it has been refused */
    bool bearer; /* the ticket of a wake; other routes need the right to subscribe */
    void (*answer)(struct request_call *r, struct buf *body);
};

static void free_request(struct request_call *r)
{
    subscription_call_deinit(&r->call);
    buf_deinit(&r->shown);
    json_decref(r->body);
    free(r->names);
    free(r->acks);
    free(r);
}

static void subscriptions_on_done(struct subscription_call *c, int result)
{
    struct request_call *r = container_of(c, struct request_call, call);
    struct exchange *x = r->x;
    struct buf body = {0};
    if (result == ERR_CANCELLED) /* it is the server that is going away, not the peer */
        exchange_error(x, ERR_BUSY);
    else if (result < 0)
        exchange_error(x, result);
    else if (result == SUBSCRIPTION_ALREADY_CLAIMED)
        answer_claimed(r, &body);
    else if (result == SUBSCRIPTION_QUOTA)
        limits_refuse_quota(x, refusal_of(result).message);
    else if (result > 0)
        subscriptions_refuse(x, result, STR_NONE);
    else
        r->route->answer(r, &body);
    buf_deinit(&body);
    free_request(r);
    exchange_release(x);
}

/* ---- rights ---- */

/* As a pattern of grants: a star that is meant literally is in no grant but in a wildcard. */
static struct str grant_pattern(struct arena *a, struct str pattern)
{
    char *to = arena_alloc(a, pattern.n + 1);
    struct str rest = pattern, segment;
    size_t n = 0;
    while (access_segment_next(&rest, &segment)) {
        char literal[SUBSCRIPTION_PATTERN_MAX];
        struct str meant = subscription_pattern_literal(segment, literal);
        struct str put = meant.n != segment.n ? STR("*") : segment;
        memcpy(to + n, put.p, put.n);
        n += put.n;
        if (rest.p != NULL)
            to[n++] = '/';
    }
    return str_of(to, n);
}

/* Is all that he would be told of in his grants? Names are as he sees them. */
static bool may_subscribe(struct exchange *x, enum access_verb verb,
                          const struct subscription_config *c)
{
    const struct principal *p = x->principal;
    if (c->pattern.n > 0 &&
        !access_contains(&p->rights, verb, ACCESS_STREAM, grant_pattern(&x->arena, c->pattern)))
        return false;
    for (size_t i = 0; i < c->n_streams; i++)
        if (!principal_may(p, verb, ACCESS_STREAM, c->streams[i]))
            return false;
    return true;
}

/* Ids of those without a root share a name space with those of tenants: `t/1/x` is t/1's. */
static bool may_have_id(const struct exchange *x, struct str id)
{
    return x->principal->root.n > 0 || memchr(id.p, '/', id.n) == NULL ||
           principal_may(x->principal, ACCESS_VERB_SUBSCRIBE, ACCESS_STREAM, id);
}

static bool may_create(struct request_call *r)
{
    struct exchange *x = r->x;
    const struct subscription_config *c = &r->config;
    exchange_decided(x);
    bool may = may_have_id(x, r->call.id) && may_subscribe(x, ACCESS_VERB_SUBSCRIBE, c);
    if (c->type == SUBSCRIPTION_WEBHOOK)
        may = may && may_subscribe(x, ACCESS_VERB_WEBHOOK, c);
    else
        may = may && principal_may(x->principal, ACCESS_VERB_APPEND, ACCESS_STREAM, c->wake_stream);
    return may || exchange_deny(x);
}

/* Of what is stored. */
static bool subscriptions_allows(const struct subscription_call *c,
                                 const struct subscription_config *config, struct str stream)
{
    struct exchange *x = container_of(c, struct request_call, call)->x;
    const struct principal *p = x->principal;
    if (stream.n > 0)
        return str_starts(stream, p->root) && principal_may(p, ACCESS_VERB_SUBSCRIBE, ACCESS_STREAM,
                                                            principal_unrooted(p, stream));
    if (!may_have_id(x, c->id) || /* it may be without streams at present */
        (config->pattern.n > 0 && !str_starts(config->pattern, p->root)) ||
        (config->wake_stream.n > 0 && !str_starts(config->wake_stream, p->root)))
        return false;
    struct subscription_config seen = {.pattern = principal_unrooted(p, config->pattern)};
    struct subscription_config linked = {.streams = c->streams, .n_streams = c->n_streams};
    for (size_t i = 0; config->type == SUBSCRIPTION_WEBHOOK && i < linked.n_streams; i++)
        if (!principal_may(p, ACCESS_VERB_WEBHOOK, ACCESS_STREAM,
                           principal_unrooted(p, linked.streams[i])))
            return false;
    return may_subscribe(x, ACCESS_VERB_SUBSCRIBE, &seen);
}

/* ---- roots ---- */

static bool invalid(struct request_call *r, struct str message);

/* Puts the root of whose call it is before a name. False: it is too long then, and refused. */
static bool root_name(struct request_call *r, struct str *name)
{
    struct str root = r->call.root;
    if (root.n == 0 || name->n == 0)
        return true;
    if (root.n + name->n > STORE_NAME_MAX)
        return invalid(r, STR("a name is too long"));
    *name = arena_printf(&r->x->arena, "%.*s%.*s", (int)root.n, root.p, (int)name->n, name->p);
    return true;
}

static bool root_config(struct request_call *r)
{
    struct subscription_config *c = &r->config;
    bool good = root_name(r, &c->pattern) && root_name(r, &c->wake_stream);
    for (size_t i = 0; good && i < c->n_streams; i++)
        good = root_name(r, &r->names[i]);
    c->root = r->call.root;
    return good;
}

static struct request_call *request_new(struct exchange *x, const struct route *route,
                                        struct str id, struct str stream)
{
    struct request_call *r = mem_zalloc(sizeof *r);
    r->x = x;
    r->route = route;
    r->stream = stream;
    r->call.id = id;
    r->call.root = x->principal->root;
    if (x->principal->rights.n > 0 || x->principal->root.n > 0)
        r->call.allows = subscriptions_allows;
    r->call.sees_sealed = principal_works(x->principal);
    r->call.shown = subscriptions_on_shown;
    r->call.done = subscriptions_on_done;
    return r;
}

static void subscriptions_start(struct request_call *r)
{
    const struct subscriptions_http *surface = r->x->state;
    if (!root_name(r, &r->call.id)) {
        free_request(r);
        return;
    }
    exchange_hold(r->x);
    r->route->start(surface->subscriptions, &r->call);
}

/* ---- bodies ---- */

static bool invalid(struct request_call *r, struct str message)
{
    subscriptions_refuse(r->x, SUBSCRIPTION_INVALID_REQUEST, message);
    return false;
}

static struct str subscriptions_text_of(const json_t *value)
{
    if (!json_is_string(value))
        return STR_NONE;
    return str_of(json_string_value(value), json_string_length(value));
}

/* A member; NULL: not there, or null. */
static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static bool parse_names(struct request_call *r, const json_t *list)
{
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > SUBSCRIPTION_LIST_MAX)
        return invalid(r, STR("streams must be an array of at most 1000 names"));
    r->names = mem_alloc(n * sizeof *r->names + 1);
    for (size_t i = 0; i < n; i++) {
        r->names[i] = subscription_path(subscriptions_text_of(json_array_get(list, i)));
        if (!subscription_path_valid(r->names[i]))
            return invalid(r, STR("streams must contain names of streams: 1 to 480 bytes, no "
                                  "control characters, not under __ds/"));
    }
    r->config.streams = r->call.streams = r->names;
    r->config.n_streams = r->call.n_streams = n;
    return true;
}

static bool parse_sources(struct request_call *r)
{
    const json_t *pattern = member(r->body, "pattern"), *streams = member(r->body, "streams");
    if (pattern != NULL) {
        r->config.pattern = subscription_path(subscriptions_text_of(pattern));
        if (!subscription_pattern_valid(r->config.pattern))
            return invalid(r, STR("pattern must be a path of at most 480 bytes whose segments are "
                                  "literal, * or **"));
    }
    if (streams != NULL && !parse_names(r, streams))
        return false;
    if (r->config.pattern.n == 0 && r->config.n_streams == 0)
        return invalid(r, STR("at least one of pattern and streams is required"));
    return true;
}

static bool parse_lease(struct request_call *r)
{
    const json_t *lease = member(r->body, "lease_ttl_ms");
    json_int_t ms = lease == NULL ? SUBSCRIPTION_LEASE_MS : json_integer_value(lease);
    if (ms < SUBSCRIPTION_LEASE_MIN_MS || ms > SUBSCRIPTION_LEASE_MAX_MS)
        return invalid(r, STR("lease_ttl_ms must be an integer from 1000 to 600000"));
    r->config.lease_ttl_ms = (uint64_t)ms;
    return true;
}

static bool parse_webhook(struct request_call *r)
{
    const struct subscriptions_http *surface = r->x->state;
    struct str why, url = subscriptions_text_of(json_object_get(member(r->body, "webhook"), "url"));
    if (url.n == 0 || url.n > SUBSCRIPTION_URL_MAX)
        return invalid(r, STR("webhook subscriptions require webhook.url, at most 2048 bytes"));
    int err = webhook_url_check(url, surface->policy, &why);
    if (err == ERR_FORBIDDEN_ADDR)
        audit_note(r->x->http->audit, AUDIT_TARGET_REFUSED, r->x, why);
    if (err != 0) {
        subscriptions_refuse(r->x, SUBSCRIPTION_WEBHOOK_URL_REJECTED, why);
        return false;
    }
    r->config.webhook_url = url;
    return true;
}

static bool parse_wake_stream(struct request_call *r)
{
    const struct subscriptions_http *surface = r->x->state;
    struct str name = subscription_path(subscriptions_text_of(member(r->body, "wake_stream")));
    r->config.wake_stream = name;
    if (!subscription_path_valid(name))
        name = STR_NONE;
    else if (!root_name(r, &name))
        return false;
    if (name.n == 0 || store_reserved(name) || durable_owned(surface->durable, name))
        return invalid(r, STR("pull-wake subscriptions require wake_stream, the name of a stream "
                              "that is not the server's own"));
    return true;
}

static bool parse_type(struct request_call *r)
{
    struct str type = subscriptions_text_of(member(r->body, "type"));
    if (str_eq(type, STR("webhook"))) {
        r->config.type = SUBSCRIPTION_WEBHOOK;
        return parse_webhook(r);
    }
    if (str_eq(type, STR("pull-wake"))) {
        r->config.type = SUBSCRIPTION_PULL;
        return parse_wake_stream(r);
    }
    return invalid(r, STR("type must be \"webhook\" or \"pull-wake\""));
}

static bool parse_description(struct request_call *r)
{
    const json_t *description = member(r->body, "description");
    r->config.description = subscriptions_text_of(description);
    if (r->config.description.n > SUBSCRIPTION_DESCRIPTION_MAX ||
        (description != NULL && !json_is_string(description)))
        return invalid(r, STR("description must be a text of at most 1024 bytes"));
    return true;
}

/* Where the links in webhooks lead: as configured, or as this client reached us. */
static bool find_public_url(struct request_call *r)
{
    const struct subscriptions_http *surface = r->x->state;
    struct str host = r->x->request->host;
    struct url url;
    r->config.public_url = surface->durable->public_url;
    if (r->config.public_url.n > 0)
        return true;
    r->config.public_url =
        arena_printf(&r->x->arena, "%s%.*s", exchange_scheme(r->x).p, (int)host.n, host.p);
    if (url_parse(r->config.public_url, &url) != 0 || url.path.n > 0)
        return invalid(r, STR("the Host header is needed for the links in webhooks"));
    return true;
}

static bool meets_sealed(struct str pattern)
{
    for (const struct store_names *n = store_names; n->prefix.n > 0; n++)
        if (n->sealed && subscription_pattern_meets(pattern, n->prefix))
            return true;
    return false;
}

/* Sealed streams are for workers, who claim; a webhook would tell whoever has its URL. */
static bool find_sealed(struct request_call *r)
{
    struct subscription_config *c = &r->config;
    bool names = false;
    for (size_t i = 0; i < c->n_streams; i++)
        names = names || store_sealed(c->streams[i]);
    bool may = c->type == SUBSCRIPTION_PULL && r->call.sees_sealed;
    if (names && !may)
        return invalid(r, STR("only pull-wake subscriptions of workers can have streams under "
                              "sessions/"));
    c->sealed = may && (names || (c->pattern.n > 0 && meets_sealed(c->pattern)));
    return true;
}

/* A tenant's count together, others' by who they are. */
static void set_owner(struct request_call *r)
{
    const struct principal *p = r->x->principal;
    if (p->rights.n == 0)
        return;
    r->config.owner = p->root.n > 0 ? p->root : principal_counts_as(p);
    r->call.most_owned = limits_of(p).subscriptions;
}

static bool subscriptions_parse_create(struct request_call *r)
{
    set_owner(r);
    r->call.config = &r->config;
    return parse_sources(r) && parse_lease(r) && parse_description(r) && parse_type(r) &&
           may_create(r) && root_config(r) && find_sealed(r) && find_public_url(r);
}

static bool subscriptions_parse_link(struct request_call *r)
{
    const struct subscription_config *c = &r->config;
    if (!parse_names(r, member(r->body, "streams")))
        return false;
    if (!may_subscribe(r->x, ACCESS_VERB_SUBSCRIBE, c))
        return exchange_deny(r->x);
    return root_config(r);
}

static bool subscriptions_parse_unlink(struct request_call *r)
{
    r->call.streams = &r->stream;
    r->call.n_streams = 1;
    return root_name(r, &r->stream);
}

static bool subscriptions_parse_claim(struct request_call *r)
{
    r->call.worker = subscriptions_text_of(member(r->body, "worker"));
    if (r->call.worker.n == 0 || r->call.worker.n > SUBSCRIPTION_WORKER_MAX)
        return invalid(r, STR("worker must be a text of 1 to 256 bytes"));
    return true;
}

/* A wake id or generation that is missing or of another type is that of no wake. */
static bool subscriptions_parse_wake(struct request_call *r)
{
    json_int_t generation = json_integer_value(member(r->body, "generation"));
    r->call.wake_id = subscriptions_text_of(member(r->body, "wake_id"));
    r->call.generation = generation > 0 ? (uint64_t)generation : 0;
    return true;
}

static bool subscriptions_parse_ack(struct request_call *r)
{
    const json_t *acks = member(r->body, "acks");
    size_t n = json_array_size(acks);
    if ((acks != NULL && !json_is_array(acks)) || n > SUBSCRIPTION_LIST_MAX)
        return invalid(r, STR("acks must be an array of at most 1000 {stream, offset}"));
    r->acks = mem_alloc(n * sizeof *r->acks + 1);
    for (size_t i = 0; i < n; i++) {
        const json_t *ack = json_array_get(acks, i), *stream = member(ack, "stream");
        r->acks[i] = (struct subscription_ack){
            .stream = subscription_path(
                subscriptions_text_of(stream != NULL ? stream : member(ack, "path"))),
            .offset = subscriptions_text_of(member(ack, "offset")),
        };
        if (!subscription_path_valid(r->acks[i].stream))
            return invalid(r, STR("each of acks needs a stream and an offset"));
        if (!root_name(r, &r->acks[i].stream))
            return false;
    }
    r->call.acks = r->acks;
    r->call.n_acks = n;
    r->call.finished = json_is_true(member(r->body, "done"));
    return subscriptions_parse_wake(r);
}

/* ---- requests ---- */

static const struct route routes[] = {
    {METHOD_PUT, STR_INIT(""), subscription_create, subscriptions_parse_create, false,
     subscriptions_answer_view},
    {METHOD_GET, STR_INIT(""), subscription_get, NULL, false, subscriptions_answer_view},
    {METHOD_DELETE, STR_INIT(""), subscription_delete, NULL, false, subscriptions_answer_empty},
    {METHOD_POST, STR_INIT("streams"), subscription_link, subscriptions_parse_link, false,
     subscriptions_answer_empty},
    {METHOD_DELETE, STR_INIT("streams/"), subscription_unlink, subscriptions_parse_unlink, false,
     subscriptions_answer_empty},
    {METHOD_POST, STR_INIT("callback"), subscription_callback, subscriptions_parse_ack, true,
     subscriptions_answer_ack},
    {METHOD_POST, STR_INIT("claim"), subscription_claim, subscriptions_parse_claim, false,
     subscriptions_answer_claim},
    {METHOD_POST, STR_INIT("ack"), subscription_ack, subscriptions_parse_ack, true,
     subscriptions_answer_ack},
    {METHOD_POST, STR_INIT("release"), subscription_release, subscriptions_parse_wake, true,
     subscriptions_answer_empty},
};
static const struct route keys_route = {.start = subscription_keys,
                                        .answer = subscriptions_answer_keys};

struct target {
    struct str id, stream;
    const struct route *route; /* NULL: not with this method */
    struct str allow;          /* the methods there are; n == 0: no such route */
};

static struct str method_text(enum method m)
{
    switch (m) {
    case METHOD_PUT: return STR("PUT");
    case METHOD_GET: return STR("GET, HEAD");
    case METHOD_DELETE: return STR("DELETE");
    default: return STR("POST");
    }
}

static bool action_is(const struct route *route, struct str action)
{
    bool open = route->action.n > 0 && route->action.p[route->action.n - 1] == '/';
    return open ? action.n > route->action.n && str_starts(action, route->action)
                : str_eq(action, route->action);
}

/* path: behind `subscriptions/` */
static bool find_target(struct exchange *x, struct str path, struct target *t)
{
    struct str id = str_cut(&path, '/'), stream;
    enum method method = x->request->method == METHOD_HEAD ? METHOD_GET : x->request->method;
    *t = (struct target){0};
    if (url_decode(&x->arena, id, false, &t->id) != 0 || !subscription_id_valid(t->id))
        return false;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (!action_is(&routes[i], path))
            continue;
        struct str m = method_text(routes[i].method);
        t->allow = arena_printf(&x->arena, "%.*s%s%.*s", (int)t->allow.n, t->allow.p,
                                t->allow.n > 0 ? ", " : "", (int)m.n, m.p);
        if (routes[i].method == method)
            t->route = &routes[i];
    }
    if (t->route == NULL || t->route->parse != subscriptions_parse_unlink)
        return t->allow.n > 0;
    stream = str_skip(path, t->route->action.n);
    if (url_decode(&x->arena, stream, false, &stream) != 0)
        return false;
    t->stream = subscription_path(stream);
    return subscription_path_valid(t->stream);
}

static bool find_bearer(struct request_call *r)
{
    struct str value = request_header(r->x->request, STR("Authorization"));
    struct str scheme = str_cut(&value, ' ');
    r->call.token = str_trim(value);
    r->call.root = subscription_token_root(&r->x->arena, r->call.token);
    if (str_eq_nocase(scheme, STR("Bearer")) && r->call.token.n > 0)
        return true;
    subscriptions_refuse(r->x, SUBSCRIPTION_TOKEN_INVALID,
                         STR("an Authorization header with a Bearer token is "
                             "required"));
    return false;
}

static struct str target_path(const struct exchange *x)
{
    return str_skip(x->request->path, sizeof SUBSCRIPTIONS_PREFIX "subscriptions/" - 1);
}

static void subscriptions_on_body(struct exchange *x, struct str body, int err)
{
    struct target t;
    json_error_t why;
    if (err != 0) {
        exchange_error(x, err);
        return;
    }
    find_target(x, target_path(x), &t);
    struct request_call *r = request_new(x, t.route, t.id, t.stream);
    r->body = body.n == 0 ? json_object() : json_loadb(body.p, body.n, 0, &why);
    bool good = true;
    if (!json_is_object(r->body))
        good = invalid(r, STR("the body must be a JSON object"));
    good = good && (!t.route->bearer || find_bearer(r));
    good = good && t.route->parse(r);
    if (good)
        subscriptions_start(r);
    else
        free_request(r);
}

/* Which one it is about is looked at later. */
static bool may_ask(struct exchange *x)
{
    exchange_decided(x);
    return access_holds(&x->principal->rights, ACCESS_VERB_SUBSCRIBE, ACCESS_STREAM) ||
           exchange_deny(x);
}

static void handle_subscription(struct exchange *x)
{
    struct target t;
    if (!find_target(x, target_path(x), &t)) {
        subscriptions_refuse(x, SUBSCRIPTION_SUBSCRIPTION_NOT_FOUND,
                             STR("no such route; a subscription's id is 1 to 128 bytes of text"));
    } else if (t.route == NULL) {
        exchange_header(x, STR("Allow"), t.allow);
        exchange_problem(x, 405, STR("METHOD"), STR("this route does not take this method"));
    } else if (!t.route->bearer && !may_ask(x)) {
        return;
    } else if (t.route->parse == NULL || t.route->parse == subscriptions_parse_unlink) {
        struct request_call *r = request_new(x, t.route, t.id, t.stream);
        if (t.route->parse == NULL || t.route->parse(r))
            subscriptions_start(r);
        else
            free_request(r);
    } else {
        exchange_collect(x, SUBSCRIPTIONS_BODY_MAX, subscriptions_on_body);
    }
}

void subscriptions_http_handle(void *surface, struct exchange *x)
{
    struct str path = str_skip(x->request->path, sizeof SUBSCRIPTIONS_PREFIX - 1);
    enum method method = x->request->method;
    x->state = surface;
    if (str_starts(path, STR("subscriptions/"))) {
        handle_subscription(x);
    } else if (!str_eq(path, STR("jwks.json"))) {
        subscriptions_refuse(x, SUBSCRIPTION_SUBSCRIPTION_NOT_FOUND, STR("no such route"));
    } else if (method != METHOD_GET && method != METHOD_HEAD) {
        exchange_header(x, STR("Allow"), STR("GET, HEAD"));
        exchange_problem(x, 405, STR("METHOD"), STR("the keys can only be read"));
    } else {
        subscriptions_start(request_new(x, &keys_route, STR_NONE, STR_NONE));
    }
}

/* What a subscription covers stands in the request's body, or in the store: decided here. Whoever
 * has the ticket of a wake may answer it. */
#define SUBSCRIPTION_RULE(id, methods, path, how)                                                  \
    {                                                                                              \
        id, methods, path, ACCESS_VERB_SUBSCRIBE, ACCESS_STREAM, how, NULL                         \
    }
static const struct surface_rule rules[] = {
    SUBSCRIPTION_RULE("subscription.create", "PUT", "subscriptions/{id}", RULE_LATER),
    SUBSCRIPTION_RULE("subscription.show", "GET HEAD", "subscriptions/{id}", RULE_LATER),
    SUBSCRIPTION_RULE("subscription.delete", "DELETE", "subscriptions/{id}", RULE_LATER),
    SUBSCRIPTION_RULE("subscription.link", "POST", "subscriptions/{id}/streams", RULE_LATER),
    SUBSCRIPTION_RULE("subscription.unlink", "DELETE", "subscriptions/{id}/streams/{name...}",
                      RULE_LATER),
    SUBSCRIPTION_RULE("subscription.claim", "POST", "subscriptions/{id}/claim", RULE_LATER),
    SUBSCRIPTION_RULE("subscription.callback", "POST", "subscriptions/{id}/callback",
                      RULE_PUBLIC | RULE_TICKET),
    SUBSCRIPTION_RULE("subscription.ack", "POST", "subscriptions/{id}/ack",
                      RULE_PUBLIC | RULE_TICKET),
    SUBSCRIPTION_RULE("subscription.release", "POST", "subscriptions/{id}/release",
                      RULE_PUBLIC | RULE_TICKET),
    SUBSCRIPTION_RULE("subscription.keys", "GET HEAD", "jwks.json", RULE_PUBLIC),
    {0},
};
static const struct surface_share share = {
    .methods = STR_INIT("GET, HEAD, POST, PUT, DELETE"),
    .headers = STR_INIT("Authorization, Content-Type"),
    .keep_s = STR_INIT(SURFACE_KEEP_S),
};
const struct surface subscriptions_surface = {
    .has_tickets = true, .path = SUBSCRIPTIONS_PREFIX, .rules = rules, .share = &share};

void subscriptions_http_mount(struct subscriptions_http *s, struct http *http)
{
    http_mount(http, &subscriptions_surface, subscriptions_http_handle, s);
}
