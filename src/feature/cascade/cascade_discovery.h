// SPDX-License-Identifier: Apache-2.0
/* cascade_discovery.h -- finding the editor's language server among this user's processes.
 *
 * Linux only, by what /proc says. A language server of Windsurf is a process of this user, no
 * zombie, whose program is called language_server_linux*, and which says `--ide_name windsurf`, or
 * says nothing about that and lies below a folder `windsurf` (of either case): Antigravity runs the
 * same program. The newest one that can be used is taken; older ones are left from sessions that
 * have ended. From that one process come
 *
 *   the token    WINDSURF_CSRF_TOKEN of its environment, else --csrf_token
 *   the port     of those it listens on, the lowest above --extension_server_port, else the lowest.
 *                If its sockets cannot be seen: the extension server's port + 3, if this user has
 *                a listener there
 *   the version  --windsurf_version up to a `+`, else 2.0.0
 *
 * Blocks: for a lane's thread. */
#ifndef FEATURE_CASCADE_CASCADE_DISCOVERY_H
#define FEATURE_CASCADE_CASCADE_DISCOVERY_H

#include "base/buf.h"
#include "feature/cascade/cascade_keys.h"

#include <stdint.h>
#include <sys/types.h>

#define CASCADE_VERSION_MAX     32 /* bytes */
#define CASCADE_VERSION_DEFAULT "2.0.0"

/* The caller wipes it (explicit_bzero). */
struct cascade_found {
    pid_t pid;
    uint16_t port;                         /* on the loopback interface */
    char csrf_token[CASCADE_CSRF_LEN + 1]; /* secret */
    char version[CASCADE_VERSION_MAX + 1];
};

/* proc: "/proc", or a folder laid out like it. ERR_NOT_FOUND: there is none that can be used, and
 * *why is appended a sentence for people, without anything secret. ERR_IO: proc cannot be read;
 * *why, too. */
int cascade_discover(const char *proc, uid_t uid, struct cascade_found *out, struct buf *why);

#endif
