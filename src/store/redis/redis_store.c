// SPDX-License-Identifier: Apache-2.0
#include "store/redis/redis_store.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/hex.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/rand.h"
#include "net/loop.h"
#include "redis_lua.h"
#include "store/redis/redis_store_core.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>

#define SWEEP_MS      2000
#define SWEEP_SOON_MS 20
#define PROBE_KEPT_MS 1000
#define WAIT_MAX      16
#define DEFAULT_SPACE STR("tidemark")

static const struct redis_script *const all_scripts[] = {
    &rstore_scripts.write,  &rstore_scripts.remove, &rstore_scripts.read,  &rstore_scripts.stat,
    &rstore_scripts.put,    &rstore_scripts.sweep,  &rstore_scripts.place, &rstore_scripts.announce,
    &rstore_scripts.forget, &rstore_scripts.trim,
};

const struct rstore_scripts rstore_scripts = {
    .write = {STR_INIT("write"), STR_INIT(redis_lua_write)},
    .remove = {STR_INIT("remove"), STR_INIT(redis_lua_remove)},
    .read = {STR_INIT("read"), STR_INIT(redis_lua_read)},
    .stat = {STR_INIT("stat"), STR_INIT(redis_lua_stat)},
    .put = {STR_INIT("put"), STR_INIT(redis_lua_put)},
    .sweep = {STR_INIT("sweep"), STR_INIT(redis_lua_sweep)},
    .place = {STR_INIT("place"), STR_INIT(redis_lua_place)},
    .announce = {STR_INIT("announce"), STR_INIT(redis_lua_announce)},
    .forget = {STR_INIT("forget"), STR_INIT(redis_lua_forget)},
    .trim = {STR_INIT("trim"), STR_INIT(redis_lua_trim)},
};

static struct redis_store *redis_of(struct store *s)
{
    return container_of(s, struct redis_store, store);
}

/* About one stream. */
static void redis_store_start(struct rop *r, struct str name, void (*fill)(struct rop *r))
{
    r->name = name;
    r->fill = fill;
    r->family = r->rs->cluster ? redis_family_of(r->rs, name) : STR_NONE;
    if (r->family.p != NULL) {
        r->family = arena_dup(&r->arena, r->family);
        r->is_guess = true;
    }
    rop_send(r);
}

/* ---- writes ---- */

static int redis_store_take_write(struct rop *r, const struct redisReply *reply)
{
    return reply_write(r, reply, r->of);
}

/* Those here need not wait for the message. In doubt they look. */
static void redis_store_finish_write(struct rop *r, int err)
{
    struct store_write *w = r->of;
    if (err == 0 || r->doubtful)
        watchers_changed(&r->rs->watchers, w->name);
    w->done(w, err);
}

static void redis_store_fill_write(struct rop *r)
{
    args_write(r, r->of, false, false);
}

static void redis_write(struct store *s, struct store_write *w)
{
    struct redis_store *rs = redis_of(s);
    w->info = (struct stream_info){0};
    w->created = w->duplicate = false;
    if (rs->cluster && (w->create != NULL || w->n_docs > 0))
        steps_write(rs, w);
    else
        redis_store_start(
            rop_new(rs, &rstore_scripts.write, w, redis_store_take_write, redis_store_finish_write),
            w->name, redis_store_fill_write);
}

static int redis_store_take_status(struct rop *r, const struct redisReply *reply)
{
    return reply_status(reply_str(reply, 0));
}

static void redis_store_finish_remove(struct rop *r, int err)
{
    struct store_remove *rm = r->of;
    if (err == 0 || r->doubtful)
        watchers_changed(&r->rs->watchers, rm->name);
    rm->done(rm, err);
}

static void redis_remove(struct store *s, struct store_remove *rm)
{
    struct redis_store *rs = redis_of(s);
    if (rs->cluster)
        steps_remove(rs, rm);
    else
        redis_store_start(rop_new(rs, &rstore_scripts.remove, rm, redis_store_take_status,
                                  redis_store_finish_remove),
                          rm->name, args_remove);
}

static void redis_store_finish_put(struct rop *r, int err)
{
    struct store_put *p = r->of;
    p->done(p, err);
}

static void redis_store_fill_put(struct rop *r)
{
    const struct store_put *p = r->of;
    args_put(r, p->docs, p->n_docs, false);
}

static void redis_put(struct store *s, struct store_put *p)
{
    struct redis_store *rs = redis_of(s);
    if (rs->cluster) {
        steps_put(rs, p);
        return;
    }
    struct rop *r =
        rop_new(rs, &rstore_scripts.put, p, redis_store_take_status, redis_store_finish_put);
    r->fill = redis_store_fill_put;
    rop_send(r);
}

/* ---- reads ---- */

static int redis_store_take_stat(struct rop *r, const struct redisReply *reply)
{
    struct store_stat *st = r->of;
    const struct redisReply *row = reply_item(reply, 0);
    int err = reply_status(reply_str(row, 0));
    if (err == 0 && !reply_info(&r->arena, reply_item(row, 1), &st->info))
        err = ERR_IO;
    return err;
}

static void redis_store_finish_stat(struct rop *r, int err)
{
    struct store_stat *st = r->of;
    st->done(st, err);
}

static void redis_store_fill_stat(struct rop *r)
{
    args_stat(r, &r->name, 1);
}

static void redis_stat(struct store *s, struct store_stat *st)
{
    redis_store_start(rop_new(redis_of(s), &rstore_scripts.stat, st, redis_store_take_stat,
                              redis_store_finish_stat),
                      st->name, redis_store_fill_stat);
}

static enum gap_reason gap_of(struct str reason)
{
    if (str_eq(reason, STR("TRIMMED")))
        return GAP_TRIMMED;
    return str_eq(reason, STR("REBORN")) ? GAP_REBORN : GAP_UNKNOWN;
}

static int redis_store_take_read(struct rop *r, const struct redisReply *reply)
{
    enum { STATUS, REASON, START, NEXT, LAST, ORDINAL, BYTES, INFO, LAST_ORDINAL };
    struct store_read *rd = r->of;
    int err = reply_status(reply_str(reply, STATUS));
    bool there = reply_info(&r->arena, reply_item(reply, INFO), &rd->info);
    if (err != 0 && err != ERR_GAP)
        return err;
    if (!there)
        return ERR_IO;
    if (err == ERR_GAP) {
        rd->gap = (struct gap){.requested = rd->at,
                               .earliest = {rd->info.life, rd->info.first},
                               .reason = gap_of(reply_str(reply, REASON))};
        return err;
    }
    struct str bytes = reply_str(reply, BYTES);
    rd->start = reply_u64(reply, START);
    rd->next = reply_u64(reply, NEXT);
    rd->last = reply_u64(reply, LAST);
    rd->ordinal = reply_u64(reply, ORDINAL);
    rd->last_ordinal = reply_u64(reply, LAST_ORDINAL);
    if (bytes.n != rd->next - rd->start)
        return ERR_IO;
    if (bytes.n > 0)
        rd->slices[rd->n_slices++] = slice_of(block_of(bytes), 0, bytes.n);
    return 0;
}

static void redis_store_finish_read(struct rop *r, int err)
{
    struct store_read *rd = r->of;
    rd->done(rd, err);
}

static void redis_store_fill_read(struct rop *r)
{
    args_read(r, r->of);
}

static void redis_read(struct store *s, struct store_read *rd)
{
    rd->n_slices = 0;
    redis_store_start(rop_new(redis_of(s), &rstore_scripts.read, rd, redis_store_take_read,
                              redis_store_finish_read),
                      rd->name, redis_store_fill_read);
}

static void redis_store_ops_list(struct store *s, struct store_list *l)
{
    rstore_list(redis_of(s), l);
}

static void redis_store_ops_docs(struct store *s, struct store_docs *d)
{
    rstore_docs(redis_of(s), d);
}

static void redis_store_on_changed(void *ctx, bool up, struct str why)
{
    struct redis_store *rs = ctx;
    if (rs->changed != NULL)
        rs->changed(rs->ctx, up, why);
}

/* ---- how it is ---- */

static int redis_health(struct store *s, struct str *why)
{
    struct redis_store *rs = redis_of(s);
    *why = str_of_cstr(rs->refusal_why);
    return redis_is_up(rs->redis) ? rs->refusal : ERR_AWAY;
}

static int redis_store_take_probe(struct rop *r, const struct redisReply *reply)
{
    return 0;
}

static void redis_store_finish_probe(struct rop *r, int err)
{
    r->rs->probing = false;
}

/* Once a write was refused, callers may stay away until we are ready again: one of our own, which
 * nobody reads, finds out when that is. */
static void probe(struct redis_store *rs)
{
    struct rop *r = rop_new(rs, NULL, NULL, redis_store_take_probe, redis_store_finish_probe);
    rs->probing = true;
    rop_arg(r, STR("SET"));
    rop_arg(r, rstore_index(rs, &r->arena, "probe"));
    rop_arg(r, STR("1"));
    rop_arg(r, STR("PX"));
    rop_arg_u64(r, PROBE_KEPT_MS);
    r->tag = STR("probe");
    rop_send(r);
}

/* ---- what time does ---- */

void rstore_swept(struct redis_store *rs)
{
    if (--rs->n_sweeping > 0 || !rs->sweep_more || rs->stopping)
        return;
    rs->sweep_more = false;
    sched_start(rs->store.sched, &rs->sweep, SWEEP_SOON_MS);
}

static int redis_store_take_sweep(struct rop *r, const struct redisReply *reply)
{
    r->rs->sweep_more = reply->type == REDIS_REPLY_INTEGER && reply->integer >= REDIS_SWEEP;
    return 0;
}

static void redis_store_finish_sweep(struct rop *r, int err)
{
    rstore_swept(r->rs);
}

static void redis_store_fill_sweep(struct rop *r)
{
    args_sweep(r, REDIS_SWEEP);
}

/* Any process may do it; there is no harm in doing it twice. */
static void redis_store_sweep(struct timer *t)
{
    struct redis_store *rs = container_of(t, struct redis_store, sweep);
    if (rs->stopping)
        return;
    if (rs->refusal != 0 && !rs->probing && redis_is_up(rs->redis))
        probe(rs);
    bool due = rs->n_sweeping == 0 && redis_is_up(rs->redis);
    if (due && rs->cluster) {
        steps_sweep(rs);
    } else if (due) {
        struct rop *r = rop_new(rs, &rstore_scripts.sweep, NULL, redis_store_take_sweep,
                                redis_store_finish_sweep);
        rs->n_sweeping++;
        r->fill = redis_store_fill_sweep;
        rop_send(r);
    }
    sched_start(rs->store.sched, t, SWEEP_MS);
}

/* ---- the whole ---- */

static void redis_store_stop(struct store *s, void (*stopped)(void *ctx), void *ctx)
{
    struct redis_store *rs = redis_of(s);
    rs->stopping = true;
    rs->stopped = stopped;
    rs->stopped_ctx = ctx;
    timer_stop(&rs->sweep);
    if (rs->n_ops == 0)
        rstore_disconnect(rs);
}

static void redis_store_free(struct store *s)
{
    struct redis_store *rs = redis_of(s);
    if (rs->asked != rs->redis)
        redis_free(rs->asked);
    redis_free(rs->redis);
    timer_stop(&rs->sweep);
    watchers_deinit(&rs->watchers);
    map_deinit(&rs->tag_writes);
    redis_family_deinit(rs);
    free(rs);
}

static const struct store_ops ops = {
    .write = redis_write,
    .remove = redis_remove,
    .stat = redis_stat,
    .read = redis_read,
    .list = redis_store_ops_list,
    .docs = redis_store_ops_docs,
    .put = redis_put,
    .watch = rstore_watch,
    .unwatch = rstore_unwatch,
    .health = redis_health,
    .stop = redis_store_stop,
    .free = redis_store_free,
};

static bool redis_store_is_prefix(struct str s)
{
    return s.n == 0 || (s.n <= SPACE_MAX && ascii_is_word(s, "._-:"));
}

int redis_store_check(const struct redis_url *url, char *why, size_t size)
{
    struct str prefix = redis_url_setting(url, STR("prefix"));
    struct str wait = redis_url_setting(url, STR("wait"));
    uint64_t ignored;
    if (prefix.p != NULL && !redis_store_is_prefix(prefix)) {
        snprintf(why, size, "prefix= is at most %d letters, digits and ._-:", SPACE_MAX);
        return ERR_SYNTAX;
    }
    if (wait.p != NULL && num_parse(wait, WAIT_MAX, &ignored) != 0) {
        snprintf(why, size, "wait= is a number of replicas up to %d", WAIT_MAX);
        return ERR_SYNTAX;
    }
    return 0;
}

static void read_settings(struct redis_store *rs, const struct redis_url *url)
{
    struct str prefix = redis_url_setting(url, STR("prefix"));
    struct str wait = redis_url_setting(url, STR("wait"));
    uint64_t n = 0;
    if (prefix.p == NULL || !redis_store_is_prefix(prefix))
        prefix = DEFAULT_SPACE;
    if (wait.p != NULL && num_parse(wait, WAIT_MAX, &n) == 0)
        rs->wait = (unsigned)n;
    snprintf(rs->prefix, sizeof rs->prefix, "%.*s%s", (int)prefix.n, prefix.p,
             prefix.n > 0 ? ":" : "");
    rs->cluster = redis_url_is_cluster(url);
}

static void draw_process(struct redis_store *rs)
{
    char id[HEX_U64];
    hex_encode_u64(rand_u64(), id);
    memcpy(rs->process, id, REDIS_PROCESS);
}

struct store *redis_store_new(const struct redis_store_setup *setup)
{
    struct redis_store *rs = mem_zalloc(sizeof *rs);
    struct sched *sched = setup->sched != NULL ? setup->sched : &setup->loop->sched;
    rs->store = (struct store){.ops = &ops,
                               .sched = sched,
                               .retain = setup->retain,
                               .fork_depth = STORE_FORK_DEPTH,
                               .shared = true,
                               .in_memory = true};
    while (rs->store.author == 0)
        rs->store.author = rand_u64();
    rs->clock = setup->sched;
    rs->loop = setup->loop;
    rs->changed = setup->changed;
    rs->ctx = setup->ctx;
    read_settings(rs, setup->url);
    draw_process(rs);
    map_init(&rs->tag_writes);
    map_init(&rs->families);
    watchers_init(&rs->watchers, sched);
    struct redis_setup client = {.loop = setup->loop,
                                 .url = setup->url,
                                 .scripts = all_scripts,
                                 .n_scripts = sizeof all_scripts / sizeof *all_scripts,
                                 .timeout_ms = REDIS_TIMEOUT_MS,
                                 .pending_max = setup->pending_max,
                                 .changed = redis_store_on_changed,
                                 .message = rstore_on_message,
                                 .missed = rstore_on_missed,
                                 .ctx = rs};
    rs->asked = rs->redis = redis_new(&client);
    client.changed = NULL; /* said once */
    if (rs->wait > 0)
        rs->asked = redis_new(&client);
    timer_init(&rs->sweep, redis_store_sweep);
    sched_start(sched, &rs->sweep, SWEEP_MS);
    return &rs->store;
}
