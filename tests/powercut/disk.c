// SPDX-License-Identifier: Apache-2.0
/* disk.c -- a disk with a volatile write cache, whose power can be cut: disk IMAGE MOUNTPOINT
 *
 * A FUSE file system that is one file, mounted over the file MOUNTPOINT; with a loop device over
 * it, a disk for a real file system. What is written stays in memory, and shows in reads, until a
 * flush (fsync) brings it to IMAGE. So IMAGE is at any time what was flushed and nothing else.
 *
 * A line on standard input orders a cut: `cut POLICY SEED AFTER`, at the AFTERth write or flush
 * from now on, or at once if that is 0. An order replaces one that waits. What of the unflushed
 * writes has reached IMAGE follows from the policy and the seed:
 *
 *   drop     nothing
 *   prefix   the first so many
 *   subset   any of them
 *   torn     any of them, and of some any of their 512-byte sectors
 *
 * One line on standard output says how it went. A write that meets the cut is one of the unflushed;
 * a flush that meets it has not happened. From then on everything fails with EIO. The program ends
 * when the file is unmounted and nobody has it open any more, or with its input; what was not
 * flushed then is lost. */
#define FUSE_USE_VERSION 34
#include <fuse3/fuse_lowlevel.h>

#include "model/seeds.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define SECTOR       512
#define ATTR_SECONDS 3600.0 /* the file stays as it is */

struct write {
    struct write *next;
    uint64_t at;
    size_t n;
    char data[];
};

enum policy { DROP, PREFIX, SUBSET, TORN, POLICIES };
static const char *const policy_names[POLICIES] = {"drop", "prefix", "subset", "torn"};

struct disk {
    int image;
    struct stat stat;
    struct write *first, **end; /* not flushed, oldest first */
    uint64_t n_pending;
    bool off;
    enum policy policy; /* of the cut that was ordered */
    struct rng rng;
    uint64_t cut_in; /* writes and flushes until then; 0: none was ordered */
};

/* ---- the image ---- */

static void image_write(struct disk *d, const char *data, uint64_t at, size_t n)
{
    for (ssize_t done; n > 0; data += done, at += (size_t)done, n -= (size_t)done)
        if ((done = pwrite(d->image, data, n, (off_t)at)) <= 0)
            err(1, "cannot write the image");
}

static void image_read(struct disk *d, char *data, uint64_t at, size_t n)
{
    for (ssize_t done; n > 0; data += done, at += (size_t)done, n -= (size_t)done)
        if ((done = pread(d->image, data, n, (off_t)at)) <= 0)
            err(1, "cannot read the image");
}

/* ---- the cache ---- */

static void cache_add(struct disk *d, const char *data, uint64_t at, size_t n)
{
    struct write *w = malloc(sizeof *w + n);
    if (w == NULL)
        err(1, "cannot cache a write");
    *w = (struct write){.at = at, .n = n};
    memcpy(w->data, data, n);
    *d->end = w;
    d->end = &w->next;
    d->n_pending++;
}

static void cache_clear(struct disk *d)
{
    for (struct write *w = d->first, *next; w != NULL; w = next) {
        next = w->next;
        free(w);
    }
    d->first = NULL;
    d->end = &d->first;
    d->n_pending = 0;
}

static void cache_flush(struct disk *d)
{
    for (struct write *w = d->first; w != NULL; w = w->next)
        image_write(d, w->data, w->at, w->n);
    cache_clear(d);
}

/* Puts what is cached over the bytes that were read from the image. */
static void cache_overlay(const struct disk *d, char *data, uint64_t at, size_t n)
{
    for (const struct write *w = d->first; w != NULL; w = w->next) {
        uint64_t from = w->at > at ? w->at : at;
        uint64_t to = w->at + w->n < at + n ? w->at + w->n : at + n;
        if (from < to)
            memcpy(data + (from - at), w->data + (from - w->at), to - from);
    }
}

/* ---- the cut ---- */

/* At least one sector stays away, or it would not be torn. */
static void tear(struct disk *d, const struct write *w)
{
    uint64_t sectors = w->n / SECTOR, lost = rng_below(&d->rng, sectors);
    for (uint64_t i = 0; i < sectors; i++)
        if (i != lost && rng_one_in(&d->rng, 2))
            image_write(d, w->data + i * SECTOR, w->at + i * SECTOR, SECTOR);
}

static void cut_power(struct disk *d)
{
    uint64_t n = 0, kept = 0, torn = 0, prefix = rng_below(&d->rng, d->n_pending + 1);
    for (const struct write *w = d->first; w != NULL; w = w->next, n++) {
        bool tears = d->policy == TORN && w->n > SECTOR && rng_one_in(&d->rng, 2);
        bool keeps = d->policy == PREFIX ? n < prefix : d->policy != DROP && rng_one_in(&d->rng, 2);
        if (tears) {
            tear(d, w);
            torn++;
        } else if (keeps) {
            image_write(d, w->data, w->at, w->n);
            kept++;
        }
    }
    printf("%s: %" PRIu64 " pending, %" PRIu64 " kept, %" PRIu64 " torn, %" PRIu64 " dropped\n",
           policy_names[d->policy], n, kept, torn, n - kept - torn);
    cache_clear(d);
    d->off = true;
    d->cut_in = 0;
}

/* Counts a write that is in the cache, or a flush that is to come: is the power still on? */
static bool power_lasts(struct disk *d)
{
    if (d->cut_in > 0 && --d->cut_in == 0)
        cut_power(d);
    return !d->off;
}

static void take_order(struct disk *d, const char *line)
{
    char name[16];
    uint64_t seed, after;
    if (sscanf(line, "cut %15s %" SCNu64 " %" SCNu64, name, &seed, &after) != 3)
        errx(1, "not an order: %s", line);
    enum policy policy = DROP;
    while (policy < POLICIES && strcmp(name, policy_names[policy]) != 0)
        policy++;
    if (policy == POLICIES)
        errx(1, "not a policy: %s", name);
    if (d->off)
        return;
    d->policy = policy;
    d->rng = (struct rng){seed};
    d->cut_in = after;
    if (after == 0)
        cut_power(d);
}

/* ---- requests of the kernel ---- */

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct disk *d = fuse_req_userdata(req);
    fuse_reply_attr(req, &d->stat, ATTR_SECONDS);
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    fi->direct_io = true; /* no second cache between the disk and its users */
    fuse_reply_open(req, fi);
}

static void on_read(fuse_req_t req, fuse_ino_t ino, size_t n, off_t at, struct fuse_file_info *fi)
{
    struct disk *d = fuse_req_userdata(req);
    if (d->off) {
        fuse_reply_err(req, EIO);
        return;
    }
    size_t left = at < d->stat.st_size ? (size_t)(d->stat.st_size - at) : 0;
    n = n < left ? n : left;
    char *data = malloc(n + 1);
    if (data == NULL)
        err(1, "cannot read");
    image_read(d, data, (uint64_t)at, n);
    cache_overlay(d, data, (uint64_t)at, n);
    fuse_reply_buf(req, data, n);
    free(data);
}

static void on_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t n, off_t at,
                     struct fuse_file_info *fi)
{
    struct disk *d = fuse_req_userdata(req);
    if (at % SECTOR != 0 || n % SECTOR != 0 || at + (off_t)n > d->stat.st_size) {
        fuse_reply_err(req, EINVAL); /* no block device would */
        return;
    }
    if (!d->off)
        cache_add(d, data, (uint64_t)at, n);
    if (power_lasts(d))
        fuse_reply_write(req, n);
    else
        fuse_reply_err(req, EIO);
}

static void on_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    struct disk *d = fuse_req_userdata(req);
    bool powered = power_lasts(d);
    if (powered)
        cache_flush(d);
    fuse_reply_err(req, powered ? 0 : EIO);
}

static const struct fuse_lowlevel_ops ops = {
    .getattr = on_getattr,
    .open = on_open,
    .read = on_read,
    .write = on_write,
    .fsync = on_fsync,
};

/* ---- the program ---- */

/* Leaves the mount to the others. Who holds one of this disk's mounts may be the last to hold the
 * file system on it too, and would have to serve its own unmounting while it ends. */
static void leave_mounts(const char *mountpoint)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        umount2(mountpoint, MNT_DETACH) != 0)
        err(1, "cannot leave the mounts");
}

/* Orders are short and written whole, so lines do not come in parts. */
static bool serve_orders(struct disk *d)
{
    char lines[4096], *rest = lines;
    ssize_t n = read(STDIN_FILENO, lines, sizeof lines - 1);
    if (n <= 0)
        return false;
    lines[n] = '\0';
    for (const char *line; (line = strtok_r(NULL, "\n", &rest)) != NULL;)
        take_order(d, line);
    return true;
}

static bool serve_request(struct fuse_session *session, struct fuse_buf *buf)
{
    int n = fuse_session_receive_buf(session, buf);
    if (n > 0)
        fuse_session_process_buf(session, buf);
    return n > 0 || n == -EINTR || n == -EAGAIN;
}

static void serve(struct disk *d, struct fuse_session *session)
{
    struct fuse_buf buf = {0};
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                           {.fd = fuse_session_fd(session), .events = POLLIN}};
    for (bool going = true; going && !fuse_session_exited(session);) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            err(1, "cannot wait");
        if (fds[0].revents != 0)
            going = serve_orders(d);
        if (going && fds[1].revents != 0)
            going = serve_request(session, &buf);
    }
    free(buf.mem);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        errx(2, "usage: disk IMAGE MOUNTPOINT");
    struct disk d = {.image = open(argv[1], O_RDWR | O_CLOEXEC), .end = &d.first};
    if (d.image < 0 || fstat(d.image, &d.stat) != 0)
        err(1, "%s", argv[1]);
    signal(SIGINT, SIG_IGN); /* meant for whoever gives the orders, and cuts the power if need be */
    setvbuf(stdout, NULL, _IOLBF, 0);

    struct fuse_args args = FUSE_ARGS_INIT(1, argv);
    struct fuse_session *session = fuse_session_new(&args, &ops, sizeof ops, &d);
    if (session == NULL || fuse_session_mount(session, argv[2]) != 0)
        errx(1, "cannot mount over %s", argv[2]);
    leave_mounts(argv[2]);
    puts("ready");
    serve(&d, session);
    if (fuse_session_exited(session)) /* then this only frees a name; else it is for others to do */
        fuse_session_unmount(session);
    fuse_session_destroy(session);
    fuse_opt_free_args(&args);
    cache_clear(&d);
    close(d.image);
    return 0;
}
