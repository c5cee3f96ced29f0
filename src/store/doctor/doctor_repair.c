// SPDX-License-Identifier: Apache-2.0
/* doctor_repair.c -- files that are set aside, and segments whose head or footer is written again.
 * What is replaced is kept under another name, and is replaced only by what is complete. */
#include "base/err.h"
#include "base/mem.h"
#include "base/rand.h"
#include "store/doctor/doctor_core.h"
#include "store/embedded/segment.h"
#include "store/embedded/segment_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define COPY_BYTES (1024u * 1024)

int doctor_repair_failed(int err, const char *what, char *why, size_t size)
{
    snprintf(why, size, "%s: %s", what, err_text(err));
    return err;
}

/* ---- names ---- */

static bool exists(struct vfs *v, const char *name)
{
    struct file *f;
    int err = vfs_open(v, name, VFS_READ, &f);
    if (err == 0)
        vfs_close(f);
    return err != ERR_NOT_FOUND;
}

void doctor_aside_name(char *out, size_t size, const char *name, int n)
{
    if (n == 1)
        snprintf(out, size, "%s.damaged", name);
    else
        snprintf(out, size, "%s.damaged.%d", name, n);
}

static int free_name(struct vfs *v, const char *name, char *out)
{
    for (int i = 1; i < DOCTOR_ASIDE_NAMES; i++) {
        doctor_aside_name(out, ASIDE_MAX, name, i);
        if (!exists(v, out))
            return 0;
    }
    return ERR_EXISTS;
}

static int sync_folder(struct vfs *v, const char *name)
{
    char folder[ASIDE_MAX];
    const char *slash = strchr(name, '/');
    snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 0 : (int)(slash - name), name);
    return vfs_sync_dir(v, folder);
}

int doctor_set_aside(struct doctor_pass *l, const char *name, char *why, size_t size)
{
    char other[ASIDE_MAX];
    struct vfs *v = l->doctor->vfs;
    int err = free_name(v, name, other);
    if (err == 0)
        err = vfs_rename(v, name, other);
    if (err == 0)
        err = sync_folder(v, name);
    if (err != 0)
        return doctor_repair_failed(err, "a damaged file cannot be set aside", why, size);
    doctor_say(l, DOCTOR_DONE, "%s is set aside as %s", name, other);
    return 0;
}

/* ---- footers ---- */

struct footer {
    struct buf bytes;
    uint64_t end; /* of the items */
};

static int doctor_repair_list_block(void *ctx, const struct block_info *b)
{
    struct footer *f = ctx;
    struct segment_item item = {.marks = (uint32_t)b->events,
                                .n = (uint32_t)(b->end - b->first),
                                .life = b->life,
                                .first = b->first,
                                .ordinal = b->ordinal,
                                .oldest_ms = b->oldest_ms,
                                .newest_ms = b->newest_ms};
    segment_footer_put(&f->bytes, &item);
    f->end += segment_item_bytes(&item);
    return 0;
}

static int doctor_repair_list_note(void *ctx, struct str note)
{
    struct footer *f = ctx;
    struct segment_item item = {.n = (uint32_t)note.n};
    segment_footer_put(&f->bytes, &item);
    f->end += segment_item_bytes(&item);
    return 0;
}

static int copy_bytes(struct file *from, struct file *to, uint64_t at, uint64_t end)
{
    char *some = mem_alloc(COPY_BYTES);
    int err = 0;
    while (at < end && err == 0) {
        size_t n = end - at < COPY_BYTES ? (size_t)(end - at) : COPY_BYTES;
        err = vfs_read_all(from, at, some, n);
        if (err == 0)
            err = vfs_write(to, at, str_of(some, n));
        at += n;
    }
    free(some);
    return err;
}

/* Head, items, footer and trailer. */
static int write_whole(struct file *from, struct file *to, uint64_t id, const struct footer *f)
{
    char head[SEGMENT_FILE_HEAD], trailer[SEGMENT_TRAILER];
    uint64_t salt = rand_u64();
    segment_head_write(head, id, salt);
    segment_trailer_write(trailer, salt, f->end, buf_str(&f->bytes));
    int err = vfs_write(to, 0, str_of(head, sizeof head));
    if (err == 0)
        err = copy_bytes(from, to, SEGMENT_FILE_HEAD, f->end);
    if (err == 0)
        err = vfs_write(to, f->end, buf_str(&f->bytes));
    if (err == 0)
        err = vfs_write(to, f->end + f->bytes.n, str_of(trailer, sizeof trailer));
    return err == 0 ? vfs_sync(to) : err;
}

static int copy_file(struct vfs *v, struct file *from, const char *to)
{
    struct file *f;
    uint64_t size = 0;
    int err = vfs_size(from, &size);
    if (err == 0)
        err = vfs_open(v, to, VFS_CREATE, &f);
    if (err != 0)
        return err;
    err = copy_bytes(from, f, 0, size);
    if (err == 0)
        err = vfs_sync(f);
    vfs_close(f);
    return err;
}

static int replace_segment(struct vfs *v, uint64_t id, const struct footer *footer, char *other)
{
    char name[SEGMENT_NAME_MAX], made[SEGMENT_NAME_MAX];
    struct file *from, *to = NULL;
    segment_name(id, name);
    segment_new_name(id, made);
    int err = vfs_open(v, name, VFS_READ, &from);
    if (err != 0)
        return err;
    vfs_remove(v, made); /* what a crash has left */
    err = free_name(v, name, other);
    if (err == 0)
        err = copy_file(v, from, other);
    if (err == 0)
        err = vfs_open(v, made, VFS_CREATE, &to);
    if (err == 0)
        err = write_whole(from, to, id, footer);
    vfs_close(to);
    vfs_close(from);
    if (err == 0)
        err = vfs_rename(v, made, name);
    return err == 0 ? vfs_sync_dir(v, SEGMENT_DIR) : err;
}

int doctor_repair_footer(struct doctor_pass *l, uint64_t id, char *why, size_t size)
{
    char other[ASIDE_MAX];
    struct footer f = {.end = SEGMENT_FILE_HEAD};
    struct segment_scan scan = {.salvage = true,
                                .ctx = &f,
                                .block = doctor_repair_list_block,
                                .note = doctor_repair_list_note};
    int err = segment_scan(l->doctor->vfs, id, &scan);
    if (err == 0)
        err = replace_segment(l->doctor->vfs, id, &f, other);
    buf_deinit(&f.bytes);
    if (err != 0)
        return doctor_repair_failed(err, "a segment cannot be written again", why, size);
    doctor_say(l, DOCTOR_DONE,
               "segment %" PRIu64 " has a head and a footer again; as it was, it is kept as %s", id,
               other);
    return 0;
}
