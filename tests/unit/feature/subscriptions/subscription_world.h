// SPDX-License-Identifier: Apache-2.0
/* subscription_world.h -- a store in memory, a clock of our own, and subscriptions over them. */
#ifndef UNIT_SUBSCRIPTION_WORLD_H
#define UNIT_SUBSCRIPTION_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "feature/subscriptions/subscription.h"
#include "store/mem/mem_store.h"
#include "store/store.h"

struct world {
    struct sched sched;
    struct store *store;
    struct subscriptions *subs;
    struct subscription_notifier notifier;
    int due;
    bool stopped;
};

static inline void world_due(struct subscription_notifier *c, struct str id, struct str receiver)
{
    container_of(c, struct world, notifier)->due++;
}

static inline void world_start(struct world *w)
{
    w->subs = subscriptions_new(&w->sched, w->store);
    w->notifier.due = world_due;
    subscriptions_set_notifier(w->subs, &w->notifier);
    sched_drain(&w->sched);
}

static inline void world_on_stopped(void *ctx)
{
    ((struct world *)ctx)->stopped = true;
}

static inline void world_end(struct world *w)
{
    w->stopped = false;
    subscriptions_stop(w->subs, world_on_stopped, w);
    assert_false(w->stopped);
    sched_drain(&w->sched);
    assert_true(w->stopped);
    subscriptions_free(w->subs);
}

static inline void world_restart(struct world *w)
{
    world_end(w);
    world_start(w);
}

static inline int world_setup(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    sched_init(&w->sched, 1000, 1800000000000);
    w->store = mem_store_new(&w->sched);
    world_start(w);
    *state = w;
    return 0;
}

static inline int world_teardown(void **state)
{
    struct world *w = *state;
    world_end(w);
    store_free(w->store);
    free(w);
    return 0;
}

static inline void world_pass(struct world *w, uint64_t ms)
{
    sched_turn(&w->sched, w->sched.now_ms + ms, w->sched.wall_ms + (int64_t)ms);
}

/* ---- streams ---- */

struct world_write {
    struct store_write op;
    bool done;
    int err;
};

static inline void world_on_write(struct store_write *op, int err)
{
    struct world_write *ww = container_of(op, struct world_write, op);
    ww->done = true;
    ww->err = err;
}

static inline void world_write(struct world *w, struct world_write *ww)
{
    ww->op.done = world_on_write;
    store_write(w->store, &ww->op);
    sched_drain(&w->sched);
    assert_true(ww->done);
    assert_int_equal(ww->err, 0);
}

/* The tail afterwards. Creates the stream if need be; empty data: only that. */
static inline struct offset world_append_as(struct world *w, const char *name, const char *data,
                                            const char *type)
{
    struct stream_config config = {
        .content_type = str_of_cstr(type), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    struct world_write make = {.op = {.name = str_of_cstr(name), .create = &config}};
    struct world_write add = {
        .op = {.name = str_of_cstr(name), .data = str_of_cstr(data), .n_events = 1}};
    world_write(w, &make);
    if (data[0] == '\0')
        return (struct offset){make.op.info.life, make.op.info.tail};
    world_write(w, &add);
    return (struct offset){add.op.info.life, add.op.info.tail};
}

static inline struct offset world_append(struct world *w, const char *name, const char *data)
{
    return world_append_as(w, name, data, "text/plain");
}

static inline void world_on_removed(struct store_remove *r, int err)
{
    assert_int_equal(err, 0);
}

static inline void world_remove(struct world *w, const char *name)
{
    struct store_remove r = {.name = str_of_cstr(name), .done = world_on_removed};
    store_remove(w->store, &r);
    sched_drain(&w->sched);
}

static inline void world_on_read(struct store_read *r, int err)
{
    assert_int_equal(err, 0);
}

/* All of a stream, NUL-terminated, until the next call. */
static inline const char *world_text(struct world *w, const char *name)
{
    static char text[64 * 1024];
    struct store_read r = {.name = str_of_cstr(name),
                           .from = READ_START,
                           .max_bytes = sizeof text,
                           .done = world_on_read};
    store_read(w->store, &r);
    sched_drain(&w->sched);
    size_t n = 0;
    for (uint32_t i = 0; i < r.n_slices; i++) {
        assert_true(n + r.slices[i].bytes.n < sizeof text);
        memcpy(text + n, r.slices[i].bytes.p, r.slices[i].bytes.n);
        n += r.slices[i].bytes.n;
    }
    store_read_release(&r);
    text[n] = '\0';
    return text;
}

/* ---- calls ---- */

#define WORLD_UNDONE 1000000

struct world_call {
    struct subscription_call call;
    int result;
};

static inline void world_on_call(struct subscription_call *c, int result)
{
    struct world_call *wc = container_of(c, struct world_call, call);
    assert_int_equal(wc->result, WORLD_UNDONE);
    wc->result = result;
}

static inline void world_on_shown(struct subscription_call *c, const struct subscription_stream *s)
{
    struct subscription_view *v = &c->view;
    size_t n = v->n_streams;
    if ((n & (n - 1)) == 0) { /* full: as many again */
        struct subscription_stream *grown = arena_alloc(&c->arena, (2 * n + 1) * sizeof *grown);
        for (size_t i = 0; i < n; i++)
            grown[i] = v->streams[i];
        v->streams = grown;
    }
    v->streams[n] = *s;
    v->streams[n].path = arena_dup(&c->arena, s->path);
    v->n_streams++;
}

typedef void world_fn(struct subscriptions *s, struct subscription_call *c);

static inline void world_begin(struct world *w, world_fn *fn, struct world_call *wc)
{
    wc->call.done = world_on_call;
    wc->call.shown = world_on_shown;
    wc->result = WORLD_UNDONE;
    fn(w->subs, &wc->call);
    assert_int_equal(wc->result, WORLD_UNDONE);
}

static inline int world_do(struct world *w, world_fn *fn, struct world_call *wc)
{
    world_begin(w, fn, wc);
    sched_drain(&w->sched);
    assert_int_not_equal(wc->result, WORLD_UNDONE);
    return wc->result;
}

static inline void world_forget(struct world_call *wc)
{
    subscription_call_deinit(&wc->call);
}

static inline struct subscription_config world_pull(const char *pattern)
{
    return (struct subscription_config){.type = SUBSCRIPTION_PULL,
                                        .pattern = str_of_cstr(pattern),
                                        .wake_stream = STR("wakes"),
                                        .lease_ttl_ms = 30000,
                                        .public_url = STR("http://here")};
}

static inline struct subscription_config world_hook(const char *pattern)
{
    return (struct subscription_config){.type = SUBSCRIPTION_WEBHOOK,
                                        .pattern = str_of_cstr(pattern),
                                        .webhook_url = STR("http://127.0.0.1:1/hook"),
                                        .lease_ttl_ms = 30000,
                                        .public_url = STR("http://here")};
}

static inline int world_create(struct world *w, const char *id,
                               const struct subscription_config *config)
{
    struct world_call c = {.call = {.id = str_of_cstr(id), .config = config}};
    int result = world_do(w, subscription_create, &c);
    if (result == 0)
        result = c.call.created ? 201 : 200;
    world_forget(&c);
    return result;
}

static inline int world_simple(struct world *w, world_fn *fn, const char *id)
{
    struct world_call c = {.call = {.id = str_of_cstr(id)}};
    int result = world_do(w, fn, &c);
    world_forget(&c);
    return result;
}

/* The stream in a view; NULL: not there. */
static inline const struct subscription_stream *world_stream(const struct world_call *c,
                                                             const char *name)
{
    for (size_t i = 0; i < c->call.view.n_streams; i++)
        if (str_eq(c->call.view.streams[i].path, str_of_cstr(name)))
            return &c->call.view.streams[i];
    return NULL;
}

/* What GET shows for the stream; ok == false: it is not linked. */
struct world_link {
    bool ok;
    struct subscription_stream stream; /* without its path */
};

static inline struct world_link world_linked(struct world *w, const char *id, const char *name)
{
    struct world_call c = {.call = {.id = str_of_cstr(id)}};
    assert_int_equal(world_do(w, subscription_get, &c), 0);
    const struct subscription_stream *s = world_stream(&c, name);
    struct world_link l = {.ok = s != NULL};
    if (s != NULL)
        l.stream = *s;
    world_forget(&c);
    return l;
}

static inline int world_claim(struct world *w, const char *id, const char *worker,
                              struct world_call *c)
{
    *c = (struct world_call){.call = {.id = str_of_cstr(id), .worker = str_of_cstr(worker)}};
    return world_do(w, subscription_claim, c);
}

/* An ack of at most one stream, with the token of a claim (or attempt). */
static inline int world_ack_as(struct world *w, world_fn *fn, const struct world_call *claim,
                               const char *stream, struct offset to, bool finished, bool *next_wake)
{
    char text[OFFSET_TEXT];
    offset_format(to, text);
    struct subscription_ack ack = {str_of_cstr(stream ? stream : ""), str_of(text, OFFSET_TEXT)};
    struct world_call c = {.call = {.id = claim->call.id,
                                    .token = claim->call.view.token,
                                    .wake_id = claim->call.view.wake_id,
                                    .generation = claim->call.view.generation,
                                    .acks = &ack,
                                    .n_acks = stream != NULL,
                                    .finished = finished}};
    int result = world_do(w, fn, &c);
    if (next_wake != NULL)
        *next_wake = c.call.next_wake;
    world_forget(&c);
    return result;
}

static inline int world_ack(struct world *w, const struct world_call *claim, const char *stream,
                            struct offset to, bool finished, bool *next_wake)
{
    return world_ack_as(w, subscription_ack, claim, stream, to, finished, next_wake);
}

static inline void world_same(struct offset a, struct offset b)
{
    assert_int_equal(a.life, b.life);
    assert_int_equal(a.pos, b.pos);
}

#endif
