// SPDX-License-Identifier: Apache-2.0
#include "store/embedded/reserve.h"
#include "base/err.h"
#include "store/embedded/segment_format.h"
#include "store/embedded/vfs.h"

#define NAME SEGMENT_DIR "/reserve"

static int resize(struct file *f, uint64_t want, uint64_t *size)
{
    static const char zeros[64 * 1024];
    int err = vfs_size(f, size);
    if (err != 0)
        return err;
    if (*size > 2 * want) {
        err = vfs_truncate(f, want);
        *size = want;
        return err;
    }
    if (*size >= want)
        return 0;
    while (err == 0 && *size < want) {
        uint64_t n = want - *size < sizeof zeros ? want - *size : sizeof zeros;
        err = vfs_write(f, *size, str_of(zeros, (size_t)n));
        *size += n;
    }
    return err == 0 ? vfs_sync(f) : err;
}

uint64_t reserve_acquire(struct vfs *v, uint64_t want)
{
    struct file *f;
    uint64_t size = 0;
    int err = want == 0 ? ERR_NOT_FOUND : vfs_open(v, NAME, VFS_WRITE, &f);
    if (err == ERR_NOT_FOUND && want > 0)
        err = vfs_open(v, NAME, VFS_CREATE, &f);
    if (err != 0)
        return 0;
    err = resize(f, want, &size);
    vfs_close(f);
    if (err == 0)
        return size;
    reserve_release(v); /* rather none than one that takes the last byte */
    return 0;
}

bool reserve_release(struct vfs *v)
{
    return vfs_remove(v, NAME) == 0;
}
