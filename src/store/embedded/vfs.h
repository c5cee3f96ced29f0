// SPDX-License-Identifier: Apache-2.0
/* vfs.h -- the files of a store, behind one table of functions, so that tests can lose, tear and
 * refuse what a disk can.
 *
 * Names are relative to the data directory and use `/` (`journal/00000001.j`). Calls block and may
 * come from several threads, but one file belongs to one thread at a time. What was written is
 * durable when sync has returned 0, a name when sync_dir of its folder has. An error of write or
 * sync must be taken as the loss of that data: nobody tries it again on the same file.
 * Errors: ERR_NOT_FOUND, ERR_EXISTS, ERR_FULL (no space, quota), ERR_IO (anything else). */
#ifndef STORE_EMBEDDED_VFS_H
#define STORE_EMBEDDED_VFS_H

#include "base/str.h"

#include <stdint.h>
#include <sys/uio.h>

#define VFS_NAME_MAX 255

struct vfs;
struct file;

enum vfs_open {
    VFS_READ,   /* must exist */
    VFS_WRITE,  /* must exist; reads too */
    VFS_CREATE, /* must not exist; reads and writes */
};

struct vfs_ops {
    int (*open)(struct vfs *v, const char *name, enum vfs_open how, struct file **out);
    void (*close)(struct file *f);
    /* Reads up to n bytes at offset; *got < n only at the end of the file. */
    int (*read)(struct file *f, uint64_t offset, void *into, size_t n, size_t *got);
    /* Writes all of it, or fails; after a failure any part may have been written. */
    int (*write)(struct file *f, uint64_t offset, const struct iovec *pieces, int n);
    int (*sync)(struct file *f); /* data, and the size if that is needed to read it back */
    /* Brings bytes that were written on their way to the disk and waits for them, so that a later
     * sync has less to do; nothing is durable by it. NULL: does nothing. */
    int (*write_back)(struct file *f, uint64_t offset, uint64_t n);
    int (*size)(struct file *f, uint64_t *out);
    int (*truncate)(struct file *f, uint64_t size);
    int (*remove)(struct vfs *v, const char *name);
    int (*rename)(struct vfs *v, const char *from, const char *to); /* replaces `to` */
    int (*make_dir)(struct vfs *v, const char *name);               /* ERR_EXISTS: it is there */
    int (*sync_dir)(struct vfs *v, const char *name);               /* "" is the data directory */
    /* Calls each() with the names (not paths) in a folder, in any order, until it returns non-zero.
     */
    int (*list)(struct vfs *v, const char *dir, int (*each)(void *ctx, const char *name),
                void *ctx);
    /* Bytes that can still be written, as far as the file system tells. */
    int (*free_bytes)(struct vfs *v, uint64_t *out);
    void (*free)(struct vfs *v);
};

/* An implementation embeds this first; so does each of its files with struct file. */
struct vfs {
    const struct vfs_ops *ops;
};
struct file {
    struct vfs *vfs;
};

/* The real thing: takes an exclusive lock on dir (made if missing), so that no second server uses
 * it. NULL with a sentence in why. */
struct vfs *vfs_posix_new(const char *dir, char *why, size_t size);

int vfs_open(struct vfs *v, const char *name, enum vfs_open how, struct file **out);
void vfs_close(struct file *f); /* NULL is allowed */
int vfs_read(struct file *f, uint64_t offset, void *into, size_t n, size_t *got);
/* Exactly n bytes; less is ERR_CORRUPT. */
int vfs_read_all(struct file *f, uint64_t offset, void *into, size_t n);
int vfs_write(struct file *f, uint64_t offset, struct str bytes);
int vfs_writev(struct file *f, uint64_t offset, const struct iovec *pieces, int n);
int vfs_sync(struct file *f);
/* An error is one of writing, and no sync may tell of it again. */
int vfs_write_back(struct file *f, uint64_t offset, uint64_t n);
int vfs_size(struct file *f, uint64_t *out);
int vfs_truncate(struct file *f, uint64_t size);
int vfs_remove(struct vfs *v, const char *name);
int vfs_rename(struct vfs *v, const char *from, const char *to);
int vfs_make_dir(struct vfs *v, const char *name);
int vfs_sync_dir(struct vfs *v, const char *name);
int vfs_list(struct vfs *v, const char *dir, int (*each)(void *ctx, const char *name), void *ctx);
int vfs_free_bytes(struct vfs *v, uint64_t *out);
void vfs_free(struct vfs *v);

#endif
