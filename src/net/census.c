// SPDX-License-Identifier: Apache-2.0
#include "net/census.h"
#include "base/mem.h"
#include "base/num.h"
#include "net/process.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define DEPTH_MAX                                                                                  \
    4096 /* of a tree; a snapshot that is not of one moment may even show a circle                 \
          */

struct snapshot {
    struct process *items; /* by pid */
    size_t n, cap;
};

static int census_compare(const void *a, const void *b)
{
    pid_t x = ((const struct process *)a)->pid, y = ((const struct process *)b)->pid;
    return (x > y) - (x < y);
}

static void take_snapshot(struct snapshot *s)
{
    DIR *proc = opendir("/proc");
    if (proc == NULL)
        return;
    for (struct dirent *e; (e = readdir(proc)) != NULL;) {
        uint64_t pid;
        if (num_parse(str_of_cstr(e->d_name), INT_MAX, &pid) != 0)
            continue;
        if (s->n == s->cap) {
            s->cap = s->cap == 0 ? 256 : s->cap * 2;
            s->items = mem_realloc(s->items, s->cap * sizeof *s->items);
        }
        s->n += process_read((pid_t)pid, &s->items[s->n]);
    }
    closedir(proc);
    if (s->n > 0)
        qsort(s->items, s->n, sizeof *s->items, census_compare);
}

static const struct process *census_find(const struct snapshot *s, pid_t pid)
{
    struct process key = {.pid = pid};
    return s->n == 0 ? NULL : bsearch(&key, s->items, s->n, sizeof key, census_compare);
}

/* The child of ours that it descends from; NULL: none. */
static const struct process *root_of(const struct snapshot *s, const struct process *p)
{
    for (int i = 0; p != NULL && p->parent != getpid() && i < DEPTH_MAX; i++)
        p = p->parent > 1 ? census_find(s, p->parent) : NULL;
    return p != NULL && p->parent == getpid() ? p : NULL;
}

static struct census_group *group_of(struct census_group *groups, size_t n, const struct process *p,
                                     const struct process *root)
{
    char mark[CENSUS_MARK];
    for (size_t i = 0; i < n; i++)
        if (groups[i].first == root->pid || groups[i].first == p->session)
            return &groups[i];
    for (size_t i = 0; i < n; i++) {
        process_env(root->pid, str_of_cstr(groups[i].mark), mark, sizeof mark);
        if (mark[0] != '\0')
            return &groups[i];
    }
    return NULL;
}

static uint64_t own_memory_max(void)
{
    struct rlimit own;
    return getrlimit(RLIMIT_AS, &own) == 0 ? own.rlim_max : RLIM_INFINITY;
}

uint64_t census_memory(uint64_t asked)
{
    uint64_t own = own_memory_max();
    return asked < own ? asked : own - 1;
}

bool census_is_contained(pid_t pid)
{
    return process_is_unprivileged(pid) && process_memory_max(pid) < own_memory_max();
}

static void census_count(struct census_group *g, const struct process *p)
{
    g->processes += !p->ended;
    g->cpu_ms += p->cpu_ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
}

void census_take(struct census_group *groups, size_t n)
{
    struct snapshot s = {0};
    take_snapshot(&s);
    for (size_t i = 0; i < s.n; i++) {
        const struct process *p = &s.items[i], *root = root_of(&s, p);
        if (root == NULL)
            continue;
        struct census_group *g = group_of(groups, n, p, root);
        if (g != NULL)
            census_count(g, p);
        else if (census_is_contained(p->pid))
            for (size_t k = 0; k < n; k++)
                census_count(&groups[k], p);
    }
    free(s.items);
}

/* `LOAD LOAD LOAD RUNNING/ALL LAST` */
uint64_t census_tasks(void)
{
    unsigned long long all = 0;
    FILE *f = fopen("/proc/loadavg", "re");
    if (f == NULL)
        return 0;
    if (fscanf(f, "%*s %*s %*s %*u/%llu", &all) != 1)
        all = 0;
    fclose(f);
    return all;
}
