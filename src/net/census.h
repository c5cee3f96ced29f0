// SPDX-License-Identifier: Apache-2.0
/* census.h -- how many processes those have become that we started, and how much CPU time they have
 * used. Any thread; reads all of /proc. */
#ifndef NET_CENSUS_H
#define NET_CENSUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CENSUS_MARK 64 /* bytes, with its NUL */
struct census_group {
    pid_t first;            /* a child of ours, which leads a session */
    char mark[CENSUS_MARK]; /* the entry of its environment that tells it from others */
    /* out: of it and of all that it started, as far as they can be found. Those who came to us as
     * orphans, are contained and show no mark of a group count for every one. */
    uint64_t processes, cpu_ms;
};

/* A child of ours is started so that neither it nor what it starts can gain privileges, and all of
 * them may have less memory than we may (census_memory). So a process that descends from one can be
 * told from others who came to us as orphans, as they do to the first process of a container: those
 * are as we are. */
bool census_is_contained(pid_t pid);

/* What a child may have, of what was asked for. */
uint64_t census_memory(uint64_t asked);

void census_take(struct census_group *groups, size_t n);

/* Tasks of all users at present; 0 if nobody says. */
uint64_t census_tasks(void);

#endif
