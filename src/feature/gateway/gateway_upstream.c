// SPDX-License-Identifier: Apache-2.0
/* gateway_upstream.c -- the source that nearly every route has: its upstream, over HTTP. */
#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "feature/gateway/recorder.h"
#include "http/credential.h"
#include "http/fetch.h"
#include "http/sse_host.h"
#include "feature/gateway/gateway_core.h"
#include "feature/gateway/gateway_lines.h"
#include "feature/gateway/gateway_source.h"
#include "feature/gateway/gateway_trace.h"
#include "feature/gateway/pass_header.h"
#include "feature/gateway/upstream_url.h"

#include <stdlib.h>

#define PASSED_MAX 100 /* headers of an answer; what is more is left out */

struct upstream {
    struct generation_source source;
    const struct source_events *on;
    void *ctx;
    struct gateway_route *route;
    struct str request_id;
    struct fetcher *fetcher;
    struct fetch fetch;
    enum route_dialect dialect; /* that is expected */
    struct sse_parser parser;
    struct gateway_lines lines;
    struct arena arena;                                /* of the request */
    size_t (*read)(void *ctx, char *out, size_t room); /* of an upload */
    bool passes;
    bool events;   /* it answers with these */
    bool is_lines; /* ... one on each line */
    bool full;     /* no more of them before gateway_upstream_resume() */
};

/* ---- telling ---- */

static void tell_error(const struct upstream *u, struct str reason, struct str why)
{
    struct str labels[] = {u->route->path, reason};
    counter_inc(metric_family_counter(u->route->gateway->failed_family, labels));
    trace(u->route->gateway->setup.trace, UPSTREAM_FAILED, TRACE_STR("route", u->route->path),
          TRACE_STR("error", why), TRACE_STR("reason", reason),
          TRACE_STR("request_id", u->request_id));
}

int gateway_notice_err(struct str notice)
{
    return fetch_text_err(notice);
}

/* ---- the answer ---- */

/* A compressed one cannot be taken apart here. */
static bool can_be_events(const struct fetch *f)
{
    struct str coding = fetch_header(f, "Content-Encoding");
    return f->status >= 200 && f->status < 300 && f->content_type.p != NULL &&
           (coding.p == NULL || str_eq_nocase(coding, STR("identity")));
}

/* Where lines of JSON are called JSON, the route says so, and how much comes is not known. */
static bool are_lines(const struct upstream *u, struct str type)
{
    static const struct str types[] = {
        STR_INIT("application/x-ndjson"), STR_INIT("application/ndjson"),
        STR_INIT("application/jsonl"), STR_INIT("application/x-jsonlines")};
    if (u->dialect != ROUTE_DIALECT_AUTO && u->dialect != ROUTE_DIALECT_NDJSON)
        return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (str_eq_nocase(type, types[i]))
            return true;
    return u->route->config->dialect == ROUTE_DIALECT_NDJSON &&
           str_eq_nocase(type, STR("application/json")) &&
           fetch_header(&u->fetch, "Content-Length").p == NULL;
}

/* What it answers with. */
static void look_at_type(struct upstream *u, struct source_head *head)
{
    const struct fetch *f = &u->fetch;
    struct str type = f->content_type;
    if (!can_be_events(f))
        return;
    type = str_trim(str_cut(&type, ';'));
    u->is_lines = are_lines(u, type);
    u->events = u->is_lines || str_eq_nocase(type, STR("text/event-stream"));
    head->events = u->events;
    if (u->is_lines) {
        head->dialect = ROUTE_DIALECT_NDJSON;
        head->media_type = f->content_type;
    } else if (fetch_header(f, "x-vercel-ai-ui-message-stream").p != NULL) {
        head->dialect = ROUTE_DIALECT_UI_MESSAGE;
    }
}

/* What is chunked has another length, whatever it says, and of two lengths nobody knows which one
 * counts. */
static int64_t answer_length(const struct fetch *f)
{
    struct header h;
    uint64_t length = 0;
    unsigned lengths = 0;
    for (void *at = NULL; fetch_next_header(f, &at, &h);) {
        if (str_eq_nocase(h.name, STR("Transfer-Encoding")))
            return -1;
        if (str_eq_nocase(h.name, STR("Content-Length")) &&
            (lengths++ > 0 || num_parse(h.value, INT64_MAX, &length) != 0))
            return -1;
    }
    return lengths > 0 ? (int64_t)length : -1;
}

static size_t take_headers(const struct fetch *f, bool events, struct header out[PASSED_MAX])
{
    struct header all[PASSED_MAX];
    size_t n_all = 0, n = 0;
    for (void *at = NULL; n_all < PASSED_MAX && fetch_next_header(f, &at, &all[n_all]);)
        n_all++;
    for (size_t i = 0; i < n_all; i++)
        if ((events ? pass_stream_header(&all[i]) : pass_answer_header(&all[i])) &&
            !pass_is_named(all, n_all, all[i].name))
            out[n++] = all[i];
    return n;
}

static void gateway_upstream_on_head(struct fetch *f)
{
    struct upstream *u = container_of(f, struct upstream, fetch);
    struct header headers[PASSED_MAX];
    struct source_head head = {.status = f->status, .length = answer_length(f), .headers = headers};
    if (!u->passes)
        look_at_type(u, &head);
    head.n_headers = take_headers(f, head.events, headers);
    u->on->head(u->ctx, &head);
}

static int gateway_upstream_take(struct upstream *u, struct str type, struct str data)
{
    int taken = u->on->event(u->ctx, type, data);
    u->full = u->full || taken == 0;
    return taken < 0 ? taken : 0;
}

static int gateway_upstream_on_event(void *user, const struct sse_event *event)
{
    return gateway_upstream_take(user, event->type, event->data);
}

static int gateway_upstream_on_line(void *user, struct str line)
{
    return gateway_upstream_take(user, STR_NONE, line);
}

/* An event was not taken. */
static void end_on_event(struct upstream *u, int err)
{
    if (err == ERR_CLOSED) { /* it has ended for a reason of its own */
        u->on->end(u->ctx, err, STR_NONE);
        return;
    }
    bool large = err == ERR_TOO_LARGE;
    struct str why = large ? STR("the upstream sent an event that is too large")
                           : STR("the upstream sent an event that cannot be kept");
    tell_error(u, large ? STR("event_too_large") : STR("event_invalid"), why);
    u->on->end(u->ctx, err, why);
}

static bool gateway_upstream_on_data(struct fetch *f, struct str data)
{
    struct upstream *u = container_of(f, struct upstream, fetch);
    if (!u->events)
        return u->on->data(u->ctx, data);
    if (u->full)
        return false;
    int err = u->is_lines ? gateway_lines_feed(&u->lines, data) : sse_parser_feed(&u->parser, data);
    if (err != 0)
        end_on_event(u, err);
    return true;
}

static void gateway_upstream_on_fetched(struct fetch *f, int err)
{
    struct upstream *u = container_of(f, struct upstream, fetch);
    struct str cause = str_of_cstr(fetch_cause_text(f->cause));
    int last = err == 0 && u->is_lines ? gateway_lines_end(&u->lines) : 0;
    if (last != 0) {
        end_on_event(u, last);
        return;
    }
    if (err != 0)
        tell_error(u, str_of_cstr(fetch_cause_name(f->cause)), str_of_cstr(f->error));
    u->on->end(u->ctx, err, err == 0 ? STR_NONE : cause);
}

/* ---- the request ---- */

static void gateway_upstream_add_header(struct upstream *u, struct header *headers, struct str name,
                                        struct str value)
{
    if (value.p != NULL)
        headers[u->fetch.n_headers++] =
            (struct header){arena_dup(&u->arena, name), arena_dup(&u->arena, value)};
}

/* What carries a credential of ours, or what the route says itself, is not the client's to send. */
static bool is_withheld(const struct source_order *o, struct str name)
{
    static const struct str keys[] = {STR_INIT("x-api-key"), STR_INIT("x-goog-api-key")};
    const struct upstream_headers *added = &o->route->added;
    if (str_eq_nocase(name, STR("Tidemark-Authorization")) || upstream_headers_have(added, name))
        return true;
    if (str_eq_nocase(name, STR("Authorization")))
        return o->known || added->n > 0;
    for (size_t i = 0; added->n > 0 && i < sizeof keys / sizeof *keys; i++)
        if (str_eq_nocase(name, keys[i]))
            return true;
    return false;
}

static bool is_listed(const struct option_list *names, struct str name)
{
    for (size_t i = 0; i < names->n; i++)
        if (str_eq_nocase(str_of_cstr(names->items[i]), name))
            return true;
    return false;
}

/* An answer that may be recorded must not be compressed: it could not be taken apart. */
static bool is_passed(const struct source_order *o, struct str name)
{
    const struct route_config *c = o->route->config;
    enum pass pass = pass_request_header(name);
    if (str_eq_nocase(name, STR("Accept-Encoding")))
        return o->passes;
    if (pass == PASS_NEVER || is_listed(&c->drop, name) || is_withheld(o, name) ||
        pass_is_named(o->request->headers, o->request->n_headers, name))
        return false;
    return pass == PASS_ALWAYS || is_listed(&c->forward, name);
}

static void pass_header(struct upstream *u, const struct source_order *o, struct header *headers,
                        const struct header *h)
{
    struct str value = h->value;
    if (!is_passed(o, h->name))
        return;
    if (str_eq_nocase(h->name, STR("Cookie"))) {
        value = credential_cut_cookies(&u->arena, value);
        if (value.n == 0)
            return;
    }
    gateway_upstream_add_header(u, headers, h->name, value);
}

static void gateway_upstream_make_headers(struct upstream *u, const struct source_order *o)
{
    const struct request *req = o->request;
    const struct upstream_headers *added = &o->route->added;
    struct header *headers =
        arena_alloc(&u->arena, (req->n_headers + added->n + 2) * sizeof *headers);
    for (int i = 0; i < req->n_headers; i++)
        pass_header(u, o, headers, &req->headers[i]);
    for (size_t i = 0; i < added->n; i++)
        gateway_upstream_add_header(u, headers, str_of_cstr(added->items[i].name),
                                    str_of_cstr(added->items[i].value));
    if (o->plain && !upstream_headers_have(added, STR("Accept-Encoding")))
        gateway_upstream_add_header(u, headers, STR("Accept-Encoding"), STR("identity"));
    if (!upstream_headers_have(added, STR("X-Correlation-ID")))
        gateway_upstream_add_header(u, headers, STR("X-Correlation-ID"), o->request_id);
    u->fetch.headers = headers;
}

static struct str make_url(struct upstream *u, const struct source_order *o)
{
    const struct route_config *c = o->route->config;
    const struct request *req = o->request;
    bool has_version = request_header(req, STR("anthropic-version")).p != NULL;
    const char *to =
        route_is_anthropic(c, req->path, has_version) ? c->upstream_anthropic : c->upstream;
    struct upstream_place place = {
        .path = o->route->path, .upstream = str_of_cstr(to), .prefix = c->prefix};
    return upstream_url(&u->arena, &place, req->path, req->query);
}

/* Silence ends before the stream expires under it. */
static uint32_t timeout_for(const struct source_order *o, uint64_t timeout_ms)
{
    uint64_t most = o->passes ? UINT32_MAX : (uint64_t)gateway_ttl_s(o->route->config) * 900;
    return (uint32_t)(timeout_ms < most ? timeout_ms : most);
}

static size_t gateway_upstream_on_body(struct fetch *f, char *out, size_t room)
{
    struct upstream *u = container_of(f, struct upstream, fetch);
    return u->read(u->ctx, out, room);
}

static void make_fetch(struct upstream *u, const struct source_order *o)
{
    static const enum fetch_version versions[] = {[ROUTE_HTTP1] = FETCH_HTTP1,
                                                  [ROUTE_HTTP_AUTO] = FETCH_HTTP_AUTO,
                                                  [ROUTE_HTTP2] = FETCH_HTTP2};
    const struct route_config *c = o->route->config;
    u->fetch = (struct fetch){.url = make_url(u, o),
                              .method = arena_dup(&u->arena, o->request->method_text),
                              .body = arena_dup(&u->arena, o->body),
                              .policy = {.configured = true},
                              .version = versions[c->upstream_http],
                              .connect_timeout_ms = (uint32_t)c->connect_timeout_ms,
                              .first_byte_timeout_ms = timeout_for(o, c->first_byte_timeout_ms),
                              .idle_timeout_ms = timeout_for(o, c->idle_timeout_ms),
                              .total_timeout_ms = (uint32_t)c->total_timeout_ms,
                              .on_head = gateway_upstream_on_head,
                              .on_data = gateway_upstream_on_data,
                              .done = gateway_upstream_on_fetched};
    if (o->upload != NULL) {
        u->fetch.on_body = gateway_upstream_on_body;
        u->fetch.body_length = o->upload->length;
    }
    gateway_upstream_make_headers(u, o);
}

/* ---- as a source ---- */

static struct upstream *upstream_of(struct generation_source *s)
{
    return container_of(s, struct upstream, source);
}

static void gateway_upstream_start(struct generation_source *s)
{
    struct upstream *u = upstream_of(s);
    fetch_start(u->fetcher, &u->fetch);
}

static void gateway_upstream_resume(struct generation_source *s)
{
    struct upstream *u = upstream_of(s);
    u->full = false;
    fetch_resume(&u->fetch);
}

static void gateway_upstream_feed(struct generation_source *s)
{
    fetch_resume_body(&upstream_of(s)->fetch);
}

static void gateway_upstream_free(struct generation_source *s)
{
    struct upstream *u = upstream_of(s);
    fetch_cancel(&u->fetch);
    sse_parser_deinit(&u->parser);
    gateway_lines_deinit(&u->lines);
    arena_deinit(&u->arena);
    free(u);
}

static const struct source_ops ops = {.start = gateway_upstream_start,
                                      .resume = gateway_upstream_resume,
                                      .free = gateway_upstream_free,
                                      .feed = gateway_upstream_feed};

struct generation_source *gateway_upstream_open(void *ctx, const struct source_order *o)
{
    struct upstream *u = mem_zalloc(sizeof *u);
    u->source.ops = &ops;
    u->on = o->on;
    u->ctx = o->ctx;
    u->route = o->route;
    u->request_id = arena_dup(&u->arena, o->request_id);
    u->fetcher = ctx;
    u->dialect = o->dialect;
    u->lines = (struct gateway_lines){
        .max = RECORDER_EVENT_MAX, .user = u, .on_line = gateway_upstream_on_line};
    u->read = o->upload != NULL ? o->upload->read : NULL;
    u->passes = o->passes;
    sse_parser_init(&u->parser, &sse_server_host, NULL, RECORDER_EVENT_MAX, u,
                    gateway_upstream_on_event);
    make_fetch(u, o);
    return &u->source;
}
