// SPDX-License-Identifier: Apache-2.0
/* vfs_posix.c -- the vfs over a real directory.
 *
 * Every name is resolved against a descriptor of the data directory, so that the process may
 * change its own directory and a renamed data directory stays the same one. */
#include "store/embedded/vfs.h"
#include "base/err.h"
#include "base/mem.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOCK_NAME "lock"
#define PIECES    16 /* given to the kernel at a time; far below any system's IOV_MAX */

struct posix_vfs {
    struct vfs vfs;
    int dir, lock;
};

struct posix_file {
    struct file file;
    int fd;
};

static struct posix_vfs *posix_of(struct vfs *v)
{
    return container_of(v, struct posix_vfs, vfs);
}

static int fd_of(struct file *f)
{
    return container_of(f, struct posix_file, file)->fd;
}

static int vfs_posix_err_of(int error)
{
    switch (error) {
    case ENOENT: return ERR_NOT_FOUND;
    case EEXIST: return ERR_EXISTS;
    case ENOSPC:
    case EDQUOT: return ERR_FULL;
    default: return ERR_IO;
    }
}

static int checked(int result)
{
    return result == 0 ? 0 : vfs_posix_err_of(errno);
}

/* ---- files ---- */

static int open_at(int dir, const char *name, int flags)
{
    int fd;
    do {
        fd = openat(dir, name, flags | O_CLOEXEC, 0600);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

static int vfs_posix_open(struct vfs *v, const char *name, enum vfs_open how, struct file **out)
{
    static const int flags[] = {
        [VFS_READ] = O_RDONLY,
        [VFS_WRITE] = O_RDWR,
        [VFS_CREATE] = O_RDWR | O_CREAT | O_EXCL,
    };
    int fd = open_at(posix_of(v)->dir, name, flags[how]);
    if (fd < 0)
        return vfs_posix_err_of(errno);
    struct posix_file *f = mem_alloc(sizeof *f);
    *f = (struct posix_file){.file = {v}, .fd = fd};
    *out = &f->file;
    return 0;
}

static void vfs_posix_close(struct file *f)
{
    close(fd_of(f));
    free(container_of(f, struct posix_file, file));
}

static int vfs_posix_read(struct file *f, uint64_t offset, void *into, size_t n, size_t *got)
{
    size_t done = 0;
    while (done < n) {
        ssize_t r = pread(fd_of(f), (char *)into + done, n - done, (off_t)(offset + done));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return vfs_posix_err_of(errno);
        if (r == 0)
            break;
        done += (size_t)r;
    }
    *got = done;
    return 0;
}

/* Moves past the n bytes that were taken; returns how many pieces that used up. */
static int vfs_posix_advance(struct iovec *pieces, int count, size_t n)
{
    int i = 0;
    while (i < count && n >= pieces[i].iov_len)
        n -= pieces[i++].iov_len;
    if (i < count) {
        pieces[i].iov_base = (char *)pieces[i].iov_base + n;
        pieces[i].iov_len -= n;
    }
    return i;
}

static int write_some(int fd, uint64_t *offset, struct iovec *pieces, int count)
{
    for (int i = vfs_posix_advance(pieces, count, 0); i < count;) {
        ssize_t n = pwritev(fd, pieces + i, count - i, (off_t)*offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? vfs_posix_err_of(errno)
                         : ERR_IO; /* nothing taken and no reason: never spin */
        *offset += (uint64_t)n;
        i += vfs_posix_advance(pieces + i, count - i, (size_t)n);
    }
    return 0;
}

static int vfs_posix_write(struct file *f, uint64_t offset, const struct iovec *pieces, int n)
{
    for (int i = 0, count; i < n; i += count) {
        struct iovec some[PIECES];
        count = n - i < PIECES ? n - i : PIECES;
        memcpy(some, pieces + i, (size_t)count * sizeof *some);
        int err = write_some(fd_of(f), &offset, some, count);
        if (err != 0)
            return err;
    }
    return 0;
}

/* Once, whatever it says: after a failure the kernel may have forgotten the data, and a second call
 * would say that all is well. */
static int vfs_posix_sync(struct file *f)
{
#ifdef __APPLE__
    return checked(fcntl(fd_of(f), F_FULLFSYNC) < 0 ? -1 : 0); /* fsync leaves it in the drive */
#else
    return checked(fdatasync(fd_of(f)));
#endif
}

/* The wait takes note of what the kernel failed to write, and a later sync of this descriptor does
 * not tell of it again: so it must not be passed over, unlike that there is no such call. */
static int vfs_posix_write_back(struct file *f, uint64_t offset, uint64_t n)
{
#ifdef __linux__
    int result = sync_file_range(fd_of(f), (off_t)offset, (off_t)n,
                                 SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                     SYNC_FILE_RANGE_WAIT_AFTER);
    return result == 0 || errno == ENOSYS || errno == EINVAL || errno == ESPIPE
               ? 0
               : vfs_posix_err_of(errno);
#else
    return 0;
#endif
}

static int vfs_posix_size(struct file *f, uint64_t *out)
{
    struct stat st;
    if (fstat(fd_of(f), &st) != 0)
        return vfs_posix_err_of(errno);
    *out = (uint64_t)st.st_size;
    return 0;
}

static int vfs_posix_truncate(struct file *f, uint64_t size)
{
    int result;
    do {
        result = ftruncate(fd_of(f), (off_t)size);
    } while (result != 0 && errno == EINTR);
    return checked(result);
}

/* ---- names ---- */

static int vfs_posix_remove(struct vfs *v, const char *name)
{
    return checked(unlinkat(posix_of(v)->dir, name, 0));
}

static int vfs_posix_rename(struct vfs *v, const char *from, const char *to)
{
    int dir = posix_of(v)->dir;
    return checked(renameat(dir, from, dir, to));
}

static int vfs_posix_make_dir(struct vfs *v, const char *name)
{
    return checked(mkdirat(posix_of(v)->dir, name, 0700));
}

/* fd: what came of opening it; closed. */
static int sync_opened_dir(int fd)
{
    if (fd < 0)
        return vfs_posix_err_of(errno);
    int err = checked(fsync(fd));
    if (err != 0 && errno == EINVAL)
        err = 0; /* a file system that has no such call */
    close(fd);
    return err;
}

static int open_dir(struct vfs *v, const char *name)
{
    return open_at(posix_of(v)->dir, name[0] == '\0' ? "." : name, O_RDONLY | O_DIRECTORY);
}

static int vfs_posix_sync_dir(struct vfs *v, const char *name)
{
    return sync_opened_dir(open_dir(v, name));
}

static int vfs_posix_list(struct vfs *v, const char *name, int (*each)(void *ctx, const char *name),
                          void *ctx)
{
    int fd = open_dir(v, name);
    if (fd < 0)
        return vfs_posix_err_of(errno);
    DIR *d = fdopendir(fd);
    if (d == NULL) {
        close(fd);
        return ERR_IO;
    }
    struct dirent *e;
    int err = 0;
    while (errno = 0, err == 0 && (e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            err = each(ctx, e->d_name);
    if (err == 0 && errno != 0)
        err = ERR_IO;
    closedir(d);
    return err;
}

static int vfs_posix_free_bytes(struct vfs *v, uint64_t *out)
{
    struct statvfs st;
    if (fstatvfs(posix_of(v)->dir, &st) != 0)
        return vfs_posix_err_of(errno);
    *out = (uint64_t)st.f_bavail * st.f_frsize;
    return 0;
}

/* Closing the descriptor gives the lock back. */
static void vfs_posix_free(struct vfs *v)
{
    struct posix_vfs *p = posix_of(v);
    if (p->lock >= 0)
        close(p->lock);
    if (p->dir >= 0)
        close(p->dir);
    free(p);
}

static const struct vfs_ops posix_ops = {
    .open = vfs_posix_open,
    .close = vfs_posix_close,
    .read = vfs_posix_read,
    .write = vfs_posix_write,
    .sync = vfs_posix_sync,
    .write_back = vfs_posix_write_back,
    .size = vfs_posix_size,
    .truncate = vfs_posix_truncate,
    .remove = vfs_posix_remove,
    .rename = vfs_posix_rename,
    .make_dir = vfs_posix_make_dir,
    .sync_dir = vfs_posix_sync_dir,
    .list = vfs_posix_list,
    .free_bytes = vfs_posix_free_bytes,
    .free = vfs_posix_free,
};

/* ---- the data directory ---- */

static void vfs_posix_explain(char *why, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void vfs_posix_explain(char *why, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, size, fmt, ap);
    va_end(ap);
}

/* A directory that was made has to be there after a power cut, and its name is its parent's. */
static int sync_parent(const char *dir)
{
    char parent[4096];
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    while (n > 0 && dir[n - 1] != '/')
        n--;
    if (n >= sizeof parent)
        return ERR_IO;
    snprintf(parent, sizeof parent, "%.*s", n > 0 ? (int)n : 1, n > 0 ? dir : ".");
    return sync_opened_dir(open_at(AT_FDCWD, parent, O_RDONLY | O_DIRECTORY));
}

static int enter(struct posix_vfs *p, const char *dir, char *why, size_t size)
{
    bool made = mkdir(dir, 0700) == 0;
    if (!made && errno != EEXIST) {
        vfs_posix_explain(why, size, "cannot make the data directory %s: %s", dir, strerror(errno));
        return ERR_IO;
    }
    p->dir = open_at(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY);
    if (p->dir < 0 || (made && sync_parent(dir) != 0)) {
        vfs_posix_explain(why, size, "cannot use the data directory %s: %s", dir, strerror(errno));
        return ERR_IO;
    }
    return 0;
}

/* The file tells people who holds the lock; the lock itself is the kernel's and dies with us. */
static void vfs_posix_sign(int lock)
{
    char pid[32];
    int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (ftruncate(lock, 0) != 0 || pwrite(lock, pid, (size_t)n, 0) != n)
        return; /* a full disk must not keep a server from starting */
}

static long holder(int lock)
{
    char text[32] = "";
    ssize_t n = pread(lock, text, sizeof text - 1, 0);
    return n > 0 ? strtol(text, NULL, 10) : 0;
}

static int take_lock(struct posix_vfs *p, const char *dir, char *why, size_t size)
{
    p->lock = open_at(p->dir, LOCK_NAME, O_RDWR | O_CREAT);
    if (p->lock < 0) {
        vfs_posix_explain(why, size, "cannot write in the data directory %s: %s", dir,
                          strerror(errno));
        return ERR_IO;
    }
    int result;
    do {
        result = flock(p->lock, LOCK_EX | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    if (result == 0) {
        vfs_posix_sign(p->lock);
        return 0;
    }
    if (errno == EWOULDBLOCK)
        vfs_posix_explain(
            why, size,
            "the data directory %s is used by another server (process %ld); stop that one, or "
            "choose another directory",
            dir, holder(p->lock));
    else
        vfs_posix_explain(why, size, "cannot lock the data directory %s: %s", dir, strerror(errno));
    return ERR_IO;
}

struct vfs *vfs_posix_new(const char *dir, char *why, size_t size)
{
    struct posix_vfs *p = mem_alloc(sizeof *p);
    *p = (struct posix_vfs){.vfs = {&posix_ops}, .dir = -1, .lock = -1};
    if (enter(p, dir, why, size) == 0 && take_lock(p, dir, why, size) == 0)
        return &p->vfs;
    vfs_posix_free(&p->vfs);
    return NULL;
}
