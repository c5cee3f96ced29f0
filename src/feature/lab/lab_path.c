// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab_path.h"
#include "base/buf.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- by letters ---- */

static void put_parts(struct buf *out, struct str path)
{
    while (path.n > 0) {
        struct str part = str_cut(&path, '/');
        if (part.n == 0 || str_eq(part, STR(".")))
            continue;
        if (!str_eq(part, STR(".."))) {
            buf_putc(out, '/');
            buf_put(out, part);
            continue;
        }
        while (out->n > 0 && out->p[--out->n] != '/')
            ;
    }
}

char *lab_path_resolve(const char *base, struct str path)
{
    struct buf out = {0};
    if (path.n == 0 || path.p[0] != '/')
        put_parts(&out, str_of_cstr(base));
    put_parts(&out, path);
    if (out.n == 0)
        buf_putc(&out, '/');
    buf_putc(&out, '\0');
    return out.p;
}

/* ---- roots ---- */

void lab_roots_add(struct lab_roots *r, const char *base, struct str path)
{
    char *absolute = lab_path_resolve(base, path);
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->paths[i], absolute) == 0) {
            free(absolute);
            return;
        }
    r->paths = mem_realloc(r->paths, (r->n + 1) * sizeof *r->paths);
    r->paths[r->n++] = absolute;
}

void lab_roots_deinit(struct lab_roots *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->paths[i]);
    free(r->paths);
    *r = (struct lab_roots){0};
}

static bool is_within(const char *root, const char *path)
{
    size_t n = strlen(root);
    if (strcmp(root, "/") == 0)
        return path[0] == '/';
    return strncmp(path, root, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

bool lab_roots_hold(const struct lab_roots *r, const char *real)
{
    char root[PATH_MAX];
    if (r->own != NULL && is_within(r->own, real)) /* by its letters: it may have become a link */
        return true;
    for (size_t i = 0; i < r->n; i++)
        if (realpath(r->paths[i], root) != NULL && is_within(root, real))
            return true;
    return false;
}

enum lab_code lab_path_problem(struct lab_problem *p, int error, enum lab_code missing,
                               const char *path)
{
    if (error == ENOENT || error == ENOTDIR)
        return lab_problem_set(p, missing, "Path not found: %.300s", path);
    if (error == EACCES || error == EPERM)
        return lab_problem_set(p, LAB_FORBIDDEN, "Path cannot be read: %.300s", path);
    if (error == ENAMETOOLONG)
        return lab_problem_set(p, LAB_INVALID_ARGUMENT, "Path is too long");
    if (error == ELOOP)
        return lab_problem_set(p, LAB_INVALID_ARGUMENT, "Path has too many links: %.300s", path);
    return lab_problem_set(p, LAB_INTERNAL, "Path cannot be read: %s", strerror(error));
}

/* Of the very file that is open: what the path leads to may have changed since. */
static bool real_path_of(int fd, char out[PATH_MAX])
{
    char link[48];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, PATH_MAX - 1);
    if (n <= 0)
        return false;
    out[n] = '\0';
    return true;
}

enum lab_code lab_roots_open(const struct lab_roots *r, const char *path, int *fd, uint64_t *size,
                             struct lab_problem *p)
{
    char real[PATH_MAX];
    struct stat st;
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (opened < 0)
        return lab_path_problem(p, errno, LAB_NOT_FOUND, path);
    if (fstat(opened, &st) != 0 || !S_ISREG(st.st_mode))
        lab_problem_set(p, LAB_NOT_FOUND, "Not a file: %.300s", path);
    else if (!real_path_of(opened, real) || !lab_roots_hold(r, real))
        lab_problem_set(p, LAB_FORBIDDEN, "Path is outside of the allowed roots: %.300s", path);
    else {
        *fd = opened;
        *size = (uint64_t)st.st_size;
        return LAB_FINE;
    }
    close(opened);
    return p->code;
}
