// SPDX-License-Identifier: Apache-2.0
#include "store/embedded/shelf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"

#include <stdio.h>
#include <stdlib.h>

#define WINDOW_MIN 4096u
#define WINDOW_MAX 65536u

static void shelf_drop(struct shelf_file *f)
{
    vfs_close(f->under);
    free(f->window);
    *f = (struct shelf_file){0};
}

/* The file of that name, or the place that has not been used for longest. */
static struct shelf_file *shelf_find(struct shelf *s, const char *name)
{
    struct shelf_file *oldest = &s->files[0];
    for (size_t i = 0; i < SHELF_FILES; i++) {
        struct shelf_file *f = &s->files[i];
        if (f->under != NULL && strcmp(f->name, name) == 0)
            return f;
        if (f->used < oldest->used)
            oldest = f;
    }
    return oldest;
}

static int shelf_open(struct vfs *v, const char *name, enum vfs_open how, struct file **out)
{
    struct shelf *s = container_of(v, struct shelf, vfs);
    struct shelf_file *f = shelf_find(s, name);
    must(how == VFS_READ && strlen(name) < sizeof f->name);
    if (f->under != NULL && strcmp(f->name, name) != 0)
        shelf_drop(f);
    if (f->under == NULL) {
        struct file *under;
        uint64_t size;
        int err = vfs_open(s->under, name, how, &under);
        if (err != 0)
            return err;
        if ((err = vfs_size(under, &size)) != 0) {
            vfs_close(under);
            return err;
        }
        *f = (struct shelf_file){.file = {v}, .under = under, .size = size};
        snprintf(f->name, sizeof f->name, "%s", name);
    }
    f->used = ++s->clock;
    *out = &f->file;
    return 0;
}

static void shelf_close(struct file *f)
{
    (void)f; /* it stays */
}

static int shelf_size(struct file *file, uint64_t *out)
{
    *out = container_of(file, struct shelf_file, file)->size;
    return 0;
}

/* Moves the window to where a read begins. */
static int shelf_look(struct shelf_file *f, uint64_t offset)
{
    bool on = f->n > 0 && offset >= f->at && offset < f->at + f->n + WINDOW_MIN;
    size_t want = !on ? WINDOW_MIN : f->want < WINDOW_MAX ? f->want * 2 : WINDOW_MAX;
    if (f->window == NULL || want > f->want)
        f->window = mem_realloc(f->window, want);
    f->want = want;
    f->at = offset;
    f->n = 0;
    return vfs_read(f->under, offset, f->window, want, &f->n);
}

static int shelf_read(struct file *file, uint64_t offset, void *into, size_t n, size_t *got)
{
    struct shelf_file *f = container_of(file, struct shelf_file, file);
    if (n > WINDOW_MIN)
        return vfs_read(f->under, offset, into, n, got);
    if (offset < f->at || offset + n > f->at + f->n) {
        int err = shelf_look(f, offset);
        if (err != 0)
            return err;
    }
    size_t there = f->n - (size_t)(offset - f->at);
    *got = n < there ? n : there;
    memcpy(into, f->window + (offset - f->at), *got);
    return 0;
}

void shelf_init(struct shelf *s, struct vfs *under)
{
    static const struct vfs_ops ops = {
        .open = shelf_open, .close = shelf_close, .read = shelf_read, .size = shelf_size};
    *s = (struct shelf){.vfs = {&ops}, .under = under};
}

void shelf_deinit(struct shelf *s)
{
    for (size_t i = 0; i < SHELF_FILES; i++)
        shelf_drop(&s->files[i]);
}
