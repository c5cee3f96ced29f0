// SPDX-License-Identifier: Apache-2.0
/* engines.h -- the stores that the model tests are run on. */
#ifndef MODEL_ENGINES_H
#define MODEL_ENGINES_H

#include "fault/simfs.h"
#include "fault/simlane.h"
#include "model/index_dump.h"
#include "model/redis_cluster_servers.h"
#include "net/loop.h"
#include "store/redis/client/redis.h"
#include "store/embedded/embedded.h"
#include "store/mem/mem_store.h"
#include "store/redis/redis_store_core.h"
#include "store/store.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct engine {
    const char *name;
    /* ctx: what it stands on, for the others. */
    struct store *(*make)(struct sched *sched, uint64_t seed, void **ctx);
    /* Something that changes nothing a caller can see, such as a checkpoint. NULL: nothing to do.
     */
    void (*stir)(void *ctx);
    /* The store has been stopped and freed: opens it again. NULL: what it held is gone. */
    struct store *(*reopen)(void *ctx);
    void (*release)(void *ctx);
    /* Opening counts as an access to every stream. */
    bool touches;
    /* NULL: can be had anywhere. */
    bool (*available)(void);
    unsigned every; /* so many seeds; 0: each */
    /* Operations take effect in the order of the calls. Otherwise they are made one by one where
     * the order counts. */
    bool in_order;
};

static inline struct store *mem_make(struct sched *sched, uint64_t seed, void **ctx)
{
    return mem_store_new(sched);
}

/* ---- the embedded store on a simulated disk ---- */

struct disk {
    struct sched *sched;
    struct simfs *fs;
    struct embedded_lanes lanes;
    struct store *store;
    char index[64];
    unsigned opened;
    uint64_t counted, counted_merged; /* in disk_rewritten and disk_merged */
};

static uint64_t disk_rewritten, disk_merged; /* blocks, by all of them */

/* Every other time the index is lost: it must come back as it was. */
static inline void disk_lose_index(struct disk *d)
{
    struct rebuild r = {0};
    if (d->opened++ % 2 == 0)
        return;
    bool same = index_is_rebuilt(simfs_vfs(d->fs), d->index, &r);
    assert(same);
    index_forget(d->index);
}

static inline struct store *disk_reopen(void *ctx)
{
    struct disk *d = ctx;
    struct embedded_config config = EMBEDDED_DEFAULTS;
    char why[512];
    config.journal.file_bytes = JOURNAL_FILE_MIN;
    config.checkpoint_bytes = 8 * 1024;
    config.journal_max = 1024 * 1024;
    config.checkpoint_age_ms = 100000;
    config.cache_bytes = 16 * 1024;
    config.rest.base_bytes = 2 * 1024;
    config.rest.base_files = 6;
    config.rest.rewrite_bytes = 3000;
    config.rest.merge_fan = 2 + d->opened % 3;
    config.rest.reserve_bytes = 1024;
    config.rest_slice = 2;
    config.call_slice = 2;
    config.rest_at_stop = d->opened % 3 == 0;
    config.index_sync = false;
    d->counted = d->counted_merged = 0;
    disk_lose_index(d);
    d->store =
        embedded_open(d->sched, simfs_vfs(d->fs), d->index, &d->lanes, &config, why, sizeof why);
    if (d->store == NULL)
        fprintf(stderr, "cannot open: %s\n", why);
    assert(d->store != NULL);
    return d->store;
}

static inline struct store *disk_make(struct sched *sched, uint64_t seed, void **ctx)
{
    struct disk *d = calloc(1, sizeof *d);
    unsigned turns = seed % 4;
    d->sched = sched;
    d->fs = simfs_new(seed);
    d->lanes = (struct embedded_lanes){
        simlane_new(sched, seed + 1, turns), simlane_new(sched, seed + 2, turns),
        simlane_new(sched, seed + 3, turns), simlane_new(sched, seed + 4, turns)};
    snprintf(d->index, sizeof d->index, "/tmp/tidemark-model-XXXXXX");
    int fd = mkstemp(d->index);
    assert(fd >= 0);
    close(fd);
    unlink(d->index);
    *ctx = d;
    return disk_reopen(d);
}

static inline void disk_stir(void *ctx)
{
    struct disk *d = ctx;
    disk_rewritten += embedded_rewritten(d->store) - d->counted;
    disk_merged += embedded_merged(d->store) - d->counted_merged;
    d->counted = embedded_rewritten(d->store);
    d->counted_merged = embedded_merged(d->store);
    embedded_checkpoint(d->store);
}

static inline void disk_release(void *ctx)
{
    struct disk *d = ctx;
    lane_free(d->lanes.journal);
    lane_free(d->lanes.prepare);
    lane_free(d->lanes.rest);
    lane_free(d->lanes.read);
    simfs_free(d->fs);
    index_forget(d->index);
    free(d);
}

/* ---- the store on Redis, with a real one ---- */

/* Its loop turns whenever the test's schedule does, and sleeps for a moment where that would only
 * wait for Redis. */
struct remote {
    struct sched *sched;
    struct loop loop;
    uv_timer_t moment;
    struct timer pump;
    struct redis_url *url;
    struct redis_store *store;
};

static struct redis_server remote_server; /* of all of them, each with keys of its own */
static struct redis_cluster_of remote_cluster;
static unsigned remote_serial;

static inline bool remote_available(void)
{
    static int installed = -1;
    if (installed < 0) {
        installed = redis_server_installed();
        if (!installed)
            fprintf(stderr, "redis-server is not installed: the store on Redis is not tested\n");
    }
    return installed;
}

static inline void remote_end(void)
{
    redis_server_clean(&remote_server);
    redis_cluster_end(&remote_cluster);
}

static inline void remote_pump(struct timer *t)
{
    struct remote *r = container_of(t, struct remote, pump);
    bool busy = r->store->n_ops > 0 || r->store->stopping;
    uv_run(&r->loop.uv, busy ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    sched_start(r->sched, t, 1);
}

static inline void remote_moment(uv_timer_t *t)
{
}

static inline struct store *remote_reopen(void *ctx)
{
    struct remote *r = ctx;
    struct store *s = redis_store_new(&(struct redis_store_setup){
        .loop = &r->loop, .url = r->url, .pending_max = 64u << 20, .sched = r->sched});
    r->store = container_of(s, struct redis_store, store);
    return s;
}

static inline struct store *remote_open(struct sched *sched, const char *url, void **ctx)
{
    struct remote *r = calloc(1, sizeof *r);
    char text[160], why[160];
    r->sched = sched;
    int err = loop_init(&r->loop);
    assert(err == 0);
    snprintf(text, sizeof text, "%s?prefix=m%u", url, ++remote_serial);
    err = redis_url_parse(str_of_cstr(text), &r->url, why, sizeof why);
    assert(err == 0);
    uv_timer_init(&r->loop.uv, &r->moment);
    uv_timer_start(&r->moment, remote_moment, 1, 1);
    timer_init(&r->pump, remote_pump);
    sched_start(sched, &r->pump, 1);
    *ctx = r;
    return remote_reopen(r);
}

static inline struct store *remote_make(struct sched *sched, uint64_t seed, void **ctx)
{
    char url[64];
    if (remote_server.pid == 0) {
        bool started = redis_server_start(&remote_server, NULL);
        assert(started);
        atexit(remote_end);
    }
    snprintf(url, sizeof url, "redis://127.0.0.1:%u", (unsigned)remote_server.port);
    return remote_open(sched, url, ctx);
}

/* The same, where names seldom share a slot. */
static inline struct store *cluster_make(struct sched *sched, uint64_t seed, void **ctx)
{
    char url[64];
    if (remote_cluster.servers[0].pid == 0) {
        bool started = redis_cluster_start(&remote_cluster);
        assert(started);
        atexit(remote_end);
    }
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%u",
             (unsigned)remote_cluster.servers[0].port);
    return remote_open(sched, url, ctx);
}

static inline void remote_release(void *ctx)
{
    struct remote *r = ctx;
    timer_stop(&r->pump);
    uv_close((uv_handle_t *)&r->moment, NULL);
    loop_run(&r->loop);
    loop_deinit(&r->loop);
    redis_url_free(r->url);
    free(r);
}

static const struct engine engines[] = {
    {.name = "mem", .make = mem_make, .in_order = true},
    {.name = "embedded",
     .make = disk_make,
     .stir = disk_stir,
     .reopen = disk_reopen,
     .release = disk_release,
     .touches = true},
    {.name = "redis",
     .make = remote_make,
     .reopen = remote_reopen,
     .release = remote_release,
     .available = remote_available},
    {.name = "cluster",
     .make = cluster_make,
     .reopen = remote_reopen,
     .release = remote_release,
     .available = remote_available,
     .every = 5},
};
#define N_ENGINES (sizeof engines / sizeof *engines)

#endif
