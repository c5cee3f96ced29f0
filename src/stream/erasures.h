// SPDX-License-Identifier: Apache-2.0
/* erasures.h -- removes every stream whose name begins with a prefix, piece by piece.
 *
 * One that is under way is a document, `access/erase/` PREFIX, with what it has done so far:
 * {"removed":N}. A server that is started again goes on with what it finds, and servers that share
 * a store with what another one has left: a document that stays the same for ERASURES_LOOK_MS. It
 * looks until a look finds nothing more, so that what was made meanwhile goes, too. Forks of erased
 * streams that are not below the prefix keep what they need. Loop thread only. */
#ifndef STREAM_ERASURES_H
#define STREAM_ERASURES_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ERASURE_DOCUMENTS "access/erase/"
#define ERASURES_MAX      16 /* at once */
#define ERASURES_LOOK_MS  10000

struct erasures;
struct sched;
struct store;
struct trace;

struct erasures_setup {
    struct sched *sched;
    struct store *store;
    const struct trace *trace;
    /* When no stream is left: begins to remove what else there is below the prefix. How much that
     * is, until it is gone: it is asked again. NULL: there is nothing else. */
    size_t (*others)(void *ctx, struct str prefix);
    /* One is done; may be NULL. */
    void (*erased)(void *ctx, struct str prefix, uint64_t removed);
    void *ctx;
};

struct erasures *erasures_new(const struct erasures_setup *setup);
void erasures_stop(struct erasures *e, void (*stopped)(void *ctx), void *ctx);
void erasures_free(struct erasures *e); /* NULL is allowed */

/* Begins to erase, or joins who does. The caller embeds it, and keeps it and the prefix until
 * done(): when nothing is left, or wait_ms have passed, or with an error: ERR_LIMIT, or one of the
 * store when it was to be noted down. */
struct erasure_wait {
    struct str prefix; /* ends in `/` */
    uint64_t wait_ms;
    uint64_t removed; /* out: so far */
    bool finished;    /* out */
    void (*done)(struct erasure_wait *w, int err);
    void *own; /* private */
};
void erasures_begin(struct erasures *e, struct erasure_wait *w);

#endif
