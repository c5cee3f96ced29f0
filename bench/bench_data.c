// SPDX-License-Identifier: Apache-2.0
#include "bench_data.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LOOK_EVERY_NS 2000000u
#define COMMIT_NS     500000000u

int data_make(const char *under, char path[DATA_PATH_MAX])
{
    if ((size_t)snprintf(path, DATA_PATH_MAX, "%s/tidemark-bench-XXXXXX", under) < DATA_PATH_MAX &&
        mkdtemp(path))
        return 0;
    fprintf(stderr, "bench: cannot make a folder in %s: %s\n", under, strerror(errno));
    path[0] = '\0';
    return -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

void data_remove(const char *path)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
        fprintf(stderr, "bench: cannot remove %s: %s\n", path, strerror(errno));
}

const char *data_file_system(const char *path, bool *memory)
{
    static const struct {
        uint32_t type;
        const char *name;
        bool memory;
    } known[] = {
        {EXT4_SUPER_MAGIC, "ext4", false},
        {XFS_SUPER_MAGIC, "xfs", false},
        {BTRFS_SUPER_MAGIC, "btrfs", false},
        {F2FS_SUPER_MAGIC, "f2fs", false},
        {OVERLAYFS_SUPER_MAGIC, "overlay", false},
        {NFS_SUPER_MAGIC, "nfs", false},
        {TMPFS_MAGIC, "tmpfs", true},
        {RAMFS_MAGIC, "ramfs", true},
    };
    struct statfs fs;
    *memory = false;
    if (statfs(path, &fs) != 0)
        return "unknown";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].type == (uint32_t)fs.f_type) {
            *memory = known[i].memory;
            return known[i].name;
        }
    return "another file system";
}

bool data_has_room(const char *path, uint64_t bytes)
{
    struct statvfs fs;
    return access(path, W_OK) == 0 && statvfs(path, &fs) == 0 &&
           (uint64_t)fs.f_bavail * fs.f_frsize >= bytes;
}

uint64_t data_disk_written(const char *path)
{
    const unsigned sector = 512; /* whatever the disk's own are */
    char name[64];
    struct stat st;
    unsigned long long sectors = 0;
    if (stat(path, &st) != 0)
        return 0;
    snprintf(name, sizeof name, "/sys/dev/block/%u:%u/stat", major(st.st_dev), minor(st.st_dev));
    FILE *f = fopen(name, "re");
    if (!f)
        return 0;
    if (fscanf(f, "%*u %*u %*u %*u %*u %*u %llu", &sectors) != 1)
        sectors = 0;
    fclose(f);
    return sectors * sector;
}

/* ---- the segments and the page cache ---- */

static void each_segment(const char *path, void (*each)(int fd, size_t size, void *arg), void *arg)
{
    char name[DATA_PATH_MAX + NAME_MAX + 16];
    snprintf(name, sizeof name, "%s/segments", path);
    DIR *dir = opendir(name);
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir));) {
        snprintf(name, sizeof name, "%s/segments/%s", path, e->d_name);
        struct stat st;
        int fd = open(name, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
            each(fd, (size_t)st.st_size, arg);
        if (fd >= 0)
            close(fd);
    }
    closedir(dir);
}

static void count_cached(int fd, size_t size, void *arg)
{
    struct data_cached *sum = arg;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (size + page - 1) / page;
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *there = calloc(pages, 1);
    sum->bytes += size;
    if (map != MAP_FAILED && there && mincore(map, size, there) == 0)
        for (size_t i = 0; i < pages; i++)
            sum->cached += there[i] & 1 ? (i + 1 < pages ? page : size - i * page) : 0;
    free(there);
    if (map != MAP_FAILED)
        munmap(map, size);
}

struct data_cached data_segments_cached(const char *path)
{
    struct data_cached sum = {0, 0};
    each_segment(path, count_cached, &sum);
    return sum;
}

static void evict(int fd, size_t size, void *arg)
{
    fdatasync(fd); /* what is not on disk stays */
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

void data_segments_evict(const char *path)
{
    each_segment(path, evict, NULL);
}

/* ---- checkpoints ---- */

int checkpoint_watch_open(struct checkpoint_watch *w, const char *path)
{
    char segments[DATA_PATH_MAX + 16];
    snprintf(segments, sizeof segments, "%s/segments", path);
    *w = (struct checkpoint_watch){.fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
    if (w->fd < 0)
        return -1;
    w->segments = inotify_add_watch(w->fd, segments, IN_CREATE);
    w->index = inotify_add_watch(w->fd, path, IN_MODIFY);
    if (w->segments >= 0 && w->index >= 0)
        return 0;
    close(w->fd);
    return -1;
}

void checkpoint_watch_close(struct checkpoint_watch *w)
{
    close(w->fd);
}

/* The reserve is kept in the same folder. */
static bool is_new_segment(const struct inotify_event *e)
{
    const char *dot = e->len > 0 ? strrchr(e->name, '.') : NULL;
    return dot && strcmp(dot, ".new") == 0;
}

/* The first write to the index behind the segment, and those that follow at once. The next
 * checkpoint may begin with one that gives the index more room. */
static bool is_commit(const struct checkpoint_watch *w, const struct inotify_event *e,
                      uint64_t now_ns)
{
    uint64_t to_ns = w->spans[w->n - 1].to_ns;
    return e->len > 0 && strcmp(e->name, "index.mdb") == 0 &&
           (to_ns == UINT64_MAX || now_ns - to_ns < COMMIT_NS);
}

static void note(struct checkpoint_watch *w, const struct inotify_event *e, uint64_t now_ns)
{
    if (e->wd == w->segments && is_new_segment(e) && w->n < CHECKPOINTS_MAX) {
        w->spans[w->n].from_ns = now_ns;
        w->spans[w->n++].to_ns = UINT64_MAX; /* until the index is written */
    } else if (e->wd == w->index && w->n > 0 && is_commit(w, e, now_ns)) {
        w->spans[w->n - 1].to_ns = now_ns;
    }
}

void checkpoint_watch_look(struct checkpoint_watch *w, uint64_t now_ns)
{
    char bytes[4096] __attribute__((aligned(8)));
    ssize_t n;
    if (now_ns - w->looked_ns < LOOK_EVERY_NS)
        return;
    w->looked_ns = now_ns;
    while ((n = read(w->fd, bytes, sizeof bytes)) > 0)
        for (const char *p = bytes; p < bytes + n;) {
            const struct inotify_event *e = (const struct inotify_event *)(const void *)p;
            note(w, e, now_ns);
            p += sizeof *e + e->len;
        }
}

bool checkpoint_watch_covers(const struct checkpoint_watch *w, uint64_t from_ns, uint64_t to_ns)
{
    for (unsigned i = 0; i < w->n; i++)
        if (to_ns + CHECKPOINT_MARGIN_NS >= w->spans[i].from_ns &&
            from_ns - CHECKPOINT_MARGIN_NS <= w->spans[i].to_ns)
            return true;
    return false;
}
