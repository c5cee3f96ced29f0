// SPDX-License-Identifier: Apache-2.0
/* embedded.h -- the durable store of one process: a shared journal that makes any number of streams
 * durable with one sync, segments where events rest, and an index of what is where.
 *
 * Life of a change: judged and applied in the catalog, put into the journal's open batch as one
 * record; when the batch is durable it is settled (readers see it) and answered. Nobody is answered
 * by what a crash could take back. What the journal holds is brought to rest by checkpoints
 * (rest.h), beside traffic. Life of a read: from the tape if the events are still in memory, from
 * the cache, or by a lane from a segment; never from disk on the loop thread. */
#ifndef STORE_EMBEDDED_EMBEDDED_H
#define STORE_EMBEDDED_EMBEDDED_H

#include "store/embedded/journal.h"
#include "store/embedded/rest.h"
#include "store/store.h"

struct budget;
struct vfs;

struct embedded_config {
    struct journal_config journal;
    uint64_t checkpoint_bytes;  /* events that have not come to rest: start a checkpoint */
    uint64_t checkpoint_age_ms; /* ... or after so long */
    uint64_t unrested_max;      /* ... and beyond this writes are answered ERR_BUSY */
    uint64_t journal_max;       /* the same of what has not come to rest in the journal, be it no
                                   events at all; half of it starts a checkpoint */
    uint32_t large_bytes;       /* data in a block, and so much: see embedded_large.c */
    uint32_t part_bytes;        /* of it that goes into a batch of the journal */
    uint64_t cache_bytes;
    struct budget *budget; /* what is pinned of it is taken from the cache; NULL: nothing is */
    struct retain retain;  /* for streams that have no bounds of their own */
    uint64_t disk_cap;     /* bytes of all files, then ERR_FULL; 0: none. What is free in the index
                              does not count */
    struct rest_limits rest;
    uint32_t rest_slice; /* extents that a checkpoint looks at in a turn of the loop: not much
                            more than so many */
    uint32_t call_slice; /* calls that are answered, or run again, before others have their turn */
    bool rest_at_stop;   /* what is in the journal is brought to rest before the end */
    void (*pause)(uint64_t ns); /* for checkpoints, on their lane (see pace.h); NULL: none */
    bool index_sync;            /* false: for tests whose disk is simulated */
    /* Told once, when nothing is acknowledged any more. May be NULL. */
    void (*failed)(void *ctx, int err);
    void *failed_ctx;
    void (*stepped)(void *ctx, int64_t by_ms); /* of the store: see store.h */
    void *stepped_ctx;
};
#define EMBEDDED_DEFAULTS                                                                          \
    ((struct embedded_config){.journal = {.file_bytes = JOURNAL_FILE_BYTES},                       \
                              .checkpoint_bytes = 64u << 20,                                       \
                              .checkpoint_age_ms = 60000,                                          \
                              .unrested_max = 128u << 20,                                          \
                              .journal_max = 256u << 20,                                           \
                              .large_bytes = 2u << 20,                                             \
                              .part_bytes = 512u << 10,                                            \
                              .cache_bytes = 64u << 20,                                            \
                              .rest = REST_LIMITS,                                                 \
                              .rest_slice = 512,                                                   \
                              .call_slice = 128,                                                   \
                              .rest_at_stop = true,                                                \
                              .index_sync = true})

/* Bytes of one append. A record of the journal holds names, a claim and documents besides. */
#define EMBEDDED_APPEND_MAX (JOURNAL_RECORD_MAX - (1u << 20))

/* Not owned; freed by the caller after the store. That of reads may have several threads. */
struct embedded_lanes {
    struct lane *journal, *prepare, *rest, *read;
};

/* Opens or makes the store; blocks while it recovers: what the journal holds beyond the last
 * checkpoint is replayed and brought to rest. index_path is where the index's file is (LMDB goes
 * past the vfs); if it is lost it is made again from the segments. NULL with a sentence in why. */
struct store *embedded_open(struct sched *sched, struct vfs *vfs, const char *index_path,
                            const struct embedded_lanes *lanes,
                            const struct embedded_config *config, char *why, size_t size);

/* For tests and tools: begins a checkpoint now, unless one is under way. */
void embedded_checkpoint(struct store *s);

/* Bytes of events that have not come to rest. */
uint64_t embedded_unrested(const struct store *s);

/* Blocks that have been moved out of segments in which little was live, since it was opened. */
uint64_t embedded_rewritten(const struct store *s);

/* Small blocks that have become part of larger ones, since it was opened. */
uint64_t embedded_merged(const struct store *s);

/* 0, or why nothing is acknowledged any more: the process should end with a failure. */
int embedded_error(const struct store *s);

#endif
