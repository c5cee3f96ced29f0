// SPDX-License-Identifier: Apache-2.0
/* redis_store_world.h -- two stores on one Redis, as two processes would have them, and operations
 * that are waited for. */
#ifndef TESTS_REDIS_STORE_WORLD_H
#define TESTS_REDIS_STORE_WORLD_H

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "model/redis_cluster_servers.h"
#include "net/loop.h"
#include "store/redis/client/redis.h"
#include "store/redis/redis_store.h"

#include <hiredis/hiredis.h>

#define PATIENCE_MS 20000

struct place {
    struct redis_server server; /* one, or: */
    struct redis_cluster_of cluster;
    struct loop loop;
    uv_timer_t moment; /* keeps the loop from sleeping for long */
    struct redis_url *url;
    struct store *a, *b; /* as two processes would have them */
    redisContext *raw;
    struct arena arena;
};

static inline void on_moment(uv_timer_t *t)
{
}

static inline struct store *open_store(struct place *p)
{
    return redis_store_new(
        &(struct redis_store_setup){.loop = &p->loop, .url = p->url, .pending_max = 64u << 20});
}

static inline void talk_to(struct place *p)
{
    if (p->raw != NULL)
        redisFree(p->raw);
    p->raw = redisConnect("127.0.0.1", p->server.port);
    assert_int_equal(p->raw->err, 0);
}

static inline void open_both(struct place *p, struct str url)
{
    char why[160];
    assert_int_equal(redis_url_parse(url, &p->url, why, sizeof why), 0);
    assert_int_equal(loop_init(&p->loop), 0);
    uv_timer_init(&p->loop.uv, &p->moment);
    uv_timer_start(&p->moment, on_moment, 1, 1);
    p->a = open_store(p);
    p->b = open_store(p);
}

static inline struct place *enter(const char *settings)
{
    struct place *p = mem_zalloc(sizeof *p);
    assert_true(redis_server_start(&p->server, NULL));
    open_both(p, arena_printf(&p->arena, "redis://127.0.0.1:%u?prefix=t%s",
                              (unsigned)p->server.port, settings));
    talk_to(p);
    return p;
}

static inline struct place *enter_cluster(void)
{
    struct place *p = mem_zalloc(sizeof *p);
    assert_true(redis_cluster_start(&p->cluster));
    open_both(p, arena_printf(&p->arena, "redis+cluster://127.0.0.1:%u?prefix=t",
                              (unsigned)p->cluster.servers[0].port));
    return p;
}

/* The loop turns until *flag, which has to be before long. */
static inline void turn_until(struct place *p, const bool *flag)
{
    uint64_t end_ms = uv_now(&p->loop.uv) + PATIENCE_MS;
    while (!*flag) {
        assert_true(uv_now(&p->loop.uv) < end_ms);
        uv_run(&p->loop.uv, UV_RUN_ONCE);
    }
}

static inline void turn_for(struct place *p, uint64_t ms)
{
    uint64_t end_ms = uv_now(&p->loop.uv) + ms;
    while (uv_now(&p->loop.uv) < end_ms)
        uv_run(&p->loop.uv, UV_RUN_ONCE);
}

/* One whose time is this clock's, not Redis's: far ahead, so that nothing is due for the others. */
static inline struct store *open_with_clock(struct place *p, struct sched *clock)
{
    sched_init(clock, 1000, 32503680000000);
    return redis_store_new(&(struct redis_store_setup){
        .loop = &p->loop, .url = p->url, .pending_max = 64u << 20, .sched = clock});
}

static inline void pass(struct place *p, struct sched *clock, uint64_t ms)
{
    sched_turn(clock, clock->now_ms + ms, clock->wall_ms + (int64_t)ms);
    turn_for(p, 30); /* what the sweep asks for is done */
}

static inline void on_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static inline void close_store(struct place *p, struct store *s)
{
    bool stopped = false;
    store_stop(s, on_stopped, &stopped);
    turn_until(p, &stopped);
    store_free(s);
}

static inline void leave(struct place *p)
{
    close_store(p, p->a);
    close_store(p, p->b);
    if (p->raw != NULL)
        redisFree(p->raw);
    uv_close((uv_handle_t *)&p->moment, NULL);
    loop_run(&p->loop);
    loop_deinit(&p->loop);
    redis_url_free(p->url);
    redis_server_clean(&p->server);
    redis_cluster_end(&p->cluster);
    arena_deinit(&p->arena);
    free(p);
}

/* ---- operations, waited for ---- */

struct waited {
    bool done;
    int err;
    union {
        struct store_write write;
        struct store_remove remove;
        struct store_stat stat;
        struct store_read read;
        struct store_list list;
        struct store_docs docs;
        struct store_put put;
    } u;
};

#define ON(kind)                                                                                   \
    static inline void on_##kind(struct store_##kind *op, int err)                                 \
    {                                                                                              \
        struct waited *w = container_of(op, struct waited, u.kind);                                \
        w->err = err;                                                                              \
        w->done = true;                                                                            \
    }
ON(write)
ON(remove)
ON(stat)
ON(read)
ON(put)
#undef ON

static const struct stream_config plain = {
    .content_type = STR_INIT("text/plain"), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};

static inline int do_write(struct place *p, struct store *s, struct store_write *w)
{
    struct waited op = {.u.write = *w};
    op.u.write.done = on_write;
    store_write(s, &op.u.write);
    turn_until(p, &op.done);
    *w = op.u.write;
    w->info.content_type = STR_NONE;
    return op.err;
}

static inline void make(struct place *p, const char *name, const struct stream_config *c)
{
    struct store_write w = {.name = str_of_cstr(name), .create = c};
    assert_int_equal(do_write(p, p->a, &w), 0);
    assert_true(w.created);
}

/* The tail behind it. */
static inline struct offset append(struct place *p, const char *name, const char *text)
{
    struct store_write w = {.name = str_of_cstr(name), .data = str_of_cstr(text)};
    assert_int_equal(do_write(p, p->a, &w), 0);
    return (struct offset){w.info.life, w.info.tail};
}

static inline int do_remove(struct place *p, struct store *s, const char *name)
{
    struct waited op = {.u.remove = {.name = str_of_cstr(name), .done = on_remove}};
    store_remove(s, &op.u.remove);
    turn_until(p, &op.done);
    return op.err;
}

static inline struct stream_info look(struct place *p, const char *name, int expected)
{
    struct waited op = {.u.stat = {.name = str_of_cstr(name), .done = on_stat}};
    store_stat(p->b, &op.u.stat);
    turn_until(p, &op.done);
    assert_int_equal(op.err, expected);
    return op.u.stat.info;
}

/* One read; text is compared, the rest is in *out. */
static inline int read_at(struct place *p, const char *name, struct store_read *out)
{
    struct waited op = {.u.read = *out};
    op.u.read.name = str_of_cstr(name);
    op.u.read.max_bytes = 1 << 20;
    op.u.read.done = on_read;
    store_read(p->b, &op.u.read);
    turn_until(p, &op.done);
    *out = op.u.read;
    return op.err;
}

static inline void expect_text(struct store_read *r, const char *text)
{
    assert_int_equal(r->n_slices, text[0] != '\0');
    if (r->n_slices > 0) {
        assert_int_equal(r->slices[0].bytes.n, strlen(text));
        assert_memory_equal(r->slices[0].bytes.p, text, strlen(text));
    }
    store_read_release(r);
}

static inline struct store_read expect_read(struct place *p, const char *name, struct offset at,
                                            const char *text)
{
    struct store_read r = {.from = READ_AT, .at = at};
    assert_int_equal(read_at(p, name, &r), 0);
    expect_text(&r, text);
    return r;
}

static inline void expect_gap(struct place *p, const char *name, struct offset at,
                              enum gap_reason reason)
{
    struct store_read r = {.from = READ_AT, .at = at};
    assert_int_equal(read_at(p, name, &r), ERR_GAP);
    assert_int_equal(r.gap.reason, reason);
}

/* What Redis itself says: an integer, -1000 for anything else. */
static inline long long ask(struct place *p, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    redisReply *r = redisvCommand(p->raw, fmt, args);
    va_end(args);
    assert_non_null(r);
    long long n = r->type == REDIS_REPLY_INTEGER ? r->integer
                  : r->type == REDIS_REPLY_ARRAY ? (long long)r->elements
                                                 : -1000;
    freeReplyObject(r);
    return n;
}

/* ---- who is told ---- */

struct told {
    struct store_watch watch;
    bool told;
};

static inline void on_changed(struct store_watch *w, struct str name)
{
    container_of(w, struct told, watch)->told = true;
}

/* From now on it is heard. */
static inline void watch(struct place *p, struct store *s, struct told *t)
{
    t->watch.changed = on_changed;
    store_watch(s, &t->watch);
    turn_until(p, &t->told);
    t->told = false;
}

#endif
