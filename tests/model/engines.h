// SPDX-License-Identifier: Apache-2.0
/* engines.h -- the stores that the model tests are run on. */
#ifndef MODEL_ENGINES_H
#define MODEL_ENGINES_H

#include "fault/simfs.h"
#include "fault/simlane.h"
#include "model/index_dump.h"
#include "store/embedded.h"
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
    uint64_t counted; /* in disk_rewritten */
};

static uint64_t disk_rewritten; /* blocks, by all of them */

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
    config.checkpoint_age_ms = 100000;
    config.cache_bytes = 16 * 1024;
    config.rest.base_bytes = 2 * 1024;
    config.rest.base_files = 6;
    config.rest.rewrite_bytes = 3000;
    config.rest.reserve_bytes = 1024;
    config.rest_slice = 2;
    config.rest_at_stop = d->opened % 3 == 0;
    config.index_sync = false;
    d->counted = 0;
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
    d->counted = embedded_rewritten(d->store);
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

static const struct engine engines[] = {
    {.name = "mem", .make = mem_make, .in_order = true},
    {.name = "embedded",
     .make = disk_make,
     .stir = disk_stir,
     .reopen = disk_reopen,
     .release = disk_release},
};
#define N_ENGINES (sizeof engines / sizeof *engines)

#endif
