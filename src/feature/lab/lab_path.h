// SPDX-License-Identifier: Apache-2.0
/* lab_path.h -- where the Lab may read: folders that were allowed, and nothing that a link leads to
 * from there. All of it asks the file system: in a lane only. */
#ifndef FEATURE_LAB_LAB_PATH_H
#define FEATURE_LAB_LAB_PATH_H

#include "base/str.h"
#include "feature/lab/lab_problem.h"

#include <stdbool.h>
#include <stdint.h>

/* Absolute, `.` and `..` taken out by their letters alone. base: absolute. The caller frees. */
char *lab_path_resolve(const char *base, struct str path);

struct lab_roots {
    char **paths; /* absolute; they need not exist yet */
    size_t n;
    /* Besides: the folder of a run, which was allowed when it was imported. Lent; NULL: none. */
    const char *own;
};
void lab_roots_add(struct lab_roots *r, const char *base, struct str path); /* once each */
void lab_roots_deinit(struct lab_roots *r);

/* Whether a path without links is one of the roots or lies in one. */
bool lab_roots_hold(const struct lab_roots *r, const char *real);

/* Opens a plain file for reading if that file, wherever links led to, lies within the roots.
 * NOT_FOUND, FORBIDDEN or INVALID_ARGUMENT; *fd and *size are untouched then. */
enum lab_code lab_roots_open(const struct lab_roots *r, const char *path, int *fd, uint64_t *size,
                             struct lab_problem *p);

/* What errno says of a path that somebody asked for. */
enum lab_code lab_path_problem(struct lab_problem *p, int error, enum lab_code missing,
                               const char *path);

#endif
