// SPDX-License-Identifier: Apache-2.0
/* The real vfs on a directory of its own, and simfs next to it: what one promises, the other must
 * keep. The calls into the kernel go through functions here that can cut them short. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* What the kernel does with the next calls. */
static struct {
    size_t at_most;    /* bytes a call takes or gives; 0: all */
    int interruptions; /* calls that fail with EINTR first */
    int error;         /* of every call */
    int syncs, write_backs;
} kernel;

static bool refuses(void)
{
    if (kernel.error != 0) {
        errno = kernel.error;
        return true;
    }
    if (kernel.interruptions == 0)
        return false;
    kernel.interruptions--;
    errno = EINTR;
    return true;
}

static ssize_t short_pread(int fd, void *into, size_t n, off_t at)
{
    if (refuses())
        return -1;
    return pread(fd, into, kernel.at_most > 0 && n > kernel.at_most ? kernel.at_most : n, at);
}

static ssize_t short_pwritev(int fd, const struct iovec *pieces, int n, off_t at)
{
    char bytes[4096];
    size_t length = 0;
    if (refuses())
        return -1;
    if (kernel.at_most == 0)
        return pwritev(fd, pieces, n, at);
    for (int i = 0; i < n && length < kernel.at_most; i++) {
        size_t some = pieces[i].iov_len;
        if (some > kernel.at_most - length)
            some = kernel.at_most - length;
        memcpy(bytes + length, pieces[i].iov_base, some);
        length += some;
    }
    return pwrite(fd, bytes, length, at);
}

static int noted_fdatasync(int fd)
{
    kernel.syncs++;
    return refuses() ? -1 : fdatasync(fd);
}

#ifdef __linux__
static int noted_sync_file_range(int fd, off_t at, off_t n, unsigned flags)
{
    kernel.write_backs++;
    return refuses() ? -1 : sync_file_range(fd, at, n, flags);
}
#define sync_file_range noted_sync_file_range
#endif

#define pread     short_pread
#define pwritev   short_pwritev
#define fdatasync noted_fdatasync
#include "store/embedded/vfs_posix.c"
#undef pread
#undef pwritev
#undef fdatasync

#include "base/buf.h"
#include "fault/simfs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

struct world {
    char dir[64];
    struct vfs *vfs;
    struct simfs *sim;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    char why[256] = "";
    strcpy(w->dir, "/tmp/test_vfs.XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    strcat(w->dir, "/data");
    w->vfs = vfs_posix_new(w->dir, why, sizeof why);
    assert_string_equal(why, "");
    assert_non_null(w->vfs);
    memset(&kernel, 0, sizeof kernel);
    *state = w;
    return 0;
}

static int setup_sim(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    w->sim = simfs_new(1);
    w->vfs = simfs_vfs(w->sim);
    *state = w;
    return 0;
}

static void remove_tree(const char *dir)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

static int teardown(void **state)
{
    struct world *w = *state;
    vfs_free(w->vfs);
    if (w->sim != NULL) {
        simfs_free(w->sim);
    } else {
        *strrchr(w->dir, '/') = '\0';
        remove_tree(w->dir);
    }
    free(w);
    return 0;
}

static struct file *open_file(struct world *w, const char *name, enum vfs_open how)
{
    struct file *f = NULL;
    assert_int_equal(vfs_open(w->vfs, name, how, &f), 0);
    return f;
}

static void make_file(struct world *w, const char *name, const char *content)
{
    struct file *f = open_file(w, name, VFS_CREATE);
    assert_int_equal(vfs_write(f, 0, str_of_cstr(content)), 0);
    vfs_close(f);
}

static void assert_content(struct world *w, const char *name, const char *content)
{
    char text[64] = "";
    size_t got;
    struct file *f = open_file(w, name, VFS_READ);
    assert_int_equal(vfs_read(f, 0, text, sizeof text - 1, &got), 0);
    assert_int_equal(got, strlen(content));
    assert_string_equal(text, content);
    vfs_close(f);
}

/* -- both ------------------------------------------------------------------------------------- */

static void test_files(void **state)
{
    struct world *w = *state;
    struct file *f = NULL;
    uint64_t size = 0;
    char text[8] = "";
    assert_int_equal(vfs_open(w->vfs, "a", VFS_READ, &f), ERR_NOT_FOUND);
    assert_int_equal(vfs_open(w->vfs, "a", VFS_WRITE, &f), ERR_NOT_FOUND);
    assert_null(f);
    make_file(w, "a", "hello");
    assert_int_equal(vfs_open(w->vfs, "a", VFS_CREATE, &f), ERR_EXISTS);
    f = open_file(w, "a", VFS_WRITE);
    char digits[] = "123";
    struct iovec pieces[] = {{digits, 1}, {NULL, 0}, {digits + 1, 2}};
    assert_int_equal(vfs_writev(f, 6, pieces, 3), 0);
    assert_int_equal(vfs_size(f, &size), 0);
    assert_int_equal(size, 9);
    assert_int_equal(vfs_read_all(f, 3, text, 6), 0);
    assert_memory_equal(text,
                        "lo\0"
                        "123",
                        6);
    assert_int_equal(vfs_read_all(f, 4, text, 6), ERR_CORRUPT);
    size_t got = 77;
    assert_int_equal(vfs_read(f, 100, text, 6, &got), 0);
    assert_int_equal(got, 0);
    assert_int_equal(vfs_truncate(f, 2), 0);
    assert_int_equal(vfs_sync(f), 0);
    vfs_close(f);
    assert_content(w, "a", "he");
}

static int collect(void *ctx, const char *name)
{
    struct buf *names = ctx;
    buf_printf(names, "%s ", name);
    return names->n > 40 ? ERR_LIMIT : 0;
}

static void test_names(void **state)
{
    struct world *w = *state;
    struct file *f;
    assert_int_equal(vfs_open(w->vfs, "d/a", VFS_CREATE, &f), ERR_NOT_FOUND);
    assert_int_equal(vfs_sync_dir(w->vfs, "d"), ERR_NOT_FOUND);
    assert_int_equal(vfs_make_dir(w->vfs, "d"), 0);
    assert_int_equal(vfs_make_dir(w->vfs, "d"), ERR_EXISTS);
    make_file(w, "d/a", "one");
    make_file(w, "d/b", "two");
    assert_int_equal(vfs_rename(w->vfs, "d/a", "d/b"), 0);
    assert_int_equal(vfs_rename(w->vfs, "d/a", "d/b"), ERR_NOT_FOUND);
    assert_content(w, "d/b", "one");
    assert_int_equal(vfs_sync_dir(w->vfs, "d"), 0);
    assert_int_equal(vfs_sync_dir(w->vfs, ""), 0);
    struct buf names = {0};
    assert_int_equal(vfs_list(w->vfs, "d", collect, &names), 0);
    assert_true(str_eq(buf_str(&names), STR("b ")));
    for (char name[] = "d/c"; name[2] < 'z'; name[2]++)
        make_file(w, name, "");
    assert_int_equal(vfs_list(w->vfs, "d", collect, &names), ERR_LIMIT);
    assert_int_equal(vfs_list(w->vfs, "e", collect, &names), ERR_NOT_FOUND);
    buf_deinit(&names);
    assert_int_equal(vfs_remove(w->vfs, "d/b"), 0);
    assert_int_equal(vfs_remove(w->vfs, "d/b"), ERR_NOT_FOUND);
    uint64_t bytes = 0;
    assert_int_equal(vfs_free_bytes(w->vfs, &bytes), 0);
    assert_true(bytes > 0);
}

/* A file that has lost its name is there as long as it is open. */
static void test_removed_while_open(void **state)
{
    struct world *w = *state;
    char text[3];
    make_file(w, "a", "old");
    struct file *f = open_file(w, "a", VFS_WRITE);
    assert_int_equal(vfs_remove(w->vfs, "a"), 0);
    make_file(w, "a", "new");
    assert_int_equal(vfs_read_all(f, 0, text, 3), 0);
    assert_memory_equal(text, "old", 3);
    assert_int_equal(vfs_write(f, 0, STR("odd")), 0);
    vfs_close(f);
    assert_content(w, "a", "new");
}

/* -- the real one ------------------------------------------------------------------------------ */

#define BYTES 3000

static void test_short_counts(void **state)
{
    struct world *w = *state;
    char out[BYTES], in[BYTES];
    struct iovec pieces[40];
    for (int i = 0; i < BYTES; i++)
        out[i] = (char)(i * 7);
    for (int i = 0; i < 40; i++) /* more than go at once, some of them empty */
        pieces[i] = (struct iovec){out + i * 75, i % 5 == 4 ? 0 : i % 5 == 3 ? 150 : 75};
    struct file *f = open_file(w, "a", VFS_CREATE);
    for (kernel.at_most = 1; kernel.at_most <= BYTES; kernel.at_most = kernel.at_most * 3 + 1) {
        kernel.interruptions = 2;
        assert_int_equal(vfs_writev(f, 10, pieces, 40), 0);
        kernel.interruptions = 2;
        memset(in, 0, sizeof in);
        assert_int_equal(vfs_read_all(f, 10, in, BYTES), 0);
        assert_memory_equal(in, out, BYTES);
        assert_int_equal(vfs_truncate(f, 0), 0);
    }
    vfs_close(f);
}

static void test_errors(void **state)
{
    static const struct {
        int error, err;
    } rows[] = {{ENOSPC, ERR_FULL}, {EDQUOT, ERR_FULL}, {EIO, ERR_IO}, {EROFS, ERR_IO}};
    struct world *w = *state;
    char text[4];
    struct file *f = open_file(w, "a", VFS_CREATE);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kernel.error = rows[i].error;
        assert_int_equal(vfs_write(f, 0, STR("text")), rows[i].err);
        assert_int_equal(vfs_sync(f), rows[i].err);
        assert_int_equal(vfs_read_all(f, 0, text, 4), rows[i].err);
    }
    vfs_close(f);
}

/* Not even when a signal came in between: nobody knows what the kernel has forgotten by then. */
static void test_sync_is_called_once(void **state)
{
    struct world *w = *state;
    struct file *f = open_file(w, "a", VFS_CREATE);
    kernel.interruptions = 1;
    assert_int_equal(vfs_sync(f), ERR_IO);
    assert_int_equal(kernel.syncs, 1);
    assert_int_equal(vfs_sync(f), 0);
    assert_int_equal(kernel.syncs, 2);
    vfs_close(f);
}

#ifdef __linux__
/* The kernel tells of a write that failed once: here, or by a sync. */
static void test_write_back(void **state)
{
    struct world *w = *state;
    struct file *f = open_file(w, "a", VFS_CREATE);
    assert_int_equal(vfs_write(f, 0, STR("some bytes")), 0);
    assert_int_equal(vfs_write_back(f, 0, 10), 0);
    assert_int_equal(kernel.write_backs, 1);
    assert_int_equal(kernel.syncs, 0);
    kernel.error = EIO;
    assert_int_equal(vfs_write_back(f, 0, 10), ERR_IO);
    kernel.error = ENOSPC;
    assert_int_equal(vfs_write_back(f, 0, 10), ERR_FULL);
    kernel.error = ENOSYS; /* there is no such call: nothing has failed */
    assert_int_equal(vfs_write_back(f, 0, 10), 0);
    vfs_close(f);
}
#endif

static void test_failed_write_back(void **state)
{
    struct world *w = *state;
    size_t lost = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct file *f = open_file(w, "a", VFS_CREATE);
        vfs_sync_dir(w->vfs, "");
        assert_int_equal(vfs_write(f, 0, STR("some bytes")), 0);
        simfs_fail(w->sim, SIMFS_WRITE_BACK, 1, ERR_IO);
        assert_int_equal(vfs_write_back(f, 0, 10), ERR_IO);
        assert_int_equal(vfs_sync(f), 0); /* knows nothing of it */
        vfs_close(f);
        simfs_crash(w->sim, seed);
        struct str content = simfs_content(w->sim, "a");
        lost += !str_eq(content, STR("some bytes"));
        simfs_free(w->sim);
        w->sim = simfs_new(seed);
        w->vfs = simfs_vfs(w->sim);
    }
    assert_in_range(lost, 1, 19);
}

static void test_second_server_is_turned_away(void **state)
{
    struct world *w = *state;
    char why[256] = "", pid[32];
    assert_null(vfs_posix_new(w->dir, why, sizeof why));
    snprintf(pid, sizeof pid, "(process %ld)", (long)getpid());
    assert_non_null(strstr(why, w->dir));
    assert_non_null(strstr(why, "used by another server"));
    assert_non_null(strstr(why, pid));
    vfs_free(w->vfs);
    w->vfs = vfs_posix_new(w->dir, why, sizeof why); /* the lock goes with its holder */
    assert_non_null(w->vfs);
}

static void test_directory_that_cannot_be_used(void **state)
{
    struct world *w = *state;
    char path[128], why[256] = "";
    snprintf(path, sizeof path, "%s/missing/data", w->dir);
    assert_null(vfs_posix_new(path, why, sizeof why));
    assert_non_null(strstr(why, "cannot make the data directory"));
    snprintf(path, sizeof path, "%s/lock", w->dir);
    assert_null(vfs_posix_new(path, why, sizeof why));
    assert_non_null(strstr(why, "cannot use the data directory"));
}

/* A child must not inherit the lock, or the files of a server that is gone stay locked. */
static void test_descriptors_are_not_inherited(void **state)
{
    struct world *w = *state;
    struct file *f = open_file(w, "a", VFS_CREATE);
    int fds[] = {posix_of(w->vfs)->dir, posix_of(w->vfs)->lock, fd_of(f)};
    for (size_t i = 0; i < 3; i++)
        assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
    vfs_close(f);
}

/* The process may go elsewhere. */
static void test_another_working_directory(void **state)
{
    struct world *w = *state;
    char before[512];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir("/"), 0);
    make_file(w, "a", "here");
    assert_int_equal(chdir(before), 0);
    assert_content(w, "a", "here");
}

/* -- the simulated one ------------------------------------------------------------------------- */

#define SECTOR 512

static void make_synced(struct world *w, const char *name, char fill, size_t n)
{
    char bytes[8 * SECTOR];
    memset(bytes, fill, n);
    struct file *f = open_file(w, name, VFS_CREATE);
    assert_int_equal(vfs_write(f, 0, str_of(bytes, n)), 0);
    assert_int_equal(vfs_sync(f), 0);
    assert_int_equal(vfs_sync_dir(w->vfs, ""), 0);
    vfs_close(f);
}

static void write_fill(struct world *w, const char *name, uint64_t at, char fill, size_t n)
{
    char bytes[8 * SECTOR];
    memset(bytes, fill, n);
    struct file *f = open_file(w, name, VFS_WRITE);
    assert_int_equal(vfs_write(f, at, str_of(bytes, n)), 0);
    vfs_close(f);
}

/* Whether every sector is all of one byte; notes which bytes were seen. */
static bool read_sectors(struct str s, char *seen)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != s.p[i / SECTOR * SECTOR])
            return false;
        seen[i / SECTOR] = s.p[i];
    }
    return true;
}

static void test_crash_keeps_what_was_synced(void **state)
{
    struct world *w = *state;
    char seen[8];
    bool kept = false, lost = false, torn = false;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        simfs_put(w->sim, "a", STR(""));
        vfs_remove(w->vfs, "a");
        vfs_sync_dir(w->vfs, "");
        make_synced(w, "a", 's', 8 * SECTOR);
        write_fill(w, "a", 2 * SECTOR, 'n', 3 * SECTOR);
        simfs_crash(w->sim, seed);
        struct str s = simfs_content(w->sim, "a");
        assert_int_equal(s.n, 8 * SECTOR);
        assert_true(read_sectors(s, seen));
        for (int i = 0; i < 8; i++)
            assert_true(seen[i] == 's' || (i >= 2 && i < 5 && seen[i] == 'n'));
        kept |= memcmp(seen, "ssnnnsss", 8) == 0;
        lost |= memcmp(seen, "ssssssss", 8) == 0;
        torn |= memcmp(seen, "ssnsnsss", 8) == 0;
    }
    assert_true(kept && lost && torn);
}

static void test_crash_and_a_file_that_grew(void **state)
{
    struct world *w = *state;
    char seen[8];
    bool grown = false, zeros = false, same = false;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        simfs_put(w->sim, "a", STR(""));
        write_fill(w, "a", 0, 'n', 2 * SECTOR);
        simfs_crash(w->sim, seed);
        struct str s = simfs_content(w->sim, "a");
        assert_true(read_sectors(s, seen));
        same |= s.n == 0;
        zeros |= s.n == 2 * SECTOR && seen[0] == 0 && seen[1] == 0;
        grown |= s.n == 2 * SECTOR && seen[0] == 'n' && seen[1] == 'n';
    }
    assert_true(grown && zeros && same);
}

static void test_crash_and_names(void **state)
{
    struct world *w = *state;
    unsigned created[2] = {0}, removed[2] = {0}, renamed[2] = {0};
    for (uint64_t seed = 1; seed <= 100; seed++) {
        simfs_put(w->sim, "gone", STR("g"));
        simfs_put(w->sim, "from", STR("f"));
        simfs_put(w->sim, "to", STR("t"));
        vfs_remove(w->vfs, "made");
        assert_int_equal(vfs_sync_dir(w->vfs, ""), 0);
        make_file(w, "made", "m");
        assert_int_equal(vfs_remove(w->vfs, "gone"), 0);
        assert_int_equal(vfs_rename(w->vfs, "from", "to"), 0);
        simfs_crash(w->sim, seed);
        created[simfs_content(w->sim, "made").p != NULL]++;
        removed[simfs_content(w->sim, "gone").p == NULL]++;
        bool moved = simfs_content(w->sim, "from").p == NULL;
        renamed[moved]++;
        assert_true(str_eq(simfs_content(w->sim, "to"), moved ? STR("f") : STR("t")));
    }
    assert_true(created[0] > 0 && created[1] > 0);
    assert_true(removed[0] > 0 && removed[1] > 0);
    assert_true(renamed[0] > 0 && renamed[1] > 0);
}

static void test_synced_names_stay(void **state)
{
    struct world *w = *state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        assert_int_equal(vfs_make_dir(w->vfs, "d"), 0);
        assert_int_equal(vfs_sync_dir(w->vfs, ""), 0);
        make_file(w, "d/a", "");
        assert_int_equal(vfs_sync_dir(w->vfs, "d"), 0);
        make_file(w, "b", "");
        simfs_crash(w->sim, seed);
        assert_non_null(simfs_content(w->sim, "d/a").p);
        vfs_remove(w->vfs, "b");
        vfs_remove(w->vfs, "d/a");
        vfs_sync_dir(w->vfs, "d");
        simfs_free(w->sim);
        w->sim = simfs_new(seed);
        w->vfs = simfs_vfs(w->sim);
    }
}

/* A folder that is lost takes with it what is in it, synced or not. */
static void test_unsynced_folder(void **state)
{
    struct world *w = *state;
    unsigned lost = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        assert_int_equal(vfs_make_dir(w->vfs, "d"), 0);
        make_file(w, "d/a", "");
        assert_int_equal(vfs_sync_dir(w->vfs, "d"), 0);
        simfs_crash(w->sim, seed);
        lost += simfs_content(w->sim, "d/a").p == NULL;
        assert_int_equal(vfs_make_dir(w->vfs, "d"),
                         simfs_content(w->sim, "d/a").p == NULL ? 0 : ERR_EXISTS);
        simfs_free(w->sim);
        w->sim = simfs_new(seed);
        w->vfs = simfs_vfs(w->sim);
    }
    assert_true(lost > 0 && lost < 20);
}

/* The trap: reads show what the disk has lost, and the second sync is happy. */
static void test_failed_sync(void **state)
{
    struct world *w = *state;
    unsigned lost = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        simfs_put(w->sim, "a", STR("old"));
        struct file *f = open_file(w, "a", VFS_WRITE);
        assert_int_equal(vfs_write(f, 0, STR("new")), 0);
        simfs_fail(w->sim, SIMFS_SYNC, 1, ERR_IO);
        assert_int_equal(vfs_sync(f), ERR_IO);
        assert_int_equal(vfs_sync(f), 0);
        assert_true(str_eq(simfs_content(w->sim, "a"), STR("new")));
        vfs_close(f);
        simfs_crash(w->sim, seed);
        lost += str_eq(simfs_content(w->sim, "a"), STR("old"));
    }
    assert_true(lost > 0 && lost < 20);
}

static void test_power_cut_in_the_middle(void **state)
{
    struct world *w = *state;
    struct file *f = open_file(w, "a", VFS_CREATE), *g = NULL;
    simfs_cut_power_at(w->sim, 2);
    assert_int_equal(vfs_write(f, 0, STR("one")), 0);
    assert_false(simfs_is_off(w->sim));
    assert_int_equal(vfs_write(f, 3, STR("two")), ERR_IO);
    assert_true(simfs_is_off(w->sim));
    assert_int_equal(vfs_sync(f), ERR_IO);
    assert_int_equal(vfs_open(w->vfs, "a", VFS_READ, &g), ERR_IO);
    assert_int_equal(vfs_sync_dir(w->vfs, ""), ERR_IO);
    simfs_kill(w->sim);                                     /* and not a crash: nothing is lost */
    assert_int_equal(vfs_write(f, 0, STR("late")), ERR_IO); /* a file of the dead */
    vfs_close(f);
    assert_true(str_starts(simfs_content(w->sim, "a"), STR("one")));
    assert_true(simfs_has_unsynced(w->sim));
}

static void test_capacity(void **state)
{
    struct world *w = *state;
    uint64_t bytes;
    simfs_set_capacity(w->sim, 10);
    make_file(w, "a", "12345678");
    struct file *f = open_file(w, "a", VFS_WRITE);
    assert_int_equal(vfs_write(f, 0, STR("abcdefgh")), 0); /* needs no more */
    assert_int_equal(vfs_write(f, 8, STR("xyz")), ERR_FULL);
    assert_content(w, "a", "abcdefghxy");
    assert_int_equal(vfs_free_bytes(w->vfs, &bytes), 0);
    assert_int_equal(bytes, 0);
    simfs_set_capacity(w->sim, 20);
    assert_int_equal(vfs_write(f, 8, STR("xyz")), 0);
    assert_int_equal(vfs_truncate(f, 30), ERR_FULL);
    vfs_close(f);
    assert_int_equal(vfs_remove(w->vfs, "a"), 0);
    assert_int_equal(vfs_free_bytes(w->vfs, &bytes), 0);
    assert_int_equal(bytes, 20);
}

static void test_same_seed_same_disk(void **state)
{
    struct world *w = *state;
    struct buf first = {0};
    for (int i = 0; i < 2; i++) {
        struct simfs *fs = simfs_new(7);
        struct world other = {.vfs = simfs_vfs(fs)};
        make_synced(&other, "a", 's', 4 * SECTOR);
        write_fill(&other, "a", 0, 'n', 8 * SECTOR);
        simfs_crash(fs, 2);
        if (i == 0)
            buf_put(&first, simfs_content(fs, "a"));
        else
            assert_true(str_eq(buf_str(&first), simfs_content(fs, "a")));
        simfs_free(fs);
    }
    buf_deinit(&first);
    assert_int_equal(simfs_bytes(w->sim), 0); /* and not this one */
}

int main(void)
{
#define REAL(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define SIM(f)  cmocka_unit_test_setup_teardown(f, setup_sim, teardown)
    const struct CMUnitTest tests[] = {
        REAL(test_files),
        SIM(test_files),
        REAL(test_names),
        SIM(test_names),
        REAL(test_removed_while_open),
        SIM(test_removed_while_open),
        REAL(test_short_counts),
        REAL(test_errors),
        REAL(test_sync_is_called_once),
#ifdef __linux__
        REAL(test_write_back),
#endif
        SIM(test_failed_write_back),
        REAL(test_second_server_is_turned_away),
        REAL(test_directory_that_cannot_be_used),
        REAL(test_descriptors_are_not_inherited),
        REAL(test_another_working_directory),
        SIM(test_crash_keeps_what_was_synced),
        SIM(test_crash_and_a_file_that_grew),
        SIM(test_crash_and_names),
        SIM(test_synced_names_stay),
        SIM(test_unsynced_folder),
        SIM(test_failed_sync),
        SIM(test_power_cut_in_the_middle),
        SIM(test_capacity),
        SIM(test_same_seed_same_disk),
    };
    return cmocka_run_group_tests_name("vfs", tests, NULL, NULL);
}
