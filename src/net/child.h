// SPDX-License-Identifier: Apache-2.0
/* child.h -- a program that somebody else wrote, started without a shell, and contained.
 *
 * It gets its standard input in full, as a file that it can only read; of the environment PATH,
 * HOME, LANG, LC_ALL, TZ and TMPDIR; no descriptor of ours but the three; and no way to gain
 * privileges (no_new_privs, so that it can always be ended). It runs in a session of its own,
 * writes no core, has the limit of descriptors that we came with (loop_raise_files), and each of
 * its processes may have so much memory. If we are killed, so is it; what it has started by then
 * may go on.
 *
 * When it ends, or is ended, so does everything that it started: its session, and what has left
 * that. For the latter the process makes itself the one that orphans come to (a subreaper), and
 * looks among its children for those that it did not start: each is started with a mark in its
 * environment, and one with the mark of none that runs is taken for set adrift as well, if it has
 * the bounds that all of ours have and cannot shed (census_is_contained). So there is one `struct
 * children` in a process, and whoever uses it starts no processes in other ways.
 *
 * Each process has its limit of CPU time, and a limit of the user's processes keeps one that forks
 * without end from taking more than there are on the machine at present, and as many as it may
 * have (the system counts them for the user as a whole, and not for root). Besides, all that it
 * started is counted a few times a second; a child that has too many, or has used too much CPU
 * time with all of them together, is ended.
 *
 * Loop thread only. Starting waits until the program is loaded; nothing else here waits: processes
 * are looked for on a thread of libuv's. Linux only. */
#ifndef NET_CHILD_H
#define NET_CHILD_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct child;
struct children;
struct loop;

struct children *children_new(struct loop *loop);

/* Those that still run are cancelled; all goes by itself when the last is gone. NULL is allowed. */
void children_free(struct children *all);

#define CHILD_ERRORS_MAX 1024 /* bytes that are kept of its standard error: the last ones */

/* How it ended by itself. */
struct child_end {
    int status;        /* of exit(); -1: a signal ended it */
    int signal;        /* 0: none did */
    struct str errors; /* what it wrote to standard error, at its end; lent */
    const char *bound; /* static: which of its bounds ended it; NULL: none */
};

/* Lent for the call but for ctx. */
struct child_setup {
    const char *const *argv; /* its first is looked for in PATH; NULL behind the last */
    struct str input;
    uint64_t max_memory; /* bytes of address space that each process may have */
    /* Of all its processes; 0: no bound. */
    uint64_t max_processes, max_cpu_ms;
    /* What came on its standard output, lent. False: nothing more before child_resume. */
    bool (*output)(void *ctx, struct str bytes);
    /* All its output was given, and nothing of it runs any more. The child is gone. */
    void (*done)(void *ctx, const struct child_end *end);
    void *ctx;
};

/* NULL with a sentence in why: it cannot be started. Neither callback comes from within. */
struct child *child_start(struct children *all, const struct child_setup *setup, char *why,
                          size_t size);

void child_resume(struct child *c);

/* Ends it and all it started. Nothing is called any more, and the child is gone. */
void child_cancel(struct child *c);

#endif
