// SPDX-License-Identifier: Apache-2.0
/* process.h -- what the system says of its processes, in /proc. Any thread. A process may be
 * another one by the next call: numbers are used again. */
#ifndef NET_PROCESS_H
#define NET_PROCESS_H

#include "base/str.h"

#include <stdint.h>
#include <sys/types.h>

struct process {
    pid_t pid, parent, group, session;
    bool ended;         /* and waits to be reaped */
    uint64_t start;     /* ticks since the boot: with the number, which process it is */
    uint64_t cpu_ticks; /* of itself and of those that it has reaped */
};

/* False: there is none of that number, or we are not told. */
bool process_read(pid_t pid, struct process *out);

/* The first entry of its environment that begins so (`NAME=`), with a NUL and cut to size; empty:
 * there is none in the first 64 KiB. It is read from the memory of the process, which may take its
 * time. */
void process_env(pid_t pid, struct str beginning, char *out, size_t size);

/* Whether it and all it starts can gain no privileges (no_new_privs). */
bool process_is_unprivileged(pid_t pid);

/* The address space that it and all it starts may ever have, in bytes (the hard RLIMIT_AS).
 * UINT64_MAX: no bound, or we are not told. */
uint64_t process_memory_max(pid_t pid);

#endif
