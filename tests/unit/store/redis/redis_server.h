// SPDX-License-Identifier: Apache-2.0
/* redis_server.h -- for tests: real redis-servers, each on a free port in a folder of its own,
 * started by fork and exec and ended by their pid. They end with the test, whatever happens to it.
 */
#ifndef TESTS_REDIS_SERVER_H
#define TESTS_REDIS_SERVER_H

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define REDIS_SERVER_ARGS 40

struct redis_server {
    pid_t pid; /* 0: does not run */
    uint16_t port;
    char folder[64];
};

static inline bool redis_server_installed(void)
{
    return system("command -v redis-server >/dev/null 2>&1") == 0;
}

static inline uint16_t redis_server_free_port(void)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof sa;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, n) != 0 ||
        getsockname(fd, (struct sockaddr *)&sa, &n) != 0)
        abort();
    close(fd);
    return ntohs(sa.sin_port);
}

/* The inode of the socket that listens there; 0: none does. */
static inline unsigned long redis_server_listener(uint16_t port)
{
    char line[512];
    unsigned long inode = 0;
    FILE *f = fopen("/proc/net/tcp", "r");
    if (f == NULL)
        abort();
    while (inode == 0 && fgets(line, sizeof line, f) != NULL) {
        unsigned at = 0, state = 0;
        unsigned long its = 0;
        if (sscanf(line, "%*s %*8[0-9A-F]:%4X %*s %2X %*s %*s %*s %*s %*s %lu", &at, &state,
                   &its) == 3 &&
            at == port && state == 0x0a)
            inode = its;
    }
    fclose(f);
    return inode;
}

/* It is this process that listens, and not somebody who was faster: who took a stranger's for its
 * own would change what is in it. */
static inline bool redis_server_listens(pid_t pid, uint16_t port)
{
    char folder[32], wanted[32];
    unsigned long inode = redis_server_listener(port);
    bool listens = false;
    snprintf(folder, sizeof folder, "/proc/%d/fd", (int)pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *fds = inode == 0 ? NULL : opendir(folder);
    for (struct dirent *d; fds != NULL && !listens && (d = readdir(fds)) != NULL;) {
        char link[NAME_MAX + 1];
        ssize_t n = readlinkat(dirfd(fds), d->d_name, link, sizeof link);
        listens = n == (ssize_t)strlen(wanted) && memcmp(link, wanted, (size_t)n) == 0;
    }
    if (fds != NULL)
        closedir(fds);
    return listens;
}

/* Starts it with these arguments and waits until it listens. */
static inline bool redis_server_spawn(struct redis_server *s, const char *const *args)
{
    s->pid = fork();
    if (s->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
        execvp(args[0], (char *const *)(uintptr_t)args);
        _exit(127);
    }
    for (int i = 0; i < 1000; i++) {
        if (redis_server_listens(s->pid, s->port))
            return true;
        if (waitpid(s->pid, NULL, WNOHANG) == s->pid)
            break;
        usleep(10000);
    }
    s->pid = 0;
    return false;
}

static inline bool redis_server_start_here(struct redis_server *s, const char *const *more)
{
    char port[8];
    const char *args[REDIS_SERVER_ARGS] = {"redis-server", "--port", port,      "--bind",
                                           "127.0.0.1",    "--save", "",        "--daemonize",
                                           "no",           "--dir",  s->folder, NULL};
    size_t n = 11;
    snprintf(port, sizeof port, "%u", (unsigned)s->port);
    for (size_t i = 0; more != NULL && more[i] != NULL && n + 1 < REDIS_SERVER_ARGS; i++)
        args[n++] = more[i];
    args[n] = NULL;
    return redis_server_spawn(s, args);
}

/* On s->port, or a free one if that is 0; more: further arguments, ended by NULL, may be NULL. */
static inline bool redis_server_start(struct redis_server *s, const char *const *more)
{
    bool anywhere = s->port == 0;
    if (s->folder[0] == '\0') {
        strcpy(s->folder, "/tmp/tidemark-redis-XXXXXX");
        if (mkdtemp(s->folder) == NULL)
            return false;
    }
    /* Somebody else may be faster to take a port that was free. */
    for (int i = 0; i < (anywhere ? 5 : 1); i++) {
        if (anywhere)
            s->port = redis_server_free_port();
        if (redis_server_start_here(s, more))
            return true;
    }
    return false;
}

/* A Sentinel with this configuration, which it writes to. */
static inline bool redis_sentinel_start(struct redis_server *s, const char *config)
{
    char port[8];
    if (s->port == 0)
        s->port = redis_server_free_port();
    snprintf(port, sizeof port, "%u", (unsigned)s->port);
    const char *args[] = {"redis-server", config,        "--sentinel", "--port",
                          port,           "--daemonize", "no",         NULL};
    return redis_server_spawn(s, args);
}

/* What redis-cli says to a command, without the line's end. */
__attribute__((format(printf, 4, 5))) static inline void
redis_server_cli(const struct redis_server *s, char *out, size_t size, const char *format, ...)
{
    char command[512];
    va_list args;
    int n = snprintf(command, sizeof command, "redis-cli -p %u ", (unsigned)s->port);
    va_start(args, format);
    vsnprintf(command + n, sizeof command - (size_t)n, format, args);
    va_end(args);
    FILE *f = popen(command, "r");
    if (f == NULL)
        abort();
    size_t got = fread(out, 1, size - 1, f);
    pclose(f);
    while (got > 0 && out[got - 1] == '\n')
        got--;
    out[got] = '\0';
}

static inline void redis_server_end(struct redis_server *s, int with)
{
    if (s->pid <= 0)
        return;
    kill(s->pid, with);
    waitpid(s->pid, NULL, 0);
    s->pid = 0;
}

static inline void redis_server_clean(struct redis_server *s)
{
    char command[128];
    redis_server_end(s, SIGKILL);
    if (s->folder[0] == '\0')
        return;
    snprintf(command, sizeof command, "rm -rf %s", s->folder);
    if (system(command) != 0)
        abort();
    s->folder[0] = '\0';
}

#endif
