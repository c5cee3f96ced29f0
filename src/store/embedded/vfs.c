// SPDX-License-Identifier: Apache-2.0
#include "store/embedded/vfs.h"
#include "base/err.h"

int vfs_open(struct vfs *v, const char *name, enum vfs_open how, struct file **out)
{
    return v->ops->open(v, name, how, out);
}

void vfs_close(struct file *f)
{
    if (f != NULL)
        f->vfs->ops->close(f);
}

int vfs_read(struct file *f, uint64_t offset, void *into, size_t n, size_t *got)
{
    return f->vfs->ops->read(f, offset, into, n, got);
}

int vfs_read_all(struct file *f, uint64_t offset, void *into, size_t n)
{
    size_t got = 0;
    int err = vfs_read(f, offset, into, n, &got);
    if (err != 0)
        return err;
    return got == n ? 0 : ERR_CORRUPT;
}

int vfs_write(struct file *f, uint64_t offset, struct str bytes)
{
    struct iovec piece = {(void *)bytes.p, bytes.n};
    return vfs_writev(f, offset, &piece, 1);
}

int vfs_writev(struct file *f, uint64_t offset, const struct iovec *pieces, int n)
{
    return f->vfs->ops->write(f, offset, pieces, n);
}

int vfs_sync(struct file *f)
{
    return f->vfs->ops->sync(f);
}

int vfs_write_back(struct file *f, uint64_t offset, uint64_t n)
{
    return f->vfs->ops->write_back == NULL ? 0 : f->vfs->ops->write_back(f, offset, n);
}

int vfs_size(struct file *f, uint64_t *out)
{
    return f->vfs->ops->size(f, out);
}

int vfs_truncate(struct file *f, uint64_t size)
{
    return f->vfs->ops->truncate(f, size);
}

int vfs_remove(struct vfs *v, const char *name)
{
    return v->ops->remove(v, name);
}

int vfs_rename(struct vfs *v, const char *from, const char *to)
{
    return v->ops->rename(v, from, to);
}

int vfs_make_dir(struct vfs *v, const char *name)
{
    return v->ops->make_dir(v, name);
}

int vfs_sync_dir(struct vfs *v, const char *name)
{
    return v->ops->sync_dir(v, name);
}

int vfs_list(struct vfs *v, const char *dir, int (*each)(void *ctx, const char *name), void *ctx)
{
    return v->ops->list(v, dir, each, ctx);
}

int vfs_free_bytes(struct vfs *v, uint64_t *out)
{
    return v->ops->free_bytes(v, out);
}

void vfs_free(struct vfs *v)
{
    if (v != NULL)
        v->ops->free(v);
}
