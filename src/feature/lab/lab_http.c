// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab_http.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_store.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/surface.h"
#include "http/url.h"
#include "feature/lab/lab_http_core.h"

#include <stdlib.h>

#define API_PREFIX "/api/"
#define EXIT_MS    50 /* from the last submission's answer to the end */

static const struct lab_route routes[] = {
    {METHOD_GET, STR_INIT("config"), lab_get_config},
    {METHOD_GET, STR_INIT("feedback"), lab_get_feedback},
    {METHOD_POST, STR_INIT("feedback"), lab_post_feedback},
    {METHOD_GET, STR_INIT("runs"), lab_get_runs},
    {METHOD_POST, STR_INIT("runs/import"), lab_import_run},
    {METHOD_GET, STR_INIT("runs/*"), lab_get_run},
    {METHOD_GET, STR_INIT("runs/*/video"), lab_get_video},
    {METHOD_GET, STR_INIT("runs/*/artifact/*"), lab_get_artifact},
    {METHOD_GET, STR_INIT("experiments"), lab_get_experiments},
    {METHOD_POST, STR_INIT("experiments"), lab_create_experiment},
    {METHOD_GET, STR_INIT("experiments/*"), lab_get_experiment},
    {METHOD_POST, STR_INIT("experiments/*/submit"), lab_submit_decision},
    {METHOD_POST, STR_INIT("export"), lab_post_export},
};

/* ---- answers ---- */

static void json_headers(struct exchange *x, const char *type)
{
    exchange_header(x, STR("Content-Type"),
                    type != NULL ? str_of_cstr(type) : STR("application/json; charset=utf-8"));
    exchange_header(x, STR("Cache-Control"), STR("no-store"));
}

static void lab_send_json(struct exchange *x, int status, const json_t *value)
{
    struct buf body = {0};
    lab_json_put(&body, value);
    exchange_status(x, status);
    json_headers(x, NULL);
    exchange_send(x, buf_str(&body));
    buf_deinit(&body);
}

static void send_problem(struct exchange *x, const struct lab_problem *p)
{
    json_t *body = lab_problem_json(p);
    lab_send_json(x, lab_problem_status(p), body);
    json_decref(body);
}

static void lab_refuse(struct exchange *x, enum lab_code code, const char *message, const char *fix)
{
    struct lab_problem p = {0};
    lab_problem_set(&p, code, "%s", message);
    if (fix != NULL)
        lab_problem_fix(&p, fix);
    send_problem(x, &p);
    lab_problem_deinit(&p);
}

static void send_not_found(struct exchange *x)
{
    exchange_status(x, 404);
    json_headers(x, "text/plain; charset=utf-8");
    exchange_send(x, STR("Not found"));
}

/* ---- the life of a call ---- */

static void free_call(struct lab_call *c)
{
    struct lab *lab = c->lab;
    if (c->source != NULL)
        c->source->free(c->source);
    if (c->free_work != NULL)
        c->free_work(c->work);
    json_decref(c->answer);
    lab_problem_deinit(&c->problem);
    buf_deinit(&c->piece);
    free(c);
    gate_leave(&lab->calls);
}

static void lab_run_call(struct job *j)
{
    struct lab_call *c = container_of(j, struct lab_call, job);
    c->again = false;
    if (!c->begun)
        c->route->run(c, c->lab->store);
    if (c->source != NULL && c->problem.code == LAB_FINE)
        c->more = c->source->next(c->source, c->lab->store, &c->piece);
}

static void lab_call_submit(struct lab_call *c)
{
    c->running = true;
    lane_submit(c->lab->setup.lane, &c->job);
}

/* ---- streamed answers ---- */

static void lab_put_piece(struct lab_call *c)
{
    if (c->piece.n == 0)
        return;
    struct block *b = block_of(buf_str(&c->piece));
    exchange_put(c->x, slice_of(b, 0, b->n));
    block_unref(b);
    c->piece.n = 0;
}

static enum pull lab_on_pull(struct exchange *x)
{
    struct lab_call *c = x->state;
    if (c->running)
        return PULL_WAIT;
    lab_put_piece(c);
    if (c->more == 0) {
        free_call(c);
        return PULL_END;
    }
    lab_call_submit(c);
    return PULL_WAIT;
}

static void lab_on_gone(struct exchange *x)
{
    struct lab_call *c = x->state;
    c->gone = true;
    if (!c->running)
        free_call(c);
}

static const struct exchange_ops stream_ops = {.pull = lab_on_pull, .gone = lab_on_gone};

static void on_piece(struct lab_call *c)
{
    if (c->gone)
        free_call(c);
    else if (c->more < 0)
        exchange_abort(c->x); /* the peer must not take it for all there is */
    else
        exchange_wake(c->x);
}

static void begin_stream(struct lab_call *c)
{
    struct exchange *x = c->x;
    if (exchange_over(x)) {
        free_call(c);
        return;
    }
    exchange_status(x, c->status != 0 ? c->status : 200);
    json_headers(x, c->type);
    if (c->ranges)
        exchange_header(x, STR("Accept-Ranges"), STR("bytes"));
    if (c->range[0] != '\0')
        exchange_header(x, STR("Content-Range"), arena_dup(&x->arena, str_of_cstr(c->range)));
    if (c->length == 0) {
        exchange_send(x, STR_NONE);
        free_call(c);
        return;
    }
    c->begun = true;
    x->state = c;
    x->ops = &stream_ops;
    if (c->length > 0)
        exchange_stream_sized(x, (uint64_t)c->length);
    else
        exchange_stream(x);
}

/* ---- whole answers ---- */

static void lab_count(struct lab *lab)
{
    if (++lab->submissions == lab->setup.exit_after && !gate_is_shut(&lab->calls))
        sched_start(lab->setup.sched, &lab->exit_soon, EXIT_MS);
}

static void lab_answer(struct lab_call *c)
{
    struct exchange *x = c->x;
    if (c->more < 0 && c->problem.code == LAB_FINE)
        lab_problem_of(&c->problem, c->more, "The Lab's files cannot be read");
    if (c->counts && c->problem.code == LAB_FINE)
        lab_count(c->lab);
    if (c->problem.code == LAB_FINE && c->source != NULL) {
        begin_stream(c);
    } else {
        if (c->problem.code != LAB_FINE)
            send_problem(x, &c->problem);
        else
            lab_send_json(x, 200, c->answer);
        free_call(c);
    }
    exchange_release(x);
}

static void lab_on_call_done(struct job *j)
{
    struct lab_call *c = container_of(j, struct lab_call, job);
    c->running = false;
    if (c->begun)
        on_piece(c);
    else if (c->again && c->problem.code == LAB_FINE)
        lab_call_submit(c);
    else
        lab_answer(c);
}

/* ---- what routes use ---- */

json_t *lab_call_body(struct lab_call *c)
{
    struct str text = ascii_trim(c->body);
    json_t *body = text.n == 0 ? json_object() : lab_json_load(text);
    if (json_is_object(body))
        return body;
    json_decref(body);
    lab_problem_set(&c->problem, LAB_INVALID_JSON, "Request body is not a JSON object");
    lab_problem_fix(&c->problem, "Send one JSON object.");
    return NULL;
}

struct str lab_call_request(const struct lab_call *c, const json_t *body)
{
    struct str header = ascii_trim(c->request);
    return header.n > 0 ? header : lab_json_trimmed(body, "requestId");
}

void lab_call_answer_one(struct lab_call *c, const char *name, json_t *value)
{
    c->answer = json_object();
    json_object_set_new(c->answer, name, value);
}

/* ---- requests ---- */

/* Whether the path is of this form; its parts in place of `*` go to ids. */
static bool lab_matches(struct str form, struct str path, struct str ids[2])
{
    size_t n = 0;
    while (form.p != NULL && path.p != NULL) {
        struct str want = str_cut(&form, '/'), part = str_cut(&path, '/');
        bool any = str_eq(want, STR("*")) && part.n > 0;
        if (any)
            ids[n++] = part;
        else if (!str_eq(want, part))
            return false;
    }
    return form.p == NULL && path.p == NULL;
}

static const struct lab_route *find_route(const struct request *r, struct str ids[2])
{
    enum method method = r->method == METHOD_HEAD ? METHOD_GET : r->method;
    struct str path = str_skip(r->path, sizeof API_PREFIX - 1);
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        ids[0] = ids[1] = STR_NONE;
        if (routes[i].method == method && lab_matches(routes[i].path, path, ids))
            return &routes[i];
    }
    return NULL;
}

static bool is_guarded(const struct exchange *x)
{
    return x->principal->rights.n > 0;
}

static bool has_token(const struct lab *lab, const struct exchange *x)
{
    struct str given = request_header(x->request, STR("X-CM-LAB-TOKEN"));
    return is_guarded(x) ? lab_token_is_good(&lab->tokens, given, lab->setup.sched->wall_ms)
                         : lab_token_is_plain(&lab->tokens, given);
}

/* One that is given out is good for as long as the right of who gets it, or less. */
static void put_token(struct lab_call *c)
{
    const struct lab *lab = c->lab;
    int64_t expires_ms = lab->setup.sched->wall_ms + LAB_TOKEN_MS;
    if (expires_ms > c->x->principal->expires_ms)
        expires_ms = c->x->principal->expires_ms;
    if (is_guarded(c->x))
        lab_token_put(&lab->tokens, expires_ms, c->token);
    else
        memcpy(c->token, lab->tokens.plain, sizeof lab->tokens.plain);
}

/* A page that was let in by a cookie posts as nobody: that has the right, its token says. */
static bool may_post(struct exchange *x)
{
    return exchange_can(x, ACCESS_VERB_LAB, ACCESS_LAB, STR_NONE) || !x->principal->known ||
           exchange_may(x, ACCESS_VERB_LAB, ACCESS_LAB, STR_NONE);
}

/* The lane must not: memory of exchanges is the loop's. */
static const char *lab_decode(struct lab_call *c)
{
    static const char *const names[] = {"since", "limit", "sessionId", "runId"};
    struct str *const values[] = {&c->since, &c->limit, &c->session, &c->run};
    struct exchange *x = c->x;
    for (int i = 0; i < 2; i++)
        if (url_decode(&x->arena, c->ids[i], false, &c->ids[i]) != 0)
            return "Path has a broken escape";
    if (!utf8_valid(c->request)) /* it could not be found again in a file of JSON */
        return "X-CM-LAB-REQUEST-ID is not UTF-8";
    for (int i = 0; i < 4; i++)
        if (url_query(&x->arena, x->request->query, str_of_cstr(names[i]), values[i]) < 0)
            return "A parameter is broken, or given twice";
    return NULL;
}

static void lab_start(struct lab *lab, struct exchange *x, struct str body)
{
    struct lab_call *c = mem_zalloc(sizeof *c);
    *c = (struct lab_call){.lab = lab,
                           .x = x,
                           .body = body,
                           .request = request_header(x->request, STR("X-CM-LAB-REQUEST-ID")),
                           .range_wanted = request_header(x->request, STR("Range")),
                           .length = -1,
                           .job = {.run = lab_run_call, .done = lab_on_call_done}};
    c->route = find_route(x->request, c->ids);
    gate_enter(&lab->calls);
    const char *wrong = lab_decode(c);
    if (wrong != NULL) {
        free_call(c);
        lab_refuse(x, LAB_INVALID_ARGUMENT, wrong, NULL);
        return;
    }
    put_token(c);
    exchange_hold(x);
    lab_call_submit(c);
}

static void lab_on_body(struct exchange *x, struct str body, int err)
{
    if (err == ERR_TOO_LARGE)
        lab_refuse(x, LAB_INVALID_ARGUMENT, "Request body too large (max 1MB)", NULL);
    else if (err != 0)
        exchange_error(x, err);
    else
        lab_start(x->state, x, body);
}

static void lab_handle_api(void *ctx, struct exchange *x)
{
    struct lab *lab = ctx;
    struct str ids[2];
    x->state = lab;
    if (find_route(x->request, ids) == NULL)
        send_not_found(x);
    else if (x->request->method != METHOD_POST)
        lab_start(lab, x, STR_NONE);
    else if (!may_post(x))
        return;
    else if (!has_token(lab, x))
        lab_refuse(x, LAB_UNAUTHORIZED, "Missing or invalid X-CM-LAB-TOKEN",
                   "Take the token from GET /api/config.");
    else
        exchange_collect(x, LAB_BODY_MAX, lab_on_body);
}

static void lab_handle_page(void *ctx, struct exchange *x)
{
    bool reads = x->request->method == METHOD_GET || x->request->method == METHOD_HEAD;
    if (!reads || !lab_page_serve(x))
        send_not_found(x);
}

static void lab_handle_top(void *ctx, struct exchange *x)
{
    if (!str_eq(x->request->path, STR("/"))) {
        send_not_found(x);
        return;
    }
    exchange_status(x, 302);
    exchange_header(x, STR("Location"), STR("/lab"));
    exchange_send(x, STR_NONE);
}

/* What the server refuses before the Lab is asked; headers are set. */
static void lab_on_refused(void *ctx, struct exchange *x, const struct surface_refusal *why)
{
    struct lab_problem p = {0};
    enum lab_code code = lab_code_of_status(why->status);
    lab_problem_set(&p, code, "%.*s", (int)why->message.n, why->message.p);
    send_problem(x, &p);
    lab_problem_deinit(&p);
}

static const struct surface_rule api_rules[] = {
    {"lab.api", "GET HEAD PUT PATCH DELETE", "{name...}", ACCESS_VERB_LAB, ACCESS_LAB, 0, NULL},
    {"lab.post", "POST", "{name...}", ACCESS_VERB_LAB, ACCESS_LAB, RULE_LATER, NULL},
    {0},
};
static const struct surface_rule page_rules[] = {
    {"lab.page", "GET HEAD", "", ACCESS_VERB_LAB, ACCESS_LAB, 0, NULL},
    {"lab.page.file", "GET HEAD", "{name...}", ACCESS_VERB_LAB, ACCESS_LAB, 0, NULL},
    {0},
};
const struct surface lab_api_surface = {
    .path = API_PREFIX, .rules = api_rules, .strict = true, .refuse = lab_on_refused};
const struct surface lab_page_surface = {
    .path = "/lab", .rules = page_rules, .strict = true, .refuse = lab_on_refused};
static const struct surface lab_top_surface = {
    .path = "/", .rules = page_rules, .strict = true, .refuse = lab_on_refused};

void lab_mount(struct lab *lab, struct http *http, bool at_top)
{
    http_mount(http, &lab_api_surface, lab_handle_api, lab);
    http_mount(http, &lab_page_surface, lab_handle_page, lab);
    if (at_top)
        http_mount(http, &lab_top_surface, lab_handle_top, lab);
}

/* ---- the whole ---- */

static void lab_on_exit_soon(struct timer *t)
{
    struct lab *lab = container_of(t, struct lab, exit_soon);
    if (lab->setup.finished != NULL)
        lab->setup.finished(lab->setup.ctx);
}

struct lab *lab_new(const struct lab_setup *setup)
{
    struct lab *lab = mem_zalloc(sizeof *lab);
    lab->setup = *setup;
    lab->store = setup->store;
    lab_tokens_init(&lab->tokens);
    timer_init(&lab->exit_soon, lab_on_exit_soon);
    gate_init(&lab->calls, setup->sched);
    return lab;
}

struct str lab_session(const struct lab *lab)
{
    return str_of_cstr(lab->store->session);
}

void lab_stop(struct lab *lab, void (*stopped)(void *ctx), void *ctx)
{
    timer_stop(&lab->exit_soon);
    gate_shut(&lab->calls, stopped, ctx);
}

void lab_free(struct lab *lab)
{
    if (lab == NULL)
        return;
    lab_store_close(lab->store);
    lab_tokens_deinit(&lab->tokens);
    free(lab);
}
