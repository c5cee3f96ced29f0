// SPDX-License-Identifier: Apache-2.0
/* plain_path.h -- paths that are judged here and read again by another server.
 *
 * Whoever reads a path may decode it, once or more often, drop what stands behind a `;`, take a
 * backslash for a slash, and resolve `.` and `..`. A path for which that makes a difference is
 * refused, so that what is asked for there is what was granted here. Pure. */
#ifndef HTTP_PLAIN_PATH_H
#define HTTP_PLAIN_PATH_H

#include "base/arena.h"
#include "base/str.h"

/* The two ways to read an escaped slash: as any slash, or as a part of a segment (`%2F`). */
enum plain_slash { PLAIN_SLASH_SPLITS, PLAIN_SLASH_STAYS };

/* The name by which grants know a path: decoded, in the arena or a part of path, without one slash
 * at its end. 0, or ERR_SYNTAX: it is not plain. */
int plain_path_name(struct arena *a, struct str path, enum plain_slash slash, struct str *name);

/* Has it an escaped slash, so that the two names differ? */
bool plain_path_is_ambiguous(struct str path);

#endif
