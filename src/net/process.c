// SPDX-License-Identifier: Apache-2.0
#include "net/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX    4096 /* bytes of a file that are looked at */
#define ENVIRON_MAX (64 * 1024)

/* The beginning of a file, with a NUL behind it; empty if it cannot be read. */
static struct str process_read_file(pid_t pid, const char *file, char *out, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = '\0';
    return str_of(out, n > 0 ? (size_t)n : 0);
}

/* `PID (NAME) STATE PARENT GROUP SESSION ...`, four times of the CPU as the 14th to 17th, the
 * start as the 22nd; the name may hold anything. */
bool process_read(pid_t pid, struct process *out)
{
    char text[TEXT_MAX], state;
    int parent, group, session;
    unsigned long long start, cpu[4];
    process_read_file(pid, "stat", text, sizeof text);
    const char *behind = strrchr(text, ')');
    if (behind == NULL ||
        sscanf(behind + 1,
               " %c %d %d %d %*s %*s %*s %*s %*s %*s %*s %llu %llu %llu %llu %*s %*s %*s %*s %llu",
               &state, &parent, &group, &session, &cpu[0], &cpu[1], &cpu[2], &cpu[3], &start) != 9)
        return false;
    *out = (struct process){.pid = pid,
                            .parent = parent,
                            .group = group,
                            .session = session,
                            .ended = state == 'Z' || state == 'X',
                            .start = start,
                            .cpu_ticks = cpu[0] + cpu[1] + cpu[2] + cpu[3]};
    return true;
}

void process_env(pid_t pid, struct str beginning, char *out, size_t size)
{
    char text[ENVIRON_MAX];
    struct str rest = process_read_file(pid, "environ", text, sizeof text), entry = STR_NONE;
    while (rest.n > 0 && !str_starts(entry, beginning))
        entry = str_cut(&rest, '\0');
    if (!str_starts(entry, beginning))
        entry = STR_NONE;
    snprintf(out, size, "%.*s", (int)entry.n, entry.n > 0 ? entry.p : "");
}

bool process_is_unprivileged(pid_t pid)
{
    char text[TEXT_MAX];
    process_read_file(pid, "status", text, sizeof text);
    return strstr(text, "\nNoNewPrivs:\t1") != NULL;
}

/* `Max address space SOFT HARD bytes`, where both are numbers or `unlimited` */
uint64_t process_memory_max(pid_t pid)
{
    static const char name[] = "\nMax address space";
    char text[TEXT_MAX];
    unsigned long long hard;
    process_read_file(pid, "limits", text, sizeof text);
    const char *line = strstr(text, name);
    bool bound = line != NULL && sscanf(line + sizeof name - 1, "%*s %llu", &hard) == 1;
    return bound ? hard : UINT64_MAX;
}
