// SPDX-License-Identifier: Apache-2.0
#include "app/storage.h"
#include "base/err.h"
#include "base/str.h"
#include "base/units.h"
#include "app/config.h"
#include "net/loop.h"
#include "net/thread_lane.h"
#include "store/embedded/embedded.h"
#include "store/redis/redis_store.h"
#include "store/embedded/vfs.h"
#include "store/mem/mem_store.h"
#include "telemetry/trace.h"

#include <stdio.h>
#include <time.h>

#define REST_LANE    2 /* of the checkpoints */
#define READ_LANE    3
#define READ_THREADS 4  /* files that are read at once */
#define CAP_PARTS    16 /* of disk-cap: the journal has some of them */
#define REDIS_SPARE                                                                                \
    (16 * MIB) /* beyond what clients may send at a time: for reads, and the keys                  \
                */

static void storage_close_all(struct storage *s)
{
    store_free(s->store);
    for (int i = 0; i < STORAGE_LANES; i++)
        lane_free(s->lanes[i]);
    vfs_free(s->vfs);
    redis_url_free(s->url);
    *s = (struct storage){0};
}

static struct retain retain_of(const struct config *c)
{
    return (struct retain){c->retain_events, c->retain_bytes, c->retain_age_ms};
}

static void storage_pause_thread(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&t, NULL); /* woken early, it was a short one */
}

/* So that most of what it may take is left to what rests. */
static void fit_into_cap(struct embedded_config *c)
{
    uint64_t part = c->disk_cap / CAP_PARTS;
    if (c->disk_cap == 0 || part >= c->checkpoint_bytes)
        return;
    c->journal.file_bytes = c->checkpoint_bytes = part;
    c->unrested_max = 2 * part;
    c->journal_max = 4 * part;
}

static void storage_on_failed(void *ctx, int err)
{
    trace((const struct trace *)ctx, STORE_STOPPED, TRACE_STR("error", str_of_cstr(err_text(err))));
}

static void storage_on_stepped(void *ctx, int64_t by_ms)
{
    bool back = by_ms < 0;
    trace((const struct trace *)ctx, STORE_CLOCK,
          TRACE_STR("way", back ? STR("behind") : STR("ahead of")),
          TRACE_INT("seconds", (back ? -by_ms : by_ms) / SECOND_MS));
}

static int open_embedded(struct storage *s, struct loop *loop, const struct config *c,
                         const struct trace *t, char *why, size_t size)
{
    static const char *const names[STORAGE_LANES] = {"journal", "prepare", "rest", "read"};
    char index_path[4096];
    s->vfs = vfs_posix_new(c->data, why, size);
    if (s->vfs == NULL)
        return ERR_IO;
    for (int i = 0; i < STORAGE_LANES; i++) {
        s->lanes[i] = i == REST_LANE   ? thread_lane_new_background(loop, names[i])
                      : i == READ_LANE ? thread_lane_new_pool(loop, names[i], READ_THREADS)
                                       : thread_lane_new(loop, names[i]);
        if (s->lanes[i] == NULL) {
            snprintf(why, size, "cannot start a thread");
            return ERR_IO;
        }
    }
    struct embedded_lanes lanes = {s->lanes[0], s->lanes[1], s->lanes[REST_LANE],
                                   s->lanes[READ_LANE]};
    struct embedded_config config = EMBEDDED_DEFAULTS;
    config.journal.sync = (enum journal_sync)c->sync;
    config.journal.sync_interval_ms = c->sync_interval_ms;
    config.cache_bytes = c->cache_bytes;
    config.budget = &s->budget;
    config.pause = storage_pause_thread;
    config.disk_cap = c->disk_cap_bytes;
    fit_into_cap(&config);
    config.retain = retain_of(c);
    config.failed = storage_on_failed;
    config.failed_ctx = (void *)(uintptr_t)t;
    config.stepped = storage_on_stepped;
    config.stepped_ctx = (void *)(uintptr_t)t;
    snprintf(index_path, sizeof index_path, "%s/index.mdb", c->data);
    s->store = embedded_open(&loop->sched, s->vfs, index_path, &lanes, &config, why, size);
    return s->store == NULL ? ERR_IO : 0;
}

static void storage_on_redis(void *ctx, bool up, struct str why)
{
    const struct trace *t = ctx;
    if (up)
        trace(t, STORE_REDIS_UP, TRACE_STR("redis", why));
    else
        trace(t, STORE_REDIS_DOWN, TRACE_STR("error", why));
}

static int open_redis(struct storage *s, struct loop *loop, const struct config *c,
                      const struct trace *t, char *why, size_t size)
{
    int err = redis_url_parse(str_of_cstr(c->store), &s->url, why, size);
    if (err != 0)
        return err;
    s->store = redis_store_new(
        &(struct redis_store_setup){.loop = loop,
                                    .url = s->url,
                                    .pending_max = c->max_inflight_bytes + REDIS_SPARE,
                                    .retain = retain_of(c),
                                    .changed = storage_on_redis,
                                    .ctx = (void *)(uintptr_t)t});
    return 0;
}

int storage_open(struct storage *s, struct loop *loop, const struct config *config,
                 const struct trace *trace, char *why, size_t size)
{
    *s = (struct storage){.budget.max = config->cache_bytes};
    if (str_eq(str_of_cstr(config->store), STR("memory"))) {
        s->store = mem_store_new(&loop->sched);
        s->store->retain = retain_of(config);
        s->store->fork_depth = (uint32_t)config->max_fork_depth;
        s->store->stepped = storage_on_stepped;
        s->store->stepped_ctx = (void *)(uintptr_t)trace;
        return 0;
    }
    bool embedded = str_eq(str_of_cstr(config->store), STR("embedded"));
    int err = embedded ? open_embedded(s, loop, config, trace, why, size)
                       : open_redis(s, loop, config, trace, why, size);
    if (err == 0)
        s->store->fork_depth = (uint32_t)config->max_fork_depth;
    else
        storage_close_all(s);
    return err;
}

void storage_name(const struct config *config, char *out, size_t size)
{
    struct redis_url *url = NULL;
    struct str name = str_of_cstr(config->store);
    bool local = str_eq(name, STR("memory")) || str_eq(name, STR("embedded"));
    if (!local && redis_url_parse(name, &url, out, size) != 0)
        return;
    struct str shown = local ? name : redis_url_shown(url);
    snprintf(out, size, "%.*s", (int)shown.n, shown.p);
    redis_url_free(url);
}

int storage_close(struct storage *s)
{
    int err = s->vfs == NULL ? 0 : embedded_error(s->store);
    storage_close_all(s);
    return err;
}
