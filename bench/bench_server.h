// SPDX-License-Identifier: Apache-2.0
/* bench_server.h -- the process that is measured: one that we start and stop, or one that runs
 * already. A Redis that it keeps its streams in is one, too. */
#ifndef BENCH_SERVER_H
#define BENCH_SERVER_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

struct server {
    struct sockaddr_in at;
    pid_t pid; /* 0: not known, so neither time nor memory can be told */
    bool ours, timed;
    clockid_t cpu_clock;
    uint64_t started_ns; /* when a server of ours was: just before it was executed */
    FILE *output;        /* of a server of ours: both its output streams */
};

/* Moves this process to the second processor that it may use and returns the first, for the
 * server; -1 if there is only one, which is then shared. Call it once. */
int server_split_cpus(void);

#define SERVER_CPU_REST (-2) /* all processors but this process's */
#define SERVER_CPU_ALL  (-3)

struct server_plan {
    const char *path;
    const char *store; /* "memory", "embedded", or the address of a Redis */
    const char *data;  /* NULL: none */
    bool is_redis;     /* a redis-server, which syncs what it keeps in `data` before it answers */
    const char *args;  /* further ones, split at spaces; may be NULL */
    int cpu;           /* from server_split_cpus, or one of the above */
    unsigned files;    /* its soft limit of descriptors; 0: ours */
    bool files_hard;   /* ... and its hard limit */
    bool callgrind;    /* under valgrind, counting instructions */
};

/* Runs `path serve --listen 127.0.0.1:PORT --store STORE args...` on a free port and waits until it
 * accepts connections. On failure returns -1 and says why on stderr; nothing is left running. */
int server_start(struct server *s, const struct server_plan *plan);

/* Uses the server at http://ADDRESS:PORT; pid may be 0. -1: the URL is malformed (said on stderr).
 */
int server_attach(struct server *s, const char *url, pid_t pid, int cpu);

/* Ends a server of ours with SIGTERM, then, if it does not go, SIGKILL; leaves another alone.
 * Returns -1 if ours did not end cleanly (said on stderr). *instructions (may be NULL): what
 * callgrind counted, or 0. */
int server_stop(struct server *s, uint64_t *instructions);

/* Ends a server of ours with SIGKILL. */
void server_kill(struct server *s);

/* Processor time of all its threads. 0 if not known. */
uint64_t server_cpu_ns(const struct server *s);

/* Processor time that processes other than the server and this one have taken, on all processors;
 * what a hypervisor withheld counts too. */
uint64_t server_others_ns(const struct server *s);

/* Its private memory in bytes, without mapped files and without the kernel's. 0 if not known. */
uint64_t server_memory(const struct server *s);

/* Bytes that it has in memory of the mapped files whose names end so. 0 if not known. */
uint64_t server_mapped(const struct server *s, const char *file);

/* Open descriptors; threads. 0 if not known. */
unsigned server_files(const struct server *s);
unsigned server_threads(const struct server *s);

/* Bytes that it made the disk write so far, as the kernel counts them: some file systems do not
 * count, and with large folios far too much is. And what it has passed to write(). */
struct server_io {
    uint64_t disk, calls;
};
struct server_io server_written(const struct server *s);

#endif
