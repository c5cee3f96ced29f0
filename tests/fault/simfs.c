// SPDX-License-Identifier: Apache-2.0
#include "fault/simfs.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"
#include "base/mem.h"
#include "model/seeds.h"
#include "store/embedded/vfs.h"

#include <assert.h>
#include <stdlib.h>

#define SECTOR 512

/* A write or a truncation that is not synced. */
struct change {
    struct link link;
    bool truncates;
    uint64_t offset; /* or the new size */
    struct buf bytes;
};

/* A file without its name, or a folder. */
struct node {
    unsigned refs; /* names, pending name changes, open files */
    bool is_dir;
    bool behind;           /* during a crash: a change of its name was lost, so later ones are */
    struct buf disk, view; /* what a crash leaves at least, what reads show */
    struct link changes;
};

struct entry {
    struct link link;
    char name[VFS_NAME_MAX + 1];
    struct node *node;
};

/* One change of names that is not synced: `removed` goes, `added` comes; either may be "". */
struct rename {
    struct link link;
    char removed[VFS_NAME_MAX + 1], added[VFS_NAME_MAX + 1];
    struct node *node;
};

struct simfs {
    struct vfs vfs;
    struct rng rng;
    struct link disk, view; /* names, as of a crash and as of now */
    struct link renames;
    uint64_t capacity;
    uint64_t calls[SIMFS_OPS];
    uint64_t life; /* files of an earlier one are dead */
    size_t n_open;

    enum simfs_op fail_op;
    uint64_t fail_in, cut_in; /* calls; 0: not */
    int fail_err;
    bool off;
};

struct simfile {
    struct file file;
    struct node *node;
    uint64_t life;
    bool writable;
};

static struct simfs *fs_of(const struct vfs *v)
{
    return container_of(v, struct simfs, vfs);
}

/* ---- nodes ---- */

static struct node *node_new(bool is_dir)
{
    struct node *n = mem_zalloc(sizeof *n);
    n->is_dir = is_dir;
    list_init(&n->changes);
    return n;
}

static void drop_changes(struct node *n)
{
    list_each_safe (l, &n->changes) {
        struct change *c = list_item(l, struct change, link);
        list_remove(l);
        buf_deinit(&c->bytes);
        free(c);
    }
}

static void node_unref(struct node *n)
{
    if (--n->refs > 0)
        return;
    drop_changes(n);
    buf_deinit(&n->disk);
    buf_deinit(&n->view);
    free(n);
}

static void resize(struct buf *b, size_t n)
{
    if (n > b->n)
        memset(buf_reserve(b, n - b->n), 0, n - b->n);
    b->n = n;
}

static void overwrite(struct buf *b, uint64_t offset, struct str bytes)
{
    if (bytes.n == 0)
        return;
    if (offset + bytes.n > b->n)
        resize(b, (size_t)(offset + bytes.n));
    memcpy(b->p + offset, bytes.p, bytes.n);
}

static void copy(struct buf *to, const struct buf *from)
{
    to->n = 0;
    buf_put(to, buf_str(from));
}

static void note_change(struct node *n, bool truncates, uint64_t offset, struct str bytes)
{
    struct change *c = mem_zalloc(sizeof *c);
    c->truncates = truncates;
    c->offset = offset;
    buf_put(&c->bytes, bytes);
    list_push(&n->changes, &c->link);
    if (truncates)
        resize(&n->view, (size_t)offset);
    else
        overwrite(&n->view, offset, bytes);
}

static void apply(struct buf *disk, const struct change *c)
{
    if (c->truncates)
        resize(disk, (size_t)c->offset);
    else
        overwrite(disk, c->offset, buf_str(&c->bytes));
}

static void settle(struct node *n)
{
    list_each (l, &n->changes)
        apply(&n->disk, list_item(l, struct change, link));
    drop_changes(n);
}

/* Sector by sector, on or off. */
static void tear(struct rng *rng, struct buf *disk, const struct change *c)
{
    struct str rest = buf_str(&c->bytes);
    for (uint64_t at = c->offset; rest.n > 0;) {
        size_t n = SECTOR - at % SECTOR < rest.n ? (size_t)(SECTOR - at % SECTOR) : rest.n;
        if (rng_one_in(rng, 2))
            overwrite(disk, at, str_of(rest.p, n));
        at += n;
        rest = str_skip(rest, n);
    }
}

/* What reaches the disk when nobody saw to it. */
static void lose(struct rng *rng, struct node *n)
{
    list_each (l, &n->changes) {
        struct change *c = list_item(l, struct change, link);
        uint64_t end = c->offset + c->bytes.n;
        switch (c->truncates ? rng_below(rng, 2) : rng_below(rng, 4)) {
        case 0: apply(&n->disk, c); break;
        case 1: break;
        case 2: tear(rng, &n->disk, c); break;
        case 3: /* the file has grown, but nothing was written there */
            if (end > n->disk.n)
                resize(&n->disk, (size_t)end);
            break;
        }
    }
    drop_changes(n);
}

/* ---- names ---- */

static struct entry *find(const struct link *names, const char *name)
{
    list_each (l, (struct link *)names) {
        struct entry *e = list_item(l, struct entry, link);
        if (strcmp(e->name, name) == 0)
            return e;
    }
    return NULL;
}

static void set_text(char *to, const char *name)
{
    assert(strlen(name) <= VFS_NAME_MAX);
    strcpy(to, name);
}

static void erase(struct entry *e)
{
    list_remove(&e->link);
    node_unref(e->node);
    free(e);
}

static void change_name(struct link *names, const char *removed, const char *added,
                        struct node *node)
{
    struct entry *e;
    node->refs++;
    if (removed[0] != '\0' && (e = find(names, removed)) != NULL)
        erase(e);
    if (added[0] != '\0') {
        if ((e = find(names, added)) != NULL)
            erase(e);
        e = mem_zalloc(sizeof *e);
        set_text(e->name, added);
        e->node = node;
        node->refs++;
        list_push(names, &e->link);
    }
    node_unref(node);
}

static void free_rename(struct rename *r)
{
    list_remove(&r->link);
    node_unref(r->node);
    free(r);
}

static void note_rename(struct simfs *fs, const char *removed, const char *added, struct node *node)
{
    struct rename *r = mem_zalloc(sizeof *r);
    set_text(r->removed, removed);
    set_text(r->added, added);
    r->node = node;
    node->refs++;
    list_push(&fs->renames, &r->link);
    change_name(&fs->view, removed, added, node);
}

/* Whether the name stands directly in the folder. */
static bool is_in(const char *name, const char *dir)
{
    size_t n = strlen(dir);
    if (n > 0 && (strncmp(name, dir, n) != 0 || name[n++] != '/'))
        return false;
    return name[n] != '\0' && strchr(name + n, '/') == NULL;
}

static bool has_folder(const struct link *names, const char *name)
{
    char dir[VFS_NAME_MAX + 1];
    set_text(dir, name);
    char *slash = strrchr(dir, '/');
    if (slash == NULL)
        return true;
    *slash = '\0';
    struct entry *e = find(names, dir);
    return e != NULL && e->node->is_dir && has_folder(names, dir);
}

/* ---- faults ---- */

static bool changes_something(enum simfs_op op)
{
    return op != SIMFS_OPEN && op != SIMFS_READ && op != SIMFS_WRITE_BACK && op != SIMFS_LIST;
}

enum fate {
    GOES_WELL,
    FAILS,   /* with fail_err */
    IS_LOST, /* the power goes while it is under way */
    IS_DEAD, /* the power is gone */
};

static enum fate fate_of(struct simfs *fs, enum simfs_op op)
{
    if (fs->off)
        return IS_DEAD;
    fs->calls[op]++;
    if (fs->cut_in > 0 && changes_something(op) && --fs->cut_in == 0) {
        fs->off = true;
        return IS_LOST;
    }
    if (fs->fail_in > 0 && (fs->fail_op == op || fs->fail_op == SIMFS_OPS) && --fs->fail_in == 0)
        return FAILS;
    return GOES_WELL;
}

static int err_of(const struct simfs *fs, enum fate fate)
{
    return fate == GOES_WELL ? 0 : fate == FAILS ? fs->fail_err : ERR_IO;
}

/* Whether it has an effect although the caller is told that it failed. */
static bool happens(struct simfs *fs, enum fate fate)
{
    return fate == GOES_WELL || (fate == IS_LOST && rng_one_in(&fs->rng, 2));
}

void simfs_fail(struct simfs *fs, enum simfs_op op, uint64_t n, int err)
{
    fs->fail_op = op;
    fs->fail_in = n;
    fs->fail_err = err;
}

void simfs_cut_power_at(struct simfs *fs, uint64_t n)
{
    fs->cut_in = n;
}

bool simfs_is_off(const struct simfs *fs)
{
    return fs->off;
}

void simfs_kill(struct simfs *fs)
{
    fs->off = false;
    fs->cut_in = fs->fail_in = 0;
    fs->life++;
}

static void clear(struct link *names)
{
    list_each_safe (l, names)
        erase(list_item(l, struct entry, link));
}

void simfs_crash(struct simfs *fs, uint64_t seed)
{
    struct rng rng = {seed};
    simfs_kill(fs);
    list_each_safe (l, &fs->renames) {
        struct rename *r = list_item(l, struct rename, link);
        r->node->behind |= rng_one_in(&rng, 2);
        if (!r->node->behind)
            change_name(&fs->disk, r->removed, r->added, r->node);
        free_rename(r);
    }
    list_each_safe (l, &fs->disk)
        if (!has_folder(&fs->disk, list_item(l, struct entry, link)->name))
            erase(list_item(l, struct entry, link));
    clear(&fs->view);
    list_each (l, &fs->disk) {
        struct entry *e = list_item(l, struct entry, link);
        e->node->behind = false;
        lose(&rng, e->node);
        copy(&e->node->view, &e->node->disk);
        change_name(&fs->view, "", e->name, e->node);
    }
}

void simfs_set_capacity(struct simfs *fs, uint64_t bytes)
{
    fs->capacity = bytes;
}

void simfs_flip(struct simfs *fs, const char *name, uint64_t offset, unsigned char mask)
{
    struct node *n = find(&fs->view, name)->node;
    assert(offset < n->view.n);
    n->view.p[offset] ^= (char)mask;
    if (offset < n->disk.n)
        n->disk.p[offset] ^= (char)mask;
}

/* ---- looking ---- */

uint64_t simfs_calls(const struct simfs *fs, enum simfs_op op)
{
    return fs->calls[op];
}

uint64_t simfs_bytes(const struct simfs *fs)
{
    uint64_t n = 0;
    list_each (l, (struct link *)&fs->view)
        n += list_item(l, struct entry, link)->node->view.n;
    return n;
}

bool simfs_has_unsynced(const struct simfs *fs)
{
    list_each (l, (struct link *)&fs->view)
        if (!list_empty(&list_item(l, struct entry, link)->node->changes))
            return true;
    return !list_empty(&fs->renames);
}

struct str simfs_content(const struct simfs *fs, const char *name)
{
    struct entry *e = find(&fs->view, name);
    if (e == NULL)
        return STR_NONE;
    return e->node->view.n > 0 ? buf_str(&e->node->view) : STR("");
}

static void put_node(struct simfs *fs, const char *name, struct node *node)
{
    node->refs++;
    change_name(&fs->view, "", name, node);
    change_name(&fs->disk, "", name, node);
    node_unref(node);
}

static void put_folders(struct simfs *fs, const char *name)
{
    for (const char *slash = name; (slash = strchr(slash, '/')) != NULL; slash++) {
        char dir[VFS_NAME_MAX + 1] = "";
        memcpy(dir, name, (size_t)(slash - name));
        if (find(&fs->view, dir) == NULL)
            put_node(fs, dir, node_new(true));
    }
}

void simfs_put(struct simfs *fs, const char *name, struct str content)
{
    struct node *n = node_new(false);
    buf_put(&n->disk, content);
    copy(&n->view, &n->disk);
    put_folders(fs, name);
    put_node(fs, name, n);
}

/* ---- the vfs: files ---- */

static int sim_open(struct vfs *v, const char *name, enum vfs_open how, struct file **out)
{
    struct simfs *fs = fs_of(v);
    enum fate fate = fate_of(fs, how == VFS_CREATE ? SIMFS_CREATE : SIMFS_OPEN);
    struct entry *e = find(&fs->view, name);
    struct node *node = e != NULL ? e->node : NULL;
    if (fate == IS_DEAD || fate == FAILS)
        return err_of(fs, fate);
    if (how == VFS_CREATE) {
        if (node != NULL)
            return ERR_EXISTS;
        if (!has_folder(&fs->view, name))
            return ERR_NOT_FOUND;
        node = node_new(false);
        node->refs++;
        note_rename(fs, "", name, node);
        node_unref(node);
    }
    if (fate == IS_LOST)
        return ERR_IO;
    if (node == NULL || node->is_dir)
        return node == NULL ? ERR_NOT_FOUND : ERR_IO;
    struct simfile *f = mem_alloc(sizeof *f);
    *f = (struct simfile){{v}, node, fs->life, how != VFS_READ};
    node->refs++;
    fs->n_open++;
    *out = &f->file;
    return 0;
}

static struct simfile *simfile_of(struct file *f)
{
    return container_of(f, struct simfile, file);
}

static void sim_close(struct file *file)
{
    fs_of(file->vfs)->n_open--;
    node_unref(simfile_of(file)->node);
    free(simfile_of(file));
}

static enum fate fate_of_file(struct simfile *f, enum simfs_op op)
{
    struct simfs *fs = fs_of(f->file.vfs);
    return f->life != fs->life ? IS_DEAD : fate_of(fs, op);
}

static int sim_read(struct file *file, uint64_t offset, void *into, size_t n, size_t *got)
{
    struct simfile *f = simfile_of(file);
    struct buf *view = &f->node->view;
    enum fate fate = fate_of_file(f, SIMFS_READ);
    if (fate != GOES_WELL)
        return err_of(fs_of(file->vfs), fate);
    size_t there = offset < view->n ? (size_t)(view->n - offset) : 0;
    *got = there < n ? there : n;
    if (*got > 0)
        memcpy(into, view->p + offset, *got);
    return 0;
}

static uint64_t spare_bytes(const struct simfs *fs)
{
    uint64_t used = simfs_bytes(fs);
    return fs->capacity > used ? fs->capacity - used : 0;
}

/* How much of a write of n bytes the disk has room for. */
static size_t room_for(struct simfs *fs, const struct node *node, uint64_t offset, size_t n)
{
    uint64_t spare = spare_bytes(fs), end = node->view.n;
    if (offset + n <= end || offset + n - end <= spare)
        return n;
    return end + spare > offset ? (size_t)(end + spare - offset) : 0;
}

/* A part of n bytes, from their beginning to the end of a sector. */
static size_t some_sectors(struct rng *rng, uint64_t offset, size_t n)
{
    uint64_t end = (offset + rng_between(rng, 0, n)) / SECTOR * SECTOR;
    return end > offset ? (size_t)(end - offset) : 0;
}

static int sim_write(struct file *file, uint64_t offset, const struct iovec *pieces, int count)
{
    struct simfile *f = simfile_of(file);
    struct simfs *fs = fs_of(file->vfs);
    enum fate fate = fate_of_file(f, SIMFS_WRITE);
    assert(f->writable);
    if (fate == IS_DEAD)
        return ERR_IO;
    struct buf bytes = {0};
    for (int i = 0; i < count; i++)
        buf_put(&bytes, str_of(pieces[i].iov_base, pieces[i].iov_len));
    size_t n = room_for(fs, f->node, offset, bytes.n);
    int err = n < bytes.n ? ERR_FULL : 0;
    if (fate != GOES_WELL) {
        n = some_sectors(&fs->rng, offset, n);
        err = err_of(fs, fate);
    }
    if (n > 0)
        note_change(f->node, false, offset, str_of(bytes.p, n));
    buf_deinit(&bytes);
    return err;
}

static int sim_sync(struct file *file)
{
    struct simfile *f = simfile_of(file);
    struct simfs *fs = fs_of(file->vfs);
    enum fate fate = fate_of_file(f, SIMFS_SYNC);
    if (fate == FAILS)
        lose(&fs->rng, f->node); /* the view stays */
    else if (happens(fs, fate))
        settle(f->node);
    return err_of(fs, fate);
}

static int sim_write_back(struct file *file, uint64_t offset, uint64_t n)
{
    struct simfile *f = simfile_of(file);
    struct simfs *fs = fs_of(file->vfs);
    enum fate fate = fate_of_file(f, SIMFS_WRITE_BACK);
    assert(offset + n <= f->node->view.n);
    if (fate == FAILS)
        lose(&fs->rng, f->node);
    return err_of(fs, fate);
}

static int sim_size(struct file *file, uint64_t *out)
{
    struct simfile *f = simfile_of(file);
    struct simfs *fs = fs_of(file->vfs);
    if (fs->off || f->life != fs->life)
        return ERR_IO;
    *out = f->node->view.n;
    return 0;
}

static int sim_truncate(struct file *file, uint64_t size)
{
    struct simfile *f = simfile_of(file);
    struct simfs *fs = fs_of(file->vfs);
    enum fate fate = fate_of_file(f, SIMFS_TRUNCATE);
    assert(f->writable);
    if (fate == GOES_WELL && size > f->node->view.n && size - f->node->view.n > spare_bytes(fs))
        return ERR_FULL;
    if (happens(fs, fate))
        note_change(f->node, true, size, STR_NONE);
    return err_of(fs, fate);
}

/* ---- the vfs: names ---- */

static int sim_remove(struct vfs *v, const char *name)
{
    struct simfs *fs = fs_of(v);
    enum fate fate = fate_of(fs, SIMFS_REMOVE);
    struct entry *e = find(&fs->view, name);
    if (e == NULL || e->node->is_dir)
        return fate == GOES_WELL && e == NULL ? ERR_NOT_FOUND : ERR_IO;
    if (happens(fs, fate))
        note_rename(fs, name, "", e->node);
    return err_of(fs, fate);
}

static int sim_rename(struct vfs *v, const char *from, const char *to)
{
    struct simfs *fs = fs_of(v);
    enum fate fate = fate_of(fs, SIMFS_RENAME);
    struct entry *e = find(&fs->view, from);
    if (e == NULL || e->node->is_dir || !has_folder(&fs->view, to))
        return fate == GOES_WELL ? ERR_NOT_FOUND : ERR_IO;
    if (happens(fs, fate))
        note_rename(fs, from, to, e->node);
    return err_of(fs, fate);
}

static int sim_make_dir(struct vfs *v, const char *name)
{
    struct simfs *fs = fs_of(v);
    enum fate fate = fate_of(fs, SIMFS_MAKE_DIR);
    if (fate == GOES_WELL && find(&fs->view, name) != NULL)
        return ERR_EXISTS;
    if (fate == GOES_WELL && !has_folder(&fs->view, name))
        return ERR_NOT_FOUND;
    if (find(&fs->view, name) == NULL && happens(fs, fate)) {
        struct node *node = node_new(true);
        node->refs++;
        note_rename(fs, "", name, node);
        node_unref(node);
    }
    return err_of(fs, fate);
}

static int sim_sync_dir(struct vfs *v, const char *name)
{
    struct simfs *fs = fs_of(v);
    enum fate fate = fate_of(fs, SIMFS_SYNC_DIR);
    if (fate == GOES_WELL && name[0] != '\0' && find(&fs->view, name) == NULL)
        return ERR_NOT_FOUND;
    if (happens(fs, fate))
        list_each_safe (l, &fs->renames) {
            struct rename *r = list_item(l, struct rename, link);
            if (!is_in(r->removed, name) && !is_in(r->added, name))
                continue;
            change_name(&fs->disk, r->removed, r->added, r->node);
            free_rename(r);
        }
    return err_of(fs, fate);
}

static int sim_list(struct vfs *v, const char *dir, int (*each)(void *ctx, const char *name),
                    void *ctx)
{
    struct simfs *fs = fs_of(v);
    enum fate fate = fate_of(fs, SIMFS_LIST);
    if (fate != GOES_WELL)
        return err_of(fs, fate);
    if (dir[0] != '\0' && find(&fs->view, dir) == NULL)
        return ERR_NOT_FOUND;
    int err = 0;
    size_t skip = dir[0] != '\0' ? strlen(dir) + 1 : 0;
    list_each_safe (l, &fs->view) {
        struct entry *e = list_item(l, struct entry, link);
        if (err == 0 && is_in(e->name, dir))
            err = each(ctx, e->name + skip);
    }
    return err;
}

static int sim_free_bytes(struct vfs *v, uint64_t *out)
{
    struct simfs *fs = fs_of(v);
    *out = spare_bytes(fs);
    return fs->off ? ERR_IO : 0;
}

static void sim_free(struct vfs *v)
{
}

static const struct vfs_ops sim_ops = {
    .open = sim_open,
    .close = sim_close,
    .read = sim_read,
    .write = sim_write,
    .sync = sim_sync,
    .write_back = sim_write_back,
    .size = sim_size,
    .truncate = sim_truncate,
    .remove = sim_remove,
    .rename = sim_rename,
    .make_dir = sim_make_dir,
    .sync_dir = sim_sync_dir,
    .list = sim_list,
    .free_bytes = sim_free_bytes,
    .free = sim_free,
};

struct simfs *simfs_new(uint64_t seed)
{
    struct simfs *fs = mem_zalloc(sizeof *fs);
    fs->vfs.ops = &sim_ops;
    fs->rng.state = seed;
    fs->capacity = UINT64_MAX;
    list_init(&fs->disk);
    list_init(&fs->view);
    list_init(&fs->renames);
    return fs;
}

void simfs_free(struct simfs *fs)
{
    assert(fs->n_open == 0);
    list_each_safe (l, &fs->renames)
        free_rename(list_item(l, struct rename, link));
    clear(&fs->view);
    clear(&fs->disk);
    free(fs);
}

struct vfs *simfs_vfs(struct simfs *fs)
{
    return &fs->vfs;
}
