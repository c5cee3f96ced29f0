// SPDX-License-Identifier: Apache-2.0
/* log_file.c -- what reading, appending and keys do to files alike. */
#include "feature/logs/log_file.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define HEAD_MAX     4096 /* of the first line, what its digest is made of */
#define LOCK_TRY_MS  20   /* in one job; others have their turn then */
#define REPLACED_MAX 16   /* times that a file was replaced while its lock was waited for */

int log_file_err(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG ? ERR_FULL : ERR_IO;
}

int log_file_open(const char *path, int flags)
{
    int fd;
    do {
        fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

int log_file_read(int fd, uint64_t at, char *into, size_t n, size_t *got)
{
    size_t have = 0;
    while (have < n) {
        ssize_t r = pread(fd, into + have, n - have, (off_t)(at + have));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return ERR_IO;
        if (r == 0)
            break;
        have += (size_t)r;
    }
    *got = have;
    return 0;
}

int log_file_stat(int fd, struct stat *st)
{
    return fstat(fd, st) == 0 && S_ISREG(st->st_mode) ? 0 : ERR_IO;
}

int log_file_id(int fd, const struct stat *st, struct log_id *out)
{
    char head[HEAD_MAX];
    size_t n;
    int err = log_file_read(fd, 0, head, sizeof head, &n);
    if (err != 0)
        return err;
    const char *end = memchr(head, '\n', n);
    uint64_t digest = 0;
    if (end != NULL || n == sizeof head)
        digest = XXH3_64bits(head, end != NULL ? (size_t)(end - head) : n) | 1;
    *out = (struct log_id){(uint64_t)st->st_dev, (uint64_t)st->st_ino, digest};
    return 0;
}

/* ---- making the file ---- */

int log_file_sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL   ? strdup(".")
                   : slash == path ? strdup("/")
                                   : strndup(path, (size_t)(slash - path));
    int fd = folder != NULL ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(folder);
    if (fd < 0)
        return ERR_IO;
    int err = fsync(fd) == 0 ? 0 : ERR_IO;
    close(fd);
    return err;
}

static int make_folders(const char *path)
{
    char *part = strdup(path);
    int err = part != NULL ? 0 : ERR_IO;
    for (char *at = part; err == 0 && (at = strchr(at + 1, '/')) != NULL; *at = '/') {
        *at = '\0';
        if (mkdir(part, 0700) == 0)
            err = log_file_sync_folder(part);
        else if (errno != EEXIST)
            err = log_file_err(errno);
    }
    free(part);
    return err;
}

static int open_to_append(const char *path, int *out)
{
    int fd = log_file_open(path, O_RDWR | O_APPEND | O_CREAT);
    if (fd < 0 && errno == ENOENT) {
        int err = make_folders(path);
        if (err != 0)
            return err;
        fd = log_file_open(path, O_RDWR | O_APPEND | O_CREAT);
    }
    if (fd < 0)
        return log_file_err(errno);
    *out = fd;
    return 0;
}

/* ---- its lock ---- */

/* ERR_BUSY: not within LOCK_TRY_MS. A file system without locks has to do without. */
static int lock_file(int fd)
{
    for (int ms = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; ms++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return errno == ENOTSUP || errno == ENOLCK || errno == ENOSYS ? 0 : ERR_IO;
        if (ms == LOCK_TRY_MS)
            return ERR_BUSY;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return 0;
}

int log_file_open_locked(const char *path, int *out, struct stat *st)
{
    for (int i = 0; i < REPLACED_MAX; i++) {
        struct stat there;
        int fd, err = open_to_append(path, &fd);
        if (err != 0)
            return err;
        err = log_file_stat(fd, st);
        if (err == 0)
            err = lock_file(fd);
        if (err == 0 && stat(path, &there) == 0 && there.st_ino == st->st_ino &&
            there.st_dev == st->st_dev) {
            *out = fd;
            return 0;
        }
        close(fd);
        if (err != 0)
            return err;
    }
    return ERR_BUSY;
}
