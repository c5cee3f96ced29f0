// SPDX-License-Identifier: Apache-2.0
/* session_surface_world.h -- the surface of sessions between an engine and calls that are scripted
 * here: these definitions stand in for those of feature/sessions/session.c and http/rpc.c. */
#ifndef UNIT_SESSION_SURFACE_WORLD_H
#define UNIT_SESSION_SURFACE_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "feature/sessions/session.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/rpc.h"
#include "feature/sessions/sessions_http_core.h"

/* One connection as the engine sees it. */
struct session_visit {
    struct session_client *client; /* NULL: it has gone */
    struct session_hello hello;
    char key[SESSION_KEY_MAX];
    uint8_t secret[SESSION_SECRET_SIZE];
    char said[64]; /* one character for each message: its last */
    uint64_t n_said, settled;
    bool no_room, half_closed, over, settles_at_once;
    struct str next[8];
    size_t n_next, at_next;
};

struct rpc {
    struct rpc_setup setup;
    struct exchange *x;
    bool wanted, woken, replied, ended, gone;
    int code;
    size_t n_details;
    char details[2][32]; /* types */
    char message[256];
    char put[512]; /* messages, each behind its length as a byte */
    size_t n_put;
};

struct sessions {
    struct session_visit visits[32];
    size_t n;
};

struct world {
    struct sched sched;
    struct http http;
    struct sessions sessions;
    struct sessions_http surface;
    struct rpc *calls[512];
    size_t n_calls;
};

static struct world *world; /* of the test that runs */

/* ---- the engine ---- */

bool session_key_valid(struct str key)
{
    return key.n > 0 && key.n <= SESSION_KEY_MAX && memchr(key.p, '/', key.n) == NULL;
}

void session_connect(struct sessions *all, struct session_client *c,
                     const struct session_hello *hello)
{
    struct session_visit *v = &all->visits[all->n++];
    assert_true(all->n <= 32);
    *v = (struct session_visit){.client = c, .hello = *hello};
    memcpy(v->key, hello->key.p, hello->key.n);
    memcpy(v->secret, hello->secret, sizeof v->secret);
    v->hello.key = str_of(v->key, hello->key.n);
    c->visit = v;
}

void session_disconnect(struct session_client *c)
{
    if (c->visit != NULL)
        c->visit->client = NULL;
    c->visit = NULL;
}

void session_receive(struct session_client *c, struct str message)
{
    assert_true(c->visit->n_said < sizeof c->visit->said - 1);
    c->visit->said[c->visit->n_said++] = message.n > 0 ? message.p[message.n - 1] : '-';
    if (c->visit->settles_at_once)
        c->visit->settled = c->visit->n_said;
}

bool session_room(const struct session_client *c)
{
    return !c->visit->no_room;
}

uint64_t session_settled(const struct session_client *c)
{
    return c->visit->settled;
}

void session_half_close(struct session_client *c)
{
    c->visit->half_closed = true;
}

enum session_next session_next(struct session_client *c, struct buf *out)
{
    struct session_visit *v = c->visit;
    if (v->at_next < v->n_next) {
        buf_put(out, v->next[v->at_next++]);
        return SESSION_NEXT_MESSAGE;
    }
    return v->over ? SESSION_NEXT_OVER : SESSION_NEXT_WAIT;
}

/* The newest. */
static inline struct session_visit *visit(void)
{
    assert_true(world->sessions.n > 0);
    return &world->sessions.visits[world->sessions.n - 1];
}

static inline void visit_gives(struct session_visit *v, const char *message)
{
    v->next[v->n_next++] = str_of_cstr(message);
    v->client->ops->ready(v->client);
}

static inline void visit_settles(struct session_visit *v, uint64_t settled)
{
    v->settled = settled;
    v->client->ops->settled(v->client);
}

static inline void visit_over(struct session_visit *v, enum session_over over, enum end_reason end)
{
    v->client->over = over;
    v->client->end = end;
    v->over = true;
    v->client->ops->ready(v->client);
}

/* ---- calls ---- */

struct rpc *rpc_new(struct exchange *x, const struct rpc_setup *setup)
{
    struct rpc *r = mem_zalloc(sizeof *r);
    r->setup = *setup;
    r->x = x;
    world->calls[world->n_calls++] = r;
    assert_true(world->n_calls <= 512);
    return r;
}

static inline bool rpc_is_over(const struct rpc *r)
{
    return r->replied || r->ended || r->gone;
}

void *rpc_ctx(const struct rpc *r)
{
    return r->setup.ctx;
}

struct exchange *rpc_exchange(const struct rpc *r)
{
    return r->x;
}

void rpc_next(struct rpc *r)
{
    assert_false(rpc_is_over(r) || r->wanted);
    r->wanted = true;
}

void rpc_put(struct rpc *r, struct str bytes)
{
    assert_false(rpc_is_over(r));
    assert_true(r->n_put + 1 + bytes.n <= sizeof r->put);
    r->put[r->n_put++] = (char)bytes.n;
    memcpy(r->put + r->n_put, bytes.p, bytes.n);
    r->n_put += bytes.n;
}

void rpc_wake(struct rpc *r)
{
    assert_false(rpc_is_over(r));
    r->woken = true;
}

void rpc_reply(struct rpc *r, struct str bytes)
{
    assert_false(rpc_is_over(r));
    assert_int_equal(r->setup.kind, RPC_UNARY);
    assert_int_equal(bytes.n, 0);
    r->replied = true;
}

void rpc_end(struct rpc *r, const struct rpc_status *status)
{
    assert_false(rpc_is_over(r));
    assert_true(r->setup.kind != RPC_UNARY || status->code != 0);
    r->ended = true;
    r->code = status->code;
    r->n_details = status->n_details;
    snprintf(r->message, sizeof r->message, "%.*s", (int)status->message.n, status->message.p);
    for (size_t i = 0; i < status->n_details; i++)
        snprintf(r->details[i], sizeof r->details[i], "%.*s", (int)status->details[i].type.n,
                 status->details[i].type.p);
}

/* ---- what a peer does ---- */

static int begun_status;

static inline void via_begin(struct exchange *x, int64_t length)
{
    begun_status = x->status;
}

static inline void via_put(struct exchange *x, struct slice s)
{
}

static inline void via_end(struct exchange *x)
{
}

#define SECRET       "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8" /* 0, 1, 2, ... 31 */
#define OTHER_SECRET "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8"

struct ask {
    const char *path, *key, *position, *secret;
    const struct principal *who;
};

/* The call that a request leads to, or NULL. */
static inline struct rpc *ask_with(const struct ask *a)
{
    static const struct transport_ops via = {.begin = via_begin, .put = via_put, .end = via_end};
    struct exchange *x = exchange_new(&world->http, &via, NULL);
    struct request *req = arena_alloc(&x->arena, sizeof *req);
    const char *names[] = {"X-Idempotency-Key", "X-Idempotency-Event-Id",
                           "X-Idempotent-Encryption-Key"};
    const char *values[] = {a->key, a->position, a->secret};
    *req = (struct request){.method = METHOD_POST, .version = 20, .path = str_of_cstr(a->path)};
    req->headers = arena_alloc(&x->arena, 3 * sizeof *req->headers);
    for (size_t i = 0; i < 3; i++)
        if (values[i] != NULL)
            req->headers[req->n_headers++] = (struct header){
                str_of_cstr(names[i]), arena_dup(&x->arena, str_of_cstr(values[i]))};
    x->request = req;
    size_t before = world->n_calls;
    http_dispatch(&world->http, x);
    if (a->who != NULL)
        x->principal = a->who;
    if (world->n_calls > before)
        return world->calls[before];
    exchange_finish(x, false);
    return NULL;
}

static inline struct rpc *ask(const char *path)
{
    return ask_with(&(struct ask){.path = path, .key = "k", .secret = SECRET});
}

static inline void peer_says(struct rpc *r, struct str message)
{
    assert_true(r->wanted);
    assert_false(rpc_is_over(r));
    r->wanted = false;
    r->setup.ops->message(r, message);
}

static inline enum pull peer_pulls(struct rpc *r)
{
    assert_false(rpc_is_over(r));
    r->woken = false;
    return r->setup.ops->pull(r);
}

static inline void peer_goes(struct rpc *r)
{
    assert_false(rpc_is_over(r));
    r->gone = true;
    r->setup.ops->gone(r);
}

static inline void server_drains(struct rpc *r)
{
    world->http.draining = true;
    r->setup.ops->drain(r);
}

static inline void time_passes(uint64_t ms)
{
    sched_turn(&world->sched, world->sched.now_ms + ms, 0);
}

/* ---- before and after ---- */

static inline int world_init(void **state)
{
    struct http_limits limits = {0};
    world = mem_zalloc(sizeof *world);
    sched_init(&world->sched, 1000, 0);
    http_init(&world->http, NULL, NULL, &limits);
    world->surface = (struct sessions_http){.sched = &world->sched,
                                            .sessions = &world->sessions,
                                            .max_message = 1000,
                                            .long_poll_ms = 5000};
    sessions_http_mount(&world->surface, &world->http);
    return 0;
}

static inline int world_deinit(void **state)
{
    for (size_t i = 0; i < world->n_calls; i++) {
        struct rpc *r = world->calls[i];
        if (!rpc_is_over(r))
            peer_goes(r);
    }
    sessions_http_deinit(&world->surface);
    for (size_t i = 0; i < world->sessions.n; i++)
        if (world->sessions.visits[i].client != NULL)
            return -1;
    for (size_t i = 0; i < world->n_calls; i++) {
        exchange_finish(world->calls[i]->x, false);
        free(world->calls[i]);
    }
    http_deinit(&world->http);
    free(world);
    return 0;
}

#endif
