// SPDX-License-Identifier: Apache-2.0
/* simfs.h -- a disk in memory that forgets as much as a real one may.
 *
 * What was written shows in reads at once, but is on the disk only after a sync of the file; a name
 * that was made, changed or removed, only after a sync of its folder. A crash keeps any part of the
 * rest: of each write all, nothing, or any of its 512-byte sectors; of each change of a name all or
 * nothing. Where a file has grown, lost bytes may read as zeros. A byte that was synced and not
 * written again since is never touched.
 *
 * After a sync that failed the disk has any part of what should have been synced, the rest is
 * forgotten, and reads still show all of it until the crash: a second sync reports success. The
 * same holds after a write-back that failed; one that did not has done nothing.
 *
 * All of that is drawn from the seed, so equal calls give equal results. One thread. */
#ifndef FAULT_SIMFS_H
#define FAULT_SIMFS_H

#include "base/str.h"

#include <stdint.h>

struct simfs;
struct vfs;

enum simfs_op {
    SIMFS_OPEN,
    SIMFS_CREATE,
    SIMFS_READ,
    SIMFS_WRITE,
    SIMFS_SYNC,
    SIMFS_WRITE_BACK,
    SIMFS_TRUNCATE,
    SIMFS_REMOVE,
    SIMFS_RENAME,
    SIMFS_MAKE_DIR,
    SIMFS_SYNC_DIR,
    SIMFS_LIST,
    SIMFS_OPS, /* how many there are; in simfs_fail: any of them */
};

struct simfs *simfs_new(uint64_t seed);

/* Every file must have been closed. */
void simfs_free(struct simfs *fs);

/* Stays the simfs's own: vfs_free of it does nothing, so that a store which frees its vfs can be
 * opened again on the same disk. */
struct vfs *simfs_vfs(struct simfs *fs);

/* ---- faults ---- */

/* The nth call of that kind from now on (1 is the next) fails with err; part of a write may be
 * done. One at a time; n == 0: none. */
void simfs_fail(struct simfs *fs, enum simfs_op op, uint64_t n, int err);

/* The nth call from now on that changes anything is not finished, and from then on every call fails
 * with ERR_IO until simfs_crash or simfs_kill. 0: none. */
void simfs_cut_power_at(struct simfs *fs, uint64_t n);
bool simfs_is_off(const struct simfs *fs);

/* The machine dies and comes back. Files that are open can only be closed any more. */
void simfs_crash(struct simfs *fs, uint64_t seed);

/* The process dies and comes back: nothing is lost, and nothing is synced. Files that are open can
 * only be closed any more. */
void simfs_kill(struct simfs *fs);

/* All files together have at most so many bytes; UINT64_MAX: no end. */
void simfs_set_capacity(struct simfs *fs, uint64_t bytes);

/* Changes a byte on the disk and in reads. */
void simfs_flip(struct simfs *fs, const char *name, uint64_t offset, unsigned char mask);

/* ---- looking ---- */

uint64_t simfs_calls(const struct simfs *fs, enum simfs_op op);
uint64_t simfs_bytes(const struct simfs *fs); /* of all files */
bool simfs_has_unsynced(const struct simfs *fs);

/* A synced file with this content, in place of one with that name; its folders are made. */
void simfs_put(struct simfs *fs, const char *name, struct str content);

/* What a read of all of it would show, until the next change; p == NULL: no such file. */
struct str simfs_content(const struct simfs *fs, const char *name);

#endif
