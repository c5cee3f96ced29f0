// SPDX-License-Identifier: Apache-2.0
/* storage.h -- the store that the configuration asks for, with what it stands on. */
#ifndef APP_STORAGE_H
#define APP_STORAGE_H

#include "base/budget.h"

struct config;
struct lane;
struct loop;
struct redis_url;
struct store;
struct trace;
struct vfs;

#define STORAGE_LANES 4

struct storage {
    struct store *store;
    struct vfs *vfs; /* NULL if it is not on this disk, as the lanes */
    struct lane *lanes[STORAGE_LANES];
    struct redis_url *url; /* NULL: not in Redis */
    struct budget budget;  /* of the cache, and of what answers hold */
};

/* Blocks while a store on disk recovers; whether there is a Redis turns out later. 0, or ERR_IO
 * with a sentence in why; then there is nothing to close. Should the disk fail later, or Redis not
 * answer, the trace is told. */
int storage_open(struct storage *s, struct loop *loop, const struct config *config,
                 const struct trace *trace, char *why, size_t size);

/* The store as it may be shown: without a password. Of size bytes at most. */
void storage_name(const struct config *config, char *out, size_t size);

/* After store_stop has ended; the loop has to run once more. 0, or why the store had stopped taking
 * anything: the process should not end as if all were well. */
int storage_close(struct storage *s);

#endif
