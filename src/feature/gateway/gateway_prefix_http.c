// SPDX-License-Identifier: Apache-2.0
/* gateway_prefix_http.c -- a route with `prefix = yes`: what is asked for below its path.
 *
 *     path ends in ID, ID/stop or ID/stream    a generation of ours, if there is one of that id
 *     path ends in responses/ID, or that and   a response of ours (responses_http.h), if there is
 *     what can be asked of a response          one of that id
 *     POST with X-Resume-Token to .../resume   a resume
 *     POST with a body that can be looked at   may be answered with events, which are recorded
 *     anything else                            goes on as it is
 *
 * Upstreams have ids that look like ours. Whose one is decides what has to be granted, so that is
 * decided here: the verb of a generation on its own path, or the verb of what is passed on. */
#include "base/err.h"
#include "feature/gateway/gateway_http_core.h"
#include "feature/gateway/recorder.h"
#include "feature/gateway/responses_http.h"
#include "http/front_state.h"
#include "http/http.h"
#include "http/path_pattern.h"
#include "http/plain_path.h"
#include "http/surface.h"

#define IGNORED_BODY_MAX (64 * 1024)

/* ---- members ---- */

/* A path that may be a generation's: PATH/ID, or PATH/ID/what. */
struct member {
    struct str path, id, what; /* what.p == NULL: nothing follows */
    bool response;             /* the id is that of a response, and `generation` is, too */
    char generation[REQUEST_ID_TEXT];
};

static struct str member_id(const struct member *m)
{
    return m->response ? str_of(m->generation, REQUEST_ID_TEXT) : m->id;
}

static struct str last_segment(struct str *path)
{
    size_t n = path->n;
    while (n > 0 && path->p[n - 1] != '/')
        n--;
    struct str segment = str_skip(*path, n);
    path->n = n > 0 ? n - 1 : 0;
    return segment;
}

/* The id of a chat may be anything. */
static bool is_chat(const struct request *req, struct str what)
{
    if (str_eq(what, STR("stop")))
        return req->method == METHOD_POST;
    return str_eq(what, STR("stream")) && req->method != METHOD_POST;
}

static bool is_response(const struct request *req, struct member *m)
{
    *m = (struct member){.path = req->path};
    m->id = last_segment(&m->path);
    m->response = response_id_parse(m->id, m->generation);
    if (!m->response) {
        m->what = m->id;
        m->id = last_segment(&m->path);
        m->response = m->what.n > 0 && response_id_parse(m->id, m->generation);
    }
    return m->response && str_ends(m->path, STR("/responses")) &&
           responses_has_member(req->method, m->what);
}

static bool is_member(const struct request *req, struct member *m)
{
    if (is_response(req, m))
        return true;
    *m = (struct member){.path = req->path};
    m->id = last_segment(&m->path);
    if (!is_chat(req, m->id))
        return m->path.n > 0 && gateway_is_request_id(m->id);
    m->what = m->id;
    m->id = last_segment(&m->path);
    return m->path.n > 0 && m->id.n > 0;
}

static bool is_resume(const struct request *req)
{
    return req->method == METHOD_POST && str_ends(req->path, STR("/resume")) &&
           request_header(req, STR("X-Resume-Token")).p != NULL;
}

struct str gateway_path(const struct gateway_route *r, const struct exchange *x)
{
    struct str path = x->request->path;
    struct member m;
    if (!r->config->prefix)
        path.n = path_pattern_covers(r->path, path);
    else if (is_member(x->request, &m))
        path = m.path;
    else if (is_resume(x->request))
        path.n -= sizeof "/resume" - 1;
    if (path.n > 1 && path.p[path.n - 1] == '/')
        path.n--;
    return path;
}

/* It has a part of an answer, and wants the rest, whatever else it says. */
static bool continues(const struct exchange *x)
{
    enum method m = x->request->method;
    return (m == METHOD_POST || m == METHOD_GET) && gateway_last_event_id(x).generation.n > 0;
}

/* ---- what is granted ---- */

static enum access_verb verb_of(enum method m)
{
    return m == METHOD_POST ? ACCESS_VERB_GENERATE : ACCESS_VERB_CALL;
}

static bool may(struct exchange *x, enum access_verb verb, struct str path, enum plain_slash slash)
{
    struct str name;
    return plain_path_name(&x->arena, path, slash, &name) == 0
               ? exchange_may(x, verb, ACCESS_ROUTE, name)
               : exchange_deny(x);
}

/* An escaped slash is a slash to some upstreams and a part of a name to others: both have to be
 * granted. The rules have looked at the first. */
static bool may_pass(struct exchange *x, struct str path)
{
    return !plain_path_is_ambiguous(path) ||
           may(x, verb_of(x->request->method), path, PLAIN_SLASH_STAYS);
}

bool gateway_admit_path(const struct gateway_route *r, struct exchange *x)
{
    struct str ignored, path = r->config->prefix ? x->request->path : gateway_path(r, x);
    if (!r->config->prefix && !path_pattern_has_parameters(r->path))
        return true;
    if (plain_path_name(&x->arena, path, PLAIN_SLASH_SPLITS, &ignored) == 0)
        return may_pass(x, path);
    gateway_error(r, x, 400, STR("BAD_INPUT"),
                  STR("This path means different things to different servers: it has a `.` or `..` "
                      "segment, a backslash or a control character, in some spelling"),
                  STR_NONE);
    return false;
}

/* ---- what goes on ---- */

static bool is_json(const struct request *req)
{
    struct str type = request_header(req, STR("Content-Type"));
    type = str_trim(str_cut(&type, ';'));
    return str_eq_nocase(type, STR("application/json")) ||
           (type.n > 5 && str_eq_nocase(str_skip(type, type.n - 5), STR("+json")));
}

/* Its answer may be recorded. What is too large to be held goes on without that. */
static bool may_generate(const struct gateway_route *r, const struct exchange *x)
{
    int64_t length = exchange_body_length(x);
    if (x->request->method != METHOD_POST)
        return false;
    return length < 0 ? is_json(x->request) : (uint64_t)length <= r->config->max_body_bytes;
}

static void send_on(struct gateway_route *r, struct exchange *x)
{
    if (may_generate(r, x))
        gateway_start(r, x);
    else if (gateway_within_quota(r, x))
        gateway_pass(r, x, NULL);
}

/* ---- whether there is such a generation ---- */

struct member_request {
    struct gateway_route *route;
    struct exchange *x; /* held */
    struct member member;
    struct store_stat stat;
    bool late; /* the events are gone; its snapshot may be there */
};

static bool is_stop(const struct member *m)
{
    return str_eq(m->what, STR("stop"));
}

static void gateway_prefix_on_body(struct exchange *x, struct str body, int err)
{
    struct member_request *q = x->state;
    if (err != 0)
        gateway_refuse(q->route, x, err);
    else if (q->member.response)
        responses_member(q->route, x, q->member.id, q->member.what);
    else
        gateway_member(q->route, x, q->member.id, q->member.what);
}

/* It is ours, and so is what is asked of it. */
static void take_member(struct member_request *q)
{
    struct exchange *x = q->x;
    bool reads = x->request->method == METHOD_GET || x->request->method == METHOD_HEAD;
    x->state = q;
    if (may(x, reads ? ACCESS_VERB_GENERATE : ACCESS_VERB_STOP, q->member.path, PLAIN_SLASH_SPLITS))
        exchange_collect(x, IGNORED_BODY_MAX, gateway_prefix_on_body);
}

/* It has a part of what is not there any more: that is told, and nobody is asked anew. */
static bool is_lost(const struct member_request *q)
{
    struct str generation = gateway_last_event_id(q->x).generation;
    return generation.n > 0 && str_eq(generation, member_id(&q->member));
}

static void lose_member(struct member_request *q)
{
    struct exchange *x = q->x;
    if (may(x, ACCESS_VERB_GENERATE, q->member.path, PLAIN_SLASH_SPLITS))
        gateway_refuse_position(q->route, x, gateway_last_event_id(x).seq);
}

/* It is the upstream's, then. A link is for what is ours. */
static void leave_member(struct member_request *q)
{
    struct exchange *x = q->x;
    if (x->principal->by_link)
        exchange_deny(x);
    else if (is_lost(q))
        lose_member(q);
    else if (gateway_admit_path(q->route, x) &&
             may(x, verb_of(x->request->method), x->request->path, PLAIN_SLASH_SPLITS))
        send_on(q->route, x);
}

static void gateway_prefix_on_chat(struct gateway_route *r, struct exchange *x,
                                   struct str request_id)
{
    if (request_id.n > 0)
        take_member(x->state);
    else
        leave_member(x->state);
}

/* Its client may know a chat and no generation. Where all are such clients, what is not there is
 * nobody else's. */
static void look_for_chat(struct member_request *q)
{
    q->x->state = q;
    bool chat = q->member.what.p != NULL && !q->member.response;
    if (!chat || q->route->config->dialect != ROUTE_DIALECT_AUTO)
        leave_member(q);
    else
        gateway_find_chat(q->route, q->x, q->member.id, gateway_prefix_on_chat);
}

static void look_for_stream(struct member_request *q, const char *suffix);

static void gateway_prefix_on_stat(struct store_stat *stat, int err)
{
    struct member_request *q = container_of(stat, struct member_request, stat);
    struct gateway *g = q->route->gateway;
    struct exchange *x = q->x;
    if (ERR_IS_GONE(err) && !q->late) {
        q->late = true;
        look_for_stream(q, RECORDER_SNAPSHOT_SUFFIX);
        gateway_end(g);
        return;
    }
    if (err == 0)
        take_member(q);
    else if (ERR_IS_GONE(err))
        look_for_chat(q);
    else
        gateway_refuse(q->route, x, err);
    exchange_release(x);
    gateway_end(g);
}

static void look_for_stream(struct member_request *q, const char *suffix)
{
    struct gateway *g = q->route->gateway;
    struct str name = gateway_stream(&q->x->arena, q->route, member_id(&q->member), suffix);
    q->stat = (struct store_stat){.name = name, .done = gateway_prefix_on_stat};
    gateway_begin(g);
    store_stat(g->setup.store, &q->stat);
}

/* To whoever may not have it, it is not there. */
static void look_for_member(struct gateway_route *r, struct exchange *x, const struct member *m)
{
    struct member_request *q = arena_alloc(&x->arena, sizeof *q);
    *q = (struct member_request){.route = r, .x = x, .member = *m};
    struct str id = member_id(m);
    bool generation = m->response || m->what.p == NULL || is_stop(m);
    bool chat = m->what.p != NULL && !m->response;
    if (chat && r->config->dialect == ROUTE_DIALECT_UI_MESSAGE) {
        take_member(q);
    } else if (!generation || !gateway_is_request_id(id) || !gateway_may_read(r, x, id)) {
        look_for_chat(q);
    } else if (generation_find(r, id) != NULL) {
        take_member(q);
    } else {
        exchange_hold(x);
        look_for_stream(q, "");
    }
}

/* ---- the request ---- */

static bool upgrades(const struct request *req)
{
    struct str to = request_header(req, STR("Upgrade"));
    return to.p != NULL && !str_eq_nocase(to, STR("h2c")); /* which may be left unanswered */
}

/* What this server would answer if it was built and set up to: tokens for it must not go elsewhere.
 */
static bool is_ours(struct str path)
{
    static const struct str own[] = {STR_INIT("/v1/stream/"), STR_INIT("/v1/access/"),
                                     STR_INIT("/v1/session/"), STR_INIT("/v1/log/")};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (str_starts(path, own[i]))
            return true;
    return false;
}

/* A page of another site cannot read the answer. It must not spend anything either, not even by a
 * picture that it shows. */
static bool is_foreign(const struct exchange *x)
{
    if (x->page == FRONT_FOREIGN)
        return true;
    return x->page == FRONT_NO_PAGE &&
           str_eq_nocase(request_header(x->request, STR("Sec-Fetch-Site")), STR("cross-site"));
}

/* What belongs to a connection, or shows the client's credentials to whoever reads the answer. */
static bool is_never_passed(const struct request *req)
{
    return upgrades(req) || str_eq(req->method_text, STR("TRACE"));
}

static void gateway_prefix_on_resume(struct exchange *x, struct str body, int err)
{
    struct gateway_route *r = x->state;
    if (err != 0)
        gateway_refuse(r, x, err);
    else
        gateway_resume(r, x);
}

void gateway_prefix_handle(void *route, struct exchange *x)
{
    struct gateway_route *r = route;
    struct member m;
    x->state = r;
    if (is_ours(x->request->path))
        gateway_error(r, x, 404, STR("NO_ROUTE"), STR("This server has nothing under this path"),
                      STR_NONE);
    else if (is_foreign(x))
        gateway_error(
            r, x, 403, STR("FORBIDDEN"),
            STR("Pages of other sites may not ask this; allow-origin names those that may"),
            STR_NONE);
    else if (is_never_passed(x->request))
        gateway_error(r, x, 501, STR("NOT_PASSED"),
                      STR("Upgrades of a connection and TRACE are not passed on"), STR_NONE);
    else if (is_member(x->request, &m))
        look_for_member(r, x, &m);
    else if (!gateway_admit_path(r, x))
        return;
    else if (is_resume(x->request))
        exchange_collect(x, IGNORED_BODY_MAX, gateway_prefix_on_resume);
    else if (continues(x))
        gateway_continue(r, x);
    else
        send_on(r, x);
}

/* ---- the surface ---- */

static bool is_for_member(const struct exchange *x)
{
    struct member m;
    return is_member(x->request, &m);
}

static bool is_for_none(const struct exchange *x)
{
    return !is_for_member(x);
}

static bool is_call(const struct exchange *x)
{
    return x->request->method != METHOD_POST && is_for_none(x) && !continues(x);
}

static bool is_continued(const struct exchange *x)
{
    return is_for_none(x) && continues(x);
}

static bool is_odd_for_member(const struct exchange *x)
{
    enum method m = x->request->method;
    bool known = m == METHOD_GET || m == METHOD_HEAD || m == METHOD_POST || m == METHOD_DELETE;
    return !known && is_for_member(x);
}

/* The last four are for ids of ours and those of the upstream alike: whose it is, is looked up
 * first. */
static const struct surface_rule rules[] = {
    {"prefix.generate", "POST", "{path...}", ACCESS_VERB_GENERATE, ACCESS_ROUTE, 0, is_for_none},
    {"prefix.call", "*", "{path...}", ACCESS_VERB_CALL, ACCESS_ROUTE, 0, is_call},
    {"prefix.root.generate", "POST", "", ACCESS_VERB_GENERATE, ACCESS_ROUTE, 0, NULL},
    {"prefix.root.call", "*", "", ACCESS_VERB_CALL, ACCESS_ROUTE, 0, is_call},
    {"prefix.continue", "GET", "{path...}", ACCESS_VERB_GENERATE, ACCESS_ROUTE, RULE_LINK,
     is_continued},
    {"prefix.root.continue", "GET", "", ACCESS_VERB_GENERATE, ACCESS_ROUTE, RULE_LINK,
     is_continued},
    {"prefix.read", "GET HEAD", "{path...}", ACCESS_VERB_GENERATE, ACCESS_ROUTE,
     RULE_LATER | RULE_LINK, is_for_member},
    {"prefix.stop", "POST", "{path...}", ACCESS_VERB_STOP, ACCESS_ROUTE, RULE_LATER, is_for_member},
    {"prefix.delete", "DELETE", "{path...}", ACCESS_VERB_STOP, ACCESS_ROUTE, RULE_LATER,
     is_for_member},
    {"prefix.other", "*", "{path...}", ACCESS_VERB_CALL, ACCESS_ROUTE, RULE_LATER,
     is_odd_for_member},
    {0},
};

static const struct surface_share share = {
    .exposed = STR_INIT("Content-Location, Location, Request-Id, Retry-After, Retry-After-Ms, "
                        "X-Correlation-ID, X-RateLimit-Limit, X-RateLimit-Remaining, X-Request-Id, "
                        "X-Resume-Token, X-Should-Retry, X-Tidemark-Degraded"),
    .methods = STR_INIT("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
    .keep_s = STR_INIT(SURFACE_KEEP_S),
};

const struct surface gateway_prefix_surface = {
    .rules = rules, .share = &share, .wide = true, .refuse = gateway_on_refused};
