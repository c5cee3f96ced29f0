// SPDX-License-Identifier: Apache-2.0
/* index.c -- the file of the index: made, opened, and given room.
 *
 * A new file is made under another name and takes its own when everything in it is on the disk, so
 * that a crash leaves a whole index or none.
 *
 * LMDB maps the file, and a map has a size. A transaction writes no page that the last commit uses,
 * so one that touches everything needs as much again as there is. The map is kept at four times
 * what the file uses, which is address space and not disk; it is made larger between transactions,
 * while no reader is at it. Space on the disk is kept ahead too, a little of it. */
#include "store/embedded/index_core.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MAP_BYTES     ((size_t)1 << 30)
#define MAP_SPARE     4                   /* times what is used */
#define FULL_BYTES    (16u * 1024 * 1024) /* a disk with less space than this counts as full */
#define RESERVE_BYTES (16u * 1024 * 1024)
#define MODE          0600
#define PATH_SIZE     4096

static const char *const table_names[TABLES] = {
    [TABLE_META] = "meta",         [TABLE_STREAM] = "stream", [TABLE_BLOCK] = "block",
    [TABLE_PRODUCER] = "producer", [TABLE_DOC] = "doc",       [TABLE_SEGMENT] = "segment",
    [TABLE_RESIDENT] = "resident",
};

int index_err(int lmdb_error)
{
    switch (lmdb_error) {
    case 0: return 0;
    case MDB_NOTFOUND: return ERR_NOT_FOUND;
    case ENOSPC:
    case EDQUOT:
    case MDB_MAP_FULL: return ERR_FULL;
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INVALID: return ERR_CORRUPT;
    default: return ERR_IO;
    }
}

/* A write that ran out of space half way is EIO to LMDB. That it was no broken disk shows in the
 * space there is. */
static bool is_disk_full(MDB_env *env)
{
    struct statvfs st;
    int fd;
    return mdb_env_get_fd(env, &fd) == 0 && fstatvfs(fd, &st) == 0 &&
           (uint64_t)st.f_bavail * st.f_frsize < FULL_BYTES;
}

/* LMDB writes nothing more once it has failed to write the page that makes a commit count. */
static bool index_is_over(MDB_env *env)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(env, NULL, 0, &txn);
    if (rc == 0)
        mdb_txn_abort(txn);
    return rc != 0;
}

int index_note_failure(struct index *i, int lmdb_error, bool ended)
{
    int err = index_err(lmdb_error);
    if (lmdb_error == MDB_MAP_FULL)
        i->cramped = true;
    if (lmdb_error == EIO && is_disk_full(i->env))
        err = ERR_FULL;
    if (err == ERR_FULL && ended && index_is_over(i->env))
        err = ERR_IO;
    if (err == ERR_IO) /* nobody knows what the disk has: no second try on the same file */
        i->failed = true;
    return err;
}

/* ---- making the file ---- */

static int put_first_meta(MDB_txn *txn, MDB_dbi table)
{
    struct buf value = {0};
    struct str key = str_of_cstr(index_meta_key);
    row_begin(&value);
    row_pack_meta(&value, &(struct index_meta){.next_segment = 1});
    row_seal(&value, TABLE_META, key);
    MDB_val k = {key.n, (void *)key.p}, v = {value.n, value.p};
    int rc = mdb_put(txn, table, &k, &v, 0);
    buf_deinit(&value);
    return rc;
}

static int open_tables(MDB_txn *txn, MDB_dbi *tables, unsigned flags)
{
    int rc = 0;
    for (int t = 0; rc == 0 && t < TABLES; t++)
        rc = mdb_dbi_open(txn, table_names[t], flags, &tables[t]);
    return rc;
}

static int fill_new(MDB_env *env)
{
    MDB_dbi tables[TABLES];
    MDB_txn *txn;
    int rc = mdb_txn_begin(env, NULL, 0, &txn);
    if (rc != 0)
        return rc;
    rc = open_tables(txn, tables, MDB_CREATE);
    if (rc == 0)
        rc = put_first_meta(txn, tables[TABLE_META]);
    if (rc == 0)
        return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return rc;
}

static int make_new(const char *path, bool sync)
{
    MDB_env *env;
    int rc = mdb_env_create(&env);
    if (rc != 0)
        return rc;
    unlink(path); /* what a crash has left */
    rc = mdb_env_set_maxdbs(env, TABLES);
    if (rc == 0)
        rc = mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOLOCK | (sync ? 0 : MDB_NOSYNC), MODE);
    if (rc == 0)
        rc = fill_new(env);
    mdb_env_close(env);
    return rc;
}

static int sync_folder_of(const char *path)
{
    char folder[PATH_SIZE];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 1 : (int)(slash - path + 1),
             slash == NULL ? "." : path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int rc = fsync(fd) == 0 || errno == EINVAL ? 0 : errno; /* EINVAL: cannot, need not */
    close(fd);
    return rc;
}

static int give_name(const char *made, const char *path, bool sync)
{
    if (rename(made, path) != 0)
        return errno;
    return sync ? sync_folder_of(path) : 0;
}

static int make_if_missing(const char *path, bool sync)
{
    struct stat st;
    char made[PATH_SIZE];
    if (stat(path, &st) == 0)
        return 0;
    if (errno != ENOENT)
        return errno;
    if (snprintf(made, sizeof made, "%s.new", path) >= PATH_SIZE)
        return ENAMETOOLONG;
    int rc = make_new(made, sync);
    return rc == 0 ? give_name(made, path, sync) : rc;
}

int index_rename(const char *from, const char *to, bool sync)
{
    return give_name(from, to, sync) == 0 ? 0 : ERR_IO;
}

void index_unlink(const char *path)
{
    char lock[PATH_SIZE + 8];
    snprintf(lock, sizeof lock, "%s-lock", path);
    unlink(path);
    unlink(lock);
}

/* ---- opening it ---- */

/* How many of the pages from `from` on are free. LMDB keeps lists of free pages in its table 0: a
 * count and as many numbers each. */
static int count_free(MDB_env *env, size_t from, size_t *out)
{
    MDB_txn *txn;
    MDB_cursor *c = NULL;
    MDB_val k, v;
    size_t n = 0;
    int rc = mdb_txn_begin(env, NULL, MDB_RDONLY, &txn);
    if (rc != 0)
        return rc;
    rc = mdb_cursor_open(txn, 0, &c);
    while (rc == 0 && (rc = mdb_cursor_get(c, &k, &v, MDB_NEXT)) == 0) {
        const size_t *list = v.mv_data;
        for (size_t i = 1; i < v.mv_size / sizeof *list && i <= list[0]; i++)
            n += list[i] >= from;
    }
    if (c != NULL)
        mdb_cursor_close(c);
    mdb_txn_abort(txn);
    *out = n;
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* A page that is in the map and not in the file would end the process when it is read. LMDB leaves
 * pages out at the end of the file only if they are free; if others are missing too, the file was
 * cut off. It is filled up with zeros for the time of looking, since that reads pages. */
static int check_length(MDB_env *env)
{
    MDB_envinfo info;
    MDB_stat sizes;
    struct stat st;
    size_t free_pages = 0;
    int fd;
    mdb_env_info(env, &info);
    mdb_env_stat(env, &sizes);
    int rc = mdb_env_get_fd(env, &fd);
    if (rc != 0)
        return rc;
    if (fstat(fd, &st) != 0)
        return errno;
    size_t want = info.me_last_pgno + 1, have = (size_t)st.st_size / sizes.ms_psize;
    if (have >= want)
        return 0;
    if (ftruncate(fd, (off_t)(want * sizes.ms_psize)) != 0)
        return errno;
    rc = count_free(env, have, &free_pages);
    if (rc == 0 && free_pages != want - have)
        rc = MDB_CORRUPTED;
    if (ftruncate(fd, st.st_size) != 0 && rc == 0)
        rc = errno;
    return rc;
}

static int open_env(struct index *i, const char *path, bool sync, size_t map_bytes)
{
    unsigned flags = MDB_NOSUBDIR | MDB_NOTLS | MDB_NORDAHEAD | (sync ? 0 : MDB_NOSYNC);
    int dead;
    int rc = mdb_env_create(&i->env);
    if (rc == 0)
        rc = mdb_env_set_maxdbs(i->env, TABLES);
    if (rc == 0)
        rc = mdb_env_set_mapsize(i->env, map_bytes);
    if (rc == 0)
        rc = mdb_env_open(i->env, path, flags, MODE);
    if (rc == 0)
        rc = check_length(i->env);
    if (rc == 0)
        rc = mdb_reader_check(i->env, &dead); /* those of a process that was killed */
    return rc;
}

/* The tables, which a new file has from the beginning. */
static int open_existing(struct index *i)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(i->env, NULL, MDB_RDONLY, &txn);
    if (rc != 0)
        return rc;
    rc = open_tables(txn, i->tables, 0);
    if (rc == 0)
        return mdb_txn_commit(txn); /* or the handles would go with it */
    mdb_txn_abort(txn);
    return rc == MDB_NOTFOUND || rc == MDB_INCOMPATIBLE ? MDB_INVALID : rc;
}

static const char *sentence(int rc)
{
    switch (rc) {
    case MDB_VERSION_MISMATCH: return "it was written by another version of LMDB";
    case MDB_INVALID:
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
        return "it is damaged, or no index at all; `tidemark doctor DIR --repair` makes it again";
    default: return mdb_strerror(rc);
    }
}

static bool open_all(struct index *i, const char *path, bool sync, size_t map_bytes, char *why,
                     size_t size)
{
    struct index_load nothing = {0};
    struct index_meta meta;
    int rc = make_if_missing(path, sync);
    if (rc == 0)
        rc = open_env(i, path, sync, map_bytes);
    if (rc == 0)
        rc = open_existing(i);
    if (rc != 0) {
        snprintf(why, size, "cannot open the index %s: %s", path, sentence(rc));
        return false;
    }
    int err = index_load(i, &nothing, &meta);
    if (err != 0)
        snprintf(why, size, "cannot open the index %s: %s", path,
                 err == ERR_VERSION   ? "it was written by another version"
                 : err == ERR_CORRUPT ? sentence(MDB_CORRUPTED)
                                      : err_text(err));
    return err == 0;
}

/* Readers that overlap all the time must not keep the map from growing. */
static void init_lock(pthread_rwlock_t *lock)
{
    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
#ifdef __GLIBC__
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
    pthread_rwlock_init(lock, &attr);
    pthread_rwlockattr_destroy(&attr);
}

struct index *index_open_sized(const char *path, bool sync, size_t map_bytes, char *why,
                               size_t size)
{
    struct index *i = mem_zalloc(sizeof *i);
    init_lock(&i->map);
    i->sync = sync;
    if (open_all(i, path, sync, map_bytes, why, size))
        return i;
    index_close(i);
    return NULL;
}

struct index *index_open(const char *path, bool sync, char *why, size_t size)
{
    return index_open_sized(path, sync, MAP_BYTES, why, size);
}

void index_close(struct index *i)
{
    if (i == NULL)
        return;
    if (i->env != NULL)
        mdb_env_close(i->env);
    pthread_rwlock_destroy(&i->map);
    free(i);
}

const char *index_path(const struct index *i)
{
    const char *path = NULL;
    mdb_env_get_path(i->env, &path);
    return path;
}

/* ---- room ---- */

/* LMDB lets go of the old map before it asks for the new one, and is left without any if that is
 * refused. So it is asked for before. */
static bool has_address_space(size_t n)
{
    void *p = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return false;
    munmap(p, n);
    return true;
}

static int enlarge(struct index *i, size_t n)
{
    if (!has_address_space(n))
        return ERR_FULL;
    pthread_rwlock_wrlock(&i->map);
    int rc = mdb_env_set_mapsize(i->env, n);
    i->unmapped = rc != 0;
    pthread_rwlock_unlock(&i->map);
    if (rc == 0)
        i->cramped = false;
    return index_err(rc);
}

/* Blocks of the disk for what the file does not use yet. Without, nothing could be deleted from a
 * full disk, for a transaction that removes rows writes new pages before old ones become free. A
 * file system that does not know how, or has no space left, is taken as it is. */
static void keep_reserve(struct index *i, uint64_t used)
{
#ifdef FALLOC_FL_KEEP_SIZE
    int fd;
    if (!i->sync || used + RESERVE_BYTES / 2 <= i->reserved || mdb_env_get_fd(i->env, &fd) != 0)
        return;
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)(used + RESERVE_BYTES)) == 0)
        i->reserved = used + RESERVE_BYTES;
#endif
}

int index_make_room(struct index *i)
{
    MDB_envinfo info;
    MDB_stat sizes;
    mdb_env_info(i->env, &info);
    mdb_env_stat(i->env, &sizes);
    uint64_t used = (uint64_t)(info.me_last_pgno + 1) * sizes.ms_psize;
    size_t want = i->cramped ? info.me_mapsize * 2 : info.me_mapsize;
    while (want < used * MAP_SPARE)
        want *= 2;
    keep_reserve(i, used);
    int err = want == info.me_mapsize ? 0 : enlarge(i, want);
    return i->cramped || i->unmapped ? err : 0; /* otherwise it may well fit as it is */
}
