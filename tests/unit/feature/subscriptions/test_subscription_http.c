// SPDX-License-Identifier: Apache-2.0
/* Subscriptions as HTTP sees them: a transport of our own hands requests to the surface. */
#include "unit/feature/subscriptions/subscription_world.h"

#include "base/buf.h"
#include "http/exchange.h"
#include "http/http.h"
#include "access/principal.h"
#include "feature/subscriptions/subscriptions_http.h"
#include "stream/durable.h"

#include <jansson.h>

struct answer {
    int status;
    struct buf body;
    json_t *json; /* NULL: none */
    bool gone;    /* the peer hangs up when the body is wanted */
    struct str sent;
    struct str allow, authenticate, content_type;
    char texts[3][256];
};

struct site {
    struct world *w;
    struct http http;
    struct durable durable;
    struct subscriptions_http surface;
    bool as_worker;       /* who asks is one */
    struct answer answer; /* the last */
};

static void on_want(struct exchange *x)
{
    struct answer *a = x->transport;
    if (a->gone)
        exchange_finish(x, true);
    else
        exchange_deliver(x, a->sent, true, true);
}

static void on_begin(struct exchange *x, int64_t length)
{
    struct answer *a = x->transport;
    a->status = x->status;
    struct {
        struct str name, *to;
    } wanted[] = {{STR("Allow"), &a->allow},
                  {STR("WWW-Authenticate"), &a->authenticate},
                  {STR("Content-Type"), &a->content_type}};
    for (struct exchange_header *h = x->headers; h != NULL; h = h->next)
        for (size_t i = 0; i < 3; i++)
            if (str_eq_nocase(h->header.name, wanted[i].name)) {
                memcpy(a->texts[i], h->header.value.p, h->header.value.n);
                *wanted[i].to = str_of(a->texts[i], h->header.value.n);
            }
}

static void on_put(struct exchange *x, struct slice s)
{
    buf_put(&((struct answer *)x->transport)->body, s.bytes);
}

static void on_end(struct exchange *x)
{
    exchange_finish(x, false);
}

static const struct transport_ops via = {
    .want = on_want, .begin = on_begin, .put = on_put, .end = on_end};

static void forget(struct answer *a)
{
    json_decref(a->json);
    buf_deinit(&a->body);
}

/* The answer lives until the next. */
static struct answer *ask(struct site *s, const char *method, const char *path, const char *body,
                          const char *token)
{
    struct answer *a = &s->answer;
    forget(a);
    *a = (struct answer){.sent = str_of_cstr(body ? body : ""), .gone = body == NULL};
    char full[1024], bearer[512];
    snprintf(full, sizeof full, "/v1/stream/__ds/%s", path);
    snprintf(bearer, sizeof bearer, "%s", token ? token : "");
    struct header headers[] = {{STR("Authorization"), str_of_cstr(bearer)}};
    struct request req = {.method_text = str_of_cstr(method),
                          .path = str_of_cstr(full),
                          .host = STR("127.0.0.1:4437"),
                          .headers = headers,
                          .n_headers = token != NULL};
    static const char *methods[] = {
        [METHOD_GET] = "GET",    [METHOD_HEAD] = "HEAD",     [METHOD_POST] = "POST",
        [METHOD_PUT] = "PUT",    [METHOD_DELETE] = "DELETE", [METHOD_OPTIONS] = "OPTIONS",
        [METHOD_PATCH] = "PATCH"};
    for (int i = METHOD_GET; i <= METHOD_PATCH; i++)
        if (strcmp(methods[i], method) == 0)
            req.method = (enum method)i;
    struct exchange *x = exchange_new(&s->http, &via, a);
    static const struct str capability = STR_INIT("worker");
    static const struct principal worker = {
        .name = STR_INIT("w"), .capabilities = &capability, .n_capabilities = 1};
    x->request = &req;
    if (s->as_worker)
        x->principal = &worker;
    x->head_only = req.method == METHOD_HEAD;
    exchange_hold(x);
    subscriptions_http_handle(&s->surface, x);
    exchange_release(x);
    sched_drain(&s->w->sched);
    a->json = json_loadb(a->body.p, a->body.n, 0, NULL);
    return a;
}

static const char *text(const struct answer *a, const char *key)
{
    const char *value = json_string_value(json_object_get(a->json, key));
    return value != NULL ? value : "";
}

static const char *code(const struct answer *a)
{
    const char *value =
        json_string_value(json_object_get(json_object_get(a->json, "error"), "code"));
    return value != NULL ? value : "";
}

static int setup(void **state)
{
    struct site *s = mem_zalloc(sizeof *s);
    world_setup((void **)&s->w);
    s->http.limits.inflight_bytes = 1 << 20;
    s->surface = (struct subscriptions_http){
        .subscriptions = s->w->subs, .policy = {.allow_local = true}, .durable = &s->durable};
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct site *s = *state;
    forget(&s->answer);
    arena_cache_deinit(&s->http.arenas);
    world_teardown((void **)&s->w);
    free(s);
    return 0;
}

#define HOOK "\"webhook\":{\"url\":\"http://localhost:9/x\"}"
#define PULL "\"type\":\"pull-wake\",\"wake_stream\":\"wakes\""

static void test_bodies_of_create(void **state)
{
    struct site *s = *state;
    static const struct {
        int status;
        const char *code, *body;
    } cases[] = {
        {400, "INVALID_REQUEST", ""},
        {400, "INVALID_REQUEST", "{"},
        {400, "INVALID_REQUEST", "[]"},
        {400, "INVALID_REQUEST", "{}"},
        {400, "INVALID_REQUEST", "{\"type\":\"webhook\"," HOOK "}"},
        {400, "INVALID_REQUEST", "{\"type\":\"other\",\"pattern\":\"a\"}"},
        {400, "INVALID_REQUEST", "{\"type\":7,\"pattern\":\"a\"}"},
        {400, "INVALID_REQUEST", "{\"type\":\"webhook\",\"pattern\":\"a\"}"},
        {400, "INVALID_REQUEST", "{\"type\":\"webhook\",\"pattern\":\"a\",\"webhook\":\"x\"}"},
        {400, "INVALID_REQUEST",
         "{\"type\":\"webhook\",\"pattern\":\"a\",\"webhook\":{\"url\":1}}"},
        {400, "WEBHOOK_URL_REJECTED",
         "{\"type\":\"webhook\",\"pattern\":\"a\",\"webhook\":{\"url\":\"http://10.0.0.1/\"}}"},
        {400, "WEBHOOK_URL_REJECTED",
         "{\"type\":\"webhook\",\"pattern\":\"a\",\"webhook\":{\"url\":\"nonsense\"}}"},
        {400, "INVALID_REQUEST", "{\"type\":\"pull-wake\",\"pattern\":\"a\"}"},
        {400, "INVALID_REQUEST",
         "{\"type\":\"pull-wake\",\"pattern\":\"a\",\"wake_stream\":\"__ds/x\"}"},
        {400, "INVALID_REQUEST", "{" PULL ",\"pattern\":7}"},
        {400, "INVALID_REQUEST", "{" PULL ",\"pattern\":\"a//b\"}"},
        {400, "INVALID_REQUEST", "{" PULL ",\"streams\":\"a\"}"},
        {400, "INVALID_REQUEST", "{" PULL ",\"streams\":[]}"},
        {400, "INVALID_REQUEST", "{" PULL ",\"streams\":[1]}"},
        {400, "INVALID_REQUEST", "{" PULL ",\"streams\":[\"a\",\"\"]}"},
        {400, "INVALID_REQUEST", "{" PULL ",\"streams\":[\"a\\u0000b\"]}"},
        {400, "INVALID_REQUEST", "{" PULL ",\"pattern\":\"a\",\"lease_ttl_ms\":999}"},
        {400, "INVALID_REQUEST", "{" PULL ",\"pattern\":\"a\",\"lease_ttl_ms\":600001}"},
        {400, "INVALID_REQUEST", "{" PULL ",\"pattern\":\"a\",\"lease_ttl_ms\":\"1000\"}"},
        {400, "INVALID_REQUEST", "{" PULL ",\"pattern\":\"a\",\"lease_ttl_ms\":1000.5}"},
        {400, "INVALID_REQUEST", "{" PULL ",\"pattern\":\"a\",\"description\":1}"},
        {201, "", "{" PULL ",\"pattern\":\"/a/*/\",\"lease_ttl_ms\":1000,\"description\":\"d\"}"},
        {200, "", "{" PULL ",\"pattern\":\"a/*\",\"lease_ttl_ms\":1000,\"description\":\"d\"}"},
        {409, "SUBSCRIPTION_ALREADY_EXISTS",
         "{" PULL ",\"pattern\":\"a/*\",\"lease_ttl_ms\":1000}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct answer *a = ask(s, "PUT", "subscriptions/s", cases[i].body, NULL);
        if (a->status != cases[i].status || strcmp(code(a), cases[i].code) != 0)
            fail_msg("%s: %d %s", cases[i].body, a->status, code(a));
    }
}

/* {PULL, "streams":["x","x",...]} with n names. */
static struct str many_names(struct buf *out, int n)
{
    buf_put(out, STR("{" PULL ",\"streams\":["));
    for (int i = 0; i < n; i++)
        buf_printf(out, "%s\"x%d\"", i ? "," : "", i);
    buf_put(out, STR("]}"));
    buf_putc(out, '\0');
    return buf_str(out);
}

static void test_bounds_of_create(void **state)
{
    struct site *s = *state;
    struct buf body = {0};
    assert_int_equal(ask(s, "PUT", "subscriptions/s", many_names(&body, 1001).p, NULL)->status,
                     400);
    body.n = 0;
    assert_int_equal(ask(s, "PUT", "subscriptions/s", many_names(&body, 1000).p, NULL)->status,
                     201);
    body.n = 0;
    buf_put(&body, STR("{" PULL ",\"pattern\":\"a\",\"description\":\""));
    for (int i = 0; i < 1025; i++)
        buf_putc(&body, 'd');
    buf_put(&body, STR("\"}"));
    buf_putc(&body, '\0');
    assert_int_equal(ask(s, "PUT", "subscriptions/t", body.p, NULL)->status, 400);
    body.n = 0;
    for (int i = 0; i < SUBSCRIPTIONS_BODY_MAX; i++)
        buf_putc(&body, ' ');
    buf_put(&body, STR("{}"));
    buf_putc(&body, '\0');
    assert_int_equal(ask(s, "PUT", "subscriptions/t", body.p, NULL)->status, 413);
    buf_deinit(&body);
    assert_int_equal(ask(s, "PUT", "subscriptions/t", NULL, NULL)->status, 0); /* hung up */
}

static void test_view(void **state)
{
    struct site *s = *state;
    const char *body = "{\"type\":\"webhook\",\"streams\":[\"m/a\"]," HOOK "}";
    const struct answer *a = ask(s, "PUT", "subscriptions/my%20sub", body, NULL);
    assert_int_equal(a->status, 201);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(text(a, "id"), "my sub");
        assert_string_equal(text(a, "subscription_id"), "my sub");
        assert_string_equal(text(a, "type"), "webhook");
        assert_string_equal(text(a, "status"), "active");
        assert_null(json_object_get(a->json, "pattern"));
        assert_null(json_object_get(a->json, "description"));
        assert_null(json_object_get(a->json, "wake_stream"));
        assert_int_equal(json_integer_value(json_object_get(a->json, "lease_ttl_ms")), 30000);
        json_t *hook = json_object_get(a->json, "webhook"),
               *sign = json_object_get(hook, "signing");
        assert_string_equal(json_string_value(json_object_get(hook, "url")),
                            "http://localhost:9/x");
        assert_string_equal(json_string_value(json_object_get(sign, "jwks_url")),
                            "http://127.0.0.1:4437/v1/stream/__ds/jwks.json");
        json_t *stream = json_array_get(json_object_get(a->json, "streams"), 0);
        assert_string_equal(json_string_value(json_object_get(stream, "path")), "m/a");
        assert_string_equal(json_string_value(json_object_get(stream, "link_type")), "explicit");
        assert_string_equal(json_string_value(json_object_get(stream, "acked_offset")),
                            "0000000000000000_0000000000000000");
        a = ask(s, "GET", "subscriptions/my%20sub", NULL, NULL);
        assert_int_equal(a->status, 200);
    }
    a = ask(s, "GET", "jwks.json", NULL, NULL);
    assert_int_equal(a->status, 200);
    assert_true(str_eq(a->content_type, STR("application/jwk-set+json")));
    assert_int_equal(json_array_size(json_object_get(a->json, "keys")), 1);

    s->durable.public_url = STR("https://streams.example");
    a = ask(s, "PUT", "subscriptions/other", body, NULL);
    json_t *sign = json_object_get(json_object_get(a->json, "webhook"), "signing");
    assert_string_equal(json_string_value(json_object_get(sign, "jwks_url")),
                        "https://streams.example/v1/stream/__ds/jwks.json");
}

static void test_routes(void **state)
{
    struct site *s = *state;
    assert_int_equal(
        ask(s, "PUT", "subscriptions/s", "{" PULL ",\"streams\":[\"m/a\"]}", NULL)->status, 201);
    static const struct {
        const char *method, *path, *body;
        int status;
        const char *allow;
    } cases[] = {
        {"GET", "nothing", NULL, 404, ""},
        {"GET", "subscriptions/", NULL, 404, ""},
        {"GET", "subscriptions/s/x", NULL, 404, ""},
        {"GET", "subscriptions/s/", NULL, 200, ""},
        {"GET", "subscriptions/%zz", NULL, 404, ""},
        {"GET", "subscriptions/a%00b", NULL, 404, ""},
        {"GET", "subscriptions/none", NULL, 404, ""},
        {"HEAD", "subscriptions/s", NULL, 200, ""},
        {"POST", "subscriptions/s", "{}", 405, "PUT, GET, HEAD, DELETE"},
        {"GET", "subscriptions/s/claim", NULL, 405, "POST"},
        {"GET", "subscriptions/s/streams/x", NULL, 405, "DELETE"},
        {"POST", "jwks.json", "{}", 405, "GET, HEAD"},
        {"POST", "subscriptions/s/streams", "{\"streams\":[\"m/b\",\"/m/c/\"]}", 204, ""},
        {"POST", "subscriptions/s/streams", "{}", 400, ""},
        {"POST", "subscriptions/none/streams", "{\"streams\":[\"m/b\"]}", 404, ""},
        {"DELETE", "subscriptions/s/streams/m%2Fb", NULL, 204, ""},
        {"DELETE", "subscriptions/s/streams/m/c", NULL, 204, ""},
        {"DELETE", "subscriptions/s/streams/", NULL, 404, ""},
        {"DELETE", "subscriptions/none/streams/x", NULL, 404, ""},
        {"DELETE", "subscriptions/none", NULL, 204, ""},
        {"POST", "subscriptions/s/claim", "{\"worker\":\"\"}", 400, ""},
        {"POST", "subscriptions/s/claim", "{\"worker\":1}", 400, ""},
        {"POST", "subscriptions/s/claim", "{\"worker\":\"me\"}", 409, ""},
        {"POST", "subscriptions/s/ack", "{}", 401, ""},
        {"POST", "subscriptions/s/release", "{}", 401, ""},
        {"POST", "subscriptions/s/callback", "{}", 401, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct answer *a = ask(s, cases[i].method, cases[i].path, cases[i].body, NULL);
        if (a->status != cases[i].status || !str_eq(a->allow, str_of_cstr(cases[i].allow)))
            fail_msg("%s %s: %d %.*s", cases[i].method, cases[i].path, a->status, (int)a->allow.n,
                     a->allow.p);
        assert_int_equal(a->authenticate.n > 0, a->status == 401);
    }
    const struct answer *a = ask(s, "GET", "subscriptions/s", NULL, NULL);
    assert_int_equal(json_array_size(json_object_get(a->json, "streams")), 1);
}

static void test_claim_and_ack(void **state)
{
    struct site *s = *state;
    world_append(s->w, "wakes", "");
    assert_int_equal(
        ask(s, "PUT", "subscriptions/s", "{" PULL ",\"pattern\":\"e/*\"}", NULL)->status, 201);
    world_append(s->w, "e/1", "1");
    const struct answer *a = ask(s, "POST", "subscriptions/s/claim", "{\"worker\":\"w\"}", NULL);
    assert_int_equal(a->status, 200);
    assert_int_equal(json_integer_value(json_object_get(a->json, "lease_ttl_ms")), 30000);
    const json_t *stream = json_array_get(json_object_get(a->json, "streams"), 0);
    assert_true(json_is_true(json_object_get(stream, "has_pending")));
    assert_string_equal(json_string_value(json_object_get(stream, "link_type")), "glob");
    char bearer[300], wake[64], tail[64], body[512];
    snprintf(bearer, sizeof bearer, "Bearer %s", text(a, "token"));
    snprintf(wake, sizeof wake, "%s", text(a, "wake_id"));
    snprintf(tail, sizeof tail, "%s", json_string_value(json_object_get(stream, "tail_offset")));

    a = ask(s, "POST", "subscriptions/s/claim", "{\"worker\":\"v\"}", NULL);
    assert_int_equal(a->status, 409);
    assert_string_equal(code(a), "ALREADY_CLAIMED");
    const json_t *error = json_object_get(a->json, "error");
    assert_string_equal(json_string_value(json_object_get(error, "current_holder")), "w");
    assert_int_equal(json_integer_value(json_object_get(error, "generation")), 1);

    snprintf(
        body, sizeof body,
        "{\"wake_id\":\"%s\",\"generation\":1,\"acks\":[{\"stream\":\"e/1\",\"offset\":\"%s\"}],"
        "\"done\":true}",
        wake, tail);
    a = ask(s, "POST", "subscriptions/s/ack", body, "Bearer nonsense");
    assert_int_equal(a->status, 401);
    assert_string_equal(code(a), "TOKEN_INVALID");
    a = ask(s, "POST", "subscriptions/s/ack", body, "Basic abc");
    assert_int_equal(a->status, 401);
    a = ask(s, "POST", "subscriptions/s/ack", "{\"acks\":7}", bearer);
    assert_int_equal(a->status, 400);
    a = ask(s, "POST", "subscriptions/s/ack", "{\"acks\":[{}]}", bearer);
    assert_int_equal(a->status, 400);
    a = ask(s, "POST", "subscriptions/s/ack", "{}", bearer);
    assert_string_equal(code(a), "FENCED");
    a = ask(s, "POST", "subscriptions/s/ack", body, bearer);
    assert_int_equal(a->status, 200);
    assert_true(json_is_true(json_object_get(a->json, "ok")));
    assert_true(json_is_false(json_object_get(a->json, "next_wake")));
    a = ask(s, "POST", "subscriptions/s/ack", body, bearer);
    assert_int_equal(a->status, 409);
    assert_string_equal(code(a), "FENCED");
}

/* ---- sessions ---- */

static struct answer *ask_as(struct site *s, bool worker, const char *method, const char *path,
                             const char *body)
{
    s->as_worker = worker;
    struct answer *a = ask(s, method, path, body, NULL);
    s->as_worker = false;
    return a;
}

#define SESSIONS "{" PULL ",\"pattern\":\"sessions/*/in\"}"

static const char *claimed(const struct answer *a)
{
    const json_t *stream = json_array_get(json_object_get(a->json, "streams"), 0);
    const char *path = json_string_value(json_object_get(stream, "path"));
    return path != NULL ? path : code(a);
}

static void test_sessions_wake_workers(void **state)
{
    struct site *s = *state;
    world_append(s->w, "wakes", "");
    world_append(s->w, "sessions/old/in", "before");
    assert_int_equal(ask_as(s, true, "PUT", "subscriptions/s", SESSIONS)->status, 201);
    const struct answer *a = ask_as(s, true, "POST", "subscriptions/s/claim", "{\"worker\":\"w\"}");
    assert_string_equal(claimed(a), "NO_PENDING_WORK"); /* it is linked, at its tail */
    world_append(s->w, "sessions/old/out", "1");
    world_append(s->w, ".route/old/in", "1");
    a = ask_as(s, true, "POST", "subscriptions/s/claim", "{\"worker\":\"w\"}");
    assert_string_equal(claimed(a), "NO_PENDING_WORK");
    a = ask_as(s, true, "GET", "subscriptions/s", NULL);
    assert_int_equal(json_array_size(json_object_get(a->json, "streams")), 1);
    assert_string_equal(claimed(a), "sessions/old/in");

    /* It is known again by what the store has. */
    world_restart(s->w);
    s->surface.subscriptions = s->w->subs;
    struct offset tail = world_append(s->w, "sessions/new/in", "1");
    a = ask_as(s, true, "POST", "subscriptions/s/claim", "{\"worker\":\"w\"}");
    assert_string_equal(claimed(a), "sessions/new/in");

    /* The wake's token stands in for the worker's. */
    char bearer[300], body[512], at[OFFSET_TEXT];
    offset_format(tail, at);
    snprintf(bearer, sizeof bearer, "Bearer %s", text(a, "token"));
    snprintf(body, sizeof body,
             "{\"wake_id\":\"%s\",\"generation\":1,\"acks\":[{\"stream\":\"sessions/new/in\","
             "\"offset\":\"%.*s\"}],\"done\":true}",
             text(a, "wake_id"), OFFSET_TEXT, at);
    assert_int_equal(ask(s, "POST", "subscriptions/s/ack", body, bearer)->status, 200);
    a = ask_as(s, true, "POST", "subscriptions/s/claim", "{\"worker\":\"w\"}");
    assert_string_equal(claimed(a), "NO_PENDING_WORK");
    assert_int_equal(ask_as(s, true, "DELETE", "subscriptions/s", NULL)->status, 204);
    assert_int_equal(ask_as(s, true, "GET", "subscriptions/s", NULL)->status, 404);
}

/* Whatever pattern others have, and webhooks whoever made them. */
static void test_sessions_wake_nobody_else(void **state)
{
    struct site *s = *state;
    static const char *const patterns[] = {"**", "*/*/in", "sessions/**", "sessions/a/in"};
    world_append(s->w, "wakes", "");
    world_append(s->w, "sessions/a/in", "before");
    for (int i = 0; i < 4; i++) {
        char id[64], body[256];
        snprintf(id, sizeof id, "subscriptions/pull-%d", i);
        snprintf(body, sizeof body, "{" PULL ",\"pattern\":\"%s\"}", patterns[i]);
        assert_int_equal(ask_as(s, false, "PUT", id, body)->status, 201);
        snprintf(id, sizeof id, "subscriptions/hook-%d", i);
        snprintf(body, sizeof body, "{\"type\":\"webhook\",\"pattern\":\"%s\"," HOOK "}",
                 patterns[i]);
        assert_int_equal(ask_as(s, true, "PUT", id, body)->status, 201);
    }
    int due = s->w->due;
    world_append(s->w, "sessions/a/in", "1");
    world_append(s->w, "sessions/b/in", "1");
    assert_int_equal(s->w->due, due);
    for (int i = 0; i < 4; i++) {
        char id[64];
        snprintf(id, sizeof id, "subscriptions/pull-%d/claim", i);
        const struct answer *a = ask_as(s, true, "POST", id, "{\"worker\":\"w\"}");
        assert_string_equal(claimed(a), "NO_PENDING_WORK");
    }
    /* With its name it matches all that it says, but for what routes record. */
    world_append(s->w, ".route/a/in", "1");
    assert_int_equal(
        ask_as(s, true, "PUT", "subscriptions/all", "{" PULL ",\"pattern\":\"*/*/in\"}")->status,
        201);
    world_append(s->w, ".route/a/in", "2");
    world_append(s->w, "sessions/a/in", "2");
    const struct answer *a =
        ask_as(s, true, "POST", "subscriptions/all/claim", "{\"worker\":\"w\"}");
    assert_string_equal(claimed(a), "sessions/a/in");
    assert_int_equal(json_array_size(json_object_get(a->json, "streams")), 2);
}

static void test_sessions_are_hidden(void **state)
{
    struct site *s = *state;
    assert_int_equal(ask_as(s, true, "PUT", "subscriptions/s", SESSIONS)->status, 201);
    assert_int_equal(ask_as(s, true, "PUT", "subscriptions/s", SESSIONS)->status, 200);
    world_append(s->w, "sessions/a/in", "1");
    static const struct {
        const char *method, *path, *body;
        int status;
    } rows[] = {
        {"PUT", "subscriptions/s", SESSIONS, 409},
        {"GET", "subscriptions/s", NULL, 404},
        {"DELETE", "subscriptions/s", NULL, 404},
        {"POST", "subscriptions/s/claim", "{\"worker\":\"w\"}", 404},
        {"POST", "subscriptions/s/streams", "{\"streams\":[\"a\"]}", 404},
        {"DELETE", "subscriptions/s/streams/a", NULL, 404},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct answer *a = ask_as(s, false, rows[i].method, rows[i].path, rows[i].body);
        if (a->status != rows[i].status)
            fail_msg("%s %s: %d", rows[i].method, rows[i].path, a->status);
        assert_null(memmem(a->body.p, a->body.n, "sessions/a", 10));
    }
    assert_int_equal(ask_as(s, true, "GET", "subscriptions/s", NULL)->status, 200);
}

static void test_sessions_by_name(void **state)
{
    struct site *s = *state;
    static const struct {
        bool worker;
        const char *path, *body;
        int status;
    } rows[] = {
        {false, "a", "{" PULL ",\"streams\":[\"sessions/a/in\"]}", 400},
        {true, "b", "{\"type\":\"webhook\",\"streams\":[\"sessions/a/in\"]," HOOK "}", 400},
        {true, "c", "{" PULL ",\"streams\":[\"x\",\"/sessions/a/in\"]}", 201},
        {true, "d", "{" PULL ",\"streams\":[\"x\"]}", 201},
        {false, "d", "{" PULL ",\"streams\":[\"x\"]}", 200}, /* has nothing to do with them */
        {true, "e", "{\"type\":\"pull-wake\",\"wake_stream\":\"sessions/a/in\",\"pattern\":\"x\"}",
         400},
        {true, "f", "{\"type\":\"pull-wake\",\"wake_stream\":\".route/a\",\"pattern\":\"x\"}", 400},
    };
    world_append(s->w, "wakes", "");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[64];
        snprintf(path, sizeof path, "subscriptions/%s", rows[i].path);
        const struct answer *a = ask_as(s, rows[i].worker, "PUT", path, rows[i].body);
        if (a->status != rows[i].status)
            fail_msg("%s: %d", rows[i].body, a->status);
    }
    const char *more = "{\"streams\":[\"y\",\"sessions/b/in\"]}";
    const struct answer *a = ask_as(s, true, "POST", "subscriptions/d/streams", more);
    assert_int_equal(a->status, 400);
    assert_string_equal(code(a), "INVALID_REQUEST");
    assert_int_equal(ask_as(s, true, "POST", "subscriptions/c/streams", more)->status, 204);
    world_append(s->w, "sessions/b/in", "1");
    a = ask_as(s, true, "POST", "subscriptions/c/claim", "{\"worker\":\"w\"}");
    assert_string_equal(claimed(a), "sessions/b/in");
    a = ask_as(s, true, "POST", "subscriptions/d/claim", "{\"worker\":\"w\"}");
    assert_string_equal(claimed(a), "NO_PENDING_WORK");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_bodies_of_create),
        T(test_bounds_of_create),
        T(test_view),
        T(test_routes),
        T(test_claim_and_ack),
        T(test_sessions_wake_workers),
        T(test_sessions_wake_nobody_else),
        T(test_sessions_are_hidden),
        T(test_sessions_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
