// SPDX-License-Identifier: Apache-2.0
/* A process is looked at through one open folder, /proc/PID: it stays that of this process, and is
 * empty when the process is gone, whoever gets the number next. */
#include "feature/cascade/cascade_discovery.h"

#include "base/ascii.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/units.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PROGRAM         "language_server_linux"
#define TOKEN_VARIABLE  "WINDSURF_CSRF_TOKEN="
#define GUESSED_PORT    3 /* above the extension server's */

#define CANDIDATES_MAX  64
#define LISTENERS_MAX   65536
#define SOCKETS_MAX     65536
#define CMDLINE_MAX     (256 * KIB)
#define ENVIRON_MAX     MIB
#define STATUS_MAX      (4 * KIB) /* what we want of it stands at the top */
#define REASONS_MAX     8

#define STAT_START_TIME 19 /* fields behind the state, which is behind the name */
#define TCP_LISTEN      0x0a

/* ---- files ---- */

/* At most max bytes of it into *out, all of it at once, so that what is secret has one copy. Those
 * that have more are cut. 0 or the errno. */
static int cascade_discovery_read_at(int dir, const char *name, size_t max, struct buf *out)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno;
    char *p = buf_reserve(out, max);
    size_t n = 0;
    ssize_t got = 0;
    while (n < max && ((got = read(fd, p + n, max - n)) > 0 || (got < 0 && errno == EINTR)))
        n += got > 0 ? (size_t)got : 0;
    int err = got < 0 ? errno : 0;
    close(fd);
    out->n += err == 0 ? n : 0;
    return err;
}

static void wipe(struct buf *b)
{
    if (b->cap > 0)
        explicit_bzero(b->p, b->cap);
    buf_deinit(b);
}

static struct str link_at(int dir, const char *name, char *out, size_t size)
{
    ssize_t n = readlinkat(dir, name, out, size);
    return n < 0 || (size_t)n == size ? STR_NONE : str_of(out, (size_t)n);
}

/* ---- listening sockets ---- */

struct port_listener {
    uint64_t inode;
    uid_t uid;
    uint16_t port;
};

struct listeners {
    struct port_listener *items;
    size_t n;
};

/* Whether 127.0.0.1 leads there. An address is written as words of the machine's, each of which
 * has its bytes in the network's order. */
static bool is_local(const char *hex)
{
    static const uint8_t mapped[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    static const uint8_t any[16], loopback[] = {127, 0, 0, 1};
    uint8_t bytes[16];
    size_t n = strlen(hex) / 8;
    if (strlen(hex) % 8 != 0 || (n != 1 && n != 4))
        return false;
    for (size_t i = 0; i < n; i++) {
        char word[9] = {0};
        memcpy(word, hex + 8 * i, 8);
        uint32_t v = (uint32_t)strtoul(word, NULL, 16);
        memcpy(bytes + 4 * i, &v, 4);
    }
    if (memcmp(bytes, any, 4 * n) == 0)
        return true;
    const uint8_t *last = bytes + 4 * (n - 1);
    return memcmp(last, loopback, 4) == 0 && (n == 1 || memcmp(bytes, mapped, 12) == 0);
}

static bool parse_listener(const char *line, struct port_listener *out)
{
    char address[33];
    unsigned port, state, uid;
    unsigned long long inode;
    if (sscanf(line, " %*u: %32[0-9A-F]:%4x %*s %2x %*s %*s %*s %u %*u %llu", address, &port,
               &state, &uid, &inode) != 5)
        return false;
    if (state != TCP_LISTEN || port == 0 || !is_local(address))
        return false;
    *out = (struct port_listener){inode, (uid_t)uid, (uint16_t)port};
    return true;
}

static void read_listeners(int proc, const char *name, struct listeners *out)
{
    char line[512];
    struct port_listener l;
    int fd = openat(proc, name, O_RDONLY | O_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (f == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while (out->n < LISTENERS_MAX && fgets(line, sizeof line, f) != NULL) {
        if (!parse_listener(line, &l))
            continue;
        if (out->n % 64 == 0)
            out->items = mem_realloc(out->items, (out->n + 64) * sizeof *out->items);
        out->items[out->n++] = l;
    }
    fclose(f);
}

static const struct port_listener *listener_of(const struct listeners *all, uint64_t inode)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i].inode == inode)
            return &all->items[i];
    return NULL;
}

static bool has_listener(const struct listeners *all, uid_t uid, uint64_t port)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i].uid == uid && all->items[i].port == port)
            return true;
    return false;
}

/* ---- one process ---- */

struct found_process {
    int dir; /* -1: not open */
    pid_t pid;
    uint64_t started; /* clock ticks */
    struct buf cmdline;
};

static void process_close(struct found_process *p)
{
    if (p->dir >= 0)
        close(p->dir);
    p->dir = -1;
    wipe(&p->cmdline);
}

/* The value of `--name VALUE` or `--name=VALUE`; the last one counts. Empty: there is none. */
static struct str flag(const struct found_process *p, struct str name)
{
    struct str rest = buf_str(&p->cmdline), value = STR_NONE;
    while (rest.n > 0) {
        struct str arg = str_cut(&rest, '\0');
        if (!str_starts(arg, name))
            continue;
        struct str behind = str_skip(arg, name.n);
        if (behind.n > 0 && behind.p[0] == '=') {
            value = str_skip(behind, 1);
        } else if (behind.n == 0 && rest.n > 0) {
            struct str next = rest;
            value = str_cut(&next, '\0');
        }
    }
    return value;
}

/* PID (NAME) STATE ... and so on; the name may hold anything. */
static bool read_stat(struct found_process *p, struct buf *scratch)
{
    scratch->n = 0;
    if (cascade_discovery_read_at(p->dir, "stat", STATUS_MAX, scratch) != 0 || scratch->n == 0)
        return false;
    struct str rest = buf_str(scratch);
    const char *paren = memrchr(rest.p, ')', rest.n);
    if (paren == NULL || paren + 2 >= rest.p + rest.n)
        return false;
    rest = str_skip(rest, (size_t)(paren + 2 - rest.p));
    struct str state = str_cut(&rest, ' '), field = STR_NONE;
    for (int i = 0; i < STAT_START_TIME; i++)
        field = str_cut(&rest, ' ');
    if (str_eq(state, STR("Z")) || str_eq(state, STR("X")))
        return false;
    return num_parse(field, UINT64_MAX, &p->started) == 0;
}

/* Uid: four of them, as it runs in part as another user otherwise. */
static bool is_of_user(const struct found_process *p, uid_t uid, struct buf *scratch)
{
    unsigned ids[4];
    scratch->n = 0;
    if (cascade_discovery_read_at(p->dir, "status", STATUS_MAX, scratch) != 0)
        return false;
    buf_putc(scratch, '\0');
    const char *line = strstr(scratch->p, "\nUid:");
    if (line == NULL || sscanf(line, "\nUid: %u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) != 4)
        return false;
    return ids[0] == uid && ids[1] == uid && ids[2] == uid && ids[3] == uid;
}

static struct str base_name(struct str path)
{
    const char *slash = path.n > 0 ? memrchr(path.p, '/', path.n) : NULL;
    return slash == NULL ? path : str_skip(path, (size_t)(slash + 1 - path.p));
}

static bool has_folder(struct str path, struct str folder)
{
    while (path.p != NULL) {
        struct str part = str_cut(&path, '/');
        if (path.p != NULL && str_eq_nocase(part, folder))
            return true;
    }
    return false;
}

/* The program's file, also if an update has replaced it. */
static struct str program_path(const struct found_process *p, char out[PATH_MAX])
{
    struct str path = link_at(p->dir, "exe", out, PATH_MAX), deleted = STR(" (deleted)");
    if (path.n > deleted.n && str_eq(str_skip(path, path.n - deleted.n), deleted))
        path.n -= deleted.n;
    return path;
}

static bool is_language_server(const struct found_process *p)
{
    char exe_path[PATH_MAX];
    struct str exe = program_path(p, exe_path), rest = buf_str(&p->cmdline);
    struct str called = str_cut(&rest, '\0');
    if (!str_starts(base_name(called), STR(PROGRAM)) && !str_starts(base_name(exe), STR(PROGRAM)))
        return false;
    struct str ide = flag(p, STR("--ide_name"));
    if (ide.n > 0)
        return str_eq_nocase(ide, STR("windsurf"));
    return has_folder(called, STR("windsurf")) || has_folder(exe, STR("windsurf"));
}

/* False: it is not what we look for; then it is closed. */
static bool process_open(struct found_process *p, int proc, pid_t pid, uid_t uid)
{
    char name[NUM_TEXT_MAX + 1] = {0};
    struct buf scratch = {0};
    num_format((uint64_t)pid, name);
    *p = (struct found_process){.pid = pid};
    p->dir = openat(proc, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    bool ok = p->dir >= 0 && is_of_user(p, uid, &scratch) && read_stat(p, &scratch) &&
              cascade_discovery_read_at(p->dir, "cmdline", CMDLINE_MAX, &p->cmdline) == 0 &&
              p->cmdline.n < CMDLINE_MAX && is_language_server(p);
    buf_deinit(&scratch);
    if (!ok)
        process_close(p);
    return ok;
}

/* ---- what is wanted of it ---- */

static bool take_token(struct str token, struct cascade_found *out)
{
    if (!cascade_csrf_valid(token))
        return false;
    memcpy(out->csrf_token, token.p, token.n);
    out->csrf_token[token.n] = '\0';
    return true;
}

/* NULL, or why there is none. */
static const char *find_token(const struct found_process *p, struct cascade_found *out)
{
    struct buf environment = {0};
    bool found = false;
    int err = cascade_discovery_read_at(p->dir, "environ", ENVIRON_MAX, &environment);
    struct str rest = buf_str(&environment), variable = STR(TOKEN_VARIABLE);
    while (rest.n > 0 && !found) {
        struct str entry = str_cut(&rest, '\0');
        found = str_starts(entry, variable) && take_token(str_skip(entry, variable.n), out);
    }
    wipe(&environment);
    if (found || take_token(flag(p, STR("--csrf_token")), out))
        return NULL;
    return err != 0 ? "its environment cannot be read" : "it has no CSRF token";
}

/* Calls take() for each port that the process listens on. False: its sockets cannot be seen. */
static bool each_port(const struct found_process *p, const struct listeners *all,
                      void (*take)(void *ctx, uint16_t port), void *ctx)
{
    int fd = openat(p->dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    struct dirent *e;
    for (size_t i = 0; i < SOCKETS_MAX && (e = readdir(dir)) != NULL; i++) {
        char target[64] = {0};
        unsigned long long inode;
        link_at(fd, e->d_name, target, sizeof target - 1);
        const struct port_listener *l =
            sscanf(target, "socket:[%llu]", &inode) == 1 ? listener_of(all, inode) : NULL;
        if (l != NULL)
            take(ctx, l->port);
    }
    closedir(dir);
    return true;
}

struct port_choice {
    uint64_t above, lowest, lowest_above; /* 0: none */
};

static void cascade_discovery_choose_port(void *ctx, uint16_t port)
{
    struct port_choice *c = ctx;
    if (c->lowest == 0 || port < c->lowest)
        c->lowest = port;
    if (port > c->above && (c->lowest_above == 0 || port < c->lowest_above))
        c->lowest_above = port;
}

static const char *find_port(const struct found_process *p, uid_t uid, const struct listeners *all,
                             struct cascade_found *out)
{
    struct port_choice c = {0};
    if (num_parse(flag(p, STR("--extension_server_port")), UINT16_MAX, &c.above) != 0)
        c.above = 0;
    uint64_t guess = c.above + GUESSED_PORT;
    if (each_port(p, all, cascade_discovery_choose_port, &c)) {
        out->port = (uint16_t)(c.lowest_above != 0 ? c.lowest_above : c.lowest);
        return out->port != 0 ? NULL : "it does not listen on 127.0.0.1";
    }
    /* A guess must not hand the token to another user. */
    if (c.above == 0 || !has_listener(all, uid, guess))
        return "its sockets cannot be seen";
    out->port = (uint16_t)guess;
    return NULL;
}

static bool is_version(struct str s)
{
    return ascii_is_word(s, ".-") && s.n <= CASCADE_VERSION_MAX;
}

static void find_version(const struct found_process *p, struct cascade_found *out)
{
    struct str rest = flag(p, STR("--windsurf_version")), version = str_cut(&rest, '+');
    if (!is_version(version))
        version = STR(CASCADE_VERSION_DEFAULT);
    memcpy(out->version, version.p, version.n);
    out->version[version.n] = '\0';
}

/* ---- all of them ---- */

struct candidate {
    pid_t pid;
    uint64_t started;
};

static int cascade_discovery_newest_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->started != y->started)
        return x->started > y->started ? -1 : 1;
    return x->pid > y->pid ? -1 : 1;
}

/* How many are in all, newest first. ERR_IO: proc cannot be listed. */
static int find_candidates(int proc, uid_t uid, struct candidate all[CANDIDATES_MAX], size_t *n)
{
    int fd = openat(proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return ERR_IO;
    }
    struct dirent *e;
    *n = 0;
    while (*n < CANDIDATES_MAX && (e = readdir(dir)) != NULL) {
        uint64_t pid;
        struct found_process p;
        if (num_parse_canonical(str_of_cstr(e->d_name), INT_MAX, &pid) != 0 ||
            !process_open(&p, proc, (pid_t)pid, uid))
            continue;
        all[(*n)++] = (struct candidate){p.pid, p.started};
        process_close(&p);
    }
    closedir(dir);
    qsort(all, *n, sizeof *all, cascade_discovery_newest_first);
    return 0;
}

/* NULL: it can be used, and *out is filled in. */
static const char *try_candidate(int proc, uid_t uid, const struct candidate *c,
                                 const struct listeners *all, struct cascade_found *out)
{
    struct found_process p;
    struct cascade_found found = {.pid = c->pid};
    if (!process_open(&p, proc, c->pid, uid))
        return "it has ended";
    const char *reason = find_token(&p, &found);
    if (reason == NULL)
        reason = find_port(&p, uid, all, &found);
    if (reason == NULL) {
        find_version(&p, &found);
        *out = found;
    }
    process_close(&p);
    explicit_bzero(&found, sizeof found);
    return reason;
}

static int try_all(int proc, uid_t uid, const struct candidate *candidates, size_t n,
                   struct cascade_found *out, struct buf *why)
{
    struct listeners all = {0};
    struct buf reasons = {0};
    read_listeners(proc, "net/tcp", &all);
    read_listeners(proc, "net/tcp6", &all);
    int err = ERR_NOT_FOUND;
    for (size_t i = 0; i < n && err != 0; i++) {
        const char *reason = try_candidate(proc, uid, &candidates[i], &all, out);
        if (reason == NULL)
            err = 0;
        else if (i < REASONS_MAX)
            buf_printf(&reasons, "%s process %lld: %s", i == 0 ? "" : ";",
                       (long long)candidates[i].pid, reason);
    }
    if (err != 0)
        buf_printf(why, "no language server of Windsurf can be used:%.*s", (int)reasons.n,
                   reasons.p);
    buf_deinit(&reasons);
    free(all.items);
    return err;
}

int cascade_discover(const char *proc, uid_t uid, struct cascade_found *out, struct buf *why)
{
    struct candidate candidates[CANDIDATES_MAX];
    size_t n;
    int dir = open(proc, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = dir < 0 ? ERR_IO : find_candidates(dir, uid, candidates, &n);
    if (err != 0)
        buf_printf(why, "%s cannot be read: a language server is found by itself on Linux alone",
                   proc);
    else if (n == 0) {
        buf_put(why, STR("no language server of Windsurf is running as this user"));
        err = ERR_NOT_FOUND;
    } else
        err = try_all(dir, uid, candidates, n, out, why);
    if (dir >= 0)
        close(dir);
    return err;
}
